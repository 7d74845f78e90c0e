//! Databases behind a web server that is slow, refuses, breaks off and lies.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::util::pretty::pretty_format_batches;
use tempfile::TempDir;

use crate::sources::remote::web::{Act, Web};
use crate::{Database, Error, Result, Session};

fn run(database: &Database, session: &Session, sql: &str) -> Result<String> {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await })?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

/// A directory with a database, made by `statements`.
fn made(statements: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    change(directory.path(), statements);
    directory
}

fn change(directory: &Path, statements: &[&str]) {
    let database = Database::builder().threads(2).open(directory).unwrap();
    let session = database.session();
    for statement in statements {
        run(&database, &session, statement).expect(statement);
    }
}

const NUMBERS: &str = "CREATE TABLE t AS SELECT value AS a, value % 7 AS b, 'text ' || (value % 1000) AS c, random() AS d \
                       FROM generate_series(1, 300000)";
const SUMS: &str = "SELECT sum(a), min(b), count(DISTINCT c), max(d) FROM t";

/// The database behind `url`, which keeps what it reads in `cache`.
fn open(url: &str, cache: &Path) -> Result<Database> {
    Database::builder().threads(2).cache_directory(cache).open(url)
}

/// What a database behind a URL answers to a statement that nobody has asked before.
fn ask(web: &Web, cache: &Path, sql: &str) -> Result<String> {
    let database = open(&web.url(), cache)?;
    run(&database, &database.session(), sql)
}

fn ask_directory(directory: &Path, sql: &str) -> String {
    let database = Database::builder().threads(2).read_only(true).open(directory).unwrap();
    run(&database, &database.session(), sql).unwrap()
}

fn chunks(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).map(|entries| entries.map(|entry| entry.unwrap().path()).collect());
    entries.unwrap_or_default()
}

/// Waits until what was read is in the cache, which nobody waits for otherwise.
fn wait_for_cache(cache: &Path) {
    let (started, mut before) = (Instant::now(), usize::MAX);
    while chunks(cache).len() != before || (before == 0 && started.elapsed() < Duration::from_secs(5)) {
        before = chunks(cache).len();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Until it is so.
fn repeat(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "it never is");
    }
}

fn text(error: &Error) -> String {
    format!("{error}")
}

#[test]
fn a_database_behind_a_url_answers_as_its_directory_does() {
    let directory = made(&[
        NUMBERS,
        "INSERT INTO t (a, c) VALUES (-1, 'ä')",
        "DELETE FROM t WHERE a % 10 = 3",
        "CREATE TABLE s AS SELECT [a, b] AS list, DATE '2020-01-01' AS day FROM t WHERE a < 10",
        "CREATE VIEW v AS SELECT c, count(*) AS rows FROM t GROUP BY c",
    ]);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    let database = open(&web.url(), cache.path()).unwrap();
    let session = database.session();
    for sql in [
        SUMS,
        "SELECT count(*) FROM t",
        "SELECT a, c FROM t WHERE b = 3 AND a > 299900 ORDER BY a",
        "SELECT * FROM s ORDER BY list[1]",
        "SELECT * FROM v ORDER BY c LIMIT 5",
        "SELECT sum(length(c)) FROM t",
        "SELECT schema, name, rows FROM system.tables ORDER BY name",
        "SELECT count(*) FROM t AS OF VERSION 2",
        "SELECT * FROM system.damage",
    ] {
        assert_eq!(run(&database, &session, sql).expect(sql), ask_directory(directory.path(), sql), "{sql}");
    }
    change(directory.path(), &["INSERT INTO t (a, c) SELECT value, 'new' FROM generate_series(1, 1000)"]);
    std::thread::sleep(Duration::from_millis(1100));
    let newer = "SELECT count(*) FROM t WHERE c = 'new'";
    assert!(run(&database, &session, newer).unwrap().contains("| 1000"));
}

#[test]
fn statements_that_write_name_the_url() {
    let directory = made(&["CREATE TABLE t AS SELECT 1 AS a"]);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    let database = open(&web.url(), cache.path()).unwrap();
    let session = database.session();
    let expected = format!("database '{}' can only be read, as all behind a URL", web.url());
    for sql in [
        "INSERT INTO t VALUES (2)",
        "CREATE TABLE s (a INT)",
        "CREATE TABLE s AS SELECT 1 AS a",
        "DELETE FROM t",
        "UPDATE t SET a = 2",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN b INT",
        "CREATE VIEW v AS SELECT 1",
        "OPTIMIZE TABLE t",
        "REPAIR TABLE t",
        "SET keirin.retention = '2 hours'",
    ] {
        let error = match run(&database, &session, sql) {
            Err(error) => text(&error),
            Ok(done) => panic!("{sql}: {done}"),
        };
        assert!(error.contains(&expected), "{sql}: {error}");
    }
    assert!(web.requests().iter().all(|(method, ..)| method == "GET" || method == "HEAD"));
}

#[test]
fn servers_that_fail_are_asked_again_and_named() {
    let directory = made(&[NUMBERS]);
    let right = ask_directory(directory.path(), SUMS);
    let is_part = |path: &str| path.ends_with(".kpart");
    // How often it goes wrong, and what comes of it.
    let cases: [(Act, usize, Option<&str>); 13] = [
        (Act::Status(503), 2, None),
        (Act::Status(503), usize::MAX, Some("503")),
        (Act::Status(403), usize::MAX, Some("403")),
        (Act::Status(404), usize::MAX, Some("it is missing")),
        (Act::Cut, 1, None),
        (Act::Cut, usize::MAX, Some(".kpart")),
        (Act::Stall, 1, None),
        (Act::Silence, 1, None),
        (Act::Silence, usize::MAX, Some("does not answer for 1s")),
        (Act::OtherRange, usize::MAX, Some("Requested")),
        (Act::Whole, usize::MAX, Some("does not know ranged requests")),
        (Act::Wrong, usize::MAX, Some("damaged")),
        (Act::OtherTag, 1, Some("it changed on the server while it was read")),
    ];
    for (act, times, expected) in cases {
        let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
        let count = AtomicUsize::new(0);
        web.choose(move |path| match is_part(path) && count.fetch_add(1, Ordering::Relaxed) < times {
            true => act,
            false => Act::Serve,
        });
        let started = Instant::now();
        match (ask(&web, cache.path(), SUMS), expected) {
            (Ok(answer), None) => assert_eq!(answer, right, "{act:?}"),
            (Err(error), Some(expected)) => {
                let error = text(&error);
                assert!(error.contains(expected), "{act:?}: {error}");
                assert!(error.contains("tables/") && error.contains(".kpart"), "{act:?}: {error}");
                let is_named = ["damaged", "missing"].iter().any(|word| error.contains(word));
                assert!(is_named || error.contains(&web.url()), "{act:?}: {error}");
                web.choose(|_| Act::Serve);
                assert_eq!(ask(&web, cache.path(), SUMS).unwrap(), right, "{act:?} leaves nothing behind");
            }
            (outcome, _) => panic!("{act:?} {times}: {outcome:?}"),
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{act:?}: {:?}", started.elapsed());
    }
}

#[test]
fn a_place_without_a_database_is_an_error() {
    let (directory, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let web = Web::new(directory.path());
    let refused = text(&open(&web.url(), cache.path()).unwrap_err());
    assert!(refused.contains(&web.url()) || refused.contains("log/newest"), "{refused}");
    web.choose(|_| Act::Silence);
    let started = Instant::now();
    let refused = text(&open(&web.url(), cache.path()).unwrap_err());
    assert!(refused.contains(&format!("{}/KEIRIN: the server does not answer", web.url())), "{refused}");
    let refused = text(&open("http://127.0.0.1:1/db", cache.path()).unwrap_err());
    assert!(refused.contains("http://127.0.0.1:1/db/KEIRIN"), "{refused}");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn queries_that_are_dropped_wait_for_nobody() {
    let directory = made(&[NUMBERS]);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    let database = open(&web.url(), cache.path()).unwrap();
    let session = database.session();
    web.choose(|path| if path.ends_with(".kpart") { Act::Silence } else { Act::Serve });
    let started = Instant::now();
    let dropped = database.block_on(async {
        let all = async { session.sql(SUMS).await?.collect().await };
        tokio::time::timeout(Duration::from_millis(200), all).await
    });
    // Whoever waited would wait for the silence of three attempts, which is longer.
    assert!(dropped.is_err() && started.elapsed() < Duration::from_millis(2500), "{:?}", started.elapsed());
    web.choose(|_| Act::Serve);
    assert_eq!(run(&database, &session, SUMS).unwrap(), ask_directory(directory.path(), SUMS));
}

#[test]
fn hints_that_are_old_missing_or_damaged_never_change_an_answer() {
    let directory = made(&["CREATE TABLE t (a BIGINT)"]);
    let hint = directory.path().join("log/newest");
    let old = fs::read(&hint).unwrap();
    let inserts = vec!["INSERT INTO t VALUES (1)"; 300];
    change(directory.path(), &inserts);
    let newer = fs::read(&hint).unwrap();
    assert_ne!(old, newer);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    let count = |expected: Option<&str>| match (ask(&web, cache.path(), "SELECT count(*) FROM t"), expected) {
        (Ok(found), None) => assert!(found.contains("| 300"), "{found}"),
        (Err(error), Some(expected)) => assert!(text(&error).contains(expected), "{error}"),
        (outcome, _) => panic!("{outcome:?}"),
    };
    count(None);
    fs::write(&hint, &old).unwrap();
    count(None);
    fs::write(&hint, b"checkpoint 1\n").unwrap();
    count(Some("it is damaged, and a web server cannot list its files"));
    fs::remove_file(&hint).unwrap();
    count(Some("it is not there, and a web server cannot list its files"));
    fs::write(&hint, &old).unwrap();
    fs::remove_file(directory.path().join("log/00000000000000000000.checkpoint")).unwrap();
    count(Some("it names checkpoint 0, which is gone"));
    fs::write(&hint, &newer).unwrap();
    count(None);
    let number: u64 =
        std::str::from_utf8(&newer).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let checkpoint = directory.path().join(format!("log/{number:020}.checkpoint"));
    let mut bytes = fs::read(&checkpoint).unwrap();
    bytes[70] ^= 1;
    fs::write(&checkpoint, bytes).unwrap();
    count(Some(".checkpoint' is damaged"));
}

#[test]
fn what_was_read_is_not_fetched_again() {
    let directory = made(&[NUMBERS]);
    let right = ask_directory(directory.path(), SUMS);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    let fetched = || web.requests().iter().filter(|(_, path, _)| path.ends_with(".kpart")).count();
    assert_eq!(ask(&web, cache.path(), SUMS).unwrap(), right);
    assert!(fetched() > 0);
    // What nobody has waited for may not be kept when a database is closed: it is the next time.
    repeat(|| {
        wait_for_cache(cache.path());
        assert_eq!(ask(&web, cache.path(), SUMS).unwrap(), right);
        fetched() == 0
    });

    let chunk = chunks(cache.path()).remove(0);
    let whole = fs::read(&chunk).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damaged in [&changed[..], &whole[..whole.len() - 1], &[]] {
        fs::write(&chunk, damaged).unwrap();
        repeat(|| {
            assert_eq!(ask(&web, cache.path(), SUMS).unwrap(), right);
            assert!(fetched() == 1, "the chunk that is damaged");
            wait_for_cache(cache.path());
            fs::read(&chunk).is_ok_and(|bytes| bytes == whole)
        });
    }

    // Another database with files of the same names and sizes.
    let other = made(&[&NUMBERS.replace("SELECT value AS a", "SELECT 300001 - value AS a")]);
    web.set_root(other.path());
    assert_eq!(
        ask(&web, cache.path(), "SELECT a FROM t LIMIT 1").unwrap(),
        ask_directory(other.path(), "SELECT a FROM t LIMIT 1")
    );
    assert!(fetched() > 0);
}

#[test]
fn the_cache_stays_below_its_limit_and_two_may_share_it() {
    let directory =
        made(&[&NUMBERS.replace("value % 7", "random()"), "INSERT INTO t SELECT a, random(), c, d FROM t"]);
    let sql = "SELECT max(b), sum(a) FROM t";
    let right = ask_directory(directory.path(), sql);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    fs::write(cache.path().join("mine.txt"), "kept").unwrap();
    let limit = 3 << 20;
    let asked = || {
        let builder = Database::builder().threads(2).cache_directory(cache.path()).cache_limit_bytes(limit);
        let database = builder.open(web.url()).unwrap();
        assert_eq!(run(&database, &database.session(), sql).unwrap(), right);
        database
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(asked), scope.spawn(asked)];
        for one in both {
            one.join().unwrap();
        }
    });
    wait_for_cache(cache.path());
    drop(asked());
    wait_for_cache(cache.path());
    let sizes = chunks(cache.path()).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    assert!(sizes <= limit + (2 << 20), "{sizes}");
    assert!(cache.path().join("mine.txt").exists());

    let database = Database::builder().cache_directory(cache.path().join("none")).cache_limit_bytes(0);
    let database = database.open(web.url()).unwrap();
    assert_eq!(run(&database, &database.session(), sql).unwrap(), right);
    assert_eq!(chunks(&cache.path().join("none")).len(), 0);
    // A place where nothing can be kept.
    assert_eq!(ask(&web, &cache.path().join("mine.txt"), sql).unwrap(), right);
}

#[test]
fn requests_are_few_and_run_side_by_side() {
    let directory = made(&[&NUMBERS.replace("300000", "2000000").replace("value % 7", "random()")]);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    web.set_delay(Duration::from_millis(50));
    let started = Instant::now();
    let database = open(&web.url(), cache.path()).unwrap();
    let (opened, opening) = (started.elapsed(), web.requests().len());
    let session = database.session();
    let ask = |sql: &str| {
        let started = Instant::now();
        run(&database, &session, sql).unwrap();
        (started.elapsed(), web.requests().len())
    };
    let counted = ask("SELECT count(*) FROM t");
    let summed = ask("SELECT sum(b) FROM t");
    // Chunks are kept while nobody waits for it.
    wait_for_cache(cache.path());
    let again = ask("SELECT sum(b) FROM t");
    let bytes: u64 = fs::read_dir(directory.path().join("tables/1"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    println!(
        "{bytes} bytes: open {opened:?}, {opening} requests; count {counted:?}; sum {summed:?}, up to {} at once; again {again:?}",
        web.running_max()
    );
    assert!(opening <= 40, "{opening}");
    assert!(counted.1 <= 4, "{counted:?}");
    assert!(summed.1 <= 20 && web.running_max() > 3, "{summed:?}");
    assert_eq!(again.1, 0);
}

#[test]
fn settings_say_where_and_how_much() {
    let directory = made(&["CREATE TABLE t AS SELECT 1 AS a"]);
    let (web, cache) = (Web::new(directory.path()), tempfile::tempdir().unwrap());
    let database = open(&web.url(), cache.path()).unwrap();
    let session = database.session();
    let found = run(&database, &session, "SHOW keirin.cache_directory").unwrap();
    assert!(found.contains(&*cache.path().to_string_lossy()), "{found}");
    run(&database, &session, "SET keirin.cache_limit = '7MB'").unwrap();
    assert!(run(&database, &session, "SHOW keirin.cache_limit").unwrap().contains("7 MB"));
    run(&database, &session, "RESET keirin.cache_limit").unwrap();
    assert!(run(&database, &session, "SHOW keirin.cache_limit").unwrap().contains("4 GB"));
    let local = Database::in_memory().unwrap();
    let session = local.session();
    run(&local, &session, "SET keirin.cache_limit = '1GB'").unwrap();
    assert!(run(&local, &session, "SHOW keirin.cache_limit").unwrap().contains("1 GB"));
    run(&local, &session, "RESET ALL").unwrap();
    assert!(run(&local, &session, "SHOW keirin.cache_limit").unwrap().contains("4 GB"));
}
