//! The records of details as bytes.

use keirin_codecs::Goal;
use keirin_codecs::frame::{self, Kind};
use keirin_codecs::strings::Buffer;
use keirin_kernels::Level;

use super::filters::{self, FilterEntry};
use super::sample::{SAMPLE_ROWS, TEXT_BYTES_MAX, validity};
use super::sketch::{REGISTERS, Sketch};
use super::zones::{self, Zones};
use crate::column::{Column, Flags, Values};
use crate::part::footer::Frames;
use crate::schema::Field;
use crate::wire::{Reader, Wire, Write};

const SKETCH: u32 = 1;
const ZONES: u32 = 2;
const FILTERS: u32 = 4;
const SAMPLE: u32 = 8;

/// What the record of a column is made of, each as frames.
#[derive(Debug, Default)]
pub(in crate::part) struct Record<'a> {
    pub(in crate::part) sketch: Option<Sketch>,
    pub(in crate::part) zones: Option<Vec<u8>>,
    pub(in crate::part) filters: Option<Vec<u8>>,
    pub(in crate::part) sample: Option<&'a Column<'static>>,
}

impl Record<'_> {
    pub(in crate::part) fn write(&self, level: Level) -> keirin_codecs::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let flag = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
        bytes.put_u32(
            flag(SKETCH, self.sketch.is_some())
                | flag(ZONES, self.zones.is_some())
                | flag(FILTERS, self.filters.is_some())
                | flag(SAMPLE, self.sample.is_some()),
        );
        if let Some(sketch) = &self.sketch {
            bytes.extend(frame::of_integers(level, Goal::Smallest, sketch.registers())?);
        }
        bytes.extend(self.zones.iter().flatten());
        bytes.extend(self.filters.iter().flatten());
        if let Some(column) = self.sample {
            bytes.extend(frame::of_flags(level, Goal::Smallest, validity(column).as_bits())?);
            bytes.extend(frame_of_values(level, column)?);
        }
        Ok(bytes)
    }
}

fn frame_of_values(level: Level, column: &Column<'_>) -> keirin_codecs::Result<Vec<u8>> {
    let goal = Goal::Smallest;
    match &column.values {
        Values::Flags(flags) => frame::of_flags(level, goal, flags.as_bits()),
        Values::I8(values) => frame::of_integers(level, goal, values),
        Values::I16(values) => frame::of_integers(level, goal, values),
        Values::I32(values) => frame::of_integers(level, goal, values),
        Values::I64(values) => frame::of_integers(level, goal, values),
        Values::I128(values) => frame::of_integers(level, goal, values),
        Values::U8(values) => frame::of_integers(level, goal, values),
        Values::U16(values) => frame::of_integers(level, goal, values),
        Values::U32(values) => frame::of_integers(level, goal, values),
        Values::U64(values) => frame::of_integers(level, goal, values),
        Values::F32(values) => frame::of_floats(level, goal, values),
        Values::F64(values) => frame::of_floats(level, goal, values),
        Values::Text { offsets, bytes } => {
            let text = Buffer { offsets: offsets.to_vec(), bytes: bytes.to_vec() };
            frame::of_strings(level, goal, text.rows(level))
        }
        Values::List { .. } | Values::Struct { .. } => Ok(Vec::new()),
    }
}

/// What a column's record says, but for its sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::part) struct ColumnDetails {
    pub(in crate::part) sketch: Option<Sketch>,
    pub(in crate::part) zones: Option<Zones>,
    /// By stripe; empty if no stripe has a filter.
    pub(in crate::part) filters: Vec<FilterEntry>,
}

/// What a record is held against.
#[derive(Clone, Copy, Debug)]
pub(in crate::part) struct Place<'a> {
    pub(in crate::part) level: Level,
    pub(in crate::part) field: &'a Field,
    pub(in crate::part) stripe_rows: &'a [u32],
    pub(in crate::part) footer_at: u64,
}

impl ColumnDetails {
    /// Reads a record, and with it the values of a sample of so many rows.
    pub(in crate::part) fn read(
        bytes: &[u8],
        place: Place<'_>,
        sample_rows: Option<usize>,
    ) -> Wire<(Self, Option<Column<'static>>)> {
        let mut reader = Reader::new(bytes);
        let mut details = Self::default();
        let Some(kind) =
            place.field.data_type.values().filter(|_| super::has_details(&place.field.data_type))
        else {
            return reader.malformed("details of a column that has none");
        };
        let flags = reader.u32()?;
        if flags & !(SKETCH | ZONES | FILTERS | SAMPLE) != 0 {
            return reader.malformed(format!("details with flags {flags:x}"));
        }
        let mut frames = Frames::new(place.level, &mut reader, REGISTERS);
        if flags & SKETCH != 0 {
            let Some(sketch) = Sketch::new(frames.integers()?) else {
                return frames.malformed("a register with a value that no hash results in");
            };
            details.sketch = Some(sketch);
        }
        if flags & ZONES != 0 {
            details.zones = Some(zones::read(&mut frames, kind, place.stripe_rows)?);
        }
        if flags & FILTERS != 0 {
            details.filters = filters::read(&mut frames, place.stripe_rows.len(), place.footer_at)?;
        }
        let Some(sample_rows) = sample_rows.filter(|_| flags & SAMPLE != 0) else {
            return Ok((details, None));
        };
        frames.row_count = sample_rows;
        // Text takes more than the numbers of an index; twice as much where it does not suit its encoding.
        frames.row_bytes_max = 4 * TEXT_BYTES_MAX;
        let is_valid = frames.flags()?;
        let values = values(&mut frames, place.field, kind)?;
        frames.end()?;
        Ok((details, Some(Column { validity: Some(Flags::Owned(is_valid)), values })))
    }
}

fn values(frames: &mut Frames<'_, '_>, field: &Field, kind: Kind) -> Wire<Values<'static>> {
    Ok(match kind {
        Kind::Flags => Values::Flags(Flags::Owned(frames.flags()?)),
        Kind::I8 => Values::I8(frames.integers::<i8>()?.into()),
        Kind::I16 => Values::I16(frames.integers::<i16>()?.into()),
        Kind::I32 => Values::I32(frames.integers::<i32>()?.into()),
        Kind::I64 => Values::I64(frames.integers::<i64>()?.into()),
        Kind::I128 => Values::I128(frames.integers::<i128>()?.into()),
        Kind::U8 => Values::U8(frames.integers::<u8>()?.into()),
        Kind::U16 => Values::U16(frames.integers::<u16>()?.into()),
        Kind::U32 => Values::U32(frames.integers::<u32>()?.into()),
        Kind::U64 => Values::U64(frames.integers::<u64>()?.into()),
        Kind::F32 => Values::F32(frames.floats::<f32>()?.into()),
        Kind::F64 => Values::F64(frames.floats::<f64>()?.into()),
        Kind::Text => {
            let text = frames.text()?;
            let row =
                |ends: &[i32]| &text.bytes[ends[0].unsigned_abs() as usize..ends[1].unsigned_abs() as usize];
            let is_utf8 = |ends: &[i32]| std::str::from_utf8(row(ends)).is_ok();
            if field.data_type.is_utf8() && !text.offsets.windows(2).all(is_utf8) {
                return frames.malformed("a sample of text that is not UTF-8");
            }
            Values::Text { offsets: text.offsets.into(), bytes: text.bytes.into() }
        }
    })
}

/// The first record: the numbers of the rows of a sample.
pub(in crate::part) fn frame_of_sample_rows(level: Level, rows: &[u64]) -> keirin_codecs::Result<Vec<u8>> {
    frame::of_integers(level, Goal::Smallest, rows)
}

/// Reads the numbers of the rows of a sample of a part with so many rows.
pub(in crate::part) fn read_sample_rows(level: Level, bytes: &[u8], row_count: u64) -> Wire<Vec<u64>> {
    let mut reader = Reader::new(bytes);
    let count = frame::Frame::parse(bytes, frame::Limits { rows: 1 << 16, bytes: 1 << 20 })
        .map_or(0, |frame| frame.row_count());
    if count == 0 || count > SAMPLE_ROWS {
        return reader.malformed(format!("a sample of {count} rows"));
    }
    let rows: Vec<u64> = Frames::new(level, &mut reader, count).integers()?;
    reader.end()?;
    let is_ascending = rows.is_sorted_by(|row, next| row < next);
    if !is_ascending || rows.last().is_some_and(|last| *last >= row_count) {
        return reader.malformed("a sample of rows that do not ascend or are not there");
    }
    Ok(rows)
}
