//! Readable numbers.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`, `1,000 rows`.
pub(crate) fn plural(number: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Two or three digits and a unit: `950`, `1.2 k`, `45 M`.
pub(crate) fn count(number: f64) -> String {
    scaled(number, &["", " k", " M", " G", " T"])
}

/// `1.2 GB`, in powers of ten as disks are sold.
pub(crate) fn bytes(number: f64) -> String {
    scaled(number, &[" B", " kB", " MB", " GB", " TB"])
}

fn scaled(number: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && number < 9.95);
    format!("{number:.digits$}{}", units[unit])
}

/// A duration to three digits or so: `0.012 s`, `12.3 s`, `2 min 5 s`.
pub(crate) fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// [`duration`] for a count of seconds.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        ..9.9995 => format!("{seconds:.3} s"),
        ..99.95 => format!("{seconds:.1} s"),
        _ => duration_coarse(seconds),
    }
}

/// Whole seconds: `5 s`, `2 min 5 s`, `3 h 2 min`.
pub(crate) fn duration_coarse(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.round()).unwrap_or(Duration::MAX).as_secs();
    match whole {
        ..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_say_their_unit() {
        let check = |text: String, expected: &str| assert_eq!(text, expected);
        check(grouped(0), "0");
        check(grouped(999), "999");
        check(grouped(1_234_567), "1,234,567");
        check(plural(1, "row"), "1 row");
        check(plural(1000, "row"), "1,000 rows");
        check(count(950.0), "950");
        check(count(1234.0), "1.2 k");
        check(count(999_999.0), "1.0 M");
        check(bytes(45_600_000.0), "46 MB");
        check(duration(Duration::from_millis(12)), "0.012 s");
        check(duration(Duration::from_millis(12_345)), "12.3 s");
        check(duration(Duration::from_secs(125)), "2 min 5 s");
        check(duration_coarse(f64::INFINITY), "5124095576030431 h 0 min");
        check(duration_coarse(7_400.0), "2 h 3 min");
    }
}
