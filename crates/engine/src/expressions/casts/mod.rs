//! Casts with PostgreSQL's meaning where Arrow's casts differ.
//!
//! - Numbers become whole numbers by rounding: DECIMALs half away from zero, floats half to even.
//! - A float becomes the DECIMAL that its shortest text is, and a DECIMAL the nearest float.
//! - Text with an exponent can become a DECIMAL, text with any zone a TIMESTAMP or a DATE, and text can become
//!   an INTERVAL or a list.
//! - A number is no time of day.
//! - Whole numbers and fractions become timestamps as seconds since 1970.
//! - Timestamps, times and intervals become text as [`display`](crate::display) spells them.
//! - The items of lists, structs and maps are converted by the same rules.
//!
//! An analyzer rule that runs after type coercion replaces such casts, written or coerced, by [`CastTo`].

mod functions;
mod intervals;
mod lists;
mod moments;
mod numbers;
mod unordered;

use std::iter;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, GenericListArray, MapArray, OffsetSizeTrait, StructArray,
    make_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options, filter};
use arrow::datatypes::{DataType, FieldRef, Fields, TimeUnit};
use arrow::util::display::FormatOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use self::functions::CastTo;
use crate::compile::rules::rewrite_expressions;
use crate::display::texts;
use crate::error::{Error, ErrorKind};
use crate::types::sql_type_name;

pub(crate) use functions::{
    functions, has_intervals, interval_length, interval_order, interval_part, intervals_in_order,
    is_interval_part, positive_nan, widened,
};
pub(crate) use moments::each_local;
pub(crate) use unordered::Unordered;

/// See the [module](self). The rule runs after type coercion, which adds casts.
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
    // Targets with metadata, which have a meaning of their own, such as JSON, are not ours.
    if !target.metadata().is_empty() || !is_ours(&value.get_type(schema)?, target.data_type()) {
        return Ok(Transformed::no(expr));
    }
    // Most values are constants: converted here, they need no function. A constant that fails to convert does
    // so during execution.
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

/// The interval of a cast from a constant text.
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

/// Whether the cast adds or removes a time zone other than UTC, so that the instant moves.
fn moves(from_zone: Option<&str>, to_zone: Option<&str>) -> bool {
    match (from_zone, to_zone) {
        (Some(zone), None) | (None, Some(zone)) => !is_utc(zone),
        _ => false,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether Arrow's cast would give another result.
fn is_ours(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Decimal128, Dictionary, Duration, FixedSizeList, Interval, LargeBinary,
        LargeList, List, Map, RunEndEncoded, Struct, Time32, Time64, Timestamp,
    };
    let is_fraction = from.is_floating() || from.is_decimal();
    match (from, to) {
        (Dictionary(_, values), to) => is_ours(values, to),
        (RunEndEncoded(_, values), to) => is_ours(values.data_type(), to),
        (from, to) if to.is_integer() => is_fraction && from != to,
        (from, to) if to.is_floating() => from.is_decimal(),
        (from, Decimal128(..)) => from.is_floating() || is_text(from),
        // All other casts of timestamps stay Arrow's, which the optimizer understands.
        (Timestamp(from, from_zone), Timestamp(to, to_zone)) => {
            moves(from_zone.as_deref(), to_zone.as_deref())
                || moments::per_second(*from) > moments::per_second(*to)
        }
        (Timestamp(_, Some(_)), Date32 | Time32(_) | Time64(_)) => true,
        (Date32, Timestamp(unit, zone)) => *unit == TimeUnit::Nanosecond || zone.is_some(),
        (from, Timestamp(..)) => is_text(from) || is_fraction || from.is_integer(),
        (from, Time32(_) | Time64(_)) => is_text(from) || from.is_numeric(),
        (from, Date32 | Interval(_) | Binary | LargeBinary | BinaryView) => is_text(from),
        (List(from) | LargeList(from) | FixedSizeList(from, _), List(to) | LargeList(to)) => {
            is_ours(from.data_type(), to.data_type())
        }
        (from, List(_) | LargeList(_) | FixedSizeList(..)) => is_text(from),
        (Struct(from), Struct(to)) => fields_are_ours(from, to),
        (Map(from, _), Map(to, _)) => from.data_type() != to.data_type(),
        (from, to) if is_text(to) => {
            matches!(from, Timestamp(..) | Interval(_) | Duration(_)) || from.is_nested()
        }
        _ => false,
    }
}

/// Whether the fields of a struct are converted one by one, and one of them by our cast.
fn fields_are_ours(from: &Fields, to: &Fields) -> bool {
    let mut pairs = from.iter().zip(to);
    from.len() == to.len()
        && from.iter().zip(to).all(|(from, to)| from.name() == to.name())
        && pairs.any(|(from, to)| is_ours(from.data_type(), to.data_type()))
}

/// The column converted to another type. A value that does not convert is an error, or NULL if `is_try`.
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
        (DataType::Utf8View, DataType::Date32) => moments::dates_of_text(values.as_string_view(), is_try),
        (DataType::Utf8View, DataType::Time32(_) | DataType::Time64(_)) => {
            moments::times_of_text(values.as_string_view(), to, is_try)
        }
        (from, DataType::Time32(_) | DataType::Time64(_)) if from.is_numeric() => {
            let message = format!("a {} is no time of day", sql_type_name(from));
            let error = Error::new(ErrorKind::Invalid, message);
            Err(external(error.with_hint("TIME '00:00' + INTERVAL '90 seconds' is 00:01:30")))
        }
        (DataType::Utf8View, DataType::Interval(_)) => {
            convert(&intervals::of_text(values.as_string_view(), is_try)?, to, is_try)
        }
        (DataType::Utf8View, to) if to.is_binary() => {
            Ok(cast(&lists::bytes_of_text(values.as_string_view(), is_try)?, to)?)
        }
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
        (DataType::Struct(_), DataType::Struct(to)) => Ok(Arc::new(fields(values.as_struct(), to, is_try)?)),
        (DataType::Map(..), DataType::Map(entries, is_sorted)) => {
            Ok(Arc::new(map(values.as_map(), entries, *is_sorted, is_try)?))
        }
        (from, to) if is_text(to) && (from.is_temporal() || from.is_nested()) => {
            Ok(cast(&texts(values, is_try)?, to)?)
        }
        (DataType::Timestamp(from, from_zone), DataType::Timestamp(unit, zone))
            if !moves(from_zone.as_deref(), zone.as_deref()) =>
        {
            moments::rounded(values, *from, *unit, to)
        }
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
    let (offsets, begin, len) = rebased(list.offsets());
    let items = convert(&list.values().slice(begin, len), item.data_type(), is_try)?;
    let list = GenericListArray::<O>::try_new(item.clone(), offsets, items, list.nulls().cloned())?;
    Ok(Arc::new(list))
}

/// Maps with their keys and values converted. A map is NULL if one of its keys does not convert.
fn map(maps: &MapArray, entries: &FieldRef, is_sorted: bool, is_try: bool) -> Result<MapArray> {
    let DataType::Struct(to) = entries.data_type() else { return internal_err!("a map has entries") };
    let (mut offsets, begin, len) = rebased(maps.offsets());
    let nullable = to.iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
    let (_, mut columns, _) = fields(&maps.entries().slice(begin, len), &nullable, is_try)?.into_parts();
    let mut nulls = maps.nulls().cloned();
    let keys = columns[0].clone();
    if keys.logical_null_count() > 0 {
        let lengths: Vec<usize> = offsets.lengths().collect();
        let mut entry = 0..;
        let is_whole = lengths.iter().map(|len| {
            let valid = entry.by_ref().take(*len).filter(|entry| keys.is_valid(*entry));
            valid.count() == *len
        });
        let is_whole: Vec<bool> = is_whole.collect();
        let kept = is_whole.iter().zip(&lengths).flat_map(|(is_whole, len)| iter::repeat_n(*is_whole, *len));
        let kept = BooleanArray::from_iter(kept.map(Some));
        for column in &mut columns {
            *column = filter(column, &kept)?;
        }
        offsets = OffsetBuffer::from_lengths(
            lengths.iter().zip(&is_whole).map(|(len, is_whole)| if *is_whole { *len } else { 0 }),
        );
        nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::from(is_whole)));
    }
    let converted = StructArray::try_new(to.clone(), columns, None)?;
    Ok(MapArray::try_new(entries.clone(), offsets, converted, nulls, is_sorted)?)
}

/// The offsets relative to the first item in use, that item's index, and the number of items in use: items
/// outside a slice are not converted, so they cannot fail.
fn rebased<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (OffsetBuffer<O>, usize, usize) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let rebased = offsets.iter().map(|offset| *offset - first).collect();
    (OffsetBuffer::new(rebased), first.as_usize(), (last - first).as_usize())
}

/// A struct with its fields converted, in the same order. The fields of a NULL struct are not converted.
fn fields(values: &StructArray, to: &Fields, is_try: bool) -> Result<StructArray> {
    let convert_field = |(column, to): (&ArrayRef, &FieldRef)| {
        let nulls = NullBuffer::union(column.nulls(), values.nulls());
        let column = match values.nulls() {
            Some(_) if column.data_type() != &DataType::Null => {
                make_array(column.to_data().into_builder().nulls(nulls).build()?)
            }
            _ => column.clone(),
        };
        convert(&column, to.data_type(), is_try)
    };
    let columns = values.columns().iter().zip(to).map(convert_field).collect::<Result<_>>()?;
    Ok(StructArray::try_new_with_length(to.clone(), columns, values.nulls().cloned(), values.len())?)
}

/// The error of a value that is not of a type.
fn is_no(value: impl std::fmt::Display, to: &DataType) -> DataFusionError {
    let name = sql_type_name(to);
    let article = if name.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
    let error = Error::new(ErrorKind::Data, format!("'{value}' is not {article} {name}"));
    external(error.with_hint("TRY_CAST gives NULL where a value does not convert"))
}

/// The error of a value outside the range of a type.
fn has_no_room(value: impl std::fmt::Display, to: &DataType) -> DataFusionError {
    let message = format!("{value} does not fit into {}", sql_type_name(to));
    let error = Error::new(ErrorKind::Data, message);
    external(error.with_hint("TRY_CAST gives NULL where a value does not convert"))
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
