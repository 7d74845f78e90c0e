//! ORDER BY with a LIMIT over wide Parquet files: all columns are read only of the rows that are first.
//!
//! What decides which rows these are is read of all rows: the columns of the filter and of the order, with the number of
//! each row. (Late materialisation: Abadi et al., "Materialization Strategies in a Column-Oriented DBMS", ICDE 2007.)

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use super::moved;
use crate::compact::compact;
use crate::compile::fast_path;
use crate::runtime::guard::guarded;
use crate::runtime::running::Running;
use crate::sources::files::{NumberedFiles, has_changed};

/// With more rows, most pages of the files have one of them.
const ROWS_MAX: usize = 4096;

/// See the [module](self). The rule runs before the sort tells the scan below it what it has found.
#[derive(Debug)]
pub(crate) struct LateRows;

impl PhysicalOptimizerRule for LateRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(options) {
            return Ok(plan);
        }
        let late = plan.transform_down(|node| {
            Ok(match late_rows(&node)? {
                Some(late) => Transformed::new(Arc::new(late), true, TreeNodeRecursion::Jump),
                None => Transformed::no(node),
            })
        });
        late.data()
    }

    fn name(&self) -> &'static str {
        "late_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What does the same as `node`, if that is the first rows of a scan of Parquet files by an order.
fn late_rows(node: &Arc<dyn ExecutionPlan>) -> Result<Option<LateRowsExec>> {
    let merge = node.downcast_ref::<SortPreservingMergeExec>();
    let sort = merge.map_or(node, SortPreservingMergeExec::input).downcast_ref::<SortExec>();
    let Some((sort, fetch)) = sort.and_then(|sort| Some((sort, sort.fetch()?))) else { return Ok(None) };
    if fetch > ROWS_MAX || merge.is_none() && sort.preserve_partitioning() {
        return Ok(None);
    }
    let filter = sort.input().downcast_ref::<FilterExec>();
    if filter.is_some_and(|filter| filter.fetch().is_some()) {
        return Ok(None);
    }
    let scan = filter.map_or(sort.input(), FilterExec::input);
    let deal = scan.downcast_ref::<RepartitionExec>();
    let deal = deal.filter(|deal| matches!(deal.partitioning(), Partitioning::RoundRobinBatch(_)));
    let scan = deal.map_or(scan, RepartitionExec::input);
    let Some(files) = NumberedFiles::of(scan) else { return Ok(None) };
    // The columns of the scan that the sort gets.
    let columns: Vec<usize> = match filter.and_then(|filter| filter.projection().as_ref()) {
        Some(columns) => columns.to_vec(),
        None => (0..scan.schema().fields().len()).collect(),
    };
    let of_filter = filter.iter().flat_map(|filter| indices(filter.predicate()));
    let of_order = sort.expr().iter().flat_map(|key| indices(&key.expr)).map(|column| columns[column]);
    let needed: Vec<usize> = of_filter.chain(of_order).collect::<BTreeSet<_>>().into_iter().collect();
    if !files.are_few(&needed) {
        return Ok(None);
    }
    let places: HashMap<usize, usize> = needed.iter().copied().zip(0..).collect();
    let mut input = files.of_columns(&needed)?;
    if let Some(deal) = deal {
        input = Arc::new(RepartitionExec::try_new(input, deal.partitioning().clone())?);
    }
    if let Some(filter) = filter {
        let predicate = moved(filter.predicate(), |column| places[&column])?;
        let filter = FilterExecBuilder::new(predicate, input)
            .with_default_selectivity(filter.default_selectivity())
            .with_batch_size(filter.batch_size());
        input = Arc::new(filter.build()?);
    }
    let mut order = sort.expr().iter().cloned().collect::<Vec<_>>();
    for key in &mut order {
        key.expr = moved(&key.expr, |column| places[&columns[column]])?;
    }
    let Some(order) = LexOrdering::new(order) else { return internal_err!("a sort without a key") };
    let sorted = SortExec::new(order.clone(), input)
        .with_fetch(Some(fetch))
        .with_preserve_partitioning(sort.preserve_partitioning());
    input = Arc::new(sorted);
    if let Some(merge) = merge {
        let merged = SortPreservingMergeExec::new(order, input).with_fetch(merge.fetch());
        input = Arc::new(merged);
    }
    Ok(Some(LateRowsExec {
        input,
        files,
        columns,
        properties: node.properties().clone(),
        metrics: ExecutionPlanMetricsSet::new(),
    }))
}

fn indices(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    collect_columns(expr).iter().map(Column::index).collect()
}

/// Rows of Parquet files, of which the input gives the numbers, in the order in which it does.
#[derive(Clone, Debug)]
struct LateRowsExec {
    input: Arc<dyn ExecutionPlan>,
    files: NumberedFiles,
    /// The columns of the files' scan that it gives.
    columns: Vec<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LateRowsExec {
    /// All rows, and their memory.
    async fn rows(self, context: Arc<TaskContext>) -> Result<(RecordBatch, MemoryReservation)> {
        let baseline = BaselineMetrics::new(&self.metrics, 0);
        let reservation = MemoryConsumer::new("LateRowsExec").register(context.memory_pool());
        let mut numbers = Vec::new();
        let mut first = self.input.execute(0, context.clone())?;
        while let Some(batch) = first.next().await.transpose()? {
            let Some(column) = batch.columns().last() else { return internal_err!("rows without numbers") };
            numbers.extend_from_slice(column.as_primitive::<UInt64Type>().values());
        }
        drop(first);
        if numbers.is_empty() {
            return Ok((RecordBatch::new_empty(self.schema()), reservation));
        }
        let scan = self.files.of_rows(&numbers)?;
        let scan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(scan));
        let scan = match Running::of(&context) {
            Some(running) => guarded(scan, &running.stop)?,
            None => scan,
        };
        let mut found = scan.execute(0, context.clone())?;
        let (mut batches, mut places) = (Vec::new(), HashMap::with_capacity(numbers.len()));
        while let Some(batch) = found.next().await.transpose()? {
            let batch = compact(&batch)?;
            // Twice: they are put in order then.
            reservation.try_grow(2 * batch.get_array_memory_size())?;
            let Some(column) = batch.columns().last() else { return internal_err!("rows without numbers") };
            let of_batch = column.as_primitive::<UInt64Type>().values().iter();
            places.extend(of_batch.enumerate().map(|(row, number)| (*number, (batches.len(), row))));
            batches.push(batch);
        }
        let places = numbers.iter().map(|number| places.get(number).copied());
        let Some(places) = places.collect::<Option<Vec<_>>>() else { return Err(has_changed()) };
        let column = |column: &usize| -> Result<ArrayRef> {
            let parts: Vec<_> = batches.iter().map(|batch| batch.column(*column).as_ref()).collect();
            Ok(interleave(&parts, &places)?)
        };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(numbers.len()));
        let rows = RecordBatch::try_new_with_options(self.schema(), columns, &options)?;
        baseline.record_output(rows.num_rows());
        reservation.try_resize(rows.get_array_memory_size())?;
        Ok((rows, reservation))
    }
}

impl DisplayAs for LateRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "LateRowsExec: columns=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for LateRowsExec {
    fn name(&self) -> &'static str {
        "LateRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                let metrics = ExecutionPlanMetricsSet::new();
                Ok(Arc::new(Self { input, metrics, ..self.as_ref().clone() }))
            }
            _ => internal_err!("late rows have one input"),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("late rows are one partition");
        }
        let batch_rows = context.session_config().batch_size();
        let rows = stream::once(self.clone().rows(context)).map_ok(move |(rows, reservation)| {
            let count = rows.num_rows();
            let starts = (0..count).step_by(batch_rows);
            stream::iter(starts.map(move |start| {
                let _booked = &reservation;
                Ok(rows.slice(start, batch_rows.min(count - start)))
            }))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.try_flatten().boxed())))
    }
}
