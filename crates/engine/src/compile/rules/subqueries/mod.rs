//! Rewrites subqueries that DataFusion has no plan for as joins: those with IN and EXISTS used as values, and
//! all that mention the outer query in another way than `inner = outer`.
//!
//! The subquery runs once for each distinct combination of the outer values that it mentions (see
//! [`dependent`]); its rows are then joined to the outer ones. Subqueries that DataFusion
//! can handle are left to it: those correlated only by equality do not need the outer rows a second time.

mod dependent;
mod joined;
mod limited;
mod on;
mod passed;
mod plans;
mod recursive;

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Sort, Union, Values, lit,
};
use datafusion::optimizer::AnalyzerRule;

pub(super) use dependent::PREFIX;
use dependent::{Names, check_mentioned, mentioned, repeatable};
use joined::{compared, contains, exists, scalar};
pub(crate) use on::LATERAL_MARK;
use on::{join_expressions, lateral, needs_join, on, with_lateral};
use passed::{Passed, check_passed, pass_on};
pub(crate) use plans::mentions_outer;
use plans::{
    Asked, check_aggregates, drop_limit, has_a_row, has_limit, has_one_row, has_subquery, is_pulled_up,
    keeps_columns, subquery_of, with_named_column,
};
use recursive::check_recursive;

use super::collations::may_collate;
use super::rewrite_expressions;

/// See the [module](self). Must run before the other analyzer rules, which refuse what it handles.
#[derive(Debug, Default)]
pub(crate) struct Subqueries;

impl AnalyzerRule for Subqueries {
    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        check_recursive(&plan)?;
        let mut names = Names::new(may_collate(&plan, options)?);
        // Inner subqueries first: the joins that replace them are then part of the outer ones.
        let plan = plan.transform_up_with_subqueries(|node| rewrite(node, &mut names)).data()?;
        check_passed(&plan)?;
        rewrite_expressions(plan, |expression, _| null_without_rows(expression))
    }

    fn name(&self) -> &str {
        "keirin_subqueries"
    }
}

fn rewrite(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    match &node {
        LogicalPlan::Join(join) => {
            let marked = with_lateral(join);
            let join = marked.as_ref().unwrap_or(join);
            if join_expressions(join).iter().any(needs_join) {
                return Ok(Transformed::yes(on(join, names)?));
            }
            let joined = lateral(join, names)?.or(marked.map(LogicalPlan::Join));
            Ok(joined.map_or_else(|| Transformed::no(node), Transformed::yes))
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => values(node, names),
        LogicalPlan::Values(list)
            if list.values.iter().flatten().any(|value| has_subquery(value) || value.contains_outer()) =>
        {
            Ok(Transformed::yes(selects(list, names)?))
        }
        _ => Ok(Transformed::no(node)),
    }
}

/// `VALUES (...), (...)` with subqueries or outer columns as `SELECT ... UNION ALL SELECT ...`: DataFusion computes values
/// while it plans.
fn selects(list: &Values, names: &mut Names) -> Result<LogicalPlan> {
    let columns = list.schema.fields();
    let mut rows = Vec::with_capacity(list.values.len());
    for row in &list.values {
        let row = row.iter().zip(columns).map(|(value, column)| value.clone().alias(column.name()));
        let select = LogicalPlanBuilder::empty(true).project(row)?.build()?;
        rows.push(Arc::new(values(select, names)?.data));
    }
    match rows.len() {
        1 => Ok(Arc::unwrap_or_clone(rows.remove(0))),
        _ => Ok(LogicalPlan::Union(Union::try_new(rows)?)),
    }
}

/// `x = ANY (...)` as `x IN (...)`, and `x <> ALL (...)` as `x NOT IN (...)`.
fn as_membership(expression: Expr) -> Result<Transformed<Expr>> {
    let Expr::SetComparison(comparison) = expression else { return Ok(Transformed::no(expression)) };
    let negated = match (comparison.op, &comparison.quantifier) {
        (Operator::Eq, SetQuantifier::Any) => false,
        (Operator::NotEq, SetQuantifier::All) => true,
        _ => return Ok(Transformed::no(Expr::SetComparison(comparison))),
    };
    let SetComparison { expr, subquery, .. } = comparison;
    Ok(Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated })))
}

/// Gives an uncorrelated scalar subquery that may have no rows one row, of NULL, for that case. DataFusion
/// would take the subquery for NOT NULL where its column is.
fn null_without_rows(expression: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(mut subquery) = expression else { return Ok(Transformed::no(expression)) };
    let changes = !has_a_row(&subquery.subquery) && mentioned(&subquery.subquery).is_empty();
    if changes {
        let rows = Arc::unwrap_or_clone(subquery.subquery);
        let or_null = LogicalPlanBuilder::empty(true).join_on(rows, JoinType::Left, [lit(true)])?.build()?;
        subquery.subquery = Arc::new(or_null);
    }
    let subquery = Expr::ScalarSubquery(subquery);
    Ok(if changes { Transformed::yes(subquery) } else { Transformed::no(subquery) })
}

/// A filter by correlated subqueries above one by its other conditions, which say how what it filters is joined. Those that
/// mention a query further out stay where DataFusion finds them, above the joins that are added.
fn with_simple_conditions_first(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Filter(filter) = node else { return Ok(node) };
    if !mentions_outer(&filter.predicate) {
        return Ok(LogicalPlan::Filter(filter));
    }
    let conditions = split_conjunction_owned(filter.predicate);
    let stays = |condition: &Expr| has_subquery(condition) || condition.contains_outer();
    let (others, simple): (Vec<_>, Vec<_>) = conditions.into_iter().partition(stays);
    let above = conjunction(others);
    let builder = LogicalPlanBuilder::from(filter.input);
    [conjunction(simple), above].into_iter().flatten().try_fold(builder, LogicalPlanBuilder::filter)?.build()
}

/// Replaces the subqueries in the expressions of a node by columns of joins below it.
fn values(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    let node = with_simple_conditions_first(node)?;
    let is_filter = matches!(node, LogicalPlan::Filter(_));
    let has_own_plan = is_filter || matches!(node, LogicalPlan::Projection(_));
    // The plan from which the outer values are taken: without the joins that are added, so that these do not
    // nest.
    let base = match &node {
        LogicalPlan::Sort(sort) => with_columns_to_sort(sort)?,
        _ => node.inputs()[0].clone(),
    };
    let preserver = NamePreserver::new(&node);
    let saved: Vec<_> = node.expressions().iter().map(|expression| preserver.save(expression)).collect();
    let Passed { input: mut base, expressions: passed, mut changed } =
        pass_on(base, node.expressions(), names)?;
    if passed.iter().any(mentions_outer) {
        base = repeatable(base)?;
    }
    let mut input = base.clone();
    let mut expressions = Vec::new();
    for (expression, saved) in passed.into_iter().zip(saved) {
        let Transformed { data: expression, transformed, .. } = expression.transform_up(as_membership)?;
        changed |= transformed;
        // Each condition of a WHERE separately: one that is a subquery as a whole need not tell NULL from
        // false.
        let parts = if is_filter { split_conjunction_owned(expression) } else { vec![expression] };
        let mut rewritten = Vec::with_capacity(parts.len());
        for whole in parts {
            let is_whole_in = is_filter && is_kept_in(&whole);
            let part = whole.transform_down(|mut part| {
                let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
                check_mentioned(&base, &mentioned(&subquery.subquery))?;
                check_aggregates(&subquery.subquery)?;
                let mut is_changed = false;
                let joined = match &mut part {
                    Expr::ScalarSubquery(subquery)
                        if !(has_own_plan
                            && has_one_row(subquery)
                            && has_a_row(&subquery.subquery)
                            && keeps_columns(&subquery.subquery)
                            && !names.has_collations
                            && is_pulled_up(subquery, Asked::Value, None)) =>
                    {
                        scalar(&base, &input, subquery, names)?
                    }
                    Expr::Exists(Exists { subquery, negated }) => {
                        is_changed = drop_limit(subquery)?;
                        let is_left =
                            is_filter && is_pulled_up(subquery, Asked::Rows, None) && !has_limit(subquery)?;
                        if is_left { None } else { exists(&base, &input, subquery, *negated, names)? }
                    }
                    Expr::SetComparison(comparison) => compared(&base, &input, comparison, names)?,
                    Expr::InSubquery(membership)
                        if !(is_whole_in
                            && is_pulled_up(&membership.subquery, Asked::Rows, Some(&membership.expr))) =>
                    {
                        contains(&base, &input, membership, names)?
                    }
                    // DataFusion casts the column, and carries along what the conditions mention: columns of one name.
                    Expr::InSubquery(membership) => {
                        is_changed = with_named_column(&mut membership.subquery, names)?;
                        None
                    }
                    _ => None,
                };
                changed |= is_changed;
                Ok(match joined {
                    Some((plan, value)) => {
                        input = plan;
                        changed = true;
                        Transformed::new(value, true, TreeNodeRecursion::Jump)
                    }
                    None => Transformed::new(part, is_changed, TreeNodeRecursion::Continue),
                })
            })?;
            rewritten.push(part.data);
        }
        expressions.extend(conjunction(rewritten).map(|expression| saved.restore(expression)));
    }
    if !changed {
        return Ok(Transformed::no(node));
    }
    let columns = node.schema().columns();
    let passes_input_on =
        matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_));
    let plan = node.with_new_exprs(expressions, vec![input])?;
    if !passes_input_on {
        return Ok(Transformed::yes(plan));
    }
    let plan = LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()?;
    Ok(Transformed::yes(plan))
}

/// Whether a condition is an IN that DataFusion plans correctly. For a correlated NOT IN it does not: a NULL
/// is not attributed to its outer row.
fn is_kept_in(condition: &Expr) -> bool {
    let (membership, is_not) = match condition {
        Expr::InSubquery(membership) => (membership, false),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(membership) => (membership, true),
            _ => return false,
        },
        _ => return false,
    };
    membership.negated == is_not || mentioned(&membership.subquery.subquery).is_empty()
}

/// The input of a sort, with the unselected columns that subqueries in ORDER BY mention.
fn with_columns_to_sort(sort: &Sort) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
        return Ok(sort.input.as_ref().clone());
    };
    let mut missing: Vec<Column> = Vec::new();
    for key in &sort.expr {
        key.expr.apply(|part| {
            for column in subquery_of(part).map(|subquery| mentioned(&subquery.subquery)).unwrap_or_default()
            {
                let is_missing = !sort.input.schema().has_column(&column) && !missing.contains(&column);
                if is_missing && projection.input.schema().has_column(&column) {
                    missing.push(column);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if missing.is_empty() {
        return Ok(sort.input.as_ref().clone());
    }
    let columns = projection.expr.iter().cloned().chain(missing.into_iter().map(Expr::Column));
    LogicalPlanBuilder::from(projection.input.as_ref().clone()).project(columns)?.build()
}
