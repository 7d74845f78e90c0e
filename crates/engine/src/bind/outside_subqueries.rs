//! A walk over the expressions of a clause that leaves out those of its subqueries.

use std::convert::Infallible;
use std::ops::ControlFlow;

use crate::sql::walk::walk;
use datafusion::sql::sqlparser::ast::{Expr, Query, VisitMut, VisitorMut};

/// What a walk does with each expression.
pub(super) trait Expressions {
    /// Called before the walk goes into `expr`.
    fn before(&mut self, _expr: &mut Expr) {}

    /// Called after the walk has been in `expr`.
    fn after(&mut self, _expr: &mut Expr) {}
}

/// Walks over the expressions of `clause`, but not over those of its subqueries.
pub(super) fn each_outside_subqueries(clause: &mut impl VisitMut, expressions: &mut impl Expressions) {
    let ControlFlow::Continue(()) = walk(clause, &mut Outside { expressions, queries: 0 });
}

struct Outside<'a, E> {
    expressions: &'a mut E,
    /// How many subqueries enclose the current node.
    queries: usize,
}

impl<E: Expressions> VisitorMut for Outside<'_, E> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Infallible> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Infallible> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if self.queries == 0 {
            self.expressions.before(expr);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if self.queries == 0 {
            self.expressions.after(expr);
        }
        ControlFlow::Continue(())
    }
}
