//! Group commit of small inserts: while one group is made durable, the next one gathers.
//!
//! An insert costs a few syncs, whatever its size. So inserts that arrive while others are being committed wait;
//! the first of them then becomes the leader and writes the rows of all, as one part a partition in one commit. An
//! insert that finds no commit running does not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::column::Column;
use crate::database::{Database, locked};
use crate::error::{Error, Result};
use crate::part::WriteOptions;
use crate::schema::Definition;
use crate::sort::sort_rows;
use crate::state::{Part, Table};
use crate::store::UNSYNCED;

/// The most bytes of a group.
const GROUP_BYTES: usize = 64 << 20;

/// Rows as columns, by partition.
pub type PartitionedRows = Vec<(Arc<str>, Vec<Column<'static>>)>;

/// Rows that wait to be inserted.
#[derive(Debug)]
struct Insert {
    ticket: u64,
    table: u64,
    definition: Arc<Definition>,
    rows: PartitionedRows,
    options: WriteOptions,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Insert>,
    next_ticket: u64,
    /// Whether a leader is writing a group.
    is_led: bool,
    /// Outcomes of inserts that their callers have not taken yet, by ticket.
    outcomes: BTreeMap<u64, Result<u64>>,
}

/// The waiting inserts of a database.
#[derive(Debug, Default)]
pub(crate) struct Inserts {
    queue: Mutex<Queue>,
    is_done: Condvar,
}

/// The leadership of a group: dropping it hands out the outcomes and lets the next group begin, even after a panic.
struct Lead<'a> {
    inserts: &'a Inserts,
    tickets: Vec<u64>,
    outcomes: Vec<Result<u64>>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let lost = || Err(Error::Invalid("the rows could not be written".to_owned()));
        let outcomes = self.outcomes.drain(..).chain(std::iter::repeat_with(lost));
        let mut queue = locked(&self.inserts.queue);
        queue.outcomes.extend(self.tickets.drain(..).zip(outcomes));
        queue.is_led = false;
        self.inserts.is_done.notify_all();
    }
}

impl Database {
    /// Inserts rows, all or none, and returns the version that has them once they are durable. `table` is as the
    /// caller knows it. Concurrent inserts are committed together.
    ///
    /// # Errors
    /// `Conflict` when the table was altered or dropped; `Invalid` when the rows do not fit the table;
    /// `OutcomeUnknown` and others as for [`Transaction::commit`](crate::Transaction::commit).
    pub fn insert(
        self: &Arc<Self>,
        table: &Table,
        rows: PartitionedRows,
        options: WriteOptions,
    ) -> Result<u64> {
        let inserts = &self.inserts;
        let mut queue = locked(&inserts.queue);
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        let definition = Arc::clone(&table.definition);
        queue.waiting.push(Insert { ticket, table: table.number, definition, rows, options });
        loop {
            if let Some(outcome) = queue.outcomes.remove(&ticket) {
                return outcome;
            }
            if queue.is_led {
                queue = inserts.is_done.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_led = true;
            let mut bytes = 0;
            let fits = |insert: &&Insert| {
                let is_room = bytes < GROUP_BYTES;
                let columns = insert.rows.iter().flat_map(|(_, columns)| columns);
                bytes += columns.map(Column::byte_count).sum::<usize>();
                is_room
            };
            let count = queue.waiting.iter().take_while(fits).count();
            let group: Vec<Insert> = queue.waiting.drain(..count).collect();
            drop(queue);
            let tickets = group.iter().map(|insert| insert.ticket).collect();
            let mut lead = Lead { inserts, tickets, outcomes: Vec::new() };
            lead.outcomes = self.insert_group(&group);
            drop(lead);
            queue = locked(&inserts.queue);
        }
    }

    /// Commits a group; the outcome of each of its inserts.
    fn insert_group(self: &Arc<Self>, group: &[Insert]) -> Vec<Result<u64>> {
        let mut tables: BTreeMap<u64, (&Insert, BTreeSet<&str>)> = BTreeMap::new();
        for insert in group {
            let (_, partitions) = tables.entry(insert.table).or_insert_with(|| (insert, BTreeSet::new()));
            partitions.extend(insert.rows.iter().map(|(partition, _)| &**partition));
        }
        for (table, (insert, partitions)) in tables {
            self.merge_before_insert(table, &partitions, |_| insert.options.clone());
        }
        let all: Vec<&Insert> = group.iter().collect();
        match self.commit_inserts(&all) {
            Ok(version) => group.iter().map(|_| Ok(version)).collect(),
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(Error::OutcomeUnknown(error)) => {
                let path = error.to_string();
                let unknown = || {
                    Error::OutcomeUnknown(Box::new(Error::Stopped { path: path.clone(), reason: UNSYNCED }))
                };
                group.iter().map(|_| Err(unknown())).collect()
            }
            // Nothing was committed. A single insert may be to blame, so each is tried alone.
            Err(_) => group.iter().map(|insert| self.commit_inserts(&[insert])).collect(),
        }
    }

    fn commit_inserts(self: &Arc<Self>, group: &[&Insert]) -> Result<u64> {
        let mut transaction = self.begin()?;
        let mut tables: BTreeMap<u64, Vec<&Insert>> = BTreeMap::new();
        group.iter().for_each(|insert| tables.entry(insert.table).or_default().push(insert));
        for (table, inserts) in tables {
            let definition = &inserts[0].definition;
            let is_same = |other: &Definition| *other == **definition;
            let found = transaction.state().table(table).is_some_and(|table| is_same(&table.definition));
            if !found || !inserts.iter().all(|insert| is_same(&insert.definition)) {
                return Err(Error::Conflict { what: format!("table '{}'", definition.name) });
            }
            let mut partitions: BTreeMap<&Arc<str>, Vec<Column<'static>>> = BTreeMap::new();
            for (partition, columns) in inserts.iter().flat_map(|insert| &insert.rows) {
                if columns.len() != definition.fields.len() {
                    let message = format!("{} columns for {}", columns.len(), definition.fields.len());
                    return Err(Error::Invalid(message));
                }
                let empty =
                    || definition.fields.iter().map(|field| Column::empty(&field.data_type)).collect();
                let rows = partitions.entry(partition).or_insert_with(empty);
                rows.iter_mut().zip(columns).try_for_each(|(rows, more)| rows.append(more))?;
            }
            let is_sorted = !definition.keys.is_empty();
            for (partition, mut rows) in partitions {
                if rows.iter().all(|column| column.row_count() == 0) {
                    continue;
                }
                if is_sorted {
                    let order = sort_rows(transaction.level(), definition, &rows)?;
                    rows = rows.iter().map(|column| column.take(transaction.level(), &order)).collect();
                }
                let options = WriteOptions { is_sorted, ..inserts[0].options.clone() };
                let mut writer = transaction.write_part(table, options)?;
                writer.push(&rows)?;
                let part = Part { partition: Arc::clone(partition), ..writer.finish()? };
                transaction.add_part(table, part)?;
            }
        }
        transaction.commit()
    }
}
