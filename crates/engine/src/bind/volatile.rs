//! Tells apart volatile calls that are written alike: the planner would compute two `any_value(uuid())` once,
//! for both.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{Expr, Function, Select, Value};

use super::outside_subqueries::{Expressions, each_outside_subqueries};
use crate::functions::{self, call, once};

/// Changes calls of volatile functions inside aggregates and window functions so that no two are written
/// alike.
pub(super) fn make_distinct(select: &mut Select) {
    let mut apart = Apart { seen: HashSet::new(), aggregates: 0, count: 0 };
    each_outside_subqueries(&mut select.projection, &mut apart);
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
        let Expr::Function(Function { name, .. }) = &*expr else { return };
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
    }
}

pub(super) fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if call.over.is_some() || functions::is_planners_aggregate(&call.name.to_string().to_ascii_lowercase()))
}
