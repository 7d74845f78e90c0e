//! `-x` of an unsigned integer: a signed number, as `0 - x` is. The planner refuses it before rules see the plan.

use std::convert::Infallible;
use std::ops::ControlFlow;

use crate::sql::walk::walk;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, UnaryOperator, Value, VisitorMut};

/// Whether the planner refused the minus of a number without sign.
pub(crate) fn is_refused(error: &DataFusionError) -> bool {
    // The planner has no other sign of this error than its text.
    error.to_string().contains("Unary operator '-' only supports signed numeric")
}

/// Writes `0 - x` for `-x`, but of constants. This is for statements that the planner refused: it gives up the sign of
/// a zero.
pub(crate) fn as_differences(statement: &mut Statement) {
    struct Negations;

    impl VisitorMut for Negations {
        type Break = Infallible;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
            let Expr::UnaryOp { op: UnaryOperator::Minus, expr: operand } = expr else {
                return ControlFlow::Continue(());
            };
            if !matches!(**operand, Expr::Value(_) | Expr::Interval(_)) {
                let zero = Box::new(Expr::value(Value::Number("0".to_owned(), false)));
                let right = Box::new(Expr::Nested(operand.clone()));
                let difference = Expr::BinaryOp { left: zero, op: BinaryOperator::Minus, right };
                *expr = Expr::Nested(Box::new(difference));
            }
            ControlFlow::Continue(())
        }
    }

    let ControlFlow::Continue(()) = walk(statement, &mut Negations);
}
