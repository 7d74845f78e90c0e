//! Joins that spill where something above relies on the order of the probe side, or on its partitions.
//!
//! Probe rows are numbered before they are cut into parts. What is joined of a part has its numbers in order, as a run on
//! disk for each partition, and the runs are merged by the numbers.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::JoinSet;
use datafusion::common::{JoinSide, internal_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::sorts::streaming_merge::{SortedSpillFile, StreamingMergeBuilder};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::pieces::{self, Pieces};
use super::run::{Work, all, begin};
use super::spilled::Spilling;
use crate::compact::compact;
use crate::compile::parts::{PartExec, PartFile, with_number};
use crate::runtime::pool::MERGE;

impl Work {
    /// The same join of rows that have their numbers behind `probe_columns` columns, with the numbers in the answer.
    pub(super) fn numbered(mut self, probe_columns: usize) -> Self {
        self.output.push(ColumnIndex { index: probe_columns, side: JoinSide::Right });
        self.schema = with_number(&self.schema);
        self
    }
}

/// The rows of a join, as runs by the numbers in their last column.
pub(super) struct OrderedRuns {
    /// By partition.
    runs: Vec<Mutex<Vec<SortedSpillFile>>>,
    spilled: Arc<SpillManager>,
    context: Arc<TaskContext>,
}

impl OrderedRuns {
    fn new(work: &Work, partitions: usize, spilling: &Spilling, context: &Arc<TaskContext>) -> Self {
        Self {
            runs: (0..partitions).map(|_| Mutex::default()).collect(),
            spilled: spilling.spilled(&work.schema, context),
            context: context.clone(),
        }
    }

    /// Joins parts one after the other.
    pub(super) async fn of_parts(
        work: &Arc<Work>,
        parts: Vec<([PartExec; 2], Spilling)>,
        partitions: usize,
        spilling: &Spilling,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let runs = Arc::new(Self::new(work, partitions, spilling, context));
        for ([left, right], spilling) in parts {
            let (left, right): (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) =
                (Arc::new(left), Arc::new(right));
            let run = begin(work, &left, &right, context, Some(spilling.clone()));
            let mut tasks = JoinSet::new();
            for partition in 0..partitions {
                let (runs, run, unseen) = (runs.clone(), run.clone(), spilling.unseen());
                tasks.spawn(async move { runs.add(partition, run.stream(partition, unseen).await?).await });
            }
            drop(run);
            all(tasks).await?;
        }
        Arc::into_inner(runs).map_or_else(|| internal_err!("a task that has ended holds runs"), Ok)
    }

    /// Joins a build side piece by piece with each partition of probe rows, which have numbers already.
    pub(super) async fn of_pieces(
        work: &Arc<Work>,
        left: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
        spilling: &Spilling,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let Some(right) = right.downcast_ref::<PartExec>() else {
            return internal_err!("a join is cut into pieces before it was cut into parts");
        };
        let left = pieces::cut(left, spilling, context).await?;
        let runs = Self::new(work, right.properties().partitioning.partition_count(), spilling, context);
        for (partition, right) in right.partitions().enumerate() {
            let (work, left, spilling) = (work.clone(), left.clone(), spilling.clone());
            let mut pieces = Pieces::new(work, left, Arc::new(right), context.clone(), spilling.clone());
            while let Some(rows) = pieces.next(spilling.unseen()).await? {
                runs.add(partition, rows).await?;
            }
        }
        Ok(runs)
    }

    /// Writes a run of a partition.
    async fn add(&self, partition: usize, mut rows: SendableRecordBatchStream) -> Result<()> {
        let mut file = PartFile::new(self.spilled.clone());
        let mut max_record_batch_memory = 0;
        while let Some(batch) = rows.try_next().await? {
            let batch = compact(&batch)?;
            max_record_batch_memory = batch.get_array_memory_size().max(max_record_batch_memory);
            file.append(&batch)?;
        }
        let file = file.end()?;
        self.runs[partition]
            .lock()
            .extend(file.map(|file| SortedSpillFile { file, max_record_batch_memory }));
        Ok(())
    }

    /// The rows of a partition, once: with their numbers if the schema has these.
    pub(super) fn rows(
        &self,
        partition: usize,
        schema: SchemaRef,
        baseline: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let runs = std::mem::take(&mut *self.runs[partition].lock());
        if runs.is_empty() {
            return Ok(Box::pin(EmptyRecordBatchStream::new(schema)));
        }
        let (numbered, context) = (self.spilled.schema(), &self.context);
        let last = numbered.fields().len() - 1;
        let number = Arc::new(Column::new(numbered.field(last).name(), last));
        let Some(order) = LexOrdering::new([PhysicalSortExpr::new_default(number)]) else {
            return internal_err!("an order has a key");
        };
        let reservation =
            MemoryConsumer::new(format!("{MERGE}[{partition}]")).register(context.memory_pool());
        let merged = StreamingMergeBuilder::new()
            .with_sorted_spill_files(runs)
            .with_spill_manager(self.spilled.as_ref().clone())
            .with_schema(numbered.clone())
            .with_expressions(&order)
            .with_metrics(baseline)
            .with_batch_size(context.session_config().batch_size())
            .with_reservation(reservation)
            .build()?;
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        // Texts of a batch are in the buffers of many runs.
        let rows = merged.map(move |batch| compact(&batch?.project(&columns)?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
