//! Fences: places in a plan that DataFusion's rules do not see or move operators past.
//!
//! DataFusion propagates properties of rows, such as equal or constant columns, through GROUPING SETS, whose NULLs make
//! them untrue, and then drops a sort that is needed. It merges a sort with a LIMIT below it into one operator that reads
//! all rows, which never ends for an endless recursion. It sorts by a column that equals the wanted one in each input of a
//! UNION, or in a projection that it moves into them later, and not in the UNION; and the input of a window by a column in
//! the place of one of PARTITION BY, which the window does not find, or by none for one that is constant. Where rows have the order of a sort with a LIMIT
//! already, it takes the first ones below windows, which look at others, or all: `sum(k) OVER () ... ORDER BY id LIMIT 3` was
//! a sum of three rows. In these cases a [`Fence`] is put into the plan before DataFusion's rules run: it passes on the rows,
//! but none of their properties. Others stand while one rule runs ([`SameNames`](super::SameNames)).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    replace_children_if_necessary,
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
    let windows = plan.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr);
    let bounded = plan.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr);
    let Some(window) = windows.or(bounded).and_then(|windows| windows.first()) else { return false };
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

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Fence {
    input: Arc<dyn ExecutionPlan>,
    /// Whether it stands only while one rule runs.
    is_temporary: bool,
    properties: Arc<PlanProperties>,
}

impl Fence {
    /// What passes on the rows of `input` with their properties, but lets no rule move anything below it: for rules that
    /// are made to end with [`Fence::without_temporary`].
    pub(crate) fn temporary(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = input.properties().clone();
        Self { input, is_temporary: true, properties }
    }

    /// The plan without temporary fences.
    pub(crate) fn without_temporary(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<Self>().filter(|fence| fence.is_temporary) {
            Some(fence) => Ok(Transformed::yes(fence.input.clone())),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let count = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(count),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_scheduling_type(input.properties().scheduling_type);
        Self { input, is_temporary: false, properties: Arc::new(properties) }
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

    // One that hides the order does maintain it, but DataFusion would then move a sort below it.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.is_temporary]
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
        let input = children.swap_remove(0);
        Ok(Arc::new(if self.is_temporary { Self::temporary(input) } else { Self::new(input) }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
