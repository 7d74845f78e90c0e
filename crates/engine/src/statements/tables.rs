//! CREATE TABLE in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::CatalogProvider;
use datafusion::common::TableReference;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{CreateMemoryTable, LogicalPlan, TableType};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::Answer;
use super::query::Run;
use crate::catalog::memory_table::{MemoryTable, Rows};
use crate::catalog::{CATALOG, DEFAULT_SCHEMA};
use crate::column_names::table_names;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::session::Session;

/// `CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t (columns) | AS query`.
pub(super) async fn create(session: &Session, create: CreateMemoryTable) -> Result<Answer> {
    if session.shared.is_durable {
        return Err(not_stored_yet());
    }
    let name = create.name.clone().resolve(CATALOG, DEFAULT_SCHEMA);
    let schema = session
        .context
        .state()
        .schema_for_ref(TableReference::from(name.clone()))
        .map_err(|_| Error::new(ErrorKind::NotFound, format!("schema '{}' not found", name.schema)))?;
    if schema.table_exist(&name.table) {
        if create.if_not_exists {
            return Ok(Answer::done());
        }
        if !create.or_replace {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("table '{}' already exists", name.table),
            )
            .with_hint("CREATE OR REPLACE TABLE, or CREATE TABLE IF NOT EXISTS"));
        }
    }
    // Declared keys are dropped: nothing enforces them, and the optimizer would believe them.
    let plan = Arc::unwrap_or_clone(create.input);
    let is_declared = matches!(plan, LogicalPlan::EmptyRelation(_));
    let arrow_schema = table_schema(plan.schema().as_arrow(), is_declared);
    let run = Run { session: session.clone(), plan, progress: Progress::default() };
    let progress = run.progress.clone();
    let pool = session.shared.environment.memory_pool.clone();
    let parts = run.start_parts().await?;
    let parts = parts.into_iter().map(|part| {
        let rows = Rows::new(&name.table, &pool);
        SpawnedTask::spawn(rows.fill(conforming(arrow_schema.clone(), part)))
    });
    let mut rows = Rows::new(&name.table, &pool);
    for part in parts.collect::<Vec<_>>() {
        rows.append(
            part.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??,
        );
    }
    let table = MemoryTable::new(&name.table, arrow_schema, create.column_defaults, rows);
    if create.or_replace && schema.table_exist(&name.table) {
        schema.deregister_table(&name.table)?;
    }
    schema.register_table(name.table.to_string(), Arc::new(table))?;
    let mut answer = Answer::done();
    answer.progress = progress;
    Ok(answer)
}

/// What a database directory says to everything that it would lose.
pub(super) fn not_stored_yet() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "tables, views and schemas of a database directory cannot be stored yet in this version",
    )
    .with_hint("open no directory to create them in memory, or COPY (query) TO 'file.parquet'")
}

/// Refuses to put a view in the place of a table, whose rows would be gone.
pub(super) fn check_replaces_view(session: &Session, name: &TableReference) -> Result<()> {
    let name = name.clone().resolve(CATALOG, DEFAULT_SCHEMA);
    let existing =
        session.catalog.schema(&name.schema).and_then(|schema| schema.table(&name.table).now_or_never());
    match existing {
        Some(Ok(Some(table))) if table.table_type() != TableType::View => {
            Err(Error::new(ErrorKind::AlreadyExists, format!("'{}' is a table, not a view", name.table))
                .with_hint("DROP TABLE it first"))
        }
        _ => Ok(()),
    }
}

/// The schema of a new table: each name once, what NULL's type was becomes text. That a query's rows have
/// no NULL says nothing about later rows, so only what is declared is NOT NULL.
fn table_schema(schema: &Schema, is_declared: bool) -> SchemaRef {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .zip(table_names(schema))
        .map(|(field, name)| {
            let data_type = match field.data_type() {
                DataType::Null => DataType::Utf8View,
                other => other.clone(),
            };
            let is_nullable = field.is_nullable() || !is_declared;
            Field::new(name, data_type, is_nullable).with_metadata(field.metadata().clone())
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// A stream of batches in the table's schema.
fn conforming(
    schema: SchemaRef,
    batches: BoxStream<'static, Result<RecordBatch>>,
) -> SendableRecordBatchStream {
    let target = schema.clone();
    let batches = batches.map(move |batch| {
        let conformed = batch.and_then(|batch| conform(&batch, &target));
        conformed.map_err(|error| DataFusionError::External(Box::new(error)))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// The batch cast to the table's types, with NULLs refused where the table has none.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        if !field.is_nullable() && column.null_count() > 0 {
            let message = format!("column '{}' is NOT NULL and would become NULL", field.name());
            return Err(Error::new(ErrorKind::Data, message));
        }
        columns.push(cast_with_options(column, field.data_type(), &options)?);
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
