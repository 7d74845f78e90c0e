//! The loops over tables of states, one state a key.
//!
//! A state has two words, a row is a load, an addition and a store of each, and the CPU does one or two stores a
//! cycle. A row whose key is that of the row before waits for its store; with several tables used in turn these
//! waits overlap. A run of equal keys accesses the table once.
//!
//! First words and second words are apart: beside each other, compilers join them to vectors of two, and on a Zen 4
//! a row with such a vector takes 1.17 to 2.1 ns, with two words 0.65.

use std::ops::Range;

use super::units::{Fit, Plan, STEP, Value, Words};
use super::{SmallKey, Variant, union};
use crate::aggregate::CHUNK;
use crate::bitmaps::pack_flags;

/// States between tables, so that the cache lines of a key in several tables do not fall into the same cache
/// set.
const GAP: usize = 8;
/// Rows of a step of the loop, a multiple of the number of tables.
const ROWS: usize = 16;

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
    stride: usize,
    /// The range of keys that may have been added to.
    keys: Range<usize>,
}

impl Tables {
    /// No tables.
    pub(super) fn new<K: SmallKey>() -> Self {
        Self { states: [Vec::new(), Vec::new()], stride: stride::<K>(), keys: 0..0 }
    }

    /// How many tables there are.
    pub(super) fn count(&self) -> usize {
        self.states[0].len() / self.stride
    }

    /// Makes empty tables; their memory is allocated only where they are written.
    pub(super) fn resize(&mut self, count: usize) {
        debug_assert!(self.keys.is_empty(), "tables were emptied");
        self.states = [0, 1].map(|_| vec![0; count * self.stride]);
    }

    /// The tables, for adding to keys in this range.
    pub(super) fn states(&mut self, keys: &Range<usize>) -> States<'_> {
        self.keys = union(&self.keys, keys);
        self.states.each_mut().map(Vec::as_mut_slice)
    }

    /// The sum of a key's states. The state of one table may have wrapped when a block was undone.
    #[inline(always)]
    fn sum(&self, key: usize) -> [i64; 2] {
        self.states
            .each_ref()
            .map(|words| words[key..].iter().step_by(self.stride).copied().fold(0, i64::wrapping_add))
    }

    /// The largest count of rows of a key.
    pub(super) fn most_rows(&self, plan: &Plan) -> u64 {
        self.keys.clone().map(|key| plan.decode(self.sum(key)).1).max().unwrap_or(0)
    }

    /// Calls `give` for each key with rows, with its sum and count, and empties all tables.
    pub(super) fn drain(&mut self, plan: &Plan, mut give: impl FnMut(usize, i128, u64)) {
        for key in std::mem::take(&mut self.keys) {
            let (sum, count) = plan.decode(self.sum(key));
            for states in &mut self.states {
                states[key..].iter_mut().step_by(self.stride).for_each(|word| *word = 0);
            }
            if count > 0 {
                give(key, sum, count);
            }
        }
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
    let (least, most) =
        keys.iter().fold((*first, *first), |(least, most), key| (least.min(*key), most.max(*key)));
    least.index()..most.index() + 1
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
    macro_rules! step_by_step {
        ($tables:literal, $runs:literal) => {
            match plan.parts {
                1 => step_by_step::<K, T, 1, $tables, $runs>(keys, values, plan, tables),
                _ => step_by_step::<K, T, 2, $tables, $runs>(keys, values, plan, tables),
            }
        };
    }
    match variant {
        Variant::OneTable => step_by_step!(1, false),
        Variant::FourTables => step_by_step!(4, false),
        Variant::EightTables => step_by_step!(8, false),
        Variant::SixteenTables => step_by_step!(16, false),
        Variant::Runs => step_by_step!(4, true),
    }
}

kernel! {
    /// Subtracts what [`group`] added.
    pub(super) fn undo[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], plan: &Plan, tables: States<'_>
    ) = undo_plain;
}

#[inline(always)]
fn undo_plain<K: SmallKey, T: Value>(keys: &[K], values: &[T], plan: &Plan, tables: States<'_>) {
    let mut words = [[1; STEP]; 2];
    for (keys, values) in keys.chunks(STEP).zip(values.chunks(STEP)) {
        convert(values, plan, &mut words);
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

#[inline(always)]
fn convert<T: Value>(values: &[T], plan: &Plan, words: &mut Words) -> Fit {
    if plan.parts == 1 { T::convert::<1>(values, plan, words) } else { T::convert::<2>(values, plan, words) }
}

#[inline(always)]
fn step_by_step<K: SmallKey, T: Value, const PARTS: usize, const TABLES: usize, const RUNS: bool>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    tables: States<'_>,
) -> Fit {
    // Lengths that the compiler knows make it see that keys are in range.
    let mut tables = tables.map(|words| &mut words[..TABLES * stride::<K>()]);
    let mut words = [[1; STEP]; 2];
    let mut fit = Fit::default();
    for (keys, values) in keys.chunks(STEP).zip(values.chunks(STEP)) {
        fit = fit.and(T::convert::<PARTS>(values, plan, &mut words));
        let words = words.each_ref().map(|words| &words[..keys.len()]);
        if RUNS {
            for (start, keys) in (0..).step_by(CHUNK).zip(keys.chunks(CHUNK)) {
                let words = words.map(|words| &words[start..][..keys.len()]);
                // Without an early end, so that keys are compared side by side.
                if keys.iter().fold(true, |all, key| all & (*key == keys[0])) {
                    for (table, words) in tables.iter_mut().zip(words) {
                        add(&mut table[keys[0].index()], words.iter().copied().fold(0, i64::wrapping_add));
                    }
                } else {
                    add_rows::<K, PARTS, TABLES>(keys, words, &mut tables);
                }
            }
        } else {
            add_rows::<K, PARTS, TABLES>(keys, words, &mut tables);
        }
    }
    fit
}

/// Adds rows to `TABLES` tables in turn.
#[inline(always)]
fn add_rows<K: SmallKey, const PARTS: usize, const TABLES: usize>(
    keys: &[K],
    words: [&[i64]; 2],
    tables: &mut States<'_>,
) {
    let ([first, second], [firsts, seconds]) = (words, tables);
    let mut add_row = |row: usize, key: &K, first: i64, second: i64| {
        let state = row % TABLES * stride::<K>() + key.index();
        add(&mut firsts[state], first);
        // With one part the second word counts rows.
        add(&mut seconds[state], if PARTS == 1 { 1 } else { second });
    };
    let (steps, last) = keys.as_chunks::<ROWS>();
    let (first_steps, first) = first.as_chunks::<ROWS>();
    let (second_steps, second) = second.as_chunks::<ROWS>();
    for ((keys, first), second) in steps.iter().zip(first_steps).zip(second_steps) {
        for row in 0..ROWS {
            add_row(row, &keys[row], first[row], second[row]);
        }
    }
    for (row, ((key, first), second)) in last.iter().zip(first).zip(second).enumerate() {
        add_row(row, key, *first, *second);
    }
}
