//! Tables as files: `COPY`.

use std::fs;
use std::time::{Duration, Instant};

use keirin::ErrorKind;
use keirin::arrow::compute::{cast, concat_batches};

use crate::Fixture;

/// A query that has values of every common type, NULLs and awkward texts among them.
pub(crate) const EVERYTHING: &str = "
    SELECT CAST(n % 100 AS TINYINT) AS tiny, CAST(n * 1000 AS INTEGER) AS whole, n * 10000000000 AS big,
           n / CAST(3 AS DOUBLE) AS fraction, CAST(n AS REAL) / 8 AS single,
           CAST(n AS DECIMAL(20, 4)) / 7 AS money, n % 2 = 0 AS flag,
           CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'a,b' WHEN 3 THEN 'say \"hi\"'
                      ELSE E'two\\nlines \u{e9}' END AS text,
           DATE '2024-02-28' + CAST(n AS INTEGER) AS day,
           arrow_cast(n * 3600000000 - 876544, 'Timestamp(Microsecond, None)') AS moment,
           CASE WHEN n % 3 <> 0 THEN n END AS gaps
    FROM (SELECT value AS n FROM range(0, 3000))";

#[test]
fn every_format_gives_back_what_was_written() {
    let fixture = Fixture::new();
    for name in
        ["a.parquet", "a.arrow", "a.csv", "a.csv.gz", "a.csv.zst", "a.tsv", "a.json", "a.jsonl", "a.jsonl.gz"]
    {
        let path = fixture.path(name);
        fixture.check(&format!("COPY ({EVERYTHING}) TO '{path}'"), &["3000"]);
        // Formats without types give back what casts to the same.
        let own = fixture.try_run(&format!("{EVERYTHING} ORDER BY n")).unwrap();
        let read = fixture.try_run(&format!("SELECT * FROM '{path}' ORDER BY big")).unwrap();
        let own = concat_batches(&own[0].schema(), &own).unwrap();
        let read = concat_batches(&read[0].schema(), &read).unwrap();
        assert_eq!(own.num_rows(), read.num_rows(), "{name}");
        assert_eq!(own.num_columns(), read.num_columns(), "{name}");
        for (index, field) in own.schema().fields().iter().enumerate() {
            let read = cast(read.column(index), field.data_type()).unwrap();
            assert_eq!(&read, own.column(index), "{name}: {}", field.name());
        }
    }
}

#[test]
fn nested_values_survive() {
    let fixture = Fixture::new();
    let query = "SELECT 1 AS id, [1, NULL, 3] AS list, {'a': 1, 'b': ['x', 'y']} AS record
                 UNION ALL SELECT 2, NULL, {'a': NULL, 'b': []}";
    let expected = fixture.run(&format!("SELECT * FROM ({query}) ORDER BY id"));
    for name in ["n.parquet", "n.arrow", "n.json", "n.jsonl"] {
        let path = fixture.path(name);
        fixture.check(&format!("COPY ({query}) TO '{path}'"), &["2"]);
        assert_eq!(fixture.run(&format!("SELECT * FROM '{path}' ORDER BY id")), expected, "{name}");
    }
}

#[test]
fn a_failed_copy_leaves_nothing_and_keeps_what_was() {
    let fixture = Fixture::new();
    let kept = fixture.write("kept.parquet", "as it was");
    let fails = "SELECT 1 / (value - 5000) FROM range(0, 10000)";
    for name in ["new.parquet", "new.csv.gz", "new.json", "new.arrow", "kept.parquet"] {
        let path = fixture.path(name);
        fixture.check_error(&format!("COPY ({fails}) TO '{path}'"), ErrorKind::Data, &["zero"]);
    }
    assert_eq!(fixture.names(), ["kept.parquet"]);
    assert_eq!(fs::read_to_string(&kept).unwrap(), "as it was");

    fixture.check_error(
        &format!("COPY (SELECT 1) TO '{kept}' (overwrite false)"),
        ErrorKind::AlreadyExists,
        &["kept.parquet", "exists"],
    );
    fixture.check(&format!("COPY (SELECT 1 AS x) TO '{kept}'"), &["1"]);
    fixture.check(&format!("SELECT x FROM '{kept}'"), &["1"]);
    assert_eq!(fixture.names(), ["kept.parquet"]);
}

#[test]
fn a_dropped_copy_leaves_nothing() {
    let fixture = Fixture::new();
    let sql = format!("COPY (SELECT value FROM range(0, 100000000000)) TO '{}'", fixture.path("big.csv"));
    let stream = fixture.database.block_on(fixture.session.sql(&sql)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The file is begun when the first batch is there.
    let reader = std::thread::scope(|scope| {
        let handle = scope.spawn(|| {
            fixture.database.block_on(async {
                // Giving up drops the stream.
                let _ = tokio::time::timeout(Duration::from_millis(500), stream.collect()).await;
            });
        });
        handle.join()
    });
    reader.unwrap();
    while !fixture.names().is_empty() {
        assert!(Instant::now() < deadline, "left behind: {:?}", fixture.names());
        std::thread::yield_now();
    }
}

#[test]
fn copy_says_what_is_wrong_with_its_target() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.directory.path().join("d")).unwrap();
    let check = |target: &str, options: &str, kind: ErrorKind, parts: &[&str]| {
        fixture.check_error(
            &format!("COPY (SELECT 1 AS x) TO '{}' {options}", fixture.path(target)),
            kind,
            parts,
        );
    };
    check("d", "(format csv)", ErrorKind::Invalid, &["is a directory"]);
    check("none/x.csv", "", ErrorKind::NotFound, &["none", "does not exist"]);
    check("x.unknown", "", ErrorKind::Invalid, &["cannot tell the format", "FORMAT parquet"]);
    check("x.csv", "(delimitr ';')", ErrorKind::Invalid, &["'delimitr'", "did you mean 'delimiter'?"]);
    check(
        "x.csv",
        "(row_group_rows 10)",
        ErrorKind::Invalid,
        &["COPY TO csv has no option 'row_group_rows'"],
    );
    check("x.parquet", "(compression 'rar')", ErrorKind::Invalid, &["no compression 'rar'", "zstd"]);
    check("x.csv", "(format exel)", ErrorKind::Invalid, &["no output format 'exel'", "parquet"]);
    assert_eq!(fixture.names(), ["d"]);
}

#[test]
fn copy_options_shape_the_file() {
    let fixture = Fixture::new();
    let check = |options: &str, expected: &str| {
        let path = fixture.path("x.csv");
        let sql = format!("COPY (SELECT 1 AS a, NULL AS b, 'x;y' AS c) TO '{path}' ({options})");
        fixture.check(&sql, &["1"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{options}");
    };
    check("header true", "a,b,c\n1,,x;y\n");
    check("header false, delimiter ';'", "1;;\"x;y\"\n");
    check("null 'NULL', quote_all true", "\"a\",\"b\",\"c\"\n\"1\",NULL,\"x;y\"\n");
}

#[test]
fn parquet_is_cut_into_row_groups() {
    let fixture = Fixture::new();
    let path = fixture.path("g.parquet");
    let copy = format!(
        "COPY (SELECT value AS x, value % 7 AS y FROM range(0, 100000)) TO '{path}' (row_group_rows 30000)"
    );
    fixture.check(&copy, &["100000"]);
    fixture.check(&format!("SELECT count(*), sum(x), max(y) FROM '{path}'"), &["100000|4999950000|6"]);
    let bytes = fs::read(&path).unwrap();
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&bytes::Bytes::from(bytes))
        .unwrap();
    let rows: Vec<_> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(rows, [30000, 30000, 30000, 10000]);
}
