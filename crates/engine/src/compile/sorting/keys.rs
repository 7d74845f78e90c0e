//! Columns to sort by, as the kernel takes them.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::internal_err;
use datafusion::error::Result;
use keirin_kernels::Bits;
use keirin_kernels::sort::{Key, Values};

/// Whether values of this type have a kernel.
pub(super) fn has_kernel(data_type: &DataType) -> bool {
    as_number(data_type).is_some() || is_text(data_type)
}

/// The type of numbers of the same bits that compare as values of this type do.
fn as_number(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => DataType::Int32,
        DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Decimal64(..) => DataType::Int64,
        DataType::Float32 | DataType::Float64 | DataType::Boolean | DataType::Decimal128(..) => {
            data_type.clone()
        }
        number if number.is_integer() => number.clone(),
        _ => return None,
    })
}

/// The values as numbers of the same bits, if they are dates, times or short DECIMALs; others as they are.
pub(crate) fn as_numbers(values: ArrayRef) -> Result<ArrayRef> {
    Ok(match as_number(values.data_type()) {
        Some(number) if number != *values.data_type() => {
            arrow::array::make_array(values.to_data().into_builder().data_type(number).build()?)
        }
        _ => values,
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// The values of a key for all rows.
pub(super) struct SortColumn {
    values: ArrayRef,
    nulls: Option<NullBuffer>,
    options: SortOptions,
}

impl SortColumn {
    pub(super) fn new(values: ArrayRef, options: SortOptions) -> Result<Self> {
        let nulls = values.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        if !has_kernel(values.data_type()) {
            return internal_err!("no kernel sorts values of type {}", values.data_type());
        }
        Ok(Self { values: as_numbers(values)?, nulls, options })
    }

    /// The texts of all rows; none if it has numbers.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        let array = &self.values;
        match array.data_type() {
            DataType::Utf8 => texts(array.as_string::<i32>().iter(), str::as_bytes),
            DataType::LargeUtf8 => texts(array.as_string::<i64>().iter(), str::as_bytes),
            DataType::Utf8View => texts(array.as_string_view().iter(), str::as_bytes),
            DataType::Binary => texts(array.as_binary::<i32>().iter(), |bytes| bytes),
            DataType::LargeBinary => texts(array.as_binary::<i64>().iter(), |bytes| bytes),
            DataType::BinaryView => texts(array.as_binary_view().iter(), |bytes| bytes),
            _ => Vec::new(),
        }
    }

    /// The key of the kernel, of which these are the texts.
    pub(super) fn key<'a>(&'a self, texts: &'a [&'a [u8]]) -> Key<'a> {
        macro_rules! numbers {
            ($form:ident, $type:ty) => {
                Values::$form(self.values.as_primitive::<$type>().values())
            };
        }
        let values = match self.values.data_type() {
            DataType::Int8 => numbers!(I8, Int8Type),
            DataType::Int16 => numbers!(I16, Int16Type),
            DataType::Int32 => numbers!(I32, Int32Type),
            DataType::Int64 => numbers!(I64, Int64Type),
            DataType::UInt8 => numbers!(U8, UInt8Type),
            DataType::UInt16 => numbers!(U16, UInt16Type),
            DataType::UInt32 => numbers!(U32, UInt32Type),
            DataType::UInt64 => numbers!(U64, UInt64Type),
            DataType::Float32 => numbers!(F32, Float32Type),
            DataType::Float64 => numbers!(F64, Float64Type),
            DataType::Decimal128(..) => numbers!(I128, Decimal128Type),
            DataType::Boolean => Values::Bool(bits(self.values.as_boolean())),
            _ => Values::Slices(texts),
        };
        Key {
            values,
            validity: self
                .nulls
                .as_ref()
                .map(|nulls| Bits::new(nulls.validity(), nulls.offset(), nulls.len())),
            is_descending: self.options.descending,
            nulls_first: self.options.nulls_first,
        }
    }
}

fn texts<'a, T: ?Sized>(
    values: impl Iterator<Item = Option<&'a T>>,
    bytes: fn(&'a T) -> &'a [u8],
) -> Vec<&'a [u8]> {
    values.map(|value| value.map_or(&[][..], bytes)).collect()
}

fn bits(values: &BooleanArray) -> Bits<'_> {
    let values = values.values();
    Bits::new(values.values(), values.offset(), values.len())
}
