//! Whether a statement has names that can be resolved only with the columns of its tables.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Select, TableFactor, TableWithJoins, VisitMut, VisitorMut};

use super::joins::merges;
use crate::bind::relations::normalized;
use crate::sql::walk::walk;

/// Whether a join merges columns, two tables have one name, or a name has more than two parts.
pub(super) fn needs_columns(statement: &mut impl VisitMut) -> bool {
    walk(statement, &mut Needed::default()).is_break()
}

/// A visitor that stops at the first such name.
#[derive(Default)]
struct Needed {
    /// The tables as they are written, by their names in the query; an empty text for one with an alias.
    tables: HashMap<String, String>,
}

impl VisitorMut for Needed {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.from.iter_mut().try_for_each(check_joins)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let (name, whole) = match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. } => (normalized(&alias.name), String::new()),
            TableFactor::Table { name, .. } => {
                let last = name.0.last().and_then(|part| part.as_ident());
                (last.map(normalized).unwrap_or_default(), name.to_string())
            }
            TableFactor::NestedJoin { table_with_joins, .. } => return check_joins(table_with_joins),
            _ => return ControlFlow::Continue(()),
        };
        let known = self.tables.entry(name).or_insert_with(|| whole.clone());
        if *known == whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(parts) if parts.len() > 2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn check_joins(tables: &mut TableWithJoins) -> ControlFlow<()> {
    if tables.joins.iter_mut().any(merges) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
