//! Aggregates without groups over a table on disk.
//!
//! A batch with all columns of a stripe does not stay in the nearest caches until the last of them is used. Here each
//! aggregate is given its columns by themselves, a few thousand rows at a time, as soon as they are decoded, and
//! their memory is used again for the next (Boncz et al., "MonetDB/X100: Hyper-Pipelining Query Execution", CIDR
//! 2005, section 4). Sums and averages of whole stripes are asked of storage, which adds up the encoded form.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, Decimal128Array, Decimal256Array, Float64Array, Int64Array, RecordBatch, UInt64Array,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef, i256};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, finalize_aggregation};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};
use futures::{StreamExt, stream};
use keirin_storage::part::Sum;

use super::read::{Filter, Stripe};
use super::scan::{Step, StoredScan, Worker, blocking_step};
use crate::arithmetic::CheckedSum;

/// Rows that an aggregate is given at a time: what it computes of them stays in the nearest cache.
const ROWS: usize = 8192;

/// Puts [`StoredAggregate`] in the place of aggregates without groups over a [`StoredScan`].
#[derive(Debug)]
pub(crate) struct AggregateStored;

impl PhysicalOptimizerRule for AggregateStored {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            Ok(match StoredAggregate::of(&node) {
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
            let are_used = |inputs: &[Input], column: usize| inputs.iter().any(|input| input.uses(column));
            // What no later aggregate wants is forgotten.
            let is_forgotten = |column: &usize| !are_used(later, *column);
            input.forgotten = input.used().filter(is_forgotten).collect();
            if let Some(filter) = &mut input.filter {
                let is_decoded = |column: usize| {
                    input.columns.contains(&column) || are_used(before, column) || are_used(later, column)
                };
                filter.ask_storage_unless(is_decoded);
            }
        }
        let accumulators = aggregate.aggr_expr().iter().map(|expr| expr.create_accumulator());
        let mut task = Task {
            worker: scan.worker(partition, &context)?,
            inputs,
            accumulators: accumulators.collect::<Result<_>>()?,
        };
        let (mode, schema) = (*aggregate.mode(), self.schema());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let batch = async move {
            loop {
                let (step, back) = blocking_step(task, Task::step).await?;
                task = back;
                if matches!(step, Step::End) {
                    break;
                }
            }
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
    sum: Option<WholeSum>,
}

/// The sum of all rows of a column is what the aggregate is computed of.
struct WholeSum {
    /// Its place in the table's schema.
    column: usize,
    /// The aggregate's state: the sum, behind the count of rows where that is wanted, too.
    state: Vec<DataType>,
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
        let sum = match (&arguments[..], filter) {
            ([argument], None) => WholeSum::of(aggregate, argument, input, place)?,
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
        })
    }

    /// Places in the table's schema, in no order.
    fn used(&self) -> impl Iterator<Item = usize> {
        let of_filter = self.filter.iter().flat_map(Filter::columns);
        self.columns.iter().chain(of_filter).copied()
    }

    fn uses(&self, column: usize) -> bool {
        self.used().any(|used| used == column)
    }

    /// Lets the aggregate have the rows of a stripe that are left.
    fn update(&self, stripe: &mut Stripe<'_>, accumulator: &mut dyn Accumulator) -> Result<()> {
        if let Some(wanted) = &self.sum
            && let Some((rows, sum)) = stripe.sum(wanted.column)?
            && let Some(state) = wanted.state(rows, sum)
        {
            return accumulator.merge_batch(&state);
        }
        let passes = self.filter.as_ref().map(|filter| stripe.passes(filter)).transpose()?;
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
                accumulator.update_batch(&arguments.collect::<Result<Vec<_>>>()?)?;
            }
        }
        for column in &self.forgotten {
            stripe.forget(*column);
        }
        Ok(())
    }
}

impl WholeSum {
    /// What a sum or average wants of a column alone, whose type may have been made the float of 64 bits.
    fn of(
        aggregate: &AggregateFunctionExpr,
        argument: &Arc<dyn PhysicalExpr>,
        input: &SchemaRef,
        place: impl Fn(usize) -> usize,
    ) -> Result<Option<Self>> {
        let function: &dyn Any = aggregate.fun().inner().as_ref();
        if aggregate.is_distinct() || !function.is::<Avg>() && !function.is::<CheckedSum>() {
            return Ok(None);
        }
        let cast = argument.downcast_ref::<CastExpr>();
        let column = cast.map_or(argument, CastExpr::expr).downcast_ref::<Column>();
        let Some(column) = column else { return Ok(None) };
        let from = input.field(column.index()).data_type();
        let state: Vec<DataType> =
            aggregate.state_fields()?.iter().map(|field| field.data_type().clone()).collect();
        let (Some(total), true) = (state.last(), state.len() <= 2) else { return Ok(None) };
        let fits = match (cast.map(CastExpr::cast_type), from, total) {
            (Some(DataType::Float64), from, DataType::Float64) => from.is_integer() || from.is_floating(),
            (None, DataType::Float64, DataType::Float64) => true,
            (None, from, DataType::Int64) => from.is_signed_integer(),
            (None, from, DataType::UInt64) => from.is_unsigned_integer(),
            (
                None,
                DataType::Decimal128(_, scale),
                DataType::Decimal128(_, total) | DataType::Decimal256(_, total),
            ) => scale == total,
            (None, from, DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0)) => from.is_integer(),
            _ => false,
        };
        Ok(fits.then(|| Self { column: place(column.index()), state }))
    }

    /// The state of an aggregate that has seen so many rows with this sum; none if it has no place in that.
    fn state(&self, rows: u64, sum: Sum) -> Option<Vec<ArrayRef>> {
        #[expect(clippy::cast_precision_loss, reason = "that is what the aggregate is of")]
        let total: ArrayRef = match (self.state.last()?, sum) {
            (DataType::Float64, Sum::Float(sum)) => Arc::new(Float64Array::from(vec![sum])),
            (DataType::Float64, Sum::Integer(sum)) => Arc::new(Float64Array::from(vec![sum as f64])),
            (DataType::Int64, Sum::Integer(sum)) => {
                Arc::new(Int64Array::from(vec![i64::try_from(sum).ok()?]))
            }
            (DataType::UInt64, Sum::Integer(sum)) => {
                Arc::new(UInt64Array::from(vec![u64::try_from(sum).ok()?]))
            }
            (data_type @ DataType::Decimal128(..), Sum::Integer(sum)) => {
                Arc::new(Decimal128Array::from(vec![sum]).with_data_type(data_type.clone()))
            }
            (data_type @ DataType::Decimal256(..), Sum::Integer(sum)) => {
                let sum = i256::from_i128(sum);
                Arc::new(Decimal256Array::from(vec![sum]).with_data_type(data_type.clone()))
            }
            _ => return None,
        };
        let count = (self.state.len() == 2).then(|| Arc::new(UInt64Array::from(vec![rows])) as ArrayRef);
        Some(count.into_iter().chain([total]).collect())
    }
}

/// The work of a partition.
struct Task {
    worker: Worker,
    inputs: Vec<Input>,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl Task {
    /// Some stripes, for going to another thread and back takes as long as adding one up.
    fn step(&mut self) -> Result<Step<()>> {
        /// Whoever stops the query waits no longer than that.
        const TURN: Duration = Duration::from_millis(5);
        let (inputs, accumulators) = (&self.inputs, &mut self.accumulators);
        let started = Instant::now();
        loop {
            let step = self.worker.step(|stripe| {
                for (input, accumulator) in inputs.iter().zip(&mut *accumulators) {
                    input.update(stripe, &mut **accumulator)?;
                }
                Ok(())
            })?;
            self.worker.book(accumulators.iter().map(|accumulator| accumulator.size()).sum())?;
            if matches!(step, Step::End) || started.elapsed() > TURN {
                return Ok(step);
            }
        }
    }
}
