//! Compression of vectors on x86.

#![expect(clippy::cast_possible_truncation, reason = "masks have as many bits as a vector has values")]

use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_maskz_compress_epi8, _mm512_maskz_compress_epi16,
    _mm512_maskz_compress_epi32, _mm512_maskz_compress_epi64, _mm512_storeu_si512, _pdep_u64, _pext_u64,
};

use super::{compact_bits_by, compact_bits_plain, compact_by, compact_plain};
use crate::bits::WORD_BITS;
use crate::compare::Comparable;
use crate::dispatch::has_fast_pext;
use crate::{BitBuffer, Bits};

/// Up to this many kept rows of a word are copied one by one. Compressing a word takes as many steps as a
/// value has bytes, so the smaller the values, the sooner it pays.
const fn sparse<T>() -> usize {
    match size_of::<T>() {
        1 | 2 => 1,
        4 => 4,
        8 => 9,
        _ => 18,
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn compact_avx512<T: Comparable>(values: &[T], kept: Bits<'_>, out: &mut Vec<T>) {
    if size_of::<T>() < 4 {
        return compact_plain(values, kept, out);
    }
    compact_by(values, kept, out, sparse::<T>(), |values, word, at| {
        let compress = |mask, values| match size_of::<T>() {
            4 => _mm512_maskz_compress_epi32(mask as u16, values),
            8 => _mm512_maskz_compress_epi64(mask as u8, values),
            // Selects both halves of a 16-byte value.
            _ => _mm512_maskz_compress_epi64(_pdep_u64(mask, 0b0101_0101) as u8 * 3, values),
        };
        // SAFETY: there is room for a word of rows.
        unsafe { compress_word(values, word, at, compress) };
    });
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn compact_vbmi<T: Comparable>(values: &[T], kept: Bits<'_>, out: &mut Vec<T>) {
    if size_of::<T>() >= 4 {
        return compact_avx512(values, kept, out);
    }
    compact_by(values, kept, out, sparse::<T>(), |values, word, at| {
        let compress = |mask, values| match size_of::<T>() {
            1 => _mm512_maskz_compress_epi8(mask, values),
            _ => _mm512_maskz_compress_epi16(mask as u32, values),
        };
        // SAFETY: there is room for a word of rows.
        unsafe { compress_word(values, word, at, compress) };
    });
}

/// Writes the kept ones of 64 values, a vector at a time.
///
/// # Safety
/// `at` must have room for 64 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn compress_word<T>(
    values: &[T; WORD_BITS],
    word: u64,
    at: *mut T,
    compress: impl Fn(u64, __m512i) -> __m512i,
) {
    let lanes = size_of::<__m512i>() / size_of::<T>();
    let mut written = 0;
    for part in 0..size_of::<T>() {
        let mask = word >> (part * lanes) & (u64::MAX >> (WORD_BITS - lanes));
        // SAFETY: 64 values are as many vectors as a value has bytes.
        let vector = unsafe { _mm512_loadu_si512(values.as_ptr().add(part * lanes).cast()) };
        // SAFETY: at most `part` vectors were written, so that one more fits.
        unsafe { _mm512_storeu_si512(at.add(written).cast(), compress(mask, vector)) };
        written += mask.count_ones() as usize;
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn compact_bits_avx2(bits: Bits<'_>, kept: Bits<'_>) -> BitBuffer {
    if !has_fast_pext() {
        return compact_bits_plain(bits, kept);
    }
    compact_bits_by(bits, kept, |word, mask| _pext_u64(word, mask))
}
