//! The file of a part that is read: opened when it is needed, and named in errors.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::super::cache::PartKey;
use crate::error::{Damage, Error, MISSING, Result};
use crate::header::Identity;
use crate::io::{Input, KnownFile, is_shortage};
use crate::snapshot::unless_replaced;
use crate::state::{Part, State};
use crate::store::{Store, part_path};

/// Counts as a reader of the part in the store's open files until it is dropped.
#[derive(Debug)]
pub(super) struct PartFile {
    pub(super) store: Arc<Store>,
    pub(super) path: String,
    pub(super) identity: Identity,
    pub(super) key: PartKey,
    /// The version that the part is read in: holding it keeps the file, which may have to be opened again.
    pub(super) version: Option<Arc<State>>,
    byte_count: u64,
}

impl PartFile {
    pub(super) fn new(store: Arc<Store>, identity: Identity, part: &Part) -> Self {
        let key = PartKey { table: identity.table, part: identity.number, hash: part.hash };
        store.open_files.begin(key);
        let path = part_path(identity.table, identity.number);
        Self { store, path, identity, key, version: None, byte_count: part.file_bytes }
    }

    pub(super) fn known(&self) -> KnownFile<'_> {
        KnownFile { path: &self.path, byte_count: self.byte_count, hash: self.key.hash }
    }

    /// The file, opened if need be.
    pub(super) fn input(&self) -> Result<Arc<dyn Input>> {
        self.open().map_err(|error| match &self.version {
            Some(version) => {
                let Identity { table, number, .. } = self.identity;
                let is_needed =
                    |state: &State| state.table(table).and_then(|table| table.part(number)).is_some();
                unless_replaced(&self.store, version, is_needed, error)
            }
            None => error,
        })
    }

    fn open(&self) -> Result<Arc<dyn Input>> {
        let input = self.store.open_files.get(self.key, || self.store.io.open_known(self.known()));
        let input = input.map_err(|error| self.unreadable(error))?;
        if input.byte_count() != self.byte_count {
            let reason = format!("it has {} bytes, not {}", input.byte_count(), self.byte_count);
            return Err(self.damage(reason).into());
        }
        Ok(input)
    }

    /// Damage of the part as a whole.
    pub(super) fn damage(&self, reason: String) -> Damage {
        let (table, part) = (Some(self.identity.table), Some(self.identity.number));
        Damage { path: self.path.clone(), table, part, reason, ..Damage::default() }
    }

    /// The error for a file that cannot be opened or read.
    pub(super) fn unreadable(&self, error: io::Error) -> Error {
        if is_shortage(&error) {
            return Error::io("read", &self.path)(error);
        }
        let reason = match error.kind() {
            ErrorKind::NotFound => MISSING.to_owned(),
            _ => format!("it cannot be read: {error}"),
        };
        self.damage(reason).into()
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        self.store.open_files.end(self.key);
    }
}
