//! What is kept from one statement to the next: decoded blocks, which are held against their checksums, and plans.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{counter, query, steps};
use keirin::{Database, Session};
use tempfile::TempDir;

fn open() -> (TempDir, Database) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let database = Database::builder().threads(2).open(directory.path()).expect("the database opens");
    (directory, database)
}

fn run(database: &Database, sql: &str) -> Vec<Vec<String>> {
    query(database, &database.session(), sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn refused(database: &Database, sql: &str) -> String {
    query(database, &database.session(), sql).expect_err("it fails")
}

fn number(database: &Database, sql: &str) -> u64 {
    run(database, sql)[0][0].parse().expect("a number")
}

fn usage(database: &Database, of: &str) -> u64 {
    number(database, &format!("SELECT {of} FROM system.block_cache"))
}

#[test]
fn kept_blocks_answer_as_those_on_disk() {
    let ((_directory, disk), memory) = (open(), Database::in_memory().expect("room"));
    run(&memory, "SET keirin.block_cache_limit = 0");
    let both = |sql: &str| [&disk, &memory].map(|database| run(database, sql));
    let check = |sql: &str| {
        for _ in 0..3 {
            let [found, expected] = both(sql);
            assert_eq!(found, expected, "{sql}");
        }
    };
    let sums = "SELECT count(s), max(s || 'x'), sum(length(s || i)), max(l) FROM t";
    let check_all = || {
        check(sums);
        check("SELECT max(s || '!'), count(*) FROM t WHERE i % 10 = 3");
        check("SELECT s, i FROM t WHERE i BETWEEN 65530 AND 65540 ORDER BY i");
    };
    both(
        "CREATE TABLE t AS SELECT value AS i, [value, 1] AS l,
         CASE WHEN value % 7 > 0 THEN repeat('é', value % 20) || value END AS s FROM generate_series(1, 140000)",
    );
    check_all();
    let hits = usage(&disk, "hits");
    assert!(hits > 10 && usage(&disk, "blocks") > 5, "{hits}");
    assert_eq!(usage(&disk, "count(*) FILTER (WHERE bytes BETWEEN 1 AND limit_bytes)"), 1);
    let steps = steps(&disk, &disk.session(), sums);
    assert!(steps.iter().any(|step| counter(step, "blocks_cached") > Some(0)), "{steps:?}");

    let version = number(&disk, "SELECT max(version) FROM system.commits");
    let (old, before) = (format!("{sums} AS OF VERSION {version}"), run(&disk, sums));
    for change in [
        "DELETE FROM t WHERE i % 3 = 0",
        "UPDATE t SET s = s || 'new' WHERE i > 100000",
        "OPTIMIZE TABLE t FINAL",
    ] {
        run(&disk, change);
        if !change.starts_with("OPTIMIZE") {
            run(&memory, change);
        }
        check_all();
        assert_eq!(run(&disk, &old), before, "{change}");
    }
    for setting in [
        "SET keirin.block_cache_limit = 0",
        "SET keirin.verify_checksums = always",
        "SET keirin.verify_checksums = 'never'",
    ] {
        run(&disk, setting);
        let hits = usage(&disk, "hits");
        check_all();
        assert_eq!((usage(&disk, "blocks"), usage(&disk, "hits")), (0, hits), "{setting}");
        run(&disk, "RESET ALL");
    }
    check_all();
    assert!(usage(&disk, "blocks") > 0);

    both("TRUNCATE TABLE t");
    check_all();
    both("INSERT INTO t SELECT value, [value], 'other' || value FROM generate_series(1, 70000)");
    check_all();
    run(&disk, "DROP TABLE t");
    run(&disk, "CREATE TABLE u (a INT)");
    let deadline = Instant::now() + Duration::from_secs(60);
    while usage(&disk, "bytes") > 0 {
        assert!(Instant::now() < deadline, "blocks of parts that are gone stay");
        run(&disk, "INSERT INTO u VALUES (1)");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_limit_of_kept_blocks_is_held() {
    let (_directory, database) = open();
    run(
        &database,
        "CREATE TABLE t AS SELECT repeat('x', value % 50) || value AS s FROM generate_series(1, 400000)",
    );
    let limit = 8 << 20;
    run(&database, &format!("SET keirin.block_cache_limit = {limit}"));
    for _ in 0..4 {
        run(&database, "SELECT max(s || 'x') FROM t");
        assert!(usage(&database, "bytes") <= limit);
    }
    assert!(usage(&database, "hits") > 0);
    run(&database, "SET keirin.block_cache_limit = '3MB'");
    assert!(usage(&database, "bytes") <= 3 << 20);
    let shown = "SELECT value FROM system.settings WHERE name = 'keirin.block_cache_limit'";
    assert_eq!(run(&database, shown), [["3 MB"]]);
}

/// A number and a text that are found again in the bytes of a file.
const NUMBER: i64 = 0x1122_3344_5566_7788;
const TEXT: &str = "to be found again";

/// A database with a part of which nothing is compressed, and the part's path.
fn one_raw_part() -> (TempDir, Database, PathBuf) {
    let (directory, database) = open();
    run(&database, "CREATE TABLE t (a BIGINT CODEC(NONE), s TEXT CODEC(NONE))");
    let rows = format!("SELECT {NUMBER} + value * value, '{TEXT} ' || value FROM generate_series(0, 999)");
    run(&database, &format!("INSERT INTO t {rows}"));
    let part = number(&database, "SELECT part FROM system.parts");
    let table = number(&database, "SELECT number FROM system.tables");
    let path = directory.path().join(format!("tables/{table}/{part}.kpart"));
    (directory, database, path)
}

/// Flips a bit of the first of these bytes in a file, which stays where it is.
fn flip(path: &Path, bytes: &[u8]) {
    let found = fs::read(path).expect("it is there").windows(bytes.len()).position(|window| window == bytes);
    let at = found.expect("they are in it");
    let file = File::options().write(true).open(path).expect("it can be written");
    file.write_all_at(&[bytes[0] ^ 1], at as u64).expect("there is room");
}

#[test]
fn a_file_that_could_not_be_read_and_is_there_again_is_read() {
    let (_directory, database, path) = one_raw_part();
    let (session, sql) = (database.session(), "SELECT max(a + 1), max(s) FROM t");
    let expected = query(&database, &session, sql).expect("it is whole");
    let whole = fs::read(&path).expect("it is there");
    fs::write(&path, &whole[..whole.len() / 4]).expect("it can be written");
    query(&database, &session, sql).expect_err("it is too short");
    fs::write(&path, &whole).expect("it can be written");
    assert_eq!(query(&database, &session, sql).as_ref(), Ok(&expected));
}

#[test]
fn checksums_are_verified_as_the_setting_says() {
    let sum = "SELECT sum(a % 1000) FROM t";
    for (verify, is_found_first, is_found_later) in
        [("always", true, true), ("once", true, false), ("never", false, false)]
    {
        let check = |database: &Database, is_found: bool, right: &[Vec<String>]| {
            if is_found {
                let error = refused(database, sum);
                let expected = ["table 't'", "column 'a'", "checksum", "CHECK TABLE"];
                assert!(expected.iter().all(|part| error.contains(part)), "{error}");
            } else {
                assert_ne!(run(database, sum), right, "{verify}");
            }
            // Who asks is told, whatever is set.
            let found = run(database, "CHECK TABLE t");
            assert!(found.concat().concat().contains("damaged"), "{found:?}");
        };
        for is_read_before in [false, true] {
            let (_directory, database, path) = one_raw_part();
            run(&database, &format!("SET keirin.verify_checksums = '{verify}'"));
            assert_eq!(run(&database, "SHOW keirin.verify_checksums")[0][1], verify);
            // The number is near the first, so that remainders tell.
            let right = if is_read_before { run(&database, sum) } else { Vec::new() };
            flip(&path, &NUMBER.to_le_bytes());
            check(&database, if is_read_before { is_found_later } else { is_found_first }, &right);
        }
    }
}

#[test]
fn a_damaged_block_is_never_kept() {
    let (_directory, database, path) = one_raw_part();
    flip(&path, TEXT.as_bytes());
    for _ in 0..3 {
        assert!(refused(&database, "SELECT max(s || 'x') FROM t").contains("column 's'"));
    }
    assert_eq!(usage(&database, "blocks"), 0);
    // Nor is one that was not verified.
    run(&database, "SET keirin.verify_checksums = 'never'");
    let read = |_| run(&database, "SELECT min(s || 'x') FROM t")[0][0].clone();
    assert_eq!([(), (), ()].map(read), ["to be found again 100x"; 3].map(str::to_owned));
    assert_eq!((usage(&database, "blocks"), usage(&database, "hits")), (0, 0));
    run(&database, "SET keirin.verify_checksums = 'once'");
    assert!(refused(&database, "SELECT max(s || 'x') FROM t").contains("column 's'"));
    assert_eq!(usage(&database, "blocks"), 0);
}

#[test]
fn kept_plans_end_with_what_they_were_made_for() {
    let (_directory, database) = open();
    let (session, other) = (database.session(), database.session());
    let ask = |session: &Session, sql: &str| query(&database, session, sql).expect("it is right");
    ask(&session, "CREATE TABLE t AS SELECT value AS a, value % 3 AS b FROM range(0, 1000)");
    let grouped = "SELECT b, count(*), sum(a) FROM t WHERE a > 0.5 GROUP BY b ORDER BY b";
    let first = ask(&session, grouped);
    assert_eq!(ask(&session, grouped), first);

    // Other rows, in this session and another.
    ask(&other, "INSERT INTO t VALUES (1000, 7)");
    assert_eq!(ask(&session, grouped).len(), 4);
    ask(&session, "DELETE FROM t WHERE b = 7");
    assert_eq!(ask(&session, grouped), first);

    // Another table of the name.
    ask(&session, "CREATE SCHEMA s");
    ask(&session, "CREATE TABLE s.t AS SELECT 5 AS a, 6 AS b");
    ask(&session, "USE s");
    assert_eq!(ask(&session, grouped), [["6", "1", "5"]]);
    assert_eq!(ask(&other, grouped), first);

    // Another meaning of a literal.
    let literal = "SELECT typeof(0.5) FROM t LIMIT 1";
    assert_ne!(ask(&session, literal), [["DOUBLE"]]);
    ask(&session, "SET decimal_literals = false");
    assert_eq!(ask(&session, literal), [["DOUBLE"]]);
    assert_ne!(ask(&other, literal), [["DOUBLE"]]);

    // Another moment.
    let now = "SELECT now() FROM t LIMIT 1";
    assert_ne!(ask(&other, now), ask(&other, now));

    // Thresholds that a sort finds are its own, also where it runs again.
    ask(&other, "CREATE TABLE u AS SELECT value AS a, 'x' || value AS s FROM range(0, 300000)");
    let top = "SELECT s FROM u ORDER BY a DESC LIMIT 2";
    for _ in 0..3 {
        assert_eq!(ask(&other, top), [["x299999"], ["x299998"]]);
    }
    let inner = "SELECT a FROM (SELECT a, s FROM u ORDER BY a LIMIT 100) ORDER BY s DESC LIMIT 2";
    let joined = "SELECT u.s FROM u JOIN t ON u.a = t.a + 100000 ORDER BY u.a DESC LIMIT 2";
    let both = "SELECT a FROM (SELECT a FROM u ORDER BY a DESC LIMIT 2) UNION ALL (SELECT a FROM u ORDER BY a LIMIT 1) ORDER BY a";
    for _ in 0..3 {
        assert_eq!(ask(&other, inner), [["99"], ["98"]]);
        assert_eq!(ask(&other, joined), [["x100999"], ["x100998"]]);
        assert_eq!(ask(&other, both), [["0"], ["299998"], ["299999"]]);
    }
    let largest = "SELECT a % 1000 AS k, count(*) AS c FROM u GROUP BY k ORDER BY c DESC, k LIMIT 2";
    for _ in 0..3 {
        assert_eq!(ask(&other, largest), [["0", "300"], ["1", "300"]]);
    }
    let any = "SELECT count(*) FROM (SELECT s FROM u GROUP BY s LIMIT 10)";
    for _ in 0..3 {
        assert_eq!(ask(&other, any), [["10"]]);
    }
}
