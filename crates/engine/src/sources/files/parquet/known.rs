//! How the columns of a file are read, which takes longer to find out than a small query to run.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;

/// How a file's columns are read, found out by the first scan; an extension of `PartitionedFile`.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownColumns(Arc<Mutex<Option<Columns>>>);

/// What the reader knows of a file, with the columns' types as the table has them.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// The schema of the table's files.
    logical: SchemaRef,
    pub(super) options: ArrowReaderOptions,
    pub(super) metadata: ArrowReaderMetadata,
}

impl KnownColumns {
    pub(super) fn get(&self, footer: &Arc<ParquetMetaData>, logical: &SchemaRef) -> Option<Columns> {
        let known = self.0.lock();
        let is_same =
            |known: &&Columns| Arc::ptr_eq(known.metadata.metadata(), footer) && known.logical == *logical;
        known.as_ref().filter(is_same).cloned()
    }

    pub(super) fn keep(
        &self,
        logical: &SchemaRef,
        options: &ArrowReaderOptions,
        metadata: &ArrowReaderMetadata,
    ) {
        let (logical, options, metadata) = (logical.clone(), options.clone(), metadata.clone());
        *self.0.lock() = Some(Columns { logical, options, metadata });
    }
}
