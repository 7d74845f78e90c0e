//! The loops over tables of states, one state a key.
//!
//! A state has one or two words, a row is a load, an addition and a store of each, and the CPU does one store a
//! cycle. A row whose key is that of the row before waits for its store; with several tables used in turn these
//! waits overlap. A run of equal keys accesses the table once. While rows are added, the CPU converts those of the
//! chunk behind them; and keys are loaded eight at a time, as two loads a row beside the store are as many as it does.
//!
//! First words and second words are apart: beside each other, compilers join them to vectors of two, and on a Zen 4
//! a row with such a vector takes 1.17 to 2.1 ns, with two words 0.65.

use std::ops::Range;

use super::units::{COUNTED, Fit, PACKED, Plan, ROWS, SPLIT, Value, Words};
use super::{SmallKey, Variant, union};
use crate::Level;
use crate::aggregate::CHUNK;
use crate::bitmaps::pack_flags;

/// States between tables, so that the cache lines of a key in several tables do not fall into the same cache
/// set.
const GAP: usize = 8;

/// The first and the second words of states.
pub(super) type States<'a> = [&'a mut [i64]; 2];

/// States from the first of a table to the first of the next.
const fn stride<K: SmallKey>() -> usize {
    K::COUNT + GAP
}

/// Tables for keys of one type; the variants may use different numbers of them.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    states: [Vec<i64>; 2],
    /// The words of a block with the layout [`PACKED`].
    packed: Vec<i64>,
    stride: usize,
    /// The range of keys that may have been added to.
    keys: Range<usize>,
}

impl Tables {
    /// No tables.
    pub(super) fn new<K: SmallKey>() -> Self {
        Self { states: [Vec::new(), Vec::new()], packed: Vec::new(), stride: stride::<K>(), keys: 0..0 }
    }

    /// How many tables there are.
    pub(super) fn count(&self) -> usize {
        self.states[0].len() / self.stride
    }

    /// Makes empty tables; their memory is allocated only where they are written.
    pub(super) fn resize(&mut self, count: usize) {
        debug_assert!(self.keys.is_empty(), "tables were emptied");
        self.states = [0, 1].map(|_| vec![0; count * self.stride]);
        self.packed = vec![0; count * self.stride];
    }

    /// The tables for adding rows of a block to keys in this range.
    pub(super) fn states(&mut self, plan: &Plan, keys: &Range<usize>) -> States<'_> {
        self.keys = union(&self.keys, keys);
        if plan.layout == PACKED {
            return [&mut self.packed, &mut []];
        }
        self.states.each_mut().map(Vec::as_mut_slice)
    }

    /// Empties the words of a block of these keys with the layout [`PACKED`], into the states if it was exact.
    pub(super) fn unpack(
        &mut self,
        level: Level,
        plan: &Plan,
        tables: usize,
        keys: &Range<usize>,
        is_exact: bool,
    ) {
        let mut tables = self.packed.chunks_exact_mut(self.stride).take(tables);
        let first = &mut tables.next().expect("the block was added to a table")[keys.clone()];
        for table in tables {
            take(level, &mut table[keys.clone()], first);
        }
        if is_exact {
            let [numbers, counts] = self.states.each_mut().map(|words| &mut words[keys.clone()]);
            unpack(level, first, plan, numbers, counts);
        }
        first.fill(0);
    }

    /// The sums of the states of each key. The state of one table may have wrapped when a block was undone.
    fn sums(&self) -> [Vec<i64>; 2] {
        self.states.each_ref().map(|words| {
            let mut sums = vec![0; self.keys.len()];
            for table in words.chunks_exact(self.stride) {
                sums.iter_mut().zip(&table[self.keys.clone()]).for_each(|(sum, word)| add(sum, *word));
            }
            sums
        })
    }

    /// The largest count of rows of a key.
    pub(super) fn most_rows(&self, plan: &Plan) -> u64 {
        let [first, second] = self.sums();
        first.iter().zip(&second).map(|(first, second)| plan.decode([*first, *second]).1).max().unwrap_or(0)
    }

    /// Calls `give` for each key with rows, with its sum and count, and empties all tables.
    pub(super) fn drain(&mut self, plan: &Plan, mut give: impl FnMut(usize, i128, u64)) {
        let [first, second] = self.sums();
        let keys = std::mem::take(&mut self.keys);
        for table in self.states.iter_mut().flat_map(|words| words.chunks_exact_mut(self.stride)) {
            table[keys.clone()].fill(0);
        }
        for (key, (first, second)) in keys.zip(first.into_iter().zip(second)) {
            let (sum, count) = plan.decode([first, second]);
            if count > 0 {
                give(key, sum, count);
            }
        }
    }
}

kernel! {
    /// Adds words to others and makes them zeros.
    fn take(words: &mut [i64], sums: &mut [i64]) = take_plain;
}

#[inline(always)]
fn take_plain(words: &mut [i64], sums: &mut [i64]) {
    for (word, sum) in words.iter_mut().zip(sums) {
        add(sum, *word);
        *word = 0;
    }
}

kernel! {
    /// Adds the numbers and counts of words with the layout [`PACKED`] to states.
    fn unpack(words: &[i64], plan: &Plan, numbers: &mut [i64], counts: &mut [i64]) = unpack_plain;
}

#[inline(always)]
fn unpack_plain(words: &[i64], plan: &Plan, numbers: &mut [i64], counts: &mut [i64]) {
    for ((word, number), count) in words.iter().zip(numbers).zip(counts) {
        let state = plan.unpack(*word);
        add(number, state[0]);
        add(count, state[1]);
    }
}

kernel! {
    /// A range that contains all keys.
    pub(super) fn range[K: SmallKey][K](keys: &[K]) -> Range<usize> = range_plain;
}

#[inline(always)]
fn range_plain<K: SmallKey>(keys: &[K]) -> Range<usize> {
    if K::COUNT == 1 << 8 {
        // Finding the range costs more than such small tables.
        return 0..K::COUNT;
    }
    let Some(first) = keys.first() else { return 0..0 };
    // Chunk by chunk, so that keys are compared side by side.
    let (mut least, mut most) = ([*first; ROWS], [*first; ROWS]);
    let (chunks, last) = keys.as_chunks::<ROWS>();
    for keys in chunks {
        for row in 0..ROWS {
            least[row] = if keys[row] < least[row] { keys[row] } else { least[row] };
            most[row] = if keys[row] > most[row] { keys[row] } else { most[row] };
        }
    }
    let (mut start, mut end) = (first.index(), first.index());
    for key in least.iter().chain(&most).chain(last) {
        start = start.min(key.index());
        end = end.max(key.index());
    }
    start..end + 1
}

kernel! {
    /// Adds rows to as many tables as the variant uses.
    pub(super) fn group[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], plan: &Plan, variant: Variant, tables: States<'_>
    ) -> Fit = group_plain;
}

#[inline(always)]
fn group_plain<K: SmallKey, T: Value>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    variant: Variant,
    tables: States<'_>,
) -> Fit {
    macro_rules! add_chunks {
        ($tables:literal) => {
            match plan.layout {
                PACKED => add_chunks::<K, T, PACKED, $tables>(keys, values, plan, tables),
                COUNTED => add_chunks::<K, T, COUNTED, $tables>(keys, values, plan, tables),
                _ => add_chunks::<K, T, SPLIT, $tables>(keys, values, plan, tables),
            }
        };
    }
    match variant {
        Variant::OneTable => add_chunks!(1),
        Variant::FourTables => add_chunks!(4),
        Variant::EightTables => add_chunks!(8),
    }
}

kernel! {
    /// Subtracts what [`group`] added, unless it is [`PACKED`].
    pub(super) fn undo[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], plan: &Plan, tables: States<'_>
    ) = undo_plain;
}

#[inline(always)]
fn undo_plain<K: SmallKey, T: Value>(keys: &[K], values: &[T], plan: &Plan, tables: States<'_>) {
    let mut words = [[1; ROWS]; 2];
    for (keys, values) in keys.chunks(ROWS).zip(values.chunks(ROWS)) {
        let values = padded(values);
        match plan.layout {
            COUNTED => T::convert::<COUNTED>(&values, plan, &mut words, Fit::default()),
            _ => T::convert::<SPLIT>(&values, plan, &mut words, Fit::default()),
        };
        for (row, key) in keys.iter().enumerate() {
            // Any table will do.
            subtract(&mut tables[0][key.index()], words[0][row]);
            subtract(&mut tables[1][key.index()], words[1][row]);
        }
    }
}

#[inline(always)]
fn add(word: &mut i64, other: i64) {
    *word = word.wrapping_add(other);
}

#[inline(always)]
fn subtract(word: &mut i64, other: i64) {
    *word = word.wrapping_sub(other);
}

kernel! {
    /// Appends the values that fit the plan, with zeros for the others, and the row numbers of the others.
    pub(super) fn split_outliers[T: Value][T](
        values: &[T], plan: &Plan, fitting: &mut Vec<T>, outliers: &mut Vec<u32>
    ) = split_outliers_plain;
}

#[inline(always)]
fn split_outliers_plain<T: Value>(values: &[T], plan: &Plan, fitting: &mut Vec<T>, outliers: &mut Vec<u32>) {
    for (start, values) in (0_u32..).step_by(CHUNK).zip(values.chunks(CHUNK)) {
        let mut chunk = [T::default(); CHUNK];
        chunk[..values.len()].copy_from_slice(values);
        let fit = chunk.map(|value| value.fits(plan));
        for (value, fits) in chunk.iter_mut().zip(fit) {
            *value = if fits { *value } else { T::default() };
        }
        fitting.extend_from_slice(&chunk[..values.len()]);
        let mut rest = !pack_flags(&fit);
        while rest != 0 {
            outliers.push(start + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
}

/// The last values of a block, and zeros, which fit every plan.
#[inline(always)]
fn padded<T: Value>(values: &[T]) -> [T; ROWS] {
    let mut chunk = [T::default(); ROWS];
    chunk[..values.len()].copy_from_slice(values);
    chunk
}

#[inline(always)]
fn add_chunks<K: SmallKey, T: Value, const LAYOUT: u8, const TABLES: usize>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    tables: States<'_>,
) -> Fit {
    // Lengths that the compiler knows make it see that keys are in range.
    let seconds = if LAYOUT == PACKED { 0 } else { TABLES * stride::<K>() };
    let [first, second] = tables;
    let mut tables = [&mut first[..TABLES * stride::<K>()], &mut second[..seconds]];
    let (key_chunks, last_keys) = keys.as_chunks::<ROWS>();
    let (value_chunks, last_values) = values.as_chunks::<ROWS>();
    // What is being added, and what is being converted.
    let mut words: [Words; 2] = [[[0; ROWS]; 2]; 2];
    let mut fit = Fit::default();
    if let Some(values) = value_chunks.first() {
        fit = T::convert::<LAYOUT>(values, plan, &mut words[0], fit);
    }
    for (place, keys) in key_chunks.iter().enumerate() {
        if let Some(values) = value_chunks.get(place + 1) {
            fit = T::convert::<LAYOUT>(values, plan, &mut words[(place + 1) % 2], fit);
        }
        add_rows::<K, LAYOUT, TABLES>(keys, &words[place % 2], &mut tables);
    }
    if !last_keys.is_empty() {
        fit = T::convert::<LAYOUT>(&padded(last_values), plan, &mut words[0], fit);
        for (row, key) in last_keys.iter().enumerate() {
            add_row::<LAYOUT>(key.index(), [words[0][0][row], words[0][1][row]], &mut tables);
        }
    }
    fit
}

/// Adds rows to `TABLES` tables in turn.
#[inline(always)]
fn add_rows<K: SmallKey, const LAYOUT: u8, const TABLES: usize>(
    keys: &[K; ROWS],
    words: &Words,
    tables: &mut States<'_>,
) {
    // A comparison of bytes: the fold over comparisons of keys is compiled to five times as many instructions.
    if keys[1..] == keys[..ROWS - 1] {
        let mut sums = [0, if LAYOUT == COUNTED { ROWS as i64 } else { 0 }];
        for (row, first) in words[0].iter().enumerate() {
            add(&mut sums[0], *first);
            if LAYOUT == SPLIT {
                add(&mut sums[1], words[1][row]);
            }
        }
        return add_state::<LAYOUT>(keys[0].index(), sums, tables);
    }
    for (chunk, keys) in keys.as_chunks::<8>().0.iter().enumerate() {
        let keys = K::eight(keys);
        for place in 0..8 {
            let row = chunk * 8 + place;
            let state = row % TABLES * stride::<K>() + K::index_of(keys, place);
            add_row::<LAYOUT>(state, [words[0][row], words[1][row]], tables);
        }
    }
}

/// Adds a row to a state.
#[inline(always)]
fn add_row<const LAYOUT: u8>(state: usize, words: [i64; 2], tables: &mut States<'_>) {
    add_state::<LAYOUT>(state, [words[0], if LAYOUT == COUNTED { 1 } else { words[1] }], tables);
}

#[inline(always)]
fn add_state<const LAYOUT: u8>(state: usize, words: [i64; 2], tables: &mut States<'_>) {
    add(&mut tables[0][state], words[0]);
    if LAYOUT != PACKED {
        add(&mut tables[1][state], words[1]);
    }
}
