//! What can go wrong, said so that a person can act on it.
//!
//! An error has a message (what happened, to which object), and where they help a detail (the
//! evidence), a hint (what to do) and the place in the SQL text. It prints itself in one line;
//! [`Error::report`] adds the SQL with a caret.

use std::fmt;
use std::ops::Range;

/// `Result` with Keirin's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error: what a caller could do differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The SQL text does not parse.
    Syntax,
    /// A table, column, function, setting or file that the SQL names does not exist.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The SQL parses but makes no sense: types, argument counts, grouping.
    Invalid,
    /// Data that cannot be what it claims to be: a malformed file, a value that does not convert.
    Data,
    /// Reading or writing failed.
    Io,
    /// A memory or disk limit was reached.
    Resources,
    /// The statement is right but not supported.
    Unsupported,
    /// Another statement changed the same data at the same time; the statement can be run again.
    Conflict,
    /// The query was cancelled.
    Cancelled,
    /// Keirin broke one of its own promises; please report it.
    Internal,
}

impl ErrorKind {
    /// The five-character SQLSTATE (SQL:2023 part 2, and PostgreSQL's appendix A where that is silent).
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::Syntax => "42601",
            Self::NotFound => "42P01",
            Self::AlreadyExists => "42P07",
            Self::Invalid => "42000",
            Self::Data => "22000",
            Self::Io => "58030",
            Self::Resources => "53000",
            Self::Unsupported => "0A000",
            Self::Conflict => "40001",
            Self::Cancelled => "57014",
            Self::Internal => "XX000",
        }
    }
}

/// An error of the engine: message, detail, hint and the place in the SQL.
#[derive(Clone, Debug)]
pub struct Error {
    // Boxed, so that a `Result` of a small value stays small.
    parts: Box<Parts>,
}

#[derive(Clone, Debug)]
struct Parts {
    kind: ErrorKind,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    span: Option<Range<usize>>,
}

impl Error {
    /// An error with a message: lower case, no full stop, the object and its kind named.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let parts = Parts { kind, message: message.into(), detail: None, hint: None, span: None };
        Self { parts: Box::new(parts) }
    }

    /// Adds the evidence.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.parts.detail = Some(detail.into());
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.parts.hint = Some(hint.into());
        self
    }

    /// Adds the position in the SQL text, as a range of bytes.
    #[must_use]
    pub fn with_span(mut self, span: Range<usize>) -> Self {
        self.parts.span = Some(span);
        self
    }

    /// What a caller could do differently.
    pub fn kind(&self) -> ErrorKind {
        self.parts.kind
    }

    /// What happened, in one sentence.
    pub fn message(&self) -> &str {
        &self.parts.message
    }

    /// The evidence, if there is more than the message says.
    pub fn detail(&self) -> Option<&str> {
        self.parts.detail.as_deref()
    }

    /// What to do, if known.
    pub fn hint(&self) -> Option<&str> {
        self.parts.hint.as_deref()
    }

    /// The position in the SQL text, as a range of bytes, if the error has one.
    pub fn span(&self) -> Option<Range<usize>> {
        self.parts.span.clone()
    }

    /// The SQLSTATE of [`Self::kind`].
    pub fn sqlstate(&self) -> &'static str {
        self.kind().sqlstate()
    }

    /// The error over several lines: message, the line of `sql` with a caret under the culprit, detail and
    /// hint. `sql` is the text that the failing call was given.
    pub fn report(&self, sql: &str) -> String {
        let mut text = format!("error: {}\n", self.message());
        if let Some(span) =
            self.span().filter(|span| span.start <= sql.len() && sql.is_char_boundary(span.start))
        {
            text.push_str(&caret(sql, &span));
        }
        for (label, part) in [("detail", self.detail()), ("hint", self.hint())] {
            if let Some(part) = part {
                text.push_str(&format!("{label}: {part}\n"));
            }
        }
        text
    }
}

/// Characters of a line shown around the culprit.
const LINE_SHOWN_MAX: usize = 96;

/// The line of `sql` that holds the start of `span`, with carets under the span. A long line is cut on both
/// sides.
fn caret(sql: &str, span: &Range<usize>) -> String {
    let line_start = sql[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = sql[span.start..].find('\n').map_or(sql.len(), |newline| span.start + newline);
    let line_number = sql[..span.start].matches('\n').count() + 1;
    let before: Vec<char> = sql[line_start..span.start].chars().collect();
    let end = span.end.clamp(span.start, line_end);
    let width =
        sql.get(span.start..end).map_or(1, |culprit| culprit.chars().count().max(1)).min(LINE_SHOWN_MAX);
    let after: Vec<char> = sql[span.start..line_end].trim_end().chars().collect();

    let is_long = before.len() + after.len() > LINE_SHOWN_MAX;
    let room = if is_long { LINE_SHOWN_MAX.saturating_sub(width) / 2 } else { LINE_SHOWN_MAX };
    let (left_cut, right_cut) = (before.len() > room, is_long && after.len() > width + room);
    let before = &before[if left_cut { before.len() - room } else { 0 }..];
    let after = &after[..if right_cut { width + room } else { after.len() }];

    let margin = format!("  line {line_number}: {}", if left_cut { "..." } else { "" });
    let indent: String = before.iter().map(|&c| if c == '\t' { '\t' } else { ' ' }).collect();
    let line: String = before.iter().chain(after).collect();
    let tail = if right_cut { "..." } else { "" };
    format!("{margin}{line}{tail}\n{}{indent}{}\n", " ".repeat(margin.len()), "^".repeat(width))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_culprit() {
        let check = |sql: &str, culprit: &str, expected: &str| {
            let start = sql.find(culprit).unwrap();
            assert_eq!(caret(sql, &(start..start + culprit.len())), expected);
        };
        check("SELECT x", "x", "  line 1: SELECT x\n                 ^\n");
        check("SELECT\n\tübel, foo", "foo", "  line 2: \tübel, foo\n          \t      ^^^\n");
        let long = format!("SELECT {}, foo, {} FROM t", "a".repeat(200), "b".repeat(200));
        let shown = caret(&long, &(209..212));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("  line 1: ...aaa") && lines[0].ends_with("bbb..."), "{shown}");
        assert_eq!(lines[0].find("foo"), lines[1].find("^^^"));
    }
}
