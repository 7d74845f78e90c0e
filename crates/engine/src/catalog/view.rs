//! A view: its text. Statements that name it get its query in its place before they are planned.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The whole CREATE VIEW.
    pub(crate) definition: String,
    /// Where names without a schema were looked up when it was made.
    pub(crate) default_schema: String,
    /// The columns that it had then.
    pub(crate) schema: SchemaRef,
}

#[async_trait]
impl TableProvider for View {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.definition)
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a view is planned before its query took its place")
    }
}
