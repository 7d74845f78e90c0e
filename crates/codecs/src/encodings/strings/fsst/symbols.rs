//! Symbols, and finding the one that a text begins with.
//!
//! A table of 65,536 entries, indexed by two bytes, has the symbol of these two bytes, or else of the first;
//! longer symbols are in a hash table by their first three bytes, with one slot for all that have the same
//! hash. So finding the longest symbol takes two look-ups, and no loop.

/// The code before a byte that is in no symbol.
pub(super) const ESCAPE: u8 = 255;
/// As many symbols as there are codes besides the escape.
pub(super) const SYMBOLS_MAX: usize = 255;

/// A symbol of 1 to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Symbol {
    /// The bytes, the first one lowest, with zeros behind the last.
    word: u64,
    length: u8,
}

impl Symbol {
    pub(super) fn of_byte(byte: u8) -> Self {
        Self { word: u64::from(byte), length: 1 }
    }

    /// The bytes, the first one lowest, and their count.
    pub(super) fn parts(self) -> (u64, u8) {
        (self.word, self.length)
    }

    /// The symbol with these parts.
    pub(super) fn of_parts((word, length): (u64, u8)) -> Self {
        Self { word, length }
    }

    pub(super) fn length(self) -> u8 {
        self.length
    }

    pub(super) fn bytes(self) -> impl Iterator<Item = u8> {
        self.word.to_le_bytes().into_iter().take(usize::from(self.length))
    }

    /// Both symbols concatenated, cut after eight bytes.
    pub(super) fn followed_by(self, next: Self) -> Self {
        let length = (self.length + next.length).min(8);
        let word = self.word | next.word.checked_shl(u32::from(self.length) * 8).unwrap_or(0);
        Self { word, length }
    }
}

/// Stands for the absence of a symbol.
const NONE: u8 = ESCAPE;
/// Slots for symbols of three bytes and more.
const SLOTS: usize = 1 << 12;
/// Parts of a text that are encoded alternately: while one waits for memory the others continue.
const LANES: usize = 4;
/// Bytes of text that are encoded together, unless a row has more.
const PIECE_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The bytes of the symbol, the last one highest, and the shift that brings a word that begins with them
    /// to this form.
    high: u64,
    shift: u8,
    found: Found,
}

/// A code in the low byte, and the length of its symbol in the high byte.
type Found = u16;

fn found(code: u8, length: u8) -> Found {
    u16::from_le_bytes([code, length])
}

/// Equals no shifted word, as the lowest bit of these is zero.
const EMPTY: Slot = Slot { high: 1, shift: 63, found: u16::from_le_bytes([NONE, 0]) };

/// Finds the longest symbol that a text begins with.
#[derive(Debug)]
pub(super) struct Matcher {
    single: [Found; 256],
    short: Box<[Found; 1 << 16]>,
    slots: Box<[Slot; SLOTS]>,
}

/// The slot for symbols with these first three bytes.
fn slot(word: u64) -> usize {
    let hash = (word & 0xFF_FFFF).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(hash >> (u64::BITS - SLOTS.trailing_zeros())).expect("a number of a few bits")
}

/// One of two, without a branch, as the choice is unpredictable.
#[inline(always)]
fn select(is_first: bool, first: Found, second: Found) -> Found {
    second ^ ((first ^ second) & Found::from(is_first).wrapping_neg())
}

impl Matcher {
    pub(super) fn new(symbols: &[Symbol]) -> Self {
        let boxed = "a vector of this length";
        let short = vec![found(NONE, 1); 1 << 16].into_boxed_slice().try_into().expect(boxed);
        let slots = vec![EMPTY; SLOTS].into_boxed_slice().try_into().expect(boxed);
        let mut matcher = Self { single: [found(NONE, 1); 256], short, slots };
        for (code, symbol) in (0..ESCAPE).zip(symbols) {
            matcher.insert(*symbol, code);
        }
        matcher
    }

    /// Whether there was a slot for the symbol; the first symbol for a slot keeps it.
    pub(super) fn insert(&mut self, symbol: Symbol, code: u8) -> bool {
        let [first, second, ..] = symbol.word.to_le_bytes();
        let low = u16::from_le_bytes([first, second]);
        match symbol.length {
            1 => {
                self.single[usize::from(first)] = found(code, 1);
                let pairs = self.short.iter_mut().skip(usize::from(first)).step_by(256);
                pairs.filter(|pair| **pair >> 8 == 1).for_each(|pair| *pair = found(code, 1));
            }
            2 => self.short[usize::from(low)] = found(code, 2),
            length => {
                let slot = &mut self.slots[slot(symbol.word)];
                if slot.found != EMPTY.found {
                    return false;
                }
                let shift = 64 - 8 * length;
                *slot = Slot { high: symbol.word << shift, shift, found: found(code, length) };
            }
        }
        true
    }

    /// The code and the length of the longest symbol that a text of `left` bytes, the first eight of which
    /// are `word`, begins with; [`ESCAPE`] and 1 if there is none.
    #[inline(always)]
    pub(super) fn find(&self, word: u64, left: usize) -> (u8, usize) {
        let slot = &self.slots[slot(word)];
        let is_long = (word << slot.shift == slot.high) & (usize::from(slot.found >> 8) <= left);
        let short = self.short[(word & 0xFFFF) as usize];
        let short = select(left >= 2, short, self.single[(word & 0xFF) as usize]);
        let [code, length] = select(is_long, slot.found, short).to_le_bytes();
        (code, usize::from(length))
    }

    /// The codes of all rows, given the ends of rows in the text, and the ends of rows in the codes; `None`
    /// when there are more than `codes_max`.
    pub(super) fn encode(&self, text: &[u8], ends: &[i32], codes_max: usize) -> Option<(Vec<u8>, Vec<i32>)> {
        let (mut codes, mut code_ends) = (Vec::with_capacity(text.len() / 2), vec![0; ends.len()]);
        let mut scratch = Vec::new();
        let (mut left, mut left_code_ends, mut start) = (ends, &mut code_ends[..], 0);
        while let Some(first) = left.first() {
            let piece_end = (*first as usize).max(start + PIECE_BYTES);
            let mut lanes: [Lane<'_>; LANES] = Default::default();
            // Room for an escape before each byte, and for the byte that is written behind the last code.
            scratch.resize((piece_end.min(text.len()) - start) * 2 + LANES, 0);
            let mut room = &mut scratch[..];
            let piece_start = start;
            for (index, lane) in (1..).zip(&mut lanes) {
                let wanted = piece_start + (piece_end - piece_start) * index / LANES;
                let row_count = left.partition_point(|end| *end as usize <= wanted);
                let end = row_count.checked_sub(1).map_or(start, |last| left[last] as usize);
                let (lane_ends, lane_code_ends, lane_room);
                (lane_ends, left) = left.split_at(row_count);
                (lane_code_ends, left_code_ends) = left_code_ends.split_at_mut(row_count);
                (lane_room, room) = room.split_at_mut((end - start) * 2 + 1);
                *lane = Lane {
                    at: start,
                    ends: lane_ends,
                    row: 0,
                    codes: lane_room,
                    end: 0,
                    code_ends: lane_code_ends,
                };
                start = end;
            }
            // One step of each lane in turn, so that the CPU looks up four symbols at a time.
            loop {
                let [first, second, third, fourth] = &mut lanes;
                let steps = first.step(self, text)
                    & second.step(self, text)
                    & third.step(self, text)
                    & fourth.step(self, text);
                if !steps {
                    break;
                }
            }
            for lane in &mut lanes {
                while lane.step(self, text) {}
                if codes.len() + lane.end > codes_max {
                    return None;
                }
                let before = i32::try_from(codes.len()).ok()?;
                lane.code_ends.iter_mut().for_each(|end| *end += before);
                codes.extend_from_slice(&lane.codes[..lane.end]);
            }
        }
        Some((codes, code_ends))
    }
}

/// Consecutive rows to be encoded, and their codes.
#[derive(Debug, Default)]
struct Lane<'a> {
    /// The position of the next byte of the text.
    at: usize,
    /// The ends of rows in the text, and the row with `at`.
    ends: &'a [i32],
    row: usize,
    codes: &'a mut [u8],
    /// The end of the codes so far, and the ends of rows in them.
    end: usize,
    code_ends: &'a mut [i32],
}

impl Lane<'_> {
    /// Encodes a symbol, or ends a row; false if no row is left.
    #[inline(always)]
    fn step(&mut self, matcher: &Matcher, text: &[u8]) -> bool {
        let Some(row_end) = self.ends.get(self.row) else { return false };
        let left = *row_end as usize - self.at;
        if left == 0 {
            // A position beyond the limit of a block is detected when the lane ends.
            self.code_ends[self.row] = i32::try_from(self.end).unwrap_or(i32::MAX);
            self.row += 1;
            return true;
        }
        let word = word_at(text, self.at);
        let (code, length) = matcher.find(word, left);
        // The byte for an escape; after any other code the next code overwrites it.
        self.codes[self.end] = code;
        self.codes[self.end + 1] = word.to_le_bytes()[0];
        self.end += 1 + usize::from(code == ESCAPE);
        self.at += length;
        true
    }
}

/// The eight bytes from `at` on, with zeros behind the end.
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
        let (codes, ends) = matcher.encode(b"xhttphtxhttp", &[0, 0, 8, 11, 11, 12], 100).unwrap();
        assert_eq!(codes, [ESCAPE, b'x', 2, 1, ESCAPE, b'x', 1, ESCAPE, b't', ESCAPE, b'p']);
        assert_eq!(ends, [0, 0, 6, 9, 9, 11]);
        assert_eq!(matcher.encode(b"xx", &[1, 2], 3), None);
    }

    #[test]
    fn rows_of_every_length_are_encoded_each_by_itself() {
        let matcher = Matcher::new(&[symbol("ab"), symbol("a"), symbol("bcd"), symbol("abcdefgh")]);
        let check = |lengths: &[usize]| {
            let text: Vec<u8> = b"abcdefghab".iter().copied().cycle().take(lengths.iter().sum()).collect();
            let ends: Vec<i32> = lengths
                .iter()
                .scan(0, |end, length| {
                    *end += i32::try_from(*length).unwrap();
                    Some(*end)
                })
                .collect();
            let (codes, code_ends) = matcher.encode(&text, &ends, usize::MAX).unwrap();
            let (mut start, mut code_start) = (0, 0);
            for (end, code_end) in ends.iter().zip(code_ends) {
                let [end, code_end] = [*end, code_end].map(|end| usize::try_from(end).unwrap());
                let alone =
                    matcher.encode(&text[start..end], &[i32::try_from(end - start).unwrap()], usize::MAX);
                assert_eq!(&codes[code_start..code_end], alone.unwrap().0);
                (start, code_start) = (end, code_end);
            }
            assert_eq!(code_start, codes.len());
        };
        check(&[]);
        check(&[0, 0, 0]);
        check(&[PIECE_BYTES * 3 + 1, 0, 5, PIECE_BYTES, PIECE_BYTES + 1, 1]);
        check(&(0..700).collect::<Vec<_>>());
        check(&(0..90_000).map(|row| row % 4).collect::<Vec<_>>());
    }
}
