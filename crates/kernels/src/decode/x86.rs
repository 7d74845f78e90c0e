//! Differences summed within a vector, and eight symbols compressed into one store.
//!
//! **Differences.** Each value is added to the next one, the sums to those two further on, then four, then
//! eight: after that each value includes all before it in the vector. Carrying the total to the next vector
//! is one addition.
//!
//! **Symbols.** Eight loads fetch the eight words. The masks of the codes, looked up by two `vpermi2b` in a
//! table of four vectors, show which of their 64 bytes are symbols. What remains is a `vpcompressb`, a store,
//! and one addition that gives the position of the next step.

#[allow(clippy::wildcard_imports, reason = "a dozen instructions")]
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::differences::sums_plain;
use super::symbols::{STEP, Symbols, decode_by};
use crate::bitpack::Integer;

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn sums_avx512<D: Integer, T: Integer>(start: T, differences: &[D], out: &mut [T]) {
    let zero = _mm512_setzero_si512();
    let bits = start.less_reference(T::default());
    #[allow(clippy::cast_possible_truncation, reason = "bits are cut to the size of the type")]
    match (size_of::<D>(), size_of::<T>()) {
        (4, 4) => sums_of_vectors::<D, T, 16>(
            start,
            differences,
            out,
            _mm512_set1_epi32(bits as i32),
            |carry, vector| {
                let sums = _mm512_add_epi32(vector, _mm512_alignr_epi32::<15>(vector, zero));
                let sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<14>(sums, zero));
                let sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<12>(sums, zero));
                let sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<8>(sums, zero));
                let last = _mm512_permutexvar_epi32(_mm512_set1_epi32(15), sums);
                [_mm512_add_epi32(carry, sums), _mm512_add_epi32(carry, last)]
            },
        ),
        (8, 8) => sums_of_vectors::<D, T, 8>(
            start,
            differences,
            out,
            _mm512_set1_epi64(bits as i64),
            |carry, vector| {
                let sums = _mm512_add_epi64(vector, _mm512_alignr_epi64::<7>(vector, zero));
                let sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<6>(sums, zero));
                let sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<4>(sums, zero));
                let last = _mm512_permutexvar_epi64(_mm512_set1_epi64(7), sums);
                [_mm512_add_epi64(carry, sums), _mm512_add_epi64(carry, last)]
            },
        ),
        _ => sums_plain(start, differences, out),
    }
}

/// Calls `step` with the total of the previous vectors in each lane, and the next vector of differences; it
/// returns the vector of sums, and the total to carry.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn sums_of_vectors<D: Integer, T: Integer, const LANES: usize>(
    start: T,
    differences: &[D],
    out: &mut [T],
    mut carry: __m512i,
    step: impl Fn(__m512i, __m512i) -> [__m512i; 2],
) {
    assert!(size_of::<[D; LANES]>() == 64 && size_of::<[T; LANES]>() == 64, "values of a vector");
    assert_eq!(differences.len(), out.len(), "as many differences as values");
    let whole = out.len() / LANES * LANES;
    let vectors = differences.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut::<LANES>().0);
    for (differences, out) in vectors {
        // SAFETY: 64 bytes are read.
        let vector = unsafe { _mm512_loadu_si512(differences.as_ptr().cast()) };
        let [sums, next] = step(carry, vector);
        // SAFETY: 64 bytes are written.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), sums) };
        carry = next;
    }
    let start = whole.checked_sub(1).map_or(start, |last| out[last]);
    sums_plain(start, &differences[whole..], &mut out[whole..]);
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn decode_vbmi(symbols: &Symbols, codes: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let (masks, _) = symbols.masks.as_chunks::<64>();
    // SAFETY: each is 64 bytes.
    let masks = [0, 1, 2, 3].map(|index| unsafe { _mm512_loadu_si512(masks[index].as_ptr().cast()) });
    decode_by(codes, out, |eight, count, at| {
        let codes = _mm512_castsi128_si512(_mm_cvtsi64_si128(i64::from_le_bytes(eight)));
        let low = _mm512_permutex2var_epi8(masks[0], codes, masks[1]);
        let high = _mm512_permutex2var_epi8(masks[2], codes, masks[3]);
        let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
        let found = _mm_cvtsi128_si64(_mm512_castsi512_si128(found)).cast_unsigned();
        #[expect(clippy::cast_possible_truncation, reason = "at most eight")]
        let kept = _bzhi_u64(found, count as u32 * 8);
        let [a, b, c, d, e, f, g, h] = eight.map(|code| symbols.words[usize::from(code)].cast_signed());
        let words = _mm512_set_epi64(h, g, f, e, d, c, b, a);
        let bytes = _mm512_maskz_compress_epi8(kept, words);
        // SAFETY: there is room for eight symbols.
        unsafe { _mm512_storeu_si512(at.cast(), bytes) };
        kept.count_ones() as usize
    })
}

const _: () = assert!(STEP == 8, "a vector of words");
