//! Transactions: changes to any number of tables, committed as one version or not at all.
//!
//! A transaction sees the version that it began with and its own changes. If there is a newer version when it
//! commits, its changes are applied to that; it fails if another transaction has changed the same.
//!
//! It borrows nothing: it can be sent to other threads, and any number of them may write its parts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keirin_kernels::Level;

use crate::cancel::Cancel;
use crate::database::{Database, locked};
use crate::deletions::DeletionVector;
use crate::error::{Error, Result};
use crate::header::{self, FileKind, Identity};
use crate::io::Output;
use crate::log::Failed;
use crate::part::{PartWriter, WriteOptions};
use crate::schema::{Definition, Properties};
use crate::snapshot::Snapshot;
use crate::state::{Action, Deletions, MAIN_SCHEMA, Part, RETENTION, State, Table};
use crate::store::{deletions_path, part_path};
use crate::unsynced::Unsynced;
use crate::view::{View, check_name};

/// A transaction: changes that are not committed yet.
#[derive(Debug)]
pub struct Transaction {
    database: Arc<Database>,
    base: Snapshot,
    /// The base with the changes applied.
    state: State,
    actions: Vec<Action>,
    made: Mutex<Made>,
    /// Its files that are not synced yet.
    unsynced: Arc<Unsynced>,
    /// The table whose rows it rewrites, as it was at the beginning.
    rewrites: Option<Arc<Table>>,
    /// Tables whose rows other transactions must not have changed.
    same_rows: BTreeSet<u64>,
    /// Whether it fails rather than get in the way of a transaction that rewrites rows.
    is_background: bool,
    cancel: Cancel,
    /// The process that creates its files.
    process: u32,
}

/// The files of a transaction.
#[derive(Debug, Default)]
struct Made {
    /// The numbers of its files and tables.
    numbers: BTreeSet<u64>,
    files: Vec<NewFile>,
}

/// A file that a transaction has created.
#[derive(Clone, Debug)]
struct NewFile {
    table: u64,
    number: u64,
    path: String,
}

impl NewFile {
    /// Whether the version refers to the file.
    fn is_of(&self, state: &State) -> bool {
        let deletions = |part: &Part| part.deletions.map(|deletions| deletions.number);
        state.table(self.table).is_some_and(|table| {
            table.parts.contains_key(&self.number)
                || table.parts.values().any(|part| deletions(part) == Some(self.number))
        })
    }
}

/// Checks at compile time that transactions and writers can be sent to other threads.
const _: () = {
    const fn is_owned<T: Send + Sync + 'static>() {}
    const fn is_sent<T: Send + 'static>() {}
    is_owned::<Transaction>();
    is_sent::<PartWriter>();
};

impl Transaction {
    pub(crate) fn new(database: Arc<Database>, base: Snapshot, rewrites: Option<Arc<Table>>) -> Self {
        let (state, actions, made) = ((*base).clone(), Vec::new(), Mutex::default());
        let unsynced = Unsynced::new(Arc::clone(&database.store));
        let process = std::process::id();
        Self {
            database,
            base,
            state,
            actions,
            made,
            unsynced,
            rewrites,
            same_rows: BTreeSet::new(),
            is_background: false,
            cancel: Cancel::default(),
            process,
        }
    }

    /// Makes the commit fail if another transaction is rewriting rows of its tables.
    pub(crate) fn give_way(&mut self) {
        self.is_background = true;
    }

    /// Makes [`compact`](Self::compact), [`repair_part`](Self::repair_part) and [`commit`](Self::commit) fail once
    /// the work is cancelled.
    pub fn stop_when(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The version that it began with.
    #[must_use]
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// The state with its changes.
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

    /// Creates a file of a table. The file is recorded, and so removed on a rollback, only once it was created: a
    /// name that is taken belongs to another process.
    fn new_file(
        &self,
        table: u64,
        path: impl FnOnce(u64, u64) -> String,
    ) -> Result<(Identity, String, Box<dyn Output>)> {
        let number = self.new_number()?;
        self.database.check_lock()?;
        self.database.make_directory(table)?;
        let path = path(table, number);
        let output = self.database.store.create(&path)?;
        locked(&self.made).files.push(NewFile { table, number, path: path.clone() });
        Ok((Identity { database: self.state.database, table, number }, path, output))
    }

    pub(crate) fn level(&self) -> Level {
        self.database.store.level
    }

    pub(crate) fn table(&self, table: u64) -> Result<&Arc<Table>> {
        self.state.table(table).ok_or_else(|| Error::Invalid(format!("there is no table {table}")))
    }

    /// Creates a table and returns its number.
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

    /// Makes the commit fail if another transaction has changed or added rows of a table: for definitions that only
    /// fit the rows that this transaction has seen.
    pub fn require_same_rows(&mut self, table: u64) {
        self.same_rows.insert(table);
    }

    /// Gives a table another definition. Parts keep the columns that they were written with; readers find columns
    /// by field number. Combined with changes of rows it rewrites the whole table, so it
    /// [requires](Self::require_same_rows) that no other rows are added.
    ///
    /// # Errors
    /// `Invalid` when there is no such table, one of the new name, or the definition cannot be stored.
    pub fn alter_table(&mut self, table: u64, definition: Definition) -> Result<()> {
        definition.check()?;
        self.act(Action::AlterTable { table, definition: Arc::new(definition) })
    }

    /// Creates a schema, or replaces the properties of an existing one.
    ///
    /// # Errors
    /// `Invalid` when the name is too long.
    pub fn set_schema(&mut self, schema: &str, properties: Properties) -> Result<()> {
        check_name(schema)?;
        self.act(Action::SetSchema { schema: schema.to_owned(), properties: Some(properties) })
    }

    /// Drops an empty schema.
    ///
    /// # Errors
    /// `Invalid` when there is no such schema, it is not empty, or it is the main one.
    pub fn drop_schema(&mut self, schema: &str) -> Result<()> {
        if schema == MAIN_SCHEMA {
            return Err(Error::Invalid(format!("schema '{schema}' is always there")));
        }
        self.act(Action::SetSchema { schema: schema.to_owned(), properties: None })
    }

    /// Creates a view and returns its number.
    ///
    /// # Errors
    /// `Invalid` when there is a table or view of this name, or no such schema.
    pub fn create_view(&mut self, view: View) -> Result<u64> {
        view.check()?;
        let number = self.new_number()?;
        self.act(Action::SetView { view: number, definition: Some(Arc::new(view)) })?;
        Ok(number)
    }

    /// Gives a view another definition.
    ///
    /// # Errors
    /// `Invalid` when there is no such view, and as [`Transaction::create_view`].
    pub fn alter_view(&mut self, view: u64, definition: View) -> Result<()> {
        definition.check()?;
        if self.state.view(view).is_none() {
            return Err(Error::Invalid(format!("there is no view {view}")));
        }
        self.act(Action::SetView { view, definition: Some(Arc::new(definition)) })
    }

    /// Drops a view.
    ///
    /// # Errors
    /// `Invalid` when there is no such view.
    pub fn drop_view(&mut self, view: u64) -> Result<()> {
        self.act(Action::SetView { view, definition: None })
    }

    /// Sets how long obsolete files stay, in whole seconds.
    ///
    /// # Errors
    /// As [`Transaction::set_property`].
    pub fn set_retention(&mut self, retention: Duration) -> Result<()> {
        self.set_property(RETENTION, Some(&retention.as_secs().to_string()))
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
        let (identity, _, output) = self.new_file(table, part_path)?;
        let (store, unsynced) = (Arc::clone(&self.database.store), Arc::clone(&self.unsynced));
        Ok(PartWriter::new(store, unsynced, output, identity, definition, options))
    }

    /// Adds a finished part.
    ///
    /// # Errors
    /// `Invalid` when there is no such table, the part is there already, or another transaction made it.
    pub fn add_part(&mut self, table: u64, part: Part) -> Result<()> {
        if !locked(&self.made).numbers.contains(&part.number) {
            return Err(Error::Invalid(format!("part {} is not of this transaction", part.number)));
        }
        self.act(Action::AddPart { table, part })
    }

    /// Replaces parts by others with their rows.
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

    /// Deletes further rows of a part. A part without live rows is removed.
    ///
    /// # Errors
    /// `Invalid` when there is no such table or part; `Damaged` when its deleted rows cannot be read.
    pub fn delete_rows(&mut self, table: u64, part: u64, rows: &DeletionVector) -> Result<()> {
        let found = Arc::clone(self.table(table)?);
        let Some(entry) = found.part(part) else {
            return Err(Error::Invalid(format!("there is no part {part} of table {table}")));
        };
        let level = self.level();
        self.base.open_part(&found, entry)?.check_deletions(rows).map_err(|_| {
            Error::Invalid(format!("part {part} of table {table} does not have the rows to be deleted"))
        })?;
        let mut all = self.base.deletions(&found, entry)?;
        let before = all.row_count(level);
        all.merge(level, rows);
        let row_count = all.row_count(level);
        if row_count == before {
            return Ok(());
        }
        if row_count == entry.row_count {
            return self.act(Action::RemovePart { table, part });
        }
        let failed = |source| Error::Encode { column: "deleted rows".to_owned(), source };
        let payload = all.write(level, part, entry.row_count).map_err(failed)?;
        let (identity, path, mut output) = self.new_file(table, deletions_path)?;
        let (bytes, hash) = header::file(FileKind::Deletions, identity, &payload);
        output.write_all(&bytes).map_err(Error::io("write", &path))?;
        self.unsynced.add(path, output, bytes.len() as u64)?;
        let number = identity.number;
        let deletions = Some(Deletions { number, row_count, file_bytes: bytes.len() as u64, hash });
        self.act(Action::SetDeletions { table, part, deletions })
    }

    /// Makes all changes durable and visible and returns the new version.
    ///
    /// # Errors
    /// `Cancelled`; `Conflict` when another transaction changed the same; `OutcomeUnknown` when the changes may or
    /// may not be committed, which opening the database again shows. After any other error they are not.
    pub fn commit(mut self) -> Result<u64> {
        self.cancel.check()?;
        self.unsynced.sync()?;
        self.cancel.check()?;
        let actions = std::mem::take(&mut self.actions);
        // Taken out first: once the commit may be durable, dropping the transaction must not remove its files.
        let files = std::mem::take(&mut locked(&self.made).files);
        let directories = files.iter().map(|file| file.table).collect();
        let mut same_rows = std::mem::take(&mut self.same_rows);
        same_rows.extend(rewritten_tables(&actions));
        let mut obsolete = Vec::new();
        let outcome = self.database.commit(&directories, |newest| {
            let is_rewriting = |action: &Action| match action {
                Action::RemovePart { table, part } => {
                    self.database.rewritten(*table).iter().any(|table| table.part(*part).is_some())
                }
                _ => false,
            };
            if self.is_background && actions.iter().any(is_rewriting) {
                return Err(Error::Conflict { what: "the table".to_owned() });
            }
            let mut state = std::mem::take(&mut self.state);
            if newest.version() != self.base.version() {
                check_rows(&same_rows, &self.base, newest)?;
                state = newest.clone();
                for action in &actions {
                    check_conflict(action, &self.base, newest)?;
                    state.apply(action).map_err(|what| Error::Conflict { what })?;
                }
            }
            let (used, not_used): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.is_of(&state));
            self.database.check_files(used.into_iter().map(|file| file.path.clone()).collect())?;
            obsolete.extend(not_used.into_iter().cloned());
            Ok((state, actions))
        });
        match outcome {
            Ok(version) => {
                locked(&self.made).files = obsolete;
                Ok(version)
            }
            Err(Failed::Before(error)) => {
                locked(&self.made).files = files;
                Err(error)
            }
            Err(Failed::Unknown(error)) => Err(Error::OutcomeUnknown(Box::new(error))),
        }
    }
}

/// Tables of which both the definition and rows are changed: rows added by others would fit the old definition
/// only.
fn rewritten_tables(actions: &[Action]) -> impl Iterator<Item = u64> {
    let altered: BTreeSet<u64> = actions
        .iter()
        .filter_map(|action| match action {
            Action::AlterTable { table, .. } => Some(*table),
            _ => None,
        })
        .collect();
    actions.iter().filter_map(move |action| match action {
        Action::RemovePart { table, .. } | Action::SetDeletions { table, .. } => {
            altered.contains(table).then_some(*table)
        }
        _ => None,
    })
}

/// Fails when another transaction changed rows of one of these tables.
fn check_rows(tables: &BTreeSet<u64>, base: &State, newest: &State) -> Result<()> {
    let parts = |state: &State, table| state.table(table).map(|table| table.parts.clone());
    for table in tables {
        if let Some(before) = base.table(*table).filter(|_| parts(base, *table) != parts(newest, *table)) {
            return Err(Error::Conflict { what: format!("the rows of table '{}'", before.definition.name) });
        }
    }
    Ok(())
}

/// Fails when another transaction changed what this action changes or relies on.
fn check_conflict(action: &Action, base: &State, newest: &State) -> Result<()> {
    let conflict = |what: String| Err(Error::Conflict { what });
    let (table, part) = match action {
        Action::CreateTable { .. } => return Ok(()),
        Action::SetProperty { key, .. } => {
            let is_same = base.properties().get(key) == newest.properties().get(key);
            return if is_same { Ok(()) } else { conflict(format!("property '{key}'")) };
        }
        Action::SetSchema { schema, .. } => {
            let is_same = base.schema(schema) == newest.schema(schema);
            return if is_same { Ok(()) } else { conflict(format!("schema '{schema}'")) };
        }
        Action::SetView { view, .. } => {
            let is_same = base.view(*view) == newest.view(*view);
            return if is_same { Ok(()) } else { conflict(format!("view {view}")) };
        }
        Action::DropTable { table } | Action::AlterTable { table, .. } | Action::AddPart { table, .. } => {
            (*table, None)
        }
        Action::RemovePart { table, part } | Action::SetDeletions { table, part, .. } => {
            (*table, Some(*part))
        }
    };
    // The transaction created the table, so nobody else can have changed it.
    let Some(before) = base.table(table) else { return Ok(()) };
    let name = &before.definition.name;
    match newest.table(table) {
        Some(now) if now.definition == before.definition => match part {
            None if is_retyped(action, &before.definition) && now.parts != before.parts => {
                conflict(format!("the rows of table '{name}'"))
            }
            Some(part) if before.part(part).is_some() && now.part(part) != before.part(part) => {
                conflict(format!("part {part} of table '{name}'"))
            }
            _ => Ok(()),
        },
        _ => conflict(format!("table '{name}'")),
    }
}

/// Whether rows that others added meanwhile may not fit the new definition.
fn is_retyped(action: &Action, before: &Definition) -> bool {
    let Action::AlterTable { definition, .. } = action else { return false };
    definition.fields.iter().any(|field| match before.fields.iter().find(|other| other.id == field.id) {
        Some(before) => before.data_type != field.data_type || before.is_nullable && !field.is_nullable,
        None => !field.is_nullable,
    })
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked process: the files belong to the parent.
            return;
        }
        let made = locked(&self.made);
        for file in &made.files {
            // If this fails, the file is an orphan and removed later.
            self.database.store.io.remove(&file.path).unwrap_or_default();
        }
        let tables: BTreeSet<u64> = made.files.iter().map(|file| file.table).collect();
        tables.into_iter().for_each(|table| self.database.remove_unused_directory(table));
        self.database.forget_numbers(&made.numbers);
        self.rewrites.iter().for_each(|table| self.database.ends_rewriting(table));
    }
}
