//! Bytes to bits and bits to row numbers on x86.

use std::arch::x86_64::{
    __m512i, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_setzero_si256,
    _mm512_add_epi32, _mm512_maskz_compress_epi32, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_storeu_si512,
};

use super::{positions_by, write_positions};
use crate::Bits;
use crate::bits::WORD_BITS;

/// The flags as bits.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn pack_flags_avx2(flags: &[bool; WORD_BITS]) -> u64 {
    let half = |index: usize| {
        // SAFETY: both halves of 32 bytes lie inside the 64.
        let bytes = unsafe { _mm256_loadu_si256(flags.as_ptr().add(32 * index).cast()) };
        u64::from(_mm256_movemask_epi8(_mm256_cmpgt_epi8(bytes, _mm256_setzero_si256())).cast_unsigned())
    };
    half(0) | half(1) << 32
}

/// Four compressions a word. The result goes to a register and is stored whole: compressing into memory is
/// microcode on Zen 4.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn positions_avx512(bits: Bits<'_>) -> Vec<u32> {
    let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    positions_by(bits, |word, first, out| {
        // So few positions are faster one by one.
        if word.count_ones() <= 3 {
            // SAFETY: there is room for a word's numbers.
            return unsafe { write_positions(word, first, out) };
        }
        let mut written = 0;
        for part in 0..4 {
            let mask = (word >> (16 * part) & 0xFFFF) as u16;
            let rows: __m512i = _mm512_add_epi32(numbers, _mm512_set1_epi32(first.cast_signed() + 16 * part));
            // SAFETY: `16 * part` numbers at most were written, and there is room for 64.
            let at = unsafe { out.add(written) };
            // SAFETY: 16 of the 64 numbers that there is room for; parts before this one wrote 16 each at
            // most.
            unsafe { _mm512_storeu_si512(at.cast(), _mm512_maskz_compress_epi32(mask, rows)) };
            written += mask.count_ones() as usize;
        }
    })
}
