//! Numbers converted to other number types, and from text.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, PrimitiveArray, StringViewArray,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float32Type, Float64Type};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};

use super::{has_no_room, is_no};

/// All whole numbers up to this one are exact as 64-bit floats.
const EXACT_MAX: u128 = 1 << f64::MANTISSA_DIGITS;
/// 10^0 to 10^22, the powers of ten that are exact as 64-bit floats.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Converts fractions to whole numbers, DECIMALs to floats, and floats to DECIMALs.
pub(super) fn convert(values: &ArrayRef, to: &DataType, is_try: bool) -> Result<ArrayRef> {
    let from = values.data_type();
    let options = CastOptions { safe: is_try, ..CastOptions::default() };
    if to.is_integer() {
        let whole: ArrayRef = match from {
            DataType::Float16 => {
                return convert(&cast(values, &DataType::Float32)?, to, is_try);
            }
            DataType::Float32 => {
                Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
            }
            DataType::Float64 => {
                Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
            }
            // Arrow rounds half away from zero where it drops digits.
            _ => cast_with_options(values, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0), &options)?,
        };
        return Ok(cast_with_options(&whole, to, &options)?);
    }
    match (from, to) {
        (DataType::Decimal128(_, scale), DataType::Float64) => {
            let scale = *scale;
            let values = values.as_primitive::<Decimal128Type>();
            Ok(Arc::new(values.unary::<_, Float64Type>(|value| double(value, scale))))
        }
        (DataType::Decimal128(_, scale), DataType::Float32) => {
            let scale = *scale;
            let values = values.as_primitive::<Decimal128Type>();
            Ok(Arc::new(values.unary::<_, Float32Type>(|value| nearest(value, scale))))
        }
        (_, DataType::Float16 | DataType::Float32 | DataType::Float64) => {
            Ok(cast_with_options(values, to, &options)?)
        }
        (DataType::Float64, DataType::Decimal128(precision, scale)) => {
            let values = values.as_primitive::<Float64Type>();
            each(values, to, is_try, |value| decimal_of_double(value, *precision, *scale))
        }
        (DataType::Float16, DataType::Decimal128(..)) => {
            convert(&cast(values, &DataType::Float32)?, to, is_try)
        }
        (DataType::Float32, DataType::Decimal128(precision, scale)) => {
            let values = values.as_primitive::<Float32Type>();
            each(values, to, is_try, |value| decimal_of_text(&format!("{value:e}"), *precision, *scale))
        }
        (from, to) => internal_err!("a cast from {from} to {to}"),
    }
}

/// Each value as a DECIMAL.
fn each<F: ArrowPrimitiveType>(
    values: &PrimitiveArray<F>,
    to: &DataType,
    is_try: bool,
    decimal: impl Fn(F::Native) -> Option<i128>,
) -> Result<ArrayRef>
where
    F::Native: std::fmt::Display,
{
    let decimals: Decimal128Array = if is_try {
        values.unary_opt(decimal)
    } else {
        values.try_unary(|value| decimal(value).ok_or_else(|| has_no_room(value, to)))?
    };
    Ok(Arc::new(decimals.with_data_type(to.clone())))
}

/// The 64-bit float that is nearest to `value / 10^scale`.
pub(super) fn double(value: i128, scale: i8) -> f64 {
    match usize::try_from(scale).ok().and_then(|scale| POWERS.get(scale)) {
        // Both are exact, so that only the division rounds.
        #[expect(clippy::cast_precision_loss, reason = "a whole number so small is a float")]
        Some(power) if value.unsigned_abs() <= EXACT_MAX => value as f64 / power,
        _ => nearest(value, scale),
    }
}

fn nearest<F: std::str::FromStr + Default>(value: i128, scale: i8) -> F {
    format!("{value}e{}", -i32::from(scale)).parse().unwrap_or_default()
}

/// The DECIMAL that a float means. If `scale` asks for no more than 15 significant digits, which a float
/// always determines, it is the float rounded to `scale`; a whole number within 64 bits is itself; anything
/// else is what its shortest text says.
fn decimal_of_double(value: f64, precision: u8, scale: i8) -> Option<i128> {
    const SURE: f64 = 1e15;
    const BIGINT: f64 = 18_446_744_073_709_551_616.0;
    if !value.is_finite() {
        return None;
    }
    let power = usize::try_from(scale).ok().and_then(|scale| POWERS.get(scale));
    if let Some(power) = power {
        let scaled = value * power;
        let distance = (scaled.fract().abs() - 0.5).abs();
        // Near the middle between two numbers the rounding error of the product could decide.
        if scaled.abs() < SURE && distance > scaled.abs() * 1e-14 + f64::EPSILON {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 10^15")]
            return fitting(scaled.round() as i128, precision);
        }
        if scaled.abs() < SURE {
            return decimal_of_text(&format!("{value:.14e}"), precision, scale);
        }
    }
    if value.fract() == 0.0 && value.abs() < BIGINT && scale >= 0 {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^64")]
        let whole = value as i128;
        return fitting(whole.checked_mul(10_i128.checked_pow(scale.unsigned_abs().into())?)?, precision);
    }
    decimal_of_text(&format!("{value:e}"), precision, scale)
}

fn fitting(value: i128, precision: u8) -> Option<i128> {
    (value.unsigned_abs() < 10_u128.pow(precision.into())).then_some(value)
}

/// `-12.5e3` as a number of `1 / 10^scale`, rounded half away from zero.
fn decimal_of_text(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let text = text.trim();
    let (is_negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = || whole.bytes().chain(fraction.bytes());
    if !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // How many of the digits, padded with zeros, remain.
    let kept = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(scale);
    let mut value: i128 = 0;
    for (index, digit) in (0_i64..).zip(digits()) {
        let digit = i128::from(digit - b'0');
        if index == kept {
            value = value.checked_add(i128::from(digit >= 5))?;
            break;
        } else if index > kept {
            break;
        }
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    let count = i64::try_from(whole.len() + fraction.len()).ok()?;
    if kept > count && value != 0 {
        let zeros = u32::try_from(kept - count).ok()?;
        value = value.checked_mul(10_i128.checked_pow(zeros)?)?;
    }
    fitting(if is_negative { -value } else { value }, precision)
}

pub(super) fn decimals_of_text(
    values: &StringViewArray,
    precision: u8,
    scale: i8,
    is_try: bool,
) -> Result<ArrayRef> {
    let to = DataType::Decimal128(precision, scale);
    let mut decimals = Vec::with_capacity(values.len());
    for value in values {
        let decimal = value.and_then(|value| decimal_of_text(value, precision, scale));
        match value {
            Some(value) if decimal.is_none() && !is_try => {
                // The value is either a number that is too large, or no number.
                let is_number = value.trim().parse::<f64>().is_ok_and(f64::is_finite);
                let fails: fn(&str, &DataType) -> DataFusionError =
                    if is_number { |value, to| has_no_room(value, to) } else { |value, to| is_no(value, to) };
                return Err(fails(value, &to));
            }
            _ => decimals.push(decimal),
        }
    }
    Ok(Arc::new(Decimal128Array::from(decimals).with_data_type(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decimals_with_exponents_and_rounded_half_away() {
        let check = |text: &str, precision, scale, expected: Option<i128>| {
            assert_eq!(decimal_of_text(text, precision, scale), expected, "{text}");
        };
        check("1e3", 10, 2, Some(100_000));
        check("1e-1", 10, 2, Some(10));
        check(".1e3", 10, 2, Some(10_000));
        check("-0.005", 10, 2, Some(-1));
        check("0.00499999", 10, 2, Some(0));
        check("0.5e-2", 10, 2, Some(1));
        check("1.005", 10, 2, Some(101));
        check("12345", 5, -2, Some(123));
        check("12350", 5, -2, Some(124));
        check("99.995", 4, 2, None);
        check("5", 10, -1, Some(1));
        check("4e-100", 10, 2, Some(0));
        check("1e40", 38, 0, None);
        check("0e40", 38, 0, Some(0));
        check("5.", 38, 0, Some(5));
        for text in ["", ".", "-", "1e", "1.2.3", "abc", "1_0", "--1", "NaN", "inf"] {
            check(text, 38, 10, None);
        }
        check(&"9".repeat(38), 38, 0, Some(10_i128.pow(38) - 1));
        check(&"9".repeat(39), 38, 0, None);
    }

    #[test]
    fn doubles_are_the_decimals_that_they_mean() {
        let check = |value: f64, precision, scale, expected: Option<i128>| {
            assert_eq!(decimal_of_double(value, precision, scale), expected, "{value}");
            assert_eq!(decimal_of_double(-value, precision, scale), expected.map(|value| -value), "-{value}");
        };
        check(1.005, 10, 2, Some(101));
        check(2.01 / 2.0, 10, 2, Some(101));
        check(0.1 + 0.2, 10, 1, Some(3));
        check(0.285, 10, 2, Some(29));
        check(1.004_999, 10, 2, Some(100));
        check(0.1, 38, 20, Some(10_i128.pow(19)));
        check(2_f64.powi(60), 38, 0, Some(1 << 60));
        check(9e37, 38, 0, Some(9 * 10_i128.pow(37)));
        check(1e300, 38, 0, None);
        check(f64::NAN, 38, 0, None);
        check(99.5, 2, 0, None);
    }

    #[test]
    fn decimals_are_the_nearest_doubles() {
        let check = |value: i128, scale, expected: f64| {
            assert_eq!(double(value, scale).to_bits(), expected.to_bits(), "{value} {scale}");
        };
        check(30_000_000_000_000_004, 17, 0.300_000_000_000_000_04);
        check(1_234_567_890_123_456_789, 19, 0.123_456_789_012_345_68);
        check(1, 1, 0.1);
        check(12, -2, 1200.0);
    }
}
