//! `system.tables`, `columns`, `parts`, `blocks`, `commits`, `disk_usage` and `block_cache`: a database directory, looked
//! at.
//!
//! Most are made from what is in memory or the log; `columns` and `blocks` read the footers of parts, `disk_usage` lists
//! the directory. A part whose footer is damaged has no rows there, but one in `system.damage`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array,
    UInt64Array,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use keirin_storage::part::{PartReader, Statistics};
use keirin_storage::schema::{DataType, Definition};
use keirin_storage::{
    Changes, Commit, Database, Error as StorageError, FileUse, Part, Snapshot, Space, Table,
};

use super::super::reading::blocks::Usage;
use super::super::reading::prune::{End, bounds};
use super::super::store::Store;
use super::super::types::arrow_type;
use super::super::writing::definition::{CODEC, COLLATION, COMMENT, DEFAULT};
use super::super::writing::partitions::PARTITION;
use crate::error::Result;
use crate::sources::catalog::SystemTable;
use crate::sql::tokens::quoted;
use crate::types::sql_type_name;

/// The tables about a database directory.
pub(crate) fn system_tables(store: &Arc<Store>) -> Vec<SystemTable> {
    type Make = fn(&Database, &Snapshot) -> Result<RecordBatch>;
    let all: [(&'static str, Make); 6] = [
        ("blocks", blocks),
        ("columns", columns),
        ("commits", commits),
        ("disk_usage", disk_usage),
        ("parts", parts),
        ("tables", tables),
    ];
    let table = |(name, make): (&'static str, Make)| {
        let store = store.clone();
        let rows = move || {
            let snapshot = store.snapshot().unwrap_or_else(|_| store.database.snapshot());
            make(&store.database, &snapshot)
        };
        SystemTable::new(name, rows)
    };
    let cache = store.block_cache.clone();
    let cache = SystemTable::new("block_cache", move || Ok(block_cache(cache.usage())));
    all.map(table).into_iter().chain([cache]).collect()
}

fn block_cache(usage: Usage) -> RecordBatch {
    let number = |number: u64| numbers(&[number], |number| Some(*number));
    batch([
        ("blocks", number(usage.blocks as u64)),
        ("bytes", number(usage.bytes as u64)),
        ("limit_bytes", number(usage.limit_bytes as u64)),
        ("hits", number(usage.hits)),
        ("misses", number(usage.misses)),
        ("evictions", number(usage.evictions)),
    ])
}

fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .expect("columns of one length")
}

fn texts<'a, T>(rows: &'a [T], text: impl Fn(&'a T) -> Option<String>) -> ArrayRef {
    Arc::new(rows.iter().map(text).collect::<StringArray>())
}

fn numbers<'a, T>(rows: &'a [T], number: impl Fn(&'a T) -> Option<u64>) -> ArrayRef {
    Arc::new(rows.iter().map(number).collect::<UInt64Array>())
}

fn small<'a, T>(rows: &'a [T], number: impl Fn(&'a T) -> Option<u32>) -> ArrayRef {
    Arc::new(rows.iter().map(number).collect::<UInt32Array>())
}

fn flags<'a, T>(rows: &'a [T], flag: impl Fn(&'a T) -> bool) -> ArrayRef {
    Arc::new(rows.iter().map(|row| Some(flag(row))).collect::<BooleanArray>())
}

fn tables(_: &Database, snapshot: &Snapshot) -> Result<RecordBatch> {
    let rows: Vec<&Arc<Table>> = snapshot.tables().collect();
    let bytes = |table: &Table| {
        let bytes =
            |part: &&Part| part.file_bytes + part.deletions.map_or(0, |deletions| deletions.file_bytes);
        table.parts().iter().map(bytes).sum::<u64>()
    };
    Ok(batch([
        ("schema", texts(&rows, |table| Some(table.definition.schema.clone()))),
        ("name", texts(&rows, |table| Some(table.definition.name.clone()))),
        ("rows", numbers(&rows, |table| Some(table.row_count()))),
        ("bytes", numbers(&rows, |table| Some(bytes(table)))),
        ("parts", numbers(&rows, |table| Some(table.parts().len() as u64))),
        ("partitioned_by", texts(&rows, |table| table.definition.properties.get(PARTITION).cloned())),
        ("sorted_by", texts(&rows, |table| sorted_by(&table.definition))),
        ("comment", texts(&rows, |table| table.definition.properties.get(COMMENT).cloned())),
        ("number", numbers(&rows, |table| Some(table.number))),
    ]))
}

/// The sort key as ORDER BY has it.
fn sorted_by(definition: &Definition) -> Option<String> {
    let keys = definition.keys.iter().filter_map(|key| {
        let name = &definition.fields[definition.index_of(key.field)?].name;
        Some(format!("{name}{}", if key.is_descending { " DESC" } else { "" }))
    });
    let keys: Vec<String> = keys.collect();
    (!keys.is_empty()).then(|| keys.join(", "))
}

fn parts(_: &Database, snapshot: &Snapshot) -> Result<RecordBatch> {
    let rows: Vec<(&Arc<Table>, &Part)> = snapshot
        .tables()
        .flat_map(|table| table.parts().into_iter().map(move |part| (table, part)))
        .collect();
    Ok(batch([
        ("schema", texts(&rows, |(table, _)| Some(table.definition.schema.clone()))),
        ("table", texts(&rows, |(table, _)| Some(table.definition.name.clone()))),
        ("part", numbers(&rows, |(_, part)| Some(part.number))),
        ("partition", texts(&rows, |(_, part)| Some(part.partition.to_string()).filter(|of| !of.is_empty()))),
        ("rows", numbers(&rows, |(_, part)| Some(part.live_row_count()))),
        ("deleted_rows", numbers(&rows, |(_, part)| Some(part.row_count - part.live_row_count()))),
        ("bytes", numbers(&rows, |(_, part)| Some(part.file_bytes))),
        ("footer_bytes", small(&rows, |(_, part)| Some(part.footer_bytes))),
        (
            "file",
            texts(&rows, |(table, part)| Some(format!("tables/{}/{}.kpart", table.number, part.number))),
        ),
    ]))
}

/// The parts of all tables that can be opened; the database remembers the others as damaged.
fn readers(database: &Database, snapshot: &Snapshot) -> Result<Vec<(Arc<Table>, u64, PartReader)>> {
    let mut readers = Vec::new();
    for table in snapshot.tables() {
        for part in table.parts() {
            match snapshot.open_part(table, part) {
                Ok(reader) => readers.push((table.clone(), part.number, reader)),
                Err(StorageError::Damaged(damage)) => database.report(*damage),
                // Whoever reads its rows hears what to do.
                Err(StorageError::Newer { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
    Ok(readers)
}

fn columns(database: &Database, snapshot: &Snapshot) -> Result<RecordBatch> {
    let readers = readers(database, snapshot)?;
    let fields = |table: &'_ Arc<Table>| {
        (0..table.definition.fields.len()).map({
            let table = table.clone();
            move |index| (table.clone(), index)
        })
    };
    let rows: Vec<(Arc<Table>, usize)> = snapshot.tables().flat_map(fields).collect();
    let field = |(table, index): &(Arc<Table>, usize)| table.definition.fields[*index].clone();
    let property = |key: &'static str| {
        move |row: &(Arc<Table>, usize)| row.0.definition.fields[row.1].properties.get(key).cloned()
    };
    let bytes = |row: &(Arc<Table>, usize), of_block: fn(&PartReader, usize, usize) -> u64| {
        let id = field(row).id;
        let of_table = readers.iter().filter(|(table, _, _)| table.number == row.0.number);
        let of_part = |(_, _, reader): &(Arc<Table>, u64, PartReader)| {
            let column = reader.fields().iter().position(|field| field.id == id)?;
            Some((0..reader.stripe_count()).map(|stripe| of_block(reader, column, stripe)).sum::<u64>())
        };
        of_table.filter_map(of_part).sum::<u64>()
    };
    Ok(batch([
        ("schema", texts(&rows, |(table, _)| Some(table.definition.schema.clone()))),
        ("table", texts(&rows, |(table, _)| Some(table.definition.name.clone()))),
        ("column", texts(&rows, |row| Some(field(row).name))),
        ("position", small(&rows, |(_, index)| u32::try_from(index + 1).ok())),
        ("type", texts(&rows, |row| Some(type_name(&field(row).data_type)))),
        ("nullable", flags(&rows, |row| field(row).is_nullable)),
        ("default", texts(&rows, property(DEFAULT))),
        ("collation", texts(&rows, property(COLLATION))),
        ("codec", texts(&rows, property(CODEC))),
        ("comment", texts(&rows, property(COMMENT))),
        ("bytes", numbers(&rows, |row| Some(bytes(row, PartReader::stored_bytes)))),
        ("value_bytes", numbers(&rows, |row| Some(bytes(row, PartReader::value_bytes)))),
    ]))
}

fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Json => "JSON".to_owned(),
        DataType::Uuid => "UUID".to_owned(),
        other => sql_type_name(&arrow_type(other)),
    }
}

fn blocks(database: &Database, snapshot: &Snapshot) -> Result<RecordBatch> {
    struct Block<'a> {
        table: &'a Definition,
        part: u64,
        column: &'a str,
        number: usize,
        first_row: u64,
        bytes: u64,
        statistics: &'a Statistics,
        bounds: [Option<String>; 2],
    }
    let readers = readers(database, snapshot)?;
    let mut rows = Vec::new();
    for (table, part, reader) in &readers {
        for (column, field) in reader.fields().iter().enumerate() {
            let all = || (0..reader.stripe_count()).map(move |stripe| reader.statistics(column, stripe));
            let ends = [End::Min, End::Max]
                .map(|end| bounds(all().map(|block| end.of(block)), &field.data_type, end));
            let shown = ends.map(|bounds| bounds.map(|bounds| shown(&bounds)).unwrap_or_default());
            for (number, statistics) in all().enumerate() {
                rows.push(Block {
                    table: &table.definition,
                    part: *part,
                    column: &field.name,
                    number,
                    first_row: reader.stripe(number).start,
                    bytes: reader.stored_bytes(column, number),
                    statistics,
                    bounds: [0, 1].map(|end| shown[end].get(number).cloned().flatten()),
                });
            }
        }
    }
    let is = |flag: fn(keirin_storage::part::BlockFlags) -> bool| {
        flags(&rows, move |block| flag(block.statistics.flags))
    };
    Ok(batch([
        ("schema", texts(&rows, |block| Some(block.table.schema.clone()))),
        ("table", texts(&rows, |block| Some(block.table.name.clone()))),
        ("part", numbers(&rows, |block| Some(block.part))),
        ("column", texts(&rows, |block| Some(block.column.to_owned()))),
        ("block", small(&rows, |block| u32::try_from(block.number).ok())),
        ("first_row", numbers(&rows, |block| Some(block.first_row))),
        ("rows", small(&rows, |block| Some(block.statistics.rows))),
        ("nulls", small(&rows, |block| Some(block.statistics.nulls))),
        ("distinct", small(&rows, |block| Some(block.statistics.distinct).filter(|count| *count > 0))),
        ("bytes", numbers(&rows, |block| Some(block.bytes))),
        ("min", texts(&rows, |block| block.bounds[0].clone())),
        ("max", texts(&rows, |block| block.bounds[1].clone())),
        ("sorted", is(|flags| flags.is_sorted())),
        ("constant", is(|flags| flags.is_constant())),
        ("ascii", is(|flags| flags.is_ascii())),
    ]))
}

fn shown(values: &ArrayRef) -> Vec<Option<String>> {
    let options = FormatOptions::new();
    let Ok(formatter) = ArrayFormatter::try_new(values, &options) else { return Vec::new() };
    let shown = |row| values.is_valid(row).then(|| formatter.value(row).to_string());
    (0..values.len()).map(shown).collect()
}

/// The files of the directory by what they are good for.
fn disk_usage(database: &Database, _: &Snapshot) -> Result<RecordBatch> {
    let usage = database.disk_usage()?;
    let rows: Vec<(&FileUse, &Space)> = usage.iter().collect();
    let name = |file_use| match file_use {
        FileUse::Current => "current",
        FileUse::Obsolete => "obsolete",
        FileUse::Unfinished => "unfinished",
        FileUse::Orphaned => "orphaned",
        FileUse::Other => "other",
        FileUse::Log => "log",
    };
    Ok(batch([
        ("kind", texts(&rows, |(file_use, _)| Some(name(**file_use).to_owned()))),
        ("files", numbers(&rows, |(_, space)| Some(space.files))),
        ("bytes", numbers(&rows, |(_, space)| Some(space.bytes))),
    ]))
}

fn commits(database: &Database, _: &Snapshot) -> Result<RecordBatch> {
    let rows = database.commits()?;
    let times: TimestampMicrosecondArray = rows.iter().map(|commit| Some(commit.time)).collect();
    let of = |count: fn(&Changes) -> u64| {
        numbers(&rows, move |commit: &Commit| commit.changes.as_ref().map(count))
    };
    let changed = |commit: &Commit| {
        let Changes { relations, schemas, properties, .. } = commit.changes.as_ref()?;
        let relations = relations.iter().map(|(schema, name)| format!("{}.{}", quoted(schema), quoted(name)));
        let schemas = schemas.iter().map(|schema| format!("schema {}", quoted(schema)));
        let properties = properties.iter().map(|property| format!("setting {property}"));
        Some(relations.chain(schemas).chain(properties).collect::<Vec<_>>().join(", "))
    };
    Ok(batch([
        ("version", numbers(&rows, |commit| Some(commit.version))),
        ("time", Arc::new(times.with_timezone("UTC"))),
        ("changed", texts(&rows, changed)),
        ("rows_added", of(|changes| changes.rows_added)),
        ("rows_removed", of(|changes| changes.rows_removed)),
        ("parts_added", of(|changes| changes.parts_added)),
        ("parts_removed", of(|changes| changes.parts_removed)),
    ]))
}
