//! Flat columns, decoded by our loops: pages of codes of a dictionary, or of values themselves. What these are is said by the
//! [form](Form) of a column: [numbers](super::numbers) or [texts](super::texts).
//!
//! The parquet crate decodes a code, and looks its value up, one by one; here codes are unpacked a block at a time, and
//! the values of a block gathered. (parquet-format: Encodings.md, "RLE/Bit-Packing Hybrid", "Dictionary Encoding".)

use arrow::array::{ArrayRef, BooleanBufferBuilder, new_empty_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{BinaryViewType, DataType, StringViewType, TimeUnit};
use bytes::Bytes;
use keirin_kernels::Level;
use keirin_kernels::compare::Comparable;
use parquet::basic::{Encoding, EncodingMask, Type};
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescriptor;

use super::numbers;
use super::pages::{Pages, Place};
use super::runs::{BLOCK_ROWS, Hybrid, ones};
use super::texts::Texts;

/// Decimals of so many digits have 64 bits.
const WORD_DIGITS: u8 = 18;

fn is_flat(column: &ColumnDescriptor) -> bool {
    column.path().parts().len() == 1 && column.max_rep_level() == 0 && column.max_def_level() <= 1
}

/// Whether columns of this physical type, which the parquet crate would read as type `plain`, are read as this type by our
/// loops as texts.
pub(super) fn has_texts(column: &ColumnDescriptor, plain: &DataType, data_type: &DataType) -> bool {
    is_flat(column)
        && column.physical_type() == Type::BYTE_ARRAY
        && matches!(plain, DataType::Utf8 | DataType::Binary)
        && matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Whether columns of this physical type are read as this type by our loops as numbers, provided that the parquet crate
/// would read them as it without being told to.
pub(super) fn has_numbers(column: &ColumnDescriptor, data_type: &DataType) -> bool {
    use DataType as A;
    is_flat(column)
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
    is_flat(column)
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
    has_codes(chunk).then(|| codes_of(data_type))
}

/// Whether all pages of a chunk have codes of its dictionary.
pub(super) fn has_codes(chunk: &ColumnChunkMetaData) -> bool {
    let is_all = |pages: &EncodingMask| {
        pages.is_only(Encoding::RLE_DICTIONARY) || pages.is_only(Encoding::PLAIN_DICTIONARY)
    };
    chunk.page_encoding_stats_mask().is_some_and(is_all)
}

/// The type of codes of values of this type.
pub(super) fn codes_of(data_type: &DataType) -> DataType {
    DataType::Dictionary(DataType::UInt32.into(), data_type.clone().into())
}

/// Whether a column chunk has only encodings that are decoded here.
pub(super) fn has_our_encodings(chunk: &ColumnChunkMetaData) -> bool {
    let stored = chunk.column_type();
    chunk.encodings().all(|encoding| match encoding {
        Encoding::PLAIN | Encoding::RLE | Encoding::RLE_DICTIONARY => true,
        Encoding::PLAIN_DICTIONARY => true,
        Encoding::DELTA_BINARY_PACKED => matches!(stored, Type::INT32 | Type::INT64),
        Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY => stored == Type::BYTE_ARRAY,
        Encoding::BYTE_STREAM_SPLIT => stored != Type::BYTE_ARRAY,
        // Old writers name it for levels that are not there.
        #[expect(deprecated, reason = "old files name it")]
        Encoding::BIT_PACKED => true,
    })
}

/// A column, from which rows are read in order.
pub(super) trait Column: Send {
    /// Passes over rows.
    fn skip(&mut self, rows: usize) -> Result<()>;

    /// Adds rows to those that are taken next.
    fn read(&mut self, rows: usize) -> Result<()>;

    /// What was read since the last time.
    fn take(&mut self) -> Result<ArrayRef>;

    /// Before rows are read: the entries of its dictionary, if it begins with one.
    fn entries(&mut self) -> Result<Option<ArrayRef>>;
}

/// The rows of a column chunk for which [`has_our_encodings`] and one of [`has_numbers`], [`has_texts`] hold, or which are
/// read as their [`coded_type`].
pub(super) fn column(
    pages: Pages,
    place: Place,
    column: &ColumnDescriptor,
    data_type: &DataType,
) -> Option<Box<dyn Column>> {
    let place = (pages, place, column.max_def_level() > 0);
    match (column.physical_type(), data_type) {
        (Type::BYTE_ARRAY, DataType::BinaryView) => {
            Some(Flat::boxed(place, data_type, Texts::<BinaryViewType>::new(data_type)))
        }
        (Type::BYTE_ARRAY, DataType::Utf8View | DataType::Dictionary(..)) => {
            Some(Flat::boxed(place, data_type, Texts::<StringViewType>::new(data_type)))
        }
        _ => numbers::column(place, column, data_type),
    }
}

/// What is wrong with a page.
pub(super) type Reason = &'static str;

/// How the values of a column are stored, and what an array has of them.
pub(super) trait Form: Send {
    /// What there is of a row until it is taken; of NULL, any.
    type Value: Comparable + Default + Send;
    /// What is left of a page of values themselves.
    type Plain: Send;

    /// Makes room for so many rows.
    fn reserve(&mut self, _: usize) {}

    /// So many entries of a dictionary.
    fn entries(&mut self, page: Bytes, count: usize) -> Result<Vec<Self::Value>, Reason>;

    /// The entries of the dictionary.
    fn dictionary(&mut self, entries: &[Self::Value]) -> Result<ArrayRef> {
        self.take(entries.to_vec(), None)
    }

    /// Begins a page of values themselves; `None` if they never have this encoding.
    fn begin(&self, page: Bytes, encoding: Encoding) -> Result<Option<Self::Plain>, Reason>;

    /// The next values of a page.
    fn read(&mut self, page: &mut Self::Plain, out: &mut [Self::Value]) -> Result<(), Reason>;

    /// Passes over the next values of a page.
    fn skip(&mut self, page: &mut Self::Plain, count: usize) -> Result<(), Reason>;

    /// The rows with these values.
    fn take(&mut self, values: Vec<Self::Value>, nulls: Option<NullBuffer>) -> Result<ArrayRef>;
}

/// The pages of a column, where they are, and whether there may be NULLs.
pub(super) type FlatPlace = (Pages, Place, bool);

/// A column of a form.
pub(super) struct Flat<F: Form> {
    pages: Pages,
    place: Place,
    level: Level,
    is_nullable: bool,
    data_type: DataType,
    form: F,
    dictionary: Vec<F::Value>,
    has_dictionary: bool,
    /// Whether a page of values came.
    has_begun: bool,
    page: Option<DataPage<F::Plain>>,
    /// Of a block.
    levels: Vec<u32>,
    values: Vec<F::Value>,
    /// Of the values, once there is a NULL.
    validity: Option<BooleanBufferBuilder>,
}

/// What is left of a page.
struct DataPage<P> {
    rows: usize,
    /// A one for each row with a value, if there may be others.
    levels: Option<Hybrid>,
    values: Values<P>,
}

enum Values<P> {
    Codes(Hybrid),
    Plain(P),
}

impl<F: Form + 'static> Flat<F> {
    pub(super) fn boxed(
        (pages, place, is_nullable): FlatPlace,
        data_type: &DataType,
        form: F,
    ) -> Box<dyn Column> {
        Box::new(Self {
            pages,
            place,
            level: Level::best(),
            is_nullable,
            data_type: data_type.clone(),
            form,
            dictionary: Vec::new(),
            has_dictionary: false,
            has_begun: false,
            page: None,
            levels: Vec::new(),
            values: Vec::new(),
            validity: None,
        })
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
            self.has_begun |= !page.is_dictionary_page();
            match page {
                Page::DictionaryPage { buf, num_values, .. } => {
                    self.begin_dictionary(buf, num_values as usize)?;
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

    fn begin_dictionary(&mut self, page: Bytes, count: usize) -> Result<()> {
        // What was read would be codes of other entries.
        if std::mem::replace(&mut self.has_dictionary, true) || self.has_begun {
            return Err(self.error("it has two dictionaries, or one behind values"));
        }
        let entries = self.form.entries(page, count);
        self.dictionary = entries.map_err(|reason| self.error(reason))?;
        Ok(())
    }

    fn encoded(&self, bytes: Bytes, encoding: Encoding) -> Result<Values<F::Plain>> {
        let has_codes = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        // A page of NULLs may have no byte.
        if !has_codes && !bytes.is_empty() {
            let page = self.form.begin(bytes, encoding).map_err(|reason| self.error(reason))?;
            let page = page.map(Values::Plain);
            return page.ok_or_else(|| self.error("a page has an encoding that its footer does not list"));
        }
        let width = bytes.first().copied().unwrap_or(0);
        if width > 32 {
            return Err(self.error("its codes have more than 32 bits"));
        }
        Ok(Values::Codes(Hybrid::new(bytes.slice(bytes.len().min(1)..), width.into())))
    }

    /// Reads some of the rows of the page, and gives back how many.
    fn read_some(&mut self, page: &mut DataPage<F::Plain>, rows: usize) -> Result<usize> {
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
        self.values.resize(first + known, F::Value::default());
        match &mut page.values {
            Values::Plain(page) => {
                let read = self.form.read(page, &mut self.values[first..]);
                read.map_err(|reason| self.error(reason))?;
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
                self.values.resize(first + count, F::Value::default());
            } else {
                levels.iter().for_each(|level| validity.append(*level == 1));
                // From the last one on, each value moves to its row.
                self.values.resize(first + count, F::Value::default());
                let mut value = first + known;
                for row in (0..count).rev() {
                    if levels[row] == 1 {
                        value -= 1;
                        self.values[first + row] = self.values[value];
                    } else {
                        self.values[first + row] = F::Value::default();
                    }
                }
            }
        }
        self.levels = levels;
        page.rows -= count;
        Ok(count)
    }

    /// Passes over some of the rows of the page, and gives back how many.
    fn skip_in_page(&mut self, page: &mut DataPage<F::Plain>, rows: usize) -> Result<usize> {
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
            Values::Plain(page) => self.form.skip(page, known).map_err(|reason| self.error(reason))?,
            Values::Codes(codes) => codes.skip(known).map_err(|reason| self.error(reason))?,
        }
        page.rows -= count;
        Ok(count)
    }
}

impl<F: Form + 'static> Column for Flat<F> {
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
        self.form.reserve(rows);
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
        self.form.take(values, nulls)
    }

    fn entries(&mut self) -> Result<Option<ArrayRef>> {
        if !self.pages.peek_next_page()?.is_some_and(|next| next.is_dict) {
            return Ok(None);
        }
        let Some(Page::DictionaryPage { buf, num_values, .. }) = self.pages.get_next_page()? else {
            return Ok(None);
        };
        self.begin_dictionary(buf, num_values as usize)?;
        self.form.dictionary(&self.dictionary).map(Some)
    }
}

/// What follows a length of four bytes, and what is behind it.
fn prefixed(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()?;
    let behind = length.checked_add(4).filter(|behind| *behind <= bytes.len())?;
    Some((bytes.slice(4..behind), bytes.slice(behind..)))
}
