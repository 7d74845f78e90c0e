//! For AVX-512: sums over runs, exact sums of floats, and copies with a neutral value in place of rows that
//! do not count.
//!
//! The compiler folds a load into the masked move behind it, and such a load streams from memory at half
//! speed; an empty piece of assembly keeps the load separate. Nullable float sums from memory: 33 GB/s with
//! it, 8 GB/s without.

#![allow(clippy::cast_possible_truncation, reason = "masks have as many bits as vectors have lanes")]

use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512d, __m512i, _mm256_loadu_ps, _mm512_add_epi32, _mm512_add_epi64, _mm512_add_pd,
    _mm512_and_si512, _mm512_castpd_si512, _mm512_castps512_ps256, _mm512_castsi512_pd, _mm512_castsi512_ps,
    _mm512_cvtps_epi64, _mm512_cvtps_pd, _mm512_extractf32x8_ps, _mm512_fmadd_pd, _mm512_fnmadd_pd,
    _mm512_loadu_pd, _mm512_loadu_si512, _mm512_madd_epi16, _mm512_mask_mov_epi8, _mm512_mask_mov_epi16,
    _mm512_mask_mov_epi32, _mm512_mask_mov_epi64, _mm512_maskz_mov_epi32, _mm512_maskz_mov_pd,
    _mm512_max_epu32, _mm512_min_epu32, _mm512_mul_ps, _mm512_or_si512, _mm512_range_pd,
    _mm512_reduce_add_epi64, _mm512_reduce_max_epu32, _mm512_reduce_max_pd, _mm512_reduce_min_epu32,
    _mm512_reduce_or_epi64, _mm512_sad_epu8, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_set1_pd, _mm512_set1_ps, _mm512_setzero_pd, _mm512_setzero_si512,
    _mm512_slli_epi32, _mm512_slli_epi64, _mm512_srai_epi64, _mm512_srli_epi64, _mm512_storeu_si512,
    _mm512_sub_epi32, _mm512_sub_epi64, _mm512_sub_pd, _mm512_xor_si512,
};
use std::hint::black_box;

use super::chunks::{CHUNK, Mask, keep_plain};
use super::floats::{BlockRows, Float, Scaled, Sums, starts};
use super::integers::{BLOCK, Narrow, Wide};
use crate::dispatch::stream_ahead_bytes;
use crate::region::prefetch_ptr;
use crate::sealed::Sealed as Number;

/// Bytes of a vector.
const VECTOR: usize = size_of::<__m512i>();
/// Values of 64 bits in a vector.
const LANES: usize = 8;
/// Vectors side by side, so that additions need not wait for each other.
const SIDES: usize = 4;

/// Keeps the load of a register separate from operations on it.
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
    /// The prefetch distance in bytes.
    ahead: usize,
}

impl<const PARTS: usize> Block<PARTS> {
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add(&mut self, side: usize, value: __m512d) {
        let mut rest = value;
        for (part, sums) in self.sums.iter_mut().enumerate() {
            let before = sums[side % SIDES];
            // CPUs have units that multiply and units that add: both shall have work.
            let after = if (side + part).is_multiple_of(2) {
                _mm512_add_pd(rest, before)
            } else {
                _mm512_fmadd_pd(rest, self.one, before)
            };
            sums[side % SIDES] = after;
            rest = _mm512_fnmadd_pd(_mm512_sub_pd(after, before), self.one, rest);
        }
        self.rests = _mm512_or_si512(self.rests, _mm512_castpd_si512(rest));
        // The larger magnitude.
        self.largest[side % 2] = _mm512_range_pd::<0b1011>(self.largest[side % 2], value);
    }

    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add_chunks<T: Float, const RUNS: usize, const MASKED: bool>(
        &mut self,
        chunks: [&[T; CHUNK]; RUNS],
        word: u64,
    ) {
        // So few steps in the inner loop that the compiler unrolls it; otherwise the sums would be in memory.
        for first in (0..CHUNK).step_by(SIDES / RUNS * LANES) {
            for side in 0..SIDES {
                let (chunk, start) = (chunks[side % RUNS], first + side / RUNS * LANES);
                let here = chunk.as_ptr().wrapping_add(start);
                prefetch_ptr(here.wrapping_byte_add(self.ahead));
                let mut value = load(chunk, start);
                if MASKED {
                    value = _mm512_castsi512_pd(apart(_mm512_castpd_si512(value)));
                    value = _mm512_maskz_mov_pd((word >> start) as u8, value);
                }
                self.add(side, value);
            }
        }
    }
}

/// As `block` in `floats.rs`, 98 against 22 GB/s.
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn block<T: Float, const PARTS: usize>(rows: BlockRows<'_, T>, top: i32) -> Sums<PARTS> {
    let starts = starts::<PARTS>(top);
    let mut block = Block {
        sums: starts.map(|start| [_mm512_set1_pd(start); SIDES]),
        rests: _mm512_setzero_si512(),
        largest: [_mm512_setzero_pd(); 2],
        one: _mm512_set1_pd(black_box(1.0)),
        ahead: stream_ahead_bytes(),
    };
    let BlockRows { runs: [first, second], rest, mask } = rows;
    for (first, second) in first.iter().zip(second) {
        block.add_chunks::<T, 2, false>([first, second], u64::MAX);
    }
    let (chunks, tail) = rest.as_chunks::<CHUNK>();
    for (index, chunk) in chunks.iter().enumerate() {
        match mask {
            Mask::All => block.add_chunks::<T, 1, false>([chunk], u64::MAX),
            mask => block.add_chunks::<T, 1, true>([chunk], mask.word(index)),
        }
    }
    if !tail.is_empty() {
        let mut chunk = [T::default(); CHUNK];
        chunk[..tail.len()].copy_from_slice(tail);
        block.add_chunks::<T, 1, true>([&chunk], mask.word(chunks.len()));
    }
    // Meaningless, and possibly overflowing, if the block did not fit: then they are thrown away.
    let mut parts = [0_i64; PARTS];
    for ((part, sums), start) in parts.iter_mut().zip(block.sums).zip(starts) {
        let start = _mm512_set1_epi64(start.to_bits().cast_signed());
        let sums = sums.map(|sum| _mm512_sub_epi64(_mm512_castpd_si512(sum), start));
        *part = _mm512_reduce_add_epi64(fold(sums));
    }
    Sums {
        parts,
        rest: _mm512_reduce_or_epi64(block.rests).cast_unsigned(),
        largest: _mm512_reduce_max_pd(_mm512_range_pd::<0b1011>(block.largest[0], block.largest[1])),
    }
}

/// The sum of a block of 32-bit floats whose values times `factor`, a power of two, should be integers;
/// `None` for other types. See `floats.rs`.
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn scaled<T: Float>(rows: BlockRows<'_, T>, factor: f64) -> Option<Scaled> {
    if size_of::<T>() != size_of::<f32>() {
        return None;
    }
    let zero = _mm512_setzero_si512();
    let mut lanes = ScaledLanes {
        sums: [zero; SIDES],
        least: _mm512_set1_epi32(-1),
        largest: zero,
        factor: _mm512_set1_ps(factor as f32),
    };
    let BlockRows { runs: [first, second], rest, mask } = rows;
    lanes = lanes.with_runs(first, second);
    let (chunks, tail) = rest.as_chunks::<CHUNK>();
    if matches!(mask, Mask::All) {
        lanes = lanes.with_runs(chunks, &[]);
    } else {
        for (index, chunk) in chunks.iter().enumerate() {
            lanes.add_kept(chunk, mask.word(index));
        }
    }
    if !tail.is_empty() {
        let mut chunk = [T::default(); CHUNK];
        chunk[..tail.len()].copy_from_slice(tail);
        lanes.add_kept(&chunk, mask.word(chunks.len()));
    }
    let uppers = fold(lanes.sums.map(|sum| _mm512_srai_epi64::<32>(sum)));
    let lowers = fold(lanes.sums.map(|sum| _mm512_and_si512(sum, _mm512_set1_epi64(0xFFFF_FFFF))));
    let [uppers, lowers] = [uppers, lowers].map(|sum| i128::from(_mm512_reduce_add_epi64(sum)));
    Some(Scaled {
        sum: (uppers << 32) + lowers,
        least: f32::from_bits(_mm512_reduce_min_epu32(lanes.least).wrapping_add(1) >> 1),
        largest: f32::from_bits(_mm512_reduce_max_epu32(lanes.largest) >> 1),
    })
}

/// The accumulators of a block of 32-bit floats that is scaled to integers.
#[derive(Clone, Copy)]
struct ScaledLanes {
    sums: [__m512i; SIDES],
    /// The smallest of all bits shifted by one, minus one.
    least: __m512i,
    /// The largest of all bits shifted by one.
    largest: __m512i,
    factor: __m512,
}

impl ScaledLanes {
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
    fn add(&mut self, side: usize, bits: __m512i) {
        // Shifted, without the sign; zero minus one wraps to the largest, so that zeros do not count as the
        // smallest.
        let magnitudes = _mm512_slli_epi32::<1>(bits);
        self.largest = _mm512_max_epu32(self.largest, magnitudes);
        self.least = _mm512_min_epu32(self.least, _mm512_sub_epi32(magnitudes, _mm512_set1_epi32(1)));
        let values = _mm512_mul_ps(_mm512_castsi512_ps(bits), self.factor);
        let lower = _mm512_cvtps_epi64(_mm512_castps512_ps256(values));
        let upper = _mm512_cvtps_epi64(_mm512_extractf32x8_ps::<1>(values));
        self.sums[side] = _mm512_add_epi64(_mm512_add_epi64(self.sums[side], lower), upper);
    }

    /// With all values of runs. The accumulators are passed by value: a loop that adds to those of its caller
    /// keeps them in memory, and takes twice the time.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
    fn with_runs<T: Number>(mut self, first: &[[T; CHUNK]], second: &[[T; CHUNK]]) -> Self {
        for_each_vector(first, second, |side, bits| self.add(side, bits));
        self
    }

    /// Adds the values of a chunk that have a bit.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
    fn add_kept<T: Number>(&mut self, chunk: &[T; CHUNK], word: u64) {
        let ahead = stream_ahead_bytes();
        for (side, line) in lines(std::slice::from_ref(chunk)).iter().enumerate() {
            prefetch_ptr(line.as_ptr().wrapping_byte_add(ahead));
            // SAFETY: as many bytes as a vector has.
            let values = apart(unsafe { _mm512_loadu_si512(line.as_ptr().cast()) });
            self.add(side % SIDES, _mm512_maskz_mov_epi32((word >> (16 * side)) as u16, values));
        }
    }
}

/// The sum of vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(sides: [__m512i; SIDES]) -> __m512i {
    sides.into_iter().fold(_mm512_setzero_si512(), |sum, side| _mm512_add_epi64(sum, side))
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
        // SAFETY: the slice above has shown eight values, and `T`, which is sealed and not f64, is f32.
        _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(values.cast()) })
    }
}

/// Calls `work` with each vector of the runs, alternating between the two if there is a second, and with the
/// index of the accumulator. Alternating by cache line is 3 % faster than by chunk, for 64-bit integers from
/// memory.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn for_each_vector<T: Number>(
    first: &[[T; CHUNK]],
    second: &[[T; CHUNK]],
    mut work: impl FnMut(usize, __m512i),
) {
    let ahead = stream_ahead_bytes();
    let mut read = |side: usize, line: &[u8; VECTOR]| {
        let here = line.as_ptr();
        prefetch_ptr(here.wrapping_byte_add(ahead));
        // SAFETY: as many bytes as a vector has.
        work(side, unsafe { _mm512_loadu_si512(here.cast()) });
    };
    let (first, second) = (lines(first), lines(second));
    if second.is_empty() {
        let (fours, rest) = first.as_chunks::<SIDES>();
        for four in fours {
            (0..SIDES).for_each(|side| read(side, &four[side]));
        }
        rest.iter().for_each(|line| read(0, line));
        return;
    }
    let (first, first_rest) = first.as_chunks::<{ SIDES / 2 }>();
    let (second, second_rest) = second.as_chunks::<{ SIDES / 2 }>();
    for (first, second) in first.iter().zip(second) {
        for index in 0..SIDES / 2 {
            read(2 * index, &first[index]);
            read(2 * index + 1, &second[index]);
        }
    }
    first_rest.iter().chain(second_rest).for_each(|line| read(0, line));
}

/// The bytes of numbers.
#[inline]
fn lines<T: Number>(chunks: &[[T; CHUNK]]) -> &[[u8; VECTOR]] {
    // SAFETY: the same bytes as long as they are borrowed, of numbers, which have no padding; 64 of them fill
    // lines, and bytes ask for no alignment.
    unsafe { std::slice::from_raw_parts(chunks.as_ptr().cast(), size_of_val(chunks) / VECTOR) }
}

/// Sums of the words of runs modulo 2^64, and of their upper halves; `bias` is added to each word without a
/// carry.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn words<T: Number, const SIGNED: bool>(
    first: &[[T; CHUNK]],
    second: &[[T; CHUNK]],
    bias: __m512i,
) -> [__m512i; 2] {
    let (mut residues, mut uppers) = ([_mm512_setzero_si512(); SIDES], [_mm512_setzero_si512(); SIDES]);
    for_each_vector(first, second, |side, words| {
        let words = _mm512_xor_si512(words, bias);
        let upper = if SIGNED { _mm512_srai_epi64::<32>(words) } else { _mm512_srli_epi64::<32>(words) };
        residues[side] = _mm512_add_epi64(residues[side], words);
        uppers[side] = _mm512_add_epi64(uppers[side], upper);
    });
    [fold(residues), fold(uppers)]
}

/// Sums of 64-bit integers of runs modulo 2^64, and of their upper halves.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn halves<T: Wide>(first: &[[T; CHUNK]], second: &[[T; CHUNK]]) -> [T; 2] {
    const { assert!(size_of::<T>() == size_of::<i64>()) };
    let zero = _mm512_setzero_si512();
    let sums = if T::IS_SIGNED {
        words::<T, true>(first, second, zero)
    } else {
        words::<T, false>(first, second, zero)
    };
    sums.map(|sum| T::from_word(_mm512_reduce_add_epi64(sum)))
}

/// For each lane of eight, as in `decimals_block`, the sum of words modulo 2^64 and of their upper halves.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn decimals(
    first: &[[i128; CHUNK]],
    second: &[[i128; CHUNK]],
    bias: &[u64; LANES],
) -> [[u64; LANES]; 2] {
    // SAFETY: eight words.
    let bias = unsafe { _mm512_loadu_si512(bias.as_ptr().cast()) };
    words::<i128, false>(first, second, bias).map(|sum| {
        let mut lanes = [0; LANES];
        // SAFETY: room for eight words.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sum) };
        lanes
    })
}

/// The sum of integers of up to 32 bits of runs, which together are at most [`BLOCK`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn narrow<T: Narrow>(first: &[[T; CHUNK]], second: &[[T; CHUNK]]) -> i128 {
    let rows = (first.len() + second.len()) * CHUNK;
    debug_assert!(rows <= BLOCK);
    let (rows, zero) = (rows as i128, _mm512_setzero_si512());
    let mut sums = [zero; SIDES];
    match size_of::<T>() {
        // Unsigned, for the instruction that sums groups of eight bytes.
        1 => {
            let bias = if T::IS_SIGNED { i8::MIN } else { 0 };
            let flip = _mm512_set1_epi8(bias);
            for_each_vector(first, second, |side, bytes| {
                let eights = _mm512_sad_epu8(_mm512_xor_si512(bytes, flip), zero);
                sums[side] = _mm512_add_epi64(sums[side], eights);
            });
            i128::from(_mm512_reduce_add_epi64(fold(sums))) + i128::from(bias) * rows
        }
        // Signed, for the instruction that multiplies by one and adds pairs; the 2^13 pairs of a block fit 32
        // bits.
        2 => {
            let (bias, ones) = (if T::IS_SIGNED { 0 } else { i16::MIN }, _mm512_set1_epi16(1));
            let flip = _mm512_set1_epi16(bias);
            for_each_vector(first, second, |side, values| {
                let pairs = _mm512_madd_epi16(_mm512_xor_si512(values, flip), ones);
                sums[side] = _mm512_add_epi32(sums[side], pairs);
            });
            let lower = |sum| _mm512_srai_epi64::<32>(_mm512_slli_epi64::<32>(sum));
            let sums = sums.map(|sum| _mm512_add_epi64(_mm512_srai_epi64::<32>(sum), lower(sum)));
            i128::from(_mm512_reduce_add_epi64(fold(sums))) - i128::from(bias) * rows
        }
        // Two unsigned values are the halves of a word, and their sums fit 64 bits easily.
        4 => {
            let bias = if T::IS_SIGNED { i32::MIN } else { 0 };
            let [residue, uppers] = words::<T, false>(first, second, _mm512_set1_epi32(bias))
                .map(|sum| _mm512_reduce_add_epi64(sum));
            let lowers = residue.wrapping_sub(uppers << 32);
            i128::from(uppers) + i128::from(lowers) + i128::from(bias) * rows
        }
        _ => unreachable!("integers of up to 32 bits"),
    }
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
        // SAFETY: `start + lanes` is at most `CHUNK`, because the size of `T` divides that of a vector.
        let vector = apart(unsafe { _mm512_loadu_si512(chunk.as_ptr().add(start).cast()) });
        let vector = blend(size_of::<T>(), fill_bits, word >> start, vector);
        // SAFETY: as for the load; every bit of `T` came from a `T`.
        unsafe { _mm512_storeu_si512(kept.as_mut_ptr().add(start).cast(), vector) };
    }
    kept
}

/// The bits of `fill` in the low bytes.
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
