//! A DATE plus an INTERVAL with hours is a TIMESTAMP.
//!
//! DataFusion returns a DATE for every interval and drops the interval's hours. Here only intervals of whole
//! days give a DATE. That is known of constants and of casts from text with such a unit, as in `n || '
//! month'`, to which `dateadd` is expanded. Any other interval gives a TIMESTAMP, as in PostgreSQL.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::rewrite_expressions;
use crate::expressions::casts::constant_interval;

const DAY_MILLISECONDS: i32 = 24 * 60 * 60 * 1000;
const DAY_NANOSECONDS: i64 = DAY_MILLISECONDS as i64 * 1_000_000;

/// See the [module](self). Takes the plan before type coercion, which needs the types that this sets, and
/// which replaces intervals by expressions that are not recognised here.
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

/// Whether an interval is known to consist of whole days.
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
            // NULL, or an interval of months.
            _ => true,
        },
        _ => false,
    }
}

fn is_unit_of_days(unit: &str) -> bool {
    let unit = unit.to_ascii_lowercase();
    matches!(unit.strip_suffix('s').unwrap_or(&unit), "day" | "week" | "month" | "quarter" | "year")
}
