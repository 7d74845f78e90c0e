//! Rewrites subqueries that DataFusion has no plan for as joins: those with IN and EXISTS used as values, and
//! all that mention the outer query in another way than `inner = outer`.
//!
//! The subquery runs once for each distinct combination of the outer values that it mentions (see
//! [`dependent`](super::dependent)); its rows are then joined to the outer ones. Subqueries that DataFusion
//! can handle are left to it: those correlated only by equality do not need the outer rows a second time.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::expr::{Exists, InSubquery, ScalarFunction, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprSchemable, FetchType, Filter, Join, JoinType, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, SkipType, Sort, Subquery, Union, Values, binary_expr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use crate::expressions::arithmetic::Extreme;
use crate::expressions::functions::once;

use super::dependent::{Names, Outer, check_mentioned, check_repeatable, is_lateral, mentioned};
use super::rewrite_expressions;

/// See the [module](self). Must run before the other analyzer rules, which refuse what it handles.
#[derive(Debug, Default)]
pub(crate) struct Subqueries;

impl AnalyzerRule for Subqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut names = Names::default();
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
        LogicalPlan::Join(join) if join_expressions(join).iter().any(needs_join) => {
            Ok(Transformed::yes(on(join, names)?))
        }
        LogicalPlan::Join(join) => match lateral(join, names)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => Ok(Transformed::no(node)),
        },
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => values(node, names),
        LogicalPlan::Values(list) if list.values.iter().flatten().any(has_subquery) => {
            Ok(Transformed::yes(selects(list, names)?))
        }
        _ => Ok(Transformed::no(node)),
    }
}

/// `VALUES (...), (...)` with subqueries as `SELECT ... UNION ALL SELECT ...`: DataFusion computes values while
/// it plans.
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

/// Whether a plan has at least one row, whatever the data.
fn has_a_row(plan: &LogicalPlan) -> bool {
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
fn keeps_columns(plan: &LogicalPlan) -> bool {
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
fn keeps_first(limit: &Limit) -> Result<bool> {
    Ok(matches!(limit.get_skip_type()?, SkipType::Literal(0))
        && matches!(limit.get_fetch_type()?, FetchType::Literal(fetch) if fetch != Some(0)))
}

/// Replaces the subqueries in the expressions of a node by columns of joins below it.
fn values(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
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
    let Passed { input: base, expressions: passed, mut changed } = pass_on(base, node.expressions(), names)?;
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
                let mut limit_dropped = false;
                let joined = match &mut part {
                    Expr::ScalarSubquery(subquery)
                        if !(has_own_plan
                            && has_one_row(subquery)
                            && has_a_row(&subquery.subquery)
                            && keeps_columns(&subquery.subquery)
                            && is_pulled_up(subquery, None)) =>
                    {
                        scalar(&base, &input, subquery, names)?
                    }
                    Expr::Exists(Exists { subquery, negated }) => {
                        limit_dropped = drop_limit(subquery)?;
                        let is_left = is_filter && is_pulled_up(subquery, None) && !has_limit(subquery)?;
                        if is_left { None } else { exists(&base, &input, subquery, *negated, names)? }
                    }
                    Expr::SetComparison(comparison) => compared(&base, &input, comparison, names)?,
                    Expr::InSubquery(membership)
                        if !(is_whole_in && is_pulled_up(&membership.subquery, Some(&membership.expr))) =>
                    {
                        contains(&base, &input, membership, names)?
                    }
                    _ => None,
                };
                changed |= limit_dropped;
                Ok(match joined {
                    Some((plan, value)) => {
                        input = plan;
                        changed = true;
                        Transformed::new(value, true, TreeNodeRecursion::Jump)
                    }
                    None => Transformed::new(part, limit_dropped, TreeNodeRecursion::Continue),
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

/// The input and the expressions of a node whose subqueries mention only columns of that input.
struct Passed {
    input: LogicalPlan,
    expressions: Vec<Expr>,
    changed: bool,
}

/// Makes what subqueries mention of queries further out columns of the query directly around them, which mentions them in
/// their place. Inner subqueries come first, so that this goes on from query to query.
fn pass_on(input: LogicalPlan, expressions: Vec<Expr>, names: &mut Names) -> Result<Passed> {
    let mut far: Vec<(Expr, String)> = Vec::new();
    let expressions = expressions.into_iter().map(|expression| {
        expression
            .transform_down(|mut part| {
                let Some(subquery) = subquery_of_mut(&mut part) else { return Ok(Transformed::no(part)) };
                let mentioned = subquery.subquery.all_out_ref_exprs();
                let mut is_far = false;
                for outer in &mentioned {
                    let Expr::OuterReferenceColumn(_, column) = outer else { continue };
                    // A column that the query has, but not at this place, is none of the queries further out.
                    if has_somewhere(&input, column)? {
                        continue;
                    }
                    is_far = true;
                    if !far.iter().any(|(known, _)| known == outer) {
                        far.push((outer.clone(), names.fresh()));
                    }
                }
                if is_far {
                    let plan = Arc::unwrap_or_clone(subquery.subquery.clone());
                    subquery.subquery = Arc::new(with_near_columns(plan, &far)?);
                }
                subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
                Ok(Transformed::new(part, is_far, TreeNodeRecursion::Continue))
            })
            .data()
    });
    let expressions = expressions.collect::<Result<_>>()?;
    if far.is_empty() {
        return Ok(Passed { input, expressions, changed: false });
    }
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<Expr> = columns.chain(far.into_iter().map(|(outer, name)| outer.alias(name))).collect();
    let input = LogicalPlanBuilder::from(input).project(columns)?.build()?;
    Ok(Passed { input, expressions, changed: true })
}

/// Whether a query has a column, at its end or before.
fn has_somewhere(plan: &LogicalPlan, column: &Column) -> Result<bool> {
    let mut has_column = false;
    plan.apply(|node| {
        has_column |= node.schema().has_column(column);
        Ok(match node {
            _ if has_column => TreeNodeRecursion::Stop,
            // Below, names mean something else.
            LogicalPlan::SubqueryAlias(_) => TreeNodeRecursion::Jump,
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(has_column)
}

/// Refuses columns that were passed on to a plan with no query around it.
fn check_passed(plan: &LogicalPlan) -> Result<()> {
    plan.apply(|node| {
        // What is LATERAL mentions the relation beside it.
        if let LogicalPlan::Subquery(_) = node {
            return Ok(TreeNodeRecursion::Jump);
        }
        for expression in node.expressions() {
            expression.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part {
                    check_mentioned(plan, std::slice::from_ref(column))?;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The plan of a subquery with outer columns replaced by those of the names beside them.
fn with_near_columns(plan: LogicalPlan, far: &[(Expr, String)]) -> Result<LogicalPlan> {
    let near = |part: Expr| {
        let known = far.iter().find(|(outer, _)| *outer == part);
        Ok(match (known, part) {
            (Some((_, name)), Expr::OuterReferenceColumn(field, _)) => {
                let field = field.as_ref().clone().with_name(name);
                Transformed::yes(Expr::OuterReferenceColumn(Arc::new(field), Column::new_unqualified(name)))
            }
            (_, part) => Transformed::no(part),
        })
    };
    plan.transform_up(|node| {
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let saved = preserver.save(&expression);
            Ok(expression.transform_up(near)?.update_data(|expression| saved.restore(expression)))
        })?
        .map_data(LogicalPlan::recompute_schema)
    })
    .data()
}

fn has_subquery(expression: &Expr) -> bool {
    expression.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(false)
}

fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery) | Expr::Exists(Exists { subquery, .. }) => Some(subquery),
        Expr::InSubquery(membership) => Some(&membership.subquery),
        Expr::SetComparison(comparison) => Some(&comparison.subquery),
        _ => None,
    }
}

fn subquery_of_mut(expression: &mut Expr) -> Option<&mut Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery) | Expr::Exists(Exists { subquery, .. }) => Some(subquery),
        Expr::InSubquery(membership) => Some(&mut membership.subquery),
        Expr::SetComparison(comparison) => Some(&mut comparison.subquery),
        _ => None,
    }
}

/// Whether a scalar subquery has at most one row, whatever the data.
fn has_one_row(subquery: &Subquery) -> bool {
    subquery.subquery.max_rows().is_some_and(|rows| rows <= 1)
}

/// Refuses aggregates over only columns of the outer query: they are aggregates of that query (SQL:2016,
/// 6.9), and here they would be computed for each of its rows.
fn check_aggregates(subquery: &LogicalPlan) -> Result<()> {
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

/// Removes a LIMIT that does not change whether there are any rows.
fn drop_limit(subquery: &mut Subquery) -> Result<bool> {
    let LogicalPlan::Limit(limit) = subquery.subquery.as_ref() else { return Ok(false) };
    let keeps_first = keeps_first(limit)?;
    if keeps_first {
        subquery.subquery = limit.input.clone();
    }
    Ok(keeps_first)
}

/// Whether a correlated subquery has a LIMIT, which DataFusion may ignore below EXISTS.
fn has_limit(subquery: &Subquery) -> Result<bool> {
    let plan = &subquery.subquery;
    Ok(!mentioned(plan).is_empty() && plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))?)
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

/// Whether an expression has a subquery that only a join can compute.
fn needs_join(expression: &Expr) -> bool {
    let is_joined = |part: &Expr| match part {
        Expr::ScalarSubquery(subquery) => !mentioned(&subquery.subquery).is_empty(),
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => true,
        _ => false,
    };
    expression.exists(|part| Ok(is_joined(part))).unwrap_or(true)
}

/// All conditions of a join.
fn join_expressions(join: &Join) -> Vec<Expr> {
    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    equal.chain(join.filter.iter().cloned().flat_map(split_conjunction_owned)).collect()
}

/// `JOIN ... ON` with subqueries: they filter the joined rows, or the input rows that an outer join may drop.
fn on(join: &Join, names: &mut Names) -> Result<LogicalPlan> {
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
    let filtered = match join.join_type {
        JoinType::Inner => {
            let joined = lateral(&join, names)?.unwrap_or(LogicalPlan::Join(join));
            return Ok(values(LogicalPlan::Filter(Filter::try_new(condition, joined.into())?), names)?.data);
        }
        JoinType::Left => &mut join.right,
        JoinType::Right => &mut join.left,
        _ => return on_columns(join, condition, names),
    };
    let mut is_of_one_side =
        condition.column_refs().into_iter().all(|column| filtered.schema().has_column(column));
    condition.apply(|part| {
        let columns = subquery_of(part).map(|subquery| mentioned(&subquery.subquery)).unwrap_or_default();
        is_of_one_side &= columns.iter().all(|column| filtered.schema().has_column(column));
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
fn on_columns(mut join: Join, condition: Expr, names: &mut Names) -> Result<LogicalPlan> {
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
        let is_of = |side: &LogicalPlan| columns.iter().all(|column| side.schema().has_column(column));
        let side = if is_of(&join.left) {
            &mut of_left
        } else if is_of(&join.right) {
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
fn with_columns(plan: Arc<LogicalPlan>, more: Vec<Expr>, names: &mut Names) -> Result<Arc<LogicalPlan>> {
    if more.is_empty() {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column).chain(more);
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(plan)).project(columns)?.build()?;
    Ok(values(plan, names)?.data.into())
}

fn outer_join_on<T>() -> Result<T> {
    not_impl_err!("a subquery in the ON of an outer join that mentions both sides")
}

/// Refuses a subquery that neither DataFusion nor this rule has a plan for.
fn in_the_way<T>() -> Result<T> {
    not_impl_err!(
        "a subquery that mentions columns of the query around it below an outer join, grouping sets, INTERSECT or EXCEPT"
    )
}

/// Whether DataFusion can make a join of a subquery itself. `member` is the expression before IN.
fn is_pulled_up(subquery: &Subquery, member: Option<&Expr>) -> bool {
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

type Joined = Option<(LogicalPlan, Expr)>;

/// `(SELECT value FROM ... outer.x ...)`: at most one row for each combination of outer values.
fn scalar(base: &LogicalPlan, input: &LogicalPlan, subquery: &Subquery, names: &mut Names) -> Result<Joined> {
    let outer = Outer::new(base, &subquery.subquery, names)?;
    if outer.columns.is_empty() {
        return Ok(None);
    }
    let Some((plan, keys)) = outer.dependent(&subquery.subquery, names)? else {
        return in_the_way();
    };
    let value = names.fresh();
    if !has_one_row(subquery) {
        return only_row(input, &outer, plan, &keys, first_column(&subquery.subquery), names);
    }
    let (plan, keys) = select(plan, &keys, vec![first_column(&subquery.subquery).alias(&value)], names)?;
    let plan =
        LogicalPlanBuilder::from(input.clone()).join_on(plan, JoinType::Left, outer.same(&keys))?.build()?;
    Ok(Some((plan, column(&value))))
}

/// The first column of the only row for each combination of outer values; an error if a combination has
/// several.
fn only_row(
    input: &LogicalPlan,
    outer: &Outer,
    plan: LogicalPlan,
    keys: &[Column],
    first: Expr,
    names: &mut Names,
) -> Result<Joined> {
    let [value, row_count] = [names.fresh(), names.fresh()];
    let counted = LogicalPlanBuilder::from(plan)
        .aggregate(
            keys.iter().cloned().map(Expr::Column),
            vec![first_value(first, Vec::new()).alias(&value), count(lit(1_i64)).alias(&row_count)],
        )?
        .build()?;
    let (counted, keys) = select(counted, keys, vec![column(&value), column(&row_count)], names)?;
    let plan = LogicalPlanBuilder::from(input.clone())
        .join_on(counted, JoinType::Left, outer.same(&keys))?
        .build()?;
    let function = Arc::new(once::function(once::ONLY));
    let arguments = vec![column(&value), column(&row_count)];
    Ok(Some((plan, Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments)))))
}

/// `x < ANY (...)` and its like: the comparison is true of some value if it is true of the smallest or of the
/// largest one. If not, it is NULL if x or a row is NULL and there are rows; else false. ALL is the negation
/// of ANY with the opposite comparison.
fn compared(
    base: &LogicalPlan,
    input: &LogicalPlan,
    comparison: &SetComparison,
    names: &mut Names,
) -> Result<Joined> {
    let SetComparison { expr, subquery, op, quantifier } = comparison;
    if expr.is_volatile() {
        return not_impl_err!(
            "a comparison of {expr}, which differs each time, with ANY or ALL of a subquery"
        );
    }
    let is_all = *quantifier == SetQuantifier::All;
    let op = match (is_all, op.negate()) {
        (false, _) => *op,
        (true, Some(opposite)) => opposite,
        (true, None) => return not_impl_err!("{op} ALL of a subquery"),
    };
    let outer = Outer::new(base, &subquery.subquery, names)?;
    let dependent = if outer.columns.is_empty() {
        Some((subquery.subquery.as_ref().clone(), Vec::new()))
    } else {
        outer.dependent(&subquery.subquery, names)?
    };
    let Some((plan, keys)) = dependent else { return in_the_way() };
    let [row_count, value_count, least, most] = [(); 4].map(|()| names.fresh());
    let value = first_column(&subquery.subquery);
    let extreme = |extreme: AggregateUDF, name: &str| Arc::new(extreme).call(vec![value.clone()]).alias(name);
    let aggregates = vec![
        count(lit(1_i64)).alias(&row_count),
        count(value.clone()).alias(&value_count),
        extreme(AggregateUDF::new_from_impl(Extreme::<Min>::default()), &least),
        extreme(AggregateUDF::new_from_impl(Extreme::<Max>::default()), &most),
    ];
    let plan = LogicalPlanBuilder::from(plan)
        .aggregate(keys.iter().cloned().map(Expr::Column), aggregates)?
        .build()?;
    let outputs = [&row_count, &value_count, &least, &most].map(|name| column(name)).into();
    let (plan, keys) = select(plan, &keys, outputs, names)?;
    let builder = LogicalPlanBuilder::from(input.clone());
    let plan = if keys.is_empty() {
        builder.cross_join(plan)?
    } else {
        builder.join_on(plan, JoinType::Left, outer.same(&keys))?
    };
    let with = |name: &str| binary_expr(expr.as_ref().clone(), op, column(name));
    let is_true = match op {
        Operator::Lt | Operator::LtEq => with(&most),
        Operator::Gt | Operator::GtEq => with(&least),
        Operator::NotEq => with(&least).or(with(&most)),
        other => return not_impl_err!("{other} ANY of a subquery"),
    };
    let no_rows = column(&row_count).is_null().or(column(&row_count).eq(lit(0_i64)));
    let unknown = expr.as_ref().clone().is_null().or(column(&value_count).lt(column(&row_count)));
    let any = when(no_rows, lit(false))
        .when(is_true, lit(true))
        .when(unknown, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    Ok(Some((plan.build()?, if is_all { Expr::Not(Box::new(any)) } else { any })))
}

/// `EXISTS (...)`: whether a combination of outer values is among those that have rows.
fn exists(
    base: &LogicalPlan,
    input: &LogicalPlan,
    subquery: &Subquery,
    negated: bool,
    names: &mut Names,
) -> Result<Joined> {
    let outer = Outer::new(base, &subquery.subquery, names)?;
    if outer.columns.is_empty() {
        // An uncorrelated subquery has one answer for all rows: DataFusion computes it once.
        let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .limit(0, Some(1))?
            .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64)).alias(names.fresh())])?
            .build()?;
        let counted = Expr::ScalarSubquery(Subquery {
            subquery: plan.into(),
            outer_ref_columns: Vec::new(),
            spans: subquery.spans.clone(),
        });
        return Ok(Some((input.clone(), counted.eq(lit(i64::from(!negated))))));
    }
    let Some((plan, keys)) = outer.dependent(&subquery.subquery, names)? else { return in_the_way() };
    let (plan, keys) = select(plan, &keys, Vec::new(), names)?;
    let (plan, mark) = marked(plan, names)?;
    let plan =
        LogicalPlanBuilder::from(input.clone()).join_on(plan, JoinType::Left, outer.same(&keys))?.build()?;
    let found = column(&mark);
    Ok(Some((plan, if negated { found.is_null() } else { found.is_not_null() })))
}

/// `x IN (...)`: true if a row equals x. If not, it is NULL if x or a row is NULL and there are rows; else
/// false.
fn contains(
    base: &LogicalPlan,
    input: &LogicalPlan,
    membership: &InSubquery,
    names: &mut Names,
) -> Result<Joined> {
    let InSubquery { expr, subquery, negated } = membership;
    check_repeatable(&subquery.subquery, "a subquery of IN")?;
    let outer = Outer::new(base, &subquery.subquery, names)?;
    let dependent = if outer.columns.is_empty() {
        Some((subquery.subquery.as_ref().clone(), Vec::new()))
    } else {
        outer.dependent(&subquery.subquery, names)?
    };
    let Some((plan, keys)) = dependent else { return in_the_way() };
    let value = names.fresh();
    let (plan, keys) = select(plan, &keys, vec![first_column(&subquery.subquery).alias(&value)], names)?;

    // The number of rows for the outer values, and how many of these are not NULL.
    let [row_count, value_count] = [names.fresh(), names.fresh()];
    let counts = LogicalPlanBuilder::from(plan.clone())
        .aggregate(
            keys.iter().cloned().map(Expr::Column),
            vec![count(lit(1_i64)).alias(&row_count), count(column(&value)).alias(&value_count)],
        )?
        .build()?;
    let outputs = vec![column(&row_count), column(&value_count)];
    let (counts, count_keys) = select(counts, &keys, outputs, names)?;

    // The distinct values.
    let member = names.fresh();
    let values = LogicalPlanBuilder::from(plan).filter(column(&value).is_not_null())?.build()?;
    let (values, value_keys) = select(values, &keys, vec![column(&value).alias(&member)], names)?;
    let (values, mark) = marked(values, names)?;

    let mut equal = outer.same(&value_keys);
    equal.push(expr.as_ref().clone().eq(column(&member)));
    let plan = LogicalPlanBuilder::from(input.clone()).join_on(values, JoinType::Left, equal)?;
    let plan = if keys.is_empty() {
        plan.cross_join(counts)?
    } else {
        plan.join_on(counts, JoinType::Left, outer.same(&count_keys))?
    };
    let no_rows = column(&row_count).is_null().or(column(&row_count).eq(lit(0_i64)));
    let unknown = expr.as_ref().clone().is_null().or(column(&value_count).lt(column(&row_count)));
    let value = when(column(&mark).is_not_null(), lit(!negated))
        .when(no_rows, lit(*negated))
        .when(unknown, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(*negated))?;
    Ok(Some((plan.build()?, value)))
}

/// `FROM t, LATERAL (... t.x ...)`, also `FROM t, unnest(t.list)`.
fn lateral(join: &Join, names: &mut Names) -> Result<Option<LogicalPlan>> {
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let (subquery, alias) = match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => (subquery, None),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => (subquery, Some(alias.alias.clone())),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    check_aggregates(&subquery.subquery)?;
    if is_pulled_up(subquery, None) {
        return Ok(None);
    }
    let outer = Outer::new(&join.left, &subquery.subquery, names)?;
    let Some((mut plan, mut keys)) = outer.dependent(&subquery.subquery, names)? else { return Ok(None) };
    if let Some(alias) = alias {
        keys = keys.into_iter().map(|key| Column::new(Some(alias.clone()), key.name)).collect();
        plan = LogicalPlanBuilder::from(plan).alias(alias)?.build()?;
    }
    let mut conditions = outer.same(&keys);
    conditions.extend(join.on.iter().map(|(left, right)| left.clone().eq(right.clone())));
    conditions.extend(join.filter.clone());
    let columns = join.schema.columns();
    LogicalPlanBuilder::from(join.left.as_ref().clone())
        .join_on(plan, join.join_type, conditions)?
        .project(columns.into_iter().map(Expr::Column))?
        .build()
        .map(Some)
}

/// `outputs` and the keys under new names, so that the result can be joined to plans with the old names.
fn select(
    plan: LogicalPlan,
    keys: &[Column],
    outputs: Vec<Expr>,
    names: &mut Names,
) -> Result<(LogicalPlan, Vec<Column>)> {
    let new: Vec<String> = keys.iter().map(|_| names.fresh()).collect();
    let mut expressions: Vec<Expr> =
        keys.iter().zip(&new).map(|(key, name)| Expr::Column(key.clone()).alias(name)).collect();
    expressions.extend(outputs);
    let plan = LogicalPlanBuilder::from(plan).project(expressions)?.build()?;
    Ok((plan, new.into_iter().map(Column::new_unqualified).collect()))
}

/// The distinct rows with a column that is true, and that a left join fills with NULL where none of them
/// matches.
fn marked(plan: LogicalPlan, names: &mut Names) -> Result<(LogicalPlan, String)> {
    let mark = names.fresh();
    let mut expressions: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    expressions.push(lit(true).alias(&mark));
    let plan = LogicalPlanBuilder::from(plan).distinct()?.project(expressions)?.build()?;
    Ok((plan, mark))
}

fn first_column(plan: &LogicalPlan) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(0)))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

impl Outer {
    /// The join conditions between rows of the outer query and the outer values in `keys`.
    fn same(&self, keys: &[Column]) -> Vec<Expr> {
        let pairs = self.columns.iter().zip(keys);
        pairs
            .map(|(outer, key)| {
                let (outer, key) = (Expr::Column(outer.clone()), Expr::Column(key.clone()));
                binary_expr(outer, Operator::IsNotDistinctFrom, key)
            })
            .collect()
    }
}
