//! Sorting by a kernel that packs keys into words ([`keirin_kernels::sort`]), instead of DataFusion's operator, which
//! sorts batch by batch and merges them row by row.
//!
//! All rows of a partition are collected, ordered at once, and given in that order. If there is not enough memory for all of
//! them, as many as there is memory for are ordered at a time and written to disk, and these runs are merged. Sorts with a
//! LIMIT stay DataFusion's, and so do those by keys that have no kernel, such as lists.

mod keys;

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{internal_err, resources_datafusion_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, SpillMetrics,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::streaming_merge::{SortedSpillFile, StreamingMergeBuilder};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, EmptyRecordBatchStream, ExecutionPlan, PlanProperties,
    Statistics,
};
use futures::{StreamExt, TryStreamExt, stream};
use keirin_kernels::Level;
use keirin_kernels::sort::{Method, sort_rows_while};

use self::keys::SortColumn;
pub(crate) use self::keys::as_numbers;
use crate::compact::{compact, joined};
use crate::compile::fast_path;
use crate::runtime::pool::MERGE;
use crate::runtime::work::cancellable;

/// A batch of a run takes this share of the memory limit at most: 1/256.
const RUN_BATCH_SHARE: usize = 256;

/// Puts [`SortRowsExec`] in the place of DataFusion's operator.
#[derive(Debug)]
pub(crate) struct SortRows;

impl PhysicalOptimizerRule for SortRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(config) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            let ours = node.downcast_ref::<SortExec>().and_then(SortRowsExec::of);
            Ok(ours.map_or_else(|| Transformed::no(node), |ours| Transformed::yes(Arc::new(ours) as _)))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "sort_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SortRowsExec {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    keeps_partitions: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Whether rows are sorted by values of this type.
pub(super) fn has_kernel(key: &DataType) -> bool {
    keys::has_kernel(key)
}

impl SortRowsExec {
    fn of(sort: &SortExec) -> Option<Self> {
        let schema = sort.input().schema();
        let has_kernel =
            |key: &Arc<dyn PhysicalExpr>| key.data_type(&schema).is_ok_and(|kind| keys::has_kernel(&kind));
        // Dictionaries of different batches may be too large for one.
        let has_dictionary =
            schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..)));
        let is_ours =
            sort.fetch().is_none() && !has_dictionary && sort.expr().iter().all(|key| has_kernel(&key.expr));
        is_ours.then(|| Self {
            input: sort.input().clone(),
            order: sort.expr().clone(),
            keeps_partitions: sort.preserve_partitioning(),
            properties: sort.properties().clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// DataFusion's operator over `input`.
    fn planners(&self, input: Arc<dyn ExecutionPlan>) -> SortExec {
        SortExec::new(self.order.clone(), input).with_preserve_partitioning(self.keeps_partitions)
    }
}

impl DisplayAs for SortRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SortRowsExec: expr=[{}], preserve_partitioning=[{}]", self.order, self.keeps_partitions)
    }
}

impl ExecutionPlan for SortRowsExec {
    fn name(&self) -> &'static str {
        "SortRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        apply: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for key in &self.order {
            if apply(&key.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        let distribution = if self.keeps_partitions {
            Distribution::UnspecifiedDistribution
        } else {
            Distribution::SinglePartition
        };
        vec![distribution]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                let properties = self.planners(input.clone()).properties().clone();
                Ok(Arc::new(Self {
                    input,
                    order: self.order.clone(),
                    keeps_partitions: self.keeps_partitions,
                    properties,
                    metrics: ExecutionPlanMetricsSet::new(),
                }))
            }
            _ => internal_err!("a sort has one input"),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(inputs[0].clone())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context.clone())?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let spilled = SpillMetrics::new(&self.metrics, partition);
        let sorting = Sorting {
            collected: Collected::new(self.schema(), self.order.clone(), partition, &context),
            runs: Vec::new(),
            spilled: SpillManager::new(context.runtime_env(), spilled, self.schema()),
            batch_rows: context.session_config().batch_size(),
            batch_bytes_max: match context.memory_pool().memory_limit() {
                MemoryLimit::Finite(bytes) => bytes / RUN_BATCH_SHARE,
                _ => usize::MAX,
            },
        };
        let rows = stream::once(sorted(sorting, input, partition, context, baseline)).try_flatten();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), rows.boxed()))))
    }
}

/// The rows of a partition.
struct Sorting {
    collected: Collected,
    /// What was collected before, each in order.
    runs: Vec<SortedSpillFile>,
    spilled: SpillManager,
    batch_rows: usize,
    /// Of runs, so that several of them can be merged.
    batch_bytes_max: usize,
}

async fn sorted(
    mut sorting: Sorting,
    mut input: SendableRecordBatchStream,
    partition: usize,
    context: Arc<TaskContext>,
    baseline: BaselineMetrics,
) -> Result<SendableRecordBatchStream> {
    while let Some(batch) = input.next().await.transpose()? {
        let mut waiting = vec![batch];
        while let Some(batch) = waiting.pop() {
            let Some(refused) = sorting.collected.add(&batch)? else { continue };
            if !sorting.collected.is_empty() {
                sorting = sorting.spill(&baseline).await?;
                waiting.push(batch);
            } else if batch.num_rows() > 1 {
                let half = batch.num_rows() / 2;
                waiting.push(batch.slice(half, batch.num_rows() - half));
                waiting.push(batch.slice(0, half));
            } else {
                return Err(refused);
            }
        }
    }
    drop(input);
    if sorting.runs.is_empty() {
        return sorting.collected.in_order(sorting.batch_rows, baseline).await;
    }
    if !sorting.collected.is_empty() {
        sorting = sorting.spill(&baseline).await?;
    }
    let Sorting { collected: Collected { schema, order, .. }, runs, spilled, batch_rows, .. } = sorting;
    let reservation = MemoryConsumer::new(format!("{MERGE}[{partition}]")).register(context.memory_pool());
    StreamingMergeBuilder::new()
        .with_sorted_spill_files(runs)
        .with_spill_manager(spilled)
        .with_schema(schema)
        .with_expressions(&order)
        .with_metrics(baseline)
        .with_batch_size(batch_rows)
        .with_reservation(reservation)
        .build()
}

impl Sorting {
    /// Writes what was collected, in order.
    async fn spill(mut self, baseline: &BaselineMetrics) -> Result<Self> {
        let timer = baseline.elapsed_compute().timer();
        let spilled = cancellable(move |cancel| {
            let written = self.write(&|| !cancel.is_cancelled());
            Ok(written.map(|()| self))
        });
        let spilled = spilled.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
        timer.done();
        spilled
    }

    fn write(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<()> {
        if self.runs.is_empty() {
            let row_bytes = self.collected.bytes / self.collected.row_count.max(1);
            self.batch_rows = self.batch_rows.min(self.batch_bytes_max / row_bytes.max(1)).max(1);
        }
        let sorted = self.collected.sorted(is_wanted)?;
        let mut file = self.spilled.create_in_progress_file("sort")?;
        let mut max_record_batch_memory = 0;
        for start in (0..sorted.rows.len()).step_by(self.batch_rows) {
            if !is_wanted() {
                return internal_err!("the sort was cancelled");
            }
            let written = file.append_batch(&sorted.batch(start, self.batch_rows)?)?;
            max_record_batch_memory = max_record_batch_memory.max(written);
        }
        if let Some(file) = file.finish()? {
            self.runs.push(SortedSpillFile { file, max_record_batch_memory });
        }
        Ok(())
    }
}

/// Rows in memory, which is booked for them and for sorting them.
struct Collected {
    schema: SchemaRef,
    order: LexOrdering,
    /// The keys that are no columns.
    computed: Vec<Arc<dyn PhysicalExpr>>,
    batches: Vec<RecordBatch>,
    /// What these are, for each batch.
    keys: Vec<Vec<ArrayRef>>,
    bytes: usize,
    row_count: usize,
    reservation: MemoryReservation,
}

/// Rows, and their order.
struct Sorted {
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    rows: UInt32Array,
    /// As long as there are rows, there is memory for them.
    _reservation: MemoryReservation,
}

impl Sorted {
    /// `count` rows from `start`, or those that are left.
    fn batch(&self, start: usize, count: usize) -> Result<RecordBatch> {
        let rows = self.rows.slice(start, count.min(self.rows.len() - start));
        let columns = self.columns.iter().map(|column| take(column, &rows, None));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

impl Collected {
    fn new(schema: SchemaRef, order: LexOrdering, partition: usize, context: &TaskContext) -> Self {
        let computed = order.iter().filter(|key| !key.expr.is::<Column>()).map(|key| key.expr.clone());
        let consumer = MemoryConsumer::new(format!("SortRowsExec[{partition}]")).with_can_spill(true);
        Self {
            schema,
            computed: computed.collect(),
            order,
            batches: Vec::new(),
            keys: Vec::new(),
            bytes: 0,
            row_count: 0,
            reservation: consumer.register(context.memory_pool()),
        }
    }

    fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a batch, or says why there is no room for it.
    fn add(&mut self, batch: &RecordBatch) -> Result<Option<DataFusionError>> {
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        // In buffers of its own, which are counted once.
        let batch = compact(batch)?;
        let keys = self.computed.iter().map(|key| key.evaluate(&batch)?.into_array(batch.num_rows()));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let key_bytes: usize = keys.iter().map(|key| key.get_array_memory_size()).sum();
        let bytes = self.bytes + batch.get_array_memory_size() + key_bytes;
        let row_count = self.row_count + batch.num_rows();
        if !self.is_in_reach(bytes, row_count) {
            return Ok(Some(resources_datafusion_err!("a row of {bytes} bytes cannot be sorted")));
        }
        // The rows once more, in one piece, a word and a number for each row twice, and keys.
        let key_bytes = self.order.len() * size_of::<&[u8]>();
        let sorting_bytes = bytes + row_count * (2 * size_of::<(u64, u32)>() + key_bytes);
        match self.reservation.try_resize(bytes + sorting_bytes) {
            Ok(()) => {}
            Err(error) if is_refusal(&error) => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
        (self.bytes, self.row_count) = (bytes, row_count);
        self.batches.push(batch);
        self.keys.push(keys);
        Ok(None)
    }

    /// Whether so many rows have numbers of 32 bits, and offsets of 32 bits reach all of them when they are in one piece.
    fn is_in_reach(&self, bytes: usize, row_count: usize) -> bool {
        let has_offsets =
            |kind: &DataType| !(kind.is_primitive() || is_view(kind) || *kind == DataType::Boolean);
        let fields = self.schema.fields().iter().map(|field| field.data_type());
        u32::try_from(row_count).is_ok()
            && (i32::try_from(bytes).is_ok()
                || !(fields.chain(self.keys.iter().flatten().map(|key| key.data_type())).any(has_offsets)))
    }

    /// All rows in order.
    async fn in_order(
        mut self,
        batch_rows: usize,
        baseline: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        if self.is_empty() {
            return Ok(Box::pin(EmptyRecordBatchStream::new(self.schema)));
        }
        let schema = self.schema.clone();
        let timer = baseline.elapsed_compute().timer();
        let sorted = cancellable(move |cancel| Ok(self.sorted(&|| !cancel.is_cancelled())));
        let sorted = sorted.await.map_err(|error| DataFusionError::External(Box::new(error)))??;
        timer.done();
        let starts = (0..sorted.rows.len()).step_by(batch_rows);
        let batches = starts.map(move |start| {
            let batch = sorted.batch(start, batch_rows)?;
            baseline.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches))))
    }

    /// The rows in order; none is collected any more.
    fn sorted(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<Sorted> {
        let all = joined(&std::mem::take(&mut self.batches), &self.schema)?;
        let mut place = 0;
        let columns = self.order.iter().map(|key| {
            let values = match key.expr.downcast_ref::<Column>() {
                Some(column) => all.column(column.index()).clone(),
                None => {
                    let parts: Vec<&dyn Array> = self.keys.iter().map(|keys| keys[place].as_ref()).collect();
                    place += 1;
                    concat(&parts)?
                }
            };
            SortColumn::new(values, key.options)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        self.keys.clear();
        (self.bytes, self.row_count) = (0, 0);
        let reservation = self.reservation.take();
        let texts: Vec<Vec<&[u8]>> = columns.iter().map(SortColumn::texts).collect();
        let keys: Vec<_> = columns.iter().zip(&texts).map(|(column, texts)| column.key(texts)).collect();
        let rows = sort_rows_while(Level::best(), Method::Radix, &keys, all.num_rows(), is_wanted);
        let Some(rows) = rows else { return internal_err!("the sort was cancelled") };
        // What is kept is the rows in one piece, and their order.
        let kept = all.get_array_memory_size() + rows.len() * size_of::<u32>();
        reservation.shrink(reservation.size().saturating_sub(kept));
        let schema = self.schema.clone();
        Ok(Sorted { schema, columns: all.columns().to_vec(), rows: rows.into(), _reservation: reservation })
    }
}

fn is_refusal(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}
