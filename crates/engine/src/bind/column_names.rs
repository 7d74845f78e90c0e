//! The names of columns: the expression as written, `avg(fare)`, not `avg(trips.fare)`; two columns may share
//! a name.
//!
//! The planner names an expression by its plan, with qualifiers and types, and requires unique names. So
//! before planning, each unnamed expression of a SELECT gets its own text as its name. A repeated name gets a
//! suffix: in the answer (`SELECT a, a`) an invisible one that nobody can write, and `_1` where the columns
//! are those of a table (`SELECT a_1 FROM (SELECT a, a FROM t)`).

use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, VisitorMut,
};

use crate::bind::relations::normalized;
use crate::compile::windows::EXCLUDE_MARK;
use crate::sql::parser::Ast;
use crate::sql::walk::walk;

/// The first character of the suffix of a repeated name in the answer; a number follows. It is invisible.
pub(crate) const TWIN: char = '\u{2063}';

/// How the second column of the same name is called.
#[derive(Clone, Copy, PartialEq)]
enum Twins {
    /// As the first one when shown: an invisible suffix.
    Shown,
    /// By a visible suffix with a number.
    Numbered,
}

/// Names the columns of the queries of `ast`: the outer one, WITH, and subqueries in FROM.
pub(crate) fn name_columns(ast: &mut Ast) {
    match ast {
        Ast::Sql(statement) | Ast::CreateTable { statement, .. } => name_in_statement(statement),
        Ast::CopyTo { query, .. } | Ast::Describe(query) | Ast::Summarize(query) => {
            name_in_query(query, Twins::Shown);
        }
        Ast::CopyFrom { .. }
        | Ast::AlterTable { .. }
        | Ast::CheckTable(_)
        | Ast::RepairTable(_)
        | Ast::RepairDatabase => {}
    }
}

/// Names the columns of a query that is used as a table.
pub(crate) fn name_as_table(query: &mut Query) {
    name_in_query(query, Twins::Numbered);
}

fn name_in_statement(statement: &mut Statement) {
    match statement {
        Statement::Query(query) => name_in_query(query, Twins::Shown),
        Statement::Explain { statement, .. } => name_in_statement(statement),
        Statement::CreateView(view) => name_in_query(&mut view.query, Twins::Numbered),
        Statement::CreateTable(table) => {
            table.query.iter_mut().for_each(|query| name_in_query(query, Twins::Shown));
        }
        Statement::Insert(ast::Insert { source: Some(query), .. }) => name_in_query(query, Twins::Shown),
        _ => {}
    }
}

fn name_in_query(query: &mut Query, twins: Twins) {
    for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        name_as_table(&mut cte.query);
    }
    // An invented suffix must not make a name that ORDER BY mentions.
    let mut mentioned = Mentioned(HashSet::new());
    let _ = walk(&mut query.order_by, &mut mentioned);
    name_in_body(&mut query.body, twins, &mentioned.0);
    // ORDER BY of a SELECT DISTINCT may only name selected columns, which have new names now.
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by) else { return };
    let ast::OrderByKind::Expressions(keys) = &mut order.kind else { return };
    if select.distinct.is_none() {
        return;
    }
    for key in keys {
        let same = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { expr, alias } if bare(expr) == bare(&key.expr) => Some(alias.clone()),
            _ => None,
        };
        if let Some(alias) = select.projection.iter().find_map(same) {
            key.expr = Expr::Identifier(alias);
        }
    }
}

/// The expression without the parentheses around it.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

fn name_in_body(body: &mut SetExpr, twins: Twins, mentioned: &HashSet<String>) {
    match body {
        SetExpr::Select(select) => name_in_select(select, twins, mentioned),
        SetExpr::Query(query) => name_in_query(query, twins),
        SetExpr::SetOperation { left, right, .. } => {
            name_in_body(left, twins, mentioned);
            name_in_body(right, twins, mentioned);
        }
        _ => {}
    }
}

fn name_in_select(select: &mut Select, twins: Twins, mentioned: &HashSet<String>) {
    for TableWithJoins { relation, joins } in &mut select.from {
        for relation in std::iter::once(relation).chain(joins.iter_mut().map(|join| &mut join.relation)) {
            if let TableFactor::Derived { subquery, .. } = relation {
                name_as_table(subquery);
            }
        }
    }
    let given: HashSet<String> = select.projection.iter().filter_map(given_name).collect();
    let mut taken = HashSet::new();
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else {
            continue;
        };
        let (expr, given_name) = (expr.clone(), given_name(item));
        let text = given_name.clone().unwrap_or_else(|| written_exclusions(expr.to_string()));
        let mut name = text.clone();
        let mut number = 0;
        while taken.contains(&name) || (number > 0 && (given.contains(&name) || mentioned.contains(&name))) {
            number += 1;
            name = match twins {
                Twins::Shown => format!("{text}{TWIN}{number}"),
                Twins::Numbered => format!("{text}_{number}"),
            };
        }
        if given_name.as_ref() != Some(&name) {
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name.clone()) };
        }
        taken.insert(name);
    }
}

/// Gives every column that is written beside a `*`, as in `SELECT *, a`, a suffix, so that it differs from
/// the columns of `*`. This is for queries that the planner refused because of equal names; others keep their
/// names, which GROUP BY and HAVING may use.
pub(crate) fn tell_apart_from_wildcards(statement: &mut Statement) {
    let _ = walk(statement, &mut BesideWildcards);
}

struct BesideWildcards;

impl VisitorMut for BesideWildcards {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        let SetExpr::Select(select) = query.body.as_mut() else { return ControlFlow::Continue(()) };
        let mut renamed = Vec::new();
        rename_beside_wildcard(select, &mut renamed);
        walk(&mut query.order_by, &mut Rename(renamed))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        rename_beside_wildcard(select, &mut Vec::new());
        ControlFlow::Continue(())
    }
}

/// Renames the columns beside a `*` unless that is done already; adds pairs of the names given with AS and
/// the new names to `aliases`.
fn rename_beside_wildcard(select: &mut Select, aliases: &mut Vec<(String, String)>) {
    let is_wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !select.projection.iter().any(is_wildcard) {
        return;
    }
    for (number, item) in select.projection.iter_mut().enumerate() {
        let Some(name) = given_name(item).filter(|name| !name.contains(TWIN)) else { continue };
        let new = format!("{name}{TWIN}{number}");
        let alias = Ident::with_quote('"', new.clone());
        match item {
            SelectItem::ExprWithAlias { alias: old, .. } => {
                *old = alias;
                aliases.push((name, new));
            }
            SelectItem::UnnamedExpr(expr) => {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
            _ => {}
        }
    }
}

/// Renames the bare names in an expression.
struct Rename(Vec<(String, String)>);

impl VisitorMut for Rename {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Identifier(name) = expr
            && let Some((_, new)) = self.0.iter().find(|(old, _)| *old == normalized(name))
        {
            *name = Ident::with_quote('"', new.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Collects the bare names in expressions.
struct Mentioned(HashSet<String>);

impl VisitorMut for Mentioned {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Identifier(name) = expr {
            self.0.insert(normalized(name));
        }
        ControlFlow::Continue(())
    }
}

/// The schema with the names as shown, if any differ.
pub(crate) fn shown_schema(schema: &Schema) -> Option<SchemaRef> {
    if !schema.fields().iter().any(|field| field.name().contains(TWIN)) {
        return None;
    }
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_name(shown(field.name())));
    Some(Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())))
}

/// The names of the columns of `schema` when it is a table: `a, a_1` for `a, a`.
pub(crate) fn table_names(schema: &Schema) -> Vec<String> {
    let shown_names: Vec<&str> = schema.fields().iter().map(|field| shown(field.name())).collect();
    let mut taken = HashSet::new();
    let mut names = Vec::with_capacity(shown_names.len());
    for text in &shown_names {
        let mut name = (*text).to_owned();
        let mut number = 0;
        while taken.contains(&name) || (number > 0 && shown_names.contains(&name.as_str())) {
            number += 1;
            name = format!("{text}_{number}");
        }
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// The schema with its columns named as those of a table.
pub(crate) fn table_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().zip(table_names(schema));
    let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The name without the invisible suffix.
pub(crate) fn shown(name: &str) -> &str {
    match name.rsplit_once(TWIN) {
        Some((shown, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => shown,
        _ => name,
    }
}

/// The name of a column if no suffix is added.
pub(crate) fn given_name(item: &SelectItem) -> Option<String> {
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

/// The text of an expression with EXCLUDE at the end of frames, where it was written.
fn written_exclusions(mut text: String) -> String {
    let mark = format!("{EXCLUDE_MARK}('");
    while let Some(start) = text.find(&mark) {
        let Some(length) = text[start + mark.len()..].find("')") else { break };
        let words = text[start + mark.len()..][..length].to_owned();
        if !["CURRENT ROW", "GROUP", "TIES"].contains(&words.as_str()) {
            break;
        }
        let rest = text.split_off(start + mark.len() + length + 2);
        text.truncate(start);
        let rest = match rest.strip_prefix(", ") {
            Some(other_keys) => other_keys,
            None => {
                let clause = "PARTITION BY ";
                text.truncate(text.strip_suffix(clause).map_or(start, str::len));
                rest.trim_start()
            }
        };
        let (mut depth, mut quote) = (0, None);
        let end = rest.find(|character| {
            match (character, quote) {
                (_, Some(open)) if open != character => {}
                ('\'' | '"', _) => quote = quote.xor(Some(character)),
                ('(', _) => depth += 1,
                (')', _) => depth -= 1,
                _ => {}
            }
            depth < 0
        });
        let (clauses, behind) = rest.split_at(end.unwrap_or(rest.len()));
        text = format!("{text}{clauses} EXCLUDE {words}{behind}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parser::parse;

    #[test]
    fn unnamed_columns_are_called_what_was_written() {
        let check = |sql: &str, expected: &str| {
            let mut ast = (*parse(sql).unwrap().remove(0).ast).clone();
            name_columns(&mut ast);
            let Ast::Sql(statement) = ast else { panic!("{sql}") };
            assert_eq!(statement.to_string(), expected);
        };
        check("SELECT a, t.b, c AS d FROM t", "SELECT a, t.b, c AS d FROM t");
        check("SELECT avg(a), 1 + 1", r#"SELECT avg(a) AS "avg(a)", 1 + 1 AS "1 + 1""#);
        check(
            "SELECT count(*), count(*)",
            "SELECT count(*) AS \"count(*)\", count(*) AS \"count(*)\u{2063}1\"",
        );
        check("SELECT x.a, y.a FROM x, y", "SELECT x.a, y.a AS \"a\u{2063}1\" FROM x, y");
        check("SELECT 1 AS a, 2 AS a", "SELECT 1 AS a, 2 AS \"a\u{2063}1\"");
        check("SELECT 1 FROM (SELECT a, a)", r#"SELECT 1 AS "1" FROM (SELECT a, a AS "a_1")"#);
        check(
            "SELECT 1 FROM (SELECT a, a, b AS a_1 ORDER BY a_2)",
            r#"SELECT 1 AS "1" FROM (SELECT a, a AS "a_3", b AS a_1 ORDER BY a_2)"#,
        );
        check("SELECT * FROM (SELECT max(a) FROM t)", r#"SELECT * FROM (SELECT max(a) AS "max(a)" FROM t)"#);
        check(
            "SELECT DISTINCT a + 1 FROM t ORDER BY a + 1",
            r#"SELECT DISTINCT a + 1 AS "a + 1" FROM t ORDER BY "a + 1""#,
        );
        check(
            "SELECT 1 + sum(a) OVER (PARTITION BY b, c ROWS 1 PRECEDING EXCLUDE TIES)",
            "SELECT 1 + sum(a) OVER (PARTITION BY keirin_exclude('TIES'), b, c ROWS 1 PRECEDING) \
             AS \"1 + sum(a) OVER (PARTITION BY b, c ROWS 1 PRECEDING EXCLUDE TIES)\"",
        );
        check(
            "SELECT f(sum(a) OVER (w ORDER BY g(b) ROWS 1 PRECEDING EXCLUDE CURRENT ROW))",
            "SELECT f(sum(a) OVER (w PARTITION BY keirin_exclude('CURRENT ROW') ORDER BY g(b) ROWS 1 PRECEDING)) \
             AS \"f(sum(a) OVER (w ORDER BY g(b) ROWS 1 PRECEDING EXCLUDE CURRENT ROW))\"",
        );
        check("SELECT (SELECT max(a) FROM t) AS m", "SELECT (SELECT max(a) FROM t) AS m");
    }

    #[test]
    fn twins_are_shown_alike_and_stored_apart() {
        let field = |name: &str| arrow::datatypes::Field::new(name, arrow::datatypes::DataType::Int64, true);
        let names = ["a", "a\u{2063}1", "a_1", "a\u{2063}2", "b"];
        let schema = Schema::new(names.map(field).to_vec());
        let shown = shown_schema(&schema).unwrap();
        let shown: Vec<&str> = shown.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(shown, ["a", "a", "a_1", "a", "b"]);
        assert_eq!(table_names(&schema), ["a", "a_2", "a_1", "a_3", "b"]);
        assert!(shown_schema(&Schema::new(vec![field("a")])).is_none());
    }
}
