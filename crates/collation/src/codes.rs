//! Weights as UTF-8: every unit of comparison gets a code, so that the order of texts of codes is that of weights.
//!
//! No code begins another, and codes are ordered as their units. What ASCII characters weigh has a code of one byte, so
//! that ASCII text keeps its length:
//!
//! ```text
//! 00..01         for those who join keys: below every code
//! 02..7F         a weight of ASCII characters, or a gap between two such and then a scalar for the weight in it
//! U+0080..       the weights above 'z' by rank: Greek and Cyrillic take two bytes, Han three
//! ```

use crate::table::{REPLACEMENT, Rules, Run, Table, Unit, units};

/// The first code; those below stay free.
const CODE_FIRST: u32 = 2;
/// The first scalar within a gap. It is above the code of the space, whose byte so occurs as itself only.
const GAP_FIRST: u32 = 0x10;

/// The code of one weight.
#[derive(Clone, Copy, Debug)]
struct Code {
    /// The code of the gap.
    gap: Option<char>,
    scalar: char,
}

/// The codes of primary weights by UCA.
pub(crate) struct Codes {
    singles: Vec<u16>,
    codes: Vec<Code>,
    /// Ordered by character, each with the code of its first one.
    runs: Vec<(Run, u32)>,
}

impl Codes {
    pub(crate) fn new(table: &Table) -> Self {
        let singles = singles(table);
        let mut weights = Vec::new();
        (0..128).for_each(|char| table.append_weights(char, 0, &mut weights));
        weights.sort_unstable();
        weights.dedup();
        let ascii = weights;
        let last = *ascii.last().expect("ASCII characters have weights");
        let (mut next, mut next_in_gap) = (CODE_FIRST, None);
        let mut codes = Vec::with_capacity(singles.len());
        for single in singles.iter().take_while(|single| **single <= last) {
            let is_ascii = ascii.binary_search(single).is_ok();
            if is_ascii || next_in_gap.is_none() {
                next_in_gap = (!is_ascii).then_some((scalar(next), GAP_FIRST));
                next += 1;
            }
            codes.push(match &mut next_in_gap {
                None => Code { gap: None, scalar: scalar(next - 1) },
                Some((gap, rank)) => {
                    *rank += 1;
                    Code { gap: Some(*gap), scalar: scalar(*rank - 1) }
                }
            });
        }
        assert!(next <= 0x80, "weights of ASCII characters have codes of one byte");
        next = 0x80;
        let mut take = |count: u32| {
            next += count;
            next - count
        };
        let pairs_from = singles.partition_point(|single| *single < 0xFB00);
        while codes.len() < pairs_from {
            codes.push(Code { gap: None, scalar: scalar(take(1)) });
        }
        let mut runs: Vec<(Run, u32)> = table.runs().into_iter().map(|run| (run, 0)).collect();
        runs.sort_by_key(|(run, _)| (run.lead, run.first));
        runs.iter_mut().for_each(|(run, code)| *code = take(run.last - run.first + 1));
        runs.sort_by_key(|(run, _)| run.first);
        while codes.len() < singles.len() {
            codes.push(Code { gap: None, scalar: scalar(take(1)) });
        }
        Self { singles, codes, runs }
    }

    /// The code of the space.
    pub(crate) fn space(&self, table: &Table) -> u8 {
        let (mut weights, mut code) = (Vec::new(), Vec::new());
        table.append_weights(u32::from(' '), 0, &mut weights);
        self.append(&weights, &mut code);
        let space = code[0];
        assert!(code.len() == 1 && u32::from(space) < GAP_FIRST, "the byte of the space is its own");
        space
    }

    /// Appends the codes of a sequence of weights.
    pub(crate) fn append(&self, weights: &[u16], key: &mut Vec<u8>) {
        for unit in units(weights) {
            match unit {
                Unit::Single(weight) => {
                    let index = self.singles.binary_search(&weight).expect("the weight is in the table");
                    let code = self.codes[index];
                    code.gap.into_iter().for_each(|gap| push(gap, key));
                    push(code.scalar, key);
                }
                Unit::Implicit(char) => {
                    let (run, code) = self.runs[self.run(char)];
                    push(scalar(code + (char - run.first)), key);
                }
            }
        }
    }

    fn run(&self, char: u32) -> usize {
        self.runs.partition_point(|(run, _)| run.last < char)
    }

    /// The scalar of the first of `first..=last`, if each has a scalar alone and these are in a row.
    pub(crate) fn row(&self, first: u32, last: u32) -> Option<u32> {
        let (run, code) =
            self.runs.get(self.run(first)).filter(|(run, _)| run.first <= first && last <= run.last)?;
        let row = u32::from(scalar(code + (first - run.first)));
        (u32::from(scalar(code + (last - run.first))) - row == last - first).then_some(row)
    }
}

/// The weights that stand alone, ascending.
fn singles(table: &Table) -> Vec<u16> {
    let mut occurs = vec![false; 0x1_0000];
    for unit in table.listed(0).flat_map(units) {
        if let Unit::Single(weight) = unit {
            occurs[usize::from(weight)] = true;
        }
    }
    occurs[usize::from(REPLACEMENT)] |= table.rules == Rules::Uca4;
    (0..=u16::MAX).filter(|weight| occurs[usize::from(*weight)]).collect()
}

/// The scalar of a number: surrogates are left out.
fn scalar(number: u32) -> char {
    let number = if number < 0xD800 { number } else { number + 0x800 };
    char::from_u32(number).expect("there are fewer units than scalars")
}

pub(crate) fn push(char: char, key: &mut Vec<u8>) {
    key.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The codes of secondary or tertiary weights: their rank.
pub(crate) struct Ranks(Vec<u16>);

impl Ranks {
    pub(crate) fn new(table: &Table, level: usize) -> Self {
        let mut weights = table.listed(level).flatten().copied().collect::<Vec<_>>();
        weights.sort_unstable();
        weights.dedup();
        Self(weights)
    }

    pub(crate) fn append(&self, weights: &[u16], key: &mut Vec<u8>) {
        for weight in weights {
            let rank = self.0.binary_search(weight).expect("the weight is in the table");
            push(scalar(CODE_FIRST + u32::try_from(rank).expect("there are few weights")), key);
        }
    }
}
