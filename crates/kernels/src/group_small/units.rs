//! Values as integers: how grouped sums become exact without a compensated addition for each row.
//!
//! A float that is a multiple of a unit 2^u, and not too large, is an integer number of units. Adding the
//! float `start` = (1.5 * 2^52 + 2^bits) * 2^u leaves that number, plus a constant, in the last bits of the
//! result. Subtracting `start` again shows whether the float was a multiple. The bits above the last `bits` +
//! 1, which no number from -2^bits to 2^bits - 1 changes, show whether it was too large or not finite. So
//! tables add integers, exactly, in any order; the constants are subtracted when tables are emptied.
//!
//! Two parts, the upper one in units of 2^(u + 47), hold values that are too long for one, such as prices as
//! doubles. The upper part is short, so that the count of rows shares its word: a state always has 16 bytes.
//!
//! In a loop of its own the check cost 3 % over additions of plain floats, which round.

#![allow(clippy::cast_possible_truncation, reason = "halves of words are cut on purpose")]

use crate::aggregate::{ExactSum, power_of_two};
use crate::compare::Comparable;

/// Rows that are converted at a time.
pub(super) const STEP: usize = 512;
/// The distance of the upper from the lower part of a float, as a power of two.
const FLOAT_UPPER: i32 = 47;
/// Bits that a sum in a state may use.
const STATE_BITS: u32 = 62;

/// The words that are added to the first and to the second word of a state.
pub(super) type Words = [[i64; STEP]; 2];

/// How the values of a block become integers. With one part, a row adds [number, 1] to a state; with two,
/// [upper * 2^shift + 1, lower].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plan {
    /// Numbers are in units of 2^unit.
    pub(super) unit: i32,
    /// One or two; zero before the first value.
    pub(super) parts: u8,
    /// The number, or with two parts its upper part, is at least -2^bits and below 2^bits.
    bits: u32,
    /// Bits for the count of rows below the upper part.
    pub(super) shift: u32,
    /// Added to floats to convert them to integers; zeros for integers.
    pub(super) starts: [f64; 2],
    /// How far the upper part is above the lower.
    upper: i32,
}

impl Plan {
    /// The most bits of a number of one part, and of the upper of two, so that states can hold
    /// [`super::BLOCK`] rows.
    const BITS: [i32; 2] = [48, 34];

    /// The plan for integers.
    fn integers(parts: u8) -> Self {
        let bits = 32;
        Self { parts, bits, shift: (STATE_BITS - bits) / 2, upper: 32, ..Self::default() }
    }

    /// The plan for floats that are multiples of 2^low and below 2^high, if they fit `parts` parts, with up
    /// to `finer` more bits for finer values if there is room.
    fn floats(parts: u8, low: i32, finer: i32, high: i32) -> Option<Self> {
        // Room for larger values to come.
        const LARGER: i32 = 1;
        let (upper, most) = if parts == 1 { (0, Self::BITS[0]) } else { (FLOAT_UPPER, Self::BITS[1]) };
        let free = upper + most - (high - low);
        if free < 0 {
            return None;
        }
        let unit = low - finer.min(free / 2);
        if !super::UNITS.contains(&unit) {
            return None;
        }
        let bits = (high - unit - upper + LARGER).clamp(1, most).cast_unsigned();
        let start =
            |place: i32, bits: u32| (1.5 * power_of_two(52) + (1_u64 << bits) as f64) * power_of_two(place);
        let lower_bits = FLOAT_UPPER.cast_unsigned();
        let starts = if parts == 1 {
            [start(unit, bits), 0.0]
        } else {
            [start(unit + upper, bits), start(unit, lower_bits)]
        };
        Some(Self { unit, parts, bits, shift: (STATE_BITS - bits) / 2, starts, upper })
    }

    /// Whether this plan may be tried for values of this type.
    ///
    /// # Panics
    /// When it is a plan for the other kind, integers or floats.
    pub(super) fn suits<T: Value>(&self) -> bool {
        let is_float = self.starts[0] != 0.0;
        assert!(self.parts == 0 || is_float == T::IS_FLOAT, "floats and integers have sums of their own");
        self.parts >= T::PARTS
    }

    /// Rows that a state can hold.
    pub(super) fn row_limit(&self) -> u64 {
        if self.parts == 1 {
            return 1 << (STATE_BITS - self.bits);
        }
        // Lower parts are at most half the unit of the upper part.
        let lower = STATE_BITS - (FLOAT_UPPER.cast_unsigned() - 1);
        (1 << self.shift.min(STATE_BITS - self.shift - self.bits).min(lower)) - 1
    }

    /// Whether conversions with this result were exact.
    fn holds(&self, rest: u64, beyond: u64) -> bool {
        // The rest may be negative zero.
        rest << 1 == 0 && beyond >> (self.bits + 1) == 0
    }

    /// The sum in units, and the count of rows, of a state.
    #[inline(always)]
    pub(super) fn decode(&self, state: [i64; 2]) -> (i128, u64) {
        // The sums fit, though the words may have wrapped.
        let bias = self.starts.map(|start| start.to_bits().cast_signed());
        if self.parts == 1 {
            return (state[0].wrapping_sub(state[1].wrapping_mul(bias[0])).into(), state[1].cast_unsigned());
        }
        let count = state[0] & ((1 << self.shift) - 1);
        let upper =
            (state[0] >> self.shift).wrapping_sub(count.wrapping_mul(bias[0])) << self.shift >> self.shift;
        let lower = state[1].wrapping_sub(count.wrapping_mul(bias[1]));
        ((i128::from(upper) << self.upper) + i128::from(lower), count.cast_unsigned())
    }
}

/// The result of converting a block, which shows whether it was exact.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fit {
    /// Zero when every value was a multiple of the unit.
    pub(super) rest: u64,
    /// The bits that numbers too large have changed.
    pub(super) beyond: u64,
}

impl Fit {
    pub(super) fn and(self, other: Self) -> Self {
        Self { rest: self.rest | other.rest, beyond: self.beyond | other.beyond }
    }

    pub(super) fn is_exact(self, plan: &Plan) -> bool {
        plan.holds(self.rest, self.beyond)
    }
}

/// A number that groups can sum: integers of up to 64 bits and floats.
pub trait Value: Comparable + Default + crate::aggregate::Ordered + sealed::Sealed {
    /// Whether values have a unit other than 1.
    #[doc(hidden)]
    const IS_FLOAT: bool;
    /// The least number of parts.
    #[doc(hidden)]
    const PARTS: u8;
    /// A plan for these values, if possible one that also suits the values of `before`.
    #[doc(hidden)]
    fn plan(values: &[Self], before: &Plan) -> Option<Plan>;
    /// A plan for the values around the median, if there are any.
    #[doc(hidden)]
    fn plan_for_most(values: &[Self], before: &Plan) -> Option<Plan>;
    /// Whether its conversion by this plan is exact.
    #[doc(hidden)]
    fn fits(self, plan: &Plan) -> bool;
    #[doc(hidden)]
    fn convert<const PARTS: usize>(values: &[Self], plan: &Plan, words: &mut Words) -> Fit;
    #[doc(hidden)]
    fn push_to(self, sum: &mut ExactSum);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($type:ty: $parts:literal),*) => { $(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            const IS_FLOAT: bool = false;
            const PARTS: u8 = $parts;

            fn plan(_values: &[Self], before: &Plan) -> Option<Plan> {
                Some(Plan::integers(before.parts.max($parts)))
            }

            fn plan_for_most(values: &[Self], before: &Plan) -> Option<Plan> {
                Self::plan(values, before)
            }

            #[inline(always)]
            fn fits(self, _: &Plan) -> bool {
                true
            }

            #[inline(always)]
            fn convert<const PARTS: usize>(values: &[Self], plan: &Plan, words: &mut Words) -> Fit {
                for (row, value) in values.iter().enumerate() {
                    if PARTS == 1 {
                        words[0][row] = *value as i64;
                    } else {
                        let upper = (i128::from(*value) >> 32) as i64;
                        words[0][row] = (upper << plan.shift) + 1;
                        words[1][row] = i64::from(*value as u32);
                    }
                }
                Fit::default()
            }

            fn push_to(self, sum: &mut ExactSum) {
                sum.push_scaled(i64::from(self as u32), 1074);
                sum.push_scaled((i128::from(self) >> 32) as i64, 1074 + 32);
            }
        }
    )* };
}
integers! { i8: 1, u8: 1, i16: 1, u16: 1, i32: 1, u32: 1, i64: 2, u64: 2 }

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            const IS_FLOAT: bool = true;
            const PARTS: u8 = 1;

            fn plan(values: &[Self], before: &Plan) -> Option<Plan> {
                let (low, high) = span(values)?;
                let plan = |low: i32, finer: i32| {
                    (before.parts.max(1)..=2).find_map(|parts| Plan::floats(parts, low, finer, high + 1))
                };
                let kept = if before.parts > 0 && before.unit <= low { plan(before.unit, 0) } else { None };
                kept.or_else(|| plan(low, 2))
            }

            fn plan_for_most(values: &[Self], before: &Plan) -> Option<Plan> {
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
                Self::plan(&near, before).or_else(|| Self::plan(&near, &Plan::default()))
            }

            #[inline(always)]
            fn fits(self, plan: &Plan) -> bool {
                let value = f64::from(self);
                let after = value + plan.starts[0];
                let beyond = after.to_bits() ^ plan.starts[0].to_bits();
                let mut rest = value - (after - plan.starts[0]);
                if plan.parts == 2 {
                    rest -= (rest + plan.starts[1]) - plan.starts[1];
                }
                plan.holds(rest.to_bits(), beyond)
            }

            #[inline(always)]
            fn convert<const PARTS: usize>(values: &[Self], plan: &Plan, words: &mut Words) -> Fit {
                let mut bits = Bits::default();
                let [first, second] = words;
                let (chunks, last) = values.as_chunks::<LANES>();
                let places = first.as_chunks_mut().0.iter_mut().zip(second.as_chunks_mut().0);
                for (values, (first, second)) in chunks.iter().zip(places) {
                    convert_chunk::<_, PARTS>(values, plan, first, second, &mut bits);
                }
                if !last.is_empty() {
                    let mut chunk = [0.0; LANES];
                    chunk[..last.len()].copy_from_slice(last);
                    // With one part, second words stay as they are.
                    let mut words = [[1; LANES]; 2];
                    let [end_first, end_second] = &mut words;
                    convert_chunk::<_, PARTS>(&chunk, plan, end_first, end_second, &mut bits);
                    let rows = values.len() - last.len()..values.len();
                    first[rows.clone()].copy_from_slice(&end_first[..last.len()]);
                    second[rows].copy_from_slice(&end_second[..last.len()]);
                }
                Fit {
                    rest: bits.rests.into_iter().fold(0, |all, rest| all | rest),
                    beyond: bits.beyonds.into_iter().fold(0, |all, beyond| all | beyond),
                }
            }

            fn push_to(self, sum: &mut ExactSum) {
                sum.push(self.into());
            }
        }
    )* };
}
floats! { f32, f64 }

/// Floats that are converted side by side.
const LANES: usize = 16;

/// What a [`Fit`] is made of, for each lane.
#[derive(Default)]
struct Bits {
    rests: [u64; LANES],
    beyonds: [u64; LANES],
}

/// The words of floats; those of second parts only where there are some.
#[inline(always)]
fn convert_chunk<T: Copy + Into<f64>, const PARTS: usize>(
    values: &[T; LANES],
    plan: &Plan,
    first: &mut [i64; LANES],
    second: &mut [i64; LANES],
    bits: &mut Bits,
) {
    let starts = plan.starts;
    for lane in 0..LANES {
        let value: f64 = values[lane].into();
        let after = value + starts[0];
        bits.beyonds[lane] |= after.to_bits() ^ starts[0].to_bits();
        let mut rest = value - (after - starts[0]);
        first[lane] = after.to_bits().cast_signed();
        if PARTS == 2 {
            first[lane] = (first[lane] << plan.shift).wrapping_add(1);
            let after = rest + starts[1];
            rest -= after - starts[1];
            second[lane] = after.to_bits().cast_signed();
        }
        bits.rests[lane] |= rest.to_bits();
    }
}

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
