//! The `system` schema: the state of session and database as tables, computed when they are read.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;

use crate::error::Result;
use crate::runtime::work::blocking;

/// A table of the `system` schema: its name and how to compute its rows.
pub(crate) struct SystemTable {
    pub(crate) name: &'static str,
    pub(crate) rows: Rows,
    /// The columns of a table whose rows are computed only for who reads them, not for who asks what columns there are.
    pub(crate) columns: Option<SchemaRef>,
}

type Rows = Arc<dyn Fn() -> Result<RecordBatch> + Send + Sync>;

impl SystemTable {
    pub(crate) fn new(
        name: &'static str,
        rows: impl Fn() -> Result<RecordBatch> + Send + Sync + 'static,
    ) -> Self {
        Self { name, rows: Arc::new(rows), columns: None }
    }
}

/// See [`SystemTable::columns`].
struct Late {
    columns: SchemaRef,
    rows: Rows,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl PartitionStream for Late {
    fn schema(&self) -> &SchemaRef {
        &self.columns
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.clone();
        let rows = stream::once(async move { computed(rows).await });
        Box::pin(RecordBatchStreamAdapter::new(self.columns.clone(), rows))
    }
}

async fn computed(rows: Rows) -> DataFusionResult<RecordBatch> {
    blocking(move || rows()).await.map_err(|error| DataFusionError::External(Box::new(error)))
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

impl fmt::Debug for SystemSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        if let Some(columns) = table.columns.clone() {
            let late = Arc::new(Late { columns: columns.clone(), rows: table.rows.clone() });
            return Ok(Some(Arc::new(StreamingTable::try_new(columns, vec![late])?)));
        }
        let batch = computed(table.rows.clone()).await?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }
}
