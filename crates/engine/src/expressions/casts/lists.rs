//! Lists and bytes from text: `[1, 2, NULL]`, `['a', "b", [c]]`, `{1,2}`; `\xDEADBEEF`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, ListArray, StringViewArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::{convert, is_no};

/// Converts texts to lists, and the items of these from text to the item type.
pub(super) fn of_text(values: &StringViewArray, to: &DataType, is_try: bool) -> Result<ArrayRef> {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) = to else {
        return internal_err!("{to} is no list");
    };
    let mut items: Vec<Option<String>> = Vec::new();
    let mut lengths = Vec::with_capacity(values.len());
    let mut is_valid = Vec::with_capacity(values.len());
    for value in values {
        let found = value.and_then(parse);
        match value {
            Some(text) if found.is_none() && !is_try => return Err(is_no(text, to)),
            _ => {}
        }
        lengths.push(found.as_ref().map_or(0, Vec::len));
        is_valid.push(found.is_some());
        items.extend(found.into_iter().flatten());
    }
    let items: ArrayRef = Arc::new(StringViewArray::from_iter(items));
    let items = convert(&items, item.data_type(), is_try)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let lists = ListArray::try_new(item.clone(), offsets, items, Some(NullBuffer::from(is_valid)))?;
    Ok(cast(&lists, to)?)
}

/// The items of a list, as texts; `None` if `text` is no list.
fn parse(text: &str) -> Option<Vec<Option<String>>> {
    let text = text.trim();
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .or_else(|| text.strip_prefix('{').and_then(|text| text.strip_suffix('}')))?;
    let mut items = Vec::new();
    let mut rest = inner.trim_start();
    if rest.is_empty() {
        return Some(items);
    }
    loop {
        let (item, after) = item(rest)?;
        items.push(item);
        match after.chars().next() {
            None => return Some(items),
            Some(',') => rest = after[1..].trim_start(),
            Some(_) => return None,
        }
    }
}

/// The item at the beginning, and the text behind it, which is empty or begins with a comma.
fn item(text: &str) -> Option<(Option<String>, &str)> {
    if let Some(quote) = text.chars().next().filter(|first| ['\'', '"'].contains(first)) {
        let mut value = String::new();
        let mut characters = text.char_indices().skip(1);
        while let Some((index, character)) = characters.next() {
            match character {
                '\\' => value.push(characters.next()?.1),
                _ if character == quote => return Some((Some(value), text[index + 1..].trim_start())),
                _ => value.push(character),
            }
        }
        return None;
    }
    let mut depth = 0_usize;
    let mut quote = None;
    let mut end = text.len();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => {
                characters.next()?;
            }
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') if depth > 0 => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => {
                end = index;
                break;
            }
            _ => {}
        }
    }
    let value = text[..end].trim_end();
    if depth > 0 || quote.is_some() || value.is_empty() {
        return None;
    }
    let value = (!value.eq_ignore_ascii_case("null")).then(|| value.to_owned());
    Some((value, &text[end..]))
}

/// Bytes from text: `\x` and hexadecimal digits as PostgreSQL writes them, or a text with `\xAA` among its
/// characters as DuckDB does, where `\\` is a backslash.
pub(super) fn bytes_of_text(values: &StringViewArray, is_try: bool) -> Result<ArrayRef> {
    let mut bytes = Vec::with_capacity(values.len());
    for value in values {
        let found = value.map(|text| (text, bytes_of(text)));
        bytes.push(match found {
            Some((text, None)) if !is_try => return Err(is_no(text, &DataType::Binary)),
            other => other.and_then(|(_, bytes)| bytes),
        });
    }
    Ok(Arc::new(BinaryArray::from_iter(bytes)))
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let byte = |digits: &[u8]| {
        let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    if let Some(digits) = text.strip_prefix("\\x")
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return digits.as_bytes().chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = match (first, behind) {
            (b'\\', [b'x', digits @ ..]) => {
                bytes.push(byte(digits.get(..2)?)?);
                &digits[2..]
            }
            (b'\\', [b'\\', behind @ ..]) => {
                bytes.push(b'\\');
                behind
            }
            (b'\\', _) => return None,
            _ => {
                bytes.push(*first);
                behind
            }
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        let check = |text: &str, expected: Option<&[Option<&str>]>| {
            let found = parse(text);
            let found: Option<Vec<Option<&str>>> =
                found.as_ref().map(|items| items.iter().map(Option::as_deref).collect());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("[a,b]", Some(&[Some("a"), Some("b")]));
        check(" [ 1 , NULL , 'x, y' ] ", Some(&[Some("1"), None, Some("x, y")]));
        check("[[1, 2], ['a]', 3]]", Some(&[Some("[1, 2]"), Some("['a]', 3]")]));
        check(r"[['\'],', b], c]", Some(&[Some(r"['\'],', b]"), Some("c")]));
        check("{1,2}", Some(&[Some("1"), Some("2")]));
        check("[]", Some(&[]));
        check("['NULL', \"it\\\"s\"]", Some(&[Some("NULL"), Some("it\"s")]));
        for text in ["", "a", "[a", "[a,]", "[,a]", "[a]]", "['a]", "['a'b]", "[[a]"] {
            check(text, None);
        }
    }

    #[test]
    fn bytes_are_those_of_postgresql_and_duckdb() {
        assert_eq!(bytes_of("\\xDEADbeef"), Some(vec![0xde, 0xad, 0xbe, 0xef]));
        assert_eq!(bytes_of("\\xAA\\xBB"), Some(vec![0xaa, 0xbb]));
        assert_eq!(bytes_of("abc"), Some(b"abc".to_vec()));
        assert_eq!(bytes_of("a\\x80\\\\b"), Some(b"a\x80\\b".to_vec()));
        assert_eq!(bytes_of("\\x"), Some(Vec::new()));
        assert_eq!(bytes_of("a\\b"), None);
        assert_eq!(bytes_of("a\\x+1"), None);
        assert_eq!(bytes_of("\\xABC"), None);
        assert_eq!(bytes_of("\\xZZ"), None);
    }
}
