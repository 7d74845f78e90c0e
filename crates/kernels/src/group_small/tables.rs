//! The loops over tables of states, one state a key.
//!
//! A state is one vector, [sum, count] or [upper sum, lower sum, count, -], so that a row is one load, one
//! addition and one store. A row whose key is that of the row before waits for its store (14 cycles);
//! several tables, taken in turn, wait in parallel. A run of equal keys needs the table once.

use super::units::{Fit, STEP, Value};
use super::{SmallKey, Variant};
use crate::aggregate::CHUNK;

/// Tables for keys of type `K`, summed into by one variant after the other.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// `table_count` tables of `key_count` states.
    one: Vec<[i64; 2]>,
    two: Vec<[i64; 4]>,
    key_count: usize,
    table_count: usize,
}

impl Tables {
    pub(super) fn new(key_count: usize) -> Self {
        Self { one: Vec::new(), two: Vec::new(), key_count, table_count: 0 }
    }

    /// Makes room for a variant.
    fn ensure(&mut self, table_count: usize, parts: usize) {
        self.table_count = self.table_count.max(table_count);
        let states = self.table_count * self.key_count;
        if parts == 1 && self.one.len() < states {
            self.one.resize(states, [0; 2]);
        }
        if parts == 2 && self.two.len() < states {
            self.two.resize(states, [0; 4]);
        }
    }

    /// The states of `parts` parts for a variant, at least as many tables as it takes.
    pub(super) fn one(&mut self, variant: Variant) -> &mut [[i64; 2]] {
        self.ensure(variant.table_count(), 1);
        &mut self.one
    }

    pub(super) fn two(&mut self, variant: Variant) -> &mut [[i64; 4]] {
        self.ensure(variant.table_count(), 2);
        &mut self.two
    }

    /// Gives each key with rows its sum, the upper part `upper` bits above the lower, and empties all.
    pub(super) fn drain(&mut self, upper: i32, mut give: impl FnMut(usize, i128, u64)) {
        for key in 0..self.key_count {
            // The sum over tables fits; that of a single table may have wrapped, where a block was undone.
            let (mut one, mut two) = ([0; 2], [0; 4]);
            for state in self.one.iter_mut().skip(key).step_by(self.key_count) {
                State::<1>::add(&mut one, [state[0]], state[1]);
                *state = [0; 2];
            }
            for state in self.two.iter_mut().skip(key).step_by(self.key_count) {
                State::<2>::add(&mut two, [state[0], state[1]], state[2]);
                *state = [0; 4];
            }
            let count = one[1] + two[2];
            if count > 0 {
                let sum = i128::from(one[0]) + (i128::from(two[0]) << upper) + i128::from(two[1]);
                give(key, sum, count.unsigned_abs());
            }
        }
    }
}

/// A state: one or two sums and a count.
pub(super) trait State<const PARTS: usize>: Copy {
    fn add(&mut self, sums: [i64; PARTS], count: i64);
}

impl State<1> for [i64; 2] {
    #[inline(always)]
    fn add(&mut self, sums: [i64; 1], count: i64) {
        self[0] = self[0].wrapping_add(sums[0]);
        self[1] = self[1].wrapping_add(count);
    }
}

impl State<2> for [i64; 4] {
    #[inline(always)]
    fn add(&mut self, sums: [i64; 2], count: i64) {
        self[0] = self[0].wrapping_add(sums[0]);
        self[1] = self[1].wrapping_add(sums[1]);
        self[2] = self[2].wrapping_add(count);
    }
}

kernel! {
    pub(super) fn one_part[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], unit: i32, variant: Variant, tables: &mut [[i64; 2]]
    ) -> Fit = group::<_, _, _, 1>, avx512 = super::x86::one_part;
}

kernel! {
    pub(super) fn two_parts[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], unit: i32, variant: Variant, tables: &mut [[i64; 4]]
    ) -> Fit = group::<_, _, _, 2>, avx512 = super::x86::two_parts;
}

#[inline(always)]
pub(super) fn group<K: SmallKey, T: Value, S: State<PARTS>, const PARTS: usize>(
    keys: &[K],
    values: &[T],
    unit: i32,
    variant: Variant,
    tables: &mut [S],
) -> Fit {
    match variant {
        Variant::OneTable => step_by_step::<K, T, S, PARTS, 1, false>(keys, values, unit, tables),
        Variant::FourTables => step_by_step::<K, T, S, PARTS, 4, false>(keys, values, unit, tables),
        Variant::EightTables | Variant::FewKeys => {
            step_by_step::<K, T, S, PARTS, 8, false>(keys, values, unit, tables)
        }
        Variant::Runs => step_by_step::<K, T, S, PARTS, 4, true>(keys, values, unit, tables),
    }
}

kernel! {
    /// Subtracts what [`one_part`] added.
    pub(super) fn undo_one[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], unit: i32, tables: &mut [[i64; 2]]
    ) = undo::<_, _, _, 1>;
}

kernel! {
    /// Subtracts what [`two_parts`] added.
    pub(super) fn undo_two[K: SmallKey, T: Value][K, T](
        keys: &[K], values: &[T], unit: i32, tables: &mut [[i64; 4]]
    ) = undo::<_, _, _, 2>;
}

#[inline(always)]
fn undo<K: SmallKey, T: Value, S: State<PARTS>, const PARTS: usize>(
    keys: &[K],
    values: &[T],
    unit: i32,
    tables: &mut [S],
) {
    let mut parts = [[0; STEP]; PARTS];
    // Any table will do, and several are faster; there are one, four or eight.
    let table_mask = tables.len() / K::COUNT - 1;
    for (keys, values) in keys.chunks(STEP).zip(values.chunks(STEP)) {
        T::convert(values, unit, &mut parts);
        for (row, key) in keys.iter().enumerate() {
            tables[(row & table_mask) * K::COUNT + key.index()]
                .add(std::array::from_fn(|part| parts[part][row].wrapping_neg()), -1);
        }
    }
}

#[inline(always)]
fn step_by_step<
    K: SmallKey,
    T: Value,
    S: State<PARTS>,
    const PARTS: usize,
    const TABLES: usize,
    const RUNS: bool,
>(
    keys: &[K],
    values: &[T],
    unit: i32,
    tables: &mut [S],
) -> Fit {
    let tables = &mut tables[..TABLES * K::COUNT];
    let mut parts = [[0; STEP]; PARTS];
    let mut fit = Fit::default();
    for (keys, values) in keys.chunks(STEP).zip(values.chunks(STEP)) {
        fit = fit.and(T::convert(values, unit, &mut parts));
        for (start, keys) in (0..).step_by(CHUNK).zip(keys.chunks(CHUNK)) {
            if RUNS && keys.iter().all(|key| *key == keys[0]) {
                let rows = start..start + keys.len();
                let sums = std::array::from_fn(|part| {
                    parts[part][rows.clone()].iter().copied().fold(0, i64::wrapping_add)
                });
                #[allow(clippy::cast_possible_wrap, reason = "at most a chunk")]
                tables[keys[0].index()].add(sums, keys.len() as i64);
                continue;
            }
            for (row, key) in keys.iter().enumerate() {
                let state = row % TABLES * K::COUNT + key.index();
                tables[state].add(std::array::from_fn(|part| parts[part][start + row]), 1);
            }
        }
    }
    fit
}
