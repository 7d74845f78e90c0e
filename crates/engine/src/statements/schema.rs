//! Schemas and views: CREATE, DROP and USE. MySQL's databases are schemas here.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::catalog::{CatalogProvider, TableProvider};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, TableType};
use datafusion::sql::sqlparser::ast::{self, ObjectName, ObjectType};
use keirin_storage::Transaction;
use keirin_storage::schema::Properties;

use super::Answer;
use super::names::{
    Name, check_can_be_made, check_can_be_written, find, not_found, object_name, schema_name,
    schema_not_found,
};
use super::query;
use crate::bind::column_names::table_names;
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;
use crate::sources::catalog::{DEFAULT_SCHEMA, INFORMATION_SCHEMA, SYSTEM_SCHEMA, View};
use crate::sources::stored::{self, blocking};

/// `CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v [(columns)] AS query`; `text` is all of it.
pub(super) async fn create_view(
    session: &Session,
    view: ast::CreateView,
    sql: &str,
    text: &str,
) -> Result<Answer> {
    let name = object_name(session, &view.name)?;
    check_can_be_made(&name)?;
    let (or_replace, if_not_exists) = (view.or_replace, view.if_not_exists);
    let existing = find(session, &name).await?;
    if existing.is_some() && if_not_exists {
        return Ok(Answer::done());
    }
    check_view(existing.as_ref(), &name, or_replace)?;
    let plan = query::plan(session, ast::Statement::CreateView(view), sql).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateView(create)) = plan else {
        return Err(Error::new(ErrorKind::Internal, "CREATE VIEW is planned as something else"));
    };
    let columns = create.input.schema().as_arrow();
    let fields = columns.fields().iter().zip(table_names(columns));
    let fields = fields.map(|(field, name)| Field::new(name, field.data_type().clone(), field.is_nullable()));
    let view = View {
        // In the tree the files' names were replaced; the text still has them.
        definition: text.to_owned(),
        default_schema: session.catalog.default_schema.clone(),
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
    };
    let store = session.shared.store.clone();
    let set =
        move || store.alter(|transaction| stored::set_view(transaction, &name.schema, &name.table, &view));
    match blocking(set).await {
        // Another statement created the view first.
        Err(error) if if_not_exists && error.kind() == ErrorKind::AlreadyExists => {}
        set => set?,
    }
    Ok(Answer::done())
}

/// Fails unless a view may take the place of `existing`.
fn check_view(existing: Option<&Arc<dyn TableProvider>>, name: &Name, or_replace: bool) -> Result<()> {
    match existing.map(|existing| existing.table_type()) {
        None => Ok(()),
        Some(TableType::View) if or_replace => Ok(()),
        Some(TableType::View) => {
            Err(Error::new(ErrorKind::AlreadyExists, format!("view '{name}' already exists"))
                .with_hint("CREATE OR REPLACE VIEW"))
        }
        // Replacing the table would delete its rows.
        Some(_) => Err(Error::new(ErrorKind::AlreadyExists, format!("'{name}' is a table, not a view"))
            .with_hint("DROP TABLE it first")),
    }
}

/// `CREATE [UNIQUE] INDEX i ON t (columns)`: does nothing, with a notice that says so. Scripts for other
/// databases create indexes only for speed, and can continue.
pub(super) async fn create_index(session: &Session, index: &ast::CreateIndex) -> Result<Answer> {
    let name = object_name(session, &index.table_name)?;
    find(session, &name).await?.ok_or_else(|| not_found_of(session, &name, TableType::Base))?;
    let notice = if index.unique {
        "no index is made: tables have none, and rows with equal keys are not refused"
    } else {
        "no index is made: tables have none; ORDER BY behind the columns of CREATE TABLE sorts their rows"
    };
    Ok(Answer { notice: Some(notice.to_owned()), ..Answer::done() })
}

/// `CREATE SCHEMA | DATABASE [IF NOT EXISTS] s`.
pub(super) async fn create_schema(
    session: &Session,
    name: &ObjectName,
    if_not_exists: bool,
) -> Result<Answer> {
    let name = schema_name(name)?;
    let exists = || {
        Error::new(ErrorKind::AlreadyExists, format!("schema '{name}' already exists"))
            .with_hint("CREATE SCHEMA IF NOT EXISTS")
    };
    if session.catalog.schema(&name).is_some() || is_built_in(&name) {
        return if if_not_exists { Ok(Answer::done()) } else { Err(exists()) };
    }
    let store = session.shared.store.clone();
    let create = move |transaction: &mut Transaction| Ok(transaction.set_schema(&name, Properties::new())?);
    blocking(move || store.alter(create)).await?;
    Ok(Answer::done())
}

/// `DROP TABLE | VIEW | SCHEMA | DATABASE [IF EXISTS] names [CASCADE]`.
pub(super) async fn drop_objects(
    session: &Session,
    object_type: ObjectType,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Answer> {
    match object_type {
        ObjectType::Table => drop_tables_or_views(session, names, TableType::Base, if_exists).await?,
        ObjectType::View => drop_tables_or_views(session, names, TableType::View, if_exists).await?,
        ObjectType::Schema | ObjectType::Database => drop_schemas(session, names, if_exists, cascade).await?,
        other => {
            return Err(Error::new(ErrorKind::Unsupported, format!("DROP {other} is not supported")));
        }
    }
    Ok(Answer::done())
}

/// Drops all of them or, if one cannot be dropped, none.
async fn drop_tables_or_views(
    session: &Session,
    names: &[ObjectName],
    kind: TableType,
    if_exists: bool,
) -> Result<()> {
    let mut found: Vec<Name> = Vec::new();
    for name in names {
        let name = object_name(session, name)?;
        let existing = match session.catalog.schema(&name.schema) {
            Some(_) => find(session, &name).await?,
            None => None,
        };
        if existing.is_some() {
            check_can_be_written(&name)?;
        }
        match existing {
            None if if_exists => {}
            None => return Err(not_found_of(session, &name, kind)),
            Some(existing) if existing.table_type() != kind => {
                let (is, statement) = match kind {
                    TableType::View => ("a table, not a view", "DROP TABLE"),
                    _ => ("a view, not a table", "DROP VIEW"),
                };
                return Err(Error::new(ErrorKind::Invalid, format!("'{name}' is {is}"))
                    .with_hint(format!("{statement} {name}")));
            }
            // A name that is listed twice.
            Some(_) if found.contains(&name) => {}
            Some(_) => found.push(name),
        }
    }
    let store = session.shared.store.clone();
    let drop_all = move |transaction: &mut Transaction| {
        found.iter().try_for_each(|name| stored::drop_named(transaction, &name.schema, &name.table))
    };
    blocking(move || store.alter(drop_all)).await
}

fn not_found_of(session: &Session, name: &Name, kind: TableType) -> Error {
    match kind {
        TableType::View => Error::new(ErrorKind::NotFound, format!("view '{name}' not found")),
        _ => not_found(session, name),
    }
}

/// Drops all of them or, if one cannot be dropped, none.
async fn drop_schemas(session: &Session, names: &[ObjectName], if_exists: bool, cascade: bool) -> Result<()> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        let name = schema_name(name)?;
        if is_built_in(&name) {
            let message = format!(
                "schema '{name}' is the engine's own; the schemas of the engine itself cannot be dropped"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let Some(schema) = session.catalog.schema(&name) else {
            if if_exists {
                continue;
            }
            return Err(schema_not_found(&name));
        };
        if let (Some(table), false) = (schema.table_names().first(), cascade) {
            let message = format!("schema '{name}' is not empty: it has '{table}'");
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_hint(format!("DROP SCHEMA {name} CASCADE drops all that is in it")));
        }
        if !found.contains(&name) {
            found.push(name);
        }
    }
    let store = session.shared.store.clone();
    let drop_all = move |transaction: &mut Transaction| {
        for name in &found {
            for inside in stored::names_in(transaction.state(), name) {
                stored::drop_named(transaction, name, &inside)?;
            }
            transaction.drop_schema(name)?;
        }
        Ok(())
    };
    blocking(move || store.alter(drop_all)).await
}

/// `USE s`: sets the schema in which names without a schema are looked up.
pub(super) fn use_schema(session: &Session, name: &ast::Use) -> Result<Answer> {
    let name = match name {
        ast::Use::Object(name) | ast::Use::Schema(name) | ast::Use::Database(name) => schema_name(name)?,
        ast::Use::Default => DEFAULT_SCHEMA.to_owned(),
        other => return Err(Error::new(ErrorKind::Unsupported, format!("{other} is not supported"))),
    };
    if session.catalog.schema(&name).is_none() {
        return Err(schema_not_found(&name));
    }
    session.settings().set("datafusion.catalog.default_schema", Some(&name))?;
    Ok(Answer::done())
}

fn is_built_in(schema: &str) -> bool {
    [DEFAULT_SCHEMA, SYSTEM_SCHEMA, INFORMATION_SCHEMA].contains(&schema)
}
