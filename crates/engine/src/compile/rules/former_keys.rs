//! Keys that a join has made columns like others.
//!
//! DataFusion knows the keys of groups as keys of the rows. After a join they determine what they determined before, but a
//! value stands in several rows. Of groups by such a column *and others* it takes the column for a key again, which determines
//! the others: `SELECT DISTINCT k FROM (SELECT DISTINCT s.k, t.v FROM (SELECT DISTINCT k FROM s) s, t)` kept a `k` for each
//! `v`, and `GROUP BY k, v` grouped by `k` (`aggregate_functional_dependencies` compares what is determined with what is
//! determined by all, and not with all). A [`Passage`] takes the knowledge away below such groups.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, Dependency};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Distinct, DistinctOn, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::passage::Passage;

/// See the [module](self). The rule goes before those that ask for keys.
#[derive(Debug)]
pub(crate) struct FormerKeys;

impl OptimizerRule for FormerKeys {
    fn name(&self) -> &str {
        "former_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let names = |keys: &[Expr]| keys.iter().map(|key| key.schema_name().to_string()).collect();
        let keys: HashSet<String> = match &plan {
            LogicalPlan::Aggregate(aggregate) => names(&aggregate.group_expr),
            LogicalPlan::Distinct(Distinct::On(distinct)) => names(&distinct.on_expr),
            LogicalPlan::Distinct(Distinct::All(input)) => input.schema().field_names().into_iter().collect(),
            _ => return Ok(Transformed::no(plan)),
        };
        let input = plan.inputs()[0];
        // What mentions an outer query is not known to DataFusion's rules for subqueries behind another node.
        let plan = match has_former_key(input.schema(), &keys) && input.all_out_ref_exprs().is_empty() {
            true => Transformed::yes(above_unkeyed(plan)?),
            false => Transformed::no(plan),
        };
        plan.transform_data(grouped)
    }
}

fn above_unkeyed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let unkeyed = |input: Arc<LogicalPlan>| Arc::new(Passage::without_keys(Arc::unwrap_or_clone(input)));
    Ok(match plan {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
            LogicalPlan::Aggregate(Aggregate::try_new(unkeyed(input), group_expr, aggr_expr)?)
        }
        LogicalPlan::Distinct(Distinct::On(DistinctOn {
            input, on_expr, select_expr, sort_expr, ..
        })) => {
            let distinct = DistinctOn::try_new(on_expr, select_expr, sort_expr, unkeyed(input))?;
            LogicalPlan::Distinct(Distinct::On(distinct))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => LogicalPlan::Distinct(Distinct::All(unkeyed(input))),
        other => other,
    })
}

/// DISTINCT as groups by all columns: DataFusion would do so from the leaves up, and see keys in between. It drops those that
/// a key makes needless.
fn grouped(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Distinct(Distinct::All(input)) = &plan else { return Ok(Transformed::no(plan)) };
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    if columns.is_empty() || !input.schema().functional_dependencies().is_empty() {
        return Ok(Transformed::no(plan));
    }
    let aggregate = Aggregate::try_new(input.clone(), columns, Vec::new())?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// Whether a column or several among `keys` are known to determine others, but neither the row nor all of `keys`.
fn has_former_key(schema: &DFSchemaRef, keys: &HashSet<String>) -> bool {
    let dependencies = schema.functional_dependencies();
    if dependencies.is_empty() {
        return false;
    }
    let names = schema.field_names();
    dependencies.iter().filter(|dependence| dependence.mode == Dependency::Multi).any(|dependence| {
        let is_source = dependence.source_indices.iter().all(|&column| keys.contains(&names[column]));
        let determined: HashSet<&String> =
            dependence.target_indices.iter().map(|&column| &names[column]).collect();
        is_source && keys.iter().any(|key| !determined.contains(key))
    })
}
