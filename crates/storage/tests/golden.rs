//! Databases of every format version stay readable for ever.
//!
//! `cargo test -p keirin-storage --test golden -- --ignored` writes a database of the current version; do that
//! once for a new version, and never change the files of an old one.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keirin_kernels::{BitBuffer, Level, Selection};
use keirin_storage::column::{Column, Flags, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::{Constant, WriteOptions};
use keirin_storage::schema::{DataType, Definition, SortKey};
use keirin_storage::{Access, Database, DeletionVector, Options, Snapshot, View};

mod common;

use common::{column, definition, random, rows_of};

/// The newest format of any file of a database.
const FORMAT: u32 = 2;
const ROW_COUNT: usize = 300;
/// Rows that are deleted.
const DELETED: std::ops::Range<usize> = 100..150;

fn golden(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/format-{format}"))
}

fn columns() -> Vec<Column<'static>> {
    let fields = definition().fields;
    fields.iter().zip(0..).map(|(field, index)| column(&field.data_type, ROW_COUNT, index * 10)).collect()
}

fn open(path: &Path, access: Access) -> Arc<Database> {
    Database::open(Arc::new(Disk::open(path)), access, Options::default()).expect("a database")
}

/// Rows of a table with details: numbers that ascend, others near them, random ones and text with nulls.
fn detailed() -> (Definition, Vec<Column<'static>>) {
    const ROW_COUNT: usize = 9000;
    let numbers = |number: &dyn Fn(usize) -> i64| Column {
        validity: None,
        values: Values::I64((0..ROW_COUNT).map(number).collect::<Vec<_>>().into()),
    };
    let text: Vec<String> = (0..ROW_COUNT).map(|row| format!("Größe {}", random(row, 3) % 3000)).collect();
    let mut offsets = vec![0];
    offsets.extend(text.iter().scan(0, |end, text| {
        *end += text.len() as i32;
        Some(*end)
    }));
    let validity: BitBuffer = (0..ROW_COUNT).map(|row| row % 10 > 0).collect();
    let text = Column {
        validity: Some(Flags::Owned(validity)),
        values: Values::Text { offsets: offsets.into(), bytes: text.concat().into_bytes().into() },
    };
    let types = vec![
        ("key", DataType::I64),
        ("near", DataType::I64),
        ("random", DataType::I64),
        ("text", DataType::Text),
    ];
    let mut definition = Definition::new("main", "detailed", types);
    definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: false }];
    let columns = vec![
        numbers(&|row| row as i64 / 3),
        numbers(&|row| row as i64 + (random(row, 1) % 500) as i64),
        numbers(&|row| random(row, 2) as i64),
        text,
    ];
    (definition, columns)
}

fn view() -> View {
    let (schema, name, text) = ("reports".to_owned(), "sums".to_owned(), "SELECT 1".to_owned());
    View { schema, name, text, properties: [("comment".to_owned(), "Summen".to_owned())].into() }
}

/// Two tables, one dropped, a schema, a view, a property, deleted rows, a checkpoint and commits behind it.
#[test]
#[ignore = "writes the golden database of the current format"]
fn write_golden() {
    let path = golden(FORMAT);
    assert!(!path.exists(), "{} is there and must not change", path.display());
    fs::create_dir_all(&path).expect("room");
    let database = open(&path, Access::Write);
    let mut transaction = database.begin().expect("nobody else");
    let mut sorted = Definition::new("main", "sorted", vec![("a", DataType::I32)]);
    sorted.keys = vec![SortKey { field: 0, is_descending: true, nulls_first: true }];
    sorted.properties.insert("comment".into(), "größer zuerst".into());
    let sorted = transaction.create_table(sorted).expect("new");
    let table = transaction.create_table(definition()).expect("new");
    let dropped = Definition::new("main", "dropped", vec![("a", DataType::I32)]);
    let dropped = transaction.create_table(dropped).expect("new");
    transaction.set_property("key", Some("value")).expect("always");
    transaction.set_schema("reports", [("collation".into(), "binary".into())].into()).expect("a short name");
    transaction.create_view(view()).expect("new");
    transaction.commit().expect("nobody else");

    let mut parts = Vec::new();
    for rows in [0..200, 200..ROW_COUNT] {
        let mut transaction = database.begin().expect("nobody else");
        let mut writer = transaction.write_part(table, WriteOptions::default()).expect("new");
        let columns = columns();
        let rows: Vec<_> = columns.iter().map(|column| column.slice(rows.clone())).collect();
        writer.push(&rows).expect("rows");
        let part = writer.finish().expect("room");
        parts.push(part.number);
        transaction.add_part(table, part).expect("new");
        transaction.commit().expect("nobody else");
    }
    database.checkpoint().expect("room");
    let mut transaction = database.begin().expect("nobody else");
    let mut vector = DeletionVector::default();
    let rows: BitBuffer = (0..200).map(|row| DELETED.contains(&row)).collect();
    vector.delete(Level::best(), 0, rows.as_bits());
    transaction.delete_rows(table, parts[0], &vector).expect("rows");
    transaction.drop_table(dropped).expect("there");
    transaction.commit().expect("nobody else");
    let mut transaction = database.begin().expect("nobody else");
    let options = WriteOptions { is_sorted: true, ..WriteOptions::default() };
    let mut writer = transaction.write_part(sorted, options).expect("new");
    writer.push(&[column(&DataType::I32, 0, 0)]).expect("no rows");
    let values: Vec<i32> = (0..50).rev().collect();
    let values = Values::I32(values.into());
    writer.push(&[Column { validity: None, values }]).expect("rows");
    let mut part = writer.finish().expect("room");
    part.partition = "2024".into();
    transaction.add_part(sorted, part).expect("new");
    transaction.commit().expect("nobody else");
    let (definition, columns) = detailed();
    let mut transaction = database.begin().expect("nobody else");
    let table = transaction.create_table(definition).expect("new");
    let options = WriteOptions { is_sorted: true, ..WriteOptions::default() };
    let mut writer = transaction.write_part(table, options).expect("new");
    writer.push(&columns).expect("rows");
    transaction.add_part(table, writer.finish().expect("room")).expect("new");
    transaction.commit().expect("nobody else");
    drop(database);
    fs::remove_file(path.join("LOCK")).expect("there");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("a name");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("room");
        }
    }
}

/// What the footers of format 2 are about; a check has held it against the rows.
fn check_details(snapshot: &Snapshot) {
    let (_, columns) = detailed();
    let table = snapshot.table_named("main", "detailed").expect("there");
    let part = snapshot.open_part(table, table.parts()[0]).expect("whole");
    let rows = part.sample_rows().expect("whole");
    assert_eq!((rows.len(), rows[0], rows[1023]), (1024, 9, 8999));
    let distinct = [3000, 5700, 9000, 2800];
    for (index, column) in columns.iter().enumerate() {
        let sample = part.sample(index).expect("whole").expect("there");
        assert_eq!(rows_of(&sample, 0..1024), rows_of(column, rows.iter().map(|row| *row as usize)));
        let sketch = part.sketch(index).expect("whole").expect("there");
        assert!(sketch.estimate().abs_diff(distinct[index]) < distinct[index] / 20, "{}", sketch.estimate());
        assert_eq!(part.zones(index).expect("whole").is_some(), index < 2);
        assert_eq!(part.has_filters(index).expect("whole"), index >= 2);
    }
    let has = |number: u64| {
        let text = format!("Größe {number}");
        let hash = part.hash(3, &Constant::Text(text.as_bytes())).expect("text has one");
        part.may_have(3, 0, &[hash]).expect("whole")
    };
    assert!(has(random(1, 3) % 3000) && (3000..4000).filter(|number| has(*number)).count() < 50);
}

fn check(database: &Arc<Database>, format: u32) {
    assert_eq!(database.damage(), []);
    assert_eq!(database.check(), []);
    let snapshot = database.snapshot();
    assert_eq!(snapshot.tables().count(), if format == 1 { 2 } else { 3 });
    if format > 1 {
        check_details(&snapshot);
    }
    assert_eq!(snapshot.properties()["key"], "value");
    assert_eq!(snapshot.schema("reports").expect("there")["collation"], "binary");
    assert_eq!(**snapshot.view_named("reports", "sums").expect("there").1, view());
    let sorted = snapshot.table_named("main", "sorted").expect("there");
    assert_eq!(sorted.definition.properties["comment"], "größer zuerst");
    assert_eq!(&*sorted.parts()[0].partition, "2024");
    let part = snapshot.open_part(sorted, sorted.parts()[0]).expect("whole");
    assert_eq!(part.keys(), [SortKey { field: 0, is_descending: true, nulls_first: true }]);
    let table = snapshot.table_named("main", "t").expect("there");
    assert_eq!(*table.definition, definition());
    assert_eq!(table.row_count(), (ROW_COUNT - DELETED.len()) as u64);
    let mut first = 0;
    for part in table.parts() {
        let deletions = snapshot.deletions(table, part).expect("whole");
        let reader = snapshot.open_part(table, part).expect("whole");
        let rows = first..first + part.row_count as usize;
        let deleted: Vec<usize> = deletions.stripe(0).map_or(Vec::new(), |bits| bits.ones().collect());
        assert_eq!(deleted, if first == 0 { DELETED.collect() } else { Vec::new() });
        for (index, column) in columns().iter().enumerate() {
            let read = reader.read(index, 0, Selection::All).expect("whole");
            let name = &reader.fields()[index].name;
            assert_eq!(rows_of(&read, 0..rows.len()), rows_of(column, rows.clone()), "{name}");
        }
        first = rows.end;
    }
    assert_eq!(first, ROW_COUNT);
}

#[test]
fn databases_of_every_format_are_read_and_written_to() {
    for format in 1..=FORMAT {
        check(&open(&golden(format), Access::Read), format);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("copy");
        copy(&golden(format), &path);
        let database = open(&path, Access::Write);
        check(&database, format);
        let mut transaction = database.begin().expect("nobody else");
        transaction.set_property("more", Some("to say")).expect("always");
        transaction.commit().expect("nobody else");
        drop(database);
        check(&open(&path, Access::Write), format);
    }
}
