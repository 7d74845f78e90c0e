//! Grouping, distinct counting and joining, from an empty table to the scan of the result.
//!
//! The rival is hashbrown with foldhash, as a Rust program would use it. Both sides grow their tables from
//! nothing; a case's answer is a checksum over all groups. Rows lie in memory and are read in batches of
//! 8,192, as an engine would hand them over.

#![allow(clippy::cast_possible_truncation, reason = "rows and groups are few, checksums are cut")]

use std::hash::BuildHasher;
use std::hint::black_box;

use foldhash::fast::RandomState;
use hashbrown::hash_map::{Entry, HashMap};
use hashbrown::{HashSet, HashTable};
use keirin_kernels::compact::compact_into;
use keirin_kernels::distinct::HyperLogLog;
use keirin_kernels::group_table::{DenseTable, GroupTable, StringGroupTable};
use keirin_kernels::hash::{Key, Seed, Strings, hash_keys, hash_strings};
use keirin_kernels::join_table::{JoinCursor, JoinTable};
use keirin_kernels::{BitBuffer, Level};
use keirin_testkit::columns::{Keys, Random, Spread};

use crate::duel::{Lane, Report, Unit};

const BATCH_ROWS: usize = 8192;

pub(super) fn run(report: &mut Report) {
    let row_count = if report.is_quick() { 1 << 17 } else { 1 << 24 };
    let level = Level::best();
    for (name, keys, is_sorted) in [
        ("runs 256", Keys::Runs(64), false),
        ("sorted 1e5", Keys::Uniform(100_000), true),
        ("uniform 1e3", Keys::Uniform(1_000), false),
        ("uniform 1e5", Keys::Uniform(100_000), false),
        ("uniform 1e6", Keys::Uniform(1_000_000), false),
        ("uniform 1e7", Keys::Uniform(10_000_000), false),
        ("zipf 1e3", Keys::Zipf(1_000), false),
        ("zipf 1e6", Keys::Zipf(1_000_000), false),
        ("zipf 1e7", Keys::Zipf(10_000_000), false),
    ] {
        let rows = |row_count: usize| {
            let mut rows = spread(keys, row_count);
            if is_sorted {
                rows.sort_unstable();
            }
            rows
        };
        count_sum(report, level, name, &rows, row_count);
        group_numbers(report, level, name, &rows, row_count);
        distinct(report, level, name, &rows, row_count);
    }
    some_rows(report, level, row_count / 4);
    for key_count in [1_000, 100_000, 1 << 20] {
        dense(report, level, key_count, (row_count / 4).max(key_count as usize));
    }
    for (name, key_count, lengths) in [
        ("1K", 1_000, 2..15),
        ("100K", 100_000, 2..15),
        ("2M", 2_000_000, 6..17),
        ("100K long", 100_000, 20..80),
    ] {
        strings(report, level, name, key_count, lengths, row_count / 4);
    }
    for (name, build_count, probe) in [
        ("1e4", 10_000, Probe::Any),
        ("1e6", 1_000_000, Probe::Any),
        ("1e6, sorted probe", 1_000_000, Probe::Sorted),
        ("1e6, 10 % nulls", 1_000_000, Probe::WithNulls),
        ("1e6 of a range", 1_000_000, Probe::Range),
    ] {
        join(report, level, (name, build_count), probe, row_count / 4);
    }
    hashes(report, level);
}

/// The same checksum from every table: groups in any order.
fn checksum(key: u64, count: u64, sum: i128) -> u64 {
    (key ^ count.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ sum as u64
}

/// Makes so many keys.
type MakeRows<'a> = &'a dyn Fn(usize) -> Vec<u64>;

/// Keys without the order that a generator of small numbers gives them.
fn spread(keys: Keys, row_count: usize) -> Vec<u64> {
    let mut rows = keys.rows(row_count, 1);
    rows.iter_mut().for_each(|key| *key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
    rows
}

fn count_sum(report: &mut Report, level: Level, name: &str, rows: MakeRows<'_>, row_count: usize) {
    let case = format!("count sum u64, {name}");
    if !report.wants(&case) {
        return;
    }
    let keys = rows(row_count);
    let mut random = Random::new(2);
    let values: Vec<i64> = keys.iter().map(|_| random.bits() as i64 >> 20).collect();
    let keirin = || {
        let mut table = GroupTable::new(Seed::new(3));
        let mut groups = [0; BATCH_ROWS];
        let mut states: Vec<(u64, i64)> = Vec::new();
        for (keys, values) in keys.chunks(BATCH_ROWS).zip(values.chunks(BATCH_ROWS)) {
            let groups = &mut groups[..keys.len()];
            table.find_or_insert(level, keys, None, groups);
            states.resize(table.len(), (0, 0));
            for (group, value) in groups.iter().zip(values) {
                let (count, sum) = &mut states[*group as usize];
                *count += 1;
                *sum += value;
            }
        }
        let groups = table.keys().iter().zip(&states);
        groups.fold(0, |answer: u64, (key, (count, sum))| {
            answer.wrapping_add(checksum(*key, *count, i128::from(*sum)))
        })
    };
    let hashbrown = || {
        let mut map: HashMap<u64, (u64, i64), RandomState> = HashMap::default();
        for (key, value) in keys.iter().zip(&values) {
            let (count, sum) = map.entry(*key).or_default();
            *count += 1;
            *sum += value;
        }
        let groups = map.iter();
        groups.fold(0, |answer: u64, (key, (count, sum))| {
            answer.wrapping_add(checksum(*key, *count, i128::from(*sum)))
        })
    };
    let lanes = vec![Lane::new("keirin", keirin), Lane::new("hashbrown+foldhash", hashbrown)];
    report.case(&case, Unit::Rows, row_count, lanes);
}

fn group_numbers(report: &mut Report, level: Level, name: &str, rows: MakeRows<'_>, row_count: usize) {
    let case = format!("group numbers u128, {name}");
    if !report.wants(&case) {
        return;
    }
    let keys: Vec<u128> = rows(row_count / 4).iter().map(|key| u128::from(*key) << 40).collect();
    let keirin = || {
        let mut table = GroupTable::new(Seed::new(3));
        let mut groups = [0; BATCH_ROWS];
        let mut answer = 0_u64;
        for keys in keys.chunks(BATCH_ROWS) {
            let groups = &mut groups[..keys.len()];
            table.find_or_insert(level, keys, None, groups);
            answer = groups.iter().fold(answer, |answer, group| answer.wrapping_add(u64::from(*group)));
        }
        answer
    };
    let hashbrown = || {
        let mut map: HashMap<u128, u32, RandomState> = HashMap::default();
        let mut answer = 0_u64;
        for key in &keys {
            let next = map.len() as u32;
            answer = answer.wrapping_add(u64::from(*map.entry(*key).or_insert(next)));
        }
        answer
    };
    let lanes = vec![Lane::new("keirin", keirin), Lane::new("hashbrown+foldhash", hashbrown)];
    report.case(&case, Unit::Rows, keys.len(), lanes);
}

/// Keys of which some are null, or some are selected: as many groups come out.
fn some_rows(report: &mut Report, level: Level, row_count: usize) {
    for (name, share, is_validity) in
        [("10 % nulls", 0.9, true), ("10 % selected", 0.1, false), ("half selected", 0.5, false)]
    {
        let case = format!("groups of u64, 1e5, {name}");
        if !report.wants(&case) {
            continue;
        }
        let keys = spread(Keys::Uniform(100_000), row_count);
        let flags = Spread::Share(share).rows(row_count, 4);
        let bits: BitBuffer = flags.iter().copied().collect();
        let keirin = || {
            let mut table = GroupTable::new(Seed::new(3));
            let mut groups = [0; BATCH_ROWS];
            let mut kept = Vec::new();
            for (index, keys) in keys.chunks(BATCH_ROWS).enumerate() {
                let bits = bits.as_bits().slice(index * BATCH_ROWS, keys.len());
                if is_validity {
                    table.find_or_insert(level, keys, Some(bits), &mut groups[..keys.len()]);
                } else {
                    kept.clear();
                    compact_into(level, keys, bits, &mut kept);
                    table.find_or_insert(level, &kept, None, &mut groups[..kept.len()]);
                }
            }
            // Nulls are a group, too.
            (table.len() - usize::from(is_validity)) as u64
        };
        let hashbrown = || {
            let mut map: HashMap<u64, u32, RandomState> = HashMap::default();
            let mut nulls = 0_u32;
            for (key, flag) in keys.iter().zip(&flags) {
                if *flag {
                    let next = map.len() as u32;
                    black_box(*map.entry(*key).or_insert(next));
                } else {
                    nulls += 1;
                }
            }
            black_box(nulls);
            map.len() as u64
        };
        let lanes = vec![Lane::new("keirin", keirin), Lane::new("hashbrown+foldhash", hashbrown)];
        report.case(&case, Unit::Rows, row_count, lanes);
    }
}

fn distinct(report: &mut Report, level: Level, name: &str, rows: MakeRows<'_>, row_count: usize) {
    let case = format!("count distinct u64, {name}");
    if !report.wants(&case) {
        return;
    }
    let keys = rows(row_count);
    let hashbrown = || {
        let mut set: HashSet<u64, RandomState> = HashSet::default();
        set.extend(&keys);
        set.len() as u64
    };
    let exact = hashbrown();
    let keirin = || {
        let mut sketch = HyperLogLog::new();
        let mut hashes = [0; BATCH_ROWS];
        for keys in keys.chunks(BATCH_ROWS) {
            let hashes = &mut hashes[..keys.len()];
            hash_keys(level, &Seed::new(3), keys, None, hashes);
            sketch.insert(hashes);
        }
        // Within five standard errors it is as good as the answer.
        if (sketch.estimate() / exact as f64 - 1.0).abs() < 0.05 { exact } else { 0 }
    };
    let lanes = vec![Lane::new("keirin:HyperLogLog", keirin), Lane::new("hashbrown+foldhash", hashbrown)];
    report.case(&case, Unit::Rows, row_count, lanes);
}

fn dense(report: &mut Report, level: Level, key_count: u64, row_count: usize) {
    let case = format!("group numbers u32, dense {key_count}");
    if !report.wants(&case) {
        return;
    }
    let keys: Vec<u32> = Keys::Uniform(key_count).rows(row_count, 1).iter().map(|key| *key as u32).collect();
    let keirin = || {
        let mut table = DenseTable::new(0, key_count - 1, keys.len()).expect("a small range");
        let mut groups = [0; BATCH_ROWS];
        let mut answer = 0_u64;
        for keys in keys.chunks(BATCH_ROWS) {
            let groups = &mut groups[..keys.len()];
            assert!(table.find_or_insert(level, keys, groups), "keys are in the range");
            answer = groups.iter().fold(answer, |answer, group| answer.wrapping_add(u64::from(*group)));
        }
        answer
    };
    let hashed = || {
        let mut table = GroupTable::new(Seed::new(3));
        let mut groups = [0; BATCH_ROWS];
        let mut answer = 0_u64;
        for keys in keys.chunks(BATCH_ROWS) {
            let groups = &mut groups[..keys.len()];
            table.find_or_insert(level, keys, None, groups);
            answer = groups.iter().fold(answer, |answer, group| answer.wrapping_add(u64::from(*group)));
        }
        answer
    };
    let hashbrown = || {
        let mut map: HashMap<u32, u32, RandomState> = HashMap::default();
        let mut answer = 0_u64;
        for key in &keys {
            let next = map.len() as u32;
            answer = answer.wrapping_add(u64::from(*map.entry(*key).or_insert(next)));
        }
        answer
    };
    let lanes = vec![
        Lane::new("keirin", keirin),
        Lane::new("keirin:hashed", hashed),
        Lane::new("hashbrown+foldhash", hashbrown),
    ];
    report.case(&case, Unit::Rows, row_count, lanes);
}

/// Strings of lengths in a range, `key_count` different ones at most.
fn words(key_count: u64, lengths: std::ops::Range<u64>, row_count: usize) -> (Vec<i32>, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut offsets = vec![0];
    for key in Keys::Uniform(key_count).rows(row_count, 5) {
        let mut random = Random::new(key);
        let length = lengths.start + random.below(lengths.end - lengths.start);
        bytes.extend((0..length).map(|_| b'a' + random.below(26) as u8));
        offsets.push(i32::try_from(bytes.len()).expect("less than 2 GiB"));
    }
    (offsets, bytes)
}

fn strings(
    report: &mut Report,
    level: Level,
    name: &str,
    key_count: u64,
    lengths: std::ops::Range<u64>,
    row_count: usize,
) {
    let case = format!("group numbers string, {name}");
    if !report.wants(&case) {
        return;
    }
    let (offsets, bytes) = words(key_count, lengths, row_count);
    let keirin = || {
        let mut table = StringGroupTable::new(Seed::new(3));
        let mut groups = [0; BATCH_ROWS];
        let mut answer = 0_u64;
        for start in (0..row_count).step_by(BATCH_ROWS) {
            let end = row_count.min(start + BATCH_ROWS);
            let groups = &mut groups[..end - start];
            table.find_or_insert(level, Strings::Offsets32(&offsets[start..=end], &bytes), None, groups);
            answer = groups.iter().fold(answer, |answer, group| answer.wrapping_add(u64::from(*group)));
        }
        answer
    };
    let hashbrown = || {
        let state = RandomState::default();
        let mut table: HashTable<(&[u8], u32)> = HashTable::new();
        let mut answer = 0_u64;
        for ends in offsets.windows(2) {
            let key = &bytes[ends[0] as usize..ends[1] as usize];
            let next = table.len() as u32;
            let hash = state.hash_one(key);
            let entry = table.entry(hash, |(other, _)| *other == key, |(other, _)| state.hash_one(other));
            answer = answer.wrapping_add(u64::from(entry.or_insert((key, next)).get().1));
        }
        answer
    };
    let lanes = vec![Lane::new("keirin", keirin), Lane::new("hashbrown+foldhash", hashbrown)];
    report.case(&case, Unit::Rows, row_count, lanes);
}

/// Rows that look for others.
#[derive(Clone, Copy, PartialEq)]
enum Probe {
    Any,
    /// In the order of their keys.
    Sorted,
    /// A tenth of them find nothing, whatever their key.
    WithNulls,
    /// All keys are of a range: each number is its own key.
    Range,
}

/// A build side of different keys; half of the probe rows find one.
fn join(report: &mut Report, level: Level, (name, build_count): (&str, u64), kind: Probe, row_count: usize) {
    let case = format!("join u64, build {name}");
    if !report.wants(&case) {
        return;
    }
    let key = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let is_range = kind == Probe::Range;
    let build: Vec<u64> =
        (0..build_count).map(|number| if is_range { number } else { key(number) }).collect();
    let keys = Keys::Uniform(2 * build_count);
    let mut probe = if is_range { keys.rows(row_count, 1) } else { spread(keys, row_count) };
    if kind == Probe::Sorted {
        probe.sort_unstable();
    }
    let flags = Spread::Share(0.9).rows(row_count, 4);
    let bits: BitBuffer = flags.iter().copied().collect();
    let has_nulls = kind == Probe::WithNulls;
    let keirin = || {
        let mut table = match is_range {
            true => JoinTable::of_range(0, build.len(), build.clone(), None),
            false => JoinTable::hashed(Seed::new(3), build.clone(), None),
        };
        table.note(0..build.len());
        table.make_slots();
        table.insert(level, 0..build.len(), true);
        let mut found = vec![0; BATCH_ROWS];
        let (mut probe_rows, mut build_rows) = (Vec::new(), Vec::new());
        let mut answer = 0_u64;
        for (index, keys) in probe.chunks(BATCH_ROWS).enumerate() {
            let valid = has_nulls.then(|| bits.as_bits().slice(index * BATCH_ROWS, keys.len()));
            let found = &mut found[..keys.len()];
            table.find(level, keys, valid, found);
            let mut cursor = JoinCursor::default();
            while table.pairs(keys, found, &mut cursor, BATCH_ROWS, &mut probe_rows, &mut build_rows) {}
            answer = build_rows.iter().fold(answer, |answer, row| answer.wrapping_add(u64::from(*row)));
            probe_rows.clear();
            build_rows.clear();
        }
        answer
    };
    let hashbrown = || {
        let mut map: HashMap<u64, u32, RandomState> = HashMap::default();
        for (row, key) in build.iter().enumerate() {
            if let Entry::Vacant(entry) = map.entry(*key) {
                entry.insert(row as u32);
            }
        }
        let wanted = probe.iter().zip(&flags).filter(|(_, flag)| !has_nulls || **flag);
        let found = wanted.filter_map(|(key, _)| map.get(key));
        found.fold(0, |answer: u64, row| answer.wrapping_add(u64::from(*row)))
    };
    let lanes = vec![Lane::new("keirin", keirin), Lane::new("hashbrown+foldhash", hashbrown)];
    report.case(&case, Unit::Rows, row_count, lanes);
}

fn hashes(report: &mut Report, level: Level) {
    let row_count = 1 << 14;
    let keys = Keys::Uniform(u64::MAX).rows(row_count, 1);
    hashes_of(report, level, "u64", &keys);
    hashes_of(report, level, "u32", &keys.iter().map(|key| *key as u32).collect::<Vec<_>>());
    hashes_of(report, level, "u128", &keys.iter().map(|key| u128::from(*key) << 40).collect::<Vec<_>>());
    for (name, lengths) in [("2-14", 2..15), ("30-90", 30..91)] {
        let (offsets, bytes) = words(1 << 20, lengths, row_count);
        let mut hashes = vec![0; row_count];
        let (seed, state) = (Seed::new(3), RandomState::default());
        let keirin = || {
            hash_strings(level, &seed, Strings::Offsets32(&offsets, &bytes), None, &mut hashes);
            0
        };
        let mut rival = vec![0; row_count];
        let foldhash = || {
            for (ends, hash) in offsets.windows(2).zip(&mut rival) {
                *hash = state.hash_one(&bytes[ends[0] as usize..ends[1] as usize]);
            }
            0
        };
        let lanes = vec![Lane::new("keirin", keirin), Lane::new("foldhash", foldhash)];
        report.case(&format!("hash strings of {name} bytes"), Unit::Rows, row_count, lanes);
    }
}

fn hashes_of<K: Key + std::hash::Hash>(report: &mut Report, level: Level, name: &str, keys: &[K]) {
    let (seed, state) = (Seed::new(3), RandomState::default());
    let mut hashes = vec![0; keys.len()];
    let keirin = || {
        hash_keys(level, &seed, keys, None, &mut hashes);
        0
    };
    let mut rival = vec![0; keys.len()];
    let foldhash = || {
        for (key, hash) in keys.iter().zip(&mut rival) {
            *hash = state.hash_one(key);
        }
        0
    };
    let lanes = vec![Lane::new("keirin", keirin), Lane::new("foldhash", foldhash)];
    report.case(&format!("hash {name}"), Unit::Rows, keys.len(), lanes);
}
