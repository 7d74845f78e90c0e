//! Tells apart volatile calls that are written alike: the planner would compute two `any_value(uuid())`, or two
//! `(SELECT random())`, once, for both.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, Select, Value};

use super::outside_subqueries::{Expressions, each_outside_subqueries};
use crate::expressions::functions::{self, call, once};
use crate::sql::walk::{each_expression, each_expression_mut};

/// Changes calls of volatile functions inside aggregates and window functions so that no two are written
/// alike, and those of each subquery in an expression so that no other subquery has the same.
pub(super) fn make_distinct(select: &mut Select) {
    let mut apart = Apart { seen: HashSet::new(), aggregates: 0, count: 0 };
    each_outside_subqueries(&mut select.projection, &mut apart);
    let mut subqueries = Subqueries { count: 0 };
    each_outside_subqueries(&mut select.projection, &mut subqueries);
    each_outside_subqueries(&mut select.selection, &mut subqueries);
    each_outside_subqueries(&mut select.having, &mut subqueries);
}

struct Apart {
    /// The calls so far, as they are written.
    seen: HashSet<String>,
    /// How many aggregates and window functions enclose the current node.
    aggregates: usize,
    /// How many calls were changed.
    count: usize,
}

impl Expressions for Apart {
    fn before(&mut self, expr: &mut Expr) {
        self.aggregates += usize::from(is_aggregate(expr));
    }

    fn after(&mut self, expr: &mut Expr) {
        if is_aggregate(expr) {
            self.aggregates -= 1;
        } else if self.aggregates > 0 && is_volatile_call(expr) && !self.seen.insert(expr.to_string()) {
            self.count += 1;
            number(expr, self.count);
        }
    }
}

/// Makes a volatile call differ from those that have another number.
fn number(expr: &mut Expr, number: usize) {
    let number = Expr::value(Value::Number(number.to_string(), false));
    *expr = call(once::APART, vec![expr.clone(), number]);
}

struct Subqueries {
    /// How many subqueries with volatile calls there were so far.
    count: usize,
}

impl Expressions for Subqueries {
    fn after(&mut self, expr: &mut Expr) {
        if matches!(expr, Expr::Subquery(_) | Expr::Exists { .. }) && has_volatile_call(expr) {
            self.count += 1;
            // The first one stays as it is written: an expression of GROUP BY may be the same.
            if self.count > 1 {
                each_expression_mut(expr, &mut |one| {
                    if is_volatile_call(one) {
                        number(one, self.count);
                    }
                });
            }
        }
    }
}

fn has_volatile_call(expr: &Expr) -> bool {
    let mut found = |one: &Expr| match is_volatile_call(one) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    each_expression(expr, &mut found).is_break()
}

fn is_volatile_call(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(Function { name, .. }) if functions::is_volatile(&name.to_string()))
}

pub(super) fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if call.over.is_some() || functions::is_planners_aggregate(&call.name.to_string().to_ascii_lowercase()))
}
