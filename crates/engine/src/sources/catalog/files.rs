//! The files that running statements read, under names that nobody types.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use parking_lot::RwLock;

use super::{CATALOG, FILES_SCHEMA};

/// Tables over files; each exists as long as its [`OpenFile`].
#[derive(Debug, Default)]
pub(crate) struct FileSchema {
    tables: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
    count: AtomicU64,
}

/// Keeps a file in the schema until the statement is planned; the plan then holds the table itself.
#[derive(Debug)]
pub(crate) struct OpenFile {
    schema: Arc<FileSchema>,
    name: String,
}

impl FileSchema {
    /// A name that no other statement uses.
    pub(crate) fn fresh_name(&self) -> String {
        format!("file {}", self.count.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn add(self: &Arc<Self>, name: String, table: Arc<dyn TableProvider>) -> OpenFile {
        self.tables.write().insert(name.clone(), table);
        OpenFile { schema: self.clone(), name }
    }
}

impl OpenFile {
    /// How SQL that we write names the file.
    pub(crate) fn sql_name(&self) -> String {
        format!("\"{CATALOG}\".\"{FILES_SCHEMA}\".\"{}\"", self.name)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.schema.tables.write().remove(&self.name);
    }
}

#[async_trait]
impl SchemaProvider for FileSchema {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.tables.read().get(name).cloned())
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.read().contains_key(name)
    }
}
