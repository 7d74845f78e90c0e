//! Texts that are hard to order, and the order of weights one by one.

use std::cmp::Ordering;

use keirin_collation::{Collation, Keys, PadOrder};
use keirin_testkit::columns::Random;

/// What texts are made of: ASCII, controls, spaces of all kinds, what has no weight or many, and the rules
/// of scripts.
const PIECES: &[&str] = &[
    "a",
    "A",
    "b",
    "z",
    "Z",
    "0",
    "9",
    " ",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\0",
    "\u{1}",
    "\u{1F}",
    "\u{7F}",
    "_",
    "%",
    "-",
    "~",
    "$",
    "`",
    "^",
    "\u{85}",
    "\u{A0}",
    "\u{3000}",
    "\u{2003}",
    "\u{202F}",
    "\u{1680}",
    "\u{2028}",
    "\u{2029}",
    "\u{200D}",
    "\u{FEFF}",
    "\u{AD}",
    "\u{301}",
    "\u{345}",
    "e\u{301}",
    "é",
    "É",
    "ß",
    "ss",
    "S",
    "æ",
    "ae",
    "Æ",
    "ø",
    "Й",
    "й",
    "И\u{306}",
    "и",
    "я",
    "ё",
    "Ω",
    "ά",
    "ά",
    "ς",
    "σ",
    "ﬁ",
    "ﬀ",
    "ﷺ",
    "٣",
    "א",
    "中",
    "国",
    "㐀",
    "豈",
    "更",
    "﨎",
    "﨏",
    "\u{1100}\u{1161}",
    "가",
    "각",
    "힣",
    "ᄀ",
    "ᅡ",
    "㉮",
    "あ",
    "ア",
    "ァ",
    "ｱ",
    "ー",
    "ก",
    "เก",
    "ກ",
    "ᦀ",
    "㍘",
    "㋿",
    "😀",
    "😃",
    "𝒜",
    "𠀀",
    "𬺡",
    "𬺢",
    "𗀀",
    "\u{E0020}",
    "\u{E0100}",
    "\u{FFFD}",
    "\u{FFFF}",
    "\u{10FFFF}",
    "\u{E000}",
    "\u{D7FF}",
    "\u{F8FF}",
    "％",
    "＿",
    "Ａ",
    "\u{1F1E6}",
    "\u{1F928}",
];

/// A text of up to `piece_count` pieces, some of them any characters.
pub(crate) fn text(random: &mut Random, piece_count: u64) -> String {
    let mut text = String::new();
    for _ in 0..random.below(piece_count + 1) {
        match random.below(8) {
            0 => text.extend(any_char(random, 0x800)),
            1 => text.extend(any_char(random, 0x1_0000)),
            2 => text.extend(any_char(random, 0x11_0000)),
            3 => text.extend(any_char(random, 0x80)),
            _ => text.push_str(PIECES[below(random, PIECES.len())]),
        }
    }
    text
}

/// Two texts, of which one is often a variant of the other.
pub(crate) fn pair(random: &mut Random) -> (String, String) {
    let left = text(random, 8);
    if random.chance(0.3) {
        return (left, text(random, 8));
    }
    let mut right: Vec<char> = left.chars().collect();
    for _ in 0..random.below(3) {
        let at = below(random, right.len() + 1);
        if random.chance(0.5) && at < right.len() {
            right.remove(at);
        } else {
            right.splice(at..at, PIECES[below(random, PIECES.len())].chars());
        }
    }
    let swap_case = |char: char| {
        if char.is_lowercase() { char.to_uppercase().next() } else { char.to_lowercase().next() }
    };
    let right =
        right.into_iter().filter_map(|char| if random.chance(0.1) { swap_case(char) } else { Some(char) });
    (left, right.collect())
}

fn any_char(random: &mut Random, bound: u64) -> Option<char> {
    char::from_u32(u32::try_from(random.below(bound)).expect("a small number"))
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).expect("a small number")
}

/// The order of two texts by their weights, one after the other, as the rules of `order` say.
pub(crate) fn compare_weights(keys: &Keys, order: PadOrder, left: &str, right: &str) -> Ordering {
    let collation = keys.collation();
    let trimmed = |text: &str| keys.weights(if collation.pads() { text.trim_end_matches(' ') } else { text });
    let (left_weights, right_weights) = (trimmed(left), trimmed(right));
    if order == PadOrder::Tidb || !collation.pads() {
        return left_weights.cmp(&right_weights);
    }
    let space = keys.weights(" ");
    let units = |weights: &[u8]| weights.chunks(space.len()).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (mut left, mut right) = (units(&left_weights), units(&right_weights));
    let length = left.len().max(right.len());
    left.resize(length, space.clone());
    right.resize(length, space);
    left.cmp(&right)
}

/// The collations of MySQL for the widest charset, in both orders of spaces; those of others are the same.
pub(crate) fn all_keys() -> impl Iterator<Item = (Keys, PadOrder)> {
    let mysql = Collation::all().filter(|collation| collation.id().is_some());
    let mysql = mysql.filter(|collation| collation.name().starts_with("utf8mb4_"));
    mysql.flat_map(|collation| {
        [PadOrder::Tidb, PadOrder::Mysql].map(|order| (Keys::new(collation, order), order))
    })
}
