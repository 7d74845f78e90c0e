//! Plans of ASOF JOIN.

use std::fmt;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, DFSchemaRef, JoinSide, JoinType, internal_err, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::builder::build_join_schema;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, Filter, Join, LogicalPlan, Operator, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore, lit,
};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::{marked, marked_name};
use crate::compile::conditions::{can_fail, wrapped, wrapped_filter};
use crate::compile::join::{JoinExec, Nearest};
use crate::compile::rules::mentions_outer;

/// Makes [`AsOf`] nodes of joins with a mark. It runs when types are known.
#[derive(Debug)]
pub(crate) struct AsOfJoins;

impl AnalyzerRule for AsOfJoins {
    fn name(&self) -> &'static str {
        "as_of_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) => as_of(join),
            LogicalPlan::Filter(filter) => filtered(filter),
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }
}

/// The node in the place of a join, if that is marked.
fn as_of(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let (left_schema, right_schema) = (join.left.schema().clone(), join.right.schema().clone());
    let conditions: Vec<Expr> =
        std::mem::take(&mut join.filter).into_iter().flat_map(split_conjunction_owned).collect();
    let mut compared = None;
    let mut others = Vec::new();
    let mut on = std::mem::take(&mut join.on);
    if let Some((right, name)) = without_mark(&join.right) {
        join.right = Arc::new(right);
        on.extend(
            conditions.iter().filter_map(|condition| equal_keys(condition, &left_schema, &right_schema)),
        );
        let is_named = |(_, key): &(Expr, Expr)| {
            key.column_refs().iter().any(|column| column.name.eq_ignore_ascii_case(&name))
        };
        let Some(place) = on.iter().position(is_named) else {
            return internal_err!("'{name}' of USING is not compared");
        };
        let (left_key, right_key) = on.remove(place);
        compared = Some((left_key, Operator::GtEq, right_key));
    } else if !conditions.iter().any(|condition| marked(condition).is_some()) {
        (join.filter, join.on) = (conjunction(conditions), on);
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    } else {
        for condition in conditions {
            let Some(inner) = marked(&condition) else {
                match equal_keys(&condition, &left_schema, &right_schema) {
                    Some(pair) => on.push(pair),
                    None => others.push(condition),
                }
                continue;
            };
            match compared_sides(inner, &left_schema, &right_schema) {
                Some(_) if compared.is_some() => {
                    return plan_err!(
                        "ASOF JOIN has one condition that compares the tables by <, <=, > or >="
                    );
                }
                Some(sides) => compared = Some(sides),
                None => others.push(inner.clone()),
            }
        }
    }
    let Some(compared) = compared else {
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        return plan_err!(
            "ASOF JOIN compares a value of each table by <, <=, > or >=, and not by {}",
            others.join(" AND ")
        );
    };
    let is_left = join.join_type == JoinType::Left;
    let (left, mut right) = (Arc::unwrap_or_clone(join.left), Arc::unwrap_or_clone(join.right));
    // What is about right rows alone leaves out those that would be tried one after the other.
    let (mut below, mut filters) = (Vec::new(), Vec::new());
    for condition in others {
        let is_below = is_of(&condition, &right_schema) && !can_fail(&condition, &right_schema)?;
        if is_below { below.push(condition) } else { filters.push(condition) }
    }
    if let Some(below) = conjunction(below) {
        right = LogicalPlan::Filter(Filter::try_new(below, Arc::new(right))?);
    }
    let node = AsOf::new(left, right, on, compared, conjunction(filters), is_left)?;
    Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
}

/// Whether an expression has columns, all of them of this schema, and is the same each time. What its subqueries mention
/// may be of any schema.
fn is_of(expr: &Expr, schema: &DFSchema) -> bool {
    let columns = expr.column_refs();
    !columns.is_empty()
        && !expr.is_volatile()
        && !expr.contains_outer()
        && !mentions_outer(expr)
        && columns.iter().all(|column| schema.has_column(column))
}

/// A comparison of a value of each side, the left one first.
fn compared_sides(expr: &Expr, left: &DFSchema, right: &DFSchema) -> Option<(Expr, Operator, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) = expr else { return None };
    let sides = if is_of(one, left) && is_of(other, right) {
        (one.as_ref().clone(), *op, other.as_ref().clone())
    } else if is_of(other, left) && is_of(one, right) {
        (other.as_ref().clone(), op.swap()?, one.as_ref().clone())
    } else {
        return None;
    };
    matches!(sides.1, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq).then_some(sides)
}

/// A condition as a pair of expressions of the left and of the right side that are equal.
fn equal_keys(condition: &Expr, left: &DFSchema, right: &DFSchema) -> Option<(Expr, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::Eq, right: other }) = condition else {
        return None;
    };
    if is_of(one, left) && is_of(other, right) {
        Some((one.as_ref().clone(), other.as_ref().clone()))
    } else if is_of(other, left) && is_of(one, right) {
        Some((other.as_ref().clone(), one.as_ref().clone()))
    } else {
        None
    }
}

/// The plan of a table without the filter that is the mark, if it has one, and the column that this names.
fn without_mark(plan: &LogicalPlan) -> Option<(LogicalPlan, String)> {
    match plan {
        LogicalPlan::Filter(filter) => {
            let name = marked_name(marked(&filter.predicate)?)?;
            Some((filter.input.as_ref().clone(), name))
        }
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) => {
            let (input, name) = without_mark(plan.inputs()[0])?;
            Some((plan.with_new_exprs(plan.expressions(), vec![input]).ok()?, name))
        }
        _ => None,
    }
}

/// A filter above the node, of which what is about left rows is below it: it does not matter to others.
fn filtered(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let node = match filter.input.as_ref() {
        LogicalPlan::Extension(Extension { node }) => node.as_any().downcast_ref::<AsOf>().cloned(),
        _ => None,
    };
    let Some(mut node) = node else { return Ok(Transformed::no(LogicalPlan::Filter(filter))) };
    if can_fail(&filter.predicate, filter.input.schema())? {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let conditions = split_conjunction_owned(filter.predicate);
    let (below, above): (Vec<Expr>, Vec<Expr>) =
        conditions.into_iter().partition(|condition| is_of(condition, node.left.schema()));
    let Some(below) = conjunction(below) else {
        let above = above.into_iter().reduce(Expr::and).unwrap_or_else(|| lit(true));
        return Ok(Transformed::no(LogicalPlan::Filter(Filter::try_new(above, filter.input)?)));
    };
    node.left = LogicalPlan::Filter(Filter::try_new(below, Arc::new(node.left))?);
    let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
    Ok(Transformed::yes(match conjunction(above) {
        Some(above) => LogicalPlan::Filter(Filter::try_new(above, Arc::new(plan))?),
        None => plan,
    }))
}

/// Moves filters that reach an [`AsOf`] node below it.
#[derive(Debug)]
pub(crate) struct AsOfFilters;

impl OptimizerRule for AsOfFilters {
    fn name(&self) -> &'static str {
        "as_of_filters"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) => filtered(filter),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// To each row of the left side the nearest one of the right side. No filter is moved below it by DataFusion, which would
/// move it to both sides, but those without columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AsOf {
    left: LogicalPlan,
    right: LogicalPlan,
    /// Pairs that are equal, of the left and the right side.
    on: Vec<(Expr, Expr)>,
    left_key: Expr,
    op: Operator,
    right_key: Expr,
    /// What else is true of pairs.
    filter: Option<Expr>,
    /// Whether left rows without a pair are there.
    is_left: bool,
    schema: DFSchemaRef,
}

impl PartialOrd for AsOf {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl AsOf {
    fn new(
        left: LogicalPlan,
        right: LogicalPlan,
        on: Vec<(Expr, Expr)>,
        (left_key, op, right_key): (Expr, Operator, Expr),
        filter: Option<Expr>,
        is_left: bool,
    ) -> Result<Self> {
        let join_type = if is_left { JoinType::Left } else { JoinType::Inner };
        let schema = Arc::new(build_join_schema(left.schema(), right.schema(), &join_type)?);
        Ok(Self { left, right, on, left_key, op, right_key, filter, is_left, schema })
    }
}

impl UserDefinedLogicalNodeCore for AsOf {
    fn name(&self) -> &'static str {
        "AsOf"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let on = self.on.iter().flat_map(|(left, right)| [left, right]);
        on.chain([&self.left_key, &self.right_key]).chain(&self.filter).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AsOf: {} {} {}", self.left_key, self.op, self.right_key)?;
        for (left, right) in &self.on {
            write!(f, ", {left} = {right}")?;
        }
        match &self.filter {
            Some(filter) => write!(f, ", {filter}"),
            None => Ok(()),
        }
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(right), Some(left), true) = (inputs.pop(), inputs.pop(), inputs.is_empty()) else {
            return internal_err!("AsOf has two inputs");
        };
        let mut exprs = exprs.into_iter();
        let mut next = || exprs.next().map_or_else(|| internal_err!("an expression of AsOf is missing"), Ok);
        let on = self.on.iter().map(|_| Ok((next()?, next()?))).collect::<Result<_>>()?;
        let keys = (next()?, self.op, next()?);
        let filter = self.filter.as_ref().map(|_| next()).transpose()?;
        Self::new(left, right, on, keys, filter, self.is_left)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let left_count = self.left.schema().fields().len();
        let (left, right): (Vec<usize>, Vec<usize>) =
            output_columns.iter().partition(|column| **column < left_count);
        Some(vec![left, right.into_iter().map(|column| column - left_count).collect()])
    }
}

/// Plans [`AsOf`] nodes.
pub(crate) struct AsOfPlanner;

#[async_trait::async_trait]
impl ExtensionPlanner for AsOfPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(as_of), [left, right]) = (node.as_any().downcast_ref::<AsOf>(), inputs) else {
            return Ok(None);
        };
        let (left_schema, right_schema) = (as_of.left.schema(), as_of.right.schema());
        let of = |expr: &Expr, schema: &DFSchema| {
            wrapped(planner.create_physical_expr(expr, schema, session, context)?, schema.as_arrow())
        };
        let of_left = |expr: &Expr| of(expr, left_schema);
        let of_right = |expr: &Expr| of(expr, right_schema);
        let on = as_of.on.iter().map(|(left, right)| Ok((of_left(left)?, of_right(right)?)));
        let filter = match &as_of.filter {
            Some(filter) => {
                let count = |schema: &DFSchema| 0..schema.fields().len();
                let columns = count(left_schema).map(|index| ColumnIndex { index, side: JoinSide::Left });
                let others = count(right_schema).map(|index| ColumnIndex { index, side: JoinSide::Right });
                let schema = left_schema.join(right_schema)?;
                let filter = planner.create_physical_expr(filter, &schema, session, context)?;
                let schema = Arc::new(schema.as_arrow().clone());
                Some(wrapped_filter(JoinFilter::new(filter, columns.chain(others).collect(), schema))?)
            }
            None => None,
        };
        let nearest = Nearest {
            on: on.collect::<Result<_>>()?,
            left_key: of_left(&as_of.left_key)?,
            op: as_of.op,
            right_key: of_right(&as_of.right_key)?,
            filter,
            is_left: as_of.is_left,
        };
        let schema = Arc::new(as_of.schema.as_arrow().clone());
        Ok(Some(Arc::new(JoinExec::nearest(left, right, nearest, schema)?)))
    }
}
