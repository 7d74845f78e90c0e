//! Joins that find no memory for their build side answer as those that do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use keirin::{Database, Session};

/// Neither side of the joins fits.
const LIMIT_BYTES: usize = 24 << 20;

/// `few` has a key that many rows share; both sides have rows without a key, and keys that the other side has not.
const TABLES: [&str; 3] = [
    "CREATE TABLE b AS SELECT CASE WHEN i % 1000 <> 7 THEN i * 7919 % 300000 END AS k, i AS v, 'the text of row ' || i AS t \
     FROM range(300000) r(i)",
    "CREATE TABLE p AS SELECT CASE WHEN i % 1000 <> 9 THEN i * 104729 % 400000 END AS k, i % 300000 AS w, \
     'the text of row ' || (i * 3) AS t FROM range(500000) r(i)",
    "CREATE TABLE few AS SELECT CASE WHEN i % 10 = 0 THEN 5 ELSE i END AS k, i AS w FROM range(20000) r(i)",
];

const QUERIES: [&str; 14] = [
    "SELECT count(*), sum(v), sum(w), max(b.t), min(p.t) FROM p JOIN b USING (k)",
    "SELECT count(*), sum(v), sum(w), max(b.t), count(b.k) FROM p LEFT JOIN b USING (k)",
    "SELECT count(*), sum(v), sum(w), max(b.t), count(p.k) FROM p RIGHT JOIN b USING (k)",
    "SELECT count(*), sum(v), sum(w), max(b.t), count(p.k), count(b.k) FROM p FULL JOIN b USING (k)",
    "SELECT count(*), sum(v), max(t) FROM b WHERE EXISTS (SELECT 1 FROM p WHERE p.k = b.k AND p.w % 3 < b.v % 2)",
    "SELECT count(*), sum(v), max(t) FROM b WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.k = b.k AND p.w % 3 < b.v % 2)",
    "SELECT count(*), sum(w), max(t) FROM p WHERE EXISTS (SELECT 1 FROM b WHERE p.k = b.k AND p.t < b.t)",
    "SELECT count(*), sum(w), max(t) FROM p WHERE NOT EXISTS (SELECT 1 FROM b WHERE p.k = b.k AND p.t < b.t)",
    "SELECT count(*), sum(v), sum(w) FROM p JOIN b ON p.t = b.t",
    "SELECT count(*), sum(v), sum(w), max(b.t) FROM p JOIN b ON p.k = b.k AND p.w = b.v",
    "SELECT count(*), sum(v), sum(w), max(b.t) FROM p JOIN b ON p.k = b.k AND b.t > p.t",
    "SELECT count(*), sum(v), sum(w), max(b.t) FROM p JOIN b ON p.k IS NOT DISTINCT FROM b.k WHERE p.w % 100 = 0 OR p.k > 0",
    "SELECT count(*), sum(length(x.t)), sum(length(y.t)) FROM b x JOIN p ON p.k = x.k JOIN b y ON y.t = p.t",
    "SELECT count(*), sum(length(b.t)), sum(few.w) FROM b JOIN few ON b.k = few.k",
];

fn rows(database: &Database, session: &Session, sql: &str) -> String {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await });
    let batches = batches.unwrap_or_else(|error| panic!("{}", error.report(sql)));
    arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
}

#[test]
fn joins_that_spill_answer_as_others_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = Database::builder().threads(3).open(&path).unwrap();
    let session = database.session();
    for table in TABLES {
        rows(&database, &session, table);
    }
    let expected = QUERIES.map(|query| rows(&database, &session, query));
    drop((session, database));

    let database = Database::builder().threads(3).memory_limit_bytes(LIMIT_BYTES).open(&path).unwrap();
    let session = database.session();
    for (query, expected) in QUERIES.iter().zip(expected) {
        assert_eq!(rows(&database, &session, query), expected, "{query}");
    }
    for query in &QUERIES[..12] {
        let plan = rows(&database, &session, &format!("EXPLAIN ANALYZE {query}"));
        let join = plan.lines().find(|line| line.contains("JoinExec:")).expect("there is a join");
        let spilled = join.split("spill_count=").nth(1).and_then(|rest| rest.split(',').next());
        assert!(spilled.is_some_and(|count| count != "0"), "{query} does not spill:\n{plan}");
    }
}
