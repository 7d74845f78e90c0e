//! Groups of rows that come in the order of their keys.
//!
//! Where a table has one part, its rows come in the order of its keys, and DataFusion groups them by comparing each with the
//! one before. Our tables of groups are faster, also where the keys are in order: five times with one key of a million
//! values, fifty times where another key is not in order, for then rows are exchanged between threads one by one, so that
//! they stay in order. So scans below groups do not tell their order, unless a LIMIT ends the groups early, or a group holds
//! much, which comes and goes with it where rows are in order.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, InputOrderMode, replace_children_if_necessary,
};

use crate::compile::fast_path;
use crate::compile::grouping::is_small;
use crate::sources::stored::StoredScan;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct GroupsInOrder;

impl PhysicalOptimizerRule for GroupsInOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if fast_path::is_on(options) { without_order(plan, false) } else { Ok(plan) }
    }

    fn name(&self) -> &'static str {
        "groups_in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `plan`, in which groups do not know of the order of their rows; not those that a LIMIT ends early.
fn without_order(plan: Arc<dyn ExecutionPlan>, is_limited: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    let is_in_order =
        aggregate.is_some_and(|aggregate| *aggregate.input_order_mode() != InputOrderMode::Linear);
    let is_ours = aggregate.is_some_and(|aggregate| {
        aggregate.mode().input_mode() == AggregateInputMode::Raw
            && aggregate.group_expr().is_single()
            && aggregate.aggr_expr().iter().all(|function| function.order_bys().is_empty())
            && is_small(aggregate)
    });
    let passes_on = is_in_order
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>();
    let ends_early = match plan.downcast_ref::<SortExec>() {
        _ if plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>() => {
            is_limited || plan.fetch().is_some()
        }
        Some(sort) => {
            let is_sorted = sort.input().equivalence_properties().ordering_satisfy(sort.expr().clone())?;
            is_sorted && (is_limited || sort.fetch().is_some())
        }
        None => passes_on && (is_limited || plan.fetch().is_some()),
    };
    let inputs = plan.children().into_iter().map(|input| {
        let input = if is_in_order && is_ours && !is_limited { unordered(input)? } else { input.clone() };
        without_order(input, ends_early)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(plan, inputs)
}

/// `plan` over scans that do not tell in which order rows are, where nothing relies on that.
fn unordered(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<StoredScan>() {
        return Ok(scan.without_order().map_or_else(|| plan.clone(), |scan| Arc::new(scan)));
    }
    let relies_on_it = plan.required_input_ordering().iter().any(Option::is_some)
        || plan.fetch().is_some()
        || plan.is::<AggregateExec>()
        || plan.is::<SortExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>();
    if relies_on_it || plan.output_ordering().is_none() {
        return Ok(plan.clone());
    }
    let inputs = plan.children().into_iter().map(unordered).collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(plan.clone(), inputs)
}
