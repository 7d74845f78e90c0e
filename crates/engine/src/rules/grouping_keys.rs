//! Computed keys of ROLLUP, CUBE and GROUPING SETS as columns of a projection below.
//!
//! A rule that rewrites a part of such a key, and then restores its name by an alias, would give the alias to the whole
//! set, which the planner takes for one key from then on.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};

/// See the [module](self). Must run before anything rewrites keys.
pub(crate) fn grouping_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(as_columns).data()
}

fn as_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    let [sets @ Expr::GroupingSet(_)] = aggregate.group_expr.as_slice() else {
        return Ok(Transformed::no(plan));
    };
    let mut computed: Vec<Expr> = Vec::new();
    let mut column = |key: Expr| {
        if matches!(key, Expr::Column(_)) {
            return Ok(Transformed::no(key));
        }
        let name = key.schema_name().to_string();
        if !computed.contains(&key) {
            computed.push(key);
        }
        Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
    };
    let sets = sets.clone().map_children(&mut column)?;
    if !sets.transformed {
        return Ok(Transformed::no(plan));
    }
    // `grouping` has keys for arguments.
    let aggregates = aggregate.aggr_expr.iter().cloned().map(|expression| {
        let transformed = expression.transform_down(|part| match part {
            Expr::AggregateFunction(call) if call.func.name() == "grouping" => {
                Expr::AggregateFunction(call).map_children(&mut column)
            }
            other => Ok(Transformed::no(other)),
        });
        transformed.data()
    });
    let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let keys = computed.into_iter().map(|key| {
        let name = key.schema_name().to_string();
        key.alias(name)
    });
    let input = LogicalPlanBuilder::from(aggregate.input.as_ref().clone()).project(columns.chain(keys))?;
    let aggregate = Aggregate::try_new(input.build()?.into(), vec![sets.data], aggregates)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}
