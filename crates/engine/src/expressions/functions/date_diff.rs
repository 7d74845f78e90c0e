//! The difference of two timestamps in units: `date_diff` counts the unit boundaries between them, `date_sub`
//! the whole units that passed, as in DuckDB; MySQL's `timestampdiff` is `date_sub`. Weeks begin on Mondays.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Datelike, NaiveDateTime};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, Signature, Volatility};

use super::Function;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 1970-01-01 was a Thursday.
const MONDAY_OFFSET: i64 = 3 * DAY;

pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |name, run| {
        let signature = Signature::any(3, Volatility::Immutable);
        ScalarUDF::new_from_impl(Function { name, signature, returns: DataType::Int64, run })
    };
    vec![
        function("keirin_date_diff", |arguments| each_pair(&arguments, boundaries)),
        function("keirin_date_sub", |arguments| each_pair(&arguments, whole_units)),
    ]
}

#[derive(Clone, Copy)]
enum Unit {
    /// A unit of this many months.
    Months(i64),
    /// A unit of this many microseconds; boundaries are this many microseconds before 1970 and multiples of
    /// the unit from there.
    Micros(i64, i64),
}

fn unit(name: &str) -> Result<Unit> {
    let lower = name.to_ascii_lowercase();
    Ok(match lower.strip_suffix('s').unwrap_or(&lower) {
        "year" | "yr" | "y" | "yy" | "yyyy" => Unit::Months(12),
        "quarter" | "qtr" | "q" | "qq" => Unit::Months(3),
        "month" | "mon" | "mm" => Unit::Months(1),
        "week" | "w" | "wk" => Unit::Micros(7 * DAY, MONDAY_OFFSET),
        "day" | "d" | "dd" => Unit::Micros(DAY, 0),
        "hour" | "h" | "hr" | "hh" => Unit::Micros(3600 * SECOND, 0),
        "minute" | "min" | "mi" | "m" => Unit::Micros(60 * SECOND, 0),
        "second" | "sec" | "" => Unit::Micros(SECOND, 0),
        "millisecond" | "ms" | "msec" => Unit::Micros(1000, 0),
        "microsecond" | "us" | "u" => Unit::Micros(1, 0),
        _ => {
            return exec_err!(
                "'{name}' is not a unit of time: year, quarter, month, week, day, hour, minute, second, \
                 millisecond and microsecond are"
            );
        }
    })
}

fn boundaries(unit: Unit, start: i64, end: i64) -> Option<i64> {
    match unit {
        Unit::Micros(length, offset) => {
            let number = |moment: i64| Some(moment.checked_add(offset)?.div_euclid(length));
            Some(number(end)? - number(start)?)
        }
        Unit::Months(length) => Some(months(end)?.div_euclid(length) - months(start)?.div_euclid(length)),
    }
}

fn whole_units(unit: Unit, start: i64, end: i64) -> Option<i64> {
    match unit {
        Unit::Micros(length, _) => Some(end.checked_sub(start)? / length),
        Unit::Months(length) => {
            if end < start {
                return whole_units(unit, end, start).map(|count| -count);
            }
            let mut count = months(end)? - months(start)?;
            // The last month is complete if its day and time are reached, or if it has no such day.
            let (first, last) = (moment(start)?, moment(end)?);
            let is_last_day = months(end)? != months(end.checked_add(DAY)?)?;
            let day_reached = last.day() >= first.day() || is_last_day;
            let same_day = last.day() == first.day() || (is_last_day && last.day() < first.day());
            if !day_reached || (same_day && last.time() < first.time()) {
                count -= 1;
            }
            Some(count / length)
        }
    }
}

/// Months since year 0.
fn months(micros: i64) -> Option<i64> {
    let moment = moment(micros)?;
    Some(i64::from(moment.year()) * 12 + i64::from(moment.month0()))
}

fn moment(micros: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(micros).map(|moment| moment.naive_utc())
}

fn each_pair(
    arguments: &ScalarFunctionArgs,
    count: fn(Unit, i64, i64) -> Option<i64>,
) -> Result<ColumnarValue> {
    let [name, start, end] = arguments.args.as_slice() else { return exec_err!("expected three arguments") };
    let rows = arguments.number_rows;
    let names = cast(&name.to_array(rows)?, &DataType::Utf8View)?;
    let names = names.as_string_view();
    // A constant unit name is looked up once.
    let constant = match name {
        ColumnarValue::Scalar(_) if rows > 0 && names.len() > 0 && names.is_valid(0) => {
            Some(unit(names.value(0))?)
        }
        _ => None,
    };
    let (start, end) = (micros(start, rows)?, micros(end, rows)?);
    let (start, end) =
        (start.as_primitive::<TimestampMicrosecondType>(), end.as_primitive::<TimestampMicrosecondType>());
    let mut counts = Vec::with_capacity(rows);
    for ((name, start), end) in names.iter().zip(start).zip(end) {
        counts.push(match (name, start, end) {
            (Some(name), Some(start), Some(end)) => {
                let unit = constant.map_or_else(|| unit(name), Ok)?;
                count(unit, start, end)
            }
            _ => None,
        });
    }
    Ok(ColumnarValue::Array(Arc::new(Int64Array::from(counts))))
}

fn micros(values: &ColumnarValue, rows: usize) -> Result<ArrayRef> {
    let values = values.to_array(rows)?;
    // Without the zone but in local time: boundaries are those of the calendar that the user sees.
    Ok(cast(&values, &DataType::Timestamp(TimeUnit::Microsecond, None))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_and_whole_units_are_duckdbs() {
        let micros = |text: &str| {
            let moment = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
            moment.and_utc().timestamp_micros()
        };
        let check = |name: &str, start: &str, end: &str, expected: [i64; 2]| {
            let unit = unit(name).unwrap();
            let counts =
                [boundaries, whole_units].map(|count| count(unit, micros(start), micros(end)).unwrap());
            assert_eq!(counts, expected, "{name} from {start} to {end}");
        };
        check("day", "2020-01-01 23:00", "2020-01-02 01:00", [1, 0]);
        check("day", "1969-12-31 23:00", "1970-01-01 01:00", [1, 0]);
        check("week", "2024-03-03 00:00", "2024-03-04 00:00", [1, 0]);
        check("month", "2020-01-31 00:00", "2020-02-01 00:00", [1, 0]);
        check("month", "2020-01-31 00:00", "2020-02-29 00:00", [1, 1]);
        check("months", "2020-01-31 12:00", "2020-02-29 11:00", [1, 0]);
        check("quarter", "2020-03-31 00:00", "2020-04-01 00:00", [1, 0]);
        check("YEAR", "2020-02-29 00:00", "2021-02-28 00:00", [1, 1]);
        check("year", "2021-02-28 00:00", "2020-03-01 00:00", [-1, 0]);
        check("hour", "2020-01-01 00:59", "2020-01-01 01:00", [1, 0]);
        check("second", "2020-01-01 00:01", "2020-01-01 00:00", [-60, -60]);
    }
}
