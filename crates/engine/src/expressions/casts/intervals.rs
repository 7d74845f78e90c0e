//! Intervals: read from text as PostgreSQL does, and ordered by length.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, IntervalMonthDayNanoArray, StringViewArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::error::Result;

use super::is_no;

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;
const MONTH_DAYS: i128 = 30;
/// The most digits of a number: more are refused, so that nothing overflows on the way.
const DIGITS_MAX: usize = 18;

/// A unit, in the field of an interval that counts it.
#[derive(Clone, Copy)]
enum Unit {
    Years(i128),
    Months(i128),
    Days(i128),
    Nanoseconds(i128),
}

fn unit(name: &str) -> Option<Unit> {
    let name = name.to_ascii_lowercase();
    let singular = name.strip_suffix('s').filter(|name| name.len() > 1).unwrap_or(&name);
    Some(match singular {
        "millennium" | "millennia" | "mil" => Unit::Years(1000),
        "century" | "centurie" | "cent" | "c" => Unit::Years(100),
        "decade" | "dec" => Unit::Years(10),
        "year" | "yr" | "y" => Unit::Years(1),
        "quarter" | "qtr" => Unit::Months(3),
        "month" | "mon" => Unit::Months(1),
        "week" | "w" => Unit::Days(7),
        "day" | "d" => Unit::Days(1),
        "hour" | "hr" | "h" => Unit::Nanoseconds(3600 * SECOND),
        "minute" | "min" | "m" => Unit::Nanoseconds(60 * SECOND),
        "second" | "sec" | "s" => Unit::Nanoseconds(SECOND),
        "millisecond" | "msec" | "ms" => Unit::Nanoseconds(1_000_000),
        "microsecond" | "usec" | "us" => Unit::Nanoseconds(1_000),
        "nanosecond" | "nsec" | "ns" => Unit::Nanoseconds(1),
        _ => return None,
    })
}

/// `digits / 10^scale`.
#[derive(Clone, Copy)]
struct Amount {
    digits: i128,
    scale: u32,
}

#[derive(Default)]
struct Parts {
    months: i128,
    days: i128,
    nanoseconds: i128,
}

impl Parts {
    /// Adds an amount of a unit. A fraction of a month becomes days, 30 to a month, and a fraction of a day
    /// hours.
    fn add(&mut self, amount: Amount, unit: Unit) {
        let one = 10_i128.pow(amount.scale);
        match unit {
            Unit::Years(count) => {
                let months = amount.digits * count * 12;
                let half = one / 2 * months.signum();
                self.months += (months + half) / one;
            }
            Unit::Months(count) => {
                let months = amount.digits * count;
                self.months += months / one;
                self.add(Amount { digits: months % one * MONTH_DAYS, ..amount }, Unit::Days(1));
            }
            Unit::Days(count) => {
                let days = amount.digits * count;
                self.days += days / one;
                self.nanoseconds += days % one * DAY / one;
            }
            Unit::Nanoseconds(count) => self.nanoseconds += amount.digits * count / one,
        }
    }

    fn finish(self) -> Option<IntervalMonthDayNano> {
        let Self { months, days, nanoseconds } = self;
        Some(IntervalMonthDayNano::new(
            months.try_into().ok()?,
            days.try_into().ok()?,
            nanoseconds.try_into().ok()?,
        ))
    }
}

/// `1 year 2 months`, `-1.5 weeks`, `1 day 02:00:00`, `1-2`, `P1Y2DT3H`, `42` for seconds.
pub(super) fn parse(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim();
    if let Some(iso) = text.strip_prefix(['P', 'p']) {
        return parse_iso(iso);
    }
    let text = text.strip_prefix('@').unwrap_or(text);
    let (text, is_ago) = match text.len().checked_sub(4).and_then(|at| text.split_at_checked(at)) {
        Some((text, ago)) if ago.eq_ignore_ascii_case(" ago") => (text, true),
        _ => (text, false),
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut parts = Parts::default();
    while !rest.is_empty() {
        let (amount, is_negative, after) = number(rest)?;
        if let Some(after) = after.strip_prefix(':') {
            let (nanoseconds, after) = clock(amount, after)?;
            parts.nanoseconds += if is_negative { -nanoseconds } else { nanoseconds };
            rest = after.trim_start();
            continue;
        }
        // Years and months, as `1-2`.
        if let Some(after) = after.strip_prefix('-')
            && let Some((months, false, after)) = number(after)
            && amount.scale == 0
            && months.scale == 0
            && months.digits < 12
        {
            let months = amount.digits.abs() * 12 + months.digits;
            parts.months += if is_negative { -months } else { months };
            rest = after.trim_start();
            continue;
        }
        let after = after.trim_start();
        let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (name, after) = after.split_at(length);
        // A number without a unit means seconds, and only at the end.
        let unit = if name.is_empty() && after.is_empty() { Unit::Nanoseconds(SECOND) } else { unit(name)? };
        parts.add(amount, unit);
        rest = after.trim_start_matches([' ', ',', '\t', '\n']);
    }
    if is_ago {
        let Parts { months, days, nanoseconds } = parts;
        parts = Parts { months: -months, days: -days, nanoseconds: -nanoseconds };
    }
    parts.finish()
}

/// The number at the beginning, whether it has a minus, and the text behind it.
fn number(text: &str) -> Option<(Amount, bool, &str)> {
    let (is_negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text[1..].trim_start()),
        b'+' => (false, text[1..].trim_start()),
        _ => (false, text),
    };
    let length = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (digits, rest) = unsigned.split_at(length);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let count = whole.len() + fraction.len();
    if count == 0 || count > DIGITS_MAX || fraction.contains('.') {
        return None;
    }
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    let amount = Amount {
        digits: if is_negative { -value } else { value },
        scale: u32::try_from(fraction.len()).ok()?,
    };
    Some((amount, is_negative, rest))
}

/// The nanoseconds of `hours:minutes[:seconds]`, of which `hours` was read, without their sign; and the text
/// behind.
fn clock(hours: Amount, after: &str) -> Option<(i128, &str)> {
    let two = |text: &str| text.as_bytes().first().is_some_and(u8::is_ascii_digit);
    let (minutes, _, rest) = number(after).filter(|_| two(after))?;
    let mut nanoseconds = hours.digits.abs() * 3600 * SECOND + minutes.digits * 60 * SECOND;
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix(':') {
        let (seconds, _, after) = number(after).filter(|_| two(after))?;
        nanoseconds += seconds.digits * SECOND / 10_i128.pow(seconds.scale);
        (seconds.digits < 60 * 10_i128.pow(seconds.scale)).then_some(())?;
        rest = after;
    }
    (hours.scale == 0 && minutes.scale == 0 && minutes.digits < 60).then_some((nanoseconds, rest))
}

/// Parses the text behind the P of ISO 8601.
fn parse_iso(text: &str) -> Option<IntervalMonthDayNano> {
    let mut parts = Parts::default();
    let mut rest = text;
    let mut is_time = false;
    let mut is_empty = true;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(['T', 't']).filter(|_| !is_time) {
            (rest, is_time) = (after, true);
            continue;
        }
        let (amount, _, after) = number(rest)?;
        let unit = match (after.as_bytes().first()?.to_ascii_uppercase(), is_time) {
            (b'Y', false) => Unit::Years(1),
            (b'M', false) => Unit::Months(1),
            (b'W', false) => Unit::Days(7),
            (b'D', false) => Unit::Days(1),
            (b'H', true) => Unit::Nanoseconds(3600 * SECOND),
            (b'M', true) => Unit::Nanoseconds(60 * SECOND),
            (b'S', true) => Unit::Nanoseconds(SECOND),
            _ => return None,
        };
        parts.add(amount, unit);
        (rest, is_empty) = (&after[1..], false);
    }
    if is_empty { None } else { parts.finish() }
}

pub(super) fn of_text(values: &StringViewArray, is_try: bool) -> Result<ArrayRef> {
    let mut intervals = Vec::with_capacity(values.len());
    for value in values {
        let interval = value.and_then(parse);
        match value {
            Some(text) if interval.is_none() && !is_try => {
                return Err(is_no(text, &DataType::Interval(IntervalUnit::MonthDayNano)));
            }
            _ => intervals.push(interval),
        }
    }
    Ok(Arc::new(IntervalMonthDayNanoArray::from(intervals)))
}

/// The length in nanoseconds, with months of 30 days and days of 24 hours.
pub(super) fn length(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * MONTH_DAYS + i128::from(interval.days);
    days * DAY + i128::from(interval.nanoseconds)
}

/// An interval of the same length in the most whole months, then days, then nanoseconds. Normalised intervals
/// of one length are equal, and comparing them field by field compares their lengths.
pub(super) fn normal(interval: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let nanoseconds = length(interval);
    let days = nanoseconds / DAY;
    let months = (days / MONTH_DAYS).clamp(i32::MIN.into(), i32::MAX.into());
    let within = |value: i128, bound: i64| value.clamp((-bound - 1).into(), bound.into());
    let days = within(days - months * MONTH_DAYS, i32::MAX.into());
    let rest = nanoseconds - (months * MONTH_DAYS + days) * DAY;
    let rest = within(rest, i64::MAX);
    IntervalMonthDayNano::new(
        months.try_into().unwrap_or_default(),
        days.try_into().unwrap_or_default(),
        rest.try_into().unwrap_or_default(),
    )
}

/// The length in seconds, with 365.25 days in twelve months and 30 in each of the other months.
pub(crate) fn epoch(interval: IntervalMonthDayNano) -> f64 {
    const YEAR_SECONDS: f64 = 365.25 * 86_400.0;
    let (years, months) = (interval.months / 12, interval.months % 12);
    let days = f64::from(months) * 30.0 + f64::from(interval.days);
    #[expect(clippy::cast_precision_loss, reason = "a number of seconds has no more digits than a float")]
    let seconds = interval.nanoseconds as f64 / 1e9;
    f64::from(years) * YEAR_SECONDS + days * 86_400.0 + seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_postgresqls_intervals() {
        let hour = 3_600_000_000_000;
        let check = |text: &str, months: i32, days: i32, nanoseconds: i64| {
            let expected = IntervalMonthDayNano::new(months, days, nanoseconds);
            assert_eq!(parse(text), Some(expected), "{text}");
        };
        check("1 year 2 months", 14, 0, 0);
        check("42", 0, 0, 42_000_000_000);
        check("-1.5", 0, 0, -1_500_000_000);
        check("0.05 MONTH", 0, 1, 12 * hour);
        check("1.5 WEEK", 0, 10, 12 * hour);
        check("1.1 years", 13, 0, 0);
        check("1 day 02:00:00", 0, 1, 2 * hour);
        check("-1 day -02:30", 0, -1, -5 * hour / 2);
        check("-00:00:01.5", 0, 0, -1_500_000_000);
        check("1-2", 14, 0, 0);
        check("P1Y2M3DT4H0.5S", 14, 3, 4 * hour + 500_000_000);
        check("PT36H", 0, 0, 36 * hour);
        check("2 quarters", 6, 0, 0);
        check("1 century, 2 decades", 1440, 0, 0);
        check("3 days ago", 0, -3, 0);
        check("5us", 0, 0, 5000);
        check("1h 30m", 0, 0, 3 * hour / 2);
        check("16 mons -3 days 4 hours 5 mins -0.5 secs", 16, -3, 4 * hour + 5 * hour / 60 - 500_000_000);
        for text in ["", "P", "abc", "1 foobar", "1 2 days", "1:70", "1..5 days", "day", "99999999999 years"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn normal_intervals_order_as_their_lengths() {
        let intervals: Vec<_> = [
            (0, 0, 0),
            (0, 1, 0),
            (0, 0, 86_400_000_000_000),
            (0, 0, 108_000_000_000_000),
            (1, 0, 0),
            (0, 30, 0),
            (1, -31, 0),
            (0, 0, -1),
            (-1, 29, 5),
            (i32::MAX, i32::MAX, i64::MAX),
            (i32::MIN, i32::MIN, i64::MIN),
            (i32::MAX, 0, 0),
        ]
        .map(|(months, days, nanoseconds)| IntervalMonthDayNano::new(months, days, nanoseconds))
        .into();
        for a in &intervals {
            for b in &intervals {
                assert_eq!(normal(*a).cmp(&normal(*b)), length(*a).cmp(&length(*b)), "{a:?} and {b:?}");
            }
        }
    }
}
