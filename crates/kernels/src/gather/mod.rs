//! Takes values by number: rows of a column, entries of a dictionary.
//!
//! All numbers are checked at once, which is a maximum and vectorises; then nothing is checked any more.
//! Values are loaded one by one; the gather instructions were not tried. A small dictionary with codes of one byte stays
//! in two registers instead, and a permutation looks up as many codes as a register has values (`x86.rs`).

use crate::bits::WORD_BITS;
use crate::compare::Comparable;
use crate::sealed::Sealed;
use crate::{BitBuffer, Bits};

#[cfg(target_arch = "x86_64")]
mod x86;

/// The number of a row or of an entry: `u8`, `u16` or `u32`.
pub trait Index: Copy + Ord + Default + Into<u32> + Sealed + 'static {}

impl Index for u8 {}
impl Index for u16 {}
impl Index for u32 {}

kernel! {
    /// `values[index]` for each index.
    ///
    /// # Panics
    /// When an index is not below the count of values.
    pub fn gather[T: Comparable, I: Index][T, I](values: &[T], indices: &[I]) -> Vec<T>
        = gather_plain, avx512 = x86::gather_avx512, vbmi = x86::gather_vbmi;
}

kernel! {
    /// The bit at each index.
    ///
    /// # Panics
    /// When an index is not below the count of bits.
    pub fn gather_bits[I: Index][I](bits: Bits<'_>, indices: &[I]) -> BitBuffer = gather_bits_plain;
}

/// Numbers that are checked and used while they are in the nearest cache.
const BLOCK: usize = 1024;

#[inline(always)]
fn gather_plain<T: Comparable, I: Index>(values: &[T], indices: &[I]) -> Vec<T> {
    let mut out = Vec::with_capacity(indices.len());
    for block in indices.chunks(BLOCK) {
        check(values.len(), block);
        out.extend(block.iter().map(|index| {
            let index: u32 = (*index).into();
            // SAFETY: the greatest index of the block was checked.
            unsafe { *values.get_unchecked(index as usize) }
        }));
    }
    out
}

#[inline(always)]
fn gather_bits_plain<I: Index>(bits: Bits<'_>, indices: &[I]) -> BitBuffer {
    let word = |rows: &[I]| {
        rows.iter().rev().fold(0, |word, index| word << 1 | u64::from(bits.get((*index).into() as usize)))
    };
    BitBuffer::from_words(indices.chunks(WORD_BITS).map(word).collect(), indices.len())
}

/// Panics unless all indices are below `count`.
#[inline(always)]
fn check<I: Index>(count: usize, indices: &[I]) {
    let greatest = indices.iter().fold(I::default(), |greatest, index| greatest.max(*index));
    let greatest: u32 = greatest.into();
    assert!(indices.is_empty() || (greatest as usize) < count, "index {greatest} of {count} values");
}
