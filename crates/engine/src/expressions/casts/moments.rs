//! Timestamps and times of day: from text, from other types, and in other zones.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Int64Array, PrimitiveArray, StringViewArray,
    Time64NanosecondArray,
};
use arrow::compute::kernels::cast_utils::{Parser, string_to_time_nanoseconds};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date32Type, Decimal128Type, Float64Type, Int64Type, TimeUnit,
};
use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone};
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::{has_no_room, is_no};

const DAY_SECONDS: i64 = 86_400;

/// A date, time and zone as a text gives them: `2024-02-29`, `2024-2-29 12:30`, `2024-02-29T12:30:00.5+01`,
/// `... Europe/Berlin`.
pub(crate) struct Moment {
    pub(crate) local: NaiveDateTime,
    pub(crate) zone: Option<Tz>,
}

impl Moment {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut rest = Rest(text);
        let year = rest.number(4, 6)?;
        let separator = rest.one_of(b"-/")?;
        let month = rest.number(1, 2)?;
        rest.one_of(&[separator])?;
        let day = rest.number(1, 2)?;
        let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        if rest.0.is_empty() {
            return Some(Self { local: date.and_time(NaiveTime::MIN), zone: None });
        }
        rest.one_of(b"Tt ")?;
        rest.0 = rest.0.trim_start();
        let (seconds, nanoseconds) = rest.time()?;
        let day = if seconds == DAY_SECONDS { date.succ_opt()? } else { date };
        let seconds = u32::try_from(seconds % DAY_SECONDS).ok()?;
        let time = NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanoseconds)?;
        let zone = match rest.0.trim_start() {
            "" => None,
            "Z" | "z" => Some("+00:00".parse().ok()?),
            zone => Some(zone.parse().ok()?),
        };
        Some(Self { local: day.and_time(time), zone })
    }
}

/// The part of a text that is not parsed yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn number(&mut self, digits_min: usize, digits_max: usize) -> Option<u32> {
        let count = self.0.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        (count >= digits_min).then(|| digits.parse().ok()).flatten()
    }

    fn one_of(&mut self, wanted: &[u8]) -> Option<u8> {
        let first = *self.0.as_bytes().first()?;
        wanted.contains(&first).then(|| self.0 = &self.0[1..])?;
        Some(first)
    }

    /// Parses `9:30`, `09:30:00` or `09:30:00.123456789`, up to 24:00, as seconds and nanoseconds.
    fn time(&mut self) -> Option<(i64, u32)> {
        let hour = self.number(1, 2)?;
        self.one_of(b":")?;
        let minute = self.number(2, 2)?;
        let mut second = 0;
        let mut nanoseconds = 0;
        if self.one_of(b":").is_some() {
            second = self.number(2, 2)?;
            if self.one_of(b".,").is_some() {
                let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
                let (digits, rest) = self.0.split_at(count);
                self.0 = rest;
                // Digits beyond nanoseconds are cut off.
                let padded = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
                nanoseconds = padded.fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
            }
        }
        let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        let is_time = minute < 60
            && second < 60
            && (seconds < DAY_SECONDS || (seconds == DAY_SECONDS && nanoseconds == 0));
        is_time.then_some((seconds, nanoseconds))
    }
}

/// The instant in UTC at which clocks in `zone` show `local`. If they show it twice, the second; if they skip
/// it, the instant as if they had not been put forward, as in PostgreSQL.
fn in_utc(local: NaiveDateTime, zone: &Tz) -> Option<NaiveDateTime> {
    let offset = match zone.offset_from_local_datetime(&local) {
        chrono::LocalResult::Single(offset) | chrono::LocalResult::Ambiguous(_, offset) => offset,
        chrono::LocalResult::None => zone.offset_from_utc_datetime(&local.checked_sub_days(Days::new(1))?),
    };
    local.checked_sub_offset(offset.fix())
}

/// What clocks in `zone` show at an instant in UTC.
fn in_zone(utc: NaiveDateTime, zone: &Tz) -> Option<NaiveDateTime> {
    utc.checked_add_offset(zone.offset_from_utc_datetime(&utc).fix())
}

pub(super) fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// The units since 1970, rounded.
fn since_epoch(moment: NaiveDateTime, unit: TimeUnit) -> Option<i64> {
    let half = TimeDelta::nanoseconds(1_000_000_000 / per_second(unit) / 2);
    let moment = moment.checked_add_signed(half)?.and_utc();
    let count = i128::from(moment.timestamp()) * i128::from(per_second(unit))
        + i128::from(moment.timestamp_subsec_nanos()) * i128::from(per_second(unit)) / 1_000_000_000;
    count.try_into().ok()
}

fn moment(value: i64, unit: TimeUnit) -> Option<NaiveDateTime> {
    let (seconds, rest) = (value.div_euclid(per_second(unit)), value.rem_euclid(per_second(unit)));
    let nanoseconds = u32::try_from(rest * (1_000_000_000 / per_second(unit))).ok()?;
    DateTime::from_timestamp(seconds, nanoseconds).map(|moment| moment.naive_utc())
}

pub(super) fn zone_of(name: &str) -> Result<Tz> {
    name.parse().map_err(|_| {
        let message = format!("'{name}' is no time zone; '+02:00' and 'Europe/Berlin' are");
        super::external(crate::error::Error::new(crate::error::ErrorKind::Invalid, message))
    })
}

/// Converts texts to timestamps. A timestamp without zone takes the written time and ignores any zone in the
/// text, as in PostgreSQL; for one with zone, a text without a zone is local time in that zone.
pub(super) fn of_text(
    values: &StringViewArray,
    unit: TimeUnit,
    zone: Option<&Arc<str>>,
    is_try: bool,
) -> Result<ArrayRef> {
    let to = DataType::Timestamp(unit, zone.cloned());
    let zone = zone.map(|zone| zone_of(zone)).transpose()?;
    let convert = |text: &str| {
        let Moment { local, zone: named } = Moment::parse(text)?;
        let moment = match &zone {
            None => local,
            Some(zone) => in_utc(local, &named.unwrap_or(*zone))?,
        };
        Some(since_epoch(moment, unit))
    };
    let mut counts = Vec::with_capacity(values.len());
    for value in values {
        let count = value.map(|text| (text, convert(text)));
        counts.push(match count {
            Some((text, None)) if !is_try => return Err(is_no(text, &to)),
            Some((text, Some(None))) if !is_try => return Err(has_no_room(text, &to)),
            other => other.and_then(|(_, count)| count.flatten()),
        });
    }
    with_type(Int64Array::from(counts), &to)
}

/// 64-bit counts as timestamps of the type `to`.
fn with_type(counts: Int64Array, to: &DataType) -> Result<ArrayRef> {
    let data = counts.into_data().into_builder().data_type(to.clone()).build()?;
    Ok(arrow::array::make_array(data))
}

/// Converts numbers, dates and other timestamps to timestamps. Numbers are seconds since 1970, a date is
/// midnight in the target's zone, and a timestamp without zone is local time.
pub(super) fn of_values(
    values: &ArrayRef,
    unit: TimeUnit,
    zone: Option<&Arc<str>>,
    is_try: bool,
) -> Result<ArrayRef> {
    let to = DataType::Timestamp(unit, zone.cloned());
    let options = CastOptions { safe: is_try, ..CastOptions::default() };
    let counts: Int64Array = match values.data_type() {
        DataType::Date32 => {
            let zone = zone.map(|zone| zone_of(zone)).transpose()?;
            let days = values.as_primitive::<Date32Type>();
            let convert = |days: i32| {
                let seconds = i64::from(days) * DAY_SECONDS;
                let Some(zone) = &zone else { return seconds.checked_mul(per_second(unit)) };
                since_epoch(in_utc(moment(seconds, TimeUnit::Second)?, zone)?, unit)
            };
            let show = |days| NaiveDate::from_epoch_days(days).unwrap_or_default();
            each(days, is_try, convert, |days| has_no_room(show(days), &to))?
        }
        DataType::Timestamp(from, None) => {
            let Some(zone) = zone else { return Ok(cast_with_options(values, &to, &options)?) };
            let zone = zone_of(zone)?;
            moved(values, *from, &to, is_try, |local| in_utc(local, &zone), unit)?
        }
        DataType::Timestamp(from, Some(zone)) => {
            let zone = zone_of(zone)?;
            moved(values, *from, &to, is_try, |utc| in_zone(utc, &zone), unit)?
        }
        from if from.is_integer() => {
            let seconds = cast_with_options(values, &DataType::Int64, &options)?;
            let seconds = seconds.as_primitive::<Int64Type>();
            each(
                seconds,
                is_try,
                |seconds| seconds.checked_mul(per_second(unit)),
                |seconds| has_no_room(seconds, &to),
            )?
        }
        from if from.is_decimal() => {
            let digits = i8::try_from(per_second(unit).ilog10()).unwrap_or(0);
            let digits = DataType::Decimal128(DECIMAL128_MAX_PRECISION, digits);
            let counts = cast_with_options(values, &digits, &options)?;
            let counts: &Decimal128Array = counts.as_primitive::<Decimal128Type>();
            each(counts, is_try, |count| i64::try_from(count).ok(), |count| has_no_room(count, &to))?
        }
        _ => {
            let seconds = cast_with_options(values, &DataType::Float64, &options)?;
            let seconds = seconds.as_primitive::<Float64Type>();
            let convert = |seconds: f64| {
                #[expect(clippy::cast_precision_loss, reason = "powers of ten to 10^9 are floats")]
                let count = (seconds * per_second(unit) as f64).round();
                #[expect(clippy::cast_possible_truncation, reason = "it is looked at first")]
                (count.abs() < 9.2e18).then_some(count as i64)
            };
            each(seconds, is_try, convert, |seconds| has_no_room(seconds, &to))?
        }
    };
    with_type(counts, &to)
}

fn each<T: arrow::datatypes::ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    is_try: bool,
    convert: impl Fn(T::Native) -> Option<i64>,
    fails: impl Fn(T::Native) -> datafusion::error::DataFusionError,
) -> Result<Int64Array> {
    if is_try {
        return Ok(values.unary_opt(convert));
    }
    values.try_unary(|value| convert(value).ok_or_else(|| fails(value)))
}

/// Timestamps of one unit, moved by a zone's offset and converted to another unit.
fn moved(
    values: &ArrayRef,
    from: TimeUnit,
    to: &DataType,
    is_try: bool,
    move_one: impl Fn(NaiveDateTime) -> Option<NaiveDateTime>,
    unit: TimeUnit,
) -> Result<Int64Array> {
    let counts = arrow::compute::cast(values, &DataType::Int64)?;
    let convert = |count: i64| since_epoch(move_one(moment(count, from)?)?, unit);
    let show = |count| moment(count, from).unwrap_or_default();
    each(counts.as_primitive::<Int64Type>(), is_try, convert, |count| has_no_room(show(count), to))
}

/// Timestamps rounded to a coarser unit.
pub(super) fn rounded(values: &ArrayRef, from: TimeUnit, unit: TimeUnit, to: &DataType) -> Result<ArrayRef> {
    let step = per_second(from) / per_second(unit);
    let counts = arrow::compute::cast(values, &DataType::Int64)?;
    let round = |count: i64| count.div_euclid(step) + i64::from(count.rem_euclid(step) >= step / 2);
    with_type(counts.as_primitive::<Int64Type>().unary(round), to)
}

/// Timestamps changed by a function of their local time in their zone.
pub(crate) fn each_local(
    values: &ArrayRef,
    change: impl Fn(NaiveDateTime) -> Option<NaiveDateTime>,
) -> Result<ArrayRef> {
    let to = values.data_type();
    let DataType::Timestamp(unit, zone) = to else { return internal_err!("{to} is no timestamp") };
    let zone = zone.as_deref().map(zone_of).transpose()?;
    let change = |moment: NaiveDateTime| match &zone {
        None => change(moment),
        Some(zone) => in_utc(change(in_zone(moment, zone)?)?, zone),
    };
    with_type(moved(values, *unit, to, false, change, *unit)?, to)
}

/// Converts texts to dates: the date of a timestamp as it is written, whatever its zone.
pub(super) fn dates_of_text(values: &StringViewArray, is_try: bool) -> Result<ArrayRef> {
    let parse = |text: &str| match Moment::parse(text) {
        Some(moment) => i32::try_from((moment.local.date() - NaiveDate::default()).num_days()).ok(),
        None => Date32Type::parse(text),
    };
    let mut dates = Vec::with_capacity(values.len());
    for value in values {
        let date = value.and_then(parse);
        match value {
            Some(text) if date.is_none() && !is_try => return Err(is_no(text, &DataType::Date32)),
            _ => dates.push(date),
        }
    }
    Ok(Arc::new(Date32Array::from(dates)))
}

/// Converts texts to times of day: `9:30`, `09:30:00.5`, the time of a timestamp; a number alone is refused.
pub(super) fn times_of_text(values: &StringViewArray, to: &DataType, is_try: bool) -> Result<ArrayRef> {
    let parse = |text: &str| {
        let text = text.trim();
        let mut rest = Rest(text);
        match rest.time() {
            Some((seconds, nanoseconds)) if rest.0.is_empty() => {
                Some(seconds * 1_000_000_000 + i64::from(nanoseconds))
            }
            _ if text.contains(':') => string_to_time_nanoseconds(text).ok().or_else(|| {
                let time = Moment::parse(text)?.local.time() - NaiveTime::MIN;
                time.num_nanoseconds()
            }),
            _ => None,
        }
    };
    // 24:00 and leap seconds are no time of the day that they end.
    let is_in_day = |time: &i64| *time < DAY_SECONDS * 1_000_000_000;
    let mut times = Vec::with_capacity(values.len());
    for value in values {
        let time = value.and_then(parse).filter(is_in_day);
        match value {
            Some(text) if time.is_none() && !is_try => return Err(is_no(text, to)),
            _ => times.push(time),
        }
    }
    let times = Time64NanosecondArray::from(times);
    Ok(arrow::compute::cast(&times, to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_postgresql_reads_them() {
        let check = |text: &str, expected: Option<&str>| {
            let found = Moment::parse(text).map(|moment| {
                let zone = moment.zone.map_or_else(String::new, |zone| format!(" {zone:?}"));
                format!("{}{}", moment.local, if zone.is_empty() { "" } else { " zoned" })
            });
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("2024-02-29", Some("2024-02-29 00:00:00"));
        check("2024-2-9 9:05", Some("2024-02-09 09:05:00"));
        check("2024/02/29 12:30:00.5", Some("2024-02-29 12:30:00.500"));
        check("2024-02-29T12:30:00+08", Some("2024-02-29 12:30:00 zoned"));
        check("2024-02-29 12:30:00 Europe/Berlin", Some("2024-02-29 12:30:00 zoned"));
        check("12024-02-29", Some("+12024-02-29 00:00:00"));
        check("2024-12-31 24:00", Some("2025-01-01 00:00:00"));
        for text in ["2023-02-29", "2024-02-29 25:00", "2024-02-29 12:60", "2024-02-29 12", "2024", "", "x"] {
            check(text, None);
        }
    }

    #[test]
    fn clocks_that_skip_or_repeat_are_postgresqls() {
        let berlin = zone_of("Europe/Berlin").unwrap();
        let check = |local: &str, expected: &str| {
            let utc = in_utc(Moment::parse(local).unwrap().local, &berlin).unwrap();
            assert_eq!(utc.to_string(), expected, "{local}");
        };
        check("2024-03-31 02:30", "2024-03-31 01:30:00");
        check("2024-10-27 02:30", "2024-10-27 01:30:00");
        check("2024-07-01 12:00", "2024-07-01 10:00:00");
    }
}
