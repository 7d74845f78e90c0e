//! Groups made by all threads together, from the rows to the answer in one operator.
//!
//! A [`ParallelGroupExec`] stands in the place of partial groups, their exchange and the final groups, where the states of
//! all aggregates are words ([`Aggregates`]). Threads number texts together, keep rows of which each is about a group of
//! its own as they came, not as states, and merge part after part ([`keirin_operators::grouping`]). Stripes of a table
//! on disk are read by the thread that groups their rows.
//!
//! `count(DISTINCT x)` groups twice: by the keys and `x`, and then those groups by the keys. Groups of groups, which the
//! planner makes of such a count alone, take over the numbers of texts: no text is looked at twice.
//!
//! Without memory for that, nothing has left the operator yet: it drops what it has, and the operators in whose place it
//! stands begin anew, which go to files; or, to count what is distinct, which those keep in memory, it makes the groups of
//! one part of the rows after those of another ([`parted`]).

mod coded;
mod groups;
mod parted;
mod texts;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, Statistics, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, IsNotNullExpr, Literal};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};
use futures::{StreamExt, TryStreamExt, stream};
use keirin_operators::packed::KeyLayout;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use self::coded::CodedRows;
use self::groups::{Filled, Input, Shared, Work};
use self::parted::PartedGroups;
use super::GroupExec;
use super::aggregates::Aggregates;
use super::exchange::ExchangeExec;
use super::keys::Keys;
use super::table;
use crate::compile::parts::can_run_again;
use crate::expressions::arithmetic::NarrowDecimals;
use crate::sources::stored::{StoredScan, over_input};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct ParallelGroupExec {
    /// What it stands in the place of: groups, or final groups over an exchange over partial ones, over `input`.
    replaced: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    work: Arc<Work>,
    /// The groups that are grouped again, for `count(DISTINCT x)`: `x` is the last of their keys.
    distinct: Option<Arc<Work>>,
    /// Whether `input` is another of these, whose groups are taken as they are.
    is_chained: bool,
    /// How often the rows were cut into parts.
    depth: usize,
    run: Mutex<Option<Run>>,
    metrics: ExecutionPlanMetricsSet,
}

/// A run of the plan: which partitions were begun, and what they share.
#[derive(Debug)]
struct Run {
    begun: Vec<bool>,
    shared: Arc<dyn Shared>,
    fallback: Arc<Fallback>,
}

/// What begins anew where there was no memory.
#[derive(Debug)]
struct Fallback {
    replaced: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    work: Arc<Work>,
    has_distinct: bool,
    depth: usize,
    metrics: ExecutionPlanMetricsSet,
    /// The plan without what its operators have begun, for all partitions of the run.
    reset: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    /// Groups of parts, for all partitions of the run.
    parted: OnceCell<Arc<PartedGroups>>,
}

impl Fallback {
    fn plan(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let mut reset = self.reset.lock();
        if reset.is_none() {
            *reset = Some(reset_plan_states(self.replaced.clone())?);
        }
        Ok(reset.clone().unwrap_or_else(|| self.replaced.clone()))
    }

    async fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
        baseline: BaselineMetrics,
        is_unfit: bool,
    ) -> Result<SendableRecordBatchStream> {
        let is_parted = self.has_distinct
            && !is_unfit
            && !self.work.key_expressions.is_empty()
            && self.depth < parted::DEPTH_MAX
            && context.runtime_env().disk_manager.tmp_files_enabled();
        if !is_parted {
            return self.plan()?.execute(partition, context);
        }
        let cut =
            || async { Ok::<_, DataFusionError>(Arc::new(PartedGroups::cut(self, context.clone()).await?)) };
        let groups = self.parted.get_or_try_init(cut).await?.clone();
        Ok(groups.rows(partition, self.replaced.schema(), context, baseline))
    }
}

/// `replaced`, which stands over `before`, over another input.
fn replaced_over(
    replaced: &Arc<dyn ExecutionPlan>,
    before: &Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let [child] = replaced.children()[..] else { return internal_err!("groups have one input") };
    let child = if Arc::ptr_eq(child, before) { input } else { replaced_over(child, before, input)? };
    replace_children_if_necessary(replaced.clone(), vec![child])
}

impl ParallelGroupExec {
    /// What can stand in the place of `plan`.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let last = plan.downcast_ref::<GroupExec>()?;
        let rows = match last.aggregate().mode() {
            AggregateMode::Single => last,
            AggregateMode::FinalPartitioned => {
                let exchange = last.children()[0].downcast_ref::<ExchangeExec>()?;
                exchange.children()[0].downcast_ref::<GroupExec>()?
            }
            _ => return None,
        };
        let aggregate = rows.aggregate();
        let input = aggregate.input();
        if !can_run_again(input) {
            return None;
        }
        let is_over_rows = match aggregate.mode() {
            AggregateMode::Single => input.properties().partitioning.partition_count() == 1,
            mode => *mode == AggregateMode::Partial,
        };
        let is_limited = [last, rows]
            .iter()
            .any(|group| group.choice.is_some() || group.aggregate().limit_options().is_some());
        if !is_over_rows || is_limited {
            return None;
        }
        let direct = over_scan(aggregate);
        let aggregate = direct.as_ref().and_then(|direct| direct.downcast_ref()).unwrap_or(aggregate);
        let input = aggregate.input();
        let key_expressions = aggregate.group_expr().input_exprs();
        let keys = table::keys(aggregate)?;
        let aggregates = Aggregates::new(aggregate.aggr_expr(), aggregate.filter_expr(), input)?;
        let distinct = match &aggregates.distinct {
            None => None,
            Some(distinct) => {
                let mut types: Vec<_> = keys
                    .data_types
                    .iter()
                    .cloned()
                    .zip(keys.types.iter().map(|key| key.is_nullable))
                    .collect();
                types.push((distinct.data_type(&input.schema()).ok()?, table::may_be_null(distinct, input)));
                let mut key_expressions = key_expressions.clone();
                key_expressions.push(distinct.clone());
                let aggregates = aggregates.without_distinct();
                Some(Arc::new(Work::new(key_expressions, Keys::new(types)?, aggregates, plan)?))
            }
        };
        let (key_expressions, keys) = match distinct {
            None => narrowed(key_expressions, keys, input),
            Some(_) => (key_expressions, keys),
        };
        let work = Work::new(key_expressions, keys, aggregates, plan)?.keeping(last.first.clone());
        let is_chained = distinct.is_none()
            && input.downcast_ref::<Self>().is_some_and(|inner| work.can_take_numbers_of(&inner.work));
        Some(Self {
            replaced: plan.clone(),
            input: input.clone(),
            work: Arc::new(work),
            distinct,
            is_chained,
            depth: 0,
            run: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// `plan` with groups below of whose texts nobody wants more than to know whether they are there.
    pub(super) fn with_counted(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(None) };
        let Some(groups) = aggregate.input().downcast_ref::<Self>() else { return Ok(None) };
        let is_over_rows = matches!(aggregate.mode(), AggregateMode::Single | AggregateMode::Partial);
        let counts = aggregate.aggr_expr().iter().all(|expression| {
            let are_plain =
                |argument: &Arc<dyn PhysicalExpr>| argument.is::<Column>() || argument.is::<Literal>();
            let arguments = expression.expressions();
            expression.fun().name() == "count" && !expression.is_distinct() && arguments.iter().all(are_plain)
        });
        let has_filters = aggregate.filter_expr().iter().any(Option::is_some);
        if !is_over_rows || !aggregate.group_expr().expr().is_empty() || !counts || has_filters {
            return Ok(None);
        }
        let counted: Option<Arc<dyn ExecutionPlan>> =
            Self::of(&groups.replaced).map(|groups| Arc::new(groups.counted()) as _);
        counted.map(|counted| replace_children_if_necessary(plan.clone(), vec![counted])).transpose()
    }

    fn counted(mut self) -> Self {
        self.work = Arc::new(Arc::unwrap_or_clone(self.work).counted());
        self
    }

    /// Whether the groups may have one for rows without a value in a key.
    pub(super) fn may_be_null(&self, column: usize) -> bool {
        self.work.keys.types.get(column).is_none_or(|key| key.is_nullable)
    }

    /// The same over another input, or anew over this one.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = replaced_over(&self.replaced, &self.input, input)?;
        Ok(match Self::of(&replaced) {
            Some(groups) if self.work.is_counted() => Arc::new(groups.counted()),
            Some(groups) => Arc::new(Self { depth: self.depth, ..groups }),
            None => replaced,
        })
    }

    fn partition_count(&self) -> usize {
        self.properties().partitioning.partition_count()
    }

    /// What the partitions of a run share; a partition that was begun before begins another run.
    fn shared(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<(Arc<dyn Shared>, Arc<Fallback>)> {
        let mut current = self.run.lock();
        let mut run = match current.take().filter(|run| !run.begun[partition]) {
            Some(run) => run,
            None => {
                let fallback = Fallback {
                    replaced: self.replaced.clone(),
                    input: self.input.clone(),
                    work: self.work.clone(),
                    has_distinct: self.distinct.is_some(),
                    depth: self.depth,
                    metrics: self.metrics.clone(),
                    reset: Mutex::default(),
                    parted: OnceCell::new(),
                };
                let begun = vec![false; self.partition_count()];
                Run { begun, shared: self.begin(context)?, fallback: Arc::new(fallback) }
            }
        };
        run.begun[partition] = true;
        let begun = (run.shared.clone(), run.fallback.clone());
        // When all were begun nobody else asks, and the plan must not keep groups alive that the run is done with.
        *current = (!run.begun.iter().all(|begun| *begun)).then_some(run);
        Ok(begun)
    }

    fn begin(&self, context: &Arc<TaskContext>) -> Result<Arc<dyn Shared>> {
        let inner = self.input.downcast_ref::<Self>().filter(|_| self.is_chained);
        let threads = self.input.properties().partitioning.partition_count();
        let input = if let Some(inner) = inner {
            let begun = (0..threads).map(|partition| inner.shared(partition, context));
            let begun = begun.collect::<Result<Vec<_>>>()?;
            Input::Groups { groups: begun[0].0.clone(), threads }
        } else if let Some(distinct) = &self.distinct {
            Input::Distinct { groups: groups::begin(distinct, Input::Rows(&self.input), context)?, threads }
        } else {
            Input::Rows(&self.input)
        };
        groups::begin(&self.work, input, context)
    }
}

/// `aggregate` over a scan, if it is over a projection of one that leaves columns as they are or computes decimals
/// of columns, which are computed once all the same; but not where rows are left out of aggregates, for which an error
/// in a row that is left out would be none.
fn over_scan(aggregate: &AggregateExec) -> Option<Arc<dyn ExecutionPlan>> {
    let projection = aggregate.input().downcast_ref::<ProjectionExec>()?;
    let scan = projection.input();
    if !scan.is::<StoredScan>() && !CodedRows::can_be_of(scan) {
        return None;
    }
    let schema = scan.schema();
    let has_filters = aggregate.filter_expr().iter().any(Option::is_some);
    let is_plain = |expr: &Arc<dyn PhysicalExpr>| {
        expr.is::<Column>() || expr.is::<Literal>() || !has_filters && NarrowDecimals::is_one(expr, &schema)
    };
    let is_plain = projection.expr().iter().all(|projected| is_plain(&projected.expr));
    if is_plain { over_input(aggregate, projection).ok().flatten() } else { None }
}

impl DisplayAs for ParallelGroupExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.replaced.downcast_ref::<GroupExec>().expect("it was one when this was made");
        write!(f, "ParallelGroupExec: ")?;
        groups.fmt_columns(f, &self.work.key_expressions)
    }
}

impl ExecutionPlan for ParallelGroupExec {
    fn name(&self) -> &'static str {
        "ParallelGroupExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.replaced.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let arguments = self.work.aggregates.arguments.iter().map(|(argument, _)| argument);
        for expression in self.work.key_expressions.iter().chain(arguments) {
            if visit(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.over(children.swap_remove(0))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.over(self.input.clone())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::Skip]
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (shared, fallback) = self.shared(partition, &context)?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let groups = stream::once(async move {
            Ok::<_, DataFusionError>(match shared.clone().fill().await? {
                Filled::Done => shared.stream(baseline),
                given_up => {
                    drop(shared);
                    let is_unfit = given_up == Filled::Unfit;
                    fallback.execute(partition, context, baseline, is_unfit).await?
                }
            })
        });
        let groups = groups.try_flatten().boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), groups))))
    }
}

impl Work {
    /// Whether expressions look at texts of `inner` groups only as keys, or to count them.
    fn can_take_numbers_of(&self, inner: &Self) -> bool {
        let is_text = |column: &Column| inner.is_text(column.index());
        let looks_at_text = |expression: &Arc<dyn PhysicalExpr>| {
            expression.exists(|part| Ok(part.downcast_ref::<Column>().is_some_and(is_text))).unwrap_or(true)
        };
        let is_fine_key = |key: &Arc<dyn PhysicalExpr>| key.is::<Column>() || !looks_at_text(key);
        let is_fine_argument = |argument: &Arc<dyn PhysicalExpr>| {
            let is_counted =
                argument.downcast_ref::<IsNotNullExpr>().is_some_and(|count| count.arg().is::<Column>());
            is_counted || !looks_at_text(argument)
        };
        self.key_expressions.iter().all(is_fine_key)
            && self.aggregates.arguments.iter().all(|(argument, _)| is_fine_argument(argument))
    }

    fn new(
        key_expressions: Vec<Arc<dyn PhysicalExpr>>,
        keys: Keys,
        aggregates: Aggregates,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Option<Self> {
        Some(Self {
            key_expressions,
            layout: KeyLayout::new(&keys.types)?,
            keys,
            aggregates,
            first: None,
            schema: plan.schema(),
            is_counted: false,
        })
    }
}

/// Keys that are too wide to be packed, with integers of a table on disk in as few bytes as its bounds need.
fn narrowed(
    mut expressions: Vec<Arc<dyn PhysicalExpr>>,
    mut keys: Keys,
    input: &Arc<dyn ExecutionPlan>,
) -> (Vec<Arc<dyn PhysicalExpr>>, Keys) {
    let Some(scan) = input.downcast_ref::<StoredScan>().filter(|_| KeyLayout::new(&keys.types).is_none())
    else {
        return (expressions, keys);
    };
    let kept = keys.data_types.iter().zip(&keys.types).zip(&mut expressions).map(
        |((data_type, key), expression)| {
            let column = expression.downcast_ref::<Column>().filter(|_| data_type.is_integer());
            let narrow = column.and_then(|column| scan.bounds(column.index())).and_then(narrowest);
            let narrow = narrow.filter(|narrow| narrow.primitive_width() < data_type.primitive_width());
            if let Some(narrow) = &narrow {
                *expression = Arc::new(CastExpr::new(expression.clone(), narrow.clone(), None));
            }
            (narrow.unwrap_or_else(|| data_type.clone()), key.is_nullable)
        },
    );
    let kept: Vec<_> = kept.collect();
    if let Some(narrow) = Keys::new(kept) {
        keys = narrow;
    }
    (expressions, keys)
}

/// The smallest type of integers for all between these.
fn narrowest([least, greatest]: [ScalarValue; 2]) -> Option<DataType> {
    [DataType::Int8, DataType::Int16, DataType::Int32].into_iter().find(|data_type| {
        [&least, &greatest].iter().all(|bound| bound.cast_to(data_type).is_ok_and(|bound| !bound.is_null()))
    })
}
