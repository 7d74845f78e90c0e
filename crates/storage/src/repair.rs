//! Repair: makes a damaged database writable again with what is left of it. Nothing is repaired unasked.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use crate::compaction::{Source, append_live};
use crate::database::Database;
use crate::deletions::DeletionVector;
use crate::error::{Error, Result};
use crate::header::FileKind;
use crate::log;
use crate::marker;
use crate::opening::load;
use crate::part::WriteOptions;
use crate::state::Part;
use crate::transaction::Transaction;

/// The file that records that the whole log was lost.
const LOST: &str = "log/lost";

/// What a repair could not save of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairLoss {
    /// Rows of the part that could not be read.
    pub rows: Vec<Range<u64>>,
    /// Whether the deletion vector could not be read, so that deleted rows are back.
    pub deletions: bool,
}

impl Database {
    /// Sets aside the unreadable files of the log and all after them, so that writing goes on from the newest
    /// readable version; and the marker, if it is damaged or another database's. Their names get the suffix
    /// `.damaged`. As long as the log has such files, nothing is removed from the database, because what they refer
    /// to may yet be rescued. Returns their paths.
    ///
    /// # Errors
    /// When the database was not opened for writing, or the system refuses.
    pub fn repair_log(&self) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        self.repair_under_lock(|log_is_whole| {
            let store = &self.store;
            let (io, version) = (&*store.io, self.current().version());
            let (loaded, files) = load(io, u64::MAX, false)?;
            match loaded.state.version() {
                readable if readable <= version => {}
                readable if log_is_whole => {
                    return Err(store.stop_beside_another(&log::path(FileKind::Commit, readable)));
                }
                readable => {
                    let message = format!("version {readable} can be read now: open the database again");
                    return Err(Error::Invalid(message));
                }
            }
            let behind = |kind, versions: &BTreeSet<u64>| {
                let versions = versions.range(version + 1..).rev();
                versions.map(|version| log::path(kind, *version)).collect::<Vec<_>>()
            };
            paths.extend(behind(FileKind::Commit, &files.commits));
            paths.extend(behind(FileKind::Checkpoint, &files.checkpoints));
            let mut unreadable = Vec::new();
            for checkpoint in files.checkpoints.range(..=version) {
                match log::time_of_checkpoint(io, *checkpoint) {
                    Ok(_) => {}
                    Err(error) if log::is_gone(&error) => {}
                    Err(Error::Damaged(_)) => unreadable.push(*checkpoint),
                    Err(other) => return Err(other),
                }
            }
            paths.extend(unreadable.iter().map(|version| log::path(FileKind::Checkpoint, *version)));
            let marker_is_damaged = self.damage().iter().any(|damage| damage.path == marker::PATH);
            let aside = |path: &str| format!("{path}{}", log::SET_ASIDE);
            // The current version may be built on an unreadable checkpoint, so it gets one of its own. That comes
            // first, unless its name is to be set aside.
            let is_first = !unreadable.is_empty() && !unreadable.contains(&version);
            if is_first {
                self.write_checkpoint(&self.current())?;
            }
            for path in &paths {
                io.publish(path, &aside(path)).map_err(Error::io("rename", path))?;
            }
            if !unreadable.is_empty() && !is_first {
                self.write_checkpoint(&self.current())?;
            }
            if files.is_lost() {
                let lost = aside(LOST);
                io.create(&lost).map(|_| ()).map_err(Error::io("create", &lost))?;
                log::begin(store, self.current().database)?;
                paths.push(lost);
            }
            store.sync_directory(log::DIRECTORY)?;
            if marker_is_damaged {
                match io.replace(marker::PATH, &aside(marker::PATH)) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    outcome => outcome.map_err(Error::io("rename", marker::PATH))?,
                }
                marker::create(io, self.current().database).inspect_err(|_| store.stop(marker::PATH))?;
                paths.push(marker::PATH.to_owned());
            }
            Ok(())
        })?;
        Ok(paths)
    }
}

impl Transaction {
    /// Replaces a part by one with the rows that can still be read: those of stripes in which every column is
    /// whole. Returns what is lost.
    ///
    /// # Errors
    /// As [`Transaction::compact`], but for damage of the part.
    pub fn repair_part(&mut self, table: u64, part: u64, options: WriteOptions) -> Result<RepairLoss> {
        let found = Arc::clone(self.table(table)?);
        let missing = || Error::Invalid(format!("there is no part {part} of table {table}"));
        let entry = found.part(part).ok_or_else(missing)?;
        let mut lost = RepairLoss::default();
        let read_deletions = || self.base().deletions(&found, entry);
        let deletions = match read_deletions().or_else(|_| read_deletions()) {
            Err(Error::Damaged(_)) => {
                lost.deletions = true;
                DeletionVector::default()
            }
            deletions => deletions?,
        };
        let open = || {
            self.base().store.footers.forget(table, part);
            Source::open(self, &found, entry, deletions.clone(), &options)
        };
        let opened = match open() {
            Err(Error::Damaged(_)) => open(),
            opened => opened,
        };
        let mut source = match opened {
            Err(Error::Damaged(_)) => {
                lost.rows.push(0..entry.row_count);
                self.replace_parts(table, &[part], Vec::new())?;
                return Ok(lost);
            }
            source => source?,
        };
        // The order of the rows cannot be trusted either; compaction will sort them.
        let mut writer = self.write_part(table, WriteOptions { is_sorted: false, ..options.clone() })?;
        while !source.is_at_end() {
            let (rows, stripe) = (source.next_rows(), source.next_stripe());
            let mut outcome = append_live(&mut source, self.level(), &mut writer);
            if let Err(Error::Damaged(_)) = outcome {
                // The failure of the disk may have been temporary.
                source = open()?;
                source.go_to(stripe);
                outcome = append_live(&mut source, self.level(), &mut writer);
            }
            match outcome {
                Err(Error::Damaged(_)) => lost.rows.push(rows),
                outcome => outcome?,
            }
        }
        let mut added = Vec::new();
        if writer.row_count() > 0 {
            added.push(Part { partition: Arc::clone(&entry.partition), ..writer.finish()? });
        }
        self.replace_parts(table, &[part], added)?;
        Ok(lost)
    }
}
