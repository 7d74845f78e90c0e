//! Guards around operators: a query stops when it is cancelled, and lets others use its threads.
//!
//! An operator of DataFusion works until its poll ends, which may take seconds: a join with few matches
//! compares all pairs before it returns. So just before a plan runs, each operator is wrapped in a
//! [`Guarded`]. Its stream checks before each batch whether the statement is cancelled, and yields the thread
//! from time to time. The conditions and keys of joins, which are computed again and again between two
//! batches, become [`Interruptible`]. Sorts and merges ask for memory instead, and are stopped there (see
//! [`crate::runtime::running`]).
//!
//! Projections and window functions get more than that, because they do not reserve all memory that they use:
//! see [`Role`].
//!
//! In the plan a guarded operator looks like the operator itself.

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
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs, Projector};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    replace_children_if_necessary,
};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use crate::compact::compact;
use crate::expressions::functions::gentle;
use crate::runtime::full_disk;
use crate::runtime::running::{Running, Stop};
use crate::runtime::steps::{self, Step};

/// How long a stream may occupy its thread before it yields.
const TURN_MAX: Duration = Duration::from_millis(10);

/// `plan` with a guard around each of its operators, which checks `stop`.
pub(crate) fn guarded(plan: Arc<dyn ExecutionPlan>, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    with_guards(plan, stop, false)
}

/// As [`guarded`], for a plan that runs in the place of `other`, and is measured as its step.
pub(crate) fn guarded_as(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
    other: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = guarded(plan, stop)?;
    let Some(step) = unguarded(other).1.cloned() else { return Ok(plan) };
    Ok(Arc::new(Guarded { step: Some(step), ..Guarded::new(plan, Role::Guard) }))
}

/// As [`guarded`]; each operator is a [`Step`], of which [`unguarded`] tells what it took.
pub(crate) fn measured(plan: Arc<dyn ExecutionPlan>, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    steps::trace_tasks();
    with_guards(plan, stop, true)
}

/// The operator that guards stand around, and what it takes if that is measured.
pub(crate) fn unguarded(plan: &Arc<dyn ExecutionPlan>) -> (&Arc<dyn ExecutionPlan>, Option<&Arc<Step>>) {
    let (mut plan, mut step) = (plan, None);
    // Its own downcasts look through a guard.
    while let Some(guarded) = (plan.as_ref() as &dyn Any).downcast_ref::<Guarded>() {
        (plan, step) = (&guarded.inner, step.or(guarded.step.as_ref()));
    }
    (plan, step)
}

fn with_guards(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
    is_measured: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        // Of keys that became interruptible nobody knows what they equal, and by that rows are in order.
        let known = node.properties().clone();
        let node = interruptible(node, stop)?;
        let role = Role::of(&node);
        let of_inputs = match role {
            Role::Holder(kept) => Some(Role::Held(kept)),
            Role::Exchange => Some(Role::Exchanged),
            _ => None,
        };
        let inner = match of_inputs {
            Some(role) => {
                let inputs = node.children().into_iter().cloned().map(|input| guard(input, role)).collect();
                replace_children_if_necessary(node, inputs)?
            }
            None => node,
        };
        let step = is_measured.then(Arc::default);
        Ok(Transformed::yes(Arc::new(Guarded { properties: known, step, ..Guarded::new(inner, role) })))
    })?;
    Ok(plan.data)
}

fn guard(inner: Arc<dyn ExecutionPlan>, role: Role) -> Arc<dyn ExecutionPlan> {
    Arc::new(Guarded::new(inner, role))
}

/// What a guard does besides checking for cancellation and yielding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Guard,
    /// Around a projection with functions or constants that may make a large batch: computes fewer rows at a
    /// time.
    Projection,
    /// Around window functions, which hold their input without a reservation: reserves memory for it.
    Holder(Kept),
    /// Around the input of a [`Self::Holder`]: counts the batches.
    Held(Kept),
    /// Around an exchange between threads, above a [`Self::Projection`]: passes on the few rows that this computes at a
    /// time, instead of gathering as many as a batch has, which nobody would have booked.
    Exchange,
    /// Around the input of a [`Self::Exchange`], whose batches are as large as ever.
    Exchanged,
}

/// The part of their input that window functions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// All rows of a partition, which they return as one batch; the guard cuts it into smaller ones.
    Rows,
    /// Only texts: views of rows that are still held keep the text buffers of whole batches.
    Texts,
}

impl Role {
    fn of(node: &Arc<dyn ExecutionPlan>) -> Self {
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let has_bounded = |expression: &Arc<dyn PhysicalExpr>| {
                expression.exists(|expression| {
                    let function = expression.downcast_ref::<ScalarFunctionExpr>();
                    Ok(function.is_some_and(|function| gentle(function.fun()).is_some()))
                })
            };
            let is_bounded =
                projection.expr().iter().any(|column| has_bounded(&column.expr).unwrap_or(false));
            if is_bounded || constant_bytes(projection) > LARGE_CONSTANT_BYTES {
                return Self::Projection;
            }
        }
        // One that keeps an order merges rows and gathers none.
        let gathers = |exchange: &RepartitionExec| !exchange.preserve_order();
        if node.downcast_ref::<RepartitionExec>().is_some_and(gathers) && has_projection(node) {
            return Self::Exchange;
        }
        if node.is::<WindowAggExec>() {
            return Self::Holder(Kept::Rows);
        }
        let has_views = || node.schema().fields().iter().any(|field| is_view(field.data_type()));
        if node.is::<BoundedWindowAggExec>() && has_views() { Self::Holder(Kept::Texts) } else { Self::Guard }
    }
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Whether somewhere below a guarded projection computes few rows at a time.
fn has_projection(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_projection = |input: &Arc<dyn ExecutionPlan>| {
        // As in [`unguarded`].
        let guarded = (input.as_ref() as &dyn Any).downcast_ref::<Guarded>();
        guarded.is_some_and(|guarded| guarded.role == Role::Projection)
    };
    node.children().into_iter().any(|input| is_projection(input) || has_projection(input))
}

/// The rows of a batch where an exchange gathers none; the input of the exchange finds them as an extension of its
/// context.
struct BatchRows(usize);

/// The reservation for the rows that window functions hold; their input finds it as an extension of its
/// context.
struct Holding(MemoryReservation);

/// Constants larger than this, such as lists, are not repeated for a whole batch at once.
const LARGE_CONSTANT_BYTES: usize = 1 << 10;
/// A repeated constant may take this share of the memory limit divided by the number of partitions (1/128),
/// but no more than `REPEATED_BYTES_MAX`.
const REPEATED_SHARE: usize = 128;
const REPEATED_BYTES_MAX: usize = 4 << 20;

/// What a projection computes at a time may take this share of the memory limit divided by the number of partitions
/// (1/64), but no more than `COMPUTED_BYTES_MAX`, unless a single row takes more.
const COMPUTED_SHARE: usize = 64;
const COMPUTED_BYTES_MAX: usize = 64 << 20;
/// Rows that show how large the others will be.
const ROWS_FIRST: usize = 256;

/// The columns of a projection that are not those of its input.
fn computed_columns(projection: &ProjectionExec) -> Vec<usize> {
    let columns = projection.expr().iter().enumerate();
    columns.filter(|(_, column)| !column.expr.is::<Column>()).map(|(index, _)| index).collect()
}

/// The size of the constants that a projection repeats for each row.
fn constant_bytes(projection: &ProjectionExec) -> usize {
    let constants = projection.expr().iter().filter_map(|column| column.expr.downcast_ref::<Literal>());
    constants.map(|constant| constant.value().size()).sum()
}

/// The memory that window functions take for each row while they run.
const WINDOW_ROW_BYTES: usize = 64;

/// See the [module](self).
#[derive(Debug)]
struct Guarded {
    inner: Arc<dyn ExecutionPlan>,
    role: Role,
    properties: Arc<PlanProperties>,
    /// Metrics of the work that the guard does in the operator's place.
    metrics: ExecutionPlanMetricsSet,
    step: Option<Arc<Step>>,
}

impl Guarded {
    fn new(inner: Arc<dyn ExecutionPlan>, role: Role) -> Self {
        let properties = inner.properties().clone();
        Self { inner, role, properties, metrics: ExecutionPlanMetricsSet::new(), step: None }
    }

    fn with(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { step: self.step.clone(), ..Self::new(inner, self.role) })
    }

    fn partition_count(&self) -> usize {
        self.inner.properties().output_partitioning().partition_count()
    }

    fn rows(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match (self.role, self.inner.downcast_ref::<ProjectionExec>()) {
            (Role::Projection, Some(projection)) => {
                let input = projection.input().execute(partition, context.clone())?;
                let projectors = [gently(projection)?, projection.projection_expr().clone()];
                let [gentle, last] = projectors.map(|projector| projector.make_projector(&input.schema()));
                let metrics = BaselineMetrics::new(&self.metrics, partition);
                let part_bytes = match context.memory_pool().memory_limit() {
                    MemoryLimit::Finite(bytes) => bytes / self.partition_count(),
                    _ => usize::MAX,
                };
                let repeated_bytes_max = (part_bytes / REPEATED_SHARE).min(REPEATED_BYTES_MAX);
                let bounds = Bounds {
                    rows_max: (repeated_bytes_max / constant_bytes(projection).max(1)).max(1),
                    bytes_max: (part_bytes / COMPUTED_SHARE).min(COMPUTED_BYTES_MAX),
                    computed: computed_columns(projection),
                };
                Ok(projected(
                    input,
                    Projectors { gentle: gentle?, last: last? },
                    self.schema(),
                    bounds,
                    metrics,
                ))
            }
            (Role::Holder(kept), _) => {
                let consumer = MemoryConsumer::new("window functions");
                let holding = Arc::new(Holding(consumer.register(context.memory_pool())));
                let batch_rows = context.session_config().batch_size();
                let config = context.session_config().clone().with_extension(holding.clone());
                let rows = self.inner.execute(partition, with_config(&context, config))?;
                Ok(match kept {
                    Kept::Rows => in_batches(rows, batch_rows, holding),
                    Kept::Texts => held(rows, move |_| {
                        let _booked = &holding;
                        Ok(())
                    }),
                })
            }
            (Role::Held(kept), _) => {
                let holding: Option<Arc<Holding>> = context.session_config().get_extension();
                let rows = self.inner.execute(partition, context)?;
                Ok(match holding {
                    Some(holding) => held(rows, move |batch| holding.book(batch, kept)),
                    None => rows,
                })
            }
            (Role::Exchange, _) => {
                let batch_rows = Arc::new(BatchRows(context.session_config().batch_size()));
                // The exchange passes on whole what has more than half as many rows.
                let config = context.session_config().clone().with_extension(batch_rows).with_batch_size(1);
                self.inner.execute(partition, with_config(&context, config))
            }
            (Role::Exchanged, _) => {
                let config = context.session_config();
                let batch_rows: Option<Arc<BatchRows>> = config.get_extension();
                let batch_rows = batch_rows.map_or_else(|| config.batch_size(), |batch_rows| batch_rows.0);
                let config = config.clone().with_batch_size(batch_rows);
                self.inner.execute(partition, with_config(&context, config))
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

impl Holding {
    fn book(&self, batch: &mut RecordBatch, kept: Kept) -> Result<()> {
        let bytes = match kept {
            // The operator concatenates the batches, which copies them.
            Kept::Rows => 2 * batch.get_array_memory_size() + batch.num_rows() * WINDOW_ROW_BYTES,
            Kept::Texts => {
                *batch = compact(batch)?;
                let columns = batch.columns().iter().filter(|column| is_view(column.data_type()));
                columns.map(|column| column.get_array_memory_size()).sum()
            }
        };
        self.0.try_grow(bytes)
    }
}

/// `rows`, with `look` applied to each batch before it is passed on.
fn held(
    rows: SendableRecordBatchStream,
    look: impl Fn(&mut RecordBatch) -> Result<()> + Send + 'static,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let rows = rows.map(move |batch| {
        let mut batch = batch?;
        look(&mut batch)?;
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// `rows` in batches of `batch_rows`; the reservation for the original batches lasts until the end.
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

/// The columns of `projection`, computed by function variants that fail early rather than return a large
/// result.
fn gently(projection: &ProjectionExec) -> Result<ProjectionExprs> {
    let columns = projection.expr().iter().map(|column| {
        let gentle = column.expr.clone().transform_up(|expression| {
            let function = expression.downcast_ref::<ScalarFunctionExpr>();
            let gentle = function.and_then(|function| Some((function, gentle(function.fun())?.clone())));
            let Some((function, gentle)) = gentle else { return Ok(Transformed::no(expression)) };
            let (arguments, field) =
                (function.args().to_vec(), function.return_field(projection.input().schema().as_ref())?);
            let config = Arc::new(function.config_options().clone());
            let gentle = ScalarFunctionExpr::new(function.name(), gentle, arguments, field, config);
            Ok(Transformed::yes(Arc::new(gentle) as Arc<dyn PhysicalExpr>))
        });
        Ok(ProjectionExpr::new(gentle?.data, column.alias.clone()))
    });
    Ok(ProjectionExprs::new(columns.collect::<Result<Vec<_>>>()?))
}

/// Two projectors for the same columns.
struct Projectors {
    /// For several rows: fails if the result would be too large.
    gentle: Projector,
    /// For a single row, which cannot be split further.
    last: Projector,
}

/// How much a projection computes at a time.
struct Bounds {
    rows_max: usize,
    /// Of the columns `computed`.
    bytes_max: usize,
    computed: Vec<usize>,
}

impl Bounds {
    /// How many rows to compute after `made`.
    fn next_rows(&self, made: &RecordBatch, rows_now: usize) -> usize {
        let bytes = self.computed.iter().map(|column| made.column(*column).get_array_memory_size());
        let row_bytes = bytes.sum::<usize>() / made.num_rows().max(1);
        let rows_max = (self.bytes_max / row_bytes.max(1)).clamp(1, self.rows_max);
        // The next rows may be larger or smaller.
        if made.num_rows() < rows_now { rows_now.min(rows_max) } else { (2 * rows_now).min(rows_max) }
    }
}

/// The projection of `input`, computed for so many rows at a time as `bounds` allows, and for fewer if those need
/// too much memory.
fn projected(
    input: SendableRecordBatchStream,
    projectors: Projectors,
    schema: SchemaRef,
    bounds: Bounds,
    metrics: BaselineMetrics,
) -> SendableRecordBatchStream {
    let columns = schema.clone();
    let project = move |rows: &RecordBatch| {
        let _timer = metrics.elapsed_compute().timer();
        let projector = if rows.num_rows() > 1 { &projectors.gentle } else { &projectors.last };
        let made = projector.project_batch(rows)?;
        metrics.record_output(made.num_rows());
        let options = RecordBatchOptions::new().with_row_count(Some(made.num_rows()));
        Ok(RecordBatch::try_new_with_options(columns.clone(), made.columns().to_vec(), &options)?)
    };
    let rows = stream::try_unfold(
        (input, None, bounds.rows_max.min(ROWS_FIRST), (project, bounds)),
        move |(mut input, mut waiting, mut rows_now, (project, bounds))| async move {
            loop {
                let rows: RecordBatch = match waiting.take() {
                    Some(rows) => rows,
                    None => match input.try_next().await? {
                        Some(rows) => rows,
                        None => return Ok(None),
                    },
                };
                let first = rows.slice(0, rows_now.min(rows.num_rows()));
                match project(&first) {
                    Err(error) if first.num_rows() > 1 && is_too_much(&error) => {
                        rows_now = first.num_rows() / 2;
                        waiting = Some(rows);
                    }
                    Err(error) => return Err(error),
                    Ok(made) => {
                        let rest = rows.num_rows() - first.num_rows();
                        waiting = (rest > 0).then(|| rows.slice(first.num_rows(), rest));
                        rows_now = bounds.next_rows(&made, rows_now);
                        return Ok(Some((made, (input, waiting, rows_now, (project, bounds)))));
                    }
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
        &self.properties
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
        let inner = self.inner.clone().reset_state()?;
        let (properties, step) = (self.properties.clone(), self.step.clone());
        Ok(Arc::new(Self { properties, step, ..Self::new(inner, self.role) }))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.with(self.inner.with_new_state(state)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let running = Running::of(&context);
        let rows = {
            let _entered = self.step.as_ref().map(Step::enter);
            self.rows(partition, context)?
        };
        Ok(match running {
            Some(running) => {
                let (inner, step) = (self.inner.clone(), self.step.clone());
                Box::pin(GuardedStream { rows, inner, running, step, turn_began: Instant::now() })
            }
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

/// The stream of a guarded operator. It keeps the statement's task alive.
struct GuardedStream {
    rows: SendableRecordBatchStream,
    inner: Arc<dyn ExecutionPlan>,
    running: Arc<Running>,
    step: Option<Arc<Step>>,
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
        let entered = self.step.as_ref().map(Step::enter);
        let polled = self.rows.poll_next_unpin(context);
        drop(entered);
        if let (Some(step), Poll::Ready(Some(Ok(batch)))) = (&self.step, &polled) {
            step.gave(batch);
        }
        self.running.relieve();
        if polled.is_pending() {
            self.turn_began = Instant::now();
        }
        polled.map_err(|error| full_disk::explained(error, self.inner.name(), self.running.spill_directory()))
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

/// Makes the conditions and keys of joins interruptible; other operators stay as they are.
fn interruptible(node: Arc<dyn ExecutionPlan>, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    let expression = |inner: &Arc<dyn PhysicalExpr>| -> Arc<dyn PhysicalExpr> {
        Arc::new(Interruptible { inner: inner.clone(), stop: stop.clone() })
    };
    let condition = |filter: &JoinFilter| {
        let (columns, schema) = (filter.column_indices().to_vec(), filter.schema().clone());
        JoinFilter::new(expression(filter.expression()), columns, schema)
    };
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // Building the hash table computes the keys of the left (build) side for batch after batch.
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

/// An expression that fails when its statement is cancelled.
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
