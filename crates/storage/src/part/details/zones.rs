//! Bounds of zones: some thousand rows each, where they say more than the bounds of whole stripes.

use std::ops::Range;

use keirin_codecs::frame::{self, Kind};
use keirin_codecs::integers::Int;
use keirin_codecs::{Goal, floats::Float};
use keirin_kernels::{BitBuffer, Level};

use super::ZONE_ROWS;
use crate::column::Column;
use crate::part::footer::Frames;
use crate::part::statistics::Meter;
use crate::schema::DataType;
use crate::wire::Wire;

/// The least and greatest values of the zones of a column, as their little-endian bytes; without bytes where a zone has
/// nulls alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::part) struct ZoneBounds {
    pub(in crate::part) is_known: Vec<bool>,
    pub(in crate::part) least: Vec<u8>,
    pub(in crate::part) greatest: Vec<u8>,
}

impl ZoneBounds {
    fn bounds(&self, zone: usize, width: usize) -> Option<(&[u8], &[u8])> {
        let range = zone * width..(zone + 1) * width;
        self.is_known[zone].then(|| (&self.least[range.clone()], &self.greatest[range]))
    }
}

/// The zones of a column in a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    bounds: ZoneBounds,
    width: usize,
    /// The first zone of each stripe, and the end of the last.
    starts: Vec<usize>,
}

/// How many zones a stripe has.
pub(super) fn zone_count(rows: u32) -> usize {
    (rows as usize).div_ceil(ZONE_ROWS)
}

impl Zones {
    /// The numbers of the zones of a stripe.
    ///
    /// # Panics
    /// When there is no such stripe.
    #[must_use]
    pub fn of_stripe(&self, stripe: usize) -> Range<usize> {
        self.starts[stripe]..self.starts[stripe + 1]
    }

    /// The least and the greatest value of a zone, as in [`Statistics`](crate::part::Statistics); `None` where all are
    /// null.
    ///
    /// # Panics
    /// When there is no such zone.
    #[must_use]
    pub fn bounds(&self, zone: usize) -> Option<(&[u8], &[u8])> {
        self.bounds.bounds(zone, self.width)
    }

    /// Whether the zones of a stripe have these bounds.
    pub(in crate::part) fn is_of_stripe(&self, stripe: usize, zones: &ZoneBounds) -> bool {
        let range = self.of_stripe(stripe);
        let found = (0..zones.is_known.len()).map(|zone| zones.bounds(zone, self.width));
        range.len() == zones.is_known.len() && range.map(|zone| self.bounds(zone)).eq(found)
    }
}

/// The zones of a column of numbers in a stripe.
pub(in crate::part) fn zones_of(
    level: Level,
    data_type: &DataType,
    column: &Column<'_>,
) -> Option<ZoneBounds> {
    let mut meter = Meter::new(level, column.validity_bits()).with_zones();
    meter.measure(data_type, &column.values);
    meter.zones
}

/// The number whose bytes these are, about.
fn approximate(kind: Kind, bytes: &[u8]) -> Option<f64> {
    macro_rules! integers {
        ($number:ident) => {
            bytes.try_into().ok().map(|bytes| {
                #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "an estimate")]
                let number = <$number>::from_le_bytes(bytes) as f64;
                number
            })
        };
    }
    macro_rules! floats {
        ($number:ident) => {
            bytes.try_into().ok().map(|bytes| f64::from(<$number>::from_le_bytes(bytes)))
        };
    }
    by_number!(kind, integers, floats, None)
}

/// Collects the zones of a column while its part is written.
#[derive(Debug, Default)]
pub(in crate::part) struct ZoneWriter {
    bounds: ZoneBounds,
    /// The ranges of zones in parts of the ranges of their stripes: sum and count.
    spread: (f64, f64),
}

impl ZoneWriter {
    /// Adds the zones of a stripe.
    pub(in crate::part) fn add(&mut self, kind: Kind, zones: ZoneBounds) {
        let width = width(kind);
        let ends = |bytes: &[u8]| {
            let numbers = bytes.chunks_exact(width).zip(&zones.is_known).filter(|(_, is_known)| **is_known);
            numbers.filter_map(|(bytes, _)| approximate(kind, bytes)).collect::<Vec<_>>()
        };
        let (least, greatest) = (ends(&zones.least), ends(&zones.greatest));
        let range = greatest.iter().copied().fold(f64::MIN, f64::max)
            - least.iter().copied().fold(f64::MAX, f64::min);
        if range > 0.0 && range.is_finite() {
            for (least, greatest) in least.iter().zip(&greatest) {
                self.spread.0 += (greatest - least) / range;
                self.spread.1 += 1.0;
            }
        }
        self.bounds.is_known.extend(zones.is_known);
        self.bounds.least.extend(zones.least);
        self.bounds.greatest.extend(zones.greatest);
    }

    /// The frames of the zones, if they say more than the bounds of stripes.
    pub(in crate::part) fn finish(&self, level: Level, kind: Kind) -> keirin_codecs::Result<Option<Vec<u8>>> {
        /// The mean range of zones, in parts of that of stripes, below which they are kept.
        const SPREAD_MAX: f64 = 0.5;
        let (sum, count) = self.spread;
        let is_tight = count > 0.0 && sum / count < SPREAD_MAX;
        if !is_tight {
            return Ok(None);
        }
        let is_known: BitBuffer = self.bounds.is_known.iter().copied().collect();
        let mut frames = frame::of_flags(level, Goal::Smallest, is_known.as_bits())?;
        frames.extend(frame_of(level, kind, &self.bounds.least)?);
        frames.extend(frame_of(level, kind, &self.bounds.greatest)?);
        Ok(Some(frames))
    }
}

/// Bytes of a number.
fn width(kind: Kind) -> usize {
    kind.value_bits().map_or(1, |bits| bits.div_ceil(8) as usize)
}

fn frame_of(level: Level, kind: Kind, bytes: &[u8]) -> keirin_codecs::Result<Vec<u8>> {
    macro_rules! numbers {
        ($number:ident) => {
            bytes
                .chunks_exact(size_of::<$number>())
                .map(|bytes| <$number>::from_le_bytes(bytes.try_into().expect("as many as it has")))
                .collect::<Vec<$number>>()
        };
    }
    macro_rules! integers {
        ($number:ident) => {
            frame::of_integers(level, Goal::Smallest, &numbers!($number))
        };
    }
    macro_rules! floats {
        ($number:ident) => {
            frame::of_floats(level, Goal::Smallest, &numbers!($number))
        };
    }
    by_number!(kind, integers, floats, Ok(Vec::new()))
}

/// Reads the zones of a column of this kind in stripes of so many rows.
pub(super) fn read(frames: &mut Frames<'_, '_>, kind: Kind, stripe_rows: &[u32]) -> Wire<Zones> {
    let mut starts = vec![0];
    let mut end = 0;
    starts.extend(stripe_rows.iter().map(|rows| {
        end += zone_count(*rows);
        end
    }));
    frames.row_count = end;
    let is_known = frames.flags()?;
    let is_known = (0..end).map(|zone| is_known.as_bits().get(zone)).collect();
    let (least, greatest) = (numbers(frames, kind)?, numbers(frames, kind)?);
    Ok(Zones { bounds: ZoneBounds { is_known, least, greatest }, width: width(kind), starts })
}

fn numbers(frames: &mut Frames<'_, '_>, kind: Kind) -> Wire<Vec<u8>> {
    fn integers<T: Int>(frames: &mut Frames<'_, '_>) -> Wire<Vec<T>> {
        frames.integers()
    }
    fn floats<T: Float>(frames: &mut Frames<'_, '_>) -> Wire<Vec<T>> {
        frames.floats()
    }
    macro_rules! integers {
        ($number:ident) => {
            integers::<$number>(frames)?.into_iter().flat_map(<$number>::to_le_bytes).collect()
        };
    }
    macro_rules! floats {
        ($number:ident) => {
            floats::<$number>(frames)?.into_iter().flat_map(<$number>::to_le_bytes).collect()
        };
    }
    Ok(by_number!(kind, integers, floats, return frames.malformed("zones of values that are no numbers")))
}
