//! Lower and upper case of a column.
//!
//! Changing the case of ASCII keeps every length, so a whole buffer is mapped at once and the offsets stay.
//! Other text goes through the standard library's Unicode tables row by row, which may change lengths.

use super::columns::{Offset, Text};
use super::scan::Facts;

/// The case to change to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Case {
    Lower,
    Upper,
}

/// Owned text: offsets, one more than rows, into one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextBuffer<O> {
    /// Ascending from zero to the length of the bytes.
    pub offsets: Vec<O>,
    /// The bytes of all rows.
    pub bytes: Vec<u8>,
}

kernel! {
    /// The column in the other case; `None` when it is too long for its offsets. If `facts` wrongly say
    /// ASCII, and in rows that are not UTF-8, only ASCII letters change.
    pub fn change_case[T: Text][T](column: T, case: Case, facts: Facts) -> Option<TextBuffer<T::Length>> =
        change_case_plain;
}

#[inline(always)]
fn change_case_plain<T: Text>(column: T, case: Case, facts: Facts) -> Option<TextBuffer<T::Length>> {
    if let Some(strings) = column.as_strings()
        && facts.is_ascii
    {
        let (start, text) = strings.filled();
        let offsets = strings.offsets().iter().map(|offset| T::Length::from_index(offset.index() - start));
        let mut bytes = Vec::new();
        append_ascii(text, case, &mut bytes);
        return Some(TextBuffer { offsets: offsets.collect::<Option<_>>()?, bytes });
    }
    let mut changed = TextBuffer { offsets: vec![T::Length::default()], bytes: Vec::new() };
    for row in 0..column.row_count() {
        let text = column.row(row);
        match std::str::from_utf8(text) {
            Ok(text) if !facts.is_ascii && !text.is_ascii() => {
                let text = if case == Case::Lower { text.to_lowercase() } else { text.to_uppercase() };
                changed.bytes.extend_from_slice(text.as_bytes());
            }
            _ => append_ascii(text, case, &mut changed.bytes),
        }
        changed.offsets.push(T::Length::from_index(changed.bytes.len())?);
    }
    Some(changed)
}

#[cfg(feature = "arrow")]
kernel! {
    /// The bytes with ASCII letters in the other case.
    pub(crate) fn change_ascii(text: &[u8], case: Case) -> Vec<u8> = change_ascii_plain;
}

#[cfg(feature = "arrow")]
#[inline(always)]
fn change_ascii_plain(text: &[u8], case: Case) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    append_ascii(text, case, &mut bytes);
    bytes
}

#[inline(always)]
fn append_ascii(text: &[u8], case: Case, bytes: &mut Vec<u8>) {
    match case {
        Case::Lower => bytes.extend(text.iter().map(u8::to_ascii_lowercase)),
        Case::Upper => bytes.extend(text.iter().map(u8::to_ascii_uppercase)),
    }
}
