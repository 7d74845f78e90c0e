//! Window functions over rows in order.
//!
//! DataFusion evaluates them row by row or partition by partition. Here `row_number`, `rank` and `dense_rank` are counted in
//! one pass over the rows as they come, as are aggregates of the rows up to each row ([`running`]); and an aggregate
//! whose frame is the whole partition is the same as that of a group: the accumulators of GROUP BY take many partitions
//! at once. The other aggregates are those of frames ([`frames`]) that [`sliding`] has, and `lag`, `lead` and `nth_value` are
//! the values of a row in a frame ([`framed`]).
//!
//! Only rows of a partition, of peers or of a frame that are not complete are kept, and those before them that a frame
//! goes back to; frames that begin with the partition go back to none, as what its rows amount to is kept instead.
//! Operators with any other function stay DataFusion's.

mod edges;
mod excluding;
mod framed;
mod frames;
mod functions;
mod running;
mod sliding;

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties, Statistics,
    replace_children_if_necessary,
};
use futures::{StreamExt, TryStreamExt, stream};

use self::edges::Rows;
pub(crate) use self::excluding::{Exclusions, MARK as EXCLUDE_MARK, mark as exclude_mark};
use self::functions::Function;
use crate::compact::{compact, joined};
use crate::compile::fast_path;

/// Puts [`WindowRowsExec`] in the place of DataFusion's operators.
#[derive(Debug)]
pub(crate) struct WindowRows;

impl PhysicalOptimizerRule for WindowRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(config) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            let ours = WindowRowsExec::of(&node)?;
            Ok(ours.map_or_else(|| Transformed::no(node), |ours| Transformed::yes(Arc::new(ours) as _)))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "window_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct WindowRowsExec {
    /// The operator in whose place it stands, which has the same input.
    planners: Arc<dyn ExecutionPlan>,
    exprs: Vec<Arc<dyn WindowExpr>>,
    metrics: ExecutionPlanMetricsSet,
}

/// Whether the function is one of ours, over rows of this schema.
pub(super) fn is_ours(expr: &Arc<dyn WindowExpr>, schema: &Schema) -> bool {
    Function::of(expr, schema).is_ok_and(|function| function.is_some())
}

impl WindowRowsExec {
    fn of(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let exprs = if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
            if window.input_order_mode != InputOrderMode::Sorted {
                return Ok(None);
            }
            window.window_expr()
        } else if let Some(window) = node.downcast_ref::<WindowAggExec>() {
            window.window_expr()
        } else {
            return Ok(None);
        };
        let schema = node.children()[0].schema();
        for expr in exprs {
            if Function::of(expr, &schema)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(Self {
            planners: node.clone(),
            exprs: exprs.to_vec(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        self.planners.children()[0]
    }
}

impl DisplayAs for WindowRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.exprs.iter().map(|expr| expr.name()).collect();
        write!(f, "WindowRowsExec: [{}]", names.join(", "))
    }
}

impl ExecutionPlan for WindowRowsExec {
    fn name(&self) -> &'static str {
        "WindowRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planners.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planners.children()
    }

    fn apply_expressions(
        &self,
        apply: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planners.apply_expressions(apply)
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planners = replace_children_if_necessary(self.planners.clone(), children)?;
        let (exprs, metrics) = (self.exprs.clone(), ExecutionPlanMetricsSet::new());
        Ok(Arc::new(Self { planners, exprs, metrics }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.planners.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.planners.statistics_from_inputs(inputs, args)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, input_schema) =
            (self.input().execute(partition, context.clone())?, self.input().schema());
        let mut functions = Vec::with_capacity(self.exprs.len());
        for expr in &self.exprs {
            match Function::of(expr, &input_schema)? {
                Some(function) => functions.push(function),
                None => return internal_err!("{} is no window function of ours", expr.name()),
            }
        }
        let adding = Adding {
            input,
            input_schema,
            schema: self.schema(),
            functions,
            kept: Vec::new(),
            kept_rows: 0,
            kept_bytes: 0,
            wanted_rows: 0,
            first: 0,
            reservation: MemoryConsumer::new("WindowRowsExec").register(context.memory_pool()),
            batch_rows: context.session_config().batch_size(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = stream::try_unfold(adding, |mut adding| async {
            let rows = adding.next().await?;
            Ok::<_, DataFusionError>(rows.map(|rows| (stream::iter(rows.into_iter().map(Ok)), adding)))
        });
        let batches = RecordBatchStreamAdapter::new(self.schema(), batches.try_flatten().boxed());
        Ok(Box::pin(cooperative(batches)))
    }
}

/// The rows of a partition of the plan, to which columns are added.
struct Adding {
    input: SendableRecordBatchStream,
    input_schema: SchemaRef,
    schema: SchemaRef,
    functions: Vec<Function>,
    /// Rows of partitions and frames that may go on, and before them those that frames go back to.
    kept: Vec<RecordBatch>,
    kept_rows: usize,
    kept_bytes: usize,
    /// With so many it is worth to look at them again: rows that stay are looked at a bounded number of times.
    wanted_rows: usize,
    /// The first row that has no columns yet.
    first: usize,
    reservation: MemoryReservation,
    batch_rows: usize,
    baseline: BaselineMetrics,
}

impl Adding {
    /// The next rows with their columns; `None` when there are no more.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        while let Some(batch) = self.input.next().await.transpose()? {
            if batch.num_rows() == 0 {
                continue;
            }
            let elapsed = self.baseline.elapsed_compute().clone();
            let timer = elapsed.timer();
            self.kept_rows += batch.num_rows();
            // A single one is looked at as it is.
            let batch = if self.kept_rows < self.wanted_rows { compact(&batch)? } else { batch };
            self.kept_bytes += batch.get_array_memory_size();
            self.kept.push(batch);
            if self.kept_rows < self.wanted_rows {
                // They are joined when there are enough.
                self.reservation.try_resize(2 * self.kept_bytes)?;
                continue;
            }
            let rows = self.with_columns(false)?;
            drop(timer);
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
        if self.kept_rows == self.first {
            return Ok(None);
        }
        self.with_columns(true).map(Some)
    }

    /// The rows kept that have columns now, with them.
    fn with_columns(&mut self, is_end: bool) -> Result<Vec<RecordBatch>> {
        let kept = std::mem::take(&mut self.kept);
        let batch = match &kept[..] {
            [batch] => batch.clone(),
            batches => joined(batches, &self.input_schema)?,
        };
        drop(kept);
        let row_bytes: usize = self.functions.iter().map(Function::row_bytes).sum();
        self.reservation.try_resize(self.kept_bytes + row_bytes * batch.num_rows())?;
        let rows = Rows { batch: &batch, first: self.first, is_end };
        for function in &mut self.functions {
            function.look(&rows)?;
        }
        let mut end = batch.num_rows();
        loop {
            let common = self.functions.iter().fold(end, |end, function| function.end(&rows, end));
            if common == end {
                break;
            }
            end = common;
        }
        let mut columns: Vec<ArrayRef> = batch.slice(rows.first, end - rows.first).columns().to_vec();
        if end > rows.first {
            for function in &mut self.functions {
                columns.push(function.column(&rows, end)?);
            }
        }
        let row_count = end - rows.first;
        let needed = self.functions.iter().map(|function| function.needed(end)).min().unwrap_or(end);
        for function in &mut self.functions {
            function.forget(needed)?;
        }
        (self.first, self.kept_rows, self.kept_bytes) = (end - needed, batch.num_rows() - needed, 0);
        if self.kept_rows > 0 {
            let rest = compact(&batch.slice(needed, self.kept_rows))?;
            self.kept_bytes = rest.get_array_memory_size();
            self.kept.push(rest);
        }
        self.wanted_rows = 2 * self.kept_rows;
        self.reservation.try_resize(2 * self.kept_bytes)?;
        if row_count == 0 {
            return Ok(Vec::new());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let all = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        self.baseline.record_output(row_count);
        let starts = (0..row_count).step_by(self.batch_rows);
        Ok(starts.map(|start| all.slice(start, self.batch_rows.min(row_count - start))).collect())
    }
}
