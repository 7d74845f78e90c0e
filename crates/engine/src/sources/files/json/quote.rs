//! Rewrites records so that the value of a text column is a JSON text: `{"a": {"b": 1}}` becomes `{"a":
//! "{\"b\": 1}"}` if `a` is a text column.
//!
//! Arrow's decoder accepts numbers and booleans for text, but not objects and lists. Everything else is
//! copied byte by byte, so that numbers keep all digits and objects the order of their keys.

use std::borrow::Cow;

use datafusion::arrow::datatypes::{DataType, Fields};

/// The bytes are not JSON; a strict parser then says why.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

/// The records in `bytes`, with objects and lists in text columns of `fields` turned into texts.
pub(super) fn quote_text(bytes: &[u8], fields: &Fields) -> Result<Vec<u8>, Malformed> {
    let mut walk = Walk { bytes, at: 0, out: Vec::with_capacity(bytes.len() + bytes.len() / 8) };
    loop {
        walk.blanks();
        if walk.at == bytes.len() {
            return Ok(walk.out);
        }
        walk.object(fields)?;
    }
}

/// Whether values of this type could hold objects or lists to be kept as text, that is, whether it contains
/// any text type.
pub(super) fn holds_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| holds_text(field.data_type())),
        DataType::List(item) | DataType::LargeList(item) => holds_text(item.data_type()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        _ => false,
    }
}

struct Walk<'b> {
    bytes: &'b [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'b> Walk<'b> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn copy(&mut self, count: usize) {
        self.out.extend_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
    }

    fn blanks(&mut self) {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.copy(count);
    }

    fn value(&mut self, data_type: &DataType) -> Result<(), Malformed> {
        match (self.peek().ok_or(Malformed)?, data_type) {
            (b'{', DataType::Struct(fields)) => self.object(fields),
            (b'[', DataType::List(item) | DataType::LargeList(item)) => self.list(item.data_type()),
            (b'{' | b'[', DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
                let raw = self.raw()?;
                self.out.push(b'"');
                for byte in raw {
                    match byte {
                        b'"' | b'\\' => self.out.extend([b'\\', *byte]),
                        b'\n' => self.out.extend(b"\\n"),
                        b'\r' => self.out.extend(b"\\r"),
                        b'\t' => self.out.extend(b"\\t"),
                        _ => self.out.push(*byte),
                    }
                }
                self.out.push(b'"');
                self.at += raw.len();
                Ok(())
            }
            _ => {
                let count = self.raw()?.len();
                self.copy(count);
                Ok(())
            }
        }
    }

    fn object(&mut self, fields: &Fields) -> Result<(), Malformed> {
        self.expect(b'{')?;
        if self.closed(b'}') {
            return Ok(());
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(Malformed);
            }
            let key = self.raw()?;
            self.copy(key.len());
            self.blanks();
            self.expect(b':')?;
            self.blanks();
            let inner = &key[1..key.len() - 1];
            let name: Cow<'_, str> = if inner.contains(&b'\\') {
                Cow::Owned(serde_json::from_slice(key).map_err(|_| Malformed)?)
            } else {
                Cow::Borrowed(std::str::from_utf8(inner).map_err(|_| Malformed)?)
            };
            let data_type = fields.find(&name).map_or(&DataType::Null, |(_, field)| field.data_type());
            self.value(data_type)?;
            if self.closed(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn list(&mut self, item: &DataType) -> Result<(), Malformed> {
        self.expect(b'[')?;
        if self.closed(b']') {
            return Ok(());
        }
        loop {
            self.blanks();
            self.value(item)?;
            if self.closed(b']') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(Malformed);
        }
        self.copy(1);
        Ok(())
    }

    /// Skips the closing bracket if it is the next character.
    fn closed(&mut self, bracket: u8) -> bool {
        self.blanks();
        self.peek() == Some(bracket) && self.expect(bracket).is_ok()
    }

    /// The bytes of the value that begins here. Whether they are valid JSON is left to the decoder.
    fn raw(&self) -> Result<&'b [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
        for (index, byte) in rest.iter().enumerate() {
            if in_text {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => {
                        in_text = false;
                        if depth == 0 {
                            return Ok(&rest[..=index]);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' if depth == 0 && index > 0 => return Err(Malformed),
                b'"' => in_text = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(&rest[..=index]);
                    }
                }
                b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => {
                    return if index > 0 { Ok(&rest[..index]) } else { Err(Malformed) };
                }
                _ => {}
            }
        }
        if depth == 0 && !in_text && !rest.is_empty() { Ok(rest) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;

    use super::*;

    #[test]
    fn only_what_must_be_text_is_quoted() {
        let fields: Fields = vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("l", DataType::new_list(DataType::Utf8, true), true),
            Field::new("s", DataType::Struct(vec![Field::new("t", DataType::Utf8, true)].into()), true),
            Field::new("n", DataType::Int64, true),
        ]
        .into();
        let check = |input: &str, expected: &str| {
            let out = quote_text(input.as_bytes(), &fields).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(r#"{"t":{"b":"x\"y"},"n":1}"#, r#"{"t":"{\"b\":\"x\\\"y\"}","n":1}"#);
        check(r#"{"t":[1.10, 2]} {"t":null}"#, r#"{"t":"[1.10, 2]"} {"t":null}"#);
        check(r#"{"l":[{"a":1},"x",2],"o":{"k":[]}}"#, r#"{"l":["{\"a\":1}","x",2],"o":{"k":[]}}"#);
        check(r#"{"s":{"t":[]},"x":1}"#, r#"{"s":{"t":"[]"},"x":1}"#);
        check(r#"{"t":{"a":1}}"#, r#"{"t":"{\"a\":1}"}"#);
        check("{}\n{ }\n", "{}\n{ }\n");
        check("", "");
    }

    #[test]
    fn malformed_records_are_refused() {
        let fields: Fields = vec![Field::new("t", DataType::Utf8, true)].into();
        for input in [
            "{",
            "{\"t\"",
            "{\"t\":",
            "{\"t\":}",
            "{\"t\":[",
            "{\"t\":\"",
            "5",
            "{,}",
            "{\"t\":1 2}",
            "{\"a\" 1}",
        ] {
            assert_eq!(quote_text(input.as_bytes(), &fields), Err(Malformed), "{input}");
        }
    }
}
