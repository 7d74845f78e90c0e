//! Symbols, and which of them a text begins with.
//!
//! A symbol of one byte has its place in a table of 256, one of two bytes in a table of 65,536; longer ones
//! are in a hash table by their first three bytes, with one place for all that have the same hash. So finding
//! the longest symbol takes at most three looks, and no loop.

use std::ops::Range;

/// The code in front of a byte that no symbol holds.
pub(super) const ESCAPE: u8 = 255;
/// As many as there are codes beside the escape.
pub(super) const SYMBOLS_MAX: usize = 255;

/// 1 to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Symbol {
    /// The first byte lowest, zeros behind the last.
    word: u64,
    length: u8,
}

impl Symbol {
    pub(super) fn of_byte(byte: u8) -> Self {
        Self { word: u64::from(byte), length: 1 }
    }

    pub(super) fn length(self) -> u8 {
        self.length
    }

    pub(super) fn bytes(self) -> impl Iterator<Item = u8> {
        self.word.to_le_bytes().into_iter().take(usize::from(self.length))
    }

    /// Both, one behind the other, as far as there is room.
    pub(super) fn followed_by(self, next: Self) -> Self {
        let length = (self.length + next.length).min(8);
        let word = self.word | next.word.checked_shl(u32::from(self.length) * 8).unwrap_or(0);
        Self { word, length }
    }
}

/// No code.
const NONE: u8 = ESCAPE;
/// Places for symbols of three bytes and more.
const SLOTS: usize = 1 << 12;

#[derive(Clone, Copy, Debug)]
struct Slot {
    word: u64,
    /// Ones where the symbol has bytes.
    mask: u64,
    length: u8,
    code: u8,
}

/// No text is equal to it: none has bytes where there is no mask.
const EMPTY: Slot = Slot { word: u64::MAX, mask: 0, length: 0, code: NONE };

/// Finds symbols.
#[derive(Debug)]
pub(super) struct Matcher {
    single: [u8; 256],
    pairs: Vec<u8>,
    slots: Vec<Slot>,
}

/// The place of symbols with these first three bytes.
fn slot(word: u64) -> usize {
    let hash = (word & 0xFF_FFFF).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(hash >> (u64::BITS - SLOTS.trailing_zeros())).expect("a number of a few bits")
}

impl Matcher {
    pub(super) fn new(symbols: &[Symbol]) -> Self {
        let mut matcher = Self { single: [NONE; 256], pairs: vec![NONE; 1 << 16], slots: vec![EMPTY; SLOTS] };
        for (code, symbol) in (0..ESCAPE).zip(symbols) {
            matcher.insert(*symbol, code);
        }
        matcher
    }

    /// Whether the symbol has a place; the first of those that want the same one keeps it.
    pub(super) fn insert(&mut self, symbol: Symbol, code: u8) -> bool {
        let [first, second, ..] = symbol.word.to_le_bytes();
        let low = u16::from_le_bytes([first, second]);
        match symbol.length {
            1 => self.single[usize::from(low)] = code,
            2 => self.pairs[usize::from(low)] = code,
            length => {
                let slot = &mut self.slots[slot(symbol.word)];
                if slot.code != NONE {
                    return false;
                }
                let mask = u64::MAX >> (64 - 8 * u32::from(length));
                *slot = Slot { word: symbol.word, mask, length, code };
            }
        }
        true
    }

    /// The code and the length of the longest symbol that `left` bytes, the first eight of which are `word`,
    /// begin with; [`ESCAPE`] and 1 if there is none.
    #[inline(always)]
    pub(super) fn find(&self, word: u64, left: usize) -> (u8, usize) {
        let slot = &self.slots[slot(word)];
        if word & slot.mask == slot.word && usize::from(slot.length) <= left {
            return (slot.code, usize::from(slot.length));
        }
        let pair = self.pairs[(word & 0xFFFF) as usize];
        if pair != NONE && left >= 2 {
            return (pair, 2);
        }
        (self.single[(word & 0xFF) as usize], 1)
    }

    /// Appends the codes of a part of the text.
    pub(super) fn encode(&self, text: &[u8], part: Range<usize>, codes: &mut Vec<u8>) {
        let mut at = part.start;
        while at < part.end {
            let (code, length) = self.find(word_at(text, at), part.end - at);
            codes.push(code);
            if code == ESCAPE {
                codes.push(text[at]);
            }
            at += length;
        }
    }
}

/// The eight bytes from `at` on, zeros behind the end.
#[inline(always)]
pub(super) fn word_at(text: &[u8], at: usize) -> u64 {
    let rest = &text[at..];
    let bytes = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        bytes
    });
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(text: &str) -> Symbol {
        let symbols = text.bytes().map(Symbol::of_byte);
        symbols.reduce(Symbol::followed_by).expect("a text that is not empty")
    }

    #[test]
    fn symbols_are_at_most_eight_bytes_one_behind_the_other() {
        assert_eq!(symbol("abcdefghij").bytes().collect::<Vec<_>>(), b"abcdefgh");
        assert_eq!(symbol("abc").followed_by(symbol("defghi")), symbol("abcdefgh"));
    }

    #[test]
    fn the_longest_symbol_is_found_inside_the_row() {
        let symbols = [symbol("h"), symbol("ht"), symbol("http"), symbol("\0")];
        let matcher = Matcher::new(&symbols);
        let find = |text: &[u8]| matcher.find(word_at(text, 0), text.len());
        assert_eq!(find(b"http://"), (2, 4));
        assert_eq!(find(b"html"), (1, 2));
        assert_eq!(find(b"ha"), (0, 1));
        assert_eq!(find(b"x"), (ESCAPE, 1));
        assert_eq!(find(b"\0"), (3, 1));
        assert_eq!(matcher.find(word_at(b"http", 0), 3), (1, 2), "the row ends behind three bytes");
        let mut codes = Vec::new();
        matcher.encode(b"xhttphtx", 0..8, &mut codes);
        assert_eq!(codes, [ESCAPE, b'x', 2, 1, ESCAPE, b'x']);
    }
}
