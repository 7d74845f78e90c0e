//! GROUP BY ALL.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value};

use super::outside_subqueries::{Expressions, each_outside_subqueries};
use super::volatile::is_aggregate;

/// Writes GROUP BY ALL with the places of the selected columns that have no aggregates. The planner would group by
/// aliases, which HAVING does not take for what they stand for. Left as it is if the places are not known yet.
pub(super) fn write_out(select: &mut Select) {
    let GroupByExpr::All(modifiers) = &select.group_by else { return };
    let is_column =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if !select.projection.iter().all(is_column) {
        return;
    }
    let modifiers = modifiers.clone();
    let mut keys = Vec::new();
    for (item, place) in select.projection.iter_mut().zip(1..) {
        let mut found = Found(false);
        each_outside_subqueries(item, &mut found);
        if !found.0 {
            keys.push(Expr::value(Value::Number(place.to_string(), false)));
        }
    }
    select.group_by = GroupByExpr::Expressions(keys, modifiers);
}

/// Whether there is an aggregate or a window function.
struct Found(bool);

impl Expressions for Found {
    fn before(&mut self, expr: &mut Expr) {
        self.0 |= is_aggregate(expr);
    }
}
