//! CSV and TSV files as a table, read by `keirin-csv`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::execution::SessionState;
use keirin_csv::{Chunk, ChunkParser, ChunkReader, Detected, Source, unify};

use super::failure::{damaged, io_failed};
use super::format::Compression;
use super::hive::{FileColumnOptions, FileColumns};
use super::options::Options;
use super::paths::DataFile;
use super::rejects::{Reject, RejectsOfFile, StatementRejects};
use super::scan::{Chunked, Input, ROW_BYTES_PER_BYTE};
use super::table::ChunkedTable;
use super::{schema, sql_field, sql_type};
use crate::error::{Error, ErrorKind, Result};
use crate::expressions::casts::convert;
use crate::expressions::functions::nested_uuids::with_uuids;
use crate::expressions::uuids::{as_binary_uuid, is_uuid, to_bytes};
use crate::types::UUID_BYTES;

/// The types of columns are detected from this many files; of the others only the column names and one record
/// are read.
const SAMPLE_FILES: usize = 20;
/// The most text that is sampled, however many rows the user asks for: the sample is held in memory.
const SAMPLE_BYTES_MAX: usize = 256 << 20;

/// The files of the table, and what was detected of them.
#[derive(Debug)]
pub(crate) struct Csv {
    files: Vec<DataFile>,
    options: keirin_csv::Options,
    detected: Vec<Detected>,
    table: Detected,
    /// The columns of `table` that the schema takes: all but those that directory names replace.
    positions: Vec<usize>,
    rejects: Arc<StatementRejects>,
}

/// Opens CSV files; with `tabs`, values are separated by tabs unless the options say otherwise.
pub(crate) async fn open(
    state: &SessionState,
    files: Vec<DataFile>,
    tabs: bool,
    into: Vec<String>,
    mut options: Options<'_>,
    rejects: &Arc<StatementRejects>,
) -> Result<ChunkedTable<Csv>> {
    let (mut csv_options, positional_types) = take_options(state, tabs, &mut options)?;
    let same_columns = options.boolean(&["union_by_name"])? == Some(false);
    let column_options = FileColumnOptions::take(&mut options)?;
    options.finish()?;
    csv_options.no_other_header = !into.is_empty();
    csv_options.header_names = into;
    csv_options.batch_rows = state.config().batch_size();
    csv_options.check().map_err(explain)?;
    let columns = FileColumns::detect(&files, &column_options, |name| sql_type(state, name))?;

    let (files, csv_options, detected, table) = crate::runtime::work::waiting(move || {
        if !positional_types.is_empty() {
            let first = source(&files[0], &csv_options)?.detect(&csv_options).map_err(explain)?;
            let (columns, types) = (first.columns.len(), positional_types.len());
            if types > columns {
                let message =
                    format!("{} has {columns} columns, but {types} types were given", files[0].name);
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            let names = first.columns.into_iter().map(|column| column.name);
            csv_options.types.extend(names.zip(positional_types));
        }
        let (detected, table) = detect_all(&files, &csv_options)?;
        if same_columns {
            let schemas: Vec<_> = detected.iter().map(Detected::schema).collect();
            schema::merge(&files, &schemas, true)?;
        }
        Ok::<_, Error>((files, csv_options, detected, table))
    })
    .await
    .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;

    let all = table.schema();
    let marked = columns.without(&all).fields().iter().map(marked).collect::<Vec<_>>();
    let file_schema = Arc::new(Schema::new(marked));
    let positions = file_schema
        .fields()
        .iter()
        .map(|field| all.index_of(field.name()).expect("the schema is a part of the table's"))
        .collect();
    let format = Csv {
        files: files.clone(),
        options: csv_options,
        detected,
        table,
        positions,
        rejects: rejects.clone(),
    };
    Ok(ChunkedTable::new(Input { format, files, file_schema, columns }))
}

/// Takes the options of the reader, and the column types that are given by position.
fn take_options(
    state: &SessionState,
    tabs: bool,
    options: &mut Options<'_>,
) -> Result<(keirin_csv::Options, Vec<DataType>)> {
    let delimiter = match options.character(&["delimiter", "delim", "sep"])? {
        Some(Some(delimiter)) => Some(delimiter),
        Some(None) => return Err(Error::new(ErrorKind::Invalid, "option 'delimiter' is empty")),
        None => tabs.then_some(b'\t'),
    };
    let mut csv = keirin_csv::Options { delimiter, cast: Some(from_texts), ..keirin_csv::Options::default() };
    csv.quote = options.character(&["quote"])?;
    csv.escape = options.character(&["escape"])?;
    csv.comment = options.character(&["comment"])?;
    csv.header = options.boolean(&["header"])?;
    csv.skip_lines = options.count(&["skip"], 0)?.map(|lines| lines as u64);
    csv.nulls = options.texts(&["null", "nullstr"])?;
    csv.columns = options.texts(&["names", "column_names"])?.unwrap_or_default();
    let mut positional = Vec::new();
    for (name, type_name) in options.named_texts(&["types", "dtypes", "column_types"])?.unwrap_or_default() {
        match name {
            Some(name) => csv.types.push((name, of_texts(state, &type_name)?)),
            None => positional.push(of_texts(state, &type_name)?),
        }
    }
    if csv.columns.iter().any(|name| name.trim().is_empty()) {
        return Err(Error::new(ErrorKind::Invalid, "option 'names' of read_csv has a name that is empty"));
    }
    if positional.len() <= csv.columns.len() {
        csv.types.extend(csv.columns.iter().cloned().zip(positional.drain(..)));
    }
    if let Some(columns) = options.named_texts(&["columns"])? {
        for (name, type_name) in columns {
            let name = name.ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "option 'columns' of read_csv takes {name: 'TYPE', ...}")
            })?;
            csv.types.push((name.clone(), of_texts(state, &type_name)?));
            csv.columns.push(name);
        }
    }
    csv.all_text = options.boolean(&["all_varchar", "all_text"])?.unwrap_or(false);
    csv.date_format = options.text(&["date_format", "dateformat"])?.map(str::to_owned);
    csv.timestamp_format = options.text(&["timestamp_format", "timestampformat"])?.map(str::to_owned);
    csv.compression = super::compression_option(options)?.map(|compression| match compression {
        Compression::None => keirin_csv::Compression::None,
        Compression::Gzip => keirin_csv::Compression::Gzip,
        Compression::Zstd => keirin_csv::Compression::Zstd,
    });
    match options.integer(&["sample_size"])? {
        None => {}
        Some(-1) => (csv.sample_rows, csv.sample_bytes) = (usize::MAX, SAMPLE_BYTES_MAX),
        Some(rows) => {
            csv.sample_rows = usize::try_from(rows).ok().filter(|rows| *rows > 0).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "option 'sample_size' takes a number of rows, or -1 for all")
            })?;
            if csv.sample_rows > keirin_csv::Options::default().sample_rows {
                csv.sample_bytes = SAMPLE_BYTES_MAX;
            }
        }
    }
    csv.ignore_errors = options.boolean(&["ignore_errors"])?.unwrap_or(false);
    csv.null_padding = options.boolean(&["null_padding"])?.unwrap_or(false);
    if let Some(bytes) = options.count(&["max_line_size", "maximum_line_size"], 1)? {
        csv.max_line_bytes = bytes;
    }
    Ok((csv, positional))
}

/// The type that a column is read with; UUIDs are bytes, which a text must be.
fn of_texts(state: &SessionState, type_name: &str) -> Result<DataType> {
    let field = sql_field(state, type_name)?;
    Ok(if is_uuid(&field) { DataType::FixedSizeBinary(UUID_BYTES) } else { field.data_type().clone() })
}

/// The field of a column, marked as UUIDs if it has such bytes: there is no other type of theirs in SQL.
fn marked(field: &Arc<Field>) -> Arc<Field> {
    match field.data_type() {
        DataType::FixedSizeBinary(UUID_BYTES) => Arc::new(as_binary_uuid(field.as_ref().clone())),
        _ => field.clone(),
    }
}

/// Converts texts as a cast does, UUIDs inside of the values included.
fn from_texts(texts: &ArrayRef, to: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    let failed = |error| ArrowError::ExternalError(Box::new(error));
    if *to == DataType::FixedSizeBinary(UUID_BYTES) {
        return Ok(Arc::new(to_bytes(texts).map_err(failed)?));
    }
    let values = convert(texts, to, false).and_then(|values| with_uuids(&values, to));
    values.map_err(ArrowError::from)
}

fn source(file: &DataFile, options: &keirin_csv::Options) -> Result<Source> {
    let opened = file.open().map_err(|error| io_failed("read", &file.name, &error))?;
    Source::new(&file.name, opened, options.compression).map_err(explain)
}

/// Detects the dialect and columns of each file, and the common columns of the table.
fn detect_all(files: &[DataFile], options: &keirin_csv::Options) -> Result<(Vec<Detected>, Detected)> {
    let mut detected: Vec<Detected> = Vec::with_capacity(files.len());
    for file in files {
        let mut source = source(file, options)?;
        // The first file with columns is the model for the names of the later ones, and beyond the sample
        // also for their types.
        let like = detected.iter().find(|earlier| !earlier.columns.is_empty());
        let found = match like {
            Some(like) if detected.len() >= SAMPLE_FILES => source.detect_like(like, options),
            Some(like) if like.dialect.header && options.header_names.is_empty() => {
                let header_names = like.columns.iter().map(|column| column.name.clone()).collect();
                source.detect(&keirin_csv::Options { header_names, ..options.clone() })
            }
            _ => source.detect(options),
        };
        detected.push(found.map_err(explain)?);
    }
    let table = unify(&detected, options).map_err(explain)?;
    match table {
        Some(table) if !table.columns.is_empty() => Ok((detected, table)),
        _ if files.len() == 1 => Err(damaged(&files[0].name, "CSV", "it is empty")),
        _ => Err(damaged(&files[0].name, "CSV", "it is empty, and so are the other files")),
    }
}

fn explain(error: keirin_csv::Error) -> Error {
    let hint = error.hint();
    let explained = match &error {
        keirin_csv::Error::Io { file, source } => io_failed("read", file, source),
        keirin_csv::Error::Option { .. } => Error::new(ErrorKind::Invalid, error.to_string()),
        keirin_csv::Error::Arrow { file, source } => damaged(file, "CSV", source),
        _ => Error::new(ErrorKind::Data, error.to_string()),
    };
    match hint {
        Some(hint) => explained.with_hint(hint),
        None => explained,
    }
}

impl Chunked for Csv {
    type Reader = ChunkReader;
    type Chunk = Chunk;
    type Parser = (ChunkParser, RejectsOfFile);

    const NAME: &'static str = "CSV";

    fn open(
        &self,
        index: usize,
        projection: &[usize],
        _: &[FieldRef],
    ) -> Result<(ChunkReader, Self::Parser)> {
        let (file, detected) = (&self.files[index], &self.detected[index]);
        let wanted: Vec<usize> = projection.iter().map(|column| self.positions[*column]).collect();
        let parser =
            ChunkParser::new(detected, &self.table, Some(&wanted), &self.options).map_err(explain)?;
        let reader = ChunkReader::new(source(file, &self.options)?, detected, &self.options);
        Ok((reader, (parser, self.rejects.of_file(&file.name))))
    }

    fn read(&self, reader: &mut ChunkReader) -> Result<Option<(Chunk, u64)>> {
        let chunk = reader.next_chunk().map_err(explain)?;
        Ok(chunk.map(|chunk| {
            let bytes = chunk.source_bytes;
            (chunk, bytes)
        }))
    }

    fn row_bytes(chunk: &Chunk) -> usize {
        chunk.bytes.len() * ROW_BYTES_PER_BYTE
    }

    fn parse(&self, (parser, rejects): &Self::Parser, chunk: Chunk) -> Result<Vec<RecordBatch>> {
        let parsed = parser.parse(&chunk).map_err(explain)?;
        let found = parsed.rejects.into_iter().map(|reject| Reject {
            byte_offset: reject.byte_offset,
            line: reject.line,
            column: reject.column,
            value: reject.value,
            message: reject.error,
            text: reject.text,
        });
        rejects.add(found, parsed.rejected_rows);
        Ok(parsed.batches)
    }
}
