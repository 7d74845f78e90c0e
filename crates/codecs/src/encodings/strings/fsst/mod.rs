//! Parts that many strings share, encoded as one byte each.
//!
//! ```text
//! | symbol count: u8 | their lengths: u8 each | their bytes | text bytes: u32 | ends in the text, one a row |
//! | code bytes: u32 | ends in the codes, one a row | codes |               `--- a column ----------------'
//!                     `--- a column --------------'
//! ```
//! A code below the count of symbols stands for the 1 to 8 bytes of that symbol; code 255 for the byte that
//! follows it. Each row can be decoded by itself. (Boncz, Neumann, Leis: "FSST: Fast Random Access String
//! Compression", PVLDB 13, 2020.)
//!
//! Good for URLs, names, comments. Decoding all rows does not check the codes of single rows: if corrupt
//! bytes have the right total length of text, a row may differ when it is decoded alone.

use std::fmt;
use std::ops::Range;

use keirin_kernels::Level;
use keirin_kernels::compact::{Strings, gather_strings};
use keirin_kernels::decode::{SYMBOL_BYTES, Symbols, decode_symbols};

use super::{Buffer, Ends, Node, Rows, TEXT_BYTES_MAX, check_bytes, offset, raw, rebase};
use crate::plan::Note;
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

mod symbols;
mod train;

use symbols::{Matcher, Symbol};

/// Rows are decoded all where at least one in so many is wanted, and not few.
const DENSE: usize = 4;
const DENSE_ROWS_MIN: usize = 64;

pub(super) fn write(writer: &mut Writer, rows: Rows<'_>) -> bool {
    if !writer.may_nest() {
        return false;
    }
    let (ends, text) = raw::ends_and_bytes(rows);
    let symbols = match writer.known_note() {
        Some(Note::Symbols(symbols)) => symbols.iter().map(|parts| Symbol::of_parts(*parts)).collect(),
        _ => train::train(rows),
    };
    writer.keep_note(Note::Symbols(symbols.iter().map(|symbol| symbol.parts()).collect()));
    let matcher = Matcher::new(&symbols);
    let Some((mut codes, code_ends)) = matcher.encode(text, &ends, TEXT_BYTES_MAX) else { return false };
    writer.bytes.push(u8::try_from(symbols.len()).expect("at most 255 symbols"));
    writer.bytes.extend(symbols.iter().map(|symbol| symbol.length()));
    writer.bytes.extend(symbols.iter().flat_map(|symbol| symbol.bytes()));
    writer.count(text.len());
    Ends::write(writer, &ends);
    writer.count(codes.len());
    Ends::write(writer, &code_ends);
    writer.bytes.append(&mut codes);
    true
}

fn open_symbols(reader: &mut Reader<'_>) -> Result<(Box<Symbols>, usize)> {
    let at = reader.at();
    let symbol_count = usize::from(reader.u8()?);
    let lengths = reader.take(symbol_count)?;
    if lengths.iter().any(|length| !(1..=SYMBOL_BYTES).contains(&usize::from(*length))) {
        return Err(Error::Corrupt { at, reason: "a symbol that has not 1 to 8 bytes" });
    }
    let symbols = lengths.iter().map(|length| reader.take(usize::from(*length)));
    let symbols: Vec<&[u8]> = symbols.collect::<Result<_>>()?;
    Ok((Box::new(Symbols::new(symbols)), symbol_count))
}

#[derive(Debug)]
pub(super) struct Fsst<'a> {
    at: usize,
    symbols: Box<Symbols>,
    symbol_count: usize,
    ends: Ends<'a>,
    code_ends: Ends<'a>,
    codes: &'a [u8],
    count: usize,
}

impl<'a> Fsst<'a> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let (symbols, symbol_count) = open_symbols(reader)?;
        let text_bytes = reader.count(TEXT_BYTES_MAX, "more text than a block has")?;
        let ends = Ends::open(reader, count, text_bytes)?;
        let code_bytes = reader.count(TEXT_BYTES_MAX, "more codes than a block has")?;
        let code_ends = Ends::open(reader, count, code_bytes)?;
        Ok(Self { at, symbols, symbol_count, ends, code_ends, codes: reader.take(code_bytes)?, count })
    }

    /// Appends the text of codes, which must have exactly `byte_count` bytes.
    fn append(&self, level: Level, codes: &[u8], byte_count: usize, out: &mut Vec<u8>) -> Result<()> {
        if decode_symbols(level, &self.symbols, codes, byte_count, out) {
            Ok(())
        } else {
            Err(self.corrupt())
        }
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt { at: self.at, reason: "codes of another count of bytes than the text has" }
    }
}

impl Node for Fsst<'_> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode_into(
        &self,
        level: Level,
        rows: Range<usize>,
        byte_limit: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        self.ends.offsets_into(level, rows.clone(), &mut out.offsets)?;
        rebase(&mut out.offsets);
        let byte_count = out.offsets[rows.len()] as usize;
        check_bytes(byte_count, byte_limit)?;
        // All codes of the range are decoded together, so only the range's ends are needed.
        let last = rows.end.checked_sub(1).and_then(|row| u32::try_from(row).ok());
        let codes = match last {
            Some(last) if !rows.is_empty() => {
                let first = u32::try_from(rows.start).expect("a row in front of the last");
                let ranges = self.code_ends.ranges(level, &[first, last])?;
                self.codes.get(ranges[0].start..ranges[1].end).ok_or_else(|| self.corrupt())?
            }
            _ => &[],
        };
        out.bytes.clear();
        self.append(level, codes, byte_count, &mut out.bytes)
    }

    fn take(&self, level: Level, rows: &[u32], byte_limit: usize) -> Result<Buffer> {
        // Codes that lie together are decoded several times as fast as those of single rows.
        if rows.len() >= DENSE_ROWS_MIN.max(self.count / DENSE) {
            let mut all = Buffer::with_capacity(self.count);
            self.decode_into(level, 0..self.count, byte_limit, &mut all)?;
            let length = |row: &u32| (all.offsets[*row as usize + 1] - all.offsets[*row as usize]) as usize;
            check_bytes(rows.iter().map(length).sum(), byte_limit)?;
            let (offsets, bytes) = gather_strings(level, Strings::new(&all.offsets, &all.bytes), rows);
            return Ok(Buffer { offsets, bytes });
        }
        let mut buffer = Buffer::with_capacity(rows.len());
        let (ranges, code_ranges) = (self.ends.ranges(level, rows)?, self.code_ends.ranges(level, rows)?);
        for (range, codes) in ranges.into_iter().zip(code_ranges) {
            check_bytes(buffer.bytes.len() + range.len(), byte_limit)?;
            self.append(level, &self.codes[codes], range.len(), &mut buffer.bytes)?;
            buffer.offsets.push(offset(buffer.bytes.len()));
        }
        Ok(buffer)
    }

    fn lengths(&self, level: Level) -> Result<Vec<i32>> {
        self.ends.lengths(level, self.count)
    }

    fn decode_ns(&self) -> f64 {
        self.ends.decode_ns() + self.codes.len() as f64 * 0.8
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fsst({})", self.symbol_count)
    }
}
