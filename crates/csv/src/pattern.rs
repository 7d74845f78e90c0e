//! Moments in a format of the caller's, with the letters of Python's `strptime`.
//!
//! The letters are chrono's but for three: `%f`, `%g` and `%n` are the digits behind the point of the seconds,
//! however many there are. What the format leaves out is the least possible, as in `2020-05` for its first
//! day, but for the year.

use chrono::NaiveDateTime;
use chrono::format::{Parsed, StrftimeItems, parse_and_remainder};

/// A date and time as written, and the seconds east of Greenwich if a zone was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// What clocks showed.
    pub local: NaiveDateTime,
    /// The distance of these clocks from those in Greenwich.
    pub offset_seconds: Option<i32>,
}

/// The moment that `text` is, written as `pattern` says; `None` if it is written otherwise.
pub fn parse_with_pattern(text: &str, pattern: &str) -> Option<Written> {
    let mut parsed = Parsed::new();
    let (mut text, mut pattern) = (text, pattern);
    while let Some(at) = fraction(pattern) {
        let before = parse_and_remainder(&mut parsed, text, StrftimeItems::new(&pattern[..at])).ok()?;
        let digits = before.bytes().take(9).take_while(u8::is_ascii_digit).count();
        let value: i64 = before[..digits].parse().ok()?;
        let unit = 10_i64.pow(9 - u32::try_from(digits).ok()?);
        parsed.set_nanosecond(value * unit).ok()?;
        (text, pattern) = (&before[digits..], &pattern[at + 2..]);
    }
    chrono::format::parse(&mut parsed, text, StrftimeItems::new(pattern)).ok()?;
    if parsed.timestamp().is_none() {
        fill(&mut parsed)?;
    }
    let offset_seconds = parsed.offset();
    let local = parsed.to_naive_datetime_with_offset(offset_seconds.unwrap_or(0)).ok()?;
    Some(Written { local, offset_seconds })
}

/// Where the first `%f`, `%g` or `%n` begins.
fn fraction(pattern: &str) -> Option<usize> {
    let bytes = pattern.as_bytes();
    let mut at = 0;
    while let Some(percent) = bytes[at..].iter().position(|byte| *byte == b'%') {
        at += percent;
        match bytes.get(at + 1)? {
            b'f' | b'g' | b'n' => return Some(at),
            _ => at += 2,
        }
    }
    None
}

/// Gives the fields that were not read their least values.
fn fill(parsed: &mut Parsed) -> Option<()> {
    if parsed.to_naive_date().is_err() {
        if parsed.month().is_none() {
            parsed.set_month(1).ok()?;
        }
        if parsed.day().is_none() {
            parsed.set_day(1).ok()?;
        }
    }
    if parsed.hour_div_12().is_none() {
        parsed.set_ampm(false).ok()?;
    }
    if parsed.hour_mod_12().is_none() {
        parsed.set_hour12(12).ok()?;
    }
    if parsed.minute().is_none() {
        parsed.set_minute(0).ok()?;
    }
    if parsed.second().is_none() {
        parsed.set_second(0).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_written_counts() {
        let check = |text: &str, pattern: &str, expected: Option<&str>| {
            let found = parse_with_pattern(text, pattern).map(|written| {
                let offset = written.offset_seconds.map_or_else(String::new, |seconds| format!(" {seconds}"));
                format!("{}{offset}", written.local)
            });
            assert_eq!(found.as_deref(), expected, "{text} {pattern}");
        };
        check("1970-01-01 00:00:58.745232", "%Y-%m-%d %H:%M:%S.%f", Some("1970-01-01 00:00:58.745232"));
        check("1970-01-01 00:00:00.5", "%Y-%m-%d %H:%M:%S.%f", Some("1970-01-01 00:00:00.500"));
        check("1970-01-01 00:00:58", "%Y-%m-%d %H:%M:%S.%f", None);
        check("1970-01-01 00:00:58,25", "%Y-%m-%d %H:%M:%S,%g", Some("1970-01-01 00:00:58.250"));
        check("58123456789 1970-01-01", "%S%n %Y-%m-%d", Some("1970-01-01 00:00:58.123456789"));
        check("25 1970-01-01", "%f %Y-%m-%d", Some("1970-01-01 00:00:00.250"));
        check("1970-01-01 %f 5", "%Y-%m-%d %%f %H", Some("1970-01-01 05:00:00"));
        check("1970-01-01 00:00:58.5", "%Y-%m-%d %H:%M:%S%.f", Some("1970-01-01 00:00:58.500"));
        check("2020-01-02 03", "%Y-%m-%d %H", Some("2020-01-02 03:00:00"));
        check("2020-01-02 3 PM", "%Y-%m-%d %I %p", Some("2020-01-02 15:00:00"));
        check("2020-01-02 58", "%Y-%m-%d %S", Some("2020-01-02 00:00:58"));
        check("2020-01-02 30", "%Y-%m-%d %M", Some("2020-01-02 00:30:00"));
        check("2020-05", "%Y-%m", Some("2020-05-01 00:00:00"));
        check("2020", "%Y", Some("2020-01-01 00:00:00"));
        check("2020 60", "%Y %j", Some("2020-02-29 00:00:00"));
        check("02/01/1970", "%d/%m/%Y", Some("1970-01-02 00:00:00"));
        check("1970-01-01 01:00 +0100", "%Y-%m-%d %H:%M %z", Some("1970-01-01 01:00:00 3600"));
        check("86400", "%s", Some("1970-01-02 00:00:00"));
        check("86400.5", "%s.%f", Some("1970-01-02 00:00:00.500"));
        check("1970-01-32", "%Y-%m-%d", None);
        check("1970-01-01 25", "%Y-%m-%d %H", None);
        check("1970-01-01 ", "%Y-%m-%d", None);
        check("03:04", "%H:%M", None);
    }
}
