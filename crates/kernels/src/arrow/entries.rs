//! Texts as pages of files have them, and rows of them.

use std::marker::PhantomData;

use arrow_array::GenericByteViewArray;
use arrow_array::types::ByteViewType;
use arrow_buffer::{Buffer, NullBuffer};

use super::{len, place};
use crate::Level;
use crate::gather::gather_checked;
use crate::hash::INLINE_BYTES;
use crate::text::{LayoutError, is_ascii, is_begin};

/// The bytes of a length.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Texts that were checked when they came, by their numbers: those of a dictionary, which are kept, and behind them those
/// of pages.
///
/// ```
/// use arrow_array::types::StringViewType;
/// use keirin_kernels::{Level, arrow::TextEntries};
///
/// let mut entries = TextEntries::<StringViewType>::default();
/// let page = [3, 0, 0, 0, b'r', b'e', b'd', 0, 0, 0, 0].to_vec().into();
/// assert_eq!(entries.add_prefixed(Level::best(), &page, 0, 2), Ok(11));
/// let rows = entries.rows(Level::best(), &[1, 0, 0], None).unwrap();
/// assert_eq!(rows.iter().flatten().collect::<Vec<_>>(), ["", "red", "red"]);
/// ```
#[derive(Debug)]
pub struct TextEntries<V> {
    /// As [`text_views`](super::text_views) makes them.
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    kept_views: usize,
    kept_buffers: usize,
    view_type: PhantomData<V>,
}

impl<V> Default for TextEntries<V> {
    fn default() -> Self {
        let (views, buffers) = (Vec::new(), Vec::new());
        Self { views, buffers, kept_views: 0, kept_buffers: 0, view_type: PhantomData }
    }
}

impl<V: ByteViewType> TextEntries<V> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.views.len()
    }

    /// How many are kept.
    #[must_use]
    pub fn kept_count(&self) -> usize {
        self.kept_views
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, count: usize) {
        self.views.reserve(count);
    }

    /// Keeps all that are there now.
    pub fn keep(&mut self) {
        (self.kept_views, self.kept_buffers) = (self.views.len(), self.buffers.len());
    }

    /// Drops all that are not kept.
    pub fn clear(&mut self) {
        self.views.truncate(self.kept_views);
        self.buffers.truncate(self.kept_buffers);
    }

    /// Adds `count` texts from byte `at` of a page on, each behind its length in 32 bits, and returns the byte behind them.
    ///
    /// # Errors
    /// When the page ends before, or text is not UTF-8; then none was added.
    pub fn add_prefixed(
        &mut self,
        level: Level,
        page: &Buffer,
        at: usize,
        count: usize,
    ) -> Result<usize, LayoutError> {
        let texts = page.get(at..).ok_or(LayoutError::Offsets)?;
        // Each has a length.
        if count > texts.len() / LENGTH_BYTES {
            return Err(LayoutError::Offsets);
        }
        let (first, number) = self.begin(page, count)?;
        let mut rest = texts;
        let (mut is_cut_off, mut high_lengths) = (false, 0);
        self.views.extend((0..count).map(|_| {
            // The length, and the text of a short view.
            let word = word(rest);
            let length = len(word);
            let start = page.len() - rest.len() + LENGTH_BYTES;
            let Some(behind) = rest.get(LENGTH_BYTES + length..) else {
                is_cut_off = true;
                return 0;
            };
            high_lengths += (length & 0x8080_8080).count_ones() as usize;
            rest = behind;
            view(word, number, start)
        }));
        if is_cut_off {
            self.views.truncate(first);
            return Err(LayoutError::Offsets);
        }
        let read = &texts[..texts.len() - rest.len()];
        // Where no bytes but those of lengths are high, texts are ASCII.
        let is_valid = !V::IS_UTF8 || count_high(level, read) == high_lengths || are_texts(read);
        self.end(page, first, is_valid)?;
        Ok(page.len() - rest.len())
    }

    /// Adds texts of these lengths from byte `at` of a page on, one directly behind the other, and returns the byte behind
    /// them.
    ///
    /// # Errors
    /// When a length is below zero, the page ends before, or text is not UTF-8; then none was added.
    pub fn add_lengths(
        &mut self,
        level: Level,
        page: &Buffer,
        at: usize,
        lengths: &[i32],
    ) -> Result<usize, LayoutError> {
        let (first, number) = self.begin(page, lengths.len())?;
        let mut end = at;
        let mut are_characters = true;
        for length in lengths {
            let start = end;
            let known = u32::try_from(*length).ok();
            let known = known.filter(|length| *length as usize <= page.len().saturating_sub(start));
            let Some(length) = known else {
                self.views.truncate(first);
                return Err(LayoutError::Offsets);
            };
            are_characters &= page.get(start).is_none_or(|byte| is_begin(*byte));
            end = start + length as usize;
            let word = word(page.get(start..).unwrap_or(&[])) << 32;
            self.views.push(view(word | u128::from(length), number, start));
        }
        // What is behind the last text need not begin a character, but that text has to end with one.
        let is_valid = !V::IS_UTF8 || at == end || are_characters && is_text(level, &page[at..end]);
        self.end(page, first, is_valid)?;
        Ok(end)
    }

    /// The number of the first text that is added, and that of the page.
    fn begin(&mut self, page: &Buffer, count: usize) -> Result<(usize, usize), LayoutError> {
        if i32::try_from(page.len()).is_err() {
            return Err(LayoutError::Offsets);
        }
        self.views.reserve(count);
        Ok((self.views.len(), self.buffers.len() - usize::from(self.ends_with(page))))
    }

    fn ends_with(&self, page: &Buffer) -> bool {
        self.buffers.last().is_some_and(|last| last.as_ptr() == page.as_ptr() && last.len() == page.len())
    }

    fn end(&mut self, page: &Buffer, first: usize, is_valid: bool) -> Result<(), LayoutError> {
        if !is_valid {
            self.views.truncate(first);
            return Err(LayoutError::Utf8);
        }
        if !self.ends_with(page) && self.views[first..].iter().any(|view| place(*view).is_some()) {
            self.buffers.push(page.clone());
        }
        Ok(())
    }

    /// The texts with these numbers; of rows that are NULL, any. `None` if a number is that of no text.
    ///
    /// # Panics
    /// When there are not as many nulls as rows.
    #[must_use]
    pub fn rows(
        &self,
        level: Level,
        numbers: &[u32],
        nulls: Option<NullBuffer>,
    ) -> Option<GenericByteViewArray<V>> {
        assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == numbers.len()), "as many nulls as rows");
        if nulls.as_ref().is_some_and(|nulls| nulls.null_count() == numbers.len()) {
            return Some(GenericByteViewArray::new_null(numbers.len()));
        }
        let views = gather_checked(level, &self.views, numbers)?;
        // SAFETY: each view is one that was added: a text of up to 12 bytes with zeros behind it, or the length, beginning
        // and place of a text in a buffer, which `end` put where `begin` said, which is dropped only together with those
        // views, and which nobody can change. Where text has to be UTF-8, `end` was told that all of these are. There are as
        // many nulls as views.
        Some(unsafe { GenericByteViewArray::new_unchecked(views.into(), self.buffers.clone(), nulls) })
    }

    /// As [`rows`](Self::rows), and drops all texts that are not kept.
    ///
    /// # Panics
    /// When there are not as many nulls as rows.
    #[must_use]
    pub fn take_rows(
        &mut self,
        level: Level,
        numbers: &[u32],
        nulls: Option<NullBuffer>,
    ) -> Option<GenericByteViewArray<V>> {
        let (kept, count) = (self.kept_views, self.views.len() - self.kept_views);
        let are_all = nulls.is_none()
            && numbers.len() == count
            && (kept..).zip(numbers).all(|(number, wanted)| number == *wanted as usize);
        if !are_all {
            let rows = self.rows(level, numbers, nulls);
            self.clear();
            return rows;
        }
        let (views, buffers) = if kept == 0 {
            (std::mem::take(&mut self.views), std::mem::take(&mut self.buffers))
        } else {
            (self.views.split_off(kept), self.buffers.clone())
        };
        self.clear();
        // SAFETY: as in `rows`.
        Some(unsafe { GenericByteViewArray::new_unchecked(views.into(), buffers, None) })
    }
}

/// The first bytes, as many as a view has, zeros behind the last.
#[inline(always)]
fn word(rest: &[u8]) -> u128 {
    let bytes = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut last = [0; size_of::<u128>()];
        let count = rest.len().min(last.len());
        last[..count].copy_from_slice(&rest[..count]);
        last
    });
    u128::from_le_bytes(bytes)
}

/// The view of a text that begins at `start` in a buffer, of its length and first bytes.
#[inline(always)]
fn view(word: u128, buffer: usize, start: usize) -> u128 {
    match len(word) {
        length @ ..=INLINE_BYTES => word & (u128::MAX >> (8 * (INLINE_BYTES - length))),
        _ => word & u128::from(u64::MAX) | (buffer as u128) << 64 | (start as u128) << 96,
    }
}

kernel! {
    /// How many bytes are above 127.
    fn count_high(bytes: &[u8]) -> usize = count_high_plain;
}

#[inline(always)]
fn count_high_plain(bytes: &[u8]) -> usize {
    // So many fit a byte.
    bytes.chunks(128).map(|some| usize::from(some.iter().map(|byte| byte >> 7).sum::<u8>())).sum()
}

/// Whether texts, each behind its length, are UTF-8; none is cut off.
fn are_texts(bytes: &[u8]) -> bool {
    let is_text = |bytes: &[u8]| simdutf8::basic::from_utf8(bytes).is_ok();
    let (mut rest, mut unchecked) = (bytes, bytes);
    while !rest.is_empty() {
        let length = len(word(rest));
        let Some(behind) = rest.get(LENGTH_BYTES + length..) else { return false };
        // A length below 128 is ASCII: characters begin and end within texts if all bytes together are characters.
        if length >= 128 {
            if !is_text(&unchecked[..unchecked.len() - rest.len()])
                || !is_text(&rest[LENGTH_BYTES..LENGTH_BYTES + length])
            {
                return false;
            }
            unchecked = behind;
        }
        rest = behind;
    }
    is_text(unchecked)
}

fn is_text(level: Level, bytes: &[u8]) -> bool {
    is_ascii(level, bytes) || simdutf8::basic::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::types::{BinaryViewType, StringViewType};

    use super::*;

    fn prefixed(texts: &[&[u8]]) -> Buffer {
        let mut page = Vec::new();
        for text in texts {
            page.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
            page.extend_from_slice(text);
        }
        page.into()
    }

    fn texts() -> Vec<String> {
        let pieces = ["", "a", "ß", "a dozen char", "much longer than a view", "日本", "x"];
        (0..200).map(|row| pieces[row % 7].repeat(row * 31 % 13)).collect()
    }

    /// All rows, and some of them, are these texts.
    fn check(entries: &TextEntries<StringViewType>, texts: &[&str]) {
        let count = u32::try_from(texts.len()).unwrap();
        let numbers: Vec<u32> = (0..2 * count).map(|row| row * 7 % count).collect();
        let nulls: NullBuffer = numbers.iter().map(|number| number % 5 != 2).collect();
        for level in Level::available() {
            for nulls in [None, Some(nulls.clone())] {
                let rows = entries.rows(*level, &numbers, nulls.clone()).unwrap();
                rows.to_data().validate_full().unwrap();
                let is_valid = |row| nulls.as_ref().is_none_or(|nulls: &NullBuffer| nulls.is_valid(row));
                let expected = (0..).zip(&numbers);
                let expected = expected.map(|(row, number)| is_valid(row).then_some(texts[*number as usize]));
                assert!(rows.iter().eq(expected));
            }
            assert!(entries.rows(*level, &[0, count], None).is_none());
        }
    }

    #[test]
    fn pages_of_both_kinds_follow_a_dictionary() {
        let texts = texts();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        for step in [1, 7, 100] {
            for level in Level::available() {
                let mut entries = TextEntries::default();
                let dictionary = prefixed(&bytes[..50]);
                assert_eq!(entries.add_prefixed(*level, &dictionary, 0, 50), Ok(dictionary.len()));
                entries.keep();
                // What was read of a page before is dropped.
                for from in [50, 60] {
                    entries.clear();
                    let page = prefixed(&bytes[from..120]);
                    let mut at = 0;
                    for some in texts[from..120].chunks(step) {
                        at = entries.add_prefixed(*level, &page, at, some.len()).unwrap();
                    }
                    assert_eq!(at, page.len());
                    let page: Buffer = bytes[120..].concat().into();
                    let lengths: Vec<i32> =
                        bytes[120..].iter().map(|text| i32::try_from(text.len()).unwrap()).collect();
                    at = 0;
                    for some in lengths.chunks(step) {
                        at = entries.add_lengths(*level, &page, at, some).unwrap();
                    }
                    assert_eq!(at, page.len());
                    assert_eq!(entries.buffers.len(), 3);
                    assert_eq!((entries.kept_count(), entries.count()), (50, 250 - from));
                    check(&entries, &[&texts[..50], &texts[from..]].concat());
                    // All, and all but the first.
                    for first in [50, 51] {
                        let mut entries = TextEntries {
                            views: entries.views.clone(),
                            buffers: entries.buffers.clone(),
                            ..entries
                        };
                        let numbers: Vec<u32> = (first..250 - u32::try_from(from).unwrap()).collect();
                        let rows = entries.take_rows(*level, &numbers, None).unwrap();
                        rows.to_data().validate_full().unwrap();
                        let expected = &texts[from + first as usize - 50..];
                        assert!(rows.iter().flatten().eq(expected.iter().copied()));
                        assert_eq!(entries.count(), 50);
                        check(&entries, &texts[..50]);
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_pages_add_nothing() {
        let mut entries = TextEntries::<StringViewType>::default();
        let level = Level::best();
        let mut fails = |page: &[u8], count, lengths: Option<&[i32]>, expected| {
            let page = page.to_vec().into();
            let found = match lengths {
                Some(lengths) => entries.add_lengths(level, &page, 0, lengths),
                None => entries.add_prefixed(level, &page, 0, count),
            };
            assert_eq!(found, Err(expected));
            assert_eq!((entries.count(), entries.buffers.len()), (0, 0));
        };
        let page = prefixed(&[b"red", b"much longer than a view"]);
        fails(&page, 3, None, LayoutError::Offsets);
        fails(&page[..page.len() - 1], 2, None, LayoutError::Offsets);
        fails(&page, usize::MAX, None, LayoutError::Offsets);
        fails(&[255; 9], 1, None, LayoutError::Offsets);
        // Half a character, and the other half behind the length of the next text.
        fails(&prefixed(&[b"\xc3", b"\x9f"]), 2, None, LayoutError::Utf8);
        // With the lowest byte of that length it were a character.
        fails(&prefixed(&[b"\xc3", &[b'a'; 0x9f]]), 2, None, LayoutError::Utf8);
        fails(&prefixed(&[&[b'a'; 200], b"\xc3"]), 2, None, LayoutError::Utf8);
        fails(&prefixed(&[&[0x9f; 200]]), 1, None, LayoutError::Utf8);
        fails(b"red", 0, Some(&[2, 2]), LayoutError::Offsets);
        fails(b"red", 0, Some(&[2, -1]), LayoutError::Offsets);
        fails("ß".as_bytes(), 0, Some(&[1, 1]), LayoutError::Utf8);
        fails("ß".as_bytes(), 0, Some(&[1]), LayoutError::Utf8);
        assert_eq!(entries.add_prefixed(level, &page, page.len() + 1, 0), Err(LayoutError::Offsets));
        let mut entries = TextEntries::<BinaryViewType>::default();
        let page = prefixed(&[b"\xc3", &[0x9f; 200]]);
        assert_eq!(entries.add_prefixed(level, &page, 0, 2), Ok(page.len()));
        assert_eq!(entries.add_lengths(level, &page, 4, &[1]), Ok(5));
        assert_eq!(entries.rows(level, &[2, 1], None).unwrap().value(0), b"\xc3");
        let nulls = Some(NullBuffer::new_null(2));
        assert_eq!(TextEntries::<BinaryViewType>::default().rows(level, &[0, 0], nulls).unwrap().len(), 2);
    }
}
