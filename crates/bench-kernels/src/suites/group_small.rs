//! Means by keys of 8 and 16 bits over the ways in which keys are spread.
//!
//! Four million rows come in blocks of 65,536, as an engine hands them on, into one state: either one block,
//! decoded into the second cache, again and again (`l2`), or a column in memory, which is then the limit for
//! runs (`read-limit` only reads both columns). `keirin` is the loop that is suggested for such keys.
//! `clickhouse-unroll4` is the cure that ClickHouse took in 2020: four tables of (sum, count) taken in turn by
//! a loop unrolled four times, merged at the end; `one-table` is what it had before. Both sum in doubles, in
//! the order of rows; ours are exact.

#![allow(clippy::cast_possible_truncation, reason = "checksums")]

use std::hint::black_box;

use keirin_kernels::bench::{read, vec_in_huge_pages};
use keirin_kernels::compare::Comparable;
use keirin_kernels::group_small::{GroupSums, SmallKey, Value, Variant};
use keirin_kernels::{Level, Selection};
use keirin_testkit::columns::{Keys, Random};

use crate::duel::{Lane, Report, Unit};

/// Rows that an engine hands on.
const BLOCK: usize = 1 << 16;

pub(super) fn run(report: &mut Report) {
    let byte_keys = [
        ("uniform", Keys::Uniform(256)),
        ("uniform-32", Keys::Uniform(32)),
        ("zipf", Keys::Zipf(256)),
        ("7-skewed", Keys::Skewed),
        ("single", Keys::Single),
        ("runs-16k", Keys::Runs(16_384)),
        ("runs-16", Keys::Runs(16)),
    ];
    let price = |random: &mut Random| random.below(100_000) as f64 / 100.0;
    for (name, keys) in byte_keys {
        let key = |key: u64| u8::try_from(key).expect("a key of 8 bits");
        case(report, &format!("avg-f32-by-u8/{name}"), keys, key, |random| price(random) as f32);
        case(report, &format!("avg-f64-by-u8/{name}"), keys, key, price);
    }
    let short_keys = [
        ("uniform-64k", Keys::Uniform(65_536)),
        ("uniform-1000", Keys::Uniform(1000)),
        ("7-skewed", Keys::Skewed),
        ("runs-64", Keys::Runs(64)),
    ];
    for (name, keys) in short_keys {
        let key = |key: u64| u16::try_from(key).expect("a key of 16 bits");
        case(report, &format!("avg-f32-by-u16/{name}"), keys, key, |random| price(random) as f32);
    }
}

/// A column of keys and one of values, read some times.
#[derive(Clone, Copy)]
struct Rows<'a, K, T> {
    keys: &'a [K],
    values: &'a [T],
    times: usize,
}

impl<K, T> Rows<'_, K, T> {
    fn for_each_block(self, mut work: impl FnMut(&[K], &[T])) {
        for _ in 0..self.times {
            for (keys, values) in self.keys.chunks(BLOCK).zip(self.values.chunks(BLOCK)) {
                work(keys, values);
            }
        }
    }
}

fn case<K: SmallKey + Comparable, T: Value + Comparable + Into<f64>>(
    report: &mut Report,
    name: &str,
    keys: Keys,
    key: impl Fn(u64) -> K,
    value: impl Fn(&mut Random) -> T,
) {
    let blocks = if report.is_quick() { 1 } else { 64 };
    for (place, len, times) in [("l2", BLOCK, blocks), ("memory", blocks * BLOCK, 1)] {
        let name = format!("{name}/{place}");
        if !report.wants(&name) {
            continue;
        }
        let mut rows = keys.rows(len, 1).into_iter();
        let keys: Vec<K> = vec_in_huge_pages(len, || key(rows.next().expect("a key for each row")));
        let mut random = Random::new(2);
        let values: Vec<T> = vec_in_huge_pages(len, || value(&mut random));
        let rows = Rows { keys: &keys, values: &values, times };
        let answer = ours(rows, |work| work(Variant::ALL[0]));
        let mut lanes = Vec::new();
        lanes.push(Lane::new("keirin", || ours(rows, |work| work(Variant::suggest(rows.keys)))));
        for variant in Variant::ALL {
            lanes
                .push(Lane::new(&format!("keirin:{}", variant.name()), || ours(rows, |work| work(*variant))));
        }
        lanes.push(Lane::new("clickhouse-unroll4", || tables::<K, T, 4>(rows)));
        lanes.push(Lane::new("one-table", || tables::<K, T, 1>(rows)));
        let level = Level::best();
        lanes.push(Lane::new("read-limit", || {
            rows.for_each_block(|keys, values| {
                black_box((read(level, keys), read(level, values)));
            });
            answer
        }));
        report.case(&name, Unit::Rows, len * times, lanes);
    }
}

/// The counts and the means in whole numbers and a bit: sums of doubles differ in their last places.
fn checksum(key: usize, count: u64, mean: f64) -> u64 {
    (key as u64 + 1).wrapping_mul(count).wrapping_add((mean * 10.0 + 0.123_456).floor() as u64)
}

/// `choose` calls the work of each block with a variant.
fn ours<K: SmallKey, T: Value>(rows: Rows<'_, K, T>, choose: impl Fn(&mut dyn FnMut(Variant))) -> u64 {
    let mut sums = GroupSums::new::<K>();
    rows.for_each_block(|keys, values| {
        choose(&mut |variant| sums.add(Level::best(), variant, keys, values, None, Selection::All));
    });
    let mut answer = 0_u64;
    sums.for_each(|key, sum| {
        answer = answer.wrapping_add(checksum(key, sum.count, sum.value() / sum.count as f64));
    });
    answer
}

#[derive(Clone, Copy, Default)]
struct State {
    sum: f64,
    count: u64,
}

fn tables<K: SmallKey, T: Into<f64> + Copy, const TABLES: usize>(rows: Rows<'_, K, T>) -> u64 {
    let mut tables = vec![State::default(); K::COUNT * TABLES];
    rows.for_each_block(|keys, values| add::<K, T, TABLES>(&mut tables, keys, values));
    let mut answer = 0_u64;
    for key in 0..K::COUNT {
        let states = tables[key..].iter().step_by(K::COUNT);
        let (sum, count) =
            states.fold((0.0, 0), |(sum, count), state| (sum + state.sum, count + state.count));
        if count > 0 {
            answer = answer.wrapping_add(checksum(key, count, sum / count as f64));
        }
    }
    answer
}

fn add<K: SmallKey, T: Into<f64> + Copy, const TABLES: usize>(
    tables: &mut [State],
    keys: &[K],
    values: &[T],
) {
    let (key_chunks, last_keys) = keys.as_chunks::<TABLES>();
    let (value_chunks, last_values) = values.as_chunks::<TABLES>();
    for (keys, values) in key_chunks.iter().zip(value_chunks) {
        for table in 0..TABLES {
            let state = &mut tables[table * K::COUNT..][..K::COUNT][keys[table].index()];
            state.sum += values[table].into();
            state.count += 1;
        }
    }
    for (key, value) in last_keys.iter().zip(last_values) {
        let state = &mut tables[key.index()];
        state.sum += (*value).into();
        state.count += 1;
    }
}
