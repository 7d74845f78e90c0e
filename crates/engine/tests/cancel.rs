//! Statements end when nobody wants them any more, whatever they are doing, and leave the threads to the next.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use keirin::{Database, Session};

/// Longer than any step takes on a busy machine; none of the statements here would end in this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a statement may be at work before its answer.
const AT_WORK: Duration = Duration::from_millis(300);

/// Runs `sql`, which has no end, until `rows` rows are read, and drops it.
fn check(session: &Session, sql: &str, rows: u64) {
    // The database's own threads may be too busy to ring its clocks.
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // Some statements answer at their end alone: they are dropped on the way there.
    let answer = clock.block_on(async { tokio::time::timeout(AT_WORK, session.sql(sql)).await });
    if let Ok(stream) = answer {
        let stream = stream.unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
        let progress = stream.progress();
        let begun = Instant::now();
        while progress.rows() < rows {
            assert!(begun.elapsed() < PATIENCE, "{sql}: {} rows are read", progress.rows());
            std::thread::yield_now();
        }
    }
    assert!(session.wait_until_idle(PATIENCE), "{sql} goes on");
    let next = async { session.sql("SELECT 1").await?.collect().await };
    let next = clock.block_on(async { tokio::time::timeout(PATIENCE, next).await });
    assert_eq!(next.expect("the threads are free").expect("the next statement runs").len(), 1);
}

fn run(database: &Database, session: &Session, sql: &str) {
    let done = database.block_on(async { session.sql(sql).await?.collect().await });
    done.unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
}

/// Statements without end over a table `t` of 20,000 rows with a column `a`.
fn check_operators(session: &Session, table: &str) {
    let endless = "range(0, 1000000000000)";
    let check = |sql: String, rows| check(session, &sql, rows);
    // Scans and filters.
    check(format!("SELECT count(*) FROM {endless} r WHERE r.value % 7 = 8"), 50_000);
    // Joins that find nothing, and so have nothing to hand out.
    check(format!("SELECT count(*) FROM {table} t JOIN {endless} r ON t.a + r.value < 0"), 20_001);
    check(
        format!(
            "SELECT count(*) FROM {table} t JOIN {endless} r ON t.a * 0 = r.value * 0 AND t.a + r.value < 0"
        ),
        20_001,
    );
    check(format!("SELECT count(*) FROM {table} t LEFT JOIN {endless} r ON t.a > r.value + 100000"), 20_001);
    // Joins that find much.
    check(format!("SELECT sum(t.a % 3 + r.value % 5) FROM {table} t, {endless} r"), 20_001);
    check(format!("SELECT count(*) FROM {table} t JOIN {endless} r ON t.a % 3 = r.value % 3"), 20_001);
    // Joins that give rows at their end alone, and one whose build side has no end.
    for exists in ["EXISTS", "NOT EXISTS"] {
        check(
            format!(
                "SELECT count(*) FROM {table} t WHERE {exists} (SELECT 1 FROM {endless} r WHERE t.a % 9 = r.value % 9 AND t.a + r.value < 0)"
            ),
            20_001,
        );
    }
    check(format!("SELECT count(*) FROM {endless} r JOIN {endless} s ON r.value = s.value"), 50_000);
    // Sorts, groups, windows.
    check(format!("SELECT * FROM {endless} r ORDER BY r.value % 1000"), 200_000);
    check(format!("SELECT * FROM {endless} r ORDER BY r.value % 1000 LIMIT 10"), 50_000);
    check(format!("SELECT r.value % 5000, count(*) FROM {endless} r GROUP BY 1"), 50_000);
    check(format!("SELECT count(DISTINCT r.value % 1000) FROM {endless} r"), 50_000);
    check(
        format!(
            "SELECT r.value % 9, count(DISTINCT CAST(r.value % 1000 AS VARCHAR)), count(*) FROM {endless} r GROUP BY 1"
        ),
        50_000,
    );
    check(format!("SELECT sum(r.value % 7) OVER (PARTITION BY r.value % 10) FROM {endless} r"), 50_000);
    check(format!("SELECT sum(r.value % 7) OVER (ORDER BY r.value ROWS 10 PRECEDING) FROM {endless} r"), 1);
    // Rows that make rows.
    check(format!("SELECT count(*) FROM (SELECT unnest(range(0, 5000)) FROM {endless} r)"), 1);
    check(
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x > 0) SELECT max(x) FROM n"
            .into(),
        0,
    );
    check(format!("SELECT value FROM {endless} UNION ALL SELECT value + 1 FROM {endless}"), 1);
    // Functions that take long.
    check(
        format!(
            "SELECT sum(length(regexp_replace(repeat(CAST(r.value AS VARCHAR), 100), '(1+)2*', 'x', 'g'))) FROM {endless} r"
        ),
        1,
    );
    // Writers.
    check(format!("CREATE TABLE made AS SELECT r.value FROM {endless} r WHERE r.value % 1000 = 0"), 50_000);
    check(format!("INSERT INTO {table} SELECT r.value FROM {endless} r WHERE r.value % 1000 = 0"), 50_000);
    check(
        format!(
            "UPDATE {table} SET a = a + 1 WHERE a < (SELECT count(*) FROM {endless} r WHERE r.value % 7 = 8)"
        ),
        0,
    );
    check(
        format!("DELETE FROM {table} WHERE a < (SELECT count(*) FROM {endless} r WHERE r.value % 7 = 8)"),
        0,
    );
}

fn database(threads: usize) -> keirin::DatabaseBuilder {
    Database::builder().threads(threads).memory_limit_bytes(256 << 20)
}

#[test]
fn any_operator_stops_on_one_thread_and_on_two() {
    for threads in [1, 2] {
        let database = database(threads).in_memory().unwrap();
        let session = database.session();
        run(&database, &session, "CREATE TABLE t AS SELECT value AS a FROM range(0, 20000)");
        check_operators(&session, "t");
    }
}

#[test]
fn statements_over_a_directory_stop() {
    for threads in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let database = database(threads).open(directory.path().join("db")).unwrap();
        let session = database.session();
        run(&database, &session, "CREATE TABLE t AS SELECT value AS a FROM range(0, 20000)");
        check_operators(&session, "t");
    }
}

#[test]
fn scans_of_files_and_writers_of_files_stop() {
    for threads in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let name = |file: &str| Path::new(directory.path()).join(file).display().to_string();
        let database = database(threads).in_memory().unwrap();
        let session = database.session();
        for file in ["t.csv", "t.json", "t.parquet", "t.arrow"] {
            let file = name(file);
            run(&database, &session, &format!("COPY (SELECT value AS a FROM range(0, 20000)) TO '{file}'"));
            let sql = format!(
                "SELECT count(*) FROM range(0, 1000000000000) r JOIN '{file}' t ON t.a + r.value < 0"
            );
            check(&session, &sql, 1);
        }
        for file in ["o.csv", "o.json", "o.parquet", "o.arrow"] {
            let sql = format!("COPY (SELECT value FROM range(0, 1000000000000)) TO '{}'", name(file));
            check(&session, &sql, 10_000);
            assert!(!Path::new(&name(file)).exists(), "{file} is half written");
        }
    }
}

#[test]
fn joins_that_sort_stop() {
    let database = database(2).in_memory().unwrap();
    let session = database.session();
    run(&database, &session, "SET datafusion.optimizer.prefer_hash_join = false");
    run(&database, &session, "CREATE TABLE t AS SELECT value AS a FROM range(0, 20000)");
    run(&database, &session, "CREATE TABLE u AS SELECT value AS a FROM range(0, 20000)");
    let crossed = "t JOIN u ON t.a * 0 = u.a * 0";
    check(&session, &format!("SELECT count(*) FROM {crossed} AND t.a + u.a < 0, range(0, 100) r"), 0);
    check(&session, &format!("SELECT sum(t.a % 3 + u.a % 5) FROM {crossed}, range(0, 100) r"), 0);
}
