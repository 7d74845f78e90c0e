//! Keeps rows in the order of their files, although several threads read them.
//!
//! A plan that only filters and projects keeps the order of its input within each partition. Merging the
//! partitions as they come would shuffle the rows, differently each time. Where the order of rows is visible,
//! which is in an answer, in what INSERT writes and in the choice of rows by a LIMIT, a rule replaces such
//! merges by [`InOrderExec`]: one partition after the other, while the next ones are read ahead. Elsewhere,
//! as under a join, a sort or a grouping, merging as the rows come is faster and makes no visible difference.

mod ahead;
mod merge;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, replace_children_if_necessary};

pub(crate) use self::merge::InOrderExec;
use crate::compile::rules::Fence;
use crate::sources::stored::WriteExec;

/// See the [module](self). It runs last: the rules before it do not know the operator.
#[derive(Debug)]
pub(crate) struct KeepOrder;

impl PhysicalOptimizerRule for KeepOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if part_count(&plan) > 1 && keeps_order(&plan) {
            return Ok(Arc::new(InOrderExec::new(in_order(plan)?, None)));
        }
        rewrite(plan, true)
    }

    fn name(&self) -> &'static str {
        "keep_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan with order kept where it is visible; `is_seen` if the order of the plan's own output is.
fn rewrite(plan: Arc<dyn ExecutionPlan>, is_seen: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_merge = plan.is::<CoalescePartitionsExec>();
    let is_limit = plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || ((is_merge || plan.is::<FilterExec>()) && plan.fetch().is_some());
    let is_seen_below = is_limit || plan.is::<DataSinkExec>() || (is_seen && passes_on(&plan));
    if is_merge && is_seen_below && keeps_order(&plan) {
        return in_order(plan);
    }
    if let (Some(write), [input]) = (plan.downcast_ref::<WriteExec>(), plan.children().as_slice())
        && write.keeps_order()
        && keeps_order(input)
    {
        // The writer takes partitions separately and keeps their order.
        let input = in_order((*input).clone())?;
        return replace_children_if_necessary(plan.clone(), vec![input]);
    }
    let children = plan.children().into_iter().cloned();
    let children: Vec<_> = children.map(|child| rewrite(child, is_seen_below)).collect::<Result<_>>()?;
    replace_children_if_necessary(plan, children)
}

/// Whether a node returns the rows of its input, or some of them, in their order.
fn passes_on(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<Fence>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<UnionExec>()
        || deals(plan)
}

/// Whether a node deals batches out to its partitions round-robin: [`in_order`] removes such nodes.
fn deals(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<RepartitionExec>()
        .is_some_and(|exchange| matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_)))
}

/// Whether all nodes of a plan, down to its leaves, keep the order of their input.
fn keeps_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    children.is_empty() || (passes_on(plan) && children.into_iter().all(keeps_order))
}

/// A plan that [`keeps_order`], with its merges in order, and with leaves that preserve the order of rows:
/// otherwise file scans hand out work to whichever partition is idle.
fn in_order(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        if let Some(merge) = node.downcast_ref::<CoalescePartitionsExec>() {
            let merge = InOrderExec::new(merge.input().clone(), merge.fetch());
            return Ok(Transformed::yes(Arc::new(merge)));
        }
        if deals(&node) {
            // Only filters and projections are above, for which dealing out batches gains little.
            return Ok(Transformed::yes(node.children()[0].clone()));
        }
        let ordered = node.children().is_empty().then(|| node.with_preserve_order(true)).flatten();
        Ok(ordered.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    Ok(plan.data)
}

fn part_count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.properties().partitioning.partition_count()
}
