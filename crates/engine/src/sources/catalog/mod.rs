//! The catalogue: a session's view of the database's tables, plus two schemas of its own.
//!
//! `main`, and any schema that CREATE SCHEMA adds, belongs to the database; `system` shows the session's
//! state as tables; the third, hidden, holds the files that running statements read.

mod files;
mod information_schema;
mod kernels;
mod machine;
mod system;
mod view;

use std::fmt;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, SchemaProvider};
use datafusion::error::Result;

use information_schema::InformationSchema;

use crate::sources::given::GivenTables;

pub(crate) use files::{FileSchema, OpenFile};
pub(crate) use information_schema::INFORMATION_SCHEMA;
pub(crate) use kernels::{kernel_faults, kernels};
pub(crate) use machine::machine;
pub(crate) use system::{SystemSchema, SystemTable};
pub(crate) use view::View;

/// The name of the only catalogue.
pub(crate) const CATALOG: &str = "keirin";
/// The schema in which names without a schema are looked up at first.
pub(crate) const DEFAULT_SCHEMA: &str = "main";
/// The schema of tables about the engine itself.
pub(crate) const SYSTEM_SCHEMA: &str = "system";
/// The schema of the files that a statement reads; it is not listed anywhere.
pub(crate) const FILES_SCHEMA: &str = "files of statement";

/// The catalogue as one statement sees it.
#[derive(Clone)]
pub(crate) struct SessionCatalog {
    pub(crate) database: Arc<dyn CatalogProvider>,
    pub(crate) system: Arc<SystemSchema>,
    pub(crate) files: Arc<FileSchema>,
    /// Tables of the session's program: names without a schema mean them before all others.
    pub(crate) given: Arc<GivenTables>,
    /// The schema in which names without a schema are looked up; USE sets it.
    pub(crate) default_schema: String,
}

impl fmt::Debug for SessionCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCatalog").field("database", &self.database).finish_non_exhaustive()
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names = self.database.schema_names();
        names.push(SYSTEM_SCHEMA.to_owned());
        names.sort();
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SYSTEM_SCHEMA => Some(self.system.clone()),
            FILES_SCHEMA => Some(self.files.clone()),
            INFORMATION_SCHEMA => Some(Arc::new(InformationSchema::of(self))),
            _ => self.database.schema(name),
        }
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.database.register_schema(name, schema)
    }

    fn deregister_schema(&self, name: &str, cascade: bool) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.database.deregister_schema(name, cascade)
    }
}
