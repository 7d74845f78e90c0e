//! Text as bytes: strings, or bytes that need not be UTF-8.
//!
//! As for integers, one byte is the id of the encoding, and the row count is not stored.
//!
//! | id | encoding | for |
//! |---|---|---|
//! | 0 | raw | strings that nothing makes smaller: lengths and bytes |
//! | 1 | constant | one string |
//! | 2 | dict | few distinct strings |
//! | 3 | fsst | strings with parts in common: URLs, names, comments |
//!
//! Decoded text has signed 32-bit offsets, as in Arrow's strings, so a block has less than 2 GiB of text.
//! Stored bytes that were UTF-8 come back as UTF-8; bytes that another program wrote may not be UTF-8.

use std::fmt;
use std::ops::Range;

use keirin_kernels::bitmaps::positions;
use keirin_kernels::compact::{self, compact_strings};
use keirin_kernels::compare::Comparison;
use keirin_kernels::gather::gather;
use keirin_kernels::text::{Strings, Text};
use keirin_kernels::{BitBuffer, Level, Selection};

use super::{check_count, check_rows, is_sparse, odd_step};
use crate::blocks::Codec;
use crate::integers;
use crate::judge::{Judge, Verdict};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Choice, Error, Result};

mod constant;
mod dict;
mod fsst;
mod raw;

/// Text of a column.
pub type Rows<'a> = Strings<'a, i32>;

/// The most bytes of text in a block: the greatest offset.
const TEXT_BYTES_MAX: usize = i32::MAX as usize;

/// An encoding of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// Lengths and bytes.
    Raw,
    /// One string.
    Constant,
    /// Distinct strings, and their indices.
    Dict,
    /// Parts that many strings share, as one byte each.
    Fsst,
}

impl Encoding {
    /// All encodings, in the order of their ids.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Constant, Self::Dict, Self::Fsst];

    /// The byte that stands for it.
    fn id(self) -> u8 {
        self as u8
    }
}

/// Decoded text: one more offset than rows, the first of which is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The start of each row, and the end of the last; ascending, within the bytes.
    pub offsets: Vec<i32>,
    /// The bytes of all rows.
    pub bytes: Vec<u8>,
}

impl Buffer {
    /// The text, borrowed.
    #[must_use]
    pub fn rows(&self, level: Level) -> Rows<'_> {
        Strings::new(level, &self.offsets, &self.bytes).expect("offsets that were decoded are in order")
    }

    fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { offsets, bytes: Vec::new() }
    }

    /// Appends a row; fails when there would be more text than allowed.
    fn push(&mut self, row: &[u8], byte_limit: usize) -> Result<()> {
        check_bytes(self.bytes.len() + row.len(), byte_limit)?;
        self.bytes.extend_from_slice(row);
        self.offsets.push(offset(self.bytes.len()));
        Ok(())
    }
}

impl<'a> FromIterator<&'a [u8]> for Buffer {
    /// # Panics
    /// When there are 2 GiB of text.
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(rows: I) -> Self {
        let mut buffer = Self::with_capacity(0);
        for row in rows {
            buffer.push(row, TEXT_BYTES_MAX).expect("text of less than 2 GiB");
        }
        buffer
    }
}

/// A count of bytes, which was checked to fit, as an offset.
fn offset(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("text of less than 2 GiB")
}

fn check_bytes(needed: usize, limit: usize) -> Result<()> {
    let limit = limit.min(TEXT_BYTES_MAX);
    if needed > limit { Err(Error::Limit { needed: needed as u64, limit: limit as u64 }) } else { Ok(()) }
}

/// Encodes `rows` in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 rows or more.
pub fn encode(level: Level, choice: impl Into<Choice>, rows: Rows<'_>) -> Result<Vec<u8>> {
    check_count(rows.row_count())?;
    let mut writer = Writer::new(level, choice.into());
    write(&mut writer, rows);
    Ok(writer.bytes)
}

/// Encodes `rows` with this as the outermost encoding; `None` if it cannot hold them. Inner encodings are
/// chosen.
///
/// # Errors
/// When there are 2^32 rows or more.
pub fn encode_as(
    level: Level,
    choice: impl Into<Choice>,
    encoding: Encoding,
    rows: Rows<'_>,
) -> Result<Option<Vec<u8>>> {
    check_count(rows.row_count())?;
    let mut writer = Writer::new(level, choice.into());
    Ok(write_as(&mut writer, encoding, rows).then_some(writer.bytes))
}

/// The factor on a dictionary's cost: it may cost twice as much as others, because tests and GROUP BY use it
/// without decoding rows.
const DICT_WORTH: f64 = 0.5;

/// Of less text a table of symbols saves little, and finding one takes longer than all else.
const FSST_BYTES_MIN: usize = 4 << 10;

/// Appends the encoding of `rows` that is best on a sample; returns how to compress it.
pub(crate) fn write(writer: &mut Writer, rows: Rows<'_>) -> Codec {
    let choose = |writer: &Writer| choose(writer, rows);
    writer.column(&Encoding::ALL, choose, |writer, encoding| write_as(writer, encoding, rows))
}

fn choose(writer: &Writer, rows: Rows<'_>) -> Verdict<Encoding> {
    if constant::is_constant(rows) {
        return (Encoding::Constant, Codec::None, None);
    }
    let sample = sample(rows);
    let sample = sample.rows(writer.level);
    let mut judge = Judge::new(writer, rows.row_count(), None);
    let row_count = rows.row_count();
    let mut consider = |encoding, rows: Rows<'_>, scale| {
        let mut trial = writer.trial();
        if write_as(&mut trial, encoding, rows) {
            let count = rows.row_count();
            let open = || open(&mut Reader::new(writer.level, &trial.bytes), count, TEXT_BYTES_MAX);
            let decode_ns = open().expect("what was written can be read").decode_ns();
            let mut out = Buffer::with_capacity(count);
            judge.consider(encoding, &trial.bytes, scale, decode_ns, || {
                let decoded = open().and_then(|node| {
                    // A reader of all rows uses the dictionary as it is.
                    if node.dictionary(writer.level, Selection::All, TEXT_BYTES_MAX)?.is_some() {
                        return Ok(());
                    }
                    node.decode_into(writer.level, 0..count, TEXT_BYTES_MAX, &mut out)
                });
                decoded.expect("what was written can be read");
            });
            if count == row_count {
                judge.keep(encoding, trial);
            }
        }
    };
    let scale = rows.row_count() as f64 / sample.row_count() as f64;
    consider(Encoding::Raw, sample, scale);
    if rows.bytes().len() >= FSST_BYTES_MIN {
        consider(Encoding::Fsst, sample, scale);
    }
    // A sample hardly shows how many distinct strings there are.
    if dict::is_promising(writer.level, sample) {
        consider(Encoding::Dict, rows, DICT_WORTH);
    }
    judge.verdict().expect("raw strings can hold any rows")
}

/// Pieces of consecutive rows spread over the column, or all rows if they are few.
fn sample(rows: Rows<'_>) -> Buffer {
    /// Rows of a piece, and about the most bytes of all pieces.
    const PIECE: usize = 64;
    const BYTES: usize = 1 << 17;
    const ROWS: usize = 4096;
    let count = rows.row_count();
    let bytes = (rows.offsets()[count] - rows.offsets()[0]) as usize;
    let wanted = ROWS.min(count * BYTES / bytes.max(BYTES)).max(1);
    let step = odd_step(count, wanted.div_ceil(PIECE)).max(PIECE);
    let pieces = (0..count).step_by(step).map(|start| start..(start + PIECE).min(count));
    pieces.flatten().map(|row| rows.row(row)).collect()
}

/// Appends this encoding of `rows`, or nothing if it cannot hold them.
fn write_as(writer: &mut Writer, encoding: Encoding, rows: Rows<'_>) -> bool {
    let start = writer.bytes.len();
    writer.bytes.push(encoding.id());
    let is_written = match encoding {
        Encoding::Raw => raw::write(writer, rows),
        Encoding::Constant => constant::write(writer, rows),
        Encoding::Dict => dict::write(writer, rows),
        Encoding::Fsst => fsst::write(writer, rows),
    };
    if !is_written {
        writer.bytes.truncate(start);
    }
    is_written
}

/// An opened encoding; callers guarantee that rows are below its count of rows.
trait Node: fmt::Debug + Send + Sync {
    fn len(&self) -> usize;

    /// Replaces the content of `out` by a range of rows.
    fn decode_into(
        &self,
        level: Level,
        rows: Range<usize>,
        byte_limit: usize,
        out: &mut Buffer,
    ) -> Result<()>;

    /// The rows with these numbers, in this order.
    fn take(&self, level: Level, rows: &[u32], byte_limit: usize) -> Result<Buffer>;

    /// Selects the rows for which `test` is true; it gets rows in any order, and equal ones only once if
    /// possible.
    fn test(&self, level: Level, byte_limit: usize, test: &mut Test<'_>) -> Result<BitBuffer> {
        /// Rows that are decoded together.
        const ROWS: usize = 4096;
        let mut words = Vec::with_capacity(self.len().div_ceil(64));
        let mut decoded = Buffer::with_capacity(ROWS);
        for first in (0..self.len()).step_by(ROWS) {
            self.decode_into(level, first..self.len().min(first + ROWS), byte_limit, &mut decoded)?;
            words.extend(run_test(test, decoded.rows(level)).into_words());
        }
        Ok(BitBuffer::from_words(words, self.len()))
    }

    /// Selects the rows that compare so with a constant, byte by byte, if the encoding knows how its strings are
    /// ordered.
    fn compare(&self, _: Level, _: usize, _: Comparison, _constant: &[u8]) -> Result<Option<BitBuffer>> {
        Ok(None)
    }

    /// The lengths of all rows, found without their bytes.
    fn lengths(&self, level: Level) -> Result<Vec<i32>>;

    /// The entries, and the index of each selected row's entry, if rows are stored in this way.
    fn dictionary(
        &self,
        _level: Level,
        _selection: Selection<'_>,
        _byte_limit: usize,
    ) -> Result<Option<Dictionary>> {
        Ok(None)
    }

    /// The bytes of all rows without a copy, if they are stored contiguously; `offsets` gets their offsets.
    fn as_bytes(&self, _: Level, _: &mut Vec<i32>) -> Result<Option<&[u8]>> {
        Ok(None)
    }

    /// An estimate of the nanoseconds to decode all rows; see `integers::Node`.
    fn decode_ns(&self) -> f64;

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Rows as indices of dictionary entries.
#[derive(Clone, Debug)]
pub struct Dictionary {
    /// For each row the index of its entry, which exists.
    pub codes: Vec<u32>,
    /// The entries, some of which may have no row.
    pub entries: Buffer,
}

/// A predicate on strings: a bit for each.
type Test<'t> = dyn FnMut(Rows<'_>) -> BitBuffer + 't;

fn run_test(test: &mut Test<'_>, rows: Rows<'_>) -> BitBuffer {
    let found = test(rows);
    assert_eq!(found.len(), rows.row_count(), "a test gives a bit for each row");
    found
}

type BoxNode<'a> = Box<dyn Node + 'a>;

/// Opens the column that begins here and has `count` rows.
fn open<'a>(reader: &mut Reader<'a>, count: usize, byte_limit: usize) -> Result<BoxNode<'a>> {
    reader.nested(|reader| {
        let node: BoxNode<'a> = match reader.encoding(&Encoding::ALL)? {
            Encoding::Raw => Box::new(raw::Raw::open(reader, count)?),
            Encoding::Constant => Box::new(constant::Constant::open(reader, count)?),
            Encoding::Dict => Box::new(dict::Dict::open(reader, count, byte_limit)?),
            Encoding::Fsst => Box::new(fsst::Fsst::open(reader, count)?),
        };
        Ok(node)
    })
}

/// The ends of rows in `byte_count` bytes.
#[derive(Debug)]
struct Ends<'a> {
    at: usize,
    ends: integers::BoxNode<'a, i32>,
    byte_count: usize,
}

impl<'a> Ends<'a> {
    fn write(writer: &mut Writer, ends: &[i32]) {
        writer.nested(|writer| integers::write(writer, ends));
    }

    fn open(reader: &mut Reader<'a>, count: usize, byte_count: usize) -> Result<Self> {
        let at = reader.at();
        Ok(Self { at, ends: integers::open(reader, count)?, byte_count })
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt { at: self.at, reason: "ends of strings that do not ascend within their bytes" }
    }

    /// Sets `offsets` to those of a range of rows, ascending within the bytes: one more than rows.
    fn offsets_into(&self, level: Level, rows: Range<usize>, offsets: &mut Vec<i32>) -> Result<()> {
        offsets.resize(rows.len() + 1, 0);
        match rows.start.checked_sub(1) {
            Some(before) => self.ends.decode_into(level, before, offsets)?,
            None => {
                offsets[0] = 0;
                self.ends.decode_into(level, 0, &mut offsets[1..])?;
            }
        }
        let falls = offsets.windows(2).fold(0, |falls, pair| falls | u32::from(pair[1] < pair[0]));
        let last = usize::try_from(offsets[rows.len()]);
        if offsets[0] < 0 || falls > 0 || last.is_err() || last.is_ok_and(|last| last > self.byte_count) {
            return Err(self.corrupt());
        }
        Ok(())
    }

    /// The lengths of all rows.
    fn lengths(&self, level: Level, count: usize) -> Result<Vec<i32>> {
        let mut offsets = Vec::new();
        self.offsets_into(level, 0..count, &mut offsets)?;
        Ok(offsets.windows(2).map(|ends| ends[1] - ends[0]).collect())
    }

    /// The byte ranges of these rows.
    fn ranges(&self, level: Level, rows: &[u32]) -> Result<Vec<Range<usize>>> {
        let (mut ends, mut starts) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        self.ends.take(level, rows, &mut ends)?;
        let before: Vec<u32> = rows.iter().map(|row| row.saturating_sub(1)).collect();
        self.ends.take(level, &before, &mut starts)?;
        let ranges = rows.iter().zip(starts).zip(ends).map(|((row, start), end)| {
            let start = usize::try_from(if *row == 0 { 0 } else { start });
            match (start, usize::try_from(end)) {
                (Ok(start), Ok(end)) if start <= end && end <= self.byte_count => Ok(start..end),
                _ => Err(self.corrupt()),
            }
        });
        ranges.collect()
    }

    fn decode_ns(&self) -> f64 {
        self.ends.decode_ns()
    }
}

/// Subtracts the first offset from all of them.
fn rebase(offsets: &mut [i32]) {
    let first = offsets[0];
    if first != 0 {
        offsets.iter_mut().for_each(|offset| *offset -= first);
    }
}

/// An opened column: rows are decoded when they are requested.
#[derive(Debug)]
pub struct Column<'a> {
    node: BoxNode<'a>,
    byte_limit: usize,
}

impl<'a> Column<'a> {
    /// Opens the encoding of `row_count` strings. The caller vouches for the count; no result, and no
    /// dictionary, has more than `byte_limit` bytes of text.
    ///
    /// # Errors
    /// When the bytes are not an encoding of `row_count` strings, or a dictionary has more text than allowed.
    pub fn open(level: Level, bytes: &'a [u8], row_count: usize, byte_limit: usize) -> Result<Self> {
        let mut reader = Reader::new(level, bytes);
        let node = open(&mut reader, row_count, byte_limit)?;
        reader.end()?;
        Ok(Self { node, byte_limit })
    }

    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.node.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed.
    pub fn decode(&self, level: Level) -> Result<Buffer> {
        self.decode_range(level, 0..self.len())
    }

    /// A range of rows.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed.
    ///
    /// # Panics
    /// When there are fewer rows.
    pub fn decode_range(&self, level: Level, rows: Range<usize>) -> Result<Buffer> {
        let mut buffer = Buffer::with_capacity(0);
        self.decode_into(level, rows, &mut buffer)?;
        Ok(buffer)
    }

    /// Replaces the content of `buffer` by a range of rows. Reused memory is available at once, while new
    /// memory has to be cleared page by page, which takes longer than decoding.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed; then the buffer has no
    /// rows.
    ///
    /// # Panics
    /// When there are fewer rows.
    pub fn decode_into(&self, level: Level, rows: Range<usize>, buffer: &mut Buffer) -> Result<()> {
        assert!(rows.start <= rows.end && rows.end <= self.len(), "rows {rows:?} of {}", self.len());
        let decoded = self.node.decode_into(level, rows, self.byte_limit, buffer);
        if decoded.is_err() {
            *buffer = Buffer::with_capacity(0);
        }
        decoded
    }

    /// The offsets and the bytes of all rows without a copy of the bytes, if they are stored contiguously.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    pub fn as_bytes(&self, level: Level) -> Result<Option<(Vec<i32>, &[u8])>> {
        let mut offsets = Vec::new();
        Ok(self.node.as_bytes(level, &mut offsets)?.map(|bytes| (offsets, bytes)))
    }

    /// The selected rows.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    pub fn select(&self, level: Level, selection: Selection<'_>) -> Result<Buffer> {
        match selection {
            Selection::All => self.decode(level),
            Selection::Rows(rows) => {
                check_rows(rows, self.len());
                self.node.take(level, rows, self.byte_limit)
            }
            Selection::Bits(bits) => {
                assert_eq!(bits.len(), self.len(), "a selection of as many rows");
                if is_sparse(selection.count(level, self.len()), self.len()) {
                    return self.node.take(level, &positions(level, bits), self.byte_limit);
                }
                let mut offsets = Vec::new();
                if let Some(bytes) = self.node.as_bytes(level, &mut offsets)? {
                    let (offsets, bytes) =
                        compact_strings(level, compact::Strings::new(&offsets, bytes), bits);
                    return Ok(Buffer { offsets, bytes });
                }
                let all = self.decode(level)?;
                let (offsets, bytes) =
                    compact_strings(level, compact::Strings::new(&all.offsets, &all.bytes), bits);
                Ok(Buffer { offsets, bytes })
            }
        }
    }

    /// The lengths of the selected rows in bytes, without decoding the text.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    pub fn lengths(&self, level: Level, selection: Selection<'_>) -> Result<Vec<i32>> {
        let all = self.node.lengths(level)?;
        Ok(match selection {
            Selection::All => all,
            Selection::Rows(rows) => gather(level, &all, rows),
            Selection::Bits(bits) => gather(level, &all, &positions(level, bits)),
        })
    }

    /// The selected rows as indices of entries, if they are stored in this way and there are no more entries
    /// than rows.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    pub fn dictionary(&self, level: Level, selection: Selection<'_>) -> Result<Option<Dictionary>> {
        if let Selection::Rows(rows) = selection {
            check_rows(rows, self.len());
        }
        self.node.dictionary(level, selection, self.byte_limit)
    }

    /// Selects the rows for which `test` is true: it gets strings and returns a bit for each. It gets each
    /// entry of a dictionary once, and rows that are stored contiguously without a copy. So every predicate
    /// on text is computed on the encoded form:
    ///
    /// ```
    /// use keirin_codecs::{Goal, strings};
    /// use keirin_kernels::{Level, text::starts_with};
    ///
    /// let level = Level::best();
    /// let urls: strings::Buffer = [&b"http://a"[..], b"ftp://a", b"http://b"].into_iter().collect();
    /// let bytes = strings::encode(level, Goal::Balanced, urls.rows(level))?;
    /// let column = strings::Column::open(level, &bytes, 3, 1 << 20)?;
    /// let found = column.test(level, |rows| starts_with(level, rows, b"http:"))?;
    /// assert_eq!(found.as_bits().ones().collect::<Vec<_>>(), [0, 2]);
    /// # Ok::<(), keirin_codecs::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed.
    ///
    /// # Panics
    /// When `test` returns another count of bits than it got strings.
    pub fn test(&self, level: Level, mut test: impl FnMut(Rows<'_>) -> BitBuffer) -> Result<BitBuffer> {
        self.node.test(level, self.byte_limit, &mut test)
    }

    /// Selects the rows that compare so with a constant, byte by byte, if the encoding finds them without looking at
    /// all strings: in a dictionary the constant has a place, so that codes are compared. `None` if it does not.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or there is more text than allowed.
    pub fn compare(
        &self,
        level: Level,
        comparison: Comparison,
        constant: &[u8],
    ) -> Result<Option<BitBuffer>> {
        self.node.compare(level, self.byte_limit, comparison, constant)
    }

    /// A description of the encoding, such as `dict(1,204) + bitpack(11)`.
    #[must_use]
    pub fn explain(&self) -> String {
        Explain(&*self.node).to_string()
    }
}

/// A node as text.
struct Explain<'a>(&'a dyn Node);

impl fmt::Display for Explain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.explain(f)
    }
}
