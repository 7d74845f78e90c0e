//! Loops that decode wrongly change no answer: what they did is done again, and they run no more.

mod common;

use common::query;
use keirin::Database;
use keirin_codecs::blocks::{faults, racing_kernels};

const TABLE: &str = "CREATE TABLE t AS SELECT i, 'a text with the number ' || (i * 7919 % 50021) AS s FROM range(400000) r(i)";
const QUERIES: [&str; 3] = [
    "SELECT count(*), min(s), max(s), sum(length(s)), sum(i) FROM t",
    "SELECT count(*), sum(i) FROM t WHERE s LIKE '%77%'",
    "SELECT s, count(*) FROM t GROUP BY s ORDER BY s LIMIT 20",
];

#[test]
fn a_faulty_loop_changes_no_answer_and_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::builder().threads(2).in_memory().unwrap();
    let database = open();
    let ask = |database: &Database, sql: &str| query(database, &database.session(), sql).unwrap();
    ask(&database, TABLE);
    let files = ["snappy", "lz4_raw"].map(|codec| {
        let file = format!("{}/{codec}.parquet", directory.path().display());
        ask(&database, &format!("COPY t TO '{file}' (compression {codec})"));
        file
    });
    let expected: Vec<_> = QUERIES.iter().map(|sql| ask(&database, sql)).collect();
    drop(database);

    for (_, arms) in racing_kernels() {
        arms.iter().for_each(|arm| faults::plant("", arm));
    }
    let database = open();
    for _ in 0..3 {
        for file in &files {
            for (sql, expected) in QUERIES.iter().zip(&expected) {
                let sql = sql.replace("FROM t", &format!("FROM '{file}'"));
                assert_eq!(ask(&database, &sql), *expected, "{sql}");
            }
        }
    }
    let told = ask(&database, "SELECT DISTINCT kernel FROM system.kernel_faults ORDER BY kernel");
    assert_eq!(told.concat(), ["lz4_decode", "lz4_decode_pairs", "snappy_decode", "snappy_decode_pairs"]);
    assert_eq!(
        ask(&database, "SELECT count(*) FROM system.kernel_faults WHERE time IS NULL OR detail = ''"),
        [["0"]]
    );
}
