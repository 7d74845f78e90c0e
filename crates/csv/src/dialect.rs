//! How a file writes its records.

/// The punctuation of a file, detected or given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// The byte between two fields.
    pub delimiter: u8,
    /// The byte around a field; it counts only where a field begins.
    pub quote: Option<u8>,
    /// The byte that escapes the next one inside quotes; the quote itself if quotes are doubled.
    pub escape: Option<u8>,
    /// Lines that begin with it are skipped.
    pub comment: Option<u8>,
    /// The first record holds the names of the columns.
    pub header: bool,
    /// Lines to skip before the first record.
    pub skip_lines: u64,
}

/// What the loops need to know of a dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) delimiter: u8,
    pub(crate) quote: Option<u8>,
    /// An escape that is not the quote.
    pub(crate) escape: Option<u8>,
    /// A quote inside quotes is written twice.
    pub(crate) doubled: bool,
    pub(crate) comment: Option<u8>,
}

impl Dialect {
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            delimiter: self.delimiter,
            quote: self.quote,
            escape: self.escape.filter(|_| self.quote.is_some() && self.escape != self.quote),
            doubled: self.quote.is_some() && self.escape == self.quote,
            comment: self.comment,
        }
    }
}
