//! Tables of the db-benchmark of H2O.ai, by its recipe: `groupby-datagen.R` with 100 large groups and
//! `join-datagen.R`, both in random order without missing values. Rows are a pure function of their number.

use std::path::Path;
use std::sync::Arc;

use keirin::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::basic::Compression;

use super::random;

const BATCH_ROWS: u64 = 65_536;
/// `K` of the recipe: how many large groups there are, and rows in a small one.
const GROUPS: u64 = 100;

pub(super) type Column = (&'static str, Values);

pub(super) enum Values {
    Numbers(Box<dyn Fn(u64) -> u64>),
    Texts(Box<dyn Fn(u64) -> String>),
    Doubles(Box<dyn Fn(u64) -> f64>),
}

/// The columns of table `name` of the benchmark of `row_count` rows, and how many rows it has.
pub(super) fn columns(name: &str, row_count: u64) -> Option<(Vec<Column>, u64)> {
    Some(match name {
        "h2o_groups" => (groups(row_count), row_count),
        "h2o_left" => (joined(row_count, 3, Side::Left), row_count),
        "h2o_small" => (joined(row_count, 1, Side::Right), row_count / 1_000_000),
        "h2o_medium" => (joined(row_count, 2, Side::Right), row_count / 1_000),
        "h2o_big" => (joined(row_count, 3, Side::Right), row_count),
        _ => return None,
    })
}

pub(super) fn write((columns, row_count): (Vec<Column>, u64), path: &Path) -> Result<(), String> {
    let batch = |start: u64| {
        let rows = start..(start + BATCH_ROWS).min(row_count);
        let arrays = columns.iter().map(|(name, values)| {
            let array: ArrayRef = match values {
                Values::Numbers(of) => {
                    Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| of(row).cast_signed())))
                }
                Values::Texts(of) => Arc::new(StringArray::from_iter_values(rows.clone().map(of))),
                Values::Doubles(of) => Arc::new(Float64Array::from_iter_values(rows.clone().map(of))),
            };
            (*name, array)
        });
        RecordBatch::try_from_iter(arrays).expect("columns of the same length")
    };
    let starts = (0..row_count.max(1)).step_by(usize::try_from(BATCH_ROWS).expect("64 Ki rows"));
    super::write_parquet(path, batch(0).schema(), Compression::SNAPPY, starts.map(batch))
}

fn groups(row_count: u64) -> Vec<Column> {
    let small = (row_count / GROUPS).max(1);
    let one_of = |column: u64, count: u64| move |row: u64| random(row, column) % count + 1;
    let numbers = |column, count| Values::Numbers(Box::new(one_of(column, count)));
    let texts = |column, count, width: usize| {
        let number = one_of(column, count);
        Values::Texts(Box::new(move |row| format!("id{:0width$}", number(row))))
    };
    vec![
        ("id1", texts(0, GROUPS, 3)),
        ("id2", texts(1, GROUPS, 3)),
        ("id3", texts(2, small, 10)),
        ("id4", numbers(3, GROUPS)),
        ("id5", numbers(4, GROUPS)),
        ("id6", numbers(5, small)),
        ("v1", numbers(6, 5)),
        ("v2", numbers(7, 15)),
        ("v3", amounts(8)),
    ]
}

/// Numbers of six digits behind the point, below 100.
#[expect(clippy::cast_precision_loss, reason = "27 bits fit a double")]
fn amounts(column: u64) -> Values {
    Values::Doubles(Box::new(move |row| (random(row, column) % 100_000_000) as f64 / 1e6))
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// A table with keys of the small, the medium and the big table, or only of the first ones. Nine of ten keys of a side
/// are on the other side as well.
fn joined(row_count: u64, key_count: usize, side: Side) -> Vec<Column> {
    let sizes = [row_count / 1_000_000, row_count / 1_000, row_count];
    let own = sizes[key_count - 1];
    let (salt, value) = match side {
        Side::Left => (20, "v1"),
        Side::Right => (30 + 3 * key_count as u64, "v2"),
    };
    let numbers = [("id1", "id4"), ("id2", "id5"), ("id3", "id6")];
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for (place, (id, name)) in numbers.into_iter().enumerate().take(key_count) {
        let key = move || key(sizes[place], own, place as u64, salt + place as u64, side);
        ids.push((id, Values::Numbers(Box::new(key()))));
        let key = key();
        names.push((name, Values::Texts(Box::new(move |row| format!("id{}", key(row))))));
    }
    ids.into_iter().chain(names).chain([(value, amounts(salt + 9))]).collect()
}

/// Keys of a table of `row_count` rows, of which each of the `count` that its side has comes at least once.
fn key(count: u64, row_count: u64, place: u64, salt: u64, side: Side) -> impl Fn(u64) -> u64 {
    let (common, all) = (count * 9 / 10, count + count / 10);
    let (keys, rows) = (Shuffle::new(all, place), Shuffle::new(row_count, salt));
    move |row| {
        let row = rows.place(row);
        let chosen = if row < count { row } else { random(row, salt) % count };
        let chosen = match side {
            Side::Right if chosen >= common => chosen + (count - common),
            _ => chosen,
        };
        keys.place(chosen.min(all - 1)) + 1
    }
}

/// A permutation of the numbers below `len`: a Feistel network of four rounds, walked until it gives one of them.
struct Shuffle {
    len: u64,
    half_bits: u32,
    salt: u64,
}

impl Shuffle {
    fn new(len: u64, salt: u64) -> Self {
        let bits = len.max(2).next_power_of_two().trailing_zeros();
        Self { len, half_bits: bits.div_ceil(2), salt }
    }

    fn place(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut number = number;
        loop {
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in 0..4 {
                (left, right) = (right, left ^ (random(right, 60 + 4 * self.salt + round) & mask));
            }
            number = left << self.half_bits | right;
            if number < self.len {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_shuffle_gives_each_number_once() {
        for len in [1, 2, 10, 11, 1000, 1100] {
            let shuffle = Shuffle::new(len, 3);
            let places: BTreeSet<u64> = (0..len).map(|number| shuffle.place(number)).collect();
            assert_eq!(places, (0..len).collect(), "{len}");
        }
    }

    fn keys(count: u64, row_count: u64, side: Side) -> BTreeSet<u64> {
        let of = key(count, row_count, 1, 7, side);
        (0..row_count).map(of).collect()
    }

    #[test]
    fn nine_of_ten_keys_are_on_both_sides() {
        let (left, right) = (keys(1000, 20_000, Side::Left), keys(1000, 1000, Side::Right));
        assert_eq!((left.len(), right.len()), (1000, 1000));
        assert_eq!(left.intersection(&right).count(), 900);
        assert!(left.union(&right).all(|key| (1..=1100).contains(key)));
    }
}
