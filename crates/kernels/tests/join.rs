//! Joins give the pairs that nested loops give, in that order, however small the chunks are.

#![allow(clippy::cast_possible_truncation, reason = "rows are few, and keys are cut on purpose")]

use keirin_kernels::bloom::{BLOCK_BYTES, BloomFilter, block_may_contain, block_of};
use keirin_kernels::group_table::{GroupTable, NO_GROUP};
use keirin_kernels::hash::{Seed, hash_keys};
use keirin_kernels::join::{Cursor, JoinRows, forget_nulls, mark, matched};
use keirin_kernels::{BitBuffer, Level};
use keirin_testkit::columns::{Keys, Random, Spread, miri_or};
use keirin_testkit::oracle::group;
use proptest::prelude::*;

fn column(keys: &[Option<u64>]) -> (Vec<u64>, BitBuffer) {
    (keys.iter().map(|key| key.unwrap_or(3)).collect(), keys.iter().map(Option::is_some).collect())
}

fn check(level: Level, build: &[Option<u64>], probe: &[Option<u64>], chunk: usize) {
    let expected = group::join_pairs(build, probe);
    let ((build_keys, build_valid), (probe_keys, probe_valid)) = (column(build), column(probe));
    let mut table = GroupTable::new(Seed::new(0));
    let mut groups = vec![0; build.len()];
    table.find_or_insert(level, &build_keys, Some(build_valid.as_bits()), &mut groups);
    forget_nulls(build_valid.as_bits(), &mut groups);
    let rows = JoinRows::new(&groups, table.len());

    let mut found = vec![0; probe.len()];
    table.find(level, &probe_keys, Some(probe_valid.as_bits()), &mut found);
    forget_nulls(probe_valid.as_bits(), &mut found);
    let (mut pairs, mut cursor) = (Vec::new(), Cursor::default());
    let (mut probe_rows, mut build_rows) = (Vec::new(), Vec::new());
    loop {
        let is_more = rows.pairs(&found, &mut cursor, chunk, &mut probe_rows, &mut build_rows);
        assert!(probe_rows.len() <= chunk, "a chunk is not exceeded");
        assert!(!is_more || probe_rows.len() == chunk, "a chunk is filled before the next");
        pairs.extend(probe_rows.drain(..).zip(build_rows.drain(..)));
        if !is_more {
            break;
        }
    }
    assert_eq!(pairs, expected, "{level}, chunks of {chunk}");

    let is_matched: BitBuffer =
        (0..probe.len()).map(|row| expected.iter().any(|pair| pair.0 == row as u32)).collect();
    assert_eq!(matched(level, &found), is_matched);
    let mut is_met = vec![false; table.len()];
    mark(&found, &mut is_met);
    for (row, group) in groups.iter().enumerate() {
        let is_outer = *group == NO_GROUP || !is_met[*group as usize];
        assert_eq!(is_outer, !expected.iter().any(|pair| pair.1 == row as u32), "build row {row}");
    }
}

#[test]
fn pairs_are_those_of_nested_loops() {
    for level in Level::available() {
        for (build_keys, probe_keys) in [
            (Keys::Uniform(40), Keys::Uniform(60)),
            (Keys::Single, Keys::Uniform(4)),
            (Keys::Uniform(100_000), Keys::Uniform(100_000)),
        ] {
            for spread in Spread::ALL.into_iter().step_by(miri_or(4, 1)) {
                let with_nulls = |keys: Keys, len, seed| -> Vec<Option<u64>> {
                    let flags = spread.rows(len, seed);
                    keys.rows(len, seed)
                        .into_iter()
                        .zip(flags)
                        .map(|(key, flag)| flag.then_some(key))
                        .collect()
                };
                let (build, probe) =
                    (with_nulls(build_keys, miri_or(15, 90), 1), with_nulls(probe_keys, miri_or(20, 130), 2));
                for chunk in [1, 7, 64, 100_000] {
                    check(*level, &build, &probe, chunk);
                }
            }
        }
    }
    let unique: Vec<Option<u64>> = (0..miri_or(10, 100)).map(|row| Some(row * 7)).collect();
    let probe: Vec<Option<u64>> = (0..miri_or(70, 700)).map(Some).collect();
    for chunk in [1, 9, 1000] {
        check(Level::best(), &unique, &probe, chunk);
    }
    check(Level::best(), &[], &probe, 5);
    check(Level::best(), &unique, &[], 5);
}

/// A limit that no count reaches, for rows that were begun with a small one.
#[test]
fn pairs_without_a_limit_go_on_behind_those_with_one() {
    for build in [[0, 1], [0, 0]] {
        let rows = JoinRows::new(&build, 2);
        let (mut cursor, mut probe_rows, mut build_rows) = (Cursor::default(), Vec::new(), Vec::new());
        let probe = [0, 0, NO_GROUP, 0];
        assert!(rows.pairs(&probe, &mut cursor, 1, &mut probe_rows, &mut build_rows));
        probe_rows.clear();
        build_rows.clear();
        assert!(!rows.pairs(&probe, &mut cursor, usize::MAX, &mut probe_rows, &mut build_rows));
        assert_eq!(probe_rows.last(), Some(&3));
    }
}

#[test]
fn groups_of_another_table_are_refused() {
    for build in [vec![0, 1], vec![0, 0]] {
        let result = std::panic::catch_unwind(|| {
            let rows = JoinRows::new(&build, 2);
            rows.pairs(&[5], &mut Cursor::default(), 10, &mut Vec::new(), &mut Vec::new())
        });
        assert!(result.is_err());
    }
}

#[test]
fn a_bloom_filter_knows_what_it_was_given_and_little_else() {
    for level in Level::available() {
        let mut random = Random::new(1);
        let hashes: Vec<u64> = (0..miri_or(200, 20_000)).map(|_| random.bits()).collect();
        let strangers: Vec<u64> = (0..miri_or(100, 100_000)).map(|_| random.bits()).collect();
        let (most, rest) = hashes.split_at(hashes.len() / 4 * 3);
        for (bits_per_key, passed_max) in [(8, 4_000), (16, 250)] {
            let mut filter = BloomFilter::new(hashes.len(), bits_per_key);
            filter.insert(*level, most);
            let mut other = BloomFilter::new(hashes.len(), bits_per_key);
            other.insert(Level::portable(), rest);
            filter.merge(&other);
            let known = filter.may_contain(*level, &hashes);
            assert!((0..hashes.len()).all(|row| known.as_bits().get(row)), "{level}");
            let bytes = filter.to_bytes();
            let blocks: Vec<&[u8; BLOCK_BYTES]> =
                bytes.chunks_exact(BLOCK_BYTES).map(|block| block.try_into().unwrap()).collect();
            let stored = |hash: u64| block_may_contain(blocks[block_of(hash, blocks.len())], hash);
            assert!(hashes.iter().all(|hash| stored(*hash)), "{level}");
            let passed = filter.may_contain(*level, &strangers);
            for (row, hash) in strangers.iter().enumerate() {
                assert_eq!(stored(*hash), passed.as_bits().get(row), "{level}");
            }
            let passed = (0..strangers.len()).filter(|row| passed.as_bits().get(*row)).count();
            assert!(passed < passed_max, "{level}: {passed} of 100,000 pass {bits_per_key} bits a key");
        }
    }
    let empty = BloomFilter::new(0, 16);
    assert!(!empty.may_contain(Level::best(), &[0, u64::MAX]).as_bits().get(1));
}

#[test]
#[cfg_attr(miri, ignore = "statistics")]
fn hashes_of_patterned_keys_suit_the_filter() {
    let (level, seed) = (Level::best(), Seed::new(0));
    let hashed = |keys: Vec<u64>| {
        let mut hashes = vec![0; keys.len()];
        hash_keys(level, &seed, &keys, None, &mut hashes);
        hashes
    };
    let mut filter = BloomFilter::new(10_000, 16);
    filter.insert(level, &hashed((0..10_000).map(|key| key << 12).collect()));
    let passed = filter.may_contain(level, &hashed((10_000..110_000).map(|key| key << 12).collect()));
    let passed = (0..100_000).filter(|row| passed.as_bits().get(*row)).count();
    assert!(passed < 250, "{passed} of 100,000");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(2, 64)))]

    #[test]
    fn any_rows_are_joined(
        build in prop::collection::vec(prop::option::of(0_u64..8), 0..40),
        probe in prop::collection::vec(prop::option::of(0_u64..10), 0..40),
        chunk in 1_usize..50,
    ) {
        check(Level::best(), &build, &probe, chunk);
    }
}
