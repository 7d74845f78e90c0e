//! Resolves column names before the planner does, where the planner would resolve them wrongly.
//!
//! The planner takes `k` of `l FULL JOIN r USING (k)` for `l.k`, which is NULL where only `r` has a row; it
//! takes `tbl.i` for a column of the first table called `tbl`, whatever its schema; and of a name with
//! several qualifiers it considers only the last. So each SELECT of a statement is walked with the tables of
//! its FROM at hand:
//!
//! - USING and NATURAL become ON, and each mention of the merged column is written out: as the left one,
//!   after a right join the right one, after a full join whichever is not NULL;
//! - `*` above such joins becomes the list of columns, those of USING first;
//! - tables of one name get an alias each, and names that were qualified by their schemas use it;
//! - names of three and more parts become a column of a table and fields of it, or an error;
//! - volatile calls in aggregates that are written alike, such as two `any_value(uuid())`, are told apart
//!   (see [`volatile`]), and so are keys and aggregates that differ only in a cast (see [`casts`]);
//! - named windows are written out (see [`windows`]).
//!
//! Everything else stays as written, also where it uses relations whose columns only the planner knows.

mod casts;
pub(crate) mod column_names;
mod expressions;
mod group_by_all;
mod joins;
mod lateral;
mod needed;
mod outside_subqueries;
pub(crate) mod parameters;
pub(crate) mod relations;
mod scope;
mod star;
mod volatile;
mod windows;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::CatalogProvider;
use datafusion::sql::sqlparser::ast::{
    Assignment, BinaryOperator, Delete, Distinct, Expr, FromTable, GroupByExpr, Ident, JoinConstraint,
    JoinOperator, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Update,
    VisitMut, VisitorMut,
};
use futures::FutureExt;

use crate::bind::column_names::{TWIN, given_name};
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::sources::catalog::{CATALOG, SessionCatalog};
use crate::sql::parser::parse_expression;
use crate::sql::walk::walk;
use expressions::Expressions;
use joins::{Side, constraint, merged, merges, side};
use scope::{Outer, Relation, Scope, Tables, quoted};

pub(crate) use star::left_out;

/// Resolves the names in the queries of `statement`, which was parsed from `sql` and whose files are open.
///
/// # Errors
/// [`ErrorKind::NotFound`] and [`ErrorKind::Invalid`] for names that are no column, or may be several.
pub(crate) fn resolve_names(
    statement: &mut impl VisitMut,
    sql: &str,
    catalog: &Arc<SessionCatalog>,
) -> Result<()> {
    let needs_columns = needed::needs_columns(statement);
    let binder = Binder { sql, catalog, needs_columns, with: Vec::new(), fresh: 0 };
    match walk(statement, &mut Outermost { binder, depth: 0, is_resolved: false }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Finds the outermost queries of a statement, and the expressions of UPDATE and DELETE.
struct Outermost<'a> {
    binder: Binder<'a>,
    depth: usize,
    /// Whether the statement is an UPDATE or DELETE, whose queries are resolved with its expressions.
    is_resolved: bool,
}

impl VisitorMut for Outermost<'_> {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Error> {
        let resolved = match statement {
            Statement::Update(Update { table, assignments, selection, .. }) => {
                self.binder.change(table, assignments, selection)
            }
            Statement::Delete(Delete { from, selection, .. }) => match from {
                FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => {
                    match from.as_mut_slice() {
                        [table] => self.binder.change(table, &mut [], selection),
                        _ => return ControlFlow::Continue(()),
                    }
                }
            },
            _ => return ControlFlow::Continue(()),
        };
        self.is_resolved = true;
        match resolved {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        if self.depth > 1 || self.is_resolved {
            return ControlFlow::Continue(());
        }
        match self.binder.query(query, Outer::Nothing) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

/// The names of a query's columns, `None` where only the planner knows them.
type Names = Option<Vec<String>>;

struct Binder<'a> {
    sql: &'a str,
    catalog: &'a Arc<SessionCatalog>,
    /// Whether the columns of tables matter for this statement; for most they do not, and are not looked up.
    needs_columns: bool,
    /// The visible queries of WITH; the innermost scope is last.
    with: Vec<(String, Names)>,
    /// How many names were generated.
    fresh: usize,
}

impl Binder<'_> {
    /// Resolves the names in the expressions of an UPDATE or DELETE of `table`.
    fn change(
        &mut self,
        table: &mut TableWithJoins,
        assignments: &mut [Assignment],
        condition: &mut Option<Expr>,
    ) -> Result<()> {
        let tables = self.joined(table, &Tables::none(), Outer::Nothing)?;
        let scope = Scope { tables: &tables, outer: Outer::Nothing };
        assignments.iter_mut().try_for_each(|assignment| self.expressions(&mut assignment.value, &scope))?;
        self.expressions(condition, &scope)
    }

    fn query(&mut self, query: &mut Query, outer: Outer) -> Result<Names> {
        let visible = self.with.len();
        for cte in query.with.iter_mut().flat_map(|with| {
            let is_recursive = with.recursive;
            with.cte_tables.iter_mut().map(move |cte| (cte, is_recursive))
        }) {
            let (cte, is_recursive) = cte;
            let name = normalized(&cte.alias.name);
            let names = match cte.query.body.as_mut() {
                // In WITH RECURSIVE the right query reads the columns of the left one.
                SetExpr::SetOperation { left, right, .. } if is_recursive && cte.query.with.is_none() => {
                    let names = renamed(self.body(left, None, outer)?, &cte.alias);
                    self.with.push((name.clone(), names.clone()));
                    self.body(right, None, outer)?;
                    self.with.pop();
                    names
                }
                _ => renamed(self.query(&mut cte.query, outer)?, &cte.alias),
            };
            self.with.push((name, names));
        }
        let names = self.body(&mut query.body, query.order_by.as_mut(), outer);
        self.with.truncate(visible);
        names
    }

    fn body(&mut self, body: &mut SetExpr, order_by: Option<&mut OrderBy>, outer: Outer) -> Result<Names> {
        match body {
            SetExpr::Select(select) => self.select(select, order_by, outer),
            SetExpr::Query(query) => self.query(query, outer),
            SetExpr::SetOperation { left, right, .. } => {
                let names = self.body(left, None, outer)?;
                self.body(right, None, outer)?;
                Ok(names)
            }
            SetExpr::Values(values) => {
                let count = values.rows.first().map_or(0, |row| row.content.len());
                let tables = Tables::none();
                self.expressions(&mut values.rows, &Scope { tables: &tables, outer })?;
                Ok(Some((1..=count).map(|number| format!("column{number}")).collect()))
            }
            _ => Ok(None),
        }
    }

    fn select(
        &mut self,
        select: &mut Select,
        mut order_by: Option<&mut OrderBy>,
        outer: Outer,
    ) -> Result<Names> {
        windows::write_out(select, order_by.as_deref_mut())?;
        group_by_all::write_out(select);
        volatile::make_distinct(select);
        casts::name_by_type(select, order_by.as_deref_mut());
        self.alias_equal_names(&mut select.from, outer);
        let mut tables = Tables::none();
        for item in &mut select.from {
            let more = self.joined(item, &tables, outer)?;
            tables = tables.and(more);
        }
        let scope = Scope { tables: &tables, outer };
        // Names in ORDER BY and DISTINCT ON mean selected columns first, then columns of a table.
        let selected: HashSet<String> = select.projection.iter().filter_map(given_name).collect();
        self.items(&mut select.projection, &scope)?;
        let names = star::names(&select.projection, &scope)?;
        if tables.has_merged {
            star::expand(select, &tables)?;
        }
        let selected: HashSet<String> = names.iter().flatten().cloned().chain(selected).collect();
        self.expressions(&mut select.selection, &scope)?;
        self.expressions(&mut select.group_by, &scope)?;
        if let (Some(having), GroupByExpr::Expressions(keys, _)) = (&mut select.having, &select.group_by)
            && keys.is_empty()
        {
            // HAVING without GROUP BY makes one group of all rows; the planner notices that only by an
            // aggregate.
            let is_group = Box::new(parse_expression("count(*) IS NOT NULL")?);
            let condition = Box::new(Expr::Nested(Box::new(having.clone())));
            *having = Expr::BinaryOp { left: is_group, op: BinaryOperator::And, right: condition };
        }
        self.expressions(&mut select.having, &scope)?;
        self.expressions(&mut select.qualify, &scope)?;
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            for key in keys.iter_mut().filter(|key| !is_one_of(key, &selected)) {
                self.expressions(key, &scope)?;
            }
        }
        if let Some(OrderByKind::Expressions(keys)) = order_by.map(|order| &mut order.kind) {
            keys.iter().try_for_each(|key| one_selected(&key.expr, &select.projection))?;
            for key in keys.iter_mut().filter(|key| !is_one_of(&key.expr, &selected)) {
                self.expressions(&mut key.expr, &scope)?;
            }
        }
        Ok(names)
    }

    /// Resolves the names in a SELECT list; a column that is rewritten keeps its name.
    fn items(&mut self, items: &mut [SelectItem], scope: &Scope) -> Result<()> {
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let name = given_name(&SelectItem::UnnamedExpr(expr.clone()));
                    self.expressions(expr, scope)?;
                    let after = given_name(&SelectItem::UnnamedExpr(expr.clone()));
                    if let Some(name) = name.filter(|name| after.as_ref() != Some(name)) {
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: quoted(&name) };
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    let parts: Vec<Ident> =
                        name.0.iter().filter_map(|part| part.as_ident()).cloned().collect();
                    if let Some(relation) = scope.relation(&parts)?.filter(|relation| relation.is_renamed) {
                        *name = ObjectName::from(vec![quoted(&relation.planned)]);
                    }
                    self.expressions(options, scope)?;
                }
                other => self.expressions(other, scope)?,
            }
        }
        Ok(())
    }

    /// Resolves the names in expressions, and in the queries inside them.
    fn expressions(&mut self, expressions: &mut impl VisitMut, scope: &Scope) -> Result<()> {
        let mut visitor = Expressions::new(self, scope);
        match walk(expressions, &mut visitor) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Resolves a relation and its joins; `before` holds the relations to its left in FROM.
    fn joined(&mut self, item: &mut TableWithJoins, before: &Tables, outer: Outer) -> Result<Tables> {
        let needs_names = item.joins.iter_mut().any(merges);
        let mut left = self.factor(&mut item.relation, before, needs_names, outer)?;
        for join in &mut item.joins {
            let beside = before.clone().and(left.clone());
            let right = self.factor(&mut join.relation, &beside, needs_names, outer)?;
            left = self.join(left, right, &mut join.join_operator, outer)?;
        }
        Ok(left)
    }

    fn join(
        &mut self,
        left: Tables,
        right: Tables,
        operator: &mut JoinOperator,
        outer: Outer,
    ) -> Result<Tables> {
        let side = side(operator);
        let Some(constraint) = constraint(operator) else { return Ok(left.and(right)) };
        let names: Option<Vec<String>> = match constraint {
            JoinConstraint::On(_) | JoinConstraint::None => None,
            JoinConstraint::Using(names) => {
                Some(names.iter().filter_map(|name| name.0.last()?.as_ident()).map(normalized).collect())
            }
            JoinConstraint::Natural => {
                left.outputs.as_ref().zip(right.outputs.as_ref()).map(|(left, right)| {
                    let is_common = |name: &String| right.iter().any(|output| output.name == *name);
                    left.iter().map(|output| output.name.clone()).filter(is_common).collect()
                })
            }
        };
        let is_merging = matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural);
        let mut tables = match (names, left.outputs.is_some() && right.outputs.is_some()) {
            (Some(names), true) => {
                let (condition, tables) = merged(left, right, &names, side)?;
                *constraint = JoinConstraint::On(condition);
                tables
            }
            _ if is_merging
                && (matches!(side, Side::Right | Side::Both) || left.has_merged || right.has_merged) =>
            {
                let message =
                    "USING or NATURAL over a relation whose columns are not known before it is read";
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("join it ON a condition, or name its columns: FROM f(...) AS t(a, b)"));
            }
            _ if is_merging => {
                // The planner handles these joins itself.
                let mut tables = left.and(right);
                tables.outputs = None;
                tables
            }
            _ => {
                let both = left.clone().and(right.clone());
                if let JoinConstraint::On(condition) = constraint {
                    self.expressions(condition, &Scope { tables: &both, outer })?;
                }
                match side {
                    Side::LeftAlone => left,
                    Side::RightAlone => right,
                    _ => both,
                }
            }
        };
        tables.has_merged |= is_merging && tables.outputs.is_some();
        Ok(tables)
    }

    /// Resolves one relation of a FROM; `before` holds the relations to its left.
    fn factor(
        &mut self,
        factor: &mut TableFactor,
        before: &Tables,
        needs_name: bool,
        outer: Outer,
    ) -> Result<Tables> {
        let beside = Scope { tables: before, outer };
        match factor {
            TableFactor::Table { name, alias, args, .. } => {
                let columns = match args {
                    None => self.columns(name),
                    Some(args) => {
                        self.expressions(args, &beside)?;
                        None
                    }
                };
                if args.is_some() {
                    let columns = alias.as_ref().and_then(|alias| only_column(name, alias));
                    return Ok(Tables::of(self.relation(alias.as_ref(), columns)));
                }
                let is_renamed = alias.as_ref().is_some_and(|alias| alias.name.value.starts_with(FRESH));
                if alias.is_some() && !is_renamed {
                    return Ok(Tables::of(self.relation(alias.as_ref(), columns)));
                }
                let path = self.path(name);
                let planned = alias.as_ref().map(|alias| alias.name.value.clone());
                let planned = planned.or_else(|| path.last().cloned()).unwrap_or_default();
                Ok(Tables::of(Relation { paths: vec![path], planned, is_renamed, columns }))
            }
            TableFactor::Derived { lateral, subquery, alias, .. } => {
                let around = if *lateral { Outer::Query(&beside) } else { outer };
                let names = self.query(subquery, around)?;
                if *lateral {
                    lateral::mark(subquery);
                }
                if alias.is_none() && needs_name && names.as_ref().is_some_and(|names| are_distinct(names)) {
                    let name = self.fresh("subquery");
                    *alias = Some(alias_of(&name));
                    return Ok(Tables::of(Relation {
                        paths: vec![vec![name.clone()]],
                        planned: name,
                        is_renamed: false,
                        columns: names,
                    }));
                }
                Ok(Tables::of(self.relation(alias.as_ref(), names)))
            }
            TableFactor::UNNEST { alias, array_exprs, .. } => {
                self.expressions(array_exprs, &beside)?;
                let columns = alias.as_ref().and_then(|alias| match alias.columns.as_slice() {
                    [only] if array_exprs.len() == 1 => Some(vec![normalized(&only.name)]),
                    _ => None,
                });
                Ok(Tables::of(self.relation(alias.as_ref(), columns)))
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let tables = self.joined(table_with_joins, before, outer)?;
                let Some(alias) = alias.take() else { return Ok(tables) };
                let names = tables
                    .outputs
                    .as_ref()
                    .map(|outputs| outputs.iter().map(|output| output.name.clone()).collect::<Vec<_>>());
                let columns = renamed(names, &alias);
                let relation = self.relation(Some(&alias), columns);
                if tables.has_merged {
                    let mut select = star::select_all();
                    select.from = vec![(**table_with_joins).clone()];
                    star::expand(&mut select, &tables)?;
                    let subquery = Box::new(star::query(select));
                    *factor =
                        TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
                } else if let TableFactor::NestedJoin { alias: place, .. } = factor {
                    *place = Some(alias);
                }
                Ok(Tables::of(relation))
            }
            TableFactor::Function { alias, args, .. } => {
                self.expressions(args, &beside)?;
                Ok(Tables::of(self.relation(alias.as_ref(), None)))
            }
            _ => Ok(Tables { relations: Vec::new(), outputs: None, has_merged: false }),
        }
    }

    /// A relation with its alias. That alias may be the name of a view whose query has replaced it.
    fn relation(&self, alias: Option<&TableAlias>, columns: Names) -> Relation {
        let Some(alias) = alias else {
            return Relation { paths: Vec::new(), planned: String::new(), is_renamed: false, columns };
        };
        let name = normalized(&alias.name);
        let mut paths = vec![vec![name.clone()]];
        let schemas = if self.needs_columns { self.catalog.schema_names() } else { Vec::new() };
        for schema in schemas {
            if self.catalog.schema(&schema).is_some_and(|schema| schema.table_exist(&name)) {
                paths.push(vec![CATALOG.to_owned(), schema, name.clone()]);
            }
        }
        Relation { paths, planned: name, is_renamed: false, columns: renamed(columns, alias) }
    }

    /// The full path of a table or of a query of WITH.
    fn path(&self, name: &ObjectName) -> Vec<String> {
        let mut path = parts(name);
        let is_local = |name: &String| self.with.iter().any(|(known, _)| known == name);
        match path.as_slice() {
            [name] if !is_local(name) => {
                path.splice(0..0, [CATALOG.to_owned(), self.catalog.default_schema.clone()]);
            }
            [_, _] => path.insert(0, CATALOG.to_owned()),
            _ => {}
        }
        path
    }

    /// The columns of a table or of a query of WITH.
    fn columns(&self, name: &ObjectName) -> Names {
        if !self.needs_columns {
            return None;
        }
        let parts = parts(name);
        let (schema, table) = match parts.as_slice() {
            [name] => match self.with.iter().rev().find(|(known, _)| known == name) {
                Some((_, names)) => return names.clone(),
                None => (&self.catalog.default_schema, name),
            },
            [schema, table] => (schema, table),
            [catalog, schema, table] if catalog == CATALOG => (schema, table),
            _ => return None,
        };
        let table = self.catalog.schema(schema)?.table(table).now_or_never()?.ok()??;
        Some(table.schema().fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Gives tables an alias each where tables of one name and different schemas meet in one FROM, or in a
    /// query and one around it.
    fn alias_equal_names(&mut self, from: &mut [TableWithJoins], outer: Outer) {
        let mut paths: HashMap<String, HashSet<Vec<String>>> = HashMap::new();
        let mut around = outer;
        while let Outer::Query(scope) = around {
            for relation in &scope.tables.relations {
                let path = relation.paths.first().filter(|path| path.len() > 1).cloned().unwrap_or_default();
                paths.entry(relation.planned.clone()).or_default().insert(path);
            }
            around = scope.outer;
        }
        each_table(from, &mut |name, alias| {
            let path = name.map(|name| self.path(name)).unwrap_or_default();
            let name = alias.as_ref().map(|alias| normalized(&alias.name));
            let Some(name) = name.or_else(|| path.last().cloned()) else { return };
            let path = if alias.is_some() { Vec::new() } else { path };
            paths.entry(name).or_default().insert(path);
        });
        paths.retain(|_, paths| paths.len() > 1);
        if paths.is_empty() {
            return;
        }
        each_table(from, &mut |name, alias| {
            let path = name.map(|name| self.path(name)).unwrap_or_default();
            if alias.is_none() && path.len() > 1 && path.last().is_some_and(|name| paths.contains_key(name)) {
                let name = self.fresh(&path[path.len() - 2..].join("."));
                *alias = Some(alias_of(&name));
            }
        });
    }

    /// A name that nothing else uses.
    fn fresh(&mut self, what: &str) -> String {
        self.fresh += 1;
        format!("{FRESH}{what} {}", self.fresh)
    }
}

/// The first character of generated names. It is invisible.
const FRESH: char = '\u{2063}';

/// The parts of a name as the catalogue knows them.
fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(normalized).collect()
}

/// Whether two expressions may mean the same column, or are equal.
fn may_be_one(a: &Expr, b: &Expr) -> bool {
    let parts = |expr: &Expr| match expr {
        Expr::Identifier(name) => Some(vec![normalized(name)]),
        Expr::CompoundIdentifier(parts) => Some(parts.iter().map(normalized).collect::<Vec<_>>()),
        _ => None,
    };
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.ends_with(&b) || b.ends_with(&a),
        _ => a == b,
    }
}

/// Refuses a name in ORDER BY that several selected columns have.
fn one_selected(key: &Expr, selected: &[SelectItem]) -> Result<()> {
    let Expr::Identifier(name) = key else { return Ok(()) };
    let name = normalized(name);
    let is_named = |item: &&SelectItem| {
        given_name(item).is_some_and(|given| given.split(TWIN).next() == Some(name.as_str()))
    };
    let mut meant: Vec<&Expr> = Vec::new();
    for item in selected.iter().filter(is_named) {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
        if !meant.iter().any(|other| may_be_one(other, expr)) {
            meant.push(expr);
        }
    }
    if meant.len() < 2 {
        return Ok(());
    }
    let message = format!("'{name}' in ORDER BY may be more than one column of the answer");
    Err(Error::new(ErrorKind::Invalid, message).with_hint("say its table, or its number: ORDER BY 1"))
}

/// Whether an expression is the bare name of one of `names`.
fn is_one_of(expr: &Expr, names: &HashSet<String>) -> bool {
    matches!(expr, Expr::Identifier(name) if names.contains(&normalized(name)))
}

/// The name of the only column of a table function that has just one, if the alias gives it one.
fn only_column(function: &ObjectName, alias: &TableAlias) -> Names {
    let [column] = alias.columns.as_slice() else { return None };
    let function = parts(function).pop()?;
    ["range", "generate_series", "unnest"]
        .contains(&function.as_str())
        .then(|| vec![normalized(&column.name)])
}

/// The names of columns, of which the alias may rename the first ones.
fn renamed(columns: Names, alias: &TableAlias) -> Names {
    let mut columns = columns?;
    for (column, new) in columns.iter_mut().zip(&alias.columns) {
        *column = normalized(&new.name);
    }
    Some(columns)
}

fn alias_of(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: quoted(name), columns: Vec::new(), at: None }
}

fn are_distinct(names: &[String]) -> bool {
    let mut seen = HashSet::new();
    names.iter().all(|name| seen.insert(name))
}

/// Calls `visit` with the name of each table in a FROM and a mutable reference to its alias.
fn each_table(
    from: &mut [TableWithJoins],
    visit: &mut dyn FnMut(Option<&ObjectName>, &mut Option<TableAlias>),
) {
    fn each(factor: &mut TableFactor, visit: &mut dyn FnMut(Option<&ObjectName>, &mut Option<TableAlias>)) {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                visit(Some(name), alias);
            }
            TableFactor::Derived { alias: alias @ Some(_), .. } => visit(None, alias),
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                each_table(std::slice::from_mut(table_with_joins), visit);
            }
            _ => {}
        }
    }
    for TableWithJoins { relation, joins } in from {
        each(relation, visit);
        joins.iter_mut().for_each(|join| each(&mut join.relation, visit));
    }
}
