//! A database: opened at its newest version, readable at any retained version, changed by one transaction at a
//! time.
//!
//! `docs/format/database.md` says which steps make a change durable, and when files may be removed. The invariants:
//! a version never changes once a reader has it; what a commit refers to was synced before it; after a failed sync
//! nothing is written any more.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use keirin_race::Races;

use crate::error::{Damage, Error, Result};
use crate::header::FileKind;
use crate::inserts::Inserts;
use crate::io::Lock;
use crate::log::{self, Failed, Files, Record};
use crate::maintenance::Compacting;
use crate::marker;
use crate::opening::load;
use crate::part::{Verify, default_open_files_max};
use crate::races;
use crate::removal::{self, Obsolete};
use crate::snapshot::Snapshot;
use crate::state::{Action, State, Table};
use crate::store::{Store, TABLES, make_directory, table_path};
use crate::transaction::Transaction;

/// Locked by the process that writes.
pub(crate) const LOCK: &str = "LOCK";
/// Exists while a process writes, and after a writer crashed.
pub(crate) const WRITING: &str = "WRITING";
/// A commit writes the checkpoint itself when maintenance is late by this many intervals.
const CHECKPOINT_DELAY_MAX: u64 = 4;
/// If the newest version is this many microseconds in the future, its clock was wrong.
const CLOCK_DIFFERENCE_MAX: i64 = 24 * 3600 * 1_000_000;

/// What a database is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, beside one writer and any number of readers.
    Read,
    /// Reading and writing; one process at a time.
    Write,
}

/// Options of an open database.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The least count of commits between two checkpoints; there are more where a checkpoint is large.
    pub checkpoint_every: u64,
    /// When the checksums of blocks are verified.
    pub verify: Verify,
    /// The most files of parts that are open at the same time. Beyond that, the least recently read one is closed,
    /// and opened again when needed; by default half of the process's limit.
    pub open_files_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { checkpoint_every: 64, verify: Verify::default(), open_files_max: default_open_files_max() }
    }
}

/// An open database.
#[derive(Debug)]
pub struct Database {
    pub(crate) store: Arc<Store>,
    pub(crate) options: Options,
    current: RwLock<Arc<State>>,
    /// Versions that snapshots hold; their files are not removed meanwhile.
    pinned: Mutex<Vec<Weak<State>>>,
    pub(crate) damage: Mutex<Vec<Damage>>,
    /// Whether the log has versions after the newest readable one.
    is_behind: AtomicBool,
    pub(crate) inserts: Inserts,
    /// `None` if the database was opened for reading.
    pub(crate) writing: Option<Writing>,
}

/// The state that only a writer has.
#[derive(Debug)]
pub(crate) struct Writing {
    /// The lock on [`LOCK`], held until the database is closed.
    lock: Box<dyn Lock>,
    /// Whether the log can be read to its end.
    log_is_whole: AtomicBool,
    /// The number of the first file that this process may have made.
    pub(crate) first_number: u64,
    next_number: AtomicU64,
    /// Numbers of files that transactions are making.
    pub(crate) unfinished: Mutex<BTreeSet<u64>>,
    pub(crate) committing: Mutex<Committing>,
    /// Tables whose directory is durable.
    directories: Mutex<BTreeSet<u64>>,
    pub(crate) obsolete: Mutex<Obsolete>,
    pub(crate) compacting: Mutex<Compacting>,
    /// Signalled when a merge of parts has ended.
    pub(crate) compacted: Condvar,
    /// Held while files are removed.
    pub(crate) removing: Mutex<()>,
    /// For each transaction that rewrites rows of a table, the table as it was when it began.
    rewriting: Mutex<Vec<Arc<Table>>>,
}

impl Writing {
    /// The state of a process that has not written yet. `is_durable` says whether the previous writer ended well.
    pub(crate) fn new(
        lock: Box<dyn Lock>,
        log_is_whole: bool,
        next_number: u64,
        checkpoint: u64,
        is_durable: bool,
    ) -> Self {
        Self {
            lock,
            log_is_whole: AtomicBool::new(log_is_whole),
            first_number: next_number,
            next_number: AtomicU64::new(next_number),
            unfinished: Mutex::default(),
            committing: Mutex::new(Committing { checkpoint, is_durable, is_marked: !is_durable }),
            directories: Mutex::default(),
            obsolete: Mutex::default(),
            compacting: Mutex::default(),
            compacted: Condvar::default(),
            removing: Mutex::default(),
            rewriting: Mutex::default(),
        }
    }
}

/// The state of the commit, which one transaction at a time holds.
#[derive(Debug)]
pub(crate) struct Committing {
    /// The version of the newest checkpoint.
    pub(crate) checkpoint: u64,
    /// Whether the newest version is certainly on disk: one that another process wrote may be in the system's cache
    /// only, if a sync failed.
    is_durable: bool,
    /// Whether the file [`WRITING`] exists.
    is_marked: bool,
}

/// Locks a mutex, poisoned or not: every change is one step under one lock, so a panic leaves none half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    pub(crate) fn new(
        store: Store,
        options: Options,
        state: State,
        damage: Vec<Damage>,
        writing: Option<Writing>,
    ) -> Arc<Self> {
        let (store, current, damage) = (Arc::new(store), RwLock::new(Arc::new(state)), Mutex::new(damage));
        let (pinned, inserts, is_behind) = (Mutex::default(), Inserts::default(), AtomicBool::default());
        Arc::new(Self { store, options, current, pinned, damage, is_behind, inserts, writing })
    }

    /// The newest version that this process knows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // Locked before the newest version is read: removal reads the newest version first and the held versions
        // after it.
        let pinned = locked(&self.pinned);
        self.add_pinned(pinned, self.current())
    }

    pub(crate) fn pin(&self, state: Arc<State>) -> Snapshot {
        self.add_pinned(locked(&self.pinned), state)
    }

    fn add_pinned(&self, mut pinned: MutexGuard<'_, Vec<Weak<State>>>, state: Arc<State>) -> Snapshot {
        let is_new = pinned.last().is_none_or(|last| !std::ptr::eq(last.as_ptr(), &*state));
        if is_new {
            pinned.retain(|version| version.strong_count() > 0);
            pinned.push(Arc::downgrade(&state));
        }
        Snapshot { store: Arc::clone(&self.store), state }
    }

    /// Versions that snapshots of this process hold.
    pub(crate) fn pinned(&self) -> Vec<Arc<State>> {
        locked(&self.pinned).iter().filter_map(Weak::upgrade).collect()
    }

    /// The races that find the fastest loops; others that decode the same formats may share them.
    #[must_use]
    pub fn races(&self) -> &Arc<Races> {
        &self.store.races
    }

    /// When the checksums of blocks are verified.
    #[must_use]
    pub fn verify(&self) -> Verify {
        self.store.verify()
    }

    /// Sets when checksums are verified, for parts that are opened from now on.
    pub fn set_verify(&self, verify: Verify) {
        self.store.set_verify(verify);
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
        log::sync(io)?;
        let mut state = (*before).clone();
        let commits = state.version + 1..=files.newest();
        io.fetch(&mut commits.map(|version| log::path(FileKind::Commit, version)));
        let outcome = (state.version..files.newest()).try_for_each(|_| log::advance(io, &mut state));
        if let Err(error) = outcome {
            if let Error::Newer { .. } = error {
                return Err(error);
            }
            // The commit was removed meanwhile or is damaged: a checkpoint may help.
            let (loaded, _) = load(io, files.newest(), true)?;
            loaded.damage.into_iter().for_each(|damage| self.report(damage));
            self.set_is_behind(!loaded.is_whole);
            state = loaded.state;
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if state.version > current.version {
            *current = Arc::new(state);
        }
        Ok(())
    }

    /// Whether the latest commits cannot be read and so are missing from snapshots; [`Database::damage`] says why.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    pub(crate) fn set_is_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Release);
    }

    /// Begins a transaction on the newest version.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub fn begin(self: &Arc<Self>) -> Result<Transaction> {
        self.writing()?;
        Ok(Transaction::new(Arc::clone(self), self.snapshot(), None))
    }

    /// Begins a transaction that will delete or replace existing rows of a table: until it ends, compaction leaves
    /// the present parts of the table alone, so that the two do not conflict.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub fn begin_rewriting(self: &Arc<Self>, table: u64) -> Result<Transaction> {
        let writing = self.writing()?;
        // A commit checks `rewriting` and relies on it under this lock.
        let _committing = locked(&writing.committing);
        let base = self.snapshot();
        let table = base.table(table).cloned();
        locked(&writing.rewriting).extend(table.clone());
        Ok(Transaction::new(Arc::clone(self), base, table))
    }

    pub(crate) fn ends_rewriting(&self, table: &Arc<Table>) {
        let Some(writing) = &self.writing else { return };
        let mut rewriting = locked(&writing.rewriting);
        if let Some(place) = rewriting.iter().position(|other| Arc::ptr_eq(other, table)) {
            rewriting.swap_remove(place);
        }
    }

    /// The table as it was when each running transaction that rewrites its rows began.
    pub(crate) fn rewritten(&self, table: u64) -> Vec<Arc<Table>> {
        let Some(writing) = &self.writing else { return Vec::new() };
        locked(&writing.rewriting).iter().filter(|other| other.number == table).cloned().collect()
    }

    pub(crate) fn current(&self) -> Arc<State> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The writer's state; fails if the database cannot be written to.
    pub(crate) fn writing(&self) -> Result<&Writing> {
        self.store.check()?;
        let writing = self.writing.as_ref().ok_or(Error::ReadOnly)?;
        if writing.log_is_whole.load(Ordering::Acquire) {
            Ok(writing)
        } else {
            Err(Error::LogDamaged { version: self.current().version })
        }
    }

    /// Fails and stops all writing if the lock no longer keeps other writers out.
    pub(crate) fn check_lock(&self) -> Result<()> {
        let writing = self.writing.as_ref().ok_or(Error::ReadOnly)?;
        match writing.lock.is_held() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.store.stop_beside_another(LOCK)),
            Err(error) => Err(Error::io("look at", LOCK)(error)),
        }
    }

    /// Fails and stops all writing if files of a transaction are gone: another writer took them for orphans.
    pub(crate) fn check_files(&self, mut paths: Vec<String>) -> Result<()> {
        let are_there = self.store.io.are_there(&paths).map_err(Error::io("look for", TABLES))?;
        match are_there.iter().position(|is_there| !is_there) {
            Some(gone) => Err(self.store.stop_beside_another(&paths.swap_remove(gone))),
            None => Ok(()),
        }
    }

    /// Fails and stops all writing if the log has versions that this process did not write, whose files it would
    /// take for orphans.
    pub(crate) fn check_is_newest(&self, files: &Files) -> Result<()> {
        self.check_lock()?;
        // Under the lock no commit of this process is between its publishing and its becoming the newest version.
        let _committing = locked(&self.writing()?.committing);
        match files.newest() {
            newest if newest <= self.current().version => Ok(()),
            newest => Err(self.store.stop_beside_another(&log::path(FileKind::Commit, newest))),
        }
    }

    /// Runs `repair`, which sets aside the unreadable files of the log and is told whether the log is whole;
    /// afterwards the log counts as whole.
    pub(crate) fn repair_under_lock(&self, repair: impl FnOnce(bool) -> Result<()>) -> Result<()> {
        let writing = self.writing.as_ref().ok_or(Error::ReadOnly)?;
        let _committing = locked(&writing.committing);
        self.store.check()?;
        self.check_lock()?;
        repair(writing.log_is_whole.load(Ordering::Acquire))?;
        writing.log_is_whole.store(true, Ordering::Release);
        self.set_is_behind(false);
        let is_set_aside = |path: &str| path.starts_with(log::DIRECTORY) || path == marker::PATH;
        locked(&self.damage).retain(|damage| !is_set_aside(&damage.path));
        Ok(())
    }

    /// An unused number for a file or a table that a transaction makes.
    pub(crate) fn new_number(&self) -> Result<u64> {
        let writing = self.writing()?;
        let mut unfinished = locked(&writing.unfinished);
        let number = writing
            .next_number
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_add(1))
            .map_err(|_| {
                Error::Invalid("the database has no more numbers for tables and files".to_owned())
            })?;
        unfinished.insert(number);
        Ok(number)
    }

    /// Called at the end of a transaction: files with these numbers are now committed or orphans.
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
            make_directory(&*self.store.io, &table_path(table))?;
            self.store.sync_directory(TABLES)?;
            directories.insert(table);
        }
        Ok(())
    }

    /// Removes the directory of a table that does not exist, if it is empty.
    pub(crate) fn remove_unused_directory(&self, table: u64) {
        let Some(writing) = &self.writing else { return };
        let mut directories = locked(&writing.directories);
        if self.current().table(table).is_none() && self.store.io.remove_directory(&table_path(table)).is_ok()
        {
            directories.remove(&table);
        }
    }

    /// Commits: `next` makes the new version from the newest, with the actions that lead to it.
    pub(crate) fn commit(
        &self,
        directories: &BTreeSet<u64>,
        next: impl FnOnce(&State) -> Result<(State, Vec<Action>)>,
    ) -> std::result::Result<u64, Failed> {
        let writing = self.writing().map_err(Failed::Before)?;
        let mut committing = locked(&writing.committing);
        // Another commit may have failed while this one waited for the lock.
        self.store.check().map_err(Failed::Before)?;
        self.check_lock().map_err(Failed::Before)?;
        let before = self.current();
        let (mut state, actions) = next(&before).map_err(Failed::Before)?;
        if actions.is_empty() {
            return Ok(before.version);
        }
        for table in directories {
            self.store.sync_directory(&table_path(*table)).map_err(Failed::Before)?;
        }
        self.prepare_log(&mut committing, &before)?;
        state.version = before.version + 1;
        let now = micros(self.store.io.now());
        let clock_was_wrong = before.time > now.saturating_add(CLOCK_DIFFERENCE_MAX);
        state.time = if clock_was_wrong { now } else { now.max(before.time) };
        state.next_number = writing.next_number.load(Ordering::Relaxed);
        let replaced = removal::replaced_files(&before, &actions);
        let record =
            Record { previous: before.hash, time: state.time, next_number: state.next_number, actions };
        state.hash = self.write_log(FileKind::Commit, &state, &record)?;
        let state = Arc::new(state);
        locked(&writing.obsolete).add(state.version, state.time, replaced);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&state);
        let delay = self.commits_between_checkpoints(&state).saturating_mul(CHECKPOINT_DELAY_MAX);
        if state.version >= committing.checkpoint.saturating_add(delay) {
            // The commit is durable even if the checkpoint fails; a failed sync stops later commits.
            if self.write_checkpoint(&state).is_ok() {
                committing.checkpoint = state.version;
            }
        }
        Ok(state.version)
    }

    /// Makes durable what the previous writer may have left in the system's cache only: readers must not see what a
    /// power cut would take back.
    pub(crate) fn sync_newest(&self) -> Result<()> {
        match &self.writing {
            Some(writing) if writing.log_is_whole.load(Ordering::Acquire) => {
                Ok(self.make_durable(&mut locked(&writing.committing), &self.current())?)
            }
            _ => Ok(()),
        }
    }

    fn make_durable(&self, committing: &mut Committing, newest: &State) -> std::result::Result<(), Failed> {
        if !committing.is_durable {
            self.write_checkpoint(newest)?;
            (committing.checkpoint, committing.is_durable) = (newest.version, true);
        }
        Ok(())
    }

    /// Makes the base of the next commit durable, and marks that this process writes, so that the next one knows if
    /// it crashes.
    fn prepare_log(&self, committing: &mut Committing, newest: &State) -> std::result::Result<(), Failed> {
        self.make_durable(committing, newest)?;
        if !committing.is_marked {
            self.store.create(WRITING).map_err(Failed::Before)?;
            committing.is_marked = true;
        }
        Ok(())
    }

    /// Writes a checkpoint of the newest version, so that opening need not read the commits before it.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub fn checkpoint(&self) -> Result<()> {
        let writing = self.writing()?;
        let mut committing = locked(&writing.committing);
        self.store.check()?;
        self.check_lock()?;
        let state = self.current();
        if state.version > committing.checkpoint {
            self.write_checkpoint(&state)?;
            (committing.checkpoint, committing.is_durable) = (state.version, true);
        }
        Ok(())
    }

    /// So many that they take as much of the disk as the checkpoint: it has some 60 bytes for each part or column, and
    /// a commit takes 4 KiB.
    pub(crate) fn commits_between_checkpoints(&self, state: &State) -> u64 {
        let entries = state.tables().map(|table| table.parts.len() + table.definition.fields.len());
        self.options.checkpoint_every.max(entries.sum::<usize>() as u64 / 64)
    }

    pub(crate) fn write_checkpoint(&self, state: &State) -> std::result::Result<u64, Failed> {
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

impl Drop for Database {
    fn drop(&mut self) {
        let Some(writing) = &self.writing else { return };
        // All writes are durable unless writing was stopped.
        let is_durable = self.store.check().is_ok()
            && writing.lock.is_held().unwrap_or(false)
            && locked(&writing.committing).is_durable;
        if is_durable {
            races::save(&*self.store.io, &self.store.races);
        }
        if is_durable && locked(&writing.committing).is_marked {
            self.store.io.remove(WRITING).unwrap_or_default();
        }
    }
}

/// A time of the clock in microseconds, as the log has it.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
