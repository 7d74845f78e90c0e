//! Sorting by a kernel that packs keys into words ([`keirin_kernels::sort`]), instead of DataFusion's operator, which
//! sorts batch by batch and merges them row by row.
//!
//! All rows of a partition are collected, ordered at once, and given in that order. If there is not enough memory for that,
//! DataFusion's operator gets what was collected and the rest, and spills. Sorts with a LIMIT stay DataFusion's, and so do
//! those by keys that have no kernel, such as lists.

mod keys;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, EmptyRecordBatchStream, ExecutionPlan, PlanProperties,
    Statistics,
};
use futures::{StreamExt, TryStreamExt, stream};
use keirin_kernels::Level;
use keirin_kernels::sort::{Method, sort_rows_while};
use parking_lot::Mutex;

use self::keys::SortColumn;
pub(crate) use self::keys::as_numbers;
use crate::compact::{compact, joined};
use crate::compile::fast_path;
use crate::runtime::work::cancellable;

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
    /// Whether a partition had not enough memory: then the others leave theirs to the operators that spill.
    has_given_up: Arc<AtomicBool>,
    metrics: ExecutionPlanMetricsSet,
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
            has_given_up: Arc::default(),
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
                    has_given_up: Arc::default(),
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
        let computed = self.order.iter().filter(|key| !key.expr.is::<Column>()).map(|key| key.expr.clone());
        let sorting = Sorting {
            schema: self.schema(),
            order: self.order.clone(),
            computed: computed.collect(),
            batches: Vec::new(),
            keys: Vec::new(),
            bytes: 0,
            row_count: 0,
            has_given_up: self.has_given_up.clone(),
            reservation: MemoryConsumer::new("SortRowsExec").register(context.memory_pool()),
        };
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows = stream::once(sorted(sorting, input, context, baseline)).try_flatten();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), rows.boxed()))))
    }
}

/// The rows of a partition that were collected so far.
struct Sorting {
    schema: SchemaRef,
    order: LexOrdering,
    /// The keys that are no columns.
    computed: Vec<Arc<dyn PhysicalExpr>>,
    batches: Vec<RecordBatch>,
    /// What these are, for each batch.
    keys: Vec<Vec<ArrayRef>>,
    bytes: usize,
    row_count: usize,
    has_given_up: Arc<AtomicBool>,
    reservation: MemoryReservation,
}

async fn sorted(
    mut sorting: Sorting,
    mut input: SendableRecordBatchStream,
    context: Arc<TaskContext>,
    baseline: BaselineMetrics,
) -> Result<SendableRecordBatchStream> {
    while let Some(batch) = input.next().await.transpose()? {
        if batch.num_rows() > 0 && !sorting.add(&batch)? {
            return sorting.spilled(Some(input), context);
        }
    }
    drop(input);
    if sorting.batches.is_empty() {
        return Ok(Box::pin(EmptyRecordBatchStream::new(sorting.schema)));
    }
    if !sorting.has_room() {
        return sorting.spilled(None, context);
    }
    let batch_rows = context.session_config().batch_size();
    let schema = sorting.schema.clone();
    let timer = baseline.elapsed_compute().timer();
    let sorted =
        cancellable(move |cancel| sorting.sorted(&|| !cancel.is_cancelled()).map_err(crate::Error::from));
    let Sorted { columns, rows, reservation } =
        sorted.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
    timer.done();
    let starts = (0..rows.len()).step_by(batch_rows);
    let batch_schema = schema.clone();
    let batches = starts.map(move |start| {
        // As long as there are rows, there is memory for them.
        let _ = &reservation;
        let rows = rows.slice(start, batch_rows.min(rows.len() - start));
        let columns = columns.iter().map(|column| take(column, &rows, None));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        baseline.record_output(rows.len());
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(batch_schema.clone(), columns, &options)?)
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches))))
}

/// All rows of a partition, and their order.
struct Sorted {
    columns: Vec<ArrayRef>,
    rows: UInt32Array,
    reservation: MemoryReservation,
}

impl Sorting {
    /// Adds a batch; whether there was memory for it.
    fn add(&mut self, batch: &RecordBatch) -> Result<bool> {
        // In buffers of its own, which are counted once.
        let batch = compact(batch)?;
        let keys = self.computed.iter().map(|key| key.evaluate(&batch)?.into_array(batch.num_rows()));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let key_bytes: usize = keys.iter().map(|key| key.get_array_memory_size()).sum();
        let bytes = batch.get_array_memory_size() + key_bytes;
        self.row_count += batch.num_rows();
        self.batches.push(batch);
        self.keys.push(keys);
        self.bytes += bytes;
        Ok(!self.has_given_up.load(Ordering::Relaxed)
            && u32::try_from(self.row_count).is_ok()
            && self.reservation.try_grow(bytes).is_ok())
    }

    /// Books what sorting takes: the rows once more, in one piece, a word and a number for each row twice, and keys.
    fn has_room(&self) -> bool {
        // In one piece, offsets of 32 bits reach so far.
        let has_offsets =
            |kind: &DataType| !(kind.is_primitive() || is_view(kind) || *kind == DataType::Boolean);
        let is_far = i32::try_from(self.bytes).is_err()
            && (self.schema.fields().iter().any(|field| has_offsets(field.data_type()))
                || self.keys.iter().flatten().any(|key| has_offsets(key.data_type())));
        let keys = self.order.len() * size_of::<&[u8]>();
        let bytes = self.bytes + self.row_count * (2 * size_of::<(u64, u32)>() + keys);
        !is_far && self.reservation.try_grow(bytes).is_ok()
    }

    fn sorted(mut self, is_wanted: &dyn Fn() -> bool) -> Result<Sorted> {
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
        let texts: Vec<Vec<&[u8]>> = columns.iter().map(SortColumn::texts).collect();
        let keys: Vec<_> = columns.iter().zip(&texts).map(|(column, texts)| column.key(texts)).collect();
        let rows = sort_rows_while(Level::best(), Method::Radix, &keys, all.num_rows(), is_wanted);
        let Some(rows) = rows else { return internal_err!("the sort was cancelled") };
        // What is kept is the rows in one piece, and their order.
        let kept = all.get_array_memory_size() + rows.len() * size_of::<u32>();
        self.reservation.shrink(self.reservation.size().saturating_sub(kept));
        Ok(Sorted { columns: all.columns().to_vec(), rows: rows.into(), reservation: self.reservation })
    }

    /// What DataFusion's operator makes of the rows so far and the rest.
    fn spilled(
        self,
        rest: Option<SendableRecordBatchStream>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.has_given_up.store(true, Ordering::Relaxed);
        self.reservation.free();
        let collected = stream::iter(self.batches.into_iter().map(Ok));
        let rows = match rest {
            None => collected.boxed(),
            Some(rest) => collected.chain(rest.map(|batch| compact(&batch?))).boxed(),
        };
        let rows: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows));
        let rows = Arc::new(Rows { schema: self.schema.clone(), rows: Mutex::new(Some(rows)) });
        let input = StreamingTableExec::try_new(self.schema, vec![rows], None, None, false, None)?;
        SortExec::new(self.order, Arc::new(input)).execute(0, context)
    }
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Rows that are given once.
struct Rows {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().take();
        rows.unwrap_or_else(|| {
            let none = stream::once(async { internal_err!("rows that are given once") });
            Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), none))
        })
    }
}
