//! Subqueries in FROM: in the conditions of joins, and LATERAL.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Spans, TableReference, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::dependent::{Names, Outer, is_lateral, mentioned, repeatable};
use super::joined::column;
use super::passed::Far;
use super::plans::{Asked, check_aggregates, is_pulled_up, subquery_of};
use super::values;

/// The alias of the query in a LATERAL relation that has subqueries.
pub(crate) const LATERAL_MARK: &str = "keirin lateral";

/// Whether an expression has a subquery that only a join can compute.
pub(super) fn needs_join(expression: &Expr) -> bool {
    let is_joined = |part: &Expr| match part {
        Expr::ScalarSubquery(subquery) => !mentioned(&subquery.subquery).is_empty(),
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => true,
        _ => false,
    };
    expression.exists(|part| Ok(is_joined(part))).unwrap_or(true)
}

/// All conditions of a join.
pub(super) fn join_expressions(join: &Join) -> Vec<Expr> {
    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    equal.chain(join.filter.iter().cloned().flat_map(split_conjunction_owned)).collect()
}

/// `JOIN ... ON` with subqueries: they filter the joined rows, or the input rows that an outer join may drop.
pub(super) fn on(join: &Join, names: &mut Names) -> Result<LogicalPlan> {
    let mut join = join.clone();
    let mut conditions = Vec::new();
    join.on.retain(|(left, right)| {
        let stays = !needs_join(left) && !needs_join(right);
        if !stays {
            conditions.push(left.clone().eq(right.clone()));
        }
        stays
    });
    let (with_subqueries, others): (Vec<_>, Vec<_>) =
        join.filter.take().into_iter().flat_map(split_conjunction_owned).partition(needs_join);
    conditions.extend(with_subqueries);
    join.filter = conjunction(others);
    let Some(condition) = conjunction(conditions) else { return Ok(LogicalPlan::Join(join)) };
    let (filtered, kept) = match join.join_type {
        JoinType::Inner => {
            let joined = lateral(&join, names)?.unwrap_or(LogicalPlan::Join(join));
            return Ok(values(LogicalPlan::Filter(Filter::try_new(condition, joined.into())?), names)?.data);
        }
        JoinType::Left => (&mut join.right, &join.left),
        JoinType::Right => (&mut join.left, &join.right),
        _ => return on_columns(join, condition, names),
    };
    let mut is_of_one_side =
        condition.column_refs().into_iter().all(|column| filtered.schema().has_column(column));
    condition.apply(|part| {
        let columns = subquery_of(part).map(|subquery| mentioned(&subquery.subquery)).unwrap_or_default();
        // What neither side has is of a query further out.
        is_of_one_side &= !columns.iter().any(|column| kept.schema().has_column(column));
        Ok(TreeNodeRecursion::Continue)
    })?;
    if matches!(join.join_type, JoinType::Left) && is_lateral(filtered) {
        return outer_join_on();
    }
    if !is_of_one_side {
        return on_columns(join, condition, names);
    }
    let filter = Filter::try_new(condition, filtered.clone())?;
    *filtered = values(LogicalPlan::Filter(filter), names)?.data.into();
    Ok(LogicalPlan::Join(join))
}

/// An outer join on a condition with subqueries, each of which mentions one side: they become columns of that
/// side.
pub(super) fn on_columns(mut join: Join, condition: Expr, names: &mut Names) -> Result<LogicalPlan> {
    if !matches!(join.join_type, JoinType::Left | JoinType::Right | JoinType::Full) {
        return outer_join_on();
    }
    let outputs = join.schema.columns();
    let [mut of_left, mut of_right] = [Vec::new(), Vec::new()];
    let condition = condition.transform_down(|part| {
        if !needs_join(&part) {
            return Ok(Transformed::new(part, false, TreeNodeRecursion::Jump));
        }
        let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
        let mut columns = mentioned(&subquery.subquery);
        columns.extend(part.column_refs().into_iter().cloned());
        let mentions = |side: &LogicalPlan| columns.iter().any(|column| side.schema().has_column(column));
        let side = if !mentions(&join.right) {
            &mut of_left
        } else if !mentions(&join.left) {
            &mut of_right
        } else {
            return outer_join_on();
        };
        let name = names.fresh();
        side.push(part.alias(&name));
        Ok(Transformed::new(column(&name), true, TreeNodeRecursion::Jump))
    })?;
    join.left = with_columns(join.left, of_left, names)?;
    join.right = with_columns(join.right, of_right, names)?;
    let equal = join.on.into_iter().map(|(left, right)| left.eq(right));
    let conditions = equal.chain(join.filter).chain([condition.data]);
    LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.left))
        .join_on(Arc::unwrap_or_clone(join.right), join.join_type, conditions)?
        .project(outputs.into_iter().map(Expr::Column))?
        .build()
}

/// `plan` with the columns `more`, which contain subqueries.
pub(super) fn with_columns(
    plan: Arc<LogicalPlan>,
    more: Vec<Expr>,
    names: &mut Names,
) -> Result<Arc<LogicalPlan>> {
    if more.is_empty() {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column).chain(more);
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(plan)).project(columns)?.build()?;
    Ok(values(plan, names)?.data.into())
}

pub(super) fn outer_join_on<T>() -> Result<T> {
    not_impl_err!("a subquery in the ON of an outer join that mentions both sides")
}

/// `FROM t, LATERAL (... t.x ...)`, also `FROM t, unnest(t.list)`; `None` for those that DataFusion can plan.
pub(super) fn lateral(join: &Join, names: &mut Names) -> Result<Option<LogicalPlan>> {
    let Some((subquery, _)) = lateral_of(join) else { return Ok(None) };
    check_aggregates(&subquery.subquery)?;
    let is_near = |column: &Column| join.left.schema().has_column(column);
    if mentioned(&subquery.subquery).iter().all(is_near) && is_pulled_up(subquery, Asked::Lateral, None) {
        return Ok(None);
    }
    joined_lateral(join, names)
}

/// `None` if the join is none with LATERAL, or an operator prevents it.
pub(super) fn joined_lateral(join: &Join, names: &mut Names) -> Result<Option<LogicalPlan>> {
    let Some((subquery, alias)) = lateral_of(join) else { return Ok(None) };
    let (mut subquery, mut far) = (subquery.clone(), Far::default());
    far.replace(&join.left, &mut subquery, names)?;
    let left = repeatable(far.beside(join.left.as_ref().clone())?)?;
    let outer = Outer::new(&left, &subquery.subquery, names)?;
    let Some((mut plan, mut keys)) = outer.dependent(&subquery.subquery, names)? else { return Ok(None) };
    if let Some(alias) = alias {
        keys = keys.into_iter().map(|key| Column::new(Some(alias.clone()), key.name)).collect();
        plan = LogicalPlanBuilder::from(plan).alias(alias.clone())?.build()?;
    }
    let mut conditions = outer.same(&keys);
    conditions.extend(join.on.iter().map(|(left, right)| left.clone().eq(right.clone())));
    conditions.extend(join.filter.clone());
    let columns = join.schema.columns();
    LogicalPlanBuilder::from(left)
        .join_on(plan, join.join_type, conditions)?
        .project(columns.into_iter().map(Expr::Column))?
        .build()
        .map(Some)
}

/// The join with its right side as LATERAL, where only subqueries inside that mentioned the left one: the planner did not look
/// at them.
pub(super) fn with_lateral(join: &Join) -> Option<Join> {
    let is_mentioned = || mentioned(&join.right).iter().any(|column| join.left.schema().has_column(column));
    if !is_marked(&join.right) || !is_mentioned() {
        return None;
    }
    let subquery = |plan: &Arc<LogicalPlan>| {
        let outer_ref_columns = plan.all_out_ref_exprs();
        Arc::new(LogicalPlan::Subquery(Subquery {
            subquery: plan.clone(),
            outer_ref_columns,
            spans: Spans::new(),
        }))
    };
    let mut right = join.right.clone();
    match Arc::make_mut(&mut right) {
        LogicalPlan::SubqueryAlias(alias) => alias.input = subquery(&alias.input),
        _ => right = subquery(&right),
    }
    Some(Join { right, ..join.clone() })
}

/// Whether a relation is LATERAL, by its mark, and does not look it. Above the mark are `SELECT *` and the alias that the user
/// gave.
fn is_marked(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table() == LATERAL_MARK || is_marked(&alias.input),
        LogicalPlan::Projection(projection) => is_marked(&projection.input),
        _ => false,
    }
}

/// The subquery of a join with LATERAL, and its alias.
fn lateral_of(join: &Join) -> Option<(&Subquery, Option<&TableReference>)> {
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return None;
    }
    match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => Some((subquery, None)),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some((subquery, Some(&alias.alias))),
            _ => None,
        },
        _ => None,
    }
}
