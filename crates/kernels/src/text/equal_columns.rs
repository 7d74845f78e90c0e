//! Equality of two columns of text.
//!
//! Rows of different length are excluded first; the others are compared in two overlapping words, or in a
//! vector (`equal_x86.rs`), so that short ones need no function call.

use super::columns::Text;
#[cfg(target_arch = "x86_64")]
use super::equal_x86 as x86;
use super::pad::{Pad, trimmed};
use super::rows::{collect_words, gather_word, retain};
use crate::BitBuffer;

kernel! {
    /// Selects the rows that are equal in both columns.
    ///
    /// # Panics
    /// When the columns differ in length.
    pub fn equal_columns[A: Text, B: Text][A, B](left: A, right: B, pad: Pad) -> BitBuffer =
        equal_columns_plain, avx512 = x86::equal_columns;
}

#[inline(always)]
pub(super) fn equal_columns_plain<A: Text, B: Text>(left: A, right: B, pad: Pad) -> BitBuffer {
    assert_eq!(left.row_count(), right.row_count(), "columns of one batch");
    collect_words(left.row_count(), |first, count| {
        if pad == Pad::None {
            // Most rows differ in length: these are excluded without a branch.
            let candidates = gather_word(first, count, |row| left.row_len(row) == right.row_len(row));
            return retain(first, candidates, |row| is_equal(left.row(row), right.row(row)));
        }
        gather_word(first, count, |row| is_equal(trimmed(left.row(row)), trimmed(right.row(row))))
    })
}

/// Equality without a function call for short texts.
#[inline(always)]
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    macro_rules! words {
        ($size:literal, $word:ty) => {
            if let (Some(left_low), Some(right_low), Some(left_high), Some(right_high)) = (
                left.first_chunk::<$size>(),
                right.first_chunk::<$size>(),
                left.last_chunk::<$size>(),
                right.last_chunk::<$size>(),
            ) && left.len() <= 2 * $size
            {
                let low = <$word>::from_le_bytes(*left_low) ^ <$word>::from_le_bytes(*right_low);
                let high = <$word>::from_le_bytes(*left_high) ^ <$word>::from_le_bytes(*right_high);
                return low | high == 0;
            }
        };
    }
    words!(8, u64);
    words!(4, u32);
    words!(16, u128);
    left == right
}
