//! Arrow's arrays of text that was validated here.
//!
//! Arrow's safe functions make or check views row by row, which takes several times as long as decoding the
//! rows. Here the bytes of all rows are validated together, those of a dictionary once.

mod entries;

pub use entries::TextEntries;

use std::collections::HashMap;
use std::marker::PhantomData;

use arrow_array::types::ByteViewType;
use arrow_array::{Array, GenericByteViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, ScalarBuffer};

use crate::Level;
use crate::gather::gather;
use crate::hash::INLINE_BYTES;
use crate::text::{Case, LayoutError, Strings, change_ascii, is_ascii, is_utf8, views_of};

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
    let is_long = |view: &u128| len(*view) > INLINE_BYTES;
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

/// ASCII text in the other case: buffers are changed as a whole, and views keep their places. `None` for other text, and
/// where buffers hold much more than the rows' text.
#[must_use]
pub fn change_case_of_views(level: Level, texts: &StringViewArray, case: Case) -> Option<StringViewArray> {
    /// Bytes of buffers for a byte of text.
    const WASTE_MAX: usize = 2;
    let held: usize = texts.data_buffers().iter().map(|buffer| buffer.len()).sum();
    let used: usize = texts.views().iter().map(|view| len(*view)).sum();
    if held > WASTE_MAX * used || !texts.data_buffers().iter().all(|buffer| is_ascii(level, buffer)) {
        return None;
    }
    let views = change_views(level, texts.views(), case)?;
    let buffers: Vec<Buffer> =
        texts.data_buffers().iter().map(|buffer| change_ascii(level, buffer, case).into()).collect();
    // SAFETY: views keep their lengths, buffers and offsets, and buffers their lengths; the beginnings in the views are
    // changed as the buffers are. ASCII in the other case is ASCII, and padding stays zero. Nulls are those of the rows.
    Some(unsafe { StringViewArray::new_unchecked(views.into(), buffers, texts.nulls().cloned()) })
}

kernel! {
    /// Views of ASCII text in the other case; `None` if the bytes in some view are not ASCII.
    fn change_views(views: &[u128], case: Case) -> Option<Vec<u128>> = change_views_plain;
}

#[inline(always)]
fn change_views_plain(views: &[u128], case: Case) -> Option<Vec<u128>> {
    /// A one in each byte.
    const ONES: u128 = u128::MAX / 0xFF;
    let (first, last) = match case {
        Case::Lower => (b'A', b'Z'),
        Case::Upper => (b'a', b'z'),
    };
    // Sums with these have the high bit where a byte below 128 is not below the first letter, or is behind the last.
    let (from_first, behind_last) = (ONES * u128::from(0x80 - first), ONES * u128::from(0x7F - last));
    let mut all = 0;
    let change = |view: &u128| {
        // The text in a short view, the beginning in others.
        let text = if len(*view) <= INLINE_BYTES { !0 << 32 } else { 0xFFFF_FFFF << 32 };
        all |= view & text;
        let letters = view & text & (ONES * 0x7F);
        let is_letter = (letters + from_first) & !(letters + behind_last) & (ONES * 0x80) & text;
        view ^ is_letter >> 2
    };
    let changed = views.iter().map(change).collect();
    (all & (ONES * 0x80) == 0).then_some(changed)
}

/// The texts that [`StringGroupTable::take_views`](crate::group_table::StringGroupTable::take_views) gives, or some of
/// them in another order, to be taken a few rows at a time. Parts are freed in their order, when no row to come needs
/// them.
#[derive(Debug)]
pub struct GroupViews<V> {
    views: Vec<u128>,
    nulls: Option<NullBuffer>,
    parts: Vec<Buffer>,
    /// The row behind the last that needs each part.
    ends: Vec<usize>,
    /// Parts before are freed.
    first_part: usize,
    start: usize,
    view_type: PhantomData<V>,
}

impl<V: ByteViewType> GroupViews<V> {
    /// Takes views into `parts`. The bytes of long texts are checked together, unless few of them are used, short ones
    /// by their view.
    ///
    /// # Errors
    /// When a view points outside of the parts, or text is not UTF-8.
    ///
    /// # Panics
    /// When there are not as many nulls as views.
    pub fn new(views: Vec<u128>, parts: Vec<Buffer>, nulls: Option<NullBuffer>) -> Result<Self, LayoutError> {
        let is_utf8 = |text: &[u8]| !V::IS_UTF8 || simdutf8::basic::from_utf8(text).is_ok();
        let used: usize = views.iter().filter_map(|view| Some(place(*view)?.len)).sum();
        // Few of many texts are checked one by one.
        let are_few = used < parts.iter().map(Buffer::len).sum::<usize>() / 8;
        if !are_few && !parts.iter().all(|part| is_utf8(part)) {
            return Err(LayoutError::Utf8);
        }
        let mut ends = vec![0; parts.len()];
        for (row, view) in views.iter().enumerate() {
            let bytes = view.to_le_bytes();
            let Some(Place { part, start, len }) = place(*view) else {
                let (text, padding) = bytes[4..].split_at(bytes[0].into());
                if padding.iter().any(|byte| *byte != 0) {
                    return Err(LayoutError::Offsets);
                }
                if V::IS_UTF8 && !text.is_ascii() && std::str::from_utf8(text).is_err() {
                    return Err(LayoutError::Utf8);
                }
                continue;
            };
            let Some(whole) = parts.get(part).map(Buffer::as_slice) else { return Err(LayoutError::Offsets) };
            let text = start.checked_add(len).and_then(|end| whole.get(start..end));
            if text.is_none_or(|text| text[..4] != bytes[4..8]) || start + len > i32::MAX as usize {
                return Err(LayoutError::Offsets);
            }
            let is_boundary = |place: usize| whole.get(place).is_none_or(|byte| !(0x80..0xC0).contains(byte));
            let is_valid = match are_few {
                true => is_utf8(&whole[start..start + len]),
                false => !V::IS_UTF8 || is_boundary(start) && is_boundary(start + len),
            };
            if !is_valid {
                return Err(LayoutError::Utf8);
            }
            ends[part] = row + 1;
        }
        assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "as many nulls as views");
        Ok(Self { views, nulls, parts, ends, first_part: 0, start: 0, view_type: PhantomData })
    }

    /// Memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let parts: usize = self.parts[self.first_part..].iter().map(Buffer::capacity).sum();
        parts + self.views.capacity() * size_of::<u128>() + self.ends.capacity() * size_of::<usize>()
    }

    /// The next `count` rows, or as many as there are.
    #[must_use]
    pub fn take(&mut self, count: usize) -> GenericByteViewArray<V> {
        let count = count.min(self.views.len() - self.start);
        let mut views = self.views[self.start..self.start + count].to_vec();
        let used = views.iter().filter_map(|view| Some(place(*view)?.part));
        let (low, high) = used.fold((usize::MAX, 0), |(low, high), part| (low.min(part), high.max(part)));
        let parts = if low <= high { self.parts[low..=high].to_vec() } else { Vec::new() };
        for view in &mut views {
            if place(*view).is_some() {
                *view -= (low as u128) << 64;
            }
        }
        let nulls = self.nulls.as_ref().map(|nulls| nulls.slice(self.start, count));
        self.start += count;
        while self.ends.get(self.first_part).is_some_and(|end| *end <= self.start) {
            self.parts[self.first_part] = Buffer::default();
            self.first_part += 1;
        }
        // SAFETY: `new` saw each view to be a short text with zeros behind it, or the length, beginning and place of a
        // text in one of the parts. It is still there, since a part is freed when the rows that need it were taken, and
        // `low..=high` has each part that is needed here, so that its number there is its own less `low`. Where text has
        // to be UTF-8, each long text is, or each part, with texts that begin and end between characters; short ones were
        // looked at one by one. There are as many nulls as views.
        unsafe { GenericByteViewArray::new_unchecked(views.into(), parts, nulls) }
    }
}

/// All rows of some columns of views, one behind the other, each buffer of theirs once: rows that were taken of one column
/// share its buffers, and would have them as often as there are columns.
///
/// # Panics
/// When there are more buffers than numbers of 32 bits.
#[must_use]
pub fn concat_views<V: ByteViewType>(columns: &[&GenericByteViewArray<V>]) -> GenericByteViewArray<V> {
    let mut views = Vec::with_capacity(columns.iter().map(|column| column.len()).sum());
    let (mut buffers, mut numbers) = (Vec::new(), HashMap::new());
    let mut nulls = NullBufferBuilder::new(views.capacity());
    for column in columns {
        let number = |buffer: &Buffer| {
            *numbers.entry((buffer.as_ptr().addr(), buffer.len())).or_insert_with(|| {
                buffers.push(buffer.clone());
                u32::try_from(buffers.len() - 1).expect("buffers have numbers of 32 bits")
            })
        };
        let found: Vec<u32> = column.data_buffers().iter().map(number).collect();
        let moved = column.views().iter().map(|view| match place(*view) {
            Some(Place { part, .. }) => view & !(0xFFFF_FFFF << 64) | u128::from(found[part]) << 64,
            None => *view,
        });
        views.extend(moved);
        match column.nulls() {
            Some(own) => nulls.append_buffer(own),
            None => nulls.append_n_non_nulls(column.len()),
        }
    }
    // SAFETY: each view is one of a column, whose views are valid, with the number that the same bytes have here. There
    // are as many nulls as views.
    unsafe { GenericByteViewArray::new_unchecked(views.into(), buffers, nulls.finish()) }
}

/// The length of the text of a view.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lowest word is meant")]
fn len(view: u128) -> usize {
    view as u32 as usize
}

/// Where the bytes of a long text are.
struct Place {
    part: usize,
    start: usize,
    len: usize,
}

/// None for a text within its view.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "words of 32 bits of the view are meant")]
fn place(view: u128) -> Option<Place> {
    let len = len(view);
    let place = Place { part: (view >> 64) as u32 as usize, start: (view >> 96) as u32 as usize, len };
    (len > INLINE_BYTES).then_some(place)
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

    fn buffers(parts: &[Vec<u8>]) -> Vec<Buffer> {
        parts.iter().cloned().map(Buffer::from_vec).collect()
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
        let (views, parts) = table.take_views();
        let [bytes] = &parts[..] else { panic!("{} parts", parts.len()) };
        let array =
            GroupViews::<StringViewType>::new(views.clone(), buffers(&parts), None).unwrap().take(100);
        array.to_data().validate_full().unwrap();
        assert_eq!(array.iter().flatten().collect::<Vec<_>>(), texts);

        let check = |views: &[u128], bytes: &[u8], expected| {
            let found = GroupViews::<StringViewType>::new(views.to_vec(), buffers(&[bytes.to_vec()]), None);
            assert_eq!(found.err(), Some(expected));
        };
        check(&views, &bytes[..bytes.len() - 1], LayoutError::Offsets);
        check(&[views[2] | 1 << 64], bytes, LayoutError::Offsets);
        check(&[1 | 0xC3 << 32], &[], LayoutError::Utf8);
        check(&[1 | 0x6161 << 32], &[], LayoutError::Offsets);
        let mut torn = bytes.clone();
        torn[0] = 0xC3;
        check(&views, &torn, LayoutError::Utf8);
        // From the middle of a character.
        let inside: Vec<u8> = "ß thirteen char".into();
        let view = 15_u128
            | u128::from(u32::from_le_bytes([inside[1], inside[2], inside[3], inside[4]])) << 32
            | 1 << 96;
        check(&[view], &inside, LayoutError::Utf8);
        assert!(
            GroupViews::<BinaryViewType>::new(vec![view], buffers(std::slice::from_ref(&inside)), None)
                .is_ok()
        );
        // Few of many are checked alone, whatever is beside them.
        let mut many = inside;
        many.extend_from_slice(&[0xFF; 1000]);
        check(&[view], &many, LayoutError::Utf8);
        let view =
            14_u128 | u128::from(u32::from_le_bytes([many[2], many[3], many[4], many[5]])) << 32 | 2 << 96;
        let mut one = GroupViews::<StringViewType>::new(vec![view], buffers(&[many]), None).unwrap();
        assert_eq!(one.take(1).value(0), " thirteen char");
    }

    #[test]
    fn groups_are_taken_a_few_at_a_time() {
        use crate::group_table::StringGroupTable;
        use crate::hash::{Seed, Strings};
        use arrow_array::types::StringViewType;

        let texts: Vec<String> = (0..300).map(|row| row.to_string().repeat(1 + row * 7 % 40)).collect();
        let mut table = StringGroupTable::new(Seed::random());
        let mut groups = vec![0; texts.len()];
        let bytes = texts.concat().into_bytes();
        let mut offsets = vec![0_i32];
        texts
            .iter()
            .for_each(|text| offsets.push(offsets.last().unwrap() + i32::try_from(text.len()).unwrap()));
        table.find_or_insert(Level::best(), Strings::Offsets32(&offsets, &bytes), None, &mut groups);
        let (views, parts) = table.take_views();
        assert!(parts.len() > 2, "{} parts", parts.len());
        let nulls = NullBuffer::from_iter((0..texts.len()).map(|row| row % 10 != 3));
        for step in [1, 7, 100, 300] {
            // In the order of the parts, and in another.
            for factor in [1, 77] {
                let order: Vec<usize> = (0..texts.len()).map(|row| row * factor % texts.len()).collect();
                let views = order.iter().map(|row| views[*row]).collect();
                let mut rows =
                    GroupViews::<StringViewType>::new(views, buffers(&parts), Some(nulls.clone())).unwrap();
                let mut found: Vec<Option<String>> = Vec::new();
                for _ in (0..texts.len()).step_by(step) {
                    let some = rows.take(step);
                    some.to_data().validate_full().unwrap();
                    found.extend(some.iter().map(|text| text.map(str::to_owned)));
                }
                let expected =
                    (0..).zip(&order).map(|(row, text)| nulls.is_valid(row).then(|| texts[*text].clone()));
                assert!(found.iter().cloned().eq(expected));
                assert_eq!(rows.take(1).len(), 0);
                assert!(rows.parts.iter().all(Buffer::is_empty), "all parts are free");
            }
        }
    }

    #[test]
    fn columns_of_views_share_their_buffers() {
        let texts = |from: usize| -> StringViewArray {
            let text = |row: usize| {
                (!row.is_multiple_of(4))
                    .then(|| "long enough for a buffer".repeat(row % 3) + &row.to_string())
            };
            (from..from + 50).map(text).collect()
        };
        let (first, second) = (texts(0), texts(1_000));
        let none = StringViewArray::new_null(3);
        let pieces = [first.slice(0, 20), second.slice(5, 30), first.slice(10, 40), none, second.slice(0, 1)];
        let pieces: Vec<&StringViewArray> = pieces.iter().collect();
        let all = concat_views(&pieces);
        all.to_data().validate_full().unwrap();
        let expected = pieces.iter().flat_map(|piece| piece.iter());
        assert!(all.iter().eq(expected));
        let buffers = first.data_buffers().len() + second.data_buffers().len();
        assert_eq!(all.data_buffers().len(), buffers);
        assert_eq!(concat_views(&[&all, &all]).data_buffers().len(), buffers);
        assert_eq!(concat_views::<arrow_array::types::StringViewType>(&[]).len(), 0);
    }
}
