//! The footer of a part: its columns, and the index of its blocks.

use keirin_codecs::frame::{self, Frame, Limits};
use keirin_codecs::strings::Buffer;
use keirin_codecs::{Goal, floats::Float, integers::Int};
use keirin_kernels::{BitBuffer, Level};

use super::statistics::{BlockFlags, Statistics};
use super::{BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, BLOCKS_MAX, STRIPE_ROWS, STRIPES_MAX, align};
use crate::header::HEADER_BYTES;
use crate::schema::{DataType, Field, SortKey, read_fields, read_keys, write_fields, write_keys};
use crate::wire::{Reader, Wire, Write};

/// An entry of the index: where a block is, and its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub(super) offset: u64,
    pub(super) validity_bytes: u32,
    pub(super) value_bytes: u32,
    /// The checksums of the frames, 0 for a missing frame. Repeating them in the index keeps a block from taking
    /// another's place.
    pub(super) validity_checksum: u64,
    pub(super) value_checksum: u64,
    pub(super) statistics: Statistics,
}

impl BlockEntry {
    /// Where the values begin, from the start of the block.
    pub(super) fn values_at(&self) -> u64 {
        align(u64::from(self.validity_bytes))
    }

    /// The most bytes that the decompressed values take, whatever the frame says: a number has at most 16 bytes,
    /// and the index knows the length of text. Encodings may double that for values that do not suit them.
    pub(super) fn values_max(&self) -> u64 {
        const VALUE_BYTES_MAX: u64 = 16;
        const FRAME_BYTES: u64 = 1 << 16;
        let Statistics { rows, text_bytes, .. } = self.statistics;
        let values = u64::from(rows) * VALUE_BYTES_MAX + u64::from(text_bytes);
        (2 * values + FRAME_BYTES).min(BLOCK_BYTES_MAX)
    }

    /// Bytes of the block.
    pub(super) fn byte_count(&self) -> u64 {
        match self.value_bytes {
            0 => u64::from(self.validity_bytes),
            bytes => self.values_at() + u64::from(bytes),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Footer {
    pub(super) row_count: u64,
    pub(super) stripe_rows: Vec<u32>,
    pub(super) fields: Vec<Field>,
    pub(super) keys: Vec<SortKey>,
    /// For each node the approximate count of distinct values in all stripes; 0 if they were not counted.
    pub(super) distinct: Vec<u64>,
    /// All stripes of the first node, then all of the next.
    pub(super) blocks: Vec<BlockEntry>,
    /// Where the first record of the details begins; the others follow one another.
    pub(super) details_at: u64,
    /// The record with the rows of the sample, and those of the columns; none if there are no details.
    pub(super) details: Vec<RecordEntry>,
}

/// A record of the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordEntry {
    /// 0 if it is missing.
    pub(super) bytes: u32,
    pub(super) hash: u64,
}

/// A nullable column of the index.
fn optional<T>(rows: impl Iterator<Item = Option<T>> + Clone, default: T) -> (BitBuffer, Vec<T>)
where
    T: Clone,
{
    (
        rows.clone().map(|row| row.is_some()).collect(),
        rows.map(|row| row.unwrap_or(default.clone())).collect(),
    )
}

impl Footer {
    /// # Errors
    /// When the index is too large for frames.
    pub(super) fn write(&self, level: Level) -> keirin_codecs::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.put_u64(self.row_count);
        bytes.put_count(self.stripe_rows.len());
        self.stripe_rows.iter().for_each(|rows| bytes.put_u32(*rows));
        write_fields(&mut bytes, &self.fields);
        write_keys(&mut bytes, &self.keys);
        let mut put = |frame: keirin_codecs::Result<Vec<u8>>| frame.map(|frame| bytes.extend(frame));
        put(integers(level, self.distinct.iter().copied()))?;
        put(integers(level, self.blocks.iter().map(|block| block.offset)))?;
        put(integers(level, self.blocks.iter().map(|block| block.validity_bytes)))?;
        put(integers(level, self.blocks.iter().map(|block| block.value_bytes)))?;
        put(integers(level, self.blocks.iter().map(|block| block.validity_checksum)))?;
        put(integers(level, self.blocks.iter().map(|block| block.value_checksum)))?;
        let statistics = || self.blocks.iter().map(|block| &block.statistics);
        put(integers(level, statistics().map(|block| block.rows)))?;
        put(integers(level, statistics().map(|block| block.nulls)))?;
        put(integers(level, statistics().map(|block| block.distinct)))?;
        put(integers(level, statistics().map(|block| block.text_bytes)))?;
        put(integers(level, statistics().map(|block| block.flags.0)))?;
        for bounds in [
            optional(statistics().map(|block| block.min.as_deref()), &[][..]),
            optional(statistics().map(|block| block.max.as_deref()), &[][..]),
        ] {
            put(frame::of_flags(level, Goal::Smallest, bounds.0.as_bits()))?;
            let text: Buffer = bounds.1.into_iter().collect();
            put(frame::of_strings(level, Goal::Smallest, text.rows(level)))?;
        }
        let sums = optional(statistics().map(|block| block.sum), 0);
        put(frame::of_flags(level, Goal::Smallest, sums.0.as_bits()))?;
        put(frame::of_integers(level, Goal::Smallest, &sums.1))?;
        bytes.put_u64(self.details_at);
        bytes.put_count(self.details.len());
        for record in &self.details {
            bytes.put_u32(record.bytes);
            bytes.put_u64(record.hash);
        }
        Ok(bytes)
    }

    /// Reads the footer of this format that lies at `footer_at` in its file.
    pub(super) fn read(level: Level, bytes: &[u8], footer_at: u64, format: u32) -> Wire<Self> {
        let mut reader = Reader::new(bytes);
        let row_count = reader.u64()?;
        let stripe_count = reader.count(4, STRIPES_MAX)?;
        let mut stripe_rows = Vec::with_capacity(stripe_count);
        for _ in 0..stripe_count {
            match reader.u32()? {
                rows if (1..=STRIPE_ROWS).contains(&(rows as usize)) => stripe_rows.push(rows),
                rows => return reader.malformed(format!("a stripe of {rows} rows")),
            }
        }
        if stripe_rows.iter().map(|rows| u64::from(*rows)).sum::<u64>() != row_count {
            return reader.malformed(format!("stripes of other rows than {row_count}"));
        }
        let (fields, keys) = (read_fields(&mut reader, 0)?, read_keys(&mut reader)?);
        let node_count = fields.iter().flat_map(Field::nodes).count();
        let block_count = node_count * stripe_count;
        if block_count > BLOCKS_MAX {
            return reader.malformed(format!("{block_count} blocks, at most {BLOCKS_MAX} are possible"));
        }
        let distinct = Frames::new(level, &mut reader, node_count).integers()?;
        let blocks = read_index(Frames::new(level, &mut reader, block_count))?;
        let (details_at, details) = match format {
            1 => (0, Vec::new()),
            _ => (reader.u64()?, read_records(&mut reader)?),
        };
        reader.end()?;
        let footer = Self { row_count, stripe_rows, fields, keys, distinct, blocks, details_at, details };
        footer.problem(footer_at).map_or(Ok(footer), |problem| reader.malformed(problem))
    }

    /// What is wrong with the offsets and counts of rows, if anything.
    pub(super) fn problem(&self, footer_at: u64) -> Option<String> {
        for block in &self.blocks {
            let end = block.offset.checked_add(block.byte_count());
            let is_inside = block.offset >= HEADER_BYTES as u64 && end.is_some_and(|end| end <= footer_at);
            let (is_empty, is_huge) = (block.byte_count() == 0, block.byte_count() > 2 * BLOCK_BYTES_MAX);
            if is_huge || !is_empty && (!is_inside || align(block.offset) != block.offset) {
                return Some(format!("a block at byte {} of {} bytes", block.offset, block.byte_count()));
            }
            let Statistics { rows, nulls, .. } = block.statistics;
            if rows > BLOCK_ROWS_MAX || (nulls > 0) != (block.validity_bytes > 0) {
                return Some(format!("a block of {rows} rows with {nulls} nulls"));
            }
        }
        let details_bytes = self.details.iter().map(|record| u64::from(record.bytes)).sum();
        let details_end = self.details_at.checked_add(details_bytes);
        let is_inside =
            self.details_at >= HEADER_BYTES as u64 && details_end.is_some_and(|end| end <= footer_at);
        let is_whole = is_inside && self.details.len() == 1 + self.fields.len();
        if !is_whole && !self.details.is_empty() {
            let (count, at) = (self.details.len(), self.details_at);
            return Some(format!("{count} records of {details_bytes} bytes at byte {at}"));
        }
        let nodes = self.fields.iter().flat_map(Field::nodes);
        for (field, blocks) in nodes.zip(self.blocks.chunks_exact(self.stripe_rows.len().max(1))) {
            let problem = blocks.iter().find_map(|block| block.statistics.problem(field));
            if problem.is_some() {
                return problem;
            }
        }
        let mut first = 0;
        for field in &self.fields {
            for (stripe, rows) in self.stripe_rows.iter().enumerate() {
                let problem = self.rows_problem(&mut { first }, field, stripe, *rows);
                if problem.is_some() {
                    return problem;
                }
            }
            first += field.nodes().count();
        }
        None
    }

    /// What is wrong with the row counts of a node and its children, which are numbered from `node` on.
    fn rows_problem(&self, node: &mut usize, field: &Field, stripe: usize, rows: u32) -> Option<String> {
        let found = self.block(*node, stripe).statistics.rows;
        if found != rows {
            return Some(format!("a block of {found} rows of '{}' in stripe {stripe} of {rows}", field.name));
        }
        *node += 1;
        let children = field.data_type.children();
        let rows_inside = match field.data_type {
            DataType::Struct(_) => rows,
            // Only the block itself tells how many elements lists have; a map has as many keys as values.
            _ if !children.is_empty() => self.block(*node, stripe).statistics.rows,
            _ => return None,
        };
        children.iter().find_map(|child| self.rows_problem(node, child, stripe, rows_inside))
    }

    /// The block of a node in a stripe.
    pub(super) fn block(&self, node: usize, stripe: usize) -> &BlockEntry {
        &self.blocks[node * self.stripe_rows.len() + stripe]
    }
}

fn text_row(text: &Buffer, row: usize) -> &[u8] {
    &text.bytes[text.offsets[row].cast_unsigned() as usize..text.offsets[row + 1].cast_unsigned() as usize]
}

fn integers<T: Int>(level: Level, values: impl Iterator<Item = T>) -> keirin_codecs::Result<Vec<u8>> {
    frame::of_integers(level, Goal::Smallest, &values.collect::<Vec<T>>())
}

fn read_records(reader: &mut Reader<'_>) -> Wire<Vec<RecordEntry>> {
    const ENTRY_BYTES: usize = 12;
    let count = reader.count(ENTRY_BYTES, 1 + BLOCKS_MAX)?;
    (0..count).map(|_| Ok(RecordEntry { bytes: reader.u32()?, hash: reader.u64()? })).collect()
}

/// Consecutive frames of one count of rows.
pub(super) struct Frames<'r, 'a> {
    level: Level,
    reader: &'r mut Reader<'a>,
    pub(super) row_count: usize,
    /// The most bytes of a row, encoded or not.
    pub(super) row_bytes_max: usize,
}

impl<'r, 'a> Frames<'r, 'a> {
    pub(super) fn new(level: Level, reader: &'r mut Reader<'a>, row_count: usize) -> Self {
        /// Those of the index of blocks.
        const ROW_BYTES_MAX: usize = 80;
        Self { level, reader, row_count, row_bytes_max: ROW_BYTES_MAX }
    }
}

impl Frames<'_, '_> {
    /// Hands the next frame to `read`.
    fn frame<T>(&mut self, read: impl FnOnce(Frame<'_>) -> keirin_codecs::Result<T>) -> Wire<T> {
        const FRAME_BYTES: usize = 1 << 12;
        let bytes = (self.row_count * self.row_bytes_max + FRAME_BYTES) as u64;
        let rows = u32::try_from(self.row_count).expect("the count was held against its limit");
        let frame = Frame::open(self.reader.rest(), Limits { rows, bytes })
            .or_else(|error| self.reader.malformed(error.to_string()))?;
        if frame.row_count() != self.row_count {
            return self.reader.malformed(format!("{} rows of an index", frame.row_count()));
        }
        let read = read(frame).or_else(|error| self.reader.malformed(error.to_string()))?;
        self.reader.take(frame.byte_count())?;
        Ok(read)
    }

    pub(super) fn malformed<T>(&self, reason: impl Into<String>) -> Wire<T> {
        self.reader.malformed(reason)
    }

    /// Fails if there are bytes left.
    pub(super) fn end(&self) -> Wire<()> {
        self.reader.end()
    }

    pub(super) fn integers<T: Int>(&mut self) -> Wire<Vec<T>> {
        let level = self.level;
        self.frame(|frame| frame.integers(level)?.decode(level))
    }

    pub(super) fn floats<T: Float>(&mut self) -> Wire<Vec<T>> {
        let level = self.level;
        self.frame(|frame| frame.floats(level)?.decode(level))
    }

    pub(super) fn text(&mut self) -> Wire<Buffer> {
        let level = self.level;
        self.frame(|frame| frame.strings(level)?.decode(level))
    }

    pub(super) fn flags(&mut self) -> Wire<BitBuffer> {
        let level = self.level;
        self.frame(|frame| Ok(frame.flags(level)?.decode()))
    }

    fn bounds(&mut self) -> Wire<impl Iterator<Item = Option<Vec<u8>>> + use<>> {
        let (is_there, text) = (self.flags()?, self.text()?);
        Ok((0..self.row_count)
            .map(move |block| is_there.as_bits().get(block).then(|| text_row(&text, block).to_vec())))
    }
}

fn read_index(mut index: Frames<'_, '_>) -> Wire<Vec<BlockEntry>> {
    let offsets: Vec<u64> = index.integers()?;
    let validity_bytes: Vec<u32> = index.integers()?;
    let value_bytes: Vec<u32> = index.integers()?;
    let (validity_checksums, value_checksums): (Vec<u64>, Vec<u64>) = (index.integers()?, index.integers()?);
    let (rows, nulls): (Vec<u32>, Vec<u32>) = (index.integers()?, index.integers()?);
    let (distinct, text_bytes): (Vec<u32>, Vec<u32>) = (index.integers()?, index.integers()?);
    let flags: Vec<u16> = index.integers()?;
    let mut min = index.bounds()?;
    let mut max = index.bounds()?;
    let (has_sum, sums): (BitBuffer, Vec<i128>) = (index.flags()?, index.integers()?);
    Ok((0..index.row_count)
        .map(|block| BlockEntry {
            offset: offsets[block],
            validity_bytes: validity_bytes[block],
            value_bytes: value_bytes[block],
            validity_checksum: validity_checksums[block],
            value_checksum: value_checksums[block],
            statistics: Statistics {
                rows: rows[block],
                nulls: nulls[block],
                distinct: distinct[block],
                text_bytes: text_bytes[block],
                flags: BlockFlags(flags[block]),
                min: min.next().flatten(),
                max: max.next().flatten(),
                sum: has_sum.as_bits().get(block).then(|| sums[block]),
            },
        })
        .collect())
}
