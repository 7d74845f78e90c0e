//! What a version of a database has, and the actions that lead from one version to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::header::DatabaseId;
use crate::schema::{Definition, Properties};

/// One version of a database: its tables and which files have their rows. Never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(crate) database: DatabaseId,
    pub(crate) version: u64,
    /// Microseconds since 1970.
    pub(crate) time: i64,
    /// The hash of the header of this version's commit.
    pub(crate) hash: u64,
    pub(crate) next_number: u64,
    pub(crate) tables: BTreeMap<u64, Arc<Table>>,
    /// Numbers of tables by schema and name.
    names: Arc<BTreeMap<(String, String), u64>>,
    pub(crate) properties: Properties,
}

/// A table in one version of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its number.
    pub number: u64,
    /// Its columns, name and so on.
    pub definition: Arc<Definition>,
    pub(crate) parts: BTreeMap<u64, Part>,
}

/// A file with rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: u64,
    /// Its place among the parts: rows of a lesser one come first. What replaces parts takes the least of theirs.
    pub order: u64,
    /// Rows, deleted ones included.
    pub row_count: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the footer alone.
    pub footer_bytes: u32,
    /// The hash of the footer's header, which names the content.
    pub(crate) hash: u64,
    /// Rows that are deleted.
    pub deletions: Option<Deletions>,
}

/// A file that says which rows of a part are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletions {
    /// Its number.
    pub number: u64,
    /// How many rows are deleted.
    pub row_count: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The hash of its header.
    pub(crate) hash: u64,
}

impl Part {
    /// Rows that are not deleted.
    #[must_use]
    pub fn live_row_count(&self) -> u64 {
        self.row_count - self.deletions.map_or(0, |deletions| deletions.row_count)
    }
}

impl Table {
    /// Its parts, in the order of their rows.
    #[must_use]
    pub fn parts(&self) -> Vec<&Part> {
        let mut parts: Vec<&Part> = self.parts.values().collect();
        parts.sort_by_key(|part| (part.order, part.number));
        parts
    }

    /// The part of this number.
    #[must_use]
    pub fn part(&self, number: u64) -> Option<&Part> {
        self.parts.get(&number)
    }

    /// Rows that are not deleted.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.parts.values().map(Part::live_row_count).sum()
    }
}

/// One step from a version to the next: `docs/format/log.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    CreateTable {
        table: u64,
        definition: Arc<Definition>,
    },
    DropTable {
        table: u64,
    },
    AlterTable {
        table: u64,
        definition: Arc<Definition>,
    },
    /// The part has no deletions.
    AddPart {
        table: u64,
        part: Part,
    },
    RemovePart {
        table: u64,
        part: u64,
    },
    SetDeletions {
        table: u64,
        part: u64,
        deletions: Option<Deletions>,
    },
    SetProperty {
        key: String,
        value: Option<String>,
    },
}

impl State {
    /// The version's number; 0 is the empty database.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When it was committed, in microseconds since 1970.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.time
    }

    /// Its tables by number.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The table of this number.
    #[must_use]
    pub fn table(&self, number: u64) -> Option<&Arc<Table>> {
        self.tables.get(&number)
    }

    /// The table of this name.
    #[must_use]
    pub fn table_named(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        let number = self.names.get(&(schema.to_owned(), name.to_owned()))?;
        self.tables.get(number)
    }

    /// Properties of the database.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Carries the action out, or says why it cannot be.
    pub(crate) fn apply(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::CreateTable { table, definition } => {
                if self.tables.contains_key(table) {
                    return Err(format!("table {table} is there already"));
                }
                self.name_table(*table, definition)?;
                let (number, definition) = (*table, Arc::clone(definition));
                let table = Table { number, definition, parts: BTreeMap::new() };
                self.tables.insert(number, Arc::new(table));
            }
            Action::DropTable { table } => {
                let dropped =
                    self.tables.remove(table).ok_or_else(|| format!("there is no table {table}"))?;
                Arc::make_mut(&mut self.names).remove(&full_name(&dropped.definition));
            }
            Action::AlterTable { table, definition } => {
                let before = Arc::clone(&self.table_mut(*table)?.definition);
                if full_name(&before) != full_name(definition) {
                    self.name_table(*table, definition)?;
                    Arc::make_mut(&mut self.names).remove(&full_name(&before));
                }
                self.table_mut(*table)?.definition = Arc::clone(definition);
            }
            Action::AddPart { table, part } => {
                let number = part.number;
                if self.table_mut(*table)?.parts.insert(number, part.clone()).is_some() {
                    return Err(format!("part {number} is there already"));
                }
            }
            Action::RemovePart { table, part } => {
                let removed = self.table_mut(*table)?.parts.remove(part);
                removed.ok_or_else(|| format!("there is no part {part}"))?;
            }
            Action::SetDeletions { table, part, deletions } => {
                let parts = &mut self.table_mut(*table)?.parts;
                let part = parts.get_mut(part).ok_or_else(|| format!("there is no part {part}"))?;
                if deletions.is_some_and(|deletions| deletions.row_count > part.row_count) {
                    return Err(format!("part {} loses more rows than it has", part.number));
                }
                part.deletions = *deletions;
            }
            Action::SetProperty { key, value: Some(value) } => {
                self.properties.insert(key.clone(), value.clone());
            }
            Action::SetProperty { key, value: None } => {
                self.properties.remove(key);
            }
        }
        Ok(())
    }

    fn name_table(&mut self, table: u64, definition: &Definition) -> Result<(), String> {
        let name = full_name(definition);
        if self.names.contains_key(&name) {
            return Err(format!("there is a table '{}.{}' already", name.0, name.1));
        }
        Arc::make_mut(&mut self.names).insert(name, table);
        Ok(())
    }

    fn table_mut(&mut self, table: u64) -> Result<&mut Table, String> {
        let found = self.tables.get_mut(&table).ok_or_else(|| format!("there is no table {table}"))?;
        Ok(Arc::make_mut(found))
    }

    /// The actions that make this version from nothing.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for table in self.tables.values() {
            let number = table.number;
            actions.push(Action::CreateTable { table: number, definition: Arc::clone(&table.definition) });
            for part in table.parts.values() {
                let deletions = part.deletions;
                let part = Part { deletions: None, ..part.clone() };
                let set = Action::SetDeletions { table: number, part: part.number, deletions };
                actions.push(Action::AddPart { table: number, part });
                actions.extend(deletions.is_some().then_some(set));
            }
        }
        let properties = self.properties.iter();
        actions.extend(properties.map(|(key, value)| {
            let value = Some(value.clone());
            Action::SetProperty { key: key.clone(), value }
        }));
        actions
    }
}

fn full_name(definition: &Definition) -> (String, String) {
    (definition.schema.clone(), definition.name.clone())
}
