//! Unpacking in groups of eight with AVX2, see [`groups`](super::groups).
//!
//! Measured in L2 on a Rocket Lake held to this level, 32-bit values of 1 to 31 bits: 43-49 GB/s written, 19-21
//! compared or summed; one value at a time gave 5.3, 1.6 and 6.

#[allow(clippy::wildcard_imports, reason = "the instructions of several widths")]
use std::arch::x86_64::*;
use std::ops::Range;

use super::groups::{GROUP_ROWS, LOAD_BYTES, NARROW_BITS, Plan, WIDE_BITS};
use super::{Integer, Packed};
use crate::BitBuffer;
use crate::bitmaps::pack_flags_avx2;
use crate::compare::Test;

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn unpack<T: Integer>(packed: Packed<'_, T>, first: usize, out: &mut [T]) {
    let width = packed.width as usize;
    let reference = repeat(packed.reference);
    let to = out.as_mut_ptr();
    // SAFETY: the rows of each vector that is stored are among those of `out`, as `narrow` and `wide` promise.
    let store = |row: usize, values: __m256i| unsafe {
        _mm256_storeu_si256(to.add(row).cast(), add::<T>(values, reference));
    };
    let rows = out.len();
    let done = match (size_of::<T>(), width) {
        (_, 0) => 0,
        (1, _) => narrow(packed, first, rows, |row, [a, b, c, d]| {
            let pairs = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
            store(row, _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        }),
        (2, _) => narrow(packed, first, rows, |row, [a, b]| {
            store(row, _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(a, b)));
        }),
        (4, ..=NARROW_BITS) => narrow(packed, first, rows, |row, [values]| store(row, values)),
        (8, ..=NARROW_BITS) => narrow(packed, first, rows, |row, [values]| {
            store(row, _mm256_cvtepu32_epi64(_mm256_castsi256_si128(values)));
            store(row + 4, _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(values)));
        }),
        (4, ..=WIDE_BITS) => wide(packed, first, rows, |row, [a, b]| {
            let low = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            store(row, _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(low)));
        }),
        (8, ..=WIDE_BITS) => wide(packed, first, rows, |row, [a, b]| {
            store(row, a);
            store(row + 4, b);
        }),
        _ => 0,
    };
    super::unpack_plain(packed, first + done, &mut out[done..]);
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn filter<T: Integer, Q: Test<T::Bits>>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    test: &Q,
    invert: u64,
) -> BitBuffer {
    let unpack = |packed: Packed<'_, T::Bits>, first: usize, out: &mut [T::Bits]| unpack(packed, first, out);
    super::filter_blocks(packed, rows, test, invert, unpack, |flags| pack_flags_avx2(flags))
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn sum<T: Integer>(packed: Packed<'_, T>, rows: Range<usize>) -> u128 {
    super::sum_blocks(packed, rows, |packed, first, out| unpack(packed, first, out))
}

/// A vector full of `value`.
#[inline]
#[target_feature(enable = "avx2")]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are those of the value")]
fn repeat<T: Integer>(value: T) -> __m256i {
    let bits = value.less_reference(T::default());
    match size_of::<T>() {
        1 => _mm256_set1_epi8(bits as i8),
        2 => _mm256_set1_epi16(bits as i16),
        4 => _mm256_set1_epi32(bits as i32),
        _ => _mm256_set1_epi64x(bits as i64),
    }
}

/// Adds values one by one.
#[inline]
#[target_feature(enable = "avx2")]
fn add<T>(left: __m256i, right: __m256i) -> __m256i {
    match size_of::<T>() {
        1 => _mm256_add_epi8(left, right),
        2 => _mm256_add_epi16(left, right),
        4 => _mm256_add_epi32(left, right),
        _ => _mm256_add_epi64(left, right),
    }
}

/// The vector of two times 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn both(low: [u8; LOAD_BYTES], high: [u8; LOAD_BYTES]) -> __m256i {
    // SAFETY: 16 bytes are read of each.
    unsafe { _mm256_loadu2_m128i(high.as_ptr().cast(), low.as_ptr().cast()) }
}

/// Calls `visit` with a row and the bits of the values from there on, those of `GROUPS` groups in lanes of 32 bits, for
/// as many of the first `rows` rows from `first` on as have the bytes for it; returns how many that are. The width is at
/// most [`NARROW_BITS`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn narrow<T: Integer, const GROUPS: usize>(
    packed: Packed<'_, T>,
    first: usize,
    rows: usize,
    mut visit: impl FnMut(usize, [__m256i; GROUPS]),
) -> usize {
    let width = packed.width as usize;
    let bytes = &packed.bytes[first * width / 8..];
    let plan = Plan::<2>::new(width, first * width % 8);
    let shuffle = both(plan.bytes[0], plan.bytes[1]);
    let lane = |index: usize| i32::from(plan.shifts[index / 4][index % 4]);
    let shifts = _mm256_setr_epi32(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7));
    let mask = _mm256_set1_epi32((1 << width) - 1);
    let steps = plan.steps_inside(bytes, GROUPS * width, (GROUPS - 1) * width, rows / (GROUPS * GROUP_ROWS));
    for step in 0..steps {
        let mut groups = [_mm256_setzero_si256(); GROUPS];
        for (index, group) in groups.iter_mut().enumerate() {
            // SAFETY: the step was counted as one whose loads lie inside.
            let at = unsafe { bytes.as_ptr().add((step * GROUPS + index) * width) };
            // SAFETY: the loads of a group that was counted lie inside.
            let loaded = unsafe { _mm256_loadu2_m128i(at.add(plan.starts[1]).cast(), at.cast()) };
            let lanes = _mm256_shuffle_epi8(loaded, shuffle);
            *group = _mm256_and_si256(_mm256_srlv_epi32(lanes, shifts), mask);
        }
        visit(step * GROUPS * GROUP_ROWS, groups);
    }
    steps * GROUPS * GROUP_ROWS
}

/// As [`narrow`], of one group in two vectors with lanes of 64 bits; the width is at most [`WIDE_BITS`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn wide<T: Integer>(
    packed: Packed<'_, T>,
    first: usize,
    rows: usize,
    mut visit: impl FnMut(usize, [__m256i; 2]),
) -> usize {
    let width = packed.width as usize;
    let bytes = &packed.bytes[first * width / 8..];
    let plan = Plan::<4>::new(width, first * width % 8);
    let shuffles = [both(plan.bytes[0], plan.bytes[1]), both(plan.bytes[2], plan.bytes[3])];
    let shifts = [0, 2].map(|load| {
        let lane = |load: usize, lane: usize| i64::from(plan.shifts[load][lane]);
        _mm256_setr_epi64x(lane(load, 0), lane(load, 1), lane(load + 1, 0), lane(load + 1, 1))
    });
    let mask = _mm256_set1_epi64x((1 << width) - 1);
    let steps = plan.steps_inside(bytes, width, 0, rows / GROUP_ROWS);
    for step in 0..steps {
        // SAFETY: the step was counted as one whose loads lie inside.
        let at = unsafe { bytes.as_ptr().add(step * width) };
        let mut halves = [_mm256_setzero_si256(); 2];
        for (index, half) in halves.iter_mut().enumerate() {
            let [low, high] = [plan.starts[2 * index], plan.starts[2 * index + 1]];
            // SAFETY: the loads of a step that was counted lie inside.
            let loaded = unsafe { _mm256_loadu2_m128i(at.add(high).cast(), at.add(low).cast()) };
            let lanes = _mm256_shuffle_epi8(loaded, shuffles[index]);
            *half = _mm256_and_si256(_mm256_srlv_epi64(lanes, shifts[index]), mask);
        }
        visit(step * GROUP_ROWS, halves);
    }
    steps * GROUP_ROWS
}
