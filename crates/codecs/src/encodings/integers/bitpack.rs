//! Bits above a reference; values outside their range are stored apart, as patches.
//!
//! ```text
//! | width: u8 | reference | patch count: u32 | rows of patches | their values | bits ... |
//!                                              `--- two columns, if any ---'
//! ```
//! Frame of reference with patches, as in PFOR (Zukowski, Heman, Nes, Boncz: "Super-Scalar RAM-CPU Cache
//! Compression", ICDE 2006). Bits are in the order of rows (`keirin_kernels::bitpack`); rows of patches
//! ascend, and their bits are zero.
//!
//! Good for values in a narrow range, with some outliers on either side. Comparisons and sums work on the
//! bits.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use keirin_kernels::bitpack::packed_bytes;
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::gather::gather;
use keirin_kernels::{BitBuffer, Level, Selection, aggregate, bitmaps, count_ones};

use super::int::PackedBits;
use super::{Int, Node};
use crate::encodings::{grouped, patch_bits, spread};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

/// The number of possible widths: 0 to 128 bits.
const WIDTHS: usize = 129;
/// At most one value in 16 may be a patch: more cost more time than they save bytes.
const PATCHES_MIN_DISTANCE: usize = 16;
/// The approximate cost in bits of a patch's row.
const PATCH_ROW_BITS: usize = 8;
/// Values in the sample on which widths are tried.
const SAMPLE: usize = 1024;

/// Packing parameters: values at most 2^`width` - 1 above the reference are packed, the others are patches.
#[derive(Clone, Debug)]
struct Plan<T> {
    reference: T,
    width: u32,
    patch_rows: Vec<u32>,
    bits: usize,
}

/// The bits that `count` values of a width and `patch_count` patches take.
fn bits<T: Int>(count: usize, width: u32, patch_count: usize) -> usize {
    count * width as usize + patch_count * (T::BITS as usize + PATCH_ROW_BITS)
}

/// The plan with the fewest bits, if there is one.
fn plan<T: Int>(level: Level, values: &[T], may_patch: bool) -> Option<Plan<T>> {
    let (least, greatest) = aggregate::extremes(level, values, None, Selection::All)?;
    let width = greatest.width(least);
    let size = bits::<T>(values.len(), width, 0);
    let whole = Plan { reference: least, width, patch_rows: Vec::new(), bits: size };
    let mut plans = Vec::new();
    if may_patch && width > 0 {
        let mut sample = spread(values, SAMPLE);
        let mut references = vec![least];
        // A few values far below the others would widen all bits: also tries a reference above the lowest
        // 1/64.
        let place = sample.len() / 64;
        let (_, low, _) = sample.select_nth_unstable(place);
        if *low != least {
            references.push(*low);
        }
        plans.extend(references.into_iter().filter_map(|reference| {
            let width = width_above(&sample, reference).filter(|narrow| *narrow < width)?;
            let patch_rows = rows_outside(level, values, reference, width, greatest)?;
            let bits = bits::<T>(values.len(), width, patch_rows.len());
            Some(Plan { reference, width, patch_rows, bits })
        }));
    }
    plans.extend((width <= T::WIDTH_MAX).then_some(whole));
    // Of plans with equally many bits the last, which has no patches.
    plans.into_iter().rev().min_by_key(|plan| plan.bits)
}

/// The width above a reference with which a sample takes the fewest bits.
fn width_above<T: Int>(sample: &[T], reference: T) -> Option<u32> {
    let mut counts = [0_usize; WIDTHS];
    for value in sample {
        counts[value.width(reference) as usize] += 1;
    }
    let patches_max = sample.len() / PATCHES_MIN_DISTANCE;
    let (mut patch_count, mut best) = (0, None);
    for width in (0..=T::BITS).rev() {
        if width <= T::WIDTH_MAX && patch_count <= patches_max {
            let bits = bits::<T>(sample.len(), width, patch_count);
            if best.is_none_or(|(best, _)| bits < best) {
                best = Some((bits, width));
            }
        }
        patch_count += counts[width as usize];
    }
    best.map(|(_, width)| width)
}

/// The rows of values below the reference or at least 2^`width` above it; `None` if there are too many.
fn rows_outside<T: Int>(
    level: Level,
    values: &[T],
    reference: T,
    width: u32,
    greatest: T,
) -> Option<Vec<u32>> {
    let below = compare_constant(level, Comparison::Less, values, reference);
    let outside = if greatest.width(reference) > width {
        let last = reference.plus(T::low_bits(width));
        let above = compare_constant(level, Comparison::Greater, values, last);
        bitmaps::or(level, below.as_bits(), above.as_bits())
    } else {
        below
    };
    let count = count_ones(level, outside.as_bits());
    (count <= values.len() / PATCHES_MIN_DISTANCE).then(|| bitmaps::positions(level, outside.as_bits()))
}

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    let Some(plan) = plan(writer.level, values, writer.may_nest()) else { return false };
    let Plan { reference, width, patch_rows: rows, .. } = plan;
    writer.bytes.push(u8::try_from(width).expect("at most 128 bits"));
    reference.extend(&mut writer.bytes);
    writer.count(rows.len());
    let mut packed = Cow::Borrowed(values);
    if !rows.is_empty() {
        let patches = gather(writer.level, values, &rows);
        writer.nested(|writer| {
            super::write(writer, &rows);
            super::write(writer, &patches);
        });
        let packed = packed.to_mut();
        rows.iter().for_each(|row| packed[*row as usize] = reference);
    }
    let bytes = T::pack(writer.level, &packed, width, reference);
    writer.bytes.extend_from_slice(&bytes);
    true
}

#[derive(Debug)]
pub(super) struct Bitpack<'a, T> {
    bits: PackedBits<'a, T>,
    /// The rows of patches, ascending.
    patch_rows: Vec<u32>,
    patches: Vec<T>,
}

impl<'a, T: Int> Bitpack<'a, T> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let width = u32::from(reader.u8()?);
        if width > T::WIDTH_MAX {
            return Err(Error::Corrupt { at, reason: "more bits than values have" });
        }
        let reference = T::from_bytes(reader.take(T::BYTES)?);
        let patch_count = reader.count(count, "more patches than rows")?;
        let (mut patch_rows, mut patches) = (Vec::new(), Vec::new());
        if patch_count > 0 {
            patch_rows = super::read_rows(reader, patch_count, count)?;
            patches = super::read(reader, patch_count)?;
        }
        let bytes = reader.take(packed_bytes(count, width))?;
        Ok(Self { bits: PackedBits::new(bytes, width, count, reference), patch_rows, patches })
    }

    /// The patches in a range: row relative to its start, and value.
    fn patches(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, T)> {
        let place = |row: usize| self.patch_rows.partition_point(|patch| (*patch as usize) < row);
        let places = place(rows.start)..place(rows.end);
        let patches = self.patch_rows[places.clone()].iter().zip(&self.patches[places]);
        patches.map(move |(row, value)| (*row as usize - rows.start, *value))
    }
}

impl<T: Int> Node<T> for Bitpack<'_, T> {
    fn len(&self) -> usize {
        self.bits.len()
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [T]) -> Result<()> {
        T::unpack_into(level, self.bits, first, out);
        for (row, value) in self.patches(first..first + out.len()) {
            out[row] = value;
        }
        Ok(())
    }

    fn decode_narrow_into(&self, level: Level, first: usize, out: &mut [i64]) -> Result<bool> {
        if !T::unpack_narrow_into(level, self.bits, first, out) {
            return super::decode_narrow_into(self, level, first, out);
        }
        let have_room = self.patches(first..first + out.len()).all(|(row, value)| {
            let narrow = i64::try_from(value.to_i128());
            narrow.is_ok_and(|value| {
                out[row] = value;
                true
            })
        });
        Ok(have_room)
    }

    fn take(&self, _: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()> {
        out.extend(rows.iter().map(|row| match self.patch_rows.binary_search(row) {
            Ok(place) => self.patches[place],
            Err(_) => T::unpack_one(self.bits, *row as usize),
        }));
        Ok(())
    }

    fn compare(&self, level: Level, comparison: Comparison, constant: T) -> Result<BitBuffer> {
        let found = T::compare_packed(level, comparison, self.bits, constant);
        let patches = compare_constant(level, comparison, &self.patches, constant);
        Ok(patch_bits(found, &self.patch_rows, patches.as_bits()))
    }

    fn sum(&self, level: Level, rows: Range<usize>) -> Result<i128> {
        let mut sum = T::sum_packed(level, self.bits, rows.clone())?;
        for (row, value) in self.patches(rows.clone()) {
            let below = T::unpack_one(self.bits, rows.start + row).to_i128();
            let more = value.to_i128().checked_sub(below).ok_or(Error::SumOverflow)?;
            sum = sum.checked_add(more).ok_or(Error::SumOverflow)?;
        }
        Ok(sum)
    }

    fn decode_ns(&self) -> f64 {
        let size = (self.bits.len() * T::BYTES + packed_bytes(self.bits.len(), self.bits.width())) as f64;
        size * 0.02 + self.patches.len() as f64
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bitpack({}", self.bits.width())?;
        match self.patches.len() {
            0 => f.write_str(")"),
            1 => f.write_str(", 1 patch)"),
            count => write!(f, ", {} patches)", grouped(count)),
        }
    }
}
