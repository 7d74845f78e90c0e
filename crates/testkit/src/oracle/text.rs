//! Naive answers about text.

use std::cmp::Ordering;

/// The first position of `needle`, by trying them all.
#[must_use]
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    (0..=haystack.len()).find(|at| haystack[*at..].starts_with(needle))
}

/// A text without the spaces at its end.
#[must_use]
pub fn trimmed(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    while text.last() == Some(&b' ') {
        text.pop();
    }
    text
}

/// The order of two texts, the shorter one filled up with spaces.
#[must_use]
pub fn compare_filled(left: &[u8], right: &[u8]) -> Ordering {
    let len = left.len().max(right.len());
    let filled = |text: &[u8]| {
        let mut text = text.to_vec();
        text.resize(len, b' ');
        text
    };
    filled(left).cmp(&filled(right))
}

/// `text LIKE pattern`, by trying every way to read each `%`.
#[must_use]
pub fn like(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    matches(&text, &pattern, escape)
}

fn matches(text: &[char], pattern: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [first, literal, rest @ ..] if Some(*first) == escape => {
            text.first() == Some(literal) && matches(&text[1..], rest, escape)
        }
        [first] if Some(*first) == escape => text == [*first],
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| matches(&text[skipped..], rest, escape)),
        ['_', rest @ ..] => !text.is_empty() && matches(&text[1..], rest, escape),
        [literal, rest @ ..] => text.first() == Some(literal) && matches(&text[1..], rest, escape),
    }
}
