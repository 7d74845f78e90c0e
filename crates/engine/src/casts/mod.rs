//! Casts that mean what they do in PostgreSQL where Arrow's mean something else.
//!
//! - Numbers become whole numbers by rounding: DECIMALs half away from zero, floats half to even.
//! - A float becomes the DECIMAL that its shortest text is, and a DECIMAL the float that is nearest to it.
//! - Text becomes a DECIMAL with an exponent too, a TIMESTAMP whatever zone it names, an INTERVAL, a list.
//! - Whole numbers and fractions become timestamps as seconds since 1970.
//!
//! An analyzer rule behind type coercion puts [`CastTo`] in the place of such casts, written or coerced.

mod functions;
mod intervals;
mod lists;
mod moments;
mod numbers;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use arrow::util::display::FormatOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use self::functions::CastTo;
use crate::error::{Error, ErrorKind};
use crate::rules::rewrite_expressions;
use crate::types::sql_type_name;

pub(crate) use functions::{
    functions, interval_length, interval_order, interval_part, is_interval_part, positive_nan, widened,
};
pub(crate) use moments::each_local;

/// See the [module](self). It stands behind type coercion, which adds casts.
#[derive(Debug)]
pub(crate) struct Casts;

impl AnalyzerRule for Casts {
    fn name(&self) -> &'static str {
        "casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, with_our_casts)
    }
}

fn with_our_casts(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (value, target, is_try) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
        _ => return Ok(Transformed::no(expr)),
    };
    // A type with a meaning of its own, such as JSON, is not converted to.
    if !target.metadata().is_empty() || !is_ours(&value.get_type(schema)?, target.data_type()) {
        return Ok(Transformed::no(expr));
    }
    // Most are constants: converted here, they need no function. What fails does so where it is computed.
    if let Expr::Literal(value, _) = value.as_ref()
        && let Ok(converted) = convert(&value.to_array()?, target.data_type(), is_try)
    {
        return Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from_array(&converted, 0)?, None)));
    }
    let target = target.data_type().clone();
    let (Expr::Cast(Cast { expr: value, .. }) | Expr::TryCast(TryCast { expr: value, .. })) = expr else {
        return Ok(Transformed::no(expr));
    };
    let function = Arc::new(ScalarUDF::new_from_impl(CastTo::new(target, is_try)));
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*value]))))
}

/// The interval that a constant text is cast to.
pub(crate) fn constant_interval(expr: &Expr) -> Option<ScalarValue> {
    let Expr::Cast(Cast { expr, field }) = expr else { return None };
    let (Expr::Literal(text, _), DataType::Interval(_)) = (expr.as_ref(), field.data_type()) else {
        return None;
    };
    let interval = intervals::parse(text.try_as_str()??)?;
    Some(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00")
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether Arrow's cast would give something else.
fn is_ours(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, Date32, Decimal128, Dictionary, FixedSizeList, Interval, LargeList, List, RunEndEncoded,
        Time32, Time64, Timestamp,
    };
    let is_fraction = from.is_floating() || from.is_decimal();
    match (from, to) {
        (Dictionary(_, values), to) => is_ours(values, to),
        (RunEndEncoded(_, values), to) => is_ours(values.data_type(), to),
        (from, to) if to.is_integer() => is_fraction && from != to,
        (from, to) if to.is_floating() => from.is_decimal(),
        (from, Decimal128(..)) => from.is_floating() || is_text(from),
        // In UTC nothing is to be moved, and the optimizer sees through Arrow's cast.
        (Timestamp(_, Some(zone)), Timestamp(_, None)) | (Timestamp(_, None), Timestamp(_, Some(zone))) => {
            !is_utc(zone)
        }
        (Timestamp(_, Some(_)), Date32 | Time32(_) | Time64(_)) => true,
        (Date32, Timestamp(unit, zone)) => *unit == TimeUnit::Nanosecond || zone.is_some(),
        (from, Timestamp(..)) => is_text(from) || is_fraction || from.is_integer(),
        (from, Time32(_) | Time64(_) | Interval(_) | Binary) => is_text(from),
        (List(from) | LargeList(from) | FixedSizeList(from, _), List(to) | LargeList(to)) => {
            is_ours(from.data_type(), to.data_type())
        }
        (from, List(_) | LargeList(_) | FixedSizeList(..)) => is_text(from),
        _ => false,
    }
}

/// The column as one of another type. What does not convert is an error, or NULL.
pub(crate) fn convert(values: &ArrayRef, to: &DataType, is_try: bool) -> Result<ArrayRef> {
    let from = values.data_type();
    if !is_ours(from, to) {
        let options = CastOptions { safe: is_try, format_options: FormatOptions::default() };
        return Ok(cast_with_options(values, to, &options)?);
    }
    match (from, to) {
        (DataType::Dictionary(_, plain), _) => convert(&cast(values, plain)?, to, is_try),
        (DataType::RunEndEncoded(_, plain), _) => convert(&cast(values, plain.data_type())?, to, is_try),
        (DataType::Utf8 | DataType::LargeUtf8, _) => convert(&cast(values, &DataType::Utf8View)?, to, is_try),
        (DataType::Utf8View, DataType::Decimal128(precision, scale)) => {
            numbers::decimals_of_text(values.as_string_view(), *precision, *scale, is_try)
        }
        (DataType::Utf8View, DataType::Timestamp(unit, zone)) => {
            moments::of_text(values.as_string_view(), *unit, zone.as_ref(), is_try)
        }
        (DataType::Utf8View, DataType::Time32(_) | DataType::Time64(_)) => {
            moments::times_of_text(values.as_string_view(), to, is_try)
        }
        (DataType::Utf8View, DataType::Interval(_)) => {
            convert(&intervals::of_text(values.as_string_view(), is_try)?, to, is_try)
        }
        (DataType::Utf8View, DataType::Binary) => lists::bytes_of_text(values.as_string_view(), is_try),
        (DataType::Utf8View, _) => lists::of_text(values.as_string_view(), to, is_try),
        (DataType::FixedSizeList(item, _), _) => {
            convert(&cast(values, &DataType::List(item.clone()))?, to, is_try)
        }
        (DataType::LargeList(_), DataType::LargeList(item)) => items::<i64>(values, item, is_try),
        (DataType::LargeList(item), _) => convert(&cast(values, &DataType::List(item.clone()))?, to, is_try),
        (DataType::List(_), DataType::LargeList(item)) => {
            let list = items::<i32>(values, item, is_try)?;
            Ok(cast(&list, to)?)
        }
        (DataType::List(_), DataType::List(item)) => items::<i32>(values, item, is_try),
        (_, DataType::Timestamp(unit, zone)) => moments::of_values(values, *unit, zone.as_ref(), is_try),
        (DataType::Timestamp(_, Some(_)), DataType::Date32 | DataType::Time32(_) | DataType::Time64(_)) => {
            let local = convert(values, &DataType::Timestamp(TimeUnit::Microsecond, None), is_try)?;
            convert(&local, to, is_try)
        }
        _ => numbers::convert(values, to, is_try),
    }
}

/// Lists with their items converted.
fn items<O: OffsetSizeTrait>(values: &ArrayRef, item: &FieldRef, is_try: bool) -> Result<ArrayRef> {
    let list = values.as_list::<O>();
    let items = convert(list.values(), item.data_type(), is_try)?;
    let list =
        GenericListArray::<O>::try_new(item.clone(), list.offsets().clone(), items, list.nulls().cloned())?;
    Ok(Arc::new(list))
}

/// The error of a value that is none of a type.
fn is_no(value: impl std::fmt::Display, to: &DataType) -> DataFusionError {
    let name = sql_type_name(to);
    let article = if name.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
    let error = Error::new(ErrorKind::Data, format!("'{value}' is not {article} {name}"));
    external(error.with_hint("TRY_CAST gives NULL where a value does not convert"))
}

/// The error of a value that a type has no room for.
fn has_no_room(value: impl std::fmt::Display, to: &DataType) -> DataFusionError {
    let message = format!("{value} does not fit into {}", sql_type_name(to));
    let error = Error::new(ErrorKind::Data, message);
    external(error.with_hint("TRY_CAST gives NULL where a value does not convert"))
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
