//! What a process has but once: its working directory, and the files that it may have open.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keirin_codecs::blocks::Codec;
use keirin_kernels::Selection;
use keirin_storage::column::{Column, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::{ColumnCodec, PartReader, Total, WriteOptions};
use keirin_storage::schema::{DataType, Definition};
use keirin_storage::{Access, Database, Options, Result, Transaction};

fn add_part(transaction: &mut Transaction, table: u64, value: i64) {
    let mut writer = transaction.write_part(table, WriteOptions::default()).unwrap();
    writer.push(&[Column { validity: None, values: Values::I64(vec![value].into()) }]).unwrap();
    let part = writer.finish().unwrap();
    transaction.add_part(table, part).unwrap();
}

/// A database with a table whose parts have a row each, numbered from 0 on.
fn database(path: &Path, part_count: i64, open_files_max: usize) -> Arc<Database> {
    let options = Options { open_files_max, ..Options::default() };
    let database = Database::open(Arc::new(Disk::create(path).unwrap()), Access::Write, options).unwrap();
    let mut transaction = database.begin().unwrap();
    transaction.set_retention(Duration::ZERO).unwrap();
    let table = transaction.create_table(Definition::new("main", "t", vec![("a", DataType::I64)])).unwrap();
    (0..part_count).for_each(|value| add_part(&mut transaction, table, value));
    transaction.commit().unwrap();
    database
}

fn readers(database: &Database) -> Result<Vec<PartReader>> {
    let snapshot = database.snapshot();
    let table = snapshot.table_named("main", "t").expect("it was created first");
    table.parts().into_iter().map(|part| snapshot.open_part(table, part)).collect()
}

fn value(reader: &PartReader) -> Result<i64> {
    let Values::I64(values) = reader.read(0, 0, Selection::All)?.values else { panic!("another type") };
    Ok(values[0])
}

/// How many files of parts below a directory this process has open.
#[cfg(target_os = "linux")]
fn open_count(path: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    open.filter(|file| {
        file.starts_with(path.canonicalize().unwrap()) && file.to_string_lossy().contains(".kpart")
    })
    .count()
}

#[test]
#[cfg(target_os = "linux")]
fn many_parts_are_read_with_few_open_files() {
    let directory = tempfile::tempdir().unwrap();
    let database = database(directory.path(), 40, 4);
    assert_eq!(open_count(directory.path()), 0);
    let readers = readers(&database).unwrap();
    for _ in 0..2 {
        let values = readers.iter().map(value).collect::<Result<Vec<_>>>();
        assert_eq!(values.unwrap(), Vec::from_iter(0..40));
        assert_eq!(open_count(directory.path()), 4);
    }
    drop(readers);
    assert_eq!(open_count(directory.path()), 0, "nobody reads");
}

#[test]
fn what_is_read_is_not_removed_though_its_file_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let database = database(directory.path(), 3, 1);
    let file_count = || std::fs::read_dir(directory.path().join("tables/1")).unwrap().count();
    let maintain_all = || while database.maintain(|_| WriteOptions::default()).unwrap() {};
    let readers = readers(&database).unwrap();
    let mut transaction = database.begin().unwrap();
    let parts: Vec<u64> = readers.iter().map(|reader| reader.key().part).collect();
    transaction.compact(1, &parts, WriteOptions::default()).unwrap();
    transaction.commit().unwrap();
    maintain_all();
    assert_eq!(file_count(), 4, "the readers are all that has the version");
    assert_eq!(readers.iter().map(value).collect::<Result<Vec<_>>>().unwrap(), [0, 1, 2]);
    drop(readers);
    maintain_all();
    assert_eq!(file_count(), 1);
}

#[test]
fn the_working_directory_matters_when_a_database_is_opened_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    std::env::set_current_dir(directory.path()).unwrap();
    let database = database(Path::new("db"), 1, 4);
    let reading = Database::open(Arc::new(Disk::open(Path::new("db"))), Access::Read, Options::default());
    let reading = reading.unwrap();
    std::env::set_current_dir("/").unwrap();
    let mut transaction = database.begin().unwrap();
    add_part(&mut transaction, 1, 1);
    transaction.commit().unwrap();
    reading.refresh().unwrap();
    for database in [database, reading] {
        let readers = readers(&database).unwrap();
        assert_eq!(readers.iter().map(value).collect::<Result<Vec<_>>>().unwrap(), [0, 1]);
    }
}

/// How many files of parts below a directory this process has mapped to memory.
#[cfg(target_os = "linux")]
fn mapped_count(path: &Path) -> usize {
    let path = path.canonicalize().unwrap().display().to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(&path) && line.contains(".kpart")).count()
}

/// Other tests here may find maps switched off, and do not notice.
#[test]
#[cfg(target_os = "linux")]
fn a_program_that_wants_no_memory_maps_gets_none() {
    for is_wanted in [true, false] {
        if !is_wanted {
            keirin_kernels::map::switch_off();
        }
        let directory = tempfile::tempdir().unwrap();
        let database = database(directory.path(), 0, 4);
        let mut transaction = database.begin().unwrap();
        let columns = vec![("a", DataType::F64)];
        let table = transaction.create_table(Definition::new("main", "f", columns)).unwrap();
        let options = WriteOptions { codecs: vec![ColumnCodec::Raw(Codec::None)], ..WriteOptions::default() };
        let mut writer = transaction.write_part(table, options).unwrap();
        writer.push(&[Column { validity: None, values: Values::F64(vec![0.5; 1000].into()) }]).unwrap();
        transaction.add_part(table, writer.finish().unwrap()).unwrap();
        transaction.commit().unwrap();
        let snapshot = database.snapshot();
        let table = snapshot.table(table).unwrap();
        let reader = snapshot.open_part(table, table.parts()[0]).unwrap();
        let mut total = Total::default();
        assert_eq!(reader.sum(0, 0..1, &mut total).unwrap(), Some(1000));
        assert_eq!(total.floats.value().to_bits(), 500_f64.to_bits());
        assert_eq!(mapped_count(directory.path()), usize::from(is_wanted));
    }
}
