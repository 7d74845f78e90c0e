//! Computed keys of ROLLUP, CUBE and GROUPING SETS as columns of a projection below.
//!
//! A rule that rewrites a part of such a key, and then restores its name by an alias, would give the alias to the whole
//! set, which the planner takes for one key from then on.

use std::collections::HashMap;

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
    let taken: Vec<String> = aggregate.input.schema().columns().iter().map(Column::flat_name).collect();
    let mut computed: Vec<Expr> = Vec::new();
    let mut column = |key: Expr| {
        if matches!(key, Expr::Column(_)) {
            return Ok(Transformed::no(key));
        }
        let name = name_below(&key, &taken);
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
    let written = |expressions: &[Expr]| -> Vec<String> {
        expressions.iter().map(|expression| expression.schema_name().to_string()).collect()
    };
    let of_aggregates = written(&aggregates).into_iter().zip(written(&aggregate.aggr_expr));
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let names = computed.iter().map(|key| (name_below(key, &taken), key.schema_name().to_string()));
    let names = names.chain(of_aggregates).filter(|(below, name)| below != name);
    let names: HashMap<String, String> = names.collect();
    let keys = computed.into_iter().map(|key| {
        let name = name_below(&key, &taken);
        key.alias(name)
    });
    let input = LogicalPlanBuilder::from(aggregate.input.as_ref().clone()).project(columns.chain(keys))?;
    let aggregate = Aggregate::try_new(input.build()?.into(), vec![sets.data], aggregates)?;
    let aggregate = LogicalPlan::Aggregate(aggregate);
    if names.is_empty() {
        return Ok(Transformed::yes(aggregate));
    }
    // Above it the keys have the names by which they are known.
    let columns = aggregate.schema().columns().into_iter();
    let columns = columns.filter(|column| column.name != Aggregate::INTERNAL_GROUPING_ID).map(|column| {
        let name = names.get(&column.name).filter(|_| column.relation.is_none());
        let column = Expr::Column(column);
        name.map_or(column.clone(), |name| column.alias(name))
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(Transformed::yes(LogicalPlanBuilder::from(aggregate).project(columns)?.build()?))
}

/// The name of a key in the projection below: its own, unless a column of the input is written the same way, as `t.c`
/// is in `CAST(t.c AS DATE)`, which has no name of its own.
fn name_below(key: &Expr, taken: &[String]) -> String {
    let mut name = key.schema_name().to_string();
    while taken.contains(&name) {
        name.push_str(" as key");
    }
    name
}
