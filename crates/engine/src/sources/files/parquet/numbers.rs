//! Columns of numbers, decoded by our loops: pages of codes of a dictionary, or of plain values. Texts whose pages have
//! nothing but codes can be left codes.
//!
//! The parquet crate decodes a code, and looks its value up, one by one; here codes are unpacked a block at a time, and
//! the values of a block gathered. Narrow types are made of the dictionary's entries, not of the rows.
//! (parquet-format: Encodings.md, "RLE/Bit-Packing Hybrid", "Dictionary Encoding", "Plain".)

use std::marker::PhantomData;

use bytes::Bytes;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, DictionaryArray, PrimitiveArray,
    StringArray, StringBuilder, new_empty_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use keirin_kernels::Level;
use keirin_kernels::compare::Comparable;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescriptor;
use std::sync::Arc;

use super::pages::{Pages, Place};
use super::runs::{BLOCK_ROWS, Hybrid, ones};

/// Decimals of so many digits have 64 bits.
const WORD_DIGITS: u8 = 18;

/// Whether columns of this physical type are read as this type by our loops, provided that the parquet crate would read
/// them as it without being told to.
pub(super) fn has_numbers(column: &ColumnDescriptor, data_type: &DataType) -> bool {
    use DataType as A;
    let is_flat =
        column.path().parts().len() == 1 && column.max_rep_level() == 0 && column.max_def_level() <= 1;
    is_flat
        && match column.physical_type() {
            Type::INT32 => matches!(
                data_type,
                A::Int8
                    | A::Int16
                    | A::Int32
                    | A::UInt8
                    | A::UInt16
                    | A::UInt32
                    | A::Date32
                    | A::Decimal128(..)
            ),
            Type::INT64 => match data_type {
                A::Int64 | A::UInt64 | A::Decimal128(..) => true,
                A::Timestamp(unit, _) => *unit != TimeUnit::Second,
                _ => false,
            },
            Type::FLOAT => *data_type == A::Float32,
            Type::DOUBLE => *data_type == A::Float64,
            Type::FIXED_LEN_BYTE_ARRAY => matches!(data_type, A::Decimal128(..)) && is_big(column),
            _ => false,
        }
}

/// Whether values of a fixed length are no longer than a number of 128 bits.
fn is_big(column: &ColumnDescriptor) -> bool {
    usize::try_from(column.type_length()).is_ok_and(|length| (1..=size_of::<i128>()).contains(&length))
}

/// Whether a column of this physical type that is read as this type can be left codes where its pages have such, or
/// integers of 64 bits.
pub(super) fn can_be_coded(column: &ColumnDescriptor, data_type: &DataType) -> bool {
    let is_flat =
        column.path().parts().len() == 1 && column.max_rep_level() == 0 && column.max_def_level() <= 1;
    is_flat
        && match column.physical_type() {
            Type::BYTE_ARRAY => {
                matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
            }
            Type::INT32 | Type::INT64 => matches!(data_type, DataType::Decimal128(..)),
            Type::FIXED_LEN_BYTE_ARRAY => {
                matches!(data_type, DataType::Decimal128(..=WORD_DIGITS, _)) && is_big(column)
            }
            _ => false,
        }
}

/// The type of such a column in a chunk, if it is left codes, or integers.
pub(super) fn coded_type(chunk: &ColumnChunkMetaData, data_type: &DataType) -> Option<DataType> {
    if matches!(data_type, DataType::Decimal128(..)) {
        return Some(DataType::Int64);
    }
    let pages = chunk.page_encoding_stats_mask()?;
    let has_codes = pages.is_only(Encoding::RLE_DICTIONARY) || pages.is_only(Encoding::PLAIN_DICTIONARY);
    has_codes.then(|| DataType::Dictionary(DataType::UInt32.into(), data_type.clone().into()))
}

/// Whether a column chunk has only encodings that are decoded here.
pub(super) fn has_our_encodings(chunk: &ColumnChunkMetaData) -> bool {
    chunk.encodings().all(|encoding| match encoding {
        Encoding::PLAIN | Encoding::RLE | Encoding::RLE_DICTIONARY => true,
        Encoding::PLAIN_DICTIONARY => true,
        // Old writers name it for levels that are not there.
        #[expect(deprecated, reason = "old files name it")]
        Encoding::BIT_PACKED => true,
        _ => false,
    })
}

/// A column of numbers, from which rows are read in order.
pub(super) trait Numbers: Send {
    /// Passes over rows.
    fn skip(&mut self, rows: usize) -> Result<()>;

    /// Adds rows to those that are taken next.
    fn read(&mut self, rows: usize) -> Result<()>;

    /// What was read since the last time.
    fn take(&mut self) -> Result<ArrayRef>;
}

/// The rows of a column chunk for which [`has_numbers`] and [`has_our_encodings`] hold.
pub(super) fn numbers(
    pages: Pages,
    place: Place,
    column: &ColumnDescriptor,
    data_type: &DataType,
) -> Option<Box<dyn Numbers>> {
    let is_nullable = column.max_def_level() > 0;
    let length = usize::try_from(column.type_length()).unwrap_or(0);
    macro_rules! of {
        ($stored:ty, $array:ty) => {
            Some(Box::new(Column::<$stored, $array>::new(
                pages,
                place,
                is_nullable,
                data_type.clone(),
                length,
            )))
        };
    }
    match (column.physical_type(), data_type) {
        (Type::INT32, DataType::Int8) => of!(i32, Int8Type),
        (Type::INT32, DataType::Int16) => of!(i32, Int16Type),
        (Type::INT32, DataType::Int32) => of!(i32, Int32Type),
        (Type::INT32, DataType::UInt8) => of!(i32, UInt8Type),
        (Type::INT32, DataType::UInt16) => of!(i32, UInt16Type),
        (Type::INT32, DataType::UInt32) => of!(i32, UInt32Type),
        (Type::INT32, DataType::Date32) => of!(i32, Date32Type),
        // Decimals, of which the parquet crate says that their type is one.
        (Type::INT32, DataType::Int64) => of!(i32, Int64Type),
        (Type::INT32, DataType::Decimal128(..)) => of!(i32, Decimal128Type),
        (Type::INT64, DataType::Decimal128(..)) => of!(i64, Decimal128Type),
        (Type::FIXED_LEN_BYTE_ARRAY, DataType::Decimal128(..)) => of!(Big, Decimal128Type),
        (Type::FIXED_LEN_BYTE_ARRAY, DataType::Int64) => of!(Big, Int64Type),
        (Type::BYTE_ARRAY, DataType::Dictionary(..)) => of!(Code, UInt32Type),
        (Type::INT64, DataType::Int64) => of!(i64, Int64Type),
        (Type::INT64, DataType::UInt64) => of!(i64, UInt64Type),
        (Type::INT64, DataType::Timestamp(TimeUnit::Millisecond, _)) => of!(i64, TimestampMillisecondType),
        (Type::INT64, DataType::Timestamp(TimeUnit::Microsecond, _)) => of!(i64, TimestampMicrosecondType),
        (Type::INT64, DataType::Timestamp(TimeUnit::Nanosecond, _)) => of!(i64, TimestampNanosecondType),
        (Type::FLOAT, DataType::Float32) => of!(f32, Float32Type),
        (Type::DOUBLE, DataType::Float64) => of!(f64, Float64Type),
        _ => None,
    }
}

/// A number as it is stored.
trait Stored: Copy + Send {
    /// 0 if columns differ in that.
    const BYTES: usize;
    /// Whether pages may have values themselves.
    const MAY_BE_PLAIN: bool = true;

    /// Of as many bytes.
    fn of(bytes: &[u8]) -> Self;

    /// So many entries of a dictionary, each of `length` bytes; of texts, these too.
    fn entries(bytes: &[u8], count: usize, length: usize) -> Result<Entries<Self>, &'static str> {
        let bytes = count.checked_mul(length).and_then(|length| bytes.get(..length)).ok_or(CUT_OFF)?;
        Ok((bytes.chunks_exact(length).map(Self::of).collect(), None))
    }
}

type Entries<S> = (Vec<S>, Option<StringArray>);

const CUT_OFF: &str = "its dictionary is cut off";

/// A code of a text.
#[derive(Clone, Copy)]
struct Code(u32);

impl Stored for Code {
    const BYTES: usize = size_of::<u32>();
    const MAY_BE_PLAIN: bool = false;

    fn of(bytes: &[u8]) -> Self {
        Self(u32::of(bytes))
    }

    fn entries(mut bytes: &[u8], count: usize, _: usize) -> Result<Entries<Self>, &'static str> {
        // Each has a length.
        if count > bytes.len() / size_of::<u32>() {
            return Err(CUT_OFF);
        }
        let mut texts = StringBuilder::with_capacity(count, bytes.len());
        for _ in 0..count {
            let (length, rest) = bytes.split_first_chunk().ok_or(CUT_OFF)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| CUT_OFF)?;
            let (text, rest) = rest.split_at_checked(length).ok_or(CUT_OFF)?;
            texts
                .append_value(str::from_utf8(text).map_err(|_| "its dictionary has bytes that are no text")?);
            bytes = rest;
        }
        let codes = (0..).map(Self).take(count).collect();
        Ok((codes, Some(texts.finish())))
    }
}

impl Made<Code> for u32 {
    #[inline(always)]
    fn made(stored: Code) -> Self {
        stored.0
    }
}

/// A number of up to 16 bytes, the most significant one first.
#[derive(Clone, Copy)]
struct Big(i128);

impl Stored for Big {
    const BYTES: usize = 0;

    #[inline(always)]
    fn of(bytes: &[u8]) -> Self {
        let sign = if bytes.first().is_some_and(|first| *first > 0x7f) { 0xff } else { 0 };
        let mut whole = [sign; size_of::<i128>()];
        let start = whole.len().saturating_sub(bytes.len());
        whole[start..].copy_from_slice(&bytes[..bytes.len().min(size_of::<i128>())]);
        Self(i128::from_be_bytes(whole))
    }
}

impl Made<Big> for i128 {
    #[inline(always)]
    fn made(stored: Big) -> Self {
        stored.0
    }
}

impl Made<Big> for i64 {
    /// What has no room has more digits than any decimal that may be read so.
    #[inline(always)]
    fn made(stored: Big) -> Self {
        Self::try_from(stored.0).unwrap_or(Self::MIN)
    }
}

/// A number in an array, made of a stored one. As the parquet crate does, what has no room is cut off: writers are known
/// that store 255 of 8 bits as -1.
trait Made<S>: Comparable + Default {
    fn made(stored: S) -> Self;
}

macro_rules! stored {
    ($($stored:ty: $($made:ty),*;)*) => {
        $(
            impl Stored for $stored {
                const BYTES: usize = size_of::<$stored>();

                #[inline(always)]
                fn of(bytes: &[u8]) -> Self {
                    bytes.first_chunk().map_or_else(Default::default, |bytes| Self::from_le_bytes(*bytes))
                }
            }

            $(
                impl Made<$stored> for $made {
                    #[inline(always)]
                    #[expect(clippy::allow_attributes, reason = "not all of them are narrower")]
                    #[allow(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        clippy::unnecessary_cast,
                        reason = "see the trait"
                    )]
                    fn made(stored: $stored) -> Self {
                        stored as $made
                    }
                }
            )*
        )*
    };
}

stored! {
    i32: i8, i16, i32, i64, i128, u8, u16, u32;
    i64: i64, i128, u64;
    u32: u32;
    f32: f32;
    f64: f64;
}

struct Column<S, A: ArrowPrimitiveType> {
    pages: Pages,
    place: Place,
    level: Level,
    is_nullable: bool,
    data_type: DataType,
    /// Of a stored value.
    length: usize,
    dictionary: Vec<A::Native>,
    has_dictionary: bool,
    /// What codes are codes of.
    texts: Option<ArrayRef>,
    page: Option<DataPage>,
    /// Of a block.
    levels: Vec<u32>,
    values: Vec<A::Native>,
    /// Of the values, once there is a NULL.
    validity: Option<BooleanBufferBuilder>,
    stored: PhantomData<S>,
}

/// What is left of a page.
struct DataPage {
    rows: usize,
    /// A one for each row with a value, if there may be others.
    levels: Option<Hybrid>,
    values: Values,
}

enum Values {
    Plain(Bytes),
    Codes(Hybrid),
}

impl<S: Stored, A: ArrowPrimitiveType<Native: Made<S>>> Column<S, A> {
    fn new(pages: Pages, place: Place, is_nullable: bool, data_type: DataType, length: usize) -> Self {
        Self {
            length,
            pages,
            place,
            level: Level::best(),
            is_nullable,
            data_type,
            dictionary: Vec::new(),
            has_dictionary: false,
            texts: None,
            page: None,
            levels: Vec::new(),
            values: Vec::new(),
            validity: None,
            stored: PhantomData,
        }
    }

    /// The bytes of a stored value.
    #[inline(always)]
    fn length(&self) -> usize {
        if S::BYTES == 0 { self.length } else { S::BYTES }
    }

    fn error(&self, reason: &str) -> ParquetError {
        let Place { column, row_group } = &self.place;
        ParquetError::General(format!("column '{column}' in row group {row_group}: {reason}"))
    }

    /// Begins the next data page; with `skipped` rows to be passed over, passes over those that have no more. Returns how
    /// many are left of these.
    fn next_page(&mut self, mut skipped: usize) -> Result<usize> {
        loop {
            if skipped > 0 {
                let Some(next) = self.pages.peek_next_page()? else {
                    return Err(self.error("it has fewer rows than the row group"));
                };
                let rows = next.num_rows.or(next.num_levels).filter(|_| !next.is_dict);
                if let Some(rows) = rows.filter(|rows| *rows <= skipped) {
                    self.pages.skip_next_page()?;
                    skipped -= rows;
                    if skipped == 0 {
                        return Ok(0);
                    }
                    continue;
                }
            }
            let page = self.pages.get_next_page()?;
            let Some(page) = page else { return Err(self.error("it has fewer rows than the row group")) };
            match page {
                Page::DictionaryPage { buf, num_values, .. } => {
                    // Codes that were read would be codes of other entries.
                    if std::mem::replace(&mut self.has_dictionary, true) {
                        return Err(self.error("it has two dictionaries"));
                    }
                    let entries = S::entries(&buf, num_values as usize, self.length());
                    let (entries, texts) = entries.map_err(|reason| self.error(reason))?;
                    self.dictionary = entries.into_iter().map(A::Native::made).collect();
                    self.texts = match (texts, &self.data_type) {
                        (Some(texts), DataType::Dictionary(_, of_texts)) => Some(cast(&texts, of_texts)?),
                        _ => None,
                    };
                }
                Page::DataPage { buf, num_values, encoding, def_level_encoding, .. } => {
                    let (levels, values) = if self.is_nullable {
                        let (levels, values) = match def_level_encoding {
                            Encoding::RLE => prefixed(&buf).ok_or("its levels are cut off"),
                            _ => Err("its levels have an unknown encoding"),
                        }
                        .map_err(|reason| self.error(reason))?;
                        (Some(Hybrid::new(levels, 1)), values)
                    } else {
                        (None, buf)
                    };
                    let values = self.encoded(values, encoding)?;
                    self.page = Some(DataPage { rows: num_values as usize, levels, values });
                    return Ok(skipped);
                }
                Page::DataPageV2 {
                    buf,
                    num_rows,
                    encoding,
                    def_levels_byte_len,
                    rep_levels_byte_len,
                    ..
                } => {
                    let (first, count) = (rep_levels_byte_len as usize, def_levels_byte_len as usize);
                    let behind = first.checked_add(count).filter(|behind| *behind <= buf.len());
                    let behind = behind.ok_or_else(|| self.error("its levels are cut off"))?;
                    let levels = self.is_nullable.then(|| Hybrid::new(buf.slice(first..behind), 1));
                    let values = self.encoded(buf.slice(behind..), encoding)?;
                    self.page = Some(DataPage { rows: num_rows as usize, levels, values });
                    return Ok(skipped);
                }
            }
        }
    }

    fn encoded(&self, bytes: Bytes, encoding: Encoding) -> Result<Values> {
        let has_codes = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        if encoding == Encoding::PLAIN && S::MAY_BE_PLAIN {
            return Ok(Values::Plain(bytes));
        }
        if !has_codes {
            return Err(self.error("a page has an encoding that its footer does not list"));
        }
        // A page of NULLs may have no byte.
        let width = bytes.first().copied().unwrap_or(0);
        if width > 32 {
            return Err(self.error("its codes have more than 32 bits"));
        }
        Ok(Values::Codes(Hybrid::new(bytes.slice(bytes.len().min(1)..), width.into())))
    }

    /// Reads some of the rows of the page, and gives back how many.
    fn read_some(&mut self, page: &mut DataPage, rows: usize) -> Result<usize> {
        let mut levels = std::mem::take(&mut self.levels);
        let mut count = rows.min(page.rows);
        let known = match &mut page.levels {
            None => Ok(count),
            Some(of_page) => of_page.repeated().and_then(|run| match run {
                Some((level, repeated)) => {
                    count = count.min(repeated);
                    of_page.skip(count).map(|()| if level == 1 { count } else { 0 })
                }
                None => {
                    count = count.min(BLOCK_ROWS);
                    levels.resize(count, 0);
                    of_page.read(self.level, &mut levels).map(|()| ones(&levels))
                }
            }),
        };
        let known = known.map_err(|reason| self.error(reason))?;
        let first = self.values.len();
        self.values.resize(first + known, A::Native::default());
        match &mut page.values {
            Values::Plain(bytes) => {
                let length = self.length();
                if bytes.len() < known * length {
                    return Err(self.error("a page is cut off"));
                }
                let stored = bytes.split_to(known * length);
                self.values[first..]
                    .iter_mut()
                    .zip(made::<S, _>(&stored, length))
                    .for_each(|(value, made)| *value = made);
            }
            Values::Codes(codes) => {
                let values = &mut self.values[first..];
                let read = codes.read_entries(self.level, &self.dictionary, values);
                read.map_err(|reason| self.error(reason))?;
            }
        }
        if known < count || self.validity.is_some() {
            let validity = self.validity.get_or_insert_with(|| {
                let mut validity = BooleanBufferBuilder::new(first + count);
                validity.append_n(first, true);
                validity
            });
            if known == count || known == 0 {
                validity.append_n(count, known > 0);
                self.values.resize(first + count, A::Native::default());
            } else {
                levels.iter().for_each(|level| validity.append(*level == 1));
                // From the last one on, each value moves to its row.
                self.values.resize(first + count, A::Native::default());
                let mut value = first + known;
                for row in (0..count).rev() {
                    if levels[row] == 1 {
                        value -= 1;
                        self.values[first + row] = self.values[value];
                    } else {
                        self.values[first + row] = A::Native::default();
                    }
                }
            }
        }
        self.levels = levels;
        page.rows -= count;
        Ok(count)
    }

    /// Passes over some of the rows of the page, and gives back how many.
    fn skip_in_page(&self, page: &mut DataPage, rows: usize) -> Result<usize> {
        let count = rows.min(page.rows);
        if count == page.rows {
            page.rows = 0;
            return Ok(count);
        }
        let known = match &mut page.levels {
            None => Ok(count),
            Some(levels) => levels.count(self.level, count),
        };
        let known = known.map_err(|reason| self.error(reason))?;
        match &mut page.values {
            Values::Plain(bytes) => {
                let length = known.saturating_mul(self.length());
                if bytes.len() < length {
                    return Err(self.error("a page is cut off"));
                }
                drop(bytes.split_to(length));
            }
            Values::Codes(codes) => codes.skip(known).map_err(|reason| self.error(reason))?,
        }
        page.rows -= count;
        Ok(count)
    }
}

impl<S: Stored, A: ArrowPrimitiveType<Native: Made<S>>> Numbers for Column<S, A> {
    fn skip(&mut self, mut rows: usize) -> Result<()> {
        while rows > 0 {
            match self.page.take().filter(|page| page.rows > 0) {
                None => rows = self.next_page(rows)?,
                Some(mut page) => {
                    rows -= self.skip_in_page(&mut page, rows)?;
                    self.page = Some(page);
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, mut rows: usize) -> Result<()> {
        self.values.reserve(rows);
        while rows > 0 {
            match self.page.take().filter(|page| page.rows > 0) {
                None => _ = self.next_page(0)?,
                Some(mut page) => {
                    rows -= self.read_some(&mut page, rows)?;
                    self.page = Some(page);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<ArrayRef> {
        if self.values.is_empty() {
            return Ok(new_empty_array(&self.data_type));
        }
        let values = std::mem::take(&mut self.values);
        let nulls = self.validity.take().map(|mut validity| NullBuffer::new(validity.finish()));
        let array = PrimitiveArray::<A>::new(values.into(), nulls);
        let DataType::Dictionary(_, of_texts) = &self.data_type else {
            return Ok(Arc::new(array.with_data_type(self.data_type.clone())));
        };
        // A chunk without a value may have no dictionary.
        let texts = self.texts.clone().unwrap_or_else(|| new_empty_array(of_texts));
        let codes = (&array as &dyn Array).as_primitive::<UInt32Type>().clone();
        Ok(Arc::new(DictionaryArray::try_new(codes, texts)?))
    }
}

/// The numbers that these are stored as.
fn made<S: Stored, N: Made<S>>(stored: &[u8], length: usize) -> impl Iterator<Item = N> {
    stored.chunks_exact(length).map(|bytes| N::made(S::of(bytes)))
}

/// What follows a length of four bytes, and what is behind it.
fn prefixed(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()?;
    let behind = length.checked_add(4).filter(|behind| *behind <= bytes.len())?;
    Some((bytes.slice(4..behind), bytes.slice(behind..)))
}
