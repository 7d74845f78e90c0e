//! UUIDs: in SQL text of 8-4-4-4-12 hexadecimal digits, on disk 16 bytes.
//!
//! Queries have them as text in lower case, so that all text functions work on them and they sort as their
//! bytes do; the field's metadata marks them as UUIDs. Text is converted to UUIDs by casts, by INSERT, and by
//! comparison with one.

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeBinaryBuilder, StringViewArray,
    StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};

use crate::error::{Error, ErrorKind, Result};
use crate::types::{EXTENSION, UUID, UUID_BYTES, UUID_TEXT};

/// The positions of the hyphens in the text.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const TEXT_BYTES: usize = 36;
const BYTES: usize = UUID_BYTES as usize;

/// Whether a field holds UUIDs as text.
pub(crate) fn is_uuid(field: &Field) -> bool {
    field.metadata().get(EXTENSION).is_some_and(|name| name == UUID_TEXT)
}

/// Whether a field holds UUIDs as 16 bytes.
pub(crate) fn is_binary_uuid(field: &Field) -> bool {
    *field.data_type() == DataType::FixedSizeBinary(UUID_BYTES)
        && field.metadata().get(EXTENSION).is_some_and(|name| name == UUID)
}

/// The field marked as holding UUIDs as text.
pub(crate) fn as_uuid(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(EXTENSION.to_owned(), UUID_TEXT.to_owned());
    field.with_data_type(DataType::Utf8View).with_metadata(metadata)
}

/// The field marked as holding UUIDs as 16 bytes.
pub(crate) fn as_binary_uuid(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(EXTENSION.to_owned(), UUID.to_owned());
    field.with_data_type(DataType::FixedSizeBinary(UUID_BYTES)).with_metadata(metadata)
}

/// Parses a text: in lower or upper case, in braces or not, with hyphens or without.
pub(crate) fn parse(text: &str) -> Option<[u8; BYTES]> {
    let text = text.trim();
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text).as_bytes();
    let has_hyphens = text.len() == TEXT_BYTES && HYPHENS.iter().all(|place| text[*place] == b'-');
    if !has_hyphens && text.len() != 2 * BYTES {
        return None;
    }
    let is_digit = |(place, _): &(usize, &u8)| !has_hyphens || !HYPHENS.contains(place);
    let mut digits =
        text.iter().enumerate().filter(is_digit).map(|(_, digit)| char::from(*digit).to_digit(16));
    let mut bytes = [0; BYTES];
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(bytes)
}

/// The text of 16 bytes.
pub(crate) fn format(bytes: [u8; BYTES]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(TEXT_BYTES);
    for byte in bytes {
        if HYPHENS.contains(&text.len()) {
            text.push('-');
        }
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

pub(crate) fn not_one(text: &str) -> Error {
    let shown: String = text.chars().take(60).collect();
    let message = format!("'{shown}' is not a UUID: 32 hexadecimal digits, as 8-4-4-4-12");
    Error::new(ErrorKind::Data, message)
}

/// UUIDs as 16 bytes, from text or from such bytes; any other value is an error.
pub(crate) fn to_bytes(values: &ArrayRef) -> Result<FixedSizeBinaryArray> {
    if let Some(values) =
        values.as_fixed_size_binary_opt().filter(|values| values.value_length() == UUID_BYTES)
    {
        return Ok(values.clone());
    }
    let texts = cast(values, &DataType::Utf8View)?;
    let mut builder = FixedSizeBinaryBuilder::with_capacity(texts.len(), UUID_BYTES);
    for text in texts.as_string_view() {
        match text {
            Some(text) => builder.append_value(parse(text).ok_or_else(|| not_one(text))?)?,
            None => builder.append_null(),
        }
    }
    Ok(builder.finish())
}

/// UUIDs as text, from text or from 16 bytes; any other value is an error, or NULL if `is_try`.
pub(crate) fn to_text(values: &ArrayRef, is_try: bool) -> Result<StringViewArray> {
    let binary = values.as_fixed_size_binary_opt().filter(|values| values.value_length() == UUID_BYTES);
    let mut builder = StringViewBuilder::with_capacity(values.len());
    if let Some(values) = binary {
        for value in values {
            builder.append_option(value.and_then(|bytes| bytes.try_into().ok()).map(format));
        }
        return Ok(builder.finish());
    }
    let texts = cast(values, &DataType::Utf8View)?;
    for text in texts.as_string_view() {
        match text.map(|text| parse(text).ok_or(text)) {
            Some(Err(text)) if !is_try => return Err(not_one(text)),
            parsed => builder.append_option(parsed.and_then(std::result::Result::ok).map(format)),
        }
    }
    Ok(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_bytes_and_bytes_text() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(parse(text).map(format).as_deref(), expected, "{text}");
        };
        let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        check(uuid, Some(uuid));
        check("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}", Some(uuid));
        check(" a0eebc999c0b4ef8bb6d6bb9bd380a11 ", Some(uuid));
        check("", None);
        check("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", None);
        check("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g", None);
        check("a0eebc999-c0b-4ef8-bb6d-6bb9bd380a11", None);
        check("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380ä1", None);
    }
}
