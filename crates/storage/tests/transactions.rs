//! What a transaction is refused, and whose log a database takes for its own.

use std::path::Path;
use std::sync::Arc;

use keirin_storage::column::{Column, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::WriteOptions;
use keirin_storage::schema::{DataType, Definition};
use keirin_storage::{Access, Database, Error, Options, Result, Transaction};

fn open(path: &Path) -> Arc<Database> {
    let disk = Disk::create(path).expect("a directory");
    Database::open(Arc::new(disk), Access::Write, Options::default()).expect("nobody else")
}

fn set(database: &Arc<Database>, key: &str, value: &str) {
    let mut transaction = database.begin().expect("nobody else");
    transaction.set_property(key, Some(value)).expect("short");
    transaction.commit().expect("nobody else");
}

#[test]
fn changes_that_could_not_be_read_again_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let refused = |change: &dyn Fn(&mut Transaction) -> Result<()>| {
        let mut transaction = database.begin().expect("nobody else");
        let outcome = change(&mut transaction).and_then(|()| transaction.commit());
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    };
    let wide = || Definition::new("main", "t", vec![("a", DataType::Decimal { precision: 65, scale: 2 })]);
    refused(&|transaction| transaction.create_table(wide()).map(|_| ()));
    refused(&|transaction| transaction.set_property("view", Some(&"x".repeat(17 << 20))));
    set(&database, "comment", "short");
    drop(database);
    let database = open(directory.path());
    assert_eq!(database.snapshot().properties()["comment"], "short");
    assert_eq!(database.damage(), []);
}

#[test]
fn of_two_transactions_that_set_one_property_the_second_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let begin = |key: &str| {
        let mut transaction = database.begin().expect("nobody else");
        transaction.set_property(key, Some("1")).expect("short");
        transaction
    };
    let (one, same, other) = (begin("a"), begin("a"), begin("b"));
    one.commit().expect("the first");
    assert!(matches!(same.commit(), Err(Error::Conflict { .. })));
    other.commit().expect("another key");
}

#[test]
fn threads_write_parts_of_one_transaction() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let mut transaction = database.begin().expect("nobody else");
    drop(database);
    let table =
        transaction.create_table(Definition::new("main", "t", vec![("a", DataType::I64)])).expect("new");
    let transaction = Arc::new(transaction);
    let write = |number: i64| {
        let transaction = Arc::clone(&transaction);
        std::thread::spawn(move || {
            let mut writer = transaction.write_part(table, WriteOptions::default())?;
            writer.push(&[Column { validity: None, values: Values::I64(vec![number; 1000].into()) }])?;
            writer.finish()
        })
    };
    let threads: Vec<_> = (0..4).map(write).collect();
    let parts: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("room")).collect();
    let mut transaction = Arc::into_inner(transaction).expect("the threads have ended");
    parts.into_iter().for_each(|part| transaction.add_part(table, part).expect("a new part"));
    transaction.commit().expect("nobody else");

    let database = open(directory.path());
    let snapshot = database.snapshot();
    assert_eq!(snapshot.table_named("main", "t").expect("there").row_count(), 4000);
    assert_eq!(database.check(), []);
}

#[test]
fn a_part_of_another_transaction_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let mut transaction = database.begin().expect("nobody else");
    let table =
        transaction.create_table(Definition::new("main", "t", vec![("a", DataType::I64)])).expect("new");
    transaction.commit().expect("nobody else");
    let given_up = database.begin().expect("nobody else");
    let mut writer = given_up.write_part(table, WriteOptions::default()).expect("a new part");
    writer.push(&[Column { validity: None, values: Values::I64(vec![1].into()) }]).expect("a row");
    let part = writer.finish().expect("room");
    drop(given_up);
    let refused = database.begin().expect("nobody else").add_part(table, part).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

#[test]
fn a_checkpoint_of_another_database_is_passed_over() {
    let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for (directory, value) in [(&ours, "ours"), (&theirs, "theirs")] {
        let database = open(directory.path());
        set(&database, "a", value);
        set(&database, "b", value);
        database.checkpoint().expect("room");
    }
    let checkpoint = "log/00000000000000000002.checkpoint";
    std::fs::copy(theirs.path().join(checkpoint), ours.path().join(checkpoint)).expect("room");
    let database = open(ours.path());
    assert_eq!(database.snapshot().properties()["a"], "ours");
    assert_eq!(database.snapshot().version(), 2);
    let damage = database.damage();
    assert!(damage.len() == 1 && damage[0].path == checkpoint, "{damage:?}");
    set(&database, "c", "ours");
}
