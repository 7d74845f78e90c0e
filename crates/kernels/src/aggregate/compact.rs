//! Exact sums of floats in little memory, for groups.

#![allow(clippy::cast_possible_truncation, reason = "bits are cut on purpose")]

use std::ops::Range;

use super::exact::{ExactSum, power_of_two};
use crate::Level;

/// A sum begins with a unit so far below the last bit of its first value: values may be smaller by that much.
const BITS_BELOW: i32 = 32;
/// The range of units that [`ExactSum`] takes for numbers of 128 bits.
const UNITS: std::ops::RangeInclusive<i32> = -1074..=800;

/// The exact sum of floats: an integer of 128 bits times a power of two as long as that is enough, else an
/// [`ExactSum`].
///
/// The same values in any order make sums with the same [`value`](Self::value) and [`mean`](Self::mean).
#[derive(Clone, Debug)]
pub struct CompactSum(Form);

#[derive(Clone, Debug)]
enum Form {
    /// `number * 2^unit`.
    Scaled {
        number: i128,
        unit: i32,
    },
    Any(Box<ExactSum>),
}

impl Default for CompactSum {
    fn default() -> Self {
        Self(Form::Scaled { number: 0, unit: 0 })
    }
}

/// The integer and the exponent of two that a finite float is.
#[inline(always)]
#[must_use]
pub fn scaled(value: f64) -> (i64, i32) {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7FF) as i32;
    let fraction = (bits & ((1 << 52) - 1)).cast_signed();
    // Subnormals have the exponent of the smallest normals and no hidden bit.
    let magnitude = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    (if value.is_sign_negative() { -magnitude } else { magnitude }, exponent.max(1) - EXPONENT_BIAS)
}

/// The bits that floats have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitRange {
    /// All finite values are multiples of 2 to the power of this, and their magnitudes below 2 to the power of the end.
    /// It is empty if all are zero.
    pub places: Range<i32>,
    /// Whether there is no NaN and no infinity.
    pub is_finite: bool,
}

/// What [`scaled`] subtracts of the exponent that a float's bits are.
const EXPONENT_BIAS: i32 = 1075;

impl BitRange {
    /// Of these values.
    #[must_use]
    pub fn of(level: Level, values: &[f64]) -> Self {
        let Exponents { above_least, most, has_other } = exponents(level, values);
        let place = |exponent: u32| exponent.cast_signed() - EXPONENT_BIAS;
        let (mut low, mut high) = (place(NOT_FINITE - above_least), place(most) + 53);
        if has_other.is_subnormal {
            (low, high) = (place(1), high.max(place(1) + 53));
        } else if most == 0 {
            (low, high) = (0, 0);
        }
        Self { places: low..high, is_finite: !has_other.is_not_finite }
    }
}

/// The exponent of NaN and infinities.
const NOT_FINITE: u32 = 0x7FF;

/// Exponents of normal floats, and whether there are others.
#[derive(Clone, Copy, Debug, Default)]
struct Exponents {
    /// How far the least is below that of what is not finite; zero if there are none.
    above_least: u32,
    most: u32,
    has_other: Others,
}

#[derive(Clone, Copy, Debug, Default)]
struct Others {
    is_subnormal: bool,
    is_not_finite: bool,
}

kernel! {
    fn exponents(values: &[f64]) -> Exponents = plain_exponents;
}

#[inline(always)]
fn plain_exponents(values: &[f64]) -> Exponents {
    const LANES: usize = 16;
    let (mut above_least, mut most) = ([0_u32; LANES], [0_u32; LANES]);
    let (mut not_finite, mut subnormal) = ([0_u32; LANES], [0_u64; LANES]);
    let mut add = |values: &[f64; LANES]| {
        for (lane, value) in values.iter().enumerate() {
            let bits = value.to_bits();
            let exponent = (bits >> 52) as u32 & NOT_FINITE;
            // All bits are set if the exponent is 0, of zero and of subnormals, or has all of its bits.
            let is_zero = 0_u32.wrapping_sub(exponent.wrapping_sub(1) >> 31);
            let is_not_finite = 0_u32.wrapping_sub((exponent + 1) >> 11);
            above_least[lane] = above_least[lane].max((NOT_FINITE - exponent) & !is_zero);
            most[lane] = most[lane].max(exponent & !is_not_finite);
            not_finite[lane] |= is_not_finite;
            // The fraction, where the exponent is 0.
            subnormal[lane] |= (bits << 12) & i64::from(is_zero.cast_signed()).cast_unsigned();
        }
    };
    let (chunks, rest) = values.as_chunks::<LANES>();
    chunks.iter().for_each(&mut add);
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    add(&last);
    Exponents {
        above_least: above_least.into_iter().fold(0, u32::max),
        most: most.into_iter().fold(0, u32::max),
        has_other: Others {
            is_subnormal: subnormal.iter().any(|bits| *bits != 0),
            is_not_finite: not_finite.iter().any(|bits| *bits != 0),
        },
    }
}

kernel! {
    /// Adds to the sum of each row's group its float, in units of 2 to the power of `place`.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn add_scaled(sums: &mut [i128], groups: &[u32], values: &[f64], place: i32) = plain_add_scaled;
}

#[inline(always)]
fn plain_add_scaled(sums: &mut [i128], groups: &[u32], values: &[f64], place: i32) {
    for (group, value) in groups.iter().zip(values) {
        let (number, exponent) = scaled(*value);
        // Zero stays zero wherever it is put.
        sums[*group as usize] += i128::from(number) << ((exponent - place) as u32 % u128::BITS);
    }
}

impl CompactSum {
    /// Adds one float.
    #[inline]
    pub fn push(&mut self, value: f64) {
        let (magnitude, exponent) = scaled(value);
        if let Form::Scaled { number, unit } = &mut self.0
            && value.is_finite()
        {
            if *number == 0 {
                *unit = (exponent - BITS_BELOW).clamp(*UNITS.start(), *UNITS.end());
            }
            let shift = exponent - *unit;
            // Shifted by less, a float has at most 126 bits.
            if (0..74).contains(&shift)
                && let Some(sum) = number.checked_add(i128::from(magnitude) << shift)
            {
                *number = sum;
                return;
            }
        }
        if value != 0.0 {
            self.any().push(value);
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, Form::Scaled { number: 0, .. }) => {}
            (Form::Scaled { number: 0, .. }, _) => *self = other.clone(),
            (Form::Scaled { number, unit }, Form::Scaled { number: added, unit: of_added }) => {
                let least = (*unit).min(*of_added);
                let shifted = |number: i128, unit: i32| {
                    let shift = (unit - least).cast_unsigned();
                    (shift < u128::BITS && number << shift >> shift == number).then(|| number << shift)
                };
                let (sum, added_number) = (shifted(*number, *unit), shifted(*added, *of_added));
                if let Some(sum) = sum.zip(added_number).and_then(|(sum, added)| sum.checked_add(added)) {
                    (*number, *unit) = (sum, least);
                } else {
                    self.any().push_wide(*added, *of_added);
                }
            }
            (_, Form::Scaled { number, unit }) => self.any().push_wide(*number, *unit),
            (_, Form::Any(other)) => self.any().merge(other),
        }
    }

    fn any(&mut self) -> &mut ExactSum {
        if let Form::Scaled { number, unit } = self.0 {
            let mut sum = Box::<ExactSum>::default();
            sum.push_wide(number, unit);
            self.0 = Form::Any(sum);
        }
        match &mut self.0 {
            Form::Any(sum) => sum,
            Form::Scaled { .. } => unreachable!("it was changed"),
        }
    }

    /// Adds the sum to another.
    pub fn add_to(&self, sum: &mut ExactSum) {
        match &self.0 {
            Form::Scaled { number, unit } => sum.push_wide(*number, *unit),
            Form::Any(own) => sum.merge(own),
        }
    }

    /// The sum, rounded once.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.mean(1).unwrap_or_default()
    }

    /// The sum divided by `count`, rounded once; `None` for a count of zero.
    #[must_use]
    pub fn mean(&self, count: u64) -> Option<f64> {
        match &self.0 {
            Form::Scaled { number, unit } => divided_scaled(*number, *unit, count),
            Form::Any(sum) => sum.mean(count),
        }
    }

    /// Bytes outside the sum itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        if let Form::Any(_) = self.0 { size_of::<ExactSum>() } else { 0 }
    }

    /// The sum as bytes for [`CompactSum::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Form::Scaled { number, unit } => {
                let mut bytes = number.to_le_bytes().to_vec();
                bytes.extend(unit.to_le_bytes());
                bytes
            }
            Form::Any(sum) => sum.to_words().iter().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }

    /// The sum that [`CompactSum::to_bytes`] wrote; `None` when the bytes are not of a sum.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        const NUMBER: usize = size_of::<i128>();
        if bytes.len() == NUMBER + size_of::<i32>() {
            let (number, unit) = bytes.split_at(NUMBER);
            let number = i128::from_le_bytes(number.try_into().ok()?);
            let unit = i32::from_le_bytes(unit.try_into().ok()?);
            return UNITS.contains(&unit).then_some(Self(Form::Scaled { number, unit }));
        }
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let sum = ExactSum::from_words(&words).filter(|_| rest.is_empty())?;
        Some(Self(Form::Any(Box::new(sum))))
    }
}

impl From<ExactSum> for CompactSum {
    fn from(sum: ExactSum) -> Self {
        Self(Form::Any(Box::new(sum)))
    }
}

/// `sum / count`, rounded once; `None` for a count of zero.
#[must_use]
pub fn divided(sum: i128, count: u64) -> Option<f64> {
    if count == 0 {
        return None;
    }
    // Both are floats as they are, and a division of floats is rounded once.
    const WHOLE_MAX: u64 = 1 << f64::MANTISSA_DIGITS;
    if sum.unsigned_abs() <= u128::from(WHOLE_MAX) && count <= WHOLE_MAX {
        #[expect(clippy::cast_precision_loss, reason = "they are small enough")]
        return Some(sum as f64 / count as f64);
    }
    // The dividend's top bit is set, so the quotient has at least 64 bits, more than a float keeps. A nonzero
    // remainder sets the quotient's last bit (a sticky bit), which makes the rounding to a float exact.
    let magnitude = sum.unsigned_abs();
    let shift = magnitude.leading_zeros().min(127);
    let dividend = magnitude << shift;
    let quotient = (dividend / u128::from(count)) | u128::from(!dividend.is_multiple_of(u128::from(count)));
    #[expect(clippy::cast_precision_loss, reason = "this is where it is rounded")]
    let average = quotient as f64 * power_of_two(-shift.cast_signed());
    Some(if sum < 0 { -average } else { average })
}

/// `number * 2^unit / count`, rounded once; `None` for a count of zero.
///
/// # Panics
/// When the unit is not from -1074 to 800.
#[must_use]
pub fn divided_scaled(number: i128, unit: i32, count: u64) -> Option<f64> {
    // A quotient is 0 or from 2^-64 to 2^127, so that the product with such a power of two is a normal float, hence
    // exact.
    if (-900..=800).contains(&unit) {
        return divided(number, count).map(|quotient| quotient * power_of_two(unit));
    }
    let mut sum = ExactSum::default();
    sum.push_wide(number, unit);
    sum.mean(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_once() {
        let check = |sum: i128, count, expected: f64| {
            assert_eq!(divided(sum, count), Some(expected));
            assert_eq!(divided(-sum, count), Some(-expected));
        };
        check(9, 3, 3.0);
        check(1, 3, 1.0 / 3.0);
        check((1 << 53) + 1, 1, 9_007_199_254_740_992.0);
        check((1 << 54) + 3, 2, 9_007_199_254_740_994.0);
        check(3 * ((1 << 53) + 3), 3, 9_007_199_254_740_996.0);
        check(i128::from(u64::MAX) * 7, 7, 18_446_744_073_709_551_616.0);
        assert_eq!(divided(0, 5), Some(0.0));
        assert_eq!(divided(0, 0), None);
    }

    /// Values of all kinds of sizes, as pieces of sums that are merged in another order.
    #[test]
    fn sums_are_those_of_the_large_accumulator() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            state >> 11
        };
        let specials = [0.0, -0.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::MIN, f64::INFINITY, f64::NAN];
        for spread in [0, 3, 40, 90, 300, 2047] {
            for length in [1, 2, 7, 100] {
                for with_specials in [false, true] {
                    let mut values: Vec<f64> = (0..length)
                        .map(|_| {
                            let exponent = (1023 - spread / 2 + random() % (spread + 1)).clamp(0, 2046);
                            f64::from_bits(random() << 63 | exponent << 52 | random() & ((1 << 52) - 1))
                        })
                        .collect();
                    if with_specials {
                        values.extend((0..2).map(|_| specials[(random() % 8) as usize]));
                    }
                    let mut expected = ExactSum::default();
                    expected.extend(values.iter().copied());
                    let mut sum = CompactSum::default();
                    values.iter().for_each(|value| sum.push(*value));
                    let mut merged = CompactSum::default();
                    for piece in values.chunks(3).rev() {
                        let mut part = CompactSum::default();
                        piece.iter().for_each(|value| part.push(*value));
                        merged.merge(&CompactSum::from_bytes(&part.to_bytes()).unwrap());
                    }
                    for sum in [sum, merged] {
                        assert_eq!(sum.value().to_bits(), expected.value().to_bits(), "{values:?}");
                        for count in [1, 3, length, u64::MAX] {
                            let means = [sum.mean(count), expected.mean(count)];
                            let [mean, expected] = means.map(|mean| mean.unwrap().to_bits());
                            assert_eq!(mean, expected, "{values:?} by {count}");
                        }
                    }
                }
            }
        }
        assert_eq!(CompactSum::default().mean(0), None);
        assert!(CompactSum::from_bytes(&[1, 2, 3]).is_none());
    }

    #[test]
    fn ranges_of_bits_are_those_of_all_values() {
        let cases: [(&[f64], Range<i32>, bool); 9] = [
            (&[], 0..0, true),
            (&[0.0, -0.0], 0..0, true),
            (&[1.0], -52..1, true),
            (&[-1.0, 0.0, 4.0], -52..3, true),
            (&[f64::NAN, 0.5], -53..0, false),
            (&[f64::INFINITY], 0..0, false),
            (&[5e-324], -1074..-1021, true),
            (&[0.0, 1.0, -f64::MIN_POSITIVE / 2.0], -1074..1, true),
            (&[f64::MAX, f64::MIN_POSITIVE], -1074..1024, true),
        ];
        for (values, places, is_finite) in cases {
            for zeros in [0, 1, 15, 16, 40] {
                let values: Vec<f64> = vec![0.0; zeros].into_iter().chain(values.iter().copied()).collect();
                for level in Level::available() {
                    let expected = BitRange { places: places.clone(), is_finite };
                    assert_eq!(BitRange::of(*level, &values), expected, "{values:?}");
                }
            }
        }
    }

    #[test]
    fn cancelled_values_leave_nothing() {
        let mut sum = CompactSum::default();
        [1e300, 1.0, -1e300, -1.0].iter().for_each(|value| sum.push(*value));
        assert_eq!(sum.value().to_bits(), 0);
    }
}
