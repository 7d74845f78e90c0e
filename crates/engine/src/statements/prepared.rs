//! PREPARE, EXECUTE and DEALLOCATE: a session's statements by name.
//!
//! A prepared statement is kept as its syntax tree: each EXECUTE plans it anew, over the tables and files
//! that exist then.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, DataType, Expr, Ident, Statement, VisitorMut};
use parking_lot::Mutex;

use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::sql::parser::Ast;
use crate::sql::walk::walk;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PreparedStatements {
    by_name: Mutex<HashMap<String, Prepared>>,
}

#[derive(Clone, Debug)]
struct Prepared {
    types: Vec<DataType>,
    statement: Statement,
}

impl PreparedStatements {
    /// The statement to run for `ast`; `None` if there is nothing left to run.
    pub(crate) fn resolve(&self, ast: Ast) -> Result<Option<Ast>> {
        let Ast::Sql(statement) = ast else { return Ok(Some(ast)) };
        match *statement {
            Statement::Prepare { name, data_types: types, statement } => {
                let name = normalized(&name);
                let mut by_name = self.by_name.lock();
                if by_name.contains_key(&name) {
                    let message = format!("prepared statement '{name}' already exists");
                    return Err(
                        Error::new(ErrorKind::AlreadyExists, message).with_hint(format!("DEALLOCATE {name}"))
                    );
                }
                by_name.insert(name, Prepared { types, statement: *statement });
                Ok(None)
            }
            Statement::Execute { name: Some(name), parameters, using, .. } => {
                let name = name.0.last().and_then(|part| part.as_ident()).map(normalized).unwrap_or_default();
                let values = parameters.into_iter().chain(using.into_iter().map(|value| value.expr));
                self.execute(&name, values.collect()).map(Some)
            }
            Statement::Deallocate { name, .. } => {
                self.deallocate(&name)?;
                Ok(None)
            }
            other => Ok(Some(Ast::Sql(Box::new(other)))),
        }
    }

    fn execute(&self, name: &str, values: Vec<Expr>) -> Result<Ast> {
        let prepared = self.by_name.lock().get(name).cloned().ok_or_else(|| not_found(name))?;
        let Prepared { types, mut statement } = prepared;
        let given = values.len();
        let typed = values.into_iter().enumerate().map(|(index, value)| match types.get(index) {
            Some(data_type) => Expr::Cast {
                kind: ast::CastKind::Cast,
                expr: Box::new(value),
                data_type: data_type.clone(),
                array: false,
                format: None,
            },
            None => Expr::Nested(Box::new(value)),
        });
        let mut fill = Fill { values: typed.collect(), parameters: types.len() };
        match walk(&mut statement, &mut fill) {
            ControlFlow::Continue(()) if given > fill.parameters => {
                let message =
                    format!("EXECUTE {name} gives {given} values for {} parameters", fill.parameters);
                Err(Error::new(ErrorKind::Invalid, message))
            }
            ControlFlow::Continue(()) => Ok(Ast::Sql(Box::new(statement))),
            ControlFlow::Break(placeholder) => {
                let message = format!("EXECUTE {name} gives no value for {placeholder}");
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }

    fn deallocate(&self, name: &Ident) -> Result<()> {
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.by_name.lock().clear();
            return Ok(());
        }
        let name = normalized(name);
        self.by_name.lock().remove(&name).map(drop).ok_or_else(|| not_found(&name))
    }
}

fn not_found(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("prepared statement '{name}' not found"))
        .with_hint(format!("PREPARE {name} AS SELECT ..."))
}

/// Replaces `$1` and so on by values.
struct Fill {
    values: Vec<Expr>,
    /// The highest parameter number so far.
    parameters: usize,
}

impl VisitorMut for Fill {
    type Break = String;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        let Expr::Value(value) = expr else { return ControlFlow::Continue(()) };
        let ast::Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        let index = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        self.parameters = self.parameters.max(index.unwrap_or(0));
        match index.and_then(|index| self.values.get(index.checked_sub(1)?)) {
            Some(value) => {
                *expr = value.clone();
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(name.clone()),
        }
    }
}
