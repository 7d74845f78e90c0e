//! Tells apart volatile calls that are written alike: the planner would compute two `any_value(uuid())` once,
//! for both.

use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, Query, Select, Value, VisitMut, VisitorMut};

use crate::functions::{self, call, once};

/// Changes calls of volatile functions inside aggregates and window functions so that no two are written
/// alike.
pub(super) fn make_distinct(select: &mut Select) {
    let mut visitor = Apart { seen: HashSet::new(), aggregates: 0, queries: 0, count: 0 };
    let _ = VisitMut::visit(&mut select.projection, &mut visitor);
}

struct Apart {
    /// The calls so far, as they are written.
    seen: HashSet<String>,
    /// How many aggregates and window functions enclose the current node.
    aggregates: usize,
    /// How many subqueries of the SELECT list enclose the current node.
    queries: usize,
    /// How many calls were changed.
    count: usize,
}

impl VisitorMut for Apart {
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
        self.aggregates += usize::from(self.queries == 0 && is_aggregate(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        let Expr::Function(Function { name, .. }) = &*expr else { return ControlFlow::Continue(()) };
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        if is_aggregate(expr) {
            self.aggregates -= 1;
        } else if self.aggregates > 0
            && functions::is_volatile(&name.to_string())
            && !self.seen.insert(expr.to_string())
        {
            self.count += 1;
            let number = Expr::value(Value::Number(self.count.to_string(), false));
            *expr = call(once::APART, vec![expr.clone(), number]);
        }
        ControlFlow::Continue(())
    }
}

pub(super) fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if call.over.is_some() || functions::is_planners_aggregate(&call.name.to_string().to_ascii_lowercase()))
}
