//! A DATE and an INTERVAL with hours are a TIMESTAMP.
//!
//! DataFusion gives a DATE for every interval and drops what it has of a day. Here only whole days give a DATE;
//! that is known of constants and of intervals cut from text with a unit such as `n || ' month'`, which is how
//! `dateadd` is written out. Any other interval gives a TIMESTAMP, as in PostgreSQL.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::rewrite_expressions;
use crate::casts::constant_interval;

const DAY_MILLISECONDS: i32 = 24 * 60 * 60 * 1000;
const DAY_NANOSECONDS: i64 = DAY_MILLISECONDS as i64 * 1_000_000;

/// See the [module](self). For a plan as SQL gives it: type coercion looks at the types that this makes, and
/// what it writes in the place of intervals is not recognised here.
pub(crate) fn keep_hours(plan: LogicalPlan) -> Result<LogicalPlan> {
    rewrite_expressions(plan, |expr, schema| Ok(with_time(expr, schema)))
}

fn with_time(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if let Some(interval) = constant_interval(&expr) {
        return Transformed::yes(Expr::Literal(interval, None));
    }
    let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) = expr
    else {
        return Transformed::no(expr);
    };
    let is_date = |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| data_type == DataType::Date32);
    let may_have_time =
        |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Interval(_))) && !has_whole_days(expr);
    let moment = |expr: Expr| cast(expr, DataType::Timestamp(TimeUnit::Microsecond, None));
    let (left, right, is_changed) = if is_date(&left) && may_have_time(&right) {
        (Box::new(moment(*left)), right, true)
    } else if op == Operator::Plus && is_date(&right) && may_have_time(&left) {
        (left, Box::new(moment(*right)), true)
    } else {
        (left, right, false)
    };
    let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
    if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

/// Whether an interval is known to have no part of a day.
fn has_whole_days(interval: &Expr) -> bool {
    if let Expr::Cast(cast) = interval
        && let Expr::BinaryExpr(BinaryExpr { op: Operator::StringConcat, right, .. }) = cast.expr.as_ref()
        && let Expr::Literal(unit, _) = right.as_ref()
        && let Some(Some(unit)) = unit.try_as_str()
        && is_unit_of_days(unit.trim())
    {
        return true;
    }
    if interval.any_column_refs() || interval.is_volatile() {
        return false;
    }
    match ExprSimplifier::new(SimplifyContext::default()).simplify(interval.clone()) {
        Ok(Expr::Literal(value, _)) => match value {
            ScalarValue::IntervalDayTime(Some(interval)) => interval.milliseconds % DAY_MILLISECONDS == 0,
            ScalarValue::IntervalMonthDayNano(Some(interval)) => interval.nanoseconds % DAY_NANOSECONDS == 0,
            // NULL, or months.
            _ => true,
        },
        _ => false,
    }
}

fn is_unit_of_days(unit: &str) -> bool {
    let unit = unit.to_ascii_lowercase();
    matches!(unit.strip_suffix('s').unwrap_or(&unit), "day" | "week" | "month" | "quarter" | "year")
}
