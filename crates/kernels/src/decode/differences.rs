//! Values from their differences.
//!
//! Row by row, each sum waits for the one before it. Here a group of differences is summed by itself, in as many
//! steps as the logarithm of its size, and only the last of its sums is handed on: one addition a group.

use crate::bitpack::Integer;

/// Differences that are summed by themselves.
const GROUP: usize = 16;

kernel! {
    /// `out[row]` is `start` and all differences up to that of `row`, around the end of the type.
    ///
    /// # Panics
    /// When there are not as many differences as values.
    pub fn prefix_sums[D: Integer, T: Integer][D, T](start: T, differences: &[D], out: &mut [T]) = sums_plain;
}

#[inline(always)]
fn sums_plain<D: Integer, T: Integer>(start: T, differences: &[D], out: &mut [T]) {
    assert_eq!(differences.len(), out.len(), "as many differences as values");
    let (groups, rest) = differences.as_chunks::<GROUP>();
    let (out_groups, out_rest) = out.as_chunks_mut::<GROUP>();
    let mut sum = start;
    for (group, out) in groups.iter().zip(out_groups) {
        let mut sums = group.map(|difference| T::default().plus(bits(difference)));
        for step in [1, 2, 4, 8] {
            let before = sums;
            for row in step..GROUP {
                sums[row] = before[row].plus(bits(before[row - step]));
            }
        }
        *out = sums.map(|each| sum.plus(bits(each)));
        sum = sum.plus(bits(sums[GROUP - 1]));
    }
    for (difference, out) in rest.iter().zip(out_rest) {
        sum = sum.plus(bits(*difference));
        *out = sum;
    }
}

#[inline(always)]
fn bits<T: Integer>(value: T) -> u64 {
    value.less_reference(T::default())
}
