//! Means by keys of 8 and 16 bits over the ways in which keys are spread.
//!
//! `clickhouse-unroll4` is the cure that ClickHouse took in 2020: four tables of (sum, count) taken in turn by
//! a loop unrolled four times, merged at the end; `one-table` is what it had before. Both sum in doubles, in
//! the order of rows; ours are exact.

#![allow(clippy::cast_possible_truncation, reason = "checksums")]

use keirin_kernels::group_small::{GroupSums, SmallKey, Value, Variant, suggest};
use keirin_kernels::{Level, Selection};
use keirin_testkit::columns::{Keys, Random};

use crate::duel::{Lane, Report, Unit};

pub(super) fn run(report: &mut Report) {
    let rows = if report.is_quick() { 1 << 16 } else { 1 << 20 };
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
        case(report, &format!("avg-f32-by-u8/{name}"), keys, rows, key, |random| price(random) as f32);
        case(report, &format!("avg-f64-by-u8/{name}"), keys, rows, key, price);
    }
    let short_keys = [
        ("uniform-64k", Keys::Uniform(65_536)),
        ("uniform-1000", Keys::Uniform(1000)),
        ("7-skewed", Keys::Skewed),
        ("runs-64", Keys::Runs(64)),
    ];
    for (name, keys) in short_keys {
        let key = |key: u64| u16::try_from(key).expect("a key of 16 bits");
        case(report, &format!("avg-f32-by-u16/{name}"), keys, rows, key, |random| price(random) as f32);
    }
}

fn case<K: SmallKey, T: Value + Into<f64>>(
    report: &mut Report,
    name: &str,
    keys: Keys,
    rows: usize,
    key: impl Fn(u64) -> K,
    value: impl Fn(&mut Random) -> T,
) {
    if !report.wants(name) {
        return;
    }
    let keys: Vec<K> = keys.rows(rows, 1).into_iter().map(key).collect();
    let mut random = Random::new(2);
    let values: Vec<T> = (0..rows).map(|_| value(&mut random)).collect();
    let (keys, values) = (&keys[..], &values[..]);
    let mut lanes = vec![Lane::new("keirin", || ours(suggest(keys).variant(), keys, values))];
    for variant in Variant::ALL {
        lanes.push(Lane::new(&format!("keirin:{}", variant.name()), || ours(*variant, keys, values)));
    }
    lanes.push(Lane::new("clickhouse-unroll4", || tables::<K, T, 4>(keys, values)));
    lanes.push(Lane::new("one-table", || tables::<K, T, 1>(keys, values)));
    report.case(name, Unit::Rows, rows, lanes);
}

/// The counts and the means in whole numbers and a bit: sums of doubles differ in their last places.
fn checksum(key: usize, count: u64, mean: f64) -> u64 {
    (key as u64 + 1).wrapping_mul(count).wrapping_add((mean * 10.0 + 0.123_456).floor() as u64)
}

fn ours<K: SmallKey, T: Value>(variant: Variant, keys: &[K], values: &[T]) -> u64 {
    let mut sums = GroupSums::new::<K>();
    sums.add(Level::best(), variant, keys, values, None, Selection::All);
    let mut answer = 0_u64;
    sums.for_each(|key, sum| answer = answer.wrapping_add(checksum(key, sum.count, sum.mean())));
    answer
}

#[derive(Clone, Copy, Default)]
struct State {
    sum: f64,
    count: u64,
}

fn tables<K: SmallKey, T: Into<f64> + Copy, const TABLES: usize>(keys: &[K], values: &[T]) -> u64 {
    let mut tables = vec![State::default(); K::COUNT * TABLES];
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
