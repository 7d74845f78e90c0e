//! Filters of stripes: which values a stripe surely does not have.

use std::cmp::Ordering;

use keirin_codecs::Goal;
use keirin_codecs::frame::{self, Kind};
use keirin_kernels::Level;
use keirin_kernels::bloom::{BLOCK_BYTES, BloomFilter, block_may_contain, block_of};

use crate::header::HEADER_BYTES;
use crate::part::align;
use crate::part::footer::Frames;
use crate::part::statistics::Statistics;
use crate::schema::DataType;
use crate::wire::Wire;

/// Bits for each distinct value: about one in forty values that are not there passes. With 10 bits it were one in a
/// hundred, and ClickBench's table would be 0.6 % larger.
const BITS_PER_VALUE: usize = 8;
/// Fewer stripes say nothing of others.
pub(in crate::part) const STRIPES_MIN: usize = 3;
/// Stripes with fewer distinct values have no filter.
const FILTER_VALUES_MIN: u32 = if cfg!(test) { 4 } else { 128 };

/// Whether values of this type can have filters.
pub(in crate::part) fn can_have_filters(data_type: &DataType) -> bool {
    let kind = data_type.values();
    data_type.children().is_empty()
        && data_type.is_ordered()
        && !matches!(kind, None | Some(Kind::Flags | Kind::I8 | Kind::U8 | Kind::F32 | Kind::F64))
}

/// The most bytes of the filter of a block of so many bytes.
pub(in crate::part) fn filter_bytes_max(block_bytes: usize) -> usize {
    /// A filter takes at most one part in so many of the bytes of its block.
    const BLOCK_SHARE: usize = 6;
    if cfg!(test) { usize::MAX } else { block_bytes / BLOCK_SHARE }
}

/// The filter of a block with so many distinct values that have these hashes, if it takes no more than so many bytes.
pub(in crate::part) fn filter_of(
    level: Level,
    hashes: &[u64],
    distinct: u32,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    let bytes = distinct as usize * BITS_PER_VALUE / 8;
    if distinct < FILTER_VALUES_MIN || bytes > bytes_max {
        return None;
    }
    let mut filter = BloomFilter::new(distinct as usize, BITS_PER_VALUE);
    // Rows that are sorted, by this or other columns, have runs of equal values.
    let mut hashes = hashes.to_vec();
    hashes.dedup();
    filter.insert(level, &hashes);
    Some(filter.to_bytes())
}

/// Whether one of these hashes may be that of a value, by the bytes of a filter.
pub(in crate::part) fn filter_may_have(bytes: &[u8], hashes: &[u64]) -> bool {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    hashes.iter().any(|hash| {
        blocks.get(block_of(*hash, blocks.len())).is_none_or(|block| block_may_contain(block, *hash))
    })
}

/// Where the filter of a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::part) struct FilterEntry {
    pub(in crate::part) offset: u64,
    /// 0 if there is none.
    pub(in crate::part) bytes: u32,
    pub(in crate::part) checksum: u64,
}

/// Collects the filters of a column while its part is written.
#[derive(Debug, Default)]
pub(in crate::part) struct FilterWriter {
    /// By stripe.
    pub(in crate::part) entries: Vec<FilterEntry>,
}

impl FilterWriter {
    /// Whether conditions on a column of which so many distinct values were seen can leave out some of these stripes by
    /// filters, but not by bounds.
    pub(in crate::part) fn can_profit(data_type: &DataType, stripes: &[&Statistics], distinct: u64) -> bool {
        /// So many are looked at.
        const STRIPES_MAX: usize = 64;
        /// A value is in one in so many stripes, or fewer.
        const RARENESS_MIN: u64 = 3;
        if stripes.len() < STRIPES_MIN {
            return true;
        }
        // Where stripes are few, not even values that are in one alone are that rare.
        let stripe_count = stripes.len() as u64;
        let rareness = RARENESS_MIN.min(stripe_count - 1);
        let in_stripes: u64 = stripes.iter().map(|stripe| u64::from(stripe.distinct)).sum();
        if distinct < rareness * in_stripes / stripe_count {
            return false;
        }
        let looked_at: Vec<&Statistics> =
            stripes.iter().step_by(stripes.len().div_ceil(STRIPES_MAX)).copied().collect();
        let (mut pairs, mut overlaps) = (0, 0);
        // Bounds of neighbours touch where rows are sorted.
        for (place, stripe) in looked_at.iter().enumerate() {
            for other in looked_at.iter().skip(place + 2) {
                pairs += 1;
                overlaps += usize::from(overlap(data_type, stripe, other));
            }
        }
        4 * overlaps >= pairs
    }

    /// The frames of where the filters are, if there are any.
    pub(in crate::part) fn finish(&self, level: Level) -> keirin_codecs::Result<Option<Vec<u8>>> {
        if self.entries.iter().all(|entry| entry.bytes == 0) {
            return Ok(None);
        }
        let offsets: Vec<u64> = self.entries.iter().map(|entry| entry.offset).collect();
        let bytes: Vec<u32> = self.entries.iter().map(|entry| entry.bytes).collect();
        let checksums: Vec<u64> = self.entries.iter().map(|entry| entry.checksum).collect();
        let mut frames = frame::of_integers(level, Goal::Smallest, &offsets)?;
        frames.extend(frame::of_integers(level, Goal::Smallest, &bytes)?);
        frames.extend(frame::of_integers(level, Goal::Smallest, &checksums)?);
        Ok(Some(frames))
    }
}

/// Whether a value may lie between the bounds of both.
fn overlap(data_type: &DataType, a: &Statistics, b: &Statistics) -> bool {
    let bounds = [&a.min, &a.max, &b.min, &b.max].map(Option::as_deref);
    let [Some(a_min), Some(a_max), Some(b_min), Some(b_max)] = bounds else { return true };
    compare(data_type, a_min, b_max).is_le() && compare(data_type, b_min, a_max).is_le()
}

/// Compares bounds of a type that can have filters.
fn compare(data_type: &DataType, a: &[u8], b: &[u8]) -> Ordering {
    macro_rules! integers {
        ($number:ident) => {{
            let number = |bytes: &[u8]| bytes.try_into().ok().map(<$number>::from_le_bytes);
            number(a).cmp(&number(b))
        }};
    }
    macro_rules! floats {
        ($number:ident) => {
            a.cmp(b)
        };
    }
    match data_type.values() {
        Some(kind) if *data_type != DataType::Uuid => by_number!(kind, integers, floats, a.cmp(b)),
        _ => a.cmp(b),
    }
}

/// Reads where the filters of stripes are; they lie in front of `footer_at`.
pub(super) fn read(
    frames: &mut Frames<'_, '_>,
    stripe_count: usize,
    footer_at: u64,
) -> Wire<Vec<FilterEntry>> {
    frames.row_count = stripe_count;
    let offsets: Vec<u64> = frames.integers()?;
    let bytes: Vec<u32> = frames.integers()?;
    let checksums: Vec<u64> = frames.integers()?;
    let entries = offsets.into_iter().zip(bytes).zip(checksums);
    let entries: Vec<FilterEntry> =
        entries.map(|((offset, bytes), checksum)| FilterEntry { offset, bytes, checksum }).collect();
    let is_wrong = |entry: &&FilterEntry| {
        let end = entry.offset.checked_add(u64::from(entry.bytes));
        let is_inside = entry.offset >= HEADER_BYTES as u64 && end.is_some_and(|end| end <= footer_at);
        let is_whole =
            align(entry.offset) == entry.offset && (entry.bytes as usize).is_multiple_of(BLOCK_BYTES);
        entry.bytes > 0 && !(is_inside && is_whole)
    };
    match entries.iter().find(is_wrong) {
        Some(FilterEntry { offset, bytes, .. }) => {
            frames.malformed(format!("a filter at byte {offset} of {bytes} bytes"))
        }
        None => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(min: i32, max: i32, distinct: u32) -> Statistics {
        let bytes = |value: i32| Some(value.to_le_bytes().to_vec());
        Statistics { rows: 1000, distinct, min: bytes(min), max: bytes(max), ..Statistics::default() }
    }

    #[test]
    fn filters_are_for_columns_that_profit() {
        let check = |stripes: &[Statistics], distinct: u64, expected: bool| {
            let stripes: Vec<&Statistics> = stripes.iter().collect();
            assert_eq!(FilterWriter::can_profit(&DataType::I32, &stripes, distinct), expected);
        };
        let wide: Vec<_> = (0..200).map(|_| stripe(-5, 1 << 30, 500)).collect();
        check(&wide, 100_000, true);
        check(&wide, 1400, false);
        check(&wide[..3], 1500, true);
        check(&wide[..3], 900, false);
        check(&wide[..2], 600, true);
        let sorted: Vec<_> =
            (0..200).map(|place| stripe(100 * place - 5000, 100 * place - 4900, 100)).collect();
        check(&sorted, 20_000, false);
        let can_have =
            [DataType::F64, DataType::Interval, DataType::Text].map(|data_type| can_have_filters(&data_type));
        assert_eq!(can_have, [false, false, true]);
    }

    #[test]
    fn a_filter_has_the_values_of_its_block() {
        let hashes: Vec<u64> = (0..1000_u64).map(keirin_kernels::hash::stored_hash).collect();
        assert!(filter_of(Level::best(), &hashes[..900], 900, 899).is_none());
        let bytes = filter_of(Level::best(), &hashes[..900], 900, 900).unwrap();
        assert!(hashes[..900].iter().all(|hash| filter_may_have(&bytes, &[*hash])));
        assert!(hashes[900..].iter().filter(|hash| filter_may_have(&bytes, &[**hash])).count() < 15);
        assert!(filter_may_have(&bytes, &hashes) && !filter_may_have(&bytes, &[]));
        assert!(filter_may_have(&[], &hashes[..1]), "a filter without blocks says nothing");
    }
}
