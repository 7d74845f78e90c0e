//! Unpacking in groups of eight with NEON, see [`groups`](super::groups).

#[allow(clippy::wildcard_imports, reason = "the instructions of several widths")]
use std::arch::aarch64::*;
use std::ops::Range;

use super::groups::{GROUP_ROWS, NARROW_BITS, Plan, WIDE_BITS};
use super::{Integer, Packed};
use crate::BitBuffer;
use crate::compare::Test;

#[target_feature(enable = "neon")]
pub(super) fn unpack<T: Integer>(packed: Packed<'_, T>, first: usize, out: &mut [T]) {
    let width = packed.width as usize;
    let reference = packed.reference.less_reference(T::default());
    let to = out.as_mut_ptr();
    // SAFETY: the rows of each vector that is stored are among those of `out`, as `narrow` and `wide` promise.
    let store = |row: usize, values: uint8x16_t| unsafe {
        vst1q_u8(to.add(row).cast(), add::<T>(values, reference));
    };
    let rows = out.len();
    let done = match (size_of::<T>(), width) {
        (_, 0) => 0,
        (1, _) => narrow(packed, first, rows, |row, [[a, b], [c, d]]| {
            let low = vcombine_u16(vmovn_u32(a), vmovn_u32(b));
            let high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
            store(row, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
        }),
        (2, _) => narrow(packed, first, rows, |row, [[a, b]]| {
            store(row, vreinterpretq_u8_u16(vcombine_u16(vmovn_u32(a), vmovn_u32(b))));
        }),
        (4, ..=NARROW_BITS) => narrow(packed, first, rows, |row, [[a, b]]| {
            store(row, vreinterpretq_u8_u32(a));
            store(row + 4, vreinterpretq_u8_u32(b));
        }),
        (4, ..=WIDE_BITS) => wide(packed, first, rows, |row, [a, b, c, d]| {
            store(row, vreinterpretq_u8_u32(vcombine_u32(vmovn_u64(a), vmovn_u64(b))));
            store(row + 4, vreinterpretq_u8_u32(vcombine_u32(vmovn_u64(c), vmovn_u64(d))));
        }),
        (8, ..=WIDE_BITS) => wide(packed, first, rows, |row, quarters| {
            for (quarter, values) in quarters.into_iter().enumerate() {
                store(row + 2 * quarter, vreinterpretq_u8_u64(values));
            }
        }),
        _ => 0,
    };
    super::unpack_plain(packed, first + done, &mut out[done..]);
}

#[target_feature(enable = "neon")]
pub(super) fn filter<T: Integer, Q: Test<T::Bits>>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    test: &Q,
    invert: u64,
) -> BitBuffer {
    let unpack = |packed: Packed<'_, T::Bits>, first: usize, out: &mut [T::Bits]| unpack(packed, first, out);
    super::filter_blocks(packed, rows, test, invert, unpack, crate::bitmaps::pack_flags)
}

#[target_feature(enable = "neon")]
pub(super) fn sum<T: Integer>(packed: Packed<'_, T>, rows: Range<usize>) -> u128 {
    super::sum_blocks(packed, rows, |packed, first, out| unpack(packed, first, out))
}

/// Adds the low bits of `reference` to each value.
#[inline]
#[target_feature(enable = "neon")]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are those of the value")]
fn add<T>(values: uint8x16_t, reference: u64) -> uint8x16_t {
    match size_of::<T>() {
        1 => vaddq_u8(values, vdupq_n_u8(reference as u8)),
        2 => {
            let sums = vaddq_u16(vreinterpretq_u16_u8(values), vdupq_n_u16(reference as u16));
            vreinterpretq_u8_u16(sums)
        }
        4 => {
            let sums = vaddq_u32(vreinterpretq_u32_u8(values), vdupq_n_u32(reference as u32));
            vreinterpretq_u8_u32(sums)
        }
        _ => vreinterpretq_u8_u64(vaddq_u64(vreinterpretq_u64_u8(values), vdupq_n_u64(reference))),
    }
}

/// Calls `visit` with a row and the bits of the values from there on, those of `GROUPS` groups in lanes of 32 bits, for
/// as many of the first `rows` rows from `first` on as have the bytes for it; returns how many that are. The width is at
/// most [`NARROW_BITS`].
#[inline]
#[target_feature(enable = "neon")]
fn narrow<T: Integer, const GROUPS: usize>(
    packed: Packed<'_, T>,
    first: usize,
    rows: usize,
    mut visit: impl FnMut(usize, [[uint32x4_t; 2]; GROUPS]),
) -> usize {
    let width = packed.width as usize;
    let bytes = &packed.bytes[first * width / 8..];
    let plan = Plan::<2>::new(width, first * width % 8);
    // SAFETY: 16 bytes are read.
    let shuffles = plan.bytes.map(|bytes| unsafe { vld1q_u8(bytes.as_ptr()) });
    // Shifts to the right are negative ones to the left.
    // SAFETY: 16 bytes are read.
    let shifts =
        plan.shifts.map(|shifts| unsafe { vld1q_s32(shifts.map(|shift| -i32::from(shift)).as_ptr()) });
    let mask = vdupq_n_u32((1 << width) - 1);
    let steps = plan.steps_inside(bytes, GROUPS * width, (GROUPS - 1) * width, rows / (GROUPS * GROUP_ROWS));
    for step in 0..steps {
        let mut groups = [[mask; 2]; GROUPS];
        for (index, group) in groups.iter_mut().enumerate() {
            for (load, values) in group.iter_mut().enumerate() {
                let start = (step * GROUPS + index) * width + plan.starts[load];
                // SAFETY: the step was counted as one whose loads lie inside.
                let loaded = unsafe { vld1q_u8(bytes.as_ptr().add(start)) };
                let lanes = vreinterpretq_u32_u8(vqtbl1q_u8(loaded, shuffles[load]));
                *values = vandq_u32(vshlq_u32(lanes, shifts[load]), mask);
            }
        }
        visit(step * GROUPS * GROUP_ROWS, groups);
    }
    steps * GROUPS * GROUP_ROWS
}

/// As [`narrow`], of one group in four vectors with lanes of 64 bits; the width is at most [`WIDE_BITS`].
#[inline]
#[target_feature(enable = "neon")]
fn wide<T: Integer>(
    packed: Packed<'_, T>,
    first: usize,
    rows: usize,
    mut visit: impl FnMut(usize, [uint64x2_t; 4]),
) -> usize {
    let width = packed.width as usize;
    let bytes = &packed.bytes[first * width / 8..];
    let plan = Plan::<4>::new(width, first * width % 8);
    // SAFETY: 16 bytes are read.
    let shuffles = plan.bytes.map(|bytes| unsafe { vld1q_u8(bytes.as_ptr()) });
    let shifts = plan.shifts.map(|shifts| {
        let shifts = [-i64::from(shifts[0]), -i64::from(shifts[1])];
        // SAFETY: 16 bytes are read.
        unsafe { vld1q_s64(shifts.as_ptr()) }
    });
    let mask = vdupq_n_u64((1 << width) - 1);
    let steps = plan.steps_inside(bytes, width, 0, rows / GROUP_ROWS);
    for step in 0..steps {
        let mut quarters = [mask; 4];
        for (load, values) in quarters.iter_mut().enumerate() {
            // SAFETY: the step was counted as one whose loads lie inside.
            let loaded = unsafe { vld1q_u8(bytes.as_ptr().add(step * width + plan.starts[load])) };
            let lanes = vreinterpretq_u64_u8(vqtbl1q_u8(loaded, shuffles[load]));
            *values = vandq_u64(vshlq_u64(lanes, shifts[load]), mask);
        }
        visit(step * GROUP_ROWS, quarters);
    }
    steps * GROUP_ROWS
}
