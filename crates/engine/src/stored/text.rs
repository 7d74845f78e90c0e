//! Text as Arrow's views.
//!
//! The only unsafe code of this crate: Arrow makes views of bytes that it has not looked at by an unsafe function
//! alone, and its safe ones look at each row by itself, which takes ten times as long as reading the rows. Here the
//! bytes of all rows are looked at together, those of a dictionary once.

#![expect(unsafe_code, reason = "text that was checked becomes views without being checked row by row")]

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use keirin_kernels::Level;
use keirin_kernels::gather::gather;
use keirin_kernels::text::{Strings, is_utf8, views_of};

/// Rows that lie one behind the other, or, with `codes`, entries for each row to name one.
pub(super) struct StoredText {
    pub(super) offsets: Vec<i32>,
    pub(super) bytes: Buffer,
    /// For each row the number of its entry.
    pub(super) codes: Option<Vec<u32>>,
}

impl StoredText {
    /// The rows as text or, if `data_type` says so, as bytes.
    ///
    /// # Errors
    /// When the offsets are not those of rows, or text is not UTF-8.
    ///
    /// # Panics
    /// When a code is not that of an entry.
    pub(super) fn into_array(
        self,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        /// Longer text is not in a view.
        const INLINE_MAX: u32 = 12;
        let level = Level::best();
        let invalid = |reason: String| ArrowError::InvalidArgumentError(reason);
        let rows = Strings::new(level, &self.offsets, &self.bytes);
        let rows = rows.map_err(|error| invalid(error.to_string()))?;
        let is_text = *data_type == DataType::Utf8View;
        if is_text && !is_utf8(level, rows) {
            return Err(invalid("text that is not UTF-8".to_owned()));
        }
        let views = views_of(level, rows);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the length")]
        let is_long = |view: &u128| *view as u32 > INLINE_MAX;
        let buffers: Vec<Buffer> =
            views.iter().any(is_long).then(|| self.bytes.clone()).into_iter().collect();
        let views = match &self.codes {
            Some(codes) => gather(level, &views, codes),
            None => views,
        };
        if nulls.as_ref().is_some_and(|nulls| nulls.len() != views.len()) {
            return Err(invalid(format!("{} rows of text, not as many flags", views.len())));
        }
        let views = ScalarBuffer::from(views);
        Ok(if is_text {
            // SAFETY: each view is one of `views_of`: the text of a row, or its length, beginning and place in the
            // first buffer, which is there if any row is so long. All rows were seen to be UTF-8 above, and nobody
            // can change the buffer. There are as many flags as views.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
        } else {
            // SAFETY: as above, but for UTF-8, which is not promised of bytes.
            Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) })
        })
    }
}
