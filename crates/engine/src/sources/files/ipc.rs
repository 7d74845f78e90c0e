//! Arrow IPC files and streams as a table.
//!
//! A file is a stream between a magic number and a footer (Arrow columnar format, "IPC file format"), so both
//! are read as streams of messages. Lengths are checked against the file before anything is allocated;
//! messages are decoded on all threads.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow::ipc::reader::{read_dictionary, read_record_batch};
use arrow::ipc::{MessageHeader, MetadataVersion, RecordBatch as BatchMessage, root_as_message};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::execution::SessionState;

use super::arrow_schema;
use super::failure::{damaged, guarded, io_failed};
use super::hive::{FileColumnOptions, FileColumns};
use super::options::Options;
use super::paths::DataFile;
use super::remote::OpenedFile;
use super::scan::{Chunked, Input};
use super::table::ChunkedTable;
use super::values::checked;
use super::{schema, sql_type};
use crate::error::{Error, ErrorKind, Result};

const FORMAT: &str = "Arrow";
/// The first bytes of a file; two bytes of padding follow.
const MAGIC: &[u8; 6] = b"ARROW1";
/// The most bytes of magic and padding.
const ALIGNMENT_MAX: u64 = 256;
/// Precedes a message's length, since format version 0.15.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The most bytes that one message may claim to have when decompressed.
const DECOMPRESSED_BYTES_MAX: u64 = 4 << 30;

/// The files and their schema.
#[derive(Debug)]
pub(crate) struct Ipc {
    files: Vec<DataFile>,
    schema: SchemaRef,
}

/// Opens Arrow files.
pub(crate) async fn open(
    state: &SessionState,
    files: Vec<DataFile>,
    mut options: Options<'_>,
) -> Result<ChunkedTable<Ipc>> {
    let same_columns = options.boolean(&["union_by_name"])? == Some(false);
    let column_options = FileColumnOptions::take(&mut options)?;
    options.finish()?;
    let columns = FileColumns::detect(&files, &column_options, |name| sql_type(state, name))?;
    let (files, merged) = crate::runtime::work::waiting(move || {
        let schemas = files
            .iter()
            .map(|file| guarded(&file.name, FORMAT, || Ok(Messages::open(file)?.schema)))
            .collect::<Result<Vec<_>>>()?;
        let merged = schema::merge(&files, &schemas, same_columns)?;
        Ok::<_, Error>((files, merged))
    })
    .await
    .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
    let schema = Arc::new(columns.without(&merged));
    let format = Ipc { files: files.clone(), schema: schema.clone() };
    Ok(ChunkedTable::new(Input { format, files, file_schema: schema, columns }))
}

/// Memory for a message that a server says to have, until its bytes are there.
const TRUSTED_BYTES: u64 = 16 << 20;

/// The messages of a file, with checked lengths.
pub(crate) struct Messages {
    file: BufReader<OpenedFile>,
    name: Arc<str>,
    bytes_total: u64,
    bytes_taken: u64,
    schema: SchemaRef,
    dictionaries: Arc<HashMap<i64, ArrayRef>>,
}

/// A record batch message, not yet decoded.
pub(crate) struct RowsMessage {
    metadata: Vec<u8>,
    body: Buffer,
    dictionaries: Arc<HashMap<i64, ArrayRef>>,
}

impl Messages {
    /// Opens a file or stream and reads its schema.
    fn open(file: &DataFile) -> Result<Self> {
        let failed = |error| io_failed("read", &file.name, &error);
        let opened = file.open().map_err(failed)?;
        let bytes_total = opened.byte_count().map_err(failed)?;
        let mut messages = Self {
            file: BufReader::with_capacity(256 << 10, opened),
            name: file.name.clone(),
            bytes_total,
            bytes_taken: 0,
            schema: Arc::new(Schema::empty()),
            dictionaries: Arc::default(),
        };
        if bytes_total == 0 {
            return Err(messages.damaged("it is empty"));
        }
        let mut first = messages.take(4)?;
        if first == MAGIC[..4] {
            if messages.take(4)?[..2] != MAGIC[4..] {
                return Err(messages.damaged("it does not begin as an Arrow file"));
            }
            first = messages.take(4)?;
            // Skips the padding before the first message, which writers align to 8 bytes or more.
            while first == [0; 4] && messages.bytes_taken < ALIGNMENT_MAX {
                first = messages.take(4)?;
            }
        }
        let first: [u8; 4] = first.try_into().expect("four bytes were taken");
        let Some((metadata, _)) = messages.message(first)? else {
            return Err(messages.damaged("it has no schema"));
        };
        let message = root_as_message(&metadata).map_err(|error| messages.damaged(error))?;
        let header =
            message.header_as_schema().ok_or_else(|| messages.damaged("it does not begin with a schema"))?;
        arrow_schema::check(header).map_err(|reason| messages.damaged(reason))?;
        messages.schema = Arc::new(arrow::ipc::convert::fb_to_schema(header));
        Ok(messages)
    }

    fn damaged(&self, reason: impl std::fmt::Display) -> Error {
        damaged(&self.name, FORMAT, reason)
    }

    /// The next `count` bytes.
    fn take(&mut self, count: u64) -> Result<Vec<u8>> {
        if count > self.bytes_total.saturating_sub(self.bytes_taken) {
            return Err(self.damaged(format!(
                "{count} bytes are missing at its end, byte {}: it is cut off or damaged",
                self.bytes_taken
            )));
        }
        // A file here has as many bytes as it says; of what a server says, memory is taken for what it sends.
        let known = if self.file.get_ref().is_here() { count } else { count.min(TRUSTED_BYTES) };
        let mut bytes = Vec::with_capacity(usize::try_from(known).map_err(|error| self.damaged(error))?);
        let failed = |error: io::Error| io_failed("read", &self.name, &error);
        let read = self.file.by_ref().take(count).read_to_end(&mut bytes).map_err(failed)?;
        if read as u64 != count {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        self.bytes_taken += count;
        Ok(bytes)
    }

    /// The metadata and body of the message that begins with `first`; `None` at the end of the stream.
    fn message(&mut self, first: [u8; 4]) -> Result<Option<(Vec<u8>, Buffer)>> {
        let mut length = first;
        if length == CONTINUATION {
            length = self.take(4)?.try_into().expect("four bytes were taken");
        }
        let length = u64::from(u32::from_le_bytes(length));
        if length == 0 {
            return Ok(None);
        }
        let metadata = self.take(length)?;
        let body_bytes = {
            let message = root_as_message(&metadata).map_err(|error| self.damaged(error))?;
            u64::try_from(message.bodyLength())
                .map_err(|_| self.damaged("a message has a negative length"))?
        };
        let body = Buffer::from_vec(self.take(body_bytes)?);
        Ok(Some((metadata, body)))
    }

    /// The next record batch message; dictionaries before it are kept.
    fn next(&mut self) -> Result<Option<RowsMessage>> {
        while self.bytes_taken < self.bytes_total {
            let first = self.take(4)?.try_into().expect("four bytes were taken");
            let Some((metadata, body)) = self.message(first)? else { return Ok(None) };
            let message = root_as_message(&metadata).map_err(|error| self.damaged(error))?;
            match message.header_type() {
                MessageHeader::RecordBatch => {
                    let dictionaries = self.dictionaries.clone();
                    return Ok(Some(RowsMessage { metadata, body, dictionaries }));
                }
                MessageHeader::DictionaryBatch => {
                    let dictionary = message
                        .header_as_dictionary_batch()
                        .ok_or_else(|| self.damaged("a dictionary is missing"))?;
                    if let Some(data) = dictionary.data() {
                        check_buffers(&data, &body).map_err(|reason| self.damaged(reason))?;
                    }
                    let (schema, version) = (self.schema.clone(), message.version());
                    let dictionaries = Arc::make_mut(&mut self.dictionaries);
                    read_dictionary(&body, dictionary, &schema, dictionaries, &version)
                        .map_err(|error| damaged(&self.name, FORMAT, error))?;
                }
                _ => return Err(self.damaged("a message is neither rows nor a dictionary")),
            }
        }
        Ok(None)
    }
}

/// Checks the buffers that a message claims before Arrow's decoder trusts them; returns how many bytes
/// decompressing them gives.
fn check_buffers(batch: &BatchMessage<'_>, body: &Buffer) -> Result<u64, String> {
    let mut decompressed = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).map_err(|_| "a buffer has a negative place")?;
        let length = usize::try_from(buffer.length()).map_err(|_| "a buffer has a negative length")?;
        let bytes = start
            .checked_add(length)
            .and_then(|end| body.get(start..end))
            .ok_or("a buffer lies outside its message")?;
        if batch.compression().is_some()
            && let Some(claim) = bytes.first_chunk::<8>()
        {
            // -1 stands for "not compressed".
            let claim = u64::try_from(i64::from_le_bytes(*claim)).unwrap_or(0);
            decompressed = decompressed.saturating_add(claim);
        }
    }
    if decompressed > DECOMPRESSED_BYTES_MAX {
        return Err(format!("a message claims to hold {decompressed} bytes"));
    }
    Ok(decompressed)
}

/// Decodes messages of one file into rows of the table.
pub(crate) struct Parser {
    name: Arc<str>,
    file_schema: SchemaRef,
    /// The columns of the file that are needed, ascending.
    needed: Vec<usize>,
    /// For each output column, its position in `needed`; `None` for a column that the file lacks, which is
    /// NULL.
    sources: Vec<Option<usize>>,
    schema: SchemaRef,
}

impl Parser {
    fn parse(&self, message: &RowsMessage) -> Result<RecordBatch> {
        let failed = |error: &dyn std::fmt::Display| damaged(&self.name, FORMAT, error);
        let root = root_as_message(&message.metadata).map_err(|error| failed(&error))?;
        let header = root.header_as_record_batch().ok_or_else(|| failed(&"a message has no rows"))?;
        check_buffers(&header, &message.body).map_err(|reason| failed(&reason))?;
        let rows =
            usize::try_from(header.length()).map_err(|_| failed(&"a message has less than no rows"))?;
        let version: MetadataVersion = root.version();
        let batch = read_record_batch(
            &message.body,
            header,
            self.file_schema.clone(),
            &message.dictionaries,
            Some(&self.needed),
            &version,
        )
        .and_then(checked)
        .map_err(|error| failed(&error))?;
        let columns = self
            .sources
            .iter()
            .zip(self.schema.fields())
            .map(|(source, field)| match source {
                Some(source) if batch.column(*source).data_type() == field.data_type() => {
                    Ok(batch.column(*source).clone())
                }
                Some(source) => {
                    cast(batch.column(*source), field.data_type()).map_err(|error| failed(&error))
                }
                None => Ok(new_null_array(field.data_type(), rows)),
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| failed(&error))
    }
}

impl Chunked for Ipc {
    type Reader = Messages;
    type Chunk = RowsMessage;
    type Parser = Parser;

    const NAME: &'static str = FORMAT;

    fn open(&self, index: usize, projection: &[usize], _: &[FieldRef]) -> Result<(Messages, Parser)> {
        let messages = Messages::open(&self.files[index])?;
        let file_schema = messages.schema.clone();
        let schema = self.schema.project(projection).map_err(|error| messages.damaged(error))?;
        let in_file: Vec<Option<usize>> =
            schema.fields().iter().map(|field| file_schema.index_of(field.name()).ok()).collect();
        let mut needed: Vec<usize> = in_file.iter().flatten().copied().collect();
        needed.sort_unstable();
        needed.dedup();
        let sources = in_file
            .iter()
            .map(|column| column.and_then(|column| needed.binary_search(&column).ok()))
            .collect();
        let name = messages.name.clone();
        Ok((messages, Parser { name, file_schema, needed, sources, schema: Arc::new(schema) }))
    }

    fn read(&self, reader: &mut Messages) -> Result<Option<(RowsMessage, u64)>> {
        Ok(reader.next()?.map(|message| (message, reader.bytes_taken)))
    }

    fn row_bytes(message: &RowsMessage) -> usize {
        let root = root_as_message(&message.metadata).ok();
        let header = root.and_then(|root| root.header_as_record_batch());
        let claimed = header.and_then(|header| check_buffers(&header, &message.body).ok());
        // Uncompressed rows keep using the body's memory.
        message.body.len() + claimed.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0)
    }

    fn parse(&self, parser: &Parser, message: RowsMessage) -> Result<Vec<RecordBatch>> {
        Ok(vec![parser.parse(&message)?])
    }
}
