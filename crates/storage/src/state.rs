//! The state of a database in one version, and the actions that lead from one version to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::header::{DatabaseId, HEADER_BYTES};
use crate::io::KnownFile;
use crate::schema::{Definition, Properties};
use crate::view::View;

/// The property that says how many seconds old versions are kept.
pub(crate) const RETENTION: &str = "retention";
const RETENTION_DEFAULT: Duration = Duration::from_secs(3600);

/// The schema that is always there.
pub const MAIN_SCHEMA: &str = "main";

/// One version of a database: its schemas, tables and views, and which files have their rows. Never changes.
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
    views: BTreeMap<u64, Arc<View>>,
    /// The main schema is listed only if it has properties.
    schemas: BTreeMap<String, Properties>,
    /// Numbers of tables and views by schema and name.
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
    /// The position among the parts: rows of a lower one come first. A part that replaces others takes the lowest
    /// position of theirs.
    pub order: u64,
    /// The partition that the layers above put its rows in; empty if there is none. Only parts of the same
    /// partition are merged.
    pub partition: Arc<str>,
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

impl Deletions {
    /// What the log knows of the file at `path`.
    pub(crate) fn known<'a>(&self, path: &'a str) -> KnownFile<'a> {
        KnownFile { path, byte_count: self.file_bytes, hash: self.hash }
    }
}

impl Part {
    /// What the log knows of the file at `path`.
    pub(crate) fn known<'a>(&self, path: &'a str) -> KnownFile<'a> {
        KnownFile { path, byte_count: self.file_bytes, hash: self.hash }
    }

    /// The range of the footer and its header in the file; `None` if they do not fit in it.
    pub(crate) fn footer_range(&self) -> Option<Range<u64>> {
        let bytes = u64::from(self.footer_bytes) + HEADER_BYTES as u64;
        Some(self.file_bytes.checked_sub(bytes)?..self.file_bytes)
    }

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
        sort_by_rows(&mut parts);
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

/// Puts parts into the order of their rows.
pub(crate) fn sort_by_rows(parts: &mut [&Part]) {
    parts.sort_by_key(|part| (part.order, part.number));
}

/// A change to the state, as commits log it: `docs/format/log.md`.
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
    SetSchema {
        schema: String,
        properties: Option<Properties>,
    },
    SetView {
        view: u64,
        definition: Option<Arc<View>>,
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

    /// Its views by number.
    pub fn views(&self) -> impl Iterator<Item = (u64, &Arc<View>)> {
        self.views.iter().map(|(number, view)| (*number, view))
    }

    /// The view of this number.
    #[must_use]
    pub fn view(&self, number: u64) -> Option<&Arc<View>> {
        self.views.get(&number)
    }

    /// The view of this name, and its number.
    #[must_use]
    pub fn view_named(&self, schema: &str, name: &str) -> Option<(u64, &Arc<View>)> {
        let number = self.names.get(&(schema.to_owned(), name.to_owned()))?;
        self.views.get_key_value(number).map(|(number, view)| (*number, view))
    }

    /// Names of its schemas, in order; [`MAIN_SCHEMA`] is always one.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        let names = self.schemas.keys().map(String::as_str).chain([MAIN_SCHEMA]);
        names.collect::<BTreeSet<_>>().into_iter()
    }

    /// Properties of a schema, if there is one of this name.
    #[must_use]
    pub fn schema(&self, name: &str) -> Option<&Properties> {
        static NONE: Properties = Properties::new();
        self.schemas.get(name).or_else(|| (name == MAIN_SCHEMA).then_some(&NONE))
    }

    /// How long obsolete files stay: the property `retention`, in seconds, or an hour.
    #[must_use]
    pub fn retention(&self) -> Duration {
        let seconds = self.properties.get(RETENTION).and_then(|seconds| seconds.parse().ok());
        seconds.map_or(RETENTION_DEFAULT, Duration::from_secs)
    }

    /// Properties of the database.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Applies an action, or says why it cannot be applied.
    pub(crate) fn apply(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::CreateTable { table, definition } => {
                if self.tables.contains_key(table) {
                    return Err(format!("table {table} is there already"));
                }
                self.take_name(*table, &definition.schema, &definition.name)?;
                let (number, definition) = (*table, Arc::clone(definition));
                let table = Table { number, definition, parts: BTreeMap::new() };
                self.tables.insert(number, Arc::new(table));
            }
            Action::DropTable { table } => {
                let dropped =
                    self.tables.remove(table).ok_or_else(|| format!("there is no table {table}"))?;
                self.free_name(&dropped.definition.schema, &dropped.definition.name);
            }
            Action::AlterTable { table, definition } => {
                let before = Arc::clone(&self.table_mut(*table)?.definition);
                if (&before.schema, &before.name) != (&definition.schema, &definition.name) {
                    self.take_name(*table, &definition.schema, &definition.name)?;
                    self.free_name(&before.schema, &before.name);
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
            Action::SetSchema { schema, properties: Some(properties) } => {
                self.schemas.insert(schema.clone(), properties.clone());
            }
            Action::SetSchema { schema, properties: None } => {
                if let Some((_, name)) = self.names.keys().find(|(other, _)| other == schema) {
                    return Err(format!("schema '{schema}' is not empty: there is '{name}'"));
                }
                if self.schemas.remove(schema).is_none() {
                    return Err(format!("there is no schema '{schema}' to drop"));
                }
            }
            Action::SetView { view, definition: Some(definition) } => {
                let before = self.views.get(view).map(Arc::clone);
                let name_of = |view: &View| (view.schema.clone(), view.name.clone());
                if before.as_deref().map(name_of) != Some(name_of(definition)) {
                    self.take_name(*view, &definition.schema, &definition.name)?;
                    before.iter().for_each(|before| self.free_name(&before.schema, &before.name));
                }
                self.views.insert(*view, Arc::clone(definition));
            }
            Action::SetView { view, definition: None } => {
                let dropped = self.views.remove(view).ok_or_else(|| format!("there is no view {view}"))?;
                self.free_name(&dropped.schema, &dropped.name);
            }
        }
        Ok(())
    }

    /// Gives a table or view a name; fails if the name is taken.
    fn take_name(&mut self, number: u64, schema: &str, name: &str) -> Result<(), String> {
        if self.schema(schema).is_none() {
            return Err(format!("there is no schema '{schema}'"));
        }
        let full = (schema.to_owned(), name.to_owned());
        if let Some(other) = self.names.get(&full) {
            let kind = if self.tables.contains_key(other) { "table" } else { "view" };
            return Err(format!("there is a {kind} '{schema}.{name}' already"));
        }
        Arc::make_mut(&mut self.names).insert(full, number);
        Ok(())
    }

    fn free_name(&mut self, schema: &str, name: &str) {
        Arc::make_mut(&mut self.names).remove(&(schema.to_owned(), name.to_owned()));
    }

    fn table_mut(&mut self, table: u64) -> Result<&mut Table, String> {
        let found = self.tables.get_mut(&table).ok_or_else(|| format!("there is no table {table}"))?;
        Ok(Arc::make_mut(found))
    }

    /// The actions that make this version from the empty state.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        actions.extend(self.schemas.iter().map(|(schema, properties)| {
            let properties = Some(properties.clone());
            Action::SetSchema { schema: schema.clone(), properties }
        }));
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
        actions.extend(self.views.iter().map(|(view, definition)| {
            let definition = Some(Arc::clone(definition));
            Action::SetView { view: *view, definition }
        }));
        let properties = self.properties.iter();
        actions.extend(properties.map(|(key, value)| {
            let value = Some(value.clone());
            Action::SetProperty { key: key.clone(), value }
        }));
        actions
    }
}
