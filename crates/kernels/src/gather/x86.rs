//! Dictionaries that fit in two registers.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si64, _mm_loadu_si128, _mm256_loadu_si256, _mm512_cvtepu8_epi16,
    _mm512_cvtepu8_epi32, _mm512_cvtepu8_epi64, _mm512_cvtepu32_epi64, _mm512_loadu_si512,
    _mm512_permutex2var_epi8, _mm512_permutex2var_epi16, _mm512_permutex2var_epi32,
    _mm512_permutex2var_epi64, _mm512_storeu_si512,
};
use std::mem::MaybeUninit;

use super::{BLOCK, Index, are_below, gather_plain};
use crate::compare::Comparable;

const VECTOR_BYTES: usize = size_of::<__m512i>();

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn gather_avx512<T: Comparable, I: Index>(
    values: &[T],
    indices: &[I],
    out: &mut [MaybeUninit<T>],
) -> bool {
    if size_of_val(values) > 2 * VECTOR_BYTES {
        return gather_plain(values, indices, out);
    }
    match (size_of::<I>(), size_of::<T>()) {
        (1, 2) => look_up(values, indices, out, |at, [low, high]| {
            // SAFETY: as many codes as a vector has values are readable.
            let codes = _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(at.cast::<__m256i>()) });
            _mm512_permutex2var_epi16(low, codes, high)
        }),
        (1, 4) => look_up(values, indices, out, |at, [low, high]| {
            // SAFETY: as many codes as a vector has values are readable.
            let codes = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(at.cast::<__m128i>()) });
            _mm512_permutex2var_epi32(low, codes, high)
        }),
        (1, 8) => look_up(values, indices, out, |at, [low, high]| {
            // SAFETY: as many codes as a vector has values are readable.
            let codes = _mm512_cvtepu8_epi64(unsafe { _mm_loadu_si64(at) });
            _mm512_permutex2var_epi64(low, codes, high)
        }),
        (4, 4) => look_up(values, indices, out, |at, [low, high]| {
            // SAFETY: as many codes as a vector has values are readable.
            let codes = unsafe { _mm512_loadu_si512(at.cast()) };
            _mm512_permutex2var_epi32(low, codes, high)
        }),
        (4, 8) => look_up(values, indices, out, |at, [low, high]| {
            // SAFETY: as many codes as a vector has values are readable.
            let codes = _mm512_cvtepu32_epi64(unsafe { _mm256_loadu_si256(at.cast::<__m256i>()) });
            _mm512_permutex2var_epi64(low, codes, high)
        }),
        _ => gather_plain(values, indices, out),
    }
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn gather_vbmi<T: Comparable, I: Index>(
    values: &[T],
    indices: &[I],
    out: &mut [MaybeUninit<T>],
) -> bool {
    if size_of_val(values) > 2 * VECTOR_BYTES || size_of::<I>() != 1 || size_of::<T>() != 1 {
        return gather_avx512(values, indices, out);
    }
    look_up(values, indices, out, |at, [low, high]| {
        // SAFETY: as many codes as a vector has values are readable.
        let codes = unsafe { _mm512_loadu_si512(at.cast()) };
        _mm512_permutex2var_epi8(low, codes, high)
    })
}

/// Looks up as many codes at a time as a vector has values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn look_up<T: Comparable, I: Index>(
    values: &[T],
    indices: &[I],
    out: &mut [MaybeUninit<T>],
    permute: impl Fn(*const u8, [__m512i; 2]) -> __m512i,
) -> bool {
    let lanes = VECTOR_BYTES / size_of::<T>();
    let mut entries = [0_u8; 2 * VECTOR_BYTES];
    assert!(size_of_val(values) <= entries.len());
    // SAFETY: values have no padding and, as was just seen, fit.
    unsafe {
        std::ptr::copy_nonoverlapping(values.as_ptr().cast(), entries.as_mut_ptr(), size_of_val(values));
    }
    // SAFETY: the two halves of the array.
    let table = unsafe {
        [entries.as_ptr(), entries.as_ptr().add(VECTOR_BYTES)].map(|at| _mm512_loadu_si512(at.cast()))
    };
    for (indices, out) in indices.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        if !are_below(values.len(), indices) {
            return false;
        }
        let (vectors, rest) = out.split_at_mut(indices.len() / lanes * lanes);
        for (indices, out) in indices.chunks_exact(lanes).zip(vectors.chunks_exact_mut(lanes)) {
            let found = permute(indices.as_ptr().cast(), table);
            // SAFETY: `lanes` values are 64 bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), found) };
        }
        for (index, out) in indices.iter().rev().zip(rest.iter_mut().rev()) {
            out.write(values[(*index).into() as usize]);
        }
    }
    true
}
