//! A schema of a database in memory.
//!
//! A statement looks a name up and adds its object in one step. So if two statements create the same name at
//! the same time, one fails; and while an object is replaced, its name is never missing.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::exec_err;
use datafusion::error::Result;
use parking_lot::RwLock;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MemorySchema {
    tables: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
}

impl MemorySchema {
    /// Puts `table` under `name`, unless `check`, which gets the table that has the name now, returns an
    /// error.
    pub(crate) fn put<E>(
        &self,
        name: &str,
        table: Arc<dyn TableProvider>,
        check: impl FnOnce(Option<&Arc<dyn TableProvider>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tables = self.tables.write();
        check(tables.get(name))?;
        let replaced = tables.insert(name.to_owned(), table);
        drop(tables);
        // Outside the lock: freeing the rows of a table may take a while.
        drop(replaced);
        Ok(())
    }
}

#[async_trait]
impl SchemaProvider for MemorySchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.read().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.tables.read().get(name).cloned())
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.put(&name, table, |there| match there {
            None => Ok(()),
            Some(_) => exec_err!("table '{name}' already exists"),
        })?;
        Ok(None)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.tables.write().remove(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.read().contains_key(name)
    }
}
