//! Which parts are worth being made one.
//!
//! Parts are in tiers by their rows, each eight times the one below. Eight neighbours are merged, or more where it
//! takes more, the lowest tiers first, if none has more than a quarter of their rows. So a row gets into a part of
//! at least four times the size each time that it is written again: of 10,000 inserts of a row each, a row is
//! written again 5.2 times and there are never more than 22 parts (half instead of a quarter: 6.2 times, 16
//! parts). Of eight at most, seven inserts of a row and one of eight rows would stay apart for ever. Only
//! neighbours of a partition, so that its rows keep their order.

use std::collections::BTreeMap;

use crate::part::STRIPE_ROWS;
use crate::state::{Part, Table};

/// Parts of a tier that become one of the next.
const FANOUT: usize = 8;
/// No more are merged at a time: enough for four large parts with some of each tier in between.
const MERGED_MAX: usize = 256;
/// So many of them have a stripe or more: where rows are sorted, a stripe of each is in memory.
const LARGE_MAX: usize = 24;
/// Parts of so many rows or bytes stay as they are.
const ROWS_MAX: u64 = 1 << 24;
const BYTES_MAX: u64 = 1 << 30;

impl Table {
    /// Parts that [`Transaction::compact`](crate::Transaction::compact) should make one now: many small
    /// neighbours, or one of which most rows are deleted.
    #[must_use]
    pub fn parts_to_compact(&self) -> Option<Vec<u64>> {
        self.parts_to_merge(|_| true, u64::MAX)
    }

    /// The same of parts that are free, and no more rows.
    pub(crate) fn parts_to_merge(&self, is_free: impl Fn(u64) -> bool, rows_max: u64) -> Option<Vec<u64>> {
        let parts = self.parts();
        let is_possible = |row_count: u64, part: &Part| row_count <= rows_max && is_free(part.number);
        let mut partitions: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
        parts.iter().for_each(|part| partitions.entry(&part.partition).or_default().push(part));
        let starts = partitions.values().flat_map(|parts| (0..parts.len()).map(|start| &parts[start..]));
        let worthy = starts.filter_map(|parts| worthy_neighbours(parts, is_possible));
        if let Some((_, parts)) = worthy.min_by_key(|(tier, _)| *tier) {
            return Some(parts.iter().map(|part| part.number).collect());
        }
        let is_hollow =
            |part: &&&Part| part.live_row_count() * 2 < part.row_count && is_possible(part.row_count, part);
        parts.iter().find(is_hollow).map(|part| vec![part.number])
    }

    /// Parts that are worth being merged with others.
    pub(crate) fn small_part_count(&self) -> usize {
        self.parts.values().filter(|part| is_small(part)).count()
    }
}

fn is_small(part: &Part) -> bool {
    part.live_row_count() < ROWS_MAX && part.file_bytes < BYTES_MAX
}

/// The fewest parts from the first on of which none is written again for the sake of a few rows, with the tier of
/// the largest. All are small, and `is_possible` of each with the rows up to it.
fn worthy_neighbours<'a>(
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
    fn large_parts_stay_and_hollow_ones_do_not() {
        let large = (1..=20).map(|number| part(number, ROWS_MAX));
        assert_eq!(table(large).parts_to_compact(), None);
        let deletions = crate::state::Deletions { number: 9, row_count: 51, file_bytes: 0, hash: 0 };
        let hollow = Part { deletions: Some(deletions), ..part(2, 100) };
        assert_eq!(table([part(1, 100), hollow]).parts_to_compact(), Some(vec![2]));
    }
}
