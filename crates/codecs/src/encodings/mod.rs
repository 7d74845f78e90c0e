//! The encodings of each type, one file each.

use std::ops::Range;

use keirin_kernels::bitmaps::positions;
use keirin_kernels::compact::compact_into;
use keirin_kernels::compare::{Comparable, Comparison};
use keirin_kernels::gather::gather;
use keirin_kernels::{BitBuffer, Bits, Level, Selection};

use crate::{Error, Result};

pub mod flags;
pub mod floats;
pub mod integers;
pub mod strings;

/// Rows that are decoded together, so that their values stay in the first-level cache. Deltas restart as
/// often.
pub(crate) const BLOCK: usize = 1024;

/// The number of blocks in a sample.
const SAMPLE_BLOCKS: usize = 4;

/// Whole blocks spread over a column, or all of it if it is short.
fn sample<T: Copy>(values: &[T]) -> Vec<T> {
    let block_count = values.len() / BLOCK;
    if block_count <= SAMPLE_BLOCKS {
        return values.to_vec();
    }
    let blocks = (0..SAMPLE_BLOCKS).map(|index| index * (block_count - 1) / (SAMPLE_BLOCKS - 1) * BLOCK);
    blocks.flat_map(|start| &values[start..start + BLOCK]).copied().collect()
}

/// About `count` values spread over a column.
fn spread<T: Copy>(values: &[T], count: usize) -> Vec<T> {
    values.iter().step_by(odd_step(values.len(), count)).copied().collect()
}

/// The step that visits about `wanted` of `count` rows. It is odd: with an even one, in columns whose values
/// repeat with a period, mostly an even number, a sample could show only some of the values.
fn odd_step(count: usize, wanted: usize) -> usize {
    (count / wanted) | 1
}

/// Decodes a range in pieces that end at multiples of [`BLOCK`]; `decode` gets the first row of a piece and
/// fills its slice.
fn for_each_block<T: Copy + Default>(
    rows: Range<usize>,
    decode: impl Fn(usize, &mut [T]) -> Result<()>,
    mut visit: impl FnMut(&[T]) -> Result<()>,
) -> Result<()> {
    let mut block = [T::default(); BLOCK];
    let mut first = rows.start;
    while first < rows.end {
        let next = ((first / BLOCK + 1) * BLOCK).min(rows.end);
        let values = &mut block[..next - first];
        decode(first, values)?;
        visit(values)?;
        first = next;
    }
    Ok(())
}

/// What a row costs, in nanoseconds, that is decoded by itself, less what it costs to pick it from all of them.
const TAKE_NS: f64 = 2.0;

/// The selected ones of `count` rows: if they are few by `take`, which appends rows by number, else block by
/// block, or all of them, which takes `decode_ns`.
fn select<T: Comparable + Default>(
    level: Level,
    selection: Selection<'_>,
    count: usize,
    decode_ns: f64,
    take: impl Fn(&[u32], &mut Vec<T>) -> Result<()>,
    decode: impl Fn(usize, &mut [T]) -> Result<()>,
) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match selection {
        Selection::All => {
            values.resize(count, T::default());
            decode(0, &mut values)?;
        }
        Selection::Rows(rows) => {
            check_rows(rows, count);
            if decode_ns < rows.len() as f64 * TAKE_NS {
                let mut all = vec![T::default(); count];
                decode(0, &mut all)?;
                return Ok(gather(level, &all, rows));
            }
            take(rows, &mut values)?;
        }
        Selection::Bits(bits) => {
            assert_eq!(bits.len(), count, "a selection of as many rows");
            if is_sparse(selection.count(level, count), count) {
                take(&positions(level, bits), &mut values)?;
                return Ok(values);
            }
            let mut first = 0;
            for_each_block(0..count, decode, |block| {
                compact_into(level, block, bits.slice(first, block.len()), &mut values);
                first += block.len();
                Ok(())
            })?;
        }
    }
    Ok(values)
}

/// Fails when there are more rows than can be numbered with 32 bits.
pub(crate) fn check_count(count: usize) -> Result<()> {
    match u32::try_from(count) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::BlockTooLarge { what: "rows", count, limit: u32::MAX }),
    }
}

/// Whether so few rows are selected that decoding each by itself is faster.
fn is_sparse(selected: usize, count: usize) -> bool {
    selected < count / 16
}

/// Panics unless all rows are below the count.
fn check_rows(rows: &[u32], count: usize) {
    let greatest = rows.iter().max();
    assert!(greatest.is_none_or(|row| (*row as usize) < count), "row {greatest:?} of {count}");
}

/// The bits, with those of `rows` replaced by `patches`.
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

/// `count` bits, all set or all unset.
fn same_bits(is_set: bool, count: usize) -> BitBuffer {
    BitBuffer::from_words(vec![if is_set { !0 } else { 0 }; count.div_ceil(64)], count)
}

/// Whether the comparison of `left` with `right` holds.
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
