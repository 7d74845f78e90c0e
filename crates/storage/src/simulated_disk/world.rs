//! A file system in memory, its clock, and what goes wrong with it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use super::cache::{Change, Directory, FileData, Node};
use super::random::Random;

/// How often each fault happens: once in so many times, never at 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The number of the operation at which the power is cut.
    pub(crate) cut_at: Option<u64>,
    pub(crate) disk_full: usize,
    pub(crate) failed_sync: usize,
    pub(crate) read_error: usize,
    pub(crate) short: usize,
    /// Syncs of files, and of directories, do nothing and report success.
    pub(crate) lying_syncs: [bool; 2],
    /// An operation that always fails, and how; with `true` it takes effect nevertheless.
    pub(crate) refused: Option<(&'static str, ErrorKind, bool)>,
    /// A name that listings omit.
    pub(crate) unlisted: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) random: Random,
    pub(super) faults: Faults,
    /// Count of operations that changed something.
    pub(super) operations: u64,
    /// Count of opened files.
    pub(super) opened: u64,
    pub(super) clock: Duration,
    /// The monotonic clock; unlike `clock` it cannot be set.
    pub(super) elapsed: Duration,
    pub(super) is_off: bool,
    /// Counts restarts: handles from before a restart are dead.
    pub(super) life: u64,
    pub(super) is_locked: bool,
    pub(super) files: Vec<FileData>,
    pub(super) directories: BTreeMap<String, Directory>,
    /// Count of faults since the last restart.
    pub(super) fault_count: u64,
    pub(super) root_sync_failed: bool,
}

pub(super) fn dead() -> io::Error {
    io::Error::other("the power is off")
}

/// The directory and the name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl World {
    pub(super) fn fault(&mut self, once_in: usize) -> bool {
        let is_fault = self.random.once_in(once_in);
        self.fault_count += u64::from(is_fault);
        is_fault
    }

    /// Runs an operation that changes something; the power may go before it or after it.
    pub(super) fn act<T>(
        &mut self,
        life: u64,
        operation: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_off || self.life != life {
            return Err(dead());
        }
        self.operations += 1;
        self.clock += Duration::from_millis(1);
        self.elapsed += Duration::from_millis(1);
        if self.faults.cut_at != Some(self.operations) {
            return operation(self);
        }
        if self.random.once_in(2) {
            // Nobody learns the outcome.
            _ = operation(self);
        }
        self.cut_power();
        Err(dead())
    }

    pub(super) fn directory(&mut self, path: &str) -> io::Result<&mut Directory> {
        let (parent, name) = split(path);
        let node = self.directories.get(parent).and_then(|parent| parent.cached.get(name));
        match node {
            Some(Node::File(_)) => Err(ErrorKind::NotADirectory.into()),
            None if !path.is_empty() => Err(ErrorKind::NotFound.into()),
            _ => self.directories.get_mut(path).ok_or_else(|| ErrorKind::NotFound.into()),
        }
    }

    /// The answer of an operation, and whether it takes effect.
    pub(super) fn refusal(&self, operation: &str) -> (io::Result<()>, bool) {
        match self.faults.refused {
            Some((refused, kind, is_done)) if refused == operation => (Err(kind.into()), is_done),
            _ => (Ok(()), true),
        }
    }

    /// Now and then an error of an operation that changes nothing.
    pub(super) fn read_fault(&mut self, what: &str) -> io::Result<()> {
        /// Too many open files.
        const EMFILE: i32 = 24;
        if !self.fault(self.faults.read_error) {
            Ok(())
        } else if self.random.once_in(2) {
            Err(io::Error::other(format!("{what} could not be read")))
        } else {
            Err(io::Error::from_raw_os_error(EMFILE))
        }
    }

    pub(super) fn file(&mut self, path: &str) -> io::Result<usize> {
        let (directory, name) = split(path);
        match self.directory(directory)?.cached.get(name) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Directory) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn change(&mut self, directory: &str, new: Change) -> io::Result<()> {
        self.directory(directory)?.change(new);
        Ok(())
    }

    pub(super) fn cut_power(&mut self) {
        self.is_off = true;
        for data in &mut self.files {
            data.keep_some(&mut self.random);
            data.restart();
        }
        for directory in self.directories.values_mut() {
            directory.keep_some(&mut self.random);
            directory.restart();
        }
        let paths: Vec<String> = self.directories.keys().cloned().collect();
        // Drops files that are in no directory, or in one that is gone.
        for path in paths {
            let (parent, name) = split(&path);
            let is_there = path.is_empty()
                || self.directories.get(parent).is_some_and(|parent| parent.cached.contains_key(name));
            if !is_there {
                self.directories.remove(&path);
            }
        }
    }
}
