//! DELETE, UPDATE and TRUNCATE.
//!
//! A query over the table with numbered rows finds the rows to change, so every predicate of queries works,
//! subqueries included. What is done with them: [`rows`].

mod rows;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr as LogicalExpr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    self, AssignmentTarget, Delete, Expr, FromTable, Ident, ObjectName, SelectItem, TableFactor, Truncate,
    VisitorMut,
};

use super::Answer;
use super::names::{Name, object_name, stored_table};
use super::query;
use super::tables::quoted;
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;
use crate::sources::catalog::CATALOG;
use crate::sources::stored::{self, ROW_NUMBER, StoredTable};
use crate::sql::parser::{parse_expression, parse_standard, select_mut};
use crate::sql::text::nearest;
use crate::sql::walk::walk;

/// The table from which a DELETE deletes.
async fn of_delete(session: &Session, delete: &Delete) -> Result<Target> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let extras = delete.using.is_some()
        || delete.limit.is_some()
        || delete.returning.is_some()
        || !delete.tables.is_empty()
        || !delete.order_by.is_empty();
    match from.as_slice() {
        [only] if only.joins.is_empty() && !extras => Target::new(session, &only.relation).await,
        _ => Err(unsupported("DELETE", "FROM table WHERE condition")),
    }
}

/// The table that an UPDATE changes, and the new values by column index.
async fn of_update(session: &Session, update: &ast::Update) -> Result<(Target, Vec<(usize, Expr)>)> {
    let extras = update.from.is_some()
        || update.limit.is_some()
        || update.returning.is_some()
        || !update.order_by.is_empty();
    if extras || !update.table.joins.is_empty() {
        return Err(unsupported("UPDATE", "table SET column = value WHERE condition"));
    }
    let target = Target::new(session, &update.table.relation).await?;
    let schema = target.table.schema();
    let mut assigned = Vec::with_capacity(update.assignments.len());
    for assignment in &update.assignments {
        let column = target.column_index(&assignment.target)?;
        if assigned.iter().any(|(earlier, _)| *earlier == column) {
            let message = format!("column '{}' is set twice", schema.field(column).name());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        assigned.push((column, target.value(column, &assignment.value)?));
    }
    Ok((target, assigned))
}

/// `EXPLAIN DELETE | UPDATE`: explains the query that finds the rows to change, and their new values; as the planner would
/// if `is_planners`.
pub(super) async fn explain(session: &Session, change: &ast::Statement, is_planners: bool) -> Result<Answer> {
    let (target, assigned, condition) = match change {
        ast::Statement::Delete(delete) => {
            (of_delete(session, delete).await?, None, delete.selection.as_ref())
        }
        ast::Statement::Update(update) => {
            let (target, assigned) = of_update(session, update).await?;
            (target, Some(assigned), update.selection.as_ref())
        }
        other => return Err(Error::new(ErrorKind::Internal, format!("{other} changes no rows"))),
    };
    let plan = rows::plan(session, &target, assigned.as_deref(), condition).await?;
    if is_planners {
        return query::read(session, LogicalPlanBuilder::from(plan).explain(false, false)?.build()?).await;
    }
    super::explain::show(session, plan).await
}

/// `DELETE FROM t [WHERE predicate]`.
pub(super) async fn delete(session: &Session, delete: &Delete) -> Result<Answer> {
    let target = of_delete(session, delete).await?;
    rows::change(session, &target, None, delete.selection.as_ref()).await
}

/// `UPDATE t SET column = value, ... [WHERE predicate]`.
pub(super) async fn update(session: &Session, update: &ast::Update) -> Result<Answer> {
    let (target, assigned) = of_update(session, update).await?;
    rows::change(session, &target, Some(&assigned), update.selection.as_ref()).await
}

/// `TRUNCATE [TABLE] t`.
pub(super) async fn truncate(session: &Session, truncate: &Truncate) -> Result<Answer> {
    let [only] = truncate.table_names.as_slice() else { return Err(unsupported("TRUNCATE", "TABLE table")) };
    rows::truncate(table_of(session, &only.name).await?).await
}

/// The table that a statement changes.
struct Target {
    table: StoredTable,
    name: String,
    /// What may stand in front of its columns: its alias, or its catalogue, schema and name, of which any suffix
    /// may be written.
    path: Vec<String>,
}

impl Target {
    async fn new(session: &Session, factor: &TableFactor) -> Result<Self> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return Err(not_changeable(&factor.to_string()));
        };
        let path = match alias {
            Some(alias) => vec![normalized(&alias.name)],
            None => {
                let Name { schema, table } = object_name(session, name)?;
                vec![CATALOG.to_owned(), schema, table]
            }
        };
        Ok(Self { table: table_of(session, name).await?, name: name.to_string(), path })
    }

    /// The qualifier of its columns in the query that finds the rows.
    fn qualifier(&self) -> Ident {
        Ident::with_quote('"', self.path.last().map_or("t", String::as_str))
    }

    fn column_index(&self, target: &AssignmentTarget) -> Result<usize> {
        let AssignmentTarget::ColumnName(name) = target else {
            return Err(unsupported("UPDATE", "table SET column = value WHERE condition"));
        };
        let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(normalized).collect();
        let (column, qualifier) = parts
            .split_last()
            .map_or((String::new(), &[][..]), |(column, qualifier)| (column.clone(), qualifier));
        if !self.path.ends_with(qualifier) {
            let message = format!("column '{name}' not found in table '{}'", self.name);
            return Err(
                Error::new(ErrorKind::NotFound, message).with_hint("SET takes the names of whole columns")
            );
        }
        let schema = self.table.schema();
        schema.index_of(&column).map_err(|_| {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let error = Error::new(
                ErrorKind::NotFound,
                format!("column '{column}' not found in table '{}'", self.name),
            );
            match nearest(&column, names) {
                Some(meant) => error.with_hint(format!("did you mean `{meant}`?")),
                None => error,
            }
        })
    }

    /// The expression that a column is set to: DEFAULT replaced, and checked to be one value for each row.
    fn value(&self, column: usize, value: &Expr) -> Result<Expr> {
        let is_default =
            |name: &Ident| name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default");
        let schema = self.table.schema();
        if matches!(value, Expr::Identifier(name) if is_default(name)) {
            let name = schema.field(column).name();
            // The value is cast to the column's type when the rows are made.
            return Ok(self.default_of(name)?.unwrap_or_else(|| Expr::value(ast::Value::Null)));
        }
        let mut value = value.clone();
        match walk(&mut value, &mut OneValue) {
            ControlFlow::Continue(()) => Ok(value),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// The DEFAULT of a column, as it was written.
    fn default_of(&self, column: &str) -> Result<Option<Expr>> {
        let mut fields = self.table.table.definition.fields.iter();
        let text =
            fields.find(|field| field.name == column).and_then(|field| field.properties.get(stored::DEFAULT));
        text.map(|text| parse_expression(text)).transpose()
    }

    /// The query for the numbers of the rows that meet `condition`, and for the new values of columns by their index,
    /// cast to the columns' types and named `v0` and so on.
    ///
    /// Expressions are moved as trees: turned into text and parsed again, a quote in a literal might end it.
    async fn plan(
        &self,
        session: &Session,
        numbered: Arc<dyn TableProvider>,
        mut values: Vec<(usize, Expr)>,
        condition: Option<&Expr>,
    ) -> Result<LogicalPlan> {
        let schema = self.table.schema();
        let mut condition = condition.cloned();
        for expr in values.iter_mut().map(|(_, value)| value).chain(&mut condition) {
            if let ControlFlow::Break(error) = walk(expr, &mut NoRowNumber) {
                return Err(error);
            }
        }
        let fields: Vec<_> = values.iter().map(|(column, _)| schema.field(*column).clone()).collect();
        let open = session.catalog.files.add(session.catalog.files.fresh_name(), numbered);
        let text = format!("SELECT {} FROM {} AS t", quoted(ROW_NUMBER), open.sql_name());
        let mut statement = parse_standard(&text)?;
        let select = match &mut statement {
            ast::Statement::Query(query) => select_mut(query),
            _ => None,
        };
        let select =
            select.ok_or_else(|| Error::new(ErrorKind::Internal, format!("'{text}' is no SELECT")))?;
        for (number, (_, expr)) in values.into_iter().enumerate() {
            let alias = Ident::new(value_name(number));
            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
        }
        select.selection = condition;
        if let Some(TableFactor::Table { alias: Some(alias), .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
        {
            alias.name = self.qualifier();
        }
        // Positions in this generated text mean nothing to the user, so errors come without them.
        let plan = query::plan(session, statement, "").await?;
        if fields.is_empty() {
            return Ok(plan);
        }
        let schema = plan.schema().clone();
        let column = |index| LogicalExpr::Column(Column::from(schema.qualified_field(index)));
        let mut columns = vec![column(0).alias(ROW_NUMBER)];
        for (number, field) in fields.iter().enumerate() {
            query::check_assigned(field.name(), schema.field(number + 1).data_type(), field.data_type())?;
            columns.push(column(number + 1).cast_to(field.data_type(), &schema)?.alias(value_name(number)));
        }
        Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
    }
}

/// Refuses expressions that give several rows for one, or none.
struct OneValue;

impl VisitorMut for OneValue {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("unnest") => {
                let message = format!("{call} is not one value for each row");
                ControlFlow::Break(Error::new(ErrorKind::Invalid, message))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses expressions that name the column which numbers the rows: the user's table has none.
struct NoRowNumber;

impl VisitorMut for NoRowNumber {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let name = match expr {
            Expr::Identifier(name) => Some(&*name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        match name {
            Some(name) if name.value == ROW_NUMBER => {
                let message = format!("column '{ROW_NUMBER}' not found");
                ControlFlow::Break(Error::new(ErrorKind::NotFound, message))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The name of a new value in the query that finds the rows.
fn value_name(number: usize) -> String {
    format!("v{number}")
}

/// The table whose rows a statement changes.
async fn table_of(session: &Session, name: &ObjectName) -> Result<StoredTable> {
    stored_table(session, &object_name(session, name)?).await
}

fn not_changeable(name: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("'{name}' is not a table that can be changed"))
}

fn unsupported(statement: &str, form: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this form of {statement} is not supported"))
        .with_hint(format!("{statement} {form}"))
}
