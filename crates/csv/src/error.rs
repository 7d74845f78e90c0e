//! What can go wrong, with the evidence: file, line, column, value, what was expected.

use std::{fmt, io, sync::Arc};

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read or decompressed.
    #[error("cannot read {file}")]
    Io {
        /// The file.
        file: Arc<str>,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// An option has a value that cannot be used.
    #[error("option {option} = '{value}' {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The file is not text that this crate reads.
    #[error("{file} is {found}, not delimited text in UTF-8")]
    NotText {
        /// The file.
        file: Arc<str>,
        /// What the file looks like.
        found: &'static str,
    },
    /// The columns of a file do not fit those of the table.
    #[error("{file}: {problem}")]
    Columns {
        /// The file.
        file: Arc<str>,
        /// What does not fit.
        problem: String,
    },
    /// A record is bad.
    #[error("{0}")]
    Record(Box<Reject>),
    /// Arrow refused to build a batch: a defect of this crate, or a type that cannot hold the values.
    #[error("cannot build a batch of {file}")]
    Arrow {
        /// The file.
        file: Arc<str>,
        /// What Arrow said.
        source: arrow::error::ArrowError,
    },
}

impl Error {
    pub(crate) fn option(option: &'static str, value: String, problem: &str) -> Error {
        Error::Option { option, value, problem: problem.to_string() }
    }

    /// What the user can do about it, in the words of SQL options.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Record(reject) => reject.hint(),
            Error::NotText { found, .. } if found.starts_with("UTF-") => {
                Some("convert it first, for example with iconv -f UTF-16 -t UTF-8".to_string())
            }
            _ => None,
        }
    }
}

/// A record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The file.
    pub file: Arc<str>,
    /// The line where the record begins, from 1.
    pub line: u64,
    /// The offset of the record's first byte in the decompressed file.
    pub byte_offset: u64,
    /// The field that is bad, counted from 1 in the file; `None` when the whole record is.
    pub column_number: Option<usize>,
    /// The name of that column.
    pub column: Option<String>,
    /// The bad value, shortened.
    pub value: Option<String>,
    /// What should have been there, for example `BIGINT`.
    pub expected: Option<String>,
    /// What is wrong.
    pub error: String,
    /// The raw text of the record without its line end, cut to 4 KiB.
    pub text: String,
    pub(crate) flaw: Flaw,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A value does not have the type of its column.
    Value,
    /// Text is not UTF-8.
    Encoding,
    /// Too many or too few fields.
    Width,
    /// Text between a closing quote and the next delimiter.
    AfterQuote,
    /// A quote that is never closed.
    Unterminated,
    /// Longer than the limit.
    TooLong,
}

impl Reject {
    /// What the user can do about it, in the words of SQL options.
    pub fn hint(&self) -> Option<String> {
        let skip = "leave such lines out with ignore_errors = true";
        Some(match (self.flaw, &self.column) {
            (Flaw::Value, Some(column)) => {
                format!(
                    "read the column as text with types = {{'{}': 'VARCHAR'}}, or {skip}",
                    column.replace('\'', "''")
                )
            }
            (Flaw::Encoding, _) => format!("convert the file to UTF-8, or {skip}"),
            (Flaw::Width, _) => format!("fill short lines with NULL by null_padding = true, or {skip}"),
            (Flaw::AfterQuote | Flaw::Unterminated, _) => {
                format!("set quote = '' if quotes are ordinary text, or {skip}")
            }
            (Flaw::TooLong, _) => format!("raise max_line_size, or {skip}"),
            (Flaw::Value, None) => skip.to_string(),
        })
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)?;
        if let Some(number) = self.column_number {
            write!(f, ", column {number}")?;
        }
        if let Some(column) = &self.column {
            write!(f, " ({})", printable(column.as_bytes(), 80))?;
        }
        write!(f, ": {}", self.error)
    }
}

/// The text of hostile bytes for a message: shortened, without control characters.
pub(crate) fn printable(bytes: &[u8], limit_bytes: usize) -> String {
    let cut = &bytes[..bytes.len().min(limit_bytes)];
    let mut text = String::with_capacity(cut.len() + 3);
    for c in String::from_utf8_lossy(cut).chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    if cut.len() < bytes.len() {
        text.push_str("...");
    }
    text
}
