//! Keeps expressions that can fail where they are in a physical plan, and wraps them as fallible.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{assert_or_internal_err, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::{AggregateExec, PhysicalGroupBy};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::{JoinFilter, JoinOn};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

use super::fallible::{Conditions, Nodes, fallible};
use crate::compile::join::{JoinOrder, Sides};
use crate::compile::rules::{Fence, FilteredStatistics, LateRows, SameNames, WithoutFences};
use crate::expressions::casts::Unordered;

type Plan = Arc<dyn ExecutionPlan>;
type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// DataFusion's rules, changed as the [module](super) describes.
pub(crate) fn physical_rules() -> Vec<Rule> {
    let first: Rule = Arc::new(WrapFallible);
    let others = PhysicalOptimizer::new().rules.into_iter().flat_map(|rule| -> Vec<Rule> {
        match rule.name() {
            "aggregate_statistics" => vec![Arc::new(FilteredStatistics(rule))],
            "ProjectionPushdown" => vec![Arc::new(Projections(rule))],
            "LimitPushPastWindows" => vec![Arc::new(LimitedWindows(rule))],
            "PushdownSort" => vec![rule, Arc::new(LateRows)],
            name if name.starts_with("FilterPushdown") => vec![Arc::new(SameNames(rule))],
            "join_selection" => vec![Arc::new(JoinOrder), rule, Arc::new(Sides)],
            // The rule that leaves sorts out.
            "EnsureRequirements" => vec![rule, Arc::new(WithoutFences)],
            _ => vec![rule],
        }
    });
    [first].into_iter().chain(others).collect()
}

/// Wraps conditions that can fail as [fallible](super::fallible), and casts that keep no order as [`Unordered`], and makes
/// hash joins take -0.0 for 0.0. It runs before all other rules, while the nodes are as the planner made them.
#[derive(Debug)]
struct WrapFallible;

impl PhysicalOptimizerRule for WrapFallible {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        Ok(plan.transform_up(wrap_node)?.data)
    }

    fn name(&self) -> &'static str {
        "wrap_fallible"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn wrap_node(node: Plan) -> Result<Transformed<Plan>> {
    let changed: Option<Plan> = if let Some(filter) = node.downcast_ref::<FilterExec>() {
        wrap_filter(filter)?
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        wrap_projection(projection)?
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        wrap_aggregate(aggregate)?
    } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let (on, filter) = (one_zero(join)?, wrap_join(join.filter())?);
        match (on, filter) {
            (None, None) => None,
            (on, filter) => Some(Arc::new(
                join.builder()
                    .with_on(on.unwrap_or_else(|| join.on().to_vec()))
                    .with_filter(filter.or_else(|| join.filter().cloned()))
                    .build()?,
            )),
        }
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let (left, right) = (join.left().clone(), join.right().clone());
        let projection = join.projection().as_ref().map(|columns| columns.to_vec());
        match wrap_join(join.filter())? {
            Some(filter) => Some(Arc::new(NestedLoopJoinExec::try_new(
                left,
                right,
                Some(filter),
                join.join_type(),
                projection,
            )?)),
            None => None,
        }
    } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let (left, right, on) = (join.left().clone(), join.right().clone(), join.on().to_vec());
        match wrap_join(join.filter().as_ref())? {
            Some(filter) => Some(Arc::new(SortMergeJoinExec::try_new(
                left,
                right,
                on,
                Some(filter),
                join.join_type(),
                join.sort_options().to_vec(),
                join.null_equality(),
            )?)),
            None => None,
        }
    } else {
        None
    };
    Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
}

/// The keys of a join with floats of which -0.0 is 0.0; `None` if there are none.
fn one_zero(join: &HashJoinExec) -> Result<Option<JoinOn>> {
    let side = |key: &Arc<dyn PhysicalExpr>, schema: &Schema| -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let zero = match key.data_type(schema)? {
            DataType::Float32 => lit(0.0_f32),
            DataType::Float64 => lit(0.0),
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(BinaryExpr::new(key.clone(), Operator::Plus, zero))))
    };
    let (mut on, mut is_changed) = (join.on().to_vec(), false);
    for (left_key, right_key) in &mut on {
        for (key, input) in [(left_key, join.left()), (right_key, join.right())] {
            if let Some(float) = side(key, &input.schema())? {
                (*key, is_changed) = (float, true);
            }
        }
    }
    Ok(is_changed.then_some(on))
}

/// The expression with its fallible nodes wrapped; `None` if nothing changes.
fn changed(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let (wrapped, _) = fallible(expression, schema, Nodes::Connectives)?;
    Ok((!Arc::ptr_eq(&wrapped, expression)).then_some(wrapped))
}

/// The same for what becomes a column, whose bounds DataFusion infers.
fn changed_column(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let wrapped = changed(expression, schema)?;
    Ok(Unordered::around(wrapped.as_ref().unwrap_or(expression), schema)?.or(wrapped))
}

fn wrap_filter(filter: &FilterExec) -> Result<Option<Plan>> {
    let conditions = Conditions::new([filter.predicate()], &filter.input().schema())?;
    let first = conditions.all_first();
    let Some(last) = conditions.last else { return Ok(None) };
    let input: Plan = match first {
        None => filter.input().clone(),
        Some(first) => Arc::new(
            FilterExecBuilder::new(first, filter.input().clone())
                .with_batch_size(filter.batch_size())
                .with_default_selectivity(filter.default_selectivity())
                .build()?,
        ),
    };
    let filter = FilterExecBuilder::from(filter).with_predicate(last).with_input(input).build()?;
    Ok(Some(Arc::new(filter)))
}

fn wrap_projection(projection: &ProjectionExec) -> Result<Option<Plan>> {
    let schema = projection.input().schema();
    let mut is_changed = false;
    let expressions = projection.expr().iter().map(|one| {
        let wrapped = changed_column(&one.expr, &schema)?;
        is_changed |= wrapped.is_some();
        let expr = wrapped.unwrap_or_else(|| one.expr.clone());
        Ok(ProjectionExpr { expr, alias: one.alias.clone() })
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    if !is_changed {
        return Ok(None);
    }
    let input = projection.input().clone();
    let projection = ProjectionExec::try_new_with_schema_metadata(expressions, input, &projection.schema())?;
    Ok(Some(Arc::new(projection)))
}

/// The expression with its fallible nodes wrapped, if there are any.
pub(crate) fn wrapped(expression: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(changed(&expression, schema)?.unwrap_or(expression))
}

/// What is [`wrapped`] of a join.
pub(crate) fn wrapped_filter(filter: JoinFilter) -> Result<JoinFilter> {
    Ok(wrap_join(Some(&filter))?.unwrap_or(filter))
}

fn wrap_join(filter: Option<&JoinFilter>) -> Result<Option<JoinFilter>> {
    let Some(filter) = filter else { return Ok(None) };
    let (expression, can_fail) = fallible(filter.expression(), filter.schema(), Nodes::AllThatFail)?;
    let changed = || JoinFilter::new(expression, filter.column_indices().to_vec(), filter.schema().clone());
    Ok(can_fail.then(changed))
}

fn wrap_aggregate(aggregate: &AggregateExec) -> Result<Option<Plan>> {
    let schema = aggregate.input_schema();
    let mut is_changed = false;
    let mut each = |expression: &Arc<dyn PhysicalExpr>| -> Result<Arc<dyn PhysicalExpr>> {
        let wrapped = changed(expression, &schema)?;
        is_changed |= wrapped.is_some();
        Ok(wrapped.unwrap_or_else(|| expression.clone()))
    };
    let functions = aggregate.aggr_expr().iter().map(|function| {
        let arguments = function.expressions().iter().map(&mut each).collect::<Result<Vec<_>>>()?;
        let sorted = function.order_bys().iter().map(|sort| each(&sort.expr)).collect::<Result<Vec<_>>>()?;
        let wrapped = function.with_new_expressions(arguments, sorted);
        Ok(wrapped.map_or_else(|| function.clone(), Arc::<AggregateFunctionExpr>::new))
    });
    let functions = functions.collect::<Result<Vec<_>>>()?;
    // The final step of an aggregation reads its keys as columns of the first step, which computes them.
    let is_first = aggregate.input().schema() == schema;
    let filters = aggregate.filter_expr().iter().map(|filter| filter.as_ref().map(&mut each).transpose());
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let group = aggregate.group_expr();
    let group = if is_first {
        let keys = group.expr().iter().map(|(key, name)| {
            let wrapped = changed_column(key, &schema)?;
            is_changed |= wrapped.is_some();
            Ok((wrapped.unwrap_or_else(|| key.clone()), name.clone()))
        });
        let keys = keys.collect::<Result<Vec<_>>>()?;
        PhysicalGroupBy::new(
            keys,
            group.null_expr().to_vec(),
            group.groups().to_vec(),
            group.has_grouping_set(),
        )
    } else {
        group.clone()
    };
    if !is_changed {
        return Ok(None);
    }
    let input = aggregate.input().clone();
    let aggregate = AggregateExec::try_new(*aggregate.mode(), group, functions, filters, input, schema)?;
    Ok(Some(Arc::new(aggregate)))
}

/// DataFusion's limit pushdown past window functions: only as many rows are sorted as a LIMIT above them and their
/// frames need. It is kept from functions over several partitions, each of which gives as many rows as the LIMIT
/// says, the last of them without those that follow.
#[derive(Debug)]
struct LimitedWindows(Rule);

impl PhysicalOptimizerRule for LimitedWindows {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let is_parallel = plan.exists(|node| {
            let is_window = node.is::<BoundedWindowAggExec>() || node.is::<WindowAggExec>();
            Ok(is_window && node.output_partitioning().partition_count() > 1)
        })?;
        if is_parallel { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// DataFusion's projection pushdown, prevented from computing what can fail below operators that exclude rows, and from
/// moving projections below filters that have one already: it looks for the columns of such a filter's condition, which are
/// those of its input, among those that it gives.
#[derive(Debug)]
struct Projections(Rule);

impl PhysicalOptimizerRule for Projections {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let fixed = plan.transform_up(|node| {
            if node.downcast_ref::<FilterExec>().is_some_and(|filter| filter.projection().is_some()) {
                return Ok(Transformed::yes(Arc::new(Fence::temporary(node)) as Plan));
            }
            let fixed = node.downcast_ref::<ProjectionExec>().map(Fixed::new).transpose()?.flatten();
            Ok(fixed.map_or_else(
                || Transformed::no(node.clone()),
                |fixed| Transformed::yes(Arc::new(fixed) as Plan),
            ))
        })?;
        let pushed = self.0.optimize(fixed.data, config)?;
        if !fixed.transformed {
            return Ok(pushed);
        }
        let back = pushed.transform_up(|node| match node.downcast_ref::<Fixed>() {
            Some(fixed) => Ok(Transformed::yes(fixed.projection()?)),
            None => Ok(Transformed::no(node)),
        })?;
        Fence::without_temporary(back.data)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Stands for a projection that must stay where it is while DataFusion's rule runs.
#[derive(Debug)]
struct Fixed {
    expressions: Vec<ProjectionExpr>,
    input: Plan,
    /// The properties of the projection.
    properties: Arc<PlanProperties>,
}

impl Fixed {
    /// Fixes `projection`, above one of only the columns that it needs. `None` if it cannot fail, or reads a
    /// leaf such as a table scan, below which there is nothing to move to.
    fn new(projection: &ProjectionExec) -> Result<Option<Self>> {
        let (input, schema) = (projection.input(), projection.input().schema());
        let mut any = false;
        for one in projection.expr() {
            any |= !one.expr.is::<Column>() && fallible(&one.expr, &schema, Nodes::Connectives)?.1;
        }
        if !any || input.children().is_empty() {
            return Ok(None);
        }
        let needed: BTreeSet<usize> = projection
            .expr()
            .iter()
            .flat_map(|one| collect_columns(&one.expr))
            .map(|column| column.index())
            .collect();
        let names: BTreeSet<_> = needed.iter().map(|index| schema.field(*index).name()).collect();
        let mut expressions = projection.expr().to_vec();
        let mut input = input.clone();
        if needed.len() < schema.fields().len() && !needed.is_empty() && names.len() == needed.len() {
            let columns = needed.iter().map(|index| {
                let name = schema.field(*index).name();
                ProjectionExpr { expr: Arc::new(Column::new(name, *index)), alias: name.clone() }
            });
            input = Arc::new(ProjectionExec::try_new(columns, input)?);
            for one in &mut expressions {
                one.expr = reassign_expr_columns(one.expr.clone(), &input.schema())?;
            }
        }
        Ok(Some(Self { expressions, input, properties: projection.properties().clone() }))
    }

    fn projection(&self) -> Result<Plan> {
        let schema = self.schema();
        let (expressions, input) = (self.expressions.iter().cloned(), self.input.clone());
        Ok(Arc::new(ProjectionExec::try_new_with_schema_metadata(expressions, input, &schema)?))
    }
}

impl DisplayAs for Fixed {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixed")
    }
}

impl ExecutionPlan for Fixed {
    fn name(&self) -> &'static str {
        "Fixed"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for one in &self.expressions {
            if visit(&one.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Plan>) -> Result<Plan> {
        assert_or_internal_err!(children.len() == 1, "a projection has one child");
        let (expressions, input) = (self.expressions.clone(), children.swap_remove(0));
        let changed = Self { expressions, input, properties: self.properties.clone() };
        let properties = changed.projection()?.properties().clone();
        Ok(Arc::new(Self { properties, ..changed }))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a projection that is being planned does not run")
    }
}
