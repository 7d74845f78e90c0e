//! Dates and timestamps, which in JSON are texts in ISO 8601.
//!
//! Arrow's decoder would also accept numbers for them, drop the time of day of a date, and drop the offset of
//! a timestamp without zone. So they are decoded as texts and converted here: a value is kept whole or is an
//! error.

use std::sync::Arc;

use arrow::compute::kernels::cast_utils::string_to_datetime;
use chrono::{DateTime, Utc};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int64Array, ListArray, RecordBatch, StructArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};

/// A parsed date or timestamp.
pub(super) struct Moment {
    time: DateTime<Utc>,
    /// Whether the text has a time of day.
    pub(super) has_time: bool,
    /// Whether the text has an offset from UTC.
    pub(super) has_zone: bool,
}

impl Moment {
    /// Parses `2024-02-29`, `2024-02-29T12:30:00.5` or `2024-02-29 12:30:00+01:00`, to the microsecond.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let has_time = bytes.len() > 10;
        // Arrow also accepts forms, such as 20240229T1230, that often mean something else.
        if bytes.get(4) != Some(&b'-') || bytes.get(7) != Some(&b'-') || !text.is_ascii() {
            return None;
        }
        if has_time && bytes.get(13) != Some(&b':') {
            return None;
        }
        let time = string_to_datetime(&Utc, text).ok()?;
        let has_zone = has_time && text[11..].contains(['Z', 'z', '+', '-']);
        (time.timestamp_subsec_nanos() % 1000 == 0).then_some(Self { time, has_time, has_zone })
    }

    fn days(&self) -> Option<i32> {
        let days = self.time.timestamp().div_euclid(24 * 3600);
        i32::try_from(days).ok().filter(|_| !self.has_time)
    }

    /// The units since 1970, if the conversion loses nothing.
    fn since_epoch(&self, unit: TimeUnit, zoned: bool) -> Option<i64> {
        let microseconds = self.time.timestamp_micros();
        let exact = |divisor| (microseconds % divisor == 0).then_some(microseconds / divisor);
        match unit {
            _ if self.has_zone && !zoned => None,
            TimeUnit::Second => exact(1_000_000),
            TimeUnit::Millisecond => exact(1_000),
            TimeUnit::Microsecond => Some(microseconds),
            TimeUnit::Nanosecond => microseconds.checked_mul(1_000),
        }
    }
}

/// The fields with text in place of dates and timestamps.
pub(super) fn as_texts(fields: &[FieldRef]) -> Fields {
    let with =
        |field: &FieldRef, data_type| Arc::new(Field::new(field.name(), data_type, field.is_nullable()));
    let text = |field: &FieldRef| match field.data_type() {
        data_type if is_moment(data_type) => with(field, DataType::Utf8),
        DataType::List(item) => {
            let item = as_texts(std::slice::from_ref(item))[0].clone();
            with(field, DataType::List(item))
        }
        DataType::Struct(fields) => with(field, DataType::Struct(as_texts(fields))),
        _ => field.clone(),
    };
    fields.iter().map(text).collect()
}

fn is_moment(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32 | DataType::Timestamp(_, None) => true,
        // Timestamps in other zones are left to Arrow, which knows the zones' rules.
        DataType::Timestamp(_, Some(zone)) => ["+00:00", "UTC", "Z"].contains(&zone.as_ref()),
        _ => false,
    }
}

/// Converts the columns of `batch` to the types of `fields`; the error names the first value that does not
/// convert.
pub(super) fn from_texts(batch: &RecordBatch, fields: &Fields) -> Result<Vec<ArrayRef>, String> {
    convert_all(batch.columns(), fields, "")
}

fn convert_all(columns: &[ArrayRef], fields: &Fields, parent: &str) -> Result<Vec<ArrayRef>, String> {
    let named = |field: &FieldRef| format!("{parent}{}", field.name());
    columns.iter().zip(fields).map(|(column, field)| convert(column, field, &named(field))).collect()
}

fn convert(column: &ArrayRef, field: &FieldRef, name: &str) -> Result<ArrayRef, String> {
    let failed = |error: &dyn std::fmt::Display| format!("column '{name}': {error}");
    match field.data_type() {
        same if same == column.data_type() => Ok(column.clone()),
        DataType::List(item) => {
            let list = column.as_list::<i32>();
            let values = convert(list.values(), item, name)?;
            let list =
                ListArray::try_new(item.clone(), list.offsets().clone(), values, list.nulls().cloned());
            Ok(Arc::new(list.map_err(|error| failed(&error))?))
        }
        DataType::Struct(fields) => {
            let record = column.as_struct();
            let columns = convert_all(record.columns(), fields, &format!("{name}."))?;
            let record = StructArray::try_new(fields.clone(), columns, record.nulls().cloned());
            Ok(Arc::new(record.map_err(|error| failed(&error))?))
        }
        DataType::Date32 => {
            let days = parse_all(column, name, "DATE", Moment::days)?;
            Ok(Arc::new(days.into_iter().collect::<Date32Array>()))
        }
        DataType::Timestamp(unit, zone) => {
            let sql_type = if zone.is_some() { "TIMESTAMP WITH TIME ZONE" } else { "TIMESTAMP" };
            let number = |moment: &Moment| moment.since_epoch(*unit, zone.is_some());
            let numbers = parse_all(column, name, sql_type, number)?;
            let numbers = numbers.into_iter().collect::<Int64Array>();
            cast(&numbers, field.data_type()).map_err(|error| failed(&error))
        }
        other => Err(failed(&format!("cannot become {other}"))),
    }
}

fn parse_all<T>(
    column: &ArrayRef,
    name: &str,
    sql_type: &str,
    number: impl Fn(&Moment) -> Option<T>,
) -> Result<Vec<Option<T>>, String> {
    let parse = |text: Option<&str>| {
        let Some(text) = text else { return Ok(None) };
        let number = Moment::parse(text).and_then(|moment| number(&moment));
        number.map(Some).ok_or_else(|| {
            let shown: String = text.chars().take(VALUE_CHARS_SHOWN).flat_map(char::escape_debug).collect();
            format!("column '{name}': '{shown}' is not a {sql_type}")
        })
    };
    column.as_string::<i32>().iter().map(parse).collect()
}

/// Characters of a value that an error message shows.
const VALUE_CHARS_SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_texts_are_moments_to_the_microsecond() {
        let check = |text: &str, expected: Option<(i64, bool, bool)>| {
            let found = Moment::parse(text);
            let found =
                found.map(|moment| (moment.time.timestamp_micros(), moment.has_time, moment.has_zone));
            assert_eq!(found, expected, "{text}");
        };
        check("1970-01-02", Some((86_400_000_000, false, false)));
        check("1970-01-01T00:00:01", Some((1_000_000, true, false)));
        check("1970-01-01 00:00:00.000001", Some((1, true, false)));
        check("1970-01-01T01:00:00+01:00", Some((0, true, true)));
        check("1970-01-01T00:00:00Z", Some((0, true, true)));
        check("1969-12-31T23:59:59-00:30", Some((1_799_000_000, true, true)));
        for text in [
            "1970-01-01T00:00:00.0000001",
            "1970-02-30",
            "1970-01-01T24:00:01",
            "19700101",
            "1970-01-01T000001",
            "1970-01-01x",
            "1970-1-1",
            "12:30:00",
            "1970-01-01T00:00:0\u{660}",
            "",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        let check = |text: &str, unit, zoned, expected| {
            assert_eq!(Moment::parse(text).unwrap().since_epoch(unit, zoned), expected, "{text}");
        };
        check("1970-01-01T00:00:01.5", TimeUnit::Millisecond, false, Some(1_500));
        check("1970-01-01T00:00:01.5", TimeUnit::Second, false, None);
        check("1970-01-01T00:00:01Z", TimeUnit::Second, true, Some(1));
        check("1970-01-01T00:00:01Z", TimeUnit::Second, false, None);
        check("9999-01-01", TimeUnit::Nanosecond, false, None);
        assert_eq!(Moment::parse("1969-12-31").unwrap().days(), Some(-1));
        assert_eq!(Moment::parse("1969-12-31T12:00:00").unwrap().days(), None);
    }
}
