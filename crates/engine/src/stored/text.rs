//! Text as Arrow's views.
//!
//! Arrow checks views row by row; offsets and bytes it checks together, and makes views of them without a copy.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, BinaryViewArray, StringArray, StringViewArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use keirin_kernels::Level;
use keirin_kernels::text::Strings;

/// Rows that lie one behind the other, as text or, if `data_type` says so, as bytes.
///
/// # Errors
/// When the offsets are not those of rows, there are not as many flags, or text is not UTF-8.
pub(super) fn views_of_rows(
    offsets: Vec<i32>,
    bytes: Buffer,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    Strings::new(Level::best(), &offsets, &bytes)
        .map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(if *data_type == DataType::Utf8View {
        Arc::new(StringViewArray::from(&StringArray::try_new(offsets, bytes, nulls)?))
    } else {
        Arc::new(BinaryViewArray::from(&BinaryArray::try_new(offsets, bytes, nulls)?))
    })
}

/// Rows of which each is one of the entries.
///
/// # Errors
/// As [`views_of_rows`].
///
/// # Panics
/// When a code is not that of an entry.
pub(super) fn views_of_entries(
    codes: Vec<u32>,
    offsets: Vec<i32>,
    bytes: Buffer,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let entries = views_of_rows(offsets, bytes, None, data_type)?;
    take(&entries, &UInt32Array::try_new(codes.into(), nulls)?, None)
}
