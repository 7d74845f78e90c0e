//! COPY: a query into a file, a file into a table.

use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectName, Query};
use futures::TryStreamExt;

use super::query::{self, Run};
use super::{Answer, standard};
use crate::bind::column_names::table_schema;
use crate::bind::relations::{constant, normalized};
use crate::error::{Error, ErrorKind, Result};
use crate::explain_error::explain;
use crate::runtime::progress::Progress;
use crate::session::Session;
use crate::sources::files::{FileTable, OptionValue};
use crate::sql::parser::parse_standard;
use crate::statements::output;

/// `COPY (query) TO 'path' (options)`.
pub(super) async fn copy_to(
    session: &Session,
    query: Box<Query>,
    path: &Expr,
    options: &[(Ident, Expr)],
    sql: &str,
) -> Result<Answer> {
    let path = path_text(path)?;
    let mut options = option_values(options)?;
    let format = match options.iter().position(|(name, _)| name == "format") {
        None => None,
        Some(index) => match options.remove(index).1 {
            OptionValue::Text(name) => Some(name.parse()?),
            _ => return Err(Error::new(ErrorKind::Invalid, "FORMAT takes a name such as parquet or csv")),
        },
    };
    let plan = query::plan(session, ast::Statement::Query(query), sql).await?;
    let progress = Progress::default();
    let run = Run::new(session, plan, progress.clone());
    let schema = table_schema(run.plan.schema().as_arrow());
    let batches = query::under(schema.clone(), run.start().await?)
        .map_err(|error| DataFusionError::External(Box::new(error)));
    let stream = Box::pin(RecordBatchStreamAdapter::new(schema, batches));
    let count = async move { output::copy_to_file(stream, &path, format, &options).await };
    Ok(Answer::count(count, progress))
}

/// `COPY table [(columns)] FROM 'path' (options)`: an INSERT of the file's rows.
pub(super) async fn copy_from(
    session: &Session,
    table: &ObjectName,
    columns: &[Ident],
    path: &Expr,
    options: &[(Ident, Expr)],
    sql: &str,
) -> Result<Answer> {
    let path = path_text(path)?;
    let mut file = FileTable { paths: vec![path], options: option_values(options)?, ..FileTable::default() };
    if let Some(index) = file.options.iter().position(|(name, _)| name == "format") {
        match file.options.remove(index).1 {
            OptionValue::Text(name) => file.format = Some(name.parse()?),
            _ => return Err(Error::new(ErrorKind::Invalid, "FORMAT takes a name such as parquet or csv")),
        }
    }
    file.into = match columns {
        [] => names_of(session, table).await?,
        columns => columns.iter().map(normalized).collect(),
    };
    let (source, _open) = session.open_file(file).await?;
    let mut statement = parse_standard(&format!("INSERT INTO t SELECT * FROM {source}"))?;
    if let ast::Statement::Insert(insert) = &mut statement {
        insert.table = ast::TableObject::TableName(table.clone());
        insert.columns = columns.iter().cloned().map(|column| ObjectName::from(vec![column])).collect();
    }
    Box::pin(standard(session, statement, sql, sql, false)).await
}

/// The names of the table's columns; empty for a table that does not exist, which the planner reports.
async fn names_of(session: &Session, table: &ObjectName) -> Result<Vec<String>> {
    let Ok(reference) = object_name_to_table_reference(table.clone(), true) else { return Ok(Vec::new()) };
    let name = reference.table().to_owned();
    let Ok(schema) = session.state().schema_for_ref(reference) else { return Ok(Vec::new()) };
    let found = schema.table(&name).await.map_err(|error| explain(&error, None))?;
    let schema = found.map(|table| table.schema());
    Ok(schema.iter().flat_map(|schema| schema.fields()).map(|field| field.name().clone()).collect())
}

fn path_text(path: &Expr) -> Result<String> {
    match constant(path)? {
        OptionValue::Text(path) => Ok(path),
        _ => Err(Error::new(ErrorKind::Invalid, format!("expected a path in quotes, found {path}"))),
    }
}

fn option_values(options: &[(Ident, Expr)]) -> Result<Vec<(String, OptionValue)>> {
    options.iter().map(|(name, value)| Ok((name.value.to_lowercase(), constant(value)?))).collect()
}
