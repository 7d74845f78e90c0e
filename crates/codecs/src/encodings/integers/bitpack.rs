//! Bits above a reference, and the values that they cannot hold aside.
//!
//! ```text
//! | width: u8 | reference | patch count: u32 | rows of patches | their values | bits ... |
//!                                              `--- two columns, if any ---'
//! ```
//! Frame of reference with patches, as PFOR has it (Zukowski, Heman, Nes, Boncz: "Super-Scalar RAM-CPU Cache
//! Compression", ICDE 2006). The order of the bits is that of the rows (`keirin_kernels::bitpack`); rows of
//! patches ascend, and their bits are zero.
//!
//! Good for values in a narrow range, with some outliers on either side. Comparisons and sums work on the bits.

use std::fmt;
use std::ops::Range;

use keirin_kernels::bitpack::packed_bytes;
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level};

use super::int::PackedBits;
use super::{Int, Node};
use crate::encodings::{grouped, patch_bits, spread};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

/// A width of 128 bits at most, and 0.
const WIDTHS: usize = 129;
/// At most one value in so many is a patch: more cost more time than they save bytes.
const PATCHES_MIN_DISTANCE: usize = 16;
/// Bits that the row of a patch takes, more or less.
const PATCH_ROW_BITS: usize = 8;

/// A way to pack: the values that lie up to 2^`width` above the reference.
#[derive(Clone, Copy, Debug)]
struct Plan<T> {
    reference: T,
    width: u32,
    bits: usize,
}

/// The shortest way to pack, if there is one.
fn plan<T: Int>(values: &[T], may_patch: bool) -> Option<Plan<T>> {
    let least = values.iter().copied().min()?;
    let mut references = vec![least];
    // A few values far below would widen all bits: see how it is without the lowest few in a hundred.
    let mut sample = spread(values, 256);
    let place = sample.len() / 64;
    let (_, low, _) = sample.select_nth_unstable(place);
    if may_patch && *low != least {
        references.push(*low);
    }
    references
        .into_iter()
        .filter_map(|reference| plan_above(values, reference, may_patch))
        .min_by_key(|plan| plan.bits)
}

fn plan_above<T: Int>(values: &[T], reference: T, may_patch: bool) -> Option<Plan<T>> {
    let mut counts = [0_usize; WIDTHS];
    for value in values {
        counts[value.width(reference) as usize] += 1;
    }
    let patches_max = if may_patch { values.len() / PATCHES_MIN_DISTANCE } else { 0 };
    let (mut patch_count, mut best) = (0, None);
    for width in (0..=T::BITS).rev() {
        if width <= T::WIDTH_MAX && patch_count <= patches_max {
            let bits = values.len() * width as usize + patch_count * (T::BITS as usize + PATCH_ROW_BITS);
            if best.is_none_or(|best: Plan<T>| bits < best.bits) {
                best = Some(Plan { reference, width, bits });
            }
        }
        patch_count += counts[width as usize];
    }
    best
}

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    let Some(Plan { reference, width, .. }) = plan(values, writer.may_nest()) else { return false };
    let (mut rows, mut patches, mut packed) = (Vec::new(), Vec::new(), Vec::new());
    for (row, value) in (0_u32..).zip(values) {
        if value.width(reference) > width {
            if packed.is_empty() {
                packed = values.to_vec();
            }
            packed[row as usize] = reference;
            rows.push(row);
            patches.push(*value);
        }
    }
    writer.bytes.push(u8::try_from(width).expect("at most 128 bits"));
    reference.extend(&mut writer.bytes);
    writer.count(rows.len());
    if !rows.is_empty() {
        writer.nested(|writer| {
            super::write(writer, &rows);
            super::write(writer, &patches);
        });
    }
    let packed = if packed.is_empty() { values } else { &packed };
    let bytes = T::pack(writer.level, packed, width, reference);
    writer.bytes.extend_from_slice(&bytes);
    true
}

#[derive(Debug)]
pub(super) struct Bitpack<'a, T> {
    bits: PackedBits<'a, T>,
    /// Ascending.
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

    /// The patches of a range: row less the first, and value.
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
