//! The merge policy: which parts are worth merging.
//!
//! Parts belong to tiers by their rows, each tier eight times the one below. Eight or more neighbours are merged,
//! lowest tiers first, if none of them has more than a quarter of their rows. So each time a row is rewritten, its
//! part grows to at least four times the size: with 10,000 inserts of one row, a row is rewritten 5.2 times and
//! there are never more than 22 parts (with half instead of a quarter: 6.2 times, 16 parts). With a limit of eight
//! parts, seven inserts of one row and one of eight rows would never be merged. Only neighbours of one partition
//! are merged, so that its rows keep their order.

use std::collections::{BTreeMap, HashMap};

use crate::part::STRIPE_ROWS;
use crate::state::{Part, Table, sort_by_rows};

/// The least count of parts in a merge, and the factor between tiers.
const FANOUT: usize = 8;
/// The most parts in a merge: enough for four large parts with some of each tier in between.
const MERGED_MAX: usize = 256;
/// The most parts of a stripe or more in a merge: in a sorted table, a stripe of each is in memory.
const LARGE_MAX: usize = 24;
/// Parts of this many rows or bytes are not merged any more.
const ROWS_MAX: u64 = 1 << 24;
const BYTES_MAX: u64 = 1 << 30;

impl Table {
    /// Parts that [`Transaction::compact`](crate::Transaction::compact) should rewrite now: many small neighbours,
    /// or one part with mostly deleted rows.
    #[must_use]
    pub fn parts_to_compact(&self) -> Option<Vec<u64>> {
        self.parts_to_merge(|_| true, |_| true, u64::MAX)
    }

    /// As [`parts_to_compact`](Self::parts_to_compact), limited to these partitions, parts that are free, and
    /// `rows_max` rows.
    pub(crate) fn parts_to_merge(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        is_free: impl Fn(u64) -> bool,
        rows_max: u64,
    ) -> Option<Vec<u64>> {
        let mut parts: Vec<&Part> = self.parts.values().filter(|part| is_wanted(&part.partition)).collect();
        sort_by_rows(&mut parts);
        let is_possible = |row_count: u64, part: &Part| row_count <= rows_max && is_free(part.number);
        // There may be many partitions with a part each.
        let mut counts: HashMap<&str, usize> = HashMap::new();
        parts.iter().for_each(|part| *counts.entry(&part.partition).or_default() += 1);
        let mut partitions: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
        let are_enough = |part: &&&Part| counts[&*part.partition] >= FANOUT;
        let many = parts.iter().filter(are_enough);
        many.for_each(|part| partitions.entry(&part.partition).or_default().push(part));
        let starts = partitions.values().flat_map(|parts| (0..parts.len()).map(|start| &parts[start..]));
        let mergeable = starts.filter_map(|parts| mergeable_neighbours(parts, is_possible));
        if let Some((_, parts)) = mergeable.min_by_key(|(tier, _)| *tier) {
            return Some(parts.iter().map(|part| part.number).collect());
        }
        let is_mostly_deleted =
            |part: &&&Part| part.live_row_count() * 2 < part.row_count && is_possible(part.row_count, part);
        parts.iter().find(is_mostly_deleted).map(|part| vec![part.number])
    }

    /// Count of parts that are small enough to be merged.
    pub(crate) fn small_part_count(&self) -> usize {
        self.parts.values().filter(|part| is_small(part)).count()
    }
}

fn is_small(part: &Part) -> bool {
    part.live_row_count() < ROWS_MAX && part.file_bytes < BYTES_MAX
}

/// The shortest prefix of the parts that is worth merging: none of them is rewritten for the sake of a few rows.
/// Returns it with the tier of its largest part. All are small, and `is_possible`, which gets the rows so far,
/// accepts each.
fn mergeable_neighbours<'a>(
    parts: &'a [&'a Part],
    is_possible: impl Fn(u64, &Part) -> bool,
) -> Option<(u32, &'a [&'a Part])> {
    let (mut row_count, mut live_rows, mut bytes, mut most_rows, mut large_count) = (0, 0, 0, 0, 0);
    for (place, part) in parts.iter().take(MERGED_MAX).enumerate() {
        row_count += part.row_count;
        live_rows += part.live_row_count();
        bytes += part.file_bytes;
        most_rows = most_rows.max(part.live_row_count());
        large_count += usize::from(part.live_row_count() >= STRIPE_ROWS as u64);
        let is_too_large = live_rows > 2 * ROWS_MAX || bytes > 2 * BYTES_MAX || large_count > LARGE_MAX;
        if is_too_large || !is_small(part) || !is_possible(row_count, part) {
            return None;
        }
        if place + 1 >= FANOUT && live_rows >= 4 * most_rows {
            return Some((tier(most_rows), &parts[..=place]));
        }
    }
    None
}

fn tier(rows: u64) -> u32 {
    rows.max(1).ilog(FANOUT as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::schema::{DataType, Definition};

    fn part(number: u64, row_count: u64) -> Part {
        let (file_bytes, footer_bytes, hash) = (row_count * 8, 0, 0);
        let (order, partition, deletions) = (number, Arc::default(), None);
        Part { number, order, partition, row_count, file_bytes, footer_bytes, hash, deletions }
    }

    fn table(parts: impl IntoIterator<Item = Part>) -> Table {
        let definition = Arc::new(Definition::new("main", "t", vec![("a", DataType::I64)]));
        let parts: BTreeMap<u64, Part> = parts.into_iter().map(|part| (part.number, part)).collect();
        Table { number: 1, definition, parts }
    }

    #[test]
    fn few_parts_are_left_and_rows_are_rewritten_rarely() {
        /// The rows of an insert, by its number.
        type RowCount = fn(u64) -> u64;
        let inserts: [(RowCount, usize); 5] = [
            (|_| 1, 22),
            (|number| if number.is_multiple_of(8) { 8 } else { 1 }, 32),
            (|number| if number.is_multiple_of(4) { 7 } else { 1 }, 32),
            (|number| 1 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61), 32),
            (|number| if number.is_multiple_of(100) { 100_000 } else { 1 }, 64),
        ];
        for (shape, (row_count, parts_max)) in inserts.into_iter().enumerate() {
            let (mut table, mut rewritten) = (table([]), 0);
            for number in 1..=10_000_u64 {
                table.parts.insert(number, part(number, row_count(number)));
                while let Some(numbers) = table.parts_to_compact() {
                    let removed: Vec<Part> =
                        numbers.iter().map(|number| table.parts.remove(number).unwrap()).collect();
                    let rows = removed.iter().map(|part| part.row_count).sum();
                    assert!(table.parts.values().all(|other| {
                        other.order < removed[0].order || other.order > removed[removed.len() - 1].order
                    }));
                    rewritten += rows;
                    table.parts.insert(numbers[0], part(numbers[0], rows));
                }
                let parts = table.parts.len();
                assert!(parts <= parts_max, "shape {shape}: {parts} parts of {number} inserts");
            }
            assert_eq!(table.row_count(), (1..=10_000).map(row_count).sum::<u64>());
            assert!(rewritten < table.row_count() * 6, "shape {shape}: {rewritten} rows were written again");
        }
    }

    #[test]
    fn partitions_stay_apart() {
        let of = |number: u64| Part {
            partition: if number.is_multiple_of(2) { "a" } else { "b" }.into(),
            ..part(number, 1)
        };
        assert_eq!(table((0..14).map(of)).parts_to_compact(), None);
        let odd = (0..8).map(|place| 2 * place + 1).collect();
        assert_eq!(table((1..16).map(of)).parts_to_compact(), Some(odd));
    }

    #[test]
    fn large_parts_stay_and_mostly_deleted_ones_do_not() {
        let large = (1..=20).map(|number| part(number, ROWS_MAX));
        assert_eq!(table(large).parts_to_compact(), None);
        let deletions = crate::state::Deletions { number: 9, row_count: 51, file_bytes: 0, hash: 0 };
        let mostly_deleted = Part { deletions: Some(deletions), ..part(2, 100) };
        assert_eq!(table([part(1, 100), mostly_deleted]).parts_to_compact(), Some(vec![2]));
    }
}
