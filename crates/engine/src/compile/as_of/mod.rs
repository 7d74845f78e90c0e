//! `a ASOF JOIN b ON a.k = b.k AND a.at >= b.at`: to each row of `a` the row of `b` with the nearest time before, or after.
//!
//! The parser knows another form of it, and the planner knows none. So [`syntax`] marks the condition that compares times
//! by a function that is nothing else, an analyzer's rule makes a node of joins with the mark, which the optimizer's
//! rules leave as it is, and a planner makes the node a join by ranges ([`plan`]).

mod plan;
mod syntax;

use datafusion::logical_expr::{Expr, ScalarUDF, Volatility};

use crate::expressions::functions;

pub(crate) use self::plan::{AsOfFilters, AsOfJoins, AsOfPlanner};
pub(crate) use self::syntax::{as_of_conditions, mark_as_of_joins};

/// The name of the function around the condition.
const MARK: &str = "keirin_as_of";

/// The function around the condition of a join that wants the nearest row, to be registered. Around a name in a filter of
/// the right table it says which column of USING is compared.
pub(crate) fn mark() -> ScalarUDF {
    functions::mark(MARK, "the condition of ASOF JOIN", Volatility::Immutable)
}

/// What the mark is around, if `expr` is one.
fn marked(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == MARK => call.args.first(),
        _ => None,
    }
}

/// The column that a mark in a filter of the right table names.
fn marked_name(inner: &Expr) -> Option<String> {
    match inner {
        Expr::Literal(name, _) => name.try_as_str().flatten().map(str::to_owned),
        _ => None,
    }
}
