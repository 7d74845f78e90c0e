//! Groups that count what is distinct, without memory for them all: rows are cut by the hashes of their keys into
//! [parts](crate::compile::parts) on disk, and the groups of one part are made after those of another.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use futures::stream::try_unfold;
use keirin_kernels::hash::Seed;
use parking_lot::Mutex;

use super::{Fallback, ParallelGroupExec, replaced_over};
use crate::compile::parts::{CutBy, cut};

/// Rows are cut into this power of two of parts.
const PART_BITS: u32 = 5;
/// Parts of parts of parts: more rows than that have equal keys.
pub(super) const DEPTH_MAX: usize = 3;
/// So many parts are grouped at a time at most.
const AT_ONCE: usize = 4;

/// Groups of parts that nobody has taken.
#[derive(Debug)]
pub(super) struct PartedGroups(Mutex<VecDeque<Arc<dyn ExecutionPlan>>>);

impl PartedGroups {
    /// Cuts the rows of groups, which are read from their beginning.
    pub(super) async fn cut(of: &Fallback, context: Arc<TaskContext>) -> Result<Self> {
        let keys = of.work.key_expressions.clone();
        let cut_by = CutBy { keys, seed: Seed::random(), part_bits: PART_BITS, is_numbered: false };
        let rows = reset_plan_states(of.input.clone())?;
        let parts = cut(rows, cut_by, context, &of.metrics).await?;
        let parts = parts.into_iter().filter(|part| part.row_count() > 0).map(|part| {
            let replaced = replaced_over(&of.replaced, &of.input, Arc::new(part))?;
            let groups = match ParallelGroupExec::of(&replaced) {
                Some(groups) => Arc::new(ParallelGroupExec { depth: of.depth + 1, ..groups }),
                None => replaced,
            };
            Ok(Arc::new(CoalescePartitionsExec::new(groups)) as Arc<dyn ExecutionPlan>)
        });
        Ok(Self(Mutex::new(parts.collect::<Result<_>>()?)))
    }

    /// The groups of all parts that no other partition takes.
    pub(super) fn rows(
        self: Arc<Self>,
        partition: usize,
        schema: SchemaRef,
        context: Arc<TaskContext>,
        baseline: BaselineMetrics,
    ) -> SendableRecordBatchStream {
        let parts = Some(self).filter(|_| partition < AT_ONCE);
        let rows = try_unfold(parts, move |parts| {
            let next = parts.as_ref().and_then(|parts| parts.0.lock().pop_front());
            let rows = next.map(|part| part.execute(0, context.clone()));
            async move { Ok::<_, DataFusionError>(rows.transpose()?.map(|rows| (rows, parts))) }
        });
        let rows = rows.try_flatten().inspect_ok(move |batch| {
            baseline.record_output(batch.num_rows());
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}
