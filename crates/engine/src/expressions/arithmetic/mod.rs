//! Whole numbers and DECIMALs that never wrap: an operation or sum whose result leaves its type fails.
//!
//! DataFusion computes `+`, `-`, `*` and unary minus of whole numbers modulo 2^n. An analyzer rule replaces
//! them by [`Checked`] operators before the optimizer folds constants. Where the ranges of the operands show
//! that nothing can overflow, as in `small_column + 1`, the plain operator stays, with all that the optimizer
//! knows about it. DECIMALs are checked where the result can have more than 38 digits. [`CheckedSum`] is
//! `sum` with a total of 128 bits, or an exact one of floats, [`ExactAverage`] is `avg` from such a total, and [`Extreme`] is `min` and
//! `max` with a defined place for NaN.

mod average;
mod average_of_sum;
mod checked;
mod extremes;
mod floats;
mod narrow;
pub(crate) mod negation;
mod sum;
mod totals;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

pub(crate) use self::average::{DecimalQuotient, ExactAverage};
pub(crate) use self::average_of_sum::average_of_sum;
use self::checked::{Checked, Operation};
pub(crate) use self::extremes::{Extreme, smallest};
pub(crate) use self::floats::{FLOAT_STATE, float_states};
pub(crate) use self::narrow::{Narrow, NarrowDecimals, Values};
pub(crate) use self::sum::CheckedSum;
use crate::compile::rules::rewrite_expressions_down;
use crate::error::{Error, ErrorKind};
use crate::types::sql_type_name;

/// How many levels of an expression the range analysis descends; deeper operands have the range of their
/// type.
const RANGE_DEPTH_MAX: usize = 16;

/// See the [module](self). The rule runs after type coercion, which gives both operands one type.
#[derive(Debug)]
pub(crate) struct CheckArithmetic {
    functions: [Arc<ScalarUDF>; 4],
}

impl CheckArithmetic {
    pub(crate) fn new() -> Self {
        let function = |operation| Arc::new(ScalarUDF::new_from_impl(Checked::new(operation)));
        Self {
            functions: [Operation::Add, Operation::Subtract, Operation::Multiply, Operation::Negate]
                .map(function),
        }
    }

    fn check_expr(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let (operation, is_safe) = match &expr {
            Expr::Negative(operand) => (Operation::Negate, is_safe(Operator::Minus, None, operand, schema)),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let operation = match op {
                    Operator::Plus => Operation::Add,
                    Operator::Minus => Operation::Subtract,
                    Operator::Multiply => Operation::Multiply,
                    _ => return Transformed::no(expr),
                };
                (operation, is_safe(*op, Some(left), right, schema))
            }
            _ => return Transformed::no(expr),
        };
        if is_safe {
            return Transformed::no(expr);
        }
        let operands = match expr {
            Expr::Negative(operand) => vec![*operand],
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
            other => return Transformed::no(other),
        };
        let function = self.functions[operation as usize].clone();
        Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, operands)))
    }
}

impl AnalyzerRule for CheckArithmetic {
    fn name(&self) -> &'static str {
        "check_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions_down(plan, |expr, schema| Ok(self.check_expr(expr, schema)))
    }
}

/// Whether `left op right` (`0 - right` if `left` is `None`) needs no check: it is no arithmetic of whole
/// numbers, or its result always fits.
fn is_safe(op: Operator, left: Option<&Expr>, right: &Expr, schema: &DFSchema) -> bool {
    let Ok(data_type) = right.get_type(schema) else { return true };
    let left_type = left.and_then(|left| left.get_type(schema).ok());
    if let Some(left_type) = &left_type
        && checked::decimal_type(op, left_type, &data_type).is_some()
    {
        return false;
    }
    let Some(limits) = limits(&data_type) else { return true };
    if left.is_some() && left_type.as_ref() != Some(&data_type) {
        return true;
    }
    let left = left.map_or((0, 0), |left| range(left, limits, schema, 0));
    let result = combine(op, left, range(right, limits, schema, 0));
    result.is_some_and(|(low, high)| low >= limits.0 && high <= limits.1)
}

/// The smallest and the largest value of an integer type.
fn limits(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// Bounds on the values of an expression whose integer type has the bounds `own`.
fn range(expr: &Expr, own: (i128, i128), schema: &DFSchema, depth: usize) -> (i128, i128) {
    if depth >= RANGE_DEPTH_MAX {
        return own;
    }
    // A value outside the type fails the cast or operator, so it does not widen the bounds.
    let within = |(low, high): (i128, i128)| (low.clamp(own.0, own.1), high.clamp(own.0, own.1));
    match expr {
        Expr::Literal(value, _) => whole_number(value).map_or(own, |value| (value, value)),
        Expr::Alias(alias) => range(&alias.expr, own, schema, depth + 1),
        Expr::Cast(cast) => {
            let inner = cast.expr.get_type(schema).ok().and_then(|from| limits(&from));
            inner.map_or(own, |inner| within(range(&cast.expr, inner, schema, depth + 1)))
        }
        // These operators have operands of the type of their result.
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply),
            right,
        }) => {
            let [left, right] = [left, right].map(|operand| range(operand, own, schema, depth + 1));
            combine(*op, left, right).map_or(own, within)
        }
        _ => own,
    }
}

fn whole_number(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int8(value) => value.map(Into::into),
        ScalarValue::Int16(value) => value.map(Into::into),
        ScalarValue::Int32(value) => value.map(Into::into),
        ScalarValue::Int64(value) => value.map(Into::into),
        ScalarValue::UInt8(value) => value.map(Into::into),
        ScalarValue::UInt16(value) => value.map(Into::into),
        ScalarValue::UInt32(value) => value.map(Into::into),
        ScalarValue::UInt64(value) => value.map(Into::into),
        _ => None,
    }
}

/// The bounds of `left op right`.
fn combine(op: Operator, left: (i128, i128), right: (i128, i128)) -> Option<(i128, i128)> {
    match op {
        Operator::Plus => Some((left.0.checked_add(right.0)?, left.1.checked_add(right.1)?)),
        Operator::Minus => Some((left.0.checked_sub(right.1)?, left.1.checked_sub(right.0)?)),
        Operator::Multiply => {
            let mut bounds: Option<(i128, i128)> = None;
            for (a, b) in [(left.0, right.0), (left.0, right.1), (left.1, right.0), (left.1, right.1)] {
                let product = a.checked_mul(b)?;
                let (low, high) = bounds.unwrap_or((product, product));
                bounds = Some((low.min(product), high.max(product)));
            }
            bounds
        }
        _ => None,
    }
}

/// The error of a value that does not fit into `data_type`, computed by `what`.
pub(crate) fn overflow(data_type: &DataType, what: &str) -> DataFusionError {
    let type_name = sql_type_name(data_type);
    let hint = match data_type {
        DataType::Int64 | DataType::UInt64 => {
            "CAST an operand to DECIMAL(38, 0) first, which has room for more digits"
        }
        DataType::Decimal128(..) => {
            "CAST operands to a DECIMAL with fewer digits after the point, or to DOUBLE, which rounds"
        }
        _ => "CAST an operand to BIGINT first, which has room for more digits",
    };
    let error = Error::new(ErrorKind::Data, format!("{type_name} overflow in {what}")).with_hint(hint);
    DataFusionError::External(Box::new(error))
}
