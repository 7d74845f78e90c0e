//! Joins by equal keys on our own tables, and by ranges on rows in order ([`ranges`]).
//!
//! [`JoinRows`] puts a [`JoinExec`] in the place of each of DataFusion's hash joins whose keys we number, and of nested
//! loops whose conditions bound rows of a side. It takes all
//! partitions of both sides: threads collect the build side and fill one table together, and each partition of the
//! probe side looks its rows up there. So the exchanges go that sent rows of equal keys to the same partition, unless
//! something above relies on that ([`run`]).
//!
//! Before the probe side is read, it learns the bounds of the build side's keys and, exactly or nearly, which there are
//! ([`filter`]): scans leave out stripes and drop rows by that.
//!
//! Before that, [`JoinOrder`] looks for a cheaper order of joins, and [`Sides`] for the side to build.
//!
//! Without memory for its build side a join spills ([`spilled`]), also where its rows must stay in order ([`ordered_runs`]).

mod build;
mod filter;
mod keys;
mod narrowed;
mod order;
mod ordered_runs;
mod pieces;
mod ranges;
mod run;
mod sides;
mod spilled;

use std::fmt;
use std::sync::{Arc, Weak};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, JoinType, NullEquality, Statistics, assert_or_internal_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
    replace_children_if_necessary,
};
use futures::{StreamExt, TryStreamExt, stream};
use keirin_operators::join::Kind;
use keirin_operators::ordered::Wanted;
use parking_lot::Mutex;

pub(super) use self::build::evaluate;
use self::filter::is_used;
pub(crate) use self::filter::{Filters, with_bounds, with_own_state};
use self::keys::JoinKeys;
use self::narrowed::{narrowed, of_probe_side};
pub(crate) use self::order::JoinOrder;
use self::ranges::{ByRanges, Ranges, has_numbers};
use self::run::{KeyFilter, Shared, Work};
pub(super) use self::run::{all, feed, partition_count};
pub(crate) use self::sides::Sides;
use self::sides::{row_count, rows_of_key};
use self::spilled::Spilling;
use crate::compile::fast_path;
use crate::compile::grouping::{self, may_be_null};
use crate::compile::subplans::SharedExec;
use crate::types::sql_type_name;

/// With so many build rows nested loops are faster than ranges.
const NESTED_ROWS: usize = 8;
/// With so many build rows of a key a search in order is faster than a look at all of them.
const KEY_ROWS: usize = 32;
/// So many build rows are given once by marks, even where each probe row marks all of them.
const MARKED_ROWS: usize = 1000;

/// Puts [`JoinExec`] in the place of hash joins. It runs while groups are DataFusion's.
#[derive(Debug)]
pub(crate) struct JoinRows;

impl PhysicalOptimizerRule for JoinRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if fast_path::is_on(options) { replaced(&plan, false) } else { Ok(plan) }
    }

    fn name(&self) -> &'static str {
        "join_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `plan` with joins of ours, unless something above relies on partitions that would go.
fn replaced(plan: &Arc<dyn ExecutionPlan>, is_relied_on: bool) -> Result<Arc<dyn ExecutionPlan>> {
    if is_relied_on && let Some(sent) = sent(plan)? {
        return Ok(sent);
    }
    if let Some(join) = JoinExec::of(plan, is_relied_on)? {
        let join = join.with_key_filters()?;
        let (left, right) = (replaced(&join.left, false)?, replaced(&join.right, is_relied_on)?);
        let mut join = join.over(left, right);
        join.left = of_probe_side(&join)?;
        return Ok(Arc::new(join));
    }
    let plan = match in_two_steps(plan)? {
        Some(plan) => plan,
        // What nobody relies on need not be of the same partitions.
        None if plan.is::<InterleaveExec>() && !is_relied_on => {
            UnionExec::try_new(plan.children().into_iter().cloned().collect())?
        }
        None => plan.clone(),
    };
    let ends = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<SharedExec>();
    let requirements = plan.input_distribution_requirements();
    let children = plan.children().into_iter().enumerate().map(|(child, input)| {
        let asks = !matches!(
            requirements.child_distribution(child),
            None | Some(Distribution::UnspecifiedDistribution | Distribution::SinglePartition)
        );
        replaced(input, asks || is_relied_on && !ends)
    });
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(plan, children)
}

/// A join of ours in the place of one that gives rows of its build side, which are in partitions there: here rows are sent to
/// them afterwards.
fn sent(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let partitions = &plan.properties().partitioning;
    let is_sent =
        plan.downcast_ref::<HashJoinExec>().is_some_and(|join| gives_unpaired(kind(*join.join_type())))
            && (matches!(partitions, Partitioning::Hash(..)) || partitions.partition_count() == 1)
            && plan.properties().output_ordering().is_none()
            && JoinExec::of(plan, false)?.is_some();
    if !is_sent {
        return Ok(None);
    }
    let join = replaced(plan, false)?;
    Ok(Some(match partitions.partition_count() {
        1 if join.properties().partitioning.partition_count() == 1 => join,
        1 => Arc::new(CoalescePartitionsExec::new(join)),
        _ => Arc::new(RepartitionExec::try_new(join, partitions.clone())?),
    }))
}

/// Whether a join gives rows of its build side by themselves.
fn gives_unpaired(kind: Kind) -> bool {
    kind.is_of_build_rows() || matches!(kind, Kind::Left | Kind::Full)
}

/// Groups that rely on the partitions of a join, such that they do not: groups of each partition, then an exchange of them.
fn in_two_steps(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(None) };
    if *aggregate.mode() != AggregateMode::SinglePartitioned || !has_partitioned_join(aggregate.input()) {
        return Ok(None);
    }
    grouping::in_two_steps(aggregate, |groups, keys| {
        let partitions = plan.properties().partitioning.partition_count();
        Ok(Arc::new(RepartitionExec::try_new(groups, Partitioning::Hash(keys, partitions))?))
    })
}

/// Whether the partitions of `plan` are those of a join that we would take, if it may be.
fn has_partitioned_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return *join.partition_mode() == PartitionMode::Partitioned
            && JoinExec::by_keys(plan, join, false).is_some();
    }
    let ends = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<SharedExec>();
    match plan.children()[..] {
        [input] if !ends => has_partitioned_join(input),
        _ => false,
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct JoinExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    work: Arc<Work>,
    /// How pairs are found, for people.
    on: String,
    join_type: JoinType,
    /// The number of rows after which a partition may end.
    fetch: Option<usize>,
    /// Whether partitions are those of the join in whose place it stands, as they are those of the probe side.
    keeps_partitions: bool,
    properties: Arc<PlanProperties>,
    runs: Mutex<Runs>,
    metrics: ExecutionPlanMetricsSet,
}

/// What ASOF JOIN asks.
pub(crate) struct Nearest {
    /// Pairs that are equal, of the left and the right side.
    pub(crate) on: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    pub(crate) left_key: Arc<dyn PhysicalExpr>,
    /// How the keys compare.
    pub(crate) op: Operator,
    pub(crate) right_key: Arc<dyn PhysicalExpr>,
    /// What else is true of pairs.
    pub(crate) filter: Option<JoinFilter>,
    /// Whether left rows without a pair are given.
    pub(crate) is_left: bool,
}

#[derive(Debug, Default)]
struct Runs {
    /// The one of which not all partitions were begun.
    current: Option<Run>,
    /// What the partitions of the last one share that was begun, while somebody needs it.
    last: Option<Weak<dyn Shared>>,
}

/// A run of the plan: which partitions were begun, and what they share.
#[derive(Debug)]
struct Run {
    begun: Vec<bool>,
    shared: Arc<dyn Shared>,
}

fn kind(join_type: JoinType) -> Kind {
    match join_type {
        JoinType::Inner => Kind::Inner,
        JoinType::Left => Kind::Left,
        JoinType::Right => Kind::Right,
        JoinType::Full => Kind::Full,
        JoinType::LeftSemi => Kind::LeftSemi,
        JoinType::LeftAnti => Kind::LeftAnti,
        JoinType::LeftMark => Kind::LeftMark,
        JoinType::RightSemi => Kind::RightSemi,
        JoinType::RightAnti => Kind::RightAnti,
        JoinType::RightMark => Kind::RightMark,
    }
}

/// The ranges by which the build rows of a key are looked up, where they are so many that each probe row should not
/// meet all of them.
fn of_many_rows(
    work: &Work,
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
) -> Option<ByRanges> {
    let filter = work.filter.as_ref().filter(|_| !work.nulls_are_equal && !work.kind.is_of_build_rows())?;
    if rows_of_key(left, &work.left_keys)? < KEY_ROWS {
        return None;
    }
    let found = ByRanges::of(filter, JoinSide::Left, [&left.schema(), &right.schema()]).ok()?;
    found.filter(|found| !found.ranges.is_fallible)
}

impl JoinExec {
    /// What can stand in the place of `plan`, on whose partitions something above may rely.
    fn of(plan: &Arc<dyn ExecutionPlan>, is_relied_on: bool) -> Result<Option<Self>> {
        match (plan.downcast_ref::<HashJoinExec>(), plan.downcast_ref::<NestedLoopJoinExec>()) {
            (Some(join), _) => Ok(Self::by_keys(plan, join, is_relied_on)),
            (_, Some(join)) => Self::by_ranges(plan, join, is_relied_on),
            _ => Ok(None),
        }
    }

    fn by_keys(plan: &Arc<dyn ExecutionPlan>, join: &HashJoinExec, is_relied_on: bool) -> Option<Self> {
        let kind = kind(*join.join_type());
        let is_bounded =
            [join.left(), join.right()].iter().all(|side| !side.properties().boundedness.is_unbounded());
        let is_partitioned = *join.partition_mode() == PartitionMode::Partitioned;
        if join.null_aware || !is_bounded || is_relied_on && gives_unpaired(kind) {
            return None;
        }
        let nulls_are_equal = join.null_equality() == NullEquality::NullEqualsNull;
        let (left, right) = (whole(join.left()), join.right());
        let right = if is_partitioned && !is_relied_on { unsent(right) } else { right };
        let types = join.on().iter().map(|(left_key, right_key)| {
            let data_type = left_key.data_type(&left.schema()).ok()?;
            let is_same = right_key.data_type(&right.schema()).ok()? == data_type;
            let is_nullable = may_be_null(left_key, left) || may_be_null(right_key, right);
            is_same.then_some((data_type, is_nullable))
        });
        let keys = JoinKeys::new(types.collect::<Option<_>>()?, nulls_are_equal)?;
        let projection = join.projection.as_deref();
        let output = output([&join.left().schema(), &join.right().schema()], join.join_type(), projection);
        let dynamic_filter = join.dynamic_expressions_produced().into_iter().next();
        let dynamic_filter =
            dynamic_filter.and_then(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
        let (left_keys, right_keys) = join.on().iter().cloned().unzip();
        let mut work = Work {
            kind,
            keys,
            nulls_are_equal,
            left_keys,
            right_keys,
            ranges: None,
            filter: join.filter().cloned(),
            dynamic_filter,
            key_filters: Vec::new(),
            output,
            schema: join.schema(),
        };
        let mut on: Vec<String> =
            join.on().iter().map(|(left, right)| format!("({left}, {right})")).collect();
        if let Some(by_ranges) = of_many_rows(&work, left, right) {
            let expressions = by_ranges.build_keys.iter().chain(&by_ranges.bounds);
            let expressions: Vec<String> = expressions.map(ToString::to_string).collect();
            on.push(format!("ranges of {}", expressions.join(", ")));
            let types = work.left_keys.iter().map(|key| Some((key.data_type(&left.schema()).ok()?, true)));
            work.keys = JoinKeys::of_words(types.collect::<Option<_>>()?)?;
            work.left_keys.extend(by_ranges.build_keys);
            work.right_keys.extend(by_ranges.bounds);
            (work.ranges, work.filter) = (Some(by_ranges.ranges), by_ranges.filter);
            work.dynamic_filter = None;
        }
        let mut made = Self {
            left: left.clone(),
            right: right.clone(),
            work: Arc::new(work),
            on: on.join(", "),
            join_type: *join.join_type(),
            fetch: join.fetch(),
            keeps_partitions: is_relied_on,
            properties: plan.properties().clone(),
            runs: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        };
        made.properties = made.properties_over(&made.right);
        Some(made)
    }

    /// In the place of nested loops, where conditions bound the rows of a side: the left one, if both can be.
    fn by_ranges(
        plan: &Arc<dyn ExecutionPlan>,
        join: &NestedLoopJoinExec,
        is_relied_on: bool,
    ) -> Result<Option<Self>> {
        let (Some(filter), [left, right]) = (join.filter(), [join.left(), join.right()]) else {
            return Ok(None);
        };
        let schemas = [left.schema(), right.schema()];
        let is_bounded = [left, right].iter().all(|side| !side.properties().boundedness.is_unbounded());
        let mut kind = kind(*join.join_type());
        let of_left = || ByRanges::of(filter, JoinSide::Left, [&schemas[0], &schemas[1]]);
        let of_right = || ByRanges::of(filter, JoinSide::Right, [&schemas[1], &schemas[0]]);
        let left_rows = match row_count(left) {
            Precision::Exact(rows) => rows,
            _ => usize::MAX,
        };
        if left_rows <= NESTED_ROWS {
            return Ok(None);
        }
        // Of a row that is given once it is enough to know that it reaches one; but the other side may be large.
        let is_asked = kind.is_of_build_rows() && left_rows > MARKED_ROWS;
        let mut found = if is_asked { None } else { of_left()? };
        let is_swapped = found.is_none();
        if is_swapped {
            found = of_right()?;
            kind = kind.swapped();
        }
        let (Some(by_ranges), true) =
            (found, is_bounded && !(is_relied_on && (gives_unpaired(kind) || is_swapped)))
        else {
            return Ok(None);
        };
        let projection = join.projection().as_deref();
        let mut output = output([&schemas[0], &schemas[1]], join.join_type(), projection);
        let mut filter = by_ranges.filter;
        if is_swapped {
            output.iter_mut().for_each(|column| column.side = column.side.negate());
            filter = filter.map(|filter| JoinFilter::swap(&filter));
        }
        let (build, probe) = if is_swapped { (right, left) } else { (left, right) };
        let on: Vec<String> =
            by_ranges.build_keys.iter().chain(&by_ranges.bounds).map(ToString::to_string).collect();
        let work = Work {
            kind,
            keys: JoinKeys::of_words(Vec::new()).expect("there are none"),
            nulls_are_equal: false,
            left_keys: by_ranges.build_keys,
            right_keys: by_ranges.bounds,
            ranges: Some(by_ranges.ranges),
            filter,
            dynamic_filter: None,
            key_filters: Vec::new(),
            output,
            schema: join.schema(),
        };
        let mut made = Self {
            left: whole(build).clone(),
            right: if is_swapped { whole(probe).clone() } else { probe.clone() },
            work: Arc::new(work),
            on: format!("ranges of {}", on.join(", ")),
            join_type: if is_swapped { join.join_type().swap() } else { *join.join_type() },
            fetch: None,
            keeps_partitions: is_relied_on,
            properties: plan.properties().clone(),
            runs: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        };
        made.properties = made.properties_over(&made.right);
        Ok(Some(made))
    }

    /// The join of each row of `left` with the row of `right` that is nearest.
    ///
    /// # Errors
    /// If values of a type are compared that have no numbers of 64 bits.
    pub(crate) fn nearest(
        left: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
        nearest: Nearest,
        schema: SchemaRef,
    ) -> Result<Self> {
        let data_type = nearest.left_key.data_type(&left.schema())?;
        let is_compared =
            has_numbers(&data_type) == Some(true) || matches!(data_type, DataType::Decimal128(..));
        if !is_compared || nearest.right_key.data_type(&right.schema())? != data_type {
            return plan_err!(
                "ASOF JOIN compares numbers, dates and times, and not values of type {}",
                sql_type_name(&data_type)
            );
        }
        let types = nearest.on.iter().map(|(left_key, _)| Ok((left_key.data_type(&left.schema())?, true)));
        let types = types.collect::<Result<Vec<_>>>()?;
        let Some(keys) = JoinKeys::of_words(types.clone()) else {
            let names: Vec<String> = types.iter().map(|(data_type, _)| sql_type_name(data_type)).collect();
            return plan_err!("ASOF JOIN has no keys of types {}", names.join(", "));
        };
        let join_type = if nearest.is_left { JoinType::Left } else { JoinType::Inner };
        let mut output = output([&left.schema(), &right.schema()], &join_type, None);
        output.iter_mut().for_each(|column| column.side = column.side.negate());
        let on = nearest.on.iter().map(|(left, right)| format!("({left}, {right})"));
        let compared = format!("{} {} {}", nearest.left_key, nearest.op, nearest.right_key);
        let on: Vec<String> = on.chain([compared]).collect();
        let (mut right_keys, mut left_keys): (Vec<_>, Vec<_>) = nearest.on.into_iter().unzip();
        left_keys.push(nearest.right_key);
        right_keys.push(nearest.left_key);
        let work = Work {
            kind: kind(join_type).swapped(),
            keys,
            nulls_are_equal: false,
            left_keys,
            right_keys,
            ranges: Some(Ranges::nearest(nearest.op)),
            filter: nearest.filter.map(|filter| JoinFilter::swap(&filter)),
            dynamic_filter: None,
            key_filters: Vec::new(),
            output,
            schema: schema.clone(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(left.properties().partitioning.partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            left: right.clone(),
            right: left.clone(),
            work: Arc::new(work),
            on: on.join(", "),
            join_type: join_type.swap(),
            fetch: None,
            keeps_partitions: false,
            properties: Arc::new(properties),
            runs: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn properties_over(&self, right: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        let partitions = right.properties().partitioning.partition_count();
        if self.keeps_partitions && self.properties.partitioning.partition_count() == partitions {
            return self.properties.clone();
        }
        let properties = self.properties.as_ref().clone();
        Arc::new(properties.with_partitioning(Partitioning::UnknownPartitioning(partitions)))
    }

    fn over(&self, left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            properties: self.properties_over(&right),
            left,
            right,
            work: self.work.clone(),
            on: self.on.clone(),
            join_type: self.join_type,
            fetch: self.fetch,
            keeps_partitions: self.keeps_partitions,
            runs: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same, which filters scans by single keys where the filter by all of them has reached none.
    fn with_key_filters(mut self) -> Result<Self> {
        let work = &self.work;
        let is_wanted = match &work.dynamic_filter {
            Some(filter) => {
                work.right_keys.len() > 1 && !work.nulls_are_equal && !is_used(&self.right, filter)?
            }
            None => false,
        };
        let (mut right, mut key_filters) = (self.right.clone(), Vec::new());
        for (place, key) in work.right_keys.iter().enumerate().filter(|_| is_wanted) {
            let (Some(column), data_type) = (key.downcast_ref::<Column>(), key.data_type(&right.schema())?)
            else {
                continue;
            };
            let Some(form) = JoinKeys::new(vec![(data_type, false)], false) else { continue };
            let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![key.clone()], lit(true)));
            if let Some(filtered) = narrowed(&right, column.index(), &filter)? {
                right = filtered;
                key_filters.push(KeyFilter { place, form, filter });
            }
        }
        if !key_filters.is_empty() {
            self.work = Arc::new(Work { key_filters, ..work.as_ref().clone() });
            self.right = right;
        }
        Ok(self)
    }

    /// The filters by which it narrows scans.
    fn filters(&self) -> impl Iterator<Item = &Arc<DynamicFilterPhysicalExpr>> {
        let key_filters = self.work.key_filters.iter().map(|key| &key.filter);
        self.work.dynamic_filter.iter().chain(key_filters)
    }

    /// The same with other filters in the place of its own.
    fn with_filters(
        &self,
        other: impl Fn(&Arc<DynamicFilterPhysicalExpr>) -> Arc<DynamicFilterPhysicalExpr>,
    ) -> Self {
        let mut work = self.work.as_ref().clone();
        work.dynamic_filter = work.dynamic_filter.as_ref().map(&other);
        work.key_filters.iter_mut().for_each(|key| key.filter = other(&key.filter));
        Self { work: Arc::new(work), ..self.over(self.left.clone(), self.right.clone()) }
    }

    /// A run of which no partition was begun.
    fn new_run(&self, context: &Arc<TaskContext>) -> Run {
        let is_in_order = self.keeps_partitions || self.properties.output_ordering().is_some();
        let spilling = Spilling::of(&self.work, &self.left, is_in_order, &self.metrics, context);
        Run {
            begun: vec![false; self.properties.partitioning.partition_count()],
            shared: run::begin(&self.work, &self.left, &self.right, context, spilling),
        }
    }

    /// What the partitions of the run share that is under way, or of the first one, before one is begun; `None` if the run
    /// is over, of which nothing is to be waited for.
    fn ahead(&self, context: &Arc<TaskContext>) -> Option<Arc<dyn Shared>> {
        let mut runs = self.runs.lock();
        if runs.current.is_none()
            && let Some(last) = &runs.last
        {
            return last.upgrade();
        }
        Some(runs.current.get_or_insert_with(|| self.new_run(context)).shared.clone())
    }

    /// What the partitions of a run share; a partition that was begun before begins another run.
    fn shared(&self, partition: usize, context: &Arc<TaskContext>) -> Arc<dyn Shared> {
        let mut runs = self.runs.lock();
        let run = runs.current.take().filter(|run| !run.begun[partition]);
        let mut run = run.unwrap_or_else(|| self.new_run(context));
        run.begun[partition] = true;
        let shared = run.shared.clone();
        runs.last = Some(Arc::downgrade(&shared));
        // When all were begun nobody else asks, and the plan must not keep alive what the run is done with.
        runs.current = (!run.begun.iter().all(|begun| *begun)).then_some(run);
        shared
    }
}

/// The columns of the answer of a join, by side.
fn output(
    [left, right]: [&SchemaRef; 2],
    join_type: &JoinType,
    projection: Option<&[usize]>,
) -> Vec<ColumnIndex> {
    let (_, columns) = build_join_schema(left, right, join_type);
    match projection {
        Some(projection) => projection.iter().map(|column| columns[*column].clone()).collect(),
        None => columns,
    }
}

/// The build side without what brings its rows to certain partitions.
fn whole(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    let is_sent =
        plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>() && plan.fetch().is_none();
    if is_sent { whole(plan.children()[0]) } else { plan }
}

/// The probe side without an exchange, unless that gives work to more threads.
fn unsent(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    let Some(exchange) = plan.downcast_ref::<RepartitionExec>() else { return plan };
    let count = |plan: &Arc<dyn ExecutionPlan>| plan.properties().partitioning.partition_count();
    let is_spread = count(exchange.input()) >= count(plan);
    let is_by_hash = matches!(exchange.partitioning(), Partitioning::Hash(..));
    if is_by_hash && is_spread { exchange.input() } else { plan }
}

impl DisplayAs for JoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinExec: join_type={}, on=[{}]", self.join_type, self.on)?;
        if let Some(filter) = &self.work.filter {
            write!(f, ", filter={}", filter.expression())?;
        }
        let columns: Vec<&str> =
            self.work.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, ", columns=[{}]", columns.join(", "))?;
        match self.fetch {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for JoinExec {
    fn name(&self) -> &'static str {
        "JoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        use JoinType::{Inner, Right, RightAnti, RightMark, RightSemi};
        let is_kept = matches!(self.join_type, Inner | Right | RightAnti | RightSemi | RightMark);
        // The nearest rows of a batch are found one after the other.
        let gives_all = self.work.ranges.as_ref().is_none_or(|ranges| ranges.wanted == Wanted::All);
        vec![false, is_kept && gives_all]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let work = &self.work;
        let keys = work.left_keys.iter().chain(&work.right_keys);
        for expression in keys.chain(work.filter.iter().map(|filter| filter.expression())) {
            if visit(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.filters().map(|filter| filter.clone() as Arc<dyn PhysicalExpr>).collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        assert_or_internal_err!(children.len() == 2, "a join has two sides");
        let right = children.swap_remove(1);
        Ok(Arc::new(self.over(children.swap_remove(0), right)))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(self.left.clone(), self.right.clone())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::Skip, ChildStats::Skip]
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let shared = self.shared(partition, &context);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows = stream::once(shared.stream(partition, baseline));
        let rows = rows.map_err(DataFusionError::from).try_flatten().boxed();
        let rows = Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), rows)));
        Ok(match self.fetch {
            Some(_) => {
                let metrics = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), partition);
                Box::pin(LimitStream::new(rows, 0, self.fetch, metrics))
            }
            None => rows,
        })
    }
}
