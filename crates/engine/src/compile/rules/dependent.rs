//! Computes a correlated subquery for many outer rows at once.
//!
//! `Outer` holds the distinct combinations of the outer values that a subquery mentions. They are joined to
//! the subquery's tables, and the operators above carry them along: filters see them as columns, aggregates
//! group by them, a LIMIT counts for each of them. T. Neumann, A. Kemper, "Unnesting Arbitrary Queries" (BTW
//! 2015), section 3, without its deferral: the optimizer turns equalities back into joins.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, ExprSchemable, FetchType, Filter, Join, JoinType, Limit,
    LogicalPlan, LogicalPlanBuilder, Operator, SkipType, Union, Window, binary_expr, lit, when,
};

const PREFIX: &str = "keirin subquery ";

/// Generates unique names.
#[derive(Default)]
pub(super) struct Names(usize);

impl Names {
    pub(super) fn fresh(&mut self) -> String {
        self.0 += 1;
        format!("{PREFIX}{}", self.0)
    }
}

/// The values of the outer query that a subquery mentions.
pub(super) struct Outer {
    /// The columns of the outer query.
    pub(super) columns: Vec<Column>,
    /// Their distinct combinations, in columns of `names`.
    plan: LogicalPlan,
    names: Vec<String>,
}

/// A plan and the columns in it that hold the outer values.
type Dependent = Option<(LogicalPlan, Vec<Column>)>;

impl Outer {
    /// Fails if the subquery mentions columns that are not of `input`, but of a query further out.
    pub(super) fn new(input: &LogicalPlan, subquery: &LogicalPlan, names: &mut Names) -> Result<Self> {
        let columns = mentioned(subquery);
        check_mentioned(input, &columns)?;
        if !columns.is_empty() {
            check_repeatable(input, "a query whose rows a subquery mentions")?;
        }
        let fresh: Vec<String> = columns.iter().map(|_| names.fresh()).collect();
        let values =
            columns.iter().zip(&fresh).map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let plan = if columns.is_empty() {
            LogicalPlanBuilder::empty(true).build()?
        } else {
            LogicalPlanBuilder::from(input.clone()).project(values)?.distinct()?.build()?
        };
        Ok(Self { columns, plan, names: fresh })
    }

    /// `plan` computed for every combination of outer values; `None` if an operator prevents that.
    pub(super) fn dependent(&self, plan: &LogicalPlan, names: &mut Names) -> Result<Dependent> {
        if plan.all_out_ref_exprs().is_empty() {
            let (outer, keys) = self.copy(names)?;
            let plan = LogicalPlanBuilder::from(outer).cross_join(plan.clone())?.build()?;
            return Ok(Some((plan, keys)));
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let Some((input, keys)) = self.dependent(&projection.input, names)? else { return Ok(None) };
                let expressions = self.replaced(&projection.expr, &keys, true)?;
                let expressions = expressions.into_iter().chain(keys.iter().cloned().map(Expr::Column));
                Ok(Some((LogicalPlanBuilder::from(input).project(expressions)?.build()?, keys)))
            }
            LogicalPlan::Filter(filter) => {
                let Some((input, keys)) = self.dependent(&filter.input, names)? else { return Ok(None) };
                let predicate = self.replace(filter.predicate.clone(), &keys)?;
                Ok(Some((LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?), keys)))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Some((input, keys)) = self.dependent(&alias.input, names)? else { return Ok(None) };
                let plan = LogicalPlanBuilder::from(input).alias(alias.alias.clone())?.build()?;
                let keys = keys.into_iter().map(|key| Column::new(Some(alias.alias.clone()), key.name));
                Ok(Some((plan, keys.collect())))
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, names),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some((input, keys)) = self.dependent(input, names)? else { return Ok(None) };
                Ok(Some((LogicalPlanBuilder::from(input).distinct()?.build()?, keys)))
            }
            // A join loses an order without a LIMIT.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.dependent(&sort.input, names),
            LogicalPlan::Limit(limit) => self.limit(limit, names),
            LogicalPlan::Join(join) => self.join(join, names),
            // The first relation of a FROM: the columns that it mentions are the outer query's.
            LogicalPlan::Subquery(lateral) => self.dependent(&lateral.subquery, names),
            LogicalPlan::Unnest(unnest) => {
                let Some((input, keys)) = self.dependent(&unnest.input, names)? else { return Ok(None) };
                let plan = LogicalPlanBuilder::from(input)
                    .unnest_columns_with_options(unnest.exec_columns.clone(), unnest.options.clone())?
                    .build()?;
                Ok(Some((plan, keys)))
            }
            LogicalPlan::Union(union) => self.union(union, names),
            LogicalPlan::Window(window) => self.window(window, names),
            _ => Ok(None),
        }
    }

    /// Partitions are those of each combination.
    fn window(&self, window: &Window, names: &mut Names) -> Result<Dependent> {
        let Some((input, keys)) = self.dependent(&window.input, names)? else { return Ok(None) };
        let preserver = NamePreserver::new_for_projection();
        let functions = window.window_expr.iter().map(|function| {
            let saved = preserver.save(function);
            let by_keys = self.replace(function.clone(), &keys)?.transform_down(|mut part| {
                let Expr::WindowFunction(call) = &mut part else { return Ok(Transformed::no(part)) };
                call.params.partition_by.extend(keys.iter().cloned().map(Expr::Column));
                Ok(Transformed::new(part, true, TreeNodeRecursion::Jump))
            });
            Ok(saved.restore(by_keys.data()?))
        });
        let functions = functions.collect::<Result<_>>()?;
        Ok(Some((LogicalPlan::Window(Window::try_new(functions, Arc::new(input))?), keys)))
    }

    /// The combinations in columns with new names: one plan may need them twice.
    fn copy(&self, names: &mut Names) -> Result<(LogicalPlan, Vec<Column>)> {
        let fresh: Vec<String> = self.names.iter().map(|_| names.fresh()).collect();
        let renamed = self.names.iter().zip(&fresh).map(|(old, new)| named(old).alias(new));
        let plan = LogicalPlanBuilder::from(self.plan.clone()).project(renamed)?.build()?;
        Ok((plan, fresh.into_iter().map(Column::new_unqualified).collect()))
    }

    fn replace(&self, expression: Expr, keys: &[Column]) -> Result<Expr> {
        let replaced = expression.transform(|part| {
            let Expr::OuterReferenceColumn(_, column) = &part else { return Ok(Transformed::no(part)) };
            let position = self.columns.iter().position(|known| known == column);
            Ok(match position {
                Some(position) => Transformed::yes(Expr::Column(keys[position].clone())),
                None => Transformed::no(part),
            })
        });
        replaced.data()
    }

    /// The expressions with outer columns replaced by `keys`; if `named`, with their old names, as columns of
    /// the output.
    fn replaced(&self, expressions: &[Expr], keys: &[Column], named: bool) -> Result<Vec<Expr>> {
        let preserver = NamePreserver::new_for_projection();
        let replaced = expressions.iter().map(|expression| {
            let saved = preserver.save(expression);
            let replaced = self.replace(expression.clone(), keys)?;
            Ok(if named { saved.restore(replaced) } else { replaced })
        });
        replaced.collect()
    }

    fn aggregate(&self, aggregate: &Aggregate, names: &mut Names) -> Result<Dependent> {
        if aggregate.group_expr.iter().any(|expression| matches!(expression, Expr::GroupingSet(_))) {
            return Ok(None);
        }
        let Some((input, keys)) = self.dependent(&aggregate.input, names)? else { return Ok(None) };
        let groups = self.replaced(&aggregate.group_expr, &keys, true)?;
        let groups = groups.into_iter().chain(keys.iter().cloned().map(Expr::Column));
        let plan = LogicalPlanBuilder::from(input)
            .aggregate(groups, self.replaced(&aggregate.aggr_expr, &keys, true)?)?
            .build()?;
        if !aggregate.group_expr.is_empty() {
            return Ok(Some((plan, keys)));
        }
        // Without GROUP BY there is a row even if there is nothing to aggregate, with 0 for count(*).
        let mark = names.fresh();
        let mut expressions: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        expressions.push(lit(true).alias(&mark));
        let plan = LogicalPlanBuilder::from(plan).project(expressions)?.build()?;
        let (all, all_keys) = self.copy(names)?;
        let joined = LogicalPlanBuilder::from(all).join_on(plan, JoinType::Left, same(&all_keys, &keys))?;
        let mut outputs: Vec<Expr> = all_keys.iter().cloned().map(Expr::Column).collect();
        for (expression, column) in aggregate.aggr_expr.iter().zip(aggregate.schema.columns()) {
            let value = Expr::Column(column.clone());
            let of_nothing = value_of_nothing(expression, aggregate)?;
            outputs.push(match of_nothing {
                Some(of_nothing) => {
                    when(named(&mark).is_null(), lit(of_nothing)).otherwise(value)?.alias(column.name)
                }
                None => value,
            });
        }
        Ok(Some((joined.project(outputs)?.build()?, all_keys)))
    }

    fn limit(&self, limit: &Limit, names: &mut Names) -> Result<Dependent> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        // A projection between LIMIT and ORDER BY drops columns that only ORDER BY needs.
        let (output, below) = match limit.input.as_ref() {
            LogicalPlan::Projection(projection)
                if matches!(projection.input.as_ref(), LogicalPlan::Sort(_)) =>
            {
                (Some(&projection.expr), projection.input.as_ref())
            }
            other => (None, other),
        };
        let (order, input) = match below {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (sort.expr.clone(), sort.input.as_ref()),
            other => (Vec::new(), other),
        };
        let Some((input, keys)) = self.dependent(input, names)? else { return Ok(None) };
        let mut order_replaced = Vec::with_capacity(order.len());
        for mut key in order {
            key.expr = self.replace(key.expr, &keys)?;
            order_replaced.push(key);
        }
        let mut outputs: Vec<Expr> = match output {
            Some(expressions) => self.replaced(expressions, &keys, true)?,
            None => {
                let columns = input.schema().columns().into_iter().filter(|column| !keys.contains(column));
                columns.map(Expr::Column).collect()
            }
        };
        outputs.extend(keys.iter().cloned().map(Expr::Column));
        let position = row_number().partition_by(keys.iter().cloned().map(Expr::Column).collect());
        let position =
            if order_replaced.is_empty() { position } else { position.order_by(order_replaced) }.build()?;
        let number = named(&position.schema_name().to_string());
        let skip = u64::try_from(skip).unwrap_or(u64::MAX);
        let mut wanted = number.clone().gt(lit(skip));
        if let Some(fetch) = fetch {
            let last = skip.saturating_add(u64::try_from(fetch).unwrap_or(u64::MAX));
            wanted = wanted.and(number.lt_eq(lit(last)));
        }
        let plan = LogicalPlanBuilder::from(input)
            .window(vec![position])?
            .filter(wanted)?
            .project(outputs)?
            .build()?;
        Ok(Some((plan, keys)))
    }

    fn join(&self, join: &Join, names: &mut Names) -> Result<Dependent> {
        let is_supported = matches!(join.join_type, JoinType::Inner | JoinType::Left)
            && join.null_equality == NullEquality::NullEqualsNothing
            && !is_lateral(&join.right);
        if !is_supported {
            return Ok(None);
        }
        let Some((left, keys)) = self.dependent(&join.left, names)? else { return Ok(None) };
        let mut conditions = Vec::new();
        let right = if join.right.all_out_ref_exprs().is_empty() {
            join.right.as_ref().clone()
        } else {
            let Some((right, right_keys)) = self.dependent(&join.right, names)? else { return Ok(None) };
            conditions.extend(same(&keys, &right_keys));
            right
        };
        for (left, right) in &join.on {
            conditions.push(self.replace(left.clone(), &keys)?.eq(self.replace(right.clone(), &keys)?));
        }
        if let Some(filter) = &join.filter {
            conditions.push(self.replace(filter.clone(), &keys)?);
        }
        let builder = LogicalPlanBuilder::from(left);
        let plan = if conditions.is_empty() {
            builder.cross_join(right)?
        } else {
            builder.join_on(right, join.join_type, conditions)?
        };
        Ok(Some((plan.build()?, keys)))
    }

    fn union(&self, union: &Union, names: &mut Names) -> Result<Dependent> {
        let common: Vec<String> = self.names.iter().map(|_| names.fresh()).collect();
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let Some((plan, keys)) = self.dependent(input, names)? else { return Ok(None) };
            let columns = input.schema().columns().into_iter().map(Expr::Column);
            let keys = keys.into_iter().zip(&common).map(|(key, name)| Expr::Column(key).alias(name));
            inputs.push(Arc::new(LogicalPlanBuilder::from(plan).project(columns.chain(keys))?.build()?));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        Ok(Some((plan, common.into_iter().map(Column::new_unqualified).collect())))
    }
}

/// The columns of enclosing queries that a subquery mentions.
pub(super) fn mentioned(subquery: &LogicalPlan) -> Vec<Column> {
    let mut columns = Vec::new();
    for mentioned in subquery.all_out_ref_exprs() {
        if let Expr::OuterReferenceColumn(_, column) = mentioned
            && !columns.contains(&column)
        {
            columns.push(column);
        }
    }
    columns
}

/// Refuses columns that the directly enclosing query does not have where the subquery stands.
pub(super) fn check_mentioned(input: &LogicalPlan, columns: &[Column]) -> Result<()> {
    match columns.iter().find(|column| !input.schema().has_column(column)) {
        None => Ok(()),
        Some(column) => not_impl_err!(
            "a subquery that mentions '{}', which is not a column of the query directly around it at this place",
            column.flat_name()
        ),
    }
}

/// Refuses plans that would be run twice and might not return the same rows again.
pub(super) fn check_repeatable(plan: &LogicalPlan, what: &str) -> Result<()> {
    let mut reason = None;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Limit(limit) if !is_ordered_by_all(&limit.input) => reason = Some("LIMIT"),
            node if node.expressions().iter().any(may_differ) => reason = Some("random values or LIMIT"),
            _ => return Ok(TreeNodeRecursion::Continue),
        }
        Ok(TreeNodeRecursion::Stop)
    })?;
    match reason {
        None => Ok(()),
        Some(reason) => {
            not_impl_err!("{reason} in {what}, which is run twice: store its rows with CREATE TABLE first")
        }
    }
}

/// Whether rows that are equal by the sort keys are equal in all columns, so that a LIMIT always keeps the
/// same ones.
fn is_ordered_by_all(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Sort(sort) = plan else { return false };
    let is_key = |column| sort.expr.iter().any(|key| key.expr == Expr::Column(Column::clone(column)));
    sort.input.schema().columns().iter().all(is_key)
}

/// Whether an expression is volatile, or a row number that stands for the LIMIT of a subquery.
fn may_differ(expression: &Expr) -> bool {
    let is_of_limit = |part: &Expr| match part {
        Expr::WindowFunction(window) => window
            .params
            .partition_by
            .iter()
            .any(|key| matches!(key, Expr::Column(column) if column.name.starts_with(PREFIX))),
        _ => false,
    };
    expression.is_volatile() || expression.exists(|part| Ok(is_of_limit(part))).unwrap_or(true)
}

/// Whether a relation mentions, or may mention, the one to its left, which is not the outer query.
pub(super) fn is_lateral(right: &LogicalPlan) -> bool {
    match right {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        _ => false,
    }
}

/// The value of an aggregate over no rows; `None` for NULL.
fn value_of_nothing(expression: &Expr, aggregate: &Aggregate) -> Result<Option<ScalarValue>> {
    let function = match expression {
        Expr::Alias(alias) => alias.expr.as_ref(),
        other => other,
    };
    let Expr::AggregateFunction(call) = function else { return Ok(None) };
    let data_type = expression.get_type(aggregate.input.schema())?;
    let value = call.func.default_value(&data_type)?;
    Ok((!value.is_null()).then_some(value))
}

fn same(left: &[Column], right: &[Column]) -> Vec<Expr> {
    let pairs = left.iter().zip(right);
    pairs
        .map(|(left, right)| {
            let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
            binary_expr(left, Operator::IsNotDistinctFrom, right)
        })
        .collect()
}

fn named(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}
