//! Writes a part, a stripe at a time, in memory that does not grow with the rows. The stripes of a sorted run are
//! encoded by several threads, each independently.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keirin_codecs::frame;
use keirin_kernels::Level;
use xxhash_rust::xxh3::xxh3_64;

use super::block::{Block, Encoder, Plans};
use super::codec::ColumnCodec;
use super::details::{
    DETAILS_ROWS_MIN, FilterEntry, FilterWriter, Record, STRIPES_MIN, Sampler, ZoneWriter, can_have_filters,
    frame_of_sample_rows, has_details,
};
use super::footer::{BlockEntry, Footer, RecordEntry};
use super::statistics::DistinctSum;
use super::{ALIGN_BYTES, BLOCK_BYTES_MAX, BLOCKS_MAX, STRIPE_ROWS, STRIPES_MAX, align};
use crate::cancel::Cancel;
use crate::column::Column;
use crate::error::{Error, Result};
use crate::header::{self, FileKind, HEADER_BYTES, Identity};
use crate::io::Output;
use crate::run::Run;
use crate::schema::{Definition, Field};
use crate::state::Part;
use crate::store::{Store, part_path};
use crate::unsynced::Unsynced;

/// A stripe ends when the values of a column reach this size, so that blocks do not get much larger.
const STRIPE_BYTES: usize = 64 << 20;
/// It also ends when the values of all columns reach this size, so that a stripe of wide rows takes a bounded amount of memory.
const STRIPE_BYTES_OF_ALL: usize = 128 << 20;
/// Rows of a run are taken in its order up to about this size at a time.
const PIECE_BYTES: usize = 16 << 20;
/// Encoded blocks are collected up to this size, then written column by column.
const GROUP_BYTES: usize = 64 << 20;
/// Size of the write buffer.
const BUFFER_BYTES: usize = if cfg!(test) { 1 << 10 } else { 1 << 18 };

/// Options of writing a part.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The codec of each column; missing ones are the default.
    pub codecs: Vec<ColumnCodec>,
    /// Whether the rows come sorted by the keys of the table.
    pub is_sorted: bool,
    /// By field number, as a column of one row: the value that rows have in parts older than the field. A part that
    /// lacks a column with [`INITIAL`](crate::schema::INITIAL) and without a value here is not merged.
    pub initial: BTreeMap<u32, Column<'static>>,
    /// A stripe ends when the values of all columns reach this size, if that is less than it is without; several
    /// times as much memory is held while a part is written.
    pub stripe_bytes_max: Option<usize>,
}

impl WriteOptions {
    fn stripe_bytes(&self) -> usize {
        self.stripe_bytes_max.map_or(STRIPE_BYTES_OF_ALL, |bytes| bytes.min(STRIPE_BYTES_OF_ALL))
    }
}

/// A part that is being written.
#[derive(Debug)]
pub struct PartWriter {
    store: Arc<Store>,
    unsynced: Arc<Unsynced>,
    output: Box<dyn Output>,
    path: String,
    identity: Identity,
    definition: Arc<Definition>,
    options: WriteOptions,
    /// Rows of the next stripe.
    rows: Vec<Column<'static>>,
    /// Encoded stripes that are not written yet, each with its blocks by node.
    stripes: Vec<Vec<Block>>,
    encoded_bytes: usize,
    /// Entries of the blocks that were written, by stripe and node.
    entries: Vec<Vec<BlockEntry>>,
    stripe_rows: Vec<u32>,
    /// Indexed by node.
    distinct: Vec<DistinctSum>,
    /// By column.
    filters: Vec<FilterWriter>,
    /// Indexed by node; of nodes that are columns themselves.
    zones: Vec<ZoneWriter>,
    sampler: Sampler,
    /// By column, whether the next stripes are to have filters.
    wants_filter: Vec<bool>,
    plans: Vec<Plans>,
    /// Bytes that are not written yet, and their offset in the file.
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl PartWriter {
    /// Begins a part in a new file.
    pub(crate) fn new(
        store: Arc<Store>,
        unsynced: Arc<Unsynced>,
        output: Box<dyn Output>,
        identity: Identity,
        definition: Arc<Definition>,
        options: WriteOptions,
    ) -> Self {
        let path = part_path(identity.table, identity.number);
        let (header, _) = header::write(FileKind::Part, identity, &[]);
        let plans = store.plans.get(identity.table, &definition, &options);
        let rows = definition.fields.iter().map(|field| Column::empty(&field.data_type)).collect();
        let (sampler, wants_filter) = (Sampler::new(&definition), wants_filter(&definition, &options));
        Self {
            store,
            unsynced,
            output,
            path,
            identity,
            definition,
            options,
            rows,
            stripes: Vec::new(),
            encoded_bytes: 0,
            entries: Vec::new(),
            stripe_rows: Vec::new(),
            distinct: Vec::new(),
            filters: Vec::new(),
            zones: Vec::new(),
            sampler,
            wants_filter,
            plans,
            buffer: header.to_vec(),
            buffer_at: 0,
        }
    }

    /// Rows that were pushed.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        let pending = self.rows.first().map_or(0, Column::row_count);
        self.stripe_rows.iter().map(|rows| u64::from(*rows)).sum::<u64>() + pending as u64
    }

    /// Approximate bytes of the file so far.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.buffer_at + (self.buffer.len() + self.encoded_bytes) as u64
    }

    /// Whether it has half of the stripes that a part may have: of many columns these are few, so another should be
    /// begun.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let node_count = self.definition.fields.iter().flat_map(Field::nodes).count();
        self.stripe_rows.len() >= STRIPES_MAX.min(BLOCKS_MAX / node_count.max(1)) / 2
    }

    /// Appends rows: as many columns as the table has, of its types, all of one length.
    ///
    /// # Errors
    /// `Invalid` when the columns do not fit the table, or the part would have too many stripes.
    pub fn push(&mut self, columns: &[Column<'_>]) -> Result<()> {
        let row_count = columns.first().map_or(0, Column::row_count);
        let is_even = columns.iter().all(|column| column.row_count() == row_count);
        if columns.len() != self.rows.len() || !is_even {
            let message = format!("{} columns of different lengths for {}", columns.len(), self.rows.len());
            return Err(Error::Invalid(message));
        }
        let stripe_bytes = self.options.stripe_bytes();
        let mut first = 0;
        while first < row_count {
            let here = self.rows[0].row_count();
            let mut count = (STRIPE_ROWS - here).min(row_count - first);
            let bytes_here: Vec<usize> = self.rows.iter().map(Column::byte_count).collect();
            let bytes_of = |count: usize| {
                columns.iter().map(move |column| column.slice(first..first + count).byte_count())
            };
            let is_too_much = |count: usize| {
                let bytes = bytes_here.iter().zip(bytes_of(count)).map(|(here, more)| here + more);
                let (most, all) = bytes.fold((0, 0), |(most, all), bytes| (bytes.max(most), all + bytes));
                most > STRIPE_BYTES || all > stripe_bytes
            };
            while count > 1 && is_too_much(count) {
                count /= 2;
            }
            if here > 0 && is_too_much(count) {
                self.end_stripe()?;
                continue;
            }
            let bytes = bytes_of(count).max().unwrap_or(0);
            if bytes as u64 > BLOCK_BYTES_MAX {
                return Err(Error::Invalid(format!("a row of {bytes} bytes, at most 1 GiB is possible")));
            }
            for (mine, theirs) in self.rows.iter_mut().zip(columns) {
                mine.append(&theirs.slice(first..first + count))?;
            }
            first += count;
            if self.rows[0].row_count() == STRIPE_ROWS {
                self.end_stripe()?;
            }
        }
        Ok(())
    }

    /// Appends the rows of a sorted run, encoded by `thread_count` threads.
    ///
    /// # Errors
    /// As [`PartWriter::push`], and `Cancelled` when the run was.
    ///
    /// # Panics
    /// When rows were appended to the run since it was sorted.
    pub fn push_run(&mut self, run: &Run, thread_count: usize) -> Result<()> {
        let (level, columns, order) = (self.store.level, run.columns(), run.order());
        assert_eq!(order.len(), run.row_count(), "rows of a run that was sorted");
        let bytes: usize = columns.iter().map(Column::byte_count).sum();
        let (row_bytes, stripe_bytes) = ((bytes / order.len().max(1)).max(1), self.options.stripe_bytes());
        let rows_at_once = (PIECE_BYTES.min(stripe_bytes) / row_bytes).clamp(1, STRIPE_ROWS);
        let cancel = run.cancel();
        let push = |writer: &mut Self, rows: &[u32]| {
            rows.chunks(rows_at_once).try_for_each(|rows| {
                cancel.check()?;
                let taken: Vec<_> = columns.iter().map(|column| column.taken(level, rows)).collect();
                writer.push(&taken)
            })
        };
        let here = self.rows.first().map_or(0, Column::row_count);
        let is_small = columns.iter().all(|column| column.byte_count() <= STRIPE_BYTES)
            && row_bytes.saturating_mul(STRIPE_ROWS) <= stripe_bytes;
        if columns.len() != self.rows.len() || !is_small {
            return push(self, order);
        }
        let (front, rest) = order.split_at(if here == 0 { 0 } else { order.len().min(STRIPE_ROWS - here) });
        push(self, front)?;
        let stripes: Vec<&[u32]> = rest.chunks_exact(STRIPE_ROWS).collect();
        let encoded = self.encode_stripes(columns, &stripes, thread_count, cancel)?;
        for (blocks, rows) in encoded.into_iter().zip(&stripes) {
            self.draw_sample(columns, STRIPE_ROWS, Some(rows))?;
            self.add_stripe(STRIPE_ROWS, blocks)?;
        }
        push(self, &rest[stripes.len() * STRIPE_ROWS..])
    }

    /// Encodes stripes, each given by its row numbers.
    fn encode_stripes(
        &mut self,
        columns: &[Column<'_>],
        stripes: &[&[u32]],
        thread_count: usize,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Block>>> {
        self.renew_plans();
        let encoding = Encoding {
            level: self.store.level,
            definition: &self.definition,
            options: &self.options,
            wants_filter: &self.wants_filter,
        };
        let level = encoding.level;
        let (mut blocks, mut stripes) = (Vec::with_capacity(stripes.len()), stripes);
        if let Some((first, rest)) = stripes.split_first().filter(|_| self.plans.is_empty()) {
            // Choosing encodings takes far longer than encoding: for the first stripe the threads share the
            // columns, so that each choice is made once.
            let (columns, ()) = in_turns(thread_count, columns.len(), &(), |(), index| {
                cancel.check()?;
                let (mut plans, mut blocks) = (Vec::new(), Vec::new());
                let rows = columns[index].taken(level, first);
                encoding.column(index, &mut plans, &rows, &mut blocks)?;
                Ok((blocks, plans))
            })?;
            let (columns, plans): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
            blocks.push(columns.into_iter().flatten().collect());
            self.plans = plans.into_iter().flatten().collect();
            self.keep_plans();
            stripes = rest;
        }
        let (rest, plans) = in_turns(thread_count, stripes.len(), &self.plans, |plans, stripe| {
            // A stripe of many columns takes a while.
            let column = |index: usize| {
                cancel.check()?;
                Ok(columns[index].taken(level, stripes[stripe]))
            };
            encoding.stripe(plans, column)
        })?;
        self.plans = plans;
        blocks.extend(rest);
        Ok(blocks)
    }

    /// Takes over the plans of other writers of the table, if this one has none.
    fn renew_plans(&mut self) {
        if self.plans.is_empty() {
            self.plans = self.store.plans.get(self.identity.table, &self.definition, &self.options);
        }
    }

    /// Hands the plans on to other writers of the table.
    fn keep_plans(&self) {
        let (definition, options, plans) =
            (self.definition.clone(), self.options.clone(), self.plans.clone());
        self.store.plans.put(self.identity.table, definition, options, plans);
    }

    /// Encodes the buffered rows as a stripe.
    pub(crate) fn end_stripe(&mut self) -> Result<()> {
        let row_count = self.rows.first().map_or(0, Column::row_count);
        if row_count == 0 {
            return Ok(());
        }
        self.renew_plans();
        // Of so few rows no part with details is made, unless more come.
        let is_small = self.stripe_rows.is_empty() && (row_count as u64) < DETAILS_ROWS_MIN;
        let none = vec![false; self.rows.len()];
        let encoding = Encoding {
            level: self.store.level,
            definition: &self.definition,
            options: &self.options,
            wants_filter: if is_small { &none } else { &self.wants_filter },
        };
        let rows = &self.rows;
        let blocks = encoding.stripe(&mut self.plans, |index| Ok(rows[index].slice(0..row_count)))?;
        let mut rows = std::mem::take(&mut self.rows);
        self.draw_sample(&rows, row_count, None)?;
        rows.iter_mut().for_each(Column::clear);
        self.rows = rows;
        self.add_stripe(row_count, blocks)
    }

    /// Draws from the rows of the next stripe, which are those of `columns` in this order, if there is one.
    fn draw_sample(&mut self, columns: &[Column<'_>], row_count: usize, order: Option<&[u32]>) -> Result<()> {
        let first: u64 = self.stripe_rows.iter().map(|rows| u64::from(*rows)).sum();
        self.sampler.add(self.store.level, first..first + row_count as u64, columns, order)
    }

    /// Adds an encoded stripe of `row_count` rows.
    fn add_stripe(&mut self, row_count: usize, mut blocks: Vec<Block>) -> Result<()> {
        let stripe_count = self.stripe_rows.len() + 1;
        if stripe_count > STRIPES_MAX || stripe_count * blocks.len() > BLOCKS_MAX {
            return Err(Error::Invalid(format!("a part of {stripe_count} stripes; begin another part")));
        }
        self.distinct.resize(blocks.len(), DistinctSum::default());
        for (sum, block) in self.distinct.iter_mut().zip(&mut blocks) {
            sum.add(&block.statistics, block.sketch.take());
        }
        self.zones.resize_with(blocks.len(), ZoneWriter::default);
        let nodes = self.definition.fields.iter().flat_map(Field::nodes);
        for ((zones, block), field) in self.zones.iter_mut().zip(&mut blocks).zip(nodes) {
            if let (Some(found), Some(kind)) = (block.zones.take(), field.data_type.values()) {
                zones.add(kind, found);
            }
        }
        self.stripe_rows.push(u32::try_from(row_count).expect("a stripe has 65,536 rows"));
        self.encoded_bytes +=
            blocks.iter().map(|block| block.validity.len() + block.values.len()).sum::<usize>();
        self.stripes.push(blocks);
        let group_bytes = GROUP_BYTES.min(2 * self.options.stripe_bytes());
        if self.encoded_bytes >= group_bytes { self.write_group() } else { Ok(()) }
    }

    /// Writes the encoded stripes, node by node.
    fn write_group(&mut self) -> Result<()> {
        let node_count = self.stripes.first().map_or(0, Vec::len);
        let mut stripes: Vec<_> = self.stripes.drain(..).map(Vec::into_iter).collect();
        let first = self.entries.len();
        self.entries.resize_with(first + stripes.len(), || Vec::with_capacity(node_count));
        self.filters.resize_with(self.definition.fields.len(), FilterWriter::default);
        let mut columns = BTreeMap::new();
        let mut node = 0;
        for (column, field) in self.definition.fields.iter().enumerate() {
            columns.insert(node, column);
            node += field.nodes().count();
        }
        for node in 0..node_count {
            let mut filters = Vec::with_capacity(stripes.len());
            for (stripe, blocks) in stripes.iter_mut().enumerate() {
                let mut block = blocks.next().expect("every stripe has a block of each node");
                filters.push(block.filter.take());
                let entry = self.write_block(block)?;
                self.entries[first + stripe].push(entry);
            }
            if let Some(column) = columns.get(&node) {
                self.write_filters(node, *column, first, filters)?;
            }
        }
        self.encoded_bytes = 0;
        Ok(())
    }

    /// Writes the filters of a column in the stripes from `first` on, if they are of use. If they are not, the next
    /// stripes need none.
    fn write_filters(
        &mut self,
        node: usize,
        column: usize,
        first: usize,
        filters: Vec<Option<Vec<u8>>>,
    ) -> Result<()> {
        let data_type = &self.definition.fields[column].data_type;
        let stripes: Vec<_> = self.entries[first..].iter().map(|entries| &entries[node].statistics).collect();
        let can_profit = filters.iter().any(Option::is_some)
            && self.row_count() >= DETAILS_ROWS_MIN
            && FilterWriter::can_profit(data_type, &stripes, self.distinct[node].estimate());
        self.wants_filter[column] &= can_profit || stripes.len() < STRIPES_MIN;
        for filter in filters {
            let mut entry = FilterEntry::default();
            if let Some(filter) = filter.filter(|_| can_profit) {
                self.pad();
                let bytes = u32::try_from(filter.len()).expect("some bits for each row of a stripe");
                let offset = self.buffer_at + self.buffer.len() as u64;
                entry = FilterEntry { offset, bytes, checksum: xxh3_64(&filter) };
                self.write(&filter)?;
            }
            self.filters[column].entries.push(entry);
        }
        Ok(())
    }

    /// Writes the details; where they begin, and their records.
    fn write_details(&mut self) -> Result<(u64, Vec<RecordEntry>)> {
        let details_at = self.buffer_at + self.buffer.len() as u64;
        if self.row_count() < DETAILS_ROWS_MIN {
            return Ok((details_at, Vec::new()));
        }
        let level = self.store.level;
        let mut records = vec![frame_of_sample_rows(level, &self.sampler.rows())];
        let mut node = 0;
        for (index, field) in self.definition.fields.iter().enumerate() {
            let kind = field.data_type.values().filter(|_| has_details(&field.data_type));
            records.push(kind.map_or(Ok(Vec::new()), |kind| {
                let record = Record {
                    sketch: self.distinct[node].sketch(),
                    zones: self.zones[node].finish(level, kind)?,
                    filters: self.filters[index].finish(level)?,
                    sample: self.sampler.column(index),
                };
                record.write(level)
            }));
            node += field.nodes().count();
        }
        let failed = |source| Error::Encode { column: "details".to_owned(), source };
        let records = records.into_iter().collect::<keirin_codecs::Result<Vec<_>>>().map_err(failed)?;
        let mut entries = Vec::with_capacity(records.len());
        for record in &records {
            let bytes = u32::try_from(record.len());
            let bytes = bytes.map_err(|_| Error::Invalid("details of 4 GiB".to_owned()))?;
            entries.push(RecordEntry { bytes, hash: xxh3_64(record) });
            self.write(record)?;
        }
        Ok((details_at, entries))
    }

    fn write_block(&mut self, block: Block) -> Result<BlockEntry> {
        let Block { validity, values, statistics, .. } = block;
        let checksum = |frame: &[u8]| frame::checksum_of(frame).unwrap_or(0);
        let (validity_checksum, value_checksum) = (checksum(&validity), checksum(&values));
        let bytes = |frame: &[u8]| {
            let too_large = |_| Error::Invalid("a block of 4 GiB".to_owned());
            u32::try_from(frame.len()).map_err(too_large)
        };
        let (validity_bytes, value_bytes) = (bytes(&validity)?, bytes(&values)?);
        self.pad();
        let offset = self.buffer_at + self.buffer.len() as u64;
        self.write(&validity)?;
        if !values.is_empty() {
            self.pad();
            self.write(&values)?;
        }
        Ok(BlockEntry { offset, validity_bytes, value_bytes, validity_checksum, value_checksum, statistics })
    }

    /// Writes bytes through the buffer.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() <= BUFFER_BYTES {
            self.buffer.extend(bytes);
            return Ok(());
        }
        self.flush()?;
        self.output.write_all(bytes).map_err(Error::io("write", &self.path))?;
        self.buffer_at += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros up to where a block may begin.
    fn pad(&mut self) {
        let at = self.buffer_at + self.buffer.len() as u64;
        let zeros = usize::try_from(align(at) - at).expect("less than the alignment");
        debug_assert!(zeros < usize::try_from(ALIGN_BYTES).expect("a small number"));
        self.buffer.resize(self.buffer.len() + zeros, 0);
    }

    fn flush(&mut self) -> Result<()> {
        self.output.write_all(&self.buffer).map_err(Error::io("write", &self.path))?;
        self.buffer_at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the remaining rows and the footer. The commit that refers to the file makes it durable.
    ///
    /// # Errors
    /// When the system refuses, or there are no rows.
    pub fn finish(mut self) -> Result<Part> {
        self.end_stripe()?;
        self.write_group()?;
        let row_count = self.row_count();
        if row_count == 0 {
            return Err(Error::Invalid("a part without rows".to_owned()));
        }
        let (details_at, details) = self.write_details()?;
        let node_count = self.definition.fields.iter().flat_map(Field::nodes).count();
        let mut entries: Vec<_> = self.entries.drain(..).map(Vec::into_iter).collect();
        let mut blocks = Vec::with_capacity(node_count * entries.len());
        for _ in 0..node_count {
            blocks.extend(entries.iter_mut().filter_map(Iterator::next));
        }
        let footer = Footer {
            row_count,
            stripe_rows: std::mem::take(&mut self.stripe_rows),
            fields: self.definition.fields.clone(),
            keys: if self.options.is_sorted { self.definition.keys.clone() } else { Vec::new() },
            distinct: self.distinct.iter().map(DistinctSum::estimate).collect(),
            blocks,
            details_at,
            details,
        };
        let failed = |source| Error::Encode { column: "footer".to_owned(), source };
        let footer = footer.write(self.store.level).map_err(failed)?;
        let footer_bytes =
            u32::try_from(footer.len()).ok().filter(|bytes| *bytes as usize <= header::PAYLOAD_BYTES_MAX);
        let too_large = || Error::Invalid("a footer of more than 1 GiB; begin another part".to_owned());
        let footer_bytes = footer_bytes.ok_or_else(too_large)?;
        let (header, hash) = header::write(FileKind::Footer, self.identity, &footer);
        self.write(&footer)?;
        self.write(&header)?;
        self.flush()?;
        self.keep_plans();
        let (number, file_bytes) = (self.identity.number, self.buffer_at);
        self.unsynced.add(self.path, self.output, file_bytes)?;
        let (order, partition, deletions) = (number, Arc::default(), None);
        Ok(Part { number, order, partition, row_count, file_bytes, footer_bytes, hash, deletions })
    }
}

/// How the stripes of a part are encoded.
#[derive(Clone, Copy)]
struct Encoding<'a> {
    level: Level,
    definition: &'a Definition,
    options: &'a WriteOptions,
    /// By column.
    wants_filter: &'a [bool],
}

impl Encoding<'_> {
    /// Encodes a stripe with these columns.
    fn stripe<'c>(
        self,
        plans: &mut Vec<Plans>,
        column: impl Fn(usize) -> Result<Column<'c>>,
    ) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        for index in 0..self.definition.fields.len() {
            self.column(index, plans, &column(index)?, &mut blocks)?;
        }
        Ok(blocks)
    }

    /// Appends the blocks of column `index`.
    fn column(
        self,
        index: usize,
        plans: &mut Vec<Plans>,
        column: &Column<'_>,
        blocks: &mut Vec<Block>,
    ) -> Result<()> {
        let field = &self.definition.fields[index];
        let codec = self.options.codecs.get(index).copied().unwrap_or_default();
        let (level, first_node, wants_filter) = (self.level, blocks.len(), self.wants_filter[index]);
        let mut encoder = Encoder { level, codec, column: &field.name, plans, first_node, wants_filter };
        encoder.encode(field, column, blocks)
    }
}

/// Which columns may get filters: those of which equality is not answered by the order of the rows.
fn wants_filter(definition: &Definition, options: &WriteOptions) -> Vec<bool> {
    let first_key = definition.keys.first().filter(|_| options.is_sorted).map(|key| key.field);
    let wants = |field: &Field| can_have_filters(&field.data_type) && Some(field.id) != first_key;
    definition.fields.iter().map(wants).collect()
}

/// Runs `work` on each item; threads take the items one after the other. Each thread has its own copy of `state`,
/// and one of the copies is returned.
fn in_turns<S: Clone + Send + Sync, T: Send>(
    thread_count: usize,
    item_count: usize,
    state: &S,
    work: impl Fn(&mut S, usize) -> Result<T> + Sync,
) -> Result<(Vec<T>, S)> {
    let next = AtomicUsize::new(0);
    let turns = || {
        let (mut state, mut done) = (state.clone(), Vec::new());
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= item_count {
                return Ok((done, state));
            }
            done.push((item, work(&mut state, item)?));
        }
    };
    let helper_count = thread_count.min(item_count).saturating_sub(1);
    let (mut done, state) = std::thread::scope(|scope| {
        let helpers: Vec<_> = (0..helper_count).map(|_| scope.spawn(turns)).collect();
        let own: Result<(Vec<_>, S)> = turns();
        helpers.into_iter().fold(own, |own, helper| {
            let helped = helper.join().unwrap_or_else(|panic| resume_unwind(panic));
            let (mut done, state) = own?;
            done.extend(helped?.0);
            Ok((done, state))
        })
    })?;
    done.sort_unstable_by_key(|(item, _)| *item);
    Ok((done.into_iter().map(|(_, made)| made).collect(), state))
}

const _: () =
    assert!((HEADER_BYTES as u64).is_multiple_of(ALIGN_BYTES), "the first block begins behind the header");
