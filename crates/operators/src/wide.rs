//! Sums of several words.
//!
//! A sum of floats is an integer of three words times a power of two that all threads agree on, the unit, and a word
//! that says which values were not finite. So it is exact, and the order of rows changes nothing.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use keirin_kernels::Level;
use keirin_kernels::aggregate::{BitRange, ExactSum, add_scaled, divided_scaled, scaled};

use crate::arguments::{Argument, Numbers};
use crate::states::{are_few, short_sums};

/// The words of a sum of floats.
pub(crate) const FLOAT_WORDS: usize = 4;
/// Flags of values that are not finite.
const NAN: u64 = 1;
const PLUS_INFINITY: u64 = 2;
const MINUS_INFINITY: u64 = 4;

/// Bits that values may have from the unit on: the sum has a sign and room for 2^32 rows besides.
const VALUE_BITS: i32 = 3 * 64 - 1 - 32;
/// With fewer rows to a group, sums of a chunk are not worth a word of their own.
const ROWS_PER_SUM: usize = 4;
/// The units that the sums of others take.
const UNITS: Range<i32> = -1074..673;

/// Floats are of too different sizes for a sum of so many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDifferent;

/// The unit of the sums of an argument: whoever sees values first chooses it.
#[derive(Debug, Default)]
pub(crate) struct Unit(OnceLock<i32>);

impl Unit {
    /// The unit, if there are values yet that are not zero.
    pub(crate) fn get(&self) -> i32 {
        self.0.get().copied().unwrap_or_default()
    }

    /// The unit, if these values are multiples of it, and not too large.
    pub(crate) fn of(
        &self,
        level: Level,
        values: &[f64],
        validity: Option<&[bool]>,
    ) -> Result<i32, TooDifferent> {
        let Range { start: low, end: high } = BitRange::of(level, &filled(values, validity)).places;
        if low == high {
            return Ok(self.get());
        }
        let spare = VALUE_BITS - (high - low);
        // In the middle of what is possible, the next may be smaller or larger.
        let unit = *self.0.get_or_init(|| (low - spare / 2).clamp(UNITS.start, UNITS.end - 1));
        if low < unit || high > unit + VALUE_BITS { Err(TooDifferent) } else { Ok(unit) }
    }
}

/// Values with zero where there is none.
fn filled<'a>(values: &'a [f64], validity: Option<&[bool]>) -> Cow<'a, [f64]> {
    match validity {
        None => values.into(),
        Some(validity) => {
            let rows = values.iter().zip(validity);
            rows.map(|(value, is_valid)| if *is_valid { *value } else { 0.0 }).collect()
        }
    }
}

/// Adds to a number of two words.
#[inline(always)]
pub(crate) fn add_two(sum: &mut [u64], low: u64, high: u64) {
    let (low, carry) = sum[0].overflowing_add(low);
    sum[0] = low;
    sum[1] = sum[1].wrapping_add(high).wrapping_add(u64::from(carry));
}

/// Adds to a number of three words.
#[inline(always)]
pub(crate) fn add_three(sum: &mut [u64], words: [u64; 3]) {
    let (low, carry) = sum[0].overflowing_add(words[0]);
    let (middle, carry_in) = sum[1].overflowing_add(words[1]);
    let (middle, carry_on) = middle.overflowing_add(u64::from(carry));
    sum[0] = low;
    sum[1] = middle;
    sum[2] = sum[2].wrapping_add(words[2]).wrapping_add(u64::from(carry_in | carry_on));
}

/// The words of a number with its sign.
#[inline(always)]
fn extended(number: i128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "halves")]
    [number as u64, (number >> 64) as u64]
}

#[inline(always)]
fn sign(high: u64) -> u64 {
    (high.cast_signed() >> 63).cast_unsigned()
}

/// Calls `add` with each row's group and value, where it has one.
#[inline(always)]
fn for_each<T: Copy>(groups: &[u32], values: &[T], validity: Option<&[bool]>, mut add: impl FnMut(usize, T)) {
    match validity {
        None => groups.iter().zip(values).for_each(|(group, value)| add(*group as usize, *value)),
        Some(validity) => {
            for ((group, value), is_valid) in groups.iter().zip(values).zip(validity) {
                if *is_valid {
                    add(*group as usize, *value);
                }
            }
        }
    }
}

/// Whether the sum of some of these values has room in a word, whichever.
pub(crate) fn is_short(values: &[i64]) -> bool {
    let bits = values.iter().fold(0, |bits, value| bits | (value ^ (value >> 63)));
    let of_values = u64::BITS - bits.cast_unsigned().leading_zeros();
    let of_count = usize::BITS - values.len().leading_zeros();
    of_values + of_count < i64::BITS
}

/// Adds decimals to sums of three words.
pub(crate) fn add_decimals(
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    argument: Argument<'_>,
) {
    let group_count = words.len() / stride;
    let mut add = |group: usize, low: u64, high: u64| {
        let at = group * stride + word;
        add_three(&mut words[at..at + 3], [low, high, sign(high)]);
    };
    match argument.values {
        Numbers::I64(values) if is_short(values) && are_few(group_count, groups.len()) => {
            let sums = short_sums(group_count, groups, values, argument.validity, i64::cast_unsigned);
            for (group, low) in sums.into_iter().enumerate() {
                add(group, low, sign(low));
            }
        }
        Numbers::I64(values) if is_short(values) && group_count <= values.len() / ROWS_PER_SUM => {
            let mut sums = vec![0_i64; group_count];
            for_each(groups, values, argument.validity, |group, value: i64| sums[group] += value);
            for (group, sum) in sums.into_iter().enumerate() {
                let low = sum.cast_unsigned();
                add(group, low, sign(low));
            }
        }
        Numbers::I64(values) => for_each(groups, values, argument.validity, |group, value: i64| {
            let low = value.cast_unsigned();
            add(group, low, sign(low));
        }),
        Numbers::I128(values) => for_each(groups, values, argument.validity, |group, value: i128| {
            let [low, high] = extended(value);
            add(group, low, high);
        }),
        _ => panic!("decimals"),
    }
}

/// A number times a power of two below 2^128, as three words.
fn shifted(number: i128, shift: u32) -> [u64; 3] {
    let [low, high] = extended(number);
    let bits = shift % 64;
    let over = |word: u64| if bits == 0 { 0 } else { word >> (64 - bits) };
    let (low, middle, top) = (low << bits, high << bits | over(low), sign(high) << bits | over(high));
    match shift / 64 {
        0 => [low, middle, top],
        1 => [0, low, middle],
        _ => [0, 0, low],
    }
}

/// Adds floats to sums of three words and their flags.
pub(crate) fn add_floats(
    level: Level,
    words: &mut [u64],
    stride: usize,
    word: usize,
    groups: &[u32],
    argument: Argument<'_>,
) {
    let Numbers::F64(values) = argument.values else { panic!("floats") };
    let group_count = words.len() / stride;
    if group_count <= values.len() / ROWS_PER_SUM {
        // Added up in two words a group first, if any sum of these values has room there.
        let values = filled(values, argument.validity);
        let BitRange { places, is_finite } = BitRange::of(level, &values);
        let of_count = (usize::BITS - values.len().leading_zeros()).cast_signed();
        if is_finite && places.end - places.start + of_count < i128::BITS.cast_signed() {
            let mut sums = vec![0; group_count];
            add_scaled(level, &mut sums, groups, &values, places.start);
            let shift = (places.start - argument.unit).cast_unsigned();
            for (group, sum) in sums.into_iter().enumerate().filter(|(_, sum)| *sum != 0) {
                add_three(&mut words[group * stride + word..], shifted(sum, shift));
            }
            return;
        }
    }
    for_each(groups, values, argument.validity, |group, value: f64| {
        let sum = &mut words[group * stride + word..][..FLOAT_WORDS];
        if !value.is_finite() {
            sum[3] |= match (value.is_nan(), value > 0.0) {
                (true, _) => NAN,
                (false, true) => PLUS_INFINITY,
                (false, false) => MINUS_INFINITY,
            };
            return;
        }
        let (number, exponent) = scaled(value);
        // Zero has no bit at a place of its own.
        let shift = if number == 0 { 0 } else { (exponent - argument.unit).cast_unsigned() };
        let [low, high] = extended(i128::from(number) << (shift % 64));
        let added = if shift < 64 { [low, high, sign(high)] } else { [0, low, high] };
        add_three(sum, added);
    });
}

/// A sum of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatSum {
    words: [u64; 3],
    flags: u64,
    unit: i32,
}

impl FloatSum {
    /// The sum that a group's words are.
    pub(crate) fn new(words: &[u64], unit: i32) -> Self {
        Self { words: [words[0], words[1], words[2]], flags: words[3], unit }
    }

    /// The sum divided by `count`, rounded once; `None` for a count of zero.
    #[must_use]
    pub fn mean(&self, count: u64) -> Option<f64> {
        if count == 0 {
            return None;
        }
        match self.flags {
            0 => {}
            PLUS_INFINITY => return Some(f64::INFINITY),
            MINUS_INFINITY => return Some(f64::NEG_INFINITY),
            _ => return Some(f64::NAN),
        }
        if let Some(number) = narrowed(self.words) {
            return divided_scaled(number, self.unit, count);
        }
        let mut sum = ExactSum::default();
        let [low, middle, high] = self.words;
        sum.push_wide(low.into(), self.unit);
        sum.push_wide(middle.into(), self.unit + 64);
        sum.push_wide(high.cast_signed().into(), self.unit + 128);
        sum.mean(count)
    }
}

/// A number of three words, if it fits into two.
pub(crate) fn narrowed(words: [u64; 3]) -> Option<i128> {
    let [low, high, top] = words;
    (top == sign(high)).then(|| i128::from(low) | i128::from(high.cast_signed()) << u64::BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::states::{Aggregate, StateLayout, States};

    fn sums(values: &[f64], groups: &[u32], validity: Option<&[bool]>) -> Option<Vec<FloatSum>> {
        let unit = Unit::default();
        let mut layout = StateLayout::default();
        let word = layout.word_of(Aggregate::FloatSum(0));
        let mut merged = States::new(&layout, Heap::default());
        merged.grow(&layout, 4);
        let chunks = values.chunks(50).zip(groups.chunks(50)).enumerate();
        for (chunk, (values, groups)) in chunks {
            let validity = validity.map(|validity| &validity[chunk * 50..][..values.len()]);
            let unit = unit.of(Level::best(), values, validity).ok()?;
            let mut states = States::new(&layout, Heap::default());
            states.grow(&layout, 4);
            states.add(
                Level::best(),
                &layout,
                groups,
                &[Argument { values: Numbers::F64(values), validity, unit }],
            );
            merged.merge(&layout, &[0, 1, 2, 3], states.words());
        }
        Some(merged.float_sums(word, unit.get()).collect())
    }

    #[test]
    fn sums_of_floats_are_exact() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            state >> 11
        };
        let mut fitting = 0;
        for spread in [0, 20, 60, 100, 200] {
            for center in [20, 1000, 1023, 1100, 1700] {
                for specials in [&[][..], &[f64::NAN], &[f64::INFINITY], &[f64::INFINITY, f64::NEG_INFINITY]]
                {
                    let mut values: Vec<f64> = (0..200)
                        .map(|_| {
                            let exponent = (center + random() % (spread + 1)).saturating_sub(spread / 2);
                            f64::from_bits(
                                random() << 63 | exponent.min(2046) << 52 | random() & ((1 << 52) - 1),
                            )
                        })
                        .collect();
                    values.extend([0.0, -0.0, 1e300]);
                    values.extend(specials);
                    let groups: Vec<u32> = values.iter().map(|_| (random() % 4) as u32).collect();
                    // The value far from all others is not valid.
                    let validity: Vec<bool> =
                        (0..values.len()).map(|row| row != 202 && random() % 5 > 0).collect();
                    let Some(sums) = sums(&values, &groups, Some(&validity)) else {
                        assert!(spread >= 100, "{spread} {center}");
                        continue;
                    };
                    fitting += 1;
                    for (group, sum) in sums.iter().enumerate() {
                        let rows =
                            (0..values.len()).filter(|row| groups[*row] as usize == group && validity[*row]);
                        let mut expected = ExactSum::default();
                        expected.extend(rows.clone().map(|row| values[row]));
                        for count in [1, 7] {
                            let means = [sum.mean(count), expected.mean(count)];
                            assert_eq!(means[0].map(f64::to_bits), means[1].map(f64::to_bits));
                        }
                        assert_eq!(sum.mean(0), None);
                    }
                }
            }
        }
        assert!(fitting > 40, "{fitting}");
    }

    #[test]
    fn numbers_are_shifted_by_any_distance() {
        for number in [1, -1, 5, i128::MAX, i128::MIN, 1 << 64, -(1 << 70), 0x1234_5678_9ABC_DEF0] {
            for shift in 0..160 {
                let [low, high] = extended(number);
                let mut expected = [low, high, sign(high)];
                for _ in 0..shift {
                    let before = expected;
                    add_three(&mut expected, before);
                }
                assert_eq!(shifted(number, shift), expected, "{number} {shift}");
            }
        }
    }

    #[test]
    fn values_that_are_too_different_are_refused() {
        let unit = Unit::default();
        assert_eq!(unit.of(Level::best(), &[0.0, f64::NAN, f64::INFINITY], None), Ok(0));
        assert!(unit.of(Level::best(), &[1.0, -1e9], None).is_ok());
        assert!(unit.of(Level::best(), &[1e-9], None).is_ok());
        assert_eq!(unit.of(Level::best(), &[1e300], None), Err(TooDifferent));
        assert_eq!(unit.of(Level::best(), &[1e-300], None), Err(TooDifferent));
        assert!(unit.of(Level::best(), &[1e300, 1.0], Some(&[false, true])).is_ok());
        assert_eq!(Unit::default().of(Level::best(), &[1e-300, 1e300], None), Err(TooDifferent));
    }
}
