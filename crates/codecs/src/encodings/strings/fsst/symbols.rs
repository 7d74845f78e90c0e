//! Symbols, and which of them a text begins with.
//!
//! A table of 65,536 has the symbol of two bytes, or else of one, that two bytes begin with; longer symbols are in a
//! hash table by their first three bytes, with one place for all that have the same hash. So finding the longest
//! symbol takes two looks, and no loop.

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

    /// The bytes, the first lowest, and how many.
    pub(super) fn parts(self) -> (u64, u8) {
        (self.word, self.length)
    }

    /// The symbol that had these parts.
    pub(super) fn of_parts((word, length): (u64, u8)) -> Self {
        Self { word, length }
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
    /// The code and, above it, the length for each two bytes.
    short: Vec<u16>,
    slots: Vec<Slot>,
}

fn short(code: u8, length: u8) -> u16 {
    u16::from_le_bytes([code, length])
}

/// The place of symbols with these first three bytes.
fn slot(word: u64) -> usize {
    let hash = (word & 0xFF_FFFF).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(hash >> (u64::BITS - SLOTS.trailing_zeros())).expect("a number of a few bits")
}

impl Matcher {
    pub(super) fn new(symbols: &[Symbol]) -> Self {
        let short = vec![short(NONE, 1); 1 << 16];
        let mut matcher = Self { single: [NONE; 256], short, slots: vec![EMPTY; SLOTS] };
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
            1 => {
                self.single[usize::from(first)] = code;
                let pairs = self.short.iter_mut().skip(usize::from(first)).step_by(256);
                pairs.filter(|pair| **pair >> 8 == 1).for_each(|pair| *pair = short(code, 1));
            }
            2 => self.short[usize::from(low)] = short(code, 2),
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
        if left < 2 {
            return (self.single[(word & 0xFF) as usize], 1);
        }
        let slot = &self.slots[slot(word)];
        let is_long = (word & slot.mask == slot.word) & (usize::from(slot.length) <= left);
        // Nobody foretells which it is, so both are looked up and none is branched to.
        let found = [self.short[(word & 0xFFFF) as usize], short(slot.code, slot.length)];
        let [code, length] = found[usize::from(is_long)].to_le_bytes();
        (code, usize::from(length))
    }

    /// Appends the codes of a part of the text.
    pub(super) fn encode(&self, text: &[u8], part: Range<usize>, codes: &mut Vec<u8>) {
        // Room for an escape in front of each byte, and the byte behind the last code.
        let mut end = codes.len();
        codes.resize(end + part.len() * 2 + 1, 0);
        let mut at = part.start;
        while at < part.end {
            let word = word_at(text, at);
            let (code, length) = self.find(word, part.end - at);
            // The byte behind an escape; behind any other code the next one is written over it.
            codes[end] = code;
            codes[end + 1] = word.to_le_bytes()[0];
            end += 1 + usize::from(code == ESCAPE);
            at += length;
        }
        codes.truncate(end);
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
