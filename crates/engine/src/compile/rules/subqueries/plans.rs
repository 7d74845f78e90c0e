//! What is known of the plans of subqueries.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::not_impl_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, FetchType, JoinType, Limit, LogicalPlan, LogicalPlanBuilder, SkipType,
    Subquery,
};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::dependent::{Names, is_lateral, mentioned, value_of_nothing};

/// Whether a plan has at least one row, whatever the data.
pub(super) fn has_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        LogicalPlan::Join(join) => join.join_type == JoinType::Left && has_a_row(&join.left),
        LogicalPlan::Limit(limit) => keeps_first(limit).unwrap_or(false) && has_a_row(&limit.input),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Window(_) => {
            has_a_row(plan.inputs()[0])
        }
        LogicalPlan::Sort(sort) => sort.fetch != Some(0) && has_a_row(&sort.input),
        _ => false,
    }
}

/// Whether the columns of an aggregation still mention it once they are simplified. DataFusion, which joins
/// the groups of a correlated one, knows by them what the value is where there is no group: one that has
/// become a constant would be NULL there.
pub(super) fn keeps_columns(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = &projection.input;
            let keeps = |column: &Expr| {
                let (mut is_arithmetic, mut is_computed) = (true, false);
                let walked = column.apply(|part| {
                    match part {
                        Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_) | Expr::Cast(_) => {}
                        Expr::BinaryExpr(binary) if binary.op.is_numerical_operators() => is_computed = true,
                        _ => is_arithmetic = false,
                    }
                    Ok(TreeNodeRecursion::Continue)
                });
                // `count(*) * 0` is 0 without a look at the count, but a sum times 0 may be NULL.
                let stays = !is_computed || column.nullable(input.schema()).unwrap_or(false);
                walked.is_ok() && is_arithmetic && stays && column.any_column_refs()
            };
            projection.expr.iter().all(keeps) && keeps_columns(input)
        }
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
            keeps_columns(plan.inputs()[0])
        }
        LogicalPlan::Aggregate(_) => true,
        _ => false,
    }
}

/// Whether a LIMIT keeps the first row, if there is one.
pub(super) fn keeps_first(limit: &Limit) -> Result<bool> {
    Ok(matches!(limit.get_skip_type()?, SkipType::Literal(0))
        && matches!(limit.get_fetch_type()?, FetchType::Literal(fetch) if fetch != Some(0)))
}

pub(super) fn has_subquery(expression: &Expr) -> bool {
    expression.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(false)
}

/// Whether an expression has a subquery that mentions columns of a query around it.
pub(crate) fn mentions_outer(expression: &Expr) -> bool {
    let is_correlated =
        |part: &Expr| Ok(subquery_of(part).is_some_and(|subquery| !mentioned(&subquery.subquery).is_empty()));
    expression.exists(is_correlated).unwrap_or(true)
}

pub(super) fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery) | Expr::Exists(Exists { subquery, .. }) => Some(subquery),
        Expr::InSubquery(membership) => Some(&membership.subquery),
        Expr::SetComparison(comparison) => Some(&comparison.subquery),
        _ => None,
    }
}

pub(super) fn subquery_of_mut(expression: &mut Expr) -> Option<&mut Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery) | Expr::Exists(Exists { subquery, .. }) => Some(subquery),
        Expr::InSubquery(membership) => Some(&mut membership.subquery),
        Expr::SetComparison(comparison) => Some(&mut comparison.subquery),
        _ => None,
    }
}

/// Whether a scalar subquery has at most one row, whatever the data.
pub(super) fn has_one_row(subquery: &Subquery) -> bool {
    subquery.subquery.max_rows().is_some_and(|rows| rows <= 1)
}

/// Refuses aggregates over only columns of the outer query: they are aggregates of that query (SQL:2016,
/// 6.9), and here they would be computed for each of its rows.
pub(super) fn check_aggregates(subquery: &LogicalPlan) -> Result<()> {
    subquery.apply(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(TreeNodeRecursion::Continue) };
        for expression in &aggregate.aggr_expr {
            expression.apply(|part| {
                let Expr::AggregateFunction(call) = part else { return Ok(TreeNodeRecursion::Continue) };
                let is_of_outer = call.params.args.iter().any(Expr::contains_outer)
                    && !call.params.args.iter().any(Expr::any_column_refs);
                if is_of_outer {
                    return not_impl_err!(
                        "an aggregate in a subquery over columns of the query around it alone: it belongs to that query, so compute it there"
                    );
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Removes a LIMIT that does not change whether there are any rows.
pub(super) fn drop_limit(subquery: &mut Subquery) -> Result<bool> {
    let LogicalPlan::Limit(limit) = subquery.subquery.as_ref() else { return Ok(false) };
    let keeps_first = keeps_first(limit)?;
    if keeps_first {
        subquery.subquery = limit.input.clone();
    }
    Ok(keeps_first)
}

/// Gives the column of a correlated subquery a name of its own; whether it had none.
pub(super) fn with_named_column(subquery: &mut Subquery, names: &mut Names) -> Result<bool> {
    let LogicalPlan::Projection(projection) = subquery.subquery.as_ref() else { return Ok(false) };
    let [Expr::Column(column)] = &projection.expr[..] else { return Ok(false) };
    if mentioned(&subquery.subquery).is_empty() {
        return Ok(false);
    }
    let column = Expr::Column(column.clone()).alias(names.fresh());
    let plan = LogicalPlanBuilder::from(projection.input.as_ref().clone()).project([column])?.build()?;
    subquery.subquery = Arc::new(plan);
    Ok(true)
}

/// Whether a correlated subquery has a LIMIT, which DataFusion may ignore below EXISTS.
pub(super) fn has_limit(subquery: &Subquery) -> Result<bool> {
    let plan = &subquery.subquery;
    Ok(!mentioned(plan).is_empty() && plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))?)
}

/// What a subquery is asked for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Asked {
    /// One value.
    Value,
    /// Whether there are rows, or a certain one among them.
    Rows,
    /// All rows, for each row to its left.
    Lateral,
}

/// Whether DataFusion can make a join of a subquery itself. `member` is the expression before IN.
pub(super) fn is_pulled_up(subquery: &Subquery, asked: Asked, member: Option<&Expr>) -> bool {
    let plan = &subquery.subquery;
    let keeps = keeps_meaning(plan, asked) || asked == Asked::Lateral && is_null_of_nothing(plan);
    if member.is_some_and(Expr::contains_outer) || !keeps {
        return false;
    }
    let mut pull_up = PullUpCorrelatedExpr::new();
    pull_up = match member {
        Some(member) => {
            let Ok(Some(output)) = subquery.subquery.head_output_expr() else { return false };
            pull_up.with_in_predicate_opt(Some(member.clone().eq(output)))
        }
        None => pull_up.with_need_handle_count_bug(true),
    };
    let pulled = subquery.subquery.as_ref().clone().rewrite(&mut pull_up);
    pulled.is_ok() && pull_up.can_pull_up
}

/// Whether a plan means the same when its conditions with outer columns become those of a join above it: DataFusion pulls
/// them out of outer joins, windows, set operations and groups of all rows, too, and does not find columns again below
/// another name for them.
fn keeps_meaning(plan: &LogicalPlan, asked: Asked) -> bool {
    if mentioned(plan).is_empty() {
        return true;
    }
    let is_kept = match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) => true,
        LogicalPlan::Join(join) => join.join_type == JoinType::Inner && !is_lateral(&join.right),
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        LogicalPlan::Distinct(Distinct::All(_)) => asked == Asked::Rows,
        LogicalPlan::Aggregate(aggregate) => match asked {
            Asked::Value => {
                // None of the rows that it takes may be groups.
                return aggregate.group_expr.is_empty() && keeps_meaning(&aggregate.input, Asked::Lateral);
            }
            Asked::Rows => {
                let is_set = |key: &Expr| matches!(key, Expr::GroupingSet(_));
                !aggregate.group_expr.is_empty() && !aggregate.group_expr.iter().any(is_set)
            }
            Asked::Lateral => false,
        },
        _ => false,
    };
    is_kept && plan.inputs().into_iter().all(|input| keeps_meaning(input, asked))
}

/// Whether a plan is one row that is all NULL where nothing is aggregated: what an outer join has there, too.
fn is_null_of_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let is_column = |column: &Expr| matches!(column.clone().unalias_nested().data, Expr::Column(_));
            projection.expr.iter().all(is_column) && is_null_of_nothing(&projection.input)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let is_null = |value| value_of_nothing(value, aggregate).is_ok_and(|value| value.is_none());
            aggregate.group_expr.is_empty()
                && aggregate.aggr_expr.iter().all(is_null)
                && keeps_meaning(&aggregate.input, Asked::Lateral)
        }
        _ => false,
    }
}

pub(super) fn first_column(plan: &LogicalPlan) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(0)))
}
