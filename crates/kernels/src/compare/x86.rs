//! Comparison into mask registers: 64 bytes of values become their bits in an instruction or two.

#[allow(clippy::wildcard_imports, reason = "a comparison in four widths, with and without sign")]
use std::arch::x86_64::*;
use std::mem::transmute_copy;

use super::{Comparable, Test, filter_by, filter_by_flags};
use crate::BitBuffer;
use crate::bitmaps::pack_flags_avx2;
use crate::bits::WORD_BITS;

pub(crate) type Vector = __m512i;

/// How vectors of 64 bytes of a type are compared: a bit for each value, the other bits zero.
///
/// # Safety
/// All methods are to be inlined where AVX-512 F, BW, DQ, VL and BMI2 are enabled.
#[allow(clippy::missing_safety_doc, reason = "said once, above")]
pub(crate) trait Lanes: Sized {
    unsafe fn equal_mask(left: Vector, right: Vector) -> u64;
    unsafe fn less_mask(left: Vector, right: Vector) -> u64;
}

macro_rules! lanes {
    ($($T:ty: $view:ident, $equal:expr, $less:expr;)*) => {$(
        impl Lanes for $T {
            #[inline(always)]
            unsafe fn equal_mask(left: Vector, right: Vector) -> u64 {
                // SAFETY: the features are there, as the caller promises.
                u64::from(unsafe { $equal($view(left), $view(right)) })
            }

            #[inline(always)]
            unsafe fn less_mask(left: Vector, right: Vector) -> u64 {
                // SAFETY: the features are there, as the caller promises.
                u64::from(unsafe { $less($view(left), $view(right)) })
            }
        }
    )*};
}

lanes! {
    u8: same, _mm512_cmpeq_epi8_mask, _mm512_cmplt_epu8_mask;
    i8: same, _mm512_cmpeq_epi8_mask, _mm512_cmplt_epi8_mask;
    u16: same, _mm512_cmpeq_epi16_mask, _mm512_cmplt_epu16_mask;
    i16: same, _mm512_cmpeq_epi16_mask, _mm512_cmplt_epi16_mask;
    u32: same, _mm512_cmpeq_epi32_mask, _mm512_cmplt_epu32_mask;
    i32: same, _mm512_cmpeq_epi32_mask, _mm512_cmplt_epi32_mask;
    u64: same, _mm512_cmpeq_epi64_mask, _mm512_cmplt_epu64_mask;
    i64: same, _mm512_cmpeq_epi64_mask, _mm512_cmplt_epi64_mask;
    u128: same, pairs_equal, pairs_less_unsigned;
    i128: same, pairs_equal, pairs_less;
    f32: order_key_f32, _mm512_cmpeq_epi32_mask, _mm512_cmplt_epi32_mask;
    f64: order_key_f64, _mm512_cmpeq_epi64_mask, _mm512_cmplt_epi64_mask;
}

#[inline(always)]
fn same(vector: Vector) -> Vector {
    vector
}

/// Keys of floats that are ordered as integers: where the sign is set the other bits are inverted.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn order_key_f32(vector: Vector) -> Vector {
    let negative = _mm512_srai_epi32::<31>(vector);
    _mm512_xor_si512(vector, _mm512_and_si512(negative, _mm512_set1_epi32(i32::MAX)))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn order_key_f64(vector: Vector) -> Vector {
    let negative = _mm512_srai_epi64::<63>(vector);
    _mm512_xor_si512(vector, _mm512_and_si512(negative, _mm512_set1_epi64(i64::MAX)))
}

/// The high bit of each pair of bits: the result for a 128-bit value is at this bit.
const HIGH: u64 = 0b1010_1010;

/// A pair of lanes is equal if both halves are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn pairs_equal(left: Vector, right: Vector) -> u64 {
    let equal = u64::from(_mm512_cmpeq_epi64_mask(left, right));
    _pext_u64(equal & equal << 1, HIGH)
}

/// A pair of lanes is less if the high half is, or if that is equal and the low half is less.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn pairs_less(left: Vector, right: Vector) -> u64 {
    pairs(left, right, _mm512_cmplt_epi64_mask(left, right), _mm512_cmplt_epu64_mask(left, right))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn pairs_less_unsigned(left: Vector, right: Vector) -> u64 {
    pairs(left, right, _mm512_cmplt_epu64_mask(left, right), _mm512_cmplt_epu64_mask(left, right))
}

/// `high_less` is used at the high halves, and `low` at the low halves of pairs whose high halves are equal.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn pairs(left: Vector, right: Vector, high_less: __mmask8, low: __mmask8) -> u64 {
    let equal = _mm512_cmpeq_epi64_mask(left, right);
    _pext_u64(u64::from(high_less | equal & low << 1), HIGH)
}

/// A vector with `value` in every lane.
///
/// # Safety
/// To be inlined where AVX-512 F and BW are enabled.
#[inline(always)]
pub(crate) unsafe fn repeat<T: Comparable>(value: T) -> Vector {
    // SAFETY: the features are there, as the caller promises; a value of 1, 2, 4, 8 or 16 bytes without
    // padding is copied as an integer of the same size.
    unsafe {
        match size_of::<T>() {
            1 => _mm512_set1_epi8(transmute_copy(&value)),
            2 => _mm512_set1_epi16(transmute_copy(&value)),
            4 => _mm512_set1_epi32(transmute_copy(&value)),
            8 => _mm512_set1_epi64(transmute_copy(&value)),
            _ => _mm512_broadcast_i32x4(transmute_copy(&value)),
        }
    }
}

/// The word for 64 values, from as many vectors as a value has bytes.
#[inline(always)]
fn word<T>(mask: impl Fn(usize) -> u64) -> u64 {
    let lanes = size_of::<Vector>() / size_of::<T>();
    let mut word = 0;
    for part in 0..size_of::<T>() {
        word |= mask(part) << (part * lanes);
    }
    word
}

/// Bytes `64 * part ..` of the values.
///
/// # Safety
/// `part` must be below the size of a value. To be inlined where AVX-512 F is enabled.
#[inline(always)]
unsafe fn load<T>(values: &[T; WORD_BITS], part: usize) -> Vector {
    debug_assert!(part < size_of::<T>());
    // SAFETY: 64 values are as many vectors as a value has bytes.
    let at = unsafe { values.as_ptr().cast::<Vector>().add(part) };
    // SAFETY: the 64 bytes of a part, of which the caller promises that there is one.
    unsafe { _mm512_loadu_si512(at) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn filter_avx512<T: Comparable, Q: Test<T>>(values: &[T], test: &Q, invert: u64) -> BitBuffer {
    let whole = |values: &[T; WORD_BITS]| {
        // SAFETY: `word` asks for the parts there are; the features are those of this function.
        word::<T>(|part| unsafe { test.mask(load(values, part)) })
    };
    filter_by(values, test, whole, invert)
}

/// The plain loop, except that flags become bits by a movemask.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn filter_avx2<T: Comparable, Q: Test<T>>(values: &[T], test: &Q, invert: u64) -> BitBuffer {
    filter_by_flags(values, test, |flags| pack_flags_avx2(flags), invert)
}
