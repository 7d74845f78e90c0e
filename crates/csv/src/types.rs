//! Detects the type of a column: each value rules out the types it does not fit, and the most specific remaining
//! one is taken. Two files are unified by intersecting their remaining types.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use chrono::NaiveDate;

use crate::{
    options::Options,
    pattern::{Written, parse_with_pattern},
    temporal::{DateLayout, Moment, parse_moment, parse_time},
    values::{parse_f64, parse_i64, parse_u64},
};

/// The types that all values seen so far fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evidence {
    candidates: u64,
    /// Whether some value counted; NULLs do not, nor do `nan` and `inf`, which are also words.
    seen: bool,
}

const BOOL: u64 = 1;
const INT: u64 = 1 << 1;
const UINT: u64 = 1 << 2;
const FLOAT: u64 = 1 << 3;
const TIME: u64 = 1 << 4;
/// Not a type: no value has digits below the microsecond.
const MICROSECONDS: u64 = 1 << 5;
const CUSTOM_DATE: u64 = 1 << 6;
const CUSTOM_TIMESTAMP: u64 = 1 << 7;
const FIRST_DATE: u32 = 8;
const FIRST_TIMESTAMP: u32 = 24;
const FIRST_ZONED: u32 = 40;

/// The formats a file's dates and timestamps may have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Formats {
    date: Option<Arc<str>>,
    timestamp: Option<Arc<str>>,
}

impl Formats {
    pub(crate) fn new(options: &Options) -> Formats {
        let shared = |format: &Option<String>| format.as_deref().map(Arc::from);
        Formats { date: shared(&options.date_format), timestamp: shared(&options.timestamp_format) }
    }
}

impl Evidence {
    /// Nothing is known: everything is possible.
    pub(crate) const NONE: Evidence = Evidence { candidates: u64::MAX, seen: false };
    /// Text, whatever the values.
    pub(crate) const TEXT: Evidence = Evidence { candidates: 0, seen: true };

    pub(crate) fn and(self, other: Evidence) -> Evidence {
        Evidence { candidates: self.candidates & other.candidates, seen: self.seen || other.seen }
    }

    /// Takes a value into account that is not NULL.
    pub(crate) fn observe(&mut self, cell: &[u8], formats: &Formats) {
        if self.candidates == 0 {
            return;
        }
        let cell = cell.trim_ascii();
        let mut fits = 0;
        match cell.first() {
            Some(b'0'..=b'9' | b'-' | b'.') => {
                if let Some(number) = number(cell) {
                    fits = number;
                } else {
                    fits = self.temporal(cell);
                }
            }
            Some(_) if is_word_of_float(cell) => {
                self.candidates &= FLOAT;
                return;
            }
            Some(_) if cell.eq_ignore_ascii_case(b"true") || cell.eq_ignore_ascii_case(b"false") => {
                fits = BOOL;
            }
            _ => {}
        }
        if let Some(format) = &formats.date {
            let dates = ((1 << DateLayout::ALL.len()) - 1) << FIRST_DATE;
            let fit = parse_custom_date(cell, format).is_some();
            fits = fits & !dates | if fit { CUSTOM_DATE } else { 0 };
        }
        if let Some(format) = &formats.timestamp {
            let naive = u64::MAX << FIRST_TIMESTAMP;
            let moment = parse_custom_timestamp(cell, format);
            let exact = moment.is_some_and(|moment| moment.nanoseconds % 1000 == 0);
            fits = fits & !naive
                | if moment.is_some() { CUSTOM_TIMESTAMP } else { 0 }
                | if exact { MICROSECONDS } else { 0 };
        }
        self.candidates &= fits;
        self.seen = true;
    }

    fn temporal(&self, cell: &[u8]) -> u64 {
        // Shorter than `1:23`, or longer than any timestamp.
        if !(4..=48).contains(&cell.len()) {
            return 0;
        }
        let mut fits = 0;
        if self.candidates & TIME != 0
            && cell.iter().filter(|&&byte| byte == b':').count() == 2
            && parse_time(cell).is_some_and(|time| time % 1000 == 0)
        {
            fits |= TIME | MICROSECONDS;
        }
        for (index, layout) in (0..).zip(DateLayout::ALL) {
            let bits =
                1 << (FIRST_DATE + index) | 1 << (FIRST_TIMESTAMP + index) | 1 << (FIRST_ZONED + index);
            if self.candidates & bits == 0 {
                continue;
            }
            let Some(moment) = parse_moment(cell, layout) else { continue };
            fits |= match (moment.has_time, moment.offset_seconds) {
                (false, _) => 1 << (FIRST_DATE + index) | 1 << (FIRST_TIMESTAMP + index),
                (true, None) => 1 << (FIRST_TIMESTAMP + index),
                (true, Some(_)) => 1 << (FIRST_ZONED + index),
            };
            if moment.nanoseconds % 1000 == 0 {
                fits |= MICROSECONDS;
            }
        }
        fits
    }

    /// The most specific type left, and how to read it.
    pub(crate) fn choose(self, formats: &Formats) -> (DataType, Reading) {
        let text = (DataType::Utf8, Reading::Plain);
        let has = |bit: u64| self.candidates & bit != 0;
        if !self.seen {
            return text;
        }
        let unit = if has(MICROSECONDS) { TimeUnit::Microsecond } else { TimeUnit::Nanosecond };
        if has(BOOL) {
            return (DataType::Boolean, Reading::Plain);
        } else if has(INT) {
            return (DataType::Int64, Reading::Plain);
        } else if has(UINT) {
            return (DataType::UInt64, Reading::Plain);
        } else if has(FLOAT) {
            return (DataType::Float64, Reading::Plain);
        } else if has(TIME) {
            return (DataType::Time64(TimeUnit::Microsecond), Reading::Plain);
        } else if let (true, Some(format)) = (has(CUSTOM_DATE), &formats.date) {
            return (DataType::Date32, Reading::Custom(Arc::clone(format)));
        } else if let (true, Some(format)) = (has(CUSTOM_TIMESTAMP), &formats.timestamp) {
            let zone = custom_has_zone(format).then(utc);
            return (DataType::Timestamp(unit, zone), Reading::Custom(Arc::clone(format)));
        }
        for (index, layout) in (0..).zip(DateLayout::ALL) {
            if has(1 << (FIRST_DATE + index)) {
                return (DataType::Date32, Reading::Layout(layout));
            }
        }
        for (index, layout) in (0..).zip(DateLayout::ALL) {
            if has(1 << (FIRST_TIMESTAMP + index)) {
                return (DataType::Timestamp(unit, None), Reading::Layout(layout));
            } else if has(1 << (FIRST_ZONED + index)) {
                return (DataType::Timestamp(unit, Some(utc())), Reading::Layout(layout));
            }
        }
        text
    }

    /// How to read dates and timestamps when the caller decided the type.
    pub(crate) fn reading(self, data_type: &DataType, formats: &Formats) -> Reading {
        let firsts = match data_type {
            DataType::Date32 => {
                if let Some(format) = &formats.date {
                    return Reading::Custom(Arc::clone(format));
                }
                [FIRST_DATE, FIRST_DATE]
            }
            DataType::Timestamp(..) => {
                if let Some(format) = &formats.timestamp {
                    return Reading::Custom(Arc::clone(format));
                }
                [FIRST_TIMESTAMP, FIRST_ZONED]
            }
            _ => return Reading::Plain,
        };
        let left = |index: u32| firsts.iter().any(|first| self.candidates & 1 << (first + index) != 0);
        let layout = (0..).zip(DateLayout::ALL).find(|&(index, _)| left(index));
        Reading::Layout(layout.map_or(DateLayout::YearMonthDay, |(_, layout)| layout))
    }
}

/// Timestamps with a zone are kept in UTC; arrow reads this name without a zone database.
fn utc() -> Arc<str> {
    "+00:00".into()
}

/// How the values of a date or timestamp column are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    Plain,
    Layout(DateLayout),
    Custom(Arc<str>),
}

/// The number types that hold `cell` without loss. Digits with leading zeros are codes, and a plus sign
/// begins telephone numbers: both are text, unless the caller says otherwise.
fn number(cell: &[u8]) -> Option<u64> {
    let unsigned = cell.strip_prefix(b"-").unwrap_or(cell);
    let first = *unsigned.first()?;
    if !(first.is_ascii_digit() || first == b'.') || matches!(unsigned, [b'0', b'0'..=b'9', ..]) {
        return None;
    }
    if unsigned.iter().all(u8::is_ascii_digit) {
        if let Some(value) = parse_i64(cell) {
            let sign = if value < 0 || cell == b"-0" { 0 } else { UINT };
            // `-0` is no integer that would print the same.
            let int = if cell == b"-0" { 0 } else { INT };
            // A double holds 53 significant bits.
            let magnitude = value.unsigned_abs();
            let exact = value == 0 || magnitude.ilog2() - magnitude.trailing_zeros() < 53;
            return Some(int | sign | if exact { FLOAT } else { 0 });
        }
        let float = parse_f64(cell).filter(|float| format!("{float:.0}").as_bytes() == cell);
        return Some(
            if parse_u64(cell).is_some() { UINT } else { 0 } | if float.is_some() { FLOAT } else { 0 },
        );
    }
    parse_f64(cell).map(|_| FLOAT)
}

fn is_word_of_float(cell: &[u8]) -> bool {
    let unsigned = cell.strip_prefix(b"-").or(cell.strip_prefix(b"+")).unwrap_or(cell);
    ["nan", "inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a value looks like data rather than like the name of a column.
pub(crate) fn looks_typed(cell: &[u8]) -> bool {
    let mut evidence = Evidence::NONE;
    evidence.observe(cell, &Formats::default());
    evidence.choose(&Formats::default()).0 != DataType::Utf8
}

fn custom_has_zone(format: &str) -> bool {
    ["%z", "%:z", "%::z", "%:::z", "%#z", "%+"].iter().any(|zone| format.contains(zone))
}

fn days_since_epoch(date: NaiveDate) -> Option<i32> {
    i32::try_from((date - NaiveDate::default()).num_days()).ok()
}

/// Parses a date in a format of the caller's.
pub(crate) fn parse_custom_date(cell: &[u8], format: &str) -> Option<i32> {
    let written = parse_with_pattern(std::str::from_utf8(cell).ok()?, format)?;
    days_since_epoch(written.local.date())
}

/// Parses a timestamp in a format of the caller's.
pub(crate) fn parse_custom_timestamp(cell: &[u8], format: &str) -> Option<Moment> {
    let Written { local, offset_seconds } = parse_with_pattern(std::str::from_utf8(cell).ok()?, format)?;
    let midnight = local.date().and_hms_opt(0, 0, 0)?;
    Some(Moment {
        days: days_since_epoch(local.date())?,
        nanoseconds: (local - midnight).num_nanoseconds()?,
        has_time: true,
        offset_seconds,
    })
}

/// The name of a type in SQL.
pub(crate) fn sql_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Date32 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Decimal128(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        other => return other.to_string(),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cells: &[&str], expected: DataType) {
        let mut evidence = Evidence::NONE;
        for cell in cells {
            evidence.observe(cell.as_bytes(), &Formats::default());
        }
        assert_eq!(evidence.choose(&Formats::default()).0, expected, "{cells:?}");
    }

    #[test]
    fn the_most_specific_type_that_fits_all_values_is_taken() {
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        check(&["1", "-2", "9223372036854775807"], DataType::Int64);
        check(&["1", "9223372036854775808"], DataType::UInt64);
        check(&["-1", "9223372036854775808"], DataType::Float64);
        check(&["-1", "9223372036854775809"], DataType::Utf8);
        check(&["-1", "18446744073709551616.0"], DataType::Float64);
        check(&["123456789012345678901234567890"], DataType::Utf8);
        check(&["1", "12.50"], DataType::Float64);
        check(&["9007199254740993", "0.5"], DataType::Utf8);
        check(&["1e5", ".5", "5.", "-0"], DataType::Float64);
        check(&["1", "nan"], DataType::Float64);
        check(&["nan", "inf"], DataType::Utf8);
        check(&["01234", "99999"], DataType::Utf8);
        check(&["+4912345"], DataType::Utf8);
        check(&["0", "0.5"], DataType::Float64);
        check(&["true", "FALSE"], DataType::Boolean);
        check(&["true", "1"], DataType::Utf8);
        check(&["2024-02-29", "2024-03-01"], DataType::Date32);
        check(&["2024-02-30"], DataType::Utf8);
        check(&["2024-02-29", "2024-02-29 12:00"], timestamp.clone());
        check(&["2024-02-29T12:00:00.000001"], timestamp.clone());
        check(&["02/13/2024 01:02:03 PM"], timestamp);
        check(&["2024-02-29T12:00:00.000000001"], DataType::Timestamp(TimeUnit::Nanosecond, None));
        check(&["2024-02-29T12:00:00Z"], DataType::Timestamp(TimeUnit::Microsecond, Some(utc())));
        check(&["2024-02-29T12:00:00Z", "2024-02-29T12:00:00"], DataType::Utf8);
        check(&["12:34:56", "01:02:03.5"], DataType::Time64(TimeUnit::Microsecond));
        check(&["12:34"], DataType::Utf8);
        check(&["-", "--"], DataType::Utf8);
        check(&[], DataType::Utf8);
    }

    #[test]
    fn one_impossible_month_decides_between_day_and_month_first() {
        let layout = |cells: &[&str]| {
            let mut evidence = Evidence::NONE;
            cells.iter().for_each(|cell| evidence.observe(cell.as_bytes(), &Formats::default()));
            evidence.choose(&Formats::default()).1
        };
        assert_eq!(layout(&["01/02/2024"]), Reading::Layout(DateLayout::MonthDayYearSlash));
        assert_eq!(layout(&["01/02/2024", "13/02/2024"]), Reading::Layout(DateLayout::DayMonthYearSlash));
        assert_eq!(layout(&["1.2.2024"]), Reading::Layout(DateLayout::DayMonthYearDot));
    }

    #[test]
    fn a_given_format_replaces_the_guess() {
        let options = Options {
            date_format: Some("%d/%m/%Y".into()),
            timestamp_format: Some("%s".into()),
            ..Options::default()
        };
        let formats = Formats::new(&options);
        let choose = |cell: &str| {
            let mut evidence = Evidence::NONE;
            evidence.observe(cell.as_bytes(), &formats);
            evidence.choose(&formats)
        };
        assert_eq!(choose("01/02/2024"), (DataType::Date32, Reading::Custom("%d/%m/%Y".into())));
        assert_eq!(choose("02/13/2024").0, DataType::Utf8);
        assert_eq!(parse_custom_date(b"01/02/2024", "%d/%m/%Y"), Some(19_754));
        let moment = parse_custom_timestamp(b"01/02/2024 03:04 +0100", "%d/%m/%Y %H:%M %z").unwrap();
        assert_eq!(moment.since_epoch(1), Some(19_754 * 86_400 + 2 * 3600 + 4 * 60));
    }
}
