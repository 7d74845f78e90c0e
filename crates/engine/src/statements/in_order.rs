//! Rows in the order of their files, although several threads read them.
//!
//! A plan that only filters and projects reads the parts of its input in order, part after part. Merging
//! the parts as they come would shuffle the rows, differently each time; taking one part after the other,
//! while the next are read ahead, gives the order of the file, and LIMIT the first rows, at any number of
//! threads. Plans that sort, group or join have no such order to keep.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LimitStream, LocalLimitExec};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::{StreamExt, stream};

/// Batches of each part that are read ahead.
const BATCHES_AHEAD: usize = 16;

/// Whether a plan gives its rows in the order of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It does, part after part.
    Kept,
    /// It would, if batches were not dealt out to the threads in turn.
    Dealt,
    /// It has an order of its own, or none.
    None,
}

pub(super) fn order(plan: &Arc<dyn ExecutionPlan>) -> Order {
    let deals = plan
        .downcast_ref::<RepartitionExec>()
        .is_some_and(|exchange| matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_)));
    let keeps = plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<UnionExec>();
    let children = plan.children();
    match (deals, keeps || children.is_empty()) {
        (true, _) => match order(children[0]) {
            Order::None => Order::None,
            _ => Order::Dealt,
        },
        (false, false) => Order::None,
        (false, true) => {
            let orders: Vec<Order> = children.into_iter().map(order).collect();
            let worst = |wanted| orders.contains(&wanted).then_some(wanted);
            worst(Order::None).or_else(|| worst(Order::Dealt)).unwrap_or(Order::Kept)
        }
    }
}

/// The same plan over leaves that give their rows in order: scans of files else deal out the work to
/// whichever part is idle.
pub(super) fn over_ordered_leaves(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let ordered = plan.transform_up(|node| {
        let ordered = node.children().is_empty().then(|| node.with_preserve_order(true)).flatten();
        Ok(ordered.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    Ok(ordered.data)
}

/// Runs a plan whose order is [`Order::Kept`], part after part.
pub(super) fn execute(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
        let rows = execute(limit.input(), context)?;
        return Ok(limited(rows, limit.skip(), limit.fetch()));
    }
    if let Some(merge) = plan.downcast_ref::<CoalescePartitionsExec>() {
        let rows = execute(merge.input(), context)?;
        return Ok(limited(rows, 0, merge.fetch()));
    }
    let mut parts = parts(plan, context)?;
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let parts: Vec<_> = parts.into_iter().map(|part| spawn_buffered(part, BATCHES_AHEAD)).collect();
    Ok(Box::pin(RecordBatchStreamAdapter::new(plan.schema(), stream::iter(parts).flatten())))
}

/// The parts of a plan, each a stream of its own.
pub(super) fn parts(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<Vec<SendableRecordBatchStream>> {
    (0..plan.properties().partitioning.partition_count())
        .map(|part| plan.execute(part, context.clone()))
        .collect()
}

fn limited(rows: SendableRecordBatchStream, skip: usize, fetch: Option<usize>) -> SendableRecordBatchStream {
    if skip == 0 && fetch.is_none() {
        return rows;
    }
    Box::pin(LimitStream::new(rows, skip, fetch, BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0)))
}
