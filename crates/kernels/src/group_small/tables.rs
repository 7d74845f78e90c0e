//! The loops over tables of states, one state a key.
//!
//! A state is one vector of two words, so a row is one load, one addition and one store, and the CPU does one
//! of these a cycle. A row whose key is that of the row before waits for its store (14 cycles); with several
//! tables used in turn these waits overlap. A run of equal keys accesses the table once.

use std::ops::Range;

use super::units::{Fit, Plan, STEP, Value, Words};
use super::{SmallKey, Variant, union};
use crate::aggregate::CHUNK;
use crate::bitmaps::pack_flags;

/// States between tables, so that the cache lines of a key in several tables do not fall into the same cache
/// set.
const GAP: usize = 4;

/// States from the first of a table to the first of the next.
pub(super) const fn stride<K: SmallKey>() -> usize {
    K::COUNT + GAP
}

/// Tables for keys of one type; the variants may use different numbers of them.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    states: Vec<[i64; 2]>,
    stride: usize,
    /// The range of keys that may have been added to.
    keys: Range<usize>,
}

impl Tables {
    /// No tables.
    pub(super) fn new<K: SmallKey>() -> Self {
        Self { states: Vec::new(), stride: stride::<K>(), keys: 0..0 }
    }

    /// How many tables there are.
    pub(super) fn count(&self) -> usize {
        self.states.len() / self.stride
    }

    /// Makes empty tables; their memory is allocated only where they are written.
    pub(super) fn resize(&mut self, count: usize) {
        debug_assert!(self.keys.is_empty(), "tables were emptied");
        self.states = vec![[0; 2]; count * self.stride];
    }

    /// The tables, for adding to keys in this range.
    pub(super) fn states(&mut self, keys: &Range<usize>) -> &mut [[i64; 2]] {
        self.keys = union(&self.keys, keys);
        &mut self.states
    }

    /// The sum of a key's states. The state of one table may have wrapped when a block was undone.
    #[inline(always)]
    fn sum(&self, key: usize) -> [i64; 2] {
        let mut sum = [0; 2];
        for state in self.states[key..].iter().step_by(self.stride) {
            add(&mut sum, *state);
        }
        sum
    }

    /// The largest count of rows of a key.
    pub(super) fn most_rows(&self, plan: &Plan) -> u64 {
        self.keys.clone().map(|key| plan.decode(self.sum(key)).1).max().unwrap_or(0)
    }

    /// Calls `give` for each key with rows, with its sum and count, and empties all tables.
    pub(super) fn drain(&mut self, plan: &Plan, mut give: impl FnMut(usize, i128, u64)) {
        for key in std::mem::take(&mut self.keys) {
            let (sum, count) = plan.decode(self.sum(key));
            for state in self.states[key..].iter_mut().step_by(self.stride) {
                *state = [0; 2];
            }
            if count > 0 {
                give(key, sum, count);
            }
        }
    }
}

#[inline(always)]
fn add(state: &mut [i64; 2], words: [i64; 2]) {
    *state = [state[0].wrapping_add(words[0]), state[1].wrapping_add(words[1])];
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
        keys: &[K], values: &[T], plan: &Plan, variant: Variant, tables: &mut [[i64; 2]]
    ) -> Fit = group_plain, avx512 = super::x86::group;
}

#[inline(always)]
pub(super) fn group_plain<K: SmallKey, T: Value>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    variant: Variant,
    tables: &mut [[i64; 2]],
) -> Fit {
    match variant {
        Variant::OneTable => step_by_step::<K, T, 1, false>(keys, values, plan, tables),
        Variant::FourTables => step_by_step::<K, T, 4, false>(keys, values, plan, tables),
        Variant::EightTables => step_by_step::<K, T, 8, false>(keys, values, plan, tables),
        Variant::SixteenTables => step_by_step::<K, T, 16, false>(keys, values, plan, tables),
        Variant::Runs => step_by_step::<K, T, 4, true>(keys, values, plan, tables),
    }
}

kernel! {
    /// Subtracts what [`group`] added.
    pub(super) fn undo[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], plan: &Plan, tables: &mut [[i64; 2]]
    ) = undo_plain;
}

#[inline(always)]
fn undo_plain<K: SmallKey, T: Value>(keys: &[K], values: &[T], plan: &Plan, tables: &mut [[i64; 2]]) {
    let mut words = [[1; STEP]; 2];
    for (keys, values) in keys.chunks(STEP).zip(values.chunks(STEP)) {
        convert(values, plan, &mut words);
        for (row, key) in keys.iter().enumerate() {
            // Any table will do.
            add(&mut tables[key.index()], [words[0][row].wrapping_neg(), words[1][row].wrapping_neg()]);
        }
    }
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
fn step_by_step<K: SmallKey, T: Value, const TABLES: usize, const RUNS: bool>(
    keys: &[K],
    values: &[T],
    plan: &Plan,
    tables: &mut [[i64; 2]],
) -> Fit {
    let tables = &mut tables[..TABLES * stride::<K>()];
    // With one part the second word counts rows.
    let mut words = [[1; STEP]; 2];
    let mut fit = Fit::default();
    for (keys, values) in keys.chunks(STEP).zip(values.chunks(STEP)) {
        fit = fit.and(convert(values, plan, &mut words));
        for (start, keys) in (0..).step_by(CHUNK).zip(keys.chunks(CHUNK)) {
            if RUNS && keys.iter().all(|key| *key == keys[0]) {
                let sum = |words: &[i64; STEP]| {
                    words[start..][..keys.len()].iter().copied().fold(0, i64::wrapping_add)
                };
                add(&mut tables[keys[0].index()], [sum(&words[0]), sum(&words[1])]);
                continue;
            }
            for (row, key) in keys.iter().enumerate() {
                let state = row % TABLES * stride::<K>() + key.index();
                add(&mut tables[state], [words[0][start + row], words[1][start + row]]);
            }
        }
    }
    fit
}
