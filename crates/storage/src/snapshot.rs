//! One version of a database to read from, whatever becomes of the newest.

use std::ops::Deref;
use std::sync::Arc;

use crate::deletions::DeletionVector;
use crate::error::{Damage, Error, Result};
use crate::header::{self, FileKind, Identity};
use crate::log;
use crate::part::PartReader;
use crate::state::{Part, State, Table};
use crate::store::{Store, deletions_path};

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
    /// Opens a part of a table.
    ///
    /// # Errors
    /// `Damaged` when its file is not what was written.
    pub fn open_part(&self, table: &Table, part: &Part) -> Result<PartReader> {
        PartReader::open(Arc::clone(&self.store), self.identity(table, part.number), part)
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
            let bytes = log::read_file(&*self.store.io, &path)?;
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
            Error::Damaged(found) => whose(*found).into(),
            Error::Io { source, .. } => damaged(format!("it cannot be read: {source}")).into(),
            other => other,
        })
    }

    fn identity(&self, table: &Table, number: u64) -> Identity {
        Identity { database: self.state.database, table: table.number, number }
    }
}
