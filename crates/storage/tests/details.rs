//! What parts know of columns beyond their footers is true of the rows, whatever the type.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]
#![allow(clippy::cast_precision_loss, reason = "counts are small")]

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use keirin_codecs::frame::Kind;
use keirin_kernels::Selection;
use keirin_storage::column::{Column, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::{Constant, PartReader, STRIPE_ROWS, WriteOptions, ZONE_ROWS};
use keirin_storage::schema::{DataType, Definition, SortKey};
use keirin_storage::{Access, Database, Options};

mod common;

use common::{Value, column, definition, random, rows_of};

/// A new database, in which each of some columns of one table is written as parts of so many rows.
fn database(
    definition: &Definition,
    columns: &[Column<'_>],
    parts: &[Range<usize>],
) -> (tempfile::TempDir, Arc<Database>) {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::create(directory.path()).expect("a directory"));
    let database = Database::open(disk, Access::Write, Options::default()).expect("a new database");
    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.create_table(definition.clone()).expect("a new table");
    for rows in parts {
        let options = WriteOptions { is_sorted: !definition.keys.is_empty(), ..WriteOptions::default() };
        let mut writer = transaction.write_part(table, options).expect("a new part");
        let rows: Vec<_> = columns.iter().map(|column| column.slice(rows.clone())).collect();
        writer.push(&rows).expect("rows of the table");
        transaction.add_part(table, writer.finish().expect("room on the disk")).expect("a new part");
    }
    transaction.commit().expect("nobody else");
    (directory, database)
}

fn readers(database: &Arc<Database>) -> Vec<PartReader> {
    let snapshot = database.snapshot();
    let table = snapshot.table_named("main", "t").expect("it was committed");
    table.parts().into_iter().map(|part| snapshot.open_part(table, part).expect("whole")).collect()
}

/// The value of a row as a constant of its type.
fn constant<'v>(data_type: &DataType, value: &'v Value) -> Option<Constant<'v>> {
    match (value, data_type.values()?) {
        (Value::Bytes(bytes), Kind::Text) => Some(Constant::Text(bytes)),
        (Value::Bits(bits), _) => Some(Constant::Integer(bits.cast_signed())),
        _ => None,
    }
}

#[test]
fn details_are_true_of_every_type() {
    let row_count = STRIPE_ROWS + ZONE_ROWS + 100;
    let definition = definition();
    let columns: Vec<Column<'static>> = definition
        .fields
        .iter()
        .zip(0..)
        .map(|(field, index)| column(&field.data_type, row_count, index * 10))
        .collect();
    let (_directory, database) = database(&definition, &columns, std::slice::from_ref(&(0..row_count)));
    assert_eq!(database.check(), []);
    let part = &readers(&database)[0];
    let sample_rows = part.sample_rows().expect("whole");
    assert_eq!(sample_rows.len(), 1024);
    assert!(sample_rows.is_sorted() && sample_rows[1023] > STRIPE_ROWS as u64);
    let mut with_filters = Vec::new();
    for (index, (field, column)) in definition.fields.iter().zip(&columns).enumerate() {
        let (name, data_type) = (&field.name, &field.data_type);
        let is_nested = !data_type.children().is_empty() || matches!(data_type, DataType::Struct(_));
        let rows = rows_of(column, 0..row_count);
        let sample = part.sample(index).expect("whole");
        assert_eq!(sample.is_none(), is_nested, "{name}");
        if let Some(sample) = sample {
            let expected = rows_of(column, sample_rows.iter().map(|row| *row as usize));
            assert_eq!(rows_of(&sample, 0..sample_rows.len()), expected, "{name}");
        }
        if let Some(sketch) = part.sketch(index).expect("whole") {
            let distinct = rows.iter().filter(|value| **value != Value::Null);
            let distinct = distinct.map(|value| format!("{value:?}")).collect::<HashSet<_>>().len() as f64;
            let error = (sketch.estimate() as f64 - distinct).abs() / distinct;
            assert!(error < 0.1, "{name}: {} of {distinct}", sketch.estimate());
        }
        if !part.has_filters(index).expect("whole") {
            continue;
        }
        with_filters.push(name.as_str());
        for stripe in 0..part.stripe_count() {
            let range = part.stripe(stripe);
            for value in &rows[range.start as usize..range.end as usize] {
                if let Some(hash) = constant(data_type, value).and_then(|value| part.hash(index, &value)) {
                    assert!(part.may_have(index, stripe, &[hash]).expect("whole"), "{name} {value:?}");
                } else {
                    assert_eq!(*value, Value::Null, "{name}");
                }
            }
        }
        let strangers =
            (0..1000).filter(|stranger| part.may_have(index, 0, &[random(*stranger, 99)]).expect("whole"));
        assert!(strangers.count() < 40, "{name}");
    }
    // Others are too small beside their filters.
    assert_eq!(with_filters, ["i64", "u64", "decimal", "uuid"]);
}

/// Rows of a table that is sorted by its first column, with a second that follows it roughly, and a random one.
fn sorted(row_count: usize) -> (Definition, Vec<Column<'static>>) {
    let numbers = |number: &dyn Fn(usize) -> i64| Column {
        validity: None,
        values: Values::I64((0..row_count).map(number).collect::<Vec<_>>().into()),
    };
    let types = ["key", "near", "random", "few"].map(|name| (name, DataType::I64));
    let mut definition = Definition::new("main", "t", types.to_vec());
    definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: false }];
    let columns = vec![
        numbers(&|row| row as i64 / 3),
        numbers(&|row| row as i64 + (random(row, 1) % 500) as i64),
        numbers(&|row| random(row, 2) as i64),
        numbers(&|row| (random(row, 3) % 1000) as i64 * 1_000_000_007),
    ];
    (definition, columns)
}

#[test]
fn zones_bound_their_rows_where_they_help() {
    let row_count = 2 * STRIPE_ROWS + 1000;
    let (definition, columns) = sorted(row_count);
    let (_directory, database) = database(&definition, &columns, std::slice::from_ref(&(0..row_count)));
    let part = &readers(&database)[0];
    for (index, column) in columns.iter().enumerate() {
        let Values::I64(values) = &column.values else { panic!("numbers") };
        let zones = part.zones(index).expect("whole");
        assert_eq!(zones.is_some(), index < 2, "column {index}");
        let Some(zones) = zones else { continue };
        for stripe in 0..part.stripe_count() {
            let rows = part.stripe(stripe);
            let values = &values[rows.start as usize..rows.end as usize];
            assert_eq!(zones.of_stripe(stripe).len(), values.len().div_ceil(ZONE_ROWS));
            for (zone, values) in zones.of_stripe(stripe).zip(values.chunks(ZONE_ROWS)) {
                let least = values.iter().min().expect("rows").to_le_bytes();
                let greatest = values.iter().max().expect("rows").to_le_bytes();
                assert_eq!(zones.bounds(zone), Some((&least[..], &greatest[..])), "zone {zone}");
            }
        }
    }
    let has_filters: Vec<bool> = (0..4).map(|index| part.has_filters(index).expect("whole")).collect();
    assert_eq!(has_filters, [false, false, true, false]);
}

#[test]
fn sketches_of_parts_are_counted_together() {
    let row_count = 30_000;
    let (definition, columns) = sorted(row_count);
    let parts = [0..10_000, 10_000..20_000, 15_000..row_count];
    let (_directory, database) = database(&definition, &columns, &parts);
    let parts = readers(&database);
    for (index, expected) in [10_000.0, 18_500.0, 30_000.0, 1000.0].into_iter().enumerate() {
        let mut merged = parts[0].sketch(index).expect("whole").expect("one").clone();
        for part in &parts[1..] {
            merged.merge(part.sketch(index).expect("whole").expect("one"));
        }
        let estimate = merged.estimate() as f64;
        assert!((estimate / expected - 1.0).abs() < 0.1, "column {index}: {estimate} of {expected}");
    }
}

#[test]
fn small_parts_have_no_details() {
    let (definition, columns) = sorted(ZONE_ROWS);
    let parts = [0..ZONE_ROWS - 1, 0..ZONE_ROWS];
    let (_directory, database) = database(&definition, &columns, &parts);
    assert_eq!(database.check(), []);
    let parts = readers(&database);
    assert!(parts[0].sketch(0).expect("whole").is_none() && parts[0].sample(0).expect("whole").is_none());
    assert!(!parts[0].has_filters(2).expect("whole") && parts[0].may_have(2, 0, &[1]).expect("whole"));
    assert!(parts[1].sketch(0).expect("whole").is_some() && parts[1].has_filters(2).expect("whole"));
    assert_eq!(parts[1].read(0, 0, Selection::All).expect("whole").row_count(), ZONE_ROWS);
}
