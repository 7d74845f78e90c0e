//! CREATE TABLE.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::{TableReference, internal_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{self, DdlStatement, DmlStatement, LogicalPlan, TableType, WriteOp};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::{self, ColumnDef, ColumnOption, CreateTableLikeKind};
use futures::TryStreamExt;
use keirin_storage::schema::Definition;

use super::Answer;
use super::names::{Name, check_new, find, not_found, object_name};
use super::query;
use crate::bind::column_names::table_names;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::progress::Progress;
use crate::session::Session;
use crate::sources::stored::{self, Partitions, Place, StoredTable, Target, WriteExec, blocking};
use crate::sql::parser::parse_expression;
use crate::sql::table_clauses::{TableClauses, codec_of_option, notice};

/// `CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t (columns) clauses [AS query]`.
pub(super) async fn create(
    session: &Session,
    mut statement: ast::Statement,
    clauses: &TableClauses,
    sql: &str,
) -> Result<Answer> {
    let ast::Statement::CreateTable(table) = &mut statement else {
        return Err(Error::new(ErrorKind::Internal, format!("{statement} makes no table")));
    };
    let notice = notice(table, clauses);
    let name = object_name(session, &table.name)?;
    let existing = find(session, &name).await?;
    if existing.is_some() && table.if_not_exists {
        return Ok(Answer::done());
    }
    check_new(existing.as_ref(), &name, table.or_replace)?;
    if let Some(CreateTableLikeKind::Plain(like) | CreateTableLikeKind::Parenthesized(like)) = &table.like {
        return match create_like(session, name, &like.name, table.or_replace).await {
            // Another statement created the table first.
            Err(error) if table.if_not_exists && error.kind() == ErrorKind::AlreadyExists => {
                Ok(Answer::done())
            }
            created => created,
        };
    }
    let columns = table.columns.clone();
    let (or_replace, if_not_exists) = (table.or_replace, table.if_not_exists);
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) =
        query::plan(session, statement, sql).await?
    else {
        return Err(Error::new(ErrorKind::Internal, "CREATE TABLE is planned as something else"));
    };
    // Declared keys are dropped: nothing enforces them, but the optimizer would rely on them.
    let plan = Arc::unwrap_or_clone(create.input);
    let is_declared = matches!(plan, LogicalPlan::EmptyRelation(_)) && !columns.is_empty();
    let schema = table_schema(plan.schema().as_arrow(), is_declared);
    let definition = Arc::new(define_table(&name, &schema, &columns, clauses)?);
    let partitions = Partitions::of(&session.state(), &definition)?;
    let store = session.shared.store.clone();
    let target = Target { store, definition, partitions, place: Place::New { or_replace } };
    let done = |created: Result<Progress>| match created {
        // Another statement created the table first.
        Err(error) if if_not_exists && error.kind() == ErrorKind::AlreadyExists => Ok(Answer::done()),
        created => Ok(Answer { progress: created?, notice, ..Answer::done() }),
    };
    if is_declared {
        return done(blocking(move || target.create()).await.map(|()| Progress::default()));
    }
    let reference = TableReference::partial(name.schema, name.table);
    let source = provider_as_source(Arc::new(NewTable { schema: target.schema(), target }));
    let dml = DmlStatement::new(reference, source, WriteOp::Insert(InsertOp::Append), Arc::new(plan));
    let mut written = query::write(session, LogicalPlan::Dml(dml)).await?;
    let created = written.batches.try_next().await;
    done(created.map(|_| written.progress))
}

/// `CREATE TABLE t LIKE other`: the other table's definition without its rows.
async fn create_like(
    session: &Session,
    name: Name,
    other: &ast::ObjectName,
    or_replace: bool,
) -> Result<Answer> {
    let other = object_name(session, other)?;
    let found = find(session, &other).await?.ok_or_else(|| not_found(session, &other))?;
    let mut definition = match (found.as_ref() as &dyn Any).downcast_ref::<StoredTable>() {
        Some(table) => (*table.table.definition).clone(),
        None => stored::define(&name.schema, &name.table, &found.schema(), &[])?,
    };
    (definition.schema, definition.name) = (name.schema, name.table);
    definition.fields.iter_mut().for_each(|field| _ = field.properties.remove(stored::INITIAL));
    let (definition, partitions) = (Arc::new(definition), Partitions::default());
    let store = session.shared.store.clone();
    let target = Target { store, definition, partitions, place: Place::New { or_replace } };
    blocking(move || target.create()).await?;
    Ok(Answer::done())
}

/// The definition that the columns and clauses of CREATE TABLE describe.
fn define_table(
    name: &Name,
    schema: &Schema,
    columns: &[ColumnDef],
    clauses: &TableClauses,
) -> Result<Definition> {
    let mut properties = Vec::with_capacity(columns.len());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let mut found = column_properties(column.options.iter().map(|option| &option.option))?;
        let is_text = matches!(field.data_type(), DataType::Utf8View);
        if let Some(collation) = clauses.collation.as_ref().filter(|_| is_text) {
            found.entry(stored::COLLATION.to_owned()).or_insert_with(|| collation.clone());
        }
        if !is_text && found.contains_key(stored::COLLATION) {
            let message = format!("column '{}' of type {} has no collation", field.name(), column.data_type);
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("COLLATE is for VARCHAR"));
        }
        properties.push(found);
    }
    let mut definition = stored::define(&name.schema, &name.table, schema, &properties)?;
    definition.keys = stored::sort_keys(&definition, &clauses.order_by)?;
    let comment = clauses.comment.iter().map(|comment| (stored::COMMENT.to_owned(), comment.clone()));
    definition.properties.extend(comment);
    if let Some(partition) = &clauses.partition_by {
        let text = text_of(partition, "PARTITION BY")?;
        definition.properties.insert(stored::PARTITION.to_owned(), text);
    }
    Ok(definition)
}

/// The options of a column that storage keeps as properties.
pub(super) fn column_properties<'a>(
    options: impl IntoIterator<Item = &'a ColumnOption>,
) -> Result<BTreeMap<String, String>> {
    let mut properties = BTreeMap::new();
    for option in options {
        let (key, value) = match option {
            ColumnOption::Default(value) => (stored::DEFAULT, default_text(value)?),
            ColumnOption::Comment(text) => (stored::COMMENT, text.clone()),
            ColumnOption::Collation(name) => (stored::COLLATION, name.to_string()),
            other => match codec_of_option(other) {
                Some(codec) => (stored::CODEC, codec.to_owned()),
                None => continue,
            },
        };
        properties.insert(key.to_owned(), value);
    }
    Ok(properties)
}

/// The text of a default, which is parsed again whenever the table is looked up.
pub(super) fn default_text(value: &ast::Expr) -> Result<String> {
    text_of(value, "DEFAULT")
}

/// The text of an expression, if it parses again as the same.
fn text_of(value: &ast::Expr, clause: &str) -> Result<String> {
    let text = value.to_string();
    match parse_expression(&text) {
        Ok(parsed) if parsed.to_string() == text => Ok(text),
        _ => Err(Error::new(ErrorKind::Unsupported, format!("{clause} {text} cannot be stored as text"))
            .with_hint("write its quotes another way, such as chr(39)")),
    }
}

/// A table that is created by its first INSERT.
#[derive(Debug)]
struct NewTable {
    schema: SchemaRef,
    target: Target,
}

#[async_trait]
impl TableProvider for NewTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn datafusion::catalog::Session,
        _: Option<&Vec<usize>>,
        _: &[logical_expr::Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        internal_err!("a table is read before it is there")
    }

    async fn insert_into(
        &self,
        _: &dyn datafusion::catalog::Session,
        input: Arc<dyn ExecutionPlan>,
        _: InsertOp,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(WriteExec::new(input, self.target.clone())?))
    }
}

/// The schema of a new table: unique names, and text for columns of NULL's type. Only declared columns are
/// NOT NULL: that the rows of the query have no NULL says nothing about later rows.
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

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
