//! Aggregates without groups over a table on disk.
//!
//! A batch with all columns of a stripe does not stay in the nearest caches until the last of them is used. Here each
//! aggregate is given its columns by themselves, a few thousand rows at a time, as soon as they are decoded, and
//! their memory is used again for the next (Boncz et al., "MonetDB/X100: Hyper-Pipelining Query Execution", CIDR
//! 2005, section 4). Counts, sums and averages of whole stripes are asked of storage, which has those of whole numbers
//! in its footers and adds up the encoded form of floats.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, RecordBatch, UInt64Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Float64Type, SchemaRef, i256};
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, PhysicalGroupBy, finalize_aggregation,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};
use futures::{StreamExt, stream};
use keirin_kernels::aggregate::CompactSum;
use keirin_kernels::{Bits, Level, Selection};
use keirin_storage::part::Total;

use super::filter::Filter;
use super::grouped::counts;
use super::read::Stripe;
use super::scan::StoredScan;
use super::worker::{Step, Worker, blocking_step};
use crate::compile::fast_path;
use crate::expressions::arithmetic::{CheckedSum, ExactAverage, FLOAT_STATE, float_states};

/// Rows that an aggregate is given at a time: what it computes of them stays in the nearest cache.
const ROWS: usize = 8192;

/// Puts [`StoredAggregate`] in the place of aggregates without groups over a [`StoredScan`].
#[derive(Debug)]
pub(crate) struct AggregateStored;

impl PhysicalOptimizerRule for AggregateStored {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(options) {
            return Ok(plan);
        }
        let changed = plan.transform_up(|node| {
            let direct = without_casts(&node)?;
            Ok(match StoredAggregate::of(direct.as_ref().unwrap_or(&node)) {
                Some(stored) => Transformed::yes(Arc::new(stored) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &'static str {
        "aggregate_stored"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `node` with the casts of a projection in its arguments, if it is an aggregate over one that does no more: what
/// aggregates have in common is projected, but storage adds up columns as they are.
fn without_casts(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let Some(projection) = aggregate.input().downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let is_cast = |expr: &Arc<dyn PhysicalExpr>| {
        expr.is::<Column>() || expr.downcast_ref::<CastExpr>().is_some_and(|cast| cast.expr().is::<Column>())
    };
    let is_plain = aggregate.group_expr().is_true_no_grouping()
        && aggregate.filter_expr().iter().all(Option::is_none)
        && aggregate.aggr_expr().iter().all(|expr| expr.order_bys().is_empty());
    if !is_plain
        || !projection.input().is::<StoredScan>()
        || !projection.expr().iter().all(|one| is_cast(&one.expr))
    {
        return Ok(None);
    }
    over_input(aggregate, projection)
}

/// `aggregate` over the input of the projection that it is over, whose expressions are written out in its own.
pub(crate) fn over_input(
    aggregate: &AggregateExec,
    projection: &ProjectionExec,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let written_out = |expr: Arc<dyn PhysicalExpr>| {
        let changed = expr.transform_up(|part| {
            let column = part.downcast_ref::<Column>();
            let projected = column.map(|column| projection.expr()[column.index()].expr.clone());
            // What is written out is in terms of the input, and has no columns of the projection.
            Ok(projected.map_or_else(
                || Transformed::no(part),
                |projected| Transformed::new(projected, true, TreeNodeRecursion::Jump),
            ))
        });
        changed.data()
    };
    let mut aggregates = Vec::with_capacity(aggregate.aggr_expr().len());
    for expr in aggregate.aggr_expr() {
        let arguments = expr.expressions().into_iter().map(written_out).collect::<Result<_>>()?;
        let Some(changed) = expr.with_new_expressions(arguments, Vec::new()) else { return Ok(None) };
        aggregates.push(Arc::new(changed));
    }
    let keys = aggregate.group_expr();
    let keys = if keys.is_true_no_grouping() {
        keys.clone()
    } else if keys.is_single() {
        let written = keys.expr().iter().map(|(key, name)| Ok((written_out(key.clone())?, name.clone())));
        PhysicalGroupBy::new_single(written.collect::<Result<_>>()?)
    } else {
        return Ok(None);
    };
    let filters = aggregate.filter_expr().iter().cloned();
    let filters = filters.map(|filter| filter.map(written_out).transpose()).collect::<Result<_>>()?;
    let input = projection.input();
    let direct =
        AggregateExec::try_new(*aggregate.mode(), keys, aggregates, filters, input.clone(), input.schema())?;
    Ok((direct.schema() == aggregate.schema()).then(|| Arc::new(direct) as Arc<dyn ExecutionPlan>))
}

/// See the [module](self).
#[derive(Debug)]
struct StoredAggregate {
    /// The [`AggregateExec`] in whose place it stands, which is over a [`StoredScan`].
    plan: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl StoredAggregate {
    /// What can stand in the place of `plan`.
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let aggregate = plan.downcast_ref::<AggregateExec>()?;
        aggregate.input().downcast_ref::<StoredScan>()?;
        let is_over_rows = matches!(
            aggregate.mode(),
            AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
        );
        let is_plain = aggregate.group_expr().is_true_no_grouping()
            && aggregate.limit_options().is_none()
            && aggregate.aggr_expr().iter().all(|expr| expr.order_bys().is_empty());
        (is_over_rows && is_plain)
            .then(|| Self { plan: plan.clone(), metrics: ExecutionPlanMetricsSet::new() })
    }

    fn aggregate(&self) -> &AggregateExec {
        self.plan.downcast_ref().expect("it was one when this was made")
    }

    fn scan(&self) -> &StoredScan {
        self.aggregate().input().downcast_ref().expect("it was one when this was made")
    }
}

impl DisplayAs for StoredAggregate {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.aggregate().aggr_expr().iter().map(|expr| expr.name()).collect();
        write!(f, "StoredAggregate: mode={:?}, aggr=[{}]", self.aggregate().mode(), names.join(", "))
    }
}

impl ExecutionPlan for StoredAggregate {
    fn name(&self) -> &'static str {
        "StoredAggregate"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan.children()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.plan.apply_expressions(visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = replace_children_if_necessary(self.plan.clone(), children)?;
        Ok(Self::of(&plan).map_or(plan, |stored| Arc::new(stored)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let scan = self.scan();
        let (aggregate, input) = (self.aggregate(), scan.schema());
        let pairs = aggregate.aggr_expr().iter().zip(aggregate.filter_expr());
        let inputs = pairs.map(|(expr, filter)| Input::new(expr, filter.as_ref(), &input, scan));
        let mut inputs = inputs.collect::<Result<Vec<_>>>()?;
        for index in 0..inputs.len() {
            let (before, rest) = inputs.split_at_mut(index);
            let (input, later) = rest.split_first_mut().expect("it is one of them");
            // What no later aggregate wants is forgotten.
            let is_forgotten =
                |column: &usize| !later.iter().any(|other| other.used().any(|used| used == *column));
            input.forgotten = input.used().filter(is_forgotten).collect();
            if let Some(filter) = &mut input.filter {
                let others = before.iter().chain(&*later);
                filter.ask_storage_unless(|column| {
                    input.columns.contains(&column) || others.clone().any(|other| other.decodes(column))
                });
            }
        }
        let accumulators = aggregate.aggr_expr().iter().map(|expr| expr.create_accumulator());
        let task = Task {
            worker: scan.worker(partition, &context)?,
            tallies: vec![Tally::default(); inputs.len()],
            inputs,
            accumulators: accumulators.collect::<Result<_>>()?,
        };
        let (mode, schema) = (*aggregate.mode(), self.schema());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        // Whoever stops the query drops it.
        let wanted = Arc::new(());
        let watched = Arc::downgrade(&wanted);
        let batch = async move {
            let (_, mut task) = blocking_step(task, move |task| task.run(&watched)).await?;
            drop(wanted);
            task.finish()?;
            let columns = finalize_aggregation(&mut task.accumulators, &mode)?;
            baseline.record_output(1);
            Ok(RecordBatch::try_new(schema, columns)?)
        };
        let batches = stream::once(batch).boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), batches))))
    }
}

/// What an aggregate is computed of.
struct Input {
    /// The places of the arguments' columns in the table's schema, ascending.
    columns: Vec<usize>,
    schema: SchemaRef,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Filter>,
    /// Columns that no later aggregate wants.
    forgotten: Vec<usize>,
    sum: Option<Summed>,
    counted: Option<Counted>,
}

/// What `count` counts, without a look at values.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Rows,
    /// The values of the column at this place in the table's schema.
    Values(usize),
}

impl Counted {
    fn of(
        aggregate: &AggregateFunctionExpr,
        argument: &Arc<dyn PhysicalExpr>,
        input: &SchemaRef,
        scan: &StoredScan,
    ) -> Result<Option<Self>> {
        if aggregate.is_distinct() || aggregate.fun().name() != "count" {
            return Ok(None);
        }
        if let Some(literal) = argument.downcast_ref::<Literal>() {
            return Ok((!literal.value().is_null()).then_some(Self::Rows));
        }
        // A cast that neither fails nor gives NULL.
        let cast = argument.downcast_ref::<CastExpr>();
        let widened = cast.filter(|cast| {
            cast.expr().data_type(input).is_ok_and(|from| is_widened(&from, cast.cast_type()))
        });
        let values = widened.map_or(argument, CastExpr::expr);
        Ok(values.downcast_ref::<Column>().map(|column| match scan.may_have_nulls(column.index()) {
            true => Self::Values(scan.projection()[column.index()]),
            false => Self::Rows,
        }))
    }
}

/// The sum of its argument is what the aggregate is computed of.
#[derive(Debug)]
pub(super) struct Summed {
    /// The place in the table's schema of the column that the argument is.
    column: Option<usize>,
    /// The aggregate's state: the sum, behind the count of rows where that is wanted, too.
    state: Vec<DataType>,
}

/// What rows were added up to.
#[derive(Clone, Debug, Default)]
struct Tally {
    rows: u64,
    total: Total,
}

impl Input {
    fn new(
        aggregate: &AggregateFunctionExpr,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        input: &SchemaRef,
        scan: &StoredScan,
    ) -> Result<Self> {
        let arguments = aggregate.expressions();
        let mut used: Vec<usize> =
            arguments.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        used.sort_unstable();
        used.dedup();
        let schema = Arc::new(input.project(&used)?);
        let place = |index: usize| scan.projection()[index];
        let sum = match &arguments[..] {
            [argument] => {
                Summed::of(aggregate, argument, input, |index| filter.is_none().then(|| place(index)))?
            }
            _ => None,
        };
        let counted = match (&arguments[..], &filter) {
            ([argument], None) => Counted::of(aggregate, argument, input, scan)?,
            _ => None,
        };
        let arguments = arguments.into_iter().map(|argument| reassign_expr_columns(argument, &schema));
        let filter = filter.map(|filter| {
            let table = scan.table_schema();
            Filter::new(&reassign_expr_columns(filter.clone(), table)?, table, &[])
        });
        Ok(Self {
            arguments: arguments.collect::<Result<_>>()?,
            filter: filter.transpose()?,
            columns: used.into_iter().map(place).collect(),
            forgotten: Vec::new(),
            schema,
            sum,
            counted,
        })
    }

    /// Places in the table's schema, in no order.
    fn used(&self) -> impl Iterator<Item = usize> {
        let of_filter = self.filter.iter().flat_map(Filter::columns);
        self.columns.iter().chain(of_filter).copied()
    }

    /// Whether a column is decoded, or would be if storage could not say more.
    fn decodes(&self, column: usize) -> bool {
        let is_summed = self.sum.as_ref().is_some_and(|sum| sum.column == Some(column));
        let is_counted = matches!(self.counted, Some(Counted::Values(counted)) if counted == column);
        !is_summed && !is_counted && self.used().any(|used| used == column)
    }

    /// Whether storage may say all that the aggregate wants to know.
    fn is_told(&self) -> bool {
        self.counted.is_some() || self.sum.as_ref().is_some_and(|sum| sum.column.is_some())
    }

    /// Lets the tally have the rows of stripes, if storage counts them or adds them up.
    fn sum(&self, stripes: &[Stripe<'_>], tally: &mut Tally) -> Result<bool> {
        let added = match (self.counted, &self.sum) {
            (Some(Counted::Rows), _) => Some(stripes.iter().map(|stripe| stripe.row_count() as u64).sum()),
            (Some(Counted::Values(column)), _) => Stripe::value_count(stripes, column),
            (None, Some(Summed { column: Some(column), .. })) => {
                Stripe::sum(stripes, *column, &mut tally.total)?
            }
            _ => None,
        };
        tally.rows += added.unwrap_or_default();
        Ok(added.is_some())
    }

    /// Lets the aggregate have the rows of a stripe that are left, either in its tally or by itself.
    fn update(
        &self,
        stripe: &mut Stripe<'_>,
        tally: &mut Tally,
        accumulator: &mut dyn Accumulator,
    ) -> Result<()> {
        if !self.sum(std::slice::from_ref(stripe), tally)? {
            self.update_by_rows(stripe, tally, accumulator)?;
        }
        for column in &self.forgotten {
            stripe.forget(*column);
        }
        Ok(())
    }

    fn update_by_rows(
        &self,
        stripe: &mut Stripe<'_>,
        tally: &mut Tally,
        accumulator: &mut dyn Accumulator,
    ) -> Result<()> {
        let passes = self.filter.as_ref().map(|filter| stripe.passes(filter, ROWS)).transpose()?;
        if passes.as_ref().is_none_or(|passes| passes.true_count() > 0) {
            let batch = stripe.batch(&self.columns, &self.schema)?;
            for start in (0..batch.num_rows()).step_by(ROWS) {
                let mut rows = batch.slice(start, ROWS.min(batch.num_rows() - start));
                if let Some(passes) = &passes {
                    rows = filter_record_batch(&rows, &passes.slice(start, rows.num_rows()))?;
                }
                let arguments = self.arguments.iter();
                let arguments =
                    arguments.map(|argument| argument.evaluate(&rows)?.into_array(rows.num_rows()));
                let arguments = arguments.collect::<Result<Vec<_>>>()?;
                if self.sum.as_ref().is_some_and(Summed::is_float) {
                    tally.add(&arguments[0]);
                } else {
                    accumulator.update_batch(&arguments)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether values are integers of less than 64 bits.
fn is_narrow(from: &DataType) -> bool {
    from.is_integer() && from.primitive_width().is_some_and(|bytes| bytes < size_of::<i64>())
}

/// Whether narrow integers become as many of 64 bits.
fn is_widened(from: &DataType, to: &DataType) -> bool {
    match to {
        DataType::Int64 => is_narrow(from),
        DataType::UInt64 => is_narrow(from) && from.is_unsigned_integer(),
        _ => false,
    }
}

impl Summed {
    /// What a sum or average wants, if storage adds up the column that `place` finds, or floats are added up.
    pub(super) fn of(
        aggregate: &AggregateFunctionExpr,
        argument: &Arc<dyn PhysicalExpr>,
        input: &SchemaRef,
        place: impl Fn(usize) -> Option<usize>,
    ) -> Result<Option<Self>> {
        let function: &dyn Any = aggregate.fun().inner().as_ref();
        if aggregate.is_distinct() || !function.is::<ExactAverage>() && !function.is::<CheckedSum>() {
            return Ok(None);
        }
        let state: Vec<DataType> =
            aggregate.state_fields()?.iter().map(|field| field.data_type().clone()).collect();
        let (Some(total), true) = (state.last(), state.len() <= 2) else { return Ok(None) };
        // The values may have been made floats of 64 bits, or integers, whose sum is the same without.
        let cast = argument.downcast_ref::<CastExpr>();
        let widened = cast.filter(|cast| {
            cast.expr().data_type(input).is_ok_and(|from| is_widened(&from, cast.cast_type()))
        });
        let cast = cast.filter(|cast| *cast.cast_type() == DataType::Float64);
        let values = cast.or(widened).map_or(argument, CastExpr::expr);
        let from = values.data_type(input)?;
        let is_same_as_float = from.is_floating() || is_narrow(&from);
        let fits = match (cast, &from, total) {
            (Some(_), _, &FLOAT_STATE) => is_same_as_float,
            (None, DataType::Float64, &FLOAT_STATE) => true,
            (
                None,
                DataType::Decimal128(_, scale),
                DataType::Decimal128(_, total) | DataType::Decimal256(_, total),
            ) => scale == total,
            (None, from, DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0)) => from.is_integer(),
            _ => false,
        };
        let column = values.downcast_ref::<Column>().filter(|_| fits);
        let column = column.and_then(|column| place(column.index()));
        let is_float = *total == FLOAT_STATE && argument.data_type(input)? == DataType::Float64;
        Ok((column.is_some() || is_float).then_some(Self { column, state }))
    }

    pub(super) fn column(&self) -> Option<usize> {
        self.column
    }

    pub(super) fn is_float(&self) -> bool {
        self.state.last() == Some(&FLOAT_STATE)
    }

    /// The state of an aggregate that has seen the rows of a tally.
    fn state(&self, tally: &Tally) -> Result<Vec<ArrayRef>> {
        let Total { integers, floats } = &tally.total;
        let mut total = floats.clone();
        total.push_integer(*integers);
        self.states(&[Some((tally.rows, Some(*integers), total.into()))])
    }

    /// The states of groups, of each of which the count of values and their sum is given, as an integer, where it is
    /// one, and as floats; or that have no values.
    pub(super) fn states(&self, groups: &[Option<(u64, Option<i128>, CompactSum)>]) -> Result<Vec<ArrayRef>> {
        let integers = || groups.iter().map(|group| group.as_ref().and_then(|(_, integer, _)| *integer));
        let totals: ArrayRef = match self.state.last() {
            Some(data_type @ DataType::Decimal128(..)) => {
                Arc::new(integers().collect::<Decimal128Array>().with_data_type(data_type.clone()))
            }
            Some(data_type @ DataType::Decimal256(..)) => {
                let totals = integers().map(|total| total.map(i256::from_i128));
                Arc::new(totals.collect::<Decimal256Array>().with_data_type(data_type.clone()))
            }
            _ => float_states(groups.iter().map(|group| group.as_ref().map(|(_, _, total)| total))),
        };
        if totals.null_count() != groups.iter().filter(|group| group.is_none()).count() {
            return internal_err!("a sum of integers that is none");
        }
        // A count of 0 instead of null would say that there are values.
        let counts = groups.iter().map(|group| group.as_ref().map(|(count, ..)| *count));
        let counts = (self.state.len() == 2).then(|| Arc::new(counts.collect::<UInt64Array>()) as ArrayRef);
        Ok(counts.into_iter().chain([totals]).collect())
    }
}

impl Tally {
    /// Adds floats of 64 bits.
    fn add(&mut self, values: &ArrayRef) {
        let validity = values.nulls().map(|nulls| Bits::new(nulls.validity(), nulls.offset(), nulls.len()));
        let floats = values.as_primitive::<Float64Type>().values();
        self.total.floats.add(Level::best(), floats, validity, Selection::All);
        self.rows += (values.len() - values.null_count()) as u64;
    }
}

/// The work of a partition.
struct Task {
    worker: Worker,
    inputs: Vec<Input>,
    tallies: Vec<Tally>,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl Task {
    /// All stripes that other partitions leave, as long as somebody wants that. Threads are not changed on the way:
    /// the next may have to wait where another one works, while a core is idle.
    fn run(&mut self, wanted: &Weak<()>) -> Result<Step<()>> {
        let (inputs, tallies, accumulators) = (&self.inputs, &mut self.tallies, &mut self.accumulators);
        if inputs.iter().all(Input::is_told) {
            self.worker.take_runs();
        }
        while wanted.strong_count() > 0 {
            let step = self.worker.step(|stripes| {
                // Where storage cannot sum several stripes at once, each is summed by itself while it is in the cache.
                let mut left = Vec::with_capacity(inputs.len());
                for ((input, tally), accumulator) in inputs.iter().zip(&mut *tallies).zip(&mut *accumulators)
                {
                    if stripes.len() == 1 || !input.sum(stripes, tally)? {
                        left.push((input, tally, accumulator));
                    }
                }
                for stripe in stripes {
                    for (input, tally, accumulator) in &mut left {
                        input.update(stripe, tally, &mut ***accumulator)?;
                    }
                }
                Ok(())
            })?;
            self.worker.book(accumulators.iter().map(|accumulator| accumulator.size()).sum())?;
            if matches!(step, Step::End) {
                break;
            }
        }
        Ok(Step::End)
    }

    /// Gives the accumulators what is in the tallies.
    fn finish(&mut self) -> Result<()> {
        let Self { inputs, tallies, accumulators, .. } = self;
        for ((input, tally), accumulator) in inputs.iter().zip(tallies).zip(accumulators) {
            let state = match &input.sum {
                _ if tally.rows == 0 => continue,
                Some(sum) => sum.state(tally)?,
                None => vec![counts(&[tally.rows])],
            };
            accumulator.merge_batch(&state)?;
        }
        Ok(())
    }
}
