//! Keeps conditions that can fail where they are in a logical plan.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{
    conjunction, merge_schema, split_conjunction, split_conjunction_owned,
};
use datafusion::logical_expr::{
    BinaryExpr, Case, Distinct, Expr, Filter, GroupingSet, Join, JoinType, LogicalPlan, Operator, Projection,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerConfig, OptimizerRule};

use super::can_fail;
use crate::compile::as_of::AsOfFilters;
use crate::compile::rules::{CrossJoins, EqualKeys, FormerKeys, SameWindows, WholeSums, rewrite_expressions};

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// DataFusion's rules, changed as the [module](super), [`SameWindows`], [`EqualKeys`] and [`WholeSums`] describe.
pub(crate) fn optimizer_rules() -> Vec<Rule> {
    let rules = Optimizer::new().rules.into_iter().flat_map(|rule| -> Vec<Rule> {
        match rule.name() {
            "push_down_filter" => vec![Arc::new(PushDown(PushDownFilter::new())), Arc::new(AsOfFilters)],
            "extract_equijoin_predicate" => vec![Arc::new(EqualKeys(rule))],
            "eliminate_cross_join" => vec![Arc::new(CrossJoins(rule))],
            "common_sub_expression_eliminate" => vec![Arc::new(SameWindows), rule, Arc::new(AfterCommon)],
            name if name == WholeSums::default().name() => vec![Arc::new(WholeSums::default())],
            _ => vec![rule],
        }
    });
    let first: Rule = Arc::new(FormerKeys);
    [first].into_iter().chain(rules).collect()
}

/// Splits the conjuncts of `predicate` into those that cannot fail and those that can.
fn split(predicate: Expr, schema: &DFSchema) -> Result<(Vec<Expr>, Vec<Expr>)> {
    let (mut total, mut failing) = (Vec::new(), Vec::new());
    for one in split_conjunction_owned(predicate) {
        if can_fail(&one, schema)? { failing.push(one) } else { total.push(one) }
    }
    Ok((total, failing))
}

fn filter(conjuncts: Vec<Expr>, input: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match conjunction(conjuncts) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?),
        None => input,
    })
}

/// DataFusion's predicate pushdown, except that conditions that can fail stay above operators that may
/// exclude rows.
#[derive(Debug)]
struct PushDown(PushDownFilter);

impl OptimizerRule for PushDown {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(outer) => self.filter(outer, config),
            LogicalPlan::Join(join) => self.join(join, config),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

impl PushDown {
    fn filter(&self, mut outer: Filter, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(inner) = outer.input.as_ref() {
            let both = [&inner.predicate, &outer.predicate];
            let mut conjuncts: Vec<Expr> = Vec::new();
            for one in both.into_iter().flat_map(split_conjunction) {
                if !conjuncts.contains(one) {
                    conjuncts.push(one.clone());
                }
            }
            let merged = filter(conjuncts, inner.input.as_ref().clone())?;
            let rewritten = self.rewrite(merged, config)?;
            return Ok(Transformed::yes(rewritten.data));
        }
        // Without rows there is a group all the same: a condition that no column is in would keep it below.
        if let LogicalPlan::Aggregate(aggregate) = outer.input.as_ref()
            && has_group_of_all(&aggregate.group_expr)
        {
            return Ok(Transformed::no(LogicalPlan::Filter(outer)));
        }
        if passes_all(&outer)? {
            return self.0.rewrite(LogicalPlan::Filter(outer), config);
        }
        let (mut total, mut failing) = split(outer.predicate.clone(), outer.input.schema())?;
        if failing.is_empty() {
            return self.0.rewrite(LogicalPlan::Filter(outer), config);
        }
        // Above an inner join, conditions on columns of both sides become part of the join's filter.
        let mut is_changed = false;
        if let LogicalPlan::Join(join) = outer.input.as_ref()
            && join.join_type == JoinType::Inner
        {
            let (of_both, above): (Vec<_>, Vec<_>) =
                failing.into_iter().partition(|one| is_of_both(one, join));
            failing = above;
            if !of_both.is_empty() {
                let filter = conjunction(join.filter.iter().cloned().chain(of_both));
                let join = Join { filter, ..join.clone() };
                outer.input = Arc::new(LogicalPlan::Join(join));
                is_changed = true;
            }
        }
        let below = match conjunction(std::mem::take(&mut total)) {
            None => Transformed::no(Arc::unwrap_or_clone(outer.input)),
            Some(predicate) => {
                self.rewrite(LogicalPlan::Filter(Filter::try_new(predicate, outer.input)?), config)?
            }
        };
        is_changed |= below.transformed;
        let rewritten = filter(failing, below.data)?;
        Ok(if is_changed { Transformed::yes(rewritten) } else { Transformed::no(rewritten) })
    }

    fn join(&self, mut join: Join, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let keys_changed = make_keys_conditional(&mut join)?;
        let rewritten = self.rewrite_join(join, config)?;
        Ok(if keys_changed { Transformed::yes(rewritten.data) } else { rewritten })
    }

    fn rewrite_join(&self, mut join: Join, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let Some(predicate) = join.filter.take() else {
            return self.0.rewrite(LogicalPlan::Join(join), config);
        };
        let (total, failing) = split(predicate, &merge_schema(&[&join.left, &join.right]))?;
        join.filter = conjunction(total);
        let rewritten = self.0.rewrite(LogicalPlan::Join(join), config)?;
        if failing.is_empty() {
            return Ok(rewritten);
        }
        rewritten.map_data(|plan| match plan {
            LogicalPlan::Join(mut join) => {
                join.filter = conjunction(join.filter.into_iter().chain(failing));
                Ok(LogicalPlan::Join(join))
            }
            plan => filter(failing, plan),
        })
    }
}

/// Computes the keys of a side whose rows an outer join all keeps, or an anti join asks about, only for those
/// that pass the other conditions on this side: these cannot become filters below such a join. Whether any
/// key was changed.
fn make_keys_conditional(join: &mut Join) -> Result<bool> {
    use JoinType::{Full, Left, LeftAnti, LeftMark, Right, RightAnti, RightMark};
    let keeps_left = matches!(join.join_type, Left | Full | LeftAnti | LeftMark);
    let keeps_right = matches!(join.join_type, Right | Full | RightAnti | RightMark);
    // NULL as a key means something else to NOT IN.
    let Some(filter) = join.filter.as_ref().filter(|_| !join.null_aware) else { return Ok(false) };
    let schema = merge_schema(&[&join.left, &join.right]);
    let total = split(filter.clone(), &schema)?.0;
    let condition_of = |side: &LogicalPlan| {
        let is_of_side = |one: &&Expr| {
            let columns = one.column_refs();
            let is_of_side = columns.iter().all(|column| side.schema().has_column(column));
            is_of_side && !columns.is_empty() && !one.is_volatile()
        };
        conjunction(total.iter().filter(is_of_side).cloned())
    };
    let left = keeps_left.then(|| condition_of(&join.left)).flatten();
    let right = keeps_right.then(|| condition_of(&join.right)).flatten();
    let mut any = false;
    for (left_key, right_key) in &mut join.on {
        if let Some(condition) = &left {
            any |= make_conditional(left_key, condition, join.left.schema())?;
        }
        if let Some(condition) = &right {
            any |= make_conditional(right_key, condition, join.right.schema())?;
        }
    }
    Ok(any)
}

/// Whether a condition has columns of both sides of a join, and no subquery, which a join cannot compute.
fn is_of_both(condition: &Expr, join: &Join) -> bool {
    let columns = condition.column_refs();
    let has = |side: &LogicalPlan| columns.iter().any(|column| side.schema().has_column(column));
    let is_subquery = |one: &Expr| {
        Ok(matches!(
            one,
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
        ))
    };
    has(&join.left) && has(&join.right) && !condition.exists(is_subquery).unwrap_or(true)
}

/// Whether one of the groups is that of all rows.
fn has_group_of_all(keys: &[Expr]) -> bool {
    keys.iter().all(|key| match key {
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        Expr::GroupingSet(_) => true,
        _ => false,
    })
}

/// Whether all conditions of a filter can move below its input together and see the same rows there.
fn passes_all(filter: &Filter) -> Result<bool> {
    let is_subquery = |one: &Expr| Ok(matches!(one, Expr::ScalarSubquery(_)));
    Ok(match filter.input.as_ref() {
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => true,
        LogicalPlan::Projection(projection) => !projection.expr.iter().any(Expr::is_volatile),
        LogicalPlan::TableScan(_) => {
            !filter.predicate.is_volatile() && !filter.predicate.exists(is_subquery)?
        }
        _ => false,
    })
}

/// Undoes common subexpression elimination for expressions that can fail: an expression is computed in its
/// place again if all of its uses stand where another condition may be decided first.
#[derive(Debug)]
struct AfterCommon;

/// The prefix of DataFusion's names for common subexpressions.
const COMMON: &str = "__common_expr";

impl OptimizerRule for AfterCommon {
    fn name(&self) -> &'static str {
        "after_common_sub_expression_eliminate"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let inputs = plan.inputs();
        let [LogicalPlan::Projection(below)] = inputs.as_slice() else { return Ok(Transformed::no(plan)) };
        let mut common = failing_common(below)?;
        if common.is_empty() {
            return Ok(Transformed::no(plan));
        }
        for expr in plan.expressions() {
            expr.apply(|node| surely_computed(node, &mut |column| drop(common.remove(column))))?;
        }
        if common.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let mut passed = Passed::new(below);
        for expr in common.values_mut() {
            *expr = std::mem::take(expr).transform(|node| passed.renamed(node, config))?.data;
        }
        let input = passed.projection(below)?;
        let names = NamePreserver::new(&plan);
        let in_place = |expr: Expr| {
            let name = names.save(&expr);
            let expr = expr.transform(|node| {
                Ok(match &node {
                    Expr::Column(column) if common.contains_key(column) => {
                        Transformed::yes(common[column].clone())
                    }
                    _ => Transformed::no(node),
                })
            });
            Ok(expr?.update_data(|expr| name.restore(expr)).data)
        };
        let exprs = plan.expressions().into_iter().map(in_place).collect::<Result<Vec<_>>>()?;
        Ok(Transformed::yes(plan.with_new_exprs(exprs, vec![input])?))
    }
}

/// What a projection passes on from its input, so that expressions over the input can stand above it.
struct Passed(Vec<(Expr, Column)>);

impl Passed {
    fn new(projection: &Projection) -> Self {
        Self(projection.expr.iter().cloned().zip(projection.schema.columns()).collect())
    }

    /// A column of the input by the name that it has above the projection, which passes it on from now on.
    fn renamed(&mut self, node: Expr, config: &dyn OptimizerConfig) -> Result<Transformed<Expr>> {
        if !matches!(node, Expr::Column(_)) {
            return Ok(Transformed::no(node));
        }
        let is_same =
            |expr: &Expr| *expr == node || matches!(expr, Expr::Alias(alias) if *alias.expr == node);
        let name = match self.0.iter().find(|(expr, _)| is_same(expr)) {
            Some((_, name)) => name.clone(),
            None => {
                let name = Column::from_name(config.alias_generator().next("__passed"));
                self.0.push((node.alias(name.name()), name.clone()));
                name
            }
        };
        Ok(Transformed::yes(Expr::Column(name)))
    }

    fn projection(self, projection: &Projection) -> Result<LogicalPlan> {
        let exprs = self.0.into_iter().map(|(expr, _)| expr).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, projection.input.clone())?))
    }
}

/// The common subexpressions of a projection that can fail.
fn failing_common(projection: &Projection) -> Result<HashMap<Column, Expr>> {
    let mut common = HashMap::new();
    for expr in &projection.expr {
        if let Expr::Alias(alias) = expr
            && alias.name.starts_with(COMMON)
            && can_fail(&alias.expr, projection.input.schema())?
        {
            common.insert(Column::from_name(&alias.name), (*alias.expr).clone());
        }
    }
    Ok(common)
}

/// Calls `found` with each column that the expression computes for every row.
fn surely_computed(node: &Expr, found: &mut dyn FnMut(&Column)) -> Result<TreeNodeRecursion> {
    let mut first = |expr: &Expr| -> Result<TreeNodeRecursion> {
        expr.apply(|node| surely_computed(node, found))?;
        Ok(TreeNodeRecursion::Jump)
    };
    match node {
        Expr::Column(column) => found(column),
        Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }) => {
            return Ok(TreeNodeRecursion::Jump);
        }
        Expr::Case(Case { expr: Some(base), .. }) => return first(base),
        Expr::Case(Case { when_then_expr, .. }) => {
            return match when_then_expr.first() {
                Some((when, _)) => first(when),
                None => Ok(TreeNodeRecursion::Jump),
            };
        }
        Expr::InList(InList { expr, .. }) => return first(expr),
        Expr::AggregateFunction(AggregateFunction { params, .. }) if params.filter.is_some() => {
            return Ok(TreeNodeRecursion::Jump);
        }
        _ => {}
    }
    Ok(TreeNodeRecursion::Continue)
}

/// Makes `sum(10 / x) FILTER (WHERE x <> 0)`, also as a window function, compute its argument for only the rows
/// that pass the filter.
#[derive(Debug)]
pub(crate) struct Arguments;

impl AnalyzerRule for Arguments {
    fn name(&self) -> &'static str {
        "conditional_arguments"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, |mut expr, schema| {
            let (arguments, filter, order_by) = match &mut expr {
                Expr::AggregateFunction(function) => {
                    let params = &mut function.params;
                    (&mut params.args, &params.filter, Some(&mut params.order_by))
                }
                // The ORDER BY of a window counts for rows that FILTER excludes, too.
                Expr::WindowFunction(function) => {
                    let params = &mut function.params;
                    (&mut params.args, &params.filter, None)
                }
                _ => return Ok(Transformed::no(expr)),
            };
            let Some(filter) = filter else { return Ok(Transformed::no(expr)) };
            let mut is_changed = false;
            let sorted = order_by.into_iter().flatten().map(|sort| &mut sort.expr);
            for argument in arguments.iter_mut().chain(sorted) {
                is_changed |= make_conditional(argument, filter, schema)?;
            }
            Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        })
    }
}

/// Makes an expression that can fail one that is computed only where `condition` is true, and NULL elsewhere.
/// Whether it was changed.
fn make_conditional(expr: &mut Expr, condition: &Expr, schema: &DFSchema) -> Result<bool> {
    let is_done = matches!(&expr, Expr::Case(case)
        if case.when_then_expr.iter().any(|(when, _)| when.as_ref() == condition));
    if is_done || !can_fail(expr, schema)? {
        return Ok(false);
    }
    let then = (Box::new(condition.clone()), Box::new(std::mem::take(expr)));
    *expr = Expr::Case(Case::new(None, vec![then], None));
    Ok(true)
}
