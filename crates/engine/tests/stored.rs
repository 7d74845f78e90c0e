//! A database directory beside other processes, other sessions, and statements that are stopped.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::query;
use futures::future::join_all;
use keirin::arrow::array::AsArray;
use keirin::arrow::datatypes::Int64Type;
use keirin::{Database, ErrorKind};
use tempfile::TempDir;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

fn open(path: &Path) -> Database {
    Database::builder().threads(2).open(path).expect("the database opens")
}

fn run(database: &Database, sql: &str) -> Vec<Vec<String>> {
    query(database, &database.session(), sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn check(database: &Database, sql: &str, expected: &str) {
    assert_eq!(run(database, sql), [[expected.to_owned()]], "{sql}");
}

#[test]
fn only_empty_directories_become_databases() {
    let parent = directory();
    let check = |path: &Path, expected: &str| {
        let error = Database::open(path).expect_err("it is none");
        assert!(error.message().contains(expected), "{error:?}");
    };
    let file = parent.path().join("data.csv");
    std::fs::write(&file, "a").expect("there is room");
    check(&file, "is a file");
    check(parent.path(), "not empty");

    let path = parent.path().join("new");
    drop(open(&path));
    std::fs::write(path.join("KEIRIN"), "keirin database, format 99\n").expect("there is room");
    check(&path, "format 99");
}

#[test]
fn readers_see_each_commit_of_the_one_writer() {
    let directory = directory();
    let reader = || Database::builder().read_only(true).open(directory.path());
    assert_eq!(reader().expect_err("nothing is there").kind(), ErrorKind::Invalid);

    let writer = open(directory.path());
    let reader = reader().expect("a database is there");
    run(&writer, "CREATE TABLE t AS SELECT 1 AS a");
    check(&reader, "SELECT sum(a) FROM t", "1");
    run(&writer, "INSERT INTO t VALUES (2)");
    check(&reader, "SELECT sum(a) FROM t", "3");
    run(&writer, "DROP TABLE t");
    assert!(query(&reader, &reader.session(), "SELECT * FROM t").is_err());

    let refused = query(&reader, &reader.session(), "CREATE TABLE u (a INT)").expect_err("it reads");
    assert!(refused.contains("was opened for reading only"), "{refused}");
    let locked = Database::open(directory.path()).expect_err("there is a writer");
    assert!(locked.message().contains("another process"), "{locked:?}");
    drop(writer);
    drop(open(directory.path()));
}

#[test]
fn a_statement_reads_one_version_from_begin_to_end() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 300000)");
    let session = database.session();
    let begun = database.block_on(session.sql("SELECT a FROM t")).expect("it begins");
    run(&database, "DELETE FROM t WHERE a % 2 = 0");
    run(&database, "OPTIMIZE TABLE t FINAL");
    run(&database, "DROP TABLE t");
    let batches = database.block_on(begun.collect()).expect("it goes on");
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 300_000);
}

#[test]
fn changes_at_the_same_time_are_not_lost() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t AS SELECT 0 AS a, value AS b FROM generate_series(1, 3)");
    let outcomes = database.block_on(async {
        let one = async |sql: &'static str| database.session().sql(sql).await?.collect().await;
        join_all((0..4).map(|_| one("UPDATE t SET a = a + 1 WHERE b < 3"))).await
    });
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    // Whoever is always overtaken gives up after some attempts, and says so.
    assert!(
        done > 0
            && outcomes
                .iter()
                .flat_map(|outcome| outcome.as_ref().err())
                .all(|error| error.kind() == ErrorKind::Conflict)
    );
    check(&database, "SELECT sum(a) FROM t", &(2 * done).to_string());

    let outcomes = database.block_on(async {
        let insert = async |_| database.session().sql("INSERT INTO t VALUES (0, 9)").await?.collect().await;
        join_all((0..40).map(insert)).await
    });
    assert!(outcomes.iter().all(Result::is_ok));
    check(&database, "SELECT count(*) FROM t WHERE b = 9", "40");
}

#[test]
fn a_statement_that_is_stopped_leaves_nothing_behind() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t (a BIGINT)");
    let session = database.session();
    let endless = "INSERT INTO t SELECT value FROM generate_series(1, 1000000000000)";
    let begun = database.block_on(session.sql(endless)).expect("it begins");
    let files = || walk(directory.path()).into_iter().filter(|name| name.ends_with(".kpart")).count();
    wait_until(|| files() > 0);
    drop(begun);
    wait_until(|| files() == 0);
    check(&database, "SELECT count(*) FROM t", "0");

    let failing = "INSERT INTO t SELECT CASE WHEN value = 290000 THEN 1 / (value - value) ELSE value END \
                   FROM generate_series(1, 300000)";
    assert!(
        query(&database, &session, failing).expect_err("it divides by zero").contains("division by zero")
    );
    wait_until(|| files() == 0);
    check(&database, "SELECT count(*) FROM t", "0");
}

fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn walk(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("the directory can be read");
    let names = entries.map(|entry| entry.expect("the directory can be read").path());
    names
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] })
        .collect()
}

#[test]
fn rows_keep_the_order_of_their_files() {
    let directory = directory();
    let database = open(directory.path());
    let file = directory.path().join("rows.parquet");
    let file = file.display();
    run(&database, &format!("COPY (SELECT value AS a FROM generate_series(1, 500000)) TO '{file}'"));
    run(&database, &format!("CREATE TABLE t AS SELECT * FROM '{file}'"));
    run(&database, &format!("INSERT INTO t SELECT a + 500000 FROM '{file}'"));
    let read = async { database.session().sql("SELECT a FROM t").await?.collect().await };
    let batches = database.block_on(read).expect("it reads");
    let values = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values());
    assert!(values.copied().eq(1..=1_000_000));
}
