//! Conversion and tables in one loop for AVX-512, for floats: 0.33 against 0.42 ns a row.
//!
//! Eight values become eight integers in a register; unpacking them with ones makes eight states, which are
//! added where their keys say. With a pass of its own, the integers take a detour through memory.

use std::arch::x86_64::{
    __m128i, __m256i, __m512d, __m512i, _mm_add_epi64, _mm_loadu_si128, _mm_set_epi64x, _mm_storeu_si128,
    _mm256_add_epi64, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_set_m128i, _mm256_storeu_si256,
    _mm512_add_epi64, _mm512_add_pd, _mm512_castpd_si512, _mm512_cmpeq_epi8_mask, _mm512_cvtps_pd,
    _mm512_extracti64x2_epi64, _mm512_loadu_pd, _mm512_loadu_si512, _mm512_mask_add_epi64,
    _mm512_reduce_add_epi64, _mm512_reduce_or_epi64, _mm512_set1_epi8, _mm512_set1_epi64, _mm512_set1_pd,
    _mm512_setzero_si512, _mm512_srai_epi64, _mm512_sub_epi64, _mm512_sub_pd, _mm512_ternarylogic_epi64,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

use super::tables::{State, group};
use super::units::{Fit, Value, start};
use super::{SmallKey, Variant};
use crate::aggregate::CHUNK;

/// Values in a vector.
const LANES: usize = 8;
/// Most keys that have vectors of their own.
const FEW: usize = 8;

/// As [`group`].
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn one_part<K: SmallKey, T: Value>(
    keys: &[K],
    values: &[T],
    unit: i32,
    variant: Variant,
    tables: &mut [[i64; 2]],
) -> Fit {
    if !T::IS_FLOAT {
        return group::<_, _, _, 1>(keys, values, unit, variant, tables);
    }
    let (key_chunks, last_keys) = keys.as_chunks::<CHUNK>();
    let (value_chunks, last_values) = values.as_chunks::<CHUNK>();
    let mut convert = Convert::new(unit);
    let chunks = key_chunks.iter().zip(value_chunks);
    match variant {
        Variant::OneTable => chunks.for_each(|(keys, values)| convert.add::<K, T, 1>(keys, values, tables)),
        Variant::FourTables => chunks.for_each(|(keys, values)| convert.add::<K, T, 4>(keys, values, tables)),
        Variant::FewKeys if size_of::<K>() == 1 => convert.few_keys(key_chunks, value_chunks, tables),
        Variant::EightTables | Variant::FewKeys => {
            chunks.for_each(|(keys, values)| convert.add::<K, T, 8>(keys, values, tables));
        }
        Variant::Runs => chunks.for_each(|(keys, values)| {
            if keys.iter().fold(true, |all, key| all & (*key == keys[0])) {
                let mut sum = _mm512_setzero_si512();
                for start in (0..CHUNK).step_by(LANES) {
                    sum = _mm512_add_epi64(sum, convert.numbers(values, start));
                }
                tables[keys[0].index()].add([_mm512_reduce_add_epi64(sum)], CHUNK as i64);
            } else {
                convert.add::<K, T, 4>(keys, values, tables);
            }
        }),
    }
    convert.fit().and(group::<_, _, _, 1>(last_keys, last_values, unit, Variant::OneTable, tables))
}

/// As [`group`].
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) fn two_parts<K: SmallKey, T: Value>(
    keys: &[K],
    values: &[T],
    unit: i32,
    variant: Variant,
    tables: &mut [[i64; 4]],
) -> Fit {
    if !T::IS_FLOAT {
        return group::<_, _, _, 2>(keys, values, unit, variant, tables);
    }
    let (key_chunks, last_keys) = keys.as_chunks::<CHUNK>();
    let (value_chunks, last_values) = values.as_chunks::<CHUNK>();
    let mut convert = Convert::new(unit);
    let chunks = key_chunks.iter().zip(value_chunks);
    match variant {
        Variant::OneTable => {
            chunks.for_each(|(keys, values)| convert.add_two::<K, T, 1>(keys, values, tables));
        }
        Variant::FourTables => {
            chunks.for_each(|(keys, values)| convert.add_two::<K, T, 4>(keys, values, tables));
        }
        Variant::EightTables | Variant::FewKeys => {
            chunks.for_each(|(keys, values)| convert.add_two::<K, T, 8>(keys, values, tables));
        }
        Variant::Runs => chunks.for_each(|(keys, values)| {
            if keys.iter().fold(true, |all, key| all & (*key == keys[0])) {
                let mut sums = [_mm512_setzero_si512(); 2];
                for start in (0..CHUNK).step_by(LANES) {
                    let numbers = convert.two_numbers(values, start);
                    sums = [_mm512_add_epi64(sums[0], numbers[0]), _mm512_add_epi64(sums[1], numbers[1])];
                }
                let sums = [_mm512_reduce_add_epi64(sums[0]), _mm512_reduce_add_epi64(sums[1])];
                tables[keys[0].index()].add(sums, CHUNK as i64);
            } else {
                convert.add_two::<K, T, 4>(keys, values, tables);
            }
        }),
    }
    convert.fit().and(group::<_, _, _, 2>(last_keys, last_values, unit, Variant::OneTable, tables))
}

/// Turns values into numbers of units and remembers whether they were.
struct Convert {
    start: __m512d,
    /// The same for the upper of two parts.
    upper: __m512d,
    rests: __m512i,
    magnitudes: __m512i,
}

impl Convert {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(unit: i32) -> Self {
        Self {
            start: _mm512_set1_pd(start(unit, 0)),
            upper: _mm512_set1_pd(start(unit, 1)),
            rests: _mm512_setzero_si512(),
            magnitudes: _mm512_setzero_si512(),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fit(&self) -> Fit {
        Fit {
            rest: _mm512_reduce_or_epi64(self.rests).cast_unsigned() << 1,
            magnitudes: _mm512_reduce_or_epi64(self.magnitudes).cast_unsigned(),
        }
    }

    /// Eight values from `from` on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn numbers<T: Value>(&mut self, values: &[T; CHUNK], from: usize) -> __m512i {
        let value = load(values, from);
        let (whole, number) = self.part(value, self.start);
        self.finish(value, whole);
        number
    }

    /// The same in two parts, the upper one first.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn two_numbers<T: Value>(&mut self, values: &[T; CHUNK], from: usize) -> [__m512i; 2] {
        let value = load(values, from);
        let (whole, upper) = self.part(value, self.upper);
        let rest = _mm512_sub_pd(value, whole);
        let (whole, lower) = self.part(rest, self.start);
        self.finish(rest, whole);
        [upper, lower]
    }

    /// The part of values that is in whole units, and how many units.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn part(&mut self, value: __m512d, start: __m512d) -> (__m512d, __m512i) {
        let after = _mm512_add_pd(value, start);
        let number = _mm512_sub_epi64(_mm512_castpd_si512(after), _mm512_castpd_si512(start));
        // magnitudes | (number ^ sign)
        let sign = _mm512_srai_epi64::<63>(number);
        self.magnitudes = _mm512_ternarylogic_epi64::<0xF6>(self.magnitudes, number, sign);
        (_mm512_sub_pd(after, start), number)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn finish(&mut self, value: __m512d, whole: __m512d) {
        // rests | (whole ^ value)
        let (whole, value) = (_mm512_castpd_si512(whole), _mm512_castpd_si512(value));
        self.rests = _mm512_ternarylogic_epi64::<0xF6>(self.rests, whole, value);
    }

    /// A chunk into `TABLES` tables of states of two parts.
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq", enable = "avx2")]
    fn add_two<K: SmallKey, T: Value, const TABLES: usize>(
        &mut self,
        keys: &[K; CHUNK],
        values: &[T; CHUNK],
        tables: &mut [[i64; 4]],
    ) {
        let tables = &mut tables[..TABLES * K::COUNT];
        for (index, keys) in keys.as_chunks::<LANES>().0.iter().enumerate() {
            let [upper, lower] = self.two_numbers(values, index * LANES);
            let even = _mm512_unpacklo_epi64(upper, lower);
            let odd = _mm512_unpackhi_epi64(upper, lower);
            add_two_sums::<K, TABLES, 0>(tables, keys, _mm512_extracti64x2_epi64::<0>(even));
            add_two_sums::<K, TABLES, 1>(tables, keys, _mm512_extracti64x2_epi64::<0>(odd));
            add_two_sums::<K, TABLES, 2>(tables, keys, _mm512_extracti64x2_epi64::<1>(even));
            add_two_sums::<K, TABLES, 3>(tables, keys, _mm512_extracti64x2_epi64::<1>(odd));
            add_two_sums::<K, TABLES, 4>(tables, keys, _mm512_extracti64x2_epi64::<2>(even));
            add_two_sums::<K, TABLES, 5>(tables, keys, _mm512_extracti64x2_epi64::<2>(odd));
            add_two_sums::<K, TABLES, 6>(tables, keys, _mm512_extracti64x2_epi64::<3>(even));
            add_two_sums::<K, TABLES, 7>(tables, keys, _mm512_extracti64x2_epi64::<3>(odd));
        }
    }

    /// A chunk into `TABLES` tables in turn.
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512dq")]
    fn add<K: SmallKey, T: Value, const TABLES: usize>(
        &mut self,
        keys: &[K; CHUNK],
        values: &[T; CHUNK],
        tables: &mut [[i64; 2]],
    ) {
        let tables = &mut tables[..TABLES * K::COUNT];
        let ones = _mm512_set1_epi64(1);
        for (index, keys) in keys.as_chunks::<LANES>().0.iter().enumerate() {
            let numbers = self.numbers(values, index * LANES);
            let even = _mm512_unpacklo_epi64(numbers, ones);
            let odd = _mm512_unpackhi_epi64(numbers, ones);
            add_state::<K, TABLES, 0>(tables, keys, _mm512_extracti64x2_epi64::<0>(even));
            add_state::<K, TABLES, 1>(tables, keys, _mm512_extracti64x2_epi64::<0>(odd));
            add_state::<K, TABLES, 2>(tables, keys, _mm512_extracti64x2_epi64::<1>(even));
            add_state::<K, TABLES, 3>(tables, keys, _mm512_extracti64x2_epi64::<1>(odd));
            add_state::<K, TABLES, 4>(tables, keys, _mm512_extracti64x2_epi64::<2>(even));
            add_state::<K, TABLES, 5>(tables, keys, _mm512_extracti64x2_epi64::<2>(odd));
            add_state::<K, TABLES, 6>(tables, keys, _mm512_extracti64x2_epi64::<3>(even));
            add_state::<K, TABLES, 7>(tables, keys, _mm512_extracti64x2_epi64::<3>(odd));
        }
    }

    /// Up to eight keys, those that come first, have a vector of sums each; other rows go to the table.
    #[inline]
    #[target_feature(enable = "avx512f", enable = "avx512bw", enable = "avx512dq", enable = "popcnt")]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "keys have 8 bits here, masks of vectors as many as lanes"
    )]
    fn few_keys<K: SmallKey, T: Value>(
        &mut self,
        keys: &[[K; CHUNK]],
        values: &[[T; CHUNK]],
        tables: &mut [[i64; 2]],
    ) {
        assert!(size_of::<K>() == 1, "keys have 8 bits");
        let mut few = [0_u8; FEW];
        let mut few_count = 0;
        for key in keys.iter().take(4).flatten().map(|key| key.index() as u8) {
            if few_count < FEW && !few[..few_count].contains(&key) {
                few[few_count] = key;
                few_count += 1;
            }
        }
        let mut sums = [_mm512_setzero_si512(); FEW];
        let mut counts = [0_i64; FEW];
        for (keys, values) in keys.iter().zip(values) {
            // SAFETY: a chunk of keys of 8 bits is a vector.
            let vector = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
            let mut masks = [0_u64; FEW];
            let mut others = u64::MAX;
            for index in 0..FEW {
                // Keys that are not there repeat the first one: their rows are taken already.
                masks[index] = _mm512_cmpeq_epi8_mask(vector, _mm512_set1_epi8(few[index].cast_signed()));
                masks[index] &= others;
                others &= !masks[index];
                counts[index] += i64::from(masks[index].count_ones());
            }
            let mut numbers = [_mm512_setzero_si512(); CHUNK / LANES];
            for (index, numbers) in numbers.iter_mut().enumerate() {
                *numbers = self.numbers(values, index * LANES);
                for (sum, mask) in sums.iter_mut().zip(masks) {
                    *sum = _mm512_mask_add_epi64(*sum, (mask >> (index * LANES)) as u8, *sum, *numbers);
                }
            }
            while others != 0 {
                let row = others.trailing_zeros() as usize;
                others &= others - 1;
                let number = one_of(numbers[row / LANES], row % LANES);
                tables[keys[row].index()].add([number], 1);
            }
        }
        for ((key, sum), count) in few.into_iter().zip(sums).zip(counts) {
            tables[usize::from(key)].add([_mm512_reduce_add_epi64(sum)], count);
        }
    }
}

/// Eight values as doubles.
#[inline]
#[target_feature(enable = "avx512f")]
fn load<T: Value>(values: &[T; CHUNK], from: usize) -> __m512d {
    assert!(T::IS_FLOAT, "integers are grouped elsewhere");
    let source = values[from..from + LANES].as_ptr();
    if size_of::<T>() == size_of::<f64>() {
        // SAFETY: eight values lie there, as the slice above has shown, and `T`, a float, is f64.
        unsafe { _mm512_loadu_pd(source.cast()) }
    } else {
        // SAFETY: as above, and `T` is f32.
        _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(source.cast()) })
    }
}

/// One of eight integers.
#[inline]
#[target_feature(enable = "avx512f")]
fn one_of(numbers: __m512i, lane: usize) -> i64 {
    // SAFETY: both are 64 bytes without invalid values.
    let numbers: [i64; LANES] = unsafe { std::mem::transmute(numbers) };
    numbers[lane]
}

/// Adds the state of the row `ROW` of eight.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_state<K: SmallKey, const TABLES: usize, const ROW: usize>(
    tables: &mut [[i64; 2]],
    keys: &[K; LANES],
    row: __m128i,
) {
    // The caller cut `tables` to a length that the compiler knows, so that nothing is checked here.
    let state: *mut __m128i =
        std::ptr::from_mut(&mut tables[ROW % TABLES * K::COUNT + keys[ROW].index()]).cast();
    // SAFETY: a state is 16 bytes, and `tables` is borrowed for writing.
    let sum = _mm_add_epi64(unsafe { _mm_loadu_si128(state) }, row);
    // SAFETY: as above.
    unsafe { _mm_storeu_si128(state, sum) };
}

/// The same for the two sums of a row and a count of one.
#[inline]
#[target_feature(enable = "avx512f", enable = "avx2")]
fn add_two_sums<K: SmallKey, const TABLES: usize, const ROW: usize>(
    tables: &mut [[i64; 4]],
    keys: &[K; LANES],
    sums: __m128i,
) {
    let row = _mm256_set_m128i(_mm_set_epi64x(0, 1), sums);
    let state: *mut __m256i =
        std::ptr::from_mut(&mut tables[ROW % TABLES * K::COUNT + keys[ROW].index()]).cast();
    // SAFETY: a state is 32 bytes, and `tables` is borrowed for writing.
    let sum = _mm256_add_epi64(unsafe { _mm256_loadu_si256(state) }, row);
    // SAFETY: as above.
    unsafe { _mm256_storeu_si256(state, sum) };
}
