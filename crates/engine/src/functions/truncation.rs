//! `date_trunc` and `date_bin` of all years: DataFusion's go through nanoseconds, which end in 2262.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, TimeUnit};
use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Weekday};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::casts::each_local;

pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |inner, run| ScalarUDF::new_from_impl(Truncation { inner, run });
    vec![function(datetime::date_trunc(), truncate), function(datetime::date_bin(), bin)]
}

/// DataFusion's function, and what computes in its place the timestamps that it would not, if it takes them.
#[derive(Debug)]
struct Truncation {
    inner: Arc<ScalarUDF>,
    run: fn(&ScalarFunctionArgs) -> Result<Option<ColumnarValue>>,
}

impl PartialEq for Truncation {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Truncation {}

impl Hash for Truncation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Truncation {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(arguments, info)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(values) = (self.run)(&arguments)? {
            return Ok(values);
        }
        let is_coarse_constant = match arguments.args.get(1) {
            Some(ColumnarValue::Scalar(value)) => is_coarse(&value.data_type()),
            _ => false,
        };
        if !is_coarse_constant {
            return self.inner.invoke_with_args(arguments);
        }
        // Columns stay in their unit, unlike constants.
        arguments.args[1] = ColumnarValue::Array(arguments.args[1].to_array(1)?);
        arguments.number_rows = 1;
        let values = self.inner.invoke_with_args(arguments)?.to_array(1)?;
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?))
    }
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

/// Bins of days and shorter; those of months are the library's.
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
    /// `None` for what is shorter, or is none.
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

    /// When the one began that a moment is in.
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
