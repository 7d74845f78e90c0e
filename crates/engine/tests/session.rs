//! What the library promises beyond answers: cancellation, parameters, limits, order, settings.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use futures::StreamExt;
use keirin::arrow::array::{AsArray, RecordBatch};
use keirin::arrow::datatypes::{Int64Type, UInt64Type};
use keirin::arrow::util::pretty::pretty_format_batches;
use keirin::{Database, Error, ErrorKind, Parameters, Session, StatementKind};

fn run(database: &Database, session: &Session, sql: &str) -> keirin::Result<Vec<RecordBatch>> {
    database.block_on(async { session.sql(sql).await?.collect().await })
}

fn number(batches: &[RecordBatch]) -> i64 {
    batches.iter().find(|batch| batch.num_rows() > 0).unwrap().column(0).as_primitive::<Int64Type>().value(0)
}

fn fails(sql: &str) -> Error {
    let database = Database::in_memory().unwrap();
    run(&database, &database.session(), sql).expect_err(sql)
}

#[test]
fn a_dropped_stream_stops_its_query() {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let session = database.session();
    let endless = "SELECT count(*) FROM range(0, 1000000) a CROSS JOIN range(0, 1000000) b";
    database.block_on(async {
        let mut stream = session.sql(endless).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
        assert!(waited.is_err(), "it should take for ever");
    });
    // It would run for weeks; a machine may be busy for minutes.
    assert!(session.wait_until_idle(Duration::from_secs(300)), "the query goes on");
    assert_eq!(number(&run(&database, &session, "SELECT count(*) FROM range(0, 1000)").unwrap()), 1000);
}

#[test]
fn parameters_are_literals_wherever_they_stand() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let check = |sql: &str, parameters: Parameters, expected: &str| {
        let batches = database
            .block_on(async { session.sql_with(sql, parameters).await?.collect().await })
            .unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
        let text = pretty_format_batches(&batches).unwrap().to_string();
        let cells: Vec<&str> = text.lines().nth(3).unwrap_or("").split('|').map(str::trim).collect();
        assert_eq!(cells[1..cells.len() - 1].join(","), expected, "{sql}");
    };
    check("SELECT ? - ?", [50, 8].into(), "42");
    check("SELECT $2 || $1", ["a", "b"].into(), "ba");
    check("SELECT :left || :right", [("right", "b"), ("left", "a")].into(), "ab");
    check("SELECT ?", ["it's; -- ?"].into(), "it's; -- ?");
    check("SELECT ? * 2", [-1.5e300].into(), "-3e300");
    check("SELECT count(*) FROM (SELECT * FROM range(0, 10) LIMIT ?)", [3].into(), "3");
    check("SELECT ? IS NULL", [None::<i64>].into(), "true");
    check("SELECT ?", [vec![0_u8, 255]].into(), "00ff");
    check("SELECT ? + 1", [i64::MIN + 1].into(), "-9223372036854775806");
}

#[test]
fn a_parameter_without_a_value_is_pointed_at() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let sql = "SELECT ? + ?";
    let error = database.block_on(session.sql_with(sql, [1])).expect_err("one is missing");
    assert_eq!(
        error.report(sql),
        concat!(
            "error: parameter $2 has no value: 1 are given\n",
            "  line 1: SELECT ? + ?\n",
            "                     ^\n",
        )
    );
}

#[test]
fn queries_larger_than_the_memory_limit_spill_and_clean_up() {
    let parent = tempfile::tempdir().unwrap();
    let database = Database::builder()
        .threads(2)
        .memory_limit_bytes(24 << 20)
        .temp_directory(parent.path())
        .in_memory()
        .unwrap();
    let session = database.session();
    let check = |sql: &str, expected: i64| {
        let batches =
            run(&database, &session, sql).unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
        assert_eq!(number(&batches), expected, "{sql}");
    };
    // Each needs several times the limit.
    check("SELECT count(*) FROM (SELECT value FROM range(0, 6000000) ORDER BY value % 1000 DESC)", 6_000_000);
    check("SELECT count(*) FROM (SELECT value, count(*) FROM range(0, 2000000) GROUP BY value)", 2_000_000);
    check(
        "SELECT count(*) FROM range(0, 2000000) a JOIN range(0, 2000000) b ON a.value = b.value",
        2_000_000,
    );
    // Groups that would be made once, if there were room to keep them.
    check(
        "WITH g AS (SELECT value, count(*) AS c FROM range(0, 2000000) GROUP BY value)
         SELECT sum(n) FROM (SELECT value * 0 + c AS n FROM g UNION ALL SELECT value * 0 + 2 * c FROM g)",
        6_000_000,
    );

    let table = "CREATE TABLE t AS SELECT md5(CAST(value AS VARCHAR)) AS a FROM range(0, 10000000)";
    let error = run(&database, &session, table).expect_err("too big");
    assert_eq!(error.kind(), ErrorKind::Resources);
    assert!(error.detail().unwrap().contains("tables in memory"), "{error:?}");
    check("SELECT count(*) FROM range(0, 10)", 10);

    let spilled = std::fs::read_dir(parent.path()).unwrap().count();
    assert_eq!(spilled, 1, "one directory for this process");
    drop((session, database));
    let started = Instant::now();
    while std::fs::read_dir(parent.path()).unwrap().count() > 0 && started.elapsed() < Duration::from_secs(10)
    {
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn groups_that_are_named_twice_are_made_once() {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let session = database.session();
    run(&database, &session, "CREATE TABLE t AS SELECT value % 9 AS k, value AS v FROM range(0, 1000)")
        .unwrap();
    let places = |sql: &str| {
        let plan = run(&database, &session, &format!("EXPLAIN (FORMAT INDENT) {sql}")).unwrap();
        pretty_format_batches(&plan).unwrap().to_string().matches("SharedExec").count()
    };
    let twice =
        "WITH g AS (SELECT k, sum(v) AS s FROM t GROUP BY k) SELECT count(*) FROM g a JOIN g b ON a.s <= b.s";
    assert_eq!(places(twice), 2);
    assert_eq!(number(&run(&database, &session, twice).unwrap()), 45);
    // A condition of one place is no condition of the other.
    assert_eq!(places(&format!("{twice} WHERE a.k > 3")), 0);
    run(&database, &session, "CREATE VIEW g AS SELECT k, sum(v) AS s FROM t GROUP BY k").unwrap();
    assert_eq!(places("SELECT * FROM g WHERE s = (SELECT max(s) FROM g)"), 2);
    assert_eq!(places("SELECT * FROM g"), 0);
    run(&database, &session, "SET keirin.fast_path = off").unwrap();
    assert_eq!(places(twice), 0);
}

#[test]
fn joins_are_ordered_by_the_rows_that_they_leave() {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let session = database.session();
    for (name, rows) in [("d1", 1_000), ("d2", 2_000), ("d3", 10_000), ("d4", 100)] {
        let table = format!("CREATE TABLE {name} AS SELECT value AS id, value % 5 AS k FROM range({rows})");
        run(&database, &session, &table).unwrap();
    }
    let facts =
        "CREATE TABLE facts AS SELECT value AS id, value % 1000 AS a, value % 2000 AS b, value % 10000 AS c,
        value % 100 AS d FROM range(400000)";
    run(&database, &session, facts).unwrap();
    let plan = |sql: &str| {
        let plan = run(&database, &session, &format!("EXPLAIN (FORMAT INDENT) {sql}")).unwrap();
        let plan = pretty_format_batches(&plan).unwrap().to_string();
        plan[plan.find("physical_plan").unwrap()..].to_owned()
    };
    let depth = |plan: &str, part: &str| {
        let line = plan.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {plan}"));
        line.split_once(|symbol: char| symbol.is_alphabetic()).unwrap().0.len()
    };
    // The least first, and what no condition connects not at all.
    let star = "SELECT count(*) FROM facts JOIN d1 ON a = d1.id JOIN d2 ON b = d2.id JOIN d3 ON c = d3.id
        JOIN d1 e ON a = e.id JOIN d2 f ON b = f.id JOIN d3 g ON c = g.id
        JOIN d4 ON d = d4.id JOIN d4 h ON d = h.id WHERE d4.k = 3 AND h.k = 3 AND (d1.k = 1 OR d3.k > 1)";
    let ordered = plan(star);
    assert!(depth(&ordered, "table=d4") > depth(&ordered, "table=d1"), "{ordered}");
    let product =
        "SELECT count(*) FROM d1 CROSS JOIN d3 JOIN facts ON a = d1.id AND c = d3.id WHERE d1.k + d3.k < 6";
    assert!(!plan(product).contains("CrossJoinExec"), "{}", plan(product));
    // Few keys before many rows.
    let keys = "SELECT count(*) FROM d1 JOIN facts f ON f.a = d1.id JOIN facts g ON g.id = f.id
        JOIN d2 ON f.b = d2.id JOIN d3 ON f.c = d3.id JOIN facts h ON h.id = f.id
        WHERE f.a IN (SELECT id FROM d1 WHERE k = 3 GROUP BY id HAVING count(*) > 1 OR id < 5)
        AND f.b IN (SELECT id FROM d2 WHERE k = 3 GROUP BY id HAVING count(*) > 1 OR id < 9)";
    let ordered = plan(keys);
    assert!(depth(&ordered, "Semi") > depth(&ordered, "Inner"), "{ordered}");
    // What costs nothing stays as it is written, and so does what is no inner join.
    let small =
        plan("SELECT count(*) FROM d1 x JOIN d1 y ON x.id = y.id JOIN d4 ON y.id = d4.id WHERE d4.k = 3");
    assert!(depth(&small, "table=d4") < depth(&small, "table=d1"), "{small}");

    let answers = |sql: &str| number(&run(&database, &session, sql).unwrap());
    let outer =
        "SELECT count(*) FROM facts LEFT JOIN d1 ON a = d1.id + 990 JOIN d2 ON b = d2.id JOIN d3 ON c = d3.id
        JOIN d4 ON d = d4.id WHERE d4.k = 3 AND d1.id IS NULL";
    let not_in = "SELECT count(*) FROM facts f JOIN d1 ON f.a = d1.id JOIN facts g ON g.id = f.id
        WHERE f.b NOT IN (SELECT id FROM d2 WHERE k = 1) AND NOT EXISTS (SELECT 1 FROM d3 WHERE d3.id = f.c AND d3.k = 2)";
    let statements = [star, product, keys, outer, not_in];
    let ordered = statements.map(answers);
    run(&database, &session, "SET keirin.fast_path = off").unwrap();
    assert_eq!(ordered, statements.map(answers));
}

/// Groups whose texts take 60 MB where all of them are rows, and little where they are numbers.
#[test]
fn groups_that_cannot_be_kept_are_made_by_each_place() {
    let directory = tempfile::tempdir().unwrap();
    let database =
        Database::builder().threads(2).memory_limit_bytes(48 << 20).open(directory.path()).unwrap();
    let session = database.session();
    let table = "CREATE TABLE l AS SELECT repeat('x', 1000) || (value % 1000) AS k,
        CAST(floor(value / 1000) AS BIGINT) AS v FROM range(0, 60000)";
    run(&database, &session, table).unwrap();
    let sql = "WITH g AS (SELECT k, v, count(*) AS c FROM l GROUP BY k, v)
        SELECT sum(c) + count(*) FROM g WHERE c >= (SELECT min(length(k) * 0 + v * 0 + c) FROM g)";
    for _ in 0..3 {
        assert_eq!(number(&run(&database, &session, sql).unwrap()), 120_000);
    }
}

#[test]
fn rows_come_in_the_order_of_the_table_at_any_number_of_threads() {
    for threads in [1, 2, 7] {
        let database = Database::builder().threads(threads).in_memory().unwrap();
        let session = database.session();
        run(&database, &session, "CREATE TABLE t AS SELECT value AS a FROM range(0, 300000)").unwrap();
        let batches = run(&database, &session, "SELECT a FROM t WHERE a % 3 = 1").unwrap();
        let values: Vec<i64> = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(values.len(), 100_000);
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{threads} threads");
        assert_eq!(
            number(&run(&database, &session, "SELECT a FROM t WHERE a > 250000 LIMIT 1").unwrap()),
            250_001
        );
        // Which rows a LIMIT takes, wherever it stands.
        let check = |sql: &str, expected: i64| {
            assert_eq!(number(&run(&database, &session, sql).unwrap()), expected, "{threads} threads: {sql}");
        };
        check("SELECT sum(a) FROM (SELECT a FROM t WHERE a > 100 LIMIT 10)", 1055);
        check("SELECT sum(a) FROM (SELECT a FROM t WHERE a % 2 = 0 LIMIT 3 OFFSET 2)", 18);
        check("SELECT count(*) FROM t WHERE a IN (SELECT a FROM t WHERE a >= 7 LIMIT 5) AND a < 12", 5);
        check("SELECT max(u.a) FROM (SELECT a FROM t LIMIT 4) u JOIN t ON t.a = u.a", 3);
        // What INSERT writes.
        run(&database, &session, "CREATE TABLE copy (a BIGINT)").unwrap();
        run(&database, &session, "INSERT INTO copy SELECT a FROM t WHERE a % 3 = 1").unwrap();
        let batches = run(&database, &session, "SELECT a FROM copy").unwrap();
        let copied: Vec<i64> = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(copied, values, "{threads} threads");
    }
}

#[test]
fn wide_rows_are_sorted_and_grouped_in_a_quarter_of_their_size() {
    let database = Database::builder().threads(2).memory_limit_bytes(32 << 20).in_memory().unwrap();
    let session = database.session();
    // 128 MB of text, each row 2 KB, in no order.
    let rows = "(SELECT value AS a, repeat(md5(CAST(value AS VARCHAR)), 64) AS s FROM range(0, 64000))";
    let check = |sql: &str, expected: i64| {
        let batches =
            run(&database, &session, sql).unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
        assert_eq!(number(&batches), expected, "{sql}");
    };
    check(&format!("SELECT count(s) FROM (SELECT * FROM {rows} ORDER BY s)"), 64_000);
    // The first rows of a sort need a place to spill, too, once they are many.
    let many = "SELECT value AS a, md5(CAST(value AS VARCHAR)) AS s FROM range(0, 600000)";
    check(&format!("SELECT count(s) FROM (SELECT * FROM ({many}) ORDER BY s LIMIT 500000)"), 500_000);
    check(&format!("SELECT count(*) FROM (SELECT s, count(*) FROM {rows} GROUP BY s)"), 64_000);
}

#[test]
fn changes_of_a_table_fail_within_the_limit_and_change_nothing() {
    let database = Database::builder().threads(1).memory_limit_bytes(64 << 20).in_memory().unwrap();
    let session = database.session();
    // Some 30 MB: random digits.
    let rows = "SELECT value AS a, value AS b, md5(CAST(value AS VARCHAR)) AS c FROM range(0, 1400000)";
    run(&database, &session, &format!("CREATE TABLE t AS {rows}")).unwrap();
    for sql in ["UPDATE t SET a = a + 1, c = md5(c)", &format!("INSERT INTO t {rows}")] {
        let error = run(&database, &session, sql).expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::Resources, "{sql}");
        assert!(error.detail().unwrap().contains("tables in memory"), "{error:?}");
        let sums = "SELECT sum(a - b) + count(*) FROM t";
        assert_eq!(number(&run(&database, &session, sums).unwrap()), 1_400_000, "{sql}");
    }
    // What is small enough works, and leaves nothing booked that is not there.
    for _ in 0..3 {
        run(&database, &session, "DELETE FROM t WHERE a >= 2000 AND a % 800 <> 0 AND a < 300000").unwrap();
    }
    assert_eq!(number(&run(&database, &session, "SELECT sum(a - b) FROM t").unwrap()), 0);
}

#[test]
fn memory_of_tables_that_are_gone_comes_back() {
    let database = Database::builder().threads(1).memory_limit_bytes(64 << 20).in_memory().unwrap();
    let (session, other) = (database.session(), database.session());
    // Some 8 MB each.
    let rows = "SELECT md5(CAST(value AS VARCHAR)) AS c FROM range(0, 400000)";
    for _ in 0..6 {
        run(&database, &session, &format!("CREATE OR REPLACE TABLE t AS {rows}")).unwrap();
        // A plan that is kept must not keep the rows.
        assert_eq!(number(&run(&database, &other, "SELECT count(c) FROM t").unwrap()), 400_000);
        run(&database, &session, &format!("CREATE TABLE u AS {rows}")).unwrap();
        run(&database, &session, "DROP TABLE u").unwrap();
    }
    // Where there is none left, it can still be given back.
    run(&database, &session, "SET keirin.memory_limit = '4MB'").unwrap();
    run(&database, &session, "DROP TABLE t").unwrap();
    run(&database, &session, "SET keirin.memory_limit = '64MB'").unwrap();
    run(&database, &session, &format!("CREATE TABLE t AS {rows}")).unwrap();
}

#[test]
fn sessions_share_tables_and_keep_their_own_settings() {
    let database = Database::in_memory().unwrap();
    let (first, second) = (database.session(), database.session());
    run(&database, &first, "CREATE TABLE t AS VALUES (1)").unwrap();
    run(&database, &first, "SET keirin.threads = 3").unwrap();
    assert_eq!(run(&database, &second, "SELECT * FROM t").unwrap()[0].num_rows(), 1);
    let threads = |session| {
        let sql = "SELECT CAST(value AS BIGINT) FROM system.settings WHERE name = 'keirin.threads'";
        number(&run(&database, session, sql).unwrap())
    };
    assert_eq!(threads(&first), 3);
    assert_ne!(threads(&second), 3);
    run(&database, &first, "RESET keirin.threads").unwrap();
    assert_eq!(threads(&first), threads(&second));
}

#[test]
fn a_write_says_how_many_rows() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let check = |sql: &str, kind: StatementKind, tag: &str, expected: Option<u64>| {
        let (stream_kind, stream_tag, batches) = database.block_on(async {
            let stream = session.sql(sql).await.unwrap();
            (stream.kind(), stream.tag().to_owned(), stream.collect().await.unwrap())
        });
        assert_eq!((stream_kind, stream_tag.as_str()), (kind, tag), "{sql}");
        let count = batches.first().map(|batch| batch.column(0).as_primitive::<UInt64Type>().value(0));
        assert_eq!(count, expected, "{sql}");
    };
    check("CREATE TABLE t (a BIGINT, b VARCHAR DEFAULT 'x')", StatementKind::Done, "CREATE TABLE", None);
    check("INSERT INTO t VALUES (1, 'p'), (2, 'q')", StatementKind::Count, "INSERT", Some(2));
    check("INSERT INTO t (a) SELECT * FROM range(3, 6)", StatementKind::Count, "INSERT", Some(3));
    check(
        "UPDATE t SET b = b || '!' WHERE a IN (SELECT max(a) FROM t)",
        StatementKind::Count,
        "UPDATE",
        Some(1),
    );
    check(
        "DELETE FROM t WHERE a NOT IN (SELECT a FROM t WHERE a > 2)",
        StatementKind::Count,
        "DELETE",
        Some(2),
    );
    check("TRUNCATE t", StatementKind::Done, "TRUNCATE", None);
    check("DROP TABLE t", StatementKind::Done, "DROP TABLE", None);
}

#[test]
fn errors_say_what_was_meant() {
    let check = |sql: &str, expected: &str| assert_eq!(fails(sql).report(sql), expected);
    check(
        "SELECT nme FROM (SELECT 1 AS name)",
        concat!(
            "error: column 'nme' not found\n",
            "  line 1: SELECT nme FROM (SELECT 1 AS name)\n",
            "                 ^^^\n",
            "detail: columns are name\n",
            "hint: did you mean `name`?\n",
        ),
    );
    check(
        "SELECT * FROM sytem.settings",
        concat!(
            "error: table 'sytem.settings' not found\n",
            "  line 1: SELECT * FROM sytem.settings\n",
            "                        ^^^^^^^^^^^^^^\n",
            "hint: did you mean `system.settings`?\n",
        ),
    );
    check(
        "SELECT * FROM range(1, 2) AS r WHERE r.valu = 1",
        concat!(
            "error: column 'r.valu' not found\n",
            "  line 1: SELECT * FROM range(1, 2) AS r WHERE r.valu = 1\n",
            "                                               ^^^^^^\n",
            "detail: columns are value\n",
            "hint: did you mean `value`?\n",
        ),
    );
    check("SELECT 1 / 0", "error: division by zero\nhint: NULLIF(divisor, 0) gives NULL instead\n");
    check(
        "SET keirin.memory_limit = 'lots'",
        "error: keirin.memory_limit cannot be set to 'lots': expected a size such as '512MB', '4GB' or '50%'\n",
    );
    assert_eq!(fails("SELECT 1; SELECT 2").kind(), ErrorKind::Syntax);
}

#[test]
fn of_two_statements_that_make_one_table_at_once_one_fails() {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let create = |name: &str| format!("CREATE TABLE {name} AS SELECT value FROM range(0, 100000)");
    for round in 0..10 {
        let sql = create(&format!("t{round}"));
        let sessions = [database.session(), database.session()];
        let created = database.block_on(futures::future::join_all(
            sessions.iter().map(|session| async { session.sql(&sql).await?.collect().await }),
        ));
        let failed: Vec<&Error> = created.iter().filter_map(|created| created.as_ref().err()).collect();
        assert_eq!(failed.len(), 1, "one of them is too late");
        assert_eq!(failed[0].kind(), ErrorKind::AlreadyExists);
        // Once more for whoever does not mind.
        let again = sql.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS");
        run(&database, &sessions[0], &again).unwrap();
    }
}

#[test]
fn a_table_is_there_while_it_is_replaced() {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let session = database.session();
    run(&database, &session, "CREATE TABLE t AS SELECT 1 AS a").unwrap();
    let replace = async {
        for _ in 0..50 {
            let sql = "CREATE OR REPLACE TABLE t AS SELECT 1 AS a";
            session.sql(sql).await.unwrap().collect().await.unwrap();
        }
    };
    let read = async {
        for _ in 0..200 {
            let rows = session.sql("SELECT a FROM t").await.unwrap().collect().await.unwrap();
            assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        }
    };
    database.block_on(futures::future::join(replace, read));
}

#[test]
fn an_error_of_a_prepared_statement_has_no_place_in_execute() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    run(&database, &session, "PREPARE p AS SELECT               nope FROM (SELECT 1 AS a)").unwrap();
    let error = run(&database, &session, "EXECUTE p").expect_err("there is no such column");
    assert_eq!(error.message(), "column 'nope' not found");
    assert_eq!(error.span(), None);
}

#[test]
fn uuids_inside_of_what_is_inserted_are_checked() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    run(&database, &session, "CREATE TABLE t (l UUID[], s STRUCT(u UUID, n INT))").unwrap();
    for wrong in ["['abc'], NULL", "NULL, {'u': 'abc', 'n': 1}"] {
        let error = run(&database, &session, &format!("INSERT INTO t VALUES ({wrong})")).unwrap_err();
        assert!(error.message().contains("'abc' is not a UUID"), "{error}");
    }
    let right = "['A0EEBC999C0B4EF8BB6D6BB9BD380A11'], {'u': 'A0EEBC999C0B4EF8BB6D6BB9BD380A11', 'n': 1}";
    run(&database, &session, &format!("INSERT INTO t VALUES ({right})")).unwrap();
    let sql = "SELECT count(*) FROM t WHERE l[1] = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AND s.u = l[1]";
    assert_eq!(number(&run(&database, &session, sql).unwrap()), 1);
}

#[test]
fn windows_keep_few_rows_for_frames_that_need_few() {
    let database = Database::builder().threads(2).memory_limit_bytes(64 << 20).in_memory().unwrap();
    let session = database.session();
    for (function, right) in [
        ("sum(value) OVER (ORDER BY value ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)", 1_999_999),
        ("nth_value(value, 2) OVER (ORDER BY value)", 1_999_999),
        (
            "first_value(value) OVER (ORDER BY value ROWS BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING)",
            2_000_000,
        ),
        ("lag(nullif(value, value)) IGNORE NULLS OVER (ORDER BY value)", 0),
        ("max(value) OVER (ORDER BY value ROWS BETWEEN 10 PRECEDING AND 10 FOLLOWING)", 2_000_000),
    ] {
        let sql = format!("SELECT count(x) FROM (SELECT {function} AS x FROM range(0, 2000000))");
        let found = run(&database, &session, &sql).unwrap_or_else(|error| panic!("{function}: {error}"));
        assert_eq!(number(&found), right, "{function}");
    }
}

#[test]
fn dates_are_in_frames_by_their_distance_to_the_hour() {
    let database = Database::in_memory().unwrap();
    let count = |frame: &str| {
        let days = "(VALUES (DATE '2020-01-01'), (DATE '2020-01-02'), (DATE '2020-01-03')) t(d)";
        let sql = format!(
            "SELECT sum(n) FROM (SELECT count(*) OVER (ORDER BY d RANGE BETWEEN {frame}) AS n FROM {days})"
        );
        number(&run(&database, &database.session(), &sql).unwrap())
    };
    assert_eq!(count("INTERVAL '36 hours' PRECEDING AND INTERVAL '36 hours' PRECEDING"), 0);
    assert_eq!(count("INTERVAL '36 hours' PRECEDING AND CURRENT ROW"), 1 + 2 + 2);
    assert_eq!(count("UNBOUNDED PRECEDING AND INTERVAL '36 hours' PRECEDING"), 1);
    assert_eq!(count("CURRENT ROW AND INTERVAL '36 hours' FOLLOWING"), 2 + 2 + 1);
}
