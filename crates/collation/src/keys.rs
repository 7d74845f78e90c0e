//! Texts to keys: what all that works on plain bytes (hashing, grouping, joining, sorting) takes in place of texts.

use std::cmp::Ordering;

use crate::collation::{Collation, Method};
#[cfg(feature = "icu")]
use crate::icu::SortKeys;
use crate::map::Map;
use crate::pad;
use crate::weighing::{LEVEL_END, Weighing};

/// The order of texts that end in spaces, under collations where [`Collation::pads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PadOrder {
    /// Trailing spaces (U+0020) are cut off, then texts are compared (TiDB): `'a' < 'a\t'`.
    #[default]
    Tidb,
    /// As if spaces followed for ever (MySQL, standard SQL): `'a\t' < 'a'`. Under `_unicode_ci` all that weighs as a
    /// space is one, such as U+00A0.
    Mysql,
}

/// Makes the keys of a collation.
///
/// Keys are valid UTF-8; their bytes compare as the collation compares the texts. They hold within a process: what is
/// stored must be made again when a table of weights changes.
#[derive(Clone, Debug)]
pub struct Keys {
    collation: Collation,
    pad: Pad,
    units: Units,
}

/// What is done about trailing spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pad {
    None,
    Trim,
    /// The unit of keys that stands for a space.
    Fill(u8),
}

/// What texts become before spaces are looked at.
#[derive(Clone)]
enum Units {
    Bytes,
    Levels {
        weighing: &'static Weighing,
        maps: Vec<&'static Map>,
    },
    #[cfg(feature = "icu")]
    Icu(SortKeys),
}

impl std::fmt::Debug for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bytes => "Bytes",
            Self::Levels { .. } => "Levels",
            #[cfg(feature = "icu")]
            Self::Icu(_) => "Icu",
        })
    }
}

impl Keys {
    /// The keys of a collation. The first use of a table of weights takes some milliseconds.
    #[must_use]
    pub fn new(collation: Collation, order: PadOrder) -> Self {
        let units = match collation.method() {
            Method::Bytes => Units::Bytes,
            Method::Weights(weights, level_count) => {
                let weighing = weights.weighing();
                Units::Levels {
                    weighing,
                    maps: (0..level_count).map(|level| weighing.level(level)).collect(),
                }
            }
            #[cfg(feature = "icu")]
            Method::Icu(locale) => Units::Icu(SortKeys::new(locale)),
        };
        let pad = match (collation.pads(), order, &units) {
            (false, ..) => Pad::None,
            (true, PadOrder::Tidb, _) => Pad::Trim,
            (true, PadOrder::Mysql, Units::Levels { weighing, .. }) => Pad::Fill(weighing.space),
            (true, PadOrder::Mysql, _) => Pad::Fill(b' '),
        };
        Self { collation, pad, units }
    }

    /// The collation whose keys these are.
    #[must_use]
    pub fn collation(&self) -> Collation {
        self.collation
    }

    /// Whether the key of each text of a block is that text, given what is known of all of them.
    #[must_use]
    pub fn identity(&self, has_trailing_spaces: bool) -> bool {
        matches!(self.units, Units::Bytes)
            && match self.pad {
                Pad::None => true,
                Pad::Trim => !has_trailing_spaces,
                Pad::Fill(_) => false,
            }
    }

    fn trimmed<'a>(&self, text: &'a str) -> &'a str {
        // Most texts do not end in a space, which one look tells.
        if self.pad == Pad::Trim && text.ends_with(' ') { text.trim_end_matches(' ') } else { text }
    }

    /// Appends the key of a text.
    #[inline]
    pub fn append_key(&self, text: &str, key: &mut Vec<u8>) {
        let text = self.trimmed(text);
        let begin = key.len();
        match &self.units {
            Units::Bytes => key.extend_from_slice(text.as_bytes()),
            Units::Levels { maps, .. } => {
                maps[0].append(text, key);
                for map in &maps[1..] {
                    key.push(LEVEL_END);
                    map.append(text, key);
                }
            }
            #[cfg(feature = "icu")]
            Units::Icu(keys) => keys.append(text, key),
        }
        if let Pad::Fill(space) = self.pad {
            pad::rewrite(key, begin, space);
        }
    }

    /// The key of a text.
    #[must_use]
    pub fn key(&self, text: &str) -> String {
        let mut key = Vec::with_capacity(text.len());
        self.append_key(text, &mut key);
        String::from_utf8(key).expect("keys are valid UTF-8")
    }

    /// Appends the keys of many texts that lie one behind the other, if each byte becomes one byte: the offsets of the
    /// keys are those of the texts. Else appends nothing and returns false.
    ///
    /// None of the texts may end in a space if [`Collation::pads`].
    #[must_use]
    pub fn append_ascii_keys(&self, texts: &[u8], keys: &mut Vec<u8>) -> bool {
        match &self.units {
            Units::Levels { maps, .. } if maps.len() == 1 && !matches!(self.pad, Pad::Fill(_)) => {
                maps[0].append_ascii(texts, keys)
            }
            _ => false,
        }
    }

    /// Appends the text with each character replaced by one that stands for all that `LIKE` takes as the same.
    ///
    /// So `LIKE`, `LOCATE` and `INSTR` are those of plain text, once both sides are folded. Other characters than `%`
    /// and `_` may become these, so a pattern is taken apart first and then its literals are folded.
    pub fn append_fold(&self, text: &str, folded: &mut Vec<u8>) {
        match &self.units {
            Units::Levels { weighing, maps } => weighing.fold(maps.len()).append(text, folded),
            _ => folded.extend_from_slice(text.as_bytes()),
        }
    }

    /// What [`Self::append_fold`] appends.
    #[must_use]
    pub fn fold(&self, text: &str) -> String {
        let mut folded = Vec::with_capacity(text.len());
        self.append_fold(text, &mut folded);
        String::from_utf8(folded).expect("folded text is valid UTF-8")
    }

    /// Folds many texts that lie one behind the other, if each byte becomes one byte, as [`Self::append_ascii_keys`]
    /// does. Trailing spaces do not matter.
    #[must_use]
    pub fn append_ascii_fold(&self, texts: &[u8], folded: &mut Vec<u8>) -> bool {
        match &self.units {
            Units::Levels { weighing, maps } => weighing.fold(maps.len()).append_ascii(texts, folded),
            _ => {
                folded.extend_from_slice(texts);
                true
            }
        }
    }

    /// Whether folding leaves all text as it is.
    #[must_use]
    pub fn fold_is_identity(&self) -> bool {
        !matches!(self.units, Units::Levels { .. })
    }

    /// Compares two texts as their keys compare.
    #[must_use]
    pub fn compare(&self, left: &str, right: &str) -> Ordering {
        #[cfg(feature = "icu")]
        if let Units::Icu(keys) = &self.units {
            // Characters depend on their neighbours, so common beginnings stay.
            return keys.compare(left, right);
        }
        let (left, right) = without_common(self.trimmed(left), self.trimmed(right));
        match (&self.units, self.pad) {
            #[cfg(feature = "icu")]
            (Units::Icu(_), _) => unreachable!("compared above"),
            (Units::Bytes, Pad::Fill(space)) => pad::compare(left.bytes(), right.bytes(), space),
            (Units::Bytes, _) => left.cmp(right),
            (Units::Levels { maps, .. }, Pad::Fill(space)) => maps[0]
                .compare(left, right)
                .unwrap_or_else(|rest| pad::compare(maps[0].bytes(rest.0), maps[0].bytes(rest.1), space)),
            (Units::Levels { maps, .. }, _) => {
                let mut orders = maps.iter().map(|map| {
                    map.compare(left, right).unwrap_or_else(|rest| map.bytes(rest.0).cmp(map.bytes(rest.1)))
                });
                orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            }
        }
    }

    /// Whether two texts have the same key.
    #[must_use]
    pub fn equal(&self, left: &str, right: &str) -> bool {
        self.compare(left, right) == Ordering::Equal
    }

    /// The first eight bytes of the key, the first in the highest place, and zeros behind a shorter one.
    ///
    /// If those of two texts differ, the texts compare as these; else they may differ further on.
    #[must_use]
    pub fn prefix(&self, text: &str) -> u64 {
        let text = self.trimmed(text);
        if let (Units::Levels { maps, .. }, Pad::None | Pad::Trim) = (&self.units, self.pad) {
            return maps[0].ascii_prefix(text).unwrap_or_else(|| {
                let first = maps[0].bytes(text);
                let rest = maps[1..].iter().flat_map(|map| std::iter::once(LEVEL_END).chain(map.bytes(text)));
                first_eight(first.chain(rest))
            });
        }
        if let (Units::Bytes, Pad::None | Pad::Trim) = (&self.units, self.pad) {
            let first = text.as_bytes().first_chunk();
            return first.map_or_else(|| first_eight(text.bytes()), |first| u64::from_be_bytes(*first));
        }
        let mut key = Vec::new();
        self.append_key(text, &mut key);
        first_eight(key.into_iter())
    }

    /// What MySQL's `WEIGHT_STRING` gives: the weights of the text in two bytes each, the high one first, with two
    /// zeros between levels; under collations of bytes these themselves. Trailing spaces are part of it.
    #[must_use]
    pub fn weights(&self, text: &str) -> Vec<u8> {
        match &self.units {
            Units::Bytes => text.as_bytes().to_vec(),
            Units::Levels { weighing, maps } => {
                let mut weights = Vec::new();
                for level in 0..maps.len() {
                    weights.extend((level > 0).then_some(0));
                    let chars = text.chars().map(u32::from);
                    chars.for_each(|char| weighing.table.append_weights(char, level, &mut weights));
                }
                weights.into_iter().flat_map(u16::to_be_bytes).collect()
            }
            #[cfg(feature = "icu")]
            Units::Icu(keys) => {
                let mut key = Vec::new();
                keys.append(text, &mut key);
                key
            }
        }
    }
}

/// The texts from where they differ on. Keys are made of what characters become, so equal beginnings decide nothing.
fn without_common<'a>(left: &'a str, right: &'a str) -> (&'a str, &'a str) {
    let blocks = left.as_bytes().chunks_exact(8).zip(right.as_bytes().chunks_exact(8));
    let equal = 8 * blocks.take_while(|(left, right)| left == right).count();
    let bytes = left.as_bytes()[equal..].iter().zip(&right.as_bytes()[equal..]);
    let equal = equal + bytes.take_while(|(left, right)| left == right).count();
    let begin =
        (0..=equal).rev().find(|at| left.is_char_boundary(*at) && right.is_char_boundary(*at)).unwrap_or(0);
    (&left[begin..], &right[begin..])
}

fn first_eight(mut bytes: impl Iterator<Item = u8>) -> u64 {
    u64::from_be_bytes([(); 8].map(|()| bytes.next().unwrap_or(0)))
}
