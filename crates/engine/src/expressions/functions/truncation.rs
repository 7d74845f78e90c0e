//! `date_trunc` and `date_bin` for all years: DataFusion's functions go through nanoseconds, which end in
//! 2262.

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Weekday};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::Wrapped;
use crate::expressions::casts::each_local;

/// Computes the timestamps that DataFusion's function cannot; `None` leaves the call to that function.
type Run = fn(&ScalarFunctionArgs) -> Result<Option<ColumnarValue>>;

pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |inner, run: Run| {
        ScalarUDF::new_from_impl(Wrapped::new(inner, move |inner, arguments| call(inner, run, arguments)))
    };
    vec![function(datetime::date_trunc(), truncate), function(datetime::date_bin(), bin)]
}

fn call(inner: &ScalarUDF, run: Run, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    if let Some(values) = run(&arguments)? {
        return Ok(values);
    }
    let is_coarse_constant = match arguments.args.get(1) {
        Some(ColumnarValue::Scalar(value)) => is_coarse(&value.data_type()),
        _ => false,
    };
    if !is_coarse_constant {
        return inner.invoke_with_args(arguments);
    }
    // DataFusion keeps the unit of columns, but not of constants.
    arguments.args[1] = ColumnarValue::Array(arguments.args[1].to_array(1)?);
    arguments.number_rows = 1;
    let values = inner.invoke_with_args(arguments)?.to_array(1)?;
    Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?))
}

fn is_coarse(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(unit, _) if *unit != TimeUnit::Nanosecond)
}

fn each(
    values: &ColumnarValue,
    run: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<Option<ColumnarValue>> {
    Ok(Some(match values {
        ColumnarValue::Array(values) => ColumnarValue::Array(run(values)?),
        ColumnarValue::Scalar(value) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&run(&value.to_array()?)?, 0)?)
        }
    }))
}

fn truncate(arguments: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
    let [ColumnarValue::Scalar(name), values] = arguments.args.as_slice() else { return Ok(None) };
    let length = name.try_as_str().flatten().and_then(Length::of);
    let is_ours = |length: &Length| match values.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => false,
        DataType::Timestamp(_, None) => !matches!(length, Length::Hour | Length::Day),
        DataType::Timestamp(_, Some(_)) => true,
        _ => false,
    };
    let Some(length) = length.filter(is_ours) else { return Ok(None) };
    each(values, |values| each_local(values, |local| length.begin(local)))
}

/// Bins of days or shorter; bins of months are left to DataFusion.
fn bin(arguments: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
    let (step, values, origin) = match arguments.args.as_slice() {
        [ColumnarValue::Scalar(step), values] => (step, values, None),
        [ColumnarValue::Scalar(step), values, ColumnarValue::Scalar(origin)] => (step, values, Some(origin)),
        _ => return Ok(None),
    };
    let to = values.data_type();
    let (ScalarValue::IntervalMonthDayNano(Some(step)), DataType::Timestamp(TimeUnit::Microsecond, _)) =
        (step, &to)
    else {
        return Ok(None);
    };
    let months = step.months;
    let nanoseconds = i128::from(step.days) * 86_400_000_000_000 + i128::from(step.nanoseconds);
    let step = i64::try_from(nanoseconds / 1000).ok().filter(|step| *step > 0 && nanoseconds % 1000 == 0);
    let (0, Some(length)) = (months, step) else { return Ok(None) };
    let origin = match origin.map(|origin| origin.cast_to(&to)).transpose()? {
        None => 0,
        Some(ScalarValue::TimestampMicrosecond(Some(origin), _)) => origin,
        Some(_) => return Ok(None),
    };
    each(values, |values| {
        let counts = cast(values, &DataType::Int64)?;
        let bins: Int64Array = counts.as_primitive::<Int64Type>().unary(|count: i64| {
            let distance = i128::from(count) - i128::from(origin);
            let begin = distance.div_euclid(length.into()) * i128::from(length) + i128::from(origin);
            i64::try_from(begin).unwrap_or(i64::MIN)
        });
        Ok(cast(&bins, &to)?)
    })
}

#[derive(Clone, Copy)]
enum Length {
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Length {
    /// `None` for shorter units and unknown names.
    fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "hour" => Self::Hour,
            "day" => Self::Day,
            "week" => Self::Week,
            "month" => Self::Month,
            "quarter" => Self::Quarter,
            "year" => Self::Year,
            _ => return None,
        })
    }

    /// The beginning of the unit that contains `moment`.
    fn begin(self, moment: NaiveDateTime) -> Option<NaiveDateTime> {
        let date = moment.date();
        let first_of = |month| NaiveDate::from_ymd_opt(date.year(), month, 1);
        let date = match self {
            Self::Hour => return date.and_hms_opt(moment.hour(), 0, 0),
            Self::Day => date,
            Self::Week => date.week(Weekday::Mon).checked_first_day()?,
            Self::Month => first_of(date.month())?,
            Self::Quarter => first_of(date.month0() / 3 * 3 + 1)?,
            Self::Year => first_of(1)?,
        };
        Some(date.and_time(NaiveTime::MIN))
    }
}
