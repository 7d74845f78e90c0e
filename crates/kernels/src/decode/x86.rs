//! Eight symbols in a vector, squeezed together by one instruction.
//!
//! The eight words come by eight loads; which of their 64 bytes are symbols, the masks of the codes say, looked up
//! by two `vpermi2b` in a table of four vectors. What is left is a `vpcompressb`, a store, and one addition from
//! which the next step knows its place.

#[allow(clippy::wildcard_imports, reason = "a dozen instructions")]
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::symbols::{STEP, Symbols, decode_by};

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
