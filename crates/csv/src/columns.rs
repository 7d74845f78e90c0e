//! Builds Arrow arrays from fields, one column of a block of records at a time.
//!
//! A loop per type runs over the block, so that what is known of the type stays in registers and branches are
//! predictable; the choice of the loop is one virtual call per block. A value that does not convert is noted, and a
//! NULL takes its place until the row is left out.

use std::{marker::PhantomData, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, BooleanArray, BooleanBufferBuilder, NullBufferBuilder,
        PrimitiveArray, StringArray, new_null_array,
    },
    buffer::{Buffer, OffsetBuffer},
    compute::{CastOptions, cast_with_options, concat},
    datatypes::{
        DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
    error::ArrowError,
};

use crate::{
    dialect::Shape,
    error::Flaw,
    options::{Cast, Nulls},
    temporal::{DateLayout, Moment, parse_date, parse_moment, parse_time},
    tokenize::{Field, Records},
    types::{Reading, parse_custom_date, parse_custom_timestamp},
    values::{parse_bool, parse_f32, parse_f64, parse_i64, parse_u64},
};

/// A block of records and what is needed to read its cells.
pub(crate) struct Block<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) records: &'a Records,
    pub(crate) shape: &'a Shape,
    pub(crate) nulls: &'a Nulls,
}

impl Block<'_> {
    /// One field of every record. Each record has the field: the parser checked the widths.
    #[inline]
    fn column(&self, position: usize) -> impl Iterator<Item = Field> {
        self.records.records.iter().map(move |record| self.records.fields[record.first_field + position])
    }
}

/// A value that does not convert.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The record in the block.
    pub(crate) record: usize,
    pub(crate) flaw: Flaw,
}

/// An array in the making.
pub(crate) trait Builder {
    /// Appends field `position` of each record.
    fn append(
        &mut self,
        block: &Block<'_>,
        position: usize,
        failures: &mut Vec<Failure>,
    ) -> Result<(), ArrowError>;
    /// The array of all values appended; the builder is empty again.
    fn finish(&mut self) -> Result<ArrayRef, ArrowError>;
}

/// The builder of a type.
pub(crate) fn builder(data_type: &DataType, reading: &Reading, cast: Option<Cast>) -> Box<dyn Builder> {
    fn narrow<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
        T::try_from(parse_i64(text)?).ok()
    }
    fn narrow_unsigned<T: TryFrom<u64>>(text: &[u8]) -> Option<T> {
        T::try_from(parse_u64(text)?).ok()
    }
    match data_type {
        DataType::Boolean => {
            Box::new(Booleans { values: BooleanBufferBuilder::new(0), nulls: NullBufferBuilder::new(0) })
        }
        DataType::Int8 => Primitives::<Int8Type, _>::boxed(narrow),
        DataType::Int16 => Primitives::<Int16Type, _>::boxed(narrow),
        DataType::Int32 => Primitives::<Int32Type, _>::boxed(narrow),
        DataType::Int64 => Primitives::<Int64Type, _>::boxed(parse_i64),
        DataType::UInt8 => Primitives::<UInt8Type, _>::boxed(narrow_unsigned),
        DataType::UInt16 => Primitives::<UInt16Type, _>::boxed(narrow_unsigned),
        DataType::UInt32 => Primitives::<UInt32Type, _>::boxed(narrow_unsigned),
        DataType::UInt64 => Primitives::<UInt64Type, _>::boxed(parse_u64),
        DataType::Float32 => Primitives::<Float32Type, _>::boxed(parse_f32),
        DataType::Float64 => Primitives::<Float64Type, _>::boxed(parse_f64),
        DataType::Date32 => match reading.clone() {
            Reading::Custom(format) => {
                Primitives::<Date32Type, _>::boxed(move |text| parse_custom_date(text, &format))
            }
            Reading::Layout(layout) => {
                Primitives::<Date32Type, _>::boxed(move |text| parse_date(text, layout))
            }
            Reading::Plain => {
                Primitives::<Date32Type, _>::boxed(|text| parse_date(text, DateLayout::YearMonthDay))
            }
        },
        DataType::Time64(TimeUnit::Microsecond) => Primitives::<Time64MicrosecondType, _>::boxed(|text| {
            parse_time(text).filter(|time| time % 1000 == 0).map(|time| time / 1000)
        }),
        // A time without a zone is local time of the column, which Arrow's cast knows how to convert.
        DataType::Timestamp(unit, zone) if zone.as_deref().is_none_or(is_utc) => {
            timestamps(*unit, zone.clone(), reading.clone())
        }
        DataType::Utf8 => Box::new(Texts::default()),
        other => {
            let cast = cast.filter(|_| other.is_nested() || matches!(other, DataType::FixedSizeBinary(_)));
            Box::new(Casts { to: other.clone(), cast, blocks: Vec::new() })
        }
    }
}

fn is_utc(zone: &str) -> bool {
    ["+00:00", "UTC", "Z"].contains(&zone)
}

fn timestamps(unit: TimeUnit, zone: Option<Arc<str>>, reading: Reading) -> Box<dyn Builder> {
    fn typed<T: ArrowPrimitiveType<Native = i64>>(
        data_type: DataType,
        per_second: i64,
        reading: Reading,
    ) -> Box<dyn Builder> {
        let zoned = matches!(data_type, DataType::Timestamp(_, Some(_)));
        // A zone in the text of a column without one would be lost.
        let number = move |moment: Option<Moment>| {
            moment.filter(|moment| zoned || moment.offset_seconds.is_none())?.since_epoch(per_second)
        };
        match reading {
            Reading::Custom(format) => Primitives::<T, _>::boxed_as(data_type, move |text| {
                number(parse_custom_timestamp(text, &format))
            }),
            Reading::Layout(DateLayout::YearMonthDay) | Reading::Plain => {
                Primitives::<T, _>::boxed_as(data_type, move |text| {
                    number(parse_moment(text, DateLayout::YearMonthDay))
                })
            }
            Reading::Layout(layout) => {
                Primitives::<T, _>::boxed_as(data_type, move |text| number(parse_moment(text, layout)))
            }
        }
    }
    let data_type = DataType::Timestamp(unit, zone);
    match unit {
        TimeUnit::Second => typed::<TimestampSecondType>(data_type, 1, reading),
        TimeUnit::Millisecond => typed::<TimestampMillisecondType>(data_type, 1_000, reading),
        TimeUnit::Microsecond => typed::<TimestampMicrosecondType>(data_type, 1_000_000, reading),
        TimeUnit::Nanosecond => typed::<TimestampNanosecondType>(data_type, 1_000_000_000, reading),
    }
}

/// The value of a cell in a column that is not text; `Ok(None)` for NULL.
#[inline]
fn convert<V>(cell: &[u8], nulls: &Nulls, parse: impl Fn(&[u8]) -> Option<V>) -> Result<Option<V>, ()> {
    if let Some(value) = parse(cell) {
        return Ok(Some(value));
    }
    convert_oddity(cell, nulls, parse)
}

/// A cell that `parse` refuses as it is: NULL, or a value between blanks.
fn convert_oddity<V>(
    cell: &[u8],
    nulls: &Nulls,
    parse: impl Fn(&[u8]) -> Option<V>,
) -> Result<Option<V>, ()> {
    if nulls.typed(cell) {
        return Ok(None);
    }
    let trimmed = cell.trim_ascii();
    if trimmed.len() < cell.len()
        && let Some(value) = parse(trimmed)
    {
        return Ok(Some(value));
    }
    Err(())
}

struct Primitives<T: ArrowPrimitiveType, P> {
    data_type: DataType,
    parse: P,
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
    of: PhantomData<T>,
}

impl<T: ArrowPrimitiveType, P: Fn(&[u8]) -> Option<T::Native> + 'static> Primitives<T, P> {
    fn boxed(parse: P) -> Box<dyn Builder> {
        Self::boxed_as(T::DATA_TYPE, parse)
    }

    fn boxed_as(data_type: DataType, parse: P) -> Box<dyn Builder> {
        let nulls = NullBufferBuilder::new(0);
        Box::new(Primitives::<T, P> { data_type, parse, values: Vec::new(), nulls, of: PhantomData })
    }
}

impl<T: ArrowPrimitiveType, P: Fn(&[u8]) -> Option<T::Native>> Builder for Primitives<T, P> {
    fn append(
        &mut self,
        block: &Block<'_>,
        position: usize,
        failures: &mut Vec<Failure>,
    ) -> Result<(), ArrowError> {
        self.values.reserve(block.records.records.len());
        for (record, field) in block.column(position).enumerate() {
            match convert(field.raw(block.bytes), block.nulls, &self.parse) {
                Ok(Some(value)) => {
                    self.values.push(value);
                    self.nulls.append_non_null();
                }
                missing => {
                    if missing.is_err() {
                        failures.push(Failure { record, flaw: Flaw::Value });
                    }
                    self.values.push(T::Native::default());
                    self.nulls.append_null();
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::try_new(values.into(), self.nulls.finish())?;
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }
}

struct Booleans {
    values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl Builder for Booleans {
    fn append(
        &mut self,
        block: &Block<'_>,
        position: usize,
        failures: &mut Vec<Failure>,
    ) -> Result<(), ArrowError> {
        for (record, field) in block.column(position).enumerate() {
            let value = convert(field.raw(block.bytes), block.nulls, parse_bool);
            if value.is_err() {
                failures.push(Failure { record, flaw: Flaw::Value });
            }
            let value = value.ok().flatten();
            self.values.append(value.unwrap_or(false));
            self.nulls.append(value.is_some());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BooleanArray::new(self.values.finish(), self.nulls.finish())))
    }
}

/// Text: the bytes of all values, one after the other. A chunk is shorter than 1 GiB, so 32-bit offsets suffice.
struct Texts {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { bytes: Vec::new(), offsets: vec![0], nulls: NullBufferBuilder::new(0) }
    }
}

impl Texts {
    /// Replaces the values of the block that are not UTF-8 by NULL.
    #[cold]
    fn check_each(&mut self, first: usize, failures: &mut Vec<Failure>) {
        let valid = |range: &[i32]| {
            let value = &self.bytes[at(range[0])..at(range[1])];
            std::str::from_utf8(value).is_ok()
        };
        let bad = self.offsets[first..].windows(2).enumerate().filter(|(_, range)| !valid(range));
        let before = failures.len();
        failures.extend(bad.map(|(record, _)| Failure { record, flaw: Flaw::Encoding }));
        for failure in &failures[before..] {
            let range = &self.offsets[first + failure.record..];
            self.bytes[at(range[0])..at(range[1])].fill(b'?');
        }
    }
}

#[expect(clippy::cast_sign_loss, reason = "offsets are never negative")]
fn at(offset: i32) -> usize {
    offset as usize
}

impl Builder for Texts {
    fn append(
        &mut self,
        block: &Block<'_>,
        position: usize,
        failures: &mut Vec<Failure>,
    ) -> Result<(), ArrowError> {
        let first = self.offsets.len() - 1;
        let first_byte = self.bytes.len();
        self.offsets.reserve(block.records.records.len());
        for field in block.column(position) {
            let raw = field.raw(block.bytes);
            if !field.quoted() && block.nulls.text(raw) {
                self.nulls.append_null();
            } else {
                if field.escaped() {
                    field.unescape(block.bytes, block.shape, &mut self.bytes);
                } else {
                    self.bytes.extend_from_slice(raw);
                }
                self.nulls.append_non_null();
            }
            let end = i32::try_from(self.bytes.len())
                .map_err(|_| ArrowError::OffsetOverflowError(self.bytes.len()))?;
            self.offsets.push(end);
        }
        if !self.bytes[first_byte..].is_ascii() {
            self.check_each(first, failures);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let bytes = Buffer::from_vec(std::mem::take(&mut self.bytes));
        let offsets = OffsetBuffer::new(std::mem::replace(&mut self.offsets, vec![0]).into());
        Ok(Arc::new(StringArray::try_new(offsets, bytes, self.nulls.finish())?))
    }
}

/// Any other type: collected as text, then cast.
struct Casts {
    to: DataType,
    /// Arrow's if there is none.
    cast: Option<Cast>,
    blocks: Vec<ArrayRef>,
}

impl Casts {
    /// The values of texts; NULL for a text that is none.
    fn convert(&self, texts: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let Some(cast) = self.cast else {
            let options = CastOptions { safe: true, ..CastOptions::default() };
            return cast_with_options(texts, &self.to, &options);
        };
        if let Ok(values) = cast(texts, &self.to) {
            return Ok(values);
        }
        let one = |row| cast(&texts.slice(row, 1), &self.to).unwrap_or_else(|_| new_null_array(&self.to, 1));
        let values: Vec<_> = (0..texts.len()).map(one).collect();
        concat(&values.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }
}

impl Builder for Casts {
    fn append(
        &mut self,
        block: &Block<'_>,
        position: usize,
        failures: &mut Vec<Failure>,
    ) -> Result<(), ArrowError> {
        let mut texts = Texts::default();
        texts.append(block, position, failures)?;
        let texts = texts.finish()?;
        let is_text = matches!(self.to, DataType::LargeUtf8 | DataType::Utf8View);
        let values = self.convert(&texts)?;
        for (record, field) in block.column(position).enumerate() {
            let lost = texts.is_valid(record) && values.is_null(record);
            if lost && (is_text || !block.nulls.typed(field.raw(block.bytes))) {
                failures.push(Failure { record, flaw: Flaw::Value });
            }
        }
        self.blocks.push(values);
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let blocks = std::mem::take(&mut self.blocks);
        if blocks.is_empty() {
            return Ok(new_null_array(&self.to, 0));
        }
        concat(&blocks.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }
}
