//! The `system` schema: the state of session and database as tables, computed when they are read.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};

use crate::error::Result;
use crate::runtime::work::blocking;

/// A table of the `system` schema: its name and how to compute its rows.
pub(crate) struct SystemTable {
    pub(crate) name: &'static str,
    pub(crate) rows: Arc<dyn Fn() -> Result<RecordBatch> + Send + Sync>,
}

/// See the [module](self).
pub(crate) struct SystemSchema {
    tables: Vec<SystemTable>,
}

impl SystemSchema {
    pub(crate) fn new(tables: Vec<SystemTable>) -> Self {
        Self { tables }
    }
}

impl std::fmt::Debug for SystemSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tables.iter().map(|table| table.name)).finish()
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        let Some(table) = self.tables.iter().find(|table| table.name == name) else { return Ok(None) };
        let rows = table.rows.clone();
        let batch =
            blocking(move || rows()).await.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }
}
