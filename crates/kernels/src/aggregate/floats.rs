//! The vectorised way into an [`ExactSum`]: 70 GB/s from the second cache, from memory nearly as fast as it reads.
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
//! (its largest value is known by then), and float by float when none fits.
//!
//! Multiplying by an opaque 1.0 lets half of the additions run on the multipliers, which are idle: 98
//! against 70 GB/s.

#![allow(clippy::cast_possible_truncation, reason = "parts are at most three")]

use std::hint::black_box;

use super::chunks::{CHUNK, Mask, Runs, for_each_piece, keep_plain, runs};
use super::exact::{ExactSum, power_of_two};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{Bits, Level, Selection};

/// Values in a block: with 8192, sums from memory take two in a hundred longer.
const BLOCK: usize = 16384;
/// Chunks in one of its two runs.
const RUN_CHUNKS: usize = BLOCK / CHUNK / 2;
/// Accumulators side by side, so that additions need not wait for each other.
const LANES: usize = 16;
/// Additions to a lane in a block, about, as a power of two; there is room for twice as many.
const HEADROOM: i32 = 10;
const _: () = assert!((BLOCK + 2 * CHUNK) / LANES < 2 << HEADROOM);
/// How far accumulators lie apart.
const STEP: i32 = 51 - HEADROOM;
/// Most accumulators a value may need before it is cheaper to add it alone.
const MOST_PARTS: u8 = 3;
/// Blocks that are added float by float after one that fitted no window.
const BLOCKS_ALONE: u8 = 7;
/// A window leaves room for larger values to come.
const ROOM: i32 = 3;

/// What values of the next block should look like.
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// Values are below 2^top; the first guess suits numbers of all days.
    top: i32,
    /// Accumulators a lane; zero before the first block.
    parts: u8,
    /// Blocks still to be added float by float.
    alone: u8,
}

impl Window {
    /// The exponent of the first accumulator.
    fn place(self) -> i32 {
        self.top + HEADROOM + 2
    }

    /// The lowest `top` of which all accumulators are normal floats, and the highest.
    fn clamp(top: i32) -> i32 {
        top.clamp(-1022 + (i32::from(MOST_PARTS) - 1) * STEP - HEADROOM - 2, 1023 - HEADROOM - 2)
    }
}

/// The values of a block, and a chunk or two more.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
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

/// f32 or f64.
pub trait Float: Copy + Default + Into<f64> + super::Ordered + sealed::Sealed {}
impl Float for f32 {}
impl Float for f64 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

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
            if !matches!(mask, Mask::All) {
                for (index, values) in values.chunks(BLOCK).enumerate() {
                    let mask = mask.slice(index * BLOCK, values.len());
                    self.add_block(level, Rows { runs: [&[]; 2], rest: values, mask });
                }
                return;
            }
            let Runs { head, first, second, tail } = runs(values);
            self.add_alone(head, mask);
            let blocks = first.len().div_ceil(RUN_CHUNKS).max(1);
            for block in 0..blocks {
                let place = block * RUN_CHUNKS..first.len().min((block + 1) * RUN_CHUNKS);
                let rest = if block + 1 == blocks { tail } else { &[] };
                self.add_block(level, Rows { runs: [&first[place.clone()], &second[place]], rest, mask });
            }
        });
    }

    fn add_block<T: Float>(&mut self, level: Level, rows: Rows<'_, T>) {
        let mut window = self.window;
        if rows.runs[0].is_empty() && rows.rest.len() < CHUNK {
            return self.add_alone(rows.rest, rows.mask);
        }
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
            // Infinity and what is too large for any accumulator is added alone.
            let top = Window::clamp(exponent(largest) + 1 + ROOM);
            if exponent(largest) >= top || window.parts == MOST_PARTS && (top - window.top).abs() <= ROOM {
                self.window.alone = BLOCKS_ALONE;
                return add_alone(self);
            }
            // Where the values lie elsewhere, try there before trying more accumulators.
            if (top - window.top).abs() <= ROOM {
                window.parts += 1;
            } else {
                window.top = top;
            }
        }
    }

    /// Adds a block if its window fitted, or else gives its largest magnitude.
    fn try_block<const PARTS: usize>(&mut self, window: Window, sums: Sums<PARTS>) -> Result<(), f64> {
        if sums.rest << 1 != 0 || exponent(sums.largest) >= window.top {
            return Err(sums.largest);
        }
        for (part, number) in sums.parts.into_iter().enumerate() {
            let last_bit = window.place() - STEP * part as i32 - 52;
            self.push_scaled(number, usize::try_from(last_bit + 1074).expect("accumulators are normal"));
        }
        Ok(())
    }

    fn add_alone<T: Float>(&mut self, values: &[T], mask: Mask<'_>) {
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
fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7FF) as i32 - 1023
}

macro_rules! blocks {
    ($($name:ident $parts:literal)*) => { $(
        kernel! {
            fn $name[T: Float][T](rows: Rows<'_, T>, top: i32) -> Sums<$parts> = block_plain,
                avx2 = block_fused, avx512 = x86::block;
        }
    )* };
}
blocks! { block1 1 block2 2 block3 3 }

#[inline(always)]
fn block_plain<T: Float, const PARTS: usize>(rows: Rows<'_, T>, top: i32) -> Sums<PARTS> {
    block::<T, PARTS, false>(rows, top)
}

#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn block_fused<T: Float, const PARTS: usize>(rows: Rows<'_, T>, top: i32) -> Sums<PARTS> {
    block::<T, PARTS, true>(rows, top)
}

/// What each accumulator starts at.
#[inline(always)]
pub(super) fn starts<const PARTS: usize>(top: i32) -> [f64; PARTS] {
    let first = Window { top, ..Window::default() }.place();
    std::array::from_fn(|part| 1.5 * power_of_two(first - STEP * part as i32))
}

#[inline(always)]
fn block<T: Float, const PARTS: usize, const FUSED: bool>(rows: Rows<'_, T>, top: i32) -> Sums<PARTS> {
    let starts = starts::<PARTS>(top);
    let mut lanes = Lanes {
        sums: starts.map(|start| [start; LANES]),
        rests: [0; LANES],
        largest: [0.0; LANES],
        one: black_box(1.0),
    };
    let Rows { runs: [first, second], rest, mask } = rows;
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
