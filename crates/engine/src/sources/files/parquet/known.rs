//! How the columns of a file are read, which takes longer to find out than a small query to run.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::parquet::apply_file_schema_type_coercions;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use super::batches::FlatColumns;

/// How a file's columns are read, found out by the first scan; an extension of `PartitionedFile`.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownColumns(Arc<Mutex<Option<Columns>>>);

/// What the reader knows of a file, with the columns' types as the table has them.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// The schema of the table's files.
    pub(super) logical: SchemaRef,
    pub(super) options: ArrowReaderOptions,
    pub(super) metadata: ArrowReaderMetadata,
    pub(super) flat: FlatColumns,
}

impl Columns {
    /// How footers are read: page indexes are read when they are asked for.
    pub(super) fn options() -> ArrowReaderOptions {
        ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Skip)
    }

    pub(super) fn new(footer: Arc<ParquetMetaData>, logical: &SchemaRef) -> Result<Self> {
        let mut options = Self::options();
        let mut metadata = ArrowReaderMetadata::try_new(footer, options.clone())?;
        if let Some(coerced) = apply_file_schema_type_coercions(logical, metadata.schema()) {
            options = options.with_schema(Arc::new(coerced));
            metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options.clone())?;
        }
        let flat = FlatColumns::new(metadata.parquet_schema(), metadata.schema().fields())?;
        Ok(Self { logical: logical.clone(), options, metadata, flat })
    }
}

impl KnownColumns {
    pub(super) fn get(&self, footer: &Arc<ParquetMetaData>, logical: &SchemaRef) -> Option<Columns> {
        let known = self.0.lock();
        let is_same =
            |known: &&Columns| Arc::ptr_eq(known.metadata.metadata(), footer) && known.logical == *logical;
        known.as_ref().filter(is_same).cloned()
    }

    /// What is known, whatever the footer is by now.
    pub(super) fn any(&self, logical: &SchemaRef) -> Option<Columns> {
        self.0.lock().clone().filter(|known| known.logical == *logical)
    }

    pub(super) fn keep(&self, columns: Columns) {
        *self.0.lock() = Some(columns);
    }
}
