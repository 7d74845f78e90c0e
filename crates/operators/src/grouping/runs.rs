//! Rows whose neighbours have the same key.

use keirin_kernels::Level;

use super::table::Table;
use crate::packed::PackedKey;

/// Runs of so many rows on average are worth looking for.
const RUN_ROWS: usize = 2;

/// Buffers to number runs with.
#[derive(Debug, Default)]
pub(super) struct Runs<K> {
    /// The key of each run.
    keys: Vec<K>,
    /// Where each run ends.
    ends: Vec<u32>,
    numbers: Vec<u32>,
}

impl<K: PackedKey> Runs<K> {
    /// As [`Table::number`], with one lookup for each run where runs are long enough.
    pub(super) fn number(&mut self, level: Level, table: &mut Table<K>, keys: &[K], numbers: &mut Vec<u32>) {
        if matches!(table, Table::Small(_)) || RUN_ROWS * run_count(keys) > keys.len() {
            table.number(level, keys, numbers);
            return;
        }
        self.keys.clear();
        self.ends.clear();
        for (row, [key, next]) in (1..).zip(keys.array_windows()) {
            if key != next {
                self.keys.push(*key);
                self.ends.push(row);
            }
        }
        self.keys.extend(keys.last());
        self.ends.push(u32::try_from(keys.len()).expect("a chunk is small"));
        table.number(level, &self.keys, &mut self.numbers);
        numbers.clear();
        for (number, end) in self.numbers.iter().zip(&self.ends) {
            numbers.resize(*end as usize, *number);
        }
    }
}

/// How many runs of equal keys there are.
fn run_count<K: PackedKey>(keys: &[K]) -> usize {
    1 + keys.array_windows().map(|[key, next]| usize::from(key != next)).sum::<usize>()
}
