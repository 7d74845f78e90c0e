//! Values from their differences.
//!
//! In the plain loop each sum waits for the one before it: a value a cycle. With AVX-512 the differences in a
//! vector are summed among themselves, in as many steps as the logarithm of their count, and only the last
//! sum is carried to the next vector (`x86.rs`). The compiler does not find that: groups of 16 summed in this
//! way in plain Rust were 7x slower than this loop.

use crate::bitpack::Integer;

kernel! {
    /// `out[row]` is `start` plus all differences up to that of `row`, wrapping.
    ///
    /// # Panics
    /// When there are not as many differences as values.
    pub fn prefix_sums[D: Integer, T: Integer][D, T](start: T, differences: &[D], out: &mut [T])
        = sums_plain, avx512 = super::x86::sums_avx512;
}

#[inline(always)]
pub(super) fn sums_plain<D: Integer, T: Integer>(start: T, differences: &[D], out: &mut [T]) {
    assert_eq!(differences.len(), out.len(), "as many differences as values");
    let mut sum = start;
    for (difference, out) in differences.iter().zip(out) {
        sum = sum.plus(difference.less_reference(D::default()));
        *out = sum;
    }
}
