//! The 43 ClickBench queries over 9,580 real rows. `tests/compare/clickbench.py` compares the answers with
//! another database; this only makes sure that all of them run, and that they give what the file holds.

use keirin::Database;
use keirin_testkit::data;

use crate::common::query;

#[test]
fn the_43_queries_run() {
    let Some(pack) = data::pack("clickbench") else { return };
    let directory = pack.join("clickbench");
    let queries = std::fs::read_to_string(directory.join("official/datafusion/queries.sql"))
        .expect("the pack has the queries")
        // Our rows have the time as a timestamp, and are fewer.
        .replace("to_timestamp_seconds(\"EventTime\")", "\"EventTime\"")
        .replace("> 100000", "> 10");
    let database = Database::in_memory().expect("a database opens");
    let session = database.session();
    let file = directory.join("hits_9580_typed.parquet");
    query(&database, &session, &format!("CREATE VIEW hits AS SELECT * FROM '{}'", file.display()))
        .expect("a view over a file");
    let mut failed = Vec::new();
    let mut count = 0;
    for sql in queries.lines().filter(|line| !line.trim().is_empty()) {
        count += 1;
        if let Err(error) = query(&database, &session, sql.trim_end_matches(';')) {
            failed.push(format!("q{count}: {error}: {sql}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(count, 43);
}
