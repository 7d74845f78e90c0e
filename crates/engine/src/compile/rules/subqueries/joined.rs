//! The joins that take the place of subqueries, and the columns in them that take the place of their values.

use std::sync::Arc;

use datafusion::common::{Column, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::expr::{InSubquery, ScalarFunction, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    AggregateUDF, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, binary_expr, lit, when,
};

use crate::expressions::arithmetic::Extreme;
use crate::expressions::functions::once;

use super::dependent::{Names, Outer, repeatable};
use super::plans::{first_column, has_one_row};

/// Refuses a subquery that neither DataFusion nor this rule has a plan for.
pub(super) fn in_the_way<T>() -> Result<T> {
    not_impl_err!(
        "a subquery that mentions columns of the query around it below an operator that can't be run for several values at once, such as a LIMIT that is no number"
    )
}

pub(super) type Joined = Option<(LogicalPlan, Expr)>;

/// `(SELECT value FROM ... outer.x ...)`: at most one row for each combination of outer values.
pub(super) fn scalar(
    base: &LogicalPlan,
    input: &LogicalPlan,
    subquery: &Subquery,
    names: &mut Names,
) -> Result<Joined> {
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
pub(super) fn only_row(
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
pub(super) fn compared(
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
    let Some((plan, keys)) = outer.dependent(&subquery.subquery, names)? else { return in_the_way() };
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
pub(super) fn exists(
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
pub(super) fn contains(
    base: &LogicalPlan,
    input: &LogicalPlan,
    membership: &InSubquery,
    names: &mut Names,
) -> Result<Joined> {
    let InSubquery { expr, subquery, negated } = membership;
    let outer = Outer::new(base, &subquery.subquery, names)?;
    let Some((plan, keys)) = outer.dependent(&subquery.subquery, names)? else { return in_the_way() };
    let value = names.fresh();
    let (plan, keys) = select(plan, &keys, vec![first_column(&subquery.subquery).alias(&value)], names)?;
    let plan = repeatable(plan)?;

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

/// `outputs` and the keys under new names, so that the result can be joined to plans with the old names.
pub(super) fn select(
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
pub(super) fn marked(plan: LogicalPlan, names: &mut Names) -> Result<(LogicalPlan, String)> {
    let mark = names.fresh();
    let mut expressions: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    expressions.push(lit(true).alias(&mark));
    let plan = LogicalPlanBuilder::from(plan).distinct()?.project(expressions)?.build()?;
    Ok((plan, mark))
}

pub(super) fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}
