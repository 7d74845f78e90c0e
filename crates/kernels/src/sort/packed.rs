//! Packs the keys of rows into words, sorts the words, and continues with runs of equal ones.

use std::cmp::Ordering;

use super::key::{Key, Ranked, Values, for_ranked, halves};
use super::radix;
use crate::Level;
use crate::text::Text;

/// How words are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By comparing words: best where rows are nearly in order, or few.
    Comparison,
    /// By radix: best for many rows in random order.
    Radix,
}

impl Method {
    /// All methods, the reference first.
    pub const ALL: [Self; 2] = [Self::Comparison, Self::Radix];

    /// The name in races.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Comparison => "comparison",
            Self::Radix => "radix",
        }
    }
}

/// Runs of up to this many rows are sorted by comparing their keys.
const RUN_COMPARED_MAX: usize = 16;
/// With fewer words than this a radix sort spends its time on histograms.
const RADIX_MIN: usize = 4096;
/// After so many rows it is asked again whether the order is wanted.
const STEP_ROWS: usize = 1 << 16;
/// The fewest bits in which packing a text is worth it: a byte and the length.
const TEXT_BITS_MIN: u32 = 8 + LENGTH_BITS;
/// The bits for the count of a text's bytes in the word; one more than fit stands for "and more".
const LENGTH_BITS: u32 = 4;

/// The numbers of the rows `0 .. row_count` in the order of `keys`; rows that are equal keep their order.
///
/// # Panics
/// When a key has not `row_count` rows, or there are more rows than `u32` can number.
#[must_use]
pub fn sort_rows(level: Level, method: Method, keys: &[Key<'_>], row_count: usize) -> Vec<u32> {
    sort_rows_while(level, method, keys, row_count, &|| true).expect("nobody stops it")
}

/// As [`sort_rows`], as long as `is_wanted` says so, which is asked between passes over the rows; `None` if it does not.
///
/// # Panics
/// When a key has not `row_count` rows, or there are more rows than `u32` can number.
#[must_use]
pub fn sort_rows_while(
    level: Level,
    method: Method,
    keys: &[Key<'_>],
    row_count: usize,
    is_wanted: &dyn Fn() -> bool,
) -> Option<Vec<u32>> {
    let end = u32::try_from(row_count).expect("rows are numbered by u32");
    let mut rows: Vec<u32> = (0..end).collect();
    for key in keys {
        assert_eq!(key.values.row_count(), row_count, "rows of a key");
        assert!(key.validity.is_none_or(|validity| validity.len() == row_count), "validity of a key");
    }
    // Runs that are still to be sorted, with the position in the keys from which on they may differ. A list
    // instead of recursion: texts may be long and equal almost to their end.
    let mut pending = vec![(0, rows.len(), Position::default())];
    let (mut words, mut steps) = (Words::default(), 0);
    while let Some((start, end, position)) = pending.pop() {
        // Of short runs there are many.
        steps += end - start;
        if steps >= STEP_ROWS && !is_wanted() {
            return None;
        }
        steps %= STEP_ROWS;
        let run = &mut rows[start..end];
        if position.key == keys.len() || run.len() < 2 {
            continue;
        }
        if run.len() <= RUN_COMPARED_MAX {
            run.sort_unstable_by(|left, right| {
                let decided = keys[position.key..]
                    .iter()
                    .map(|key| key.compare(*left as usize, *right as usize))
                    .find(|order| *order != Ordering::Equal);
                decided.unwrap_or_else(|| left.cmp(right))
            });
            continue;
        }
        if !(words.pack(level, keys, run, position, is_wanted) && words.sort(method, is_wanted)) {
            return None;
        }
        words.reorder(run);
        words.for_each_run(|run_start, run_end, position| {
            pending.push((start + run_start, start + run_end, position));
        });
    }
    Some(rows)
}

/// The position up to which the keys of a run's rows are known to be equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    key: usize,
    /// In bytes of a text, or in halves of a 128-bit number.
    offset: usize,
}

/// How rows with equal words continue; this depends on the last field of the words.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// At this position, whatever the word.
    At(Position),
    /// The last field has up to `bytes` bytes of a text: behind these bytes, or at the next key if the text
    /// ended.
    Text { position: Position, bytes: usize, is_descending: bool },
}

/// One word for each row of a run: fields from the keys, above the row's index in the run.
#[derive(Default)]
struct Words {
    words: Vec<u64>,
    /// The bits of the index.
    place_bits: u32,
    /// Bits of the fields so far.
    used_bits: u32,
    rest: Option<Rest>,
    reordered: Vec<u32>,
}

fn bits_for(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}

impl Words {
    /// Packs as many fields as fit into the words; `false` if that is not wanted any more.
    fn pack(
        &mut self,
        level: Level,
        keys: &[Key<'_>],
        rows: &[u32],
        mut position: Position,
        is_wanted: &dyn Fn() -> bool,
    ) -> bool {
        self.words.clear();
        self.words.resize(rows.len(), 0);
        self.place_bits = bits_for(rows.len() as u64 - 1);
        self.used_bits = 0;
        self.rest = None;
        while self.rest.is_none() {
            let Some(key) = keys.get(position.key) else {
                self.rest = Some(Rest::At(position));
                break;
            };
            if rows.len() >= STEP_ROWS && !is_wanted() {
                return false;
            }
            position = self.pack_key(level, key, rows, position);
        }
        for (place, word) in self.words.iter_mut().enumerate() {
            *word = *word << self.place_bits | place as u64;
        }
        true
    }

    fn room(&self) -> u32 {
        u64::BITS - self.place_bits - self.used_bits
    }

    /// Appends a field to each word.
    fn append(&mut self, bits: u32, mut field: impl FnMut(usize) -> u64) {
        debug_assert!(bits <= self.room() && bits < u64::BITS, "a field of {bits} bits fits");
        for (place, word) in self.words.iter_mut().enumerate() {
            *word = *word << bits | field(place);
        }
        self.used_bits += bits;
    }

    /// Appends as much of a key as fits; returns where the next field comes from, unless the words are full.
    fn pack_key(&mut self, level: Level, key: &Key<'_>, rows: &[u32], position: Position) -> Position {
        let valid_count = match key.validity {
            None => rows.len(),
            Some(_) => rows.iter().filter(|row| key.is_valid(**row as usize)).count(),
        };
        if valid_count == 0 {
            return Position { key: position.key + 1, offset: 0 };
        }
        let has_nulls = valid_count < rows.len();
        if has_nulls {
            if self.room() == 0 {
                self.rest = Some(Rest::At(position));
                return position;
            }
            self.append(1, |place| u64::from(key.is_valid(rows[place] as usize) == key.nulls_first));
        }
        let run = Run { key, rows, has_nulls };
        for_ranked!(key.values, values => {
            let range = match position {
                // The whole column is sorted: a loop without indirection.
                _ if !has_nulls && rows.len() == values.len() => whole_range(level, values),
                _ => run.range(|row| values[row].rank()),
            };
            self.pack_number(&run, position, range, |row| values[row].rank())
        }, other => match other {
            Values::Bool(bits) => {
                let rank = |row| u64::from(bits.get(row));
                self.pack_number(&run, position, run.range(rank), rank)
            }
            Values::I128(values) => {
                let rank = |row: usize| halves(values[row])[position.offset];
                let next = self.pack_number(&run, position, run.range(rank), rank);
                let is_high_done = position.offset == 0 && next.key > position.key;
                if is_high_done { Position { key: position.key, offset: 1 } } else { next }
            }
            Values::Text(text) => self.pack_text(&run, position, |row| text.row(row)),
            Values::LargeText(text) => self.pack_text(&run, position, |row| text.row(row)),
            Values::Slices(texts) => self.pack_text(&run, position, |row| texts[row]),
            _ => unreachable!("for_ranked! has the others"),
        })
    }

    /// Appends the distance from one end of the range, or the high bits of it.
    fn pack_number(
        &mut self,
        run: &Run<'_>,
        position: Position,
        (min, max): (u64, u64),
        rank: impl Fn(usize) -> u64,
    ) -> Position {
        let needed = bits_for(max - min);
        let bits = needed.min(self.room()).min(u64::BITS - 1);
        let dropped = needed - bits;
        if bits > 0 {
            let is_descending = run.key.is_descending;
            self.append(bits, |place| match run.valid_row(place) {
                Some(row) if is_descending => (max - rank(row)) >> dropped,
                Some(row) => (rank(row) - min) >> dropped,
                None => 0,
            });
        }
        if dropped > 0 {
            // Among rows with equal high bits the range is narrower: the run continues at the same position.
            self.rest = Some(Rest::At(position));
        }
        Position { key: position.key + 1, offset: 0 }
    }

    /// Appends bytes behind the prefix that all texts share, and their count.
    fn pack_text<'a>(
        &mut self,
        run: &Run<'_>,
        position: Position,
        text: impl Fn(usize) -> &'a [u8],
    ) -> Position {
        if self.room() < TEXT_BITS_MIN {
            self.rest = Some(Rest::At(position));
            return position;
        }
        let Shared { bytes: shared, are_equal } = run.shared(position.offset, &text);
        if are_equal {
            return Position { key: position.key + 1, offset: 0 };
        }
        let byte_bits = (self.room() - LENGTH_BITS) / 8 * 8;
        let (bytes, bits) = (byte_bits as usize / 8, byte_bits + LENGTH_BITS);
        let is_descending = run.key.is_descending;
        self.append(bits, |place| {
            let Some(row) = run.valid_row(place) else { return 0 };
            let rest = &text(row)[shared..];
            let field =
                leading(rest) >> (u64::BITS - byte_bits) << LENGTH_BITS | rest.len().min(bytes + 1) as u64;
            if is_descending { !field & ((1 << bits) - 1) } else { field }
        });
        let position = Position { key: position.key, offset: shared };
        self.rest = Some(Rest::Text { position, bytes, is_descending });
        position
    }

    /// `false` if that is not wanted any more.
    fn sort(&mut self, method: Method, is_wanted: &dyn Fn() -> bool) -> bool {
        if self.words.is_sorted() {
            return true;
        }
        match method {
            Method::Radix if self.words.len() >= RADIX_MIN => {
                radix::sort(&mut self.words, self.place_bits, is_wanted)
            }
            Method::Radix | Method::Comparison => {
                self.words.sort_unstable();
                true
            }
        }
    }

    fn place_mask(&self) -> u64 {
        (1 << self.place_bits) - 1
    }

    /// Puts rows into the order of the sorted words.
    #[expect(clippy::cast_possible_truncation, reason = "a place is below the count of rows")]
    fn reorder(&mut self, rows: &mut [u32]) {
        let mask = self.place_mask();
        self.reordered.clear();
        self.reordered.extend(self.words.iter().map(|word| rows[(word & mask) as usize]));
        rows.copy_from_slice(&self.reordered);
    }

    /// Calls `each` for each run of equal words with more than one row: start, end, and where to continue.
    fn for_each_run(&self, mut each: impl FnMut(usize, usize, Position)) {
        let rest = self.rest.expect("words are packed");
        let mut start = 0;
        for run in self.words.chunk_by(|left, right| left >> self.place_bits == right >> self.place_bits) {
            let end = start + run.len();
            if run.len() > 1 {
                each(start, end, rest.position(run[0] >> self.place_bits));
            }
            start = end;
        }
    }
}

impl Rest {
    /// The position at which rows with this word continue.
    fn position(self, word: u64) -> Position {
        match self {
            Self::At(position) => position,
            Self::Text { position, bytes, is_descending } => {
                let code = if is_descending { !word } else { word } & ((1 << LENGTH_BITS) - 1);
                if code > bytes as u64 {
                    Position { key: position.key, offset: position.offset + bytes }
                } else {
                    Position { key: position.key + 1, offset: 0 }
                }
            }
        }
    }
}

/// The rows of a run and their current key.
struct Run<'a> {
    key: &'a Key<'a>,
    rows: &'a [u32],
    has_nulls: bool,
}

/// The common part of the texts of a run.
struct Shared {
    /// The length in bytes of the prefix that all of them share.
    bytes: usize,
    are_equal: bool,
}

impl Run<'_> {
    #[inline(always)]
    fn valid_row(&self, place: usize) -> Option<usize> {
        let row = self.rows[place] as usize;
        (!self.has_nulls || self.key.is_valid(row)).then_some(row)
    }

    fn valid_rows(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows.len()).filter_map(|place| self.valid_row(place))
    }

    /// The smallest and the largest rank of the valid rows, of which there must be one.
    fn range(&self, rank: impl Fn(usize) -> u64) -> (u64, u64) {
        let widen = |(min, max): (u64, u64), rank: u64| (min.min(rank), max.max(rank));
        self.valid_rows().map(rank).fold((u64::MAX, 0), widen)
    }

    /// The common part of the texts, whose first `known` bytes are known to be equal.
    fn shared<'a>(&self, known: usize, text: impl Fn(usize) -> &'a [u8]) -> Shared {
        let mut rows = self.valid_rows();
        let first = rows.next().map(&text).unwrap_or_default();
        let mut shared = first.len();
        let mut are_equal = true;
        for row in rows {
            let other = text(row);
            are_equal &= other.len() == first.len();
            if other.len() < shared || other[known..shared] != first[known..shared] {
                are_equal = false;
                let mut pairs = first[known..shared].iter().zip(&other[known..]);
                let same = pairs.position(|(left, right)| left != right);
                shared = known + same.unwrap_or(shared.min(other.len()) - known);
            }
        }
        Shared { bytes: shared, are_equal }
    }
}

/// The first eight bytes of a text as a number that orders as they do, with zeros behind a shorter text.
#[inline(always)]
fn leading(text: &[u8]) -> u64 {
    match text.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(bytes)
        }
    }
}

kernel! {
    fn whole_range[T: Ranked][T](values: &[T]) -> (u64, u64) = whole_range_plain;
}

#[inline(always)]
fn whole_range_plain<T: Ranked>(values: &[T]) -> (u64, u64) {
    values.iter().fold((u64::MAX, 0), |(min, max), value| (min.min(value.rank()), max.max(value.rank())))
}
