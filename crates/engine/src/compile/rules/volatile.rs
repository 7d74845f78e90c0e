//! Computes volatile expressions as often as they are written.
//!
//! DataFusion expands `x BETWEEN a AND b` to `x >= a AND x <= b`, and `coalesce(x, y)` to `CASE WHEN x IS NOT
//! NULL THEN x ELSE y END`. With `random()` in `x` the two uses of `x` are different numbers; so
//! with such operands they become functions, whose arguments are computed once. And a condition without columns,
//! such as `random() < 0.5` or `(SELECT false)`, must be computed for the groups, windows or joined rows that it
//! filters, not for the rows below them, to which DataFusion would push it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, ScalarFunction};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use crate::expressions::functions::once;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Volatile;

impl AnalyzerRule for Volatile {
    fn name(&self) -> &'static str {
        "volatile"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = rewrite_expressions(plan, |expr, _| Ok(computed_once(expr)))?;
        plan.transform_up_with_subqueries(asked_above).data()
    }
}

fn computed_once(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Between(Between { expr, negated, low, high }) if expr.is_volatile() => {
            let between = call(once::BETWEEN, vec![*expr, *low, *high]);
            Transformed::yes(if negated { Expr::Not(Box::new(between)) } else { between })
        }
        Expr::ScalarFunction(function)
            if function.func.name() == "coalesce" && is_written_twice(&function.args) =>
        {
            Transformed::yes(call(once::COALESCE, function.args))
        }
        other => Transformed::no(other),
    }
}

/// Whether `coalesce` would duplicate a volatile argument: it tests all but the last for NULL first.
fn is_written_twice(arguments: &[Expr]) -> bool {
    arguments.split_last().is_some_and(|(_, first)| first.iter().any(Expr::is_volatile))
}

fn call(name: &'static str, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(once::function(name)), arguments))
}

/// Puts a LIMIT that is never reached below conditions that must not be moved: no rule moves conditions past
/// a LIMIT.
fn asked_above(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
    let stays = |condition: &Expr| {
        let has_columns = condition.any_column_refs() || condition.contains_outer();
        !has_columns && !matches!(condition, Expr::Literal(..)) && is_made_of_others(&filter.input, condition)
    };
    let (staying, moving): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(filter.predicate.clone()).into_iter().partition(stays);
    let Some(staying) = conjunction(staying) else { return Ok(Transformed::no(LogicalPlan::Filter(filter))) };
    let builder = LogicalPlanBuilder::from(Arc::unwrap_or_clone(filter.input));
    let builder = match conjunction(moving) {
        Some(moving) => builder.filter(moving)?,
        None => builder,
    };
    let limited = builder.limit(0, usize::try_from(i64::MAX).ok())?.build()?;
    Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(staying, Arc::new(limited))?)))
}

/// Whether `plan` derives its rows from other rows, for which `condition` would have another meaning.
fn is_made_of_others(plan: &LogicalPlan, condition: &Expr) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            // Without columns to group by there is one group even if there are no rows.
            let may_be_empty = aggregate.group_expr.is_empty()
                || aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_)));
            may_be_empty || condition.is_volatile()
        }
        LogicalPlan::Window(_) | LogicalPlan::Join(_) | LogicalPlan::Distinct(_)
            if condition.is_volatile() =>
        {
            true
        }
        LogicalPlan::Limit(_) | LogicalPlan::Subquery(_) => false,
        other => other.inputs().iter().any(|input| is_made_of_others(input, condition)),
    }
}
