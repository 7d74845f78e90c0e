//! Facts about a block of text that are computed in advance and make later work cheaper.

use super::columns::{Offset, Strings, Text};
use crate::Level;

/// Facts about a block, cheap to keep with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether all bytes are below 128, so that characters are bytes.
    pub is_ascii: bool,
    /// Whether some row ends in a space, so that `PAD SPACE` matters.
    pub has_trailing_spaces: bool,
}

kernel! {
    /// The facts of a column; NULL rows count with the bytes that they have.
    pub fn facts[T: Text][T](column: T) -> Facts = facts_plain;
}

#[inline(always)]
fn facts_plain<T: Text>(column: T) -> Facts {
    match column.as_strings() {
        Some(strings) => {
            let (offsets, bytes) = (strings.offsets(), strings.bytes());
            // For an empty row this is the last byte of the row before, which gives the same result.
            let first = offsets[0].index();
            let ends = offsets[1..].iter().map(|end| end.index()).filter(|end| *end > first);
            let space_count: usize = ends.map(|end| usize::from(bytes[end - 1] == b' ')).sum();
            Facts { is_ascii: is_ascii_plain(strings.filled().1), has_trailing_spaces: space_count > 0 }
        }
        None => Facts {
            is_ascii: (0..column.row_count()).all(|row| is_ascii_plain(column.row(row))),
            has_trailing_spaces: (0..column.row_count()).any(|row| column.row(row).last() == Some(&b' ')),
        },
    }
}

kernel! {
    /// Whether all bytes are below 128.
    pub fn is_ascii(bytes: &[u8]) -> bool = is_ascii_plain;
}

#[inline(always)]
fn is_ascii_plain(bytes: &[u8]) -> bool {
    // No exit inside a chunk, so that the loop vectorises; an early exit between chunks, for text that is not
    // ASCII.
    bytes.chunks(1024).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) < 0x80)
}

/// Whether every row is UTF-8: the buffer as a whole is, and no row begins inside a character.
///
/// `simdutf8` validates 10 to 40 times as fast as the standard library; but for ASCII, a scan for high bits
/// alone is twice as fast again.
#[must_use]
pub fn is_utf8<O: Offset>(level: Level, column: Strings<'_, O>) -> bool {
    let (first, bytes) = column.filled();
    if is_ascii(level, bytes) {
        return true;
    }
    let begins_character = |offset: &O| bytes.get(offset.index() - first).is_none_or(|byte| is_begin(*byte));
    simdutf8::basic::from_utf8(bytes).is_ok() && column.offsets().iter().all(begins_character)
}

/// Whether a byte begins a character.
#[inline(always)]
pub(crate) fn is_begin(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

kernel! {
    /// The count of characters in each row: the bytes that begin one.
    pub fn char_lengths[T: Text][T](column: T, facts: Facts) -> Vec<T::Length> = char_lengths_plain;
}

#[inline(always)]
fn char_lengths_plain<T: Text>(column: T, facts: Facts) -> Vec<T::Length> {
    let length =
        |length: usize| T::Length::from_index(length).expect("a row is as long as its offsets can tell");
    (0..column.row_count())
        .map(|row| {
            let text = column.row(row);
            let inner_count = if facts.is_ascii { 0 } else { inner_count(text, column.prefix(row, 0)) };
            length(text.len() - inner_count)
        })
        .collect()
}

/// The count of bytes that continue a character. Most rows are too short for vectors, so words of eight bytes
/// are used.
#[inline(always)]
fn inner_count(text: &[u8], prefix: u64) -> usize {
    let count = |word: u64| (word >> 7 & !(word >> 6) & u64::from_be_bytes([1; 8])).count_ones() as usize;
    let Some(last) = text.last_chunk() else { return count(prefix) };
    let (words, rest) = text.as_chunks();
    // The last word overlaps the one before it; only the remaining bytes count.
    let is_left = !(u64::MAX << (8 * rest.len()));
    words.iter().map(|word| count(u64::from_be_bytes(*word))).sum::<usize>()
        + count(u64::from_be_bytes(*last) & is_left)
}
