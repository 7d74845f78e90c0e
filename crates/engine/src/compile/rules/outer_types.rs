//! Types of outer columns in subqueries.
//!
//! An outer column carries the type that it had when the planner saw it. Where [`super::CommonTypes`] gives an expression
//! another one, as `x / 2` of a BIGINT UNSIGNED, subqueries that name the expression are to know.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchemaRef, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::schema_of_expressions;

/// The plan with the types of outer columns as they are now.
pub(super) fn with_outer_types(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    settle(plan, &mut Vec::new())
}

/// `outer` has the columns of the queries around the plan, those of the innermost last.
fn settle(plan: LogicalPlan, outer: &mut Vec<DFSchemaRef>) -> Result<Transformed<LogicalPlan>> {
    let around = outer.len();
    // What is LATERAL stands to the right of what it names.
    if let LogicalPlan::Join(join) = &plan {
        outer.push(join.left.schema().clone());
    }
    let plan = plan.map_children(|child| settle(child, outer));
    outer.truncate(around);
    let plan = plan?.transform_data(|plan| {
        outer.push(schema_of_expressions(&plan)?);
        let plan = plan.map_subqueries(|subquery| settle(subquery, outer));
        outer.truncate(around);
        plan
    })?;
    if outer.is_empty() {
        return Ok(plan);
    }
    let outer = &*outer;
    plan.transform_data(|plan| {
        let settled = plan.map_expressions(|expr| expr.transform_up(|expr| Ok(settled(expr, outer))))?;
        if settled.transformed { settled.map_data(LogicalPlan::recompute_schema) } else { Ok(settled) }
    })
}

fn settled(expr: Expr, outer: &[DFSchemaRef]) -> Transformed<Expr> {
    let Expr::OuterReferenceColumn(field, column) = expr else { return Transformed::no(expr) };
    let now = outer.iter().rev().find_map(|schema| schema.field_from_column(&column).ok());
    match now {
        Some(now) if now.data_type() != field.data_type() => {
            let field = field.as_ref().clone().with_data_type(now.data_type().clone());
            Transformed::yes(Expr::OuterReferenceColumn(Arc::new(field), column))
        }
        _ => Transformed::no(Expr::OuterReferenceColumn(field, column)),
    }
}
