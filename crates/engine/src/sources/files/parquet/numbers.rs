//! Columns of numbers, decoded by our loops: pages of codes of a dictionary, or of plain values.
//!
//! The parquet crate decodes a code, and looks its value up, one by one; here codes are unpacked a block at a time, and
//! the values of a block gathered. Narrow types are made of the dictionary's entries, not of the rows.
//! (parquet-format: Encodings.md, "RLE/Bit-Packing Hybrid", "Dictionary Encoding", "Plain".)

use std::marker::PhantomData;

use bytes::Bytes;
use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanBufferBuilder, PrimitiveArray, new_empty_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use keirin_kernels::Level;
use keirin_kernels::bitpack::{Packed, unpack_into};
use keirin_kernels::compare::Comparable;
use keirin_kernels::gather::gather_into;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescriptor;
use std::sync::Arc;

use super::pages::{Pages, Place};

/// Rows that are decoded at a time: their codes stay in the nearest cache.
const BLOCK_ROWS: usize = 1024;

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
                A::Int8 | A::Int16 | A::Int32 | A::UInt8 | A::UInt16 | A::UInt32 | A::Date32
            ),
            Type::INT64 => match data_type {
                A::Int64 | A::UInt64 => true,
                A::Timestamp(unit, _) => *unit != TimeUnit::Second,
                _ => false,
            },
            Type::FLOAT => *data_type == A::Float32,
            Type::DOUBLE => *data_type == A::Float64,
            _ => false,
        }
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
    fn take(&mut self) -> ArrayRef;
}

/// The rows of a column chunk for which [`has_numbers`] and [`has_our_encodings`] hold.
pub(super) fn numbers(
    pages: Pages,
    place: Place,
    column: &ColumnDescriptor,
    data_type: &DataType,
) -> Option<Box<dyn Numbers>> {
    let is_nullable = column.max_def_level() > 0;
    macro_rules! of {
        ($stored:ty, $array:ty) => {
            Some(Box::new(Column::<$stored, $array>::new(pages, place, is_nullable, data_type.clone())))
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
    const BYTES: usize;

    /// Of as many bytes.
    fn of(bytes: &[u8]) -> Self;
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
    i32: i8, i16, i32, u8, u16, u32;
    i64: i64, u64;
    f32: f32;
    f64: f64;
}

struct Column<S, A: ArrowPrimitiveType> {
    pages: Pages,
    place: Place,
    level: Level,
    is_nullable: bool,
    data_type: DataType,
    dictionary: Vec<A::Native>,
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
    fn new(pages: Pages, place: Place, is_nullable: bool, data_type: DataType) -> Self {
        Self {
            pages,
            place,
            level: Level::best(),
            is_nullable,
            data_type,
            dictionary: Vec::new(),
            page: None,
            levels: Vec::new(),
            values: Vec::new(),
            validity: None,
            stored: PhantomData,
        }
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
                    let count = num_values as usize;
                    let entries = count.checked_mul(S::BYTES).and_then(|bytes| buf.get(..bytes));
                    let entries = entries.ok_or_else(|| self.error("its dictionary is cut off"))?;
                    self.dictionary = made::<S, _>(entries).collect();
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
        if encoding == Encoding::PLAIN {
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
                let length = known * S::BYTES;
                if bytes.len() < length {
                    return Err(self.error("a page is cut off"));
                }
                let stored = bytes.split_to(length);
                self.values[first..]
                    .iter_mut()
                    .zip(made::<S, _>(&stored))
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
                let length = known.saturating_mul(S::BYTES);
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

    fn take(&mut self) -> ArrayRef {
        if self.values.is_empty() {
            return new_empty_array(&self.data_type);
        }
        let next = Vec::with_capacity(self.values.len());
        let values = std::mem::replace(&mut self.values, next);
        let nulls = self.validity.take().map(|mut validity| NullBuffer::new(validity.finish()));
        let array = PrimitiveArray::<A>::new(values.into(), nulls);
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

/// The numbers that these are stored as.
fn made<S: Stored, N: Made<S>>(stored: &[u8]) -> impl Iterator<Item = N> {
    stored.chunks_exact(S::BYTES).map(|bytes| N::made(S::of(bytes)))
}

fn ones(levels: &[u32]) -> usize {
    levels.iter().filter(|level| **level == 1).count()
}

/// What follows a length of four bytes, and what is behind it.
fn prefixed(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()?;
    let behind = length.checked_add(4).filter(|behind| *behind <= bytes.len())?;
    Some((bytes.slice(4..behind), bytes.slice(behind..)))
}

const CUT_OFF: &str = "the codes or levels of a page are cut off";
const NO_ENTRY: &str = "a code is none of its dictionary";
/// Fewer packed numbers are taken one by one.
const PACKED_MIN: usize = 64;

/// Numbers of up to 32 bits in runs: of the same one, or of packed ones.
struct Hybrid {
    bytes: Bytes,
    /// Behind the run.
    at: usize,
    width: u32,
    run: Run,
    /// What is left of the run.
    left: usize,
}

#[derive(Clone, Copy)]
enum Run {
    Repeated(u32),
    /// From this byte on, of which so many numbers are done.
    Packed(usize, usize),
}

impl Hybrid {
    fn new(bytes: Bytes, width: u32) -> Self {
        Self { bytes, at: 0, width, run: Run::Repeated(0), left: 0 }
    }

    /// The next number and how often it is repeated, if the next run is such.
    fn repeated(&mut self) -> std::result::Result<Option<(u32, usize)>, &'static str> {
        self.next_run()?;
        Ok(match self.run {
            Run::Repeated(value) => Some((value, self.left)),
            Run::Packed(..) => None,
        })
    }

    fn next_run(&mut self) -> std::result::Result<(), &'static str> {
        while self.left == 0 {
            let mut header = 0_u64;
            let mut digits = 0;
            loop {
                let byte = *self.bytes.get(self.at).ok_or(CUT_OFF)?;
                self.at += 1;
                header |= u64::from(byte & 0x7f) << (7 * digits);
                digits += 1;
                if byte & 0x80 == 0 {
                    break;
                }
                if digits == 5 {
                    return Err("a run of codes or levels is too long");
                }
            }
            let length = usize::try_from(header >> 1).map_err(|_| CUT_OFF)?;
            let rest = self.bytes.len() - self.at;
            if header & 1 == 1 {
                // Eight numbers take as many bytes as each has bits. The last ones may be missing.
                let bytes = length.saturating_mul(self.width as usize).min(rest);
                self.left = match self.width {
                    0 => length.saturating_mul(8),
                    width => (8 * bytes / width as usize).min(length.saturating_mul(8)),
                };
                self.run = Run::Packed(self.at, 0);
                self.at += bytes;
            } else {
                let bytes = self.width.div_ceil(8) as usize;
                if rest < bytes {
                    return Err(CUT_OFF);
                }
                let mut value = [0; 4];
                value[..bytes].copy_from_slice(&self.bytes[self.at..self.at + bytes]);
                self.run = Run::Repeated(u32::from_le_bytes(value));
                self.left = length;
                self.at += bytes;
            }
        }
        Ok(())
    }

    /// Passes over numbers of the run.
    fn pass(&mut self, count: usize) {
        self.left -= count;
        if let Run::Packed(_, done) = &mut self.run {
            *done += count;
        }
    }

    /// Numbers of a packed run.
    #[inline(always)]
    fn few(&self, start: usize, done: usize) -> impl Iterator<Item = u32> {
        // A word may reach beyond the run: its bits are cut off.
        let (bytes, width) = (&self.bytes[start..], self.width as usize);
        #[expect(clippy::cast_possible_truncation, reason = "numbers have up to 32 bits")]
        (done..).map(move |number| {
            let bit = number * width;
            let rest = &bytes[bit / 8..];
            let word = rest.first_chunk::<8>().copied().unwrap_or_else(|| {
                let mut last = [0; 8];
                let count = rest.len().min(8);
                last[..count].copy_from_slice(&rest[..count]);
                last
            });
            (u64::from_le_bytes(word) >> (bit % 8)) as u32
                & u32::MAX.checked_shr(32 - width as u32).unwrap_or(0)
        })
    }

    fn unpack(&self, level: Level, start: usize, done: usize, out: &mut [u32]) {
        let packed = Packed::new(&self.bytes[start..self.at], self.width, done + out.len(), 0);
        unpack_into(level, packed, done, out);
    }

    /// The next numbers.
    fn read(&mut self, level: Level, mut out: &mut [u32]) -> std::result::Result<(), &'static str> {
        while !out.is_empty() {
            self.next_run()?;
            let count = self.left.min(out.len());
            let (now, later) = out.split_at_mut(count);
            match self.run {
                Run::Repeated(value) => now.fill(value),
                Run::Packed(start, done) if count < PACKED_MIN => {
                    now.iter_mut().zip(self.few(start, done)).for_each(|(out, number)| *out = number);
                }
                Run::Packed(start, done) => self.unpack(level, start, done, now),
            }
            self.pass(count);
            out = later;
        }
        Ok(())
    }

    /// The entries of a dictionary with the next numbers.
    fn read_entries<T: Comparable>(
        &mut self,
        level: Level,
        dictionary: &[T],
        mut out: &mut [T],
    ) -> std::result::Result<(), &'static str> {
        while !out.is_empty() {
            self.next_run()?;
            let count = self.left.min(out.len());
            let count = if matches!(self.run, Run::Packed(..)) { count.min(BLOCK_ROWS) } else { count };
            let (now, later) = out.split_at_mut(count);
            match self.run {
                Run::Repeated(code) => now.fill(*dictionary.get(code as usize).ok_or(NO_ENTRY)?),
                Run::Packed(start, done) if count < PACKED_MIN => {
                    for (out, code) in now.iter_mut().zip(self.few(start, done)) {
                        *out = *dictionary.get(code as usize).ok_or(NO_ENTRY)?;
                    }
                }
                Run::Packed(start, done) => {
                    let codes = &mut [0; BLOCK_ROWS][..count];
                    self.unpack(level, start, done, codes);
                    if !gather_into(level, dictionary, codes, now) {
                        return Err(NO_ENTRY);
                    }
                }
            }
            self.pass(count);
            out = later;
        }
        Ok(())
    }

    fn skip(&mut self, mut numbers: usize) -> std::result::Result<(), &'static str> {
        while numbers > 0 {
            self.next_run()?;
            let count = self.left.min(numbers);
            self.pass(count);
            numbers -= count;
        }
        Ok(())
    }

    /// How many of the next numbers, which are passed over, are ones.
    fn count(&mut self, level: Level, mut numbers: usize) -> std::result::Result<usize, &'static str> {
        let (mut block, mut count) = ([0; BLOCK_ROWS], 0);
        while numbers > 0 {
            if let Some((number, repeated)) = self.repeated()? {
                let repeated = repeated.min(numbers);
                self.skip(repeated)?;
                numbers -= repeated;
                count += if number == 1 { repeated } else { 0 };
                continue;
            }
            let block = &mut block[..numbers.min(BLOCK_ROWS)];
            self.read(level, block)?;
            (numbers, count) = (numbers - block.len(), count + ones(block));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of these numbers as the format has them, of `width` bits.
    fn encoded(runs: &[(bool, &[u32])], width: u32) -> Bytes {
        let mut bytes = Vec::new();
        for (is_packed, numbers) in runs {
            let (length, tag) = if *is_packed { (numbers.len() / 8, 1) } else { (numbers.len(), 0) };
            let mut header = (length << 1) | tag;
            while header >= 0x80 {
                bytes.push(u8::try_from(header & 0x7f).unwrap() | 0x80);
                header >>= 7;
            }
            bytes.push(u8::try_from(header).unwrap());
            if *is_packed {
                bytes.extend(keirin_kernels::bitpack::pack(Level::best(), numbers, width, 0));
            } else {
                bytes.extend_from_slice(&numbers[0].to_le_bytes()[..width.div_ceil(8) as usize]);
            }
        }
        bytes.into()
    }

    #[test]
    fn runs_are_read_and_passed_over() {
        let packed: Vec<u32> = (0..3000).map(|number| number * 7 % 61).collect();
        let repeated = [17; 500];
        let runs: [(bool, &[u32]); 4] =
            [(true, &packed[..2000]), (false, &repeated), (true, &packed[2000..]), (false, &repeated[..1])];
        let all: Vec<u32> = runs.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect();
        let bytes = encoded(&runs, 6);
        for step in [1, 7, 8, 100, 1999, 5000] {
            let mut hybrid = Hybrid::new(bytes.clone(), 6);
            let mut place = 0;
            for turn in 0.. {
                let count = step.min(all.len() - place);
                if count == 0 {
                    break;
                }
                match turn % 3 {
                    0 => {
                        let mut out = vec![0; count];
                        hybrid.read(Level::best(), &mut out).unwrap();
                        assert_eq!(out, all[place..place + count]);
                    }
                    1 => hybrid.skip(count).unwrap(),
                    _ => {
                        let expected =
                            all[place..place + count].iter().filter(|number| **number == 1).count();
                        assert_eq!(hybrid.count(Level::best(), count), Ok(expected));
                    }
                }
                place += count;
            }
            assert_eq!(hybrid.skip(1), Err(CUT_OFF));
        }
    }

    #[test]
    fn any_bytes_give_numbers_or_an_error() {
        let mut state = 7_u64;
        for round in 0..20_000_u32 {
            let bytes: Vec<u8> = (0..round % 40)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            let mut hybrid = Hybrid::new(bytes.into(), round % 33);
            let mut out = [0; 300];
            let read = hybrid.read(Level::best(), &mut out);
            assert!(
                read.is_err()
                    || out.iter().all(|number| u64::from(*number) < 1 << (8 * (round % 33).div_ceil(8)))
            );
            let _ = hybrid.count(Level::best(), 5000);
        }
    }
}
