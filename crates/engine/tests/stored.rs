//! A database directory beside other processes, other sessions, and statements that are stopped.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{query, steps};
use futures::future::join_all;
use keirin::arrow::array::{ArrayRef, AsArray, Decimal256Array, RecordBatch};
use keirin::arrow::datatypes::{Int64Type, i256};
use keirin::arrow::ipc::writer::FileWriter;
use keirin::{Database, ErrorKind};
use parquet::data_type::{ByteArray, FixedLenByteArrayType, Int32Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
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
fn stripes_that_are_large_for_the_memory_are_read_slice_by_slice() {
    let directory = directory();
    let answers = |limit_bytes| {
        let database = Database::builder().threads(2).memory_limit_bytes(limit_bytes);
        let database = database.open(directory.path()).expect("the database opens");
        if limit_bytes > 1 << 30 {
            let texts = "repeat(CAST(value + 100000 AS VARCHAR), 200) AS s, repeat('x', value % 50) AS x";
            run(&database, &format!("CREATE TABLE t AS SELECT value AS a, {texts} FROM range(0, 20000)"));
            run(&database, "DELETE FROM t WHERE a % 7 = 0");
        }
        let queries = [
            "SELECT a, substr(s, 1, 6), x FROM t",
            "SELECT a, substr(s, 1, 6) FROM t WHERE x <> 'xxx' AND length(s) > a - 17000",
            "SELECT a, substr(s, 1, 6) FROM t WHERE a % 3 > 0 LIMIT 9000",
        ];
        queries.map(|query| run(&database, query))
    };
    let expected = answers(2 << 30);
    assert_eq!(expected.each_ref().map(Vec::len), [17_142, 15_288, 9000]);
    assert!(answers(32 << 20) == expected, "other rows, or in another order");
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
fn parts_of_other_partitions_are_not_read() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t (day DATE, a INT) PARTITION BY date_trunc('month', day)");
    run(
        &database,
        "INSERT INTO t SELECT DATE '2023-01-01' + CAST(value AS INT), value FROM generate_series(0, 729) AS s(value)",
    );
    check(&database, "SELECT count(*) FROM system.parts", "24");
    let plan = |sql: &str| format!("{:?}", run(&database, &format!("EXPLAIN (FORMAT INDENT) {sql}")));
    let contains = |sql: &str, expected: &str| assert!(plan(sql).contains(expected), "{}", plan(sql));
    contains("SELECT * FROM t", "parts=24,");
    contains("SELECT * FROM t WHERE day BETWEEN '2023-02-10' AND '2023-03-01'", "parts=2 of 24,");
    contains("SELECT * FROM t WHERE day = '2030-01-01'", "parts=0 of 24,");
    check(&database, "SELECT count(*) FROM t WHERE day BETWEEN '2023-02-10' AND '2023-03-01'", "20");

    let shown = || run(&database, "SHOW CREATE TABLE t")[0][1].replace("\\n", "\n");
    let statement = shown();
    assert!(statement.contains("\nPARTITION BY date_trunc('month', day)"), "{statement}");
    run(&database, "DROP TABLE t");
    run(&database, &statement);
    assert_eq!(shown(), statement);
}

/// Removes the files of the parts of table `t` in a partition.
fn lose(database: &Database, directory: &Path, partition: &str) {
    let sql =
        format!("SELECT file FROM system.parts WHERE \"partition\" = '{}'", partition.replace('\'', "''"));
    let files = run(database, &sql);
    assert!(!files.is_empty(), "{sql}");
    files.iter().for_each(|file| std::fs::remove_file(directory.join(&file[0])).expect("it is there"));
}

#[test]
fn a_part_that_is_missing_is_missed_by_those_who_need_it() {
    let directory = directory();
    let database = open(directory.path());
    let days =
        "SELECT DATE '2023-01-01' + CAST(value AS INT), value FROM generate_series(0, 729) AS s(value)";
    run(&database, "CREATE TABLE t (day DATE, a INT) PARTITION BY date_trunc('month', day)");
    run(&database, &format!("INSERT INTO t {days}"));
    lose(&database, directory.path(), "2023-05-01T00:00:00");
    let count = |filter: &str, expected: &str, parts: usize| {
        check(&database, &format!("SELECT count(*) FROM t WHERE {filter}"), expected);
        let plan = run(&database, &format!("EXPLAIN (FORMAT INDENT) SELECT * FROM t WHERE {filter}"))
            .concat()
            .concat();
        assert!(plan.contains(&format!("parts={parts} of 24,")), "{filter}\n{plan}");
    };
    let missed = |sql: &str| {
        let error = query(&database, &database.session(), sql).expect_err(sql);
        assert!(error.contains("missing") && error.contains("REPAIR TABLE"), "{error}");
    };
    count("day = '2023-02-10'", "1", 1);
    count("'2023-02-10' = day AND a > 7", "1", 1);
    count("day < '2023-05-01'", "120", 4);
    count("day BETWEEN '2023-06-01' AND '2023-07-02'", "32", 2);
    count("day > '2023-05-31'", "579", 19);
    count("day IN ('2023-02-10', '2023-03-10', NULL)", "2", 2);
    count("day = '2023-02-10' OR day >= '2024-12-30' AND a > 0", "2", 2);
    count("date_trunc('month', day) = '2023-04-01'", "30", 1);
    count("date_trunc('month', day) > '2024-11-01' AND day <> '2024-12-30'", "29", 1);
    missed("SELECT count(*) FROM t WHERE a > 700");
    missed("SELECT max(a) FROM t WHERE day >= '2023-05-31'");
    missed("SELECT max(a) FROM t WHERE day = '2023-02-10' OR a = 3");
    run(&database, "DELETE FROM t WHERE day < '2023-02-01'");
    check(&database, "SELECT count(*) FROM t WHERE day < '2023-03-01'", "28");
    run(&database, "DROP TABLE t");

    run(&database, "CREATE TABLE t (kind TEXT, n INT) PARTITION BY (kind, n % 3)");
    run(
        &database,
        "INSERT INTO t VALUES ('it''s, 1', 1), ('it', 2), ('', 3), (NULL, 4), ('NULL', 5), ('it', NULL), ('it', -1)",
    );
    lose(&database, directory.path(), "'it', 2");
    let kept = |filter: &str, expected: &str| {
        check(&database, &format!("SELECT count(*) FROM t WHERE {filter}"), expected);
    };
    kept("kind = 'it''s, 1'", "1");
    kept("kind = 'it' AND n = -1", "1");
    kept("kind = 'it' AND n % 3 IS NULL", "1");
    kept("kind LIKE 'it_%'", "1");
    kept("kind IS NULL OR kind IN ('', 'NULL')", "3");
    kept("kind <> 'it' OR n % 3 = -1", "4");
    kept("n IN (1, 3, 4)", "3");
    kept("n IS NULL AND n % 3 IS NULL", "1");
    missed("SELECT count(*) FROM t WHERE n > 2 AND n < 0");
    missed("SELECT count(n) FROM t WHERE n = 5");
    missed("SELECT count(n) FROM t WHERE kind LIKE 'i%' AND n < 3");
    run(&database, "REPAIR TABLE t");
    check(&database, "SELECT count(*) FROM t", "6");
}

#[test]
fn changes_at_the_same_time_are_not_lost() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t AS SELECT 0 AS a, value AS b FROM generate_series(1, 3)");
    let outcomes = database.block_on(async {
        let one = async |sql: &'static str| database.session().sql(sql).await?.collect().await;
        join_all((0..16).map(|_| one("UPDATE t SET a = a + 1 WHERE b < 3"))).await
    });
    // One after the other: none finds that another was first.
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    check(&database, "SELECT sum(a) FROM t", "32");

    let outcomes = database.block_on(async {
        let insert = async |_| database.session().sql("INSERT INTO t VALUES (0, 9)").await?.collect().await;
        join_all((0..40).map(insert)).await
    });
    assert!(outcomes.iter().all(Result::is_ok));
    check(&database, "SELECT count(*) FROM t WHERE b = 9", "40");
}

#[test]
fn more_writers_than_threads_get_on() {
    const WRITERS: usize = 6;
    let directory = directory();
    let database = Database::builder().threads(2).blocking_threads(2).open(directory.path());
    let database = database.expect("the database opens");
    run(&database, "CREATE TABLE source AS SELECT value AS a FROM range(0, 150000)");
    for writer in 0..WRITERS {
        run(&database, &format!("CREATE TABLE t{writer} AS SELECT a FROM source"));
    }
    let together = |statement: &dyn Fn(usize) -> String| {
        let statements = (0..WRITERS).map(|writer| {
            let (session, sql) = (database.session(), statement(writer));
            async move { session.sql(&sql).await?.collect().await }
        });
        let wait_max = Duration::from_secs(300);
        let done = database.block_on(async { tokio::time::timeout(wait_max, join_all(statements)).await });
        done.expect("someone waits for ever").into_iter().for_each(|done| drop(done.expect("it is done")));
    };
    together(&|writer| format!("INSERT INTO t{writer} SELECT a + 1 FROM source"));
    together(&|writer| format!("UPDATE t{writer} SET a = a + 1 WHERE a % 2 = 0"));
    let path = directory.path().display();
    together(&|writer| format!("COPY t{writer} TO '{path}/{writer}.csv'"));
    for writer in 0..WRITERS {
        check(&database, &format!("SELECT count(*) FROM t{writer} WHERE a % 2 = 1"), "300000");
        check(&database, &format!("SELECT count(*) FROM '{path}/{writer}.csv'"), "300000");
    }
}

#[test]
fn space_comes_back_when_tables_go_and_nobody_writes() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "SET keirin.retention = '0 seconds'");
    for change in ["DROP TABLE t", "TRUNCATE TABLE t", "ALTER TABLE t ALTER COLUMN a TYPE TEXT"] {
        run(&database, "CREATE OR REPLACE TABLE t AS SELECT value AS a FROM range(0, 1000)");
        let file = directory.path().join(&run(&database, "SELECT file FROM system.parts")[0][0]);
        assert!(file.exists());
        run(&database, change);
        let deadline = Instant::now() + Duration::from_secs(60);
        while file.exists() {
            assert!(Instant::now() < deadline, "{change}: the file stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_check_of_one_table_reads_no_other() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t AS SELECT 1 AS a");
    run(&database, "CREATE TABLE u AS SELECT 2 AS a");
    let file = &run(&database, "SELECT file FROM system.parts WHERE \"table\" = 'u'")[0][0];
    std::fs::remove_file(directory.path().join(file)).expect("it is there");
    assert_eq!(run(&database, "CHECK TABLE t")[0][1], "ok");
    run(&database, "REPAIR TABLE t");
    check(&database, "SELECT count(*) FROM system.damage", "0");
    assert_eq!(run(&database, "CHECK TABLE u")[0][1], "damaged");
    check(&database, "SELECT count(*) FROM system.damage", "1");
}

#[test]
fn an_answer_without_what_was_committed_last_says_so() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t AS SELECT 1 AS a");
    run(&database, "INSERT INTO t VALUES (2)");
    drop(database);
    let commits = walk(directory.path()).into_iter().filter(|name| name.ends_with(".commit"));
    let last = directory.path().join(commits.max().expect("two"));
    let mut bytes = std::fs::read(&last).expect("there");
    bytes[100] ^= 1;
    std::fs::write(&last, bytes).expect("there is room");
    let notice = |database: &Database| {
        let stream = database.block_on(database.session().sql("SELECT count(*) FROM t")).expect("it opens");
        stream.notice().map(str::to_owned)
    };
    for is_read_only in [true, false] {
        let database =
            Database::builder().read_only(is_read_only).open(directory.path()).expect("it always opens");
        let notice = notice(&database).expect("an older version answers");
        assert!(notice.contains("damaged behind version 1"), "{notice}");
        check(&database, "SELECT count(*) FROM system.damage", "1");
        if !is_read_only {
            run(&database, "REPAIR DATABASE");
        }
    }
    let database = open(directory.path());
    assert_eq!(notice(&database), None);
    check(&database, "SELECT count(*) FROM t", "1");
}

/// Runs two statements at the same time.
fn together(database: &Database, statements: [&str; 2]) -> Vec<keirin::Result<()>> {
    let one = async |sql: &str| database.session().sql(sql).await?.collect().await.map(|_| ());
    database.block_on(async { join_all(statements.map(one)).await })
}

#[test]
fn rows_that_come_while_a_table_is_altered_get_what_the_others_get() {
    let directory = directory();
    let database = open(directory.path());
    for round in 0..8 {
        run(&database, "CREATE OR REPLACE TABLE t AS SELECT value AS a FROM generate_series(1, 20000)");
        let alter = "ALTER TABLE t ADD COLUMN c TEXT DEFAULT ''";
        let outcomes = together(&database, [alter, "INSERT INTO t (a) VALUES (0)"]);
        assert!(outcomes[0].is_ok(), "round {round}: {outcomes:?}");
        check(&database, "SELECT count(*) FROM t WHERE c IS NULL", "0");

        run(&database, "CREATE OR REPLACE TABLE t (a BIGINT)");
        let alter = "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5";
        let outcomes = together(&database, ["INSERT INTO t (a) VALUES (0)", alter]);
        assert!(outcomes[1].is_ok(), "round {round}: {outcomes:?}");
        let count = if outcomes[0].is_ok() { "1" } else { "0" };
        check(&database, "SELECT count(c) FROM t WHERE c = 5", count);
    }
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

#[test]
fn single_rows_of_many_sessions_do_not_leave_a_part_each() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t (a BIGINT)");
    let outcomes = database.block_on(async {
        let rows = async |session: i64| {
            let connection = database.session();
            for row in 0..125 {
                let sql = format!("INSERT INTO t VALUES ({})", session * 125 + row);
                connection.sql(&sql).await?.collect().await?;
            }
            Ok::<_, keirin::Error>(())
        };
        join_all((0..8).map(rows)).await
    });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    check(&database, "SELECT count(DISTINCT a) FROM t", "1000");
    let parts = || run(&database, "SELECT count(*) FROM system.parts")[0][0].parse::<u64>().expect("a count");
    assert!(parts() < 100, "{} parts", parts());
    run(&database, "OPTIMIZE TABLE t");
    assert!(parts() <= 32, "{} parts", parts());
}

#[test]
fn tables_are_shown_with_their_sizes_and_comments() {
    let directory = directory();
    let database = open(directory.path());
    let create =
        "CREATE TABLE t ENGINE = Keirin COMMENT 'numbers' AS SELECT 7 AS a FROM generate_series(1, 100000)";
    run(&database, create);
    run(&database, "CREATE VIEW v AS SELECT 1 AS a");
    let [table, view] = run(&database, "SHOW TABLES").try_into().expect("two rows");
    let bytes = run(&database, "SELECT bytes FROM system.tables").remove(0).remove(0);
    assert_eq!(table[..5], ["main", "t", "table", "100000", &bytes]);
    assert!(table[5].parse::<f64>().is_ok_and(|ratio| ratio > 100.0) && table[6] == "numbers", "{table:?}");
    assert_eq!(view, ["main", "v", "view", "NULL", "NULL", "NULL", "NULL"]);
}

#[test]
fn changes_are_explained_and_not_made() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE t AS SELECT value AS a, 1 AS b FROM generate_series(1, 10)");
    let explain = |sql: &str, expected: &str| {
        let plan = format!("{:?}", run(&database, sql));
        assert!(plan.contains(expected), "{plan}");
    };
    explain("EXPLAIN (FORMAT INDENT) DELETE FROM t WHERE a > 5", "filter=a@1 > 5");
    explain("EXPLAIN (FORMAT INDENT) UPDATE t SET b = a + 1 WHERE a IN (SELECT max(a) FROM t)", "JoinExec");
    check(&database, "SELECT sum(b) FROM t", "10");
    let refused =
        query(&database, &database.session(), "EXPLAIN ANALYZE DELETE FROM t").expect_err("it deletes");
    assert!(refused.contains("not supported"), "{refused}");
    check(&database, "SELECT count(*) FROM t", "10");
}

#[test]
fn build_sides_are_narrowed_by_joins_below_their_probe_sides() {
    let directory = directory();
    let database = open(directory.path());
    run(&database, "CREATE TABLE part AS SELECT value AS p, value % 100 AS kind FROM range(10000)");
    run(
        &database,
        "CREATE TABLE supply AS SELECT nullif(value, 77) AS p, value % 5 AS cost FROM range(20000)",
    );
    let line =
        "CREATE TABLE line AS SELECT nullif(value % 10500, 70) AS p, value % 7 AS n FROM range(300000)";
    run(&database, line);
    let parts = "part JOIN line ON part.p = line.p";
    let joined = |joins: &str| format!("SELECT count(*), sum(cost), sum(n) FROM {joins}");
    let inner = joined(&format!("{parts} JOIN supply ON line.p = supply.p WHERE kind < 30"));
    let right =
        joined(&format!("supply RIGHT JOIN ({parts}) ON line.p = supply.p AND cost < 3 WHERE kind < 30"));
    let left = joined(&format!("supply LEFT JOIN ({parts} AND kind < 30) ON line.p = supply.p"));
    let semi = format!("SELECT count(*) FROM {parts} WHERE line.p IN (SELECT p FROM supply) AND kind < 30");
    let anti = format!(
        "SELECT count(*) FROM {parts} WHERE kind < 30
         AND NOT EXISTS (SELECT 1 FROM supply WHERE supply.p = line.p AND cost < 4)"
    );
    // Whether the scan of `supply` is filtered by other joins, and how many rows it gives.
    let of_supply = |sql: &str| {
        let steps = steps(&database, &database.session(), sql);
        let description =
            |step: &serde_json::Value| step["description"].as_str().unwrap_or_default().to_owned();
        let scan =
            steps.iter().find(|step| description(step).starts_with("table=supply")).expect("it is read");
        (description(scan).contains("DynamicFilter"), scan["rows"].as_u64().expect("a count"))
    };
    assert_eq!(of_supply(&inner), (true, 3000));
    assert_eq!(of_supply(&right), (true, 1800));
    assert_eq!(of_supply(&semi), (true, 3000));
    assert_eq!(of_supply(&anti), (true, 2400));
    assert_eq!(of_supply(&left), (false, 20_000));
    let statements = [inner, right, left, semi, anti];
    let session = database.session();
    let answers = || statements.each_ref().map(|sql| query(&database, &session, sql).expect("it is right"));
    let answers_then = answers();
    query(&database, &session, "SET keirin.fast_path = off").expect("a setting");
    assert_eq!(answers_then, answers());
}

#[test]
fn how_long_versions_are_kept_is_kept_with_the_database() {
    let directory = directory();
    let database = open(directory.path());
    let retention = "SELECT value FROM system.settings WHERE name = 'keirin.retention'";
    check(&database, retention, "1 hour");
    run(&database, "SET keirin.retention = '14 days'");
    check(&database, retention, "2 weeks");
    let wrong = query(&database, &database.session(), "SET keirin.retention = 'soon'").expect_err("no time");
    assert!(wrong.contains("'1 hour' or '7 days'"), "{wrong}");
    drop(database);
    let database = open(directory.path());
    run(&database, "RESET ALL");
    check(&database, retention, "2 weeks");
    run(&database, "RESET keirin.retention");
    check(&database, retention, "1 hour");
}

#[test]
fn clauses_that_mean_nothing_here_are_told() {
    let database = Database::in_memory().expect("a database opens");
    let notice = |sql: &str| {
        let stream = database.block_on(database.session().sql(sql)).expect("it runs");
        stream.notice().map(str::to_owned)
    };
    let told =
        notice("CREATE TABLE t (a INT) ENGINE = MergeTree ORDER BY a SETTINGS index_granularity = 8192");
    let told = told.expect("two clauses are read over");
    assert!(told.contains("ENGINE is read over") && told.contains("SETTINGS is read over"), "{told}");
    assert_eq!(notice("CREATE TABLE u (a INT) ORDER BY a"), None);
}

/// Writes a Parquet file with a column of UUIDs, as other programs do.
fn write_uuids(path: &Path) {
    let schema = "message rows { optional fixed_len_byte_array(16) id (UUID); required int32 n; }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let file = std::fs::File::create(path).expect("there is room");
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).expect("a file");
    let mut rows = writer.next_row_group().expect("a row group");
    let mut column = rows.next_column().expect("a column").expect("the first");
    let uuids = [[0xa0; 16], [0x0b; 16]].map(|bytes| ByteArray::from(bytes.to_vec()).into());
    column.typed::<FixedLenByteArrayType>().write_batch(&uuids, Some(&[1, 0, 1]), None).expect("values");
    column.close().expect("a column");
    let mut column = rows.next_column().expect("a column").expect("the second");
    column.typed::<Int32Type>().write_batch(&[1, 2, 3], None, None).expect("values");
    column.close().expect("a column");
    rows.close().expect("a row group");
    writer.close().expect("a file");
}

#[test]
fn uuids_of_parquet_files_are_uuids() {
    let directory = directory();
    let file = directory.path().join("uuids.parquet");
    write_uuids(&file);
    let database = open(&directory.path().join("db"));
    let file = file.display();
    let (first, third) = ("a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0", "0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b");
    assert_eq!(run(&database, &format!("SELECT id FROM '{file}' ORDER BY n")), [[first], ["NULL"], [third]]);
    check(&database, &format!("SELECT n FROM '{file}' WHERE id = '{}'", third.to_uppercase()), "3");
    run(&database, &format!("CREATE TABLE t AS SELECT * FROM '{file}'"));
    check(&database, "SELECT type FROM system.columns WHERE \"column\" = 'id'", "UUID");
    assert_eq!(run(&database, "SELECT id FROM t ORDER BY id"), [[third], [first], ["NULL"]]);
    // A UUID takes 16 bytes.
    run(&database, "INSERT INTO t SELECT uuid(), value FROM generate_series(1, 60000)");
    run(&database, "OPTIMIZE TABLE t FINAL");
    check(&database, "SELECT bytes / 60003 < 16.1 FROM system.columns WHERE \"column\" = 'id'", "true");
}

#[test]
fn decimals_with_more_digits_than_their_file_says_are_refused() {
    let directory = directory();
    let file = directory.path().join("decimals.arrow");
    let decimals = Decimal256Array::from(vec![i256::ONE, i256::MAX]).with_precision_and_scale(30, 2);
    let column: ArrayRef = Arc::new(decimals.expect("30 digits are possible"));
    let batch = RecordBatch::try_from_iter([("d", column)]).expect("a column");
    let target = std::fs::File::create(&file).expect("there is room");
    let mut writer = FileWriter::try_new(target, batch.schema_ref()).expect("a file");
    writer.write(&batch).and_then(|()| writer.finish()).expect("there is room");
    let database = open(&directory.path().join("db"));
    for sql in ["SELECT CAST(d AS DECIMAL(38, 2)) FROM", "CREATE TABLE t AS SELECT * FROM"] {
        let sql = format!("{sql} '{}'", file.display());
        let error = query(&database, &database.session(), &sql).expect_err("too many digits");
        assert!(error.contains("decimals.arrow") && error.contains("column 'd'"), "{error}");
    }
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

/// Rows of each kind of text, numbers whose sums need more than their type, and nulls.
const MIXED: &str = "CREATE TABLE t AS SELECT i,
    CASE WHEN i % 7 = 0 THEN NULL WHEN i % 5 = 0 THEN '' ELSE repeat('é', i % 20) || i END AS various,
    CASE WHEN i < 70000 THEN 'plain ' || (i % 9) ELSE 'straße ' || (i % 9) END AS few,
    'same' AS same, i % 3 = 0 AS flag, CAST(i % 100 AS SMALLINT) AS small, CAST(i AS DECIMAL(12, 2)) / 8 AS money,
    CASE WHEN i % 4 > 0 THEN i END AS gaps, CAST(i AS DOUBLE) / 4 AS float,
    CAST(i % 200 - 100 AS TINYINT) AS tiny, CAST(4294967295 - i AS INT UNSIGNED) AS large,
    CASE WHEN i % 4 > 0 THEN CAST(-i AS INT) END AS holes
    FROM (SELECT value AS i FROM generate_series(1, 140000))";

#[test]
fn tables_answer_as_files_do() {
    let directory = directory();
    let disk = open(directory.path());
    run(&disk, MIXED);
    let file = directory.path().join("t.parquet");
    let rows = MIXED.strip_prefix("CREATE TABLE t AS ").expect("a query");
    let files = over_file(&file, rows);
    let check = |sql: &str, in_plan: &str| {
        let (found, expected) = (run(&disk, sql), run(&files, sql));
        assert_eq!(found, expected, "{sql}");
        let plan: String = run(&disk, &format!("EXPLAIN (FORMAT INDENT) {sql}")).concat().concat();
        assert!(plan.contains(in_plan), "{sql}: no {in_plan} in\n{plan}");
    };
    for deleted in ["", "i % 1000 = 17"] {
        delete(deleted, &disk, &files, &file);
        let lengths = "columns=[octet_length(various), character_length(various)]";
        check("SELECT avg(octet_length(various)), max(length(various)) FROM t", lengths);
        check(
            "SELECT sum(octet_length(few)), min(length(same)), count(length(few)) FROM t",
            "octet_length(few)",
        );
        check("SELECT sum(character_length(x.few)) FROM t AS x", "[character_length(few)]");
        check(
            "SELECT count(*) FILTER (WHERE various = ''), count(*) FILTER (WHERE various <> '') FROM t",
            "octet",
        );
        check(
            "SELECT length(various) AS n, count(*) FROM t GROUP BY n ORDER BY n",
            "[character_length(various)]",
        );
        check("SELECT i, length(few) FROM t WHERE i % 9999 = 1 ORDER BY i", "character_length(few)");
        check("SELECT sum(i) FROM t WHERE octet_length(various) > 9", "filter=octet_length(various)");
        check("SELECT few, length(few) FROM t WHERE i = 70001", "columns=[few]");
        check("SELECT max(various || 'x') FROM t WHERE length(various) = 5", "columns=[various]");
        let aggregate = "StoredAggregate: mode=Partial";
        check("SELECT sum(i), avg(i), avg(small), sum(small), count(gaps) FROM t", aggregate);
        check(
            "SELECT sum(gaps), avg(gaps), sum(money), avg(money), sum(float), avg(float) FROM t",
            aggregate,
        );
        check("SELECT sum(i) FILTER (WHERE flag), count(DISTINCT small), avg(small + 1) FROM t", aggregate);
        check(
            "SELECT sum(tiny), avg(tiny), sum(large), avg(large), sum(holes), avg(holes) FROM t",
            aggregate,
        );
        check("SELECT sum(small) FILTER (WHERE flag), min(small) FROM t", aggregate);
        check(
            "SELECT sum(CAST(large AS BIGINT)), sum(small), min(small), avg(CAST(tiny AS BIGINT)) FROM t",
            aggregate,
        );
        check("SELECT sum(small), sum(holes) FROM t WHERE i > 999999", aggregate);
        check("SELECT sum(i), avg(money) FROM t WHERE i BETWEEN 60000 AND 80000", aggregate);
        check("SELECT count(*), sum(i) FROM t WHERE few = 'straße 4' AND various <> ''", aggregate);
        check("SELECT count(*), sum(i) FROM t WHERE few NOT LIKE '%aß%' AND small >= 50", aggregate);
        check("SELECT count(*) FROM t WHERE various LIKE '_é%1' AND NOT flag", aggregate);
        check("SELECT count(*), sum(i) FROM t WHERE gaps IS NULL AND money < 9000.5", aggregate);
        check("SELECT min(various), max(few) FROM t WHERE i > 139990", aggregate);
        check("SELECT sum(i) FROM t WHERE i < 0", aggregate);
    }
}

/// A database with a view `t` of a file with the rows of a query.
fn over_file(file: &Path, rows: &str) -> Database {
    let database = Database::builder().threads(2).in_memory().expect("room");
    run(&database, &format!("COPY ({rows}) TO '{}'", file.display()));
    run(&database, &format!("CREATE VIEW t AS SELECT * FROM '{}'", file.display()));
    database
}

/// Takes rows out of a table, and out of the view of its file.
fn delete(condition: &str, table: &Database, files: &Database, file: &Path) {
    if condition.is_empty() {
        return;
    }
    run(table, &format!("DELETE FROM t WHERE {condition}"));
    let rows = format!("SELECT * FROM '{}' WHERE ({condition}) IS NOT TRUE", file.display());
    run(files, &format!("CREATE OR REPLACE VIEW t AS {rows}"));
}

/// Storage adds up several stripes at a time, unless rows of one are deleted, or one has a null.
#[test]
fn sums_of_many_stripes_leave_none_out() {
    let directory = directory();
    let disk = open(directory.path());
    let columns = [
        ("i", "INT NOT NULL", "i"),
        ("tiny", "TINYINT NOT NULL", "i % 200 - 100"),
        ("x", "DOUBLE NOT NULL", "i / 8.0"),
        ("f", "FLOAT NOT NULL", "i / 4.0"),
        ("money", "DECIMAL(38, 2) NOT NULL", "i / 8.0"),
        ("holes", "SMALLINT", "CASE WHEN i NOT BETWEEN 400000 AND 400009 THEN i % 30000 END"),
    ];
    let defined = columns.map(|(name, data_type, _)| format!("{name} {data_type} CODEC(NONE)")).join(", ");
    run(&disk, &format!("CREATE TABLE t ({defined})"));
    let cast = |(name, data_type, value): (&str, &str, &str)| {
        let data_type = data_type.trim_end_matches(" NOT NULL");
        format!("CAST({value} AS {data_type}) AS {name}")
    };
    let cast = columns.map(cast).join(", ");
    let rows = [1_300_000, 300_000].map(|rows| {
        format!("SELECT {cast} FROM (SELECT value * 7919 % {rows} AS i FROM generate_series(1, {rows}))")
    });
    for rows in &rows {
        run(&disk, &format!("INSERT INTO t {rows}"));
    }
    let file = directory.path().join("t.parquet");
    let files = over_file(&file, &rows.join(" UNION ALL "));
    for deleted in ["", "i IN (5, 250000)"] {
        delete(deleted, &disk, &files, &file);
        for threads in [1, 2, 7] {
            let sessions = [&disk, &files].map(|database| (database, database.session()));
            let run = |sql: &str| {
                sessions
                    .each_ref()
                    .map(|(database, session)| query(database, session, sql).expect("it is right"))
            };
            run(&format!("SET threads = {threads}"));
            for sql in [
                "SELECT sum(i) FROM t",
                "SELECT sum(tiny), avg(tiny) FROM t",
                "SELECT sum(x), avg(f), sum(money) FROM t",
                "SELECT sum(holes), avg(holes), sum(i) FROM t",
                "SELECT sum(i), count(holes), max(tiny) FROM t",
                "SELECT sum(i), sum(f) FROM t WHERE i > 700000",
            ] {
                let [found, expected] = run(sql);
                assert_eq!(found, expected, "{sql}, {threads} threads {deleted}");
            }
        }
    }
}
