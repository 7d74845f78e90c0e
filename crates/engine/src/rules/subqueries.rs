//! Subqueries that DataFusion has no plan for become joins: as values those with IN and EXISTS, and
//! everywhere those that mention the outer query in another way than `inner = outer`.
//!
//! The subquery runs once for each distinct combination of the outer values that it mentions (see
//! [`dependent`](super::dependent)); its rows are then joined to the outer ones. What DataFusion can do
//! itself is left to it: where only equations are mentioned it needs no second look at the outer rows.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, binary_expr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::dependent::{Names, Outer};

/// See the [module](self). Must run before the other analyzer rules, which refuse what it handles.
#[derive(Debug, Default)]
pub(crate) struct Subqueries;

impl AnalyzerRule for Subqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut names = Names::default();
        // Inner subqueries first: what they were joined to is then part of the outer ones.
        plan.transform_up_with_subqueries(|node| rewrite(node, &mut names)).data()
    }

    fn name(&self) -> &str {
        "keirin_subqueries"
    }
}

fn rewrite(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    match &node {
        LogicalPlan::Join(join) => match lateral(join, names)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => Ok(Transformed::no(node)),
        },
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => values(node, names),
        _ => Ok(Transformed::no(node)),
    }
}

/// Replaces the subqueries in the expressions of a node by columns of joins below it.
fn values(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    let is_filter = matches!(node, LogicalPlan::Filter(_));
    let has_own_plan = is_filter || matches!(node, LogicalPlan::Projection(_));
    let mut input = node.inputs()[0].clone();
    let mut changed = false;
    let preserver = NamePreserver::new(&node);
    let mut expressions = Vec::new();
    for expression in node.expressions() {
        let saved = preserver.save(&expression);
        let rewritten = expression.transform_down(|part| {
            let joined = match &part {
                Expr::ScalarSubquery(subquery) if !(has_own_plan && is_pulled_up(subquery, None)) => {
                    scalar(&input, subquery, names)?
                }
                Expr::Exists(Exists { subquery, negated })
                    if !(is_filter && is_pulled_up(subquery, None)) =>
                {
                    exists(&input, subquery, *negated, names)?
                }
                Expr::InSubquery(membership)
                    if !(is_filter && is_pulled_up(&membership.subquery, Some(&membership.expr))) =>
                {
                    contains(&input, membership, names)?
                }
                _ => None,
            };
            Ok(match joined {
                Some((plan, value)) => {
                    input = plan;
                    changed = true;
                    Transformed::new(value, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(part),
            })
        })?;
        expressions.push(saved.restore(rewritten.data));
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

/// Whether DataFusion can make a join of a subquery itself. `member` is what stands before IN.
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
fn scalar(input: &LogicalPlan, subquery: &Subquery, names: &mut Names) -> Result<Joined> {
    if subquery.subquery.max_rows().is_none_or(|rows| rows > 1) {
        return Ok(None);
    }
    let Some(outer) = Outer::new(input, &subquery.subquery, names)? else { return Ok(None) };
    if outer.columns.is_empty() {
        return Ok(None);
    }
    let Some((plan, keys)) = outer.dependent(&subquery.subquery, names)? else { return Ok(None) };
    let value = names.fresh();
    let (plan, keys) = select(plan, &keys, vec![first_column(&subquery.subquery).alias(&value)], names)?;
    let plan =
        LogicalPlanBuilder::from(input.clone()).join_on(plan, JoinType::Left, outer.same(&keys))?.build()?;
    Ok(Some((plan, column(&value))))
}

/// `EXISTS (...)`: whether a combination of outer values is among those that have rows.
fn exists(input: &LogicalPlan, subquery: &Subquery, negated: bool, names: &mut Names) -> Result<Joined> {
    let Some(outer) = Outer::new(input, &subquery.subquery, names)? else { return Ok(None) };
    if outer.columns.is_empty() {
        // One answer for all rows: DataFusion computes it once.
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
    let Some((plan, keys)) = outer.dependent(&subquery.subquery, names)? else { return Ok(None) };
    let (plan, keys) = select(plan, &keys, Vec::new(), names)?;
    let (plan, mark) = marked(plan, names)?;
    let plan =
        LogicalPlanBuilder::from(input.clone()).join_on(plan, JoinType::Left, outer.same(&keys))?.build()?;
    let found = column(&mark);
    Ok(Some((plan, if negated { found.is_null() } else { found.is_not_null() })))
}

/// `x IN (...)`: true if a row equals x; else NULL if x or a row is NULL, unless there are no rows; else false.
fn contains(input: &LogicalPlan, membership: &InSubquery, names: &mut Names) -> Result<Joined> {
    let InSubquery { expr, subquery, negated } = membership;
    let Some(outer) = Outer::new(input, &subquery.subquery, names)? else { return Ok(None) };
    let dependent = if outer.columns.is_empty() {
        Some((subquery.subquery.as_ref().clone(), Vec::new()))
    } else {
        outer.dependent(&subquery.subquery, names)?
    };
    let Some((plan, keys)) = dependent else { return Ok(None) };
    let value = names.fresh();
    let (plan, keys) = select(plan, &keys, vec![first_column(&subquery.subquery).alias(&value)], names)?;

    // How many rows there are for the outer values, and how many of them are not NULL.
    let [row_count, value_count] = [names.fresh(), names.fresh()];
    let counts = LogicalPlanBuilder::from(plan.clone())
        .aggregate(
            keys.iter().cloned().map(Expr::Column),
            vec![count(lit(1_i64)).alias(&row_count), count(column(&value)).alias(&value_count)],
        )?
        .build()?;
    let outputs = vec![column(&row_count), column(&value_count)];
    let (counts, count_keys) = select(counts, &keys, outputs, names)?;

    // The values that there are, once each.
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
    if is_pulled_up(subquery, None) {
        return Ok(None);
    }
    let Some(outer) = Outer::new(&join.left, &subquery.subquery, names)? else { return Ok(None) };
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

/// The keys under new names, so that they can be joined to what has the old ones, and `outputs`.
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

/// The distinct rows with a column that is true, and NULL where a left join found none of them.
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
    /// The conditions under which a row of the outer query belongs to the values in `keys`.
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
