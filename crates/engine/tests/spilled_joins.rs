//! Joins that find no memory for their build side answer as those that do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{counter, steps};
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

/// Joins whose rows must stay in order, or in their partitions, for what is above.
const IN_ORDER: [&str; 12] = [
    "SELECT count(*), sum(s), max(s) FROM (SELECT sum(v) OVER (ORDER BY w, p.t) AS s \
     FROM (SELECT * FROM p ORDER BY w, t LIMIT 450000) p JOIN b USING (k))",
    "SELECT count(*), sum(r), max(t) FROM (SELECT p.t, row_number() OVER (ORDER BY w, p.t) * (w % 7) AS r \
     FROM (SELECT * FROM p ORDER BY w, t LIMIT 450000) p LEFT JOIN b ON p.k = b.k AND p.w > b.v)",
    "SELECT count(*), sum(r), max(t) FROM (SELECT t, row_number() OVER (ORDER BY w, t) * (w % 7) AS r \
     FROM (SELECT * FROM p ORDER BY w, t LIMIT 450000) p WHERE EXISTS (SELECT 1 FROM b WHERE b.k = p.k AND b.t < p.t))",
    "SELECT count(*), sum(r), max(t) FROM (SELECT t, row_number() OVER (ORDER BY w, t) * (w % 7) AS r \
     FROM (SELECT * FROM p ORDER BY w, t LIMIT 450000) p WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = p.k AND b.t < p.t))",
    "SELECT count(*), max(n), sum(n), max(t) FROM (SELECT b.t, count(*) OVER (PARTITION BY p.k) AS n FROM p JOIN b ON p.k = b.k)",
    "SELECT count(*), max(n), sum(n), max(t) FROM (SELECT b.t, count(b.v) OVER (PARTITION BY p.k) AS n FROM p LEFT JOIN b ON p.k = b.k)",
    "SELECT count(*), max(n), sum(n), max(t) FROM (SELECT b.t, count(p.w) OVER (PARTITION BY b.k) AS n FROM b LEFT JOIN p ON p.k = b.k)",
    "SELECT count(*), sum(n), max(t) FROM (SELECT b.t, sum(w) OVER (PARTITION BY p.k ORDER BY p.w) AS n FROM p JOIN b ON p.k = b.k)",
    "SELECT count(*), sum(n) FROM (SELECT f.t, row_number() OVER (ORDER BY f.w) * (f.w % 7) AS n \
     FROM (SELECT * FROM few_heavy ORDER BY w LIMIT 590000) f JOIN heavy h USING (k) WHERE f.k > 5 OR h.v % 50 = 3)",
    "SELECT count(*), sum(n), max(u) FROM (SELECT f.u, row_number() OVER (ORDER BY w) * (w % 7) AS n \
     FROM (SELECT * FROM few_heavy ORDER BY w LIMIT 590000) f WHERE NOT EXISTS (SELECT 1 FROM heavy h WHERE f.k = h.k AND f.t < h.t))",
    "SELECT count(*), sum(n), sum(m) FROM (SELECT row_number() OVER (ORDER BY w) * (w % 7) AS n, \
     (EXISTS (SELECT 1 FROM heavy h WHERE f.k = h.k AND f.t < h.t))::INT AS m FROM (SELECT * FROM few_heavy ORDER BY w) f)",
    "SELECT count(*), sum(n), count(v) FROM (SELECT h.v, dense_rank() OVER (ORDER BY w) * (w % 7) AS n \
     FROM (SELECT * FROM few_heavy ORDER BY w LIMIT 590000) f LEFT JOIN heavy h ON f.k = h.k AND h.v % 1000 = f.w % 1000)",
];

fn rows(database: &Database, session: &Session, sql: &str) -> String {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await });
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {}", error.report(sql)));
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
    let queries: Vec<&str> = QUERIES.into_iter().chain(HEAVY).chain(IN_ORDER).collect();
    let expected: Vec<String> = queries.iter().map(|query| rows(&database, &session, query)).collect();
    drop((session, database));

    let database = Database::builder().threads(3).memory_limit_bytes(LIMIT_BYTES).open(&path).unwrap();
    let session = database.session();
    for (query, expected) in queries.iter().zip(expected) {
        assert_eq!(rows(&database, &session, query), expected, "{query}");
    }
    for query in QUERIES[..12].iter().chain(&HEAVY[..10]).chain(&IN_ORDER) {
        let steps = steps(&database, &session, query);
        let mut joins = steps.iter().filter(|step| step["operator"] == "Join");
        assert!(
            joins.any(|join| counter(join, "spill_count") > Some(0)),
            "{query} does not spill: {steps:?}"
        );
    }
}
