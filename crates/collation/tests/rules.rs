//! What MySQL, MariaDB and TiDB answer for single pairs of texts, and what `LIKE` takes as the same.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::collections::HashMap;

use keirin_collation::{Collation, Keys, PadOrder};

fn keys(name: &str, order: PadOrder) -> Keys {
    Keys::new(Collation::find(name).expect("it is there"), order)
}

#[test]
fn trailing_spaces_are_those_of_each_system() {
    // The columns: MySQL's _bin and _general_ci, its _unicode_ci, TiDB's _bin and _general_ci, its _unicode_ci,
    // _0900_bin, _0900_ai_ci.
    let cases: &[(&str, &str, [Ordering; 6])] = &[
        ("a", "a ", [Equal, Equal, Equal, Equal, Less, Less]),
        ("a", "a\t", [Greater, Greater, Less, Less, Less, Less]),
        ("a", "a\n", [Greater, Greater, Less, Less, Less, Less]),
        ("a\t", "a ", [Less, Less, Greater, Greater, Less, Less]),
        ("a", "a\u{A0}", [Less, Equal, Less, Less, Less, Less]),
        ("a", "a\u{3000}", [Less, Equal, Less, Less, Less, Less]),
        ("a", "a\u{205F}", [Less, Equal, Less, Less, Less, Less]),
        ("a ", "a \u{200D}", [Less, Equal, Less, Less, Less, Equal]),
        ("", "\0", [Greater, Equal, Less, Equal, Less, Equal]),
        ("a\u{85}", "a", [Greater, Less, Greater, Greater, Greater, Greater]),
        ("a ", "a  x", [Less, Less, Less, Less, Less, Less]),
        ("a  \t", "a \t", [Greater, Greater, Greater, Greater, Greater, Greater]),
    ];
    let columns = [
        (PadOrder::Mysql, vec!["utf8mb4_bin", "utf8mb4_general_ci"]),
        (PadOrder::Mysql, vec!["utf8mb4_unicode_ci"]),
        (PadOrder::Tidb, vec!["utf8mb4_bin", "latin1_bin", "utf8mb3_general_ci"]),
        (PadOrder::Tidb, vec!["utf8mb4_unicode_ci"]),
        (PadOrder::Mysql, vec!["utf8mb4_0900_bin", "binary"]),
        (PadOrder::Tidb, vec!["utf8mb4_0900_ai_ci"]),
    ];
    for (left, right, expected) in cases {
        for ((order, names), expected) in columns.iter().zip(expected) {
            for name in names {
                let keys = keys(name, *order);
                assert_eq!(
                    keys.key(left).cmp(&keys.key(right)),
                    *expected,
                    "{name} {order:?}: {left:?} {right:?}"
                );
                assert_eq!(keys.compare(left, right), *expected, "{name} {order:?}: {left:?} {right:?}");
            }
        }
    }
}

#[test]
fn equality_is_that_of_each_collation() {
    // Equal under _general_ci, _unicode_ci, _0900_ai_ci, _0900_as_ci, _0900_as_cs.
    let cases: &[(&str, &str, [bool; 5])] = &[
        ("a", "A", [true, true, true, true, false]),
        ("a", "á", [true, true, true, false, false]),
        ("e\u{301}", "é", [false, true, true, true, true]),
        ("ß", "s", [true, false, false, false, false]),
        ("ß", "ss", [false, true, true, false, false]),
        ("æ", "ae", [false, false, true, false, false]),
        ("Й", "й", [true, true, true, true, false]),
        ("Й", "И", [false, false, false, false, false]),
        ("😀", "😃", [true, true, false, false, false]),
        ("a\u{200D}", "a", [false, true, true, true, true]),
        ("가", "\u{1100}\u{1161}", [false, false, true, true, true]),
        ("ｱ", "ア", [false, true, true, true, false]),
    ];
    let names = ["general_ci", "unicode_ci", "0900_ai_ci", "0900_as_ci", "0900_as_cs"];
    for (left, right, expected) in cases {
        for (name, expected) in names.iter().zip(expected) {
            let keys = keys(&format!("utf8mb4_{name}"), PadOrder::Tidb);
            assert_eq!(keys.equal(left, right), *expected, "{name}: {left:?} {right:?}");
        }
    }
}

#[test]
fn case_decides_last_and_small_letters_come_first() {
    let keys = keys("utf8mb4_0900_as_cs", PadOrder::Tidb);
    for pair in ["a", "A", "á", "Á", "ab", "aB", "Ab", "áb", "b"].windows(2) {
        assert!(keys.compare(pair[0], pair[1]).is_lt(), "{pair:?}");
        assert!(keys.key(pair[0]) < keys.key(pair[1]), "{pair:?}");
    }
}

/// Characters are the same for `LIKE` if all their weights are, and above U+FFFF under `_unicode_ci` if they are.
#[test]
fn folds_are_the_same_where_weights_are() {
    for collation in Collation::all().filter(|collation| collation.name().starts_with("utf8mb4_")) {
        let keys = Keys::new(collation, PadOrder::Tidb);
        let mut fold_of = HashMap::new();
        let mut weights_of = HashMap::new();
        let chars = ('\0'..='\u{3_2000}').chain('\u{E_0000}'..='\u{E_0200}');
        for char in chars {
            let mut buffer = [0; 4];
            let text = &*char.encode_utf8(&mut buffer);
            let fold = keys.fold(text);
            assert_eq!(fold.chars().count(), 1, "{collation} {char:?}");
            assert_eq!(keys.fold(&fold), fold, "{collation} {char:?}: what is folded stays");
            let is_itself =
                collation.is_bytes() || collation.name().ends_with("_unicode_ci") && char > '\u{FFFF}';
            let weights = if is_itself { text.as_bytes().to_vec() } else { keys.weights(text) };
            let weights = (is_itself, weights);
            assert_eq!(fold_of.entry(weights.clone()).or_insert(fold.clone()), &fold, "{collation} {char:?}");
            assert_eq!(weights_of.entry(fold).or_insert(weights.clone()), &weights, "{collation} {char:?}");
        }
    }
}

#[test]
fn names_are_found_in_any_case_or_the_nearest_are_told() {
    let id = |name| Collation::find(name).unwrap().id();
    assert_eq!(id("UTF8MB4_0900_AI_CI"), Some(255));
    assert_eq!(id("utf8_general_ci"), Some(33));
    assert_eq!(id("utf8mb3_unicode_ci"), Some(192));
    for collation in Collation::all() {
        assert_eq!(Collation::find(collation.name()), Ok(collation));
    }
    let error = Collation::find("utf8mb4_genral_ci").unwrap_err();
    assert_eq!(error.nearest[0], "utf8mb4_general_ci");
    assert!(
        error
            .to_string()
            .starts_with("unknown collation \"utf8mb4_genral_ci\"; the nearest are utf8mb4_general_ci, ")
    );
}

#[test]
fn ascii_keeps_its_length() {
    for name in ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci"] {
        let keys = keys(name, PadOrder::Tidb);
        for byte in (9..14).chain(32..127_u8) {
            assert_eq!(keys.key(&format!("{}x", char::from(byte))).len(), 2, "{name} {byte}");
        }
        assert_eq!(keys.key("привет").len(), 12, "{name}: so does Cyrillic");
    }
    assert_eq!(keys("utf8mb4_general_ci", PadOrder::Tidb).key("Select_1 "), "SELECT_1");
}
