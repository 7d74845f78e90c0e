//! Disk usage: what the files of a database are for, and how much space they take.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use crate::cancel::Cancel;
use crate::database::{Database, locked};
use crate::error::{Error, Result};
use crate::log;
use crate::removal::{OldFile, files_of, for_each_file};
use crate::store::{number_of, table_path};

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    /// Rows of the newest version.
    Current,
    /// Rows that only older versions have, which are within the retention or held by a snapshot.
    Obsolete,
    /// A file that a transaction is writing.
    Unfinished,
    /// A file that no commit mentions, left by a process that did not end well.
    Orphaned,
    /// Obsolete, unfinished or orphaned: only a writer can tell which.
    Other,
    /// Commits and checkpoints.
    Log,
}

/// Files, and the space that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Count of files.
    pub files: u64,
    /// Their bytes, together.
    pub bytes: u64,
}

impl Space {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl Database {
    /// Counts and sizes of the database's files by what they are for; files that are added or removed meanwhile may
    /// be left out.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn disk_usage(&self) -> Result<BTreeMap<FileUse, Space>> {
        let io = &*self.store.io;
        let mut usage: BTreeMap<FileUse, Space> = BTreeMap::new();
        if let Some(writing) = &self.writing {
            let _removing = locked(&writing.removing);
            self.find_obsolete(writing, &Cancel::default())?;
        }
        let newest = self.current();
        let files: Vec<OldFile> = newest.tables().flat_map(|table| files_of(table, None)).collect();
        files.iter().for_each(|file| usage.entry(FileUse::Current).or_default().add(file.byte_count()));
        if !io.can_list() {
            return Ok(usage);
        }
        let current: BTreeSet<String> = files.into_iter().map(OldFile::path).collect();
        let mut others = Vec::new();
        for_each_file(io, |table, name| {
            let file = name.map(|name| (number_of(&name), format!("{}/{name}", table_path(table))));
            others.extend(file.filter(|(_, path)| !current.contains(path)));
        })?;
        let file_use = self.use_of_others();
        let mut add = |file_use, path: &str| -> Result<()> {
            match io.open(path) {
                // The file was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                file => {
                    let bytes = file.map_err(Error::io("open", path))?.byte_count();
                    usage.entry(file_use).or_default().add(bytes);
                    Ok(())
                }
            }
        };
        for (number, path) in others {
            add(file_use(number, &path), &path)?;
        }
        for name in io.list(log::DIRECTORY).map_err(Error::io("list", log::DIRECTORY))? {
            add(FileUse::Log, &format!("{}/{name}", log::DIRECTORY))?;
        }
        Ok(usage)
    }

    /// Returns a function that tells what a file outside the newest version is for, by its number and path.
    fn use_of_others(&self) -> impl Fn(Option<u64>, &str) -> FileUse {
        let known = self.writing.as_ref().map(|writing| {
            let unfinished = locked(&writing.unfinished).clone();
            let current = self.current();
            let newer = current.tables().flat_map(|table| files_of(table, None)).map(OldFile::path);
            let newer: BTreeSet<String> = newer.collect();
            (unfinished, newer, locked(&writing.obsolete).paths())
        });
        move |number, path| match &known {
            None => FileUse::Other,
            Some((unfinished, ..)) if number.is_some_and(|number| unfinished.contains(&number)) => {
                FileUse::Unfinished
            }
            // The file was committed meanwhile.
            Some((_, newer, _)) if newer.contains(path) => FileUse::Current,
            Some((_, _, obsolete)) if obsolete.contains(path) => FileUse::Obsolete,
            Some(_) => FileUse::Orphaned,
        }
    }
}
