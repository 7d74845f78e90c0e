//! Resolves the names in expressions.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Query, VisitorMut};

use super::Binder;
use super::scope::{Meaning, Outer, Scope};
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind};
use crate::sql::text::byte_range;

/// A visitor that resolves the names in expressions.
pub(super) struct Expressions<'a, 'b, 'c> {
    binder: &'a mut Binder<'b>,
    scope: &'a Scope<'c>,
    /// How many subqueries inside the expressions enclose the current node.
    depth: usize,
    /// Positions of names of struct fields, which are not columns.
    fields: HashSet<usize>,
    /// The parameters of the enclosing lambdas.
    shadowed: Vec<String>,
}

impl<'a, 'b, 'c> Expressions<'a, 'b, 'c> {
    pub(super) fn new(binder: &'a mut Binder<'b>, scope: &'a Scope<'c>) -> Self {
        Self { binder, scope, depth: 0, fields: HashSet::new(), shadowed: Vec::new() }
    }
}

impl VisitorMut for Expressions<'_, '_, '_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        if self.depth > 1 {
            return ControlFlow::Continue(());
        }
        match self.binder.query(query, Outer::Query(self.scope)) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::CompoundFieldAccess { access_chain, .. } => {
                let fields = access_chain.iter().filter_map(|access| match access {
                    AccessExpr::Dot(field) => Some(std::ptr::from_ref(field).addr()),
                    AccessExpr::Subscript(_) => None,
                });
                self.fields.extend(fields);
            }
            Expr::Lambda(lambda) => {
                self.shadowed.extend(lambda.params.iter().map(|parameter| normalized(&parameter.name)));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.fields.remove(&std::ptr::from_ref::<Expr>(expr).addr()) || self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let parts = match expr {
            Expr::Lambda(lambda) => {
                self.shadowed.truncate(self.shadowed.len() - lambda.params.len());
                return ControlFlow::Continue(());
            }
            Expr::Identifier(name) => std::slice::from_ref(name),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            _ => return ControlFlow::Continue(()),
        };
        if parts.first().is_some_and(|first| self.shadowed.contains(&normalized(first))) {
            return ControlFlow::Continue(());
        }
        let span = || {
            let (first, last) = (parts.first()?, parts.last()?);
            byte_range(self.binder.sql, first.span.union(&last.span))
        };
        let error = match self.scope.meaning(parts) {
            Ok(Meaning::Instead(meant)) => {
                *expr = *meant;
                return ControlFlow::Continue(());
            }
            Ok(Meaning::Nothing) if parts.len() > 2 => {
                let written = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
                Error::new(ErrorKind::NotFound, format!("column '{written}' not found"))
            }
            Ok(_) => return ControlFlow::Continue(()),
            Err(error) => error,
        };
        ControlFlow::Break(match span() {
            Some(span) => error.with_span(span),
            None => error,
        })
    }
}
