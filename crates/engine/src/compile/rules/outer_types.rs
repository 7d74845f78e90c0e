//! Types of outer columns in subqueries.
//!
//! An outer column carries the type that it had when the planner saw it. Where [`super::CommonTypes`] gives an expression
//! another one, as `x / 2` of a BIGINT UNSIGNED, or DataFusion's type coercion, as CASE and UNION of numbers of two types,
//! subqueries that name the expression are to know.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use super::schema_of_expressions;

/// See the [module](self). It goes behind type coercion, and has it done again where there is something.
#[derive(Debug)]
pub(crate) struct OuterTypes;

impl AnalyzerRule for OuterTypes {
    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let settled = with_outer_types(plan)?;
        if settled.transformed {
            TypeCoercion::new().analyze(settled.data, options)
        } else {
            Ok(settled.data)
        }
    }

    fn name(&self) -> &str {
        "outer_types"
    }
}

/// The plan with the types of outer columns as they are now.
pub(super) fn with_outer_types(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut has_outer = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            has_outer |= expression.contains_outer();
            Ok(if has_outer { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    if has_outer { settle(plan, &mut Vec::new()) } else { Ok(Transformed::no(plan)) }
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
