//! The catalogue of one version of a database directory: schemas, tables and views.
//!
//! The text of a view is the whole CREATE VIEW; properties say where its names are looked up, and how its columns
//! are called.

use std::fmt;
use std::sync::{Arc, Weak};

use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use chrono::Utc;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SessionState;
use keirin_storage::{Snapshot, State, Transaction, View as StoredView};
use parking_lot::RwLock;

use super::store::Store;
use super::table::StoredTable;
use crate::error::Result;
use crate::sources::catalog::View;
use crate::sources::files::sql_type;
use crate::types::sql_field_type;

/// The schema in which a view looks up names without one.
const LOOKED_UP_IN: &str = "default_schema";
/// The names of a view's columns, as a JSON list.
const COLUMNS: &str = "columns";
/// The SQL names of their types when the view was made, as a JSON list.
const TYPES: &str = "types";

/// A version of the database as a catalogue.
pub(crate) struct StoredCatalog {
    pub(crate) store: Arc<Store>,
    pub(crate) snapshot: Snapshot,
    /// Plans the defaults of columns.
    pub(crate) state: Weak<RwLock<SessionState>>,
}

impl StoredCatalog {
    /// The catalogue of another version.
    pub(crate) fn at_version(&self, version: u64) -> Result<Self> {
        Ok(self.over(self.store.database.as_of_version(version)?))
    }

    /// The catalogue of the version that was the newest at a time, which is UTC unless it says otherwise.
    pub(crate) fn at_time(&self, time: &str) -> Result<Self> {
        let time = string_to_datetime(&Utc, time)?;
        Ok(self.over(self.store.database.as_of_time(time.timestamp_micros())?))
    }

    fn over(&self, snapshot: Snapshot) -> Self {
        Self { store: self.store.clone(), snapshot, state: self.state.clone() }
    }
}

impl fmt::Debug for StoredCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredCatalog").field("version", &self.snapshot.version()).finish_non_exhaustive()
    }
}

impl CatalogProvider for StoredCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.snapshot.schemas().map(str::to_owned).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.snapshot.schema(name)?;
        let (store, snapshot, state) = (self.store.clone(), self.snapshot.clone(), self.state.clone());
        Some(Arc::new(StoredSchema { store, snapshot, state, name: name.to_owned() }))
    }
}

struct StoredSchema {
    store: Arc<Store>,
    snapshot: Snapshot,
    state: Weak<RwLock<SessionState>>,
    name: String,
}

impl fmt::Debug for StoredSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSchema").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for StoredSchema {
    fn table_names(&self) -> Vec<String> {
        names_in(&self.snapshot, &self.name)
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.snapshot.table_named(&self.name, name) {
            let table = StoredTable::new(&self.store, &self.snapshot, table, &self.state);
            return Ok(Some(Arc::new(table.map_err(|error| DataFusionError::External(Box::new(error)))?)));
        }
        let found = self.snapshot.view_named(&self.name, name);
        let state = self.state.upgrade().map(|state| state.read().clone());
        let view = |found: &Arc<StoredView>| Arc::new(view(found, state.as_ref())) as Arc<dyn TableProvider>;
        Ok(found.map(|(_, found)| view(found)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.snapshot.table_named(&self.name, name).is_some()
            || self.snapshot.view_named(&self.name, name).is_some()
    }
}

/// The tables and views of a schema.
pub(crate) fn names_in(state: &State, schema: &str) -> Vec<String> {
    let tables = state.tables().map(|table| (&table.definition.schema, &table.definition.name));
    let views = state.views().map(|(_, view)| (&view.schema, &view.name));
    let inside = tables.chain(views).filter(|(of, _)| *of == schema);
    let mut names: Vec<String> = inside.map(|(_, name)| name.clone()).collect();
    names.sort();
    names
}

/// A view as statements know it, with the columns that it had when it was made.
fn view(stored: &StoredView, state: Option<&SessionState>) -> View {
    let property = |key| stored.properties.get(key).cloned();
    let list = |key| -> Vec<String> {
        property(key).and_then(|names| serde_json::from_str(&names).ok()).unwrap_or_default()
    };
    let types = list(TYPES);
    let data_type = |index: usize| sql_type(state?, types.get(index)?).ok();
    let columns = list(COLUMNS).into_iter().enumerate();
    let columns: Vec<Field> = columns
        .map(|(index, name)| Field::new(name, data_type(index).unwrap_or(DataType::Null), true))
        .collect();
    View {
        definition: stored.text.clone(),
        default_schema: property(LOOKED_UP_IN).unwrap_or_else(|| stored.schema.clone()),
        schema: Arc::new(Schema::new(columns)),
    }
}

/// Makes a view, in the place of another if there is one.
pub(crate) fn set_view(transaction: &mut Transaction, schema: &str, name: &str, view: &View) -> Result<()> {
    let columns: Vec<&str> = view.schema.fields().iter().map(|field| field.name().as_str()).collect();
    let types: Vec<String> = view.schema.fields().iter().map(|field| sql_field_type(field)).collect();
    let properties = [
        (LOOKED_UP_IN, view.default_schema.clone()),
        (COLUMNS, serde_json::json!(columns).to_string()),
        (TYPES, serde_json::json!(types).to_string()),
    ];
    let stored = StoredView {
        schema: schema.to_owned(),
        name: name.to_owned(),
        text: view.definition.clone(),
        properties: properties.map(|(key, value)| (key.to_owned(), value)).into(),
    };
    match transaction.state().view_named(schema, name).map(|(number, _)| number) {
        Some(number) => transaction.alter_view(number, stored)?,
        None => _ = transaction.create_view(stored)?,
    }
    Ok(())
}

/// Drops a table or view; that there is none is no error.
pub(crate) fn drop_named(transaction: &mut Transaction, schema: &str, name: &str) -> Result<()> {
    if let Some(table) = transaction.state().table_named(schema, name).map(|table| table.number) {
        transaction.drop_table(table)?;
    } else if let Some(view) = transaction.state().view_named(schema, name).map(|(number, _)| number) {
        transaction.drop_view(view)?;
    }
    Ok(())
}
