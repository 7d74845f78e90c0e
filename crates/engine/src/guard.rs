//! Operators that stop when they are told to, and let others run.
//!
//! An operator of DataFusion works until its task is polled to the end, which may take seconds: a join that finds
//! few matches looks at all pairs before it comes back. So just before a plan runs, each operator gets a [`Guarded`]
//! around it, whose stream looks whether the statement is to stop before each batch and gives the thread away from
//! time to time, and the conditions and keys of joins become [`Interruptible`]: a join computes them again and again
//! between two batches. What sorts and merges asks for memory instead (see [`crate::running`]).
//!
//! Two operators get more, for the memory that they do not book themselves: [`Role`].
//!
//! To whoever looks at the plan, an operator that is guarded is the operator itself.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::Statistics;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::config::SessionConfig;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::projection::Projector;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    replace_children_if_necessary,
};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use crate::compact::compact;
use crate::functions::is_bounded;
use crate::running::{Running, Stop};

/// How long a stream may keep its thread to itself.
const TURN_MAX: Duration = Duration::from_millis(10);

/// `plan` with a guard around each of its operators, which look at `stop`.
pub(crate) fn guarded(plan: Arc<dyn ExecutionPlan>, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        let node = interruptible(node, stop)?;
        let role = Role::of(&node);
        let inner = match role {
            Role::Holder => {
                let held = node.children().into_iter().cloned().map(|input| guard(input, Role::Held));
                let held = held.collect();
                replace_children_if_necessary(node, held)?
            }
            _ => node,
        };
        Ok(Transformed::yes(guard(inner, role)))
    })?;
    Ok(plan.data)
}

fn guard(inner: Arc<dyn ExecutionPlan>, role: Role) -> Arc<dyn ExecutionPlan> {
    Arc::new(Guarded { inner, role, metrics: ExecutionPlanMetricsSet::new() })
}

/// What a guard does beside guarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Guard,
    /// Of a projection with functions that may make too much of a batch: gives them fewer rows at a time.
    Projection,
    /// Of window functions, which hold all rows of their partition and give them back as one batch: what is held is
    /// booked, and cut into batches.
    Holder,
    /// Of what a [`Self::Holder`] reads.
    Held,
}

impl Role {
    fn of(node: &Arc<dyn ExecutionPlan>) -> Self {
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let has_bounded = |expression: &Arc<dyn PhysicalExpr>| {
                expression.exists(|expression| {
                    let function = expression.downcast_ref::<ScalarFunctionExpr>();
                    Ok(function.is_some_and(|function| is_bounded(function.fun())))
                })
            };
            let is_bounded =
                projection.expr().iter().any(|column| has_bounded(&column.expr).unwrap_or(false));
            if is_bounded || constant_bytes(projection) > LARGE_CONSTANT_BYTES {
                return Self::Projection;
            }
        }
        if node.is::<WindowAggExec>() { Self::Holder } else { Self::Guard }
    }
}

/// What the rows are booked to that an operator holds. An extension of the context of what it reads.
struct Holding(MemoryReservation);

/// Constants from this size on, such as lists, are not repeated for a whole batch at once.
const LARGE_CONSTANT_BYTES: usize = 1 << 10;
/// So much may be made of a constant at once.
const REPEATED_BYTES_MAX: usize = 4 << 20;

/// The size of the constants that a projection repeats for each row.
fn constant_bytes(projection: &ProjectionExec) -> usize {
    let constants = projection.expr().iter().filter_map(|column| column.expr.downcast_ref::<Literal>());
    constants.map(|constant| constant.value().size()).sum()
}

/// What window functions take for each row while they are computed.
const WINDOW_ROW_BYTES: usize = 64;

/// See the [module](self).
#[derive(Debug)]
struct Guarded {
    inner: Arc<dyn ExecutionPlan>,
    role: Role,
    /// Of what it does in the operator's place.
    metrics: ExecutionPlanMetricsSet,
}

impl Guarded {
    fn with(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        guard(inner, self.role)
    }

    fn rows(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match (self.role, self.inner.downcast_ref::<ProjectionExec>()) {
            (Role::Projection, Some(projection)) => {
                let input = projection.input().execute(partition, context)?;
                let projector = projection.projection_expr().make_projector(&input.schema())?;
                let metrics = BaselineMetrics::new(&self.metrics, partition);
                let rows_max = (REPEATED_BYTES_MAX / constant_bytes(projection).max(1)).max(1);
                Ok(projected(input, projector, self.schema(), rows_max, metrics))
            }
            (Role::Holder, _) => {
                let consumer = MemoryConsumer::new("window functions");
                let holding = Arc::new(Holding(consumer.register(context.memory_pool())));
                let batch_rows = context.session_config().batch_size();
                let config = context.session_config().clone().with_extension(holding.clone());
                let rows = self.inner.execute(partition, with_config(&context, config))?;
                Ok(in_batches(rows, batch_rows, holding))
            }
            (Role::Held, _) => {
                let holding: Option<Arc<Holding>> = context.session_config().get_extension();
                let rows = self.inner.execute(partition, context)?;
                Ok(match holding {
                    Some(holding) => held(rows, holding),
                    None => rows,
                })
            }
            _ => self.inner.execute(partition, context),
        }
    }
}

/// `context` with another configuration.
fn with_config(context: &TaskContext, config: SessionConfig) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

/// Books each batch of `rows`, twice, for it is copied before it is used.
fn held(rows: SendableRecordBatchStream, holding: Arc<Holding>) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let rows = rows.map(move |batch| {
        let batch = batch?;
        let bytes = 2 * batch.get_array_memory_size() + batch.num_rows() * WINDOW_ROW_BYTES;
        holding.0.try_grow(bytes)?;
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// `rows` in batches of `batch_rows`; what they are of is booked until the end.
fn in_batches(
    rows: SendableRecordBatchStream,
    batch_rows: usize,
    holding: Arc<Holding>,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let rows = rows.map_ok(move |batch| {
        let holding = holding.clone();
        let starts = (0..batch.num_rows()).step_by(batch_rows.max(1));
        stream::iter(starts.map(move |start| {
            let _booked = &holding;
            compact(&batch.slice(start, batch_rows.min(batch.num_rows() - start)))
        }))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten()))
}

/// What `projector` makes of `input`: of `rows_max` rows at a time, and of half of them, and so on, where all need too
/// much memory.
fn projected(
    input: SendableRecordBatchStream,
    projector: Projector,
    schema: SchemaRef,
    rows_max: usize,
    metrics: BaselineMetrics,
) -> SendableRecordBatchStream {
    let columns = schema.clone();
    let project = move |rows: &RecordBatch| {
        let _timer = metrics.elapsed_compute().timer();
        let made = projector.project_batch(rows)?;
        metrics.record_output(made.num_rows());
        let options = RecordBatchOptions::new().with_row_count(Some(made.num_rows()));
        Ok(RecordBatch::try_new_with_options(columns.clone(), made.columns().to_vec(), &options)?)
    };
    let rows = stream::try_unfold(
        (input, Vec::new(), project),
        move |(mut input, mut waiting, project)| async move {
            loop {
                let rows: RecordBatch = match waiting.pop() {
                    Some(rows) => rows,
                    None => match input.try_next().await? {
                        Some(rows) => rows,
                        None => return Ok(None),
                    },
                };
                if rows.num_rows() > rows_max {
                    waiting.push(rows.slice(rows_max, rows.num_rows() - rows_max));
                    waiting.push(rows.slice(0, rows_max));
                    continue;
                }
                match project(&rows) {
                    Err(error) if rows.num_rows() > 1 && is_too_much(&error) => {
                        let half = rows.num_rows() / 2;
                        waiting.push(rows.slice(half, rows.num_rows() - half));
                        waiting.push(rows.slice(0, half));
                    }
                    made => return made.map(|made| Some((made, (input, waiting, project)))),
                }
            }
        },
    );
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

fn is_too_much(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

impl DisplayAs for Guarded {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(visit)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.dynamic_expressions_produced()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.with(self.inner.clone().replace_children(children, options)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.with(self.inner.clone().reset_state()?))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.with(self.inner.with_new_state(state)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let running = Running::of(&context);
        let rows = self.rows(partition, context)?;
        Ok(match running {
            Some(running) => Box::pin(GuardedStream { rows, running, turn_began: Instant::now() }),
            None => rows,
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        if self.role == Role::Projection { Some(self.metrics.clone_inner()) } else { self.inner.metrics() }
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.inner.statistics_from_inputs(inputs, args)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }
}

/// The rows of an operator. It keeps the statement running.
struct GuardedStream {
    rows: SendableRecordBatchStream,
    running: Arc<Running>,
    turn_began: Instant,
}

impl Stream for GuardedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(stopped) = self.running.stop.check_operator() {
            return Poll::Ready(Some(Err(stopped)));
        }
        if self.turn_began.elapsed() > TURN_MAX {
            self.turn_began = Instant::now();
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = self.rows.poll_next_unpin(context);
        if polled.is_pending() {
            self.turn_began = Instant::now();
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl RecordBatchStream for GuardedStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// Joins with conditions and keys that fail when they are to stop; other operators as they are.
fn interruptible(node: Arc<dyn ExecutionPlan>, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    let expression = |inner: &Arc<dyn PhysicalExpr>| -> Arc<dyn PhysicalExpr> {
        Arc::new(Interruptible { inner: inner.clone(), stop: stop.clone() })
    };
    let condition = |filter: &JoinFilter| {
        let (columns, schema) = (filter.column_indices().to_vec(), filter.schema().clone());
        JoinFilter::new(expression(filter.expression()), columns, schema)
    };
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // The left keys are computed for batch after batch when the hash table is made.
        let on = join.on().iter().map(|(left, right)| (expression(left), right.clone())).collect();
        return join.builder().with_on(on).with_filter(join.filter().map(condition)).build_exec();
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let filter = join.filter().map(condition);
        return Ok(Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?));
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>()
        && let Some(filter) = join.filter()
    {
        return Ok(Arc::new(SortMergeJoinExec::try_new(
            join.left().clone(),
            join.right().clone(),
            join.on().to_vec(),
            Some(condition(filter)),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?));
    }
    Ok(node)
}

/// An expression that fails when its statement is to stop.
#[derive(Debug)]
struct Interruptible {
    inner: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl PartialEq for Interruptible {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Interruptible {}

impl Hash for Interruptible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Interruptible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Interruptible {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check_operator()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { inner: children.swap_remove(0), stop: self.stop.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
