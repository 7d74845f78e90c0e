//! GROUP BY a key of 8 or 16 bits over a table on disk.
//!
//! Such keys need no hash table: each has its place in an array of states, which stays in the nearest caches
//! ([`keirin_kernels::group_small`]). The columns of a stripe go from storage to these arrays as soon as they are
//! decoded. What the partitions have is merged before it leaves: the partition that is done last gives all groups, and the
//! others none.

use std::fmt;
use std::sync::{Arc, Weak};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Int8Array, Int16Array, Int64Array, RecordBatch, UInt8Array,
    UInt16Array,
};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, AggregateOutputMode};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties,
    replace_children_if_necessary,
};
use futures::{StreamExt, stream};
use keirin_kernels::aggregate::CompactSum;
use keirin_kernels::group_small::{GroupSums, SmallKey, Value, Variant};
use keirin_kernels::{Bits, Level, Selection};

use super::aggregate::Summed;
use super::read::Stripe;
use super::scan::StoredScan;
use super::worker::{Step, Worker, blocking_step};
use crate::compile::fast_path;

/// Sums of so many columns are computed side by side: each has up to 6 MB of states.
const SUMS_MAX: usize = 16;

/// Puts [`StoredGroup`] in the place of aggregations by a small key over a [`StoredScan`].
#[derive(Debug)]
pub(crate) struct GroupStored;

impl PhysicalOptimizerRule for GroupStored {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(options) {
            return Ok(plan);
        }
        let changed = plan.transform_up(|node| {
            Ok(match StoredGroup::of(&node) {
                Some(stored) => Transformed::yes(Arc::new(stored) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &'static str {
        "group_stored"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// See the [module](self).
#[derive(Debug)]
struct StoredGroup {
    /// The [`AggregateExec`] in whose place it stands, which is over a [`StoredScan`].
    plan: Arc<dyn ExecutionPlan>,
    work: Arc<Work>,
    metrics: ExecutionPlanMetricsSet,
}

/// What is to be summed by which key.
#[derive(Debug)]
struct Work {
    /// Places in the schema of the table.
    key: usize,
    columns: Vec<usize>,
    key_type: DataType,
    width: Width,
    aggregates: Vec<Wanted>,
    /// The sum that counts all rows; that of the keys themselves if it does not say.
    counting: Option<usize>,
}

/// The numbers that keys become.
#[derive(Clone, Copy, Debug)]
enum Width {
    /// The bits of a byte.
    Byte,
    /// Those of a byte, or, for null, the number behind the last.
    ByteOrNull,
    /// The bits of two bytes.
    Bytes,
}

impl Width {
    /// What null is.
    const NULL: u16 = 1 << 8;

    fn of(data_type: &DataType, has_nulls: bool) -> Option<Self> {
        match (data_type, has_nulls) {
            (DataType::Int8 | DataType::UInt8, false) => Some(Self::Byte),
            (DataType::Int8 | DataType::UInt8, true) => Some(Self::ByteOrNull),
            (DataType::Int16 | DataType::UInt16, false) => Some(Self::Bytes),
            _ => None,
        }
    }
}

/// What an aggregate is of the count and sum of a column.
#[derive(Debug)]
enum Wanted {
    /// The count of rows.
    Rows,
    /// The count of values of one of the columns.
    Count(usize),
    /// What sums and averages are computed of.
    Sum(usize, Summed),
}

fn is_summed(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Float32 | DataType::Float64)
}

impl StoredGroup {
    /// What can stand in the place of `plan`.
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let aggregate = plan.downcast_ref::<AggregateExec>()?;
        let scan = aggregate.input().downcast_ref::<StoredScan>()?;
        let is_over_rows = matches!(
            aggregate.mode(),
            AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
        );
        let is_plain = aggregate.group_expr().is_single()
            && *aggregate.input_order_mode() == InputOrderMode::Linear
            && aggregate.limit_options().is_none()
            && aggregate.filter_expr().iter().all(Option::is_none)
            && aggregate.aggr_expr().iter().all(|expr| expr.order_bys().is_empty() && !expr.is_distinct());
        if !is_over_rows || !is_plain {
            return None;
        }
        let work = Arc::new(Work::of(aggregate, scan)?);
        Some(Self { plan: plan.clone(), work, metrics: ExecutionPlanMetricsSet::new() })
    }

    fn aggregate(&self) -> &AggregateExec {
        self.plan.downcast_ref().expect("it was one when this was made")
    }

    fn scan(&self) -> &StoredScan {
        self.aggregate().input().downcast_ref().expect("it was one when this was made")
    }
}

impl Work {
    fn of(aggregate: &AggregateExec, scan: &StoredScan) -> Option<Self> {
        let input = scan.schema();
        let [(key, _)] = aggregate.group_expr().expr() else { return None };
        let key = key.downcast_ref::<Column>()?.index();
        let key_field = input.field(key);
        let mut columns = Vec::new();
        let mut sum_of = |column: usize| {
            let place = scan.projection()[column];
            let known = columns.iter().position(|known| *known == place);
            known.unwrap_or_else(|| {
                columns.push(place);
                columns.len() - 1
            })
        };
        let wanted = aggregate.aggr_expr().iter().map(|aggregate| {
            let arguments = aggregate.expressions();
            let [argument] = &arguments[..] else { return None };
            if aggregate.fun().name() == "count" {
                if argument.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null()) {
                    return Some(Wanted::Rows);
                }
                let column = argument.downcast_ref::<Column>()?.index();
                let field = input.field(column);
                return match scan.may_have_nulls(column) {
                    false => Some(Wanted::Rows),
                    true if is_summed(field.data_type()) => Some(Wanted::Count(sum_of(column))),
                    true => None,
                };
            }
            let summed = Summed::of(aggregate, argument, &input, Some).ok()??;
            let column = summed.column()?;
            is_summed(input.field(column).data_type()).then(|| Wanted::Sum(sum_of(column), summed))
        });
        let aggregates = wanted.collect::<Option<Vec<_>>>()?;
        let may_have_nulls = |place: &usize| {
            let column = scan.projection().iter().position(|projected| projected == place);
            column.is_none_or(|column| scan.may_have_nulls(column))
        };
        Some(Self {
            key: scan.projection()[key],
            key_type: key_field.data_type().clone(),
            width: Width::of(key_field.data_type(), scan.may_have_nulls(key))?,
            aggregates,
            counting: columns.iter().position(|place| !may_have_nulls(place)),
            columns,
        })
        .filter(|work| work.columns.len() <= SUMS_MAX)
    }

    /// Nothing summed yet; the counts of rows come last if no column has them.
    fn sums(&self) -> Vec<GroupSums> {
        let count = self.columns.len() + usize::from(self.counting.is_none());
        let sums = || match self.width {
            Width::Byte => GroupSums::new::<u8>(),
            Width::ByteOrNull | Width::Bytes => GroupSums::new::<u16>(),
        };
        (0..count).map(|_| sums()).collect()
    }

    /// Adds the rows of a stripe.
    fn add(&self, stripe: &mut Stripe<'_>, sums: &mut [GroupSums]) -> Result<()> {
        let keys = stripe.column(self.key)?;
        let data = keys.to_data();
        let bits = data.buffers()[0].as_slice();
        let rows = data.offset()..data.offset() + data.len();
        match self.width {
            Width::Byte => self.add_by(&bits[rows], stripe, sums),
            Width::Bytes => self.add_by(&data.buffers()[0].typed_data::<u16>()[rows], stripe, sums),
            Width::ByteOrNull => {
                let mut wide: Vec<u16> = bits[rows].iter().map(|key| u16::from(*key)).collect();
                if keys.null_count() > 0 {
                    let nulls = wide.iter_mut().enumerate().filter(|(row, _)| keys.is_null(*row));
                    nulls.for_each(|(_, key)| *key = Width::NULL);
                }
                self.add_by(&wide, stripe, sums)
            }
        }
    }

    fn add_by<K: SmallKey + Value>(
        &self,
        keys: &[K],
        stripe: &mut Stripe<'_>,
        sums: &mut [GroupSums],
    ) -> Result<()> {
        let variant = Variant::suggest(keys);
        for (place, sums) in self.columns.iter().zip(&mut *sums) {
            let column = stripe.column(*place)?;
            macro_rules! add {
                ($type:ty) => {
                    add::<K, $type>(sums, variant, keys, &column)
                };
            }
            match column.data_type() {
                DataType::Int8 => add!(Int8Type),
                DataType::Int16 => add!(Int16Type),
                DataType::Int32 => add!(Int32Type),
                DataType::Int64 => add!(Int64Type),
                DataType::UInt8 => add!(UInt8Type),
                DataType::UInt16 => add!(UInt16Type),
                DataType::UInt32 => add!(UInt32Type),
                DataType::UInt64 => add!(UInt64Type),
                DataType::Float32 => add!(Float32Type),
                DataType::Float64 => add!(Float64Type),
                other => return internal_err!("sums of {other} by small keys"),
            }
        }
        if self.counting.is_none() {
            let counts = sums.last_mut().expect("it is there to count");
            counts.add(Level::best(), variant, keys, keys, None, Selection::All);
        }
        Ok(())
    }

    /// The groups: their keys, and the states of their aggregates.
    fn states(&self, mut sums: Vec<GroupSums>) -> Result<Vec<ArrayRef>> {
        let counting = self.counting.unwrap_or(self.columns.len());
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        sums[counting].for_each(|key, sum| {
            keys.push(key);
            rows.push(sum.count);
        });
        let mut columns = vec![self.keys(&keys)?];
        for wanted in &self.aggregates {
            match wanted {
                Wanted::Rows => columns.push(counts(&rows)),
                Wanted::Count(column) => {
                    let mut found = vec![0; keys.len()];
                    let mut groups = keys.iter().enumerate();
                    sums[*column].for_each(|key, sum| {
                        let group = groups.find(|(_, group)| **group == key);
                        found[group.expect("each value is in a row").0] = sum.count;
                    });
                    columns.push(counts(&found));
                }
                Wanted::Sum(column, summed) => {
                    let mut totals = vec![None; keys.len()];
                    let mut groups = keys.iter().enumerate();
                    sums[*column].for_each(|key, sum| {
                        let group = groups.find(|(_, group)| **group == key);
                        let group = group.expect("each value is in a row").0;
                        let floats =
                            if summed.is_float() { sum.exact().into() } else { CompactSum::default() };
                        totals[group] = Some((sum.count, sum.integer(), floats));
                    });
                    columns.extend(summed.states(&totals)?);
                }
            }
        }
        Ok(columns)
    }

    fn keys(&self, keys: &[usize]) -> Result<ArrayRef> {
        let narrow = |key: &usize| u16::try_from(*key).expect("keys have 16 bits");
        let keys = keys.iter().map(narrow);
        let bytes = |key: u16| u8::try_from(key).ok();
        Ok(match (self.width, &self.key_type) {
            (Width::Bytes, DataType::UInt16) => Arc::new(keys.collect::<UInt16Array>()),
            (Width::Bytes, _) => {
                let keys: Vec<i16> = keys.map(u16::cast_signed).collect();
                Arc::new(Int16Array::from(keys))
            }
            (_, DataType::UInt8) => Arc::new(keys.map(bytes).collect::<UInt8Array>()),
            (_, _) => {
                let keys = keys.map(|key| bytes(key).map(u8::cast_signed));
                Arc::new(keys.collect::<Int8Array>())
            }
        })
    }
}

/// Adds the values of a column to the sums of the keys beside them.
fn add<K: SmallKey, T: ArrowPrimitiveType>(
    sums: &mut GroupSums,
    variant: Variant,
    keys: &[K],
    column: &ArrayRef,
) where
    T::Native: Value,
{
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let validity = nulls.map(|nulls| Bits::new(nulls.validity(), nulls.offset(), nulls.len()));
    let values = column.as_primitive::<T>().values();
    sums.add(Level::best(), variant, keys, values, validity, Selection::All);
}

pub(super) fn counts(counts: &[u64]) -> ArrayRef {
    Arc::new(counts.iter().map(|count| i64::try_from(*count).ok()).collect::<Int64Array>())
}

impl DisplayAs for StoredGroup {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregate = self.aggregate();
        let keys: Vec<&str> = aggregate.group_expr().expr().iter().map(|(_, name)| name.as_str()).collect();
        let names: Vec<&str> = aggregate.aggr_expr().iter().map(|expr| expr.name()).collect();
        let (mode, keys, names) = (aggregate.mode(), keys.join(", "), names.join(", "));
        write!(f, "StoredGroup: mode={mode:?}, gby=[{keys}], aggr=[{names}]")
    }
}

impl ExecutionPlan for StoredGroup {
    fn name(&self) -> &'static str {
        "StoredGroup"
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

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.plan.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.plan.statistics_from_inputs(inputs, args)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let aggregate = self.aggregate().clone();
        let task = Task {
            worker: self.scan().worker(partition, &context)?,
            sums: self.work.sums(),
            work: self.work.clone(),
        };
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        // Whoever stops the query drops it.
        let wanted = Arc::new(());
        let watched = Arc::downgrade(&wanted);
        let batch = async move {
            let (_, task) = blocking_step(task, move |task| task.run(&watched)).await?;
            drop(wanted);
            let batch = task.finish(&aggregate)?;
            batch.iter().for_each(|batch| baseline.record_output(batch.num_rows()));
            Ok(batch)
        };
        let batches = stream::once(batch).filter_map(|batch| std::future::ready(batch.transpose())).boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), batches))))
    }
}

/// The work of a partition.
struct Task {
    worker: Worker,
    work: Arc<Work>,
    sums: Vec<GroupSums>,
}

impl Task {
    /// All stripes that other partitions leave, as long as somebody wants that.
    fn run(&mut self, wanted: &Weak<()>) -> Result<Step<()>> {
        while wanted.strong_count() > 0 {
            let (work, sums) = (&self.work, &mut self.sums);
            let step = self
                .worker
                .step(|stripes| stripes.iter_mut().try_for_each(|stripe| work.add(stripe, sums)))?;
            if matches!(step, Step::End) {
                break;
            }
        }
        Ok(Step::End)
    }

    /// The groups of all partitions, if this one is the last.
    fn finish(self, aggregate: &AggregateExec) -> Result<Option<RecordBatch>> {
        let Self { worker, work, sums } = self;
        let all = worker.hand_in(sums, |all, mut own| {
            all.iter_mut().zip(&mut own).for_each(|(all, own)| all.merge(own));
        });
        let Some(all) = all else { return Ok(None) };
        let mut columns = work.states(all)?;
        if aggregate.mode().output_mode() == AggregateOutputMode::Final {
            columns = finished(columns, aggregate)?;
        }
        let batch = RecordBatch::try_new(aggregate.schema(), columns)?;
        Ok((batch.num_rows() > 0).then_some(batch))
    }
}

/// What aggregates are whose states stand behind their keys.
fn finished(columns: Vec<ArrayRef>, aggregate: &AggregateExec) -> Result<Vec<ArrayRef>> {
    let mut columns = columns.into_iter();
    let mut finished: Vec<ArrayRef> = columns.by_ref().take(1).collect();
    let rows: Vec<usize> = (0..finished[0].len()).collect();
    for expression in aggregate.aggr_expr() {
        let mut groups = expression.create_groups_accumulator()?;
        let states: Vec<ArrayRef> = columns.by_ref().take(expression.state_fields()?.len()).collect();
        groups.merge_batch(&states, &rows, rows.len())?;
        finished.push(groups.evaluate(EmitTo::All)?);
    }
    Ok(finished)
}
