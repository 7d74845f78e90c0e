//! Sets count exactly; sketches within their error, and survive being stored and merged.

#![allow(clippy::cast_possible_truncation, reason = "rows are few, and keys are cut on purpose")]

use std::collections::BTreeSet;

use keirin_kernels::Level;
use keirin_kernels::distinct::{DistinctSet, HyperLogLog, SketchError};
use keirin_kernels::hash::{Key, Seed, hash_keys};
use keirin_testkit::columns::{Keys, Random, lengths, miri_or};

fn check<K: Key + Ord>(level: Level, keys: &[K]) {
    let expected: BTreeSet<K> = keys.iter().copied().collect();
    let mut set = DistinctSet::new(Seed::new(0));
    set.insert(level, &keys[..keys.len() / 3]);
    let mut other = DistinctSet::new(Seed::new(0));
    other.insert(level, &keys[keys.len() / 3..]);
    set.merge(level, &other);
    assert_eq!(set.len(), expected.len(), "{level}");
    let mut got: Vec<K> = set.keys().collect();
    got.sort_unstable();
    assert!(got.into_iter().eq(expected));
}

#[test]
fn sets_count_as_an_ordered_set_does() {
    for level in Level::available() {
        for len in lengths() {
            check(*level, &Keys::Uniform(1 + len as u64).rows(len, 1));
        }
        for keys in [Keys::Single, Keys::Zipf(miri_or(100, 50_000)), Keys::Uniform(100_000)] {
            let keys = keys.rows(miri_or(500, 60_000), 1);
            check(*level, &keys);
            check(*level, &keys.iter().map(|key| *key as u8).collect::<Vec<_>>());
            check(*level, &keys.iter().map(|key| i128::from(*key) << 100).collect::<Vec<_>>());
        }
    }
}

fn sketch_of(seed: u64, keys: std::ops::Range<u64>) -> HyperLogLog {
    let keys: Vec<u64> = keys.collect();
    let mut hashes = vec![0; keys.len()];
    hash_keys(Level::best(), &Seed::new(seed), &keys, None, &mut hashes);
    let mut sketch = HyperLogLog::new();
    sketch.insert(&hashes);
    sketch
}

#[test]
#[cfg_attr(miri, ignore = "statistics")]
fn the_standard_error_is_what_theory_says() {
    const RUNS: u64 = 60;
    assert_eq!(HyperLogLog::new().estimate(), 0.0);
    for count in [10, 1_000, 20_000, 60_000, 200_000] {
        let errors: Vec<f64> =
            (0..RUNS).map(|seed| sketch_of(seed, 0..count).estimate() / count as f64 - 1.0).collect();
        let mean = errors.iter().sum::<f64>() / RUNS as f64;
        let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / RUNS as f64).sqrt();
        // 1.04 / sqrt(2^14) = 0.81 %; a sample of 60 is within a third of that, and small counts are better.
        assert!(deviation < 0.0110, "{count}: standard error {deviation}");
        assert!(mean.abs() < 0.0035, "{count}: biased by {mean}");
    }
}

#[test]
fn merged_sketches_are_the_sketch_of_all() {
    const UNIT: u64 = miri_or(10, 10_000);
    let mut merged = sketch_of(1, 0..3 * UNIT);
    merged.merge(&sketch_of(1, 2 * UNIT..5 * UNIT));
    assert_eq!(merged, sketch_of(1, 0..5 * UNIT));
    let mut again = merged.clone();
    again.merge(&merged);
    assert_eq!(again, merged);
}

#[test]
fn sketches_survive_bytes_and_damage_is_named() {
    let sketch = sketch_of(1, 0..miri_or(50, 5_000));
    let bytes = sketch.to_bytes();
    assert_eq!(HyperLogLog::from_bytes(&bytes), Ok(sketch));
    assert_eq!(HyperLogLog::from_bytes(&bytes[..100]), Err(SketchError::Length(100)));
    assert_eq!(HyperLogLog::from_bytes(b"HL"), Err(SketchError::Length(2)));
    let mut other_version = bytes.clone();
    other_version[2] = 9;
    assert_eq!(HyperLogLog::from_bytes(&other_version), Err(SketchError::Header([b'H', b'L', 9, 14])));
    let mut damaged = bytes;
    damaged[4 + 17] = 52;
    let error = HyperLogLog::from_bytes(&damaged).unwrap_err();
    assert_eq!(error.to_string(), "register 17 of a sketch has 52, above 51");
}

#[test]
fn extreme_hashes_have_their_registers() {
    let mut sketch = HyperLogLog::new();
    sketch.insert(&[0, u64::MAX, 1 << 50]);
    assert!((sketch.estimate() - 3.0).abs() < 0.01);
    // All registers full: no count gives that, and the estimate is infinite, not a panic.
    let mut bytes = sketch.to_bytes();
    bytes[4..].fill(51);
    assert!(HyperLogLog::from_bytes(&bytes).unwrap().estimate() > 1e18);
    let mut random = Random::new(1);
    (0..1000).for_each(|_| sketch.insert(&[random.bits()]));
    assert!(sketch.estimate() > 950.0);
}

#[test]
fn a_folded_sketch_is_that_of_the_same_hashes() {
    for count in [0, 1, 50, miri_or(100, 100_000)] {
        let keys: Vec<u64> = (0..count).collect();
        let mut hashes = vec![0; keys.len()];
        hash_keys(Level::best(), &Seed::new(5), &keys, None, &mut hashes);
        hashes.extend([0, 1, 1 << 49, 1 << 50, 1 << 53]);
        let mut sketch = HyperLogLog::new();
        sketch.insert(&hashes);
        for precision in [4, 11, 14] {
            let mut expected = vec![0_u8; 1 << precision];
            for hash in &hashes {
                let rank = (hash << precision).leading_zeros().min(64 - precision) as u8 + 1;
                let register = &mut expected[(hash >> (64 - precision)) as usize];
                *register = (*register).max(rank);
            }
            assert_eq!(sketch.folded(precision), expected, "{count} keys, {precision} bits");
            let estimate = keirin_kernels::distinct::estimate(&expected);
            if precision >= 11 && count >= 50 {
                assert!((estimate / hashes.len() as f64 - 1.0).abs() < 0.15, "{estimate} of {count} keys");
            }
        }
    }
}
