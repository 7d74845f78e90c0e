//! GROUP BY on our own tables.
//!
//! [`GroupRows`] puts a [`GroupExec`] in the place of each of DataFusion's aggregations whose keys our tables number
//! ([`keirin_operators::Groups`]). It fits into the same plan: partial groups a partition, sent to the partition of their
//! keys, merged there ([`exchange`]). So the aggregates are DataFusion's accumulators, or ours by the same trait, and what of a plan is
//! not ours need not know.
//!
//! Where the states of all aggregates are words, one operator does all that ([`parallel`]).
//!
//! Above them a LIMIT without an order makes the first keys that are met the groups ([`chosen`]). Of a LIMIT with an
//! order that begins with aggregates, only the groups that come first have their keys made ([`first`]).
//!
//! Groups stay in memory as long as the pool gives some. A partial aggregation without memory hands over what it has and
//! begins anew. Any other becomes partial, too, and DataFusion's final aggregation, which goes to disk, merges
//! what it hands over.

mod aggregates;
mod chosen;
mod exchange;
mod first;
mod keys;
mod parallel;
mod stream;
mod table;

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateMode, AggregateOutputMode,
};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, InputOrderMode,
    Partitioning, PlanProperties, replace_children_if_necessary,
};

use self::aggregates::Aggregates;
use self::chosen::{CHOSEN_MAX, Choice};
use self::exchange::ExchangeExec;
use self::first::First;
pub(crate) use self::keys::{Held, KeyRows, Keys, hash_keys};
use self::parallel::ParallelGroupExec;
pub(crate) use self::table::{may_be_null, one_float};
use crate::compile::fast_path;
use crate::compile::subplans::SharedExec;
use crate::expressions::functions::gathers;

/// Rows that a partial group has to be of on average, to be worth making.
const ROWS_PER_GROUP: usize = 2;
/// The same where rows that are not grouped cost little more than groups.
const MANY_ROWS_PER_GROUP: usize = 16;

/// Puts [`GroupExec`] in the place of aggregations with groups.
#[derive(Debug)]
pub(crate) struct GroupRows;

impl PhysicalOptimizerRule for GroupRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(options) {
            return Ok(plan);
        }
        let limited = plan.transform_down(|node| {
            Ok(match limited(&node)? {
                Some(limited) => Transformed::yes(limited),
                None => Transformed::no(node),
            })
        })?;
        let changed = limited.data.transform_up(|node| {
            Ok(match GroupExec::of(&node) {
                Some(group) => Transformed::yes(Arc::new(group) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })?;
        let sorted = changed.data.transform_down(|node| {
            let first = node.downcast_ref::<SortExec>().and_then(First::of);
            let input = first.map(|first| with_first(node.children()[0], &first)).transpose()?.flatten();
            Ok(match input {
                Some(input) => Transformed::yes(replace_children_if_necessary(node, vec![input])?),
                None => Transformed::no(node),
            })
        })?;
        let exchanged = exchanged(&sorted.data, false)?.transform_up(|node| {
            let by_parts = by_parts(&node)?.as_ref().and_then(ParallelGroupExec::of);
            if let Some(groups) = by_parts.or_else(|| ParallelGroupExec::of(&node)) {
                return Ok(Transformed::yes(Arc::new(groups) as Arc<dyn ExecutionPlan>));
            }
            Ok(match ParallelGroupExec::with_counted(&node)? {
                Some(counted) => Transformed::yes(counted),
                None => Transformed::no(node),
            })
        })?;
        Ok(exchanged.data)
    }

    fn name(&self) -> &'static str {
        "group_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct GroupExec {
    /// The [`AggregateExec`] in whose place it stands.
    plan: Arc<dyn ExecutionPlan>,
    /// How many groups are enough, whichever.
    choice: Option<Choice>,
    /// What is kept of the groups.
    first: Option<First>,
    /// Partial groups have to be of so many rows on average, or rows are sent as they are.
    rows_per_group: usize,
    metrics: ExecutionPlanMetricsSet,
}

/// Whether our tables take the keys of these groups, and hold no more of each group than some numbers or a text.
pub(crate) fn is_small(aggregate: &AggregateExec) -> bool {
    let has_small_state = |name: &str| matches!(name, "count" | "sum" | "avg" | "min" | "max");
    let functions = aggregate.aggr_expr();
    table::keys(aggregate).is_some()
        && (functions
            .iter()
            .all(|function| !function.is_distinct() && has_small_state(function.fun().name()))
            || Aggregates::new(functions, aggregate.filter_expr(), aggregate.input()).is_some())
}

/// `plan` with an [`ExchangeExec`] where groups are sent from partial to final aggregations, unless something above relies
/// on DataFusion's partitions.
fn exchanged(plan: &Arc<dyn ExecutionPlan>, is_relied_on: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let exchange = if is_relied_on { None } else { exchange_below(plan) };
    let plan = match exchange {
        Some(exchange) => replace_children_if_necessary(plan.clone(), vec![exchange])?,
        None => plan.clone(),
    };
    let ends = plan.is::<RepartitionExec>()
        || plan.is::<SharedExec>()
        || plan.is::<ExchangeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>();
    let requirements = plan.input_distribution_requirements();
    let children = plan.children().into_iter().enumerate().map(|(child, input)| {
        let asks = !matches!(
            requirements.child_distribution(child),
            None | Some(Distribution::UnspecifiedDistribution | Distribution::SinglePartition)
        );
        exchanged(input, asks || is_relied_on && !ends)
    });
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(plan, children)
}

/// Groups of each partition and then, behind an exchange of them by the keys that it is given, of all; `None` if functions
/// need all rows of a group together.
pub(crate) fn in_two_steps(
    aggregate: &AggregateExec,
    exchange: impl FnOnce(Arc<dyn ExecutionPlan>, Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_plain = aggregate.group_expr().is_single()
        && !aggregate.group_expr().is_true_no_grouping()
        && aggregate.limit_options().is_none()
        && aggregate.aggr_expr().iter().all(|aggregate| {
            aggregate.order_bys().is_empty() && !aggregate.is_distinct() && !gathers(aggregate.fun())
        });
    if !is_plain {
        return Ok(None);
    }
    let (groups, schema) = (aggregate.group_expr().clone(), aggregate.input_schema());
    let (functions, filters) = (aggregate.aggr_expr().to_vec(), aggregate.filter_expr().to_vec());
    let first = AggregateExec::try_new(
        AggregateMode::Partial,
        groups.clone(),
        functions.clone(),
        filters.clone(),
        aggregate.input().clone(),
        schema.clone(),
    )?;
    let groups = groups.as_final();
    let keys = groups.expr().iter().map(|(key, _)| key.clone()).collect();
    let exchanged = exchange(Arc::new(first), keys)?;
    let mode = AggregateMode::FinalPartitioned;
    let last = AggregateExec::try_new(mode, groups, functions, filters, exchanged, schema)?;
    Ok((last.schema() == aggregate.schema()).then(|| Arc::new(last) as Arc<dyn ExecutionPlan>))
}

/// Groups of one partition such that they can be merged part by part, for where there is no memory for all.
fn by_parts(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(group) = plan.downcast_ref::<GroupExec>() else { return Ok(None) };
    let aggregate = group.aggregate();
    let is_whole = *aggregate.mode() == AggregateMode::Single && group.choice.is_none();
    if !is_whole {
        return Ok(None);
    }
    let last = in_two_steps(aggregate, |groups, keys| {
        let groups = GroupExec::of(&groups).map_or(groups, |groups| Arc::new(groups));
        Ok(Arc::new(ExchangeExec::new(groups, keys.len(), 1)))
    })?;
    Ok(last.map(|last| group.with_plan(last)))
}

/// What stands in the place of the exchange between partial and final groups that `plan` has.
fn exchange_below(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let group = plan.downcast_ref::<GroupExec>()?;
    let exchange = group.children()[0].downcast_ref::<RepartitionExec>()?;
    let is_by_hash = matches!(exchange.partitioning(), Partitioning::Hash(..)) && !exchange.preserve_order();
    let partial = exchange.input().downcast_ref::<GroupExec>()?.aggregate();
    let is_partial = *group.aggregate().mode() == AggregateMode::FinalPartitioned
        && *partial.mode() == AggregateMode::Partial;
    let key_count = partial.group_expr().num_group_exprs();
    (is_by_hash && is_partial).then(|| {
        let partition_count = exchange.partitioning().partition_count();
        let exchange = ExchangeExec::new(exchange.input().clone(), key_count, partition_count);
        Arc::new(exchange) as Arc<dyn ExecutionPlan>
    })
}

/// `node` with only as many groups below as it lets through, if they may be any.
fn limited(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let count = match (node.downcast_ref::<GlobalLimitExec>(), node.fetch()) {
        (Some(limit), Some(fetch)) => limit.skip().checked_add(fetch),
        (None, Some(fetch)) if node.is::<LocalLimitExec>() || node.is::<CoalescePartitionsExec>() => {
            Some(fetch)
        }
        _ => None,
    };
    let Some(count) = count.filter(|count| (1..=CHOSEN_MAX).contains(count)) else { return Ok(None) };
    let [input] = node.children()[..] else { return Ok(None) };
    let input = with_choice(input, count)?;
    input.map(|input| replace_children_if_necessary(node.clone(), vec![input])).transpose()
}

/// `plan` with groups of which any `count` are enough.
fn with_choice(plan: &Arc<dyn ExecutionPlan>, count: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
        && aggregate.mode().input_mode() == AggregateInputMode::Raw
    {
        // All partitions choose the same groups, so they have to be merged above.
        if *aggregate.mode() != AggregateMode::Partial {
            return Ok(None);
        }
        // Groups without rows have no states of other functions.
        let is_known = |name: &str| matches!(name, "count" | "sum" | "avg" | "min" | "max");
        let is_known = aggregate.aggr_expr().iter().all(|expr| is_known(expr.fun().name()));
        let group = GroupExec::of(plan).filter(|_| is_known && aggregate.limit_options().is_none());
        return Ok(group.map(|group| Arc::new(group.with_choice(count)) as Arc<dyn ExecutionPlan>));
    }
    let is_one_to_one = plan.is::<AggregateExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<LocalLimitExec>();
    let [input] = plan.children()[..] else { return Ok(None) };
    let input = if is_one_to_one { with_choice(input, count)? } else { None };
    input.map(|input| replace_children_if_necessary(plan.clone(), vec![input])).transpose()
}

/// `plan` with only those of its groups that `first` keeps, if it does not change them.
fn with_first(plan: &Arc<dyn ExecutionPlan>, first: &First) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(group) = plan.downcast_ref::<GroupExec>() {
        let aggregate = group.aggregate();
        let is_final = aggregate.mode().output_mode() == AggregateOutputMode::Final;
        let first = first.of_groups(aggregate.group_expr().num_group_exprs(), plan);
        let first = first.filter(|_| is_final && aggregate.limit_options().is_none());
        return Ok(first.and_then(|first| {
            Some(Arc::new(GroupExec { first: Some(first), ..GroupExec::of(&group.plan)? })
                as Arc<dyn ExecutionPlan>)
        }));
    }
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let Some(first) = first.below(projection) else { return Ok(None) };
    let input = with_first(projection.input(), &first)?;
    input.map(|input| replace_children_if_necessary(plan.clone(), vec![input])).transpose()
}

impl GroupExec {
    /// What can stand in the place of `plan`.
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let aggregate = plan.downcast_ref::<AggregateExec>()?;
        let is_in_order = *aggregate.input_order_mode() != InputOrderMode::Linear
            || plan.required_input_ordering().iter().any(Option::is_some)
            || aggregate.aggr_expr().iter().any(|aggregate| !aggregate.order_bys().is_empty());
        let is_limited =
            aggregate.limit_options().is_some() && !aggregate.is_unordered_unfiltered_group_by_distinct();
        let keys = aggregate.group_expr();
        let is_plain = keys.is_single() && !keys.is_true_no_grouping() && !is_in_order && !is_limited;
        let is_grouping = is_plain && *aggregate.mode() != AggregateMode::PartialReduce;
        (is_grouping && table::keys(aggregate).is_some()).then(|| Self {
            plan: plan.clone(),
            choice: None,
            first: None,
            rows_per_group: ROWS_PER_GROUP,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// As [`of`](Self::of), for who takes rows that are equal, too: groups are made where most rows go away by that.
    pub(crate) fn of_many_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        Self::of(plan).map(|group| Self { rows_per_group: MANY_ROWS_PER_GROUP, ..group })
    }

    fn with_choice(self, count: usize) -> Self {
        Self { choice: Some(Choice::new(count)), ..self }
    }

    /// The same over another plan.
    fn with_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let Some(group) = Self::of(&plan) else { return plan };
        let choice = self.choice.as_ref().map(|choice| Choice::new(choice.count()));
        Arc::new(Self { choice, first: self.first.clone(), rows_per_group: self.rows_per_group, ..group })
    }

    fn aggregate(&self) -> &AggregateExec {
        self.plan.downcast_ref().expect("it was one when this was made")
    }
}

impl GroupExec {
    /// What is grouped by `keys`, for people.
    fn fmt_columns(&self, f: &mut fmt::Formatter<'_>, keys: &[Arc<dyn PhysicalExpr>]) -> fmt::Result {
        let aggregate = self.aggregate();
        let names = aggregate.group_expr().expr().iter().map(|(_, name)| name);
        let keys: Vec<String> = keys
            .iter()
            .zip(names)
            .map(|(key, name)| match key.to_string() {
                // A column has its place behind its name.
                key if key.starts_with(&format!("{name}@")) => key,
                key => format!("{key} as {name}"),
            })
            .collect();
        let names: Vec<&str> = aggregate.aggr_expr().iter().map(|expr| expr.name()).collect();
        let (keys, names) = (keys.join(", "), names.join(", "));
        write!(f, "gby=[{keys}], aggr=[{names}]")?;
        if let Some(first) = &self.first {
            write!(f, ", first={}", first.count())?;
        }
        Ok(())
    }
}

impl DisplayAs for GroupExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregate = self.aggregate();
        write!(f, "GroupExec: mode={:?}, ", aggregate.mode())?;
        let keys: Vec<_> = aggregate.group_expr().expr().iter().map(|(key, _)| key.clone()).collect();
        self.fmt_columns(f, &keys)?;
        let limit = aggregate.limit_options().map(|limit| limit.limit());
        match limit.or(self.choice.as_ref().map(Choice::count)) {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for GroupExec {
    fn name(&self) -> &'static str {
        "GroupExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.plan.input_distribution_requirements()
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
        Ok(self.with_plan(plan))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.plan.clone().reset_state()?;
        Ok(self.with_plan(plan))
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
        let partition_count = self.aggregate().input().properties().partitioning.partition_count();
        let chosen = self.choice.as_ref().map(|choice| choice.chosen(partition, partition_count));
        let (first, rows_per_group) = (self.first.clone(), self.rows_per_group);
        stream::grouped(self.aggregate(), chosen, first, rows_per_group, &self.metrics, partition, &context)
    }
}
