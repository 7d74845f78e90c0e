//! Arrow batches to files and pipes: CSV, TSV, JSON, JSON lines, Parquet, Arrow.
//!
//! [`BatchWriter`] writes to anything that takes bytes; `COPY ... TO` ([`copy`]) writes to a [`NewFile`],
//! which gets its name only when all is written.

mod copy;
mod csv;
mod json;
mod nested;
mod new_file;
mod parquet;
mod sink;

pub(crate) use copy::copy_to_file;
pub(crate) use nested::{INFINITY, MINUS_INFINITY, NAN};
pub use new_file::NewFile;

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};

use crate::error::{Error, ErrorKind, Result};
use crate::sources::files::{Options, system_reason};

/// A format that [`BatchWriter`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputFormat {
    /// Comma-separated values, RFC 4180, with a header line.
    Csv,
    /// The same with tabs.
    Tsv,
    /// One JSON array of objects.
    Json,
    /// One JSON object a line.
    JsonLines,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow's IPC file format.
    Arrow,
}

impl OutputFormat {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Csv, Self::Tsv, Self::Json, Self::JsonLines, Self::Parquet, Self::Arrow];

    /// The format by the extension of `path`: `x.parquet`, `x.csv.gz`.
    pub fn from_path(path: &str) -> Option<Self> {
        let lower = path.to_lowercase();
        let (stem, compression) = crate::sources::files::Compression::split(&lower);
        let format = match stem.rsplit_once('.')?.1 {
            "csv" => Self::Csv,
            "tsv" | "tab" => Self::Tsv,
            "json" => Self::Json,
            "jsonl" | "ndjson" => Self::JsonLines,
            "parquet" | "pq" | "parq" => Self::Parquet,
            "arrow" | "feather" | "ipc" => Self::Arrow,
            _ => return None,
        };
        (compression == crate::sources::files::Compression::None || format.is_text()).then_some(format)
    }

    /// The name of the format, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Json => "json",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    /// Whether it is a text format.
    pub fn is_text(self) -> bool {
        !matches!(self, Self::Parquet | Self::Arrow)
    }
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OutputFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name.to_lowercase().as_str() {
            "ndjson" | "jsonlines" => Ok(Self::JsonLines),
            "feather" | "ipc" => Ok(Self::Arrow),
            name => Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("there is no output format '{name}'"))
                    .with_hint(format!("formats are {}", Self::ALL.map(Self::name).join(", ")))
            }),
        }
    }
}

/// The compression of a file. Text formats take [`Gzip`](Self::Gzip) and [`Zstd`](Self::Zstd), Parquet takes
/// all, Arrow [`Zstd`](Self::Zstd) and [`Lz4`](Self::Lz4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputCompression {
    /// No compression.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// Google's Snappy.
    Snappy,
    /// LZ4 blocks.
    Lz4,
}

/// How batches are written. [`BatchWriter`] ignores options that do not apply to its format.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// The compression; by default Zstandard for Parquet, none for the others.
    pub compression: Option<OutputCompression>,
    /// The compression level; by default 1 for Parquet, and the codec's own default for the others.
    pub compression_level: Option<i32>,
    /// CSV: whether the first line has the names of the columns.
    pub header: bool,
    /// CSV: the byte between values; by default `,` or, for TSV, a tab.
    pub delimiter: Option<u8>,
    /// CSV: the byte around values that need quoting.
    pub quote: u8,
    /// CSV: whether every value that is not NULL is quoted.
    pub quote_all: bool,
    /// CSV: the text of NULL. A value equal to it is quoted.
    pub null: String,
    /// CSV and JSON: format of dates (chrono's `strftime`); by default ISO 8601.
    pub date_format: Option<String>,
    /// CSV and JSON: format of timestamps (chrono's `strftime`); by default ISO 8601.
    pub timestamp_format: Option<String>,
    /// Parquet: the most rows in a row group.
    pub row_group_rows: usize,
}

/// Rows of a Parquet row group: a million, as in Parquet's own writers.
const ROW_GROUP_ROWS: usize = 1 << 20;

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            compression: None,
            compression_level: None,
            header: true,
            delimiter: None,
            quote: b'"',
            quote_all: false,
            null: String::new(),
            date_format: None,
            timestamp_format: None,
            row_group_rows: ROW_GROUP_ROWS,
        }
    }
}

impl WriteOptions {
    /// The default options, with the compression by the extension of `path`: `x.csv.gz`.
    pub fn for_path(path: &str) -> Self {
        let compression = match crate::sources::files::Compression::split(path).1 {
            crate::sources::files::Compression::None => None,
            crate::sources::files::Compression::Gzip => Some(OutputCompression::Gzip),
            crate::sources::files::Compression::Zstd => Some(OutputCompression::Zstd),
        };
        Self { compression, ..Self::default() }
    }

    /// Takes the options that apply to `format` from `options`.
    fn take(mut self, format: OutputFormat, options: &mut Options<'_>) -> Result<Self> {
        if let Some(name) = options.text(&["compression", "codec"])? {
            self.compression = Some(parse_compression(name, format)?);
        }
        if let Some(level) = options.integer(&["compression_level"])? {
            let level = i32::try_from(level).ok().filter(|level| (-7..=22).contains(level));
            self.compression_level = Some(level.ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "option 'compression_level' takes a number from -7 to 22")
            })?);
        }
        if matches!(format, OutputFormat::Csv | OutputFormat::Tsv) {
            self.header = options.boolean(&["header"])?.unwrap_or(self.header);
            if let Some(delimiter) = options.character(&["delimiter", "delim", "sep"])? {
                self.delimiter = Some(delimiter.ok_or_else(|| {
                    Error::new(ErrorKind::Invalid, "option 'delimiter' takes one ASCII character, not ''")
                })?);
            }
            if let Some(quote) = options.character(&["quote"])? {
                self.quote = quote.ok_or_else(|| {
                    Error::new(ErrorKind::Invalid, "option 'quote' takes one ASCII character, not ''")
                })?;
            }
            self.quote_all = options.boolean(&["quote_all", "force_quote"])?.unwrap_or(self.quote_all);
            if let Some(null) = options.text(&["null", "nullstr"])? {
                self.null = null.to_owned();
            }
            let delimiter = self.delimiter.unwrap_or(if format == OutputFormat::Tsv { b'\t' } else { b',' });
            let parts = [delimiter, self.quote, b'\n', b'\r'];
            if self.null.bytes().any(|byte| parts.contains(&byte)) {
                let message =
                    format!("option 'null' is {:?}, which would not be read as one field", self.null);
                return Err(Error::new(ErrorKind::Invalid, message)
                    .with_hint("take a text without the delimiter, quotes and line ends"));
            }
        }
        if format.is_text() {
            if let Some(format) = options.text(&["date_format", "dateformat"])? {
                self.date_format = Some(format.to_owned());
            }
            if let Some(format) = options.text(&["timestamp_format", "timestampformat"])? {
                self.timestamp_format = Some(format.to_owned());
            }
        }
        if format == OutputFormat::Parquet
            && let Some(rows) = options.count(&["row_group_rows", "row_group_size"], 1)?
        {
            self.row_group_rows = rows;
        }
        Ok(self)
    }
}

fn parse_compression(name: &str, format: OutputFormat) -> Result<OutputCompression> {
    let compression = match name.to_lowercase().as_str() {
        "none" | "uncompressed" => Some(OutputCompression::None),
        "gzip" | "gz" => Some(OutputCompression::Gzip),
        "zstd" | "zst" => Some(OutputCompression::Zstd),
        "snappy" => Some(OutputCompression::Snappy),
        "lz4" | "lz4_raw" => Some(OutputCompression::Lz4),
        _ => None,
    };
    let possible: &[(OutputCompression, &str)] = match format {
        OutputFormat::Parquet => &[
            (OutputCompression::None, "none"),
            (OutputCompression::Zstd, "zstd"),
            (OutputCompression::Snappy, "snappy"),
            (OutputCompression::Lz4, "lz4"),
            (OutputCompression::Gzip, "gzip"),
        ],
        OutputFormat::Arrow => &[
            (OutputCompression::None, "none"),
            (OutputCompression::Zstd, "zstd"),
            (OutputCompression::Lz4, "lz4"),
        ],
        _ => &[
            (OutputCompression::None, "none"),
            (OutputCompression::Gzip, "gzip"),
            (OutputCompression::Zstd, "zstd"),
        ],
    };
    compression.filter(|wanted| possible.iter().any(|(known, _)| known == wanted)).ok_or_else(|| {
        let names: Vec<_> = possible.iter().map(|(_, name)| *name).collect();
        Error::new(ErrorKind::Invalid, format!("{format} has no compression '{name}'"))
            .with_hint(format!("it takes {}", names.join(", ")))
    })
}

/// Writes batches of one schema to `W`.
///
/// ```
/// # fn main() -> keirin::Result<()> {
/// use keirin::{BatchWriter, OutputFormat, WriteOptions};
///
/// let database = keirin::Database::in_memory()?;
/// let text = database.block_on(async {
///     let stream = database.session().sql("SELECT 1 AS n, NULL AS nothing, '' AS empty").await?;
///     let mut writer =
///         BatchWriter::new(OutputFormat::Csv, stream.schema(), &WriteOptions::default(), Vec::new())?;
///     for batch in stream.collect().await? {
///         writer.write(&batch)?;
///     }
///     writer.finish()
/// })?;
/// assert_eq!(text, b"n,nothing,empty\n1,,\"\"\n");
/// # Ok(())
/// # }
/// ```
pub struct BatchWriter<W: Write + Send> {
    inner: Inner<W>,
}

enum Inner<W: Write + Send> {
    Csv(csv::CsvWriter<W>),
    Json(json::JsonWriter<W>),
    Parquet(Box<parquet::ParquetWriter<W>>),
    Arrow(Box<FileWriter<std::io::BufWriter<W>>>),
}

impl<W: Write + Send> fmt::Debug for BatchWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").finish_non_exhaustive()
    }
}

impl<W: Write + Send> BatchWriter<W> {
    /// Starts the output; headers may be written at once.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the format cannot hold a column's type; [`ErrorKind::Io`] when `sink`
    /// fails.
    pub fn new(format: OutputFormat, schema: SchemaRef, options: &WriteOptions, sink: W) -> Result<Self> {
        let inner = match format {
            OutputFormat::Csv => Inner::Csv(csv::CsvWriter::new(schema, options, b',', sink)?),
            OutputFormat::Tsv => Inner::Csv(csv::CsvWriter::new(schema, options, b'\t', sink)?),
            OutputFormat::Json => Inner::Json(json::JsonWriter::new(true, &schema, options, sink)?),
            OutputFormat::JsonLines => Inner::Json(json::JsonWriter::new(false, &schema, options, sink)?),
            OutputFormat::Parquet => {
                Inner::Parquet(Box::new(parquet::ParquetWriter::new(schema, options, sink)?))
            }
            OutputFormat::Arrow => {
                let compression = match options.compression {
                    Some(OutputCompression::Zstd) => Some(CompressionType::ZSTD),
                    Some(OutputCompression::Lz4) => Some(CompressionType::LZ4_FRAME),
                    _ => None,
                };
                let ipc = IpcWriteOptions::default().try_with_compression(compression).map_err(failed)?;
                let buffered = std::io::BufWriter::new(sink);
                let writer = FileWriter::try_new_with_options(buffered, &schema, ipc).map_err(failed)?;
                Inner::Arrow(Box::new(writer))
            }
        };
        Ok(Self { inner })
    }

    /// Writes one batch; text reaches the sink before this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the sink fails; [`ErrorKind::Data`] when a value cannot be written, such as a
    /// timestamp beyond the calendar.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.inner {
            Inner::Csv(writer) => writer.write(batch),
            Inner::Json(writer) => writer.write(batch),
            Inner::Parquet(writer) => writer.write(batch),
            Inner::Arrow(writer) => writer.write(batch).map_err(failed),
        }
    }

    /// Writes the rest and returns the sink. Without this call the output is incomplete.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn finish(self) -> Result<W> {
        match self.inner {
            Inner::Csv(writer) => writer.finish(),
            Inner::Json(writer) => writer.finish(),
            Inner::Parquet(writer) => writer.finish(),
            Inner::Arrow(mut writer) => {
                writer.finish().map_err(failed)?;
                let buffered = writer.into_inner().map_err(failed)?;
                buffered.into_inner().map_err(|error| write_failed(error.error()))
            }
        }
    }
}

/// The error of a sink.
fn write_failed(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write: {}", system_reason(error)))
}

/// The error of an Arrow writer.
fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => write_failed(&error),
        ArrowError::NotYetImplemented(message) => Error::new(ErrorKind::Unsupported, message),
        error => Error::new(ErrorKind::Data, format!("cannot write: {error}")),
    }
}
