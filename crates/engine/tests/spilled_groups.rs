//! Groups that count what is distinct beside other aggregates, and find no memory for that, answer as those that do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{counter, steps};
use keirin::{Database, Session};
use serde_json::Value;

/// The texts of the groups do not fit.
const LIMIT_BYTES: usize = 24 << 20;

/// A key has many of the rows, and some rows have none.
const TABLE: &str = "CREATE TABLE t AS SELECT CASE WHEN i % 1000 = 7 THEN NULL WHEN i % 20 = 0 THEN 5 ELSE i * 7919 % 5003 END AS k, \
    'key ' || i % 701 AS s, i % 11 AS n, i / 8.0 AS x, CASE WHEN i % 100 <> 3 THEN 'the text of row ' || i * 104729 % 400009 END AS u, \
    i * 31 % 300007 AS v FROM range(900000) r(i)";

const QUERIES: [&str; 7] = [
    "SELECT k, count(DISTINCT u), avg(x) FROM t GROUP BY k ORDER BY k",
    "SELECT k, count(DISTINCT v), sum(n), avg(x), count(*), count(u) FROM t GROUP BY k ORDER BY k",
    "SELECT s, count(DISTINCT u), max(v), avg(n) FROM t WHERE n <> 4 GROUP BY s ORDER BY s",
    "SELECT k, s, count(DISTINCT u), avg(n) FROM t GROUP BY k, s ORDER BY 3 DESC, k, s LIMIT 20",
    "SELECT n, count(DISTINCT u), count(*) FROM t GROUP BY n HAVING count(DISTINCT u) > 10 ORDER BY n",
    "SELECT sum(c), count(*), sum(n) FROM (SELECT k, count(DISTINCT u) AS c, avg(n) AS n FROM t GROUP BY k) WHERE c > 1",
    "SELECT count(*), max(c), max(n) FROM (SELECT s, count(DISTINCT u) AS c, avg(n) AS n FROM t GROUP BY s) JOIN (SELECT DISTINCT s FROM t) USING (s)",
];

fn rows(database: &Database, session: &Session, sql: &str) -> String {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await });
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
    arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
}

fn spills(steps: &[Value]) -> bool {
    let mut groups = steps.iter().filter(|step| step["operator"] == "Group");
    groups.any(|group| counter(group, "spill_count") > Some(0))
}

#[test]
fn distinct_counts_that_spill_answer_as_others_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = Database::builder().threads(3).open(&path).unwrap();
    let session = database.session();
    rows(&database, &session, TABLE);
    let expected: Vec<String> = QUERIES.iter().map(|query| rows(&database, &session, query)).collect();
    drop((session, database));

    let database = Database::builder().threads(3).memory_limit_bytes(LIMIT_BYTES).open(&path).unwrap();
    let session = database.session();
    for (query, expected) in QUERIES.iter().zip(expected) {
        assert_eq!(rows(&database, &session, query), expected, "{query}");
        let steps = steps(&database, &session, query);
        assert!(spills(&steps), "{query} does not spill: {steps:?}");
    }
}

/// The sums of such floats have no room in the words of states, which is no want of memory: nothing goes to disk.
#[test]
fn floats_of_different_sizes_do_not_spill() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::builder().threads(3).open(directory.path().join("db")).unwrap();
    let session = database.session();
    rows(
        &database,
        &session,
        "CREATE TABLE f AS SELECT i % 7 AS k, i % 3 AS u, CASE WHEN i % 2 = 0 THEN 1e300 ELSE 1e-300 END AS x FROM range(70) r(i)",
    );
    let query = "SELECT k, count(DISTINCT u), sum(x) > 4e300, count(*) FROM f GROUP BY k ORDER BY k LIMIT 1";
    let answer = rows(&database, &session, query);
    assert!(answer.contains("| 0 | 3 "), "{answer}");
    let steps = steps(&database, &session, query);
    assert!(steps.iter().any(|step| step["operator"] == "Group") && !spills(&steps), "{steps:?}");
}
