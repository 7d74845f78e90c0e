//! The ways to weigh characters, each read from its table and made into maps when it is first used.

use std::sync::OnceLock;

use crate::codes::{Codes, Ranks, push};
use crate::map::{Kind, Map};
use crate::table::{LEVEL_COUNT, Rules, Table, Unit, units};

/// What stands between the levels of a key. It is below all codes.
pub(crate) const LEVEL_END: u8 = 1;

/// A table of weights and what is made of it.
pub(crate) struct Weighing {
    pub(crate) table: Table,
    /// The codes of primary weights; none where the weight itself is the scalar.
    codes: Option<Codes>,
    /// The unit of keys that stands for a space.
    pub(crate) space: u8,
    levels: [OnceLock<Map>; LEVEL_COUNT],
    /// By the number of levels that count.
    folds: [OnceLock<Map>; LEVEL_COUNT],
}

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    General,
    Uca4,
    Uca9,
}

impl Weights {
    pub(crate) fn weighing(self) -> &'static Weighing {
        static GENERAL: OnceLock<Weighing> = OnceLock::new();
        static UCA_4: OnceLock<Weighing> = OnceLock::new();
        static UCA_9: OnceLock<Weighing> = OnceLock::new();
        let (cell, file, rules): (_, &[u8], _) = match self {
            Self::General => (&GENERAL, include_bytes!("../tables/general_ci.bin"), Rules::General),
            Self::Uca4 => (&UCA_4, include_bytes!("../tables/uca-4.0.0.bin"), Rules::Uca4),
            Self::Uca9 => (&UCA_9, include_bytes!("../tables/uca-9.0.0.bin"), Rules::Uca9),
        };
        cell.get_or_init(|| Weighing::new(Table::read(file, rules)))
    }
}

impl Weighing {
    fn new(table: Table) -> Self {
        let codes = (table.rules != Rules::General).then(|| Codes::new(&table));
        let space = codes.as_ref().map_or(b' ', |codes| codes.space(&table));
        Self { table, codes, space, levels: Default::default(), folds: Default::default() }
    }

    /// The map from characters to their codes at a level, counted from 0.
    pub(crate) fn level(&self, level: usize) -> &Map {
        self.levels[level].get_or_init(|| {
            let mut weights = Vec::new();
            let mut weights_of = move |char: u32, table: &Table| {
                weights.clear();
                table.append_weights(char, level, &mut weights);
                std::mem::take(&mut weights)
            };
            match &self.codes {
                Some(codes) if level == 0 => Map::new(
                    |first, last| self.kind(first, || codes.row(first, last)),
                    |char, key| codes.append(&weights_of(char, &self.table), key),
                ),
                None => Map::new(
                    |first, last| self.kind(first, || self.table.is_bare(first, last).then_some(first)),
                    |char, key| {
                        let weights = weights_of(char, &self.table);
                        weights.into_iter().for_each(|weight| push(general(weight), key));
                    },
                ),
                Some(_) => {
                    let ranks = Ranks::new(&self.table, level);
                    Map::new(
                        |first, last| self.table.is_bare(first, last).then_some(Kind::Same),
                        |char, key| ranks.append(&weights_of(char, &self.table), key),
                    )
                }
            }
        })
    }

    fn kind(&self, first: u32, row: impl FnOnce() -> Option<u32>) -> Option<Kind> {
        if first > self.table.rules.last_char() { Some(Kind::Same) } else { row().map(Kind::Row) }
    }

    /// The map from characters to the first one with the same weights at the first `level_count` levels.
    ///
    /// By UCA 4.0.0 characters above U+FFFF are equal, but `LIKE` tells them apart (as MySQL and TiDB do).
    pub(crate) fn fold(&self, level_count: usize) -> &Map {
        self.folds[level_count - 1].get_or_init(|| {
            if self.codes.is_none() {
                return self.fold_general();
            }
            let folded = self.folded(level_count);
            Map::new(
                |first, last| {
                    let from = folded.partition_point(|(char, _)| *char < first);
                    let is_identity = folded.get(from).is_none_or(|(char, _)| *char > last);
                    is_identity.then_some(Kind::Row(first))
                },
                |char, text| {
                    let found = folded.binary_search_by_key(&char, |(char, _)| *char);
                    let folded = found.map_or(char, |index| folded[index].1);
                    push(char::from_u32(folded).expect("not a surrogate"), text);
                },
            )
        })
    }

    /// Where a character has one weight, this itself stands for all who have it.
    fn fold_general(&self) -> Map {
        Map::new(
            |first, last| self.kind(first, || self.table.is_bare(first, last).then_some(first)),
            |char, text| {
                let mut weights = Vec::new();
                self.table.append_weights(char, 0, &mut weights);
                push(general(weights[0]), text);
            },
        )
    }

    /// The characters that are not the first of those with their weights, and that first one.
    fn folded(&self, level_count: usize) -> Vec<(u32, u32)> {
        let table = &self.table;
        let hangul = (0xAC00..=0xD7A3).filter(|char| table.rules.is_hangul(*char));
        let mut chars: Vec<u32> = table.chars.iter().copied().chain(hangul).collect();
        // A character without a listing shares its weights with listed ones that are variants of it.
        for weights in table.listed(0) {
            let mut units = units(weights);
            if let (Some(Unit::Implicit(char)), None) = (units.next(), units.next()) {
                chars.push(char);
            }
        }
        chars.sort_unstable();
        chars.dedup();
        let weights_of = |char: u32| {
            let mut weights = Vec::new();
            for level in 0..level_count {
                table.append_weights(char, level, &mut weights);
                weights.push(0);
            }
            weights
        };
        let mut by_weights: Vec<(Vec<u16>, u32)> =
            chars.into_iter().map(|char| (weights_of(char), char)).collect();
        by_weights.sort_unstable();
        let classes = by_weights.chunk_by(|left, right| left.0 == right.0);
        let mut folded: Vec<(u32, u32)> =
            classes.flat_map(|class| class[1..].iter().map(|(_, char)| (*char, class[0].1))).collect();
        folded.sort_unstable();
        folded
    }
}

/// The scalar of a weight of `_general_ci`, which is never a surrogate.
fn general(weight: u16) -> char {
    char::from_u32(u32::from(weight)).unwrap_or(char::REPLACEMENT_CHARACTER)
}
