//! The vectorised way into an [`ExactSum`]: 95 GB/s from the second cache, from memory nearly as fast as it reads.
//!
//! Adding x to an accumulator s that is far larger, t = s + x, cuts x in two without error: the part
//! q = t - s that s has bits for, and the rest x - q (Dekker's fast two-sum). While s stays between two
//! powers of two, its last bit is worth the same, so s counts multiples of that worth exactly, as an
//! integer would. The rest goes to a second accumulator of smaller worth, its rest perhaps to a third; the
//! places are fixed powers of two, as in J. Demmel and H. D. Nguyen, "Parallel reproducible summation",
//! IEEE Transactions on Computers 64 (2015). What is new here: when the last rest is zero for every value
//! of a block, which the loop ORs together, the block's sum is not only reproducible but exact, and goes to
//! the [`ExactSum`] as one integer an accumulator. So the work is 3 additions a value and accumulator, no
//! more than the TwoSum of a compensated sum, and the answer is better.
//!
//! A block holds some 16384 values, about 2^10 of them a lane. With values below 2^top and a first accumulator
//! that starts at 1.5 * 2^(top + 12), lanes sum to less than 2^(top + 11) and never leave their power of two.
//! Rests are at most half the last bit, so the next accumulator may lie 41 powers lower. Two cover the bits
//! from 2^top down to 2^(top - 81): full doubles whose sizes differ by 2^28. The window, `top` and the count of
//! accumulators, is guessed from the block before; a block that does not fit is done again with a fitting window
//! (its largest value is known by then), without its outliers when none fits (`outliers.rs`), and float by float when
//! these are too many.
//!
//! Floats of 32 bits have so few bits that a block of them mostly fits one lane of 64-bit integers: they are multiplied
//! by a power of two that makes integers of all of them. That is so if the least of them that is not zero is at least
//! 2^23 then, and it cannot overflow if the greatest is below 2^53: sizes that differ by 2^29. Half the operations of two
//! accumulators, 74 against 59 GB/s from the second cache; AVX-512 only, which has an instruction that makes 64-bit integers of floats.
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

/// Values in a block: with 8192, sums from memory take two in a hundred longer.
const BLOCK: usize = 16384;
/// Values in the first block.
const FIRST_BLOCK: usize = 1024;
/// Chunks in one of its two runs.
const RUN_CHUNKS: usize = BLOCK / CHUNK / 2;
/// Accumulators side by side, so that additions need not wait for each other.
const LANES: usize = 16;
/// Additions to a lane in a block, about, as a power of two; there is room for twice as many.
const HEADROOM: i32 = 10;
const _: () = assert!((BLOCK + 2 * CHUNK) / LANES < 2 << HEADROOM);
/// How far accumulators lie apart.
pub(super) const STEP: i32 = 51 - HEADROOM;
/// Most accumulators a value may need before it is cheaper to add it alone.
pub(super) const MOST_PARTS: u8 = 3;
/// Blocks that are added float by float after one that fitted no window.
const BLOCKS_ALONE: u8 = 7;
/// Blocks of 32-bit floats that are not tried as integers after one that did not fit.
const BLOCKS_UNSCALED: u8 = 7;
/// A window leaves room for larger values to come.
const ROOM: i32 = 3;
/// Exponents that floats of 32 bits must have to be integers, and for sums of a block of them to fit 64 bits.
const SCALED: RangeInclusive<i32> = 23..=52;
const _: () = assert!((BLOCK + AROUND_MAX) / 32 < 1 << (63 - 53), "additions to each of 32 lanes");
/// The largest power of two that floats of 32 bits are multiplied by, or divided.
const SCALE_MAX: i32 = 126;

/// What values of the next block should look like.
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// Values are below 2^top; the first guess suits numbers of all days.
    pub(super) top: i32,
    /// Accumulators a lane; zero before the first block.
    pub(super) parts: u8,
    /// The `top` of the last block that was added without its outliers.
    pub(super) sieve: Option<i32>,
    /// Blocks still to be added so without being tried.
    pub(super) sieved: u8,
    /// Blocks still to be added float by float.
    pub(super) alone: u8,
    /// Times 2^scale, floats of 32 bits are integers; none before the first block.
    pub(super) scale: Option<i32>,
    /// Blocks still to be added without that.
    pub(super) unscaled: u8,
}

impl Window {
    /// Whether there was no block yet.
    fn is_new(self) -> bool {
        self.parts == 0 && self.scale.is_none()
    }

    /// The exponent of the first accumulator.
    pub(super) fn place(self) -> i32 {
        self.top + HEADROOM + 2
    }

    /// The lowest `top` of which all accumulators are normal floats, and the highest.
    pub(super) fn clamp(top: i32) -> i32 {
        top.clamp(-1022 + (i32::from(MOST_PARTS) - 1) * STEP - HEADROOM - 2, 1023 - HEADROOM - 2)
    }
}

/// The values of a block: in two runs, or not.
#[derive(Clone, Copy)]
pub(super) struct BlockRows<'a, T> {
    /// Of the same length; all of them count.
    pub(super) runs: [&'a [[T; CHUNK]]; 2],
    pub(super) rest: &'a [T],
    /// Which of the rest count.
    pub(super) mask: Mask<'a>,
}

/// What a block left.
pub(super) struct Sums<const PARTS: usize> {
    /// Multiples of the last bit of each accumulator.
    pub(super) parts: [i64; PARTS],
    /// Bits of rests; zero when there were none.
    pub(super) rest: u64,
    /// The largest magnitude; NaN is not seen here, but in `rest`.
    pub(super) largest: f64,
}

/// What a block left whose values were multiplied and made integers.
pub(super) struct Scaled {
    pub(super) sum: i128,
    /// The least magnitude that is not zero.
    pub(super) least: f32,
    /// The largest; zero if all are.
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
        // The first guess is often wrong, and its block done again: so that is a small one.
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
        if self.has_outliers() && self.add_sieved(level, rows) {
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
            // Nothing holds infinity and what is too large for any accumulator.
            let top = Window::clamp(exponent(largest) + 1 + ROOM);
            if exponent(largest) >= top || window.parts == MOST_PARTS && (top - window.top).abs() <= ROOM {
                if !self.add_sieved(level, rows) {
                    self.window.alone = BLOCKS_ALONE;
                    add_alone(self);
                }
                return;
            }
            // Where the values lie elsewhere, try there before trying more accumulators.
            if (top - window.top).abs() <= ROOM {
                window.parts += 1;
            } else {
                window.top = top;
            }
        }
    }

    /// Adds a block of 32-bit floats as integers; false, and nothing is added, if their sizes differ by too much or
    /// the CPU has no instruction for that.
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
            // As far from one end as from the other.
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

    /// Adds a block if its window fitted, or else gives its largest magnitude.
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

/// The e of 2^e <= value < 2^(e + 1), at least -1023; 1024 for what is not finite.
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
    /// None where the level has no instruction for it.
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

/// What each accumulator starts at.
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
        // Between the same two powers of two, floats are counted by their bits.
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
            // The first block is a small one, and two follow.
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
