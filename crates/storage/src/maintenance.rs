//! The work behind the scenes: merging small parts, checkpoints, giving space back. A piece at a time, so that
//! whoever has a thread to spare does it, and several may at once.
//!
//! Inserts that find many small parts merge some of them first. So they get slower as they get ahead of the
//! others, and a database that nobody maintains does not fall apart.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use crate::database::{Database, Writing, locked};
use crate::error::{Error, Result};
use crate::part::WriteOptions;
use crate::state::Table;

/// So many parts that could be merged, and inserts help.
const PARTS_MAX: usize = 64;
/// They merge no more rows at a time.
const HELP_ROWS_MAX: u64 = 1 << 20;

/// Parts that are no candidates for being merged.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    /// Someone is at it.
    busy: BTreeSet<u64>,
    /// They cannot be read, or lack columns.
    given_up: BTreeSet<u64>,
}

/// What came of looking for parts to merge.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// There may be more.
    Merged,
    Nothing,
    /// Others merge these parts of the table, or it was changed since it was looked at.
    Others(Vec<u64>),
}

/// Parts that this thread merges.
struct Merge<'a> {
    writing: &'a Writing,
    parts: Vec<u64>,
}

impl Drop for Merge<'_> {
    fn drop(&mut self) {
        let busy = &mut locked(&self.writing.compacting).busy;
        self.parts.iter().for_each(|part| _ = busy.remove(part));
        self.writing.compacted.notify_all();
    }
}

impl Database {
    /// Does a piece of the work that is due: merges some parts of a table, writes a checkpoint, or removes files
    /// that are needed no more. Gives whether there may be more. Safe beside inserts, readers and itself; gives way
    /// to transactions that [rewrite](Database::begin_rewriting). The options say how a table's rows are written.
    ///
    /// # Errors
    /// When the database cannot be written to, or the system refuses. What is damaged is reported and passed over.
    pub fn maintain(self: &Arc<Self>, options: impl Fn(&Table) -> WriteOptions) -> Result<bool> {
        let writing = self.writing()?;
        for table in self.snapshot().tables() {
            if self.merge_some(writing, table, u64::MAX, &options)? == Outcome::Merged {
                return Ok(true);
            }
        }
        self.tidy(writing)
    }

    /// Merges the parts of a table that are worth it, and waits for others who merge some of them; then does the
    /// other work that is due. With more and more inserts at the same time it does not go on for ever. The
    /// options say how the table's rows are written.
    ///
    /// # Errors
    /// As for [`Database::maintain`].
    pub fn optimize(self: &Arc<Self>, table: u64, options: impl Fn(&Table) -> WriteOptions) -> Result<()> {
        let writing = self.writing()?;
        // Each merge leaves fewer parts, or fewer that are hollow.
        let rounds_max = self.snapshot().table(table).map_or(0, |table| 2 * table.parts().len());
        for _ in 0..rounds_max {
            let snapshot = self.snapshot();
            let Some(table) = snapshot.table(table) else { break };
            match self.merge_some(writing, table, u64::MAX, &options)? {
                Outcome::Merged => {}
                Outcome::Nothing => break,
                Outcome::Others(parts) => {
                    let is_busy =
                        |compacting: &mut Compacting| parts.iter().any(|part| compacting.busy.contains(part));
                    let compacting = locked(&writing.compacting);
                    let over = writing.compacted.wait_while(compacting, is_busy);
                    drop(over.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
        while self.tidy(writing)? {}
        Ok(())
    }

    /// Writes a checkpoint or removes files, if that is due, and gives whether there may be more.
    fn tidy(&self, writing: &Writing) -> Result<bool> {
        let checkpoint = locked(&writing.committing).checkpoint;
        if self.current().version() >= checkpoint.saturating_add(self.options.checkpoint_every) {
            self.checkpoint()?;
        }
        self.remove_needless()
    }

    /// Merges some parts of a table when there are many small ones: for those to call who are about to add parts.
    /// What keeps it from that is no reason not to add.
    pub fn make_room(self: &Arc<Self>, table: u64, options: impl Fn(&Table) -> WriteOptions) {
        let (Ok(writing), snapshot) = (self.writing(), self.snapshot()) else { return };
        if let Some(table) = snapshot.table(table).filter(|table| table.small_part_count() > PARTS_MAX) {
            drop(self.merge_some(writing, table, HELP_ROWS_MAX, &options));
        }
    }

    /// Merges some parts of a table, if that is worth it.
    fn merge_some(
        self: &Arc<Self>,
        writing: &Writing,
        table: &Table,
        rows_max: u64,
        options: &impl Fn(&Table) -> WriteOptions,
    ) -> Result<Outcome> {
        if self.is_rewriting(table.number) {
            return Ok(Outcome::Nothing);
        }
        let merge = {
            let mut compacting = locked(&writing.compacting);
            let is_free =
                |part: u64| !compacting.busy.contains(&part) && !compacting.given_up.contains(&part);
            let Some(parts) = table.parts_to_merge(is_free, rows_max) else {
                let busy: Vec<u64> =
                    compacting.busy.iter().copied().filter(|part| table.part(*part).is_some()).collect();
                let is_old =
                    self.current().table(table.number).is_none_or(|now| !std::ptr::eq(&**now, table));
                return Ok(if busy.is_empty() && !is_old { Outcome::Nothing } else { Outcome::Others(busy) });
            };
            compacting.busy.extend(&parts);
            Merge { writing, parts }
        };
        let mut transaction = self.begin()?;
        transaction.give_way();
        // Someone else may have merged them meanwhile.
        let is_there = |now: &Arc<Table>| merge.parts.iter().all(|part| now.part(*part) == table.part(*part));
        let Some(now) = transaction.base().table(table.number).filter(|now| is_there(now)) else {
            return Ok(Outcome::Merged);
        };
        let options = options(now);
        let outcome = transaction.compact(table.number, &merge.parts, options);
        let give_up = |parts: &[u64]| locked(&writing.compacting).given_up.extend(parts);
        match outcome.and_then(|()| transaction.commit()) {
            Ok(_) => Ok(Outcome::Merged),
            Err(Error::Conflict { .. }) => Ok(Outcome::Nothing),
            Err(Error::Damaged(damage)) => {
                give_up(damage.part.as_ref().map_or(&merge.parts, std::slice::from_ref));
                self.report(*damage);
                Ok(Outcome::Merged)
            }
            Err(Error::Invalid(_)) => {
                give_up(&merge.parts);
                Ok(Outcome::Merged)
            }
            Err(other) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::recovery::{insert, new, numbers, open};

    #[test]
    fn who_optimizes_waits_for_others_who_merge() {
        let database = open(&new());
        (0..12).for_each(|number| _ = insert(&database, number..number + 1));
        let table = Arc::clone(database.snapshot().table_named("main", "t").unwrap());
        let parts: Vec<u64> = table.parts().iter().map(|part| part.number).collect();
        let writing = database.writing().unwrap();
        locked(&writing.compacting).busy.extend(&parts);
        let merge = Merge { writing, parts };
        std::thread::scope(|scope| {
            let optimize = scope.spawn(|| database.optimize(table.number, |_| WriteOptions::default()));
            std::thread::sleep(Duration::from_millis(20));
            drop(merge);
            optimize.join().unwrap().unwrap();
        });
        assert_eq!(database.snapshot().table(table.number).unwrap().parts().len(), 5);
        assert_eq!(numbers(&database).unwrap(), Vec::from_iter(0..12));
    }
}
