//! Compression, formats that are no text, several files of one table, real files.

use std::{fs::File, io::Write, path::PathBuf, sync::Mutex};

use keirin_csv::{ChunkParser, ChunkReader, Compression, Detected, Error, Options, Source, unify};

use crate::{Table, read, read_as, show};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_files_are_recognised_by_their_first_bytes() {
    let text = "a,b\n1,x\n2,y\n";
    let twice = [gzip(b"a,b\n1,x\n"), gzip(b"2,y\n")].concat();
    let frames =
        [zstd::encode_all(&b"a,b\n1"[..], 3).unwrap(), zstd::encode_all(&b",x\n2,y\n"[..], 3).unwrap()];
    for bytes in [text.as_bytes().to_vec(), gzip(text.as_bytes()), twice, frames.concat()] {
        let table = read(&bytes, &Options::default()).unwrap();
        assert_eq!(show(&table.rows), ["1|x", "2|y"]);
    }
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let table = read(b"", &Options { compression: Some(compression), ..Options::default() }).unwrap();
        assert_eq!(table, Table::default());
    }
}

#[test]
fn damaged_compressed_files_are_errors() {
    let text = "a,b\n1,x\n".repeat(10_000);
    for whole in [gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
        let error = read(&whole[..whole.len() - 9], &Options::default()).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert_eq!(error.to_string(), "cannot read t.csv");
    }
    let error = read(b"a,b\n1,x\n", &Options { compression: Some(Compression::Gzip), ..Options::default() });
    assert!(matches!(error, Err(Error::Io { .. })));
}

#[test]
fn other_formats_are_called_by_their_names() {
    let check = |bytes: &[u8], expected: &str| {
        let error = read(bytes, &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("t.csv is {expected}, not delimited text in UTF-8"));
    };
    check(b"PAR1\x15\x04\x15", "a Parquet file");
    check(b"PK\x03\x04\x14\0", "a ZIP archive or a spreadsheet");
    check(b"\xFF\xFEa\0,\0b\0\n\0", "UTF-16");
    check(b"\xFE\xFF\0a\0,\0b\0\n", "UTF-16");
    check(b"a\0,\0b\0\n\x001\0,\x002\0\n\0", "UTF-16");
    check(&gzip(b"PAR1\x15\x04\x15"), "a Parquet file");
}

#[test]
fn chunks_say_where_they_are() {
    let text = "a,b\n1,\"x\ny\"\n\n2,z\n3,w\n";
    let packed = gzip(text.as_bytes());
    let options = Options { chunk_bytes: 9, ..Options::default() };
    let mut source = Source::new("t", std::io::Cursor::new(packed.clone()), None).unwrap();
    let detected = source.detect(&options).unwrap();
    let mut reader = ChunkReader::new(source, &detected, &options);
    let mut places = Vec::new();
    let mut source_bytes = 0;
    while let Some(chunk) = reader.next_chunk().unwrap() {
        let at = usize::try_from(chunk.byte_offset).unwrap();
        assert_eq!(text.as_bytes()[at..at + chunk.bytes.len()], chunk.bytes);
        assert!(chunk.source_bytes >= source_bytes);
        source_bytes = chunk.source_bytes;
        places.push((chunk.index, chunk.first_line, chunk.byte_offset));
    }
    assert_eq!(places, [(0, 2, 4), (1, 5, 13)]);
    assert_eq!(source_bytes, packed.len() as u64);
}

fn detect(name: &str, text: &str, options: &Options) -> (Source, Detected) {
    let mut source = Source::new(name, std::io::Cursor::new(text.to_string()), None).unwrap();
    let detected = source.detect(options).unwrap();
    (source, detected)
}

/// Reads several texts as one table.
fn check_files(texts: &[&str], columns: &[&str], rows: &[&str]) {
    let options = Options::default();
    let (sources, detected): (Vec<_>, Vec<_>) = texts.iter().map(|text| detect("f", text, &options)).unzip();
    let table = unify(&detected, &options).unwrap().unwrap();
    let mut all = Vec::new();
    for (source, detected) in sources.into_iter().zip(&detected) {
        let part = read_as(source, detected, &table, None, &options).unwrap();
        assert_eq!(part.columns, columns);
        all.extend(show(&part.rows));
    }
    assert_eq!(all, rows);
}

#[test]
fn files_are_matched_by_name_where_they_have_headers() {
    check_files(
        &["a,b\n1,x\n", "b,a\ny,2\n", "", "a\n3\n", "c,a\n0.5,4\n"],
        &["a Int64", "b Utf8", "c Float64"],
        &["1|x|~", "2|y|~", "3|~|~", "4|~|0.5"],
    );
}

#[test]
fn files_without_headers_are_matched_by_position() {
    check_files(
        &["1,x\n1,x\n", "2,y\n2,y\n"],
        &["column1 Int64", "column2 Utf8"],
        &["1|x", "1|x", "2|y", "2|y"],
    );
    check_files(&["a,b\n1,x\n", "2,y\n2,y\n"], &["a Int64", "b Utf8"], &["1|x", "2|y", "2|y"]);
}

#[test]
fn types_widen_until_they_hold_all_files() {
    check_files(&["a,b\n1,x\n", "a,b\n2.5,\n"], &["a Float64", "b Utf8"], &["1.0|x", "2.5|~"]);
    check_files(&["a,b\n1,\n", "a,b\nx,7\n"], &["a Utf8", "b Int64"], &["1|~", "x|7"]);
    check_files(
        &["a,b\n1,2024-01-01\n", "a,b\n1,2024-01-01 12:00\n"],
        &["a Int64", "b Timestamp(µs)"],
        &["1|2024-01-01T00:00:00", "1|2024-01-01T12:00:00"],
    );
    check_files(
        &["a,b\n1,01/02/2024\n", "a,b\n1,13/02/2024\n"],
        &["a Int64", "b Date32"],
        &["1|2024-02-01", "1|2024-02-13"],
    );
}

#[test]
fn a_file_of_the_same_kind_needs_only_its_names_looked_at() {
    let options = Options::default();
    let (_, first) = detect("f", "a;b\n1;x\n", &options);
    let mut source = Source::new("g", &b"b;a\n2,5;07\n"[..], None).unwrap();
    let like = source.detect_like(&first, &options).unwrap();
    assert_eq!(like.schema().field(0).data_type(), &arrow::datatypes::DataType::Utf8);
    let table = read_as(source, &like, &first, Some(&[1, 0]), &options).unwrap();
    assert_eq!(show(&table.rows), ["2,5|7"]);
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let options = Options::default();
    let (_, first) = detect("f", "a,b\n1,x\n", &options);
    let (_, more) = detect("g", "a,b,c\n1,x,y\n", &options);
    let error = ChunkParser::new(&more, &first, None, &options).unwrap_err();
    assert_eq!(error.to_string(), "g: has a column 'c', which f has not");
    let (_, bare) = detect("h", "1,2,3\n1,2,3\n", &options);
    let error = unify(&[first, bare], &options).unwrap_err();
    assert_eq!(error.to_string(), "h: has 3 columns, f has 2");
}

#[test]
fn a_projection_converts_only_what_it_names_and_still_checks_the_width() {
    let options = Options { sample_rows: 1, ..Options::default() };
    let text = "a,b,c\n1,2,3\nx,4,5\n6,7\n";
    let (source, detected) = detect("f", text, &options);
    let error = read_as(source, &detected, &detected, Some(&[2]), &options).unwrap_err();
    assert_eq!(error.to_string(), "f, line 4: expected 3 fields, found 2");
    let (source, detected) = detect("f", &text[..18], &options);
    let table = read_as(source, &detected, &detected, Some(&[2, 1]), &options).unwrap();
    assert_eq!(
        (table.columns.join(","), show(&table.rows)),
        ("c Int64,b Int64".into(), vec!["3|2".into(), "5|4".into()])
    );
    let (source, detected) = detect("f", &text[..18], &options);
    let table = read_as(source, &detected, &detected, Some(&[]), &options).unwrap();
    assert_eq!(table.rows.len(), 2);
}

#[test]
fn the_rows_that_are_left_do_not_depend_on_the_columns_that_are_read() {
    let options = Options { sample_rows: 1, ignore_errors: true, ..Options::default() };
    let text = b"a,b,c\n1,2,x\ny,3,x\n4,z,x\nw,v,x\n5,6,\xff\n7,8,x\n";
    let open = || {
        let mut source = Source::new("f", std::io::Cursor::new(text), None).unwrap();
        let detected = source.detect(&options).unwrap();
        (source, detected)
    };
    let (source, detected) = open();
    let all = read_as(source, &detected, &detected, None, &options).unwrap();
    assert_eq!(show(&all.rows), ["1|2|x", "7|8|x"]);
    let places: Vec<_> = all.rejects.iter().map(|reject| (reject.line, reject.column_number)).collect();
    assert_eq!(places, [(3, Some(1)), (4, Some(2)), (5, Some(1)), (6, Some(3))]);
    for projection in [&[][..], &[0], &[1], &[2], &[2, 0], &[1, 1]] {
        let (source, detected) = open();
        let part = read_as(source, &detected, &detected, Some(projection), &options).unwrap();
        assert_eq!(part.columns.len(), projection.len());
        assert_eq!(part.rows.len(), all.rows.len(), "{projection:?}");
        assert_eq!(part.rejects, all.rejects, "{projection:?}");
    }
}

#[test]
fn threads_share_a_reader_behind_a_lock() {
    let lines: String = (0..100_000).map(|i| format!("{i},\"row\n{i}\"\n")).collect();
    let options = Options { chunk_bytes: 10_000, ..Options::default() };
    let (source, detected) = detect("f", &format!("n,s\n{lines}"), &options);
    let parser = ChunkParser::new(&detected, &detected, Some(&[0]), &options).unwrap();
    let reader = Mutex::new(ChunkReader::new(source, &detected, &options));
    let work = || {
        let mut sum = 0;
        while let Some(chunk) = { reader.lock().unwrap().next_chunk().unwrap() } {
            for batch in parser.parse(&chunk).unwrap().batches {
                let numbers =
                    arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(batch.column(0));
                sum += numbers.values().iter().sum::<i64>();
            }
        }
        sum
    };
    let total: i64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(total, 99_999 * 100_000 / 2);
}

/// The taxi files unpacked, or nothing where the data is not there.
fn taxi() -> Option<PathBuf> {
    keirin_testkit::data::pack("nyc_taxi").map(|folder| folder.join("nyc_taxi"))
}

#[test]
fn the_taxi_months_are_one_table() {
    let Some(path) = taxi() else { return };
    let options = Options::default();
    let mut months: Vec<_> =
        std::fs::read_dir(path.join("gx_yellow_10k")).unwrap().map(|e| e.unwrap().path()).collect();
    months.sort();
    let open = |path: &PathBuf| {
        let mut source = Source::new(&path.to_string_lossy(), File::open(path).unwrap(), None).unwrap();
        let detected = source.detect(&options).unwrap();
        (source, detected)
    };
    let (sources, detected): (Vec<_>, Vec<_>) = months.iter().map(open).unzip();
    let table = unify(&detected, &options).unwrap().unwrap();
    let types: Vec<_> = table.columns.iter().map(|column| column.data_type.to_string()).collect();
    assert_eq!(
        types.join(" "),
        "Int64 Timestamp(µs) Timestamp(µs) Int64 Float64 Int64 Utf8 Int64 Int64 Int64 Float64 Float64 Float64 \
         Float64 Float64 Float64 Float64 Float64"
    );
    let mut rows = 0;
    let mut cents = 0.0;
    for (source, detected) in sources.into_iter().zip(&detected) {
        let part = read_as(source, detected, &table, Some(&[16]), &options).unwrap();
        rows += part.rows.len();
        let amounts = part.rows.iter().map(|row| row[0].as_deref().unwrap().parse::<f64>().unwrap());
        cents += amounts.map(|amount| (amount * 100.0).round()).sum::<f64>();
    }
    assert_eq!(rows, 240_000);
    assert!(cents > 0.0);
}

#[test]
fn a_compressed_taxi_month_is_read() {
    let Some(path) = taxi() else { return };
    let options = Options::default();
    let path = path.join("green_tripdata_2020-04.csv.gz");
    let mut source = Source::new("green.csv.gz", File::open(path).unwrap(), None).unwrap();
    let detected = source.detect(&options).unwrap();
    assert_eq!(detected.columns.len(), 20);
    let table = read_as(source, &detected, &detected, None, &options).unwrap();
    assert_eq!(table.rows.len(), 35_612);
}
