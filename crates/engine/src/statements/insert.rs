//! INSERT whose query contains VALUES somewhere inside.
//!
//! The planner takes every VALUES inside an INSERT for rows of the table, and expects as many columns as that
//! has. So such a query is planned by itself, and the rows of its plan are inserted.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::datasource::ViewTable;
use datafusion::sql::sqlparser::ast::{self, Query, SetExpr, Statement, Visit, Visitor};

use super::query;
use crate::error::Result;
use crate::session::Session;
use crate::sources::catalog::OpenFile;
use crate::sql::parser::parse_standard;

/// Replaces the query by its plan if it contains VALUES. The returned [`OpenFile`] must be kept until the
/// statement is planned.
pub(super) async fn plan_values_apart(
    session: &Session,
    insert: &mut ast::Insert,
    sql: &str,
) -> Result<Option<OpenFile>> {
    let Some(source) = insert.source.as_mut().filter(|source| has_values_inside(source)) else {
        return Ok(None);
    };
    let plan = query::plan(session, Statement::Query(source.clone()), sql).await?;
    let files = &session.catalog.files;
    let open = files.add(files.fresh_name(), Arc::new(ViewTable::new(plan, None)));
    if let Statement::Query(query) = parse_standard(&format!("SELECT * FROM {}", open.sql_name()))? {
        *source = query;
    }
    Ok(Some(open))
}

/// Whether a query contains VALUES, but is not itself one.
fn has_values_inside(query: &Query) -> bool {
    struct Values;
    impl Visitor for Values {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if matches!(*query.body, SetExpr::Values(_)) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }
    !matches!(*query.body, SetExpr::Values(_)) && query.visit(&mut Values).is_break()
}
