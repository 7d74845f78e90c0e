//! Blocks: what a stripe has of a column, as frames and back.

use std::borrow::Cow;

use keirin_codecs::blocks::{Codec, Decoder};
use keirin_codecs::floats::{self, Float};
use keirin_codecs::frame::{self, Compression, Frame, Kind, Limits};
use keirin_codecs::integers::{self, Int};
use keirin_codecs::strings::{self, Rows};
use keirin_codecs::{Goal, flags};
use keirin_kernels::distinct::HyperLogLog;
use keirin_kernels::text::{Text, is_utf8};
use keirin_kernels::{Bits, Level, Selection};
use keirin_race::Races;

use super::statistics::{Meter, Statistics};
use super::{BLOCK_BYTES_MAX, BLOCK_ROWS_MAX};
use crate::column::{Column, Flags, Values, span};
use crate::error::{Error, Result};
use crate::schema::{DataType, Field};

/// How the values of a column become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnCodec {
    /// In whatever way suits the goal.
    Auto(Goal),
    /// As they are in memory, compressed so.
    Raw(Codec),
}

impl Default for ColumnCodec {
    fn default() -> Self {
        Self::Auto(Goal::default())
    }
}

/// A block of one node, to be written.
#[derive(Debug)]
pub(super) struct Block {
    /// Empty if all rows have a value.
    pub(super) validity: Vec<u8>,
    /// Empty if there are no values of its own.
    pub(super) values: Vec<u8>,
    pub(super) statistics: Statistics,
    /// The values, if they were counted.
    pub(super) sketch: Option<HyperLogLog>,
}

/// What writing blocks of a column takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder<'a> {
    pub(super) level: Level,
    pub(super) codec: ColumnCodec,
    /// The name, for errors.
    pub(super) column: &'a str,
}

impl Encoder<'_> {
    /// Appends the block of a column and those of the columns inside it, in preorder.
    pub(super) fn encode(&self, field: &Field, column: &Column<'_>, blocks: &mut Vec<Block>) -> Result<()> {
        let row_count = column.row_count();
        let too_many =
            || Error::Invalid(format!("column '{}' has too many elements for a block", self.column));
        u32::try_from(row_count).ok().filter(|count| *count <= BLOCK_ROWS_MAX).ok_or_else(too_many)?;
        let mut meter = Meter::new(self.level, column.validity_bits());
        // A block without rows has nothing to say.
        let (values, statistics) =
            if row_count == 0 { Default::default() } else { self.values(field, column, &mut meter)? };
        let mut validity = Vec::new();
        if statistics.nulls > 0 {
            if !field.is_nullable {
                let message = format!("column '{}' has a null and must not have any", self.column);
                return Err(Error::Invalid(message));
            }
            let bits = column.validity_bits().expect("nulls are in a bitmap");
            validity = self.flags(bits)?;
        }
        blocks.push(Block { validity, values, statistics, sketch: meter.sketch });
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

    fn values(
        &self,
        field: &Field,
        column: &Column<'_>,
        meter: &mut Meter<'_>,
    ) -> Result<(Vec<u8>, Statistics)> {
        macro_rules! integers {
            ($values:ident) => {{
                let statistics = meter.integers($values, |value| value.to_le_bytes().to_vec());
                (self.integers($values)?, statistics)
            }};
        }
        Ok(match &column.values {
            Values::Flags(flags) => (self.flags(flags.as_bits())?, meter.flags(flags.as_bits())),
            Values::I8(values) => integers!(values),
            Values::I16(values) => integers!(values),
            Values::I32(values) => integers!(values),
            Values::I64(values) => integers!(values),
            Values::U8(values) => integers!(values),
            Values::U16(values) => integers!(values),
            Values::U32(values) => integers!(values),
            Values::U64(values) => integers!(values),
            Values::I128(values) => {
                let statistics = match field.data_type {
                    DataType::Decimal { .. } => meter.decimals(values),
                    DataType::Uuid => meter.uuids(values),
                    _ => meter.counts(values.len()),
                };
                (self.integers(values)?, statistics)
            }
            Values::F32(values) => (self.floats(values)?, meter.f32s(values)),
            Values::F64(values) => (self.floats(values)?, meter.f64s(values)),
            Values::Text { offsets, bytes } => {
                let rows = Rows::new(self.level, offsets, bytes)
                    .map_err(|error| Error::Invalid(format!("column '{}': {error}", self.column)))?;
                if field.data_type.is_utf8() && !is_utf8(self.level, rows) {
                    return Err(Error::Invalid(format!(
                        "column '{}' has text that is not UTF-8",
                        self.column
                    )));
                }
                (self.text(rows)?, meter.text(rows))
            }
            Values::List { offsets, .. } => {
                let lengths: Vec<u32> = offsets.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect();
                (self.integers(&lengths)?, meter.counts(lengths.len()))
            }
            Values::Struct { row_count, .. } => (Vec::new(), meter.counts(*row_count)),
        })
    }

    fn integers<T: Int>(&self, values: &[T]) -> Result<Vec<u8>> {
        let (kind, level, bytes) = (T::KIND, self.level, size_of_val(values));
        let auto = |goal| frame::of_integers(level, goal, values);
        let raw = |goal| integers::encode_as(level, goal, integers::Encoding::Raw, values);
        self.frame(kind, values.len(), bytes, auto, raw)
    }

    fn floats<F: Float>(&self, values: &[F]) -> Result<Vec<u8>> {
        let (kind, level, bytes) = (F::KIND, self.level, size_of_val(values));
        let auto = |goal| frame::of_floats(level, goal, values);
        let raw = |goal| floats::encode_as(level, goal, floats::Encoding::Bits, values);
        self.frame(kind, values.len(), bytes, auto, raw)
    }

    fn flags(&self, values: Bits<'_>) -> Result<Vec<u8>> {
        let auto = |goal| frame::of_flags(self.level, goal, values);
        let raw = |goal| flags::encode_as(self.level, goal, flags::Encoding::Raw, values);
        self.frame(Kind::Flags, values.len(), values.len().div_ceil(8), auto, raw)
    }

    fn text(&self, rows: Rows<'_>) -> Result<Vec<u8>> {
        let auto = |goal| frame::of_strings(self.level, goal, rows);
        let raw = |goal| strings::encode_as(self.level, goal, strings::Encoding::Raw, rows);
        self.frame(Kind::Text, rows.row_count(), span(rows.offsets()).len(), auto, raw)
    }

    /// The frame that the codec of the column makes of so many rows and bytes of values.
    fn frame(
        &self,
        kind: Kind,
        row_count: usize,
        value_bytes: usize,
        auto: impl FnOnce(Goal) -> keirin_codecs::Result<Vec<u8>>,
        raw: impl FnOnce(Goal) -> keirin_codecs::Result<Option<Vec<u8>>>,
    ) -> Result<Vec<u8>> {
        self.compress(match self.codec {
            ColumnCodec::Auto(goal) => auto(goal),
            ColumnCodec::Raw(_) => raw(Goal::Fastest).and_then(|encoded| {
                let encoded = encoded.expect("raw encodings hold any values");
                let value_bytes = value_bytes as u64;
                frame::write(kind, Compression::None, row_count, value_bytes, encoded.len(), &encoded)
            }),
        })
    }

    /// The frame with its bytes compressed, where that is wanted or earns the time that it takes to undo it.
    fn compress(&self, frame: keirin_codecs::Result<Vec<u8>>) -> Result<Vec<u8>> {
        /// Fewer bytes are read as fast as many.
        const BYTES_MIN: usize = 1 << 10;
        let failed = |source| Error::Encode { column: self.column.to_owned(), source };
        let frame = frame.map_err(failed)?;
        // At the goal's price of a byte (see `Goal`) and some 0.2 ns a byte for LZ4, 1 ns for ZSTD.
        let (codec, keep_percent) = match self.codec {
            ColumnCodec::Auto(Goal::Fastest) | ColumnCodec::Raw(Codec::None) => return Ok(frame),
            ColumnCodec::Auto(Goal::Balanced) => (Codec::Lz4, 60),
            ColumnCodec::Auto(Goal::Smallest) => (Codec::Zstd(3), 98),
            ColumnCodec::Raw(codec) => (codec, 100),
        };
        let opened = Frame::open(&frame, WRITTEN).map_err(failed)?;
        if opened.stored().len() < BYTES_MIN {
            return Ok(frame);
        }
        let compress_failed = |source| Error::Compress { column: self.column.to_owned(), source };
        let stored = codec.compress(opened.stored()).map_err(compress_failed)?;
        if stored.len() * 100 > opened.stored().len() * keep_percent {
            return Ok(frame);
        }
        let (kind, rows, encoded) = (opened.kind(), opened.row_count(), opened.encoded_bytes());
        frame::write(kind, codec.into(), rows, opened.value_bytes(), encoded, &stored).map_err(failed)
    }
}

/// Frames that were just written are within all limits but that of a block.
const WRITTEN: Limits = Limits { rows: u32::MAX, bytes: u64::MAX };

/// The bytes of a frame, and the checksum that the index has for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) checksum: u64,
    /// Whether the bytes need not be held against it.
    pub(super) is_verified: bool,
}

/// What was read, or what is wrong with the bytes.
type Read<T> = std::result::Result<T, String>;

/// What reading blocks takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockDecoder<'a> {
    pub(super) level: Level,
    pub(super) races: &'a Races,
    /// What the races remember the column by.
    pub(super) stream: &'a str,
}

impl BlockDecoder<'_> {
    /// Gives the frame that all of the bytes are, if it has so many values of this kind, to `read`.
    fn with_frame<T>(
        &self,
        stored: Stored<'_>,
        kind: Kind,
        row_count: u32,
        read: impl FnOnce(Frame<'_>) -> keirin_codecs::Result<T>,
    ) -> Read<T> {
        let limits = Limits { rows: row_count, bytes: BLOCK_BYTES_MAX };
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
            Compression::None => return read(frame).map_err(|error| error.to_string()),
            Compression::Lz4 => Codec::Lz4,
            Compression::Snappy => Codec::Snappy,
            Compression::Zstd => Codec::Zstd(0),
        };
        let mut encoded = vec![0; frame.encoded_bytes()];
        let decoder = Decoder::new(codec, self.races, self.stream, frame.stored());
        decoder.decompress(frame.stored(), &mut encoded).map_err(|error| error.to_string())?;
        read(frame.decompressed(&encoded)).map_err(|error| error.to_string())
    }

    /// The validity of selected rows.
    pub(super) fn validity(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        selection: Selection<'_>,
    ) -> Read<Flags<'static>> {
        self.with_frame(stored, Kind::Flags, row_count, |frame| {
            Ok(Flags::Owned(frame.flags(self.level)?.select(self.level, selection)))
        })
    }

    /// The counts of elements of a list as offsets, which end at `element_count`.
    pub(super) fn offsets(
        &self,
        stored: Stored<'_>,
        row_count: u32,
        element_count: u32,
    ) -> Read<Cow<'static, [i32]>> {
        let lengths: Vec<u32> = self.with_frame(stored, Kind::U32, row_count, |frame| {
            frame.integers(self.level)?.decode(self.level)
        })?;
        let mut end = 0_u64;
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        offsets.push(0);
        for length in lengths {
            end += u64::from(length);
            // Too large ends are found below: all ends are at most the last.
            offsets.push(i32::try_from(end).unwrap_or(i32::MAX));
        }
        if end != u64::from(element_count) {
            return Err(format!("lists of {end} elements, {element_count} are there"));
        }
        Ok(Cow::Owned(offsets))
    }

    /// The values of selected rows, of a type that is neither list nor struct.
    pub(super) fn values(
        &self,
        stored: Stored<'_>,
        data_type: &DataType,
        row_count: u32,
        selection: Selection<'_>,
    ) -> Read<Values<'static>> {
        let level = self.level;
        let kind = data_type.values().expect("a struct has no values");
        let values = self.with_frame(stored, kind, row_count, |frame| {
            Ok(match kind {
                Kind::Flags => Values::Flags(Flags::Owned(frame.flags(level)?.select(level, selection))),
                Kind::I8 => Values::I8(frame.integers(level)?.select(level, selection)?.into()),
                Kind::I16 => Values::I16(frame.integers(level)?.select(level, selection)?.into()),
                Kind::I32 => Values::I32(frame.integers(level)?.select(level, selection)?.into()),
                Kind::I64 => Values::I64(frame.integers(level)?.select(level, selection)?.into()),
                Kind::I128 => Values::I128(frame.integers(level)?.select(level, selection)?.into()),
                Kind::U8 => Values::U8(frame.integers(level)?.select(level, selection)?.into()),
                Kind::U16 => Values::U16(frame.integers(level)?.select(level, selection)?.into()),
                Kind::U32 => Values::U32(frame.integers(level)?.select(level, selection)?.into()),
                Kind::U64 => Values::U64(frame.integers(level)?.select(level, selection)?.into()),
                Kind::F32 => Values::F32(frame.floats(level)?.select(level, selection)?.into()),
                Kind::F64 => Values::F64(frame.floats(level)?.select(level, selection)?.into()),
                Kind::Text => {
                    let strings::Buffer { offsets, bytes } =
                        frame.strings(level)?.select(level, selection)?;
                    Values::Text { offsets: offsets.into(), bytes: bytes.into() }
                }
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
}
