//! Chains find what the crate `regex` finds.

use std::cell::Cell;

use keirin_operators::pattern::{Chain, Match};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use regex::Regex;

/// Whether there was something to compare.
fn check(pattern: &str, text: &str) -> bool {
    let Some(chain) = Chain::new(pattern) else { return false };
    let regex = Regex::new(pattern).expect("chains are patterns");
    assert_eq!(chain.group_count(), regex.captures_len());
    let mut found = Match::default();
    let Some(is_match) = chain.find(text, &mut found) else { return false };
    let captures = regex.captures(text);
    assert_eq!(is_match, captures.is_some(), "{pattern:?} in {text:?}");
    for group in 0..captures.as_ref().map_or(0, regex::Captures::len) {
        let expected = captures.as_ref().and_then(|captures| captures.get(group)).map(|group| group.range());
        assert_eq!(found.group(group), expected, "group {group} of {pattern:?} in {text:?}");
    }
    true
}

#[test]
fn usual_patterns_are_chains() {
    let is_chain = |pattern: &str| {
        for text in [
            "",
            "http://example.com/",
            "https://www.example.com/a/b?c\nd",
            "https://www./",
            "http://wwwexample.com",
            "2024-01-02 03:04:05",
            "GET /a/b HTTP/1.1",
            "key = value # ß",
            "ßß€/€",
            "/€ß",
        ] {
            check(pattern, text);
        }
        Chain::new(pattern).is_some()
    };
    for pattern in [
        r"^https?://(?:www\.)?([^/]+)/.*$",
        r"^(?:http|https|ftp)://([a-z.]+)(/.*)?$",
        r"^([0-9]{4})-([0-9]{2})-([0-9]{2})",
        r"^(GET|POST) ([^ ]*) HTTP/([0-9.]+)$",
        r"^([^=]*?) *= *(.*?)(?: *#.*)?$",
        r"^(.*)/([^/]*)$",
        r"^.*$",
        r"^a*(b|c)?[x-z]+?$",
    ] {
        assert!(is_chain(pattern), "{pattern}");
    }
    // What chains are not for.
    for pattern in ["a", r"^(ab)*$", r"^\bx", r"^[ä-ö]+", "^.{3}", "^(", "(?m)^a", r"^\w+"] {
        assert!(!is_chain(pattern), "{pattern}");
    }
}

#[test]
fn chains_that_go_back_too_often_give_up() {
    let chain = Chain::new("^.*a.*a.*a.*b$").unwrap();
    assert_eq!(chain.find(&"a".repeat(1000), &mut Match::default()), None);
    // Each end of the first run makes the second look at all that is left.
    let chain = Chain::new("^.*?([a-z]*)$").unwrap();
    assert_eq!(chain.find(&format!("{}0", "a".repeat(20_000)), &mut Match::default()), None);
    assert_eq!(chain.find(&"a".repeat(1 << 20), &mut Match::default()), Some(true));
    assert!(Chain::new("^[a-z]{1000000}").is_none());
    assert_eq!(chain.find("aaab", &mut Match::default()), Some(true));
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "ab",
        "é",
        "b?",
        "[ab]",
        "[ab]*",
        "[^a]+",
        "[^é]*",
        ".*",
        ".*?",
        ".+",
        "[^b]+?",
        "a{2}",
        "[ab]{1,2}",
        "a*",
        "(?s:.)*",
        "$",
        "^",
        "",
        "x??",
    ]);
    let part = leaf.prop_map(str::to_owned).prop_recursive(3, 16, 4, |inner| {
        let parts = prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat());
        let alternatives =
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| format!("(?:{})", parts.join("|")));
        prop_oneof![
            parts,
            alternatives,
            inner.clone().prop_map(|inner| format!("({inner})")),
            inner.clone().prop_map(|inner| format!("(?:{inner})?")),
            inner.prop_map(|inner| format!("({inner})??")),
        ]
    });
    (part, any::<bool>()).prop_map(|(part, ends)| format!("^{part}{}", if ends { "$" } else { "" }))
}

#[test]
fn chains_find_what_regular_expressions_find() {
    let compared = Cell::new(0);
    let cases = (pattern(), prop::collection::vec("[abxé\n]{0,8}", 4));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(3_000));
    let run = runner.run(&cases, |(pattern, texts)| {
        let chains = texts.iter().filter(|text| check(&pattern, text)).count();
        compared.set(compared.get() + chains);
        Ok(())
    });
    run.unwrap();
    assert!(compared.get() > 6_000, "{} of 12,000 were chains", compared.get());
}
