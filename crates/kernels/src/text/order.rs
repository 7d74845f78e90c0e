//! Order of text: compared with a constant, and between columns.
//!
//! The first bytes decide for most rows, so these need no function call: big-endian prefixes are compared 64
//! at a time, and the whole text is compared only if they are equal.

use std::cmp::Ordering;

use super::columns::{Text, prefix_of};
use super::pad::{Pad, trimmed};
use super::rows::{collect_words, gather_word, retain};
use crate::BitBuffer;
use crate::bits::WORD_BITS;

/// The comparisons that are not equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Inequality {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Inequality {
    /// All comparisons.
    pub const ALL: [Self; 4] = [Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// Whether operands with this ordering satisfy the comparison.
    #[must_use]
    #[inline(always)]
    pub fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

kernel! {
    /// Selects the rows for which the comparison with the constant holds.
    pub fn compare_constant[T: Text][T](column: T, inequality: Inequality, constant: &[u8], pad: Pad) -> BitBuffer =
        compare_constant_plain;
}

#[inline(always)]
fn compare_constant_plain<T: Text>(
    column: T,
    inequality: Inequality,
    constant: &[u8],
    pad: Pad,
) -> BitBuffer {
    let constant = if pad == Pad::None { constant } else { trimmed(constant) };
    let prefix = prefix_of(constant, pad.fill());
    let at_hand = at_hand::<T>(pad);
    let fill = |first: usize, is_whole: bool, left: &mut [u64], right: &mut [u64]| {
        prefixes_padded(&column, first, pad, is_whole, left);
        right.fill(if is_whole { prefix } else { prefix & at_hand });
    };
    let full = |row: usize| pad.compare(column.row(row), constant);
    compare_prefixes(column.row_count(), inequality, at_hand == u64::MAX, fill, full)
}

/// The bits of prefixes that [`prefixes_padded`] writes if they need not be whole.
#[inline(always)]
fn at_hand<T: Text>(pad: Pad) -> u64 {
    if pad == Pad::Trim { u64::MAX } else { T::PREFIX_AT_HAND }
}

#[inline(always)]
fn prefix_padded<T: Text>(column: &T, row: usize, pad: Pad) -> u64 {
    if pad == Pad::Trim { prefix_of(trimmed(column.row(row)), 0) } else { column.prefix(row, pad.fill()) }
}

/// Writes the prefixes of rows from `first` on, whole or only with the bits at hand.
#[inline(always)]
fn prefixes_padded<T: Text>(column: &T, first: usize, pad: Pad, is_whole: bool, prefixes: &mut [u64]) {
    if pad != Pad::Trim && (!is_whole || T::PREFIX_AT_HAND == u64::MAX) {
        return column.prefixes(first, pad.fill(), prefixes);
    }
    for (index, prefix) in prefixes.iter_mut().enumerate() {
        *prefix = prefix_padded(column, first + index, pad);
    }
}

/// If at most this many rows of 64 are equal in the bits at hand, they are compared in full without first
/// comparing whole prefixes.
const FEW_TIES: u32 = 8;

/// Compares the prefixes of each row, and calls `full` only for those that are equal. `fill` writes the
/// prefixes of both sides from a row on, whole or only with the bits at hand.
#[inline(always)]
fn compare_prefixes(
    row_count: usize,
    inequality: Inequality,
    are_at_hand: bool,
    fill: impl Fn(usize, bool, &mut [u64], &mut [u64]),
    full: impl Fn(usize) -> Ordering,
) -> BitBuffer {
    let is_greater = inequality.holds(Ordering::Greater);
    // Arrays of a fixed length, so that comparing them vectorises; behind the last row they may hold
    // anything.
    let (mut left, mut right) = ([0; WORD_BITS], [0; WORD_BITS]);
    collect_words(row_count, |first, count| {
        fill(first, are_at_hand, &mut left[..count], &mut right[..count]);
        let (mut less, mut ties) = less_and_ties(&left, &right, count);
        if !are_at_hand && ties.count_ones() > FEW_TIES {
            fill(first, true, &mut left[..count], &mut right[..count]);
            (less, ties) = less_and_ties(&left, &right, count);
        }
        let decided = if is_greater { !(less | ties) } else { less };
        decided | retain(first, ties, |row| inequality.holds(full(row)))
    })
}

/// The rows in which the left prefix is less, and those of the first `count` in which both are equal.
#[inline(always)]
fn less_and_ties(left: &[u64; WORD_BITS], right: &[u64; WORD_BITS], count: usize) -> (u64, u64) {
    let less = gather_word(0, WORD_BITS, |row| left[row] < right[row]);
    let ties = gather_word(0, WORD_BITS, |row| left[row] == right[row]);
    (less, ties & (u64::MAX >> (WORD_BITS - count)))
}
