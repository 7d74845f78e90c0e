//! A view: its text. Before a statement is planned, the view's query replaces its name.

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
    /// The whole CREATE VIEW statement.
    pub(crate) definition: String,
    /// The schema in which its names without a schema are looked up: the default when the view was created.
    pub(crate) default_schema: String,
    /// The columns that it had when it was created.
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
