//! Files as tables and tables as files, through SQL.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::path::Path;

use keirin::arrow::array::{Array, AsArray, RecordBatch};
use keirin::arrow::compute::{cast, concat_batches};
use keirin::arrow::util::display::array_value_to_string;
use keirin::{Database, ErrorKind, Session};

struct Fixture {
    database: Database,
    session: Session,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let database = Database::builder().threads(3).in_memory().unwrap();
        let session = database.session();
        Self { database, session, directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self.path(name)
    }

    fn try_run(&self, sql: &str) -> keirin::Result<Vec<RecordBatch>> {
        self.database.block_on(async { self.session.sql(sql).await?.collect().await })
    }

    /// The rows of an answer as text, values separated by `|`.
    fn run(&self, sql: &str) -> Vec<String> {
        let batches = self.try_run(sql).unwrap_or_else(|error| panic!("{}", error.report(sql)));
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| line(batch, row))).collect()
    }

    #[track_caller]
    fn check(&self, sql: &str, expected: &[&str]) {
        assert_eq!(self.run(sql), expected, "{sql}");
    }

    /// `sql` fails; the message holds all of `parts`, and so may detail and hint.
    #[track_caller]
    fn check_error(&self, sql: &str, kind: ErrorKind, parts: &[&str]) {
        let error = self.try_run(sql).expect_err(sql);
        let text = error.report("");
        assert_eq!(error.kind(), kind, "{sql}: {text}");
        for part in parts {
            assert!(text.contains(part), "{sql}: {part:?} is not in:\n{text}");
        }
    }

    /// What is in the directory, hidden files included.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn line(batch: &RecordBatch, row: usize) -> String {
    let value = |column: &dyn Array| match column.is_null(row) {
        true => "NULL".to_owned(),
        false => array_value_to_string(column, row).unwrap(),
    };
    batch.columns().iter().map(|column| value(column.as_ref())).collect::<Vec<_>>().join("|")
}

/// A query that has values of every common type, NULLs and awkward texts among them.
const EVERYTHING: &str = "
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
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // The file is begun when the first batch is there.
    let reader = std::thread::scope(|scope| {
        let handle = scope.spawn(|| {
            fixture.database.block_on(async {
                let collect = stream.collect();
                let _ = keirin_timeout(collect, std::time::Duration::from_millis(500)).await;
            });
        });
        handle.join()
    });
    reader.unwrap();
    while !fixture.names().is_empty() {
        assert!(std::time::Instant::now() < deadline, "left behind: {:?}", fixture.names());
        std::thread::yield_now();
    }
}

/// Gives up on `future` after `limit`, which drops it.
async fn keirin_timeout<F: Future>(future: F, limit: std::time::Duration) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
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

#[test]
fn csv_errors_name_the_place_and_bad_lines_can_be_kept() {
    let fixture = Fixture::new();
    let mut text = "id,name\n".to_owned();
    for id in 0..50_000 {
        text.push_str(&if id == 40_000 { "forty thousand,x\n".to_owned() } else { format!("{id},n{id}\n") });
    }
    let path = fixture.write("t.csv", text);
    fixture.check_error(
        &format!("SELECT sum(id) FROM '{path}'"),
        ErrorKind::Data,
        &["t.csv", "line 40002", "column 1", "(id)", "forty thousand", "ignore_errors = true"],
    );
    fixture.check(&format!("SELECT count(id) FROM read_csv('{path}', ignore_errors = true)"), &["49999"]);
    fixture.check(
        "SELECT line, column_name, value, text FROM system.rejects",
        &["40002|id|forty thousand|forty thousand,x"],
    );
    fixture.check(&format!("SELECT min(id) FROM read_csv('{path}', types = {{'id': 'VARCHAR'}})"), &["0"]);
    fixture.check_error(
        &format!("SELECT * FROM read_csv('{path}', delimm = ';')"),
        ErrorKind::Invalid,
        &["read_csv has no option 'delimm'", "did you mean 'delim'?"],
    );
}

#[test]
fn csv_options_override_what_is_detected() {
    let fixture = Fixture::new();
    let path = fixture.write("o.txt", "# made by hand\n1;2,5;x\n3;NA;y\n");
    let check = |options: &str, expected: &[&str]| {
        fixture.check(&format!("SELECT * FROM read_csv('{path}', {options})"), expected);
    };
    check("delim = ';', skip = 1, header = false", &["1|2,5|x", "3|NA|y"]);
    check(
        "sep = ';', comment = '#', header = false, nullstr = 'NA', names = ['a', 'b', 'c']",
        &["1|2,5|x", "3|NULL|y"],
    );
    check("delimiter = ';', skip = 1, header = false, all_varchar = true", &["1|2,5|x", "3|NA|y"]);
    fixture.check(
        &format!("SELECT arrow_typeof(a), arrow_typeof(b) = 'Float64' FROM read_csv('{path}', delim = ';', skip = 1, header = false, columns = {{'a': 'DOUBLE', 'b': 'VARCHAR', 'c': 'VARCHAR'}}) LIMIT 1"),
        &["Float64|false"],
    );
}

#[test]
fn hive_directories_are_columns_in_every_format() {
    let fixture = Fixture::new();
    for (extension, format) in
        [("csv", "csv"), ("jsonl", "jsonl"), ("parquet", "parquet"), ("arrow", "arrow")]
    {
        for (year, month) in [(2023, "01"), (2023, "02"), (2024, "01")] {
            let directory = fixture.directory.path().join(format!("{format}/year={year}/month={month}"));
            fs::create_dir_all(&directory).unwrap();
            let file = directory.join(format!("x.{extension}"));
            fixture.check(
                &format!("COPY (SELECT {year} * 2 AS y2, '{month}' AS m) TO '{}'", file.display()),
                &["1"],
            );
        }
        let path = fixture.path(format);
        fixture.check(
            &format!("SELECT year, month, y2 FROM '{path}' WHERE year = 2023 ORDER BY month"),
            &["2023|1|4046", "2023|2|4046"],
        );
        fixture
            .check(&format!("SELECT sum(month) FROM '{path}/**/*.{extension}' WHERE y2 = 2 * year"), &["4"]);
        let function = if format == "jsonl" { "json" } else { format };
        fixture.check_error(
            &format!("SELECT year FROM read_{function}('{path}', hive_partitioning = false)"),
            ErrorKind::NotFound,
            &["year"],
        );
        fixture.check(
            &format!("SELECT month FROM read_{function}('{path}', hive_types = {{'month': 'VARCHAR'}}) WHERE year = 2024"),
            &["01"],
        );
        fixture.check(
            &format!("SELECT count(DISTINCT filename) FROM read_{function}('{path}', filename = true)"),
            &["3"],
        );
    }
}

#[test]
fn json_comes_in_three_layouts() {
    let fixture = Fixture::new();
    let layouts = [
        "{\"a\": 1, \"b\": \"x\"}\n\n{\"a\": 2.5, \"c\": [true]}\r\n{\"a\": null}",
        " [{\"a\": 1, \"b\": \"x\"},\n{\"a\": 2.5, \"c\": [true]} , {\"a\": null}\n]\n",
        "\u{feff}{\n  \"a\": 1,\n  \"b\": \"x\"\n}\n{\n \"a\": 2.5,\n \"c\": [true]\n}{\n\"a\": null}\n",
    ];
    for layout in layouts {
        let path = fixture.write("l.json", layout);
        fixture.check(
            &format!("SELECT a, b, c FROM '{path}'"),
            &["1.0|x|NULL", "2.5|NULL|[true]", "NULL|NULL|NULL"],
        );
        fixture.check(&format!("SELECT count(*) FROM '{path}'"), &["3"]);
    }
}

#[test]
fn json_values_that_disagree_are_text() {
    let fixture = Fixture::new();
    let path = fixture.write("m.json", "{\"v\": 1}\n{\"v\": \"one\"}\n{\"v\": {\"z\": 1.10, \"a\": []}}\n{\"v\": [1, 2]}\n{\"v\": null}\n{}\n");
    fixture.check(
        &format!("SELECT v FROM '{path}'"),
        &["1", "one", "{\"z\": 1.10, \"a\": []}", "[1, 2]", "NULL", "NULL"],
    );
}

#[test]
fn json_dates_and_timestamps_are_such() {
    let fixture = Fixture::new();
    let record = |day: &str| {
        format!(
            "{{\"d\": \"{day}\", \"t\": [\"{day}T12:30:00.5\"], \"z\": {{\"at\": \"{day}T01:00:00+02:00\"}}}}\n"
        )
    };
    let path = fixture.write("m.jsonl", record("2024-02-29") + "{\"d\": null}\n" + &record("2024-03-01"));
    fixture.check(
        &format!("SELECT d + INTERVAL '1 day', t[1], m.z.at FROM '{path}' m WHERE d > DATE '2024-02-29'"),
        &["2024-03-02|2024-03-01T12:30:00.500|2024-02-29T23:00:00Z"],
    );
    fixture.check(
        &format!("SELECT arrow_typeof(d), arrow_typeof(t[1]), arrow_typeof(m.z.at) FROM '{path}' m LIMIT 1"),
        &["Date32|Timestamp(µs)|Timestamp(µs, \"+00:00\")"],
    );
    let good: String = (0..30_000).map(|_| record("2024-02-29")).collect();
    for (late, parts) in [
        ("{\"d\": \"soon\"}", ["column 'd'", "'soon' is not a DATE"]),
        ("{\"d\": \"2024-02-29T12:00:00\"}", ["column 'd'", "is not a DATE"]),
        ("{\"d\": 19000}", ["column 'd'", "'19000' is not a DATE"]),
        ("{\"t\": [\"2024-02-29T12:00:00Z\"]}", ["column 't'", "is not a TIMESTAMP"]),
        ("{\"z\": {\"at\": \"never\"}}", ["column 'z.at'", "'never' is not a TIMESTAMP WITH"]),
    ] {
        let path = fixture.write("late.jsonl", format!("{good}{late}\n"));
        let parts = [&parts[..], &["late.jsonl", "line 30001"]].concat();
        fixture.check_error(
            &format!("SELECT max(d), max(t[1]), max(m.z.at) FROM '{path}' m"),
            ErrorKind::Data,
            &parts,
        );
    }
}

#[test]
fn json_errors_name_the_line() {
    let fixture = Fixture::new();
    let mut text: String = (0..30_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    text.push_str("{\"n\": \"many\"}\n");
    let path = fixture.write("late.json", &text);
    let sql = format!("SELECT sum(n) FROM '{path}'");
    fixture.check_error(&sql, ErrorKind::Data, &["late.json", "line 30001", "many", "sample_size = -1"]);
    fixture.check(&format!("SELECT sum(n) FROM read_json('{path}', ignore_errors = true)"), &["449985000"]);
    fixture.check("SELECT line, text FROM system.rejects", &["30001|{\"n\": \"many\"}"]);
    fixture.check(&format!("SELECT max(n) FROM read_json('{path}', sample_size = -1)"), &["many"]);

    let check = |text: &str, parts: &[&str]| {
        let path = fixture.write("bad.json", text);
        fixture.check_error(&format!("SELECT * FROM '{path}'"), ErrorKind::Data, parts);
    };
    check("{\"a\": 1}\n{\"a\": 1,}\n", &["bad.json", "line 2", "column 9"]);
    check("[{\"a\": 1}, {\"a\": 2}", &["bad.json", "the array has no end"]);
    check("[{\"a\": 1}] x", &["bad.json", "line 1", "follows the end"]);
    check("{\"a\": 1}\n{\"a\": ", &["bad.json", "line 2, column 5: EOF"]);
    check("{\"a\": 1}\n{\"a\": \n\n", &["bad.json", "line 2, column 5: EOF"]);
    check("{\"a\": 1}\n{\"a\": \n{\"a\": 3}\n", &["bad.json", "line 2, column 5: EOF"]);
    check("{\"a\": 1} {\"a\": x}\n", &["bad.json", "line 1, column 16: expected"]);
    check("{\n\"a\":\n1}\n{\n\"a\": \n", &["bad.json", "line 5, column 4: EOF"]);
    check("1\n2\n", &["bad.json", "no objects"]);
    check("", &["bad.json", "no records"]);
    check("\u{0}\u{1}\u{2}", &["bad.json", "line 1"]);
}

#[test]
fn damaged_files_are_errors_that_name_them() {
    let fixture = Fixture::new();
    for name in ["good.parquet", "good.arrow", "good.csv.gz", "good.csv.zst"] {
        let path = fixture.path(name);
        fixture.check(&format!("COPY ({EVERYTHING}) TO '{path}'"), &["3000"]);
        let bytes = fs::read(&path).unwrap();
        let bad = fixture.write(&name.replace("good", "cut"), &bytes[..bytes.len() * 2 / 3]);
        fixture.check_error(&format!("SELECT * FROM '{bad}'"), ErrorKind::Data, &["cut."]);
        let empty = fixture.write(&name.replace("good", "empty"), "");
        fixture.check_error(&format!("SELECT * FROM '{empty}'"), ErrorKind::Data, &["empty."]);
        let text = fixture.write(&name.replace("good", "noise"), [0x1f, 0x8b, 0x00, 0xff].repeat(5000));
        fixture.check_error(&format!("SELECT * FROM '{text}'"), ErrorKind::Data, &["noise."]);
    }
}

#[test]
fn what_is_wrong_with_a_parquet_file_is_said() {
    let fixture = Fixture::new();
    let path = fixture.path("good.parquet");
    fixture.check(&format!("COPY (SELECT value AS n FROM range(0, 1000)) TO '{path}'"), &["1000"]);
    let bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    let check = |bytes: &[u8], parts: &[&str]| {
        let bad = fixture.write("bad.parquet", bytes);
        for sql in [format!("FROM '{bad}'"), format!("SELECT count(*) FROM '{bad}'")] {
            fixture.check_error(&sql, ErrorKind::Data, &[parts, &["bad.parquet"]].concat());
        }
    };
    let cut = format!("it is cut off: its {} bytes begin as", length - 1);
    check(&bytes[..length - 1], &[&cut]);
    check(b"id,name\n1,Oslo\n", &["it is not a Parquet file: its 15 bytes neither begin nor end"]);
    check(b"PAR1", &["it has only 4 bytes"]);
    let damaged = |at: usize, byte: u8| {
        let mut damaged = bytes.clone();
        damaged[at] = byte;
        damaged
    };
    check(&damaged(length - 5, 0x7f), &["its footer is damaged: it claims 21"]);
    check(&damaged(length - 50, 0xff), &["its footer is damaged"]);
    let encrypted = fixture.write("secret.parquet", damaged(length - 1, b'E'));
    let parts = ["secret.parquet", "encrypted"];
    fixture.check_error(&format!("FROM '{encrypted}'"), ErrorKind::Unsupported, &parts);
}

/// Written by pyarrow 26 with `write_page_checksum=True`: 100 rows of `n` BIGINT, `t` VARCHAR in one page each.
const PAGE_CHECKSUMS: &[u8] = include_bytes!("fixtures/page_checksums.parquet");

#[test]
fn a_damaged_page_with_a_checksum_is_an_error() {
    let fixture = Fixture::new();
    let path = fixture.write("whole.parquet", PAGE_CHECKSUMS);
    fixture.check(&format!("SELECT sum(n), min(t), count(*) FROM '{path}'"), &["4950|text 0|100"]);
    // The pages of n end at 883, those of t at 2029.
    for (at, column) in [(300, "n"), (882, "n"), (1500, "t"), (2028, "t")] {
        let mut bytes = PAGE_CHECKSUMS.to_vec();
        bytes[at] ^= 1;
        let path = fixture.write("flipped.parquet", bytes);
        for query in ["max({column} || '')", "count(DISTINCT {column})"] {
            let sql = format!("SELECT {} FROM '{path}'", query.replace("{column}", column));
            fixture.check_error(&sql, ErrorKind::Data, &["flipped.parquet", "it is damaged", "checksum"]);
        }
    }
}

#[test]
fn the_rows_that_ignore_errors_leaves_do_not_depend_on_the_query() {
    let fixture = Fixture::new();
    let rows = |bad: &str, good: fn(usize) -> String| -> String {
        (0..30_000).map(|n| if n % 10_000 == 9_999 { bad.to_owned() } else { good(n) }).collect()
    };
    let csv = fixture.write("r.csv", format!("a,b\n{}", rows("x,1\n", |n| format!("{n},{n}\n"))));
    let json = fixture
        .write("r.json", rows("{\"a\": \"x\", \"b\": 1}\n", |n| format!("{{\"a\": {n}, \"b\": {n}}}\n")));
    for (path, function, first_line) in [(csv, "read_csv", 2), (json, "read_json", 1)] {
        let table = format!("{function}('{path}', ignore_errors = true, sample_size = 5000)");
        let lines = [9_999, 19_999, 29_999].map(|line| (line + first_line).to_string());
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        for query in ["count(*)", "count(a)", "count(b)", "count(a + b)"] {
            fixture.check(&format!("SELECT {query} FROM {table}"), &["29997"]);
            let rejects = format!("SELECT line FROM system.rejects WHERE file = '{path}'");
            fixture.check(&rejects, &lines);
        }
        fixture.check(&format!("SELECT count(*) FROM {table} x JOIN {table} y USING (a)"), &["29997"]);
        fixture.check(&format!("SELECT count(*) FROM system.rejects WHERE file = '{path}'"), &["3"]);
        // Once the file is good, nothing is left of what was bad.
        fs::write(&path, fs::read_to_string(&path).unwrap().replace('x', "1")).unwrap();
        fixture.check(&format!("SELECT count(*) FROM {table}"), &["30000"]);
        fixture.check(&format!("SELECT count(*) FROM system.rejects WHERE file = '{path}'"), &["0"]);
    }
}

#[cfg(unix)]
#[test]
fn pipes_are_read_whatever_they_give() {
    let fixture = Fixture::new();
    let names = ["p.csv", "p.csv.gz", "p.tsv.zst", "p.json", "p.jsonl", "p.parquet", "p.arrow"];
    for name in names {
        let (path, pipe) = (fixture.path(name), fixture.path(&format!("pipe of {name}").replace('.', " ")));
        fixture.check(&format!("COPY ({EVERYTHING}) TO '{path}'"), &["3000"]);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let feed = || {
            let (path, pipe) = (path.clone(), pipe.clone());
            std::thread::spawn(move || fs::copy(path, pipe).unwrap())
        };
        let feeding = feed();
        fixture.check(&format!("SELECT count(*), max(big) FROM '{pipe}'"), &["3000|29990000000000"]);
        feeding.join().unwrap();
        let feeding = feed();
        fixture.check(&format!("SELECT max(big) FROM '{pipe}' WHERE big < 25"), &["0"]);
        feeding.join().unwrap();
    }
    fixture.check_error("FROM '/dev/null'", ErrorKind::Unsupported, &["/dev/null", "device"]);
}

#[test]
fn flipped_bytes_never_panic_or_hang() {
    let fixture = Fixture::new();
    for name in ["f.parquet", "f.arrow"] {
        let path = fixture.path(name);
        let query = EVERYTHING.replace("3000", "50");
        fixture.check(&format!("COPY ({query}) TO '{path}'"), &["50"]);
        let bytes = fs::read(&path).unwrap();
        // Rows or an error, whatever the byte: a damaged value may well be a value.
        for at in (0..bytes.len()).step_by(bytes.len() / 150 + 1) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0xff;
            let bad = fixture.write(&format!("b{name}"), &flipped);
            if let Err(error) = fixture.try_run(&format!("SELECT * FROM '{bad}'")) {
                assert_ne!(error.kind(), ErrorKind::Cancelled, "byte {at}: {error}");
                assert!(error.message().contains(&format!("b{name}")), "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn a_small_limit_gives_the_first_rows() {
    let fixture = Fixture::new();
    let mut text = "n\n".to_owned();
    (0..1_000_000).for_each(|n| text.push_str(&format!("{n}\n")));
    let path = fixture.write("many.csv", text);
    fixture.check(&format!("SELECT n FROM '{path}' LIMIT 3"), &["0", "1", "2"]);
    fixture.check(&format!("SELECT count(*), sum(n), min(n) FROM '{path}'"), &["1000000|499999500000|0"]);
}

#[test]
fn rows_come_in_the_order_of_the_files() {
    let fixture = Fixture::new();
    for name in ["o.csv", "o.jsonl", "o.arrow", "o.parquet", "o.csv.gz"] {
        let path = fixture.path(name);
        // Text that does not compress, so that the files are worth several threads.
        let copy = format!(
            "COPY (SELECT value AS n, md5(CAST(value AS VARCHAR)) AS t FROM range(0, 60000)) TO '{path}'"
        );
        fixture.check(&copy, &["60000"]);
        let rows = fixture.run(&format!("SELECT n FROM '{path}' WHERE n % 100 = 0"));
        let expected: Vec<_> = (0..600).map(|n| (n * 100).to_string()).collect();
        assert_eq!(rows, expected, "{name}");
    }
}

/// The unpacked data, or `None` with a notice.
fn real_data(pack: &str) -> Option<std::path::PathBuf> {
    let root = std::env::var("KEIRIN_DATA").unwrap_or_else(|_| "../../../shared/data".into());
    let archive = Path::new(&root).join(format!("{pack}.tar.zst"));
    if !archive.exists() {
        eprintln!("skipped: {} is not there", archive.display());
        return None;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(pack);
    if !target.exists() {
        let partial = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let done = std::process::Command::new("tar")
            .args(["--use-compress-program", "zstd -d --long=27", "-xf"])
            .arg(&archive)
            .arg("-C")
            .arg(partial.path())
            .status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("skipped: cannot unpack {}", archive.display());
            return None;
        }
        // Another test may have been faster.
        let _ = fs::rename(partial.keep(), &target);
    }
    Some(target)
}

fn files_below(directory: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, files) } else { files.push(path) }
    }
    files.sort();
}

#[test]
fn files_of_the_format_projects_are_rows_or_errors() {
    let Some(data) = real_data("parquet_arrow") else { return };
    let fixture = Fixture::new();
    let mut files = Vec::new();
    files_below(&data, &mut files);
    let (mut good, mut bad) = (0, 0);
    for path in files {
        let name = path.to_string_lossy();
        let function = match () {
            () if name.ends_with(".parquet") || name.contains("/parquet/fuzzing/") => "read_parquet",
            () if name.contains("arrow-ipc-file") || name.contains("arrow-ipc-stream") => "read_arrow",
            () => continue,
        };
        // The last one holds a text of 2 GiB: right, but slow without optimisation.
        if name.ends_with(".md") || name.ends_with(".json.gz") || name.contains("large_string_map") {
            continue;
        }
        match fixture.try_run(&format!("SELECT * FROM {function}('{name}')")) {
            Ok(_) => good += 1,
            Err(error) => {
                assert!(!matches!(error.kind(), ErrorKind::Cancelled), "{name}: {}", error.report(""));
                bad += 1;
            }
        }
    }
    println!("{good} files were read, {bad} were refused");
    assert!(good > 100 && bad > 10, "{good} {bad}");
}

#[test]
fn real_json_of_many_shapes_is_a_table() {
    let Some(data) = real_data("tables") else { return };
    let fixture = Fixture::new();
    let mut files = Vec::new();
    files_below(&data, &mut files);
    let path = files.iter().find(|path| path.to_string_lossy().ends_with(".json.gz")).unwrap();
    fixture.check(
        &format!("SELECT type, count(*) FROM '{}' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2", path.display()),
        &["PushEvent|4280", "CreateEvent|815"],
    );
    let batches = fixture.try_run(&format!("SELECT actor.login FROM '{}' LIMIT 1", path.display())).unwrap();
    assert!(batches[0].column(0).as_string_opt::<i32>().is_some());
}
