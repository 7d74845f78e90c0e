//! Splits scripts into pieces: SQL up to a semicolon, or a line with a dot command.
//!
//! Lines are read one by one, without reading ahead, so that a script may be larger than memory and statements from
//! a pipe are answered as they come.

use std::io::BufRead;

use crate::error::{Failure, Result};

/// A piece of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// One or more statements.
    Sql { text: String, first_line: usize },
    /// A line that begins with a dot, or a usual word such as `exit`.
    Command { line: String, line_number: usize },
}

/// Splits the text of `reader` into pieces.
pub(crate) struct Script<R> {
    reader: R,
    source: Option<String>,
    line_number: usize,
}

impl<R: BufRead> Script<R> {
    /// `source` is the name of the text in errors, if it has one.
    pub(crate) fn new(reader: R, source: Option<String>) -> Self {
        Self { reader, source, line_number: 0 }
    }

    pub(crate) fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// The next piece; `None` at the end.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Piece>> {
        let mut text = String::new();
        let mut first_line = self.line_number + 1;
        while let Some(line) = self.line()? {
            if is_command(&line) && is_blank(&text) {
                let line = line.trim().trim_end_matches(';').trim_end().to_owned();
                return Ok(Some(Piece::Command { line, line_number: self.line_number }));
            }
            if text.is_empty() {
                if line.trim().is_empty() {
                    continue;
                }
                first_line = self.line_number;
            }
            text.push_str(&line);
            if line.contains(';') && keirin::is_complete(&text) {
                break;
            }
        }
        Ok((!text.is_empty()).then_some(Piece::Sql { text, first_line }))
    }

    fn line(&mut self) -> Result<Option<String>> {
        let name = |source: Option<&str>| source.unwrap_or("standard input").to_owned();
        let mut bytes = Vec::new();
        let read = self.reader.read_until(b'\n', &mut bytes);
        if read.map_err(|error| Failure::file(format!("read {}", name(self.source())), error))? == 0 {
            return Ok(None);
        }
        self.line_number += 1;
        if self.line_number == 1 {
            if bytes.starts_with(b"\xef\xbb\xbf") {
                bytes.drain(..3);
            }
            // The line of a script that names its interpreter.
            if bytes.starts_with(b"#!") {
                bytes = b"\n".to_vec();
            }
        }
        String::from_utf8(bytes).map(Some).map_err(|error| {
            let (line, byte) = (self.line_number, error.utf8_error().valid_up_to() + 1);
            Failure::command(format!("{}, line {line}: byte {byte} is not UTF-8", name(self.source())))
        })
    }
}

/// Whether a line is a command of the shell rather than SQL.
pub(crate) fn is_command(line: &str) -> bool {
    let line = line.trim();
    let word = line.trim_end_matches(';').trim_end();
    line.starts_with(['.', '\\'])
        || ["exit", "quit", "help"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether the text has nothing but comments.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty() || keirin::parse(text).is_ok_and(|statements| statements.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str, first_line: usize) -> Piece {
        Piece::Sql { text: text.to_owned(), first_line }
    }

    fn command(line: &str, line_number: usize) -> Piece {
        Piece::Command { line: line.to_owned(), line_number }
    }

    #[test]
    fn scripts_are_cut_at_semicolons_and_dots() {
        let check = |text: &[u8], expected: &[Piece]| {
            let mut script = Script::new(text, None);
            let mut pieces = Vec::new();
            while let Some(piece) = script.next_piece().unwrap() {
                pieces.push(piece);
            }
            assert_eq!(pieces, expected, "{}", String::from_utf8_lossy(text));
        };
        check(b"", &[]);
        check(b"\n\n", &[]);
        check(b"SELECT 1", &[sql("SELECT 1", 1)]);
        check(b"SELECT 1;\nSELECT 2;\n", &[sql("SELECT 1;\n", 1), sql("SELECT 2;\n", 2)]);
        check(b"\nSELECT\n  ';'\n;\n.tables;\n", &[sql("SELECT\n  ';'\n;\n", 2), command(".tables", 5)]);
        check(b"-- about\n.mode csv\nSELECT 1", &[command(".mode csv", 2), sql("SELECT 1", 3)]);
        check(b"SELECT\n.5;", &[sql("SELECT\n.5;", 1)]);
        check(b"exit;\n", &[command("exit", 1)]);
        check(b"SELECT a AS\nexit;", &[sql("SELECT a AS\nexit;", 1)]);
        check(b"#!/usr/bin/env -S keirin -f\nSELECT 1;", &[sql("SELECT 1;", 2)]);
        check(b"\xef\xbb\xbfSELECT 1;", &[sql("SELECT 1;", 1)]);
    }

    #[test]
    fn bytes_that_are_no_text_are_named() {
        let mut script = Script::new(&b"SELECT 1;\nab\xff;"[..], Some("a.sql".to_owned()));
        script.next_piece().unwrap();
        let failure = script.next_piece().unwrap_err();
        assert_eq!(failure.report(), "error: a.sql, line 2: byte 3 is not UTF-8\n");
    }
}
