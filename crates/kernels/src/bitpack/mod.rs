//! Integers of a few bits each, minus a reference: packing, unpacking, and computing without unpacking.
//!
//! Value `row` minus the reference is bits `row * width .. (row + 1) * width` of the bytes, least significant
//! bit first: in the order of rows, without padding or blocks. Eight rows take `width` bytes.
//!
//! With VBMI one loop unpacks every width (`x86.rs`). AVX2 and NEON take eight values at a time (`groups.rs`).
//! Otherwise a value is a shift and a mask of the eight bytes in which it begins. Comparisons and sums work on the bits minus the reference, 64 rows at a time,
//! and write the values to no more than the nearest cache.

use std::ops::Range;

use crate::bitmaps::pack_flags;
use crate::bits::WORD_BITS;
use crate::compare::{Comparison, Constant, Test, filter_flags};
use crate::{BitBuffer, Level, Selection};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod groups;
mod integer;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use integer::Integer;
pub use pack::pack;

/// Bytes that `count` values of `width` bits take; `usize::MAX` if they do not fit the address space.
#[must_use]
pub fn packed_bytes(count: usize, width: u32) -> usize {
    let bits = count as u128 * u128::from(width);
    usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
}

/// The smallest width for the values `low ..= high`, packed with the reference `low`.
#[must_use]
pub fn width_of<T: Integer>(low: T, high: T) -> u32 {
    u64::BITS - high.less_reference(low).leading_zeros()
}

/// Values that are unpacked at a time, and stay in the first-level cache, to be looked at.
const BLOCK: usize = 1024;

/// Packed values, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a, T> {
    bytes: &'a [u8],
    width: u32,
    count: usize,
    reference: T,
}

impl<'a, T: Integer> Packed<'a, T> {
    /// `count` values of `width` bits each, to which `reference` is added (wrapping).
    ///
    /// # Panics
    /// When `width` is more than `T` has, or there are fewer than [`packed_bytes`] bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8], width: u32, count: usize, reference: T) -> Self {
        assert!(width <= T::BITS, "{width} bits of values of {}", T::BITS);
        let needed = packed_bytes(count, width);
        assert!(needed <= bytes.len(), "{count} values of {width} bits in {} bytes", bytes.len());
        Self { bytes: &bytes[..needed], width, count, reference }
    }

    /// Count of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value at `row`.
    ///
    /// # Panics
    /// When `row` is not below the count of values.
    #[must_use]
    #[inline]
    pub fn get(&self, row: usize) -> T {
        assert!(row < self.count, "row {row} of {}", self.count);
        self.reference.plus(self.bits(row))
    }

    /// The value at `row` minus the reference.
    #[inline(always)]
    fn bits(&self, row: usize) -> u64 {
        let bit = row * self.width as usize;
        let rest = &self.bytes[bit / 8..];
        let bytes = rest.first_chunk::<16>().copied().unwrap_or_else(|| {
            let mut last = [0; 16];
            let count = rest.len().min(16);
            last[..count].copy_from_slice(&rest[..count]);
            last
        });
        #[expect(clippy::cast_possible_truncation, reason = "what is cut off is behind the value")]
        let bits = (u128::from_le_bytes(bytes) >> (bit % 8)) as u64;
        bits & self.mask()
    }

    /// A mask of `width` ones.
    #[inline(always)]
    fn mask(&self) -> u64 {
        u64::MAX.checked_shr(u64::BITS - self.width).unwrap_or(0)
    }

    /// Whether values minus the reference are ordered as the values are: adding the reference never wraps.
    fn is_ordered(&self) -> bool {
        self.reference.to_i128() + i128::from(self.mask()) <= T::MAX.to_i128()
    }

    fn check_rows(&self, rows: &Range<usize>) {
        assert!(rows.start <= rows.end && rows.end <= self.count, "rows {rows:?} of {}", self.count);
    }
}

/// Values `first .. first + out.len()`.
///
/// # Panics
/// When there are fewer values.
pub fn unpack_into<T: Integer>(level: Level, packed: Packed<'_, T>, first: usize, out: &mut [T]) {
    packed.check_rows(&(first..first.saturating_add(out.len())));
    unpack_rows(level, packed, first, out);
}

/// The values of selected rows.
///
/// # Panics
/// When the selection has rows beyond the end.
#[must_use]
pub fn unpack<T: Integer>(level: Level, packed: Packed<'_, T>, selection: Selection<'_>) -> Vec<T> {
    /// If at most one row in 16 is selected, rows are unpacked one by one.
    const SPARSE: usize = 16;
    match selection {
        Selection::All => {
            let mut values = vec![packed.reference; packed.count];
            unpack_rows(level, packed, 0, &mut values);
            values
        }
        Selection::Rows(rows) => rows.iter().map(|row| packed.get(*row as usize)).collect(),
        Selection::Bits(bits) => {
            assert_eq!(bits.len(), packed.count, "a selection of as many rows");
            let count = selection.count(level, packed.count);
            let mut values = Vec::with_capacity(count);
            if count < packed.count / SPARSE {
                values.extend(bits.ones().map(|row| packed.get(row)));
                return values;
            }
            let mut block = [packed.reference; BLOCK];
            for first in (0..packed.count).step_by(BLOCK) {
                let block = &mut block[..BLOCK.min(packed.count - first)];
                unpack_rows(level, packed, first, block);
                crate::compact::compact_into(level, block, bits.slice(first, block.len()), &mut values);
            }
            values
        }
    }
}

/// Selects the rows of a range for whose values the comparison with `constant` holds.
///
/// The constant minus the reference is compared with the bits; if it is outside their range the answer is the
/// same for all rows.
///
/// # Panics
/// When there are fewer rows.
#[must_use]
pub fn compare_packed<T: Integer>(
    level: Level,
    comparison: Comparison,
    packed: Packed<'_, T>,
    rows: Range<usize>,
    constant: T,
) -> BitBuffer {
    fn run<T: Integer, O: crate::compare::Operator>(
        level: Level,
        packed: Packed<'_, T>,
        rows: Range<usize>,
        constant: T::Bits,
        invert: u64,
    ) -> BitBuffer {
        filter(level, packed, rows, &Constant::<T::Bits, O>::new(constant), invert)
    }
    packed.check_rows(&rows);
    if !packed.is_ordered() {
        let mut values = vec![packed.reference; rows.len()];
        unpack_rows(level, packed, rows.start, &mut values);
        return crate::compare::compare_constant(level, comparison, &values, constant);
    }
    let distance = constant.to_i128() - packed.reference.to_i128();
    let all = |is_all: bool| {
        BitBuffer::from_words(vec![if is_all { !0 } else { 0 }; rows.len().div_ceil(WORD_BITS)], rows.len())
    };
    if distance < 0 {
        return all(matches!(
            comparison,
            Comparison::NotEqual | Comparison::Greater | Comparison::GreaterEqual
        ));
    }
    if distance > i128::from(packed.mask()) {
        return all(matches!(comparison, Comparison::NotEqual | Comparison::Less | Comparison::LessEqual));
    }
    let constant = T::bits(constant.less_reference(packed.reference));
    crate::compare::with_operator!(comparison, run(level, packed, rows, constant))
}

/// The sum of a range of rows; there are at most 2^63 values of 64 bits, so it always fits.
///
/// # Panics
/// When there are fewer rows.
#[must_use]
pub fn sum_packed<T: Integer>(level: Level, packed: Packed<'_, T>, rows: Range<usize>) -> i128 {
    packed.check_rows(&rows);
    let count = rows.len() as i128;
    if packed.width == 0 {
        // With width 0 the bytes do not limit the count of rows, so it may be any number.
        return count * packed.reference.to_i128();
    }
    if !packed.is_ordered() {
        return (rows).map(|row| packed.get(row).to_i128()).sum();
    }
    sum_bits(level, packed, rows).cast_signed() + count * packed.reference.to_i128()
}

kernel! {
    fn unpack_rows[T: Integer][T](packed: Packed<'_, T>, first: usize, out: &mut [T])
        = unpack_plain, neon = neon::unpack, avx2 = avx2::unpack, vbmi = x86::unpack_vbmi;
}

kernel! {
    fn filter[T: Integer, Q: Test<T::Bits>][T, Q]
        (packed: Packed<'_, T>, rows: Range<usize>, test: &Q, invert: u64) -> BitBuffer
        = filter_plain, neon = neon::filter, avx2 = avx2::filter, vbmi = x86::filter_vbmi;
}

kernel! {
    fn sum_bits[T: Integer][T](packed: Packed<'_, T>, rows: Range<usize>) -> u128
        = sum_plain, neon = neon::sum, avx2 = avx2::sum, vbmi = x86::sum_vbmi;
}

#[inline(always)]
fn unpack_plain<T: Integer>(packed: Packed<'_, T>, first: usize, out: &mut [T]) {
    for_bits(packed, first, out.len(), |row, bits| out[row] = packed.reference.plus(bits));
}

/// Calls `visit` with the index, counted from `first`, and the bits of each of `count` rows.
#[inline(always)]
fn for_bits<T: Integer>(
    packed: Packed<'_, T>,
    first: usize,
    count: usize,
    mut visit: impl FnMut(usize, u64),
) {
    let (width, mask) = (packed.width as usize, packed.mask());
    // A value that begins inside a byte ends within eight bytes if it has at most 57 bits, else maybe in the
    // ninth.
    let rows_inside = if width == 0 || width > 57 || packed.bytes.len() < 8 {
        0
    } else {
        let last = (packed.bytes.len() - 8) * 8 / width;
        (last + 1).min(first + count).saturating_sub(first)
    };
    for row in 0..rows_inside {
        let bit = (first + row) * width;
        // SAFETY: `bit / 8 + 8` is at most the count of bytes: that of the last row inside was chosen so.
        let at = unsafe { packed.bytes.as_ptr().add(bit / 8) };
        // SAFETY: the eight bytes from `bit / 8` on end where the packed bytes do or before.
        let word = u64::from_le(unsafe { at.cast::<u64>().read_unaligned() });
        visit(row, word >> (bit % 8) & mask);
    }
    for row in rows_inside..count {
        visit(row, packed.bits(first + row));
    }
}

#[inline(always)]
fn filter_plain<T: Integer, Q: Test<T::Bits>>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    test: &Q,
    invert: u64,
) -> BitBuffer {
    let mut words = Vec::with_capacity(rows.len().div_ceil(WORD_BITS));
    for first in rows.clone().step_by(WORD_BITS) {
        let mut flags = [false; WORD_BITS];
        let count = WORD_BITS.min(rows.end - first);
        for_bits(packed, first, count, |row, bits| flags[row] = test.holds(T::bits(bits)));
        words.push(pack_flags(&flags) ^ invert);
    }
    BitBuffer::from_words(words, rows.len())
}

#[inline(always)]
fn sum_plain<T: Integer>(packed: Packed<'_, T>, rows: Range<usize>) -> u128 {
    let mut sum = 0;
    for_bits(packed, rows.start, rows.len(), |_, bits| sum += u128::from(bits));
    sum
}

/// The bits of the values, as values of their own.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn without_reference<T: Integer>(packed: Packed<'_, T>) -> Packed<'_, T::Bits> {
    let Packed { bytes, width, count, .. } = packed;
    Packed { bytes, width, count, reference: T::Bits::default() }
}

/// [`filter_plain`] of values that `unpack` writes, some at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn filter_blocks<T: Integer, Q: Test<T::Bits>>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    test: &Q,
    invert: u64,
    unpack: impl Fn(Packed<'_, T::Bits>, usize, &mut [T::Bits]),
    pack: impl Fn(&[bool; WORD_BITS]) -> u64,
) -> BitBuffer {
    let mut block = [T::Bits::default(); BLOCK];
    let compare = |first: usize, flags: &mut [bool]| {
        for (first, flags) in (first..).step_by(BLOCK).zip(flags.chunks_mut(BLOCK)) {
            let block = &mut block[..flags.len()];
            unpack(without_reference(packed), rows.start + first, block);
            for (flag, value) in flags.iter_mut().zip(block) {
                *flag = test.holds(*value);
            }
        }
    };
    filter_flags(rows.len(), compare, pack, invert)
}

/// [`sum_plain`] of values that `unpack` writes, some at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn sum_blocks<T: Integer>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    unpack: impl Fn(Packed<'_, T::Bits>, usize, &mut [T::Bits]),
) -> u128 {
    /// Sums of a block of wider values may overflow.
    const WIDTH_MAX: u32 = u64::BITS - BLOCK.ilog2();
    if packed.width > WIDTH_MAX {
        return sum_plain(packed, rows);
    }
    let mut block = [T::Bits::default(); BLOCK];
    let sums = rows.clone().step_by(BLOCK).map(|first| {
        let block = &mut block[..BLOCK.min(rows.end - first)];
        unpack(without_reference(packed), first, block);
        block.iter().map(|value| value.less_reference(T::Bits::default())).sum::<u64>()
    });
    sums.map(u128::from).sum()
}
