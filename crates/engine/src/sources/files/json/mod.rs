//! JSON files as a table: one object a line, one array of objects, or objects that span lines.

mod cut;
mod infer;
mod moments;
mod narrow;
mod quote;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::json::ReaderBuilder;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::execution::SessionState;
use serde::de::IgnoredAny;

use self::cut::{Chunk, Cutter, count_lines, record_error, syntax_error};
use self::infer::Kind;
use self::moments::{as_texts, from_texts};
use self::narrow::{Wanted, narrow};
use self::quote::{holds_text, quote_text};
use super::failure::damaged;
use super::format::Compression;
use super::hive::{FileColumnOptions, FileColumns};
use super::known::KnownFiles;
use super::options::{NamedText, Options};
use super::paths::DataFile;
use super::rejects::{Reject, RejectsOfFile, StatementRejects};
use super::scan::{Chunked, Input, ROW_BYTES_PER_BYTE};
use super::table::ChunkedTable;
use super::{sql_field, sql_type};
use crate::error::{Error, ErrorKind, Result};

/// Records in the sample from which types are inferred, unless the user says otherwise.
const SAMPLE_RECORDS: usize = 20_480;
/// Files among which the sample is divided.
const SAMPLE_FILES: usize = 20;
/// The longest record in bytes, unless the user says otherwise.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// What a field of a schema takes in memory, about.
const FIELD_BYTES: usize = 256;
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The options of the user and the schema from the sample.
#[derive(Debug)]
pub(crate) struct Json {
    files: Vec<DataFile>,
    schema: SchemaRef,
    compression: Option<Compression>,
    record_bytes_max: usize,
    ignore_errors: bool,
    rejects: Arc<StatementRejects>,
}

/// Opens JSON files.
pub(crate) async fn open(
    state: &SessionState,
    files: Vec<DataFile>,
    mut options: Options<'_>,
    rejects: &Arc<StatementRejects>,
) -> Result<ChunkedTable<Json>> {
    // What options say may differ each time.
    let known = state.config().get_extension::<KnownFiles>().filter(|_| options.is_empty());
    let given = options.named_texts(&["columns"])?;
    let sample = options.integer(&["sample_size"])?;
    let compression = super::compression_option(&mut options)?;
    let record_bytes_max =
        options.count(&["max_line_size", "maximum_object_size"], 1)?.unwrap_or(RECORD_BYTES_MAX);
    let ignore_errors = options.boolean(&["ignore_errors"])?.unwrap_or(false);
    let column_options = FileColumnOptions::take(&mut options)?;
    options.finish()?;
    let columns = FileColumns::detect(&files, &column_options, |name| sql_type(state, name))?;
    let sample_records = match sample {
        None => SAMPLE_RECORDS,
        Some(-1) => usize::MAX,
        Some(records) => usize::try_from(records).ok().filter(|records| *records > 0).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "option 'sample_size' takes a number of records, or -1 for all")
        })?,
    };
    let found = known.as_ref().and_then(|known| known.json.get(&files));
    let schema = match (given, found) {
        (Some(given), _) => Arc::new(given_schema(state, given)?),
        (None, Some(found)) => found,
        (None, None) => {
            let sampled = files.clone();
            let sample = move || infer(&sampled, compression, record_bytes_max, sample_records);
            let schema = crate::runtime::work::waiting(sample)
                .await
                .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
            let schema = Arc::new(schema);
            if let Some(known) = known {
                known.json.keep(&files, schema.flattened_fields().len() * FIELD_BYTES, &schema);
            }
            schema
        }
    };
    let schema = Arc::new(columns.without(&schema));
    let format = Json {
        files: files.clone(),
        schema: schema.clone(),
        compression,
        record_bytes_max,
        ignore_errors,
        rejects: rejects.clone(),
    };
    Ok(ChunkedTable::new(Input { format, files, file_schema: schema, columns }))
}

fn given_schema(state: &SessionState, given: Vec<NamedText>) -> Result<Schema> {
    let fields = given
        .into_iter()
        .map(|(name, type_name)| {
            let name = name.ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "option 'columns' of read_json takes {name: 'TYPE', ...}")
            })?;
            let field = sql_field(state, &type_name)?;
            Ok(field.as_ref().clone().with_name(name).with_nullable(true))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Schema::new(fields))
}

/// The columns in a sample of the files.
fn infer(
    files: &[DataFile],
    compression: Option<Compression>,
    record_bytes_max: usize,
    sample_records: usize,
) -> Result<Schema> {
    let sampled = if sample_records == usize::MAX { files.len() } else { files.len().min(SAMPLE_FILES) };
    let per_file = sample_records.div_ceil(sampled);
    let mut kind = Kind::default();
    for file in &files[..sampled] {
        let mut cutter = Cutter::open(file, compression, record_bytes_max)?;
        let mut left = per_file;
        while left > 0
            && let Some(chunk) = cutter.next()?
        {
            left -= kind.observe(&chunk, left, &file.name)?;
        }
    }
    let file = &files[0].name;
    kind.schema().ok_or_else(|| match kind {
        Kind::Unknown => damaged(file, "JSON", "it has no records"),
        Kind::Object(_) => damaged(file, "JSON", "its objects have no keys"),
        _ => damaged(file, "JSON", "it has records that are no objects")
            .with_hint("each record must be an object such as {\"name\": \"value\"}"),
    })
}

/// Decodes the records of one file.
pub(crate) struct Parser {
    name: Arc<str>,
    /// The columns that are decoded: only the projected ones; but all if bad records are left out, since
    /// which rows a file has must not depend on the columns that a query reads.
    schema: SchemaRef,
    /// `schema` with text in place of dates and timestamps, as Arrow decodes it.
    decoded: SchemaRef,
    /// The positions of the projected columns in `schema`.
    projection: Vec<usize>,
    /// The keys of records that are decoded, if not all.
    wanted: Option<Wanted>,
    /// Whether there are text columns, which may turn out to hold objects and lists.
    has_text: bool,
    /// Whether text columns of this file do hold objects or lists.
    quotes: AtomicBool,
    rejects: RejectsOfFile,
}

impl Parser {
    /// The rows of `bytes`; an error does not say where it occurred.
    fn decode(&self, bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
        let narrowed = self.wanted.as_ref().and_then(|wanted| narrow(bytes, wanted));
        let Some((narrowed, record_count)) = narrowed else { return self.decode_all(bytes) };
        if self.projection.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(record_count));
            let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
            return Ok(vec![batch.map_err(|error| error.to_string())?]);
        }
        self.decode_all(&narrowed)
    }

    /// The rows of `bytes`, whose texts may be other values.
    fn decode_all(&self, bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
        let mut reason = "malformed".to_owned();
        if !self.quotes.load(Ordering::Relaxed) {
            match self.decode_raw(bytes) {
                Err(raw) if self.has_text => reason = raw,
                decided => return decided,
            }
        }
        let quoted = quote_text(bytes, self.decoded.fields()).map_err(|_| reason)?;
        let batches = self.decode_raw(&quoted)?;
        self.quotes.store(true, Ordering::Relaxed);
        Ok(batches)
    }

    fn decode_raw(&self, mut rest: &[u8]) -> Result<Vec<RecordBatch>, String> {
        let mut decoder = ReaderBuilder::new(self.decoded.clone())
            .with_batch_size(BATCH_ROWS)
            .with_coerce_primitive(true)
            .build_decoder()
            .map_err(|error| error.to_string())?;
        let mut batches = Vec::new();
        loop {
            let taken = decoder.decode(rest).map_err(|error| error.to_string())?;
            rest = &rest[taken..];
            if let Some(batch) = decoder.flush().map_err(|error| error.to_string())? {
                batches.push(self.with_moments(batch)?);
            }
            if rest.is_empty() {
                return Ok(batches);
            }
        }
    }

    fn with_moments(&self, batch: RecordBatch) -> Result<RecordBatch, String> {
        if self.decoded == self.schema {
            return Ok(batch);
        }
        let columns = from_texts(&batch, self.schema.fields())?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| error.to_string())
    }

    /// Decodes record by record, to find the bad ones. Calls `bad` with each, its offset in the chunk and its
    /// line, until that returns an error.
    fn decode_singly(
        &self,
        chunk: &Chunk,
        mut bad: impl FnMut(usize, u64, &[u8], Error) -> Result<()>,
    ) -> Result<Vec<RecordBatch>> {
        let mut good = Vec::with_capacity(chunk.bytes.len());
        // The offset up to which the chunk is walked, and the line there.
        let (mut at, mut line) = (0, chunk.first_line);
        while at < chunk.bytes.len() {
            let start = at;
            let mut records =
                serde_json::Deserializer::from_slice(&chunk.bytes[start..]).into_iter::<IgnoredAny>();
            while let Some(record) = records.next() {
                let blanks = chunk.bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                line += count_lines(&chunk.bytes[at..at + blanks]);
                at += blanks;
                let end = match &record {
                    Ok(_) => start + records.byte_offset(),
                    // After a syntax error decoding continues with the next line, if lines are records.
                    Err(_) => chunk.bytes[at..]
                        .iter()
                        .position(|byte| chunk.by_line && *byte == b'\n')
                        .map_or(chunk.bytes.len(), |length| at + length),
                };
                let text = &chunk.bytes[at..end];
                let is_broken = record.is_err();
                let verdict = match record {
                    Err(error) => Err(syntax_error(&self.name, chunk, at, line, error)),
                    Ok(_) => self.decode(text).map_err(|reason| self.value_error(line, &reason)),
                };
                match verdict {
                    Ok(_) => {
                        good.extend_from_slice(text);
                        good.push(b'\n');
                    }
                    Err(error) => bad(at, line, text, error)?,
                }
                line += count_lines(text);
                at = end;
                if is_broken {
                    break;
                }
            }
            if at == start {
                // Only blanks are left.
                break;
            }
        }
        self.decode(&good).map_err(|reason| damaged(&self.name, "JSON", reason))
    }

    fn value_error(&self, line: u64, reason: &str) -> Error {
        let reason = reason.trim_start_matches("Json error: ").replace("Json error: ", "");
        record_error(&self.name, line, &reason).with_hint(
            "types come from the first records: sample_size = -1 looks at all, columns = {name: 'TYPE', ...} \
             sets them, ignore_errors = true leaves such records out",
        )
    }
}

impl Chunked for Json {
    type Reader = Cutter;
    type Chunk = Chunk;
    type Parser = Parser;

    const NAME: &'static str = "JSON";

    /// Which rows a file has must not depend on the fields that a query reads.
    fn narrows_structs(&self) -> bool {
        !self.ignore_errors
    }

    fn open(&self, index: usize, projection: &[usize], fields: &[FieldRef]) -> Result<(Cutter, Parser)> {
        let file = &self.files[index];
        let (fields, projection) = if self.ignore_errors {
            (self.schema.fields().to_vec(), projection.to_vec())
        } else if projection.is_empty() {
            // The decoder needs a column to count rows by.
            (vec![Arc::new(Field::new("", DataType::Boolean, true))], Vec::new())
        } else {
            (fields.to_vec(), (0..projection.len()).collect())
        };
        let decoded = as_texts(&fields);
        let keys = if projection.is_empty() { &[] } else { &fields[..] };
        let wanted = Wanted::new(keys, self.schema.fields()).filter(|_| !self.ignore_errors);
        let parser = Parser {
            name: file.name.clone(),
            has_text: decoded.iter().any(|field| holds_text(field.data_type())),
            decoded: Arc::new(Schema::new(decoded)),
            schema: Arc::new(Schema::new(fields)),
            projection,
            wanted,
            quotes: AtomicBool::new(false),
            rejects: self.rejects.of_file(&file.name),
        };
        Ok((Cutter::open(file, self.compression, self.record_bytes_max)?, parser))
    }

    fn read(&self, reader: &mut Cutter) -> Result<Option<(Chunk, u64)>> {
        Ok(reader.next()?.map(|chunk| (chunk, reader.bytes_taken())))
    }

    fn row_bytes(chunk: &Chunk) -> usize {
        chunk.bytes.len() * ROW_BYTES_PER_BYTE
    }

    fn parse(&self, parser: &Parser, chunk: Chunk) -> Result<Vec<RecordBatch>> {
        let batches = match parser.decode(&chunk.bytes) {
            Ok(batches) => batches,
            Err(_) => parser.decode_singly(&chunk, |at, line, record, error| {
                if !self.ignore_errors {
                    return Err(error);
                }
                let reject = Reject {
                    byte_offset: chunk.byte_offset + at as u64,
                    line,
                    column: None,
                    value: None,
                    message: error.message().to_owned(),
                    text: String::from_utf8_lossy(record).into_owned(),
                };
                parser.rejects.add([reject], 1);
                Ok(())
            })?,
        };
        let wanted = |batch: RecordBatch| {
            batch.project(&parser.projection).map_err(|error| damaged(&parser.name, "JSON", error))
        };
        batches.into_iter().map(wanted).collect()
    }
}
