//! Values as integers: how grouped sums become exact without a compensated addition for each row.
//!
//! A float that is a multiple of a unit 2^u, and not too large, is an integer number of units. Adding the
//! float `start` = (1.5 * 2^52 + 2^bits) * 2^u leaves that number, plus a constant, in the last bits of the
//! result. Subtracting `start` again shows whether the float was a multiple. The bits above the last `bits` +
//! 1, which no number from -2^bits to 2^bits - 1 changes, show whether it was too large or not finite. So
//! tables add integers, exactly, in any order; the constants are subtracted when tables are emptied.
//!
//! Numbers that are short enough, as those of most columns of 32 bits, leave room for the count of rows below them, for as
//! many rows as a block has: what a row adds is one word, and the CPU's stores are what limits such sums. Two parts,
//! the upper one in units of 2^(u + 47), hold values that are too long for one, such as prices as doubles; there the
//! count shares the word of the upper part.

#![allow(clippy::cast_possible_truncation, reason = "halves of words are cut on purpose")]

use crate::aggregate::{ExactSum, power_of_two};
use crate::compare::Comparable;

/// Rows that are converted at a time.
pub(super) const ROWS: usize = 64;
/// The distance of the upper from the lower part of a float, as a power of two.
const FLOAT_UPPER: i32 = 47;
/// Bits that a sum in a state may use.
const STATE_BITS: u32 = 62;
/// The words that are added to the first and to the second word of a state.
pub(super) type Words = [[i64; ROWS]; 2];

/// A layout: a row adds one word, [number * 2^shift + 1]. After each block, numbers and counts are added to states
/// of two words. Layouts are numbers because loops are generic over them; wider ones are greater, and zero is none.
pub(super) const PACKED: u8 = 1;
/// A layout: a row adds [number, 1].
pub(super) const COUNTED: u8 = 2;
/// A layout: a row adds [upper * 2^shift + 1, lower].
pub(super) const SPLIT: u8 = 3;

/// How the values of a block become integers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plan {
    /// Numbers are in units of 2^unit.
    pub(super) unit: i32,
    /// What is added to states; zero before the first value.
    pub(super) layout: u8,
    /// The number, or its upper part, is at least -2^bits and below 2^bits.
    bits: u32,
    /// Bits for the count of rows below the number or its upper part; zero if it has a word of its own.
    shift: u32,
    /// Added to floats to convert them to integers; zeros for integers.
    starts: [f64; 2],
    /// How far the upper part is above the lower.
    upper: i32,
}

impl Plan {
    /// The most bits of a number for each layout, so that states can hold the rows of a block.
    const BITS_MAX: [u32; 4] = [0, 40, 48, 34];

    /// The plan for integers of so many bits.
    fn integers(layout: u8, bits: u32) -> Self {
        Self { layout, bits, shift: Self::shift(layout, bits), upper: 32, ..Self::default() }
    }

    /// The plan for floats that are multiples of 2^low and below 2^high, if they fit the layout, with up to `finer`
    /// more bits for finer values if there is room.
    fn floats(layout: u8, low: i32, finer: i32, high: i32) -> Option<Self> {
        // Room for larger values to come.
        const LARGER: i32 = 1;
        let upper = if layout == SPLIT { FLOAT_UPPER } else { 0 };
        let most = Self::BITS_MAX[usize::from(layout)].cast_signed();
        let free = upper + most - (high - low);
        if free < 0 {
            return None;
        }
        let unit = low - finer.min(free / 2);
        if !super::UNITS.contains(&unit) {
            return None;
        }
        let bits = (high - unit - upper + LARGER).clamp(1, most).cast_unsigned();
        let shift = Self::shift(layout, bits);
        let start =
            |place: i32, bits: u32| (1.5 * power_of_two(52) + (1_u64 << bits) as f64) * power_of_two(place);
        let starts = match layout {
            // The number comes above the count, and each addition counts.
            PACKED => {
                let place = unit - shift.cast_signed();
                [start(place, bits + shift) + power_of_two(place), 0.0]
            }
            COUNTED => [start(unit, bits), 0.0],
            _ => [start(unit + upper, bits), start(unit, FLOAT_UPPER.cast_unsigned())],
        };
        Some(Self { unit, layout, bits, shift, starts, upper })
    }

    /// The bits for the count below a number, or an upper part, of so many bits.
    fn shift(layout: u8, bits: u32) -> u32 {
        match layout {
            // A sum fits above its count, and a number and a count fit a float's digits.
            PACKED => ((i64::BITS - 1 - bits) / 2).min(50 - bits),
            COUNTED => 0,
            _ => (STATE_BITS - bits) / 2,
        }
    }

    fn is_for_floats(&self) -> bool {
        self.starts[0] != 0.0
    }

    /// Whether this plan may be tried for values of this type, if the layout is `least` or wider.
    ///
    /// # Panics
    /// When it is a plan for the other kind, integers or floats.
    pub(super) fn suits<T: Value>(&self, least: u8) -> bool {
        let is_float = self.is_for_floats();
        assert!(self.layout == 0 || is_float == T::IS_FLOAT, "floats and integers have sums of their own");
        self.layout >= least && (is_float || self.bits >= T::BITS_UNCHECKED)
    }

    /// Rows that may be added at a time, from none on with the layout [`PACKED`].
    pub(super) fn block_rows(&self) -> usize {
        if self.layout != PACKED {
            return super::BLOCK;
        }
        // Counts fit below numbers, and sums above counts; without a last chunk that is not whole.
        (((1 << self.shift) - 1) / ROWS * ROWS).min(super::BLOCK)
    }

    /// Rows that a state of two words can hold.
    pub(super) fn row_limit(&self) -> u64 {
        if self.layout != SPLIT {
            return 1 << (STATE_BITS - self.bits);
        }
        // Lower parts are at most half the unit of the upper part.
        let lower = STATE_BITS - (FLOAT_UPPER.cast_unsigned() - 1);
        (1 << self.shift.min(STATE_BITS - self.shift - self.bits).min(lower)) - 1
    }

    /// Whether conversions with this result were exact.
    fn holds(&self, rest: u64, beyond: u64) -> bool {
        let (below, above) = match self.layout {
            // The count is below the number already where floats are compared.
            PACKED if self.is_for_floats() => ((1 << self.shift) - 1, self.bits + self.shift + 1),
            _ => (0, self.bits + 1),
        };
        // The rest may be negative zero.
        rest << 1 == 0 && beyond & below == 0 && beyond >> above == 0
    }

    /// The number and the count of a word of [`PACKED`] that at most a block was added to.
    #[inline(always)]
    pub(super) fn unpack(&self, word: i64) -> [i64; 2] {
        let count = word & ((1 << self.shift) - 1);
        // Of the start's bits those of the number; its last one counts.
        let bias = self.starts[0].to_bits().cast_signed() >> self.shift;
        let number = (word >> self.shift).wrapping_sub(count.wrapping_mul(bias));
        [number << self.shift >> self.shift, count]
    }

    /// The sum in units, and the count of rows, of a state of two words.
    #[inline(always)]
    pub(super) fn decode(&self, state: [i64; 2]) -> (i128, u64) {
        // The sums fit, though the words may have wrapped.
        let bias = self.starts.map(|start| start.to_bits().cast_signed());
        match self.layout {
            PACKED => (state[0].into(), state[1].cast_unsigned()),
            COUNTED => {
                (state[0].wrapping_sub(state[1].wrapping_mul(bias[0])).into(), state[1].cast_unsigned())
            }
            _ => {
                let count = state[0] & ((1 << self.shift) - 1);
                let upper = (state[0] >> self.shift).wrapping_sub(count.wrapping_mul(bias[0])) << self.shift
                    >> self.shift;
                let lower = state[1].wrapping_sub(count.wrapping_mul(bias[1]));
                ((i128::from(upper) << self.upper) + i128::from(lower), count.cast_unsigned())
            }
        }
    }
}

/// Values converted side by side.
const LANES: usize = 16;

/// What converting values showed, lane by lane: whether it was exact.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fit {
    /// Zeros when every value was a multiple of the unit.
    rests: [u64; LANES],
    /// The bits that numbers too large have changed.
    beyonds: [u64; LANES],
}

impl Fit {
    pub(super) fn is_exact(self, plan: &Plan) -> bool {
        let all = |bits: [u64; LANES]| bits.into_iter().fold(0, |all, bits| all | bits);
        plan.holds(all(self.rests), all(self.beyonds))
    }
}

/// A number that groups can sum: integers of up to 64 bits and floats.
pub trait Value: Comparable + Default + crate::aggregate::Ordered + sealed::Sealed {
    /// Whether values have a unit other than 1.
    #[doc(hidden)]
    const IS_FLOAT: bool;
    /// Plans for so many bits or more suit integers of this type without a look at them; zero where none does.
    #[doc(hidden)]
    const BITS_UNCHECKED: u32;
    /// A plan for these values with the layout `least` or a wider one, if possible one that also suits the values of
    /// `before`.
    #[doc(hidden)]
    fn plan(values: &[Self], least: u8, before: &Plan) -> Option<Plan>;
    /// As [`Self::plan`] for the values around the median, if there are any.
    #[doc(hidden)]
    fn plan_for_most(values: &[Self], least: u8, before: &Plan) -> Option<Plan>;
    /// Whether its conversion by this plan is exact.
    #[doc(hidden)]
    fn fits(self, plan: &Plan) -> bool;
    /// The words of values, those of second parts only where there are some. The fit goes through by value, so that it
    /// stays in registers.
    #[doc(hidden)]
    fn convert<const LAYOUT: u8>(values: &[Self; ROWS], plan: &Plan, words: &mut Words, fit: Fit) -> Fit;
    #[doc(hidden)]
    fn push_to(self, sum: &mut ExactSum);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($type:ty: $bits:literal),*) => { $(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            const IS_FLOAT: bool = false;
            const BITS_UNCHECKED: u32 = $bits;

            fn plan(values: &[Self], least: u8, before: &Plan) -> Option<Plan> {
                let mut layout = before.layout.max(least);
                let mut bits = before.bits.max($bits);
                if $bits == 0 {
                    let bits_of = |value: &Self| i128::BITS - i128::from(*value).unsigned_abs().leading_zeros();
                    bits = bits.max(values.iter().map(bits_of).max().unwrap_or(0)).max(1);
                    let fits = |layout: u8| bits <= Plan::BITS_MAX[usize::from(layout)];
                    layout = (layout..SPLIT).find(|layout| fits(*layout)).unwrap_or(SPLIT);
                }
                Some(Plan::integers(layout, if layout == SPLIT { 32 } else { bits }))
            }

            fn plan_for_most(values: &[Self], least: u8, before: &Plan) -> Option<Plan> {
                Self::plan(values, least, before)
            }

            #[inline(always)]
            fn fits(self, _: &Plan) -> bool {
                true
            }

            #[inline(always)]
            fn convert<const LAYOUT: u8>(
                values: &[Self; ROWS], plan: &Plan, words: &mut Words, mut fit: Fit
            ) -> Fit {
                for chunk in 0..ROWS / LANES {
                    for lane in 0..LANES {
                        let row = chunk * LANES + lane;
                        let number = values[row] as i64;
                        words[0][row] = match LAYOUT {
                            PACKED => (number << plan.shift) + 1,
                            COUNTED => number,
                            _ => {
                                words[1][row] = i64::from(values[row] as u32);
                                (((i128::from(values[row]) >> 32) as i64) << plan.shift) + 1
                            }
                        };
                        if $bits == 0 && LAYOUT != SPLIT {
                            // Of unsigned numbers all bits from the one behind the last are too many.
                            let seen = match <$type>::MIN {
                                0 => number | number << 1,
                                _ => number.wrapping_add(1 << plan.bits),
                            };
                            fit.beyonds[lane] |= seen.cast_unsigned();
                        }
                    }
                }
                fit
            }

            fn push_to(self, sum: &mut ExactSum) {
                sum.push_scaled(i64::from(self as u32), 1074);
                sum.push_scaled((i128::from(self) >> 32) as i64, 1074 + 32);
            }
        }
    )* };
}
integers! { i8: 8, u8: 8, i16: 16, u16: 16, i32: 32, u32: 32, i64: 0, u64: 0 }

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            const IS_FLOAT: bool = true;
            const BITS_UNCHECKED: u32 = 0;

            fn plan(values: &[Self], least: u8, before: &Plan) -> Option<Plan> {
                let (low, high) = span(values)?;
                let plan = |low: i32, finer: i32| {
                    (before.layout.max(least)..=SPLIT)
                        .find_map(|layout| Plan::floats(layout, low, finer, high + 1))
                };
                let kept = if before.layout > 0 && before.unit <= low { plan(before.unit, 0) } else { None };
                kept.or_else(|| plan(low, 2))
            }

            fn plan_for_most(values: &[Self], least: u8, before: &Plan) -> Option<Plan> {
                /// Doubles with all bits in use whose exponents differ by no more than twice this fit two
                /// parts.
                const NEAR: i32 = 13;
                let exponent = |value: &Self| (f64::from(*value).to_bits() >> 52 & 0x7FF) as i32;
                let is_ordinary = |value: &Self| value.is_finite() && *value != 0.0;
                let mut exponents: Vec<i32> =
                    values.iter().filter(|value| is_ordinary(value)).map(exponent).collect();
                exponents.sort_unstable();
                let middle = *exponents.get(exponents.len() / 2)?;
                let is_near =
                    |value: &Self| is_ordinary(value) && (exponent(value) - middle).abs() <= NEAR;
                let near: Vec<Self> = values.iter().copied().filter(is_near).collect();
                Self::plan(&near, least, before).or_else(|| Self::plan(&near, least, &Plan::default()))
            }

            #[inline(always)]
            fn fits(self, plan: &Plan) -> bool {
                let value = f64::from(self);
                let after = value + plan.starts[0];
                let beyond = after.to_bits() ^ plan.starts[0].to_bits();
                let mut rest = value - (after - plan.starts[0]);
                if plan.layout == SPLIT {
                    rest -= (rest + plan.starts[1]) - plan.starts[1];
                }
                plan.holds(rest.to_bits(), beyond)
            }

            #[inline(always)]
            fn convert<const LAYOUT: u8>(
                values: &[Self; ROWS], plan: &Plan, words: &mut Words, fit: Fit
            ) -> Fit {
                let starts = plan.starts;
                let Fit { mut rests, mut beyonds } = fit;
                for chunk in 0..ROWS / LANES {
                    for lane in 0..LANES {
                        let row = chunk * LANES + lane;
                        let value = f64::from(values[row]);
                        let after = value + starts[0];
                        beyonds[lane] |= after.to_bits() ^ starts[0].to_bits();
                        let mut rest = value - (after - starts[0]);
                        let mut first = after.to_bits().cast_signed();
                        if LAYOUT == SPLIT {
                            first = (first << plan.shift).wrapping_add(1);
                            let after = rest + starts[1];
                            rest -= after - starts[1];
                            words[1][row] = after.to_bits().cast_signed();
                        }
                        words[0][row] = first;
                        rests[lane] |= rest.to_bits();
                    }
                }
                Fit { rests, beyonds }
            }

            fn push_to(self, sum: &mut ExactSum) {
                sum.push(self.into());
            }
        }
    )* };
}
floats! { f32, f64 }

/// The powers of two of the lowest and the highest set bit of all values; `None` when one is not finite.
fn span<T: Copy + Into<f64>>(values: &[T]) -> Option<(i32, i32)> {
    let (mut low, mut high) = (i32::MAX, i32::MIN);
    for value in values {
        let value: f64 = (*value).into();
        if !value.is_finite() {
            return None;
        }
        if value != 0.0 {
            let bits = value.to_bits();
            let exponent = (bits >> 52 & 0x7FF) as i32;
            let fraction = bits & ((1 << 52) - 1) | u64::from(exponent > 0) << 52;
            let place = exponent.max(1) - 1075;
            low = low.min(place + fraction.trailing_zeros() as i32);
            high = high.max(place + 63 - fraction.leading_zeros() as i32);
        }
    }
    Some(if low <= high { (low, high) } else { (0, 0) })
}
