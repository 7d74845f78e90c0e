//! Sums, extrema and groups by small keys, from the second cache and from memory.
//!
//! Rivals are Arrow's kernels and the loops that ClickHouse is known for: 16 partial sums of 128 bytes, a
//! byte a row for nulls, Kahan's compensation in scalar steps. `read-limit` only adds the words up: no loop
//! over the column can be faster. Columns in memory lie in huge pages where the system gives them.

#![allow(clippy::cast_possible_truncation, reason = "checksums")]

use std::hint::black_box;

use arrow::array::{Decimal128Array, Float32Array, Float64Array, Int64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::compute;
use keirin_kernels::aggregate::{self, ExactSum, Float};
use keirin_kernels::bench::{read, vec_in_huge_pages};
use keirin_kernels::{Bits, Level, Selection};
use keirin_testkit::columns::Random;

use crate::duel::{Lane, Report, Unit};

/// Bytes of a column that stays in the second cache, and of one that does not stay in any.
const CACHED: usize = 512 << 10;
const LARGE: usize = 128 << 20;
const NULLS: f64 = 0.1;

pub(super) fn run(report: &mut Report) {
    let large = if report.is_quick() { 4 << 20 } else { LARGE };
    for (place, bytes) in [("l2", CACHED), ("memory", large)] {
        doubles(report, place, bytes);
        singles(report, place, bytes);
        integers(report, place, bytes);
        decimals(report, place, bytes);
    }
    super::group_small::run(report);
}

/// Whether any case whose name begins so is wanted: data takes longer to make than to sum.
fn wants(report: &Report, cases: &[String]) -> bool {
    cases.iter().any(|case| report.wants(case))
}

/// A price.
fn price(random: &mut Random) -> f64 {
    random.below(1_000_000) as f64 / 100.0
}

fn nulls(rows: usize) -> NullBuffer {
    let mut random = Random::new(2);
    NullBuffer::new(BooleanBuffer::collect_bool(rows, |_| !random.chance(NULLS)))
}

fn bits(nulls: &NullBuffer) -> Bits<'_> {
    Bits::new(nulls.validity(), nulls.offset(), nulls.len())
}

fn exact<T: Float>(level: Level, values: &[T], validity: Option<Bits<'_>>) -> f64 {
    let mut sum = ExactSum::default();
    sum.add(level, values, validity, Selection::All);
    sum.value()
}

/// Sums differ in their last bits between engines; the checksum is the price in whole thousands.
fn about(sum: f64) -> u64 {
    (sum / 1e5).round() as u64
}

fn doubles(report: &mut Report, place: &str, bytes: usize) {
    let [plain, nullable, least] =
        ["sum-f64", "sum-f64-nulls", "min-f64"].map(|case| format!("{case}/{place}"));
    if !wants(report, &[plain.clone(), nullable.clone(), least.clone()]) {
        return;
    }
    let level = Level::best();
    let rows = bytes / 8;
    let mut random = Random::new(1);
    let values = ScalarBuffer::from(vec_in_huge_pages(rows, || price(&mut random)));
    let array = Float64Array::new(values.clone(), None);
    let answer = about(exact(level, &values, None));
    report.case(
        &plain,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || about(exact(level, &values, None))),
            Lane::new("read-limit", || {
                black_box(read(level, &values));
                answer
            }),
            Lane::new("arrow", || about(compute::sum(&array).unwrap_or_default())),
            Lane::new("clickhouse-partials", || about(partial_sums(&values))),
            Lane::new("clickhouse-kahan", || about(kahan(&values))),
        ],
    );
    let nulls = nulls(rows);
    let flags: Vec<u8> = nulls.iter().map(u8::from).collect();
    let nullable_array = Float64Array::new(values.clone(), Some(nulls.clone()));
    report.case(
        &nullable,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || about(exact(level, &values, Some(bits(&nulls))))),
            Lane::new("arrow", || about(compute::sum(&nullable_array).unwrap_or_default())),
            Lane::new("clickhouse-byte-mask", || about(masked_sums(&values, &flags))),
        ],
    );
    report.case(
        &least,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || {
                let extremes = aggregate::extremes(level, &values, None, Selection::All);
                let (least, greatest) = extremes.unwrap_or_default();
                least.to_bits() ^ greatest.to_bits()
            }),
            Lane::new("arrow", || {
                let greatest = compute::max(&array).unwrap_or_default();
                compute::min(&array).unwrap_or_default().to_bits() ^ greatest.to_bits()
            }),
        ],
    );
}

/// 128 bytes of sums.
fn partial_sums(values: &[f64]) -> f64 {
    let mut sums = [0.0; 16];
    let (chunks, tail) = values.as_chunks::<16>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().sum::<f64>() + tail.iter().sum::<f64>()
}

/// The same with a byte a row, zero for nulls.
fn masked_sums(values: &[f64], flags: &[u8]) -> f64 {
    let mut sums = [0.0; 16];
    for (values, flags) in values.as_chunks::<16>().0.iter().zip(flags.as_chunks::<16>().0) {
        for lane in 0..16 {
            sums[lane] += if flags[lane] != 0 { values[lane] } else { 0.0 };
        }
    }
    sums.iter().sum()
}

fn kahan(values: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0, 0.0);
    for value in values {
        let term = value - lost;
        let after = sum + term;
        lost = (after - sum) - term;
        sum = after;
    }
    sum
}

fn singles(report: &mut Report, place: &str, bytes: usize) {
    let case = format!("sum-f32/{place}");
    if !report.wants(&case) {
        return;
    }
    let level = Level::best();
    let mut random = Random::new(3);
    // Small enough that Arrow's sum in f32 has the same thousands.
    let values = ScalarBuffer::from(vec_in_huge_pages(bytes / 4, || random.below(2) as f32));
    let array = Float32Array::new(values.clone(), None);
    let answer = about(exact(level, &values, None));
    report.case(
        &case,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || about(exact(level, &values, None))),
            Lane::new("arrow-in-f32", || {
                black_box(compute::sum(&array));
                answer
            }),
        ],
    );
}

fn integers(report: &mut Report, place: &str, bytes: usize) {
    let [plain, nullable] = ["sum-i64", "sum-i64-nulls"].map(|case| format!("{case}/{place}"));
    if !wants(report, &[plain.clone(), nullable.clone()]) {
        return;
    }
    let level = Level::best();
    let mut random = Random::new(4);
    let values = ScalarBuffer::from(vec_in_huge_pages(bytes / 8, || random.bits() as i64 >> 28));
    let array = Int64Array::new(values.clone(), None);
    report.case(
        &plain,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || aggregate::sum(level, &values, None, Selection::All) as u64),
            Lane::new("arrow-wrapping", || compute::sum(&array).unwrap_or_default() as u64),
            Lane::new("arrow-checked", || {
                compute::sum_checked(&array).ok().flatten().unwrap_or_default() as u64
            }),
            Lane::new("i128", || values.iter().map(|value| i128::from(*value)).sum::<i128>() as u64),
        ],
    );
    let nulls = nulls(values.len());
    let array = Int64Array::new(values.clone(), Some(nulls.clone()));
    report.case(
        &nullable,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || aggregate::sum(level, &values, Some(bits(&nulls)), Selection::All) as u64),
            Lane::new("arrow-wrapping", || compute::sum(&array).unwrap_or_default() as u64),
        ],
    );
}

fn decimals(report: &mut Report, place: &str, bytes: usize) {
    let case = format!("sum-decimal128/{place}");
    if !report.wants(&case) {
        return;
    }
    let level = Level::best();
    let mut random = Random::new(5);
    let values = ScalarBuffer::from(vec_in_huge_pages(bytes / 16, || i128::from(random.bits() as i64)));
    let array = Decimal128Array::new(values.clone(), None);
    report.case(
        &case,
        Unit::Bytes,
        bytes,
        vec![
            Lane::new("keirin", || {
                aggregate::sum_decimals(level, &values, None, Selection::All).value().unwrap_or_default()
                    as u64
            }),
            Lane::new("arrow-wrapping", || compute::sum(&array).unwrap_or_default() as u64),
        ],
    );
}
