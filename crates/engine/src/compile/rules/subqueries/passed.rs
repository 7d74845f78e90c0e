//! Subqueries that mention columns of queries further out than the one directly around them.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::dependent::{Names, check_mentioned, outer_columns};
use super::plans::subquery_of_mut;

/// The input and the expressions of a node whose subqueries mention only columns of that input.
pub(super) struct Passed {
    pub(super) input: LogicalPlan,
    pub(super) expressions: Vec<Expr>,
    pub(super) changed: bool,
}

/// Makes what subqueries mention of queries further out columns of the query directly around them, which mentions them in
/// their place. Inner subqueries come first, so that this goes on from query to query.
pub(super) fn pass_on(input: LogicalPlan, expressions: Vec<Expr>, names: &mut Names) -> Result<Passed> {
    let mut far = Far::default();
    let expressions = expressions.into_iter().map(|expression| {
        expression
            .transform_down(|mut part| {
                let Some(subquery) = subquery_of_mut(&mut part) else { return Ok(Transformed::no(part)) };
                let is_far = far.replace(&input, subquery, names)?;
                Ok(Transformed::new(part, is_far, TreeNodeRecursion::Continue))
            })
            .data()
    });
    let expressions = expressions.collect::<Result<_>>()?;
    let changed = !far.is_empty();
    Ok(Passed { input: far.beside(input)?, expressions, changed })
}

/// Columns of queries further out, and the names under which the query directly around subqueries has them.
#[derive(Default)]
pub(super) struct Far(Vec<(Expr, String)>);

impl Far {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces what a subquery mentions that is no column of `input`; whether there is something.
    pub(super) fn replace(
        &mut self,
        input: &LogicalPlan,
        subquery: &mut Subquery,
        names: &mut Names,
    ) -> Result<bool> {
        let mut is_far = false;
        for outer in outer_columns(&subquery.subquery) {
            let Expr::OuterReferenceColumn(_, column) = &outer else { continue };
            // A column that the query has, but not at this place, is none of the queries further out.
            if has_somewhere(input, column) {
                continue;
            }
            is_far = true;
            if !self.0.iter().any(|(known, _)| *known == outer) {
                self.0.push((outer, names.fresh()));
            }
        }
        if is_far {
            let plan = Arc::unwrap_or_clone(subquery.subquery.clone());
            subquery.subquery = Arc::new(with_near_columns(plan, &self.0)?);
        }
        subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        Ok(is_far)
    }

    /// `input` with the columns.
    pub(super) fn beside(self, input: LogicalPlan) -> Result<LogicalPlan> {
        if self.is_empty() {
            return Ok(input);
        }
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> =
            columns.chain(self.0.into_iter().map(|(outer, name)| outer.alias(name))).collect();
        LogicalPlanBuilder::from(input).project(columns)?.build()
    }
}

/// Whether a query has a column at a place of its own, or had it before: of what was grouped, say.
fn has_somewhere(plan: &LogicalPlan, column: &Column) -> bool {
    if plan.schema().has_column(column) {
        return true;
    }
    match plan {
        // These are relations of FROM, in which names mean something else.
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) => false,
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => has_somewhere(&join.left, column),
            JoinType::RightSemi | JoinType::RightAnti => has_somewhere(&join.right, column),
            _ => has_somewhere(&join.left, column) || has_somewhere(&join.right, column),
        },
        plan => plan.inputs().into_iter().any(|input| has_somewhere(input, column)),
    }
}

/// Refuses columns that were passed on to a plan with no query around it.
pub(super) fn check_passed(plan: &LogicalPlan) -> Result<()> {
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
