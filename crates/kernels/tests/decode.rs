//! Encoded columns become values at every level as they do one at a time.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::fmt::Debug;

use keirin_kernels::Level;
use keirin_kernels::bitpack::Integer;
use keirin_kernels::compare::Comparable;
use keirin_kernels::decode::{
    Symbols, decimals_to_floats, decode_symbols, expand_runs, join_halves, prefix_sums,
};
use keirin_testkit::columns::Random;
use keirin_testkit::oracle;
use proptest::prelude::*;

mod guard;

/// Lengths around those of groups and vectors.
fn lengths() -> Vec<usize> {
    if cfg!(miri) {
        return vec![0, 1, 17, 65];
    }
    vec![0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200, 511, 513, 1024, 1025]
}

fn check_sums<D: Integer + Debug, T: Integer + Debug + PartialEq>() {
    for len in lengths() {
        let mut random = Random::new(len as u64);
        let differences: Vec<D> = (0..len).map(|_| D::default().plus(random.bits())).collect();
        let start = T::default().plus(random.bits());
        let mut sum = start;
        let expected: Vec<T> = differences
            .iter()
            .map(|difference| {
                sum = sum.plus(difference.less_reference(D::default()));
                sum
            })
            .collect();
        let differences = guard::AtPageEnd::new(&differences);
        for level in Level::available() {
            let mut out = vec![T::default(); len];
            prefix_sums(*level, start, &differences, &mut out);
            assert_eq!(out, expected, "{len} rows at {level}");
        }
    }
}

#[test]
fn sums_of_differences_go_around_the_end_of_the_type() {
    check_sums::<i8, u8>();
    check_sums::<i8, i8>();
    check_sums::<i16, u16>();
    check_sums::<i32, u32>();
    check_sums::<i32, i32>();
    check_sums::<i64, u64>();
    check_sums::<i64, i64>();
}

fn check_runs<T: Comparable + Debug + Default + PartialEq>(value: impl Fn(u64) -> T) {
    for run_max in [1, 3, 20, 150] {
        for len in lengths() {
            let mut random = Random::new(len as u64);
            let mut ends = Vec::new();
            while ends.last().is_none_or(|end| (*end as usize) < len) && len > 0 {
                let end = ends.last().copied().unwrap_or(0) + 1 + random.below(run_max) as u32;
                ends.push(end.min(len as u32));
            }
            let values: Vec<T> = ends.iter().map(|_| value(random.bits())).collect();
            let expected = oracle::decode::runs(&values, &ends);
            for first in [0, 1, 2, len / 2, len - len.min(1), len] {
                let first = first.min(len);
                let last = first + (len - first) * 3 / 4;
                let run = ends.partition_point(|end| *end as usize <= first);
                for level in Level::available() {
                    for rows in [first..len, first..last] {
                        let mut out = vec![T::default(); rows.len()];
                        expand_runs(*level, &values[run..], &ends[run..], first as u32, &mut out);
                        assert_eq!(
                            out,
                            expected[rows.clone()],
                            "{rows:?} of runs up to {run_max} at {level}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn runs_are_their_values_as_often() {
    check_runs(|bits| bits as u8);
    check_runs(|bits| bits as u16);
    check_runs(|bits| bits as i32);
    check_runs(|bits| bits.cast_signed());
    check_runs(|bits| i128::from(bits) << 40);
}

#[test]
fn runs_that_do_not_reach_the_last_row_or_do_not_ascend_panic() {
    for ends in [&[3_u32, 7][..], &[5, 5, 9], &[5, 4, 9], &[]] {
        for level in Level::available() {
            let values = vec![1_u64; ends.len()];
            let found = std::panic::catch_unwind(|| expand_runs(*level, &values, ends, 0, &mut [0; 8]));
            assert!(found.is_err(), "{ends:?} at {level}");
        }
    }
}

#[test]
fn floats_come_from_integers() {
    for len in lengths() {
        let mut random = Random::new(len as u64);
        let wide: Vec<i64> = (0..len).map(|_| random.bits().cast_signed() >> random.below(64)).collect();
        let narrow: Vec<i32> = wide.iter().map(|whole| *whole as i32).collect();
        let uppers: Vec<u16> = wide.iter().map(|whole| *whole as u16).collect();
        let lowers: Vec<u64> = (0..len).map(|_| random.bits()).collect();
        let short: Vec<u32> = lowers.iter().map(|lower| *lower as u32).collect();
        for level in Level::available() {
            let (mut doubles, mut singles) = (vec![0.0_f64; len], vec![0.0_f32; len]);
            for (scale, inverse) in [(1.0, 1.0), (1e3, 1e-5), (1e18, 1e-18)] {
                decimals_to_floats(*level, &wide, scale, inverse, &mut doubles);
                let expected: Vec<f64> = wide.iter().map(|whole| *whole as f64 * scale * inverse).collect();
                assert_eq!(doubles, expected, "{level}");
                decimals_to_floats(*level, &narrow, scale, inverse, &mut singles);
                let expected: Vec<f32> =
                    narrow.iter().map(|whole| (f64::from(*whole) * scale * inverse) as f32).collect();
                assert_eq!(singles, expected, "{level}");
            }
            for width in [48, 55, 63] {
                join_halves(*level, &uppers, &lowers, width, &mut doubles);
                for ((double, upper), lower) in doubles.iter().zip(&uppers).zip(&lowers) {
                    let low = lower % (1 << width);
                    assert_eq!(double.to_bits(), u64::from(*upper) << width | low, "{level}");
                }
            }
            join_halves(*level, &uppers, &short, 17, &mut singles);
            for ((single, upper), lower) in singles.iter().zip(&uppers).zip(&short) {
                let low = lower % (1 << 17);
                assert_eq!(single.to_bits(), u32::from(*upper) << 17 | low, "{level}");
            }
        }
    }
}

/// What codes stand for, at every level, behind what is there.
fn check_symbols(symbols: &[Vec<u8>], codes: &[u8]) {
    let table = Symbols::new(symbols.iter().map(Vec::as_slice));
    let expected = oracle::decode::symbols(symbols, codes);
    let codes = guard::AtPageEnd::new(codes);
    for level in Level::available() {
        let length = expected.as_ref().map_or(3, Vec::len);
        for byte_count in [length, length + 1, length.saturating_sub(1), 0, usize::MAX] {
            let mut out = b"before".to_vec();
            let is_exact = decode_symbols(*level, &table, &codes, byte_count, &mut out);
            let found = expected.as_ref().filter(|text| text.len() == byte_count);
            assert_eq!(is_exact, found.is_some(), "{:?} as {byte_count} bytes at {level}", &codes[..]);
            assert_eq!(out, [&b"before"[..], found.map_or(&[][..], Vec::as_slice)].concat(), "{level}");
        }
    }
}

#[test]
fn symbols_are_decoded_at_every_place() {
    let symbols: Vec<Vec<u8>> =
        (1..=8_u8).map(|length| (0..length).map(|byte| byte * 9 + length).collect()).collect();
    for len in lengths() {
        let mut random = Random::new(len as u64);
        // Without escapes, with few and with many; some codes have no symbol.
        for (below, escapes) in [(8, 0.0), (10, 0.02), (8, 0.5)] {
            let code = |_| if random.chance(escapes) { 255 } else { random.below(below) as u8 };
            let codes: Vec<u8> = (0..len).map(code).collect();
            check_symbols(&symbols, &codes);
        }
    }
}

#[test]
#[should_panic(expected = "symbol 0")]
fn symbols_of_nine_bytes_are_refused() {
    let _ = Symbols::new([&b"nine byte"[..]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    #[test]
    fn any_codes_are_decoded_or_refused(
        symbols in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..9), 0..255),
        codes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        check_symbols(&symbols, &codes);
    }
}
