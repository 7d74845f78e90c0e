//! The encodings of each type, one file each.

use std::ops::Range;

use keirin_kernels::compare::Comparison;
use keirin_kernels::{BitBuffer, Bits};

use crate::{Error, Result};

pub mod flags;
pub mod floats;
pub mod integers;
pub mod strings;

/// Rows that are decoded together: their values stay in the nearest cache. Deltas restart as often.
pub(crate) const BLOCK: usize = 1024;

/// Blocks of a sample.
const SAMPLE_BLOCKS: usize = 4;

/// Whole blocks from all over a column, or all of it if it is short.
fn sample<T: Copy>(values: &[T]) -> Vec<T> {
    let block_count = values.len() / BLOCK;
    if block_count <= SAMPLE_BLOCKS {
        return values.to_vec();
    }
    let blocks = (0..SAMPLE_BLOCKS).map(|index| index * (block_count - 1) / (SAMPLE_BLOCKS - 1) * BLOCK);
    blocks.flat_map(|start| &values[start..start + BLOCK]).copied().collect()
}

/// About `count` values from all over a column. The distance between them is odd, so that values that come
/// again every so many rows, mostly an even number, are not seen alone.
fn spread<T: Copy>(values: &[T], count: usize) -> Vec<T> {
    values.iter().step_by((values.len() / count) | 1).copied().collect()
}

/// Fails when there are more rows than can be numbered.
pub(crate) fn check_count(count: usize) -> Result<()> {
    match u32::try_from(count) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::BlockTooLarge { what: "rows", count, limit: u32::MAX }),
    }
}

/// Whether so few rows are selected that each is better decoded by itself.
fn is_sparse(selected: usize, count: usize) -> bool {
    selected < count / 16
}

/// Panics unless all rows are below the count.
fn check_rows(rows: &[u32], count: usize) {
    let greatest = rows.iter().max();
    assert!(greatest.is_none_or(|row| (*row as usize) < count), "row {greatest:?} of {count}");
}

/// The bits, but those of `rows` as `patches` has them.
fn patch_bits(bits: BitBuffer, rows: &[u32], patches: Bits<'_>) -> BitBuffer {
    if rows.is_empty() {
        return bits;
    }
    let count = bits.len();
    let mut words = bits.into_words();
    for (place, row) in rows.iter().enumerate() {
        let bit = row % 64;
        let word = &mut words[*row as usize / 64];
        *word = *word & !(1 << bit) | u64::from(patches.get(place)) << bit;
    }
    BitBuffer::from_words(words, count)
}

/// Sets a range of bits.
fn set_bits(words: &mut [u64], bits: Range<usize>) {
    if bits.is_empty() {
        return;
    }
    let (first, last) = (bits.start / 64, (bits.end - 1) / 64);
    let low = !0 << (bits.start % 64);
    let high = !0 >> (63 - (bits.end - 1) % 64);
    if first == last {
        words[first] |= low & high;
    } else {
        words[first] |= low;
        words[first + 1..last].fill(!0);
        words[last] |= high;
    }
}

/// `count` bits of which all are set or none.
fn same_bits(is_set: bool, count: usize) -> BitBuffer {
    BitBuffer::from_words(vec![if is_set { !0 } else { 0 }; count.div_ceil(64)], count)
}

/// Whether `left` compares so with `right`.
fn holds<T: Ord>(comparison: Comparison, left: T, right: T) -> bool {
    match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterEqual => left >= right,
    }
}

/// `1204` as `1,204`.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
