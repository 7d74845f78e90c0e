//! Fields of whole records.
//!
//! The plain version is a state machine over bytes: plain, quoted, after the closing quote, comment.
//! Departures from it:
//! 1. Only delimiters, quotes, escapes and line ends change the state. For 64 bytes at a time a bit mask
//!    of them is made (a loop the compiler turns into vector compares) and only its set bits are visited.
//! 2. A field is a pair of 30-bit offsets, with two flags in the spare bits of the second.

use crate::dialect::Shape;
use crate::error::Flaw;
use crate::mask::{mask_of, with_block};

/// One field: where its content lies, without quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    start: u32,
    end_and_flags: u32,
}

const QUOTED: u32 = 1 << 31;
const ESCAPED: u32 = 1 << 30;

impl Field {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "chunks are shorter than 1 GiB: Options::check")]
    fn new(start: usize, end: usize, flags: u32) -> Field {
        Field { start: start as u32, end_and_flags: end as u32 | flags }
    }

    /// An empty field.
    pub(crate) fn nothing(at: usize) -> Field {
        Field::new(at, at, 0)
    }

    /// The content, still with its escapes.
    #[inline]
    pub(crate) fn raw(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..(self.end_and_flags & !(QUOTED | ESCAPED)) as usize]
    }

    #[inline]
    pub(crate) fn quoted(self) -> bool {
        self.end_and_flags & QUOTED != 0
    }

    #[inline]
    pub(crate) fn escaped(self) -> bool {
        self.end_and_flags & ESCAPED != 0
    }

    /// Appends the content without its escapes.
    pub(crate) fn unescape(self, bytes: &[u8], shape: &Shape, out: &mut Vec<u8>) {
        let escape = if shape.doubled { shape.quote } else { shape.escape };
        let mut rest = self.raw(bytes);
        while let Some(at) = escape.and_then(|escape| memchr::memchr(escape, rest)) {
            out.extend_from_slice(&rest[..at]);
            out.extend(rest.get(at + 1));
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
    }
}

/// One record: its fields and where its text lies, without the line end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) first_field: usize,
    pub(crate) field_count: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) flaw: Option<Flaw>,
}

/// Some records and their fields.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) fields: Vec<Field>,
    pub(crate) records: Vec<Record>,
}

impl Records {
    /// The fields of a record.
    pub(crate) fn fields_of(&self, record: &Record) -> &[Field] {
        &self.fields[record.first_field..record.first_field + record.field_count]
    }
}

/// Splits whole records into fields.
pub(crate) struct Tokenizer<'a> {
    bytes: &'a [u8],
    shape: Shape,
    /// Whether an empty line is a record with one empty field, as in a file of one column.
    blank_is_record: bool,
    position: usize,
}

enum State {
    Plain,
    Quoted,
    Closed,
    Comment,
}

impl<'a> Tokenizer<'a> {
    pub(crate) fn new(bytes: &'a [u8], shape: Shape, blank_is_record: bool) -> Tokenizer<'a> {
        Tokenizer { bytes, shape, blank_is_record, position: 0 }
    }

    /// Replaces `out` by the next records, `count` at most. None are left when it stays empty.
    pub(crate) fn next(&mut self, count: usize, out: &mut Records) {
        out.fields.clear();
        out.records.clear();
        let (bytes, shape) = (self.bytes, self.shape);
        let mut record_start = self.position;
        let mut first_field = 0;
        let mut field_start = record_start;
        let mut state = self.start_state(record_start);
        let mut flags = 0;
        let mut closed_at = 0;
        let mut flaw = None;
        // Structural bytes before this offset have lost their meaning: escaped, or the LF of a CR LF.
        let mut live_from = record_start;
        let mut base = record_start & !63;
        let mut mask = if base < bytes.len() { self.mask(base) & (!0 << (record_start - base)) } else { 0 };
        loop {
            while mask == 0 {
                base += 64;
                if base >= bytes.len() {
                    self.finish(record_start, first_field, field_start, &state, flags, closed_at, flaw, out);
                    self.position = bytes.len();
                    return;
                }
                mask = self.mask(base);
            }
            let at = base + mask.trailing_zeros() as usize;
            mask &= mask - 1;
            if at < live_from {
                continue;
            }
            let byte = bytes[at];
            match state {
                State::Plain => {}
                State::Quoted => {
                    if Some(byte) == shape.quote {
                        if shape.doubled && bytes.get(at + 1) == Some(&byte) {
                            flags |= ESCAPED;
                            live_from = at + 2;
                        } else {
                            closed_at = at;
                            state = State::Closed;
                        }
                    } else if Some(byte) == shape.escape {
                        flags |= ESCAPED;
                        live_from = at + 2;
                    }
                    continue;
                }
                State::Closed => {}
                State::Comment => {
                    if matches!(byte, b'\n' | b'\r') {
                        record_start = at + line_end_bytes(bytes, at);
                        field_start = record_start;
                        live_from = record_start;
                        state = self.start_state(record_start);
                    }
                    continue;
                }
            }
            if byte == shape.delimiter {
                match state {
                    State::Closed => {
                        flaw = flaw.or(after_quote(&bytes[closed_at + 1..at]));
                        out.fields.push(Field::new(field_start, closed_at, flags));
                        state = State::Plain;
                        flags = 0;
                    }
                    _ => out.fields.push(Field::new(field_start, at, 0)),
                }
                field_start = at + 1;
            } else if matches!(byte, b'\n' | b'\r') {
                if at > record_start || self.blank_is_record {
                    match state {
                        State::Closed => {
                            flaw = flaw.or(after_quote(&bytes[closed_at + 1..at]));
                            out.fields.push(Field::new(field_start, closed_at, flags));
                            flags = 0;
                        }
                        _ => out.fields.push(Field::new(field_start, at, 0)),
                    }
                    let field_count = out.fields.len() - first_field;
                    out.records.push(Record { first_field, field_count, start: record_start, end: at, flaw });
                }
                first_field = out.fields.len();
                flaw = None;
                record_start = at + line_end_bytes(bytes, at);
                field_start = record_start;
                live_from = record_start;
                if out.records.len() == count {
                    self.position = record_start;
                    return;
                }
                state = self.start_state(record_start);
            } else if Some(byte) == shape.quote && at == field_start && matches!(state, State::Plain) {
                state = State::Quoted;
                flags = QUOTED;
                field_start = at + 1;
            }
        }
    }

    #[inline]
    fn start_state(&self, record_start: usize) -> State {
        match self.shape.comment {
            Some(comment) if self.bytes.get(record_start) == Some(&comment) => State::Comment,
            _ => State::Plain,
        }
    }

    /// Ends the last record of a file without a final line end.
    #[expect(clippy::too_many_arguments, reason = "the state of `next`, handed over once")]
    fn finish(
        &self,
        record_start: usize,
        first_field: usize,
        field_start: usize,
        state: &State,
        flags: u32,
        closed_at: usize,
        mut flaw: Option<Flaw>,
        out: &mut Records,
    ) {
        let end = self.bytes.len();
        if record_start >= end {
            return;
        }
        match state {
            State::Comment => return,
            State::Plain => out.fields.push(Field::new(field_start, end, 0)),
            State::Quoted => {
                flaw = Some(Flaw::Unterminated);
                out.fields.push(Field::new(field_start, end, flags));
            }
            State::Closed => {
                flaw = flaw.or(after_quote(&self.bytes[closed_at + 1..]));
                out.fields.push(Field::new(field_start, closed_at, flags));
            }
        }
        let field_count = out.fields.len() - first_field;
        out.records.push(Record { first_field, field_count, start: record_start, end, flaw });
    }

    /// Bit i says whether byte `base + i` is structural.
    #[inline]
    fn mask(&self, base: usize) -> u64 {
        let delimiter = self.shape.delimiter;
        let quote = self.shape.quote.unwrap_or(delimiter);
        let escape = self.shape.escape.unwrap_or(delimiter);
        let structural = |byte: u8| {
            (byte == delimiter) | (byte == b'\n') | (byte == b'\r') | (byte == quote) | (byte == escape)
        };
        with_block(self.bytes, base, |block| mask_of(block, structural))
    }
}

#[inline]
fn line_end_bytes(bytes: &[u8], at: usize) -> usize {
    if bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n') { 2 } else { 1 }
}

/// Blanks may follow a closing quote, nothing else.
#[inline]
fn after_quote(between: &[u8]) -> Option<Flaw> {
    let blank = between.iter().all(|&byte| matches!(byte, b' ' | b'\t'));
    (!blank).then_some(Flaw::AfterQuote)
}
