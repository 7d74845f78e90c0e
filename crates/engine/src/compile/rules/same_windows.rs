//! Equal window functions are evaluated once.
//!
//! `sum(CAST(1 AS BIGINT)) OVER (), sum(1) OVER ()` are the same as soon as constants are evaluated. DataFusion's
//! elimination of common expressions would take what is the same out of the windows and below them, where no window function
//! can be.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// See the [module](self). The rule goes before DataFusion's.
#[derive(Debug)]
pub(crate) struct SameWindows;

impl OptimizerRule for SameWindows {
    fn name(&self) -> &str {
        "same_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Window(window) = plan else { return Ok(Transformed::no(plan)) };
        let mut known: Vec<(&Expr, Column)> = Vec::new();
        let mut below = window.input.as_ref();
        while let LogicalPlan::Window(lower) = below {
            known.extend(functions(lower));
            below = lower.input.as_ref();
        }
        let mut distinct = Vec::new();
        let mut columns: Vec<Expr> = window.input.schema().columns().into_iter().map(Expr::Column).collect();
        for ((function, column), expr) in functions(&window).zip(&window.window_expr) {
            match known.iter().find(|(other, _)| *other == function && !function.is_volatile()) {
                Some((_, same)) => {
                    let same = Expr::Column(same.clone());
                    columns.push(same.alias_qualified(column.relation, column.name));
                }
                None => {
                    columns.push(Expr::Column(column.clone()));
                    known.push((function, column));
                    distinct.push(expr.clone());
                }
            }
        }
        if distinct.len() == window.window_expr.len() {
            return Ok(Transformed::no(LogicalPlan::Window(window)));
        }
        let input = match distinct.is_empty() {
            true => window.input.clone(),
            false => Arc::new(LogicalPlan::Window(Window::try_new(distinct, window.input.clone())?)),
        };
        Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    }
}

/// The functions of a window without their aliases, with the columns that they are.
fn functions(window: &Window) -> impl Iterator<Item = (&Expr, Column)> {
    let columns = window.schema.iter().skip(window.input.schema().fields().len()).map(Column::from);
    window.window_expr.iter().map(without_alias).zip(columns)
}

fn without_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_alias(&alias.expr),
        expr => expr,
    }
}
