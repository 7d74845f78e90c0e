//! The functions that rules put into plans: casts, the order of intervals, finer timestamp units, time zones.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, make_array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float16Type, Float32Type,
    Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{convert, intervals};
use crate::sql::types::SessionZone;
use crate::types::sql_type_name;

/// Converts a value to another type: see [`super`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CastTo {
    to: DataType,
    is_try: bool,
    signature: Signature,
}

impl CastTo {
    pub(super) fn new(to: DataType, is_try: bool) -> Self {
        Self { to, is_try, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn write(&self, value: &str) -> String {
        let name = if self.is_try { "TRY_CAST" } else { "CAST" };
        format!("{name}({value} AS {})", sql_type_name(&self.to))
    }
}

impl ScalarUDFImpl for CastTo {
    fn name(&self) -> &'static str {
        if self.is_try { "keirin_try_cast" } else { "keirin_cast" }
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(self.write(&arguments[0].to_string()))
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(self.write(&arguments[0].schema_name().to_string()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = self.is_try || arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        each(&arguments.args[0], |values| convert(values, &self.to, self.is_try))
    }
}

/// Applies `run` to a column, or to the one row of a constant.
fn each(value: &ColumnarValue, run: impl Fn(&ArrayRef) -> Result<ArrayRef>) -> Result<ColumnarValue> {
    Ok(match value {
        ColumnarValue::Array(values) => ColumnarValue::Array(run(values)?),
        ColumnarValue::Scalar(value) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&run(&value.to_array()?)?, 0)?)
        }
    })
}

fn call(function: impl ScalarUDFImpl + 'static, arguments: Vec<Expr>) -> Expr {
    let function = Arc::new(ScalarUDF::new_from_impl(function));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

/// Whether a value of this type is an interval or has intervals inside.
pub(crate) fn has_intervals(data_type: &DataType) -> bool {
    let has = |field: &FieldRef| has_intervals(field.data_type());
    match data_type {
        DataType::Interval(_) => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => has(item),
        DataType::Struct(fields) => fields.iter().any(has),
        DataType::Map(entries, _) => has(entries),
        _ => false,
    }
}

/// Wraps an interval, a duration, or a list or struct of intervals, so that it compares by length.
pub(crate) fn interval_order(interval: Expr) -> Expr {
    match &interval {
        Expr::ScalarFunction(call) if call.func.name() == IntervalOrder::NAME => interval,
        _ => call(IntervalOrder::default(), vec![interval]),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalOrder {
    signature: Signature,
}

impl Default for IntervalOrder {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl IntervalOrder {
    const NAME: &str = "keirin_interval";
}

impl ScalarUDFImpl for IntervalOrder {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match &arguments[0] {
            nested if nested.is_nested() => nested.clone(),
            _ => DataType::Interval(IntervalUnit::MonthDayNano),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        each(&arguments.args[0], intervals_in_order)
    }
}

/// Intervals, or durations, as intervals that compare by their length; also those inside lists and structs.
pub(crate) fn intervals_in_order(values: &ArrayRef) -> Result<ArrayRef> {
    if values.data_type().is_nested() {
        let data = values.to_data();
        let inner = data.child_data().iter().map(|inner| {
            let values = make_array(inner.clone());
            let is_ordered = has_intervals(values.data_type());
            let values = if is_ordered { intervals_in_order(&values)? } else { values };
            Ok(cast(&values, inner.data_type())?.to_data())
        });
        let inner = inner.collect::<Result<Vec<_>>>()?;
        return Ok(make_array(data.into_builder().child_data(inner).build()?));
    }
    let intervals = convert(values, &DataType::Interval(IntervalUnit::MonthDayNano), false)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    Ok(Arc::new(intervals.unary::<_, IntervalMonthDayNanoType>(intervals::normal)))
}

/// The length of an interval as a number, by which a window can be ordered.
pub(crate) fn interval_length(interval: Expr) -> Expr {
    call(IntervalLength { signature: Signature::any(1, Volatility::Immutable) }, vec![interval])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalLength {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalLength {
    fn name(&self) -> &'static str {
        "keirin_interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        each(&arguments.args[0], |values| {
            let intervals = convert(values, &DataType::Interval(IntervalUnit::MonthDayNano), false)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            let lengths = intervals.unary::<_, Decimal128Type>(intervals::length);
            Ok(Arc::new(lengths.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?))
        })
    }
}

/// A timestamp in a finer unit, for a comparison; one outside the range of that unit saturates.
pub(crate) fn widened(timestamp: Expr, unit: TimeUnit) -> Expr {
    call(Widened { unit, signature: Signature::any(1, Volatility::Immutable) }, vec![timestamp])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Widened {
    unit: TimeUnit,
    signature: Signature,
}

impl ScalarUDFImpl for Widened {
    fn name(&self) -> &'static str {
        "keirin_widened"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [DataType::Timestamp(_, zone)] = arguments else {
            return internal_err!("{arguments:?} are no timestamp");
        };
        Ok(DataType::Timestamp(self.unit, zone.clone()))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let per_second = |unit: TimeUnit| match unit {
            TimeUnit::Second => 1_i64,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let to = arguments.return_field.data_type();
        each(&arguments.args[0], |values| {
            let DataType::Timestamp(from, _) = values.data_type() else {
                return internal_err!("{} is no timestamp", values.data_type());
            };
            let factor = per_second(self.unit) / per_second(*from);
            let counts = cast(values, &DataType::Int64)?;
            let counts: Int64Array =
                counts.as_primitive::<Int64Type>().unary(|count: i64| count.saturating_mul(factor));
            Ok(cast(&counts, to)?)
        })
    }
}

/// A float with NaN normalised to the positive one, which is greater than all numbers. CPUs give a negative
/// NaN for `0 / 0`, which the total order of floats puts below all numbers.
pub(crate) fn positive_nan(value: Expr) -> Expr {
    call(PositiveNan { signature: Signature::any(1, Volatility::Immutable) }, vec![value])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PositiveNan {
    signature: Signature,
}

impl ScalarUDFImpl for PositiveNan {
    fn name(&self) -> &'static str {
        "keirin_float"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        each(&arguments.args[0], |values| {
            Ok(match values.data_type() {
                DataType::Float16 => {
                    Arc::new(values.as_primitive::<Float16Type>().unary::<_, Float16Type>(|value| {
                        if value.is_nan() { <Float16Type as ArrowPrimitiveType>::Native::NAN } else { value }
                    }))
                }
                DataType::Float32 => Arc::new(
                    values
                        .as_primitive::<Float32Type>()
                        .unary::<_, Float32Type>(|value| if value.is_nan() { f32::NAN } else { value }),
                ),
                DataType::Float64 => Arc::new(
                    values
                        .as_primitive::<Float64Type>()
                        .unary::<_, Float64Type>(|value| if value.is_nan() { f64::NAN } else { value }),
                ),
                _ => values.clone(),
            })
        })
    }
}

/// `timestamp AT TIME ZONE zone`: the local time in `zone` of a timestamp with zone, and the instant at which
/// clocks in `zone` show a timestamp without one.
#[derive(Debug)]
struct AtZone {
    session_zone: SessionZone,
    signature: Signature,
}

impl PartialEq for AtZone {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for AtZone {}

impl std::hash::Hash for AtZone {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for AtZone {
    fn name(&self) -> &'static str {
        "keirin_at_time_zone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match &arguments[0] {
            DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, None),
            DataType::Timestamp(unit, None) => DataType::Timestamp(*unit, Some(self.session_zone.get())),
            DataType::Date32 => DataType::Timestamp(TimeUnit::Microsecond, Some(self.session_zone.get())),
            // A text is read as a timestamp with zone: the zone that it names, or else the session's.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            other => {
                return plan_err!("AT TIME ZONE takes a timestamp, not {}", sql_type_name(other));
            }
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [timestamp, zone] = arguments.args.as_slice() else {
            return internal_err!("AT TIME ZONE takes a timestamp and a zone");
        };
        let to = arguments.return_field.data_type();
        let ColumnarValue::Scalar(zone) = zone else {
            return exec_err!("the zone of AT TIME ZONE is a constant");
        };
        let Some(Some(zone)) = zone.try_as_str() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_new_null(to)?));
        };
        let zone: Arc<str> = zone.into();
        each(timestamp, |values| {
            let instants = match values.data_type() {
                DataType::Timestamp(unit, Some(_)) => {
                    cast(values, &DataType::Timestamp(*unit, Some(zone.clone())))?
                }
                DataType::Timestamp(unit, None) => {
                    convert(values, &DataType::Timestamp(*unit, Some(zone.clone())), false)?
                }
                DataType::Date32 => {
                    let unit = TimeUnit::Microsecond;
                    convert(values, &DataType::Timestamp(unit, Some(zone.clone())), false)?
                }
                _ => {
                    let session = Some(self.session_zone.get());
                    let moments = DataType::Timestamp(TimeUnit::Microsecond, session);
                    let moments = convert(values, &moments, false)?;
                    cast(&moments, &DataType::Timestamp(TimeUnit::Microsecond, Some(zone.clone())))?
                }
            };
            convert(&instants, to, false)
        })
    }
}

/// Whether [`interval_part`] computes this part.
pub(crate) fn is_interval_part(part: &ScalarValue) -> bool {
    Part::of(part).is_some()
}

/// `date_part(part, interval)` for the parts that the library computes differently: seconds in all, and
/// seconds with their fraction in smaller units.
pub(crate) fn interval_part(part: Expr, interval: Expr) -> Expr {
    call(IntervalPart { signature: Signature::any(2, Volatility::Immutable) }, vec![part, interval])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Epoch,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl Part {
    fn of(name: &ScalarValue) -> Option<Self> {
        let name = name.try_as_str().flatten()?.to_ascii_lowercase();
        Some(match name.as_str() {
            "epoch" => Self::Epoch,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Self::Milliseconds,
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Self::Microseconds,
            "nanosecond" | "nanoseconds" | "nsec" | "nsecs" | "ns" => Self::Nanoseconds,
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalPart {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalPart {
    fn name(&self) -> &'static str {
        "keirin_interval_part"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type depends on the part")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let part = arguments.scalar_arguments.first().copied().flatten().and_then(Part::of);
        let data_type = match part {
            Some(Part::Milliseconds | Part::Microseconds | Part::Nanoseconds) => DataType::Int64,
            _ => DataType::Float64,
        };
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), interval] = arguments.args.as_slice() else {
            return internal_err!("the part of an interval is a constant");
        };
        let Some(part) = Part::of(part) else { return internal_err!("{part} is no part of an interval") };
        each(interval, |values| {
            let values = convert(values, &DataType::Interval(IntervalUnit::MonthDayNano), false)?;
            let values = values.as_primitive::<IntervalMonthDayNanoType>();
            let in_minute = |unit: i64| {
                let part = |interval: IntervalMonthDayNano| interval.nanoseconds % 60_000_000_000 / unit;
                Arc::new(values.unary::<_, Int64Type>(part)) as ArrayRef
            };
            Ok(match part {
                Part::Epoch => Arc::new(values.unary::<_, Float64Type>(intervals::epoch)),
                Part::Milliseconds => in_minute(1_000_000),
                Part::Microseconds => in_minute(1_000),
                Part::Nanoseconds => in_minute(1),
            })
        })
    }
}

/// The functions that SQL can call by name.
pub(crate) fn functions(session_zone: &SessionZone) -> Vec<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Stable);
    vec![ScalarUDF::new_from_impl(AtZone { session_zone: session_zone.clone(), signature })]
}
