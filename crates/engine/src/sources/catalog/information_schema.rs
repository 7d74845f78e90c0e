//! The standard's `information_schema`: DataFusion's, with columns counted from 1 and types that have SQL's
//! names.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::Column;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};

use super::{CATALOG, SessionCatalog};
use crate::expressions::functions::any_type::sql_type;

/// Its name.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// See the [module](self).
#[derive(Debug)]
pub(super) struct InformationSchema {
    inner: InformationSchemaProvider,
}

impl InformationSchema {
    pub(super) fn of(catalog: &SessionCatalog) -> Self {
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog.clone()));
        Self { inner: InformationSchemaProvider::new(Arc::new(catalogs)) }
    }
}

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table = self.inner.table(name).await?;
        let Some(table) = table.filter(|_| name == "columns") else { return self.inner.table(name).await };
        let schema = table.schema();
        let columns = schema.fields().iter().map(|field| {
            let column = Expr::Column(Column::from_name(field.name()));
            match field.name().as_str() {
                name @ "ordinal_position" => (column + lit(1_u64)).alias(name),
                name @ "data_type" => sql_type().call(vec![column]).alias(name),
                _ => column,
            }
        });
        let plan =
            LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.project(columns)?.build()?;
        Ok(Some(Arc::new(ViewTable::new(plan, None))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}
