//! Background work: merging small parts, writing checkpoints, removing obsolete files. It is done in small pieces,
//! which any thread may do, and several at the same time.
//!
//! Inserts that find many small parts merge some of them first. So inserts slow down when merging falls behind, and
//! a database without background threads does not fall apart.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::compaction::{RUN_BYTES, SORT_COPIES};
use crate::database::{Database, Writing, locked};
use crate::error::{Error, Result};
use crate::merge::ROUND_BYTES;
use crate::part::WriteOptions;
use crate::snapshot::Snapshot;
use crate::state::{Part, Table};

/// With more mergeable parts than this, inserts help to merge.
const PARTS_MAX: usize = 64;
/// The most rows of a merge by an insert.
const HELP_ROWS_MAX: u64 = 1 << 20;
/// Approximate bytes of encoded blocks that the writer of a part holds at most.
const ENCODED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a page that the system gives to large buffers; common ones.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// How often a wait for other merges checks for cancellation.
const CANCEL_CHECKED_EVERY: Duration = Duration::from_millis(50);

/// Which parts cannot be merged now, and which table's turn it is.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    /// Parts that are being merged.
    busy: BTreeSet<u64>,
    /// Parts that cannot be merged: they cannot be read, or lack columns.
    given_up: BTreeSet<u64>,
    /// The table whose parts were merged last.
    last_table: u64,
}

/// The outcome of looking for parts to merge.
#[derive(Debug)]
enum Claim {
    Parts(Merge),
    Nothing,
    /// No parts are free: these are being merged by others, or the table has changed since the snapshot.
    Others(Vec<u64>),
}

/// A claim on parts of a table that are worth merging: nobody else merges them meanwhile.
#[derive(Debug)]
pub struct Merge {
    database: Arc<Database>,
    snapshot: Snapshot,
    table: Arc<Table>,
    parts: Vec<u64>,
}

impl Drop for Merge {
    fn drop(&mut self) {
        let Some(writing) = &self.database.writing else { return };
        let busy = &mut locked(&writing.compacting).busy;
        self.parts.iter().for_each(|part| _ = busy.remove(part));
        writing.compacted.notify_all();
    }
}

impl Merge {
    /// The name of the table.
    #[must_use]
    pub fn table_name(&self) -> &str {
        &self.table.definition.name
    }

    fn entries(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter_map(|part| self.table.part(*part))
    }

    /// Rows that the merge reads.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.entries().map(|part| part.row_count).sum()
    }

    /// Approximate bytes of memory that the merge takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.snapshot.merge_bytes(&self.table, self.entries())
    }

    /// Merges the parts, unless another transaction changes them meanwhile; damage is reported. Returns whether
    /// there may be more to merge. The options say how the table's rows are written.
    ///
    /// # Errors
    /// `Cancelled`, or when the database cannot be written to, or the system refuses.
    pub fn run(self, options: impl Fn(&Table) -> WriteOptions, cancel: &Cancel) -> Result<bool> {
        let (database, number) = (&self.database, self.table.number);
        let writing = database.writing()?;
        let mut transaction = database.begin()?;
        transaction.give_way();
        transaction.stop_when(cancel);
        // Others may have merged or changed the parts since the claim.
        let is_there =
            |now: &Arc<Table>| self.parts.iter().all(|part| now.part(*part) == self.table.part(*part));
        let Some(now) = transaction.base().table(number).filter(|now| is_there(now)) else {
            return Ok(true);
        };
        let options = options(now);
        let outcome = transaction.compact(number, &self.parts, options);
        let give_up = |parts: &[u64]| locked(&writing.compacting).given_up.extend(parts);
        if let Ok(false) = outcome {
            give_up(&self.parts);
            return Ok(true);
        }
        match outcome.and_then(|_| transaction.commit()) {
            Ok(_) => Ok(true),
            Err(Error::Conflict { .. }) => Ok(false),
            Err(Error::Damaged(damage)) => {
                give_up(damage.part.as_ref().map_or(&self.parts, std::slice::from_ref));
                database.report(*damage);
                Ok(true)
            }
            Err(Error::Invalid(_)) => {
                give_up(&self.parts);
                Ok(true)
            }
            Err(other) => Err(other),
        }
    }
}

impl Snapshot {
    /// Approximate bytes of memory that merging parts of a table takes.
    pub fn merge_bytes<'a>(&self, table: &Table, parts: impl Iterator<Item = &'a Part>) -> u64 {
        let keys = &table.definition.keys;
        let (mut together, mut largest, mut unsorted, mut encoded) = (0, 0, 0, 0);
        for part in parts {
            encoded += part.file_bytes;
            // A part that cannot be read will not be merged.
            let Ok(reader) = self.open_part(table, part) else { continue };
            let columns = reader.fields().len();
            let bytes = |stripe| (0..columns).map(|column| reader.value_bytes(column, stripe)).sum::<u64>();
            let taken = |stripe| (0..columns).map(|column| taken(reader.value_bytes(column, stripe))).sum();
            let most = (0..reader.stripe_count()).map(taken).max().unwrap_or(0);
            largest = largest.max(most);
            if reader.keys() == keys {
                together += most;
            } else {
                unsorted += (0..reader.stripe_count()).map(bytes).sum::<u64>();
            }
        }
        let read = if keys.is_empty() {
            largest
        } else {
            // The rows of a round as read, and sorted.
            let round = (together + largest).min(ROUND_BYTES as u64) * 2;
            together + round + unsorted.min(RUN_BYTES as u64).saturating_mul(SORT_COPIES)
        };
        // The writer's rows may move while they grow.
        read + largest.saturating_mul(2) + encoded.min(ENCODED_BYTES_MAX)
    }
}

/// What a buffer of so many bytes takes: one that is larger than a huge page fills whole ones.
fn taken(bytes: u64) -> u64 {
    if bytes > HUGE_PAGE_BYTES { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes }
}

impl Database {
    /// Does a piece of the work that is due: removes obsolete files, writes a checkpoint, or merges some parts of a
    /// table. Returns whether there may be more. Safe beside inserts, readers and other calls of itself; gives way
    /// to transactions that [rewrite](Database::begin_rewriting). The options say how a table's rows are written.
    ///
    /// # Errors
    /// When the database cannot be written to, or the system refuses. Damage is reported and skipped.
    pub fn maintain(self: &Arc<Self>, options: impl Fn(&Table) -> WriteOptions) -> Result<bool> {
        let cancel = Cancel::default();
        if self.remove_and_checkpoint(&cancel)? {
            return Ok(true);
        }
        match self.next_merge(u64::MAX)? {
            Some(merge) => merge.run(options, &cancel).map(|_| true),
            None => Ok(false),
        }
    }

    /// Claims the next parts to merge, of at most `rows_max` rows; the tables take turns.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub fn next_merge(self: &Arc<Self>, rows_max: u64) -> Result<Option<Merge>> {
        let (writing, snapshot) = (self.writing()?, self.snapshot());
        let last = locked(&writing.compacting).last_table;
        let (before, behind): (Vec<_>, Vec<_>) = snapshot.tables().partition(|table| table.number <= last);
        for table in behind.into_iter().chain(before) {
            if let Claim::Parts(merge) = self.claim(writing, &snapshot, table, |_| true, rows_max) {
                locked(&writing.compacting).last_table = table.number;
                return Ok(Some(merge));
            }
        }
        Ok(None)
    }

    /// Merges all parts of a table that are worth it, waits for other merges of the table, then does the other work
    /// that is due. The number of merges is limited, so that concurrent inserts cannot keep it going for ever. The
    /// options say how the table's rows are written; `reserve` is asked for the memory of each merge, and what it
    /// gives is dropped after it.
    ///
    /// # Errors
    /// As for [`Database::maintain`], `Cancelled`, and what `reserve` says.
    pub fn optimize<R, E: From<Error>>(
        self: &Arc<Self>,
        table: u64,
        options: impl Fn(&Table) -> WriteOptions,
        reserve: impl Fn(u64) -> std::result::Result<R, E>,
        cancel: &Cancel,
    ) -> std::result::Result<(), E> {
        let writing = self.writing()?;
        // Each merge leaves fewer parts, or fewer parts with mostly deleted rows.
        let rounds_max = self.snapshot().table(table).map_or(0, |table| 2 * table.parts().len());
        for _ in 0..rounds_max {
            let snapshot = self.snapshot();
            let Some(table) = snapshot.table(table) else { break };
            match self.claim(writing, &snapshot, table, |_| true, u64::MAX) {
                Claim::Parts(merge) => {
                    let _reserved = reserve(merge.memory_bytes())?;
                    if !merge.run(&options, cancel)? {
                        break;
                    }
                }
                Claim::Nothing => break,
                Claim::Others(parts) => {
                    let is_busy = |compacting: &Compacting| {
                        !cancel.is_cancelled() && parts.iter().any(|part| compacting.busy.contains(part))
                    };
                    let mut compacting = locked(&writing.compacting);
                    while is_busy(&compacting) {
                        let waited = writing.compacted.wait_timeout(compacting, CANCEL_CHECKED_EVERY);
                        compacting = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                    drop(compacting);
                    cancel.check()?;
                }
            }
        }
        while self.remove_and_checkpoint(cancel)? {}
        Ok(())
    }

    /// Writes a checkpoint and removes obsolete files if that is due; returns whether there may be more to do.
    ///
    /// # Errors
    /// `Cancelled`, or when the database cannot be written to, or the system refuses.
    pub fn remove_and_checkpoint(&self, cancel: &Cancel) -> Result<bool> {
        let checkpoint = locked(&self.writing()?.committing).checkpoint;
        let current = self.current();
        if current.version() >= checkpoint.saturating_add(self.commits_between_checkpoints(&current)) {
            self.checkpoint()?;
        }
        self.remove_obsolete(cancel)
    }

    /// Merges some parts of a table that has many small ones; called before parts are added to these partitions, which
    /// alone are looked at: there may be thousands of others. Failures are ignored: they are no reason not to add parts.
    pub(crate) fn merge_before_insert(
        self: &Arc<Self>,
        table: u64,
        partitions: &BTreeSet<&str>,
        options: impl Fn(&Table) -> WriteOptions,
    ) {
        let (Ok(writing), snapshot) = (self.writing(), self.snapshot()) else { return };
        let is_wanted = |partition: &str| partitions.contains(partition);
        if let Some(table) = snapshot.table(table).filter(|table| table.small_part_count() > PARTS_MAX)
            && let Claim::Parts(merge) = self.claim(writing, &snapshot, table, is_wanted, HELP_ROWS_MAX)
        {
            drop(merge.run(options, &Cancel::default()));
        }
    }

    /// Claims some parts of a table of `snapshot` in these partitions, if it is worth merging them.
    fn claim(
        self: &Arc<Self>,
        writing: &Writing,
        snapshot: &Snapshot,
        table: &Arc<Table>,
        is_wanted: impl Fn(&str) -> bool,
        rows_max: u64,
    ) -> Claim {
        let rewritten = self.rewritten(table.number);
        let mut compacting = locked(&writing.compacting);
        let is_free = |part: u64| {
            let is_rewritten = rewritten.iter().any(|table| table.part(part).is_some());
            !compacting.busy.contains(&part) && !compacting.given_up.contains(&part) && !is_rewritten
        };
        let Some(parts) = table.parts_to_merge(is_wanted, is_free, rows_max) else {
            let busy: Vec<u64> =
                compacting.busy.iter().copied().filter(|part| table.part(*part).is_some()).collect();
            let is_old = self.current().table(table.number).is_none_or(|now| !std::ptr::eq(&**now, &**table));
            return if busy.is_empty() && !is_old { Claim::Nothing } else { Claim::Others(busy) };
        };
        compacting.busy.extend(&parts);
        let (database, snapshot, table) = (Arc::clone(self), snapshot.clone(), Arc::clone(table));
        Claim::Parts(Merge { database, snapshot, table, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{DataType, Definition};
    use crate::tests::recovery::{
        DAY, compact, insert, insert_into, log_files, maintain, new, numbers, open, part_files, set,
    };
    use crate::tests::simulation::columns;

    fn table(database: &Database, name: &str) -> Arc<Table> {
        Arc::clone(database.snapshot().table_named("main", name).unwrap())
    }

    /// As much memory as a merge wants.
    fn free(_: u64) -> Result<()> {
        Ok(())
    }

    #[test]
    fn who_optimizes_waits_for_others_who_merge() {
        let database = open(&new());
        (0..12).for_each(|number| _ = insert(&database, number..number + 1));
        let snapshot = database.snapshot();
        let table = table(&database, "t");
        let parts: Vec<u64> = table.parts().iter().map(|part| part.number).collect();
        locked(&database.writing().unwrap().compacting).busy.extend(&parts);
        let merge = Merge { database: Arc::clone(&database), snapshot, table: Arc::clone(&table), parts };
        std::thread::scope(|scope| {
            let optimize = scope.spawn(|| {
                database.optimize(table.number, |_| WriteOptions::default(), free, &Cancel::default())
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(merge);
            optimize.join().unwrap().unwrap();
        });
        assert_eq!(database.snapshot().table(table.number).unwrap().parts().len(), 5);
        assert_eq!(numbers(&database).unwrap(), Vec::from_iter(0..12));
    }

    #[test]
    fn files_go_while_there_are_parts_to_merge() {
        let io = new();
        let database = open(&io);
        (0..4).for_each(|number| _ = insert(&database, number..number + 1));
        compact(&database);
        io.pass(2 * DAY);
        (4..40).for_each(|number| _ = insert(&database, number..number + 1));
        assert_eq!(part_files(&io).len(), 41);
        assert!(database.maintain(|_| WriteOptions::default()).unwrap(), "there are parts to merge");
        assert_eq!(part_files(&io).len(), 38, "four went, and one came of eight");
    }

    #[test]
    fn tables_take_turns() {
        let database = open(&new());
        for number in 0..32 {
            insert_into(&database, "t", number..number + 1);
            insert_into(&database, "u", number..number + 1);
        }
        let merged = (0..4).map(|_| {
            let merge = database.next_merge(u64::MAX).unwrap().unwrap();
            let name = merge.table_name().to_owned();
            assert!(merge.row_count() == 8 && merge.memory_bytes() > 0);
            assert!(merge.run(|_| WriteOptions::default(), &Cancel::default()).unwrap());
            name
        });
        assert_eq!(merged.collect::<Vec<_>>(), ["t", "u", "t", "u"]);
    }

    #[test]
    fn who_inserts_merges_parts_of_its_partitions() {
        let database = open(&new());
        insert_into(&database, "t", 0..1);
        let insert = |partition: &str| {
            let rows = vec![(partition.into(), columns(&[(1, None)]))];
            database.insert(&table(&database, "t"), rows, WriteOptions::default()).unwrap();
        };
        (1..60).for_each(|number| insert(&number.to_string()));
        let parts = || table(&database, "t").parts().len();
        (0..8).for_each(|_| insert("0"));
        assert_eq!(parts(), 68, "none is merged before there are more than 64");
        insert("1");
        assert_eq!(parts(), 69, "its partition has two");
        insert("0");
        assert_eq!(parts(), 70 - 7, "eight of nine are one now");
    }

    #[test]
    fn a_merge_that_is_cancelled_leaves_nothing_behind() {
        let io = new();
        let database = open(&io);
        (0..8).for_each(|number| _ = insert(&database, number..number + 1));
        let before = part_files(&io);
        let (merge, cancel) = (database.next_merge(u64::MAX).unwrap().unwrap(), Cancel::default());
        cancel.cancel();
        let outcome = merge.run(|_| WriteOptions::default(), &cancel);
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
        assert_eq!(part_files(&io), before);
        let table = table(&database, "t").number;
        let outcome = database.optimize(table, |_| WriteOptions::default(), free, &cancel);
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
        assert!(matches!(database.check_table(table, &cancel), Err(Error::Cancelled)));
        maintain(&database);
        assert_eq!(self::table(&database, "t").parts().len(), 1, "others may merge them then");
    }

    #[test]
    fn parts_that_are_younger_than_who_rewrites_the_others_are_merged() {
        let database = open(&new());
        (0..7).for_each(|number| _ = insert(&database, number..number + 1));
        let number = table(&database, "t").number;
        let mut rewriting = database.begin_rewriting(number).unwrap();
        insert(&database, 7..8);
        maintain(&database);
        assert_eq!(table(&database, "t").parts().len(), 8, "it may change seven of them");
        (8..15).for_each(|number| _ = insert(&database, number..number + 1));
        maintain(&database);
        assert_eq!(table(&database, "t").parts().len(), 8, "one of eight that it does not know");
        let parts: Vec<u64> = rewriting.state().table(number).unwrap().parts.keys().copied().collect();
        rewriting.compact(number, &parts, WriteOptions::default()).unwrap();
        rewriting.commit().unwrap();
        assert_eq!(table(&database, "t").parts().len(), 2);
        assert_eq!(numbers(&database).unwrap(), Vec::from_iter(0..15));
    }

    #[test]
    fn checkpoints_of_large_databases_are_rarer() {
        for (columns, expected) in [(1, 2), (4000, 1)] {
            let io = new();
            let database = open(&io);
            let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
            for table in ["t", "u"] {
                let columns = names.iter().map(|name| (name.as_str(), DataType::I8)).collect();
                let mut transaction = database.begin().unwrap();
                transaction.create_table(Definition::new("main", table, columns)).unwrap();
                transaction.commit().unwrap();
            }
            let checkpoints = || log_files(&io, ".checkpoint").len();
            let before = checkpoints();
            for number in 0..130 {
                set(&database, &number.to_string()).unwrap();
                maintain(&database);
            }
            assert_eq!(checkpoints() - before, expected, "{columns} columns");
        }
    }
}
