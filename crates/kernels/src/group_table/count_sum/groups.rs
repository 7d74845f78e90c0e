//! The table of [`super::CountSum`]: key, count and sum in each slot; a block of rows is added in rounds.

use std::hint::select_unpredictable;

use crate::group_table::slots::Home;
#[cfg(target_arch = "x86_64")]
use crate::group_table::x86;
use crate::group_table::{BLOCK_ROWS, Hashed, Slot, Slots};
use crate::hash::{Key, Seed};
use crate::region::{Zero, prefetch, prefetch_ptr};

/// The bits of a value that are added to the low sum of its group.
pub(in crate::group_table) const LOW_BITS: u32 = 40;
pub(in crate::group_table) const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
/// The low sums must be settled after this many rows: then they may be full, with the bits left from settling
/// before.
const UNSETTLED_ROWS_MAX: usize = (1 << (u64::BITS - LOW_BITS)) - 1;
/// The most rows of a group: half of what a high sum can hold, so that two groups at the limit can be merged
/// before the count is checked.
const ROWS_MAX: u64 = 1 << (LOW_BITS - 1);

/// The most rounds over a block, and the fewest rows that are worth a round. Few keys are further from home.
const ROUNDS: usize = 8;
const ROUND_ROWS_MIN: usize = 4;

/// Words in a cache line: once for so many rows, data of later rows is prefetched.
pub(super) const LINE_WORDS: usize = 8;
/// The prefetch distance in the columns: the CPU's own prefetching ends at each page. One line is prefetched
/// every few rows: all lines of a block at once wait for each other (2.2 ns a row at 1e3 groups, not 1.4).
const AHEAD_ROWS: usize = 1024;

/// The table: groups in slots.
pub(in crate::group_table) struct Groups {
    pub(super) slots: Slots<State>,
    /// Rows since the sums were last settled.
    unsettled: usize,
}

impl Groups {
    /// A small table for keys whose highest `skip` hash bits are all the same.
    pub(super) fn new(skip: u32) -> Self {
        Self { slots: Slots::new(skip), unsettled: 0 }
    }

    /// Removes all groups and makes room for `len`.
    pub(super) fn clear_for(&mut self, len: usize) {
        self.slots.clear_for(len);
        self.unsettled = 0;
    }

    /// Settles the sums if needed; must be called before `row_count` rows are added.
    #[inline(always)]
    fn settle_for(&mut self, row_count: usize) {
        self.unsettled += row_count;
        if self.unsettled > UNSETTLED_ROWS_MAX {
            self.slots.for_each_mut(State::settle);
            self.unsettled = row_count;
        }
    }

    pub(super) fn add_state(&mut self, seed: &Seed, state: &State) {
        while self.slots.is_full() {
            self.slots.grow(seed);
        }
        let mut state = *state;
        state.settle();
        self.settle_for(1);
        let mut probe = self.slots.probe_mut();
        let slot = probe.slot_mut(state.hash(seed), |slot| slot.key ^ state.key);
        let is_new = slot.is_free();
        slot.key = state.key;
        slot.count += state.count;
        slot.low += state.low;
        slot.high += state.high;
        slot.check_count();
        self.slots.set_len(self.slots.len() + usize::from(is_new));
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::group_table) struct Row {
    pub(super) key: u64,
    pub(super) value: i64,
}

// SAFETY: integers without padding.
unsafe impl Zero for Row {}

/// A group: its key, its count of rows and the sum of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, align(32))]
pub struct CountSumGroup {
    /// The key.
    pub key: u64,
    /// The count of rows, at least one.
    pub count: u64,
    /// The exact sum.
    pub sum: i128,
}

/// A group while rows are added: a vector of four words, to which a row adds its own four. The sum is exact
/// without checks, in two words: the sum of the low [`LOW_BITS`] of the values and the sum of their high
/// bits.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(in crate::group_table) struct State {
    key: u64,
    count: u64,
    low: u64,
    high: i64,
}

// SAFETY: integers without padding.
unsafe impl Zero for State {}

impl State {
    /// Adds a row if `is_own`; if `is_new`, the slot is free and gets the row's key.
    #[inline(always)]
    fn add_row(&mut self, (key, value): (u64, i64), is_own: bool, is_new: bool) {
        let value = select_unpredictable(is_own, value, 0);
        self.key += select_unpredictable(is_new, key, 0);
        self.count += u64::from(is_own);
        self.low += value.cast_unsigned() & LOW_MASK;
        self.high += value >> LOW_BITS;
    }

    fn check_count(&self) {
        assert!(self.count <= ROWS_MAX, "a group has at most {ROWS_MAX} rows");
    }

    /// Moves the excess of the low sum to the high sum.
    fn settle(&mut self) {
        self.check_count();
        self.high += (self.low >> LOW_BITS).cast_signed();
        self.low &= LOW_MASK;
    }

    pub(super) fn group(&self) -> CountSumGroup {
        let sum = (i128::from(self.high) << LOW_BITS) + i128::from(self.low);
        CountSumGroup { key: self.key, count: self.count, sum }
    }
}

impl Slot for State {
    #[inline(always)]
    fn taken(&self) -> u64 {
        self.count
    }
}

impl Hashed for State {
    type Context = Seed;

    #[inline(always)]
    fn hash(&self, seed: &Seed) -> u64 {
        self.key.hash(seed, 0)
    }
}

/// A function that adds a row to a slot; see [`State::add_row`].
pub(in crate::group_table) trait Add: Fn(&mut State, (u64, i64), bool, bool) {}
impl<F: Fn(&mut State, (u64, i64), bool, bool)> Add for F {}

/// Rows in two columns, or as an array of pairs.
pub(super) trait Rows: Copy {
    fn row(self, index: usize) -> (u64, i64);
    fn iter(self) -> impl Iterator<Item = (u64, i64)>;
    /// These rows without the first `count`.
    fn skip(self, count: usize) -> Self;
    /// Prefetches the lines of later rows.
    fn prefetch(self);
}

impl Rows for (&[u64], &[i64]) {
    #[inline(always)]
    fn skip(self, count: usize) -> Self {
        (&self.0[count..], &self.1[count..])
    }

    #[inline(always)]
    fn prefetch(self) {
        prefetch_ptr(self.0.as_ptr().wrapping_add(AHEAD_ROWS));
        prefetch_ptr(self.1.as_ptr().wrapping_add(AHEAD_ROWS));
    }

    #[inline(always)]
    fn row(self, index: usize) -> (u64, i64) {
        (self.0[index], self.1[index])
    }

    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (u64, i64)> {
        self.0.iter().copied().zip(self.1.iter().copied())
    }
}

/// An array of rows, and the array that comes after it.
#[derive(Clone, Copy)]
struct Run<'a> {
    rows: &'a [Row],
    next: &'a [Row],
}

impl Rows for Run<'_> {
    #[inline(always)]
    fn skip(self, count: usize) -> Self {
        Self { rows: &self.rows[count..], next: self.next.get(count..).unwrap_or_default() }
    }

    #[inline(always)]
    fn prefetch(self) {
        if let Some(next) = self.next.first_chunk::<LINE_WORDS>() {
            prefetch(&next[0]);
            prefetch(&next[LINE_WORDS / 2]);
        }
    }

    #[inline(always)]
    fn row(self, index: usize) -> (u64, i64) {
        (self.rows[index].key, self.rows[index].value)
    }

    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (u64, i64)> {
        self.rows.iter().map(|row| (row.key, row.value))
    }
}

kernel! {
    /// Adds rows until the table should grow, and returns how many.
    pub(super) fn add_rows(seed: &Seed, groups: &mut Groups, keys: &[u64], values: &[i64]) -> usize
        = add_rows_plain, avx512 = x86::add_rows;
}

#[inline(always)]
fn add_rows_plain(seed: &Seed, groups: &mut Groups, keys: &[u64], values: &[i64]) -> usize {
    add_rows_by(seed, groups, keys, values, State::add_row)
}

#[inline(always)]
pub(in crate::group_table) fn add_rows_by(
    seed: &Seed,
    groups: &mut Groups,
    keys: &[u64],
    values: &[i64],
    add: impl Add,
) -> usize {
    let blocks = || keys.chunks(BLOCK_ROWS).zip(values.chunks(BLOCK_ROWS));
    let mut next_blocks = blocks().skip(1);
    let [mut homes, mut next_homes] = [[Home::default(); BLOCK_ROWS]; 2];
    if let Some(rows) = blocks().next() {
        find_homes(seed, groups, rows, &mut homes);
        groups.slots.probe().prefetch_homes(&homes);
    }
    let mut done = 0;
    for rows in blocks() {
        if groups.slots.is_full() {
            break;
        }
        let row_count = rows.0.len();
        let next_rows = next_blocks.next();
        if let Some(rows) = next_rows {
            find_homes(seed, groups, rows, &mut next_homes);
        }
        let next = if next_rows.is_some() { &next_homes[..] } else { &[] };
        // SAFETY: the homes were found after the table grew last.
        unsafe { add_block::<false>(groups, rows, &homes[..row_count], next, &add) };
        homes = next_homes;
        done += row_count;
    }
    done
}

kernel! {
    pub(super) fn add_run(seed: &Seed, groups: &mut Groups, rows: &[Row], next: &[Row])
        = add_run_plain, avx512 = x86::add_run;
}

#[inline(always)]
fn add_run_plain(seed: &Seed, groups: &mut Groups, rows: &[Row], next: &[Row]) {
    add_run_by(seed, groups, rows, next, State::add_row);
}

#[inline(always)]
pub(in crate::group_table) fn add_run_by(
    seed: &Seed,
    groups: &mut Groups,
    rows: &[Row],
    next: &[Row],
    add: impl Add,
) {
    let mut homes = [Home::default(); BLOCK_ROWS];
    for (index, rows) in rows.chunks(BLOCK_ROWS).enumerate() {
        while groups.slots.is_full() {
            groups.slots.grow(seed);
        }
        let row_count = rows.len();
        let rows = Run { rows, next: next.get(index * BLOCK_ROWS..).unwrap_or_default() };
        find_homes(seed, groups, rows, &mut homes);
        let homes = &homes[..row_count];
        groups.slots.probe().prefetch_homes(homes);
        // SAFETY: the homes were found after the table grew last.
        unsafe { add_block::<true>(groups, rows, homes, &[], &add) };
    }
}

/// Writes the home of each row; homes beyond the rows stay as they are.
#[inline(always)]
fn find_homes(seed: &Seed, groups: &Groups, rows: impl Rows, homes: &mut [Home; BLOCK_ROWS]) {
    let probe = groups.slots.probe();
    for (home, (key, _)) in homes.iter_mut().zip(rows.iter()) {
        *home = probe.home(key.hash(seed, 0));
    }
}

/// Adds a block in rounds. In the first round, a row whose key is in its home slot is added there; in the
/// next, the remaining rows look one slot further, and so on: no branch depends on keys. The few rows that
/// remain at last use the branching search. Nor does an address depend on a comparison: a slot that is not
/// the row's own is rewritten unchanged. Writing to a spare slot for such rows was slower (2.5 ns a row at
/// 1e3 groups against 2.2, before columns were prefetched): a load waits for the addresses of the stores
/// before it.
///
/// With `MANY_NEW` keys, rounds also give them free slots; otherwise the search at the end does. The home
/// slots of the `next` block are prefetched on the way.
///
/// # Safety
/// The homes must be those of the slots, found since they grew last.
#[inline(always)]
unsafe fn add_block<const MANY_NEW: bool>(
    groups: &mut Groups,
    rows: impl Rows,
    homes: &[Home],
    next: &[Home],
    add: &impl Add,
) {
    let row_count = homes.len();
    groups.settle_for(row_count);
    let mut len = groups.slots.len();
    let mut probe = groups.slots.probe_mut();
    const { assert!(BLOCK_ROWS == 1 << u8::BITS, "a row of a block has a byte") };
    let mut others = [0_u8; BLOCK_ROWS];
    let mut left = 0;
    // Adds a row to the slot if that has its key.
    let mut visit = |slot: &mut State, row: (u64, i64)| {
        let is_new = MANY_NEW && slot.is_free();
        // Key zero equals the key of a free slot, too, and rightly takes it, though without being counted in
        // `len`, which has room for one more.
        let is_own = is_new | (slot.key == row.0);
        len += usize::from(is_new);
        add(slot, row, is_own, is_new);
        is_own
    };
    for (start, homes) in (0..).step_by(LINE_WORDS).zip(homes.chunks(LINE_WORDS)) {
        let rows = rows.skip(start);
        rows.prefetch();
        if let Some(next) = next.get(start..start + LINE_WORDS) {
            probe.prefetch_homes(next);
        }
        for (index, (home, row)) in (start..).zip(homes.iter().zip(rows.iter())) {
            // SAFETY: the homes were found since the slots grew last, as the caller promises.
            let is_own = visit(unsafe { probe.home_mut(*home) }, row);
            others[left % BLOCK_ROWS] = index as u8;
            left += usize::from(!is_own);
        }
    }
    for distance in 1..ROUNDS {
        let before = left;
        if before < ROUND_ROWS_MIN {
            break;
        }
        left = 0;
        for place in 0..before {
            let index = usize::from(others[place]);
            let is_own = visit(probe.behind_mut(homes[index], distance), rows.row(index));
            others[left] = index as u8;
            left += usize::from(!is_own);
        }
    }
    for index in &others[..left] {
        let index = usize::from(*index);
        let row = rows.row(index);
        let slot = probe.slot_from_mut(homes[index], |slot| slot.key ^ row.0);
        let is_new = slot.is_free();
        len += usize::from(is_new);
        add(slot, row, true, is_new);
    }
    groups.slots.set_len(len);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of `count` rows with the largest value.
    fn state(count: u64) -> State {
        let value = i64::MAX;
        let low = u128::from(count) * u128::from(value.cast_unsigned() & LOW_MASK);
        let high = i128::from(value >> LOW_BITS) * i128::from(count) + (low >> LOW_BITS).cast_signed();
        let high = i64::try_from(high).expect("half of what fills it");
        State { key: 7, count, low: low as u64 & LOW_MASK, high }
    }

    fn merged(counts: &[u64]) -> CountSumGroup {
        let (seed, mut groups) = (Seed::new(0), Groups::new(0));
        counts.iter().for_each(|count| groups.add_state(&seed, &state(*count)));
        let mut found = None;
        groups.slots.for_each(|state| found = Some(state.group()));
        found.expect("a group")
    }

    #[test]
    fn groups_up_to_the_limit_have_exact_sums() {
        let count = ROWS_MAX / 2;
        let sum = i128::from(i64::MAX) * i128::from(ROWS_MAX);
        assert_eq!(merged(&[count, count]), CountSumGroup { key: 7, count: ROWS_MAX, sum });
    }

    #[test]
    #[should_panic(expected = "a group has at most 549755813888 rows")]
    fn merging_beyond_the_limit_is_refused() {
        merged(&[ROWS_MAX, ROWS_MAX]);
    }
}
