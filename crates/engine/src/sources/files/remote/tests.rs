//! Files behind a web server that is slow, refuses, knows no ranges and lies, and in an object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::util::pretty::pretty_format_batches;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;

use super::*;
use crate::sources::remote::web::{Act, Web};
use crate::sources::remote::{Place, wait};
use crate::{Database, Result, Session};

const ROWS: usize = 60_000;
const SUMS: &str = "SELECT count(*), sum(a), min(b), max(c) FROM ";

/// A directory of files with the same rows.
fn made() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let rows = format!("SELECT value AS a, value % 7 AS b, 'text ' || random() AS c FROM range({ROWS})");
    let path = directory.path().display();
    let database = Database::in_memory().unwrap();
    let statements = [
        format!("CREATE TABLE t AS {rows}"),
        format!("COPY t TO '{path}/t.parquet' (ROW_GROUP_SIZE 20000)"),
        format!("COPY t TO '{path}/t.csv'"),
        format!("COPY t TO '{path}/t.csv.gz'"),
        format!("COPY t TO '{path}/t.json'"),
        format!("COPY t TO '{path}/t.arrow'"),
    ];
    for statement in statements {
        run(&database, &database.session(), &statement).expect(&statement);
    }
    directory
}

fn run(database: &Database, session: &Session, sql: &str) -> Result<String> {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await })?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

/// A database that keeps nothing on disk.
fn database() -> Database {
    Database::builder().threads(2).cache_limit_bytes(0).in_memory().unwrap()
}

fn ask(sql: &str) -> Result<String> {
    let database = database();
    run(&database, &database.session(), sql)
}

#[test]
fn files_behind_a_url_have_the_rows_of_those_here() {
    let directory = made();
    let web = Web::new(directory.path());
    let name =
        |name: &str| [format!("'{}/{name}'", web.url()), format!("'{}/{name}'", directory.path().display())];
    for [there, here] in ["t.parquet", "t.csv", "t.csv.gz", "t.json", "t.arrow"].map(name) {
        let database = database();
        let session = database.session();
        let ask = |sql: &str| run(&database, &session, sql).expect(sql);
        let filtered = " WHERE b = 3 AND a > 30000";
        for with in ["", filtered] {
            let right = ask(&format!("{SUMS}{here}{with}"));
            assert_eq!(ask(&format!("{SUMS}{there}{with}")), right, "{there}");
        }
        assert_eq!(ask(&format!("DESCRIBE {there}")), ask(&format!("DESCRIBE {here}")));
        assert!(web.requests().iter().all(|(_, _, range)| range.is_some()), "{there} was read whole");
        // What is here already is not fetched again.
        ask(&format!("{SUMS}{there}"));
        let requests = web.requests();
        assert!(requests.iter().all(|(_, _, range)| *range == Some((0, 0))), "{requests:?}");
    }
}

#[test]
fn a_server_without_ranges_gives_a_file_once() {
    let directory = made();
    let web = Web::new(directory.path());
    web.choose(|_| Act::Whole);
    let database = database();
    let session = database.session();
    for name in ["t.parquet", "t.csv", "t.csv.gz", "t.arrow"] {
        let right =
            run(&database, &session, &format!("{SUMS}'{}/{name}'", directory.path().display())).unwrap();
        let sql = format!("{SUMS}'{}/{name}'", web.url());
        assert_eq!(run(&database, &session, &sql).expect(name), right);
        web.requests();
        assert_eq!(run(&database, &session, &sql).expect(name), right);
        let whole = |(method, _, range): &(String, _, Option<_>)| method == "GET" && range.is_none();
        assert_eq!(
            web.requests().iter().filter(|request| whole(request)).count(),
            0,
            "{name} is fetched again"
        );
    }
}

#[test]
fn a_file_that_is_replaced_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["t.csv", "t.parquet"] {
        let path = directory.path().join(name);
        let write = |value: u32| {
            let path = path.display();
            ask(&format!("COPY (SELECT {value} AS a) TO '{path}' (OVERWRITE true)")).expect("it is written");
        };
        let web = Web::new(directory.path());
        let (database, sql) = (database(), format!("SELECT a FROM '{}/{name}'", web.url()));
        write(1111);
        assert!(run(&database, &database.session(), &sql).unwrap().contains("1111"));
        write(2222);
        web.choose(|_| Act::OtherTag);
        assert!(run(&database, &database.session(), &sql).unwrap().contains("2222"), "{name}");
    }
}

#[test]
fn what_a_url_has_behind_its_path_is_part_of_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("t.csv"), "a\n1111\n").unwrap();
    for act in [Act::Serve, Act::Whole] {
        let (web, database) = (Web::new(directory.path()), database());
        web.choose(move |_| act);
        let ask = |query: &str| {
            let sql =
                format!("SELECT a, filename FROM read_csv('{}/t.csv?{query}', filename = true)", web.url());
            run(&database, &database.session(), &sql).unwrap()
        };
        assert!(ask("id=1").contains("1111"));
        fs::write(directory.path().join("t.csv"), "a\n2222\n").unwrap();
        // The server calls both by one tag.
        let other = ask("id=2&sig=secret");
        assert!(
            other.contains("2222") && !other.contains("secret") && other.contains("t.csv?..."),
            "{other}"
        );
        assert!(ask("id=1").contains("1111"));
        fs::write(directory.path().join("t.csv"), "a\n1111\n").unwrap();
    }
}

#[test]
fn what_a_server_said_first_must_stay_so() {
    let directory = made();
    for name in ["t.csv", "t.parquet"] {
        let web = Web::new(directory.path());
        let seen = AtomicUsize::new(0);
        web.choose(move |_| match seen.fetch_add(1, Ordering::Relaxed) {
            0 => Act::Serve,
            _ => Act::OtherTag,
        });
        let database = database();
        let sql = format!("{SUMS}'{}/{name}'", web.url());
        let error = run(&database, &database.session(), &sql).expect_err(name).to_string();
        assert!(error.contains("it changed on the server while it was read"), "{error}");
    }
}

#[test]
fn servers_that_fail_are_named() {
    let directory = made();
    let web = Web::new(directory.path());
    let url = web.url();
    let check = |act: Act, name: &str, expected: &str| {
        // The first byte is given, so that what comes later is read.
        let seen = AtomicUsize::new(0);
        web.choose(move |_| match seen.fetch_add(1, Ordering::Relaxed) {
            0 => Act::Serve,
            _ => act,
        });
        let error = ask(&format!("{SUMS}'{url}/{name}'")).expect_err(name).to_string();
        assert!(error.contains(&format!("{url}/{name}")), "{act:?}: {error}");
        assert!(error.contains(expected), "{act:?}: {error}");
    };
    for name in ["t.csv", "t.parquet"] {
        check(Act::Status(403), name, "403");
        check(Act::Stall, name, "does not answer");
        check(Act::Whole, name, "does not know ranged requests");
    }
    web.choose(|_| Act::Serve);
    let error = |sql: &str| ask(sql).expect_err(sql).to_string();
    assert_eq!(error(&format!("FROM '{url}/gone.csv'")), format!("no such file: '{url}/gone.csv'"));
    assert!(error(&format!("FROM '{url}/*.csv'")).contains("a web server does not tell what files it has"));
    assert!(error("FROM 'ftp://host/t.csv'").contains("'ftp' is no scheme that is known"));
    assert!(error("FROM 'http://me:secret@host/t.csv'").contains("users and passwords are not sent"));
}

#[test]
fn whoever_stops_waits_for_no_server() {
    let directory = made();
    let web = Web::new(directory.path());
    web.set_delay(Duration::from_secs(5));
    let database = database();
    let session = database.session();
    let started = Instant::now();
    let sql = format!("{SUMS}'{}/t.csv'", web.url());
    database.block_on(async {
        let asking = async { session.sql(&sql).await?.collect().await };
        tokio::time::timeout(Duration::from_millis(100), asking).await.expect_err("the server is slow");
    });
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    // A thread that waits for a server sees that nobody waits for it.
    for name in ["t.csv", "t.parquet"] {
        let web = Web::new(directory.path());
        let seen = AtomicUsize::new(0);
        web.choose(
            move |_| if seen.fetch_add(1, Ordering::Relaxed) == 0 { Act::Serve } else { Act::Silence },
        );
        let sql = format!("{SUMS}'{}/{name}'", web.url());
        database.block_on(async {
            let asking = async { session.sql(&sql).await?.collect().await };
            tokio::time::timeout(Duration::from_millis(500), asking).await.expect_err("the server is silent");
        });
        let started = Instant::now();
        assert!(session.wait_until_idle(Duration::from_millis(2500)), "{name}: {:?}", started.elapsed());
    }
}

/// The names of the files that a path is in a bucket with these.
fn found(keys: &[&str], written: &str) -> Result<Vec<String>> {
    let store = Arc::new(InMemory::new());
    let filled = store.clone();
    let keys: Vec<Path> = keys.iter().map(|key| Path::parse(key).unwrap()).collect();
    wait(async move {
        for key in &keys {
            // As other programs mark directories.
            let bytes = if key.as_ref().contains('.') { "a\n1\n" } else { "" };
            filled.put(key, bytes.into()).await?;
        }
        Ok(())
    })
    .unwrap();
    let store: Arc<dyn ObjectStore> = store;
    let (shown, asked) = ("s3://bucket".to_owned(), "s3://bucket".to_owned());
    let place = Place { store, prefix: Path::default(), shown, asked, can_list: true };
    let files = Arc::new(RemoteFiles::new(CacheOptions { directory: None, limit_bytes: 0 }));
    files.servers.lock().push(("s3://bucket".to_owned(), Arc::new(Server::new(place))));
    let spool = Spool { directory: &std::env::temp_dir(), stop: &Arc::default() };
    let found = files.find(vec![format!("s3://bucket/{written}")], None, &spool)?;
    Ok(found.iter().flatten().map(|file| file.name["s3://bucket/".len()..].to_owned()).collect())
}

#[test]
fn globs_and_directories_of_an_object_store_are_found_in_order() {
    let keys = [
        "d/b.csv",
        "d/a.csv",
        "d/_SUCCESS",
        "d/notes.txt",
        "d/e/2.csv",
        "d/e/1.csv",
        "d/_x/3.csv",
        "d/.y.csv",
        "year=2024/a.csv",
        "year=2023/a.csv",
        "odd %41 name.csv",
        "what?.csv",
        "that[1].csv",
        "year=2024",
    ];
    let check = |written: &str, expected: &[&str]| {
        assert_eq!(found(&keys, written).expect(written), expected, "{written}");
    };
    check("d/a.csv", &["d/a.csv"]);
    check("d/*.csv", &["d/a.csv", "d/b.csv"]);
    check("d/?.csv", &["d/a.csv", "d/b.csv"]);
    check("d/[b-c].csv", &["d/b.csv"]);
    check("d", &["d/a.csv", "d/b.csv", "d/e/1.csv", "d/e/2.csv"]);
    check("d/", &["d/a.csv", "d/b.csv", "d/e/1.csv", "d/e/2.csv"]);
    check("d/**/*.csv", &["d/_x/3.csv", "d/a.csv", "d/b.csv", "d/e/1.csv", "d/e/2.csv"]);
    check("year=*/*.csv", &["year=2023/a.csv", "year=2024/a.csv"]);
    check("year=*", &["year=2023/a.csv", "year=2024/a.csv"]);
    check("odd %41 name.csv", &["odd %41 name.csv"]);
    check("what?.csv", &["what?.csv"]);
    check("that[1].csv", &["that[1].csv"]);
    check("y*/*", &["year=2023/a.csv", "year=2024/a.csv"]);
    check("*/e/?.csv", &["d/e/1.csv", "d/e/2.csv"]);
    check("*.csv", &["odd %41 name.csv", "that[1].csv", "what?.csv"]);
    let all =
        ["d/a.csv", "d/b.csv", "d/e/1.csv", "d/e/2.csv", "odd %41 name.csv", "that[1].csv", "what?.csv"];
    check("", &[&all[..], &["year=2023/a.csv", "year=2024/a.csv"]].concat());
    let fails = |written: &str, expected: &str| {
        let error = found(&keys, written).expect_err(written);
        let all = format!("{error} {:?}", error.detail());
        assert!(all.contains(expected), "{written}: {all}");
    };
    fails("d/x.csv", "no such file: 's3://bucket/d/x.csv'");
    fails("d/x*.csv", "'s3://bucket/d' has '_SUCCESS', '_x', 'a.csv', 'b.csv', 'e'");
    fails("nothing/*.csv", "there is nothing in 's3://bucket/nothing'");
    fails("d/[.csv", "malformed glob");
}
