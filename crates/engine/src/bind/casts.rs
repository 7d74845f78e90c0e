//! Tells a value and a cast of it apart where the planner would name both alike: as keys of GROUP BY, and as arguments
//! of one aggregate or window function. The planner names a cast like what it casts, and refuses equal names.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, Select, SelectItem, Value, VisitorMut,
};

use super::outside_subqueries::{Expressions, each_outside_subqueries};
use super::volatile::is_aggregate;
use crate::expressions::functions::{call, once};
use crate::sql::walk::walk;

/// Gives the casts of a SELECT names with their types, if keys or aggregates differ in them alone.
pub(super) fn name_by_type(select: &mut Select, order_by: Option<&mut OrderBy>) {
    let mut named = Named::default();
    let mut order_by = order_by;
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        for key in keys {
            let sets = match key {
                Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => sets.as_mut_slice(),
                key => &mut [vec![key.clone()]],
            };
            sets.iter().flatten().for_each(|key| named.add(selected(key, &select.projection).unwrap_or(key)));
        }
    }
    each_part(select, order_by.as_deref_mut(), &mut named);
    if named.are_alike {
        each_part(select, order_by, &mut Casts);
    }
}

/// What a key stands for that is the position or the name of a selected column.
fn selected<'s>(key: &Expr, items: &'s [SelectItem]) -> Option<&'s Expr> {
    let named = |name: &Ident| {
        items.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if alias.value.eq_ignore_ascii_case(&name.value) => {
                Some(expr)
            }
            _ => None,
        })
    };
    match key {
        Expr::Identifier(name) => named(name),
        Expr::Value(value) => {
            let Value::Number(position, _) = &value.value else { return None };
            match items.get(position.to_string().parse::<usize>().ok()?.checked_sub(1)?)? {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                _ => None,
            }
        }
        _ => None,
    }
}

fn each_part(select: &mut Select, order_by: Option<&mut OrderBy>, expressions: &mut impl Expressions) {
    each_outside_subqueries(&mut select.projection, expressions);
    each_outside_subqueries(&mut select.group_by, expressions);
    each_outside_subqueries(&mut select.having, expressions);
    each_outside_subqueries(&mut select.qualify, expressions);
    if let Some(order_by) = order_by {
        each_outside_subqueries(order_by, expressions);
    }
}

/// What the planner names, by its text without casts.
#[derive(Default)]
struct Named {
    texts: HashMap<String, String>,
    are_alike: bool,
}

impl Named {
    fn add(&mut self, expr: &Expr) {
        let mut uncast = expr.clone();
        let ControlFlow::Continue(()) = walk(&mut uncast, &mut WithoutCasts);
        let text = expr.to_string();
        let mut named = uncast.to_string().to_lowercase();
        // The planner's name for it.
        if let Some(rest) = named.strip_prefix("count(*)").or_else(|| named.strip_prefix("count()")) {
            named = format!("count(1){rest}");
        }
        let known = self.texts.entry(named).or_insert_with(|| text.clone());
        self.are_alike |= *known != text;
    }
}

impl Expressions for Named {
    fn before(&mut self, expr: &mut Expr) {
        if is_aggregate(expr) {
            self.add(expr);
        }
    }
}

struct WithoutCasts;

impl VisitorMut for WithoutCasts {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = expr {
            *expr = inner.as_ref().clone();
        }
        ControlFlow::Continue(())
    }
}

/// Names casts.
struct Casts;

impl Expressions for Casts {
    fn after(&mut self, expr: &mut Expr) {
        if let Expr::Cast { expr: value, data_type, .. } = expr {
            let name = Expr::value(Value::SingleQuotedString(data_type.to_string()));
            **value = call(once::NAMED, vec![value.as_ref().clone(), name]);
        }
    }
}
