//! Finds the ends of records, about as fast as memory can be searched, in a buffer that may stop anywhere.
//!
//! A quote opens only at the beginning of a field; a line end inside quotes does not end the record.
//! [`Tokenizer`](crate::tokenize::Tokenizer) applies the same rules to whole records; the two must agree
//! on every byte, which the tests of `reader.rs` check with tiny chunks.

use memchr::{memchr, memchr2, memchr3};

use crate::{
    dialect::Shape,
    mask::{mask_of, parity, with_block},
};

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

/// Walks over a buffer record by record; at the end of the buffer it can go on with a longer one.
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

/// Where the last record of a buffer ends (0 if none does), as the scanner would find it but faster: without a
/// quote it is the last line end; else a byte is inside quotes when the number of quotes before it is odd. The
/// latter holds only if every opening quote stands where a field begins; if one does not, or the scanner has an
/// error to report, the answer is `None`.
pub(crate) fn last_end(shape: Shape, buffer: &[u8], last: bool) -> Option<usize> {
    if shape.comment.is_some() || shape.escape.is_some() || shape.quote.is_some() && !shape.doubled {
        return None;
    }
    // Whether a CR at the end of the buffer ends the line depends on the next byte.
    let text = if last { buffer } else { buffer.strip_suffix(b"\r").unwrap_or(buffer) };
    let quoted = shape.quote.filter(|&quote| memchr(quote, text).is_some());
    let end = match quoted {
        None => memchr::memrchr2(b'\n', b'\r', text).map_or(0, |at| at + 1),
        Some(quote) => last_end_by_parity(text, quote, shape.delimiter, last)?,
    };
    Some(if last { buffer.len() } else { end })
}

fn last_end_by_parity(text: &[u8], quote: u8, delimiter: u8, last: bool) -> Option<usize> {
    let mut end = 0;
    let mut inside = 0;
    let mut field_begins = 1;
    for base in (0..text.len()).step_by(64) {
        let (quotes, line_ends, delimiters) = with_block(text, base, |block| {
            let line_end = |byte: u8| (byte == b'\n') | (byte == b'\r');
            (
                mask_of(block, |byte| byte == quote),
                mask_of(block, line_end),
                mask_of(block, |b| b == delimiter),
            )
        });
        let within = parity(quotes) ^ inside;
        inside = if within >> 63 == 1 { !0 } else { 0 };
        // A quote right after a closing one forms a pair with it and opens again.
        let before_field = quotes | line_ends | delimiters;
        if quotes & within & !(before_field << 1 | field_begins) != 0 {
            return None;
        }
        field_begins = before_field >> 63;
        let ends = line_ends & !within;
        if ends != 0 {
            end = base + 64 - ends.leading_zeros() as usize;
        }
    }
    (!last || inside == 0).then_some(end)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fast_ways_find_what_the_scanner_finds(
            text in "([ab,]{0,30}|\"[ab,\n]{0,20}(\"\")?\"|[a\"\r\n ]{0,3}|,|\n){0,40}",
            last in any::<bool>(),
            quote in prop::sample::select(vec![None, Some(b'"')]),
        ) {
            let shape = Shape { delimiter: b',', quote, escape: None, doubled: quote.is_some(), comment: None };
            let mut scanner = Scanner::new(shape);
            let mut end = 0;
            let stop = loop {
                match scanner.next(text.as_bytes(), last) {
                    // At the end of the file the scanner stops after the last record.
                    Scan::End(at) => end = at,
                    stop => break stop,
                }
            };
            match last_end(shape, text.as_bytes(), last) {
                Some(fast) => prop_assert_eq!((fast, stop), (end, Scan::More)),
                None => prop_assert!(text.contains('"')),
            }
        }
    }
}
