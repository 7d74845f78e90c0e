//! JSON records with only the keys that a query wants, so that decoding costs as much as what is read, not as what is there.
//!
//! Of what is left out, only texts, brackets, colons and commas must be where they should: numbers, words and the contents of
//! texts are not looked at.

use std::collections::HashMap;
use std::ops::Range;

use datafusion::arrow::datatypes::{DataType, FieldRef, Fields};
use keirin_kernels::{Level, bitmaps, json};

/// Keys from which on they are looked up by hash.
const KEYS_FEW: usize = 8;

/// The keys that are wanted of an object.
#[derive(Debug)]
pub(super) struct Wanted {
    keys: Vec<Key>,
    /// The position of each key, if there are many.
    by_name: HashMap<Vec<u8>, usize>,
}

#[derive(Debug)]
struct Key {
    name: Vec<u8>,
    /// What is wanted of the objects under it, if not all.
    inside: Option<Wanted>,
}

impl Wanted {
    /// The `wanted` ones of the keys that records have by the schema `all`; `None` if that is all there is.
    pub(super) fn new(wanted: &[FieldRef], all: &Fields) -> Option<Self> {
        let mut is_all = wanted.len() == all.len();
        let keys: Vec<Key> = wanted
            .iter()
            .map(|field| {
                let known = all.iter().find(|known| known.name() == field.name());
                let inside = match (field.data_type(), known.map(|known| known.data_type())) {
                    (DataType::Struct(wanted), Some(DataType::Struct(all))) => Self::new(wanted, all),
                    _ => None,
                };
                is_all &= inside.is_none();
                Key { name: field.name().as_bytes().to_vec(), inside }
            })
            .collect();
        let named = keys.iter().enumerate().map(|(position, key)| (key.name.clone(), position));
        let by_name = if keys.len() > KEYS_FEW { named.collect() } else { HashMap::new() };
        (!is_all).then_some(Self { keys, by_name })
    }

    /// The key called `name`; `next` is where the one after the last is.
    fn find(&self, name: &[u8], next: usize) -> Option<usize> {
        if self.keys.get(next).is_some_and(|key| key.name == name) {
            return Some(next);
        }
        if self.by_name.is_empty() {
            self.keys.iter().position(|key| key.name == name)
        } else {
            self.by_name.get(name).copied()
        }
    }
}

/// The records in `bytes` with what is wanted of them, and how many there are; `None` for those that need a closer look, such
/// as what is no JSON.
pub(super) fn narrow(bytes: &[u8], wanted: &Wanted) -> Option<(Vec<u8>, usize)> {
    let positions = structure(bytes)?;
    let mut walk = Walk { bytes, positions: &positions, out: Vec::new() };
    let (mut count, mut end) = (0, 0);
    while let Some(begin) = walk.peek() {
        if bytes[begin] != b'{' || !is_blank(&bytes[end..begin]) {
            return None;
        }
        end = walk.object(wanted)? + 1;
        walk.out.push(b'\n');
        count += 1;
    }
    is_blank(&bytes[end..]).then_some((walk.out, count))
}

/// Where the records in `bytes` are; `None` as [`narrow`].
pub(super) fn records(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let positions = structure(bytes)?;
    let (mut records, mut depth, mut begin, mut end) = (Vec::new(), 0_usize, 0, 0);
    for at in positions {
        let at = at as usize;
        match bytes[at] {
            b'{' | b'[' => {
                if depth == 0 {
                    begin = at;
                    if !is_blank(&bytes[end..begin]) {
                        return None;
                    }
                }
                depth += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    end = at + 1;
                    records.push(begin..end);
                }
            }
            _ => {}
        }
    }
    (depth == 0 && is_blank(&bytes[end..])).then_some(records)
}

/// The bytes that are structure, if texts are what they should be.
fn structure(bytes: &[u8]) -> Option<Vec<u32>> {
    u32::try_from(bytes.len()).ok()?;
    let found = json::structure(Level::best(), bytes);
    let is_sound = !found.is_open && !found.has_broken_text;
    is_sound.then(|| bitmaps::positions(Level::best(), found.bits.as_bits()))
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// A walk over the structure of records.
struct Walk<'a> {
    bytes: &'a [u8],
    /// Where the rest of the structure is.
    positions: &'a [u32],
    out: Vec<u8>,
}

impl Walk<'_> {
    /// The next byte of structure.
    fn peek(&self) -> Option<usize> {
        self.positions.first().map(|at| *at as usize)
    }

    fn take(&mut self) -> Option<usize> {
        let (first, rest) = self.positions.split_first()?;
        self.positions = rest;
        Some(*first as usize)
    }

    /// Writes what is wanted of the object that begins here; returns where it ends.
    fn object(&mut self, wanted: &Wanted) -> Option<usize> {
        let begin = self.take()?;
        self.out.push(b'{');
        let (mut is_first, mut next) = (true, 0);
        let mut at = self.take()?;
        if self.bytes[at] == b'}' {
            self.out.push(b'}');
            return is_blank(&self.bytes[begin + 1..at]).then_some(at);
        }
        let mut before = begin;
        loop {
            let (quote, colon) = (at, self.take()?);
            let is_key = self.bytes[quote] == b'"' && self.bytes[colon] == b':';
            if !is_key || !is_blank(&self.bytes[before + 1..quote]) {
                return None;
            }
            let name = self.bytes[quote + 1..colon].trim_ascii_end().strip_suffix(b"\"")?;
            // An escaped name may be any.
            let is_escaped = name.contains(&b'\\');
            let found = if is_escaped { None } else { wanted.find(name, next) };
            let is_wanted = found.is_some() || is_escaped;
            if is_wanted && !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            let key = found.map(|position| {
                next = position + 1;
                &wanted.keys[position]
            });
            let end = match (key.and_then(|key| key.inside.as_ref()), self.peek()?) {
                (Some(inside), begin) if self.bytes[begin] == b'{' => {
                    self.out.extend_from_slice(&self.bytes[quote..begin]);
                    let last = self.object(inside)?;
                    let end = self.take()?;
                    if !is_blank(&self.bytes[colon + 1..begin]) || !is_blank(&self.bytes[last + 1..end]) {
                        return None;
                    }
                    end
                }
                _ => {
                    let end = self.value(colon)?;
                    if is_wanted {
                        self.out.extend_from_slice(&self.bytes[quote..end]);
                    }
                    end
                }
            };
            match self.bytes[end] {
                b',' => (before, at) = (end, self.take()?),
                b'}' => {
                    self.out.push(b'}');
                    return Some(end);
                }
                _ => return None,
            }
        }
    }

    /// Passes the value behind a colon; returns where the comma or brace after it is.
    fn value(&mut self, colon: usize) -> Option<usize> {
        let at = self.take()?;
        let is_begun = is_blank(&self.bytes[colon + 1..at]);
        match self.bytes[at] {
            b'"' => {
                let end = self.take()?;
                let is_ended = self.bytes[at + 1..end].trim_ascii_end().ends_with(b"\"");
                (is_begun && is_ended).then_some(end)
            }
            b'{' | b'[' => {
                let mut depth = 1_usize;
                let passed = self.positions.iter().position(|at| {
                    match self.bytes[*at as usize] {
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    depth == 0
                })?;
                let last = self.positions[passed] as usize;
                self.positions = &self.positions[passed + 1..];
                let end = self.take()?;
                (is_begun && is_blank(&self.bytes[last + 1..end])).then_some(end)
            }
            // A number or a word.
            _ => (!is_begun).then_some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::Field;

    use super::*;

    fn fields(names: &[&str]) -> Fields {
        names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect()
    }

    fn wanted(names: &[&str]) -> Wanted {
        Wanted::new(&fields(names), &fields(&["a", "b", "c", "d"])).expect("less than all is wanted")
    }

    fn check(records: &str, names: &[&str], expected: Option<&str>) {
        let found = narrow(records.as_bytes(), &wanted(names));
        let text = found.as_ref().map(|(text, _)| std::str::from_utf8(text).unwrap());
        assert_eq!(text, expected, "{records}");
        if let Some((text, count)) = &found {
            assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), *count, "{records}");
        }
    }

    #[test]
    fn only_wanted_keys_are_left() {
        check("{\"a\":1,\"b\":2}\n{\"b\":3}\n", &["b"], Some("{\"b\":2}\n{\"b\":3}\n"));
        check("{\"a\":1,\"b\":2}", &[], Some("{}\n"));
        check("", &["a"], Some(""));
        check(" \n\n", &["a"], Some(""));
        check("{} { }", &["a"], Some("{}\n{}\n"));
        check("{\"a\": [1,{\"b\":2}] , \"b\" : \"x,}\" }", &["a"], Some("{\"a\": [1,{\"b\":2}] }\n"));
        check("{\"a\":{\"b\":1},\"b\":\"\\\"}\"}", &["b"], Some("{\"b\":\"\\\"}\"}\n"));
        check("{\"c\":1,\"a\":2,\"c\":3}", &["a", "c"], Some("{\"c\":1,\"a\":2,\"c\":3}\n"));
        check("{\"\\u0061\":1,\"b\":2}", &["a"], Some("{\"\\u0061\":1}\n"));
        check("{\"aa\":1,\"a\" :2}", &["a"], Some("{\"a\" :2}\n"));
    }

    #[test]
    fn what_is_no_object_needs_a_closer_look() {
        for records in [
            "1",
            "[1]",
            "x{}",
            "{} x",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":,\"b\":1}",
            "{x}",
            "{\"a\":1]",
            "{\"a\":1,}",
            "{\"a\":[1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":\"x",
            "{\"a\":\"x\ny\"}",
            "{}}",
            "{a:1}",
            "{\"a\":\"x\"y\":1}",
            "{x\"a\":1}",
            "{\"b\":1, x \"a\":1}",
            "{\"b\":\"x\"y,\"a\":1}",
            "{\"b\":x{\"a\":2}}",
            "{\"b\":{\"a\":2}x}",
            "{\"b\":x\"y\"}",
        ] {
            check(records, &["a"], None);
        }
    }

    #[test]
    fn records_are_found() {
        let found = |text: &str| records(text.as_bytes());
        assert_eq!(found("{\"a\":[{}]} [1]\n{}\n"), Some(vec![0..10, 11..14, 15..17]));
        assert_eq!(found(" "), Some(vec![]));
        for text in ["1", "{}x", "x{}", "{", "}", "{} 1", "{\"a"] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn objects_inside_are_narrowed_too() {
        let object = |names: &[&str]| Field::new("o", DataType::Struct(fields(names)), true);
        let all = Fields::from(vec![object(&["a", "b"]), Field::new("x", DataType::Int64, true)]);
        let wanted = Wanted::new(&[Arc::new(object(&["b"]))], &all).unwrap();
        let records = "{\"x\":1,\"o\":{\"a\":1,\"b\":{\"c\":2}}}{\"o\":null}{\"o\":{}}{\"o\":[{\"a\":1}]}";
        let expected = "{\"o\":{\"b\":{\"c\":2}}}\n{\"o\":null}\n{\"o\":{}}\n{\"o\":[{\"a\":1}]}\n";
        assert_eq!(narrow(records.as_bytes(), &wanted), Some((expected.as_bytes().to_vec(), 4)));
        assert!(Wanted::new(&all, &all).is_none());
        assert!(Wanted::new(&[Arc::new(object(&["a", "b"])), all[1].clone()], &all).is_none());
    }

    #[test]
    fn many_keys_are_found() {
        let names: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let wanted = Wanted::new(&fields(&names[10..]), &fields(&names)).unwrap();
        let record = |names: &[&str]| {
            let keys: Vec<String> = names.iter().map(|name| format!("\"{name}\":1")).collect();
            format!("{{{}}}", keys.join(","))
        };
        let (text, _) = narrow(record(&names).as_bytes(), &wanted).unwrap();
        assert_eq!(text, format!("{}\n", record(&names[10..])).into_bytes());
    }
}
