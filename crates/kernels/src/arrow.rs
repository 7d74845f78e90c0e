//! Arrow's arrays of text that was validated here.
//!
//! Arrow's safe functions make or check views row by row, which takes several times as long as decoding the
//! rows. Here the bytes of all rows are validated together, those of a dictionary once.

use arrow_array::GenericByteViewArray;
use arrow_array::types::ByteViewType;
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};

use crate::Level;
use crate::gather::gather;
use crate::group_table::PART_BITS;
use crate::hash::INLINE_BYTES;
use crate::text::{LayoutError, Strings, is_utf8, views_of};

/// Views of the rows with these offsets and bytes, or, with `codes`, of the entry that each code refers to.
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
/// When the offsets are invalid, or text is not UTF-8.
///
/// # Panics
/// When a code refers to no entry, or there are not as many nulls as rows.
pub fn text_views<V: ByteViewType>(
    level: Level,
    offsets: &[i32],
    bytes: Buffer,
    codes: Option<&[u32]>,
    nulls: Option<NullBuffer>,
) -> Result<GenericByteViewArray<V>, LayoutError> {
    let rows = Strings::new(level, offsets, &bytes)?;
    if V::IS_UTF8 && !is_utf8(level, rows) {
        return Err(LayoutError::Utf8);
    }
    let mut views = views_of(level, rows);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the length")]
    let is_long = |view: &u128| *view as u32 as usize > INLINE_BYTES;
    let buffers: Vec<Buffer> = views.iter().any(is_long).then_some(bytes).into_iter().collect();
    if let Some(codes) = codes {
        views = gather(level, &views, codes);
    }
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "as many nulls as rows");
    // SAFETY: each view is one of `views_of`: the text of a row, or its length, beginning and place in the
    // first buffer, which is there if any row is so long, and which nobody can change. Where text has to be
    // UTF-8, all rows were seen to be. There are as many nulls as views.
    Ok(unsafe { GenericByteViewArray::new_unchecked(ScalarBuffer::from(views), buffers, nulls) })
}

/// An array of the views that [`StringGroupTable::into_views`](crate::group_table::StringGroupTable::into_views)
/// gives, as they are.
///
/// The bytes of long texts are checked together, short ones by their view.
///
/// # Errors
/// When a view points outside of the bytes, or text is not UTF-8.
///
/// # Panics
/// When there are not as many nulls as views.
pub fn group_views<V: ByteViewType>(
    views: Vec<u128>,
    bytes: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<GenericByteViewArray<V>, LayoutError> {
    /// Longer parts have offsets that a view has no room for.
    const REACH: usize = i32::MAX as usize;
    let is_boundary = |place: usize| bytes.get(place).is_none_or(|byte| !(0x80..0xC0).contains(byte));
    if V::IS_UTF8 && simdutf8::basic::from_utf8(&bytes).is_err() {
        return Err(LayoutError::Utf8);
    }
    for view in &views {
        let view = view.to_le_bytes();
        let word =
            |at: usize| u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]) as usize;
        let len = word(0);
        if len <= INLINE_BYTES {
            let (text, padding) = view[4..].split_at(len);
            if padding.iter().any(|byte| *byte != 0) {
                return Err(LayoutError::Offsets);
            }
            if V::IS_UTF8 && !text.is_ascii() && std::str::from_utf8(text).is_err() {
                return Err(LayoutError::Utf8);
            }
            continue;
        }
        let start = (word(8) << PART_BITS) + word(12);
        let text = start.checked_add(len).and_then(|end| bytes.get(start..end));
        if text.is_none_or(|text| text[..4] != view[4..8]) || word(12) + len > REACH {
            return Err(LayoutError::Offsets);
        }
        if V::IS_UTF8 && !(is_boundary(start) && is_boundary(start + len)) {
            return Err(LayoutError::Utf8);
        }
    }
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "as many nulls as views");
    let bytes = Buffer::from_vec(bytes);
    let parts = (0..bytes.len()).step_by(1 << PART_BITS);
    let parts = parts.map(|start| bytes.slice_with_length(start, (bytes.len() - start).min(REACH)));
    let (views, parts): (ScalarBuffer<u128>, Vec<Buffer>) = (views.into(), parts.collect());
    // SAFETY: each view was seen to be a short text with zeros behind it, or the length, beginning and place of a text
    // in one of the parts, which reach far enough. Where text has to be UTF-8, the bytes of all long ones together are,
    // and each begins and ends between characters; short ones were looked at one by one. There are as many nulls as
    // views.
    Ok(unsafe { GenericByteViewArray::new_unchecked(views, parts, nulls) })
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

    #[test]
    fn groups_are_the_texts_that_they_were() {
        use crate::group_table::StringGroupTable;
        use crate::hash::{Seed, Strings};
        use arrow_array::types::{BinaryViewType, StringViewType};

        let texts =
            ["a", "", "thirteen char", "ßß ÿ", "ß much longer than what a view has", "thirteen chars"];
        let bytes = texts.concat().into_bytes();
        let mut offsets = vec![0_i32];
        texts
            .iter()
            .for_each(|text| offsets.push(offsets.last().unwrap() + i32::try_from(text.len()).unwrap()));
        let mut table = StringGroupTable::new(Seed::random());
        let mut groups = vec![0; texts.len()];
        table.find_or_insert(Level::best(), Strings::Offsets32(&offsets, &bytes), None, &mut groups);
        let (views, bytes) = table.into_views();
        let array = group_views::<StringViewType>(views.clone(), bytes.clone(), None).unwrap();
        array.to_data().validate_full().unwrap();
        assert_eq!(array.iter().flatten().collect::<Vec<_>>(), texts);

        let check = |views: &[u128], bytes: &[u8], expected| {
            let found = group_views::<StringViewType>(views.to_vec(), bytes.to_vec(), None);
            assert_eq!(found.err(), Some(expected));
        };
        check(&views, &bytes[..bytes.len() - 1], LayoutError::Offsets);
        check(&[1 | 0xC3 << 32], &[], LayoutError::Utf8);
        check(&[1 | 0x6161 << 32], &[], LayoutError::Offsets);
        let mut torn = bytes;
        torn[0] = 0xC3;
        check(&views, &torn, LayoutError::Utf8);
        // From the middle of a character.
        let inside: Vec<u8> = "ß thirteen char".into();
        let view = 15_u128
            | u128::from(u32::from_le_bytes([inside[1], inside[2], inside[3], inside[4]])) << 32
            | 1 << 96;
        check(&[view], &inside, LayoutError::Utf8);
        assert!(group_views::<BinaryViewType>(vec![view], inside, None).is_ok());
    }
}
