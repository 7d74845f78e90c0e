//! A database: opened at its newest version, read at any, changed by one transaction after the other.
//!
//! `docs/format/database.md` says which steps make a change durable, and what may be removed when. The
//! invariants: a version that was given out never changes; what a commit refers to was synced before it; after a
//! sync that failed nothing is written any more.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::deletions::DeletionVector;
use crate::error::{Damage, Error, Result};
use crate::header::{self, DatabaseId, FileKind, Identity};
use crate::inserts::Inserts;
use crate::io::{Io, Lock};
use crate::log::{self, Failed, Files, Record};
use crate::marker;
use crate::part::{PartReader, Verify};
use crate::state::{Part, State, Table};
use crate::store::{Store, TABLES, deletions_path, table_path};
use crate::transaction::Transaction;

const LOCK: &str = "LOCK";
/// How often the log is listed again because the writer removed what was listed.
const LISTINGS_MAX: usize = 10;

/// What a database is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, beside one writer and any number of readers.
    Read,
    /// Reading and writing; one process at a time.
    Write,
}

/// How a database is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long files stay that the newest version does not need.
    pub retention: Duration,
    /// Commits between two checkpoints.
    pub checkpoint_every: u64,
    /// When blocks are held against their checksums.
    pub verify: Verify,
}

impl Default for Options {
    fn default() -> Self {
        Self { retention: Duration::from_secs(3600), checkpoint_every: 64, verify: Verify::default() }
    }
}

/// An open database.
#[derive(Debug)]
pub struct Database {
    pub(crate) store: Arc<Store>,
    options: Options,
    current: RwLock<Arc<State>>,
    /// Versions that were given out; their files stay while anyone has them.
    given: Mutex<Vec<Weak<State>>>,
    damage: Mutex<Vec<Damage>>,
    pub(crate) inserts: Inserts,
    /// Unless it was opened for reading.
    writing: Option<Writing>,
}

/// What only the writer has.
#[derive(Debug)]
struct Writing {
    /// Kept until the database is closed.
    _lock: Box<dyn Lock>,
    /// Whether the log can be read to its end.
    log_is_whole: AtomicBool,
    next_number: AtomicU64,
    /// Numbers of files that transactions are making.
    unfinished: Mutex<BTreeSet<u64>>,
    committing: Mutex<Committing>,
    /// Tables whose directory is durable.
    directories: Mutex<BTreeSet<u64>>,
}

/// What is done by one transaction at a time.
#[derive(Debug)]
struct Committing {
    /// The version of the newest checkpoint.
    checkpoint: u64,
}

/// What a panic elsewhere left: every change of ours is done under one lock in one step.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One version of a database, and its files.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Arc<Store>,
    state: Arc<State>,
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

impl Database {
    /// Opens the database behind `io`; with [`Access::Write`] an empty directory becomes one.
    ///
    /// What is damaged does not keep it from opening: see [`Database::damage`].
    ///
    /// # Errors
    /// When it is none, is of a later format, is locked by another writer, or the system refuses.
    pub fn open(io: Arc<dyn Io>, access: Access, options: Options) -> Result<Arc<Self>> {
        let mut damage = Vec::new();
        let lock = match access {
            Access::Read => {
                marker::check(&*io, &mut damage)?;
                None
            }
            Access::Write => {
                marker::check_or_empty(&*io, &mut damage)?;
                let lock = io.lock(LOCK).map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock => Error::Locked,
                    _ => Error::io("lock", LOCK)(error),
                })?;
                marker::create(&*io)?;
                for directory in [log::DIRECTORY, TABLES] {
                    io.create_directory(directory).map_err(Error::io("create", directory))?;
                }
                // What another process left in the cache alone is durable before anything is built on it.
                for directory in ["", log::DIRECTORY, TABLES] {
                    io.sync_directory(directory).map_err(Error::io("sync", directory))?;
                }
                Some(lock)
            }
        };
        let (loaded, files) = load(&*io, u64::MAX)?;
        damage.extend(loaded.damage);
        let mut state = loaded.state;
        let writing = match lock {
            None => None,
            Some(lock) => {
                if state.version == 0 {
                    state.database = new_id(&*io);
                }
                for path in &files.unfinished {
                    // If it cannot be removed, it is in nobody's way.
                    io.remove(path).unwrap_or_default();
                }
                Some(Writing {
                    _lock: lock,
                    log_is_whole: AtomicBool::new(loaded.is_whole),
                    next_number: AtomicU64::new(free_number(&*io)?.max(state.next_number)),
                    unfinished: Mutex::default(),
                    committing: Mutex::new(Committing { checkpoint: loaded.checkpoint }),
                    directories: Mutex::default(),
                })
            }
        };
        let store = Arc::new(Store::new(io, options.verify));
        let (current, damage) = (RwLock::new(Arc::new(state)), Mutex::new(damage));
        let (given, inserts) = (Mutex::default(), Inserts::default());
        let database = Arc::new(Self { store, options, current, given, damage, inserts, writing });
        if database.writing.as_ref().is_some_and(|writing| writing.log_is_whole.load(Ordering::Acquire)) {
            // What cannot be removed now, can be the next time.
            database.remove_old_files().unwrap_or_default();
        }
        Ok(database)
    }

    /// The newest version that this process knows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.give(self.current())
    }

    fn give(&self, state: Arc<State>) -> Snapshot {
        let mut given = locked(&self.given);
        let is_new = given.last().is_none_or(|last| !std::ptr::eq(last.as_ptr(), &*state));
        if is_new {
            given.retain(|version| version.strong_count() > 0);
            given.push(Arc::downgrade(&state));
        }
        Snapshot { store: Arc::clone(&self.store), state }
    }

    /// Versions that someone in this process still reads.
    pub(crate) fn given(&self) -> Vec<Arc<State>> {
        locked(&self.given).iter().filter_map(Weak::upgrade).collect()
    }

    /// Looks for newer versions that another process has written.
    ///
    /// # Errors
    /// When the log cannot be listed or is of a later format.
    pub fn refresh(&self) -> Result<()> {
        let (io, before) = (&*self.store.io, self.current());
        let files = Files::list(io)?;
        if self.writing.is_some() || files.newest() <= before.version {
            return Ok(());
        }
        let mut state = (*before).clone();
        while files.commits.contains(&(state.version + 1)) {
            match log::next(io, &state) {
                Ok(next) => state = next,
                Err(Error::Newer { path, found, known }) => return Err(Error::Newer { path, found, known }),
                // Removed meanwhile, or damaged: a checkpoint may help.
                Err(_) => break,
            }
        }
        if state.version < files.newest() {
            let (loaded, _) = load(io, u64::MAX)?;
            loaded.damage.into_iter().for_each(|damage| self.report(damage));
            if loaded.state.version > state.version {
                state = loaded.state;
            }
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if state.version > current.version {
            *current = Arc::new(state);
        }
        Ok(())
    }

    /// An older version.
    ///
    /// # Errors
    /// `NoVersion` when it is out of the retention, or not there yet.
    pub fn as_of_version(&self, version: u64) -> Result<Snapshot> {
        let (io, newest) = (&*self.store.io, self.current());
        let limit = io.now().saturating_sub(self.options.retention);
        let is_known = version <= newest.version;
        let is_retained =
            is_known && (version == newest.version || is_after(log::time(io, version + 1)?, limit));
        if is_retained {
            let (loaded, _) = load(io, version)?;
            if loaded.state.version == version {
                return Ok(self.give(Arc::new(loaded.state)));
            }
        }
        let oldest = self.oldest_needed(&newest, limit)?;
        Err(Error::NoVersion { version, oldest, newest: newest.version })
    }

    /// The version that was the newest at a time, in microseconds since 1970.
    ///
    /// # Errors
    /// `NoVersion` when it is out of the retention.
    pub fn as_of_time(&self, time: i64) -> Result<Snapshot> {
        let newest = self.current();
        let mut version = newest.version;
        while version > 0 && log::time(&*self.store.io, version)? > time {
            version -= 1;
        }
        self.as_of_version(version)
    }

    /// What was found to be damaged since the database was opened.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.damage).clone()
    }

    /// Adds damage to what [`Database::damage`] says, for who found it while reading.
    pub fn report(&self, found: Damage) {
        let mut damage = locked(&self.damage);
        if !damage.contains(&found) {
            damage.push(found);
        }
    }

    /// Reads all of the newest version and reports what is damaged.
    pub fn check(&self) -> Vec<Damage> {
        let snapshot = self.snapshot();
        let mut found = Vec::new();
        for table in snapshot.tables() {
            for part in table.parts() {
                self.check_part(&snapshot, table, part, &mut found);
            }
        }
        found.iter().for_each(|damage| self.report(damage.clone()));
        found
    }

    fn check_part(&self, snapshot: &Snapshot, table: &Table, part: &Part, found: &mut Vec<Damage>) {
        let mut report = |error: Error| {
            found.push(match error {
                Error::Damaged(damage) => *damage,
                other => Damage {
                    path: crate::store::part_path(table.number, part.number),
                    table: Some(table.number),
                    part: Some(part.number),
                    reason: other.to_string(),
                    ..Damage::default()
                },
            });
        };
        let deletions = snapshot.deletions(table, part).map_err(&mut report);
        match snapshot.open_part(table, part) {
            Err(error) => report(error),
            Ok(reader) => {
                let reader = reader.verifying();
                if let Ok(deletions) = deletions {
                    reader.check_deletions(&deletions).unwrap_or_else(&mut report);
                }
                for column in 0..reader.fields().len() {
                    for stripe in 0..reader.stripe_count() {
                        if let Err(error) = reader.read(column, stripe, keirin_kernels::Selection::All) {
                            report(error);
                        }
                    }
                }
            }
        }
    }

    /// Begins a transaction on the newest version.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub fn begin(self: &Arc<Self>) -> Result<Transaction> {
        self.writing()?;
        Ok(Transaction::new(Arc::clone(self), self.snapshot()))
    }

    fn current(&self) -> Arc<State> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What writing takes, unless something speaks against it.
    fn writing(&self) -> Result<&Writing> {
        self.store.check()?;
        let writing = self.writing.as_ref().ok_or(Error::ReadOnly)?;
        if writing.log_is_whole.load(Ordering::Acquire) {
            Ok(writing)
        } else {
            Err(Error::LogDamaged { version: self.current().version })
        }
    }

    /// Runs what sets aside all that cannot be read of the log; then it is whole.
    pub(crate) fn log_is_repaired(&self, repair: impl FnOnce() -> Result<()>) -> Result<()> {
        let writing = self.writing.as_ref().ok_or(Error::ReadOnly)?;
        let _committing = locked(&writing.committing);
        repair()?;
        writing.log_is_whole.store(true, Ordering::Release);
        locked(&self.damage).retain(|damage| !damage.path.starts_with(log::DIRECTORY));
        Ok(())
    }

    /// A number that nothing has, for a file or a table that a transaction makes.
    pub(crate) fn new_number(&self) -> Result<u64> {
        let writing = self.writing()?;
        let mut unfinished = locked(&writing.unfinished);
        let number = writing.next_number.fetch_add(1, Ordering::Relaxed);
        unfinished.insert(number);
        Ok(number)
    }

    /// Says that a transaction is over, and the files it made are committed or nobody's.
    pub(crate) fn forget_numbers(&self, numbers: &BTreeSet<u64>) {
        if let Some(writing) = &self.writing {
            let mut unfinished = locked(&writing.unfinished);
            numbers.iter().for_each(|number| _ = unfinished.remove(number));
        }
    }

    /// Makes the directory of a table, durably.
    pub(crate) fn make_directory(&self, table: u64) -> Result<()> {
        let mut directories = locked(&self.writing()?.directories);
        if !directories.contains(&table) {
            let path = table_path(table);
            self.store.io.create_directory(&path).map_err(Error::io("create", &path))?;
            self.store.sync_directory(TABLES)?;
            directories.insert(table);
        }
        Ok(())
    }

    /// Runs something for which versions and files of transactions must stay as they are: it gets the newest
    /// version, the retention, and the numbers of files that transactions are making.
    pub(crate) fn without_commits<T>(
        &self,
        run: impl FnOnce(&State, Duration, &BTreeSet<u64>) -> Result<T>,
    ) -> Result<T> {
        let writing = self.writing()?;
        let _committing = locked(&writing.committing);
        let unfinished = locked(&writing.unfinished);
        run(&self.current(), self.options.retention, &unfinished)
    }

    /// Makes a version durable that `next` makes of the newest, with the actions that lead to it.
    pub(crate) fn commit(
        &self,
        directories: &BTreeSet<u64>,
        next: impl FnOnce(&State) -> Result<(State, Vec<crate::state::Action>)>,
    ) -> std::result::Result<u64, Failed> {
        let writing = self.writing().map_err(Failed::Before)?;
        let mut committing = locked(&writing.committing);
        // Another may have failed while this one waited.
        self.store.check().map_err(Failed::Before)?;
        let before = self.current();
        let (mut state, actions) = next(&before).map_err(Failed::Before)?;
        if actions.is_empty() {
            return Ok(before.version);
        }
        for table in directories {
            self.store.sync_directory(&table_path(*table)).map_err(Failed::Before)?;
        }
        state.version = before.version + 1;
        let now = i64::try_from(self.store.io.now().as_micros()).unwrap_or(i64::MAX);
        state.time = now.max(before.time);
        state.next_number = writing.next_number.load(Ordering::Relaxed);
        let record =
            Record { previous: before.hash, time: state.time, next_number: state.next_number, actions };
        state.hash = self.write_log(FileKind::Commit, &state, &record)?;
        let state = Arc::new(state);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&state);
        if state.version >= committing.checkpoint + self.options.checkpoint_every {
            // The commit is durable whatever becomes of this; a failed sync stops what comes next.
            if self.write_checkpoint(&state).is_ok() {
                committing.checkpoint = state.version;
            }
        }
        Ok(state.version)
    }

    /// Writes a checkpoint of the newest version, so that opening need not read the commits up to it.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub fn checkpoint(&self) -> Result<()> {
        let writing = self.writing()?;
        let mut committing = locked(&writing.committing);
        self.store.check()?;
        let state = self.current();
        if state.version > committing.checkpoint {
            self.write_checkpoint(&state)?;
            committing.checkpoint = state.version;
        }
        Ok(())
    }

    fn write_checkpoint(&self, state: &State) -> std::result::Result<u64, Failed> {
        let (previous, time, next_number) = (state.hash, state.time, state.next_number);
        let record = Record { previous, time, next_number, actions: state.actions() };
        self.write_log(FileKind::Checkpoint, state, &record)
    }

    fn write_log(&self, kind: FileKind, state: &State, record: &Record) -> std::result::Result<u64, Failed> {
        let written = log::write(&self.store, kind, state.database, state.version, record);
        written.inspect_err(|failed| {
            if let Failed::Unknown(_) = failed {
                self.store.stop(&log::path(kind, state.version));
            }
        })
    }
}

/// Reads a version, or the newest below it; lists the log again when what was listed is gone.
fn load(io: &dyn Io, version: u64) -> Result<(log::Loaded, Files)> {
    let mut listings = 0;
    loop {
        let files = Files::list(io)?;
        listings += 1;
        match log::load(io, &files, version) {
            Err(Error::Io { source, .. })
                if source.kind() == ErrorKind::NotFound && listings < LISTINGS_MAX => {}
            loaded => return Ok((loaded?, files)),
        }
    }
}

/// Whether a time of the log is not before one of the clock.
pub(crate) fn is_after(time: i64, limit: Duration) -> bool {
    time >= i64::try_from(limit.as_micros()).unwrap_or(i64::MAX)
}

fn new_id(io: &dyn Io) -> DatabaseId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&io.random().to_le_bytes());
    id[8..].copy_from_slice(&io.random().to_le_bytes());
    id
}

/// A number above those of all files in `tables`, whosever they are.
fn free_number(io: &dyn Io) -> Result<u64> {
    let mut free = 1;
    for table in io.list(TABLES).map_err(Error::io("list", TABLES))? {
        let Ok(number) = table.name.parse::<u64>() else { continue };
        free = free.max(number.saturating_add(1));
        let path = table_path(number);
        for file in io.list(&path).map_err(Error::io("list", &path))? {
            let digits = file.name.split('.').next().unwrap_or_default();
            free = free.max(digits.parse::<u64>().unwrap_or(0).saturating_add(1));
        }
    }
    Ok(free)
}
