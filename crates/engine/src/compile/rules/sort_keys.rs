//! The keys by which `array_agg` and `string_agg` are ordered become columns of a projection. DataFusion's
//! check of plans does not recognise an order by a key that compares the value of a function. Keys of aggregates for
//! which no order matters, `avg(x ORDER BY y)` say, are left out: some of its accumulators take them for arguments.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

use crate::expressions::functions::gathers;

/// Aggregates for which no order matters, but do not say so.
const INSENSITIVE: [&str; 26] = [
    "approx_distinct",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "grouping",
    "median",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
];

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
    let (mut keys, mut is_changed) = (Vec::new(), false);
    let by_columns = |expr: &Expr| {
        let name = names.save(expr);
        let changed = expr.clone().transform(|node| with_columns(node, &mut keys))?;
        is_changed |= changed.transformed;
        Ok(name.restore(changed.data))
    };
    let aggregates = aggregate.aggr_expr.iter().map(by_columns).collect::<Result<Vec<_>>>()?;
    if !is_changed {
        return Ok(Transformed::no(plan));
    }
    let mut input = aggregate.input.clone();
    if !keys.is_empty() {
        let columns = input.schema().columns().into_iter().map(Expr::Column).chain(keys).collect();
        input = Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?));
    }
    let aggregate = Aggregate::try_new(input, aggregate.group_expr.clone(), aggregates)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// Replaces the keys of an aggregate by columns, and adds to `keys` what these are. With DISTINCT a key is the
/// argument itself.
fn with_columns(node: Expr, keys: &mut Vec<Expr>) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(mut call) = node else { return Ok(Transformed::no(node)) };
    let is_insensitive =
        || call.func.order_sensitivity().is_insensitive() || INSENSITIVE.contains(&call.func.name());
    if !call.params.order_by.is_empty() && is_insensitive() {
        call.params.order_by.clear();
        return Ok(Transformed::yes(Expr::AggregateFunction(call)));
    }
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
