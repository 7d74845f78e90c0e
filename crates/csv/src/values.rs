//! Numbers and truth values from bytes.
//!
//! Floats take the exact path of Clinger ("How to read floating point numbers accurately", 1990): up to
//! 2^53 in digits and a power of ten up to 10^22 are both exact, so one division rounds once. All else
//! goes to the standard library, which is correctly rounded too.

/// A signed decimal integer.
#[inline]
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => (false, text),
    };
    let magnitude = parse_digits(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// An unsigned decimal integer.
#[inline]
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    parse_digits(text.strip_prefix(b"+").unwrap_or(text))
}

#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    if digits.len() <= 19 {
        // 10^19 - 1 fits.
        for &byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u64::from(digit);
        }
        return Some(value);
    }
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// A decimal number, with or without point and exponent; `inf`, `infinity` and `nan` in any case.
#[inline]
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    // The fast path must not overflow: 18 digits and a point.
    if digits.len() <= 19 {
        let mut mantissa = 0u64;
        let mut point = usize::MAX;
        let mut digit_count = 0;
        for (at, &byte) in digits.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
                digit_count += 1;
            } else if byte == b'.' && point == usize::MAX {
                point = at;
            } else {
                return parse_f64_slow(text);
            }
        }
        if digit_count == 0 {
            return None;
        }
        let decimals = if point == usize::MAX { 0 } else { digits.len() - point - 1 };
        if digit_count <= 18 && mantissa <= 1 << 53 {
            #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
            let value = mantissa as f64 / POWERS_OF_TEN[decimals];
            return Some(if negative { -value } else { value });
        }
    }
    parse_f64_slow(text)
}

#[cold]
fn parse_f64_slow(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// As [`parse_f64`], rounded directly to `f32`.
pub(crate) fn parse_f32(text: &[u8]) -> Option<f32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `true` and `false` in any case, and the usual alternatives.
pub(crate) fn parse_bool(text: &[u8]) -> Option<bool> {
    let is = |words: [&str; 5]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
    if is(["true", "t", "yes", "y", "1"]) {
        Some(true)
    } else if is(["false", "f", "no", "n", "0"]) {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_reach_their_limits_and_no_further() {
        let check = |text: &str| {
            assert_eq!(parse_i64(text.as_bytes()), text.parse().ok(), "{text}");
            assert_eq!(parse_u64(text.as_bytes()), text.parse().ok(), "{text}");
        };
        for text in [
            "0",
            "-1",
            "+7",
            "007",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "18446744073709551616",
            "99999999999999999999999",
            "",
            "-",
            "+",
            "--1",
            "1 ",
            "1.0",
            "0x1",
            "00000000000000000000000001",
        ] {
            check(text);
        }
    }

    #[test]
    fn floats_equal_the_standard_library() {
        for text in [
            "12.36",
            ".5",
            "5.",
            ".",
            "-",
            "",
            "-0",
            "1e5",
            "1E-400",
            "1e400",
            "0.1",
            "123456789012345678",
            "1234567890123456789",
            "0.000000000000000001",
            "9007199254740993",
            "9007199254740992.5",
            "inf",
            "-NaN",
            "1.2.3",
            "1,5",
            "--1",
            "+1.5",
            "1_000",
            "0x10",
            "00.5",
        ] {
            let expected: Option<f64> = text.parse().ok();
            assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits), "{text}");
        }
    }

    proptest! {
        #[test]
        fn decimals_are_rounded_as_by_the_standard_library(text in "-?[0-9]{0,20}(\\.[0-9]{0,20})?(e-?[0-9]{1,3})?") {
            let expected: Option<f64> = text.parse().ok();
            prop_assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits));
        }

        #[test]
        fn integers_equal_the_standard_library(text in "[-+]?[0-9]{0,22}") {
            prop_assert_eq!(parse_i64(text.as_bytes()), text.parse().ok());
            prop_assert_eq!(parse_u64(text.as_bytes()), text.parse().ok());
        }
    }
}
