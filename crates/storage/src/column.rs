//! Columns in memory: typed values, their validity, and nested columns.
//!
//! Values are borrowed, owned or shared ([`Buffer`]): writers lend theirs, and readers get vectors or memory of a
//! file, which Arrow takes without a copy. Offsets of text and lists are signed 32-bit numbers, as in Arrow.

use std::ops::Range;

use keirin_codecs::frame::Kind;
use keirin_kernels::aligned::Number;
use keirin_kernels::compact::{Strings, gather_strings};
use keirin_kernels::gather::{gather, gather_bits};
use keirin_kernels::{BitBuffer, Bits, Level};

use crate::bits;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::schema::DataType;

/// Values of one type, or nulls.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    /// A bit for each row that has a value; none if all have.
    pub validity: Option<Flags<'a>>,
    /// A value for each row; it is arbitrary where the row is null.
    pub values: Values<'a>,
}

/// Bits, borrowed or owned.
#[derive(Clone, Debug)]
pub enum Flags<'a> {
    /// Borrowed from the caller.
    Borrowed(Bits<'a>),
    /// Owned by the column.
    Owned(BitBuffer),
}

/// The values of a column.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Values<'a> {
    Flags(Flags<'a>),
    I8(Buffer<'a, i8>),
    I16(Buffer<'a, i16>),
    I32(Buffer<'a, i32>),
    I64(Buffer<'a, i64>),
    I128(Buffer<'a, i128>),
    U8(Buffer<'a, u8>),
    U16(Buffer<'a, u16>),
    U32(Buffer<'a, u32>),
    U64(Buffer<'a, u64>),
    F32(Buffer<'a, f32>),
    F64(Buffer<'a, f64>),
    /// Row `i` has the bytes from offset `i` to offset `i + 1`.
    Text {
        offsets: Buffer<'a, i32>,
        bytes: Buffer<'a, u8>,
    },
    /// Row `i` has rows `offset i` to `offset i + 1` of each child column: one child for a list, two for a map.
    List {
        offsets: Buffer<'a, i32>,
        children: Vec<Column<'a>>,
    },
    /// Row `i` has row `i` of each child column.
    Struct {
        row_count: usize,
        children: Vec<Column<'a>>,
    },
}

/// Runs the same code for all values that are a slice of numbers.
macro_rules! each_number {
    ($values:expr, $numbers:ident => $body:expr, $($rest:tt)*) => {
        match $values {
            Values::I8($numbers) => $body,
            Values::I16($numbers) => $body,
            Values::I32($numbers) => $body,
            Values::I64($numbers) => $body,
            Values::I128($numbers) => $body,
            Values::U8($numbers) => $body,
            Values::U16($numbers) => $body,
            Values::U32($numbers) => $body,
            Values::U64($numbers) => $body,
            Values::F32($numbers) => $body,
            Values::F64($numbers) => $body,
            $($rest)*
        }
    };
}

impl Flags<'_> {
    /// The bits.
    #[must_use]
    pub fn as_bits(&self) -> Bits<'_> {
        match self {
            Self::Borrowed(bits) => *bits,
            Self::Owned(buffer) => buffer.as_bits(),
        }
    }

    /// The bits as a buffer; copies them unless they are owned.
    #[must_use]
    pub fn into_owned(self) -> BitBuffer {
        match self {
            Self::Borrowed(bits) => BitBuffer::from_words(bits.words().collect(), bits.len()),
            Self::Owned(buffer) => buffer,
        }
    }

    fn slice(&self, rows: Range<usize>) -> Flags<'_> {
        Flags::Borrowed(self.as_bits().slice(rows.start, rows.len()))
    }

    fn append(&mut self, other: Bits<'_>) {
        let front = std::mem::replace(self, Self::Owned(BitBuffer::default()));
        *self = Self::Owned(bits::append(front.into_owned(), other));
    }
}

/// Gives each null the value before it, so that encodings see nothing new there.
fn repeat_over_nulls<T: Number + Default>(values: &mut Buffer<'_, T>, first: usize, validity: Bits<'_>) {
    let values = values.to_mut();
    for row in (0..validity.len()).filter(|row| !validity.get(*row)) {
        values[first + row] = (first + row).checked_sub(1).map_or_else(T::default, |before| values[before]);
    }
}

/// The range from the first to the last of ascending offsets.
pub(crate) fn span(offsets: &[i32]) -> Range<usize> {
    let place = |offset: Option<&i32>| usize::try_from(*offset.unwrap_or(&0)).unwrap_or(0);
    place(offsets.first())..place(offsets.last())
}

/// A function so that the macro need not name types.
fn slice<T>(values: &[T], rows: Range<usize>) -> Buffer<'_, T> {
    Buffer::Borrowed(&values[rows])
}

impl Column<'_> {
    /// A column without rows, to append to.
    #[must_use]
    pub fn empty(data_type: &DataType) -> Column<'static> {
        let children = || data_type.children().iter().map(|field| Column::empty(&field.data_type)).collect();
        let values = match data_type.values() {
            None => Values::Struct { row_count: 0, children: children() },
            Some(Kind::Flags) => Values::Flags(Flags::Owned(BitBuffer::default())),
            Some(Kind::I8) => Values::I8(Buffer::default()),
            Some(Kind::I16) => Values::I16(Buffer::default()),
            Some(Kind::I32) => Values::I32(Buffer::default()),
            Some(Kind::I64) => Values::I64(Buffer::default()),
            Some(Kind::I128) => Values::I128(Buffer::default()),
            Some(Kind::U8) => Values::U8(Buffer::default()),
            Some(Kind::U16) => Values::U16(Buffer::default()),
            Some(Kind::U32) if !data_type.children().is_empty() => {
                Values::List { offsets: Buffer::Owned(vec![0]), children: children() }
            }
            Some(Kind::U32) => Values::U32(Buffer::default()),
            Some(Kind::U64) => Values::U64(Buffer::default()),
            Some(Kind::F32) => Values::F32(Buffer::default()),
            Some(Kind::F64) => Values::F64(Buffer::default()),
            Some(Kind::Text) => Values::Text { offsets: Buffer::Owned(vec![0]), bytes: Buffer::default() },
        };
        Column { validity: None, values }
    }

    /// Removes the rows and keeps the memory for the next ones.
    pub(crate) fn clear(&mut self) {
        self.validity = None;
        each_number!(&mut self.values, numbers => numbers.to_mut().clear(),
            Values::Flags(flags) => *flags = Flags::Owned(BitBuffer::default()),
            Values::Text { offsets, bytes } => {
                offsets.to_mut().truncate(1);
                bytes.to_mut().clear();
            }
            Values::List { offsets, children } => {
                offsets.to_mut().truncate(1);
                children.iter_mut().for_each(Column::clear);
            }
            Values::Struct { row_count, children } => {
                *row_count = 0;
                children.iter_mut().for_each(Column::clear);
            }
        );
    }

    /// A column of this type in which every row is null.
    #[must_use]
    pub fn nulls(data_type: &DataType, row_count: usize) -> Column<'static> {
        let mut column = Column::empty(data_type);
        match &mut column.values {
            Values::Flags(flags) => *flags = Flags::Owned(BitBuffer::zeros(row_count)),
            Values::Text { offsets, .. } | Values::List { offsets, .. } => {
                *offsets = Buffer::Owned(vec![0; row_count + 1]);
            }
            Values::Struct { row_count: count, children } => {
                *count = row_count;
                let types = data_type.children().iter().map(|field| &field.data_type);
                *children = types.map(|data_type| Column::nulls(data_type, row_count)).collect();
            }
            values => {
                each_number!(values, numbers => numbers.to_mut().resize_with(row_count, Default::default),
                _ => unreachable!("all others are above"));
            }
        }
        column.validity = Some(Flags::Owned(BitBuffer::zeros(row_count)));
        column
    }

    /// Count of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        each_number!(&self.values, numbers => numbers.len(),
            Values::Flags(flags) => flags.as_bits().len(),
            Values::Text { offsets, .. } | Values::List { offsets, .. } => offsets.len().saturating_sub(1),
            Values::Struct { row_count, .. } => *row_count,
        )
    }

    /// Approximate bytes that the values take; a flag counts as one.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        each_number!(&self.values, numbers => size_of_val::<[_]>(numbers),
            Values::Flags(flags) => flags.as_bits().len(),
            Values::Text { offsets, .. } => offsets.len() * 4 + span(offsets).len(),
            Values::List { offsets, children } => {
                let inside = |child: &Column<'_>| child.slice(span(offsets)).byte_count();
                offsets.len() * 4 + children.iter().map(inside).sum::<usize>()
            }
            Values::Struct { children, .. } => children.iter().map(Column::byte_count).sum(),
        )
    }

    /// The bits that say which rows have a value.
    #[must_use]
    pub fn validity_bits(&self) -> Option<Bits<'_>> {
        self.validity.as_ref().map(Flags::as_bits)
    }

    /// A range of rows.
    ///
    /// # Panics
    /// When there are fewer rows.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Column<'_> {
        let ends = rows.start..rows.end + 1;
        let values = match &self.values {
            Values::Flags(flags) => Values::Flags(flags.slice(rows.clone())),
            Values::I8(values) => Values::I8(slice(values, rows.clone())),
            Values::I16(values) => Values::I16(slice(values, rows.clone())),
            Values::I32(values) => Values::I32(slice(values, rows.clone())),
            Values::I64(values) => Values::I64(slice(values, rows.clone())),
            Values::I128(values) => Values::I128(slice(values, rows.clone())),
            Values::U8(values) => Values::U8(slice(values, rows.clone())),
            Values::U16(values) => Values::U16(slice(values, rows.clone())),
            Values::U32(values) => Values::U32(slice(values, rows.clone())),
            Values::U64(values) => Values::U64(slice(values, rows.clone())),
            Values::F32(values) => Values::F32(slice(values, rows.clone())),
            Values::F64(values) => Values::F64(slice(values, rows.clone())),
            Values::Text { offsets, bytes } => {
                Values::Text { offsets: slice(offsets, ends), bytes: Buffer::Borrowed(bytes) }
            }
            Values::List { offsets, children } => {
                let children = children.iter().map(|child| child.slice(0..child.row_count())).collect();
                Values::List { offsets: slice(offsets, ends), children }
            }
            Values::Struct { children, .. } => {
                let children = children.iter().map(|child| child.slice(rows.clone())).collect();
                Values::Struct { row_count: rows.len(), children }
            }
        };
        Column { validity: self.validity.as_ref().map(|flags| flags.slice(rows)), values }
    }

    /// The rows of these numbers, in this order.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn take(&self, level: Level, rows: &[u32]) -> Column<'static> {
        let take_flags = |flags: &Flags<'_>| Flags::Owned(gather_bits(level, flags.as_bits(), rows));
        let values = match &self.values {
            Values::Flags(flags) => Values::Flags(take_flags(flags)),
            Values::I8(values) => Values::I8(gather(level, values, rows).into()),
            Values::I16(values) => Values::I16(gather(level, values, rows).into()),
            Values::I32(values) => Values::I32(gather(level, values, rows).into()),
            Values::I64(values) => Values::I64(gather(level, values, rows).into()),
            Values::I128(values) => Values::I128(gather(level, values, rows).into()),
            Values::U8(values) => Values::U8(gather(level, values, rows).into()),
            Values::U16(values) => Values::U16(gather(level, values, rows).into()),
            Values::U32(values) => Values::U32(gather(level, values, rows).into()),
            Values::U64(values) => Values::U64(gather(level, values, rows).into()),
            Values::F32(values) => Values::F32(gather(level, values, rows).into()),
            Values::F64(values) => Values::F64(gather(level, values, rows).into()),
            Values::Text { offsets, bytes } => {
                let (offsets, bytes) = gather_strings(level, Strings::new(offsets, bytes), rows);
                Values::Text { offsets: offsets.into(), bytes: bytes.into() }
            }
            Values::List { offsets, children } => {
                let mut taken = vec![0];
                let mut inside: Vec<u32> = Vec::new();
                for row in rows {
                    let elements = offsets[*row as usize]..offsets[*row as usize + 1];
                    inside.extend(elements.map(i32::cast_unsigned));
                    taken.push(i32::try_from(inside.len()).expect("a block has fewer elements"));
                }
                let children = children.iter().map(|child| child.take(level, &inside)).collect();
                Values::List { offsets: taken.into(), children }
            }
            Values::Struct { children, .. } => {
                let children = children.iter().map(|child| child.take(level, rows)).collect();
                Values::Struct { row_count: rows.len(), children }
            }
        };
        Column { validity: self.validity.as_ref().map(take_flags), values }
    }

    /// The rows of these numbers, in this order, of a column built with [`Column::append`]; borrowed if they are
    /// consecutive.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn taken(&self, level: Level, rows: &[u32]) -> Column<'_> {
        let first = rows.first().map_or(0, |row| *row as usize);
        if rows.iter().zip(first..).all(|(row, place)| *row as usize == place) {
            return self.slice(first..first + rows.len());
        }
        let mut column = self.take(level, rows);
        column.repeat_over_nulls();
        column
    }

    /// Fills nulls as [`Column::append`] does.
    fn repeat_over_nulls(&mut self) {
        if let Values::List { children, .. } | Values::Struct { children, .. } = &mut self.values {
            children.iter_mut().for_each(Column::repeat_over_nulls);
        }
        let Some(validity) = self.validity.as_ref().map(Flags::as_bits) else { return };
        each_number!(&mut self.values, numbers => repeat_over_nulls(numbers, 0, validity), _ => {});
    }

    /// Appends the rows of a column of the same type. The arbitrary values of null rows are not kept: numbers
    /// repeat the one before, text and lists become empty.
    ///
    /// # Errors
    /// `Invalid` when the types differ.
    pub fn append(&mut self, other: &Column<'_>) -> Result<()> {
        let (first, validity) = (self.row_count(), other.validity_bits());
        macro_rules! append_numbers {
            ($mine:ident, $theirs:ident) => {{
                $mine.to_mut().extend_from_slice($theirs);
                validity.into_iter().for_each(|validity| repeat_over_nulls($mine, first, validity));
            }};
        }
        match (&mut self.values, &other.values) {
            (Values::Flags(mine), Values::Flags(theirs)) => mine.append(theirs.as_bits()),
            (Values::I8(mine), Values::I8(theirs)) => append_numbers!(mine, theirs),
            (Values::I16(mine), Values::I16(theirs)) => append_numbers!(mine, theirs),
            (Values::I32(mine), Values::I32(theirs)) => append_numbers!(mine, theirs),
            (Values::I64(mine), Values::I64(theirs)) => append_numbers!(mine, theirs),
            (Values::I128(mine), Values::I128(theirs)) => append_numbers!(mine, theirs),
            (Values::U8(mine), Values::U8(theirs)) => append_numbers!(mine, theirs),
            (Values::U16(mine), Values::U16(theirs)) => append_numbers!(mine, theirs),
            (Values::U32(mine), Values::U32(theirs)) => append_numbers!(mine, theirs),
            (Values::U64(mine), Values::U64(theirs)) => append_numbers!(mine, theirs),
            (Values::F32(mine), Values::F32(theirs)) => append_numbers!(mine, theirs),
            (Values::F64(mine), Values::F64(theirs)) => append_numbers!(mine, theirs),
            (Values::Text { offsets, bytes }, Values::Text { offsets: theirs, bytes: text }) => {
                append_ranges(offsets.to_mut(), theirs, validity, |range| {
                    bytes.to_mut().extend_from_slice(&text[range]);
                    Ok(())
                })?;
            }
            (Values::List { offsets, children }, Values::List { offsets: theirs, children: others })
                if children.len() == others.len() =>
            {
                append_ranges(offsets.to_mut(), theirs, validity, |range| {
                    let mut pairs = children.iter_mut().zip(others);
                    pairs.try_for_each(|(child, other)| child.append(&other.slice(range.clone())))
                })?;
            }
            (
                Values::Struct { row_count, children },
                Values::Struct { row_count: more, children: others },
            ) if children.len() == others.len() => {
                *row_count += more;
                children.iter_mut().zip(others).try_for_each(|(child, other)| child.append(other))?;
            }
            _ => return Err(Error::Invalid("a column has values of another type than its table".to_owned())),
        }
        match (&mut self.validity, validity) {
            (None, None) => {}
            (mine, validity) => {
                let all = bits::ones(other.row_count());
                let mine = mine.get_or_insert_with(|| Flags::Owned(bits::ones(first)));
                mine.append(validity.unwrap_or(all.as_bits()));
            }
        }
        Ok(())
    }
}

/// Appends offsets, and with `append` the content between them; null rows get no content.
fn append_ranges(
    offsets: &mut Vec<i32>,
    theirs: &[i32],
    validity: Option<Bits<'_>>,
    mut append: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    let wrong = || Error::Invalid("offsets of text or lists do not ascend".to_owned());
    let row_count = theirs.len().checked_sub(1).ok_or_else(wrong)?;
    let range = |rows: &Range<usize>| -> Result<Range<usize>> {
        let place = |row: usize| usize::try_from(theirs[row]).map_err(|_| wrong());
        Ok(place(rows.start)?..place(rows.end)?)
    };
    let all = bits::ones(row_count);
    let mut next = 0;
    for run in validity.unwrap_or(all.as_bits()).runs() {
        let here = *offsets.last().expect("there is always a first offset");
        offsets.resize(offsets.len() + run.start - next, here);
        if !theirs[run.start..=run.end].is_sorted() {
            return Err(wrong());
        }
        // Offsets ascend: if the last one fits, all do.
        let shift = i64::from(here) - i64::from(theirs[run.start]);
        let full = || Error::Invalid("a block would have 2 GiB of text or 2^31 elements".to_owned());
        i32::try_from(i64::from(theirs[run.end]) + shift).map_err(|_| full())?;
        let shift = here.wrapping_sub(theirs[run.start]);
        offsets.extend(theirs[run.start + 1..=run.end].iter().map(|end| end.wrapping_add(shift)));
        append(range(&run)?)?;
        next = run.end;
    }
    let here = *offsets.last().expect("there is always a first offset");
    offsets.resize(offsets.len() + row_count - next, here);
    Ok(())
}
