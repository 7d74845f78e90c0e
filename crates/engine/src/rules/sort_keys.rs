//! The keys by which `array_agg` and `string_agg` are ordered become columns of a projection. DataFusion's
//! check of plans does not recognise an order by a key that compares the value of a function.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::gathers;

/// See the [module](self). The rule runs last: others change the keys.
#[derive(Debug)]
pub(crate) struct SortKeys;

impl AnalyzerRule for SortKeys {
    fn name(&self) -> &'static str {
        "sort_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(projected).data()
    }
}

fn projected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    let mut keys = Vec::new();
    let by_columns = |expr: &Expr| {
        let name = names.save(expr);
        let changed = expr.clone().transform(|node| with_columns(node, &mut keys))?;
        Ok(name.restore(changed.data))
    };
    let aggregates = aggregate.aggr_expr.iter().map(by_columns).collect::<Result<Vec<_>>>()?;
    if keys.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let input = &aggregate.input;
    let columns = input.schema().columns().into_iter().map(Expr::Column).chain(keys).collect();
    let input = LogicalPlan::Projection(Projection::try_new(columns, input.clone())?);
    let aggregate = Aggregate::try_new(Arc::new(input), aggregate.group_expr.clone(), aggregates)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// Replaces the keys of an aggregate by columns, and adds to `keys` what these are. With DISTINCT a key is the
/// argument itself.
fn with_columns(node: Expr, keys: &mut Vec<Expr>) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(mut call) = node else { return Ok(Transformed::no(node)) };
    if call.params.distinct || !gathers(&call.func) {
        return Ok(Transformed::no(Expr::AggregateFunction(call)));
    }
    for sort in &mut call.params.order_by {
        if sort.expr.exists(|part| Ok(matches!(part, Expr::ScalarFunction(_))))? {
            let name = format!("__sort_key_{}", keys.len());
            keys.push(std::mem::take(&mut sort.expr).alias(&name));
            sort.expr = Expr::Column(Column::from_name(name));
        }
    }
    Ok(Transformed::yes(Expr::AggregateFunction(call)))
}
