//! Loops over rows whose result is a bit for each row.

use crate::bits::WORD_BITS;
use crate::{BitBuffer, Selection};

/// Collects a bitmap, 64 rows at a time: `word(first, count)` returns the bits of rows `first .. first +
/// count`.
#[inline(always)]
pub(super) fn collect_words(row_count: usize, mut word: impl FnMut(usize, usize) -> u64) -> BitBuffer {
    let mut words = vec![0; row_count.div_ceil(WORD_BITS)];
    // A loop of ours: what a closure does within `collect` is compiled for any CPU.
    for (place, bits) in words.iter_mut().enumerate() {
        let first = place * WORD_BITS;
        *bits = word(first, (row_count - first).min(WORD_BITS));
    }
    BitBuffer::from_words(words, row_count)
}

/// The word of `holds` for `count` rows from `first` on.
#[inline(always)]
pub(super) fn gather_word(first: usize, count: usize, mut holds: impl FnMut(usize) -> bool) -> u64 {
    (0..count).fold(0, |word, bit| word | u64::from(holds(first + bit)) << bit)
}

/// The bits of `word` for whose rows `holds` is true.
#[inline(always)]
pub(super) fn retain(first: usize, mut word: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    if word == u64::MAX {
        return gather_word(first, WORD_BITS, holds);
    }
    let mut kept = 0;
    while word != 0 {
        let bit = word.trailing_zeros();
        kept |= u64::from(holds(first + bit as usize)) << bit;
        word &= word - 1;
    }
    kept
}

/// Calls `visit` with each selected row, in order.
#[inline(always)]
pub(super) fn for_each_row(row_count: usize, selection: Selection<'_>, mut visit: impl FnMut(usize)) {
    match selection {
        Selection::All => (0..row_count).for_each(visit),
        Selection::Bits(bits) => {
            assert_eq!(bits.len(), row_count, "a bit a row");
            for (index, mut word) in bits.words().enumerate() {
                while word != 0 {
                    visit(index * WORD_BITS + word.trailing_zeros() as usize);
                    word &= word - 1;
                }
            }
        }
        Selection::Rows(rows) => rows.iter().for_each(|row| visit(*row as usize)),
    }
}
