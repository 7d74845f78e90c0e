//! Tables of joins find the pairs that nested loops find.

#![allow(clippy::cast_possible_truncation, reason = "rows are few")]

use keirin_kernels::hash::{Key, Seed, WideKey};
use keirin_kernels::join_table::{JoinCursor, JoinTable, KeySet};
use keirin_kernels::{BitBuffer, Level};
use keirin_testkit::columns::miri_or;
use keirin_testkit::oracle::group;
use proptest::prelude::*;

fn bits(keys: &[Option<u64>]) -> BitBuffer {
    keys.iter().map(Option::is_some).collect()
}

/// Compares the pairs of a table into which `threads` insert its rows; one of a range if it does say which.
fn check<K: Key>(
    level: Level,
    (build, probe): (&[Option<u64>], &[Option<u64>]),
    key: impl Fn(u64) -> K,
    range: Option<(u64, usize)>,
    (threads, chunk): (usize, usize),
) {
    let keys = |rows: &[Option<u64>]| -> Vec<K> { rows.iter().map(|row| key(row.unwrap_or(3))).collect() };
    let (build_keys, probe_keys) = (keys(build), keys(probe));
    let has_nulls = build.contains(&None);
    let validity = has_nulls.then(|| bits(build));
    let mut table = match range {
        Some((first, range)) => JoinTable::of_range(key(first), range, build_keys, validity),
        None => JoinTable::hashed(Seed::new(0), build_keys, validity),
    };
    let share = build.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for start in (0..build.len()).step_by(share) {
            let (table, rows) = (&table, start..build.len().min(start + share));
            scope.spawn(move || table.note(rows));
        }
    });
    table.make_slots();
    std::thread::scope(|scope| {
        for start in (0..build.len()).step_by(share) {
            let (table, rows) = (&table, start..build.len().min(start + share));
            scope.spawn(move || table.insert(level, rows, threads == 1));
        }
    });
    let has_twins = (0..build.len()).any(|row| build[row].is_some() && build[..row].contains(&build[row]));
    assert_eq!(table.is_unique(), !has_twins, "{level}, {threads} threads");
    check_pairs(level, &table, None, (build, probe), (&probe_keys, threads, chunk), range.is_some());

    table.begin_runs();
    let in_threads = |step: &(dyn Fn(std::ops::Range<usize>) + Sync)| {
        std::thread::scope(|scope| {
            for start in (0..build.len()).step_by(share) {
                let rows = start..build.len().min(start + share);
                scope.spawn(move || step(rows));
            }
        });
    };
    in_threads(&|rows| table.count(level, rows));
    table.make_places();
    in_threads(&|rows| table.place(level, rows));
    let order = table.end_runs();
    check_pairs(level, &table, Some(&order), (build, probe), (&probe_keys, threads, chunk), range.is_some());
}

/// Compares the pairs of a table, whose rows may be in another order.
fn check_pairs<K: Key>(
    level: Level,
    table: &JoinTable<K>,
    order: Option<&[u32]>,
    (build, probe): (&[Option<u64>], &[Option<u64>]),
    (probe_keys, threads, chunk): (&[K], usize, usize),
    is_exact: bool,
) {
    let mut expected = group::join_pairs(build, probe);
    let probe_valid = bits(probe);
    let mut found = vec![0; probe.len()];
    table.find(level, probe_keys, Some(probe_valid.as_bits()), &mut found);
    let (mut pairs, mut cursor) = (Vec::new(), JoinCursor::default());
    let (mut probe_rows, mut build_rows) = (Vec::new(), Vec::new());
    loop {
        let is_more = table.pairs(probe_keys, &found, &mut cursor, chunk, &mut probe_rows, &mut build_rows);
        assert!(probe_rows.len() <= chunk, "a chunk is not exceeded");
        let build_rows = build_rows.drain(..).map(|row| order.map_or(row, |order| order[row as usize]));
        pairs.extend(probe_rows.drain(..).zip(build_rows));
        if !is_more {
            break;
        }
    }
    assert!(pairs.is_sorted_by_key(|(probe_row, _)| *probe_row), "in the order of probe rows");
    if threads > 1 || order.is_some() {
        pairs.sort_unstable();
        expected.sort_unstable();
    }
    assert_eq!(pairs, expected, "{level}, {threads} threads, chunks of {chunk}");
    let set = KeySet::of(level, table);
    let contained = set.may_contain(level, probe_keys);
    for (row, probe) in probe.iter().enumerate() {
        let is_there = probe.is_some() && build.contains(probe);
        let may_be = contained.as_bits().get(row);
        assert!(may_be || !is_there, "no key is missing");
        if is_exact && probe.is_some() {
            assert_eq!(may_be, is_there, "sets of ranges are exact");
        }
    }
}

fn check_all(build: &[Option<u64>], probe: &[Option<u64>]) {
    let keys = || build.iter().flatten().copied();
    let range = keys().min().zip(keys().max()).map(|(least, most)| (least, (most - least) as usize + 1));
    for level in Level::available() {
        for shape in [(1, 1), (1, 7), (1, 10_000), (3, 64), (3, 10_000)] {
            let sides = (build, probe);
            check(*level, sides, |key| key, None, shape);
            check(*level, sides, |key| key as u32, None, shape);
            check(*level, sides, |key| u128::from(key) << 70, None, shape);
            check(*level, sides, |key| WideKey([0, key.into()]), None, shape);
            if let Some(range) = range {
                check(*level, sides, |key| key, Some(range), shape);
                // Signed numbers are around the end of their bits.
                check(*level, sides, |key| (key as u32).wrapping_sub(5), Some(range), shape);
            }
        }
    }
}

#[test]
fn sides_without_rows_have_no_pairs() {
    check_all(&[], &[]);
    check_all(&[], &[Some(1), None]);
    check_all(&[Some(1), None], &[]);
    check_all(&[None], &[None]);
}

#[test]
fn many_rows_of_one_key_are_all_found() {
    let skewed = |rows: u64, keys: u64| -> Vec<Option<u64>> {
        (0..rows)
            .map(|row| if row % 3 == 0 { Some(row % keys) } else { (row % 5 > 0).then_some(7) })
            .collect()
    };
    check_all(&skewed(miri_or(20, 300), 40), &skewed(miri_or(20, 200), 50));
    let unique: Vec<Option<u64>> = (0..miri_or(20, 600)).map(|row| Some(row * 7)).collect();
    let probe: Vec<Option<u64>> = (0..miri_or(50, 1_000)).map(Some).collect();
    check_all(&unique, &probe);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(1, 40)))]
    #[test]
    fn pairs_are_those_of_nested_loops(
        build in prop::collection::vec(prop::option::weighted(0.9, 0_u64..60), 0..miri_or(10, 150)),
        probe in prop::collection::vec(prop::option::weighted(0.9, 0_u64..80), 0..miri_or(10, 150)),
    ) {
        check_all(&build, &probe);
    }
}
