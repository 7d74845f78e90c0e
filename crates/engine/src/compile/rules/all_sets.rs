//! EXCEPT ALL and INTERSECT ALL.
//!
//! DataFusion plans both as joins that keep or drop all of the left rows with an equal one on the right. With the number of
//! each row among its equals beside it, a row has one partner at most, and a row of the left that the right has once less often
//! is kept once.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::AnalyzerRule;

/// See the [module](self). It goes before rules that make such joins.
#[derive(Debug)]
pub(crate) struct AllSets;

impl AnalyzerRule for AllSets {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite).data()
    }

    fn name(&self) -> &str {
        "all_sets"
    }
}

fn rewrite(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
    let is_of_sets = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none();
    // Where the rows of the left are distinct, ALL says nothing.
    if !is_of_sets || matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_))) {
        return Ok(Transformed::no(node));
    }
    let columns = join.left.schema().columns().into_iter().map(Expr::Column);
    let (left, left_number) = numbered(&join.left, "keirin left number")?;
    let (right, right_number) = numbered(&join.right, "keirin right number")?;
    let numbered = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        join.on.iter().cloned().chain([(left_number, right_number)]).collect(),
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        false,
    )?;
    let plan = LogicalPlanBuilder::from(LogicalPlan::Join(numbered)).project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}

/// A plan with the number of each row among those that are equal to it.
fn numbered(plan: &Arc<LogicalPlan>, name: &str) -> Result<(LogicalPlan, Expr)> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let number = row_number().partition_by(columns).build()?.alias(name);
    let plan = LogicalPlanBuilder::from(plan.as_ref().clone()).window(vec![number])?.build()?;
    Ok((plan, Expr::Column(Column::new_unqualified(name))))
}
