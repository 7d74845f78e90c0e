//! Files of a transaction that are written and not synced yet.
//!
//! A disk syncs many files in hardly more time than one, so syncs are collected until the transaction commits, or
//! there are many files or bytes.

use std::sync::{Arc, Mutex};

use crate::database::locked;
use crate::error::{Error, Result};
use crate::io::Output;
use crate::store::Store;

/// The most files that wait open for their sync; fewer if the system's limit is low.
const FILES_MAX: usize = 64;
/// Beyond this many bytes the files are synced: the system can write that much while the next part is made.
const BYTES_MAX: u64 = 64 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Unsynced {
    store: Arc<Store>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    paths: Vec<String>,
    files: Vec<Box<dyn Output>>,
    bytes: u64,
}

impl Unsynced {
    pub(crate) fn new(store: Arc<Store>) -> Arc<Self> {
        Arc::new(Self { store, waiting: Mutex::default() })
    }

    /// Adds a file that is completely written.
    pub(crate) fn add(&self, path: String, file: Box<dyn Output>, bytes: u64) -> Result<()> {
        let mut waiting = locked(&self.waiting);
        waiting.paths.push(path);
        waiting.files.push(file);
        waiting.bytes += bytes;
        let files_max = FILES_MAX.min(self.store.open_files.limit() / 8).max(1);
        let is_much = waiting.files.len() >= files_max || waiting.bytes >= BYTES_MAX;
        if is_much { self.sync_all(&mut waiting) } else { Ok(()) }
    }

    /// Syncs all added files. Files that another thread is syncing are waited for, because that thread holds the
    /// lock.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_all(&mut locked(&self.waiting))
    }

    fn sync_all(&self, waiting: &mut Waiting) -> Result<()> {
        let Waiting { paths, mut files, .. } = std::mem::take(waiting);
        self.store.io.sync_files(&mut files).map_err(|(index, error)| {
            self.store.stop(&paths[index]);
            Error::io("sync", &paths[index])(error)
        })
    }
}
