//! Sorting as it is defined: rows compared key by key.

use std::cmp::Ordering;

/// A value as a number and bytes that sort as it does; `None` is null.
pub type Cell = Option<(i128, Vec<u8>)>;

/// A column to sort by.
#[derive(Clone, Debug)]
pub struct Key {
    /// A cell for each row.
    pub cells: Vec<Cell>,
    /// Whether the largest value comes first.
    pub is_descending: bool,
    /// Whether nulls come before all values.
    pub nulls_first: bool,
}

fn compare(key: &Key, left: usize, right: usize) -> Ordering {
    match (&key.cells[left], &key.cells[right]) {
        (None, None) => Ordering::Equal,
        (None, _) if key.nulls_first => Ordering::Less,
        (_, None) if key.nulls_first => Ordering::Greater,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(left), Some(right)) if key.is_descending => right.cmp(left),
        (Some(left), Some(right)) => left.cmp(right),
    }
}

/// The rows in the order of the keys; the sort is stable.
#[must_use]
pub fn sort_rows(keys: &[Key], row_count: usize) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..row_count).map(|row| u32::try_from(row).expect("few rows")).collect();
    rows.sort_by(|left, right| {
        let orders = keys.iter().map(|key| compare(key, *left as usize, *right as usize));
        orders.fold(Ordering::Equal, Ordering::then)
    });
    rows
}
