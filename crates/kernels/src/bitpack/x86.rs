//! One loop for every width: VBMI picks the bytes of each value, then its bits.
//!
//! A vector of output is eight words of 64 bits. `vpermb` moves to each word the eight bytes in which its
//! values begin, `vpmultishiftqb` takes for each byte of each value its eight bits from those, and an `and`
//! clears the bits behind the value. The control vectors of both depend only on the width: as many values as
//! fill a vector are a whole number of bytes, so the next vector begins at the same bit of its byte as this
//! one. Where the values of a word reach beyond its eight bytes (a width just below that of the type), a
//! second pair of instructions fetches their ends from the bytes one further on.
//! Measured in L2 on Zen 5, 32-bit values: 90-135 GB/s written, 1.2-1.6x fastlanes compiled for that CPU;
//! 98-135 compared without writing, where fastlanes, whose bits come in its own order, has 104-150.

#[allow(clippy::wildcard_imports, reason = "the instructions of four widths")]
use std::arch::x86_64::*;
use std::ops::Range;

use super::{Integer, Packed};
use crate::BitBuffer;
use crate::bits::WORD_BITS;
use crate::compare::{Test, Vector, repeat};

const VECTOR_BYTES: usize = size_of::<Vector>();

/// The control vectors of the instructions.
struct Plan {
    /// For each byte of a word, the index of the byte that it is fetched from.
    bytes: Vector,
    /// For each byte of a value, the bit of its word at which it begins.
    bits: Vector,
    /// As `bits`, for the word one byte further on, for bytes of values that reach beyond the first word.
    bits_behind: Vector,
    behind: __mmask64,
    mask: Vector,
}

/// Indexed by the binary logarithm of the size of values in bytes: for each byte of a word, the index of its
/// value in the word, and the first bit of the byte in its value.
const VALUE_AND_BIT: [(u64, u64); 4] = [
    (0x0706_0504_0302_0100, 0),
    (0x0303_0202_0101_0000, 0x0800_0800_0800_0800),
    (0x0101_0101_0000_0000, 0x1810_0800_1810_0800),
    (0, 0x3830_2820_1810_0800),
];

/// The plan for values of `width` bits that begin `offset` bits into a byte.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn plan<T: Integer>(width: u64, mask: u64, offset: u64) -> Plan {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let word_bits = width * (8 / size_of::<T>() as u64);
    let (value, bit) = VALUE_AND_BIT[size_of::<T>().trailing_zeros() as usize];
    let (mut bytes, mut bits) = ([0_u64; 8], [0_u64; 8]);
    for index in 0..8 {
        let start = offset + index as u64 * word_bits;
        bytes[index] = 0x0706_0504_0302_0100 + start / 8 * EACH;
        bits[index] = value * width + bit + start % 8 * EACH;
    }
    // SAFETY: 64 bytes are read.
    let bytes = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    // SAFETY: 64 bytes are read.
    let bits = unsafe { _mm512_loadu_si512(bits.as_ptr().cast()) };
    Plan {
        bytes,
        bits,
        bits_behind: _mm512_sub_epi8(bits, _mm512_set1_epi8(8)),
        behind: _mm512_cmpgt_epu8_mask(bits, _mm512_set1_epi8(56)),
        // SAFETY: the features are those of this function.
        mask: unsafe { repeat(T::bits(mask)) },
    }
}

/// The bits of one vector of values, whose first byte is at `at`.
///
/// # Safety
/// 64 bytes must be readable.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
unsafe fn vector<const REACHES_BEHIND: bool>(plan: &Plan, at: *const u8) -> Vector {
    // SAFETY: as the caller promises.
    let packed = unsafe { _mm512_loadu_si512(at.cast()) };
    let words = _mm512_permutexvar_epi8(plan.bytes, packed);
    let mut values = _mm512_multishift_epi64_epi8(plan.bits, words);
    if REACHES_BEHIND {
        let next = _mm512_add_epi8(plan.bytes, _mm512_set1_epi8(1));
        let words = _mm512_permutexvar_epi8(next, packed);
        values = _mm512_mask_multishift_epi64_epi8(values, plan.behind, plan.bits_behind, words);
    }
    _mm512_and_si512(values, plan.mask)
}

/// Calls `visit` with each vector of rows: the index of its word of 64 rows, its index in that word, and the
/// values; the last vector may have too many.
///
/// `visit` should be inlined and call nothing: around a call all vectors are saved, which cost two thirds of
/// the speed.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
fn for_vectors<T: Integer>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    mut visit: impl FnMut(usize, usize, Vector),
) {
    let width = packed.width as usize;
    let first_bit = rows.start * width;
    let plan = plan::<T>(width as u64, packed.mask(), (first_bit % 8) as u64);
    let lanes = VECTOR_BYTES / size_of::<T>();
    let bytes = &packed.bytes[first_bit / 8..];
    let (stride, count) = (lanes * width / 8, rows.len().div_ceil(lanes));
    let word_bits = width * lanes / 8;
    if (0..8).all(|index| (first_bit + index * word_bits) % 8 + word_bits <= WORD_BITS) {
        run::<T, false>(plan, bytes, stride, count, &mut visit);
    } else {
        run::<T, true>(plan, bytes, stride, count, &mut visit);
    }
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
fn run<T, const REACHES_BEHIND: bool>(
    plan: Plan,
    bytes: &[u8],
    stride: usize,
    count: usize,
    visit: &mut impl FnMut(usize, usize, Vector),
) {
    // The vectors that have 64 bytes to read, rounded down to whole words of rows.
    let words_inside = match bytes.len().checked_sub(VECTOR_BYTES) {
        Some(last) if stride > 0 => (last / stride + 1).min(count) / size_of::<T>(),
        _ => 0,
    };
    for word in 0..words_inside {
        for part in 0..size_of::<T>() {
            let start = (word * size_of::<T>() + part) * stride;
            // SAFETY: the last vector inside has 64 bytes to read.
            let values = unsafe { vector::<REACHES_BEHIND>(&plan, bytes.as_ptr().add(start)) };
            visit(word, part, values);
        }
    }
    let inside = words_inside * size_of::<T>();
    if inside == count {
        return;
    }
    // The rest has fewer bytes than a word of rows plus 64, and each vector begins before its end.
    let mut last = [0; 10 * VECTOR_BYTES];
    let rest = &bytes[inside * stride..];
    let rest = &rest[..rest.len().min(9 * VECTOR_BYTES)];
    last[..rest.len()].copy_from_slice(rest);
    for index in inside..count {
        let start = (index - inside) * stride;
        assert!(start <= 9 * VECTOR_BYTES);
        // SAFETY: 64 bytes lie behind `start`, as was just seen.
        let values = unsafe { vector::<REACHES_BEHIND>(&plan, last.as_ptr().add(start)) };
        visit(index / size_of::<T>(), index % size_of::<T>(), values);
    }
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn unpack_vbmi<T: Integer>(packed: Packed<'_, T>, first: usize, out: &mut [T]) {
    // SAFETY: the features are those of this function.
    let reference = unsafe { repeat(packed.reference) };
    let lanes = VECTOR_BYTES / size_of::<T>();
    let whole = out.len() / lanes * lanes;
    let (vectors, tail) = out.split_at_mut(whole);
    for_vectors(packed, first..first + whole, |word, part, bits| {
        let at = word * WORD_BITS + part * lanes;
        // SAFETY: there are as many whole vectors of rows as of output.
        unsafe { _mm512_storeu_si512(vectors.as_mut_ptr().add(at).cast(), add::<T>(bits, reference)) };
    });
    super::unpack_plain(packed, first + whole, tail);
}

/// Adds values one by one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn add<T>(left: Vector, right: Vector) -> Vector {
    match size_of::<T>() {
        1 => _mm512_add_epi8(left, right),
        2 => _mm512_add_epi16(left, right),
        4 => _mm512_add_epi32(left, right),
        _ => _mm512_add_epi64(left, right),
    }
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn filter_vbmi<T: Integer, Q: Test<T::Bits>>(
    packed: Packed<'_, T>,
    rows: Range<usize>,
    test: &Q,
    invert: u64,
) -> BitBuffer {
    let lanes = VECTOR_BYTES / size_of::<T>();
    let count = rows.len();
    let mut words = vec![0; count.div_ceil(WORD_BITS)];
    let mut bits = 0;
    for_vectors(packed, rows, |word, part, values| {
        // SAFETY: the features are those of this function.
        let mask = unsafe { test.mask(values) };
        bits = if part == 0 { mask } else { bits | mask << (part * lanes) };
        if part + 1 == size_of::<T>() {
            words[word] = bits ^ invert;
        }
    });
    if let Some(last) = words.last_mut() {
        *last = bits ^ invert;
    }
    BitBuffer::from_words(words, count)
}

/// Values are added in their own type as long as none can overflow; the results are then added in words of 64
/// bits, the two halves separately: these overflow only after 2^32 vectors, more than memory holds.
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt,avx512vbmi,avx512vbmi2"
)]
pub(super) fn sum_vbmi<T: Integer>(packed: Packed<'_, T>, rows: Range<usize>) -> u128 {
    let lanes = VECTOR_BYTES / size_of::<T>();
    let whole = rows.start..rows.end - rows.len() % lanes;
    let tail = whole.end..rows.end;
    let low_half = _mm512_set1_epi64(0xFFFF_FFFF);
    let (mut sums, mut low, mut high) =
        (_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512());
    let mut widen = |sums: Vector| match size_of::<T>() {
        1 => low = _mm512_add_epi64(low, _mm512_sad_epu8(sums, _mm512_setzero_si512())),
        2 => {
            let even = _mm512_and_si512(sums, _mm512_set1_epi32(0xFFFF));
            let pairs = _mm512_add_epi32(even, _mm512_srli_epi32::<16>(sums));
            low = _mm512_add_epi64(low, _mm512_and_si512(pairs, low_half));
            high = _mm512_add_epi64(high, _mm512_srli_epi64::<32>(pairs));
        }
        _ => {
            low = _mm512_add_epi64(low, _mm512_and_si512(sums, low_half));
            high = _mm512_add_epi64(high, _mm512_srli_epi64::<32>(sums));
        }
    };
    // The sum of 2^n values has at most n bits more than a value.
    let at_once = 1_u64 << (T::BITS - packed.width).min(32);
    let mut left = at_once;
    for_vectors(packed, whole, |_, _, bits| {
        sums = add::<T>(sums, bits);
        left -= 1;
        if left == 0 {
            widen(sums);
            sums = _mm512_setzero_si512();
            left = at_once;
        }
    });
    widen(sums);
    let total = |sums: Vector| {
        let mut words = [0_u64; 8];
        // SAFETY: 64 bytes are written.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), sums) };
        words.into_iter().map(u128::from).sum::<u128>()
    };
    let high = if size_of::<T>() == 8 { total(high) << 32 } else { total(high) };
    total(low) + high + super::sum_plain(packed, tail)
}
