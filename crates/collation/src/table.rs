//! The weights of characters: what a published table lists, and the rules for all others.
//!
//! The files are written by `tables/generate.py`, which describes their format.

use std::iter;

/// The weight of what has none: characters that a table does not reach, and U+FFFD.
pub(crate) const REPLACEMENT: u16 = 0xFFFD;
/// The levels of weights: primary (letters), secondary (accents), tertiary (case).
pub(crate) const LEVEL_COUNT: usize = 3;

const HANGUL: Range = Range { first: 0xAC00, last: 0xD7A3, lead: 0 };
const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);
const LAST_CHAR: u32 = 0x10_FFFF;

/// Characters whose weights are computed: two of them, the first from `lead` up.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u32,
    last: u32,
    lead: u16,
}

const fn range(first: u32, last: u32, lead: u16) -> Range {
    Range { first, last, lead }
}

const TANGUT: u16 = 0xFB00;
const CORE_HAN: u16 = 0xFB40;
const OTHER_HAN: u16 = 0xFB80;
const UNLISTED: u16 = 0xFBC0;

const RANGES_4: &[Range] =
    &[range(0x3400, 0x4DB5, OTHER_HAN), range(0x4E00, 0x9FA5, CORE_HAN), range(0xFA0E, 0xFA29, CORE_HAN)];
const RANGES_9: &[Range] = &[
    range(0x3400, 0x4DB5, OTHER_HAN),
    range(0x4E00, 0x9FD5, CORE_HAN),
    range(0xFA0E, 0xFA29, CORE_HAN),
    range(0x1_7000, 0x1_8AFF, TANGUT),
    range(0x2_0000, 0x2_A6D6, OTHER_HAN),
    range(0x2_A700, 0x2_B734, OTHER_HAN),
    range(0x2_B740, 0x2_B81D, OTHER_HAN),
    range(0x2_B820, 0x2_CEA1, OTHER_HAN),
];

/// The rules for characters that a table does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// `_general_ci`: the character is its own weight.
    General,
    /// UCA 4.0.0 in MySQL 5: nothing above U+FFFF, and Hangul like any other character.
    Uca4,
    /// UCA 9.0.0: Hangul has the weights of its jamo.
    Uca9,
}

impl Rules {
    /// The last character that has weights of its own.
    pub(crate) fn last_char(self) -> u32 {
        if self == Self::Uca9 { LAST_CHAR } else { 0xFFFF }
    }

    pub(crate) fn is_hangul(self, char: u32) -> bool {
        self == Self::Uca9 && HANGUL.holds(char)
    }

    /// Where characters may begin to follow another rule than the one before.
    fn borders(self) -> impl Iterator<Item = u32> {
        let ranges = if self == Self::Uca9 { RANGES_9 } else { RANGES_4 };
        let ranges = ranges.iter().chain(iter::once(&HANGUL)).map(|range| (range.first, range.last));
        ranges.chain([SURROGATES]).flat_map(|(first, last)| [first, last + 1])
    }

    /// The first weight of an implicit pair, less what depends on the single character.
    fn lead(self, char: u32) -> u16 {
        let ranges = if self == Self::Uca9 { RANGES_9 } else { RANGES_4 };
        ranges.iter().find(|range| range.holds(char)).map_or(UNLISTED, |range| range.lead)
    }

    /// The two primary weights of a character that no table lists (UCA 9.0.0, section 10.1.3).
    fn pair(self, char: u32) -> [u16; 2] {
        let lead = self.lead(char);
        if lead == TANGUT {
            return [lead, low_bits(char - 0x1_7000)];
        }
        [lead + u16::try_from(char >> 15).expect("a code point has 21 bits"), low_bits(char)]
    }
}

impl Range {
    fn holds(&self, char: u32) -> bool {
        (self.first..=self.last).contains(&char)
    }
}

fn low_bits(char: u32) -> u16 {
    (char & 0x7FFF) as u16 | 0x8000
}

/// A unit of comparison at the primary level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A weight that stands alone.
    Single(u16),
    /// The pair of weights of a character that no table lists.
    Implicit(u32),
}

/// Takes a sequence of primary weights apart.
///
/// Pairs begin with a weight that nothing else has, so the order of units is that of weights.
pub(crate) fn units(weights: &[u16]) -> impl Iterator<Item = Unit> {
    let mut weights = weights.iter().copied();
    iter::from_fn(move || {
        let lead = weights.next()?;
        let base = match lead {
            0xFB00..=0xFB3F => {
                let low = u32::from(weights.next()? & 0x7FFF);
                return Some(Unit::Implicit(0x1_7000 + low));
            }
            0xFB40..=0xFB7F => CORE_HAN,
            0xFB80..=0xFBBF => OTHER_HAN,
            0xFBC0..=0xFBFF => UNLISTED,
            single => return Some(Unit::Single(single)),
        };
        let low = u32::from(weights.next()? & 0x7FFF);
        Some(Unit::Implicit(u32::from(lead - base) << 15 | low))
    })
}

/// Characters in a row that no table lists and whose weights follow the same rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Runs are ordered by this, then by character.
    pub(crate) lead: u16,
}

/// The weights that a file lists, without zeros, and the rules for the rest.
pub(crate) struct Table {
    pub(crate) rules: Rules,
    /// The characters that are listed, ascending.
    pub(crate) chars: Vec<u32>,
    levels: Vec<Level>,
}

#[derive(Default)]
struct Level {
    /// For each listed character, where its weights end.
    ends: Vec<u32>,
    weights: Vec<u16>,
}

impl Level {
    fn of(&self, index: usize) -> &[u16] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.weights[begin as usize..self.ends[index] as usize]
    }
}

impl Table {
    /// Reads a file of this crate.
    pub(crate) fn read(file: &[u8], rules: Rules) -> Self {
        let (level_count, mut file) = file.split_first().expect("the file has a first byte");
        let mut levels: Vec<Level> = (0..*level_count).map(|_| Level::default()).collect();
        let mut chars = Vec::new();
        let (mut next_char, mut primary) = (0, 0_u32);
        while !file.is_empty() {
            next_char += number(&mut file);
            chars.push(next_char - 1);
            for _ in 0..number(&mut file) {
                let zigzag = number(&mut file);
                primary = primary.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
                for (index, level) in levels.iter_mut().enumerate() {
                    let weight = if index == 0 { primary } else { number(&mut file) };
                    let weight = u16::try_from(weight).expect("a weight has 16 bits");
                    level.weights.extend((weight != 0).then_some(weight));
                }
            }
            for level in &mut levels {
                level.ends.push(u32::try_from(level.weights.len()).expect("a table is small"));
            }
        }
        Self { rules, chars, levels }
    }

    /// Appends the weights of a character; `level` counts from 0.
    pub(crate) fn append_weights(&self, char: u32, level: usize, weights: &mut Vec<u16>) {
        if char > self.rules.last_char() {
            weights.push(REPLACEMENT);
        } else if let Ok(index) = self.chars.binary_search(&char) {
            weights.extend_from_slice(self.levels[level].of(index));
        } else if self.rules.is_hangul(char) {
            jamo(char).for_each(|jamo| self.append_weights(jamo, level, weights));
        } else {
            match (level, self.rules) {
                (0, Rules::General) => weights.push(u16::try_from(char).expect("checked above")),
                (0, _) => weights.extend(self.rules.pair(char)),
                // What every character has that is neither accented nor a capital.
                (1, _) => weights.push(0x20),
                _ => weights.push(2),
            }
        }
    }

    /// The weights that are listed for a level, a slice for each listed character.
    pub(crate) fn listed(&self, level: usize) -> impl Iterator<Item = &[u16]> {
        (0..self.chars.len()).map(move |index| self.levels[level].of(index))
    }

    /// Whether the rules alone give the weights of these characters, without reference to others.
    pub(crate) fn is_bare(&self, first: u32, last: u32) -> bool {
        let from = self.chars.partition_point(|char| *char < first);
        let is_listed = self.chars.get(from).is_some_and(|char| *char <= last);
        !is_listed && !self.rules.is_hangul(first) && !self.rules.is_hangul(last)
    }

    /// The characters whose weights are implicit pairs, ordered by character.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let end = self.rules.last_char() + 1;
        let listed = self.chars.iter().flat_map(|char| [*char, *char + 1]);
        let mut borders: Vec<u32> = listed.chain(self.rules.borders()).chain([0, end]).collect();
        borders.sort_unstable();
        borders.dedup();
        let spans = borders.windows(2).map(|span| (span[0], span[1] - 1)).filter(|(first, last)| {
            *last < end
                && !(SURROGATES.0..=SURROGATES.1).contains(first)
                && !self.rules.is_hangul(*first)
                && (first != last || self.chars.binary_search(first).is_err())
        });
        spans.map(|(first, last)| Run { first, last, lead: self.rules.lead(first) }).collect()
    }
}

/// The letters that a syllable of Hangul is made of (The Unicode Standard, section 3.12).
fn jamo(syllable: u32) -> impl Iterator<Item = u32> {
    let index = syllable - HANGUL.first;
    let (lead, vowel, trail) = (index / 588, index / 28 % 21, index % 28);
    [0x1100 + lead, 0x1161 + vowel].into_iter().chain((trail != 0).then_some(0x11A7 + trail))
}

/// Reads a number of seven bits a byte, the low ones first.
fn number(file: &mut &[u8]) -> u32 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = file.split_first().expect("the file is whole");
        *file = rest;
        number |= u32::from(byte & 127) << shift;
        if byte & 128 == 0 {
            break;
        }
    }
    number
}
