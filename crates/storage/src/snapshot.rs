//! A snapshot: one version of a database, unaffected by later commits.

use std::io::ErrorKind;
use std::ops::Deref;
use std::sync::Arc;

use crate::deletions::DeletionVector;
use crate::error::{Damage, Error, MISSING, Result};
use crate::header::{self, FileKind, Identity};
use crate::log;
use crate::opening::load;
use crate::part::{PartKey, PartReader};
use crate::state::{Part, State, Table};
use crate::store::{Store, deletions_path, part_path};

/// One version of a database, and its files.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) store: Arc<Store>,
    pub(crate) state: Arc<State>,
}

impl Deref for Snapshot {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl Snapshot {
    /// Whether both are the same version, as read once.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Opens a part of a table.
    ///
    /// # Errors
    /// `Damaged` when its file is not what was written.
    pub fn open_part(&self, table: &Table, part: &Part) -> Result<PartReader> {
        let (number, identity) = (table.number, self.identity(table, part.number));
        let is_needed =
            |state: &State| state.table(number).and_then(|table| table.part(part.number)).is_some();
        let reader = PartReader::open(Arc::clone(&self.store), identity, part)
            .map_err(|error| unless_replaced(&self.store, &self.state, is_needed, error))?;
        Ok(reader.in_version(&self.state))
    }

    /// Prefetch hint: all parts of a table will be opened soon.
    pub fn expect_parts(&self, table: &Table) {
        let io = &*self.store.io;
        for part in table.parts() {
            let is_new =
                !self.store.footers.has(PartKey { table: table.number, part: part.number, hash: part.hash });
            if let Some(footer) = part.footer_range().filter(|_| is_new) {
                let path = part_path(table.number, part.number);
                io.expect(part.known(&path), &mut std::iter::once(footer));
            }
            if let Some(deletions) = part.deletions {
                let path = deletions_path(table.number, deletions.number);
                io.expect(deletions.known(&path), &mut std::iter::once(0..deletions.file_bytes));
            }
        }
    }

    /// The deleted rows of a part.
    ///
    /// # Errors
    /// `Damaged` when their file is not what was written.
    pub fn deletions(&self, table: &Table, part: &Part) -> Result<DeletionVector> {
        let Some(deletions) = part.deletions else { return Ok(DeletionVector::default()) };
        let (table_number, number) = (table.number, part.number);
        let path = deletions_path(table_number, deletions.number);
        let whose = |found: Damage| Damage { table: Some(table_number), part: Some(number), ..found };
        let damaged = |reason: String| whose(Damage { path: path.clone(), reason, ..Damage::default() });
        let read = || {
            let io = &*self.store.io;
            let bytes =
                log::read_input(&path, deletions.file_bytes, || io.open_known(deletions.known(&path)))?;
            let (header, payload) = header::open(FileKind::Deletions, &bytes, &path)?;
            header.check_identity(self.identity(table, deletions.number), &path)?;
            if header.hash != deletions.hash {
                return Err(damaged("it is not the file that was committed".to_owned()).into());
            }
            let vector = DeletionVector::read(self.store.level, payload, number, part.row_count)
                .map_err(|malformed| damaged(malformed.to_string()))?;
            match vector.row_count(self.store.level) {
                count if count == deletions.row_count => Ok(vector),
                count => {
                    Err(damaged(format!("{count} rows are deleted, not {}", deletions.row_count)).into())
                }
            }
        };
        read().map_err(|error| match error {
            Error::Damaged(found) => {
                self.store.io.invalidate(deletions.known(&path), 0..deletions.file_bytes);
                whose(*found).into()
            }
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                let is_needed = |state: &State| {
                    let part = state.table(table_number).and_then(|table| table.part(number));
                    part.is_some_and(|part| part.deletions == Some(deletions))
                };
                unless_replaced(&self.store, &self.state, is_needed, damaged(MISSING.to_owned()).into())
            }
            other => other,
        })
    }

    fn identity(&self, table: &Table, number: u64) -> Identity {
        Identity { database: self.state.database, table: table.number, number }
    }
}

/// Turns the error of a missing file into [`Error::Replaced`] if the newest version does not need it: then it was
/// removed because this version is older than the retention.
pub(crate) fn unless_replaced(
    store: &Store,
    version: &State,
    is_needed: impl Fn(&State) -> bool,
    error: Error,
) -> Error {
    let path = match &error {
        Error::Damaged(damage) if damage.reason == MISSING => damage.path.clone(),
        _ => return error,
    };
    let Ok((newest, _)) = load(&*store.io, u64::MAX, false) else { return error };
    let newest = newest.state;
    if newest.version() <= version.version() || is_needed(&newest) {
        return error;
    }
    Error::Replaced { path, version: version.version(), newest: newest.version() }
}
