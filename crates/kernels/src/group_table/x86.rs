//! For AVX-512: adding a row to its group as one vector, and scattering rows a cache line at a time.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_load_si256, _mm256_mask_add_epi64, _mm256_mask_set1_epi64, _mm256_set_epi64x,
    _mm256_set1_epi64x, _mm256_srav_epi64, _mm256_store_si256, _mm256_ternarylogic_epi64, _mm512_load_si512,
    _mm512_stream_si512,
};

use std::mem::MaybeUninit;

use super::count_sum::{Groups, LOW_BITS, LOW_MASK, Row, State, add_rows_by, add_run_by, scatter_by};
use super::partition::{Line, Scatter};
use crate::hash::Seed;

/// As `State::add_row`: one load, one addition and one store instead of four each.
#[inline]
#[target_feature(enable = "avx2", enable = "avx512f", enable = "avx512vl")]
fn add_row(state: &mut State, (key, value): (u64, i64), is_own: bool, is_new: bool) {
    let shift = _mm256_set_epi64x(i64::from(LOW_BITS), 0, 0, 0);
    let mask = _mm256_set_epi64x(-1, LOW_MASK.cast_signed(), 0, 0);
    let one = _mm256_set_epi64x(0, 0, 1, 0);
    let words = _mm256_srav_epi64(_mm256_set1_epi64x(value), shift);
    // `words & mask | one`
    let row = _mm256_ternarylogic_epi64::<0xEA>(words, mask, one);
    let row = _mm256_mask_set1_epi64(row, u8::from(is_new), key.cast_signed());
    let state: *mut __m256i = std::ptr::from_mut(state).cast();
    // SAFETY: a state is four words in their order, at a multiple of 32 bytes.
    let before = unsafe { _mm256_load_si256(state) };
    let sum = _mm256_mask_add_epi64(before, u8::from(is_own).wrapping_neg(), before, row);
    // SAFETY: the same four words, which are borrowed uniquely.
    unsafe { _mm256_store_si256(state, sum) };
}

/// As `add_rows` in `count_sum`.
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn add_rows(seed: &Seed, groups: &mut Groups, keys: &[u64], values: &[i64]) -> usize {
    add_rows_by(seed, groups, keys, values, |state, row, is_own, is_new| add_row(state, row, is_own, is_new))
}

/// As `add_run` in `count_sum`.
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn add_run(seed: &Seed, groups: &mut Groups, rows: &[Row], next: &[Row]) {
    add_run_by(seed, groups, rows, next, |state, row, is_own, is_new| add_row(state, row, is_own, is_new));
}

/// As `Line::stream_to`, a cache line with each store.
#[inline]
#[target_feature(enable = "avx512f")]
fn stream(line: &Line<Row>, target: &mut MaybeUninit<Line<Row>>) {
    const VECTORS: usize = size_of::<Line<Row>>() / size_of::<__m512i>();
    let from = std::ptr::from_ref(line).cast::<__m512i>();
    let to = target.as_mut_ptr().cast::<__m512i>();
    for vector in 0..VECTORS {
        // SAFETY: a line is so many vectors and aligned like them. The caller issues a fence.
        unsafe { _mm512_stream_si512(to.add(vector), _mm512_load_si512(from.add(vector))) };
    }
}

/// As `scatter` in `count_sum`.
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn scatter(seed: &Seed, out: &mut Scatter<Row>, keys: &[u64], values: &[i64]) {
    // SAFETY: `stream` writes the whole line.
    unsafe { scatter_by(seed, out, keys, values, |line, target| stream(line, target)) };
}
