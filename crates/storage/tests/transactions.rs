//! What a transaction is refused, and whose log a database takes for its own.

use std::path::Path;
use std::sync::Arc;

use keirin_storage::column::{Column, Values};
use keirin_storage::io::Disk;
use keirin_storage::part::WriteOptions;
use keirin_storage::schema::{DataType, Definition, Properties};
use keirin_storage::{Access, Database, Error, Options, Result, Snapshot, Transaction, View};

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

#[test]
fn a_commit_too_large_for_memory_is_not_read() {
    const BYTES: u64 = (256 << 20) + 1;
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    set(&database, "a", "1");
    drop(database);
    let path = "log/00000000000000000002.commit";
    let file = std::fs::File::create_new(directory.path().join(path)).expect("room");
    file.set_len(BYTES).expect("it takes no room");
    let database = open(directory.path());
    let damage: Vec<_> = database.damage().into_iter().map(|damage| (damage.path, damage.reason)).collect();
    let reason = format!("it has {BYTES} bytes, at most {} are possible", BYTES - 1);
    assert_eq!(damage, [(path.to_owned(), reason)]);
    assert_eq!((database.snapshot().version(), database.is_behind()), (1, true));
}

/// A table with one part that has one row.
fn table_with(transaction: &mut Transaction, name: &str, number: i64) -> u64 {
    let definition = Definition::new("main", name, vec![("a", DataType::I64)]);
    let table = transaction.create_table(definition).expect("a new table");
    insert(transaction, table, Values::I64(vec![number].into()));
    table
}

fn insert(transaction: &mut Transaction, table: u64, values: Values<'static>) {
    let mut writer = transaction.write_part(table, WriteOptions::default()).expect("a new part");
    writer.push(&[Column { validity: None, values }]).expect("rows");
    transaction.add_part(table, writer.finish().expect("room")).expect("a new part");
}

/// The values of the only column of a table, as text.
fn rows(snapshot: &Snapshot, name: &str) -> Vec<String> {
    let table = snapshot.table_named("main", name).expect("there");
    let read = |part: &&keirin_storage::Part| {
        let reader = snapshot.open_part(table, part).expect("whole");
        let column = reader.read(0, 0, keirin_kernels::Selection::All).expect("whole");
        format!("{:?}", column.values)
    };
    table.parts().iter().map(read).collect()
}

#[test]
fn a_commit_changes_several_tables_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let mut transaction = database.begin().expect("nobody else");
    let (one, two) = (table_with(&mut transaction, "one", 1), table_with(&mut transaction, "two", 2));
    transaction.commit().expect("nobody else");

    // CREATE OR REPLACE, and two tables that exchange their names.
    let mut transaction = database.begin().expect("nobody else");
    let three = table_with(&mut transaction, "three", 3);
    let named = |name: &str| Definition::new("main", name, vec![("a", DataType::I64)]);
    transaction.alter_table(one, named("free")).expect("a free name");
    let refused = transaction.alter_table(three, named("two")).unwrap_err();
    assert!(refused.to_string().contains("there is a table 'main.two' already"), "{refused}");
    transaction.alter_table(two, named("one")).expect("a free name");
    transaction.alter_table(one, named("two")).expect("a free name");
    transaction.drop_table(three).expect("it is there");
    let again = table_with(&mut transaction, "three", 33);
    let version = transaction.commit().expect("nobody else");
    drop(database);

    let database = open(directory.path());
    let snapshot = database.snapshot();
    assert_eq!((snapshot.version(), version, database.check()), (2, 2, vec![]));
    let number = |name: &str| snapshot.table_named("main", name).map(|table| table.number);
    assert_eq!([number("one"), number("two"), number("three")], [Some(two), Some(one), Some(again)]);
    assert_eq!(
        ["one", "two", "three"].map(|name| rows(&snapshot, name)),
        [["I64([2])"], ["I64([1])"], ["I64([33])"]]
    );
    let before = database.as_of_version(1).expect("within the retention");
    assert_eq!(
        (rows(&before, "one"), rows(&before, "two")),
        (vec!["I64([1])".into()], vec!["I64([2])".into()])
    );
    let made = directory.path().join(format!("tables/{three}"));
    assert!(!made.exists(), "what was made and dropped again is gone");
}

#[test]
fn a_column_gets_another_type_with_all_its_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let mut transaction = database.begin().expect("nobody else");
    let table = table_with(&mut transaction, "t", 1);
    transaction.commit().expect("nobody else");
    let retype = || {
        let mut transaction = database.begin().expect("nobody else");
        let parts: Vec<u64> =
            transaction.base().table(table).expect("there").parts().iter().map(|part| part.number).collect();
        transaction
            .alter_table(table, Definition::new("main", "t", vec![("a", DataType::U8)]))
            .expect("a good definition");
        let mut writer = transaction.write_part(table, WriteOptions::default()).expect("a new part");
        let values = Values::U8(vec![7; parts.len()].into());
        writer.push(&[Column { validity: None, values }]).expect("rows of the new type");
        transaction.replace_parts(table, &parts, vec![writer.finish().expect("room")]).expect("there");
        transaction
    };
    let (late, mut between) = (retype(), database.begin().expect("nobody else"));
    insert(&mut between, table, Values::I64(vec![2].into()));
    between.commit().expect("nobody else");
    let refused = late.commit().unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "rows of the old type were added: {refused}");
    let (in_time, mut late) = (retype(), database.begin().expect("nobody else"));
    insert(&mut late, table, Values::I64(vec![3].into()));
    in_time.commit().expect("nobody else");
    let refused = late.commit().unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "rows of the old type: {refused}");
    assert_eq!(rows(&database.snapshot(), "t"), ["U8([7, 7])"]);
    assert_eq!(database.check(), []);
}

#[test]
fn schemas_and_views_are_kept_and_share_names_with_tables() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let view = |name: &str, text: &str| View {
        schema: "s".to_owned(),
        name: name.to_owned(),
        text: text.to_owned(),
        properties: Properties::from([("comment".to_owned(), "why".to_owned())]),
    };
    let table = |name: &str| Definition::new("s", name, vec![("a", DataType::I64)]);
    let refused = |outcome: Result<u64>, expected: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut transaction = database.begin().expect("nobody else");
    refused(transaction.create_view(view("v", "SELECT 1")), "there is no schema 's'");
    refused(transaction.create_table(table("t")), "there is no schema 's'");
    transaction.set_schema("s", Properties::from([("collation".to_owned(), "c".to_owned())])).expect("new");
    let first = transaction.create_view(view("v", "SELECT 1")).expect("new");
    let dropped = transaction.create_view(view("dropped", "SELECT 2")).expect("new");
    transaction.create_table(table("t")).expect("new");
    refused(transaction.create_table(table("v")), "there is a view 's.v' already");
    refused(transaction.create_view(view("t", "SELECT 1")), "there is a table 's.t' already");
    refused(transaction.alter_view(first, view("t", "")).map(|()| 0), "there is a table 's.t' already");
    refused(transaction.drop_schema("s").map(|()| 0), "schema 's' is not empty");
    refused(transaction.drop_schema("main").map(|()| 0), "schema 'main' is always there");
    refused(transaction.drop_schema("other").map(|()| 0), "there is no schema 'other'");
    transaction.commit().expect("nobody else");
    let mut transaction = database.begin().expect("nobody else");
    transaction.alter_view(first, view("renamed", "SELECT 3")).expect("there");
    transaction.drop_view(dropped).expect("there");
    refused(transaction.alter_view(dropped, view("v", "")).map(|()| 0), "there is no view");
    transaction.commit().expect("nobody else");

    let check = |database: &Database| {
        let snapshot = database.snapshot();
        assert_eq!(snapshot.schemas().collect::<Vec<_>>(), ["main", "s"]);
        assert_eq!(snapshot.schema("s").expect("there")["collation"], "c");
        assert!(snapshot.schema("main").expect("always there").is_empty());
        let views: Vec<_> = snapshot.views().collect();
        assert_eq!(views, [(first, &Arc::new(view("renamed", "SELECT 3")))]);
        assert_eq!(snapshot.view_named("s", "renamed"), Some(views[0]));
        assert_eq!(snapshot.view_named("s", "v"), None);
    };
    check(&database);
    database.checkpoint().expect("room");
    drop(database);
    let database = open(directory.path());
    check(&database);

    // Whoever drops a schema, and whoever puts something into it: the second fails.
    let mut empty = database.begin().expect("nobody else");
    empty.set_schema("e", Properties::new()).expect("new");
    empty.commit().expect("nobody else");
    let mut drops = database.begin().expect("nobody else");
    drops.drop_schema("e").expect("it is empty");
    let mut fills = database.begin().expect("nobody else");
    fills.create_view(View { schema: "e".to_owned(), ..view("v", "SELECT 1") }).expect("new");
    let mut second = database.begin().expect("nobody else");
    second.create_table(Definition::new("e", "v", vec![("a", DataType::I64)])).expect("new");
    fills.commit().expect("the first");
    for late in [drops, second] {
        assert!(matches!(late.commit(), Err(Error::Conflict { .. })));
    }
}

#[test]
fn a_definition_that_was_made_for_certain_rows_is_not_committed_over_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = open(directory.path());
    let mut transaction = database.begin().expect("nobody else");
    let full = table_with(&mut transaction, "full", 1);
    let columns = vec![("a", DataType::I64)];
    let empty = transaction.create_table(Definition::new("main", "empty", columns.clone())).expect("new");
    transaction.commit().expect("nobody else");
    // A nullable column, which the rows that are there get a value in: others would have none.
    let wide = |name: &str| {
        let mut definition = Definition::new("main", name, vec![("a", DataType::I64), ("b", DataType::I64)]);
        definition.fields[1].is_nullable = true;
        definition
    };
    let write_again = || {
        let mut transaction = database.begin_rewriting(full).expect("nobody else");
        let parts = transaction.base().table(full).expect("there").parts();
        let parts: Vec<u64> = parts.iter().map(|part| part.number).collect();
        transaction.alter_table(full, wide("full")).expect("a good definition");
        let mut writer = transaction.write_part(full, WriteOptions::default()).expect("a new part");
        let column = || Column { validity: None, values: Values::I64(vec![7; parts.len()].into()) };
        writer.push(&[column(), column()]).expect("rows");
        transaction.replace_parts(full, &parts, vec![writer.finish().expect("room")]).expect("there");
        transaction
    };
    let alter_empty = || {
        let mut transaction = database.begin().expect("nobody else");
        transaction.require_same_rows(empty);
        transaction.alter_table(empty, wide("empty")).expect("a good definition");
        transaction
    };
    let cases: [(u64, &dyn Fn() -> Transaction); 2] = [(full, &write_again), (empty, &alter_empty)];
    for (table, alter) in cases {
        let (late, mut between) = (alter(), database.begin().expect("nobody else"));
        insert(&mut between, table, Values::I64(vec![2].into()));
        between.commit().expect("nobody else");
        let refused = late.commit().unwrap_err();
        assert!(matches!(refused, Error::Conflict { .. }), "rows without a value were added: {refused}");
        let (in_time, mut other) = (alter(), database.begin().expect("nobody else"));
        other.set_property("other", Some("1")).expect("short");
        other.commit().expect("nobody else");
        in_time.commit().expect("what else was changed does not matter");
    }
}

#[test]
#[cfg(unix)]
fn a_lock_file_that_was_removed_lets_nobody_harm_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let one = open(directory.path());
    let mut transaction = one.begin().expect("nobody else");
    let table = table_with(&mut transaction, "t", 1);
    transaction.commit().expect("nobody else");
    let mut late = one.begin().expect("nobody else");
    insert(&mut late, table, Values::I64(vec![11].into()));
    std::fs::remove_file(directory.path().join("LOCK")).expect("there");
    let two = open(directory.path());
    let mut transaction = two.begin().expect("it has the lock");
    insert(&mut transaction, table, Values::I64(vec![2].into()));
    transaction.commit().expect("it has the lock");
    assert!(matches!(late.commit(), Err(Error::Locked)));
    let refused = one.begin().map(drop).unwrap_err().to_string();
    assert!(refused.contains("'LOCK' shows that another process writes"), "{refused}");
    drop(one);
    assert!(directory.path().join("WRITING").exists(), "the other still writes");
    drop(two);
    let database = open(directory.path());
    assert_eq!(rows(&database.snapshot(), "t"), ["I64([1])", "I64([2])"]);
    assert_eq!(database.check(), []);
}
