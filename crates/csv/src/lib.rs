//! Delimited text (CSV, TSV and their kin) as Arrow columns.
//!
//! The life of a file: a [`Source`] decompresses it, [`Source::detect`] tells dialect, names and types
//! from a sample, [`unify`] makes one table of several files, a [`ChunkReader`] cuts the text into chunks
//! of whole records, and a [`ChunkParser`] turns chunks into record batches on as many threads as there
//! are.
//!
//! ```
//! use keirin_csv::{ChunkParser, ChunkReader, Options, Source};
//!
//! let text = "city,people\nOslo,717710\nBergen,\n";
//! let options = Options::default();
//! let mut source = Source::new("cities.csv", text.as_bytes(), options.compression)?;
//! let detected = source.detect(&options)?;
//! let parser = ChunkParser::new(&detected, &detected, None, &options)?;
//! let mut reader = ChunkReader::new(source, &detected, &options);
//! let mut rows = 0;
//! while let Some(chunk) = reader.next_chunk()? {
//!     for batch in parser.parse(&chunk)?.batches {
//!         rows += batch.num_rows();
//!     }
//! }
//! assert_eq!(rows, 2);
//! assert_eq!(parser.schema().field(1).data_type(), &arrow::datatypes::DataType::Int64);
//! # Ok::<(), keirin_csv::Error>(())
//! ```
//!
//! # Rules
//! - A record ends at LF, CR LF or CR outside quotes. A quote counts only where a field begins.
//! - An unquoted empty field is NULL; a quoted one is an empty text. Other spellings of NULL: [`Options::nulls`].
//! - Blank lines are skipped; in a file of one column each is a NULL.
//! - A delimiter at the end of a line makes no field. Otherwise every record has as many fields as there
//!   are columns, or is bad.
//! - Types are detected so that no value of the sample loses anything; a later value that does not fit is
//!   an error that says where and what, or a [`Reject`].
//! - Any bytes may come: the answer is rows, rejects or an error, with memory bounded by
//!   [`Options::chunk_bytes`] and [`Options::max_line_bytes`].
//!
//! It knows text files, and nothing of SQL, plans or async.

#![forbid(unsafe_code)]

mod columns;
mod detect;
mod dialect;
mod error;
mod mask;
mod options;
mod parser;
mod pattern;
mod reader;
mod scan;
mod sniff;
mod source;
mod temporal;
mod tokenize;
mod types;
mod unify;
mod values;

pub use detect::{Column, Detected};
pub use dialect::Dialect;
pub use error::{Error, Reject};
pub use options::{Cast, Compression, Options};
pub use parser::{ChunkParser, Parsed};
pub use pattern::{Written, parse_with_pattern};
pub use reader::{Chunk, ChunkReader};
pub use source::Source;
pub use unify::unify;
