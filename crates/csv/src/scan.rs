//! Where records end, found as fast as memory is searched, in a buffer that may stop anywhere.
//!
//! A quote opens only at the beginning of a field; a line end inside quotes does not end the record.
//! [`Tokenizer`](crate::tokenize::Tokenizer) applies the same rules to whole records; the two must agree
//! on every byte, which the tests of `reader.rs` check with tiny chunks.

use memchr::{memchr, memchr2, memchr3};

use crate::dialect::Shape;

/// What a step of the scanner found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// A record ends before this offset; its line end is included.
    End(usize),
    /// The buffer stops within a record, or exactly between two.
    More,
    /// The file ends within quotes.
    Unterminated,
}

/// Walks over a buffer record by record; where the buffer stops it can go on with a longer one.
pub(crate) struct Scanner {
    shape: Shape,
    state: State,
    position: usize,
    record_start: usize,
}

enum State {
    Start,
    Comment,
    Plain,
    Quoted,
}

impl Scanner {
    pub(crate) fn new(shape: Shape) -> Scanner {
        Scanner { shape, state: State::Start, position: 0, record_start: 0 }
    }

    /// Finds the end of the next record. `last` says that the file ends with the buffer.
    pub(crate) fn next(&mut self, buffer: &[u8], last: bool) -> Scan {
        loop {
            let rest = &buffer[self.position..];
            match self.state {
                State::Start => match rest.first() {
                    None => return Scan::More,
                    Some(&byte) if self.shape.comment == Some(byte) => self.state = State::Comment,
                    Some(_) => self.state = State::Plain,
                },
                State::Comment => match memchr2(b'\n', b'\r', rest) {
                    Some(at) => return self.line_end(buffer, at, last),
                    None => return self.stop(buffer, last),
                },
                State::Plain => {
                    let found = match self.shape.quote {
                        Some(quote) => memchr3(quote, b'\n', b'\r', rest),
                        None => memchr2(b'\n', b'\r', rest),
                    };
                    let Some(at) = found else { return self.stop(buffer, last) };
                    if self.shape.quote != Some(rest[at]) {
                        return self.line_end(buffer, at, last);
                    }
                    let at = self.position + at;
                    if at == self.record_start || buffer[at - 1] == self.shape.delimiter {
                        self.state = State::Quoted;
                    }
                    self.position = at + 1;
                }
                State::Quoted => {
                    let quote = self.shape.quote.expect("only a quote opens quotes");
                    let found = match self.shape.escape {
                        Some(escape) => memchr2(quote, escape, rest),
                        None => memchr(quote, rest),
                    };
                    let Some(at) = found else {
                        self.position = buffer.len();
                        return if last { Scan::Unterminated } else { Scan::More };
                    };
                    let pair = self.shape.escape == Some(rest[at]);
                    match rest.get(at + 1) {
                        // Whether the quote closes depends on the byte after it.
                        None if !last => {
                            self.position += at;
                            return Scan::More;
                        }
                        None if pair => {
                            self.position += at + 1;
                            return Scan::Unterminated;
                        }
                        Some(_) if pair => self.position += at + 2,
                        Some(&next) if self.shape.doubled && next == quote => self.position += at + 2,
                        _ => {
                            self.position += at + 1;
                            self.state = State::Plain;
                        }
                    }
                }
            }
        }
    }

    fn line_end(&mut self, buffer: &[u8], at: usize, last: bool) -> Scan {
        let at = self.position + at;
        match line_end_bytes(&buffer[at..], last) {
            Some(bytes) => self.end(at + bytes),
            None => {
                self.position = at;
                Scan::More
            }
        }
    }

    fn stop(&mut self, buffer: &[u8], last: bool) -> Scan {
        self.position = buffer.len();
        if last { self.end(buffer.len()) } else { Scan::More }
    }

    fn end(&mut self, end: usize) -> Scan {
        self.position = end;
        self.record_start = end;
        self.state = State::Start;
        Scan::End(end)
    }
}

/// The length of the line end that `bytes` begins with: LF, CR or CR LF. `None` when the next byte is
/// needed to tell.
pub(crate) fn line_end_bytes(bytes: &[u8], last: bool) -> Option<usize> {
    match bytes {
        [b'\r', b'\n', ..] => Some(2),
        [b'\r'] if !last => None,
        _ => Some(1),
    }
}

/// The number of line ends in whole lines.
pub(crate) fn count_lines(bytes: &[u8]) -> u64 {
    let feeds = memchr::memchr_iter(b'\n', bytes).count();
    let lone_returns =
        memchr::memchr_iter(b'\r', bytes).filter(|&at| bytes.get(at + 1) != Some(&b'\n')).count();
    (feeds + lone_returns) as u64
}
