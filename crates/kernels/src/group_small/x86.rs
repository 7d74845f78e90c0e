//! For AVX-512: converts floats and adds them to tables in one loop: 0.29 to 0.31 against 0.45 ns a row.
//!
//! Eight values become eight words in a register; interleaving them with their second words makes eight
//! states, which are added at their keys. The CPU stores one state a cycle, in which it executes eight
//! instructions: so the loop must do little besides loading, adding and storing states. An empty piece of
//! assembly keeps the compiler from interleaving each quarter of a register separately, which takes more
//! instructions (0.30).

#![allow(clippy::cast_possible_truncation, reason = "keys have 8 or 16 bits, x86 with AVX-512 has 64")]

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m512d, __m512i, _MM_HINT_T0, _mm_add_epi64, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_prefetch,
    _mm_storeu_si128, _mm256_loadu_ps, _mm512_add_epi64, _mm512_add_pd, _mm512_castpd_si512,
    _mm512_cmpeq_epi8_mask, _mm512_cmpeq_epi16_mask, _mm512_cvtps_pd, _mm512_extracti64x2_epi64,
    _mm512_loadu_pd, _mm512_loadu_si512, _mm512_or_si512, _mm512_reduce_add_epi64, _mm512_reduce_or_epi64,
    _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi64, _mm512_set1_pd, _mm512_setzero_si512,
    _mm512_sll_epi64, _mm512_sub_pd, _mm512_ternarylogic_epi64, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

use super::tables::{group_plain, stride};
use super::units::{Fit, Plan, Value};
use super::{SmallKey, Variant};
use crate::aggregate::CHUNK;

/// Values in a vector.
const LANES: usize = 8;
/// Rows of a step of the loop over tables.
const ROWS: usize = 16;

/// The prefetch distance in rows: 150 ns.
const TABLES_AHEAD: usize = 512;
/// The same distance where a row takes a third of the time.
const RUNS_AHEAD: usize = 2048;

/// As [`group_plain`].
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn group<K: SmallKey, T: Value>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    variant: Variant,
    tables: &mut [[i64; 2]],
) -> Fit {
    if !T::IS_FLOAT {
        group_plain(keys, values, plan, variant, tables)
    } else if plan.parts == 1 {
        group_parts::<K, T, 1>(keys, values, plan, variant, tables)
    } else {
        group_parts::<K, T, 2>(keys, values, plan, variant, tables)
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn group_parts<K: SmallKey, T: Value, const PARTS: usize>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    variant: Variant,
    tables: &mut [[i64; 2]],
) -> Fit {
    assert_eq!(keys.len(), values.len(), "a key for each value");
    let mut convert = Convert::<PARTS>::new(plan);
    let (key_chunks, last_keys) = keys.as_chunks::<ROWS>();
    let (value_chunks, last_values) = values.as_chunks::<ROWS>();
    match variant {
        Variant::OneTable => convert.add_all::<K, T, 1>(key_chunks, value_chunks, tables),
        Variant::FourTables => convert.add_all::<K, T, 4>(key_chunks, value_chunks, tables),
        Variant::EightTables => convert.add_all::<K, T, 8>(key_chunks, value_chunks, tables),
        Variant::SixteenTables => convert.add_all::<K, T, 16>(key_chunks, value_chunks, tables),
        Variant::Runs => convert.runs(keys, values, tables),
    }
    let fit = convert.fit();
    if last_keys.is_empty() {
        return fit;
    }
    fit.and(group_plain(last_keys, last_values, plan, Variant::OneTable, tables))
}

/// Converts values to words of states, and records whether that was exact.
struct Convert<const PARTS: usize> {
    starts: [__m512d; 2],
    shift: __m128i,
    ones: __m512i,
    rests: __m512i,
    beyonds: __m512i,
}

impl<const PARTS: usize> Convert<PARTS> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(plan: &Plan) -> Self {
        Self {
            starts: [_mm512_set1_pd(plan.starts[0]), _mm512_set1_pd(plan.starts[1])],
            shift: _mm_cvtsi32_si128(plan.shift.cast_signed()),
            ones: _mm512_set1_epi64(1),
            rests: _mm512_setzero_si512(),
            beyonds: _mm512_setzero_si512(),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fit(&self) -> Fit {
        Fit {
            rest: _mm512_reduce_or_epi64(self.rests).cast_unsigned(),
            beyond: _mm512_reduce_or_epi64(self.beyonds).cast_unsigned(),
        }
    }

    /// Both words of eight values from index `from` on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn words<T: Value, const COUNT: usize>(&mut self, values: &[T; COUNT], from: usize) -> [__m512i; 2] {
        let value = load(values, from);
        let after = _mm512_add_pd(value, self.starts[0]);
        let upper = _mm512_castpd_si512(after);
        self.beyonds = or_xor(self.beyonds, upper, _mm512_castpd_si512(self.starts[0]));
        let whole = _mm512_sub_pd(after, self.starts[0]);
        if PARTS == 1 {
            self.rests = or_xor(self.rests, _mm512_castpd_si512(whole), _mm512_castpd_si512(value));
            return [upper, self.ones];
        }
        let rest = _mm512_sub_pd(value, whole);
        let after = _mm512_add_pd(rest, self.starts[1]);
        let whole = _mm512_castpd_si512(_mm512_sub_pd(after, self.starts[1]));
        self.rests = or_xor(self.rests, whole, _mm512_castpd_si512(rest));
        // The low bits are zero after the shift.
        [_mm512_or_si512(_mm512_sll_epi64(upper, self.shift), self.ones), _mm512_castpd_si512(after)]
    }

    /// Adds rows to `TABLES` tables in turn.
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add_all<K: SmallKey, T: Value, const TABLES: usize>(
        &mut self,
        keys: &[[K; ROWS]],
        values: &[[T; ROWS]],
        tables: &mut [[i64; 2]],
    ) {
        let tables = &mut tables[..TABLES * stride::<K>()];
        for (keys, values) in keys.iter().zip(values) {
            ahead(keys, TABLES_AHEAD);
            ahead(values, TABLES_AHEAD);
            self.add_eight::<K, T, ROWS, TABLES, 0>(keys, values, 0, tables);
            self.add_eight::<K, T, ROWS, TABLES, LANES>(keys, values, LANES, tables);
        }
    }

    /// Adds eight rows from index `from` on, the first to the table of row `FIRST`.
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add_eight<K: SmallKey, T: Value, const COUNT: usize, const TABLES: usize, const FIRST: usize>(
        &mut self,
        keys: &[K; COUNT],
        values: &[T; COUNT],
        from: usize,
        tables: &mut [[i64; 2]],
    ) {
        let [first, second] = self.words(values, from);
        let keys: &[K; LANES] = keys[from..].first_chunk().expect("rows come in eights");
        let even = apart(_mm512_unpacklo_epi64(first, second));
        let odd = apart(_mm512_unpackhi_epi64(first, second));
        add_state(tables, FIRST % TABLES, keys, 0, _mm512_extracti64x2_epi64::<0>(even));
        add_state(tables, (FIRST + 1) % TABLES, keys, 1, _mm512_extracti64x2_epi64::<0>(odd));
        add_state(tables, (FIRST + 2) % TABLES, keys, 2, _mm512_extracti64x2_epi64::<1>(even));
        add_state(tables, (FIRST + 3) % TABLES, keys, 3, _mm512_extracti64x2_epi64::<1>(odd));
        add_state(tables, (FIRST + 4) % TABLES, keys, 4, _mm512_extracti64x2_epi64::<2>(even));
        add_state(tables, (FIRST + 5) % TABLES, keys, 5, _mm512_extracti64x2_epi64::<2>(odd));
        add_state(tables, (FIRST + 6) % TABLES, keys, 6, _mm512_extracti64x2_epi64::<3>(even));
        add_state(tables, (FIRST + 7) % TABLES, keys, 7, _mm512_extracti64x2_epi64::<3>(odd));
    }

    /// Sums chunks with only one key in a register, which is added to the table when the key changes; adds
    /// other chunks to four tables. The last, incomplete step of 16 rows is left out.
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512bw", enable = "avx512dq")]
    fn runs<K: SmallKey, T: Value>(&mut self, keys: &[K], values: &[T], tables: &mut [[i64; 2]]) {
        let (key_chunks, last_keys) = keys.as_chunks::<CHUNK>();
        let (value_chunks, last_values) = values.as_chunks::<CHUNK>();
        let tables = &mut tables[..4 * stride::<K>()];
        let mut sums = [_mm512_setzero_si512(); 2];
        let mut run = keys.first().copied().unwrap_or_default();
        for (keys, values) in key_chunks.iter().zip(value_chunks) {
            ahead(keys, RUNS_AHEAD);
            ahead(values, RUNS_AHEAD);
            if is_run(keys) {
                if keys[0] != run {
                    add_sums(&mut tables[run.index()], sums);
                    sums = [_mm512_setzero_si512(); 2];
                    run = keys[0];
                }
                for from in (0..CHUNK).step_by(LANES) {
                    let words = self.words(values, from);
                    sums = [_mm512_add_epi64(sums[0], words[0]), _mm512_add_epi64(sums[1], words[1])];
                }
            } else {
                for from in (0..CHUNK).step_by(LANES) {
                    self.add_eight::<K, T, CHUNK, 4, 0>(keys, values, from, tables);
                }
            }
        }
        add_sums(&mut tables[run.index()], sums);
        self.add_all::<K, T, 4>(last_keys.as_chunks().0, last_values.as_chunks().0, tables);
    }
}

/// Prefetches later rows: waiting for states keeps the CPU from reading so far ahead.
#[inline]
#[target_feature(enable = "avx512f")]
fn ahead<V, const COUNT: usize>(rows: &[V; COUNT], distance: usize) {
    for offset in (0..size_of_val(rows)).step_by(64) {
        _mm_prefetch::<_MM_HINT_T0>(
            rows.as_ptr().cast::<i8>().wrapping_add(offset + distance * size_of::<V>()),
        );
    }
}

/// `bits | (left ^ right)`
#[inline]
#[target_feature(enable = "avx512f")]
fn or_xor(bits: __m512i, left: __m512i, right: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xF6>(bits, left, right)
}

/// Keeps the compiler from taking a register apart.
#[inline]
#[target_feature(enable = "avx512f")]
fn apart(mut vector: __m512i) -> __m512i {
    // SAFETY: nothing happens, and the register is the one thing named.
    unsafe {
        asm!("/* {0} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags));
    }
    vector
}

/// Eight values as doubles.
#[inline]
#[target_feature(enable = "avx512f")]
fn load<T: Value, const COUNT: usize>(values: &[T; COUNT], from: usize) -> __m512d {
    assert!(T::IS_FLOAT, "integers are grouped elsewhere");
    let source = values[from..from + LANES].as_ptr();
    if size_of::<T>() == size_of::<f64>() {
        // SAFETY: eight values lie there, as the slice above has shown, and `T`, a float, is f64.
        unsafe { _mm512_loadu_pd(source.cast()) }
    } else {
        // SAFETY: the slice above has shown eight values, and `T`, a float that is not f64, is f32.
        _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(source.cast()) })
    }
}

/// Whether all keys are equal.
#[inline]
#[target_feature(enable = "avx512f", enable = "avx512bw")]
fn is_run<K: SmallKey>(keys: &[K; CHUNK]) -> bool {
    let first = keys[0].index() as i16;
    let source: *const __m512i = keys.as_ptr().cast();
    // SAFETY: 64 keys of 8 bits are a vector, of 16 bits two.
    let vector = unsafe { _mm512_loadu_si512(source) };
    if K::COUNT == 1 << 8 {
        return _mm512_cmpeq_epi8_mask(vector, _mm512_set1_epi8(first as i8)) == u64::MAX;
    }
    // SAFETY: 64 keys of 16 bits are two vectors, of which this is the second.
    let others = unsafe { _mm512_loadu_si512(source.add(1)) };
    let first = _mm512_set1_epi16(first);
    _mm512_cmpeq_epi16_mask(vector, first) & _mm512_cmpeq_epi16_mask(others, first) == u32::MAX
}

/// Adds the summed words of rows with one key.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_sums(state: &mut [i64; 2], sums: [__m512i; 2]) {
    for (word, sum) in state.iter_mut().zip(sums) {
        *word = word.wrapping_add(_mm512_reduce_add_epi64(sum));
    }
}

/// Adds the state of row `row` of eight.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_state<K: SmallKey>(
    tables: &mut [[i64; 2]],
    table: usize,
    keys: &[K; LANES],
    row: usize,
    words: __m128i,
) {
    // One load for several keys: loading each key is slower where few keys repeat (0.33 against 0.29).
    let keys_in_word = size_of::<u64>() / size_of::<K>();
    let source: *const u64 = keys[row / keys_in_word * keys_in_word..].as_ptr().cast();
    // SAFETY: eight keys are one word or two, and this is one of them.
    let word = unsafe { source.read_unaligned() };
    let key = word >> (row % keys_in_word * size_of::<K>() * 8) & (K::COUNT as u64 - 1);
    // `tables` has a length that the compiler knows, so this index needs no check.
    let state: *mut __m128i = std::ptr::from_mut(&mut tables[table * stride::<K>() + key as usize]).cast();
    // SAFETY: a state is 16 bytes, and `tables` is borrowed for writing.
    let sum = _mm_add_epi64(unsafe { _mm_loadu_si128(state) }, words);
    // SAFETY: a state is 16 bytes, and `tables` is borrowed for writing.
    unsafe { _mm_storeu_si128(state, sum) };
}
