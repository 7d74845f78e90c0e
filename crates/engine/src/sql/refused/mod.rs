//! Refuses syntax that the parser accepts and the engine ignores, so that no clause is dropped silently.
//!
//! Most of the parser's tree goes to the planner, which uses some fields of it and not others. So every
//! struct is destructured here field by field, without `..`: a field that a new version of the parser adds
//! does not compile until someone states what uses it. Before that, clauses that mean the same as others are
//! rewritten to those, see [`rewritten`].

mod expressions;
mod queries;
mod rewritten;
mod statements;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, VisitMut, VisitorMut,
};

use crate::error::{Error, ErrorKind, Result};
use crate::sql::alterations::Alteration;
use crate::sql::parser::Ast;
use crate::sql::walk::walk;

pub(crate) use rewritten::NOBODY;
pub(crate) use statements::{check_column_options, check_prepared};

/// Rewrites a statement to syntax that the planner knows, and refuses clauses that it would ignore.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a clause that is not supported, [`ErrorKind::Syntax`] for one that makes no
/// sense.
pub(crate) fn refuse_unread(ast: &mut Ast) -> Result<()> {
    match ast {
        Ast::CreateTable { clauses, .. } => clauses.check()?,
        Ast::AlterTable { alterations, .. } => {
            alterations.iter().try_for_each(|alteration| match alteration {
                Alteration::Standard(operation) => statements::alteration(operation),
                Alteration::Column(_, options) => {
                    check_column_options(options.iter().map(|option| &option.option))
                }
                Alteration::OrderBy(_) | Alteration::Comment(_) => Ok(()),
            })?;
        }
        _ => {}
    }
    refuse_in(ast)
}

/// As [`refuse_unread`], for the query of a view.
pub(crate) fn refuse_unread_in(query: &mut Query) -> Result<()> {
    refuse_in(query)
}

fn refuse_in(tree: &mut impl VisitMut) -> Result<()> {
    match walk(tree, &mut Unread) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Unread;

fn flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Unread {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Error> {
        flow(rewritten::statement(statement).and_then(|()| statements::statement(statement)))
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        flow(rewritten::query(query).and_then(|()| queries::query(query)))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        flow(rewritten::select(select).and_then(|()| queries::select(select)))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        flow(rewritten::table_factor(factor).and_then(|()| queries::table_factor(factor)))
    }

    fn pre_visit_relation(&mut self, _: &mut ObjectName) -> ControlFlow<Error> {
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        flow(rewritten::expr(expr).and_then(|()| expressions::expr(expr)))
    }
}

/// The error of a clause that is not supported.
fn unsupported(clause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{clause} is not supported"))
}

/// Refuses the first clause that is present; the third field of each clause is what to do instead, or empty.
fn refuse(clauses: &[(bool, &str, &str)]) -> Result<()> {
    match clauses.iter().find(|(is_there, ..)| *is_there) {
        Some((_, clause, "")) => Err(unsupported(clause)),
        Some((_, clause, hint)) => Err(unsupported(clause).with_hint(*hint)),
        None => Ok(()),
    }
}
