//! Removes files that no version within the retention needs: `docs/format/database.md`, "What is removed".
//!
//! A file becomes obsolete when a commit replaces it. It is removed when the version before that commit is out of
//! the retention and no snapshot of this process holds it. An orphan, a file that no commit mentions, may be left
//! over from a crash or belong to a lost commit: it is removed days after it was first noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::database::{Database, Writing, locked};
use crate::error::{Error, Result};
use crate::header::FileKind;
use crate::io::Io;
use crate::log::{self, Files};
use crate::opening::load;
use crate::state::{Action, Deletions, State, Table};
use crate::store::{TABLES, deletions_path, number_of, part_path, table_of, table_path};
use crate::usage::Space;

/// A file whose time says when orphans were first noticed.
const ORPHANS: &str = "log/orphans";
/// How long orphans stay after that, and how often they are looked for.
const ORPHANS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
const ORPHANS_SOUGHT_EVERY: Duration = Duration::from_secs(24 * 3600);
/// The most files that one call removes.
const FILES_MAX: u64 = 1000;

/// Obsolete files: those that newer versions do not need.
#[derive(Debug, Default)]
pub(crate) struct Obsolete {
    /// Keyed by the first version without the files.
    replaced: BTreeMap<u64, Replaced>,
    /// Whether the commits of earlier processes are included.
    is_complete: bool,
    orphans_sought: Option<Duration>,
    clock: Clock,
}

/// Detects a clock that was set forward: by more than the retention, it would make files look old that other
/// processes read.
#[derive(Debug, Default)]
struct Clock {
    /// The wall clock and the monotonic clock when last read.
    last: Option<(Duration, Duration)>,
    /// The monotonic time until which no file counts as old.
    doubted_until: Duration,
}

impl Clock {
    /// Whether it was set forward within the last retention.
    fn is_doubted(&mut self, now: Duration, elapsed: Duration, retention: Duration) -> bool {
        /// More than the usual correction of a running clock.
        const STEP_MIN: Duration = Duration::from_secs(60);
        let expected = self.last.map(|(then, at)| then + elapsed.saturating_sub(at) + STEP_MIN);
        if expected.is_some_and(|expected| now > expected) {
            self.doubted_until = elapsed + retention;
        }
        self.last = Some((now, elapsed));
        elapsed < self.doubted_until
    }
}

/// The files that one commit made obsolete, and its time.
#[derive(Debug)]
struct Replaced {
    time: i64,
    files: Vec<OldFile>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum OldFile {
    Part { table: u64, number: u64, bytes: u64 },
    Deletions { table: u64, number: u64, bytes: u64 },
    Directory { table: u64 },
}

impl Obsolete {
    pub(crate) fn add(&mut self, version: u64, time: i64, files: Vec<OldFile>) {
        if !files.is_empty() {
            self.replaced.insert(version, Replaced { time, files });
        }
    }

    /// Where the files are.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        let files = self.replaced.values().flat_map(|replaced| replaced.files.iter().copied());
        files.filter(|file| !matches!(file, OldFile::Directory { .. })).map(OldFile::path).collect()
    }
}

impl OldFile {
    pub(crate) fn path(self) -> String {
        match self {
            Self::Part { table, number, .. } => part_path(table, number),
            Self::Deletions { table, number, .. } => deletions_path(table, number),
            Self::Directory { table } => table_path(table),
        }
    }

    pub(crate) fn byte_count(self) -> u64 {
        match self {
            Self::Part { bytes, .. } | Self::Deletions { bytes, .. } => bytes,
            Self::Directory { .. } => 0,
        }
    }
}

fn deletions_of(table: u64, deletions: Deletions) -> OldFile {
    OldFile::Deletions { table, number: deletions.number, bytes: deletions.file_bytes }
}

/// Files of a table, or of one of its parts.
pub(crate) fn files_of(table: &Table, part: Option<u64>) -> impl Iterator<Item = OldFile> {
    let number = table.number;
    let parts = table.parts.values().filter(move |other| part.is_none_or(|part| other.number == part));
    parts.flat_map(move |part| {
        let deletions = part.deletions.map(|deletions| deletions_of(number, deletions));
        let bytes = part.file_bytes;
        std::iter::once(OldFile::Part { table: number, number: part.number, bytes }).chain(deletions)
    })
}

/// Files of a version that these actions make obsolete.
pub(crate) fn replaced_files(before: &State, actions: &[Action]) -> Vec<OldFile> {
    let mut files = Vec::new();
    for action in actions {
        match action {
            Action::RemovePart { table, part } => {
                files.extend(before.table(*table).into_iter().flat_map(|table| files_of(table, Some(*part))));
            }
            Action::SetDeletions { table, part, .. } => {
                let part = before.table(*table).and_then(|table| table.part(*part));
                let deletions = part.and_then(|part| part.deletions);
                files.extend(deletions.map(|deletions| deletions_of(*table, deletions)));
            }
            Action::DropTable { table } => {
                // Files are removed from the end of the list, so the directory goes last.
                files.push(OldFile::Directory { table: *table });
                files.extend(before.table(*table).into_iter().flat_map(|table| files_of(table, None)));
            }
            _ => {}
        }
    }
    files
}

/// Files of a version that a later one does not have.
fn files_without(before: &State, after: &State) -> Vec<OldFile> {
    let files = |state: &State| state.tables().flat_map(|table| files_of(table, None)).collect::<Vec<_>>();
    let left: BTreeSet<String> = files(after).into_iter().map(OldFile::path).collect();
    // Files are removed from the end of the list, so directories go last.
    let dropped = before.tables().filter(|table| after.table(table.number).is_none());
    let directories = dropped.map(|table| OldFile::Directory { table: table.number });
    directories.chain(files(before).into_iter().filter(|file| !left.contains(&file.path()))).collect()
}

/// Calls `call` for each table directory in `tables`, and for the name of each file in it. Other names are skipped.
pub(crate) fn for_each_file(io: &dyn Io, mut call: impl FnMut(u64, Option<String>)) -> Result<()> {
    let list = |path: &str| match io.list(path) {
        // Not a directory, or removed meanwhile.
        Err(error) if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => {
            Ok(Vec::new())
        }
        names => names.map_err(Error::io("list", path)),
    };
    for table in list(TABLES)?.iter().filter_map(|name| table_of(name)) {
        call(table, None);
        let files = list(&table_path(table))?.into_iter();
        files.filter(|name| number_of(name).is_some()).for_each(|name| call(table, Some(name)));
    }
    Ok(())
}

fn remove(io: &dyn Io, path: &str) -> Result<()> {
    match io.remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

impl Database {
    /// Removes some obsolete files and returns whether there may be more.
    ///
    /// # Errors
    /// `Cancelled`, or when the database cannot be written to, or the system refuses.
    pub fn remove_obsolete(&self, cancel: &Cancel) -> Result<bool> {
        let writing = self.writing()?;
        let _removing = locked(&writing.removing);
        let files = Files::list(&*self.store.io)?;
        if files.has_set_aside {
            // Files of the log that were set aside may yet be rescued, and refer to any file.
            return Ok(false);
        }
        self.check_is_newest(&files)?;
        if self.is_clock_doubted(writing) {
            return Ok(false);
        }
        self.find_obsolete(writing, cancel)?;
        let mut removed = Space::default();
        self.remove_replaced(writing, &mut removed, FILES_MAX, cancel)?;
        if removed.files == FILES_MAX {
            return Ok(true);
        }
        self.trim_log(writing, &files)?;
        self.seek_orphans(writing)?;
        Ok(false)
    }

    fn is_clock_doubted(&self, writing: &Writing) -> bool {
        let (now, elapsed) = (self.store.io.now(), self.store.io.elapsed());
        let retention = self.current().retention();
        locked(&writing.obsolete).clock.is_doubted(now, elapsed, retention)
    }

    /// Whether there are obsolete files out of the retention: those that a snapshot of this process holds, or held
    /// when they were due.
    #[must_use]
    pub fn has_removable(&self) -> bool {
        let Some(writing) = &self.writing else { return false };
        let obsolete = locked(&writing.obsolete);
        let oldest = obsolete.replaced.first_key_value();
        oldest.is_some_and(|(_, replaced)| !self.is_retained(&self.current(), replaced.time))
    }

    /// Removes all orphans, however young, and returns how many.
    ///
    /// # Errors
    /// When the database cannot be written to, or the system refuses.
    pub fn remove_orphans(&self) -> Result<usize> {
        let mut removed = Space::default();
        let outcome = self.remove_all_orphans(&mut removed, &Cancel::default());
        outcome.map(|_| usize::try_from(removed.files).unwrap_or(usize::MAX))
    }

    /// Removes all obsolete files out of the retention and all orphans, however young, and returns how much that
    /// was. `None`, and nothing is removed, if part of the log was set aside, because it may refer to any file.
    ///
    /// # Errors
    /// `Cancelled`, or when the database cannot be written to, or the system refuses.
    pub fn vacuum(&self, cancel: &Cancel) -> Result<Option<Space>> {
        let mut removed = Space::default();
        if !self.remove_all_orphans(&mut removed, cancel)? {
            return Ok(None);
        }
        {
            let writing = self.writing()?;
            let _removing = locked(&writing.removing);
            if !self.is_clock_doubted(writing) {
                self.remove_replaced(writing, &mut removed, u64::MAX, cancel)?;
            }
        }
        while self.remove_and_checkpoint(cancel)? {}
        Ok(Some(removed))
    }

    /// Removes all orphans and returns true; does nothing and returns false if part of the log was set aside.
    fn remove_all_orphans(&self, removed: &mut Space, cancel: &Cancel) -> Result<bool> {
        let (writing, io) = (self.writing()?, &*self.store.io);
        let _removing = locked(&writing.removing);
        let files = Files::list(io)?;
        if files.has_set_aside {
            return Ok(false);
        }
        // Seeming orphans may belong to another writer that the lock did not keep out.
        self.check_is_newest(&files)?;
        self.find_obsolete(writing, cancel)?;
        for path in self.orphans(writing)? {
            cancel.check()?;
            let bytes = io.open(&path).map_or(0, |file| file.byte_count());
            remove(io, &path)?;
            removed.add(bytes);
        }
        remove(io, ORPHANS)?;
        self.remove_unused_directories(writing)?;
        Ok(true)
    }

    /// Finds, once, the files that became obsolete before this process started. Where commits cannot be read, as where
    /// a crash left a checkpoint without its commit, that are those which the next readable version lacks; files that
    /// only unreadable versions had count as orphans.
    pub(crate) fn find_obsolete(&self, writing: &Writing, cancel: &Cancel) -> Result<()> {
        if locked(&writing.obsolete).is_complete {
            return Ok(());
        }
        let io = &*self.store.io;
        let (files, newest) = (Files::list(io)?, self.current());
        let mut starts = files.checkpoints;
        if files.commits.contains(&1) {
            starts.insert(0);
        }
        let mut before = None::<State>;
        let mut from = 0;
        while let Some(start) = starts.range(from..).next().copied().filter(|start| *start < newest.version())
        {
            cancel.check()?;
            from = start + 1;
            let mut state = load(io, start, false)?.0.state;
            if state.version() != start {
                continue;
            }
            if let Some(before) = &before {
                locked(&writing.obsolete).add(start, state.time, files_without(before, &state));
            }
            while state.version() < newest.version() {
                cancel.check()?;
                let (header, record) = match log::read_commit(io, &state) {
                    Err(Error::Damaged(_)) => break,
                    Err(error) if log::is_gone(&error) => break,
                    commit => commit?,
                };
                let replaced = replaced_files(&state, &record.actions);
                log::apply_commit(&mut state, &header, &record)?;
                locked(&writing.obsolete).add(state.version(), record.time, replaced);
            }
            from = state.version() + 1;
            before = Some(state);
        }
        if let Some(before) = before.filter(|before| before.version() < newest.version()) {
            locked(&writing.obsolete).add(newest.version(), newest.time, files_without(&before, &newest));
        }
        locked(&writing.obsolete).is_complete = true;
        Ok(())
    }

    /// Removes obsolete files that are due, up to `files_max` of them.
    fn remove_replaced(
        &self,
        writing: &Writing,
        removed: &mut Space,
        files_max: u64,
        cancel: &Cancel,
    ) -> Result<()> {
        let newest = self.current();
        let read = self.pinned().iter().map(|state| state.version()).min().unwrap_or(u64::MAX);
        while removed.files < files_max {
            cancel.check()?;
            let mut obsolete = locked(&writing.obsolete);
            let is_due = |version: &u64, replaced: &Replaced| {
                *version <= read.min(newest.version()) && !self.is_retained(&newest, replaced.time)
            };
            let Some(first) =
                obsolete.replaced.first_entry().filter(|first| is_due(first.key(), first.get()))
            else {
                break;
            };
            let (version, mut replaced) = first.remove_entry();
            drop(obsolete);
            let outcome = self.remove_files(&mut replaced.files, removed, files_max, cancel);
            if !replaced.files.is_empty() {
                locked(&writing.obsolete).replaced.insert(version, replaced);
            }
            outcome?;
        }
        Ok(())
    }

    /// Removes files from the end of the list, up to `files_max` of them.
    fn remove_files(
        &self,
        files: &mut Vec<OldFile>,
        removed: &mut Space,
        files_max: u64,
        cancel: &Cancel,
    ) -> Result<()> {
        let io = &*self.store.io;
        while let Some(file) = files.last().filter(|_| removed.files < files_max) {
            cancel.check()?;
            match file {
                // A directory that is not empty stays.
                OldFile::Directory { table } => io.remove_directory(&table_path(*table)).unwrap_or_default(),
                file => {
                    if let OldFile::Part { table, number, .. } = file {
                        self.store.footers.forget(*table, *number);
                    }
                    remove(io, &file.path())?;
                    removed.add(file.byte_count());
                }
            }
            files.pop();
        }
        Ok(())
    }

    /// Removes the part of the log that two whole checkpoints replace: two, in case one gets damaged.
    fn trim_log(&self, writing: &Writing, files: &Files) -> Result<()> {
        let io = &*self.store.io;
        if files.checkpoints.len() < 3 {
            return Ok(());
        }
        let newest = self.current();
        let read = self.pinned().iter().map(|state| state.version()).min().unwrap_or(u64::MAX);
        // Commits that say which files are still to be removed stay.
        let obsolete =
            locked(&writing.obsolete).replaced.first_key_value().map_or(u64::MAX, |(version, _)| version - 1);
        let oldest = self.oldest_needed(&newest)?.min(read).min(obsolete);
        let is_whole = |version: &&u64| log::time_of_checkpoint(io, **version).is_ok();
        let older: Vec<&u64> = files.checkpoints.range(..=oldest).rev().collect();
        if older.len() < 3 {
            return Ok(());
        }
        let Some(base) = older.into_iter().filter(is_whole).nth(1) else { return Ok(()) };
        let commits = files.commits.range(..=base).map(|version| log::path(FileKind::Commit, *version));
        let checkpoints =
            files.checkpoints.range(..base).map(|version| log::path(FileKind::Checkpoint, *version));
        // Checkpoints go first: one whose later commits are gone would look like the end of the log.
        checkpoints.chain(commits).try_for_each(|path| remove(io, &path))
    }

    /// Looks for orphans now and then, and removes those that were noticed long ago.
    fn seek_orphans(&self, writing: &Writing) -> Result<()> {
        let (io, now) = (&*self.store.io, self.store.io.now());
        let is_due = |sought: Duration| now.saturating_sub(sought) >= ORPHANS_SOUGHT_EVERY;
        if !locked(&writing.obsolete).orphans_sought.is_none_or(is_due) {
            return Ok(());
        }
        let orphans = self.orphans(writing)?;
        let kept = ORPHANS_KEPT.max(self.current().retention());
        let noticed = match io.modified(ORPHANS) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            noticed => Some(noticed.map_err(Error::io("read", ORPHANS))?),
        };
        match noticed {
            None if orphans.is_empty() => {}
            None => _ = io.create(ORPHANS).map_err(Error::io("create", ORPHANS))?,
            Some(noticed) if orphans.is_empty() || now.saturating_sub(noticed) >= kept => {
                for path in &orphans {
                    if io.modified(path).is_ok_and(|modified| modified <= noticed) {
                        remove(io, path)?;
                    }
                }
                remove(io, ORPHANS)?;
            }
            Some(_) => {}
        }
        self.remove_unused_directories(writing)?;
        locked(&writing.obsolete).orphans_sought = Some(now);
        Ok(())
    }

    /// Removes empty directories of tables that were never committed.
    fn remove_unused_directories(&self, writing: &Writing) -> Result<()> {
        let mut tables = BTreeSet::new();
        for_each_file(&*self.store.io, |table, _| _ = tables.insert(table))?;
        let unfinished = locked(&writing.unfinished);
        tables.difference(&unfinished).for_each(|table| self.remove_unused_directory(*table));
        Ok(())
    }

    /// Paths of orphans from before this process started. Newer files are left alone: this process removes its own,
    /// and the rest belong to a writer that the lock does not keep out.
    pub(crate) fn orphans(&self, writing: &Writing) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for_each_file(&*self.store.io, |table, name| {
            found.extend(name.map(|name| (number_of(&name), format!("{}/{name}", table_path(table)))));
        })?;
        // Listed before the lock is taken, so files of transactions that have committed since are known as current.
        let _committing = locked(&writing.committing);
        let (newest, obsolete) = (self.current(), locked(&writing.obsolete));
        let old = obsolete.replaced.values().flat_map(|replaced| replaced.files.iter().copied());
        let known: BTreeSet<String> =
            newest.tables().flat_map(|table| files_of(table, None)).chain(old).map(OldFile::path).collect();
        let is_orphan = |(number, path): &(Option<u64>, String)| {
            !known.contains(path) && number.is_none_or(|number| number < writing.first_number)
        };
        Ok(found.into_iter().filter(is_orphan).map(|(_, path)| path).collect())
    }
}
