//! Gathers values by index: rows of a column, entries of a dictionary.
//!
//! The indices of a block are checked together by their maximum, which vectorises; after that there are no
//! checks. Values are loaded one by one; the gather instructions were not tried. A small dictionary stays in
//! two registers instead, and a permutation looks up as many codes as a register has values (`x86.rs`).

use std::mem::MaybeUninit;

use crate::bits::WORD_BITS;
use crate::compare::Comparable;
use crate::sealed::Sealed;
use crate::{BitBuffer, Bits, Level};

#[cfg(target_arch = "x86_64")]
mod x86;

/// The index of a row or of an entry: `u8`, `u16` or `u32`.
pub trait Index: Copy + Ord + Default + Into<u32> + Sealed + 'static {}

impl Index for u8 {}
impl Index for u16 {}
impl Index for u32 {}

/// `values[index]` for each index.
///
/// # Panics
/// When an index is not below the count of values.
#[must_use]
pub fn gather<T: Comparable, I: Index>(level: Level, values: &[T], indices: &[I]) -> Vec<T> {
    let out = gather_checked(level, values, indices);
    out.unwrap_or_else(|| panic!("indices below {}", values.len()))
}

/// As [`gather`]; `None` when an index is not below the count of values.
pub(crate) fn gather_checked<T: Comparable, I: Index>(
    level: Level,
    values: &[T],
    indices: &[I],
) -> Option<Vec<T>> {
    let mut out = Vec::with_capacity(indices.len());
    if !gather_to(level, values, indices, &mut out.spare_capacity_mut()[..indices.len()]) {
        return None;
    }
    // SAFETY: all of these were written.
    unsafe { out.set_len(indices.len()) };
    Some(out)
}

/// Sets `out` to `values[index]` for each index. Returns `false`, with any values in `out`, when an index is
/// not below the count of values.
///
/// # Panics
/// When there are not as many indices as places.
#[must_use]
pub fn gather_into<T: Comparable, I: Index>(
    level: Level,
    values: &[T],
    indices: &[I],
    out: &mut [T],
) -> bool {
    assert_eq!(indices.len(), out.len(), "as many indices as places");
    // SAFETY: the same layout, and the loops write nothing but values.
    let out = unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<T>]) };
    gather_to(level, values, indices, out)
}

kernel! {
    /// Writes all of `out`, or returns `false` after writing some of it. There must be as many indices as
    /// places.
    fn gather_to[T: Comparable, I: Index][T, I](values: &[T], indices: &[I], out: &mut [MaybeUninit<T>]) -> bool
        = gather_plain, avx512 = x86::gather_avx512, vbmi = x86::gather_vbmi;
}

kernel! {
    /// The bit at each index.
    ///
    /// # Panics
    /// When an index is not below the count of bits.
    pub fn gather_bits[I: Index][I](bits: Bits<'_>, indices: &[I]) -> BitBuffer = gather_bits_plain;
}

/// Indices that are checked and used together, while they are in the first-level cache.
const BLOCK: usize = 1024;

#[inline(always)]
fn gather_plain<T: Comparable, I: Index>(values: &[T], indices: &[I], out: &mut [MaybeUninit<T>]) -> bool {
    indices.chunks(BLOCK).zip(out.chunks_mut(BLOCK)).all(|(indices, out)| {
        let are_inside = are_below(values.len(), indices);
        if are_inside {
            for (index, out) in indices.iter().zip(out) {
                let index: u32 = (*index).into();
                // SAFETY: the greatest index of the block was checked.
                out.write(unsafe { *values.get_unchecked(index as usize) });
            }
        }
        are_inside
    })
}

#[inline(always)]
fn gather_bits_plain<I: Index>(bits: Bits<'_>, indices: &[I]) -> BitBuffer {
    assert!(are_below(bits.len(), indices), "an index is not below {}", bits.len());
    let mut words = vec![0; indices.len().div_ceil(WORD_BITS)];
    for (indices, word) in indices.chunks(WORD_BITS).zip(&mut words) {
        for (place, index) in indices.iter().enumerate() {
            let index: u32 = (*index).into();
            // SAFETY: the greatest of all indices was checked.
            let bit = unsafe { bits.get_unchecked(index as usize) };
            *word |= u64::from(bit) << place;
        }
    }
    BitBuffer::from_words(words, indices.len())
}

/// Whether all indices are below `count`.
#[inline(always)]
fn are_below<I: Index>(count: usize, indices: &[I]) -> bool {
    let greatest = indices.iter().fold(I::default(), |greatest, index| greatest.max(*index));
    let greatest: u32 = greatest.into();
    indices.is_empty() || (greatest as usize) < count
}
