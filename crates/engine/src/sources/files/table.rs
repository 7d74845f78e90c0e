//! A table over files that are read chunk by chunk.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::LIMIT_IN_ORDER;
use super::scan::{Chunked, FileScan, Input};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ChunkedTable<F: Chunked> {
    input: Arc<Input<F>>,
    schema: SchemaRef,
}

impl<F: Chunked> ChunkedTable<F> {
    pub(crate) fn new(input: Input<F>) -> Self {
        let fields: Vec<_> =
            input.file_schema.fields().iter().chain(&input.columns.fields).cloned().collect();
        Self { input: Arc::new(input), schema: Arc::new(Schema::new(fields)) }
    }
}

#[async_trait]
impl<F: Chunked> TableProvider for ChunkedTable<F> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(self.input.columns.pushdown(filters, TableProviderFilterPushDown::Unsupported))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let selected = self.input.columns.passing(state, filters)?;
        let projection = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let in_order = limit.is_some_and(|limit| limit <= LIMIT_IN_ORDER);
        let threads = state.config().target_partitions();
        let scan = FileScan::new(self.input.clone(), selected.into(), projection, limit, threads, in_order)?;
        Ok(Arc::new(scan))
    }
}
