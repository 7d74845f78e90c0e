//! Bitmaps as flags, one at a time.

use std::ops::Range;

/// The numbers of the flags that are set.
#[must_use]
pub fn positions(flags: &[bool]) -> Vec<usize> {
    (0..flags.len()).filter(|row| flags[*row]).collect()
}

/// The longest ranges of set flags.
#[must_use]
pub fn runs(flags: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for row in positions(flags) {
        match runs.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}
