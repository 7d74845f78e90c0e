//! Computes a correlated subquery for many outer rows at once.
//!
//! `Outer` holds the distinct combinations of the outer values that a subquery mentions. They are joined to
//! the subquery's tables, and the operators above carry them along: filters see them as columns, aggregates
//! group by them, a LIMIT counts for each of them. T. Neumann, A. Kemper, "Unnesting Arbitrary Queries" (BTW
//! 2015), section 3, without its deferral: the optimizer turns equalities back into joins.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::find_out_reference_exprs;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan,
    LogicalPlanBuilder, Operator, SortExpr, Union, Window, binary_expr, lit, when,
};

use crate::compile::subplans::{number_of_once, once};
use crate::compile::windows::EXCLUDE_MARK;

use super::on::joined_lateral;
use super::recursive::WorkTable;

pub(crate) const PREFIX: &str = "keirin subquery ";
const LIMIT_PREFIX: &str = "keirin limit ";

/// Generates unique names.
pub(super) struct Names {
    count: usize,
    /// Texts may be compared by collations: their keys come into conditions later, and DataFusion pulls up comparisons of
    /// columns alone.
    pub(super) has_collations: bool,
}

impl Names {
    pub(super) fn new(has_collations: bool) -> Self {
        Self { count: 0, has_collations }
    }

    pub(super) fn fresh(&mut self) -> String {
        self.count += 1;
        format!("{PREFIX}{}", self.count)
    }

    /// For a row number that stands for a LIMIT.
    pub(super) fn of_limit(&mut self) -> String {
        self.count += 1;
        format!("{LIMIT_PREFIX}{}", self.count)
    }
}

/// The values of the outer query that a subquery mentions.
pub(super) struct Outer {
    /// The columns of the outer query.
    pub(super) columns: Vec<Column>,
    /// Their distinct combinations, in columns of `names`.
    pub(super) plan: LogicalPlan,
    names: Vec<String>,
    /// What is run once, computed for the combinations, by the number of its node.
    once: RefCell<HashMap<usize, (LogicalPlan, Vec<Column>)>>,
    /// Of the recursive queries around, outermost first.
    pub(super) work_tables: RefCell<Vec<WorkTable>>,
}

/// A plan and the columns in it that hold the outer values.
pub(super) type Dependent = Option<(LogicalPlan, Vec<Column>)>;

/// As [`Dependent`], with a column or none for each outer value.
type Side = Option<(LogicalPlan, Vec<Option<Column>>)>;

/// The columns of `of` and then the outer values, under names of their own.
pub(super) fn with_keys_last(
    plan: LogicalPlan,
    of: &LogicalPlan,
    keys: &[Column],
    names: &mut Names,
) -> Result<(LogicalPlan, Vec<Column>)> {
    let fresh: Vec<String> = keys.iter().map(|_| names.fresh()).collect();
    let keys = keys.iter().zip(&fresh).map(|(key, name)| Expr::Column(key.clone()).alias(name));
    let columns = of.schema().columns().into_iter().map(Expr::Column).chain(keys);
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    Ok((plan, fresh.into_iter().map(Column::new_unqualified).collect()))
}

impl Outer {
    /// `input` stands in the plan a second time: it must be [`repeatable`]. Fails if the subquery mentions columns that are
    /// not of `input`, but of a query further out.
    pub(super) fn new(input: &LogicalPlan, subquery: &LogicalPlan, names: &mut Names) -> Result<Self> {
        let columns = mentioned(subquery);
        check_mentioned(input, &columns)?;
        let (plan, fresh) = combinations(input, &columns, names)?;
        Ok(Self::with(columns, plan, fresh))
    }

    fn with(columns: Vec<Column>, plan: LogicalPlan, names: Vec<String>) -> Self {
        Self { columns, plan, names, once: RefCell::default(), work_tables: RefCell::default() }
    }

    /// Only those values that a plan mentions; `None` if it needs all: what is run once, or recurs, has the same values in
    /// all its places.
    fn mentioned_by(&self, plan: &LogicalPlan, names: &mut Names) -> Result<Option<Self>> {
        let columns = mentioned(plan);
        let is_common = |node: &LogicalPlan| Ok(number_of_once(node).is_some() && self.is_correlated(node));
        let is_whole = self.columns.iter().all(|column| columns.contains(column));
        if is_whole || !self.work_tables.borrow().is_empty() || plan.exists(is_common)? {
            return Ok(None);
        }
        let (columns, values): (Vec<_>, Vec<_>) = std::iter::zip(&self.columns, &self.names)
            .filter(|(column, _)| columns.contains(column))
            .map(|(column, name)| (column.clone(), Column::new_unqualified(name)))
            .unzip();
        let (plan, fresh) = combinations(&self.plan, &values, names)?;
        Ok(Some(Self::with(columns, plan, fresh)))
    }

    /// `plan` computed for every combination of outer values; `None` if an operator prevents that.
    pub(super) fn dependent(&self, plan: &LogicalPlan, names: &mut Names) -> Result<Dependent> {
        if self.columns.is_empty() {
            return Ok(Some((plan.clone(), Vec::new())));
        }
        if !self.is_correlated(plan) {
            let (outer, keys) = self.copy(names)?;
            if is_one_empty_row(plan) {
                return Ok(Some((outer, keys)));
            }
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
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct, names),
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
            LogicalPlan::RecursiveQuery(query) => self.recursive(query, names),
            LogicalPlan::TableScan(scan) => self.work_table(scan),
            node => match number_of_once(node) {
                Some(number) => self.once(number, node, names),
                None => Ok(None),
            },
        }
    }

    /// All places of what is run once have the same plan again, each with names of its own for the outer values.
    fn once(&self, number: usize, node: &LogicalPlan, names: &mut Names) -> Result<Dependent> {
        let known = self.once.borrow().get(&number).cloned();
        let (plan, keys) = match known {
            Some(known) => known,
            None => {
                let Some((input, keys)) = self.dependent(node.inputs()[0], names)? else { return Ok(None) };
                let made = (once(input), keys);
                self.once.borrow_mut().insert(number, made.clone());
                made
            }
        };
        with_keys_last(plan, node, &keys, names).map(Some)
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

    /// The join conditions between rows of the outer query and the outer values in `keys`.
    pub(super) fn same(&self, keys: &[Column]) -> Vec<Expr> {
        same(&self.columns, keys)
    }

    pub(super) fn replace(&self, expression: Expr, keys: &[Column]) -> Result<Expr> {
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
    pub(super) fn replaced(&self, expressions: &[Expr], keys: &[Column], named: bool) -> Result<Vec<Expr>> {
        let preserver = NamePreserver::new_for_projection();
        let replaced = expressions.iter().map(|expression| {
            let saved = preserver.save(expression);
            let replaced = self.replace(expression.clone(), keys)?;
            Ok(if named { saved.restore(replaced) } else { replaced })
        });
        replaced.collect()
    }

    fn aggregate(&self, aggregate: &Aggregate, names: &mut Names) -> Result<Dependent> {
        let mentions = |key: &Expr| matches!(key, Expr::GroupingSet(_)) && key.contains_outer();
        let empty_sets: usize = aggregate.group_expr.iter().map(empty_sets).product();
        if empty_sets > 1 || aggregate.group_expr.iter().any(mentions) {
            return Ok(None);
        }
        let Some((input, keys)) = self.dependent(&aggregate.input, names)? else { return Ok(None) };
        let groups = self.replaced(&aggregate.group_expr, &keys, true)?;
        let groups = groups.into_iter().chain(keys.iter().cloned().map(Expr::Column));
        let plan = LogicalPlanBuilder::from(input)
            .aggregate(groups, self.replaced(&aggregate.aggr_expr, &keys, true)?)?
            .build()?;
        if empty_sets == 0 {
            return Ok(Some((plan, keys)));
        }
        // The group of all rows is there even if there is nothing to aggregate, with 0 for count(*).
        let mark = names.fresh();
        let is_id = |column: &Column| column.name == Aggregate::INTERNAL_GROUPING_ID;
        let columns = plan.schema().columns().into_iter().filter(|column| !is_id(column)).map(Expr::Column);
        let expressions = columns.chain([lit(true).alias(&mark)]);
        let plan = LogicalPlanBuilder::from(plan).project(expressions)?.build()?;
        let (all, all_keys) = self.copy(names)?;
        let joined = LogicalPlanBuilder::from(all).join_on(plan, JoinType::Left, same(&all_keys, &keys))?;
        let mut outputs: Vec<Expr> = all_keys.iter().cloned().map(Expr::Column).collect();
        let mut columns = aggregate.schema.columns();
        let values = columns.split_off(columns.len() - aggregate.aggr_expr.len());
        outputs.extend(columns.into_iter().filter(|column| !is_id(column)).map(Expr::Column));
        for (expression, column) in aggregate.aggr_expr.iter().zip(values) {
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

    fn distinct_on(&self, distinct: &DistinctOn, names: &mut Names) -> Result<Dependent> {
        let Some((input, keys)) = self.dependent(&distinct.input, names)? else { return Ok(None) };
        let columns = || keys.iter().cloned().map(Expr::Column);
        let on = columns().chain(self.replaced(&distinct.on_expr, &keys, false)?).collect();
        let outputs =
            self.replaced(&distinct.select_expr, &keys, true)?.into_iter().chain(columns()).collect();
        let order = distinct.sort_expr.iter().flatten().map(|key| {
            let expr = self.replace(key.expr.clone(), &keys)?;
            Ok(SortExpr { expr, ..key.clone() })
        });
        let order = columns().map(|key| Ok(key.sort(true, false))).chain(order).collect::<Result<_>>()?;
        let order = distinct.sort_expr.is_some().then_some(order);
        let distinct = DistinctOn::try_new(on, outputs, order, Arc::new(input))?;
        Ok(Some((LogicalPlan::Distinct(Distinct::On(distinct)), keys)))
    }

    /// The sides that a join fills with NULL, and those that it only looks up, need the outer values if they
    /// mention them; a side whose rows are kept needs them in any case.
    fn join(&self, join: &Join, names: &mut Names) -> Result<Dependent> {
        if is_lateral(&join.right) {
            let Some(plan) = joined_lateral(join, names)? else { return Ok(None) };
            return self.dependent(&plan, names);
        }
        let [keeps_left, keeps_right] = match join.join_type {
            JoinType::Inner if !self.is_correlated(&join.left) => [false, true],
            JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => [true, false],
            JoinType::Right => [false, true],
            JoinType::Full => [true, true],
            _ => return Ok(None),
        };
        let Some((left, left_keys)) = self.side(&join.left, keeps_left, names)? else { return Ok(None) };
        let Some((right, right_keys)) = self.side(&join.right, keeps_right, names)? else { return Ok(None) };
        let keys: Vec<Column> =
            if keeps_left { &left_keys } else { &right_keys }.iter().flatten().cloned().collect();
        let mut conditions = std::iter::zip(&left_keys, &right_keys)
            .filter_map(|(left, right)| Some(is_same(left.as_ref()?, right.as_ref()?)))
            .collect::<Vec<_>>();
        let equal = match join.null_equality {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        for (left, right) in &join.on {
            let (left, right) = (self.replace(left.clone(), &keys)?, self.replace(right.clone(), &keys)?);
            conditions.push(binary_expr(left, equal, right));
        }
        if let Some(filter) = &join.filter {
            conditions.push(self.replace(filter.clone(), &keys)?);
        }
        let builder = LogicalPlanBuilder::from(left);
        let builder = if conditions.is_empty() && join.join_type == JoinType::Inner {
            builder.cross_join(right)?
        } else {
            builder.join_on(right, join.join_type, conditions)?
        };
        if !(keeps_left && keeps_right) {
            return Ok(Some((builder.build()?, keys)));
        }
        let (values, keys): (Vec<_>, Vec<_>) = std::iter::zip(keys, right_keys.into_iter().flatten())
            .map(|(left, right)| {
                let name = names.fresh();
                let either = coalesce(vec![Expr::Column(left), Expr::Column(right)]);
                (either.alias(&name), Column::new_unqualified(name))
            })
            .unzip();
        let columns = join.schema.columns().into_iter().map(Expr::Column).chain(values);
        Ok(Some((builder.project(columns)?.build()?, keys)))
    }

    /// A side of a join, and the columns in it of the outer values, all of them if its rows are kept.
    fn side(&self, plan: &LogicalPlan, is_kept: bool, names: &mut Names) -> Result<Side> {
        if !is_kept && !self.is_correlated(plan) {
            return Ok(Some((plan.clone(), vec![None; self.columns.len()])));
        }
        let fewer = if is_kept { None } else { self.mentioned_by(plan, names)? };
        let outer = fewer.as_ref().unwrap_or(self);
        let Some((plan, keys)) = outer.dependent(plan, names)? else { return Ok(None) };
        let key_of = |column| Some(keys[outer.columns.iter().position(|known| known == column)?].clone());
        Ok(Some((plan, self.columns.iter().map(key_of).collect())))
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

/// The distinct combinations of columns of a plan, under new names. What they have of queries further out is the same in all
/// rows, and a combination there is even if the plan has no row: thus it does not take part in finding them.
fn combinations(
    of: &LogicalPlan,
    columns: &[Column],
    names: &mut Names,
) -> Result<(LogicalPlan, Vec<String>)> {
    let fresh: Vec<String> = columns.iter().map(|_| names.fresh()).collect();
    let is_far = |column: &&Column| far(of, column).is_some();
    let near = std::iter::zip(columns, &fresh).filter(|(column, _)| !is_far(column));
    let near: Vec<Expr> = near.map(|(column, name)| Expr::Column(column.clone()).alias(name)).collect();
    let has_far = columns.iter().any(|column| is_far(&column));
    let distinct = match of {
        _ if near.is_empty() => LogicalPlanBuilder::empty(true),
        LogicalPlan::Projection(projection) if has_far => {
            let stays = projection.expr.iter().filter(|value| outer_value(value).is_none()).cloned();
            LogicalPlanBuilder::from(projection.input.clone()).project(stays)?.project(near)?.distinct()?
        }
        of => LogicalPlanBuilder::from(of.clone()).project(near)?.distinct()?,
    };
    if !has_far {
        return Ok((distinct.build()?, fresh));
    }
    let all = std::iter::zip(columns, &fresh).map(|(column, name)| match far(of, column) {
        Some(value) => value.clone().alias(name),
        None => named(name),
    });
    Ok((distinct.project(all)?.build()?, fresh))
}

/// The value of a query further out that a column of a plan is.
fn far<'plan>(plan: &'plan LogicalPlan, column: &Column) -> Option<&'plan Expr> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    let position = projection.schema.index_of_column(column).ok()?;
    outer_value(&projection.expr[position])
}

fn outer_value(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::Alias(alias) => outer_value(&alias.expr),
        Expr::OuterReferenceColumn(..) => Some(expression),
        _ => None,
    }
}

fn is_one_empty_row(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::EmptyRelation(relation) if relation.produce_one_row && relation.schema.fields().is_empty())
}

/// The columns of enclosing queries that a subquery mentions.
pub(super) fn mentioned(subquery: &LogicalPlan) -> Vec<Column> {
    let mut columns = Vec::new();
    for outer in outer_columns(subquery) {
        if let Expr::OuterReferenceColumn(_, column) = outer
            && !columns.contains(&column)
        {
            columns.push(column);
        }
    }
    columns
}

/// As [`mentioned`], with their types.
pub(super) fn outer_columns(subquery: &LogicalPlan) -> Vec<Expr> {
    let mut columns: Vec<Expr> = subquery.inputs().into_iter().flat_map(outer_columns).collect();
    if let LogicalPlan::Join(join) = subquery
        && is_lateral(&join.right)
    {
        // What the relations to its left have is theirs.
        let left = join.left.schema();
        let is_of_left =
            |outer: &Expr| matches!(outer, Expr::OuterReferenceColumn(_, column) if left.has_column(column));
        let of_right = outer_columns(&join.right).into_iter().filter(|outer| !is_of_left(outer));
        columns = outer_columns(&join.left).into_iter().chain(of_right).collect();
    }
    columns.extend(subquery.expressions().iter().flat_map(find_out_reference_exprs));
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

/// `plan` such that it has the same rows in all the places where its clones stand.
pub(super) fn repeatable(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut is_repeatable = true;
    plan.apply_with_subqueries(|node| {
        is_repeatable &= match node {
            node if number_of_once(node).is_some() => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::Limit(limit) => is_ordered_by_all(&limit.input),
            node => !node.expressions().iter().any(may_differ),
        };
        Ok(if is_repeatable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(if is_repeatable { plan } else { once(plan) })
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
    let may_differ = |part: &Expr| match part {
        Expr::Alias(alias) => alias.name.starts_with(LIMIT_PREFIX),
        // The mark of a frame is no call.
        Expr::ScalarFunction(call) if call.name() == EXCLUDE_MARK => false,
        part => part.is_volatile_node(),
    };
    expression.exists(|part| Ok(may_differ(part))).unwrap_or(true)
}

/// Whether a relation mentions, or may mention, the one to its left, which is not the outer query.
pub(super) fn is_lateral(right: &LogicalPlan) -> bool {
    match right {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        _ => false,
    }
}

/// How many of the sets of a key are empty: of these there is a group without any row.
fn empty_sets(key: &Expr) -> usize {
    match key {
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            sets.iter().filter(|set| set.is_empty()).count()
        }
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => 1,
        _ => 0,
    }
}

/// The value of an aggregate over no rows; `None` for NULL.
pub(super) fn value_of_nothing(expression: &Expr, aggregate: &Aggregate) -> Result<Option<ScalarValue>> {
    let function = match expression {
        Expr::Alias(alias) => alias.expr.as_ref(),
        other => other,
    };
    let Expr::AggregateFunction(call) = function else { return Ok(None) };
    let data_type = expression.get_type(aggregate.input.schema())?;
    let value = match call.func.name() {
        // All of its arguments are left out of the empty set.
        "grouping" => ScalarValue::Int64(Some((1 << call.params.args.len()) - 1)).cast_to(&data_type)?,
        _ => call.func.default_value(&data_type)?,
    };
    Ok((!value.is_null()).then_some(value))
}

fn same(left: &[Column], right: &[Column]) -> Vec<Expr> {
    std::iter::zip(left, right).map(|(left, right)| is_same(left, right)).collect()
}

fn is_same(left: &Column, right: &Column) -> Expr {
    let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
    binary_expr(left, Operator::IsNotDistinctFrom, right)
}

pub(super) fn named(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}
