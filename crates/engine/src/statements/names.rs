//! Names of tables and views in statements: which object they denote, and whether it exists.

use std::fmt;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, TableProvider};
use datafusion::logical_expr::TableType;
use datafusion::sql::sqlparser::ast::ObjectName;

use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;
use crate::sources::catalog::{CATALOG, DEFAULT_SCHEMA, INFORMATION_SCHEMA, SYSTEM_SCHEMA};
use crate::sources::stored::StoredTable;
use crate::sql::text::nearest;

/// A resolved name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) schema: String,
    pub(super) table: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.schema != DEFAULT_SCHEMA {
            write!(f, "{}.", self.schema)?;
        }
        f.write_str(&self.table)
    }
}

/// The parts of a name as the catalogue knows them.
fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(normalized).collect()
}

/// Resolves the name of a table or view.
pub(super) fn object_name(session: &Session, name: &ObjectName) -> Result<Name> {
    let (schema, table) = match parts(name).as_slice() {
        [table] => (session.catalog.default_schema.clone(), table.clone()),
        [schema, table] => (schema.clone(), table.clone()),
        [catalog, schema, table] if catalog == CATALOG => (schema.clone(), table.clone()),
        _ => return Err(Error::new(ErrorKind::NotFound, format!("'{name}' names no table"))),
    };
    Ok(Name { schema, table })
}

/// The name of a schema.
pub(super) fn schema_name(name: &ObjectName) -> Result<String> {
    match parts(name).as_slice() {
        [schema] => Ok(schema.clone()),
        [catalog, schema] if catalog == CATALOG => Ok(schema.clone()),
        _ => Err(Error::new(ErrorKind::NotFound, format!("'{name}' names no schema"))),
    }
}

pub(super) fn schema_not_found(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("schema '{name}' not found"))
        .with_hint(format!("CREATE SCHEMA {name}, or SHOW SCHEMAS for those that there are"))
}

/// The table or view of this name, if there is one.
pub(super) async fn find(session: &Session, name: &Name) -> Result<Option<Arc<dyn TableProvider>>> {
    let schema = session.catalog.schema(&name.schema).ok_or_else(|| schema_not_found(&name.schema))?;
    Ok(schema.table(&name.table).await?)
}

/// Fails unless a table of this name can be created.
pub(super) fn check_new(
    existing: Option<&Arc<dyn TableProvider>>,
    name: &Name,
    or_replace: bool,
) -> Result<()> {
    check_can_be_made(name)?;
    match existing.map(|table| table.table_type()) {
        None => Ok(()),
        Some(TableType::View) => {
            Err(Error::new(ErrorKind::AlreadyExists, format!("'{name}' is a view, not a table"))
                .with_hint("DROP VIEW it first"))
        }
        Some(_) if or_replace => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::AlreadyExists, format!("table '{name}' already exists"))
            .with_hint("CREATE OR REPLACE TABLE, or CREATE TABLE IF NOT EXISTS")),
    }
}

/// Fails if the schema is not one of the database's.
pub(super) fn check_can_be_made(name: &Name) -> Result<()> {
    if is_engines_own(&name.schema) {
        let message = format!("schema '{}' is the engine's own; nothing can be made in it", name.schema);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// Fails for tables whose rows the engine computes: they are neither changed nor dropped.
pub(super) fn check_can_be_written(name: &Name) -> Result<()> {
    if !is_engines_own(&name.schema) {
        return Ok(());
    }
    let error =
        Error::new(ErrorKind::Invalid, format!("table '{name}' is the engine's own and cannot be changed"));
    Err(if name.table == "settings" { error.with_hint("SET name = value changes a setting") } else { error })
}

/// Whether the tables of a schema show the engine's own state.
fn is_engines_own(schema: &str) -> bool {
    [SYSTEM_SCHEMA, INFORMATION_SCHEMA].contains(&schema)
}

/// The table of this name whose rows can be changed.
pub(super) async fn stored_table(session: &Session, name: &Name) -> Result<StoredTable> {
    let found = find(session, name).await?.ok_or_else(|| not_found(session, name))?;
    match (found.as_ref() as &dyn std::any::Any).downcast_ref::<StoredTable>() {
        Some(table) => Ok(table.clone()),
        None => Err(Error::new(ErrorKind::Invalid, format!("'{name}' is not a table that can be changed"))),
    }
}

pub(super) fn not_found(session: &Session, name: &Name) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("table '{name}' not found"));
    let names = session.catalog.schema(&name.schema).map(|schema| schema.table_names()).unwrap_or_default();
    match nearest(&name.table, names.iter().map(String::as_str)) {
        Some(meant) => error.with_hint(format!("did you mean `{meant}`?")),
        None => error,
    }
}
