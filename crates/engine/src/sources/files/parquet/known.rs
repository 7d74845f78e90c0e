//! Tables of Parquet files that were opened before, as long as the files are the same: their schema and statistics take
//! longer to find out than a small query to run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;

use super::ParquetTable;
use crate::sources::files::paths::DataFile;

/// The footers of tables that are kept may have so many bytes in memory together.
const FOOTER_BYTES_MAX: usize = 32 << 20;
const TABLES_MAX: usize = 64;

/// The tables that were opened last, the latest one first.
#[derive(Debug, Default)]
pub(crate) struct KnownTables(Mutex<Vec<Known>>);

#[derive(Debug)]
struct Known {
    files: Vec<FileState>,
    footer_bytes: usize,
    table: Arc<ParquetTable>,
}

/// What tells a file from the same one with other contents.
#[derive(Debug, PartialEq)]
struct FileState {
    path: PathBuf,
    /// As the user wrote it: messages and the column `filename` have it.
    name: Arc<str>,
    size_bytes: u64,
    modified: SystemTime,
}

impl KnownTables {
    pub(super) fn get(&self, files: &[DataFile]) -> Option<Arc<ParquetTable>> {
        let mut tables = self.0.lock();
        let found = tables.iter().position(|known| {
            known.files.len() == files.len()
                && known.files.iter().zip(files).all(|(known, file)| known.is(file))
        })?;
        let known = tables.remove(found);
        let table = known.table.clone();
        tables.insert(0, known);
        Some(table)
    }

    /// Keeps a table, unless its files are gone with the statement.
    pub(super) fn keep(&self, files: &[DataFile], footer_bytes: usize, table: &Arc<ParquetTable>) {
        if footer_bytes > FOOTER_BYTES_MAX || files.iter().any(|file| file.temporary.is_some()) {
            return;
        }
        let files = files.iter().map(FileState::of).collect();
        let mut tables = self.0.lock();
        tables.insert(0, Known { files, footer_bytes, table: table.clone() });
        let mut bytes = 0;
        let kept = tables.iter().take(TABLES_MAX).take_while(|known| {
            bytes += known.footer_bytes;
            bytes <= FOOTER_BYTES_MAX
        });
        let kept = kept.count();
        tables.truncate(kept);
    }
}

impl FileState {
    fn of(file: &DataFile) -> Self {
        let DataFile { path, name, size_bytes, modified, temporary: _ } = file.clone();
        Self { path, name, size_bytes, modified }
    }

    fn is(&self, file: &DataFile) -> bool {
        self.path == file.path
            && self.name == file.name
            && self.size_bytes == file.size_bytes
            && self.modified == file.modified
    }
}

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
