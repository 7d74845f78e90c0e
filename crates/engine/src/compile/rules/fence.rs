//! Fences: places in a plan that DataFusion's rules do not see or move operators past.
//!
//! DataFusion propagates properties of rows, such as equal or constant columns, through GROUPING SETS, whose NULLs make
//! them untrue, and then drops a sort that is needed. It merges a sort with a LIMIT below it into one operator that reads
//! all rows, which never ends for an endless recursion; and two sorts, of which the lower one has a LIMIT, into one whose
//! parts are merged by the keys of the lower one: `(... ORDER BY a LIMIT 9) ORDER BY a, b` was not in order. It moves sorts
//! below an OFFSET, and has them give no row for those that are skipped: `(... LIMIT 10 OFFSET 5) ORDER BY a` had five rows.
//! It sorts by a column that equals the wanted one in each input of a UNION, or in a projection that it moves into them
//! later, and not in the UNION; and the input of a window by a column in the place of one of PARTITION BY, which the window
//! does not find, or by none for one that is constant. Where rows have the order of a sort with a LIMIT already, it takes the
//! first ones below windows, which look at others, or all: `sum(k) OVER () ... ORDER BY id LIMIT 3` was a sum of three rows.
//! In these cases a [`Fence`] is put into the plan before DataFusion's rules run: it passes on the rows, but none of their
//! properties. Others stand while one rule runs ([`SameNames`](super::SameNames)).
//!
//! What is the same in all rows of a side of an outer join is not behind it, where NULLs stand beside it: DataFusion leaves it
//! out of sorts nevertheless, as `flag` in `a LEFT JOIN (SELECT id, 1 AS flag FROM b) b ON ... ORDER BY flag`. A fence hides
//! that it is so, and passes on all else, until sorts are settled ([`WithoutFences`]); longer below groups that would take
//! their input for ordered by it, and give groups several times. So it is with expressions that a
//! filter makes the same in all rows: a sort leaves them out, and when a projection has moved nothing says any more that they
//! are.
//!
//! Aggregates over frames that slide are taken for ordered where their arguments are: `count(*)`, whose argument is a constant,
//! always, whatever partition a row is in and whether NULLs come. `ORDER BY count(*) OVER (PARTITION BY a ORDER BY b ROWS
//! BETWEEN 9 PRECEDING AND CURRENT ROW)` sorted nothing. Fences that hide constants hide such orders, too.
//!
//! Groups are unique by their keys. DataFusion takes a projection's columns in the places of the keys for unique, whatever
//! they are, and then orders windows by too little: in `rank() OVER (ORDER BY a), sum(s) OVER (PARTITION BY a ORDER BY u)`
//! over `SELECT count(*) AS a, ... GROUP BY g`. Below such projections a fence hides what is unique.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Constraint, Constraints, JoinType};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{SlidingAggregateWindowExpr, WindowExpr};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    Statistics, replace_children_if_necessary,
};

/// Puts fences where they are needed. See the [module](self).
#[derive(Debug)]
pub(crate) struct Fences;

impl PhysicalOptimizerRule for Fences {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>()
                && !aggregate.group_expr().is_single()
                && !aggregate.input().is::<Fence>()
            {
                let input = Arc::new(Fence::new(aggregate.input().clone()));
                return Ok(Transformed::yes(replace_children_if_necessary(node, vec![input])?));
            }
            if takes_others_for_unique(&node) {
                let input = Arc::new(Fence::hiding(Hidden::Unique, node.children()[0].clone()));
                return Ok(Transformed::yes(replace_children_if_necessary(node, vec![input])?));
            }
            if let Some(join) = with_hidden_constants(&node)? {
                return Ok(Transformed::yes(join));
            }
            if has_constant_expressions(&node) || sliding_results(&node).is_some() {
                return Ok(Transformed::yes(Arc::new(Fence::hiding(Hidden::Constants, node))));
            }
            let is_wrong_in_union = node.is::<UnionExec>()
                && node.children().into_iter().any(|input| !equal_columns(input).is_empty());
            if is_twice_above_union(&node)? {
                return Ok(Transformed::yes(Arc::new(Fence::new(node))));
            }
            if is_wrong_in_union || is_partitioned_by_equal(&node) {
                let fence = |input: &Arc<dyn ExecutionPlan>| Arc::new(Fence::new(input.clone())) as _;
                let inputs = node.children().into_iter().map(fence).collect();
                return Ok(Transformed::yes(replace_children_if_necessary(node, inputs)?));
            }
            if node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_some())
                && node
                    .exists(|below| Ok(below.is::<WindowAggExec>() || below.is::<BoundedWindowAggExec>()))?
            {
                let input = Arc::new(Fence::new(node.children()[0].clone()));
                return Ok(Transformed::yes(replace_children_if_necessary(node, vec![input])?));
            }
            if let Some(node) = with_fenced_limits(&node)? {
                return Ok(Transformed::yes(node));
            }
            let is_limit = node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>();
            let is_endless = is_limit && node.exists(|below| Ok(below.is::<RecursiveQueryExec>()))?;
            Ok(if is_endless { Transformed::yes(Arc::new(Fence::new(node))) } else { Transformed::no(node) })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "fences"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Takes away the fences that hide constants, as no rule after it leaves sorts out. They stay below sorts with a LIMIT that would
/// take their input for better sorted without, and below groups that would take it for ordered by their keys.
#[derive(Debug)]
pub(crate) struct WithoutFences;

impl PhysicalOptimizerRule for WithoutFences {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|mut node| {
            let mut is_changed = false;
            while let Some(fence) = Fence::of(&node, Hidden::Constants) {
                node = fence.input.clone();
                is_changed = true;
            }
            let recursion = match seems_better_sorted_without(&node)? || seems_in_order_without(&node)? {
                true => TreeNodeRecursion::Jump,
                false => TreeNodeRecursion::Continue,
            };
            Ok(Transformed::new(node, is_changed, recursion))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "without_fences"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a node is a sort with a LIMIT that would take its input for sorted by more of its keys if no fences hid
/// constants: by the first of the keys it knows that no better rows follow.
fn seems_better_sorted_without(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let Some(sort) = plan.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some()) else {
        return Ok(false);
    };
    let sorted_keys = |input: &Arc<dyn ExecutionPlan>| -> Result<usize> {
        let (keys, _) = input.equivalence_properties().extract_common_sort_prefix(sort.expr().clone())?;
        Ok(keys.len())
    };
    let without = Fence::without(Hidden::Constants, sort.input().clone())?;
    Ok(sorted_keys(&without)? > sorted_keys(sort.input())?)
}

/// Whether groups would take their input for ordered by their keys if no fences hid constants: of an outer join's, say.
fn seems_in_order_without(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(false) };
    let without = Fence::without(Hidden::Constants, aggregate.input().clone())?;
    if Arc::ptr_eq(&without, aggregate.input()) {
        return Ok(false);
    }
    let without = replace_children_if_necessary(plan.clone(), vec![without])?;
    let mode = without.downcast_ref::<AggregateExec>().map(AggregateExec::input_order_mode);
    Ok(mode.is_some_and(|mode| mode != aggregate.input_order_mode()))
}

/// Puts fences below sorts whose input seems to be sorted once the other fences are gone: a sort that is left in the plan is
/// needed, and would pass such rows on as they come. It runs last.
#[derive(Debug)]
pub(crate) struct LastFences;

impl PhysicalOptimizerRule for LastFences {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            if !sort.input().equivalence_properties().ordering_satisfy(sort.expr().clone())? {
                return Ok(Transformed::no(node));
            }
            let input = Arc::new(Fence::new(sort.input().clone()));
            Ok(Transformed::yes(replace_children_if_necessary(node, vec![input])?))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "last_fences"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A node that needs its rows in order, with fences above the sorts with a LIMIT, and the OFFSETs, that they come from.
fn with_fenced_limits(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    fn fenced(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let is_limited = plan.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_some());
        let skips = plan.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0);
        if is_limited || skips {
            return Ok(Some(Arc::new(Fence::new(plan.clone()))));
        }
        // Sorts are moved past other fences.
        if Fence::of(plan, Hidden::All).is_some() { Ok(None) } else { with_fenced_inputs(plan) }
    }
    fn with_fenced_inputs(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let inputs: Vec<_> = plan.children().into_iter().cloned().collect();
        let fenced = inputs.iter().map(fenced).collect::<Result<Vec<_>>>()?;
        if fenced.iter().all(Option::is_none) {
            return Ok(None);
        }
        let inputs = inputs.into_iter().zip(fenced).map(|(input, fenced)| fenced.unwrap_or(input)).collect();
        replace_children_if_necessary(plan.clone(), inputs).map(Some)
    }
    let needs_order = plan.is::<SortExec>() || plan.required_input_ordering().iter().any(Option::is_some);
    if needs_order { with_fenced_inputs(plan) } else { Ok(None) }
}

/// Whether a node is a projection that is said to be unique by other columns than those by which rows are unique below it, in
/// a way that matters: a single column must not have NULLs.
fn takes_others_for_unique(plan: &Arc<dyn ExecutionPlan>) -> bool {
    fn places(constraint: &Constraint) -> &[usize] {
        let (Constraint::PrimaryKey(places) | Constraint::Unique(places)) = constraint;
        places
    }
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return false };
    let (values, schema) = (projection.expr(), plan.schema());
    let known = projection.input().equivalence_properties().constraints();
    let source = |place: &usize| values[*place].expr.downcast_ref::<Column>().map(Column::index);
    plan.equivalence_properties().constraints().iter().map(places).any(|said| {
        let sources: Option<Vec<usize>> = said.iter().map(source).collect();
        let is_true = sources.is_some_and(|sources| {
            known.iter().any(|known| places(known).iter().all(|one| sources.contains(one)))
        });
        let matters = said.len() != 1 || !schema.field(said[0]).is_nullable();
        matters && !is_true
    })
}

/// An outer join with fences above what NULLs may stand for and has constants.
fn with_hidden_constants(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let hash = plan.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let nested = plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let sorted = plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type());
    let may_be_null = match hash.or(nested).or(sorted) {
        Some(JoinType::Left) => [false, true],
        Some(JoinType::Right) => [true, false],
        Some(JoinType::Full) => [true, true],
        _ => return Ok(None),
    };
    let mut is_changed = false;
    let fenced =
        plan.children().into_iter().zip(may_be_null).map(|(side, may_be_null)| -> Arc<dyn ExecutionPlan> {
            let is_hidden = may_be_null && !side.equivalence_properties().constants().is_empty();
            is_changed |= is_hidden;
            if is_hidden { Arc::new(Fence::hiding(Hidden::Constants, side.clone())) } else { side.clone() }
        });
    let fenced = fenced.collect();
    is_changed.then(|| replace_children_if_necessary(plan.clone(), fenced)).transpose()
}

/// Whether a node is a filter by which an expression is the same in all rows.
fn has_constant_expressions(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_simple = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Column>() || expr.is::<Literal>();
    let constants = || plan.equivalence_properties().constants();
    plan.is::<FilterExec>() && constants().iter().any(|constant| !is_simple(&constant.expr))
}

/// Columns that are known to equal others in all rows.
fn equal_columns(plan: &Arc<dyn ExecutionPlan>) -> HashSet<Column> {
    let classes = plan.equivalence_properties().eq_group().iter().filter(|class| class.len() > 1);
    classes.flat_map(|class| class.iter().flat_map(collect_columns).collect::<Vec<_>>()).collect()
}

/// Whether a node is a projection with equal columns, which could be moved into a UNION.
fn is_twice_above_union(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    Ok(plan.is::<ProjectionExec>()
        && !equal_columns(plan).is_empty()
        && plan.exists(|below| Ok(below.is::<UnionExec>()))?)
}

/// Whether a node is a window, of which a key of PARTITION BY is the same in all rows, or is among others and equals
/// another column.
fn is_partitioned_by_equal(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(window) = windows(plan).and_then(<[_]>::first) else { return false };
    let (keys, known) = (window.partition_by(), plan.children()[0].equivalence_properties());
    if keys.iter().any(|key| known.is_expr_constant(key).is_some()) {
        return true;
    }
    if keys.is_empty() || keys.len() + window.order_by().len() == 1 {
        return false;
    }
    let equal = equal_columns(plan.children()[0]);
    keys.iter().flat_map(collect_columns).any(|column| equal.contains(&column))
}

/// Where the results of a window begin of whose aggregates some are over frames that slide.
fn sliding_results(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let is_sliding = windows(plan)?.iter().any(|window| window.as_any().is::<SlidingAggregateWindowExpr>());
    is_sliding.then(|| plan.children()[0].schema().fields().len())
}

/// The expressions of a window.
fn windows(plan: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    let windows = plan.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr);
    windows.or_else(|| plan.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr))
}

/// What of the rows below a fence is not known above it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hidden {
    /// All of their properties.
    All,
    /// What is the same in all rows.
    Constants,
    /// By what rows are unique.
    Unique,
    /// Nothing: it stands only while one rule runs, which moves nothing past it.
    Nothing,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Fence {
    input: Arc<dyn ExecutionPlan>,
    hidden: Hidden,
    properties: Arc<PlanProperties>,
}

impl Fence {
    /// What passes on the rows of `input` with their properties, but lets no rule move anything below it: for rules that
    /// are made to end with [`Fence::without_temporary`].
    pub(crate) fn temporary(input: Arc<dyn ExecutionPlan>) -> Self {
        Self::hiding(Hidden::Nothing, input)
    }

    /// The plan without temporary fences.
    pub(crate) fn without_temporary(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Self::without(Hidden::Nothing, plan)
    }

    fn of(plan: &Arc<dyn ExecutionPlan>, hidden: Hidden) -> Option<&Self> {
        plan.downcast_ref::<Self>().filter(|fence| fence.hidden == hidden)
    }

    fn without(hidden: Hidden, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match Self::of(&node, hidden) {
            Some(fence) => Ok(Transformed::yes(fence.input.clone())),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self::hiding(Hidden::All, input)
    }

    fn hiding(hidden: Hidden, input: Arc<dyn ExecutionPlan>) -> Self {
        let known = input.equivalence_properties();
        let properties = match hidden {
            Hidden::Nothing => input.properties().clone(),
            Hidden::Unique => {
                let properties = known.clone().with_constraints(Constraints::default());
                Arc::new(input.properties().as_ref().clone().with_eq_properties(properties))
            }
            Hidden::Constants => {
                let results = sliding_results(&input).unwrap_or(usize::MAX);
                let is_of_results = |key: &PhysicalSortExpr| {
                    collect_columns(&key.expr).iter().any(|column| column.index() >= results)
                };
                let orders = known.oeq_class().iter().map(|order| {
                    let keys = order.iter().take_while(|key| !is_of_results(key)).cloned();
                    keys.collect::<Vec<_>>()
                });
                let properties = EquivalenceProperties::new_with_orderings(input.schema(), orders);
                Arc::new(input.properties().as_ref().clone().with_eq_properties(properties))
            }
            Hidden::All => {
                let count = input.output_partitioning().partition_count();
                let properties = PlanProperties::new(
                    EquivalenceProperties::new(input.schema()),
                    Partitioning::UnknownPartitioning(count),
                    input.pipeline_behavior(),
                    input.boundedness(),
                );
                Arc::new(properties.with_scheduling_type(input.properties().scheduling_type))
            }
        };
        Self { input, hidden, properties }
    }
}

impl DisplayAs for Fence {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fence")
    }
}

impl ExecutionPlan for Fence {
    fn name(&self) -> &'static str {
        "Fence"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    // Others maintain the order, but DataFusion would then move a sort below them, or drop it there.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![matches!(self.hidden, Hidden::Nothing | Hidden::Unique)]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::hiding(self.hidden, children.swap_remove(0))))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        let passes_on = matches!(self.hidden, Hidden::Constants | Hidden::Unique);
        vec![if passes_on { ChildStats::At(partition) } else { ChildStats::Skip }]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(inputs[0].clone())
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        match self.hidden {
            Hidden::Constants | Hidden::Unique => FilterDescription::from_children(filters, &self.children()),
            _ => Ok(FilterDescription::all_unsupported(&filters, &self.children())),
        }
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
