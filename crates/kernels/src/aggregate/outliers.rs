//! Values that prevent the addition of a block in a window: those that are not finite, and those far from all
//! others.
//!
//! One NaN among 16,384 prices fits no window, and adding all values one by one takes 200 times as long. So a
//! block that does not fit is copied, piece by piece, with zeros in place of such values. The copy always
//! fits three accumulators; of the values left out, those that are not finite are summed beside it, and
//! finite ones go to [`ExactSum::push`]. The copy is made in the first-level cache, and blocks after one with
//! outliers are copied without being tried first. So the cost is that of the outliers, plus at most two more
//! passes a block.

use super::chunks::{CHUNK, Mask};
use super::exact::ExactSum;
use super::floats::{BlockRows, Float, MOST_PARTS, STEP, Window, block3, exponent};
use crate::Level;
use crate::bitmaps::pack_flags;

/// Rows that are copied at a time.
const PIECE: usize = 2048;
/// Blocks that are copied without being tried after a block with outliers.
const BLOCKS_WITH_OUTLIERS: u8 = 7;
/// A window that leaves out more than 1/8 of the values is the wrong one.
const MOST_OUTLIERS: usize = 8;
/// Values from which a window is guessed.
const SAMPLE: usize = 64;
/// Lanes for sums of non-finite values.
const LANES: usize = 16;

/// The values that fit a window without a rest: from 2^lowest to below 2^highest, and zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordinary {
    lowest: i32,
    highest: i32,
}

impl Ordinary {
    /// The values of a window with the most accumulators.
    fn of(window: Window) -> Self {
        // A double whose highest bit is worth 2^lowest has its last bit at that of the last accumulator.
        let lowest = window.place() - STEP * (i32::from(MOST_PARTS) - 1);
        Self { lowest, highest: window.top }
    }

    #[inline(always)]
    fn has(self, value: f64) -> bool {
        let above = exponent(value).wrapping_sub(self.lowest).cast_unsigned();
        above < self.highest.wrapping_sub(self.lowest).cast_unsigned() || value == 0.0
    }
}

/// The values that were left out of a copy.
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    /// The sum of the values that are not finite.
    special: f64,
    /// A bit for each row with a finite outlier.
    outliers: [u64; PIECE / CHUNK],
}

impl ExactSum {
    /// Whether the next block is to be added by [`ExactSum::add_without_outliers`] without being tried whole.
    pub(super) fn has_outliers(&self) -> bool {
        self.window.blocks_with_outliers > 0
    }

    /// Adds a block without its outliers, and these one by one. False, with nothing added, if there are too
    /// many.
    pub(super) fn add_without_outliers<T: Float>(&mut self, level: Level, rows: BlockRows<'_, T>) -> bool {
        let Some(window) = self.fitting_most(level, rows) else {
            self.window.blocks_with_outliers = 0;
            return false;
        };
        let mut has_left_out = false;
        for (values, mask) in slices(rows) {
            for (index, values) in values.chunks(PIECE).enumerate() {
                has_left_out |=
                    self.add_piece(level, window, values, mask.slice(index * PIECE, values.len()));
            }
        }
        self.window.outlier_top = Some(window.top);
        self.window.blocks_with_outliers = if has_left_out { BLOCKS_WITH_OUTLIERS } else { 0 };
        true
    }

    /// Adds a piece; returns whether it had outliers.
    fn add_piece<T: Float>(&mut self, level: Level, window: Window, values: &[T], mask: Mask<'_>) -> bool {
        let mut copy = [T::default(); PIECE];
        let LeftOut { special, outliers } =
            split_outliers(level, values, mask, Ordinary::of(window), &mut copy);
        let rest = &copy[..values.len()];
        let block = BlockRows { runs: [&[]; 2], rest, mask: Mask::All };
        let added = self.try_block(window, block3(level, block, window.top));
        debug_assert!(added.is_ok(), "ordinary values fit");
        if added.is_err() {
            self.add_alone(rest, Mask::All);
        }
        if special != 0.0 {
            self.push(special);
        }
        let mut has_outliers = special != 0.0;
        for (values, word) in values.chunks(CHUNK).zip(outliers) {
            let mut rest = word;
            while rest != 0 {
                self.push(values[rest.trailing_zeros() as usize].into());
                rest &= rest - 1;
                has_outliers = true;
            }
        }
        has_outliers
    }

    /// A window with the most accumulators that nearly all finite values fit: the one that fitted before, or
    /// one around the median values, or one below the largest.
    fn fitting_most<T: Float>(&self, level: Level, rows: BlockRows<'_, T>) -> Option<Window> {
        let row_count: usize = slices(rows).map(|(values, _)| values.len()).sum();
        let fits_most = |top: i32| {
            let window = Window { top, parts: MOST_PARTS, ..Window::default() };
            let ordinary = Ordinary::of(window);
            let outliers = slices(rows)
                .map(|(values, mask)| count_outliers(level, values, mask, ordinary))
                .sum::<usize>();
            (outliers * MOST_OUTLIERS <= row_count).then_some(window)
        };
        let known = self.window.outlier_top.or((self.window.parts > 0).then_some(self.window.top));
        if let Some(window) = known.and_then(fits_most) {
            return Some(window);
        }
        let values = slices(rows).flat_map(|(values, _)| values);
        let ordinary = values.map(|value| (*value).into()).filter(|value| value.is_finite() && *value != 0.0);
        let mut exponents: Vec<i32> = ordinary.take(SAMPLE).map(exponent).collect();
        exponents.sort_unstable();
        // All values are zero or not finite.
        let Some(last) = exponents.last() else { return fits_most(0) };
        let Ordinary { lowest, highest } = Ordinary::of(Window::default());
        let around_middle = exponents[exponents.len() / 2] + (highest - lowest) / 2;
        [around_middle, last + 1].into_iter().find_map(|top| fits_most(Window::clamp(top)))
    }
}

/// The rows of a block as contiguous slices with their masks.
fn slices<'a, T>(rows: BlockRows<'a, T>) -> impl Iterator<Item = (&'a [T], Mask<'a>)> {
    let BlockRows { runs: [first, second], rest, mask } = rows;
    [(first.as_flattened(), Mask::All), (second.as_flattened(), Mask::All), (rest, mask)].into_iter()
}

kernel! {
    /// Copies the rows that count and are ordinary, with zeros for the others.
    fn split_outliers[T: Float][T](values: &[T], mask: Mask<'_>, ordinary: Ordinary, copy: &mut [T; PIECE]) -> LeftOut
        = split_outliers_plain;
}

#[inline(always)]
fn split_outliers_plain<T: Float>(
    values: &[T],
    mask: Mask<'_>,
    ordinary: Ordinary,
    copy: &mut [T; PIECE],
) -> LeftOut {
    let mut specials = [0.0; LANES];
    let mut outliers = [0; PIECE / CHUNK];
    let copies = copy.as_chunks_mut::<CHUNK>().0;
    for (index, (values, copy)) in values.chunks(CHUNK).zip(copies).enumerate() {
        let mut chunk = [T::default(); CHUNK];
        chunk[..values.len()].copy_from_slice(values);
        let mut are_outliers = [false; CHUNK];
        for ((value, copy), is_outlier) in chunk.iter().zip(copy.iter_mut()).zip(&mut are_outliers) {
            let double: f64 = (*value).into();
            let is_ordinary = ordinary.has(double);
            *copy = if is_ordinary { *value } else { T::default() };
            *is_outlier = !is_ordinary;
        }
        let counted = mask.word(index);
        // Most chunks have no outliers, and are handled as a whole.
        let word = pack_flags(&are_outliers) & counted;
        outliers[index] = word;
        if counted != u64::MAX {
            for (row, copy) in copy.iter_mut().enumerate() {
                *copy = if counted >> row & 1 == 1 { *copy } else { T::default() };
            }
        }
        if word != 0 {
            let mut finite = 0;
            for (row, value) in chunk.iter().enumerate() {
                let double: f64 = (*value).into();
                let is_special = word >> row & 1 == 1 && !double.is_finite();
                specials[row % LANES] += if is_special { double } else { 0.0 };
                finite |= u64::from(double.is_finite()) << row;
            }
            outliers[index] = word & finite;
        }
    }
    LeftOut { special: specials.into_iter().sum(), outliers }
}

kernel! {
    /// The number of rows that count and have a finite value outside `ordinary`.
    fn count_outliers[T: Float][T](values: &[T], mask: Mask<'_>, ordinary: Ordinary) -> usize
        = count_outliers_plain;
}

#[inline(always)]
fn count_outliers_plain<T: Float>(values: &[T], mask: Mask<'_>, ordinary: Ordinary) -> usize {
    let mut count = 0;
    for (index, values) in values.chunks(CHUNK).enumerate() {
        let mut chunk = [T::default(); CHUNK];
        chunk[..values.len()].copy_from_slice(values);
        let are_outliers = chunk.map(|value| {
            let double: f64 = value.into();
            !ordinary.has(double) && double.is_finite()
        });
        count += (pack_flags(&are_outliers) & mask.word(index)).count_ones() as usize;
    }
    count
}

#[cfg(test)]
mod tests {
    use keirin_testkit::columns::{Random, miri_or};

    use super::*;
    use crate::Selection;

    const ROWS: usize = miri_or(300, 100_000);

    /// Sums with outliers are exact, and no block is added value by value.
    fn check(outlier: impl Fn(&mut Random) -> f64, share: f64) {
        let mut random = Random::new(5);
        let value = |random: &mut Random| {
            if random.chance(share) { outlier(random) } else { random.below(20_000_000) as f64 / 100.0 }
        };
        let values: Vec<f64> = (0..ROWS).map(|_| value(&mut random)).collect();
        #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
        let narrow: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        for level in Level::available() {
            let (mut sum, mut expected) = (ExactSum::default(), ExactSum::default());
            sum.add(*level, &values, None, Selection::All);
            expected.extend(values.iter().copied());
            assert_eq!(sum, expected, "{level}");
            assert_eq!(sum.window.alone, 0, "{level}: blocks are added value by value");
            let (mut sum, mut expected) = (ExactSum::default(), ExactSum::default());
            sum.add(*level, &narrow, None, Selection::All);
            expected.extend(narrow.iter().map(|value| f64::from(*value)));
            assert_eq!(sum, expected, "{level}");
            assert_eq!(sum.window.alone, 0, "{level}: blocks are added value by value");
        }
    }

    #[test]
    fn what_is_not_finite_costs_no_block() {
        for share in [1e-4, 0.01, 0.3, 1.0] {
            check(|_| f64::NAN, share);
            check(|_| f64::INFINITY, share);
            check(|random| if random.chance(0.5) { f64::INFINITY } else { f64::NEG_INFINITY }, share);
        }
    }

    #[test]
    fn values_far_from_the_others_cost_no_block() {
        for share in [1e-4, 0.05] {
            check(|_| 1e300, share);
            check(|_| -1e-300, share);
            check(|_| 5e-324, share);
            check(|random| if random.chance(0.5) { 1e-30 } else { 1e30 }, share);
        }
    }

    #[test]
    fn blocks_without_outliers_are_not_copied() {
        let (mut values, level) = (vec![1.5; miri_or(1_200, 40_000)], Level::best());
        values[100] = f64::NAN;
        let mut sum = ExactSum::default();
        sum.add(level, &values, None, Selection::All);
        assert!(!sum.has_outliers());
        values.fill(f64::NAN);
        sum.add(level, &values, None, Selection::All);
        assert!(sum.has_outliers());
    }
}
