//! Joins that find no memory for their build side answer as those that do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use keirin::{Database, Session};

/// Neither side of the joins fits.
const LIMIT_BYTES: usize = 24 << 20;

/// `few` has a key that many rows share, and so has `heavy`, which is joined with `few_heavy`, where few rows have it; both sides
/// have rows without a key, and keys that the other side has not.
const TABLES: [&str; 5] = [
    "CREATE TABLE b AS SELECT CASE WHEN i % 1000 <> 7 THEN i * 7919 % 300000 END AS k, i AS v, 'the text of row ' || i AS t \
     FROM range(300000) r(i)",
    "CREATE TABLE p AS SELECT CASE WHEN i % 1000 <> 9 THEN i * 104729 % 400000 END AS k, i % 300000 AS w, \
     'the text of row ' || (i * 3) AS t FROM range(500000) r(i)",
    "CREATE TABLE few AS SELECT CASE WHEN i % 10 = 0 THEN 5 ELSE i END AS k, i AS w FROM range(20000) r(i)",
    "CREATE TABLE heavy AS SELECT CASE WHEN i % 1000 = 7 THEN NULL WHEN i % 3 > 0 THEN 5 ELSE i END AS k, i AS v, \
     'the text of row ' || i AS t FROM range(300000) r(i)",
    "CREATE TABLE few_heavy AS SELECT CASE WHEN i % 1000 = 9 THEN NULL WHEN i % 100000 = 4 THEN 5 ELSE i END AS k, i AS w, \
     'the text of row ' || (i * 3) AS t, 'and more text of row ' || i AS u FROM range(600000) r(i)",
];

/// Joins of which most build rows have one key, which no hashes part.
const HEAVY: [&str; 13] = [
    "SELECT count(*), sum(v), sum(w), max(h.t), min(f.u) FROM few_heavy f JOIN heavy h USING (k)",
    "SELECT count(*), sum(v), sum(w), max(h.t), min(f.u), count(h.k) FROM few_heavy f LEFT JOIN heavy h USING (k)",
    "SELECT count(*), sum(v), sum(w), max(h.t), min(f.u), count(f.k) FROM few_heavy f RIGHT JOIN heavy h USING (k)",
    "SELECT count(*), sum(v), sum(w), max(h.t), min(f.u), count(f.k), count(h.k) FROM few_heavy f FULL JOIN heavy h USING (k)",
    "SELECT count(*), sum(v), sum(w), max(h.t), count(f.k), count(h.k) FROM few_heavy f FULL JOIN heavy h ON f.k = h.k AND f.w > h.v",
    "SELECT count(*), sum(w), max(h.t), count(h.k) FROM few_heavy f LEFT JOIN heavy h ON f.k = h.k AND f.t = h.t",
    "SELECT count(*), sum(v), max(t) FROM heavy h WHERE EXISTS (SELECT 1 FROM few_heavy f WHERE f.k = h.k AND f.w > h.v)",
    "SELECT count(*), sum(v), max(t) FROM heavy h WHERE NOT EXISTS (SELECT 1 FROM few_heavy f WHERE f.k = h.k AND f.w > h.v)",
    "SELECT count(*), sum(w), max(u) FROM few_heavy f WHERE EXISTS (SELECT 1 FROM heavy h WHERE f.k = h.k AND f.t <> h.t)",
    "SELECT count(*), sum(w), max(u) FROM few_heavy f WHERE NOT EXISTS (SELECT 1 FROM heavy h WHERE f.k = h.k AND f.t < h.t)",
    "SELECT count(*), sum(w), sum(m) FROM (SELECT w, (EXISTS (SELECT 1 FROM heavy h WHERE f.k = h.k AND f.t < h.t))::INT AS m FROM few_heavy f)",
    "SELECT count(*), sum(v), sum(m) FROM (SELECT v, (k IN (SELECT k FROM few_heavy))::INT AS m FROM heavy h)",
    "SELECT count(*), max(h.t) FROM few_heavy f JOIN heavy h ON f.k IS NOT DISTINCT FROM h.k WHERE f.w % 7 = 3",
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
    let queries: Vec<&str> = QUERIES.into_iter().chain(HEAVY).collect();
    let expected: Vec<String> = queries.iter().map(|query| rows(&database, &session, query)).collect();
    drop((session, database));

    let database = Database::builder().threads(3).memory_limit_bytes(LIMIT_BYTES).open(&path).unwrap();
    let session = database.session();
    for (query, expected) in queries.iter().zip(expected) {
        assert_eq!(rows(&database, &session, query), expected, "{query}");
    }
    for query in QUERIES[..12].iter().chain(&HEAVY[..10]) {
        let plan = rows(&database, &session, &format!("EXPLAIN ANALYZE {query}"));
        let join = plan.lines().find(|line| line.contains("JoinExec:")).expect("there is a join");
        let spilled = join.split("spill_count=").nth(1).and_then(|rest| rest.split(',').next());
        assert!(spilled.is_some_and(|count| count != "0"), "{query} does not spill:\n{plan}");
    }
}
