//! The common types of values of different types, where the planner would choose others; and intervals
//! compared by length.
//!
//! - A DECIMAL combined with a float becomes a DOUBLE: the planner would convert the float to a DECIMAL,
//!   whose range is too small.
//! - DECIMALs divide as DOUBLEs: the planner's result has four digits more than the dividend, and would lose
//!   the rest.
//! - `//` is the quotient without its fraction, for fractional numbers too.
//! - A BIGINT UNSIGNED and a signed integer divide to a whole number, as other integers do; the planner would convert
//!   both to DECIMALs.
//! - A DATE combined with a TIMESTAMP becomes one of the same unit, and a TIMESTAMP compared with one of a
//!   finer unit is converted to that, without overflow; the planner would convert both to nanoseconds, which
//!   end in 2262.
//! - A NaN is the greatest float, whatever its sign.
//! - 0.0 and -0.0 are one value; DataFusion tells them apart in lists, CASE, nullif, windows and DISTINCT arguments.
//! - A text combined with a TIMESTAMP is read as one; the planner would convert both to nanoseconds.
//! - Intervals are compared, sorted and grouped by their lengths, also inside lists and structs; the planner would
//!   compare field by field.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, IntervalUnit, TimeUnit,
};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, DFSchema, ScalarValue, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions::math::expr_fn::trunc;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_nested::expr_fn::array_concat;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, Case, InList, InSubquery, ScalarFunction, Sort,
};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, BinaryExpr, Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan,
    LogicalPlanBuilder, Operator, Union, WindowFunctionDefinition, binary_expr, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::outer_types::with_outer_types;
use super::rewrite_expressions;
use crate::expressions::arithmetic::Extreme;
use crate::expressions::casts::{
    has_intervals, interval_length, interval_order, interval_part, is_interval_part, positive_nan, widened,
};
use crate::expressions::functions::any_type::{bytes_of_text, length_of_values};
use crate::expressions::functions::quotient::{QUOTIENT, has_decimal, wide_quotient};

/// See the [module](self). The rule runs before type coercion, which would choose.
#[derive(Debug)]
pub(crate) struct CommonTypes;

impl AnalyzerRule for CommonTypes {
    fn name(&self) -> &'static str {
        "common_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = rewrite_expressions(plan, with_common_types)?;
        let settled = with_outer_types(plan)?;
        let plan = match settled.transformed {
            true => rewrite_expressions(settled.data, with_common_types)?,
            false => settled.data,
        };
        plan.transform_up_with_subqueries(with_common_rows).data()
    }
}

/// The expression with its own operands converted; inner expressions are converted already.
pub(crate) fn with_common_types(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let type_of = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (left_type, right_type) = (type_of(&left), type_of(&right));
            if op == Operator::Divide && no_integer_holds(&left_type, &right_type) {
                let operands = [(*left, left_type), (*right, right_type)];
                return Ok(Transformed::yes(quotient_of_unsigned(operands)));
            }
            let [of_left, of_right] = if op.is_numerical_operators() {
                arithmetic(op, &left_type, &right_type)
            } else if compares(op) {
                comparison(&left_type, &right_type)
            } else {
                [None, None]
            };
            let is_changed = of_left.is_some() || of_right.is_some();
            let left = Box::new(Change::apply(of_left, *left));
            let right = Box::new(Change::apply(of_right, *right));
            let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
            if type_of(&expr).is_floating() && may_make_nan(&expr, type_of) {
                return Ok(Transformed::yes(positive_nan(expr)));
            }
            changed_if(is_changed, expr)
        }
        // Negation would change the sign of a NaN, and so its place in the order.
        Expr::Negative(expr) if type_of(&expr).is_floating() && !matches!(*expr, Expr::Literal(..)) => {
            Transformed::yes(positive_nan(Expr::Negative(expr)))
        }
        // The planner took it for a number with a sign.
        Expr::Negative(expr) if type_of(&expr).is_unsigned_integer() => {
            let difference = binary_expr(lit(0_i64), Operator::Minus, *expr);
            Transformed::yes(with_common_types(difference, schema)?.data)
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let of_low = comparison(&type_of(&expr), &type_of(&low));
            let of_high = comparison(&type_of(&expr), &type_of(&high));
            let is_changed = of_low.iter().chain(&of_high).any(Option::is_some);
            let [[of_expr, of_low], [of_expr_again, of_high]] = [of_low, of_high];
            let expr = Box::new(Change::apply(of_expr.or(of_expr_again), *expr));
            let low = Box::new(Change::apply(of_low, *low));
            let high = Box::new(Change::apply(of_high, *high));
            changed_if(is_changed, Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::InList(InList { expr, mut list, negated }) => {
            let (mut of_expr, mut is_changed) = (None, false);
            let expr_type = type_of(&expr);
            for item in &mut list {
                let [change, of_item] = comparison(&expr_type, &type_of(item));
                is_changed |= change.is_some() || of_item.is_some();
                of_expr = of_expr.take().or(change);
                change_in_place(of_item, item);
            }
            let mut expr = Box::new(Change::apply(of_expr, *expr));
            let is_float = |value: &Expr| type_of(value).is_floating();
            if (is_float(&expr) || list.iter().any(is_float)) && list.iter().any(may_be_zero) {
                for value in list.iter_mut().chain([&mut *expr]) {
                    let data_type = type_of(value);
                    is_changed |= with_one_zero(value, &data_type);
                }
            }
            changed_if(is_changed, Expr::InList(InList { expr, list, negated }))
        }
        Expr::Case(case) => {
            let (case, is_changed) = with_common_branches(case, type_of);
            changed_if(is_changed, Expr::Case(case))
        }
        Expr::ScalarFunction(ScalarFunction { func, mut args }) => {
            let types: Vec<DataType> = args.iter().map(&type_of).collect();
            let mut is_changed = match (func.name(), args.as_mut_slice()) {
                ("nullif", [value, other]) => {
                    let [of_value, of_other] = comparison(&types[0], &types[1]);
                    // Only compared as another type: the value is not to lose digits by it.
                    let has_types = types[0] != types[1] && !types.contains(&DataType::Null);
                    if has_types && !value.is_volatile() {
                        let is_equal = value.clone().eq(std::mem::take(other));
                        let is_equal = Box::new(with_common_types(is_equal, schema)?.data);
                        let none = Box::new(lit(ScalarValue::try_from(&types[0])?));
                        let value = Box::new(std::mem::take(value));
                        let case = Case::new(None, vec![(is_equal, none)], Some(value));
                        return Ok(Transformed::yes(Expr::Case(case)));
                    }
                    let is_changed = of_value.is_some() || of_other.is_some();
                    change_in_place(of_value, value);
                    change_in_place(of_other, other);
                    is_changed
                }
                ("greatest" | "least", args) => unify(args, &types, common),
                (_, args) => unify(args, &types, met),
            };
            if compares_items(func.name()) {
                is_changed |= all_by_length(&mut args, &types);
            }
            match (func.name(), args.as_slice()) {
                // DataFusion's functions would convert dates and texts to nanoseconds.
                ("date_trunc" | "date_bin" | "date_part", [first, moment, rest @ ..])
                    if (func.name() != "date_part" && types[1] == DataType::Date32) || is_text(&types[1]) =>
                {
                    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
                    let moment = cast(moment.clone(), timestamp);
                    let args = [&[first.clone(), moment], rest].concat();
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                ("date_part", [Expr::Literal(part, _), interval])
                    if is_length(&types[1]) && is_interval_part(part) =>
                {
                    Transformed::yes(interval_part(Expr::Literal(part.clone(), None), interval.clone()))
                }
                // The result may need one digit more before the point, and none behind it.
                ("ceil" | "floor", [value]) if types[0].is_decimal() => {
                    let DataType::Decimal128(precision, scale @ 0..) = types[0] else {
                        return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
                    };
                    let wide = precision.saturating_add(1).min(DECIMAL128_MAX_PRECISION);
                    let args = vec![cast(value.clone(), DataType::Decimal128(wide, scale))];
                    let whole = wide.saturating_sub(scale.unsigned_abs()).max(1);
                    let rounded = Expr::ScalarFunction(ScalarFunction { func, args });
                    Transformed::yes(cast(rounded, DataType::Decimal128(whole, 0)))
                }
                ("nullif", [value, other]) if types.iter().any(DataType::is_floating) => {
                    let mut args = vec![value.clone(), other.clone()];
                    let is_changed =
                        args.iter_mut().zip(&types).fold(false, |is_changed, (value, data_type)| {
                            with_one_zero(value, data_type) || is_changed
                        });
                    changed_if(is_changed, Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                ("encode", [text, form]) if is_text(&types[0]) => {
                    let args = vec![bytes_of_text(text.clone()), form.clone()];
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                (QUOTIENT, [left, right]) if !has_decimal(&types[0], &types[1]) => {
                    let divided = binary_expr(left.clone(), Operator::Divide, right.clone());
                    let divided = with_common_types(divided, schema)?.data;
                    let is_fraction = types.iter().any(DataType::is_floating);
                    Transformed::yes(if is_fraction { trunc(vec![divided]) } else { divided })
                }
                ("named_struct", fields) => {
                    let names = fields.iter().step_by(2).filter_map(|field| match field {
                        Expr::Literal(name, _) => name.try_as_str().flatten(),
                        _ => None,
                    });
                    let mut seen = HashSet::new();
                    if let Some(name) = names.into_iter().find(|name| !seen.insert(name.to_owned())) {
                        return plan_err!("a struct has one field '{name}'");
                    }
                    changed_if(is_changed, Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                // The result type depends on this constant, which a cast would hide.
                ("round" | "trunc", [value, Expr::Literal(ScalarValue::Int64(Some(digits)), _)]) => {
                    let digits = i32::try_from(*digits).unwrap_or(if *digits < 0 { -999 } else { 999 });
                    let args = vec![value.clone(), lit(digits)];
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                // DataFusion's lists would be in nanoseconds as well.
                ("range" | "generate_series", [_, _, _]) => series(ScalarFunction { func, args }, &types[0]),
                // The planner would convert lists and bytes to text.
                ("character_length", [value]) if is_list(&types[0]) || types[0].is_binary() => {
                    Transformed::yes(length_of_values().call(vec![value.clone()]))
                }
                ("concat", lists) if !lists.is_empty() && types.iter().all(is_list) => {
                    Transformed::yes(array_concat(lists.to_vec()))
                }
                (name, _) if MAKE_NAN.contains(&name) => {
                    Transformed::yes(positive_nan(Expr::ScalarFunction(ScalarFunction { func, args })))
                }
                _ => changed_if(is_changed, Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let types: Vec<DataType> = params.args.iter().map(&type_of).collect();
            let mut is_changed = unify(&mut params.args, &types, met);
            if params.distinct || is_extreme(&func) {
                is_changed |= all_by_length(&mut params.args, &types);
            }
            if params.distinct {
                let sorted = params.order_by.iter_mut().map(|sort| &mut sort.expr);
                for value in params.args.iter_mut().chain(sorted) {
                    let data_type = type_of(value);
                    is_changed |= with_one_zero(value, &data_type);
                }
            } else {
                is_changed |= sorts_with_one_zero(&mut params.order_by, type_of);
            }
            is_changed |= sorts_by_length(&mut params.order_by, type_of);
            changed_if(is_changed, Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        Expr::WindowFunction(mut window) => {
            let compares =
                matches!(&window.fun, WindowFunctionDefinition::AggregateUDF(func) if is_extreme(func));
            let params = &mut window.params;
            let types: Vec<DataType> = params.args.iter().map(&type_of).collect();
            let mut is_changed = unify(&mut params.args, &types, met);
            if params.distinct || compares {
                is_changed |= all_by_length(&mut params.args, &types);
            }
            for key in &mut params.partition_by {
                let data_type = type_of(key);
                is_changed |= by_length(key, &data_type) || with_one_zero(key, &data_type);
            }
            for sort in &mut params.order_by {
                let data_type = type_of(&sort.expr);
                is_changed |= with_one_zero(&mut sort.expr, &data_type);
            }
            // The bounds of frames are numbers, so the window is ordered by lengths as numbers.
            for sort in params.order_by.iter_mut().filter(|sort| is_interval(&type_of(&sort.expr))) {
                sort.expr = interval_length(std::mem::take(&mut sort.expr));
                is_changed = true;
            }
            is_changed |= sorts_by_length(&mut params.order_by, type_of);
            changed_if(is_changed, Expr::WindowFunction(window))
        }
        Expr::InSubquery(InSubquery { mut expr, mut subquery, negated }) => {
            let field = subquery.subquery.schema().field(0).data_type();
            let [of_expr, of_column] = comparison(&type_of(&expr), field);
            let is_changed = of_expr.is_some() || of_column.is_some();
            change_in_place(of_expr, &mut expr);
            if of_column.is_some() {
                let plan = Arc::unwrap_or_clone(subquery.subquery);
                let (qualifier, field) = plan.schema().qualified_field(0);
                let (qualifier, name) = (qualifier.cloned(), field.name().clone());
                let column = Expr::Column(Column::new(qualifier.clone(), &name));
                let column = Change::apply(of_column, column).alias_qualified(qualifier, name);
                subquery.subquery = Arc::new(LogicalPlanBuilder::from(plan).project([column])?.build()?);
            }
            changed_if(is_changed, Expr::InSubquery(InSubquery { expr, subquery, negated }))
        }
        other => Transformed::no(other),
    })
}

fn changed_if<T>(is_changed: bool, data: T) -> Transformed<T> {
    if is_changed { Transformed::yes(data) } else { Transformed::no(data) }
}

/// A list of timestamps in the unit of the first argument. DataFusion's function would give NULL where
/// nanoseconds do not suffice; a cast to them fails.
fn series(mut call: ScalarFunction, first: &DataType) -> Transformed<Expr> {
    let DataType::Timestamp(TimeUnit::Microsecond, zone) = first else {
        return Transformed::no(Expr::ScalarFunction(call));
    };
    for bound in &mut call.args[..2] {
        *bound = cast(std::mem::take(bound), DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()));
    }
    let list = DataType::new_list(first.clone(), true);
    Transformed::yes(cast(Expr::ScalarFunction(call), list))
}

/// Whether both are integers, of which one has values above those of BIGINT and the other one below zero.
fn no_integer_holds(left: &DataType, right: &DataType) -> bool {
    let holds =
        |large: &DataType, signed: &DataType| *large == DataType::UInt64 && signed.is_signed_integer();
    holds(left, right) || holds(right, left)
}

/// The quotient of a BIGINT UNSIGNED and a signed integer; a constant that is not negative is taken for unsigned, too.
fn quotient_of_unsigned(operands: [(Expr, DataType); 2]) -> Expr {
    let is_unsigned = |(operand, data_type): &(Expr, DataType)| match operand {
        Expr::Literal(number, _) => number.cast_to(&DataType::UInt64).is_ok_and(|number| !number.is_null()),
        _ => *data_type == DataType::UInt64,
    };
    let are_unsigned = operands.iter().all(is_unsigned);
    let [left, right] = operands.map(|(operand, _)| operand);
    if are_unsigned {
        return binary_expr(cast(left, DataType::UInt64), Operator::Divide, cast(right, DataType::UInt64));
    }
    wide_quotient(left, right)
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether the function of lists compares their items.
fn compares_items(name: &str) -> bool {
    matches!(
        name,
        "array_has"
            | "array_has_all"
            | "array_has_any"
            | "array_position"
            | "array_positions"
            | "array_distinct"
            | "array_intersect"
            | "array_union"
            | "array_except"
            | "array_remove"
            | "array_remove_n"
            | "array_remove_all"
            | "array_replace"
            | "array_replace_n"
            | "array_replace_all"
    )
}

/// Whether this is `min` or `max`.
fn is_extreme(func: &AggregateUDF) -> bool {
    let inner: &dyn Any = func.inner().as_ref();
    inner.is::<Extreme<Min>>() || inner.is::<Extreme<Max>>()
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// Whether values of this type are intervals or durations.
fn is_length(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// How an operand is converted.
#[derive(Clone)]
enum Change {
    Cast(DataType),
    /// A time of day to the duration since midnight.
    Duration,
    /// A timestamp to a finer unit.
    Widen(TimeUnit),
    /// A DATE to a timestamp in nanoseconds.
    DateToNanoseconds(Option<Arc<str>>),
    ByLength,
    /// A text to an interval that compares by its length.
    TextByLength,
}

impl Change {
    fn apply(change: Option<Self>, expr: Expr) -> Expr {
        match change {
            None => expr,
            Some(Self::Cast(data_type)) => cast(expr, data_type),
            Some(Self::Duration) => {
                let time = cast(expr, DataType::Time64(TimeUnit::Microsecond));
                cast(cast(time, DataType::Int64), DataType::Duration(TimeUnit::Microsecond))
            }
            Some(Self::Widen(unit)) => widened(expr, unit),
            Some(Self::DateToNanoseconds(zone)) => {
                widened(cast(expr, DataType::Timestamp(TimeUnit::Microsecond, zone)), TimeUnit::Nanosecond)
            }
            Some(Self::ByLength) => interval_order(expr),
            Some(Self::TextByLength) => {
                interval_order(cast(expr, DataType::Interval(IntervalUnit::MonthDayNano)))
            }
        }
    }
}

fn change_in_place(change: Option<Change>, expr: &mut Expr) {
    if change.is_some() {
        *expr = Change::apply(change, std::mem::take(expr));
    }
}

/// The conversions of the operands of a comparison.
fn comparison(left: &DataType, right: &DataType) -> [Option<Change>; 2] {
    use DataType::{Date32, Timestamp};
    let by_length = |data_type: &DataType| {
        if is_text(data_type) { Some(Change::TextByLength) } else { Some(Change::ByLength) }
    };
    match (left, right) {
        (Timestamp(unit, zone), text) if is_text(text) => beside_text(*unit, zone.clone()),
        (text, Timestamp(unit, zone)) if is_text(text) => {
            let [of_timestamp, of_text] = beside_text(*unit, zone.clone());
            [of_text, of_timestamp]
        }
        (Timestamp(a, _), Timestamp(b, _)) if fineness(*a) < fineness(*b) => [Some(Change::Widen(*b)), None],
        (Timestamp(a, _), Timestamp(b, _)) if fineness(*b) < fineness(*a) => [None, Some(Change::Widen(*a))],
        (Date32, Timestamp(TimeUnit::Nanosecond, zone)) => {
            [Some(Change::DateToNanoseconds(zone.clone())), None]
        }
        (Timestamp(TimeUnit::Nanosecond, zone), Date32) => {
            [None, Some(Change::DateToNanoseconds(zone.clone()))]
        }
        // If no DECIMAL of 38 digits can hold both, they are compared with 256 bits.
        (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) => {
            let whole = |precision: &u8, scale: &i8| i16::from(*precision) - i16::from(*scale);
            let scale = *s1.max(s2);
            if whole(p1, s1).max(whole(p2, s2)) + i16::from(scale) <= DECIMAL128_MAX_PRECISION.into() {
                return [None, None];
            }
            let wide = DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale);
            [Some(Change::Cast(wide.clone())), Some(Change::Cast(wide))]
        }
        (a, b) if is_interval(a) && (is_length(b) || is_text(b)) => [Some(Change::ByLength), by_length(b)],
        (a, b) if is_interval(b) && (is_length(a) || is_text(a)) => [by_length(a), Some(Change::ByLength)],
        (a, b) if a.is_nested() && b.is_nested() && has_intervals(a) && has_intervals(b) => {
            [Some(Change::ByLength), Some(Change::ByLength)]
        }
        _ => [met(left, right), met(right, left)],
    }
}

/// The conversions of a timestamp and of a text that is compared with it, which has microseconds or finer units.
fn beside_text(unit: TimeUnit, zone: Option<Arc<str>>) -> [Option<Change>; 2] {
    let is_coarse = fineness(unit) < fineness(TimeUnit::Microsecond);
    let finer = if is_coarse { TimeUnit::Microsecond } else { unit };
    [is_coarse.then_some(Change::Widen(finer)), Some(Change::Cast(DataType::Timestamp(finer, zone)))]
}

fn fineness(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// The conversion of a value to the common type with another value, if it is to change.
fn met(own: &DataType, other: &DataType) -> Option<Change> {
    match (own, other) {
        (own, other) if own.is_decimal() && other.is_floating() => Some(Change::Cast(DataType::Float64)),
        (DataType::Date32, DataType::Timestamp(..)) => Some(Change::Cast(other.clone())),
        _ => None,
    }
}

/// As [`met`], for values that become one column.
fn common(own: &DataType, other: &DataType) -> Option<Change> {
    match other {
        DataType::Timestamp(..) if is_text(own) => Some(Change::Cast(other.clone())),
        _ => met(own, other),
    }
}

/// The conversions of the operands of an arithmetic operator.
fn arithmetic(op: Operator, left: &DataType, right: &DataType) -> [Option<Change>; 2] {
    use DataType::{Date32, Float64, Time32, Time64, Timestamp};
    let is_number = |data_type: &DataType| data_type.is_numeric();
    let has_decimal = left.is_decimal() || right.is_decimal();
    let moment = || Some(Change::Cast(Timestamp(TimeUnit::Microsecond, None)));
    match (left, right) {
        _ if op == Operator::Divide && has_decimal && is_number(left) && is_number(right) => {
            [Some(Change::Cast(Float64)), Some(Change::Cast(Float64))]
        }
        (Date32, Time32(_) | Time64(_)) => [moment(), Some(Change::Duration)],
        (Time32(_) | Time64(_), Date32) => [Some(Change::Duration), moment()],
        _ => [met(left, right), met(right, left)],
    }
}

/// Converts arguments of a function as `met` decides; returns whether one changed.
fn unify(
    values: &mut [Expr],
    types: &[DataType],
    met: impl Fn(&DataType, &DataType) -> Option<Change>,
) -> bool {
    let mut is_changed = false;
    for (value, own) in values.iter_mut().zip(types) {
        let change = types.iter().find_map(|other| met(own, other));
        is_changed |= change.is_some();
        change_in_place(change, value);
    }
    is_changed
}

/// Converts the branches of a CASE to common types; returns whether one changed.
fn with_common_branches(mut case: Case, type_of: impl Fn(&Expr) -> DataType) -> (Case, bool) {
    let mut is_changed = false;
    if let Some(operand) = &mut case.expr {
        let operand_type = type_of(operand);
        let mut of_operand = None;
        for (when, _) in &mut case.when_then_expr {
            let when_type = type_of(when);
            let [change, of_when] = comparison(&operand_type, &when_type);
            is_changed |= change.is_some() || of_when.is_some();
            of_operand = of_operand.take().or(change);
            change_in_place(of_when, when);
            is_changed |= with_one_zero(when, &when_type);
        }
        change_in_place(of_operand, operand);
        is_changed |= with_one_zero(operand, &operand_type);
    }
    let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let branches: Vec<&mut Expr> = thens.chain(case.else_expr.as_deref_mut()).collect();
    let types: Vec<DataType> = branches.iter().map(|branch| type_of(branch)).collect();
    for (branch, own) in branches.into_iter().zip(&types) {
        let change = types.iter().find_map(|other| common(own, other));
        is_changed |= change.is_some();
        change_in_place(change, branch);
    }
    (case, is_changed)
}

/// Makes an interval, or those inside a value, compare by length; returns whether there are any.
fn by_length(value: &mut Expr, data_type: &DataType) -> bool {
    let is_changed = has_intervals(data_type);
    if is_changed {
        *value = interval_order(std::mem::take(value));
    }
    is_changed
}

/// As [`by_length`], for several values.
fn all_by_length(values: &mut [Expr], types: &[DataType]) -> bool {
    let values = values.iter_mut().zip(types);
    values.fold(false, |is_changed, (value, data_type)| by_length(value, data_type) || is_changed)
}

/// Makes a float of which -0.0 is 0.0; returns whether the value was a float.
fn with_one_zero(value: &mut Expr, data_type: &DataType) -> bool {
    let zero = match data_type {
        DataType::Float32 => lit(0.0_f32),
        DataType::Float64 => lit(0.0),
        _ => return false,
    };
    *value = binary_expr(std::mem::take(value), Operator::Plus, zero);
    true
}

/// Makes rows whose keys are -0.0 and 0.0 sort by the keys behind them; returns whether a key changed.
fn sorts_with_one_zero(sorts: &mut [Sort], type_of: impl Fn(&Expr) -> DataType) -> bool {
    let Some((_, before_last)) = sorts.split_last_mut() else { return false };
    before_last.iter_mut().fold(false, |is_changed, sort| {
        let data_type = type_of(&sort.expr);
        with_one_zero(&mut sort.expr, &data_type) || is_changed
    })
}

/// Functions that give NaN for numbers outside their domain.
const MAKE_NAN: [&str; 13] =
    ["acos", "acosh", "asin", "atanh", "cos", "cot", "ln", "log", "log10", "log2", "power", "sin", "tan"];

/// Whether arithmetic may give NaN for operands that are none, as infinity minus itself.
fn may_make_nan(expr: &Expr, type_of: impl Fn(&Expr) -> DataType) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return false };
    // What was cast to a float from another type has no infinity, unless it is a text.
    let is_finite = |value: &Expr| match value {
        Expr::Cast(cast) if type_of(&cast.expr).is_integer() || type_of(&cast.expr).is_decimal() => true,
        value => constant(value).is_some_and(f64::is_finite),
    };
    match op {
        Operator::Divide | Operator::Modulo => true,
        Operator::Plus | Operator::Minus => !is_finite(left) && !is_finite(right),
        Operator::Multiply => {
            let is_harmless =
                |value: &Expr| constant(value).is_some_and(|value| value.is_finite() && value != 0.0);
            !is_harmless(left) && !is_harmless(right)
        }
        _ => false,
    }
}

/// The number that a literal is, with a sign or a cast or without.
fn constant(value: &Expr) -> Option<f64> {
    match value {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(value)) => value,
            _ => None,
        },
        Expr::Cast(cast) => {
            let value =
                ScalarValue::Float64(Some(constant(&cast.expr)?)).cast_to(cast.field.data_type()).ok()?;
            constant(&lit(value))
        }
        Expr::Negative(value) => constant(value).map(|value| -value),
        _ => None,
    }
}

fn may_be_zero(value: &Expr) -> bool {
    match value {
        Expr::Literal(number, _) => match number.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(number))) => number == 0.0,
            _ => false,
        },
        Expr::Cast(cast) => may_be_zero(&cast.expr),
        _ => true,
    }
}

fn sorts_by_length(sorts: &mut [Sort], type_of: impl Fn(&Expr) -> DataType) -> bool {
    let mut is_changed = false;
    for sort in sorts {
        let data_type = type_of(&sort.expr);
        is_changed |= by_length(&mut sort.expr, &data_type);
    }
    is_changed
}

/// Converts the columns of a UNION to common types, and makes intervals that are sorted, grouped or joined by
/// compare by length and floats that are sorted by have one zero.
fn with_common_rows(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Union(union) => with_common_columns(union)?,
        LogicalPlan::Sort(mut sort) => {
            let schema = sort.input.schema().clone();
            let type_of = |expr: &Expr| expr.get_type(schema.as_ref()).unwrap_or(DataType::Null);
            let is_changed = sorts_with_one_zero(&mut sort.expr, type_of);
            changed_if(sorts_by_length(&mut sort.expr, type_of) || is_changed, LogicalPlan::Sort(sort))
        }
        LogicalPlan::Distinct(Distinct::All(input)) if is_by_length(input.schema()) => {
            let input = columns_by_length(Arc::unwrap_or_clone(input), |_| true)?;
            Transformed::yes(LogicalPlan::Distinct(Distinct::All(Arc::new(input))))
        }
        LogicalPlan::Distinct(Distinct::On(on)) if is_by_length(on.input.schema()) => {
            let DistinctOn { mut on_expr, input, .. } = on.clone();
            for key in &mut on_expr {
                let data_type = key.get_type(input.schema().as_ref())?;
                by_length(key, &data_type);
            }
            let mut sort_expr = on.sort_expr;
            sorts_by_length(sort_expr.as_deref_mut().unwrap_or_default(), |expr| {
                expr.get_type(input.schema().as_ref()).unwrap_or(DataType::Null)
            });
            let on = DistinctOn { on_expr, sort_expr, ..on_with(on.select_expr, input, on.schema) };
            Transformed::yes(LogicalPlan::Distinct(Distinct::On(on)))
        }
        LogicalPlan::Aggregate(aggregate) if is_by_length(aggregate.input.schema()) => {
            let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
            let keys: Vec<Column> = group_expr
                .iter()
                .flat_map(|key| key.column_refs().into_iter().cloned().collect::<Vec<_>>())
                .collect();
            let input = columns_by_length(Arc::unwrap_or_clone(input), |column| keys.contains(column))?;
            let aggregate = Aggregate::try_new(Arc::new(input), group_expr, aggr_expr)?;
            Transformed::yes(LogicalPlan::Aggregate(aggregate))
        }
        LogicalPlan::Join(mut join) => {
            let mut is_changed = false;
            for (left, right) in &mut join.on {
                let types = [
                    left.get_type(join.left.schema().as_ref())?,
                    right.get_type(join.right.schema().as_ref())?,
                ];
                let [of_left, of_right] = comparison(&types[0], &types[1]);
                is_changed |= of_left.is_some() || of_right.is_some();
                change_in_place(of_left, left);
                change_in_place(of_right, right);
            }
            let plan = LogicalPlan::Join(join);
            changed_if(is_changed, plan)
        }
        other => Transformed::no(other),
    })
}

fn on_with(
    select_expr: Vec<Expr>,
    input: Arc<LogicalPlan>,
    schema: datafusion::common::DFSchemaRef,
) -> DistinctOn {
    DistinctOn { on_expr: Vec::new(), select_expr, sort_expr: None, input, schema }
}

fn is_by_length(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| has_intervals(field.data_type()))
}

/// The plan with those of its interval columns for which `is_wanted` holds compared by length.
fn columns_by_length(plan: LogicalPlan, is_wanted: impl Fn(&Column) -> bool) -> Result<LogicalPlan> {
    let schema = plan.schema().clone();
    let mut is_changed = false;
    let columns: Vec<Expr> = schema
        .iter()
        .map(|(qualifier, field)| {
            let column = Column::from((qualifier, field));
            if !has_intervals(field.data_type()) || !is_wanted(&column) {
                return Expr::Column(column);
            }
            is_changed = true;
            interval_order(Expr::Column(column)).alias_qualified(qualifier.cloned(), field.name())
        })
        .collect();
    if is_changed { LogicalPlanBuilder::from(plan).project(columns)?.build() } else { Ok(plan) }
}

/// The inputs of a UNION with their columns converted as [`common`] decides.
fn with_common_columns(union: Union) -> Result<Transformed<LogicalPlan>> {
    let given = &union.inputs;
    let count = union.schema.fields().len();
    let types = |index: usize| {
        given
            .iter()
            .filter_map(move |input| input.schema().fields().get(index))
            .map(|field| field.data_type())
    };
    let change = |own: &DataType, index: usize| types(index).find_map(|other| common(own, other));
    let is_changed = |index: usize| types(index).any(|own| change(own, index).is_some());
    if !(0..count).any(is_changed) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let changed = given.iter().map(|input| {
        let schema = input.schema().clone();
        let columns = schema.iter().enumerate().map(|(index, (qualifier, field))| {
            let column = Expr::Column(Column::from((qualifier, field)));
            match change(field.data_type(), index) {
                None => column,
                change => Change::apply(change, column).alias_qualified(qualifier.cloned(), field.name()),
            }
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(input.as_ref().clone()).project(columns)?.build()?;
        Ok(Arc::new(plan))
    });
    let inputs = changed.collect::<Result<Vec<_>>>()?;
    // Type coercion starts from the declared types of the union.
    let fields = union.schema.iter().enumerate().map(|(index, (qualifier, field))| {
        let field = match is_changed(index) {
            true => Arc::new(
                field.as_ref().clone().with_data_type(inputs[0].schema().field(index).data_type().clone()),
            ),
            false => field.clone(),
        };
        (qualifier.cloned(), field)
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), union.schema.metadata().clone())?;
    Ok(Transformed::yes(LogicalPlan::Union(Union { inputs, schema: Arc::new(schema) })))
}
