//! Values as text, the same for people, CSV files and casts: SQL's spelling of dates and times, intervals as
//! `1 day 02:00:00`, and texts in lists so that the list reads back.

use std::fmt::{self, Write};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, IntervalMonthDayNanoArray, StringViewArray, StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::{
    ArrayFormatter, ArrayFormatterFactory, DisplayIndex, FormatOptions, FormatResult,
};

const SECOND: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// A blank instead of the T of ISO 8601; a fraction of a second only if it is not zero.
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIMESTAMP_ZONED: &str = "%Y-%m-%d %H:%M:%S%.f%:z";

/// The spelling of values. A value that has no text is an error; NULL inside a list is `NULL`.
pub const FORMAT: FormatOptions<'static> = FormatOptions::new()
    .with_display_error(false)
    .with_null("NULL")
    .with_datetime_format(Some(TIMESTAMP))
    .with_timestamp_format(Some(TIMESTAMP))
    .with_timestamp_tz_format(Some(TIMESTAMP_ZONED))
    .with_formatter_factory(Some(&Spelling));

/// A formatter of the array's values. Arrow's own constructor uses the factory of `options` only for nested
/// values.
///
/// # Errors
/// When Arrow has no text for values of this type.
pub fn formatter<'a>(
    array: &'a dyn Array,
    options: &FormatOptions<'a>,
) -> Result<ArrayFormatter<'a>, ArrowError> {
    match Spelling.create_array_formatter(array, options, None)? {
        Some(formatter) => Ok(formatter),
        None => ArrayFormatter::try_new(array, options),
    }
}

/// The texts of values as a cast to VARCHAR gives them; a value that has no text is an error, or NULL if
/// `is_try`.
pub(crate) fn texts(values: &ArrayRef, is_try: bool) -> Result<ArrayRef, ArrowError> {
    let formatter = formatter(values.as_ref(), &FORMAT)?;
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    let nulls = values.logical_nulls();
    for row in 0..values.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            texts.append_null();
            continue;
        }
        text.clear();
        match formatter.value(row).write(&mut text) {
            Ok(()) => texts.append_value(&text),
            Err(_) if is_try => texts.append_null(),
            Err(error) => return Err(error),
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// Formats intervals as `1 year 2 months 3 days 04:05:06.5`, and durations as `3 days 04:05:06.5`, as DuckDB
/// does, and PostgreSQL except for its abbreviated units; and puts texts inside other values between quotes
/// where they would be read as something else.
#[derive(Debug)]
struct Spelling;

impl ArrayFormatterFactory for Spelling {
    fn create_array_formatter<'a>(
        &self,
        array: &'a dyn Array,
        _: &FormatOptions<'a>,
        field: Option<&'a Field>,
    ) -> Result<Option<ArrayFormatter<'a>>, ArrowError> {
        let values: Box<dyn DisplayIndex> = match array.data_type() {
            DataType::Interval(_) => Box::new(Words(
                cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?
                    .as_primitive::<IntervalMonthDayNanoType>()
                    .clone(),
            )),
            DataType::Duration(unit) => Box::new(Elapsed {
                counts: cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
                unit: *unit,
            }),
            // Only values inside others have a field.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if field.is_some() => {
                Box::new(Items(cast(array, &DataType::Utf8View)?.as_string_view().clone()))
            }
            _ => return Ok(None),
        };
        Ok(Some(ArrayFormatter::new(values, false)))
    }
}

struct Items(StringViewArray);

impl DisplayIndex for Items {
    fn write(&self, row: usize, out: &mut dyn Write) -> FormatResult {
        if self.0.is_null(row) {
            return Ok(out.write_str("NULL")?);
        }
        let text = self.0.value(row);
        let is_plain = !text.is_empty()
            && text.trim() == text
            && !text.eq_ignore_ascii_case("null")
            && !text.contains(['[', ']', '{', '}', '(', ')', ',', ':', '=', '\'', '"', '\\']);
        if is_plain {
            return Ok(out.write_str(text)?);
        }
        out.write_char('\'')?;
        for character in text.chars() {
            if matches!(character, '\'' | '\\') {
                out.write_char('\\')?;
            }
            out.write_char(character)?;
        }
        Ok(out.write_char('\'')?)
    }
}

struct Words(IntervalMonthDayNanoArray);

impl DisplayIndex for Words {
    fn write(&self, row: usize, out: &mut dyn Write) -> FormatResult {
        if self.0.is_null(row) {
            return Ok(out.write_str("NULL")?);
        }
        let value = self.0.value(row);
        let counts = [
            (i64::from(value.months / 12), "year"),
            (i64::from(value.months % 12), "month"),
            (i64::from(value.days), "day"),
        ];
        Ok(write_length(out, &counts, value.nanoseconds < 0, value.nanoseconds.unsigned_abs().into())?)
    }
}

struct Elapsed {
    counts: Int64Array,
    unit: TimeUnit,
}

impl DisplayIndex for Elapsed {
    fn write(&self, row: usize, out: &mut dyn Write) -> FormatResult {
        if self.counts.is_null(row) {
            return Ok(out.write_str("NULL")?);
        }
        let count = self.counts.value(row);
        let unit: u64 = match self.unit {
            TimeUnit::Second => SECOND,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        };
        let nanoseconds = u128::from(count.unsigned_abs()) * u128::from(unit);
        let day = u128::from(DAY_SECONDS * SECOND);
        let days = i64::try_from(nanoseconds / day).unwrap_or(i64::MAX) * count.signum();
        Ok(write_length(out, &[(days, "day")], count < 0, nanoseconds % day)?)
    }
}

/// Writes the counts that are not 0 with their units, then hours, minutes and seconds if these are not 0, or
/// if nothing else was written.
fn write_length(
    out: &mut dyn Write,
    counts: &[(i64, &str)],
    is_negative: bool,
    nanoseconds: u128,
) -> fmt::Result {
    let mut blank = "";
    for (count, unit) in counts.iter().filter(|(count, _)| *count != 0) {
        let plural = if count.unsigned_abs() == 1 { "" } else { "s" };
        write!(out, "{blank}{count} {unit}{plural}")?;
        blank = " ";
    }
    if nanoseconds == 0 && !blank.is_empty() {
        return Ok(());
    }
    let (seconds, fraction) = (nanoseconds / u128::from(SECOND), nanoseconds % u128::from(SECOND));
    let sign = if is_negative { "-" } else { "" };
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(out, "{blank}{sign}{hours:02}:{minutes:02}:{seconds:02}")?;
    if fraction > 0 {
        write!(out, ".{}", format!("{fraction:09}").trim_end_matches('0'))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        DurationMicrosecondArray, DurationSecondArray, ListArray, ListBuilder, StringBuilder,
        TimestampMicrosecondArray,
    };
    use arrow::datatypes::{IntervalMonthDayNano, TimestampMicrosecondType};

    use super::*;

    #[track_caller]
    fn check(values: impl Array + 'static, expected: &[Option<&str>]) {
        let values: ArrayRef = Arc::new(values);
        let texts = texts(&values, false).unwrap();
        assert_eq!(texts.as_string_view().iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn intervals_are_words_and_a_clock() {
        let intervals = [
            (1, 0, 0),
            (12, 1, 0),
            (26, -3, 14_706_500_000_000),
            (0, 0, 0),
            (0, 0, -1),
            (-1, 0, -3_600_000_000_000),
            (0, 0, 360_000_000_000_000),
        ];
        check(
            intervals
                .map(|(months, days, nanoseconds)| IntervalMonthDayNano::new(months, days, nanoseconds))
                .to_vec()
                .into_iter()
                .map(Some)
                .chain([None])
                .collect::<IntervalMonthDayNanoArray>(),
            &[
                Some("1 month"),
                Some("1 year 1 day"),
                Some("2 years 2 months -3 days 04:05:06.5"),
                Some("00:00:00"),
                Some("-00:00:00.000000001"),
                Some("-1 month -01:00:00"),
                Some("100:00:00"),
                None,
            ],
        );
    }

    #[test]
    fn what_lies_between_timestamps_is_days_and_a_clock() {
        check(
            DurationSecondArray::from(vec![Some(63_154_770), Some(-2_526_646), Some(0), None]),
            &[Some("730 days 22:59:30"), Some("-29 days -05:50:46"), Some("00:00:00"), None],
        );
        check(
            DurationMicrosecondArray::from(vec![86_400_000_000, 1, i64::MIN]),
            &[Some("1 day"), Some("00:00:00.000001"), Some("-106751991 days -04:00:54.775808")],
        );
    }

    #[test]
    fn moments_have_a_blank_between_date_and_time() {
        check(
            TimestampMicrosecondArray::from(vec![0, 1_500_000]),
            &[Some("1970-01-01 00:00:00"), Some("1970-01-01 00:00:01.500")],
        );
        check(
            TimestampMicrosecondArray::from(vec![0]).with_timezone("+02:00"),
            &[Some("1970-01-01 02:00:00+02:00")],
        );
        let list = ListArray::from_iter_primitive::<TimestampMicrosecondType, _, _>([Some([Some(0), None])]);
        check(list, &[Some("[1970-01-01 00:00:00, NULL]")]);
    }

    #[test]
    fn texts_in_lists_read_back() {
        let mut list = ListBuilder::new(StringBuilder::new());
        list.append_value([Some("a b"), Some("a,b"), Some("c'd\\"), Some(""), Some("null"), None]);
        check(list.finish(), &[Some("[a b, 'a,b', 'c\\'d\\\\', '', 'null', NULL]")]);
        check(StringViewArray::from(vec!["a,b"]), &[Some("a,b")]);
    }
}
