//! Which parts are worth being made one.
//!
//! Parts are in tiers by their rows, each eight times the one below. Eight neighbours are merged, the lowest
//! tiers first, if none has more than a quarter of their rows. So a row gets into a part of at least four times
//! the size each time that it is written again: of 10,000 inserts of a row each, a row is written again 5.7 times
//! and there are never more than 22 parts (half instead of a quarter: 8.4 times, 16 parts). Only neighbours of a
//! partition, so that its rows keep their order.

use std::collections::BTreeMap;

use crate::state::{Part, Table};

/// Parts of a tier that become one of the next.
const FANOUT: usize = 8;
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
        let is_possible = |parts: &[&Part]| {
            let rows = parts.iter().map(|part| part.row_count).sum::<u64>();
            rows <= rows_max && parts.iter().all(|part| is_free(part.number))
        };
        let mut partitions: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
        parts.iter().for_each(|part| partitions.entry(&part.partition).or_default().push(part));
        let windows = partitions.values().flat_map(|parts| parts.windows(FANOUT));
        let windows = windows.filter(|window| is_worth_it(window) && is_possible(window));
        let smallest = windows.min_by_key(|window| {
            let tiers = window.iter().map(|part| tier(part.live_row_count()));
            tiers.max()
        });
        if let Some(window) = smallest {
            return Some(window.iter().map(|part| part.number).collect());
        }
        let is_hollow = |part: &&&Part| part.live_row_count() * 2 < part.row_count && is_possible(&[part]);
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

/// Whether all are small, and no part is written again for the sake of a few rows.
fn is_worth_it(parts: &[&Part]) -> bool {
    let rows: u64 = parts.iter().map(|part| part.live_row_count()).sum();
    let bytes: u64 = parts.iter().map(|part| part.file_bytes).sum();
    let most_rows = parts.iter().map(|part| part.live_row_count()).max().unwrap_or(0);
    parts.iter().all(|part| is_small(part))
        && rows <= 2 * ROWS_MAX
        && bytes <= 2 * BYTES_MAX
        && rows >= 4 * most_rows
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
        let (mut table, mut rewritten) = (table([]), 0);
        for number in 1..=10_000_u64 {
            table.parts.insert(number, part(number, 1));
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
            assert!(table.parts.len() <= 22, "{} parts of {number} rows", table.parts.len());
        }
        assert_eq!(table.row_count(), 10_000);
        assert!(rewritten < 10_000 * 6, "{rewritten} rows were written again");
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
