//! Encoding and decoding of blocks: the part of a column in one stripe, as frames.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use keirin_codecs::blocks::{self, Codec, Decoder};
use keirin_codecs::floats::{self, Float};
use keirin_codecs::frame::{self, Compression, Frame, Kind, Limits, Maker};
use keirin_codecs::integers::{self, Int};
use keirin_codecs::strings::{self, Dictionary, Rows};
use keirin_codecs::{Choice, Goal, Plan, flags};
use keirin_kernels::aligned::{Number, numbers};
use keirin_kernels::distinct::HyperLogLog;
use keirin_kernels::gather::gather;
use keirin_kernels::text::{Facts, Text, char_lengths, is_utf8};
use keirin_kernels::{BitBuffer, Bits, Level, Selection};
use keirin_race::Races;

use super::BLOCK_ROWS_MAX;
use super::cache::{Decoders, FrameOf};
use super::codec::ColumnCodec;
use super::details::{ZoneBounds, filter_bytes_max, has_details};
use super::filter::{self, Predicate};
use super::statistics::{Meter, Statistics};
use super::total::Total;
use crate::buffer::{Buffer, FileBytes, Pool, Shared};
use crate::column::{Column, Flags, Values, span};
use crate::error::{Error, Result};
use crate::schema::{DataType, Field};

/// The encoded block of one node.
#[derive(Debug)]
pub(super) struct Block {
    /// The frame of the validity; empty if there are no nulls.
    pub(super) validity: Vec<u8>,
    /// The frame of the values; empty for a struct, which has only children.
    pub(super) values: Vec<u8>,
    pub(super) statistics: Statistics,
    /// The sketch of distinct values, if they were counted.
    pub(super) sketch: Option<HyperLogLog>,
    /// The filter, if the block may need one.
    pub(super) filter: Option<Vec<u8>>,
    pub(super) zones: Option<ZoneBounds>,
}

/// The encodings that were best for the previous block of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Plans {
    validity: Plan,
    values: Plan,
}

/// Encodes the blocks of a column.
#[derive(Debug)]
pub(super) struct Encoder<'a> {
    pub(super) level: Level,
    pub(super) codec: ColumnCodec,
    /// The name, for errors.
    pub(super) column: &'a str,
    /// Indexed by node.
    pub(super) plans: &'a mut Vec<Plans>,
    /// The node of the column itself.
    pub(super) first_node: usize,
    /// Whether blocks of the column itself are to have filters.
    pub(super) wants_filter: bool,
}

impl Encoder<'_> {
    /// Appends the block of a column and those of its children, in preorder.
    pub(super) fn encode(
        &mut self,
        field: &Field,
        column: &Column<'_>,
        blocks: &mut Vec<Block>,
    ) -> Result<()> {
        // A node's number is the index of its block.
        let node = blocks.len();
        if self.plans.len() <= node {
            self.plans.resize_with(node + 1, Plans::default);
        }
        let mut plans = std::mem::take(&mut self.plans[node]);
        let row_count = column.row_count();
        let too_many =
            || Error::Invalid(format!("column '{}' has too many elements for a block", self.column));
        u32::try_from(row_count).ok().filter(|count| *count <= BLOCK_ROWS_MAX).ok_or_else(too_many)?;
        let mut meter = Meter::new(self.level, column.validity_bits());
        if node == self.first_node && has_details(&field.data_type) {
            meter = meter.with_zones();
        }
        // An empty block has no values and no statistics.
        let (values, statistics) = if row_count == 0 {
            Default::default()
        } else {
            let wants_filter = self.wants_filter && node == self.first_node;
            self.values(field, column, &mut meter, wants_filter, &mut plans.values)?
        };
        let mut validity = Vec::new();
        if statistics.nulls > 0 {
            if !field.is_nullable {
                let message = format!("column '{}' has a null and must not have any", self.column);
                return Err(Error::Invalid(message));
            }
            let bits = column.validity_bits().expect("nulls are in a bitmap");
            validity = self.flags(bits, &mut plans.validity)?;
        }
        self.plans[node] = plans;
        let Meter { sketch, filter, zones, .. } = meter;
        blocks.push(Block { validity, values, statistics, sketch, filter, zones });
        if let Values::List { children, .. } | Values::Struct { children, .. } = &column.values {
            for (field, child) in field.data_type.children().iter().zip(children) {
                let inside = match &column.values {
                    Values::List { offsets, .. } => &child.slice(span(offsets)),
                    _ => child,
                };
                self.encode(field, inside, blocks)?;
            }
        }
        Ok(())
    }

    /// The frame of the values of a column, and their statistics.
    fn values(
        &self,
        field: &Field,
        column: &Column<'_>,
        meter: &mut Meter<'_>,
        wants_filter: bool,
        plan: &mut Plan,
    ) -> Result<(Vec<u8>, Statistics)> {
        let bytes_max = |frame: &[u8]| if wants_filter { filter_bytes_max(frame.len()) } else { 0 };
        let frame = match &column.values {
            Values::Flags(flags) => self.flags(flags.as_bits(), plan)?,
            Values::I8(values) => self.integers(values, plan)?,
            Values::I16(values) => self.integers(values, plan)?,
            Values::I32(values) => self.integers(values, plan)?,
            Values::I64(values) => self.integers(values, plan)?,
            Values::U8(values) => self.integers(values, plan)?,
            Values::U16(values) => self.integers(values, plan)?,
            Values::U32(values) => self.integers(values, plan)?,
            Values::U64(values) => self.integers(values, plan)?,
            Values::I128(values) => self.integers(values, plan)?,
            Values::F32(values) => self.floats(values, plan)?,
            Values::F64(values) => self.floats(values, plan)?,
            Values::Text { offsets, bytes } => {
                let rows = Rows::new(self.level, offsets, bytes)
                    .map_err(|error| Error::Invalid(format!("column '{}': {error}", self.column)))?;
                let (frame, entries) = self.text(rows, plan)?;
                // If the entries of the dictionary are UTF-8, all rows are.
                let entries = entries.as_ref().map(|entries| entries.rows(self.level));
                if field.data_type.is_utf8() && !is_utf8(self.level, entries.unwrap_or(rows)) {
                    return Err(Error::Invalid(format!(
                        "column '{}' has text that is not UTF-8",
                        self.column
                    )));
                }
                meter.filter_bytes_max = bytes_max(&frame);
                return Ok((frame, meter.text(rows, entries)));
            }
            Values::List { offsets, .. } => {
                let lengths: Vec<u32> = offsets.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect();
                self.integers(&lengths, plan)?
            }
            Values::Struct { .. } => Vec::new(),
        };
        meter.filter_bytes_max = bytes_max(&frame);
        Ok((frame, meter.measure(&field.data_type, &column.values)))
    }

    fn integers<T: Int>(&self, values: &[T], plan: &mut Plan) -> Result<Vec<u8>> {
        let encoding = match self.codec {
            ColumnCodec::Delta(_) if values.len() > 1 => integers::Encoding::Delta,
            _ => integers::Encoding::Raw,
        };
        let encode = || integers::encode_as(self.level, Goal::Fastest, encoding, values);
        self.frame(T::KIND, values.len(), size_of_val(values), plan, |maker| maker.integers(values), encode)
    }

    fn floats<F: Float>(&self, values: &[F], plan: &mut Plan) -> Result<Vec<u8>> {
        let encode = || floats::encode_as(self.level, Goal::Fastest, floats::Encoding::Raw, values);
        self.frame(F::KIND, values.len(), size_of_val(values), plan, |maker| maker.floats(values), encode)
    }

    fn flags(&self, values: Bits<'_>, plan: &mut Plan) -> Result<Vec<u8>> {
        let encode = || flags::encode_as(self.level, Goal::Fastest, flags::Encoding::Raw, values);
        let byte_count = values.len().div_ceil(8);
        self.frame(Kind::Flags, values.len(), byte_count, plan, |maker| maker.flags(values), encode)
    }

    /// The frame of text, and the entries of its dictionary if it has one.
    fn text(&self, rows: Rows<'_>, plan: &mut Plan) -> Result<(Vec<u8>, Option<strings::Buffer>)> {
        let encode = || strings::encode_as(self.level, Goal::Fastest, strings::Encoding::Raw, rows);
        let byte_count = span(rows.offsets()).len();
        let mut entries = None;
        let auto = |maker: &mut Maker<'_>| {
            let frame = maker.strings(rows);
            entries = maker.take_entries();
            frame
        };
        let frame = self.frame(Kind::Text, rows.row_count(), byte_count, plan, auto, encode)?;
        Ok((frame, entries))
    }

    /// The frame of values: `auto` chooses the encoding, or `encode` gives the one of the column's codec, which
    /// compresses it.
    fn frame(
        &self,
        kind: Kind,
        row_count: usize,
        value_bytes: usize,
        plan: &mut Plan,
        auto: impl FnOnce(&mut Maker<'_>) -> keirin_codecs::Result<Vec<u8>>,
        encode: impl FnOnce() -> keirin_codecs::Result<Option<Vec<u8>>>,
    ) -> Result<Vec<u8>> {
        let failed = |source| Error::Encode { column: self.column.to_owned(), source };
        let codec = match self.codec {
            ColumnCodec::Auto(goal) => {
                let choice = Choice { may_compress: true, ..goal.into() };
                return auto(&mut Maker::new(self.level, choice, plan)).map_err(failed);
            }
            ColumnCodec::Raw(codec) | ColumnCodec::Delta(codec) => codec,
        };
        let encoded = encode().map_err(failed)?.expect("these encodings hold any values");
        let compress_failed = |source| Error::Compress { column: self.column.to_owned(), source };
        let compressed = codec.compress(&encoded).map_err(compress_failed)?;
        // Values that do not get smaller are stored uncompressed.
        let (codec, stored) = match &compressed {
            compressed if compressed.len() < encoded.len() => (codec, compressed),
            _ => (Codec::None, &encoded),
        };
        let value_bytes = value_bytes as u64;
        frame::write(kind, codec.into(), row_count, value_bytes, encoded.len(), stored).map_err(failed)
    }
}

/// The bytes of a frame, with all that is needed to verify and decode it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    /// The buffer that holds the bytes; `None` for a memory map, which decoded values cannot keep alive.
    pub(super) file: Option<&'a Arc<FileBytes>>,
    pub(super) bytes: &'a [u8],
    pub(super) checksum: u64,
    /// Whether the bytes need not be verified against the checksum.
    pub(super) is_verified: bool,
    /// The decompressors for frames like this one.
    pub(super) decoders: &'a Decoders,
    /// The node inside the column, from zero, and whether the frame is its validity or its values: the races that
    /// choose a decompressor are kept apart by these, because a bitmap and text behave differently.
    pub(super) node: usize,
    pub(super) frame: FrameOf,
    /// The most bytes that the decompressed values take: limits the memory that forged bytes can ask for.
    pub(super) values_max: u64,
}

/// The result of decoding; the error says what is wrong with the bytes.
type Read<T> = std::result::Result<T, String>;

/// The column of a table by which the races are keyed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream<'a> {
    pub(super) table: u64,
    pub(super) column: &'a str,
}

impl fmt::Display for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.column)
    }
}

/// Decodes blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockDecoder<'a> {
    pub(super) level: Level,
    pub(super) races: &'a Races,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) stream: Stream<'a>,
}

impl BlockDecoder<'_> {
    /// Opens the frame, checks its kind, count of rows and checksum, and hands it to `read`.
    fn with_frame<T>(
        &self,
        stored: Stored<'_>,
        kind: Kind,
        row_count: u32,
        read: impl FnOnce(Frame<'_>, Option<&Arc<FileBytes>>) -> keirin_codecs::Result<T>,
    ) -> Read<T> {
        /// Where values begin in a buffer, so that they are aligned: the encoding's number stands before them.
        const VALUES_AT: usize = 64;
        let limits = Limits { rows: row_count, bytes: stored.values_max };
        let bytes = stored.bytes;
        if frame::checksum_of(bytes) != Some(stored.checksum) {
            return Err("the bytes of another block, or none".to_owned());
        }
        let frame = if stored.is_verified { Frame::parse(bytes, limits) } else { Frame::open(bytes, limits) };
        let frame = frame.map_err(|error| error.to_string())?;
        if frame.byte_count() != bytes.len() || frame.row_count() != row_count as usize {
            return Err(format!("{} rows in {} bytes", frame.row_count(), frame.byte_count()));
        }
        if frame.kind() != kind {
            return Err(format!("values of kind {:?}, not {kind:?}", frame.kind()));
        }
        let codec = match frame.compression() {
            Compression::None => return read(frame, stored.file).map_err(|error| error.to_string()),
            Compression::Lz4 => Codec::Lz4,
            Compression::Snappy => Codec::Snappy,
            Compression::Zstd => Codec::Zstd(0),
        };
        let mut encoded = self.pool.take(VALUES_AT - 1 + frame.encoded_bytes());
        let decoder = stored.decoders.get(codec, || {
            let what = match stored.frame {
                FrameOf::Validity => "validity".to_owned(),
                FrameOf::Values => format!("{kind:?}").to_lowercase(),
            };
            let name = match stored.node {
                0 => format!("{} {what}", self.stream),
                node => format!("{} {node} {what}", self.stream),
            };
            let stream = blocks::Stream { class: &what, name: &name };
            Decoder::new(codec, self.races, stream, frame.stored())
        });
        let decompressed = decoder.decompress(frame.stored(), &mut encoded[VALUES_AT - 1..]);
        decompressed.map_err(|error| error.to_string())?;
        let encoded = Arc::new(encoded);
        read(frame.decompressed(&encoded[VALUES_AT - 1..]), Some(&encoded)).map_err(|error| error.to_string())
    }

    /// Describes the encodings of a frame.
    pub(super) fn explain(&self, stored: Stored<'_>) -> Read<String> {
        let limits = Limits { rows: BLOCK_ROWS_MAX, bytes: stored.values_max };
        let explained = Frame::open(stored.bytes, limits).and_then(|frame| frame.explain(self.level));
        explained.map_err(|error| error.to_string())
    }

    /// The validity of selected rows.
    pub(super) fn validity(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        selection: Selection<'_>,
    ) -> Read<Flags<'static>> {
        self.with_frame(stored, Kind::Flags, row_count, |frame, _| {
            Ok(Flags::Owned(frame.flags(self.level)?.select(self.level, selection)))
        })
    }

    /// Turns the stored lengths of lists into offsets, of which the last must be `element_count`.
    pub(super) fn offsets(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        element_count: u32,
    ) -> Read<Buffer<'static, i32>> {
        let lengths: Vec<u32> = self.with_frame(stored, Kind::U32, row_count, |frame, _| {
            frame.integers(self.level)?.decode(self.level)
        })?;
        let mut end = 0_u64;
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        offsets.push(0);
        for length in lengths {
            end += u64::from(length);
            // Overflow is found below: no end is above the last one.
            offsets.push(i32::try_from(end).unwrap_or(i32::MAX));
        }
        if end != u64::from(element_count) {
            return Err(format!("lists of {end} elements, {element_count} are there"));
        }
        Ok(Buffer::Owned(offsets))
    }

    /// The values of selected rows of a leaf.
    pub(super) fn values(
        &self,
        stored: Stored<'_>,
        data_type: &DataType,
        row_count: u32,
        selection: Selection<'_>,
    ) -> Read<Values<'static>> {
        let level = self.level;
        let kind = data_type.values().expect("a struct has no values");
        let values = self.with_frame(stored, kind, row_count, |frame, file| {
            macro_rules! numbers {
                ($column:ident, $file:ident) => {
                    match (in_place($file, selection, $column.as_bytes()), selection) {
                        (Some(values), _) => values,
                        (None, Selection::All) => {
                            let decoded = self
                                .pool
                                .numbers($column.len(), |numbers| $column.decode_into(level, 0, numbers));
                            match decoded? {
                                Some(values) => Buffer::Shared(values),
                                None => $column.decode(level)?.into(),
                            }
                        }
                        (None, _) => $column.select(level, selection)?.into(),
                    }
                };
            }
            macro_rules! integers {
                () => {{
                    let column = frame.integers(level)?;
                    numbers!(column, file)
                }};
            }
            macro_rules! floats {
                () => {{
                    let column = frame.floats(level)?;
                    numbers!(column, file)
                }};
            }
            Ok(match kind {
                Kind::Flags => Values::Flags(Flags::Owned(frame.flags(level)?.select(level, selection))),
                Kind::I8 => Values::I8(integers!()),
                Kind::I16 => Values::I16(integers!()),
                Kind::I32 => Values::I32(integers!()),
                Kind::I64 => Values::I64(integers!()),
                Kind::I128 => Values::I128(integers!()),
                Kind::U8 => Values::U8(integers!()),
                Kind::U16 => Values::U16(integers!()),
                Kind::U32 => Values::U32(integers!()),
                Kind::U64 => Values::U64(integers!()),
                Kind::F32 => Values::F32(floats!()),
                Kind::F64 => Values::F64(floats!()),
                Kind::Text => text(level, &frame.strings(level)?, file, selection)?,
            })
        })?;
        if let Values::Text { offsets, bytes } = &values
            && data_type.is_utf8()
        {
            let rows = Rows::new(level, offsets, bytes).map_err(|error| error.to_string())?;
            if !is_utf8(level, rows) {
                return Err("text that is not UTF-8".to_owned());
            }
        }
        Ok(values)
    }

    /// The values of selected rows of decimals in 64 bits; `None` if some have no room.
    pub(super) fn narrow(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        selection: Selection<'_>,
    ) -> Read<Option<Buffer<'static, i64>>> {
        let level = self.level;
        self.with_frame(stored, Kind::I128, row_count, |frame, _| {
            let column = frame.integers::<i128>(level)?;
            if matches!(selection, Selection::All) {
                let mut have_room = false;
                let decoded = self.pool.numbers(column.len(), |numbers| {
                    have_room = column.decode_narrow_into(level, 0, numbers)?;
                    Ok(())
                })?;
                if let Some(values) = decoded {
                    return Ok(have_room.then_some(Buffer::Shared(values)));
                }
            }
            Ok(column.select_narrow(level, selection)?.map(Buffer::from))
        })
    }

    /// The text of selected rows, not checked to be UTF-8.
    pub(super) fn text(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        selection: Selection<'_>,
    ) -> Read<TextValues> {
        self.with_frame(stored, Kind::Text, row_count, |frame, file| {
            let column = frame.strings(self.level)?;
            Ok(match column.dictionary(self.level, selection)? {
                Some(Dictionary { codes, entries }) => TextValues::Entries { codes, entries },
                None => TextValues::Rows(text(self.level, &column, file, selection)?),
            })
        })
    }

    /// Adds all valid values to `total`, without decoding where possible. Returns false and leaves the total unchanged
    /// if it would overflow 128 bits, the values are not numbers, or they are integers with nulls.
    pub(super) fn sum(
        &self,
        stored: Stored<'_>,
        kind: Kind,
        row_count: u32,
        validity: Option<Bits<'_>>,
        total: &mut Total,
    ) -> Read<bool> {
        let level = self.level;
        self.with_frame(stored, kind, row_count, |frame, _| {
            let rows = 0..frame.row_count();
            macro_rules! integers {
                ($number:ty) => {{
                    if validity.is_some() {
                        return Ok(false);
                    }
                    let sum = match frame.integers::<$number>(level)?.sum(level, rows) {
                        Ok(sum) => total.integers.checked_add(sum),
                        Err(keirin_codecs::Error::SumOverflow) => None,
                        Err(error) => return Err(error),
                    };
                    total.integers = sum.unwrap_or(total.integers);
                    sum.is_some()
                }};
            }
            macro_rules! floats {
                ($number:ty) => {{
                    let column = frame.floats::<$number>(level)?;
                    let sum = &mut total.floats;
                    match column.as_bytes().and_then(numbers::<$number>) {
                        Some(values) => sum.add(level, values, validity, Selection::All),
                        None => {
                            let decoded = self
                                .pool
                                .numbers(rows.len(), |values| column.decode_into(level, 0, values))?;
                            match decoded {
                                Some(values) => sum.add::<$number>(level, &values, validity, Selection::All),
                                None => sum.add(level, &column.decode(level)?, validity, Selection::All),
                            }
                        }
                    }
                    true
                }};
            }
            Ok(by_number!(kind, integers, floats, false))
        })
    }

    /// The range of the frame's bytes that holds its numbers, if they are stored raw.
    pub(super) fn numbers_at(
        &self,
        stored: Stored<'_>,
        kind: Kind,
        row_count: u32,
    ) -> Read<Option<Range<usize>>> {
        let level = self.level;
        let place = |numbers: &[u8]| {
            let start = numbers.as_ptr().addr().checked_sub(stored.bytes.as_ptr().addr())?;
            Some(start..start + numbers.len()).filter(|place| place.end <= stored.bytes.len())
        };
        self.with_frame(stored, kind, row_count, |frame, _| {
            macro_rules! integers {
                ($number:ty) => {
                    frame.integers::<$number>(level)?.as_bytes().and_then(place)
                };
            }
            macro_rules! floats {
                ($number:ty) => {
                    frame.floats::<$number>(level)?.as_bytes().and_then(place)
                };
            }
            Ok(by_number!(kind, integers, floats, None))
        })
    }

    /// The lengths of the text of selected rows.
    pub(super) fn lengths(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        selection: Selection<'_>,
        unit: LengthUnit,
    ) -> Read<Vec<i32>> {
        let level = self.level;
        let facts = Facts { is_ascii: false, has_trailing_spaces: true };
        self.with_frame(stored, Kind::Text, row_count, |frame, _| {
            let column = frame.strings(level)?;
            if unit == LengthUnit::Bytes {
                return column.lengths(level, selection);
            }
            Ok(match column.dictionary(level, selection)? {
                Some(Dictionary { codes, entries }) => {
                    gather(level, &char_lengths(level, entries.rows(level), facts), &codes)
                }
                None => char_lengths(level, column.select(level, selection)?.rows(level), facts),
            })
        })
    }

    /// The rows that satisfy a predicate, nulls not yet taken out; `None` if the encoding cannot answer it.
    pub(super) fn filter(
        &self,
        stored: Stored<'_>,
        data_type: &DataType,
        row_count: u32,
        predicate: &Predicate<'_>,
    ) -> Read<Option<BitBuffer>> {
        let Some(kind) = data_type.values() else { return Ok(None) };
        self.with_frame(stored, kind, row_count, |frame, _| filter::values(self.level, frame, predicate))
    }
}

/// Decoded text of selected rows.
pub(super) enum TextValues {
    /// Row after row.
    Rows(Values<'static>),
    /// For each row the index of its entry.
    Entries { codes: Vec<u32>, entries: strings::Buffer },
}

/// The unit in which the length of text is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LengthUnit {
    /// The count of its bytes.
    Bytes,
    /// The count of its characters, if it is UTF-8.
    Characters,
}

fn text(
    level: Level,
    column: &strings::Column<'_>,
    file: Option<&Arc<FileBytes>>,
    selection: Selection<'_>,
) -> keirin_codecs::Result<Values<'static>> {
    if matches!(selection, Selection::All)
        && let Some((offsets, bytes)) = column.as_bytes(level)?
        && let Some(bytes) = in_place(file, selection, Some(bytes))
    {
        return Ok(Values::Text { offsets: offsets.into(), bytes });
    }
    let strings::Buffer { offsets, bytes } = column.select(level, selection)?;
    Ok(Values::Text { offsets: offsets.into(), bytes: bytes.into() })
}

/// The values in place in the file's buffer, if they are stored raw and all rows are selected.
fn in_place<T: Number>(
    file: Option<&Arc<FileBytes>>,
    selection: Selection<'_>,
    bytes: Option<&[u8]>,
) -> Option<Buffer<'static, T>> {
    let (file, bytes) = (file?, bytes.filter(|_| matches!(selection, Selection::All))?);
    let start = bytes.as_ptr().addr().checked_sub(file.as_ptr().addr())?;
    Shared::new(file, start..start + bytes.len()).map(Buffer::Shared)
}
