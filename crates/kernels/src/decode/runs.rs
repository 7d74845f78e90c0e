//! Values from runs of equal ones.
//!
//! A run is written in whole vectors of its value; the next run overwrites the excess. So short runs take one
//! store each and no call, and no branch has to predict their length.

use crate::compare::Comparable;

kernel! {
    /// Decodes rows `first .. first + out.len()` of runs, each of which has a value and the row at which it
    /// ends. The first run must be the one with row `first`.
    ///
    /// # Panics
    /// When ends do not ascend, or do not reach the last row.
    pub fn expand_runs[T: Comparable][T](values: &[T], ends: &[u32], first: u32, out: &mut [T]) = expand_plain;
}

#[inline(always)]
fn expand_plain<T: Comparable>(values: &[T], ends: &[u32], first: u32, out: &mut [T]) {
    // The number of values in a store of 64 bytes, or four of the widest values.
    match size_of::<T>() {
        1 => expand::<T, 64>(values, ends, first, out),
        2 => expand::<T, 32>(values, ends, first, out),
        4 => expand::<T, 16>(values, ends, first, out),
        8 => expand::<T, 8>(values, ends, first, out),
        _ => expand::<T, 4>(values, ends, first, out),
    }
}

#[inline(always)]
fn expand<T: Comparable, const STORE: usize>(values: &[T], ends: &[u32], first: u32, out: &mut [T]) {
    if out.is_empty() {
        return;
    }
    let mut row = 0;
    for (value, end) in values.iter().zip(ends) {
        let end = (end.saturating_sub(first) as usize).min(out.len());
        assert!(row < end, "ends of runs that ascend");
        while row < end {
            match out[row..].first_chunk_mut::<STORE>() {
                Some(store) => *store = [*value; STORE],
                None => out[row..end].fill(*value),
            }
            row += STORE;
        }
        row = end;
        if row == out.len() {
            return;
        }
    }
    panic!("runs that do not reach the last row");
}
