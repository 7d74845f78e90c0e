//! EXPLAIN and EXPLAIN ANALYZE say what ran, whose steps these are, and what they took.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{counter, query, steps};
use keirin::arrow::array::AsArray;
use keirin::{Database, Session};
use serde_json::Value;

/// Texts that LZ4 compresses, in several stripes, and a table to join them with.
const TABLES: [&str; 2] = [
    "CREATE TABLE t AS SELECT i, i % 7 AS k, 'some words and number ' || (i * 7919 % 50021) AS s FROM range(200000) r(i)",
    "CREATE TABLE u AS SELECT i AS k, [i] AS l FROM range(5) r(i)",
];

const QUERY: &str =
    "SELECT k, count(*) AS n, max(s) AS s FROM t JOIN u USING (k) WHERE i % 3 = 1 GROUP BY k ORDER BY n, k";

fn database(path: &std::path::Path) -> Database {
    let database = Database::builder().threads(2).open(path).unwrap();
    for table in TABLES {
        query(&database, &database.session(), table).unwrap();
    }
    database
}

/// The one text of an answer.
fn text(database: &Database, session: &Session, sql: &str) -> String {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await }).unwrap();
    assert_eq!((batches.len(), batches[0].num_rows(), batches[0].num_columns()), (1, 1, 1), "{sql}");
    batches[0].column(0).as_string::<i32>().value(0).to_owned()
}

#[test]
fn a_query_that_ran_tells_of_its_steps() {
    let directory = tempfile::tempdir().unwrap();
    let database = database(directory.path());
    let session = database.session();
    let told = text(&database, &session, &format!("EXPLAIN ANALYZE {QUERY}"));
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    for part in [
        "5 rows in ",
        " on 2 threads",
        "Scan table=t",
        "Join",
        "Group",
        "Sort",
        "* an operator of DataFusion",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let verbose = text(&database, &session, &format!("EXPLAIN ANALYZE VERBOSE {QUERY}"));
    assert!(verbose.contains("stripes read") && verbose.len() > told.len(), "{verbose}");
    let page = text(&database, &session, &format!("EXPLAIN (ANALYZE, FORMAT HTML) {QUERY}"));
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>") && page.contains("table=t"),
        "{page}"
    );
    assert!(!page.contains("http"), "it needs nothing from elsewhere");
}

#[test]
fn steps_have_their_rows_times_and_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let database = database(directory.path());
    let session = database.session();
    let steps = steps(&database, &session, QUERY);
    let step = |operator: &str, description: &str| {
        let is_it = |step: &&Value| {
            step["operator"] == operator && step["description"].as_str().unwrap().contains(description)
        };
        steps.iter().find(is_it).unwrap_or_else(|| panic!("no {operator} in {steps:?}"))
    };
    let scan = step("Scan", "table=t,");
    // What the keys of the other table leave.
    let left = query(&database, &session, "SELECT count(*) FROM t WHERE i % 3 = 1 AND k < 5").unwrap();
    assert_eq!(scan["rows"].to_string(), left[0][0]);
    assert_eq!(counter(scan, "stripes_read"), Some(4));
    assert!(scan["bytes_in"].as_u64() > Some(100_000), "{scan}");
    let decoded = scan["decoded"].as_array().unwrap();
    assert!(decoded.iter().all(|decoded| decoded["bytes"].as_u64() > Some(0)), "{scan}");
    assert_eq!(step("Join", "Inner")["rows"], scan["rows"]);
    assert_eq!(step("Group", "gby=[k]")["rows"], 5);
    assert!(step("Group", "gby=[k]")["memory_bytes"].as_u64() > Some(0));
    let shares: f64 = steps.iter().map(|step| step["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    assert!(
        steps.iter().all(|step| step["milliseconds"].is_null() || step["milliseconds"].as_f64() > Some(0.0))
    );
    assert!(steps.iter().filter(|step| step["is_ours"] == true).count() >= 4, "{steps:?}");
}

#[test]
fn rows_that_change_are_counted_too() {
    let directory = tempfile::tempdir().unwrap();
    let database = database(directory.path());
    let session = database.session();
    let steps = steps(&database, &session, "INSERT INTO u SELECT k + 10, [k] FROM u WHERE k > 2");
    assert!(steps.iter().any(|step| step["operator"] == "Write"), "{steps:?}");
    assert_eq!(query(&database, &session, "SELECT count(*) FROM u").unwrap(), [["7"]]);
}

#[test]
fn a_plan_says_whose_its_steps_are() {
    let directory = tempfile::tempdir().unwrap();
    let database = database(directory.path());
    let session = database.session();
    let plan = text(&database, &session, &format!("EXPLAIN {QUERY}"));
    assert!(plan.contains("Scan table=t"), "{plan}");
    assert!(!plan.contains("not Keirin's"), "{plan}");
    let lists = text(&database, &session, "EXPLAIN SELECT l, count(*) FROM u GROUP BY l");
    assert!(lists.contains("not Keirin's: keys of type BIGINT[]"), "{lists}");
    let pairs = text(&database, &session, "EXPLAIN SELECT count(*) FROM u a JOIN u b ON a.k + b.k = 3");
    assert!(pairs.contains("not Keirin's: neither equal keys nor ranges"), "{pairs}");
    session_off(&database, &session);
}

/// Without the fast path, and as DataFusion writes it.
fn session_off(database: &Database, session: &Session) {
    query(database, session, "SET keirin.fast_path = off").unwrap();
    let told = text(database, session, &format!("EXPLAIN ANALYZE {QUERY}"));
    assert!(told.contains("5 rows in ") && told.contains("not Keirin's: keirin.fast_path is off"), "{told}");
    let plans = query(database, session, &format!("EXPLAIN (FORMAT INDENT) {QUERY}")).unwrap();
    assert!(plans.len() == 2 && plans[1][1].contains("HashJoinExec"), "{plans:?}");
}
