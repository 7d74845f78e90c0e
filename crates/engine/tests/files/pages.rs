//! Parquet pages of every codec and version: our decoders and the library's give the same rows, read the same
//! bytes, and damage is an error that says where.

use std::fs::File;
use std::sync::Arc;

use keirin::ErrorKind;
use keirin::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, UInt8Array, UInt64Array,
};
use keirin::arrow::datatypes::{DataType, Field, Int32Type};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};

use crate::Fixture;
use crate::common::steps;

const ROWS: i32 = 6000;

fn codecs() -> [(&'static str, Compression); 7] {
    [
        ("none", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("lz4_raw", Compression::LZ4_RAW),
        ("zstd", Compression::ZSTD(ZstdLevel::default())),
        ("lz4", Compression::LZ4),
        ("gzip", Compression::GZIP(GzipLevel::default())),
        ("brotli", Compression::BROTLI(BrotliLevel::default())),
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "any will do"
)]
/// Columns of all shapes: sorted, repeated, random, text, NULLs, lists, structs, nothing but NULL.
fn rows() -> RecordBatch {
    let random = |n: i32| i64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed());
    let text: StringArray =
        (0..ROWS).map(|n| (n % 5 > 0).then(|| format!("text {}", random(n) % 1000))).collect();
    let list = (0..ROWS).map(|n| (n % 7 > 0).then(|| (0..n % 4).map(move |item| Some(n + item))));
    let parts: ArrayRef = Arc::new(Int32Array::from_iter_values((0..ROWS).map(|n| n / 2)));
    let pair = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Int32, false)), parts),
        (Arc::new(Field::new("b", DataType::Utf8, true)), Arc::new(text.clone()) as _),
    ]);
    let path = |n: i32| format!("https://example.org/{}/a page/{}", n / 100, n / 9 % 40);
    let known = |n: i32| n % 40 > 8 || n % 13 == 0;
    let decimals = |values: Decimal128Array, digits, scale| -> ArrayRef {
        Arc::new(values.with_precision_and_scale(digits, scale).unwrap())
    };
    let columns: [(&str, ArrayRef); 21] = [
        ("id", Arc::new(Int32Array::from_iter_values(0..ROWS))),
        ("low", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| i64::from(n / 50 % 3))))),
        ("random", Arc::new(Int64Array::from_iter_values((0..ROWS).map(random)))),
        (
            "float",
            Arc::new((0..ROWS).map(|n| (n % 3 > 0).then(|| f64::from(n) / 8.0)).collect::<Float64Array>()),
        ),
        ("flag", Arc::new((0..ROWS).map(|n| Some(n % 11 < 4)).collect::<BooleanArray>())),
        ("text", Arc::new(text)),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(list))),
        ("pair", Arc::new(pair)),
        ("nothing", Arc::new(Int64Array::new_null(ROWS as usize))),
        (
            "small",
            Arc::new((0..ROWS).map(|n| known(n).then_some((n / 30 - 70) as i8)).collect::<Int8Array>()),
        ),
        (
            "short",
            Arc::new((0..ROWS).map(|n| known(n).then_some((n * 7 - 9000) as i16)).collect::<Int16Array>()),
        ),
        ("byte", Arc::new(UInt8Array::from_iter_values((0..ROWS).map(|n| (n / 3 % 256) as u8)))),
        ("large", Arc::new((0..ROWS).map(|n| known(n).then(|| random(n) as u64)).collect::<UInt64Array>())),
        ("day", Arc::new((0..ROWS).map(|n| known(n / 20).then_some(n / 9)).collect::<Date32Array>())),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|n| random(n / 5) >> 20)))),
        ("real", Arc::new((0..ROWS).map(|n| known(n).then_some(n as f32 / 4.0)).collect::<Float32Array>())),
        ("price", decimals((0..ROWS).map(|n| known(n).then_some(i128::from(n % 90 - 40))).collect(), 20, 2)),
        ("big", decimals((0..ROWS).map(|n| Some(i128::from(random(n)) * 1_000_003)).collect(), 38, 4)),
        ("path", Arc::new((0..ROWS).map(|n| known(n).then(|| path(n))).collect::<StringArray>())),
        (
            "words",
            Arc::new(
                (0..ROWS).map(|n| Some("ein groß’ Wort ".repeat(n as usize % 17))).collect::<StringArray>(),
            ),
        ),
        (
            "blob",
            Arc::new(
                (0..ROWS)
                    .map(|n| known(n / 7).then(|| random(n).to_le_bytes().repeat(n as usize % 4)))
                    .collect::<BinaryArray>(),
            ),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn write(path: &str, properties: WriterProperties) {
    let rows = rows();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), Some(properties)).unwrap();
    // A page can end with each batch that is written.
    for start in (0..rows.num_rows()).step_by(100) {
        writer.write(&rows.slice(start, 100)).unwrap();
    }
    writer.close().unwrap();
}

/// Three row groups with pages of 300 rows, and all encodings.
fn properties(version: WriterVersion, compression: Compression) -> WriterProperties {
    WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(compression)
        .set_max_row_group_row_count(Some(2500))
        .set_data_page_row_count_limit(300)
        .set_column_dictionary_enabled("random".into(), false)
        .set_column_encoding("float".into(), Encoding::BYTE_STREAM_SPLIT)
        .set_column_dictionary_enabled("float".into(), false)
        .set_column_dictionary_enabled("large".into(), false)
        .set_column_dictionary_enabled("real".into(), false)
        .set_column_dictionary_enabled("big".into(), false)
        .set_column_dictionary_page_size_limit("short".into(), 700)
        .set_column_dictionary_page_size_limit("text".into(), 1500)
        .set_column_dictionary_enabled("path".into(), false)
        .set_column_encoding("path".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_column_dictionary_enabled("words".into(), false)
        .set_column_encoding("words".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_column_dictionary_enabled("blob".into(), false)
        .set_column_encoding("blob".into(), Encoding::PLAIN)
        .set_column_bloom_filter_enabled("text".into(), true)
        .build()
}

/// `FILE` stands for the file.
const QUERIES: [&str; 24] = [
    "SELECT * FROM FILE",
    "SELECT count(*), sum(low), sum(float), min(text), max(text), count(nothing) FROM FILE",
    "SELECT id, text, list FROM FILE WHERE id BETWEEN 2890 AND 3110",
    "SELECT random, pair, flag FROM FILE WHERE id IN (7, 2501, 5999)",
    "SELECT text, sum(id) FROM FILE WHERE low = 2 AND flag GROUP BY text ORDER BY text",
    "SELECT pair['b'], list[2] FROM FILE WHERE pair['a'] = 700",
    "SELECT * FROM FILE WHERE text = 'text 17' ORDER BY id",
    "SELECT * FROM FILE WHERE text = 'text that is not there'",
    "SELECT id, float FROM FILE ORDER BY id DESC LIMIT 5",
    "SELECT text, id FROM FILE ORDER BY text NULLS FIRST, id LIMIT 7",
    "SELECT id FROM FILE LIMIT 4000",
    "SELECT sum(small), sum(short), sum(byte), max(large), max(day), min(at), sum(real), count(real) FROM FILE",
    "SELECT id, small, short, byte, large, day, at, real FROM FILE WHERE id % 100 BETWEEN 13 AND 52",
    "SELECT id, small, short, byte, large, day, at, real FROM FILE WHERE flag AND text <> 'text 5'",
    "SELECT id, text, large, real FROM FILE WHERE small = 30 AND byte < 100",
    "SELECT id, text, low, day FROM FILE WHERE (id < 30 OR id BETWEEN 600 AND 629) AND id % 2 = 0",
    "SELECT id, short, day, float FROM FILE WHERE id IN (2, 5, 9, 11, 14, 18, 1700, 1702, 1704, 1708, 2499, 5990)",
    "SELECT price, count(*), sum(big), min(big) FROM FILE WHERE price > -0.3 GROUP BY price ORDER BY price",
    "SELECT id, price, big FROM FILE WHERE big < 0 AND price = 0.13 ORDER BY big LIMIT 50",
    "SELECT path, words, blob FROM FILE WHERE id % 90 IN (3, 4, 40)",
    "SELECT id, path FROM FILE WHERE path LIKE '%/17/%' AND words > 'ein' ORDER BY id",
    "SELECT path, count(*), max(words), min(blob), max(random) FROM FILE GROUP BY path ORDER BY path",
    "SELECT blob, text FROM FILE WHERE random > 0 AND length(words) = 30 ORDER BY id",
    "SELECT count(*) FROM FILE AS a JOIN FILE AS b ON a.id = b.id + 5400 WHERE b.flag",
];

#[test]
fn both_decoders_give_the_same_rows() {
    let fixture = Fixture::new();
    // Both versions, with filters above the scan and in it.
    let kinds = [(WriterVersion::PARQUET_1_0, "false"), (WriterVersion::PARQUET_2_0, "true")];
    for ((name, compression), (version, pushdown)) in
        codecs().into_iter().flat_map(|codec| kinds.map(|kind| (codec, kind)))
    {
        let path = fixture.path(&format!("{name}_{}.parquet", version.as_num()));
        write(&path, properties(version, compression));
        fixture.run(&format!("SET datafusion.execution.parquet.pushdown_filters = {pushdown}"));
        for query in QUERIES {
            let sql = query.replace("FILE", &format!("'{path}'"));
            let [ours, theirs] = ["keirin", "parquet"].map(|decoder| {
                fixture.run(&format!("SET keirin.parquet_decoder = '{decoder}'"));
                let mut rows = fixture.run(&sql);
                if !sql.contains("ORDER BY") {
                    rows.sort();
                }
                rows
            });
            assert_eq!(ours.len(), theirs.len(), "{sql}, pushdown {pushdown}");
            assert!(ours == theirs, "{sql}, pushdown {pushdown}: {:?} {:?}", ours.first(), theirs.first());
        }
    }
}

/// The bytes that a query reads from files.
fn bytes_read(fixture: &Fixture, sql: &str) -> f64 {
    let steps = steps(&fixture.database, &fixture.session, sql);
    let scans = steps.iter().filter(|step| step["inputs"].as_array().is_some_and(Vec::is_empty));
    scans.filter_map(|scan| scan["bytes_in"].as_f64()).sum()
}

#[test]
fn both_decoders_read_the_same_bytes() {
    let fixture = Fixture::new();
    fixture.run("SET keirin.threads = 1");
    let path = fixture.path("pruned.parquet");
    write(&path, properties(WriterVersion::PARQUET_1_0, Compression::SNAPPY));
    let all = bytes_read(&fixture, &format!("SELECT * FROM '{path}'"));
    for query in [
        "SELECT random FROM FILE",
        "SELECT random FROM FILE WHERE id > 4999",
        "SELECT random, text FROM FILE WHERE id BETWEEN 2890 AND 3110",
        "SELECT random FROM FILE WHERE text = 'text that is not there'",
        "SELECT random FROM FILE ORDER BY id DESC LIMIT 5",
    ] {
        let sql = query.replace("FILE", &format!("'{path}'"));
        let [ours, theirs] = ["keirin", "parquet"].map(|decoder| {
            fixture.run(&format!("SET keirin.parquet_decoder = '{decoder}'"));
            bytes_read(&fixture, &sql)
        });
        assert!(ours <= theirs && ours < all / 2.0, "{sql}: {ours} of ours, {theirs} of theirs, {all} all");
    }
}

/// Before any of its rows is read, and where others are joined while it is.
#[test]
fn keys_of_a_join_leave_out_row_groups() {
    let fixture = Fixture::new();
    let path = fixture.path("keys.parquet");
    write(&path, properties(WriterVersion::PARQUET_1_0, Compression::SNAPPY));
    fixture.run("CREATE TABLE few AS SELECT i * 3 + 5200 AS id, 'few' AS name FROM range(20) r(i)");
    fixture.run("CREATE TABLE more AS SELECT id FROM few WHERE id % 2 = 0");
    let joined = format!("SELECT max(random) FROM '{path}' JOIN few USING (id)");
    let all = bytes_read(&fixture, &format!("SELECT random, id FROM '{path}'"));
    let read = bytes_read(&fixture, &joined);
    assert!(read < all / 2.0, "{read} of {all}");
    let rows = |sql: &str| fixture.run(&sql.replace("FILE", &format!("'{path}'")));
    for sql in [
        "SELECT id, text FROM FILE JOIN few USING (id) ORDER BY id",
        "SELECT f.id, few.name FROM FILE f LEFT JOIN few ON f.id = few.id WHERE f.low = 1 ORDER BY 1",
        "SELECT count(*), max(text) FROM FILE f JOIN few USING (id) WHERE id IN (SELECT id FROM more)",
        "SELECT id FROM FILE WHERE id IN (SELECT id FROM few) ORDER BY id DESC LIMIT 3",
    ] {
        fixture.run("SET keirin.fast_path = off");
        let expected = rows(sql);
        fixture.run("SET keirin.fast_path = on");
        assert_eq!(rows(sql), expected, "{sql}");
    }
}

/// Texts that are codes, decimals that are integers, and rows that are passed over bit by bit are those of a table.
#[test]
fn what_is_left_coded_or_kept_for_filters_answers_as_tables_do() {
    let fixture = Fixture::new();
    fixture.run(
        "CREATE TABLE t AS SELECT i, CASE WHEN i % 11 <> 3 THEN 'text ' || (i * 7919 % 97) END AS few,
         'text ' || (i * 7919 % 20011) AS many, (i % 1000 - 300)::DECIMAL(9, 2) / 8 AS small,
         CASE WHEN i % 5 > 0 THEN (i * 104729 % 1000003)::DECIMAL(15, 3) END AS large, i * 31 % 503 AS n,
         CASE WHEN i % 7 > 0 THEN (i * 17 % 257)::SMALLINT END AS s,
         CASE WHEN i > 20000 THEN 'late ' || i % 5 END AS late FROM range(60000) r(i)",
    );
    let path = fixture.path("t.parquet");
    fixture.run(&format!("COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 7000)"));
    let queries = [
        "SELECT few, count(*), sum(large), avg(small), min(many) FROM FILE GROUP BY few ORDER BY few",
        "SELECT few, count(*) FROM FILE WHERE few <> 'text 13' GROUP BY few ORDER BY few",
        "SELECT few, sum(large) FROM FILE WHERE few > 'text 5' AND n < 100 GROUP BY few ORDER BY few",
        "SELECT few, n % 3, count(*) FROM FILE WHERE few IS NULL OR few = 'text 2' GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT few, count(*) FROM FILE WHERE few LIKE '%7' AND small > 3 GROUP BY few ORDER BY few",
        "SELECT few, max(i) FROM FILE WHERE length(few) = 7 GROUP BY few ORDER BY few",
        "SELECT count(DISTINCT few), count(DISTINCT many) FROM FILE",
        "SELECT few, count(DISTINCT s) FROM FILE GROUP BY few ORDER BY few",
        "SELECT many, count(*) AS c FROM FILE GROUP BY many ORDER BY c DESC, many LIMIT 5",
        "SELECT few, many, count(*) FROM FILE WHERE n = 7 GROUP BY few, many ORDER BY few, many",
        "SELECT late, count(*), count(late) FROM FILE GROUP BY late ORDER BY late",
        "SELECT late, few, count(*) FROM FILE WHERE late IS NULL AND n = 9 GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT count(DISTINCT late), count(DISTINCT late) FILTER (WHERE n < 9) FROM FILE",
        "SELECT late, count(*) FROM FILE WHERE late < 'late 3' GROUP BY late ORDER BY late",
        "SELECT sum(small * large), sum(large - small), max(large) FROM FILE",
        "SELECT few, sum(small * (1 - large)) FROM FILE WHERE n BETWEEN 17 AND 80 GROUP BY few ORDER BY few",
        "SELECT count(*), sum(i), sum(large) FROM FILE WHERE n < 40 AND s < 60 AND small > -10",
        "SELECT count(*), sum(i), max(many), min(few) FROM FILE WHERE n < 40 AND s < 60 AND large > 100000",
        "SELECT i, many, s FROM FILE WHERE n = 3 AND s IS NOT NULL AND few IS NOT NULL ORDER BY i",
        "SELECT i, small FROM FILE WHERE n = 3 AND s = 5 ORDER BY i",
        "SELECT count(*), sum(i) FROM FILE WHERE s IS NULL AND n > 250",
        "SELECT count(*), sum(i) FROM FILE WHERE n < 0",
        "SELECT count(*), sum(i), max(few) FROM FILE WHERE n >= 0 AND s < 300 AND i > 6500 AND i < 7100",
    ];
    for sql in queries {
        let expected = fixture.run(&sql.replace("FILE", "t"));
        for path_is_fast in ["on", "off"] {
            fixture.run(&format!("SET keirin.fast_path = {path_is_fast}"));
            assert_eq!(fixture.run(&sql.replace("FILE", &format!("'{path}'"))), expected, "{sql}");
        }
        fixture.run("SET keirin.fast_path = on");
    }
}

/// Of wide files all columns are read only of the rows that are first.
#[test]
fn first_rows_are_read_late() {
    let fixture = Fixture::new();
    fixture.run(
        "CREATE TABLE t AS SELECT i, i * 7919 % 30011 AS n, CASE WHEN i % 5 > 0 THEN i * 31 % 503 END AS few,
         'text ' || (i * 104729 % 20011) AS text, ['item ' || i, NULL, 'x'] AS list,
         {'a': i * 17, 'b': CASE WHEN i % 3 > 0 THEN 'part ' || (i * 3) END} AS pair,
         (i * 13 % 1009)::DOUBLE / 7 AS real, md5(i::VARCHAR) || md5((i * 7)::VARCHAR) AS wide, i % 4 AS part
         FROM range(12000) r(i)",
    );
    let [one, plain, zipped, folder] =
        ["one.parquet", "plain.parquet", "zipped.parquet", "folder"].map(|name| fixture.path(name));
    fixture.run(&format!("COPY t TO '{one}' (FORMAT parquet, ROW_GROUP_SIZE 4000)"));
    fixture
        .run(&format!("COPY t TO '{plain}' (FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 9000)"));
    fixture.run(&format!("COPY t TO '{zipped}' (FORMAT parquet, COMPRESSION gzip)"));
    for part in 0..4 {
        std::fs::create_dir_all(format!("{folder}/part={part}")).unwrap();
        let rows = format!("SELECT * EXCLUDE (part) FROM t WHERE part = {part}");
        fixture.run(&format!("COPY ({rows}) TO '{folder}/part={part}/rows.parquet'"));
    }
    let columns = "i, n, few, text, list, pair, real, wide, part";
    let queries = [
        "SELECT COLUMNS FROM FILE ORDER BY n LIMIT 5",
        "SELECT COLUMNS FROM FILE ORDER BY few DESC NULLS FIRST, n LIMIT 9",
        "SELECT COLUMNS FROM FILE ORDER BY few NULLS FIRST, n DESC LIMIT 6 OFFSET 2001",
        "SELECT COLUMNS FROM FILE WHERE few = 100 ORDER BY n LIMIT 4 OFFSET 2",
        "SELECT wide, list[1], pair['b'], real * 2, n FROM FILE WHERE few < 40 AND n > 900 ORDER BY n DESC LIMIT 7",
        "SELECT wide, list FROM FILE WHERE few IS NULL ORDER BY n % 1000, n LIMIT 8",
        "SELECT COLUMNS FROM FILE WHERE few = -1 ORDER BY n LIMIT 4",
        "SELECT COLUMNS FROM FILE ORDER BY i DESC LIMIT 4000",
        "SELECT max(length(wide)), count(*) FROM (SELECT COLUMNS FROM FILE WHERE few <> 7 ORDER BY n LIMIT 3000)",
        "SELECT a.wide, t.i FROM (SELECT COLUMNS FROM FILE ORDER BY n LIMIT 6) a JOIN t ON a.n = t.n - 1 ORDER BY 2",
        "SELECT COLUMNS FROM FILE WHERE part = 3 ORDER BY part, n LIMIT 3",
    ];
    for file in [&one, &plain, &zipped, &folder] {
        for (place, query) in queries.iter().enumerate() {
            let query = query.replace("COLUMNS", columns);
            let expected = fixture.run(&query.replace("FILE", "t"));
            let from = if *file == folder { format!("'{file}/**/*.parquet'") } else { format!("'{file}'") };
            let asked = query.replace("FILE", &from);
            for threads in [1, 3] {
                fixture.run(&format!("SET keirin.threads = {threads}"));
                assert_eq!(fixture.run(&asked), expected, "{asked}");
                let plan = fixture.run(&format!("EXPLAIN (FORMAT INDENT) {asked}")).join("\n");
                // DataFusion's scan, which numbers no rows, reads gzip. Fields of structs are its, too.
                let is_late = *file != zipped && place != 4;
                assert_eq!(plan.contains("LateRowsExec"), is_late, "{asked}:\n{plan}");
            }
        }
    }
    let twice = format!("read_parquet(['{one}', '{one}'])");
    let expected =
        fixture.run("SELECT * FROM (SELECT * FROM t UNION ALL SELECT * FROM t) ORDER BY n LIMIT 7");
    assert_eq!(fixture.run(&format!("SELECT * FROM {twice} ORDER BY n LIMIT 7")), expected);
}

#[test]
fn damaged_pages_are_errors_that_say_where() {
    let fixture = Fixture::new();
    for (name, compression) in &codecs()[1..4] {
        let path = fixture.path(&format!("good_{name}.parquet"));
        write(&path, properties(WriterVersion::PARQUET_2_0, *compression));
        let bytes = std::fs::read(&path).unwrap();
        // The header and the first values of the first page, which is of `id`.
        let mut damaged = bytes.clone();
        damaged[16..60].fill(0xFF);
        let bad = fixture.write(&format!("bad_{name}.parquet"), &damaged);
        let place = ["bad_", "column 'id' in row group 0", "the page at byte 4"];
        fixture.check_error(&format!("SELECT sum(id) FROM '{bad}'"), ErrorKind::Data, &place);
        fixture.check(&format!("SELECT count(*), sum(low) FROM '{bad}'"), &["6000|6000"]);
    }
}

#[test]
fn flipped_bytes_of_compressed_pages_never_panic_or_hang() {
    let fixture = Fixture::new();
    for (name, compression) in &codecs()[1..4] {
        let path = fixture.path(&format!("good_{name}.parquet"));
        write(&path, properties(WriterVersion::PARQUET_1_0, *compression));
        let bytes = std::fs::read(&path).unwrap();
        for at in (4..bytes.len()).step_by(bytes.len() / 60) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0xFF;
            let bad = fixture.write("flipped.parquet", &flipped);
            // Checksums are not written here: a flipped value goes unnoticed, a lost row does not.
            match fixture.try_run(&format!("SELECT low, text FROM '{bad}'")) {
                Ok(batches) => {
                    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
                    assert_eq!(rows, ROWS as usize, "{name} byte {at}");
                }
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::Cancelled, "{name} byte {at}: {error}");
                    assert!(error.message().contains("flipped.parquet"), "{name} byte {at}: {error}");
                }
            }
            // Texts as codes of their dictionary.
            let grouped =
                "SELECT sum(n) FROM (SELECT text, count(*) AS n FROM FILE WHERE low < 5 GROUP BY text)";
            match fixture.try_run(&grouped.replace("FILE", &format!("'{bad}'"))) {
                Ok(batches) => assert!(!batches.is_empty(), "{name} byte {at}"),
                Err(error) => {
                    assert!(error.message().contains("flipped.parquet"), "{name} byte {at}: {error}");
                }
            }
        }
    }
}

/// Statistics of Parquet leave NaN out, so they must not be believed where NaN matters.
#[test]
fn nan_in_files_is_found_by_all_who_look_for_it() {
    let fixture = Fixture::new();
    let mut floats = vec![1.0; 9000];
    floats[4321] = f64::NAN;
    let columns: [(&str, ArrayRef); 2] =
        [("i", Arc::new(Int32Array::from_iter_values(0..9000))), ("f", Arc::new(Float64Array::from(floats)))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = fixture.path("nan.parquet");
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(3000))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(500)
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    fixture.run("CREATE TABLE seven_or_more AS SELECT nullif(i, 6)::DOUBLE AS f FROM range(6, 900) r(i)");
    fixture.run("INSERT INTO seven_or_more VALUES ('NaN')");
    for decoder in ["keirin", "parquet"] {
        fixture.run(&format!("SET keirin.parquet_decoder = '{decoder}'"));
        for pushdown in [false, true] {
            fixture.run(&format!("SET datafusion.execution.parquet.pushdown_filters = {pushdown}"));
            let check = |sql: &str, expected: &str| {
                fixture.check(&sql.replace("FILE", &format!("'{path}'")), &[expected]);
            };
            check("SELECT count(*) FROM FILE WHERE f > 100", "1");
            check("SELECT i FROM FILE WHERE f = 'NaN'::DOUBLE", "4321");
            check("SELECT i FROM FILE WHERE f <> 1.0", "4321");
            check("SELECT i FROM FILE WHERE NOT f <= 1.0", "4321");
            check("SELECT i FROM FILE WHERE f NOT IN (1.0)", "4321");
            check("SELECT i FROM FILE WHERE f BETWEEN 5 AND 'NaN'::DOUBLE", "4321");
            check("SELECT i FROM FILE ORDER BY f DESC LIMIT 1", "4321");
            check("SELECT max(f) FROM FILE", "NaN");
            check("SELECT count(f), count(DISTINCT f) FROM FILE", "9000|2");
            check("SELECT count(*) FROM FILE WHERE f < 0.5 OR f IS NULL", "0");
            check("SELECT f FROM FILE WHERE i = 4321", "NaN");
            check("SELECT i FROM FILE JOIN (VALUES ('NaN'::DOUBLE), (7.0)) v(f) USING (f)", "4321");
            check("SELECT i FROM FILE JOIN seven_or_more USING (f)", "4321");
        }
    }
    // Where NaN is no answer, statistics prune as ever.
    assert!(bytes_read(&fixture, &format!("SELECT i FROM '{path}' WHERE f < 0.5")) < 1.0);
}

#[test]
fn mistakes_of_the_query_are_not_blamed_on_the_file() {
    let fixture = Fixture::new();
    let path = fixture.path("good.parquet");
    write(&path, properties(WriterVersion::PARQUET_1_0, Compression::SNAPPY));
    for decoder in ["keirin", "parquet"] {
        fixture.run(&format!("SET keirin.parquet_decoder = '{decoder}'"));
        for pushdown in [false, true] {
            fixture.run(&format!("SET datafusion.execution.parquet.pushdown_filters = {pushdown}"));
            for sql in ["SELECT 10 / (id - 10) FROM FILE", "SELECT id FROM FILE WHERE 10 / (id - 10) = 1"] {
                let error = fixture.try_run(&sql.replace("FILE", &format!("'{path}'"))).expect_err(sql);
                assert!(!error.message().contains("good.parquet"), "{sql}: {error}");
            }
        }
    }
}
