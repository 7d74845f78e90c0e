//! Window functions that need no row's frame: ranks, aggregates of whole partitions or of what is before a row, and
//! first and last values.
//!
//! DataFusion evaluates them row by row or partition by partition. Here `row_number`, `rank` and `dense_rank` are counted in
//! one pass over the rows as they come, as are aggregates of the rows up to each row ([`running`]); and an aggregate
//! whose frame is the whole partition is the same as that of a group: the accumulators of GROUP BY take many partitions
//! at once. Only rows of a partition, or of peers, that are not complete are kept, and only for functions that
//! want them whole. Operators with any other function stay DataFusion's.

mod functions;
mod running;

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
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

use self::functions::{Function, Starts};
use crate::compact::{compact, joined};
use crate::fast_path;

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
            incomplete: Vec::new(),
            incomplete_bytes: 0,
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
    /// Rows of window partitions that may go on.
    incomplete: Vec<RecordBatch>,
    incomplete_bytes: usize,
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
            let rows = self.add(batch)?;
            drop(timer);
            if rows.is_some() {
                return Ok(rows);
            }
        }
        let rest = std::mem::take(&mut self.incomplete);
        if rest.is_empty() {
            return Ok(None);
        }
        self.with_columns(joined(&rest, &self.input_schema)?).map(Some)
    }

    /// Adds rows; those of partitions that are complete then, if there are any.
    fn add(&mut self, batch: RecordBatch) -> Result<Option<Vec<RecordBatch>>> {
        for function in &mut self.functions {
            function.see(&batch)?;
        }
        let starts = self.functions.iter().filter_map(Function::wanted_starts);
        let Some(starts) = Starts::all(starts) else { return self.with_columns(batch).map(Some) };
        let end = starts.last().unwrap_or(0);
        if end > 0 {
            self.incomplete.push(batch.slice(0, end));
        }
        let complete = starts.last().map(|_| std::mem::take(&mut self.incomplete)).unwrap_or_default();
        let rows = match &complete[..] {
            [] => None,
            [batch] => Some(self.with_columns(batch.clone())?),
            batches => Some(self.with_columns(joined(batches, &self.input_schema)?)?),
        };
        drop(complete);
        if starts.last().is_some() {
            self.incomplete_bytes = 0;
        }
        let rest = compact(&batch.slice(end, batch.num_rows() - end))?;
        self.incomplete_bytes += rest.get_array_memory_size();
        self.incomplete.push(rest);
        // They are joined when their partition is complete.
        self.reservation.try_resize(2 * self.incomplete_bytes)?;
        Ok(rows)
    }

    fn with_columns(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let row_count = batch.num_rows();
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        for function in &mut self.functions {
            columns.push(function.column(&batch)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let all = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        self.baseline.record_output(row_count);
        let starts = (0..row_count).step_by(self.batch_rows);
        Ok(starts.map(|start| all.slice(start, self.batch_rows.min(row_count - start))).collect())
    }
}
