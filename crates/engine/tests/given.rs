//! Rows that a program gives as tables of a session.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, LargeStringArray, RecordBatch,
    RecordBatchIterator, RecordBatchReader, StringArray, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::pretty::pretty_format_batches;
use keirin::{Database, ErrorKind, Result, Session};

fn ask(database: &Database, session: &Session, sql: &str) -> Result<Vec<Vec<String>>> {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await })?;
    let text = pretty_format_batches(&batches).expect("batches").to_string();
    let rows = text.lines().filter(|line| line.starts_with('|')).skip(1);
    Ok(rows
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect())
}

/// Batches of the numbers from each of `ends` to the next.
fn numbers(ends: &[i64]) -> (SchemaRef, Vec<RecordBatch>) {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let batch = |range: &[i64]| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range[0]..range[1]));
        RecordBatch::try_new(schema.clone(), vec![column]).expect("a batch")
    };
    let batches = ends.windows(2).map(batch).collect();
    (schema, batches)
}

fn reader(ends: &[i64]) -> Box<dyn RecordBatchReader + Send> {
    let (schema, batches) = numbers(ends);
    Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), schema))
}

#[test]
fn batches_are_a_table_as_often_as_they_are_asked() {
    for threads in [1, 2, 16] {
        let database = Database::builder().threads(threads).in_memory().unwrap();
        let session = database.session();
        let (schema, batches) = numbers(&[0, 100_000, 100_000, 100_001, 300_000]);
        session.register_batches("t", schema, batches).unwrap();
        for _ in 0..2 {
            let row = ask(&database, &session, "SELECT count(*), sum(n), min(n), max(n) FROM t").unwrap();
            assert_eq!(row, [["300000", "44999850000", "0", "299999"]]);
        }
        let joined = "SELECT count(*) FROM t a JOIN t b ON a.n = b.n + 1 WHERE a.n % 2 = 0";
        assert_eq!(ask(&database, &session, joined).unwrap(), [["149999"]]);
        // Rows come in their order.
        let rows = ask(&database, &session, "SELECT n FROM t WHERE n % 1000 = 7").unwrap();
        let expected = (0..300).map(|thousand| vec![(1000 * thousand + 7).to_string()]);
        assert_eq!(rows, expected.collect::<Vec<_>>());
        assert_eq!(ask(&database, &session, "SELECT n FROM t LIMIT 2").unwrap(), [["0"], ["1"]]);
    }
}

#[test]
fn a_stream_is_read_once() {
    let database = Database::builder().threads(4).in_memory().unwrap();
    let session = database.session();
    let again = |sql: &str| ask(&database, &session, sql).unwrap_err().to_string();
    session.register_reader("s", reader(&[0, 100_000, 300_000])).unwrap();
    ask(&database, &session, "EXPLAIN SELECT sum(n) FROM s").unwrap();
    assert_eq!(
        ask(&database, &session, "SELECT sum(n), count(*) FROM s").unwrap(),
        [["44999850000", "300000"]]
    );
    assert!(again("SELECT sum(n) FROM s").contains("'s' was read already"));
    session.register_reader("s", reader(&[0, 50_000])).unwrap();
    let rows = ask(&database, &session, "SELECT n FROM s WHERE n % 10000 = 0").unwrap();
    assert_eq!(rows, [["0"], ["10000"], ["20000"], ["30000"], ["40000"]]);
    session.register_reader("s", reader(&[0, 10])).unwrap();
    assert!(again("SELECT count(*) FROM s a JOIN s b ON a.n = b.n").contains("'s' was read already"));
    let schema = numbers(&[]).0;
    let fails = [Err(ArrowError::ComputeError("the disk is gone".to_owned()))];
    session.register_reader("s", Box::new(RecordBatchIterator::new(fails, schema))).unwrap();
    assert_eq!(again("SELECT * FROM s"), "cannot read 's': Compute error: the disk is gone");
}

#[test]
fn given_tables_come_before_those_of_the_database_and_go() {
    let database = Database::in_memory().unwrap();
    let (session, other) = (database.session(), database.session());
    for sql in ["CREATE TABLE t AS SELECT 1 AS n", "CREATE VIEW v AS SELECT n FROM t"] {
        ask(&database, &session, sql).unwrap();
    }
    let count = |session: &Session, sql: &str| ask(&database, session, sql).unwrap();
    assert_eq!(count(&session, "SELECT count(*) FROM t"), [["1"]]);
    let (schema, batches) = numbers(&[0, 5]);
    session.register_batches("t", schema, batches).unwrap();
    assert_eq!(count(&session, "SELECT count(*) FROM t"), [["5"]]);
    assert_eq!(count(&session, "SELECT max(t.n) FROM T"), [["4"]]);
    assert_eq!(count(&session, "SELECT count(*) FROM main.t"), [["1"]]);
    assert_eq!(count(&session, "SELECT count(*) FROM v"), [["1"]]);
    assert_eq!(count(&session, "WITH t AS (SELECT 7 AS n) SELECT n FROM t"), [["7"]]);
    assert_eq!(count(&other, "SELECT count(*) FROM t"), [["1"]]);
    ask(&database, &session, "CREATE TABLE kept AS SELECT * FROM t").unwrap();
    assert!(session.deregister("t") && !session.deregister("t"));
    assert_eq!(count(&session, "SELECT count(*) FROM t"), [["1"]]);
    assert_eq!(count(&session, "SELECT count(*) FROM kept"), [["5"]]);
    let error = ask(&database, &session, "SELECT * FROM gone").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn columns_of_any_kind_are_read_as_those_of_files() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let negative = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
    let words: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
    let batch = RecordBatch::try_from_iter([
        ("word", Arc::new(words) as ArrayRef),
        ("large", Arc::new(LargeStringArray::from(vec![Some("x"), None, Some("y")]))),
        ("view", Arc::new(StringViewArray::from(vec!["a long text that is not inlined", "q", "r"]))),
        ("text", Arc::new(StringArray::from(vec!["ä", "ö", "ü"]))),
        ("number", Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))),
        ("nan", Arc::new(Float64Array::from(vec![negative, 1.0, 2.0]))),
    ])
    .unwrap();
    session.register_batches("Odd Name", batch.schema(), vec![batch.clone()]).unwrap();
    let check =
        |sql: &str, expected: &[&[&str]]| assert_eq!(ask(&database, &session, sql).unwrap(), expected);
    check("SELECT word, count(*) FROM \"Odd Name\" GROUP BY word ORDER BY word", &[&["a", "2"], &["b", "1"]]);
    check("SELECT large, text FROM \"Odd Name\" WHERE view LIKE 'a%'", &[&["x", "ä"]]);
    check("SELECT max(nan), sum(number) FROM \"Odd Name\"", &[&["NaN", "4"]]);
    let (schema, _) = numbers(&[]);
    let error = session.register_batches("t", schema, vec![batch]).unwrap_err();
    assert!(error.to_string().contains("batch 0 of 't' has other columns"), "{error}");
    let twice =
        Schema::new(vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Int8, true)]);
    let error = session.register_batches("t", Arc::new(twice), Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "'t' has two columns of the name 'a'");
}
