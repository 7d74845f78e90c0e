//! Sketches count within their error, merged and folded, too.

#![allow(clippy::cast_possible_truncation, reason = "rows are few, and keys are cut on purpose")]

use keirin_kernels::Level;
use keirin_kernels::distinct::HyperLogLog;
use keirin_kernels::hash::{Seed, hash_keys};
use keirin_testkit::columns::{Random, miri_or};

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
fn extreme_hashes_have_their_registers() {
    let mut sketch = HyperLogLog::new();
    sketch.insert(&[0, u64::MAX, 1 << 50]);
    assert!((sketch.estimate() - 3.0).abs() < 0.01);
    // All registers full: no count gives that, and the estimate is infinite, not a panic.
    assert!(keirin_kernels::distinct::estimate(&[51; 1 << 14]) > 1e18);
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
