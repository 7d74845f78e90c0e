//! Joins without memory for their build side: both sides are cut by the hashes of their keys into parts, on disk, and
//! parts are joined one after the other. A part that is too large itself is cut again, by other hashes, or, if most of its
//! rows have equal keys, into [pieces](super::pieces). G. Graefe, "Query Evaluation Techniques for Large Databases" (ACM
//! Computing Surveys 25, 1993), section 3.3: a Grace hash join.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::resources_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::try_unfold;
use futures::{StreamExt, TryStreamExt};
use keirin_kernels::hash::Seed;
use keirin_operators::ordered::Wanted;
use parking_lot::Mutex;

use super::ordered_runs::OrderedRuns;
use super::pieces::{self, Pieces};
use super::run::{Shared, Work, begin, partition_count};
use crate::compile::parts::{CutBy, PartExec, PartFile, can_run_again, cut, spilled};

/// A side is cut into this power of two of parts.
const PART_BITS: u32 = 5;
/// So many files of a side are open at a time, each with a buffer: with many partitions that keep their rows there are fewer
/// parts.
const FILES_MAX: usize = 256;
/// Parts of parts of parts: more rows than that have equal keys.
const DEPTH_MAX: usize = 3;
/// A part with more than this share of the rows has a key of many rows, and is not cut by hashes again: 1/4.
const HEAVY_SHARE: usize = 4;

/// How a join spills.
#[derive(Clone, Debug)]
pub(super) struct Spilling {
    /// How often its sides were cut before.
    depth: usize,
    /// Whether rows must stay in the order of the probe side, and in its partitions.
    is_in_order: bool,
    metrics: ExecutionPlanMetricsSet,
}

impl Spilling {
    /// `None` for a join that may not: one whose build side must not be run twice.
    pub(super) fn of(
        work: &Work,
        left: &Arc<dyn ExecutionPlan>,
        is_in_order: bool,
        metrics: &ExecutionPlanMetricsSet,
        context: &TaskContext,
    ) -> Option<Self> {
        let may_spill = work.equal_count() > 0
            && context.runtime_env().disk_manager.tmp_files_enabled()
            && can_run_again(left);
        may_spill.then(|| Self { depth: 0, is_in_order, metrics: metrics.clone() })
    }

    /// For what it makes beside the rows of the join.
    pub(super) fn unseen(&self) -> BaselineMetrics {
        BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0)
    }

    /// What reads and writes rows on disk.
    pub(super) fn spilled(&self, schema: &SchemaRef, context: &TaskContext) -> Arc<SpillManager> {
        spilled(&self.metrics, schema, context)
    }

    /// A file for rows of a side.
    pub(super) fn new_file(&self, schema: &SchemaRef, context: &TaskContext) -> PartFile {
        PartFile::new(self.spilled(schema, context))
    }
}

/// What a join does instead that has no memory for its build side.
pub(super) enum Parts {
    /// Parts by hashes that nobody has taken: the sides of each, and how it may spill.
    Hashed { left: Mutex<VecDeque<([PartExec; 2], Spilling)>>, work: Arc<Work>, context: Arc<TaskContext> },
    /// Pieces of the build side, which one partition takes.
    Pieces(Mutex<Option<Pieces>>),
    /// All rows, in the order of the probe side.
    InOrder(OrderedRuns),
}

impl Parts {
    /// The rows of all that no other partition has taken; where they are in order, those of the partition.
    pub(super) fn rows(
        self: Arc<Self>,
        partition: usize,
        schema: SchemaRef,
        baseline: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let rows = match self.as_ref() {
            Self::Hashed { .. } => try_unfold(self, move |parts| {
                let (next, baseline) = (parts.next(), baseline.clone());
                async move {
                    let Some(part) = next else { return Ok::<_, DataFusionError>(None) };
                    Ok(Some((part.stream(0, baseline).await?, parts)))
                }
            })
            .try_flatten()
            .boxed(),
            Self::Pieces(pieces) => try_unfold(pieces.lock().take(), move |pieces| {
                let baseline = baseline.clone();
                async move {
                    let Some(mut pieces) = pieces else { return Ok::<_, DataFusionError>(None) };
                    Ok(pieces.next(baseline).await?.map(|rows| (rows, Some(pieces))))
                }
            })
            .try_flatten()
            .boxed(),
            Self::InOrder(runs) => return runs.rows(partition, schema, baseline),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// The next part to join.
    fn next(&self) -> Option<Arc<dyn Shared>> {
        let Self::Hashed { left, work, context } = self else { return None };
        let ([left, right], spilling) = left.lock().pop_front()?;
        let (left, right): (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) =
            (Arc::new(left), Arc::new(right));
        Some(begin(work, &left, &right, context, Some(spilling)))
    }
}

/// Cuts both sides of a join into parts; the left one is read from its beginning.
pub(super) async fn parts(
    work: Arc<Work>,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    spilling: Spilling,
) -> Result<Arc<Parts>> {
    if spilling.depth == DEPTH_MAX {
        if is_of_closest(&work) {
            return resources_err!("an as-of join has more rows of one key than there is memory for");
        }
        if spilling.is_in_order {
            let runs = OrderedRuns::of_pieces(&work, &left, &right, &spilling, &context).await?;
            return Ok(Arc::new(Parts::InOrder(runs)));
        }
        let left = pieces::cut(&left, &spilling, &context).await?;
        let pieces = Pieces::new(work, left, right, context, spilling);
        return Ok(Arc::new(Parts::Pieces(Mutex::new(Some(pieces)))));
    }
    // Scans of the probe side read all of it: which keys there are is known only of a part.
    for filter in work.key_filters.iter().map(|key| &key.filter).chain(&work.dynamic_filter) {
        filter.update(lit(true))?;
        filter.mark_complete();
    }
    let seed = Seed::random();
    let count = work.equal_count();
    let partitions = if spilling.is_in_order { partition_count(&right) } else { 1 };
    let part_bits = (FILES_MAX / partitions).max(2).ilog2().min(PART_BITS);
    let cut = |side: Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>], is_numbered| {
        let cut_by = CutBy { keys: keys[..count].into(), seed, part_bits, is_numbered };
        cut(side, cut_by, context.clone(), &spilling.metrics)
    };
    let left = cut(reset_plan_states(left)?, &work.left_keys, false).await?;
    let row_count: usize = left.iter().map(PartExec::row_count).sum();
    let probe_columns = right.schema().fields().len();
    let right = cut(right, &work.right_keys, spilling.is_in_order).await?;
    let is_of_closest = is_of_closest(&work);
    let sides = left.into_iter().zip(right).map(|(left, right)| {
        let is_heavy = left.row_count() > row_count / HEAVY_SHARE;
        let depth = if is_heavy && !is_of_closest { DEPTH_MAX } else { spilling.depth + 1 };
        ([left, right], Spilling { depth, ..spilling.clone() })
    });
    let work = Work { dynamic_filter: None, key_filters: Vec::new(), ..work.as_ref().clone() };
    if spilling.is_in_order {
        let work = Arc::new(work.numbered(probe_columns));
        let runs = OrderedRuns::of_parts(&work, sides.collect(), partitions, &spilling, &context).await?;
        return Ok(Arc::new(Parts::InOrder(runs)));
    }
    let left = Mutex::new(sides.collect());
    Ok(Arc::new(Parts::Hashed { left, work: Arc::new(work), context }))
}

/// Whether a join wants the closest row alone, which pieces do not know.
fn is_of_closest(work: &Work) -> bool {
    work.ranges.as_ref().is_some_and(|ranges| ranges.wanted != Wanted::All)
}
