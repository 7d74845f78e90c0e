//! What was found out of files before, as long as they are the same: tables of Parquet files, whose schema and statistics take
//! longer to read than a small query to run, and the columns of JSON files, which a sample of the records shows.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datafusion::arrow::datatypes::Schema;
use parking_lot::Mutex;

use super::parquet::ParquetTable;
use super::paths::DataFile;

/// What is kept may have so many bytes in memory together.
const BYTES_MAX: usize = 32 << 20;
const ENTRIES_MAX: usize = 64;
/// What is kept of a file itself takes so much, about.
const FILE_BYTES: usize = 256;
/// Clocks of file systems tick every few milliseconds.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    pub(super) parquet: Latest<ParquetTable>,
    pub(super) json: Latest<Schema>,
}

/// What was found out last, the latest first.
#[derive(Debug)]
pub(super) struct Latest<T>(Mutex<Vec<Known<T>>>);

#[derive(Debug)]
struct Known<T> {
    files: Vec<FileState>,
    bytes: usize,
    found: Arc<T>,
}

/// What tells a file from the same one with other contents.
#[derive(Debug, PartialEq)]
struct FileState {
    path: PathBuf,
    /// As the user wrote it: messages and the column `filename` have it.
    name: Arc<str>,
    size_bytes: u64,
    changed: SystemTime,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Latest<T> {
    pub(super) fn get(&self, files: &[DataFile]) -> Option<Arc<T>> {
        let mut entries = self.0.lock();
        let found = entries.iter().position(|known| known.is_of(files, FileState::is))?;
        let known = entries.remove(found);
        let found = known.found.clone();
        entries.insert(0, known);
        Some(found)
    }

    /// Keeps what takes some `bytes` of memory, unless the files are gone with the statement. What was known of the files
    /// before is forgotten.
    pub(super) fn keep(&self, files: &[DataFile], bytes: usize, found: &Arc<T>) {
        let mut entries = self.0.lock();
        entries.retain(|known| !known.is_of(files, |known, file| known.path == file.path));
        let bytes = bytes + files.len() * FILE_BYTES;
        // What has just changed may change again without its time saying so.
        let is_settled = |file: &DataFile| file.changed.elapsed().is_ok_and(|age| age > SETTLED_AFTER);
        if bytes > BYTES_MAX || files.iter().any(|file| file.temporary.is_some() || !is_settled(file)) {
            return;
        }
        let files = files.iter().map(FileState::of).collect();
        entries.insert(0, Known { files, bytes, found: found.clone() });
        let mut bytes = 0;
        let kept = entries.iter().take(ENTRIES_MAX).take_while(|known| {
            bytes += known.bytes;
            bytes <= BYTES_MAX
        });
        let kept = kept.count();
        entries.truncate(kept);
    }
}

impl<T> Known<T> {
    fn is_of(&self, files: &[DataFile], is: impl Fn(&FileState, &DataFile) -> bool) -> bool {
        self.files.len() == files.len() && self.files.iter().zip(files).all(|(known, file)| is(known, file))
    }
}

impl FileState {
    fn of(file: &DataFile) -> Self {
        let DataFile { path, name, size_bytes, changed, temporary: _, remote: _ } = file.clone();
        Self { path, name, size_bytes, changed }
    }

    fn is(&self, file: &DataFile) -> bool {
        self.path == file.path
            && self.name == file.name
            && self.size_bytes == file.size_bytes
            && self.changed == file.changed
    }
}
