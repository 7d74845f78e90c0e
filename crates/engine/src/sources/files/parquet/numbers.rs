//! Numbers: plain ones, differences, and such whose bytes are apart from each other.
//!
//! Narrow types are made of the dictionary's entries, not of the rows.
//! (parquet-format: Encodings.md, "Plain", "Delta Encoding", "Byte Stream Split".)

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use bytes::Bytes;
use keirin_kernels::compare::Comparable;
use parquet::basic::{Encoding, Type};
use parquet::errors::Result;
use parquet::schema::types::ColumnDescriptor;

use super::deltas::Deltas;
use super::flat::{Column, Flat, FlatPlace, Form, Reason};
use super::runs::BLOCK_ROWS;

/// The bytes of the longest number.
const LONGEST: usize = size_of::<i128>();
const CUT_OFF: Reason = "a page is cut off";

/// The rows of a column of numbers.
pub(super) fn column(
    place: FlatPlace,
    column: &ColumnDescriptor,
    data_type: &DataType,
) -> Option<Box<dyn Column>> {
    let length = usize::try_from(column.type_length()).unwrap_or(0);
    macro_rules! of {
        ($stored:ty, $array:ty) => {{
            let length = if <$stored>::BYTES == 0 { length } else { <$stored>::BYTES };
            Some(Flat::boxed(place, data_type, Numbers::<$stored, $array>::new(data_type, length)))
        }};
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

    /// Whether they may be stored as differences.
    const HAS_DELTAS: bool = false;

    /// Of as many bytes.
    fn of(bytes: &[u8]) -> Self;
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
    ($($stored:ty, $has_deltas:literal: $($made:ty),*;)*) => {
        $(
            impl Stored for $stored {
                const BYTES: usize = size_of::<$stored>();
                const HAS_DELTAS: bool = $has_deltas;

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
    i32, true: i8, i16, i32, i64, i128, u8, u16, u32;
    i64, true: i64, i128, u64;
    f32, false: f32;
    f64, false: f64;
}

/// See the [module](self).
struct Numbers<S, A> {
    data_type: DataType,
    /// Of a stored value.
    length: usize,
    types: PhantomData<fn() -> (S, A)>,
}

/// What is left of a page of numbers themselves.
enum NumberPage {
    Plain(Bytes),
    Deltas(Deltas),
    /// The first bytes of all, then the second ones; so many numbers are done.
    Split(Bytes, usize),
}

impl<S: Stored, A: ArrowPrimitiveType<Native: Made<S>>> Numbers<S, A> {
    fn new(data_type: &DataType, length: usize) -> Self {
        Self { data_type: data_type.clone(), length, types: PhantomData }
    }

    /// The numbers that are stored as these bytes.
    #[inline(always)]
    fn made(&self, stored: &[u8], out: &mut [A::Native]) {
        // A length that is known makes faster loops.
        let length = if S::BYTES == 0 { self.length } else { S::BYTES };
        out.iter_mut()
            .zip(stored.chunks_exact(length))
            .for_each(|(out, bytes)| *out = A::Native::made(S::of(bytes)));
    }
}

impl<S: Stored, A: ArrowPrimitiveType<Native: Made<S>>> Form for Numbers<S, A> {
    type Value = A::Native;
    type Plain = NumberPage;

    fn entries(&mut self, page: Bytes, count: usize) -> Result<Vec<A::Native>, Reason> {
        let bytes = count.checked_mul(self.length).and_then(|length| page.get(..length));
        let bytes = bytes.ok_or("its dictionary is cut off")?;
        let mut entries = vec![A::Native::default(); count];
        self.made(bytes, &mut entries);
        Ok(entries)
    }

    fn begin(&self, page: Bytes, encoding: Encoding) -> Result<Option<NumberPage>, Reason> {
        Ok(match encoding {
            Encoding::PLAIN => Some(NumberPage::Plain(page)),
            Encoding::DELTA_BINARY_PACKED if S::HAS_DELTAS => Some(NumberPage::Deltas(Deltas::new(page)?)),
            Encoding::BYTE_STREAM_SPLIT => Some(NumberPage::Split(page, 0)),
            _ => None,
        })
    }

    fn read(&mut self, page: &mut NumberPage, out: &mut [A::Native]) -> Result<(), Reason> {
        match page {
            NumberPage::Plain(bytes) => {
                let length = out.len() * self.length;
                if bytes.len() < length {
                    return Err(CUT_OFF);
                }
                self.made(&bytes.split_to(length), out);
            }
            NumberPage::Deltas(deltas) => {
                let mut block = [0; BLOCK_ROWS];
                for out in out.chunks_mut(BLOCK_ROWS) {
                    let block = &mut block[..out.len()];
                    deltas.read(block)?;
                    for (out, number) in out.iter_mut().zip(block) {
                        *out = A::Native::made(S::of(&number.to_le_bytes()[..self.length]));
                    }
                }
            }
            NumberPage::Split(bytes, done) => {
                let count = bytes.len() / self.length;
                if count - *done < out.len() {
                    return Err(CUT_OFF);
                }
                let mut number = [0; LONGEST];
                for (place, out) in (*done..).zip(&mut *out) {
                    for (byte, stream) in number.iter_mut().zip(bytes.chunks_exact(count)) {
                        *byte = stream[place];
                    }
                    *out = A::Native::made(S::of(&number[..self.length]));
                }
                *done += out.len();
            }
        }
        Ok(())
    }

    fn skip(&mut self, page: &mut NumberPage, count: usize) -> Result<(), Reason> {
        match page {
            NumberPage::Plain(bytes) => {
                let length = count.saturating_mul(self.length);
                if bytes.len() < length {
                    return Err(CUT_OFF);
                }
                drop(bytes.split_to(length));
            }
            NumberPage::Deltas(deltas) => deltas.skip(count)?,
            NumberPage::Split(bytes, done) => {
                if bytes.len() / self.length - *done < count {
                    return Err(CUT_OFF);
                }
                *done += count;
            }
        }
        Ok(())
    }

    fn take(&mut self, values: Vec<A::Native>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let array = PrimitiveArray::<A>::new(values.into(), nulls);
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }
}
