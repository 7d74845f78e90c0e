//! The 22 TPC-H queries give the official answers, and the table function refuses what it cannot make.

use keirin::arrow::array::RecordBatch;
use keirin::arrow::util::pretty::pretty_format_batches;
use keirin::{Database, Session, tpch};

fn run(database: &Database, session: &Session, sql: &str) -> keirin::Result<Vec<RecordBatch>> {
    database.block_on(async { session.sql(sql).await?.collect().await })
}

#[test]
fn the_22_queries_give_the_official_answers() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let scale = 0.01;
    for table in tpch::TABLES {
        let sql = format!("CREATE TABLE {table} AS SELECT * FROM tpch('{table}', {scale})");
        run(&database, &session, &sql).unwrap();
    }
    let mut wrong = Vec::new();
    for (index, sql) in tpch::QUERIES.iter().enumerate() {
        let outcome = match run(&database, &session, sql) {
            Ok(batches) => tpch::check_answer(index + 1, scale, &batches).expect("the scale has answers"),
            Err(error) => Err(error.to_string()),
        };
        if let Err(difference) = outcome {
            wrong.push(format!("query {}, {}: {difference}", index + 1, tpch::TITLES[index]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_generated_that_is_not_needed() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    // The scale is 1 unless said; counts of these tables are known beforehand.
    let sql = "SELECT count(*) FROM tpch('orders') UNION ALL SELECT count(*) FROM tpch('partsupp', 10000)";
    let counts = pretty_format_batches(&run(&database, &session, sql).unwrap()).unwrap().to_string();
    assert!(counts.contains(" 1500000 ") && counts.contains(" 8000000000 "), "{counts}");
    let first = run(&database, &session, "SELECT l_orderkey FROM tpch('LineItem', 10000) LIMIT 3").unwrap();
    assert_eq!(first.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
}

#[test]
fn arguments_that_make_no_sense_are_explained() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let cases = [
        ("tpch('lineitems')", "customer, lineitem, nation, orders, part, partsupp, region, supplier"),
        ("tpch(1)", "name of a table"),
        ("tpch()", "one or two arguments"),
        ("tpch('part', 1, 1)", "one or two arguments"),
        ("tpch('part', 0)", "a number above 0"),
        ("tpch('part', -1)", "a number above 0"),
        ("tpch('part', 'big')", "a number above 0"),
        ("tpch('part', NULL)", "a number above 0"),
        ("tpch('part', 1e9)", "at most 100000"),
    ];
    for (call, expected) in cases {
        let error = run(&database, &session, &format!("SELECT * FROM {call}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{call}: {error}");
    }
}
