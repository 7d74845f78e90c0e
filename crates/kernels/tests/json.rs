//! The structure of JSON text at every level against a walk byte by byte.

use keirin_kernels::{Level, json};
use keirin_testkit::columns::{Random, lengths};

mod guard;

fn naive(bytes: &[u8]) -> Option<Vec<usize>> {
    let (mut found, mut in_text, mut is_escaped) = (Vec::new(), false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            // Outside of texts a backslash is no JSON; the byte after it counts as escaped all the same.
            _ if std::mem::take(&mut is_escaped) => {
                if in_text && *byte == b'\n' {
                    return None;
                }
                if !in_text && b"{}[]:,".contains(byte) {
                    found.push(at);
                }
            }
            b'\\' => is_escaped = true,
            b'"' => {
                if !in_text {
                    found.push(at);
                }
                in_text = !in_text;
            }
            b'\n' if in_text => return None,
            b'{' | b'}' | b'[' | b']' | b':' | b',' if !in_text => found.push(at),
            _ => {}
        }
    }
    (!in_text).then_some(found)
}

fn check(bytes: &[u8]) {
    let page = guard::AtPageEnd::new(bytes);
    let expected = naive(bytes);
    for level in Level::available() {
        let found = json::structure(*level, &page).map(|bits| bits.as_bits().ones().collect::<Vec<_>>());
        assert_eq!(found, expected, "{level}: {:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn structure_is_that_of_a_walk() {
    let mut random = Random::new(7);
    for characters in ["\"\\a", "{}[]:,\" a", "\"\\{}[]:,\n {}", "aaaaaaaa\"\\", "a\n\"\"\"\""] {
        let characters = characters.as_bytes();
        for len in lengths() {
            for _ in 0..if cfg!(miri) { 1 } else { 20 } {
                let pick = |_| characters[random.bits() as usize % characters.len()];
                check(&(0..len).map(pick).collect::<Vec<u8>>());
            }
        }
    }
}

#[test]
fn escapes_reach_over_blocks() {
    for before in 55..70 {
        for backslashes in 0..8 {
            let text = format!("{{\"{}{}\"}}", "x".repeat(before), "\\".repeat(backslashes));
            check(text.as_bytes());
            check(format!("{text},\"b\":1}}").as_bytes());
        }
    }
    check(b"");
    check("{\"\u{e4}\":[1,{\"b\":\"}\"}]}\n".as_bytes());
}
