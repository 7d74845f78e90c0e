//! For AVX-512: sums of floats and of 64-bit integers, and copies with a neutral value in place of rows that
//! do not count.
//!
//! The compiler folds a load into the masked move behind it, and such a load streams from memory at half
//! speed; an empty piece of assembly holds the loaded register apart. Nullable float sums from memory:
//! 33 GB/s so, 8 GB/s without.

#![allow(clippy::cast_possible_truncation, reason = "masks have as many bits as vectors have lanes")]

use std::arch::asm;
use std::arch::x86_64::{
    __m512d, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_ps, _mm512_add_epi64, _mm512_castpd_si512,
    _mm512_castsi512_pd, _mm512_cvtps_pd, _mm512_fmadd_pd, _mm512_fnmadd_pd, _mm512_loadu_pd,
    _mm512_loadu_si512, _mm512_mask_mov_epi8, _mm512_mask_mov_epi16, _mm512_mask_mov_epi32,
    _mm512_mask_mov_epi64, _mm512_maskz_mov_pd, _mm512_or_si512, _mm512_range_pd, _mm512_reduce_add_epi64,
    _mm512_reduce_max_pd, _mm512_reduce_or_epi64, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_set1_pd, _mm512_setzero_pd, _mm512_setzero_si512, _mm512_srai_epi64,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_sub_epi64, _mm512_sub_pd,
};
use std::hint::black_box;

use super::chunks::{CHUNK, Mask, keep_plain};
use super::floats::{Float, Sums, starts};
use super::integers::Wide;

/// Bytes of a vector.
const VECTOR: usize = size_of::<__m512i>();
/// Bytes that lines are asked for ahead of their use: the copies keep the CPU from looking so far.
const AHEAD: usize = 2048;
/// The same for sums: that of floats then reads memory at 0.97 of what the CPU can, otherwise at 0.8; 2048 bytes
/// gave 0.89, 4096 gave 0.95. That was of 40 GB/s; of 74 GB/s it is 0.89.
const SUM_AHEAD: usize = 8192;
/// Floats in a vector.
const LANES: usize = 8;
/// Vectors side by side, so that additions need not wait for each other.
const SIDES: usize = 4;

/// Holds a loaded register apart from what is done with it.
#[inline]
#[target_feature(enable = "avx512f")]
fn apart(mut vector: __m512i) -> __m512i {
    // SAFETY: nothing happens, and the register is the one thing named.
    unsafe {
        asm!("/* {0} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags));
    }
    vector
}

/// The accumulators of a block of floats; see `floats.rs`.
struct Block<const PARTS: usize> {
    sums: [[__m512d; SIDES]; PARTS],
    rests: __m512i,
    largest: [__m512d; 2],
    one: __m512d,
}

impl<const PARTS: usize> Block<PARTS> {
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add(&mut self, side: usize, value: __m512d) {
        let mut rest = value;
        for sums in &mut self.sums {
            let before = sums[side % SIDES];
            let after = _mm512_fmadd_pd(rest, self.one, before);
            sums[side % SIDES] = after;
            rest = _mm512_fnmadd_pd(_mm512_sub_pd(after, before), self.one, rest);
        }
        self.rests = _mm512_or_si512(self.rests, _mm512_castpd_si512(rest));
        // The larger magnitude.
        self.largest[side % 2] = _mm512_range_pd::<0b1011>(self.largest[side % 2], value);
    }

    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add_chunk<T: Float, const MASKED: bool>(&mut self, chunk: &[T; CHUNK], word: u64) {
        for side in 0..CHUNK / LANES {
            let here = chunk.as_ptr().wrapping_add(side * LANES).cast::<i8>();
            _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(SUM_AHEAD));
            let mut value = load(chunk, side * LANES);
            if MASKED {
                value = _mm512_castsi512_pd(apart(_mm512_castpd_si512(value)));
                value = _mm512_maskz_mov_pd((word >> (side * LANES)) as u8, value);
            }
            self.add(side, value);
        }
    }
}

/// As `block` in `floats.rs`, 98 against 22 GB/s.
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn block<T: Float, const PARTS: usize>(values: &[T], mask: Mask<'_>, top: i32) -> Sums<PARTS> {
    let starts = starts::<PARTS>(top);
    let mut block = Block {
        sums: starts.map(|start| [_mm512_set1_pd(start); SIDES]),
        rests: _mm512_setzero_si512(),
        largest: [_mm512_setzero_pd(); 2],
        one: _mm512_set1_pd(black_box(1.0)),
    };
    let (chunks, tail) = values.as_chunks::<CHUNK>();
    if matches!(mask, Mask::All) {
        for chunk in chunks {
            block.add_chunk::<T, false>(chunk, u64::MAX);
        }
    } else {
        for (index, chunk) in chunks.iter().enumerate() {
            block.add_chunk::<T, true>(chunk, mask.word(index));
        }
    }
    if !tail.is_empty() {
        let mut chunk = [T::default(); CHUNK];
        chunk[..tail.len()].copy_from_slice(tail);
        block.add_chunk::<T, true>(&chunk, mask.word(chunks.len()));
    }
    let mut parts = [0_i64; PARTS];
    for ((part, sums), start) in parts.iter_mut().zip(block.sums).zip(starts) {
        let start = _mm512_set1_epi64(start.to_bits().cast_signed());
        for sum in sums {
            // Numbers of nothing when the block did not fit: they are thrown away, but may overflow here.
            *part =
                part.wrapping_add(_mm512_reduce_add_epi64(_mm512_sub_epi64(_mm512_castpd_si512(sum), start)));
        }
    }
    Sums {
        parts,
        rest: _mm512_reduce_or_epi64(block.rests).cast_unsigned(),
        largest: _mm512_reduce_max_pd(_mm512_range_pd::<0b1011>(block.largest[0], block.largest[1])),
    }
}

/// Eight values as doubles.
#[inline]
#[target_feature(enable = "avx512f")]
fn load<T: Float>(chunk: &[T; CHUNK], start: usize) -> __m512d {
    let values = chunk[start..start + LANES].as_ptr();
    if size_of::<T>() == size_of::<f64>() {
        // SAFETY: eight values lie there, as the slice above has shown, and `T`, which is sealed, is f64.
        unsafe { _mm512_loadu_pd(values.cast()) }
    } else {
        // SAFETY: as above, and `T` is f32.
        _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(values.cast()) })
    }
}

/// Sums of 64-bit integers modulo 2^64, and of their upper halves. Lines are asked for one by one, between additions:
/// from memory, 0.97 of what the CPU can; 0.86 with those of a chunk in a row, by [`for_each_chunk`].
///
/// [`for_each_chunk`]: super::chunks::for_each_chunk
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn halves<T: Wide>(chunks: &[[T; CHUNK]]) -> [T; 2] {
    const { assert!(size_of::<T>() == size_of::<i64>()) };
    let (mut residues, mut uppers) = ([_mm512_setzero_si512(); SIDES], [_mm512_setzero_si512(); SIDES]);
    for chunk in chunks {
        for (side, values) in chunk.as_chunks::<LANES>().0.iter().enumerate() {
            _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().cast::<i8>().wrapping_add(SUM_AHEAD));
            // SAFETY: eight values of eight bytes.
            let values = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
            let upper =
                if T::IS_SIGNED { _mm512_srai_epi64::<32>(values) } else { _mm512_srli_epi64::<32>(values) };
            residues[side % SIDES] = _mm512_add_epi64(residues[side % SIDES], values);
            uppers[side % SIDES] = _mm512_add_epi64(uppers[side % SIDES], upper);
        }
    }
    [residues, uppers].map(|sides| {
        let sum = sides.into_iter().fold(_mm512_setzero_si512(), |sum, side| _mm512_add_epi64(sum, side));
        T::from_word(_mm512_reduce_add_epi64(sum))
    })
}

/// As [`keep_plain`].
#[inline]
#[target_feature(enable = "avx512f", enable = "avx512bw")]
pub(super) fn keep<T: Copy>(chunk: &[T; CHUNK], word: u64, fill: T) -> [T; CHUNK] {
    if !matches!(size_of::<T>(), 1 | 2 | 4 | 8) {
        return keep_plain(chunk, word, fill);
    }
    let lanes = VECTOR / size_of::<T>();
    let fill_bits = fill_bits(&fill);
    let mut kept = [fill; CHUNK];
    for start in (0..CHUNK).step_by(lanes) {
        _mm_prefetch::<_MM_HINT_T0>(chunk.as_ptr().wrapping_add(start).cast::<i8>().wrapping_add(AHEAD));
        // SAFETY: `start + lanes` is at most `CHUNK`, because the size of `T` divides that of a vector.
        let vector = apart(unsafe { _mm512_loadu_si512(chunk.as_ptr().add(start).cast()) });
        let vector = blend(size_of::<T>(), fill_bits, word >> start, vector);
        // SAFETY: as for the load; every bit of `T` came from a `T`.
        unsafe { _mm512_storeu_si512(kept.as_mut_ptr().add(start).cast(), vector) };
    }
    kept
}

/// The low bytes are those of `fill`.
#[inline(always)]
fn fill_bits<T: Copy>(fill: &T) -> i64 {
    assert!(size_of::<T>() <= size_of::<i64>(), "a fill of at most eight bytes");
    let mut bits = 0_i64;
    // SAFETY: a `T` is at most eight bytes, as was just seen, and plain numbers have no padding.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const *fill).cast::<u8>(),
            (&raw mut bits).cast(),
            size_of::<T>(),
        );
    };
    bits
}

#[inline]
#[target_feature(enable = "avx512f", enable = "avx512bw")]
fn blend(size: usize, fill: i64, word: u64, vector: __m512i) -> __m512i {
    match size {
        1 => _mm512_mask_mov_epi8(_mm512_set1_epi8(fill as i8), word, vector),
        2 => _mm512_mask_mov_epi16(_mm512_set1_epi16(fill as i16), word as u32, vector),
        4 => _mm512_mask_mov_epi32(_mm512_set1_epi32(fill as i32), word as u16, vector),
        _ => _mm512_mask_mov_epi64(_mm512_set1_epi64(fill), word as u8, vector),
    }
}
