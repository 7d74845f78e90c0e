//! Arrow's arrays of text that was checked here.
//!
//! Arrow's safe functions make or check views row by row, which takes several times as long as decoding the rows.
//! Here the bytes of all rows are checked together, those of a dictionary once.

use arrow_array::GenericByteViewArray;
use arrow_array::types::ByteViewType;
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};

use crate::Level;
use crate::gather::gather;
use crate::text::{LayoutError, Strings, is_utf8, views_of};

/// Views of the rows whose offsets and bytes are given, or, with `codes`, of the entry that each code names.
///
/// ```
/// use arrow_array::StringViewArray;
/// use keirin_kernels::{Level, arrow::text_views};
///
/// let (offsets, bytes) = ([0, 3, 3], "red".as_bytes());
/// let rows: StringViewArray =
///     text_views(Level::best(), &offsets, bytes.to_vec().into(), Some(&[1, 0, 0]), None)?;
/// assert_eq!(rows.iter().flatten().collect::<Vec<_>>(), ["", "red", "red"]);
/// # Ok::<(), keirin_kernels::text::LayoutError>(())
/// ```
///
/// # Errors
/// When the offsets are not those of rows, or text is not UTF-8.
///
/// # Panics
/// When a code is not that of an entry, or there are not as many nulls as rows.
pub fn text_views<V: ByteViewType>(
    level: Level,
    offsets: &[i32],
    bytes: Buffer,
    codes: Option<&[u32]>,
    nulls: Option<NullBuffer>,
) -> Result<GenericByteViewArray<V>, LayoutError> {
    /// Longer text is not in a view.
    const INLINE_MAX: u32 = 12;
    let rows = Strings::new(level, offsets, &bytes)?;
    if V::IS_UTF8 && !is_utf8(level, rows) {
        return Err(LayoutError::Utf8);
    }
    let mut views = views_of(level, rows);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the length")]
    let is_long = |view: &u128| *view as u32 > INLINE_MAX;
    let buffers: Vec<Buffer> = views.iter().any(is_long).then_some(bytes).into_iter().collect();
    if let Some(codes) = codes {
        views = gather(level, &views, codes);
    }
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "as many nulls as rows");
    // SAFETY: each view is one of `views_of`: the text of a row, or its length, beginning and place in the first
    // buffer, which is there if any row is so long, and which nobody can change. Where text has to be UTF-8, all rows
    // were seen to be. There are as many nulls as views.
    Ok(unsafe { GenericByteViewArray::new_unchecked(ScalarBuffer::from(views), buffers, nulls) })
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, BinaryViewArray, StringViewArray};

    use super::*;

    fn check(texts: &[&str], codes: Option<&[u32]>, nulls: Option<Vec<bool>>) {
        let (mut offsets, mut bytes) = (vec![0], Vec::new());
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            offsets.push(i32::try_from(bytes.len()).unwrap());
        }
        let rows: Vec<&str> = match codes {
            Some(codes) => codes.iter().map(|code| texts[*code as usize]).collect(),
            None => texts.to_vec(),
        };
        let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls[row]);
        let expected: Vec<_> = (0..rows.len()).map(|row| is_valid(row).then_some(rows[row])).collect();
        for level in Level::available() {
            let make = || nulls.clone().map(NullBuffer::from);
            let views: StringViewArray =
                text_views(*level, &offsets, bytes.clone().into(), codes, make()).unwrap();
            views.to_data().validate_full().unwrap();
            assert_eq!(views.iter().collect::<Vec<_>>(), expected, "{level}");
            let views: BinaryViewArray =
                text_views(*level, &offsets, bytes.clone().into(), codes, make()).unwrap();
            views.to_data().validate_full().unwrap();
            assert_eq!(views.len(), expected.len());
        }
    }

    #[test]
    fn views_are_the_rows() {
        check(&[], None, None);
        check(&[""], None, None);
        check(&["a", "", "four", "a dozen char", "thirteen char", "ßß ÿ"], None, None);
        check(
            &["short", "much longer than a view"],
            Some(&[1, 0, 1, 1]),
            Some(vec![true, true, false, true]),
        );
        check(&["short", "not used, and longer than a view"], Some(&[0]), None);
        let long = "x".repeat(40);
        let texts: Vec<&str> = (0..41).map(|len| &long[len % 41..]).collect();
        check(&texts, None, None);
        check(&texts.iter().rev().copied().collect::<Vec<_>>(), None, None);
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        let of = |offsets: &[i32], bytes: &[u8]| {
            text_views::<arrow_array::types::StringViewType>(
                Level::best(),
                offsets,
                bytes.to_vec().into(),
                None,
                None,
            )
            .map(|views| views.len())
        };
        assert_eq!(of(&[], b""), Err(LayoutError::NoOffsets));
        assert_eq!(of(&[0, 2, 1], b"ab"), Err(LayoutError::Offsets));
        assert_eq!(of(&[0, 3], b"ab"), Err(LayoutError::Offsets));
        assert_eq!(of(&[0, 1, 2], "ß".as_bytes()), Err(LayoutError::Utf8), "a row begins inside a character");
        assert_eq!(of(&[0, 2], "ß".as_bytes()), Ok(1));
        assert_eq!(of(&[0, 1], b"\xff"), Err(LayoutError::Utf8));
    }
}
