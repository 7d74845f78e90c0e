//! The model: the expected content of a database, and the statements that change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keirin_kernels::{BitBuffer, Level, Selection};

use crate::column::{Column, Flags, Values};
use crate::part::{PartReader, WriteOptions};
use crate::schema::{DataType, Definition, Field, INITIAL, SortKey};
use crate::simulated_disk::Random;
use crate::{
    Database, DeletionVector, Error, Part, PartitionedRows, RepairLoss, Result, Snapshot, Table, Transaction,
};

pub(super) const RETENTION: Duration = Duration::from_secs(60);
/// The value that existing rows get in an added column.
const ADDED_VALUE: i64 = 7;
/// Parts of more rows have two stripes.
const STRIPE_ROWS: usize = 8;
const PARTITIONED: &str = "partitioned";

/// A number, and an optional digit: the text of the row, and the length of its list.
pub(crate) type Row = (i64, Option<u8>);

/// The expected content of a database: tables by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    /// Rows in their order; by number if the table is sorted or partitioned.
    pub(crate) tables: BTreeMap<String, Vec<Row>>,
    kinds: BTreeMap<String, Kind>,
    /// For each table with an added column: the numbers of the rows that existed before. Later rows have their own
    /// number in the column.
    altered: BTreeMap<String, BTreeSet<i64>>,
    property: Option<String>,
}

/// How the rows of a table are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kind {
    is_sorted: bool,
    is_partitioned: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Statement {
    Create(String, Kind),
    /// Several tables, as one transaction.
    Drop(Vec<String>),
    /// One after the other, as one transaction.
    Rename(Vec<(String, String)>),
    /// Adds a column; with `true` all rows are rewritten.
    Alter(String, bool),
    /// Rows for several tables, as one transaction, in several parts.
    Insert(Vec<(String, Vec<Vec<Row>>)>),
    /// Rows that are inserted by group commit.
    GroupInsert(String, Vec<Row>),
    /// Deletes the rows whose number has this remainder: divisor and remainder.
    Delete(String, i64, i64),
    /// Compacts parts: the first one, and how many.
    Compact(String, usize, usize),
    Optimize(String),
    MergeBeforeInsert(String),
    RemoveOrphans,
    /// Repairs a part that is whole.
    Repair(String),
    Property(String),
    Checkpoint,
    Maintain,
}

impl Statement {
    /// Whether the statement is maintenance, which commits as soon as it is prepared.
    pub(super) fn is_upkeep(&self) -> bool {
        matches!(self, Self::Optimize(_) | Self::MergeBeforeInsert(_) | Self::Maintain)
    }

    /// Whether the statement affects only rows that existed when it began.
    pub(super) fn is_of_rows_that_it_has_seen(&self) -> bool {
        matches!(self, Self::Delete(..))
    }
}

pub(crate) fn definition(name: &str) -> Definition {
    let list = DataType::List(Box::new(Field::new(0, "element", DataType::I32)));
    Definition::new("main", name, vec![("a", DataType::I64), ("b", DataType::Text), ("c", list)])
}

fn definition_of(name: &str, kind: Kind) -> Definition {
    let mut definition = definition(name);
    if kind.is_sorted {
        let field = definition.fields[0].id;
        definition.keys = vec![SortKey { field, is_descending: false, nulls_first: false }];
    }
    if kind.is_partitioned {
        definition.properties.insert(PARTITIONED.to_owned(), "by the last bit".to_owned());
    }
    definition
}

fn kind_of(definition: &Definition) -> Kind {
    let is_partitioned = definition.properties.contains_key(PARTITIONED);
    Kind { is_sorted: !definition.keys.is_empty(), is_partitioned }
}

/// The column that was added, if one was.
fn added(definition: &Definition) -> Option<&Field> {
    definition.fields.iter().find(|field| field.name == "d")
}

fn numbers(values: impl Iterator<Item = i64>) -> Column<'static> {
    Column { validity: None, values: Values::I64(values.collect::<Vec<_>>().into()) }
}

/// How the rows of a table are written.
pub(crate) fn write_options(table: &Table) -> WriteOptions {
    let field = added(&table.definition).filter(|field| field.properties.contains_key(INITIAL));
    let initial = field.map(|field| (field.id, numbers(std::iter::once(ADDED_VALUE))));
    let is_sorted = !table.definition.keys.is_empty();
    WriteOptions { is_sorted, initial: initial.into_iter().collect(), ..WriteOptions::default() }
}

pub(crate) fn columns(rows: &[Row]) -> Vec<Column<'static>> {
    let length = |row: &Row| i32::from(row.1.unwrap_or(0) % 5);
    let offsets: Vec<i32> = std::iter::once(0)
        .chain(rows.iter().scan(0, |end, row| {
            *end += length(row);
            Some(*end)
        }))
        .collect();
    let text = vec![b'x'; offsets[rows.len()] as usize];
    let elements: Vec<i32> = rows.iter().flat_map(|row| vec![row.0 as i32; length(row) as usize]).collect();
    let validity: BitBuffer = rows.iter().map(|row| row.1.is_some()).collect();
    let validity = Some(Flags::Owned(validity));
    let element = Column { validity: None, values: Values::I32(elements.into()) };
    let list = Values::List { offsets: offsets.clone().into(), children: vec![element] };
    vec![
        numbers(rows.iter().map(|row| row.0)),
        Column {
            validity: validity.clone(),
            values: Values::Text { offsets: offsets.into(), bytes: text.into() },
        },
        Column { validity, values: list },
    ]
}

/// The rows as columns of the table, the added column included if there is one.
fn columns_of(definition: &Definition, rows: &[Row]) -> Vec<Column<'static>> {
    let mut columns = columns(rows);
    columns.extend(added(definition).map(|_| numbers(rows.iter().map(|row| row.0))));
    columns
}

/// The live rows of a part, each with its value in the added column.
fn read_part(snapshot: &Snapshot, table: &Table, part: &Part) -> Result<Vec<(Row, Option<i64>)>> {
    let mut rows = Vec::new();
    let deletions = snapshot.deletions(table, part)?;
    let reader = snapshot.open_part(table, part)?;
    reader.check_deletions(&deletions)?;
    for stripe in 0..reader.stripe_count() {
        let columns: Vec<_> =
            (0..3).map(|column| reader.read(column, stripe, Selection::All)).collect::<Result<_>>()?;
        let [a, b, c] = columns.try_into().expect("three columns");
        let Values::I64(numbers) = &a.values else { panic!("{a:?}") };
        let Values::Text { offsets, .. } = &b.values else { panic!("{b:?}") };
        let Values::List { offsets: lists, children } = &c.values else { panic!("{c:?}") };
        let Values::I32(elements) = &children[0].values else { panic!("{c:?}") };
        let added = read_added(&table.definition, &reader, stripe)?;
        let deleted = deletions.stripe(stripe as u32);
        for row in 0..numbers.len() {
            let is_null = b.validity_bits().is_some_and(|bits| !bits.get(row));
            assert_eq!(is_null, c.validity_bits().is_some_and(|bits| !bits.get(row)));
            let length = (offsets[row + 1] - offsets[row]) as u8;
            let list = &elements[lists[row] as usize..lists[row + 1] as usize];
            assert!(list.iter().all(|element| *element == numbers[row] as i32));
            assert_eq!(list.len(), usize::from(length));
            if deleted.is_none_or(|deleted| !deleted.get(row)) {
                let added = added.as_ref().map(|added| added[row]);
                rows.push(((numbers[row], (!is_null).then_some(length)), added));
            }
        }
    }
    Ok(rows)
}

/// The values of a stripe in the added column.
fn read_added(definition: &Definition, reader: &PartReader, stripe: usize) -> Result<Option<Vec<i64>>> {
    let Some(field) = added(definition) else { return Ok(None) };
    let Some(place) = reader.fields().iter().position(|other| other.id == field.id) else {
        let initial = field.properties.get(INITIAL).map(|text| text.parse().expect("a number"));
        let rows = reader.stripe(stripe);
        let value: i64 = initial.expect("no row came without a value while the table was altered");
        return Ok(Some(vec![value; (rows.end - rows.start) as usize]));
    };
    let column = reader.read(place, stripe, Selection::All)?;
    let Values::I64(values) = &column.values else { panic!("{column:?}") };
    Ok(Some(values.to_vec()))
}

/// The rows of a table, each with its value in the added column, or the damage.
fn read_all(snapshot: &Snapshot, table: &Table) -> Result<Vec<(Row, Option<i64>)>> {
    let mut rows = Vec::new();
    for part in table.parts() {
        rows.extend(read_part(snapshot, table, part)?);
    }
    if kind_of(&table.definition) != Kind::default() {
        rows.sort_unstable();
    }
    Ok(rows)
}

/// The rows of a table, or the damage.
pub(crate) fn read(snapshot: &Snapshot, table: &Table) -> Result<Vec<Row>> {
    Ok(read_all(snapshot, table)?.into_iter().map(|(row, _)| row).collect())
}

/// The content of a version.
pub(crate) fn model_of(snapshot: &Snapshot) -> Result<Model> {
    let mut model = Model { property: snapshot.properties().get("p").cloned(), ..Model::default() };
    for table in snapshot.tables() {
        let (name, rows) = (table.definition.name.clone(), read_all(snapshot, table)?);
        model.kinds.insert(name.clone(), kind_of(&table.definition));
        if added(&table.definition).is_some() {
            let old = rows.iter().filter(|(row, added)| *added != Some(row.0)).map(|(row, added)| {
                assert_eq!(*added, Some(ADDED_VALUE), "{row:?}");
                row.0
            });
            model.altered.insert(name.clone(), old.collect());
        }
        model.tables.insert(name, rows.into_iter().map(|(row, _)| row).collect());
    }
    Ok(model)
}

impl Model {
    fn insert(&mut self, name: &str, rows: impl Iterator<Item = Row>) {
        let kind = self.kinds[name];
        let there = self.tables.get_mut(name).expect("it is there");
        there.extend(rows);
        if kind != Kind::default() {
            there.sort_unstable();
        }
    }

    fn remove(&mut self, name: &str) {
        self.tables.remove(name);
        self.kinds.remove(name);
        self.altered.remove(name);
    }

    fn rename(&mut self, from: &str, to: &str) {
        let rows = self.tables.remove(from).expect("it is there");
        self.tables.insert(to.to_owned(), rows);
        let kind = self.kinds.remove(from).expect("it is there");
        self.kinds.insert(to.to_owned(), kind);
        let altered = self.altered.remove(from);
        self.altered.extend(altered.map(|altered| (to.to_owned(), altered)));
    }

    /// The model after the statement has succeeded.
    pub(super) fn after(&self, statement: &Statement) -> Self {
        let mut next = self.clone();
        match statement {
            Statement::Create(name, kind) => {
                next.tables.insert(name.clone(), Vec::new());
                next.kinds.insert(name.clone(), *kind);
            }
            Statement::Drop(names) => names.iter().for_each(|name| next.remove(name)),
            Statement::Rename(steps) => steps.iter().for_each(|(from, to)| next.rename(from, to)),
            Statement::Alter(name, _) => {
                // A row whose number equals that value counts as a later one.
                let old = next.tables[name].iter().map(|row| row.0).filter(|number| *number != ADDED_VALUE);
                let old = old.collect();
                next.altered.insert(name.clone(), old);
            }
            Statement::Insert(inserts) => {
                for (name, parts) in inserts {
                    next.insert(name, parts.concat().into_iter());
                }
            }
            Statement::GroupInsert(name, rows) => next.insert(name, rows.iter().copied()),
            Statement::Delete(name, modulus, remainder) => {
                let is_kept = |number: i64| number.rem_euclid(*modulus) != *remainder;
                next.tables.get_mut(name).expect("it is there").retain(|row| is_kept(row.0));
                if let Some(altered) = next.altered.get_mut(name) {
                    altered.retain(|number| is_kept(*number));
                }
            }
            Statement::Property(value) => next.property = Some(value.clone()),
            Statement::Compact(..)
            | Statement::Optimize(_)
            | Statement::MergeBeforeInsert(_)
            | Statement::RemoveOrphans
            | Statement::Repair(_)
            | Statement::Checkpoint
            | Statement::Maintain => {}
        }
        next
    }

    /// A random statement that makes sense for this model.
    pub(super) fn statement(&self, random: &mut Random, next_row: &mut i64) -> Statement {
        let names: Vec<&String> = self.tables.keys().collect();
        let name = |random: &mut Random| names[random.below(names.len())].clone();
        let choice = if names.is_empty() { 0 } else { random.below(32) };
        let free = (0..4).map(|index| format!("t{index}")).find(|name| !self.tables.contains_key(name));
        match (choice, free) {
            (0 | 1, Some(free)) => {
                let kind = Kind { is_sorted: random.once_in(2), is_partitioned: random.once_in(3) };
                Statement::Create(free, kind)
            }
            (2, _) if names.len() > 1 => {
                let mut dropped = vec![name(random), name(random)];
                dropped.dedup();
                Statement::Drop(dropped)
            }
            (3, _) if names.len() > 1 => {
                let (a, b) = (names[0].clone(), names[1 + random.below(names.len() - 1)].clone());
                let between = "between".to_owned();
                Statement::Rename(vec![(a.clone(), between.clone()), (b.clone(), a), (between, b)])
            }
            (3, Some(free)) => Statement::Rename(vec![(name(random), free)]),
            (4 | 5, _) => {
                let table = name(random);
                match self.altered.contains_key(&table) {
                    true => Statement::Repair(table),
                    false => Statement::Alter(table, random.once_in(2)),
                }
            }
            (6..=11, _) => {
                Statement::Delete(name(random), 1 + random.below(6) as i64, random.below(6) as i64)
            }
            (12..=14, _) => Statement::Compact(name(random), random.below(4), 1 + random.below(5)),
            (15, _) => Statement::Property(random.next().to_string()),
            (16, _) => Statement::Checkpoint,
            (17 | 18, _) => Statement::Maintain,
            (19, _) => Statement::Optimize(name(random)),
            (20, _) => Statement::MergeBeforeInsert(name(random)),
            (21, _) => Statement::RemoveOrphans,
            (22, _) => Statement::Repair(name(random)),
            (23..=25, _) => Statement::GroupInsert(name(random), rows(random, next_row)),
            _ => {
                let tables = 1 + usize::from(random.once_in(4));
                let insert = |_| {
                    let parts = (0..1 + random.below(2)).map(|_| rows(random, next_row)).collect();
                    (name(random), parts)
                };
                let mut inserts: Vec<_> = (0..tables).map(insert).collect();
                inserts.dedup_by(|a, b| a.0 == b.0);
                Statement::Insert(inserts)
            }
        }
    }
}

fn rows(random: &mut Random, next_row: &mut i64) -> Vec<Row> {
    let count = 1 + random.below(30);
    let row = |_| {
        *next_row += 1 + random.below(3) as i64;
        (*next_row, (!random.once_in(4)).then(|| random.below(5) as u8))
    };
    (0..count).map(row).collect()
}

/// Rows by partition; with `is_apart` every second row goes into a part of its own, so that sorted parts overlap.
fn partitions(kind: Kind, rows: &[Row], is_apart: bool) -> Vec<(Arc<str>, Vec<Row>)> {
    let mut partitions: BTreeMap<(i64, usize), Vec<Row>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        let partition = if kind.is_partitioned { row.0 & 1 } else { -1 };
        let place = if is_apart && kind.is_sorted { index / 2 % 2 } else { 0 };
        partitions.entry((partition, place)).or_default().push(*row);
    }
    let name = |partition: i64| if partition < 0 { Arc::default() } else { partition.to_string().into() };
    partitions.into_iter().map(|((partition, _), rows)| (name(partition), rows)).collect()
}

/// Writes a part, of several stripes if it has some rows.
fn write_part(
    transaction: &Transaction,
    table: u64,
    columns: &[Column<'static>],
    partition: Arc<str>,
) -> Result<Part> {
    let is_sorted = !transaction.table(table)?.definition.keys.is_empty();
    let options = WriteOptions { is_sorted, ..WriteOptions::default() };
    let mut writer = transaction.write_part(table, options)?;
    let row_count = columns[0].row_count();
    let mut first = 0;
    while first < row_count {
        let end = row_count.min(first + STRIPE_ROWS);
        writer.push(&columns.iter().map(|column| column.slice(first..end)).collect::<Vec<_>>())?;
        writer.end_stripe()?;
        first = end;
    }
    Ok(Part { partition, ..writer.finish()? })
}

/// Executes a statement, except for its commit.
pub(super) fn prepare(
    database: &Arc<Database>,
    transaction: &mut Transaction,
    statement: &Statement,
) -> Result<()> {
    let snapshot = transaction.base().clone();
    let table_named = |name: &str| Arc::clone(snapshot.table_named("main", name).expect("the model has it"));
    let number = |name: &str| table_named(name).number;
    if snapshot.retention() != RETENTION {
        transaction.set_retention(RETENTION)?;
    }
    match statement {
        Statement::Create(name, kind) => _ = transaction.create_table(definition_of(name, *kind))?,
        Statement::Drop(names) => {
            names.iter().try_for_each(|name| transaction.drop_table(number(name)))?;
        }
        Statement::Rename(steps) => {
            for (from, to) in steps {
                let table = Arc::clone(transaction.state().table_named("main", from).expect("it is there"));
                let definition = Definition { name: to.clone(), ..(*table.definition).clone() };
                transaction.alter_table(table.number, definition)?;
            }
        }
        Statement::Alter(name, is_rewriting) => alter(transaction, &table_named(name), *is_rewriting)?,
        Statement::Insert(inserts) => {
            for (name, parts) in inserts {
                let table = table_named(name);
                for rows in parts {
                    for (partition, rows) in partitions(kind_of(&table.definition), rows, true) {
                        let columns = columns_of(&table.definition, &rows);
                        let part = write_part(transaction, table.number, &columns, partition)?;
                        transaction.add_part(table.number, part)?;
                    }
                }
            }
        }
        Statement::Delete(name, modulus, remainder) => {
            let table = table_named(name);
            for part in table.parts() {
                let reader = snapshot.open_part(&table, part)?;
                let mut vector = DeletionVector::default();
                for stripe in 0..reader.stripe_count() {
                    let column = reader.read(0, stripe, Selection::All)?;
                    let Values::I64(numbers) = &column.values else { panic!("{column:?}") };
                    let rows: BitBuffer =
                        numbers.iter().map(|number| number.rem_euclid(*modulus) == *remainder).collect();
                    vector.delete(Level::best(), stripe as u32, rows.as_bits());
                }
                transaction.delete_rows(table.number, part.number, &vector)?;
            }
        }
        Statement::Compact(name, first, count) => {
            let table = table_named(name);
            let parts = table.parts();
            let Some(partition) = parts.get(*first).map(|part| &part.partition) else { return Ok(()) };
            let alike = parts[*first..].iter().filter(|part| part.partition == *partition);
            let parts: Vec<u64> = alike.take(*count).map(|part| part.number).collect();
            transaction.compact(table.number, &parts, write_options(&table))?;
        }
        Statement::Repair(name) => {
            let table = table_named(name);
            if let Some(part) = table.parts().first() {
                let lost = transaction.repair_part(table.number, part.number, write_options(&table))?;
                if lost != RepairLoss::default() {
                    return Err(Error::Invalid("a part that is whole lost rows".to_owned()));
                }
            }
            // Two failures in a row look like damage.
            if !database.repair_log()?.is_empty() {
                return Err(Error::Invalid("a log that is whole was set aside".to_owned()));
            }
        }
        Statement::Property(value) => transaction.set_property("p", Some(value))?,
        Statement::Checkpoint => database.checkpoint()?,
        Statement::Maintain => while database.maintain(write_options)? {},
        Statement::Optimize(name) => {
            let free = |_| Ok::<_, Error>(());
            database.optimize(number(name), write_options, free, &crate::Cancel::default())?;
        }
        Statement::MergeBeforeInsert(name) => {
            database.merge_before_insert(number(name), &BTreeSet::from(["", "0"]), write_options);
        }
        Statement::RemoveOrphans => _ = database.remove_orphans()?,
        // A group insert makes its own transaction when it commits.
        Statement::GroupInsert(..) => {}
    }
    Ok(())
}

/// Adds a column, in which existing rows get a value.
fn alter(transaction: &mut Transaction, table: &Table, is_rewriting: bool) -> Result<()> {
    let mut definition = (*table.definition).clone();
    let mut field = Field::new(definition.next_field, "d", DataType::I64);
    definition.next_field += 1;
    if table.row_count() > 0 && !is_rewriting {
        field.properties.insert(INITIAL.to_owned(), ADDED_VALUE.to_string());
    } else {
        transaction.require_same_rows(table.number);
    }
    definition.fields.push(field);
    transaction.alter_table(table.number, definition)?;
    if !is_rewriting {
        return Ok(());
    }
    let base = transaction.base().clone();
    for part in table.parts() {
        let rows: Vec<Row> = read_part(&base, table, part)?.into_iter().map(|(row, _)| row).collect();
        let mut written = columns(&rows);
        written.push(numbers(rows.iter().map(|_| ADDED_VALUE)));
        let written = match rows.is_empty() {
            true => Vec::new(),
            false => vec![write_part(transaction, table.number, &written, Arc::clone(&part.partition))?],
        };
        transaction.replace_parts(table.number, &[part.number], written)?;
    }
    Ok(())
}

/// Commits what was prepared.
pub(super) fn commit(
    database: &Arc<Database>,
    statement: &Statement,
    transaction: Transaction,
) -> Result<u64> {
    let Statement::GroupInsert(name, rows) = statement else { return transaction.commit() };
    let table = Arc::clone(transaction.base().table_named("main", name).expect("the model has it"));
    drop(transaction);
    let partitions = partitions(kind_of(&table.definition), rows, false);
    let rows: PartitionedRows =
        partitions.into_iter().map(|(name, rows)| (name, columns_of(&table.definition, &rows))).collect();
    database.insert(&table, rows, write_options(&table))
}
