//! Integers as bytes.
//!
//! An encoded column is one byte with the id of the encoding, followed by the bytes of that encoding, which
//! may contain other encoded columns. Neither lengths nor row counts are stored: each encoding knows where it
//! ends from the row count, which the reader is given.
//!
//! | id | encoding | for |
//! |---|---|---|
//! | 0 | raw | values that nothing makes smaller |
//! | 1 | constant | one value |
//! | 2 | bitpack | values in a narrow range, except for a few |
//! | 3 | delta | values that grow or move by small steps: keys, times |
//! | 4 | runs | equal values after one another |
//! | 5 | dict | few distinct values, far apart |

use std::cell::Cell;
use std::fmt;
use std::ops::Range;

use keirin_kernels::aligned::numbers;
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};

use super::{BLOCK, check_count};
use crate::blocks::Codec;
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Choice, Error, Result};

mod bitpack;
mod choose;
mod constant;
mod delta;
mod dict;
mod int;
mod raw;
mod runs;

pub(crate) use dict::compare_codes;
pub use int::Int;
pub(crate) use int::PackedBits;

/// An encoding of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// The values themselves.
    Raw,
    /// One value for all rows.
    Constant,
    /// Bits above a reference; values outside their range apart.
    Bitpack,
    /// Differences of neighbours.
    Delta,
    /// Values, and the ends of their runs.
    Runs,
    /// Distinct values, and their indices.
    Dict,
}

impl Encoding {
    /// All encodings, in the order of their ids.
    pub const ALL: [Self; 6] =
        [Self::Raw, Self::Constant, Self::Bitpack, Self::Delta, Self::Runs, Self::Dict];

    /// The byte that stands for it.
    fn id(self) -> u8 {
        self as u8
    }
}

/// Encodes `values` in the way that `choice` prefers.
///
/// # Errors
/// When there are 2^32 values or more.
pub fn encode<T: Int>(level: Level, choice: impl Into<Choice>, values: &[T]) -> Result<Vec<u8>> {
    check_count(values.len())?;
    let mut writer = Writer::new(level, choice.into());
    write(&mut writer, values);
    Ok(writer.bytes)
}

/// Encodes `values` with this as the outermost encoding; `None` if it cannot hold them. Inner encodings are
/// chosen.
///
/// # Errors
/// When there are 2^32 values or more.
pub fn encode_as<T: Int>(
    level: Level,
    choice: impl Into<Choice>,
    encoding: Encoding,
    values: &[T],
) -> Result<Option<Vec<u8>>> {
    check_count(values.len())?;
    let mut writer = Writer::new(level, choice.into());
    Ok(write_as(&mut writer, encoding, values).then_some(writer.bytes))
}

/// Appends the best encoding of `values`; returns how to compress it.
pub(crate) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> Codec {
    let choose = |writer: &Writer| choose::choose(writer, values);
    writer.column(&Encoding::ALL, choose, |writer, encoding| write_as(writer, encoding, values))
}

/// Appends values as they are, without the byte for the encoding.
pub(crate) fn write_raw<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    raw::write(writer, values)
}

/// Opens values that [`write_raw`] has written.
pub(crate) fn open_raw<'a, T: Int>(reader: &mut Reader<'a>, count: usize) -> Result<BoxNode<'a, T>> {
    Ok(Box::new(raw::Raw::open(reader, count)?))
}

/// Appends this encoding of `values`, or nothing if it cannot hold them.
fn write_as<T: Int>(writer: &mut Writer, encoding: Encoding, values: &[T]) -> bool {
    let start = writer.bytes.len();
    writer.bytes.push(encoding.id());
    let is_written = match encoding {
        Encoding::Raw => raw::write(writer, values),
        Encoding::Constant => constant::write(writer, values),
        Encoding::Bitpack => bitpack::write(writer, values),
        Encoding::Delta => delta::write(writer, values),
        Encoding::Runs => runs::write(writer, values),
        Encoding::Dict => dict::write(writer, values),
    };
    if !is_written {
        writer.bytes.truncate(start);
    }
    is_written
}

/// An opened encoding.
///
/// [`Column`] guarantees that rows are below [`Node::len`]. Methods fail only on corrupt bytes.
pub(crate) trait Node<T: Int>: fmt::Debug + Send + Sync {
    /// Count of rows.
    fn len(&self) -> usize;

    /// Decodes values `first .. first + out.len()`.
    fn decode_into(&self, level: Level, first: usize, out: &mut [T]) -> Result<()>;

    /// As [`decode_into`](Self::decode_into) with values of 64 bits; `false`, with any values in `out`, if some have
    /// no room.
    fn decode_narrow_into(&self, level: Level, first: usize, out: &mut [i64]) -> Result<bool> {
        decode_narrow_into(self, level, first, out)
    }

    /// Appends the values of `rows`, in this order.
    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()>;

    /// Selects the rows for whose values the comparison with `constant` holds.
    fn compare(&self, level: Level, comparison: Comparison, constant: T) -> Result<BitBuffer> {
        let mut words = Vec::with_capacity(self.len().div_ceil(64));
        for_each_block(self, level, 0..self.len(), |values| {
            words.extend(compare_constant(level, comparison, values, constant).into_words());
            Ok(())
        })?;
        Ok(BitBuffer::from_words(words, self.len()))
    }

    /// The sum of a range of rows.
    fn sum(&self, level: Level, rows: Range<usize>) -> Result<i128> {
        let mut sum = 0_i128;
        for_each_block(self, level, rows, |values| {
            sum = sum.checked_add(T::sum(level, values)?).ok_or(Error::SumOverflow)?;
            Ok(())
        })?;
        Ok(sum)
    }

    /// The bytes of all values without a copy, if they are stored as they are.
    fn as_bytes(&self) -> Option<&[u8]> {
        None
    }

    /// An estimate of the nanoseconds to decode all rows, from measurements on one machine: only proportions
    /// matter.
    fn decode_ns(&self) -> f64;

    /// Writes a short description of the encoding and its parts.
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

pub(crate) type BoxNode<'a, T> = Box<dyn Node<T> + 'a>;

/// Decodes and narrows block by block; see [`Node::decode_narrow_into`].
fn decode_narrow_into<T: Int, N: Node<T> + ?Sized>(
    node: &N,
    level: Level,
    first: usize,
    out: &mut [i64],
) -> Result<bool> {
    let mut values = [T::default(); BLOCK];
    for (index, out) in out.chunks_mut(BLOCK).enumerate() {
        let values = &mut values[..out.len()];
        node.decode_into(level, first + index * BLOCK, values)?;
        if !narrow_into(values, out) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Values in 64 bits; `false` if some have no room.
fn narrow_into<T: Int>(values: &[T], out: &mut [i64]) -> bool {
    let mut lost = 0;
    for (value, out) in values.iter().zip(out) {
        let value = value.to_i128();
        #[expect(clippy::cast_possible_truncation, reason = "what is cut is looked at")]
        let (low, high) = (value as i64, (value >> 64) as i64);
        *out = low;
        lost |= high ^ (low >> 63);
    }
    lost == 0
}

/// Decodes a range of rows block by block, or visits it at once if its values are stored as they are.
pub(crate) fn for_each_block<T: Int, N: Node<T> + ?Sized>(
    node: &N,
    level: Level,
    rows: Range<usize>,
    mut visit: impl FnMut(&[T]) -> Result<()>,
) -> Result<()> {
    if let Some(values) = node.as_bytes().and_then(numbers::<T>) {
        return visit(&values[rows]);
    }
    super::for_each_block(rows, |first, out| node.decode_into(level, first, out), visit)
}

/// Opens the column that begins here and has `count` rows.
pub(crate) fn open<'a, T: Int>(reader: &mut Reader<'a>, count: usize) -> Result<BoxNode<'a, T>> {
    reader.nested(|reader| {
        let node: BoxNode<'a, T> = match reader.encoding(&Encoding::ALL)? {
            Encoding::Raw => Box::new(raw::Raw::open(reader, count)?),
            Encoding::Constant => Box::new(constant::Constant::open(reader, count)?),
            Encoding::Bitpack => Box::new(bitpack::Bitpack::open(reader, count)?),
            Encoding::Delta => Box::new(delta::Delta::open(reader, count)?),
            Encoding::Runs => Box::new(runs::Runs::open(reader, count)?),
            Encoding::Dict => Box::new(dict::Dict::open(reader, count)?),
        };
        Ok(node)
    })
}

/// Opens and decodes a column that is part of another: it is small and needed often.
pub(crate) fn read<T: Int>(reader: &mut Reader<'_>, count: usize) -> Result<Vec<T>> {
    let node = open(reader, count)?;
    let mut values = vec![T::default(); count];
    node.decode_into(reader.level, 0, &mut values)?;
    Ok(values)
}

/// Reads `count` ascending rows below `row_count`.
pub(crate) fn read_rows(reader: &mut Reader<'_>, count: usize, row_count: usize) -> Result<Vec<u32>> {
    let at = reader.at();
    let rows: Vec<u32> = read(reader, count)?;
    if !rows.is_sorted_by(|row, next| row < next) {
        return Err(Error::Corrupt { at, reason: "rows that do not ascend" });
    }
    if rows.last().is_some_and(|row| *row as usize >= row_count) {
        return Err(Error::Corrupt { at, reason: "a row behind the last" });
    }
    Ok(rows)
}

/// Reads the ends of `count` runs, each of which has at least one row and the last of which ends at
/// `row_count`.
pub(crate) fn read_ends(reader: &mut Reader<'_>, count: usize, row_count: usize) -> Result<Vec<u32>> {
    let at = reader.at();
    let ends: Vec<u32> = read(reader, count)?;
    if !ends.is_sorted_by(|end, next| end < next) || ends.first() == Some(&0) {
        return Err(Error::Corrupt { at, reason: "ends of runs that do not ascend" });
    }
    if ends.last().map_or(0, |end| *end as usize) != row_count {
        return Err(Error::Corrupt { at, reason: "runs that do not end at the last row" });
    }
    Ok(ends)
}

/// An opened column: values are decoded when they are requested.
#[derive(Debug)]
pub struct Column<'a, T: Int> {
    node: BoxNode<'a, T>,
}

impl<'a, T: Int> Column<'a, T> {
    /// Opens the encoding of `row_count` values. The caller vouches for the count: decoding allocates that
    /// many values, opening less than twice as many.
    ///
    /// # Errors
    /// When the bytes are not an encoding of `row_count` values.
    pub fn open(level: Level, bytes: &'a [u8], row_count: usize) -> Result<Self> {
        let mut reader = Reader::new(level, bytes);
        let node = open(&mut reader, row_count)?;
        reader.end()?;
        Ok(Self { node })
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

    /// All values.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    pub fn decode(&self, level: Level) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.len()];
        self.node.decode_into(level, 0, &mut values)?;
        Ok(values)
    }

    /// Decodes values `first .. first + out.len()`.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When there are fewer values.
    pub fn decode_into(&self, level: Level, first: usize, out: &mut [T]) -> Result<()> {
        self.check_rows(&(first..first.saturating_add(out.len())));
        self.node.decode_into(level, first, out)
    }

    /// The values of selected rows.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    pub fn select(&self, level: Level, selection: Selection<'_>) -> Result<Vec<T>> {
        super::select(
            level,
            selection,
            self.len(),
            // Rows that are as they are need no decoding.
            if self.node.as_bytes().is_some() { f64::INFINITY } else { self.node.decode_ns() },
            |rows, out| self.node.take(level, rows, out),
            |first, out| self.node.decode_into(level, first, out),
        )
    }

    /// As [`select`](Self::select) with values of 64 bits; `None` if some have no room.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When the selection has rows beyond the end.
    pub fn select_narrow(&self, level: Level, selection: Selection<'_>) -> Result<Option<Vec<i64>>> {
        let have_room = Cell::new(true);
        let note = |has_room| have_room.set(have_room.get() && has_room);
        let values = super::select(
            level,
            selection,
            self.len(),
            if self.node.as_bytes().is_some() { f64::INFINITY } else { self.node.decode_ns() },
            |rows, out| {
                let (mut values, first) = (Vec::with_capacity(rows.len()), out.len());
                self.node.take(level, rows, &mut values)?;
                out.resize(first + values.len(), 0);
                note(narrow_into(&values, &mut out[first..]));
                Ok(())
            },
            |first, out| {
                note(self.node.decode_narrow_into(level, first, out)?);
                Ok(())
            },
        )?;
        Ok(have_room.get().then_some(values))
    }

    /// As [`decode_into`](Self::decode_into) with values of 64 bits; `false`, with any values in `out`, if some have
    /// no room.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    ///
    /// # Panics
    /// When there are fewer values.
    pub fn decode_narrow_into(&self, level: Level, first: usize, out: &mut [i64]) -> Result<bool> {
        self.check_rows(&(first..first.saturating_add(out.len())));
        self.node.decode_narrow_into(level, first, out)
    }

    /// Selects the rows for whose values the comparison with `constant` holds; computed on the encoded form
    /// if possible.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt.
    pub fn compare(&self, level: Level, comparison: Comparison, constant: T) -> Result<BitBuffer> {
        self.node.compare(level, comparison, constant)
    }

    /// The sum of a range of rows; computed on the encoded form if possible.
    ///
    /// # Errors
    /// When the bytes turn out to be corrupt, or the sum of 128-bit values does not fit 128 bits.
    ///
    /// # Panics
    /// When there are fewer rows.
    pub fn sum(&self, level: Level, rows: Range<usize>) -> Result<i128> {
        self.check_rows(&rows);
        match self.node.sum(level, rows.clone()) {
            // Perhaps only an intermediate sum overflowed.
            Err(Error::SumOverflow) => self.sum_of_256_bits(level, rows),
            sum => sum,
        }
    }

    /// The little-endian bytes of all values without a copy, if they are stored as they are.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.node.as_bytes()
    }

    /// A description of the encoding, such as `dict(1,204) + bitpack(11)`.
    #[must_use]
    pub fn explain(&self) -> String {
        Explain(&*self.node).to_string()
    }

    fn sum_of_256_bits(&self, level: Level, rows: Range<usize>) -> Result<i128> {
        let (mut low, mut high) = (0_i128, 0_i64);
        for_each_block(&*self.node, level, rows, |values| {
            for value in values {
                let value = value.to_i128();
                let (sum, overflows) = low.overflowing_add(value);
                low = sum;
                high += i64::from(overflows) * if value < 0 { -1 } else { 1 };
            }
            Ok(())
        })?;
        (high == 0).then_some(low).ok_or(Error::SumOverflow)
    }

    fn check_rows(&self, rows: &Range<usize>) {
        assert!(rows.start <= rows.end && rows.end <= self.len(), "rows {rows:?} of {}", self.len());
    }
}

/// A node as text.
pub(crate) struct Explain<'a, T>(pub(crate) &'a dyn Node<T>);

impl<T: Int> fmt::Display for Explain<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.explain(f)
    }
}
