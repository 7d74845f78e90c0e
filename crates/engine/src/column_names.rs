//! Columns without a name are called what was written: `avg(fare)`, not `avg(trips.fare)`.
//!
//! The planner names an expression by its plan, with qualifiers and types. Before planning, each unnamed
//! expression of a SELECT gets its own text as its name, made unique where it stands twice.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
};

use crate::parser::Ast;
use crate::relations::normalized;

/// Names the columns of the queries of `ast`: the outer one, WITH, and subqueries in FROM.
pub(crate) fn name_columns(ast: &mut Ast) {
    match ast {
        Ast::Sql(statement) => name_in_statement(statement),
        Ast::CopyTo { query, .. } | Ast::Describe(query) | Ast::Summarize(query) => name_in_query(query),
        Ast::CopyFrom { .. } => {}
    }
}

fn name_in_statement(statement: &mut Statement) {
    match statement {
        Statement::Query(query) => name_in_query(query),
        Statement::Explain { statement, .. } => name_in_statement(statement),
        Statement::CreateView(view) => name_in_query(&mut view.query),
        Statement::CreateTable(table) => table.query.iter_mut().for_each(|query| name_in_query(query)),
        Statement::Insert(ast::Insert { source: Some(query), .. }) => name_in_query(query),
        _ => {}
    }
}

pub(crate) fn name_in_query(query: &mut Query) {
    for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        name_in_query(&mut cte.query);
    }
    name_in_body(&mut query.body);
    // ORDER BY of a SELECT DISTINCT may only name what was selected, which has a new name now.
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by) else { return };
    let ast::OrderByKind::Expressions(keys) = &mut order.kind else { return };
    if select.distinct.is_none() {
        return;
    }
    for key in keys {
        let same = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { expr, alias } if *expr == key.expr => Some(alias.clone()),
            _ => None,
        };
        if let Some(alias) = select.projection.iter().find_map(same) {
            key.expr = Expr::Identifier(alias);
        }
    }
}

fn name_in_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => name_in_select(select),
        SetExpr::Query(query) => name_in_query(query),
        SetExpr::SetOperation { left, right, .. } => {
            name_in_body(left);
            name_in_body(right);
        }
        _ => {}
    }
}

fn name_in_select(select: &mut Select) {
    for TableWithJoins { relation, joins } in &mut select.from {
        for relation in std::iter::once(relation).chain(joins.iter_mut().map(|join| &mut join.relation)) {
            if let TableFactor::Derived { subquery, .. } = relation {
                name_in_query(subquery);
            }
        }
    }
    let mut taken: HashSet<String> = select.projection.iter().filter_map(given_name).collect();
    let mut seen = HashSet::new();
    for item in &mut select.projection {
        if let Some(name) = given_name(item).filter(|name| seen.insert(name.clone())) {
            taken.insert(name);
            continue;
        }
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let text = column_name(expr).unwrap_or_else(|| expr.to_string());
        let mut name = text.clone();
        let mut number = 0;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{text}_{number}");
        }
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
    }
}

/// The name that a column has without our doing.
fn given_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => column_name(expr),
        SelectItem::ExprWithAlias { alias, .. } => Some(normalized(alias)),
        _ => None,
    }
}

fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(normalized(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(normalized),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    #[test]
    fn unnamed_columns_are_called_what_was_written() {
        let check = |sql: &str, expected: &str| {
            let mut ast = parse(sql).unwrap().remove(0).ast;
            name_columns(&mut ast);
            let Ast::Sql(statement) = ast else { panic!("{sql}") };
            assert_eq!(statement.to_string(), expected);
        };
        check("SELECT a, t.b, c AS d FROM t", "SELECT a, t.b, c AS d FROM t");
        check("SELECT avg(a), 1 + 1", r#"SELECT avg(a) AS "avg(a)", 1 + 1 AS "1 + 1""#);
        check("SELECT count(*), count(*)", r#"SELECT count(*) AS "count(*)", count(*) AS "count(*)_1""#);
        check("SELECT x.a, y.a FROM x, y", r#"SELECT x.a, y.a AS "a_1" FROM x, y"#);
        check("SELECT * FROM (SELECT max(a) FROM t)", r#"SELECT * FROM (SELECT max(a) AS "max(a)" FROM t)"#);
        check(
            "SELECT DISTINCT a + 1 FROM t ORDER BY a + 1",
            r#"SELECT DISTINCT a + 1 AS "a + 1" FROM t ORDER BY "a + 1""#,
        );
        check("SELECT (SELECT max(a) FROM t) AS m", "SELECT (SELECT max(a) FROM t) AS m");
    }
}
