//! What the crate does with text, seen from outside.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod cases;
mod detection;
mod errors;
mod files;
mod hostile;
mod round_trip;

use arrow::{
    array::{Array, RecordBatch},
    util::display::{ArrayFormatter, FormatOptions},
};
use keirin_csv::{ChunkParser, ChunkReader, Detected, Error, Options, Reject, Source};

/// A file as read: the columns as `name type`, the rows with NULL as `None`, and what was left out.
#[derive(Debug, Default, PartialEq)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    rejects: Vec<Reject>,
}

fn read(text: &[u8], options: &Options) -> Result<Table, Error> {
    let mut source = Source::new("t.csv", std::io::Cursor::new(text.to_vec()), options.compression)?;
    let detected = source.detect(options)?;
    read_as(source, &detected, &detected, None, options)
}

fn read_as(
    source: Source,
    detected: &Detected,
    table: &Detected,
    projection: Option<&[usize]>,
    options: &Options,
) -> Result<Table, Error> {
    let parser = ChunkParser::new(detected, table, projection, options)?;
    let mut reader = ChunkReader::new(source, detected, options);
    let mut table = Table::default();
    let fields = parser.schema().fields().iter();
    table.columns.extend(fields.map(|field| format!("{} {}", field.name(), field.data_type())));
    while let Some(chunk) = reader.next_chunk()? {
        let parsed = parser.parse(&chunk)?;
        assert_eq!(parsed.rejected_rows, parsed.rejects.len() as u64);
        table.rejects.extend(parsed.rejects);
        for batch in parsed.batches {
            assert!(batch.num_rows() <= options.batch_rows);
            table.rows.extend(rows(&batch));
        }
    }
    Ok(table)
}

fn rows(batch: &RecordBatch) -> Vec<Vec<Option<String>>> {
    let format = FormatOptions::default();
    let formatters: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &format).unwrap()).collect();
    let cell = |row: usize, column: usize| {
        batch.column(column).is_valid(row).then(|| formatters[column].value(row).to_string())
    };
    (0..batch.num_rows())
        .map(|row| (0..batch.num_columns()).map(|column| cell(row, column)).collect())
        .collect()
}

/// Rows in a short form: cells between bars, NULL as `~`.
fn show(rows: &[Vec<Option<String>>]) -> Vec<String> {
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "~".to_string());
    rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

fn check_with(options: &Options, text: &str, columns: &[&str], rows: &[&str]) {
    let table = read(text.as_bytes(), options).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(table.columns, columns, "{text:?}");
    assert_eq!(show(&table.rows), rows, "{text:?}");
    assert_eq!(table.rejects, [], "{text:?}");
    // The answer does not depend on where chunks, batches and samples are cut.
    for chunk_bytes in 1..9 {
        let tiny = Options { chunk_bytes, batch_rows: 1 + chunk_bytes % 3, ..options.clone() };
        let again = read(text.as_bytes(), &tiny).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(again, table, "{text:?} in chunks of {chunk_bytes} bytes");
    }
}

fn check(text: &str, columns: &[&str], rows: &[&str]) {
    check_with(&Options::default(), text, columns, rows);
}

fn rows_of_text(rows: &[Vec<Option<Vec<u8>>>]) -> Vec<Vec<Option<String>>> {
    let text = |cell: &Option<Vec<u8>>| cell.as_ref().map(|cell| String::from_utf8_lossy(cell).into_owned());
    rows.iter().map(|row| row.iter().map(text).collect()).collect()
}
