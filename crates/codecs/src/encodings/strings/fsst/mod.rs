//! Parts that many strings have, as one byte each.
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
//! Good for URLs, names, comments. Decoding writes eight bytes for each code and goes on by the length of its
//! symbol, over which the next one writes.

use std::fmt;
use std::ops::Range;

use keirin_kernels::Level;

use super::{Buffer, Ends, Node, Rows, TEXT_BYTES_MAX, check_bytes, offset, raw, rebase};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Error, Result};

mod symbols;
mod train;

use symbols::{ESCAPE, Matcher, SYMBOL_BYTES};

pub(super) fn write(writer: &mut Writer, rows: Rows<'_>) -> bool {
    if !writer.may_nest() {
        return false;
    }
    let (ends, text) = raw::ends_and_bytes(rows);
    let symbols = train::train(rows);
    let matcher = Matcher::new(&symbols);
    let (mut codes, mut code_ends, mut start) = (Vec::with_capacity(text.len() / 2), Vec::new(), 0);
    for end in &ends {
        let end = *end as usize;
        matcher.encode(text, start..end, &mut codes);
        if codes.len() > TEXT_BYTES_MAX {
            return false;
        }
        code_ends.push(offset(codes.len()));
        start = end;
    }
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

/// What decoding takes: the bytes of each symbol in the low bytes of a word, and how many they are; zero for
/// codes without symbol.
struct Table {
    words: [u64; 256],
    lengths: [u8; 256],
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.words.iter().zip(&self.lengths).take_while(|pair| *pair.1 > 0)).finish()
    }
}

impl Table {
    fn open(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.at();
        let symbol_count = usize::from(reader.u8()?);
        let mut table = Self { words: [0; 256], lengths: [0; 256] };
        table.lengths[..symbol_count].copy_from_slice(reader.take(symbol_count)?);
        for code in 0..symbol_count {
            let length = usize::from(table.lengths[code]);
            if !(1..=SYMBOL_BYTES).contains(&length) {
                return Err(Error::Corrupt { at, reason: "a symbol that has not 1 to 8 bytes" });
            }
            let mut word = [0; SYMBOL_BYTES];
            word[..length].copy_from_slice(reader.take(length)?);
            table.words[code] = u64::from_le_bytes(word);
        }
        Ok(table)
    }

    /// Decodes to the beginning of `out`, of which up to [`SYMBOL_BYTES`] more may be written; the count of
    /// bytes, or `None` if they are more than fit or an escape has no byte behind it.
    fn decode(&self, codes: &[u8], out: &mut [u8]) -> Option<usize> {
        let (mut rest, mut end) = (codes, 0);
        loop {
            // Four codes at once while none is an escape and there is room for four symbols.
            while let (Some((four, behind)), Some(room)) =
                (rest.split_first_chunk::<4>(), out.get_mut(end..).and_then(<[u8]>::first_chunk_mut::<32>))
            {
                if four.contains(&ESCAPE) {
                    break;
                }
                let mut filled = 0;
                for code in four {
                    let word = self.words[usize::from(*code)].to_le_bytes();
                    room[filled..filled + SYMBOL_BYTES].copy_from_slice(&word);
                    filled += usize::from(self.lengths[usize::from(*code)]);
                }
                end += filled;
                rest = behind;
            }
            let [code, behind @ ..] = rest else { return Some(end) };
            rest = behind;
            if *code == ESCAPE {
                let [byte, behind @ ..] = rest else { return None };
                *out.get_mut(end)? = *byte;
                end += 1;
                rest = behind;
            } else {
                let word = self.words[usize::from(*code)].to_le_bytes();
                out.get_mut(end..end + SYMBOL_BYTES)?.copy_from_slice(&word);
                end += usize::from(self.lengths[usize::from(*code)]);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Fsst<'a> {
    at: usize,
    table: Box<Table>,
    ends: Ends<'a>,
    code_ends: Ends<'a>,
    codes: &'a [u8],
    count: usize,
}

impl<'a> Fsst<'a> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let at = reader.at();
        let table = Box::new(Table::open(reader)?);
        let text_bytes = reader.count(TEXT_BYTES_MAX, "more text than a block has")?;
        let ends = Ends::open(reader, count, text_bytes)?;
        let code_bytes = reader.count(TEXT_BYTES_MAX, "more codes than a block has")?;
        let code_ends = Ends::open(reader, count, code_bytes)?;
        Ok(Self { at, table, ends, code_ends, codes: reader.take(code_bytes)?, count })
    }

    /// Appends so many bytes that these codes must be.
    fn append(&self, codes: &[u8], byte_count: usize, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        // No code is more than eight bytes: so there is no memory for text that there are no codes for.
        if byte_count > codes.len() * SYMBOL_BYTES {
            return Err(self.corrupt());
        }
        out.resize(start + byte_count + SYMBOL_BYTES, 0);
        if self.table.decode(codes, &mut out[start..]) != Some(byte_count) {
            return Err(self.corrupt());
        }
        out.truncate(start + byte_count);
        Ok(())
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt { at: self.at, reason: "codes of another count of bytes than the text has" }
    }
}

impl Node for Fsst<'_> {
    fn len(&self) -> usize {
        self.count
    }

    fn decode(&self, level: Level, rows: Range<usize>, byte_limit: usize) -> Result<Buffer> {
        let offsets = rebase(self.ends.offsets(level, rows.clone())?);
        let byte_count = offsets[rows.len()] as usize;
        check_bytes(byte_count, byte_limit)?;
        // Only the ends of the range are needed of the codes.
        let last = rows.end.checked_sub(1).and_then(|row| u32::try_from(row).ok());
        let codes = match last {
            Some(last) if !rows.is_empty() => {
                let first = u32::try_from(rows.start).expect("a row in front of the last");
                let ranges = self.code_ends.ranges(level, &[first, last])?;
                self.codes.get(ranges[0].start..ranges[1].end).ok_or_else(|| self.corrupt())?
            }
            _ => &[],
        };
        let mut bytes = Vec::new();
        self.append(codes, byte_count, &mut bytes)?;
        Ok(Buffer { offsets, bytes })
    }

    fn take(&self, level: Level, rows: &[u32], byte_limit: usize) -> Result<Buffer> {
        let mut buffer = Buffer::with_capacity(rows.len());
        let (ranges, code_ranges) = (self.ends.ranges(level, rows)?, self.code_ends.ranges(level, rows)?);
        for (range, codes) in ranges.into_iter().zip(code_ranges) {
            check_bytes(buffer.bytes.len() + range.len(), byte_limit)?;
            self.append(&self.codes[codes], range.len(), &mut buffer.bytes)?;
            buffer.offsets.push(offset(buffer.bytes.len()));
        }
        Ok(buffer)
    }

    fn decode_ns(&self) -> f64 {
        self.ends.decode_ns() + self.codes.len() as f64 * 0.8
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbol_count = self.table.lengths.iter().take_while(|length| **length > 0).count();
        write!(f, "fsst({symbol_count})")
    }
}
