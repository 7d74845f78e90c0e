//! Marks LATERAL relations: the planner takes one that mentions its neighbours only in subqueries for one that is not LATERAL.

use std::mem;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Query, TableFactor, TableWithJoins, VisitorMut};

use super::{alias_of, star};
use crate::compile::rules::LATERAL_MARK;
use crate::sql::walk::walk;

/// `query` as `SELECT * FROM (query) mark`, if there are queries inside it.
pub(super) fn mark(query: &mut Box<Query>) {
    if walk(query.as_mut(), &mut Queries(0)).is_continue() {
        return;
    }
    let marked = mem::replace(query, Box::new(star::query(star::select_all())));
    let alias = Some(alias_of(LATERAL_MARK));
    let relation = TableFactor::Derived { lateral: false, subquery: marked, alias, sample: None };
    let mut select = star::select_all();
    select.from = vec![TableWithJoins { relation, joins: Vec::new() }];
    **query = star::query(select);
}

/// Breaks off at the second query.
struct Queries(usize);

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
