//! A map from characters to short texts, applied to whole texts.
//!
//! Two steps by the character: a page of 256, and the entry in it. The first pages are in order, so that what UTF-8
//! writes in two bytes (Latin, Greek, Cyrillic, Hebrew, Arabic) takes one step; ASCII has a table of bytes. Pages
//! where each character maps to the scalar after that of the one before, as among Han, need no entries.

use std::cmp::Ordering;

/// Characters below this have their entries in order.
const DIRECT: u32 = 0x800;
const PAGE: u32 = 256;
const PAGE_COUNT: u32 = 0x11_0000 / PAGE;
/// The most bytes of an entry that holds them itself.
const SHORT: usize = 7;
/// ASCII text is mapped this many bytes at a time.
const BLOCK: usize = 16;
/// What is mapped is gathered here.
const BUFFER: usize = 64;

/// What the characters of a page map to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Page {
    /// Each to its own text; the position of the first entry.
    Entries(u32),
    /// Each to the scalar after that of the one before; that of the first.
    Row(u32),
    /// All to the same; the position of its entry.
    Same(u32),
}

/// A text: its bytes from the lowest up and its length in the highest, or 255 there, a length of 8 bits and a place
/// of 32 in the long texts.
type Entry = u64;

const LONG: u64 = 255;

/// A map of characters to texts of valid UTF-8.
pub(crate) struct Map {
    /// The byte that an ASCII character maps to; 0 where it is not a single one above 0.
    ascii: [u8; 128],
    /// `ascii` is the upper case, and 0 stands for itself.
    is_upper: bool,
    /// The entries of the first characters.
    direct: Box<[Entry; DIRECT as usize]>,
    pages: Vec<Page>,
    entries: Vec<Entry>,
    long: Vec<u8>,
}

impl Map {
    /// A map with a page for each 256 characters: the kind that `kind` gives for their first and last, and without
    /// one the texts that `append` gives for each.
    pub(crate) fn new(
        mut kind: impl FnMut(u32, u32) -> Option<Kind>,
        mut append: impl FnMut(u32, &mut Vec<u8>),
    ) -> Self {
        let pages = Vec::with_capacity(PAGE_COUNT as usize);
        let direct = Box::new([0; DIRECT as usize]);
        let (entries, long) = (Vec::new(), Vec::new());
        let mut map = Self { ascii: [0; 128], is_upper: false, direct, pages, entries, long };
        let mut text = Vec::new();
        let mut same: Option<(Vec<u8>, u32)> = None;
        for first in (0..PAGE_COUNT).map(|page| page * PAGE) {
            let kind = (first >= DIRECT).then(|| kind(first, first + PAGE - 1)).flatten();
            let place = u32::try_from(map.entries.len()).expect("a map is small");
            let page = match kind {
                // No text has surrogates.
                _ if (0xD800..0xE000).contains(&first) => Page::Row(0),
                Some(Kind::Row(row)) => Page::Row(row),
                Some(Kind::Same) => {
                    text.clear();
                    append(first, &mut text);
                    match &same {
                        Some((known, place)) if *known == text => Page::Same(*place),
                        _ => {
                            let entry = map.entry(&text);
                            map.entries.push(entry);
                            same = Some((text.clone(), place));
                            Page::Same(place)
                        }
                    }
                }
                None => {
                    for char in first..first + PAGE {
                        text.clear();
                        append(char, &mut text);
                        let entry = map.entry(&text);
                        map.entries.push(entry);
                    }
                    Page::Entries(place)
                }
            };
            map.pages.push(page);
        }
        map.direct.copy_from_slice(&map.entries[..DIRECT as usize]);
        for (char, byte) in map.ascii.iter_mut().enumerate() {
            let [text, .., length] = map.entries[char].to_le_bytes();
            *byte = if length == 1 { text } else { 0 };
        }
        map.is_upper = (0..128_u8)
            .all(|byte| map.entries[usize::from(byte)] == 1 << 56 | u64::from(byte.to_ascii_uppercase()));
        map
    }

    fn entry(&mut self, text: &[u8]) -> Entry {
        if text.len() <= SHORT {
            let mut bytes = [0; 8];
            bytes[..text.len()].copy_from_slice(text);
            bytes[SHORT] = u8::try_from(text.len()).expect("at most 7");
            return u64::from_le_bytes(bytes);
        }
        let place = self.long.len() as u64;
        self.long.extend_from_slice(text);
        LONG << 56 | (text.len() as u64) << 32 | place
    }

    #[inline(always)]
    fn of(&self, char: char) -> Entry {
        let char = u32::from(char);
        if char < DIRECT {
            return self.direct[char as usize];
        }
        match self.pages[(char / PAGE) as usize] {
            Page::Entries(first) => self.entries[(first + char % PAGE) as usize],
            Page::Row(first) => scalar_entry(first + char % PAGE),
            Page::Same(place) => self.entries[place as usize],
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes an entry apart")]
    fn long(&self, entry: Entry) -> Option<&[u8]> {
        let (place, length) = (entry as u32 as usize, usize::from((entry >> 32) as u8));
        (entry >> 56 == LONG).then(|| &self.long[place..place + length])
    }

    /// Appends what the characters of a text map to.
    #[inline]
    pub(crate) fn append(&self, text: &str, mapped: &mut Vec<u8>) {
        mapped.reserve(text.len() + BUFFER);
        if self.is_upper {
            self.append_by::<true>(text, mapped);
        } else {
            self.append_by::<false>(text, mapped);
        }
    }

    #[inline(always)]
    fn append_by<const UPPER: bool>(&self, text: &str, mapped: &mut Vec<u8>) {
        let bytes = text.as_bytes();
        let mut at = match bytes.len() {
            BLOCK.. => 0,
            8.. => self.append_short::<UPPER, 8>(bytes, mapped),
            4.. => self.append_short::<UPPER, 4>(bytes, mapped),
            _ => 0,
        };
        while at < bytes.len() {
            at += self.append_ascii_blocks::<UPPER>(&bytes[at..], mapped);
            at += self.append_some(text, at, mapped);
        }
    }

    /// What a block of ASCII maps to, if each of its bytes maps to one byte.
    #[inline(always)]
    fn block<const UPPER: bool, const N: usize>(&self, block: [u8; N]) -> Option<[u8; N]> {
        if !block.is_ascii() {
            return None;
        }
        if UPPER {
            return Some(block.map(|byte| byte.to_ascii_uppercase()));
        }
        let block = block.map(|byte| self.ascii[usize::from(byte & 127)]);
        let least = block.iter().copied().fold(u8::MAX, u8::min);
        (least != 0).then_some(block)
    }

    /// Maps a text of `N..=2 * N` bytes as two blocks that overlap, if it is ASCII; returns how much is done, all or
    /// nothing.
    #[inline(always)]
    fn append_short<const UPPER: bool, const N: usize>(&self, text: &[u8], mapped: &mut Vec<u8>) -> usize {
        let blocks = text.first_chunk::<N>().zip(text.last_chunk::<N>());
        let blocks =
            blocks.map(|(first, last)| (self.block::<UPPER, N>(*first), self.block::<UPPER, N>(*last)));
        let Some((Some(first), Some(last))) = blocks else {
            return 0;
        };
        let begin = mapped.len();
        // Copies of fixed size take an instruction, others a call.
        mapped.extend_from_slice(&first);
        mapped.truncate(begin + text.len() - N);
        mapped.extend_from_slice(&last);
        text.len()
    }

    /// Maps blocks of ASCII from the beginning on, and the rest behind them if that is ASCII too.
    #[inline(always)]
    fn append_ascii_blocks<const UPPER: bool>(&self, text: &[u8], mapped: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while let Some(block) = text[at..].first_chunk::<BLOCK>()
            && let Some(block) = self.block::<UPPER, BLOCK>(*block)
        {
            mapped.extend_from_slice(&block);
            at += BLOCK;
        }
        let rest = text.len() - at;
        // The last block begins among what is mapped already.
        if (1..BLOCK).contains(&rest)
            && at > 0
            && let Some(block) = text.last_chunk::<BLOCK>()
            && let Some(block) = self.block::<UPPER, BLOCK>(*block)
        {
            mapped.truncate(mapped.len() + rest - BLOCK);
            mapped.extend_from_slice(&block);
            at = text.len();
        }
        at
    }

    /// Maps characters from `at` until the buffer is full, and returns how many bytes of the text these take.
    #[inline(always)]
    fn append_some(&self, text: &str, at: usize, mapped: &mut Vec<u8>) -> usize {
        let bytes = text.as_bytes();
        let mut buffer = [0; BUFFER];
        let mut filled = 0;
        let mut next = at;
        while filled <= BUFFER - 8 && next < bytes.len() {
            let byte = bytes[next];
            // A branch is faster than reading one or two bytes without: the next read would wait for this one.
            let entry = match byte {
                0..0x80 => {
                    next += 1;
                    self.direct[usize::from(byte)]
                }
                0x80..0xE0 => {
                    let char = usize::from(byte & 31) << 6 | usize::from(bytes[next + 1] & 63);
                    next += 2;
                    self.direct[char]
                }
                _ => {
                    let char = text[next..].chars().next().expect("a character begins here");
                    next += char.len_utf8();
                    self.of(char)
                }
            };
            if entry >> 56 == LONG {
                mapped.extend_from_slice(&buffer[..filled]);
                mapped.extend(self.long(entry).into_iter().flatten());
                filled = 0;
                continue;
            }
            buffer[filled..filled + 8].copy_from_slice(&entry.to_le_bytes());
            filled += (entry >> 56) as usize;
        }
        // A copy of fixed size again.
        mapped.extend_from_slice(&buffer);
        mapped.truncate(mapped.len() + filled - BUFFER);
        next - at
    }

    /// Appends what a text maps to if each of its bytes maps to one byte; else appends nothing and returns false.
    pub(crate) fn append_ascii(&self, text: &[u8], mapped: &mut Vec<u8>) -> bool {
        if !text.is_ascii() {
            return false;
        }
        if self.is_upper {
            mapped.extend(text.iter().map(u8::to_ascii_uppercase));
            return true;
        }
        let begin = mapped.len();
        mapped.extend(text.iter().map(|byte| self.ascii[usize::from(byte & 127)]));
        // Not `contains`, which stops at the first and so is no vector loop.
        let zero_count = mapped[begin..].iter().fold(0_u8, |found, byte| found | u8::from(*byte == 0));
        if zero_count != 0 {
            mapped.truncate(begin);
        }
        zero_count == 0
    }

    /// The first eight bytes of what a text of at least eight ASCII characters maps to, if they map to one byte each.
    #[inline(always)]
    pub(crate) fn ascii_prefix(&self, text: &str) -> Option<u64> {
        let block = text.as_bytes().first_chunk::<8>().filter(|block| block.is_ascii())?;
        let block = block.map(|byte| self.ascii[usize::from(byte & 127)]);
        (!block.contains(&0)).then(|| u64::from_be_bytes(block))
    }

    /// Compares texts by what they map to, up to where this is not decided character by character; there the rest of
    /// both begins.
    pub(crate) fn compare<'a>(&self, left: &'a str, right: &'a str) -> Result<Ordering, (&'a str, &'a str)> {
        let (mut left, mut right) = (left.chars(), right.chars());
        loop {
            let rest = (left.as_str(), right.as_str());
            let (Some(left), Some(right)) = (left.next(), right.next()) else {
                return Err(rest);
            };
            let (left, right) = (self.of(left), self.of(right));
            if left >> 56 == LONG || right >> 56 == LONG {
                return Err(rest);
            }
            if left != right {
                // Neither decides that begins the other, or is empty.
                let common = (left >> 56).min(right >> 56);
                // The first shift drops the length.
                let first = |entry: Entry| entry.swap_bytes() >> 8 >> (8 * (SHORT as u64 - common));
                let order = first(left).cmp(&first(right));
                return if order.is_eq() { Err(rest) } else { Ok(order) };
            }
        }
    }

    /// The bytes that a text maps to, one by one.
    pub(crate) fn bytes<'a>(&'a self, text: &'a str) -> impl Iterator<Item = u8> + 'a {
        text.chars().flat_map(move |char| {
            let entry = self.of(char);
            let long = self.long(entry);
            let length = if long.is_some() { 0 } else { (entry >> 56) as usize };
            entry.to_le_bytes().into_iter().take(length).chain(long.into_iter().flatten().copied())
        })
    }
}

/// What a page is, if it needs no entries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The scalar of the first character; the others follow in a row.
    Row(u32),
    /// All characters map to the same text as the first.
    Same,
}

#[inline(always)]
fn scalar_entry(scalar: u32) -> Entry {
    let mut bytes = [0; 8];
    let length = char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut bytes).len();
    u64::from_le_bytes(bytes) | (length as u64) << 56
}
