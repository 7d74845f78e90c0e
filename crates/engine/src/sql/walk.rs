//! Walks over syntax trees.
//!
//! sqlparser compiles its walk, some thousands of functions, anew for each type of visitor. Here it is compiled once, for
//! visitors behind a reference: that makes the program some megabytes smaller, and a build faster.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, VisitMut, VisitorMut,
    visit_expressions,
};

/// Shows the nodes of `tree` to `visitor`, until it breaks off.
pub(crate) fn walk<V: VisitorMut>(tree: &mut impl VisitMut, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = Kept { visitor, broken: None };
    let outcome = tree.visit(&mut Any(&mut kept));
    match kept.broken {
        Some(broken) => ControlFlow::Break(broken),
        None => {
            debug_assert!(outcome.is_continue(), "what breaks off is kept");
            ControlFlow::Continue(())
        }
    }
}

/// Shows the expressions in `expr`, itself included, until `each` breaks off.
pub(crate) fn each_expression(
    expr: &Expr,
    each: &mut dyn FnMut(&Expr) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit_expressions(expr, each)
}

/// Shows the expressions in `expr`, itself included; those inside of another one come before it.
pub(crate) fn each_expression_mut(expr: &mut Expr, each: &mut dyn FnMut(&mut Expr)) {
    struct Each<'a>(&'a mut dyn FnMut(&mut Expr));

    impl VisitorMut for Each<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            (self.0)(expr);
            ControlFlow::Continue(())
        }
    }

    let _ = walk(expr, &mut Each(each));
}

/// The methods of [`VisitorMut`], and what they are called with.
macro_rules! methods {
    ($each:ident) => {
        $each! {
            pre_visit_query(Query), post_visit_query(Query),
            pre_visit_select(Select), post_visit_select(Select),
            pre_visit_relation(ObjectName), post_visit_relation(ObjectName),
            pre_visit_table_factor(TableFactor), post_visit_table_factor(TableFactor),
            pre_visit_expr(Expr), post_visit_expr(Expr),
            pre_visit_statement(Statement), post_visit_statement(Statement),
            pre_visit_value(ValueWithSpan), post_visit_value(ValueWithSpan),
        }
    };
}

/// A visitor, and what it broke off with.
struct Kept<'a, V: VisitorMut> {
    visitor: &'a mut V,
    broken: Option<V::Break>,
}

/// Visits by a [`Kept`] visitor.
macro_rules! keep {
    ($($method:ident($node:ty),)*) => {
        impl<V: VisitorMut> VisitorMut for Kept<'_, V> {
            type Break = ();

            $(fn $method(&mut self, node: &mut $node) -> ControlFlow<()> {
                match self.visitor.$method(node) {
                    ControlFlow::Continue(()) => ControlFlow::Continue(()),
                    ControlFlow::Break(broken) => {
                        self.broken = Some(broken);
                        ControlFlow::Break(())
                    }
                }
            })*
        }
    };
}
methods!(keep);

/// Any visitor.
struct Any<'a>(&'a mut dyn VisitorMut<Break = ()>);

/// Visits by the visitor behind the reference.
macro_rules! forward {
    ($($method:ident($node:ty),)*) => {
        impl VisitorMut for Any<'_> {
            type Break = ();

            $(fn $method(&mut self, node: &mut $node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }
    };
}
methods!(forward);
