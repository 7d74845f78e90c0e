//! Transactions: changes to any number of tables that become one version, or nothing.
//!
//! A transaction sees the version that it began with and its own changes. When it commits and there is a newer
//! version, its changes are carried out on that; it fails if another changed what it changes.
//!
//! It belongs to nobody's stack: it can be sent to other threads, and any number of them may write its parts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use keirin_kernels::Level;

use crate::database::{Database, Snapshot, locked};
use crate::deletions::DeletionVector;
use crate::error::{Error, Result};
use crate::header::{self, FileKind, Identity};
use crate::log::Failed;
use crate::part::{PartWriter, WriteOptions};
use crate::schema::Definition;
use crate::state::{Action, Deletions, Part, State, Table};
use crate::store::{deletions_path, part_path};

/// Changes that are not committed.
#[derive(Debug)]
pub struct Transaction {
    database: Arc<Database>,
    base: Snapshot,
    /// The base and the changes.
    state: State,
    actions: Vec<Action>,
    made: Mutex<Made>,
}

/// What a transaction made beside its changes.
#[derive(Debug, Default)]
struct Made {
    /// Numbers that were taken, and files.
    numbers: BTreeSet<u64>,
    paths: Vec<String>,
    /// Tables with new files.
    directories: BTreeSet<u64>,
}

/// An asynchronous sink owns a transaction, and its threads own the parts.
const _: () = {
    const fn is_owned<T: Send + Sync + 'static>() {}
    const fn is_sent<T: Send + 'static>() {}
    is_owned::<Transaction>();
    is_sent::<PartWriter>();
};

impl Transaction {
    pub(crate) fn new(database: Arc<Database>, base: Snapshot) -> Self {
        let state = (*base).clone();
        Self { database, base, state, actions: Vec::new(), made: Mutex::default() }
    }

    /// The version that it began with.
    #[must_use]
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// The tables as they are with its changes.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    fn act(&mut self, action: Action) -> Result<()> {
        self.state.apply(&action).map_err(Error::Invalid)?;
        self.actions.push(action);
        Ok(())
    }

    fn new_number(&self) -> Result<u64> {
        let number = self.database.new_number()?;
        locked(&self.made).numbers.insert(number);
        Ok(number)
    }

    /// Where a new file of a table goes.
    fn new_file(&self, table: u64, path: impl FnOnce(u64, u64) -> String) -> Result<(Identity, String)> {
        let number = self.new_number()?;
        self.database.make_directory(table)?;
        let path = path(table, number);
        let mut made = locked(&self.made);
        made.paths.push(path.clone());
        made.directories.insert(table);
        Ok((Identity { database: self.state.database, table, number }, path))
    }

    pub(crate) fn level(&self) -> Level {
        self.database.store.level
    }

    pub(crate) fn table(&self, table: u64) -> Result<&Arc<Table>> {
        self.state.table(table).ok_or_else(|| Error::Invalid(format!("there is no table {table}")))
    }

    /// Creates a table and gives its number.
    ///
    /// # Errors
    /// `Invalid` when there is one of this name, or the definition cannot be stored.
    pub fn create_table(&mut self, definition: Definition) -> Result<u64> {
        definition.check()?;
        let table = self.new_number()?;
        self.act(Action::CreateTable { table, definition: Arc::new(definition) })?;
        Ok(table)
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// `Invalid` when there is no such table.
    pub fn drop_table(&mut self, table: u64) -> Result<()> {
        self.act(Action::DropTable { table })
    }

    /// Gives a table another definition. Parts keep the columns that they were written with: whoever reads them
    /// finds columns by the numbers of their fields.
    ///
    /// # Errors
    /// `Invalid` when there is no such table, one of the new name, or the definition cannot be stored.
    pub fn alter_table(&mut self, table: u64, definition: Definition) -> Result<()> {
        definition.check()?;
        self.act(Action::AlterTable { table, definition: Arc::new(definition) })
    }

    /// Sets or removes a property of the database.
    ///
    /// # Errors
    /// Never so far.
    pub fn set_property(&mut self, key: &str, value: Option<&str>) -> Result<()> {
        self.act(Action::SetProperty { key: key.to_owned(), value: value.map(str::to_owned) })
    }

    /// Begins a part of a table. Several may be written at once, by several threads; each is given to
    /// [`Transaction::add_part`] when it is finished.
    ///
    /// # Errors
    /// When there is no such table, or the system refuses.
    pub fn write_part(&self, table: u64, options: WriteOptions) -> Result<PartWriter> {
        let definition = Arc::clone(&self.table(table)?.definition);
        let (identity, _) = self.new_file(table, part_path)?;
        PartWriter::create(Arc::clone(&self.database.store), identity, definition, options)
    }

    /// Adds a part that was finished.
    ///
    /// # Errors
    /// `Invalid` when there is no such table, the part is there already, or another transaction made it.
    pub fn add_part(&mut self, table: u64, part: Part) -> Result<()> {
        if !locked(&self.made).numbers.contains(&part.number) {
            return Err(Error::Invalid(format!("part {} is not of this transaction", part.number)));
        }
        self.act(Action::AddPart { table, part })
    }

    /// Removes parts, and adds those that have their rows now, in their place.
    ///
    /// # Errors
    /// `Invalid` when there is no such table or part.
    pub fn replace_parts(&mut self, table: u64, removed: &[u64], added: Vec<Part>) -> Result<()> {
        let parts = &self.table(table)?.parts;
        let order = removed.iter().filter_map(|part| parts.get(part)).map(|part| part.order).min();
        for part in removed {
            self.act(Action::RemovePart { table, part: *part })?;
        }
        for part in added {
            let order = order.unwrap_or(part.order);
            self.add_part(table, Part { order, ..part })?;
        }
        Ok(())
    }

    /// Deletes rows of a part, beside those that are deleted already. A part without rows left is removed.
    ///
    /// # Errors
    /// `Invalid` when there is no such table or part; `Damaged` when its deleted rows cannot be read.
    pub fn delete_rows(&mut self, table: u64, part: u64, rows: &DeletionVector) -> Result<()> {
        let found = Arc::clone(self.table(table)?);
        let Some(entry) = found.part(part) else {
            return Err(Error::Invalid(format!("there is no part {part} of table {table}")));
        };
        let level = self.level();
        let mut all = self.base.deletions(&found, entry)?;
        let before = all.row_count(level);
        all.merge(level, rows);
        let row_count = all.row_count(level);
        if row_count > entry.row_count {
            return Err(Error::Invalid(format!("part {part} has {} rows, not {row_count}", entry.row_count)));
        }
        if row_count == before {
            return Ok(());
        }
        if row_count == entry.row_count {
            return self.act(Action::RemovePart { table, part });
        }
        let failed = |source| Error::Encode { column: "deleted rows".to_owned(), source };
        let payload = all.write(level, part, entry.row_count).map_err(failed)?;
        let (identity, path) = self.new_file(table, deletions_path)?;
        let (bytes, hash) = header::file(FileKind::Deletions, identity, &payload);
        let store = &self.database.store;
        let mut output = store.io.create(&path).map_err(Error::io("create", &path))?;
        output.write_all(&bytes).map_err(Error::io("write", &path))?;
        store.sync(&mut *output, &path)?;
        let number = identity.number;
        let deletions = Some(Deletions { number, row_count, file_bytes: bytes.len() as u64, hash });
        self.act(Action::SetDeletions { table, part, deletions })
    }

    /// Makes the changes durable and visible, all of them, and gives the version that has them.
    ///
    /// # Errors
    /// `Conflict` when another transaction changed the same; `OutcomeUnknown` when the changes may be there or
    /// not, which opening the database again shows; after all other errors they are not.
    pub fn commit(mut self) -> Result<u64> {
        let actions = std::mem::take(&mut self.actions);
        let committed: BTreeSet<String> = actions.iter().filter_map(path_of).collect();
        let mut made = locked(&self.made);
        let directories = std::mem::take(&mut made.directories);
        // From when the commit may be durable, no way out of here may remove its files.
        let paths = std::mem::take(&mut made.paths);
        drop(made);
        let outcome = self.database.commit(&directories, |newest| {
            if newest.version() == self.base.version() {
                return Ok((std::mem::take(&mut self.state), actions));
            }
            let mut state = newest.clone();
            for action in &actions {
                check_conflict(action, &self.base, newest)?;
                state.apply(action).map_err(|what| Error::Conflict { what })?;
            }
            Ok((state, actions))
        });
        match outcome {
            Ok(version) => {
                // What was made and not added goes.
                locked(&self.made).paths =
                    paths.into_iter().filter(|path| !committed.contains(path)).collect();
                Ok(version)
            }
            Err(Failed::Before(error)) => {
                locked(&self.made).paths = paths;
                Err(error)
            }
            Err(Failed::Unknown(error)) => Err(Error::OutcomeUnknown(Box::new(error))),
        }
    }
}

/// The file that an action adds.
fn path_of(action: &Action) -> Option<String> {
    match action {
        Action::AddPart { table, part } => Some(part_path(*table, part.number)),
        Action::SetDeletions { table, deletions: Some(deletions), .. } => {
            Some(deletions_path(*table, deletions.number))
        }
        _ => None,
    }
}

/// Fails when another transaction changed what this action changes or relies on.
fn check_conflict(action: &Action, base: &State, newest: &State) -> Result<()> {
    let conflict = |what: String| Err(Error::Conflict { what });
    let (table, part) = match action {
        Action::CreateTable { .. } => return Ok(()),
        Action::SetProperty { key, .. } if base.properties().get(key) == newest.properties().get(key) => {
            return Ok(());
        }
        Action::SetProperty { key, .. } => return conflict(format!("property '{key}'")),
        Action::DropTable { table } | Action::AlterTable { table, .. } | Action::AddPart { table, .. } => {
            (*table, None)
        }
        Action::RemovePart { table, part } | Action::SetDeletions { table, part, .. } => {
            (*table, Some(*part))
        }
    };
    // What the transaction itself created nobody else can have changed.
    let Some(before) = base.table(table) else { return Ok(()) };
    let name = &before.definition.name;
    match newest.table(table) {
        Some(now) if now.definition == before.definition => match part {
            Some(part) if before.part(part).is_some() && now.part(part) != before.part(part) => {
                conflict(format!("part {part} of table '{name}'"))
            }
            _ => Ok(()),
        },
        _ => conflict(format!("table '{name}'")),
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let made = locked(&self.made);
        for path in &made.paths {
            // If that fails, the file is removed when it is old enough.
            self.database.store.io.remove(path).unwrap_or_default();
        }
        self.database.forget_numbers(&made.numbers);
    }
}
