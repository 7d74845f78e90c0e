//! Exact sums of integers.
//!
//! Columns of up to 32 bits are summed in lanes of at least twice their width, emptied before they can
//! overflow. For 64 bits, the sum modulo 2^64 and the sum of the upper halves give the exact sum: what is
//! missing is the sum of the lower halves, which is below 2^64 for 2^32 values, so its residue determines it.
//! Likewise decimals of 128 bits are summed modulo 2^128, with a count of carries and borrows. That takes two
//! more operations a vector, and no check a row: 9 times as fast as 128-bit additions. With AVX-512, 32-bit
//! values are treated as the halves of 64-bit words, and bytes and 16-bit values are first summed in groups
//! of eight and two (`x86.rs`).

#![allow(clippy::cast_possible_truncation, reason = "words are halved on purpose")]

use super::chunks::{CHUNK, Keep, Mask, Rows, for_each_chunk, for_each_piece, keep_plain};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{Bits, Level, Selection};

/// Values that are summed before lanes are emptied.
pub(super) const BLOCK: usize = 1 << 20;
/// Accumulators side by side. With half as many the compiler unrolls the loop instead of vectorising it (30
/// against 229 GB/s).
const LANES: usize = 32;
// A lane of 32 bits has room for 2^16 values of 16 bits; the rows at the end add a few to some lanes.
const _: () = assert!(BLOCK / LANES + 8 < 1 << 16);
/// Added to lanes of alternating lower and upper words: it makes the signed upper word unsigned, too large by
/// 2^63.
const BIAS: [u64; 8] = [0, 1 << 63, 0, 1 << 63, 0, 1 << 63, 0, 1 << 63];

/// An integer of up to 64 bits.
pub trait Integer: Copy + Default + Into<i128> + super::Ordered + sealed::Sealed {}

mod sealed {
    use super::{Level, Rows};

    pub trait Sealed: Sized {
        /// The exact sum of all rows that count.
        fn sum(level: Level, rows: Rows<'_, Self>) -> i128;
    }
}

/// An integer of up to 32 bits.
pub(super) trait Narrow: Integer + crate::sealed::Sealed {
    #[cfg(target_arch = "x86_64")]
    const IS_SIGNED: bool;
    /// The exact sum of at most [`BLOCK`] rows.
    fn block(values: &[Self], mask: Mask<'_>, keep: impl Keep<Self>) -> i128;
}

/// An integer of 64 bits.
pub(super) trait Wide: Integer + crate::sealed::Sealed {
    #[cfg(target_arch = "x86_64")]
    const IS_SIGNED: bool;
    /// The sum modulo 2^64 and that of the upper halves, of at most [`BLOCK`] rows.
    fn halves(values: &[Self], mask: Mask<'_>, keep: impl Keep<Self>) -> [Self; 2];
    /// The sum modulo 2^64.
    fn plus(self, other: Self) -> Self;
    /// The integer of these bits.
    #[cfg(target_arch = "x86_64")]
    fn from_word(word: i64) -> Self;
}

macro_rules! narrow {
    ($($type:ty => $lane:ty),*) => { $(
        impl Integer for $type {}
        impl sealed::Sealed for $type {
            fn sum(level: Level, rows: Rows<'_, Self>) -> i128 {
                let mut sum = 0;
                rows.for_each_block(BLOCK, |rows| sum += block(level, rows));
                sum
            }
        }
        impl Narrow for $type {
            #[cfg(target_arch = "x86_64")]
            const IS_SIGNED: bool = <$type>::MIN != 0;

            #[inline(always)]
            fn block(values: &[Self], mask: Mask<'_>, keep: impl Keep<Self>) -> i128 {
                let mut lanes = [0 as $lane; LANES];
                for_each_chunk(values, mask, 0, keep, |chunk| {
                    for values in chunk.as_chunks::<LANES>().0 {
                        for (lane, value) in lanes.iter_mut().zip(values) {
                            *lane += <$lane>::from(*value);
                        }
                    }
                });
                lanes.into_iter().map(i128::from).sum()
            }
        }
    )* };
}
narrow! { i8 => i32, u8 => u32, i16 => i32, u16 => u32, i32 => i64, u32 => u64 }

macro_rules! wide {
    ($($type:ty),*) => { $(
        impl Integer for $type {}
        impl sealed::Sealed for $type {
            fn sum(level: Level, rows: Rows<'_, Self>) -> i128 {
                let mut sum = 0;
                rows.for_each_block(BLOCK, |rows| {
                    let [residue, upper] = halves(level, rows);
                    let lower = residue.wrapping_sub(upper << 32) as u64;
                    sum += (i128::from(upper) << 32) + i128::from(lower);
                });
                sum
            }
        }
        impl Wide for $type {
            #[cfg(target_arch = "x86_64")]
            const IS_SIGNED: bool = <$type>::MIN != 0;

            #[inline(always)]
            fn halves(values: &[Self], mask: Mask<'_>, keep: impl Keep<Self>) -> [Self; 2] {
                let (mut residues, mut uppers) = ([0 as $type; LANES], [0 as $type; LANES]);
                for_each_chunk(values, mask, 0, keep, |chunk| {
                    for values in chunk.as_chunks::<LANES>().0 {
                        for lane in 0..LANES {
                            residues[lane] = residues[lane].wrapping_add(values[lane]);
                            uppers[lane] += values[lane] >> 32;
                        }
                    }
                });
                [residues.into_iter().fold(0, <$type>::wrapping_add), uppers.into_iter().sum()]
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            fn from_word(word: i64) -> Self {
                word as $type
            }
        }
    )* };
}
wide! { i64, u64 }

kernel! {
    fn block[T: Narrow][T](rows: Rows<'_, T>) -> i128 = block_plain, avx512 = block_wide;
}

#[inline(always)]
fn block_plain<T: Narrow>(rows: Rows<'_, T>) -> i128 {
    rows.columns().map(|(values, mask)| T::block(values, mask, keep_plain)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn block_wide<T: Narrow>(rows: Rows<'_, T>) -> i128 {
    let runs = match rows.runs() {
        Ok(runs) => runs,
        Err((values, mask)) => {
            return T::block(values, mask, |chunk, word, fill| x86::keep(chunk, word, fill));
        }
    };
    let mut sum = x86::narrow(runs.first, runs.second);
    runs.with_around(|chunks| sum += x86::narrow(chunks, &[]));
    sum
}

kernel! {
    fn halves[T: Wide][T](rows: Rows<'_, T>) -> [T; 2] = halves_plain, avx512 = halves_wide;
}

#[inline(always)]
fn halves_plain<T: Wide>(rows: Rows<'_, T>) -> [T; 2] {
    rows.columns().map(|(values, mask)| T::halves(values, mask, keep_plain)).fold(Default::default(), plus)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn halves_wide<T: Wide>(rows: Rows<'_, T>) -> [T; 2] {
    let runs = match rows.runs() {
        Ok(runs) => runs,
        Err((values, mask)) => {
            return T::halves(values, mask, |chunk, word, fill| x86::keep(chunk, word, fill));
        }
    };
    let mut sums = x86::halves(runs.first, runs.second);
    runs.with_around(|chunks| sums = plus(sums, x86::halves(chunks, &[])));
    sums
}

/// Adds both sums modulo 2^64.
#[inline(always)]
fn plus<T: Wide>(left: [T; 2], right: [T; 2]) -> [T; 2] {
    [left[0].plus(right[0]), left[1].plus(right[1])]
}

/// The exact sum of the selected rows that are valid; zero when there are none.
///
/// # Panics
/// When a bitmap has not as many bits as there are values or a row number is out of range.
#[must_use]
pub fn sum<T: Integer>(
    level: Level,
    values: &[T],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
) -> i128 {
    let mut sum = 0;
    for_each_piece(values, validity, selection, |values, mask| sum += T::sum(level, Rows::Of(values, mask)));
    sum
}

/// The exact sum of all rows of two columns. With AVX-512 they are read alternately, which is faster than one
/// after the other if they are in memory and not in a cache.
///
/// # Panics
/// When one column has more rows than the other.
#[must_use]
pub fn sum_two<T: Integer>(level: Level, columns: [&[T]; 2]) -> i128 {
    T::sum(level, Rows::of_two(columns))
}

/// The exact sum of decimals of 128 bits: 192 bits, which 2^64 rows cannot overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecimalSum {
    /// The sum is `upper * 2^128 + lower`.
    lower: u128,
    upper: i64,
}

impl DecimalSum {
    /// Adds the selected rows that are valid.
    ///
    /// # Panics
    /// When a bitmap has not as many bits as there are values or a row number is out of range.
    pub fn add(
        &mut self,
        level: Level,
        values: &[i128],
        validity: Option<Bits<'_>>,
        selection: Selection<'_>,
    ) {
        for_each_piece(values, validity, selection, |values, mask| {
            self.merge(decimals(level, Rows::Of(values, mask)));
        });
    }

    /// Adds all rows of two columns, as in [`sum_two`].
    ///
    /// # Panics
    /// When one column has more rows than the other.
    pub fn add_two(&mut self, level: Level, columns: [&[i128]; 2]) {
        self.merge(decimals(level, Rows::of_two(columns)));
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: Self) {
        let (lower, carry) = self.lower.overflowing_add(other.lower);
        // Wrapping, because [`Self::from_parts`] may have been given any numbers.
        self.upper = self.upper.wrapping_add(other.upper).wrapping_add(i64::from(carry));
        self.lower = lower;
    }

    /// The sum, if it fits 128 bits.
    #[must_use]
    pub fn value(&self) -> Option<i128> {
        let value = self.lower as i128;
        (self.upper == if value < 0 { -1 } else { 0 }).then_some(value)
    }

    /// The sum of which these are the lower 128 bits and the bits above them.
    #[must_use]
    pub fn from_parts(lower: u128, upper: i64) -> Self {
        Self { lower, upper }
    }
}

/// The exact sum of decimals.
#[must_use]
pub fn sum_decimals(
    level: Level,
    values: &[i128],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
) -> DecimalSum {
    let mut sum = DecimalSum::default();
    sum.add(level, values, validity, selection);
    sum
}

kernel! {
    fn decimals(rows: Rows<'_, i128>) -> DecimalSum = decimals_plain, avx512 = decimals_wide;
}

#[inline(always)]
fn decimals_plain(rows: Rows<'_, i128>) -> DecimalSum {
    let mut sum = DecimalSum::default();
    rows.columns().for_each(|(values, mask)| sum.merge(decimals_block(values, mask, keep_plain)));
    sum
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn decimals_wide(rows: Rows<'_, i128>) -> DecimalSum {
    let all = |first: &[[i128; CHUNK]], second: &[[i128; CHUNK]]| {
        let [residues, uppers] = x86::decimals(first, second, &BIAS);
        of_lanes(&residues, &uppers, (first.len() + second.len()) * CHUNK)
    };
    let mut sum = DecimalSum::default();
    rows.for_each_block(BLOCK, |rows| match rows.runs() {
        Ok(runs) => {
            sum.merge(all(runs.first, runs.second));
            runs.with_around(|chunks| sum.merge(all(chunks, &[])));
        }
        Err((values, mask)) => {
            let keep = |chunk: &_, word, fill| x86::keep(chunk, word, fill);
            sum.merge(decimals_block(values, mask, keep));
        }
    });
    sum
}

#[inline(always)]
fn decimals_block(values: &[i128], mask: Mask<'_>, keep: impl Keep<i128>) -> DecimalSum {
    /// 64-bit lanes side by side, for lower and upper words alternately.
    const WORDS: usize = 32;
    let mut sum = DecimalSum::default();
    for (index, values) in values.chunks(BLOCK).enumerate() {
        let mask = mask.slice(index * BLOCK, values.len());
        let (mut residues, mut uppers) = ([0_u64; WORDS], [0_u64; WORDS]);
        let mut chunk_count = 0;
        for_each_chunk(values, mask, 0, &keep, |chunk| {
            chunk_count += 1;
            for words in words(chunk).as_chunks::<WORDS>().0 {
                for lane in 0..WORDS {
                    let word = words[lane] ^ BIAS[lane % BIAS.len()];
                    residues[lane] = residues[lane].wrapping_add(word);
                    uppers[lane] += word >> 32;
                }
            }
        });
        sum.merge(of_lanes(&residues, &uppers, chunk_count * CHUNK));
    }
    sum
}

/// The sum of `value_count` values whose words were summed in lanes after [`BIAS`] was added to each:
/// `residues` are sums modulo 2^64, `uppers` sums of the words' upper halves.
fn of_lanes(residues: &[u64], uppers: &[u64], value_count: usize) -> DecimalSum {
    let mut sum = DecimalSum::default();
    for (lane, (residue, upper)) in residues.iter().zip(uppers).enumerate() {
        let lower = residue.wrapping_sub(upper << 32);
        let words = (i128::from(*upper) << 32) + i128::from(lower);
        // Values that do not count were replaced by zero, which has the bias, too.
        let bias = i128::from(BIAS[lane % BIAS.len()]) * (value_count * 2 / residues.len()) as i128;
        let words = words - bias;
        let is_upper = lane % 2 == 1;
        sum.merge(DecimalSum {
            lower: if is_upper { (words << 64) as u128 } else { words as u128 },
            upper: if is_upper { (words >> 64) as i64 } else { 0 },
        });
    }
    sum
}

/// The lower and the upper word of each value, alternately.
#[inline(always)]
fn words(chunk: &[i128; CHUNK]) -> &[u64; 2 * CHUNK] {
    const { assert!(cfg!(target_endian = "little"), "columns are little endian, as Arrow has them") };
    // SAFETY: the same bytes; u64 asks for less alignment and has no invalid values.
    unsafe { &*std::ptr::from_ref(chunk).cast() }
}
