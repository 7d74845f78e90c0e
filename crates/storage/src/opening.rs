//! Opening a database, and creating one in an empty directory.
//!
//! Opening reads a checkpoint and the commits after it; a writer also lists the names in `tables`, and writes a
//! checkpoint if the last writer did not end well. Only a writer's unfinished files are removed: files that look
//! like orphans may be all that is left of something.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::database::{Access, Database, LOCK, Options, WRITING, Writing};
use crate::error::{Damage, Error, Result};
use crate::header::DatabaseId;
use crate::io::{Io, Lock};
use crate::log::{self, Files};
use crate::marker::{self, Marker};
use crate::races;
use crate::removal;
use crate::store::{Store, TABLES, make_directory, number_of};

/// How often the log is listed again because the writer removed listed files.
const LISTINGS_MAX: usize = 10;

impl Database {
    /// Opens the database behind `io`; with [`Access::Write`] an empty directory becomes one.
    ///
    /// Damage does not keep it from opening: see [`Database::damage`].
    ///
    /// # Errors
    /// When it is not a database, is of a later format, is locked by another writer, or the system refuses.
    pub fn open(io: Arc<dyn Io>, access: Access, options: Options) -> Result<Arc<Self>> {
        let mut damage = Vec::new();
        let mut marker = marker::read(&*io, &mut damage)?;
        let lock = match access {
            Access::Read if marker == Marker::Empty => return Err(Error::NotADatabase),
            Access::Read => None,
            Access::Write => Some(prepare(&*io, &mut marker, &mut damage)?),
        };
        let (loaded, files) = load(&*io, u64::MAX, access == Access::Read)?;
        damage.extend(loaded.damage);
        let (mut state, mut log_is_whole) = (loaded.state, loaded.is_whole);
        let tables =
            if access == Access::Write || files.is_lost() { Tables::list(&*io)? } else { Tables::default() };
        let mut is_behind = !loaded.is_whole;
        let mut not_whole = |path: &str, reason: &str| {
            damage.push(Damage { path: path.to_owned(), reason: reason.to_owned(), ..Damage::default() });
            log_is_whole = false;
        };
        if files.is_lost() && tables.have_files {
            not_whole(log::DIRECTORY, "it is empty, but there are parts");
            is_behind = true;
        }
        match marker {
            _ if state.database == DatabaseId::default() => {
                state.database = if let Marker::Id(id) = marker { id } else { new_id(&*io) };
            }
            Marker::Id(id) if id != state.database => not_whole(marker::PATH, "it is that of another log"),
            _ => {}
        }
        let store = Store::new(io, options);
        races::load(&*store.io, &store.races);
        let mut writing = None;
        if let Some(lock) = lock {
            for path in &files.unfinished {
                // An unfinished file that cannot be removed does no harm.
                store.io.remove(path).unwrap_or_default();
            }
            if files.is_lost() && log_is_whole {
                // The marker cannot be read, so the id is new; a log with it would not match the marker once that
                // can be read again.
                let unread = damage.iter().position(|found| found.path == marker::PATH);
                if let Some(unread) = unread {
                    return Err(damage.swap_remove(unread).into());
                }
                log::begin(&store, state.database)?;
            }
            let is_durable = match store.io.open(WRITING) {
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                there => there.map(|_| false).map_err(Error::io("open", WRITING))?,
            };
            let next_number = tables.free_number.max(state.next_number).max(1);
            writing = Some(Writing::new(lock, log_is_whole, next_number, loaded.checkpoint, is_durable));
        }
        let database = Self::new(store, options, state, damage, writing);
        database.set_is_behind(is_behind);
        database.sync_newest()?;
        Ok(database)
    }
}

/// Locks the directory for writing, creates a database if it is empty, and makes its names durable.
fn prepare(io: &dyn Io, marker: &mut Marker, damage: &mut Vec<Damage>) -> Result<Box<dyn Lock>> {
    let lock = io.lock(LOCK).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Error::Locked,
        _ => Error::io("lock", LOCK)(error),
    })?;
    if *marker == Marker::Empty {
        // Another process may have created the database before we had the lock.
        *marker = marker::read(io, damage)?;
    }
    if *marker == Marker::Empty {
        let id = new_id(io);
        marker::create(io, id)?;
        *marker = Marker::Id(id);
    }
    for directory in [log::DIRECTORY, TABLES] {
        make_directory(io, directory)?;
    }
    // Names that another process left in the system's cache only become durable before anything is built on them.
    for directory in ["", log::DIRECTORY, TABLES] {
        io.sync_directory(directory).map_err(Error::io("sync", directory))?;
    }
    Ok(lock)
}

/// Reads a version, or the newest readable one below it; lists the log again if listed files are gone. With
/// `is_synced` the log is synced first, so that a reader sees only durable versions.
pub(crate) fn load(io: &dyn Io, version: u64, is_synced: bool) -> Result<(log::Loaded, Files)> {
    let mut listings = 0;
    loop {
        let files = Files::list(io)?;
        if is_synced {
            log::sync(io)?;
        }
        listings += 1;
        match log::load(io, &files, version) {
            Err(error) if log::is_gone(&error) && listings < LISTINGS_MAX => {}
            loaded => return Ok((loaded?, files)),
        }
    }
}

fn new_id(io: &dyn Io) -> DatabaseId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&io.random().to_le_bytes());
    id[8..].copy_from_slice(&io.random().to_le_bytes());
    id
}

/// What the names in `tables` tell.
#[derive(Debug, Default)]
struct Tables {
    /// A number above those of all tables and files, orphans included.
    free_number: u64,
    have_files: bool,
}

impl Tables {
    fn list(io: &dyn Io) -> Result<Self> {
        let mut found = Self::default();
        removal::for_each_file(io, |table, file| {
            found.free_number = found.free_number.max(table + 1);
            if let Some(file) = file {
                found.have_files = true;
                found.free_number = found.free_number.max(number_of(&file).map_or(0, |number| number + 1));
            }
        })?;
        Ok(found)
    }
}
