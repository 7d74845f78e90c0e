//! Removes files that no version within the retention needs: `docs/format/database.md`, "What is removed".

use std::collections::BTreeSet;
use std::time::Duration;

use crate::database::{Database, is_after};
use crate::error::{Error, Result};
use crate::header::FileKind;
use crate::log::{self, Files};
use crate::state::State;
use crate::store::{TABLES, deletions_path, part_path, table_path};

/// Paths of all files with rows of a version.
fn add_files(state: &State, files: &mut BTreeSet<String>) {
    for table in state.tables() {
        for part in table.parts.values() {
            files.insert(part_path(table.number, part.number));
            files.extend(part.deletions.map(|deletions| deletions_path(table.number, deletions.number)));
        }
    }
}

impl Database {
    /// Removes files that no version within the retention needs, and says how many. The database does so when
    /// it is opened for writing; a process that keeps it open should ask now and then.
    ///
    /// # Errors
    /// When the database cannot be written to, or the log cannot be read.
    pub fn remove_old_files(&self) -> Result<usize> {
        self.without_commits(|newest, retention, unfinished| {
            let io = &*self.store.io;
            let log_files = Files::list(io)?;
            if newest.version() == 0 || log_files.has_set_aside {
                // Without a whole log there is no telling whose the files are.
                return Ok(0);
            }
            let now = io.now();
            let limit = now.saturating_sub(retention);
            let oldest = self.oldest_needed(newest, limit)?;
            let mut needed = BTreeSet::new();
            let mut state = log::load(io, &log_files, oldest)?.state;
            if state.version() != oldest {
                return Ok(0);
            }
            add_files(&state, &mut needed);
            while state.version() < newest.version() {
                state = log::next(io, &state)?;
                add_files(&state, &mut needed);
            }
            self.given().iter().for_each(|state| add_files(state, &mut needed));
            let mut removed = self.remove_from_tables(limit, &needed, unfinished)?;
            removed += self.remove_from_log(&log_files, oldest)?;
            Ok(removed)
        })
    }

    /// The oldest version that was still the newest after this time.
    pub(crate) fn oldest_needed(&self, newest: &State, limit: Duration) -> Result<u64> {
        let (mut version, mut time) = (newest.version(), newest.time());
        while version > 0 && is_after(time, limit) {
            version -= 1;
            time = match log::time(&*self.store.io, version) {
                Ok(time) => time,
                // It has been removed, with those below.
                Err(Error::Io { .. }) => return Ok(version + 1),
                Err(other) => return Err(other),
            };
        }
        Ok(version)
    }

    fn remove_from_tables(
        &self,
        limit: Duration,
        needed: &BTreeSet<String>,
        unfinished: &BTreeSet<u64>,
    ) -> Result<usize> {
        let io = &*self.store.io;
        let mut removed = 0;
        for table in io.list(TABLES).map_err(Error::io("list", TABLES))? {
            let Ok(number) = table.name.parse::<u64>() else { continue };
            let directory = table_path(number);
            for file in io.list(&directory).map_err(Error::io("list", &directory))? {
                let Some((digits, "kpart" | "kdel")) = file.name.split_once('.') else { continue };
                let Ok(file_number) = digits.parse::<u64>() else { continue };
                let path = format!("{directory}/{}", file.name);
                let is_old = file.modified < limit;
                if is_old && !needed.contains(&path) && !unfinished.contains(&file_number) {
                    io.remove(&path).map_err(Error::io("remove", &path))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Removes what two whole checkpoints make needless, so that there is another should one get damaged.
    fn remove_from_log(&self, files: &Files, oldest: u64) -> Result<usize> {
        let io = &*self.store.io;
        let is_whole = |version: &&u64| log::time_of_checkpoint(io, **version).is_ok();
        let Some(base) = files.checkpoints.range(..=oldest).rev().filter(is_whole).nth(1) else {
            return Ok(0);
        };
        let commits = files.commits.range(..=base).map(|version| log::path(FileKind::Commit, *version));
        let checkpoints =
            files.checkpoints.range(..base).map(|version| log::path(FileKind::Checkpoint, *version));
        let mut removed = 0;
        for path in commits.chain(checkpoints) {
            io.remove(&path).map_err(Error::io("remove", &path))?;
            removed += 1;
        }
        Ok(removed)
    }
}
