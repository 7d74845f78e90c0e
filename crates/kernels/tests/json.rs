//! The structure of JSON text at every level against a walk byte by byte.

use keirin_kernels::Level;
use keirin_kernels::json::{self, Structure};
use keirin_testkit::columns::{Random, lengths};

mod guard;

fn naive(bytes: &[u8]) -> Structure {
    let (mut flags, mut has_broken_text) = (vec![false; bytes.len()], false);
    let (mut in_text, mut is_escaped) = (false, false);
    for (at, byte) in bytes.iter().enumerate() {
        has_broken_text |= in_text && *byte == b'\n';
        // Outside of texts a backslash is no JSON; a quote after it counts as escaped all the same.
        let escaped = std::mem::take(&mut is_escaped);
        match byte {
            b'\\' => is_escaped = !escaped,
            b'"' if !escaped => {
                flags[at] = !in_text;
                in_text = !in_text;
            }
            b'{' | b'}' | b'[' | b']' | b':' | b',' => flags[at] = !in_text,
            _ => {}
        }
    }
    Structure { bits: flags.into_iter().collect(), is_open: in_text, has_broken_text }
}

fn check(bytes: &[u8]) {
    let page = guard::AtPageEnd::new(bytes);
    let expected = naive(bytes);
    for level in Level::available() {
        assert_eq!(json::structure(*level, &page), expected, "{level}: {:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn structure_is_that_of_a_walk() {
    let mut random = Random::new(7);
    for characters in ["\"\\a", "{}[]:,\" a", "\"\\{}[]:,\n {}", "aaaaaaaa\"\\", "a\n\"\"\"\""] {
        let characters = characters.as_bytes();
        for len in lengths() {
            for _ in 0..if cfg!(miri) { 1 } else { 20 } {
                let pick =
                    |_| characters[usize::try_from(random.bits()).expect("64 bits") % characters.len()];
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
