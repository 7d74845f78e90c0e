//! Dictionaries that fit in two registers.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si64, _mm_loadu_si128, _mm256_loadu_si256, _mm512_cvtepu8_epi16,
    _mm512_cvtepu8_epi32, _mm512_cvtepu8_epi64, _mm512_loadu_si512, _mm512_permutex2var_epi8,
    _mm512_permutex2var_epi16, _mm512_permutex2var_epi32, _mm512_permutex2var_epi64, _mm512_storeu_si512,
};

use super::{BLOCK, Index, check, gather_plain};
use crate::compare::Comparable;

const VECTOR_BYTES: usize = size_of::<__m512i>();

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn gather_avx512<T: Comparable, I: Index>(values: &[T], indices: &[I]) -> Vec<T> {
    if size_of::<I>() != 1 || size_of_val(values) > 2 * VECTOR_BYTES || !matches!(size_of::<T>(), 2 | 4 | 8) {
        return gather_plain(values, indices);
    }
    look_up(values, indices, |at, [low, high]| match size_of::<T>() {
        2 => {
            // SAFETY: as many codes as a vector has values are readable.
            let codes = _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(at.cast::<__m256i>()) });
            _mm512_permutex2var_epi16(low, codes, high)
        }
        4 => {
            // SAFETY: as above.
            let codes = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(at.cast::<__m128i>()) });
            _mm512_permutex2var_epi32(low, codes, high)
        }
        _ => {
            // SAFETY: as above.
            let codes = _mm512_cvtepu8_epi64(unsafe { _mm_loadu_si64(at) });
            _mm512_permutex2var_epi64(low, codes, high)
        }
    })
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn gather_vbmi<T: Comparable, I: Index>(values: &[T], indices: &[I]) -> Vec<T> {
    if size_of::<I>() != 1 || size_of_val(values) > 2 * VECTOR_BYTES || size_of::<T>() != 1 {
        return gather_avx512(values, indices);
    }
    look_up(values, indices, |at, [low, high]| {
        // SAFETY: as many codes as a vector has values are readable.
        let codes = unsafe { _mm512_loadu_si512(at.cast()) };
        _mm512_permutex2var_epi8(low, codes, high)
    })
}

/// Looks up codes of one byte, as many at a time as a vector has values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn look_up<T: Comparable, I: Index>(
    values: &[T],
    indices: &[I],
    permute: impl Fn(*const u8, [__m512i; 2]) -> __m512i,
) -> Vec<T> {
    let lanes = VECTOR_BYTES / size_of::<T>();
    let mut entries = [0_u8; 2 * VECTOR_BYTES];
    assert!(size_of::<I>() == 1 && size_of_val(values) <= entries.len());
    // SAFETY: values have no padding and, as was just seen, fit.
    unsafe {
        std::ptr::copy_nonoverlapping(values.as_ptr().cast(), entries.as_mut_ptr(), size_of_val(values));
    }
    // SAFETY: the two halves of the array.
    let table = unsafe {
        [entries.as_ptr(), entries.as_ptr().add(VECTOR_BYTES)].map(|at| _mm512_loadu_si512(at.cast()))
    };
    let mut out: Vec<T> = Vec::with_capacity(indices.len());
    for block in indices.chunks(BLOCK) {
        check(values.len(), block);
        let whole = block.len() / lanes * lanes;
        for first in (0..whole).step_by(lanes) {
            // SAFETY: `lanes` codes of one byte lie behind `first`.
            let found = permute(unsafe { block.as_ptr().add(first).cast() }, table);
            // SAFETY: there is room for all values, of which a vector more is written.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(out.len()).cast(), found) };
            // SAFETY: these were just written.
            unsafe { out.set_len(out.len() + lanes) };
        }
        out.extend(block[whole..].iter().map(|code| values[(*code).into() as usize]));
    }
    out
}
