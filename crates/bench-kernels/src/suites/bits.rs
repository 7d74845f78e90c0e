//! Packed integers: unpacked, filtered and summed, against fastlanes and against values that are not packed.
//!
//! GB/s count the bytes of the values, not of the bits, so that lanes of all widths and `memcpy` compare.
//! fastlanes is made of loops for the compiler to vectorise: build with `RUSTFLAGS="-C target-cpu=native"` to
//! see it at its best (our loops are compiled for all levels anyway).

use std::hint::black_box;

use arrow::array::UInt32Array;
use arrow::compute::kernels::cmp;
use fastlanes::{BitPackingCompare, FoR};
use keirin_kernels::bitpack::{Packed, compare_packed, pack, sum_packed, unpack_into};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{Level, count_ones};
use keirin_testkit::columns::Random;

use super::engines;
use crate::duel::{Lane, Report, Unit};

const BLOCK: usize = 1024;
const REFERENCE: u32 = 1_000_000;

/// Adds the cases.
pub(super) fn run(report: &mut Report) {
    // Values of 256 KiB stay in the second cache together with their bits.
    let small = 64 << 10;
    width::<1, { BLOCK / 32 }>(report, small);
    width::<4, { 4 * BLOCK / 32 }>(report, small);
    width::<8, { 8 * BLOCK / 32 }>(report, small);
    width::<10, { 10 * BLOCK / 32 }>(report, small);
    width::<17, { 17 * BLOCK / 32 }>(report, small);
    width::<25, { 25 * BLOCK / 32 }>(report, small);
    width::<31, { 31 * BLOCK / 32 }>(report, small);
    if !report.is_quick() {
        width::<10, { 10 * BLOCK / 32 }>(report, 64 << 20);
    }
}

/// The cases of `WIDTH` bits, of which a block of fastlanes has `WORDS` words.
fn width<const WIDTH: usize, const WORDS: usize>(report: &mut Report, count: usize) {
    let place = if count > 1 << 20 { "memory" } else { "L2" };
    let [unpack, filter, sum] =
        ["unpack", "filter", "sum"].map(|work| format!("{work} u32 of {WIDTH} bits, {place}"));
    if ![&unpack, &filter, &sum].into_iter().any(|case| report.wants(case)) {
        return;
    }
    let mut random = Random::new(WIDTH as u64);
    let values: Vec<u32> = (0..count)
        .map(|_| REFERENCE + u32::try_from(random.below(1 << WIDTH)).expect("at most 31 bits"))
        .collect();
    let constant = REFERENCE + (1 << (WIDTH - 1));
    let width = u32::try_from(WIDTH).expect("a width");
    let bytes = pack(Level::best(), &values, width, REFERENCE);
    let packed = Packed::new(&bytes, width, count, REFERENCE);
    let mut blocks = vec![[0_u32; WORDS]; count / BLOCK];
    for (block, values) in blocks.iter_mut().zip(values.as_chunks::<BLOCK>().0) {
        u32::for_pack::<WIDTH, WORDS>(values, REFERENCE, block);
    }
    let unit = Unit::Bytes;
    let size = size_of_val(&values[..]);

    let mut out = vec![vec![0_u32; count]; 3 + Level::available().len()];
    let mut outs = out.iter_mut();
    let mut next_out = || outs.next().expect("an output for each lane");
    let mut lanes = Vec::new();
    for (engine, level) in engines() {
        let out = next_out();
        lanes.push(Lane::new(&engine, move || {
            unpack_into(level, packed, 0, out);
            ends(out)
        }));
    }
    let fast = next_out();
    lanes.push(Lane::new("fastlanes", || {
        for (block, out) in blocks.iter().zip(fast.as_chunks_mut::<BLOCK>().0) {
            u32::unfor_pack::<WIDTH, WORDS>(block, REFERENCE, out);
        }
        ends(fast)
    }));
    let copied = next_out();
    lanes.push(Lane::new("memcpy of the values", || {
        copied.copy_from_slice(black_box(&values));
        ends(copied)
    }));
    report.case(&unpack, unit, size, lanes);

    let array = UInt32Array::from(values.clone());
    let scalar = UInt32Array::new_scalar(constant);
    let mut lanes = Vec::new();
    for (engine, level) in engines() {
        lanes.push(Lane::new(&engine, move || {
            let found = compare_packed(level, Comparison::Less, packed, 0..count, constant);
            count_ones(level, found.as_bits()) as u64
        }));
    }
    let mut block_out = [0; BLOCK];
    lanes.push(Lane::new("fastlanes + compare", || {
        let blocks = blocks.iter().map(|block| {
            u32::unfor_pack::<WIDTH, WORDS>(block, REFERENCE, &mut block_out);
            let found = compare_constant(Level::best(), Comparison::Less, &block_out, constant);
            count_ones(Level::best(), found.as_bits()) as u64
        });
        blocks.sum()
    }));
    lanes.push(Lane::new("fastlanes, fused", || {
        let blocks = blocks.iter().map(|block| {
            let mut found = [0; BLOCK / 64];
            let less = |value: u32, constant: u32| value < constant;
            u32::unpack_cmp::<WIDTH, WORDS, u32, _>(block, &mut found, less, constant - REFERENCE);
            found.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()
        });
        blocks.sum()
    }));
    lanes.push(Lane::new("keirin, not packed", || {
        let found = compare_constant(Level::best(), Comparison::Less, &values, constant);
        count_ones(Level::best(), found.as_bits()) as u64
    }));
    lanes.push(Lane::new("arrow, not packed", || {
        cmp::lt(&array, &scalar).expect("arrays of one type").true_count() as u64
    }));
    report.case(&filter, unit, size, lanes);

    let mut lanes = Vec::new();
    for (engine, level) in engines() {
        lanes.push(Lane::new(&engine, move || {
            u64::try_from(sum_packed(level, packed, 0..count)).expect("a small sum")
        }));
    }
    lanes.push(Lane::new("fastlanes + sum", || {
        let blocks = blocks.iter().map(|block| {
            u32::unfor_pack::<WIDTH, WORDS>(block, REFERENCE, &mut block_out);
            block_out.iter().map(|value| u64::from(*value)).sum::<u64>()
        });
        blocks.sum()
    }));
    report.case(&sum, unit, size, lanes);
}

/// Enough of the values to see that they are the right ones, and little enough to cost nothing.
fn ends(values: &[u32]) -> u64 {
    let some = [0, 1, values.len() / 3, values.len() / 2, values.len() - 1];
    some.into_iter().map(|index| u64::from(values[index])).sum()
}
