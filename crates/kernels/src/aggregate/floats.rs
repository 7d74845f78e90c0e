//! The vectorised addition to an [`ExactSum`]: 95 GB/s from the second-level cache, from memory nearly at
//! full bandwidth.
//!
//! Adding x to an accumulator s that is far larger, t = s + x, splits x in two without error: the part
//! `q = t - s` for which s has bits, and the rest x - q (Dekker's fast two-sum). While s stays between two powers of
//! two, its last bit is worth the same, so s counts multiples of that worth exactly, as an integer would. The
//! rest goes to a second accumulator of smaller worth, and its rest perhaps to a third; the places are fixed
//! powers of two, as in J. Demmel and H. D. Nguyen, "Parallel reproducible summation", IEEE Transactions on
//! Computers 64 (2015). What is new here: when the last rest is zero for every value of a block, which the
//! loop detects by ORing the rests together, the block's sum is not only reproducible but exact, and each
//! accumulator is added to the [`ExactSum`] as one integer. So the work is 3 additions a value and
//! accumulator, no more than the TwoSum of a compensated sum, and the answer is better.
//!
//! A block holds some 31 thousand values, fewer than 2^11 in each lane. With values below 2^top and a first accumulator
//! that starts at 1.5 * 2^(top + 12), lanes sum to less than 2^(top + 11) and never leave their power of two.
//! Rests are at most half the last bit, so the next accumulator may lie 41 powers lower. Two cover the bits
//! from 2^top down to 2^(top - 81): full doubles whose sizes differ by 2^28. The window, which is `top` and
//! the count of accumulators, is guessed from the previous block. A block that does not fit is added again
//! with a fitting window (its largest value is known by then); without its outliers if no window fits
//! (`outliers.rs`); and float by float if there are too many outliers.
//!
//! Floats of 32 bits have so few bits that a block of them mostly fits lanes of 64-bit integers: they are
//! multiplied by a power of two that makes all of them integers. That is so if the smallest nonzero product
//! is at least 2^23, and sums cannot overflow if the largest is below 2^53: sizes may differ by 2^29. This
//! takes half the operations of two accumulators, 74 against 59 GB/s from the second-level cache; AVX-512
//! only, which has an instruction to convert floats to 64-bit integers.
//!
//! Multiplying by an opaque 1.0 lets half of the additions run on the multipliers, which are idle: 98
//! against 70 GB/s.

#![allow(clippy::cast_possible_truncation, reason = "parts are at most three")]

use std::hint::black_box;
use std::ops::RangeInclusive;

use super::chunks::{AROUND_MAX, CHUNK, Mask, Rows, for_each_piece, keep_plain};
use super::exact::{ExactSum, power_of_two};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{Bits, Level, Selection};

/// Values in a block, nearly the most for which lanes have room: with half as many, sums from memory take 5 %
/// longer.
const BLOCK: usize = 31 << 10;
/// Values in the first block.
const FIRST_BLOCK: usize = 1024;
/// Chunks in one of its two runs.
const RUN_CHUNKS: usize = BLOCK / CHUNK / 2;
/// Accumulators side by side, so that additions need not wait for each other.
const LANES: usize = 16;
/// More than the number of additions to a lane in a block, as a power of two.
const HEADROOM: i32 = 11;
const _: () = assert!((BLOCK + 2 * CHUNK) / LANES < 1 << HEADROOM);
/// The distance between accumulators, as a power of two.
pub(super) const STEP: i32 = 52 - HEADROOM;
/// The most accumulators; a value that needs more is cheaper to add alone.
pub(super) const MOST_PARTS: u8 = 3;
/// Blocks that are added float by float after a block that fitted no window.
const BLOCKS_ALONE: u8 = 7;
/// Blocks of 32-bit floats that are not tried as integers after a block that did not fit.
const BLOCKS_UNSCALED: u8 = 7;
/// The powers of two that a window leaves above the largest value, for larger ones to come.
const ROOM: i32 = 3;
/// The exponents that 32-bit floats may have after scaling: they are integers, and sums of a block of them
/// fit 64 bits.
const SCALED: RangeInclusive<i32> = 23..=52;
const _: () = assert!((BLOCK + AROUND_MAX) / 32 < 1 << (63 - 53), "additions to each of 32 lanes");
/// The largest power of two by which 32-bit floats are multiplied or divided.
const SCALE_MAX: i32 = 126;

/// What values of the next block should look like.
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// Values are below 2^top; the initial guess suits everyday numbers.
    pub(super) top: i32,
    /// Accumulators a lane; zero before the first block.
    pub(super) parts: u8,
    /// The `top` of the last block that was added without its outliers.
    pub(super) outlier_top: Option<i32>,
    /// Blocks still to be added without outliers at once, before the whole block is tried again.
    pub(super) blocks_with_outliers: u8,
    /// Blocks still to be added float by float.
    pub(super) alone: u8,
    /// 32-bit floats times 2^scale are integers; `None` before the first block.
    pub(super) scale: Option<i32>,
    /// Blocks of 32-bit floats still to be added without scaling.
    pub(super) unscaled: u8,
}

impl Window {
    /// Whether no block was added yet.
    fn is_new(self) -> bool {
        self.parts == 0 && self.scale.is_none()
    }

    /// The exponent of the first accumulator.
    pub(super) fn place(self) -> i32 {
        self.top + HEADROOM + 1
    }

    /// `top` limited to the range in which all accumulators are normal floats.
    pub(super) fn clamp(top: i32) -> i32 {
        top.clamp(-1022 + (i32::from(MOST_PARTS) - 1) * STEP - HEADROOM - 1, 1023 - HEADROOM - 1)
    }
}

/// The values of a block: two runs, and the rest.
#[derive(Clone, Copy)]
pub(super) struct BlockRows<'a, T> {
    /// Runs of the same length, in which all values count.
    pub(super) runs: [&'a [[T; CHUNK]]; 2],
    pub(super) rest: &'a [T],
    /// Which values of `rest` count.
    pub(super) mask: Mask<'a>,
}

/// The result of adding a block.
pub(super) struct Sums<const PARTS: usize> {
    /// The sum in each accumulator, in multiples of its last bit.
    pub(super) parts: [i64; PARTS],
    /// The last rests ORed together; zero if the sum is exact.
    pub(super) rest: u64,
    /// The largest magnitude; a NaN does not show here, but in `rest`.
    pub(super) largest: f64,
}

/// The result of adding a block that was scaled to integers.
pub(super) struct Scaled {
    pub(super) sum: i128,
    /// The smallest nonzero magnitude.
    pub(super) least: f32,
    /// The largest magnitude; zero if all values are zero.
    pub(super) largest: f32,
}

/// f32 or f64.
pub trait Float: Copy + Default + Into<f64> + super::Ordered + crate::sealed::Sealed {}
impl Float for f32 {}
impl Float for f64 {}

impl ExactSum {
    /// Adds the selected rows that are valid.
    ///
    /// # Panics
    /// When a bitmap has not as many bits as there are values or a row number is out of range.
    pub fn add<T: Float>(
        &mut self,
        level: Level,
        values: &[T],
        validity: Option<Bits<'_>>,
        selection: Selection<'_>,
    ) {
        for_each_piece(values, validity, selection, |values, mask| {
            self.add_rows(level, Rows::Of(values, mask));
        });
    }

    /// Adds all rows of two columns, as in [`sum_two`](super::sum_two).
    ///
    /// # Panics
    /// When one column has more rows than the other.
    pub fn add_two<T: Float>(&mut self, level: Level, columns: [&[T]; 2]) {
        self.add_rows(level, Rows::of_two(columns));
    }

    fn add_rows<T: Float>(&mut self, level: Level, mut rows: Rows<'_, T>) {
        // The first guess is often wrong, and the block added again, so the first block is small.
        if self.window.is_new() {
            let [first, rest] = rows.split_at(FIRST_BLOCK);
            first.columns().for_each(|(rest, mask)| {
                self.add_block(level, BlockRows { runs: [&[]; 2], rest, mask });
            });
            rows = rest;
        }
        let Some(runs) = rows.runs().ok().filter(|runs| !runs.second.is_empty()) else {
            rows.for_each_block(BLOCK, |rows| {
                for (rest, mask) in rows.columns() {
                    self.add_block(level, BlockRows { runs: [&[]; 2], rest, mask });
                }
            });
            return;
        };
        let blocks = runs.first.chunks(RUN_CHUNKS).zip(runs.second.chunks(RUN_CHUNKS));
        for (first, second) in blocks {
            self.add_block(level, BlockRows { runs: [first, second], rest: &[], mask: Mask::All });
        }
        runs.with_around(|chunks| {
            self.add_block(level, BlockRows { runs: [&[]; 2], rest: chunks.as_flattened(), mask: Mask::All });
        });
    }

    fn add_block<T: Float>(&mut self, level: Level, rows: BlockRows<'_, T>) {
        if rows.runs[0].is_empty() && rows.rest.len() < CHUNK {
            return self.add_alone(rows.rest, rows.mask);
        }
        if self.has_outliers() && self.add_without_outliers(level, rows) {
            return;
        }
        if size_of::<T>() == size_of::<f32>() && self.add_scaled(level, rows) {
            return;
        }
        let mut window = self.window;
        let add_alone = |sum: &mut Self| {
            rows.runs.iter().for_each(|run| sum.add_alone(run.as_flattened(), Mask::All));
            sum.add_alone(rows.rest, rows.mask);
        };
        if window.alone > 0 {
            self.window.alone -= 1;
            return add_alone(self);
        }
        window.parts = window.parts.max(1);
        loop {
            let largest = match window.parts {
                1 => self.try_block(window, block1(level, rows, window.top)),
                2 => self.try_block(window, block2(level, rows, window.top)),
                _ => self.try_block(window, block3(level, rows, window.top)),
            };
            let Err(largest) = largest else {
                self.window = window;
                return;
            };
            // No window holds infinity, or values too large for any accumulator.
            let top = Window::clamp(exponent(largest) + 1 + ROOM);
            if exponent(largest) >= top || window.parts == MOST_PARTS && (top - window.top).abs() <= ROOM {
                if !self.add_without_outliers(level, rows) {
                    self.window.alone = BLOCKS_ALONE;
                    add_alone(self);
                }
                return;
            }
            // If the values have another size, the window moves before it gets more accumulators.
            if (top - window.top).abs() <= ROOM {
                window.parts += 1;
            } else {
                window.top = top;
            }
        }
    }

    /// Adds a block of 32-bit floats as integers. False, with nothing added, if their sizes differ too much
    /// or the CPU has no instruction for it.
    fn add_scaled<T: Float>(&mut self, level: Level, rows: BlockRows<'_, T>) -> bool {
        if self.window.unscaled > 0 {
            self.window.unscaled -= 1;
            return false;
        }
        for _ in 0..2 {
            let scale = self.window.scale.unwrap_or(0);
            let Some(Scaled { sum, least, largest }) = scaled(level, rows, power_of_two(scale)) else {
                return false;
            };
            if largest == 0.0 {
                return true;
            }
            let [least, largest] = [least, largest].map(|value| exponent(value.into()));
            if least + scale >= *SCALED.start() && largest + scale <= *SCALED.end() {
                self.push_wide(sum, -scale);
                return true;
            }
            // With equal room at both ends.
            let room = SCALED.end() - SCALED.start() - (largest - least);
            let scale = SCALED.start() - least + room / 2;
            if room < 0 || scale.abs() > SCALE_MAX {
                break;
            }
            self.window.scale = Some(scale);
        }
        self.window.unscaled = BLOCKS_UNSCALED;
        false
    }

    /// Adds a block if its window fits; else returns its largest magnitude.
    pub(super) fn try_block<const PARTS: usize>(
        &mut self,
        window: Window,
        sums: Sums<PARTS>,
    ) -> Result<(), f64> {
        if sums.rest << 1 != 0 || exponent(sums.largest) >= window.top {
            return Err(sums.largest);
        }
        for (part, number) in sums.parts.into_iter().enumerate() {
            let last_bit = window.place() - STEP * part as i32 - 52;
            self.push_scaled(number, usize::try_from(last_bit + 1074).expect("accumulators are normal"));
        }
        Ok(())
    }

    pub(super) fn add_alone<T: Float>(&mut self, values: &[T], mask: Mask<'_>) {
        for (index, values) in values.chunks(CHUNK).enumerate() {
            let word = mask.word(index);
            for (bit, value) in values.iter().enumerate() {
                if word & (1 << bit) != 0 {
                    self.push((*value).into());
                }
            }
        }
    }
}

/// The e of 2^e <= value < 2^(e + 1), at least -1023; 1024 for infinity and NaN.
#[inline(always)]
pub(super) fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7FF) as i32 - 1023
}

macro_rules! blocks {
    ($($name:ident $parts:literal)*) => { $(
        kernel! {
            pub(super) fn $name[T: Float][T](rows: BlockRows<'_, T>, top: i32) -> Sums<$parts> = block_plain,
                avx2 = block_fused, avx512 = x86::block;
        }
    )* };
}
blocks! { block1 1 block2 2 block3 3 }

kernel! {
    /// `None` where the level has no instruction for it.
    fn scaled[T: Float][T](rows: BlockRows<'_, T>, factor: f64) -> Option<Scaled> = scaled_plain,
        avx512 = x86::scaled;
}

#[inline(always)]
fn scaled_plain<T: Float>(_: BlockRows<'_, T>, _: f64) -> Option<Scaled> {
    None
}

#[inline(always)]
fn block_plain<T: Float, const PARTS: usize>(rows: BlockRows<'_, T>, top: i32) -> Sums<PARTS> {
    block::<T, PARTS, false>(rows, top)
}

#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn block_fused<T: Float, const PARTS: usize>(rows: BlockRows<'_, T>, top: i32) -> Sums<PARTS> {
    block::<T, PARTS, true>(rows, top)
}

/// The initial value of each accumulator.
#[inline(always)]
pub(super) fn starts<const PARTS: usize>(top: i32) -> [f64; PARTS] {
    let first = Window { top, ..Window::default() }.place();
    std::array::from_fn(|part| 1.5 * power_of_two(first - STEP * part as i32))
}

#[inline(always)]
fn block<T: Float, const PARTS: usize, const FUSED: bool>(rows: BlockRows<'_, T>, top: i32) -> Sums<PARTS> {
    let starts = starts::<PARTS>(top);
    let mut lanes = Lanes {
        sums: starts.map(|start| [start; LANES]),
        rests: [0; LANES],
        largest: [0.0; LANES],
        one: black_box(1.0),
    };
    let BlockRows { runs: [first, second], rest, mask } = rows;
    for (first, second) in first.iter().zip(second) {
        lanes.add::<T, FUSED>(first);
        lanes.add::<T, FUSED>(second);
    }
    let (chunks, tail) = rest.as_chunks::<CHUNK>();
    for (index, chunk) in chunks.iter().enumerate() {
        match mask {
            Mask::All => lanes.add::<T, FUSED>(chunk),
            mask => lanes.add::<T, FUSED>(&keep_plain(chunk, mask.word(index), T::default())),
        }
    }
    if !tail.is_empty() {
        let mut chunk = [T::default(); CHUNK];
        chunk[..tail.len()].copy_from_slice(tail);
        lanes.add::<T, FUSED>(&keep_plain(&chunk, mask.word(chunks.len()), T::default()));
    }
    let mut parts = [0_i64; PARTS];
    for ((part, sums), start) in parts.iter_mut().zip(&lanes.sums).zip(starts) {
        // Between two powers of two, the bits of floats count multiples of the last bit.
        *part = sums
            .iter()
            .map(|sum| sum.to_bits().wrapping_sub(start.to_bits()).cast_signed())
            .fold(0, i64::wrapping_add);
    }
    Sums {
        parts,
        rest: lanes.rests.into_iter().fold(0, |all, rest| all | rest),
        largest: lanes.largest.into_iter().fold(0.0, f64::max),
    }
}

/// The accumulators of a block.
struct Lanes<const PARTS: usize> {
    sums: [[f64; LANES]; PARTS],
    rests: [u64; LANES],
    largest: [f64; LANES],
    one: f64,
}

impl<const PARTS: usize> Lanes<PARTS> {
    #[inline(always)]
    fn add<T: Float, const FUSED: bool>(&mut self, chunk: &[T; CHUNK]) {
        for values in chunk.as_chunks::<LANES>().0 {
            for (lane, value) in values.iter().enumerate() {
                let value: f64 = (*value).into();
                let mut rest = value;
                for part in 0..PARTS {
                    let before = self.sums[part][lane];
                    let after = if FUSED { rest.mul_add(self.one, before) } else { before + rest };
                    self.sums[part][lane] = after;
                    let part = after - before;
                    rest = if FUSED { (-part).mul_add(self.one, rest) } else { rest - part };
                }
                self.rests[lane] |= rest.to_bits();
                let magnitude = value.abs();
                self.largest[lane] =
                    if magnitude > self.largest[lane] { magnitude } else { self.largest[lane] };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes blocks of full size")]
    fn a_block_that_did_not_fit_is_not_tried_as_integers_for_a_while() {
        let mut sum = ExactSum::default();
        let wide: Vec<f32> = (0..2 * BLOCK).map(|row| if row % 2 == 0 { 1.0 } else { 1e-20 }).collect();
        for level in Level::available() {
            sum.window = Window::default();
            sum.add(*level, &wide, None, Selection::All);
            // The first block is small, and two blocks follow.
            let expected = if scaled_is_there(*level) { BLOCKS_UNSCALED - 2 } else { 0 };
            assert_eq!(sum.window.unscaled, expected, "{level}");
            let ones = vec![1.0_f32; usize::from(BLOCKS_UNSCALED) * BLOCK];
            sum.add(*level, &ones, None, Selection::All);
            assert_eq!(
                (sum.window.unscaled, sum.window.scale.is_some()),
                (0, scaled_is_there(*level)),
                "{level}"
            );
        }
    }

    fn scaled_is_there(level: Level) -> bool {
        let rows = BlockRows { runs: [&[]; 2], rest: &[1.0_f32], mask: Mask::All };
        scaled(level, rows, 1.0).is_some()
    }
}
