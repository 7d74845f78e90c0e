//! What a caller may say about a file. Everything left out is detected from the file itself.

use arrow::{array::ArrayRef, datatypes::DataType, error::ArrowError};

use crate::error::Error;

/// How the bytes of a file are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Plain text.
    None,
    /// gzip (RFC 1952), one or several members.
    Gzip,
    /// Zstandard (RFC 8878), one or several frames.
    Zstd,
}

/// Converts texts to a type, all of them or none.
pub type Cast = fn(&ArrayRef, &DataType) -> Result<ArrayRef, ArrowError>;

/// Settings of one read. `None` (and empty lists) mean: detect it.
///
/// The outer `Option` of [`quote`](Self::quote), [`escape`](Self::escape) and
/// [`comment`](Self::comment) says whether the caller decided, the inner one whether there is one.
#[derive(Debug, Clone)]
pub struct Options {
    /// The byte between two fields.
    pub delimiter: Option<u8>,
    /// The byte around a field that may contain delimiters and line ends. It counts only where a field
    /// begins; elsewhere it is an ordinary character.
    pub quote: Option<Option<u8>>,
    /// The byte that takes the special meaning from the next one, inside quotes only. The same byte as
    /// the quote means that a quote is written twice (RFC 4180).
    pub escape: Option<Option<u8>>,
    /// Lines that begin with this byte are skipped.
    pub comment: Option<Option<u8>>,
    /// Whether the first record holds the names of the columns.
    pub header: Option<bool>,
    /// Lines to skip before anything else is read.
    pub skip_lines: Option<u64>,
    /// The texts that stand for NULL, in all columns; replaces the built-in choice.
    pub nulls: Option<Vec<String>>,
    /// Names of the columns, from the left; they replace those of a header.
    pub columns: Vec<String>,
    /// A first line of such names, whatever their case and order, is a header.
    pub header_names: Vec<String>,
    /// A first line of other words is not a header: the names are those of the table that is loaded.
    pub no_other_header: bool,
    /// Types of columns by name; columns not named are detected.
    pub types: Vec<(String, DataType)>,
    /// How texts become lists and other nested values, and bytes of a fixed length; Arrow's cast if it is not said.
    pub cast: Option<Cast>,
    /// Every column without a type of its own is text.
    pub all_text: bool,
    /// The format of dates, as for `strftime`, for example `%d/%m/%Y`.
    pub date_format: Option<String>,
    /// The format of timestamps, as for `strftime`, for example `%d/%m/%Y %H:%M`.
    pub timestamp_format: Option<String>,
    /// How the file is compressed; detected from its first bytes.
    pub compression: Option<Compression>,
    /// Bytes (decompressed) to detect from.
    pub sample_bytes: usize,
    /// Records to detect from, at most.
    pub sample_rows: usize,
    /// Leave out bad records and hand them back as rejects, instead of failing. Values are looked at only
    /// in the columns that are read; the number of fields always is.
    pub ignore_errors: bool,
    /// A record with too few fields is filled up with NULL.
    pub null_padding: bool,
    /// The longest record, in bytes; what is longer is an error, so that memory stays bounded.
    pub max_line_bytes: usize,
    /// Bytes (decompressed) to cut a chunk at; a longer record gets a chunk of its own.
    pub chunk_bytes: usize,
    /// Rows in a batch, at most.
    pub batch_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            delimiter: None,
            quote: None,
            escape: None,
            comment: None,
            header: None,
            skip_lines: None,
            nulls: None,
            columns: Vec::new(),
            header_names: Vec::new(),
            no_other_header: false,
            types: Vec::new(),
            cast: None,
            all_text: false,
            date_format: None,
            timestamp_format: None,
            compression: None,
            sample_bytes: 1 << 20,
            sample_rows: 20_480,
            ignore_errors: false,
            null_padding: false,
            max_line_bytes: 16 << 20,
            chunk_bytes: 2 << 20,
            batch_rows: 8192,
        }
    }
}

/// Offsets in a chunk are 30 bits wide (see `tokenize.rs`); a chunk is at most about one chunk target and
/// twice the longest record.
const MAX_LINE_BYTES: usize = 256 << 20;
const MAX_CHUNK_BYTES: usize = 64 << 20;

impl Options {
    /// Refuses settings that contradict each other or that no file can be read with.
    pub fn check(&self) -> Result<(), Error> {
        let single = [
            ("delimiter", self.delimiter),
            ("quote", self.quote.flatten()),
            ("escape", self.escape.flatten()),
            ("comment", self.comment.flatten()),
        ];
        for (name, byte) in single {
            let Some(byte) = byte else { continue };
            if !byte.is_ascii() || matches!(byte, 0 | b'\n' | b'\r') {
                return Err(Error::option(
                    name,
                    show(byte),
                    "must be one ASCII character, no line end and no NUL",
                ));
            }
            for (other_name, other) in single {
                let twice = name != other_name && Some(byte) == other;
                if twice
                    && !(name == "quote" && other_name == "escape"
                        || name == "escape" && other_name == "quote")
                {
                    return Err(Error::option(name, show(byte), &format!("is the {other_name} as well")));
                }
            }
        }
        let sizes = [
            ("sample_size", self.sample_bytes, 1, usize::MAX),
            ("sample_rows", self.sample_rows, 1, usize::MAX),
            ("max_line_size", self.max_line_bytes, 1, MAX_LINE_BYTES),
            ("chunk_bytes", self.chunk_bytes, 1, MAX_CHUNK_BYTES),
            ("batch_rows", self.batch_rows, 1, 1 << 20),
        ];
        for (name, value, low, high) in sizes {
            if !(low..=high).contains(&value) {
                return Err(Error::option(
                    name,
                    value.to_string(),
                    &format!("must lie between {low} and {high}"),
                ));
            }
        }
        for (name, format) in
            [("date_format", &self.date_format), ("timestamp_format", &self.timestamp_format)]
        {
            if let Some(format) = format {
                let mut items = chrono::format::StrftimeItems::new(format);
                if items.any(|item| matches!(item, chrono::format::Item::Error)) {
                    return Err(Error::option(
                        name,
                        format.clone(),
                        "is not a format such as %Y-%m-%d %H:%M:%S",
                    ));
                }
            }
        }
        Ok(())
    }
}

fn show(byte: u8) -> String {
    byte.escape_ascii().to_string()
}

/// The texts that mean NULL. An unquoted match is NULL in any column; a quoted one only in columns that are not
/// text, where it can mean nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Nulls {
    text: Spellings,
    typed: Spellings,
}

/// Spellings of NULL, with a quick test that excludes most cells.
#[derive(Debug, Clone)]
struct Spellings {
    texts: Vec<Vec<u8>>,
    /// Whether the empty text is one of them.
    empty: bool,
    /// The bytes that one of them begins with.
    first: [bool; 256],
}

impl Spellings {
    fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Spellings {
        let texts: Vec<Vec<u8>> = texts.into_iter().map(|text| text.as_bytes().to_vec()).collect();
        let mut first = [false; 256];
        texts.iter().filter_map(|text| text.first()).for_each(|&byte| first[usize::from(byte)] = true);
        Spellings { empty: texts.iter().any(Vec::is_empty), texts, first }
    }

    #[inline]
    fn contain(&self, cell: &[u8]) -> bool {
        match cell.first() {
            None => self.empty,
            Some(&byte) => self.first[usize::from(byte)] && self.texts.iter().any(|text| text == cell),
        }
    }
}

impl Nulls {
    /// Text columns take few spellings, because `NA` may be Namibia; among numbers it can only mean NULL.
    const TEXT: [&str; 3] = ["", "NULL", "\\N"];
    const TYPED: [&str; 10] = ["", "NULL", "null", "Null", "\\N", "NA", "N/A", "n/a", "#N/A", "None"];

    pub(crate) fn new(given: Option<&[String]>) -> Nulls {
        match given {
            None => Nulls { text: Spellings::new(Self::TEXT), typed: Spellings::new(Self::TYPED) },
            Some(list) => {
                let list = Spellings::new(list.iter().map(String::as_str));
                Nulls { text: list.clone(), typed: list }
            }
        }
    }

    #[inline]
    pub(crate) fn text(&self, cell: &[u8]) -> bool {
        self.text.contain(cell)
    }

    #[inline]
    pub(crate) fn typed(&self, cell: &[u8]) -> bool {
        self.typed.contain(cell) || self.typed.contain(cell.trim_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_options_are_refused_by_name() {
        let check = |change: fn(&mut Options), expected: &str| {
            let mut options = Options::default();
            change(&mut options);
            assert_eq!(options.check().unwrap_err().to_string(), expected);
        };
        check(
            |o| o.delimiter = Some(b'\n'),
            "option delimiter = '\\n' must be one ASCII character, no line end and no NUL",
        );
        check(
            |o| o.delimiter = Some(0xE9),
            "option delimiter = '\\xe9' must be one ASCII character, no line end and no NUL",
        );
        check(
            |o| {
                o.delimiter = Some(b'"');
                o.quote = Some(Some(b'"'));
            },
            "option delimiter = '\\\"' is the quote as well",
        );
        check(|o| o.batch_rows = 0, "option batch_rows = '0' must lie between 1 and 1048576");
        check(
            |o| o.date_format = Some("%Q".into()),
            "option date_format = '%Q' is not a format such as %Y-%m-%d %H:%M:%S",
        );
    }
}
