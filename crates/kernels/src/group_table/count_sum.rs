//! `select key, count(*), sum(value) group by key`, fused: the states lie in the slots of the table.
//!
//! One slot is key, count and exact sum: 32 bytes, half a cache line, one miss a row. That serves up to some
//! hundred thousand groups, and more when few keys are frequent. When nearly every row brings a new group, a
//! growing table costs a miss to memory a row; then rows are scattered by the high bits of their hash
//! ([`Scatter`]) and each partition is grouped in a table that fits the L2 cache. The table decides when it
//! has to grow: it watches how many rows there were for each new group since it grew last. All partitions
//! are grouped in one table, one after the other, which stays in the L2 cache.
//!
//! Against hashbrown + foldhash (16M rows, one core, growth and final scan included): suite `group`.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::Level;
use crate::group_table::partition::Scatter;
use crate::group_table::slots::Home;
use crate::group_table::{BLOCK_ROWS, Slot, Slots};
use crate::hash::{Key, Seed};
use crate::region::{Zero, prefetch_ptr};

/// From here on a table is worth giving up.
const PARTITION_GROUPS_MIN: usize = 1 << 17;
/// Fewer rows than this for each new group: rows do not group well.
const ROWS_PER_NEW_GROUP: usize = 3;
/// 2^10 tables of 10,000 groups are 10M groups in L2; more partitions outrun the L1 cache when scattering.
const PARTITION_BITS: u32 = 10;
/// Buffered rows of a partition, before they are grouped at once: enough for its table to come into cache.
const BUFFERED_ROWS_MIN: usize = 1 << 15;

/// How far ahead the columns are asked for: a block reads its keys in a burst, and the CPU's own prefetching
/// ends at each page. 256, 512 and 2048 rows measured the same.
const AHEAD_ROWS: usize = 1024;

/// Groups of `u64` keys with count and sum of `i64` values.
pub struct CountSum {
    seed: Seed,
    slots: Slots<State>,
    /// Rows and groups when the table grew last.
    rows_before: u64,
    groups_before: usize,
    rows: u64,
    partitions: Option<Box<Partitions>>,
}

/// Rows by the highest bits of their hash, and the groups of those partitions that had too many rows to wait.
struct Partitions {
    rows: Scatter<Row>,
    groups: Vec<Option<Slots<State>>>,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Row {
    key: u64,
    value: i64,
}

// SAFETY: integers without padding.
unsafe impl Zero for Row {}

/// A group: its key, its count of rows and the sum of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, align(32))]
pub struct CountSumGroup {
    /// The key.
    pub key: u64,
    /// Count of rows, above zero.
    pub count: u64,
    /// The exact sum.
    pub sum: i128,
}

/// A group while rows are added.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct State {
    key: u64,
    count: u64,
    /// The sum is `low + carries << 64`: carries are rare, so that their branch is free, and three words a
    /// row are written instead of four.
    low: i64,
    carries: i64,
}

// SAFETY: integers without padding.
unsafe impl Zero for State {}

impl State {
    #[inline(always)]
    fn add_value(&mut self, value: i64) {
        let (low, is_over) = self.low.overflowing_add(value);
        self.low = low;
        if is_over {
            self.carry(value);
        }
    }

    #[cold]
    fn carry(&mut self, value: i64) {
        self.carries += if value < 0 { -1 } else { 1 };
    }

    fn group(&self) -> CountSumGroup {
        let sum = i128::from(self.low) + (i128::from(self.carries) << 64);
        CountSumGroup { key: self.key, count: self.count, sum }
    }
}

impl Slot for State {
    type Context = Seed;

    #[inline(always)]
    fn taken(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    fn hash(&self, seed: &Seed) -> u64 {
        self.key.hash(seed, 0)
    }
}

/// Rows in columns, or one behind the other.
trait Rows: Copy {
    fn row(self, index: usize) -> (u64, i64);
    fn iter(self) -> impl Iterator<Item = (u64, i64)>;
}

impl Rows for (&[u64], &[i64]) {
    #[inline(always)]
    fn row(self, index: usize) -> (u64, i64) {
        (self.0[index], self.1[index])
    }

    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (u64, i64)> {
        self.0.iter().copied().zip(self.1.iter().copied())
    }
}

impl Rows for &[Row] {
    #[inline(always)]
    fn row(self, index: usize) -> (u64, i64) {
        (self[index].key, self[index].value)
    }

    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = (u64, i64)> {
        (*self).iter().map(|row| (row.key, row.value))
    }
}

impl CountSum {
    /// Count of partitions in [`CountSum::for_each_merged`].
    pub const PARTITIONS: usize = 1 << PARTITION_BITS;

    /// No groups.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { seed, slots: Slots::new(0), rows_before: 0, groups_before: 0, rows: 0, partitions: None }
    }

    /// Adds rows.
    ///
    /// # Panics
    /// When `keys` and `values` differ in length.
    pub fn add(&mut self, level: Level, keys: &[u64], values: &[i64]) {
        assert_eq!(keys.len(), values.len(), "a value a key");
        let mut done = 0;
        while done < keys.len() && self.partitions.is_none() {
            let (keys, values) = (&keys[done..], &values[done..]);
            let added = add_rows(level, &self.seed, &mut self.slots, keys, values);
            done += added;
            self.rows += added as u64;
            if self.slots.is_full() {
                self.grow_or_partition();
            }
        }
        if let Some(partitions) = &mut self.partitions {
            partitions.add(level, &self.seed, &keys[done..], &values[done..]);
        }
    }

    fn grow_or_partition(&mut self) {
        let new_groups = self.slots.len() - self.groups_before;
        let new_rows = self.rows - self.rows_before;
        if self.slots.len() >= PARTITION_GROUPS_MIN && new_rows < (ROWS_PER_NEW_GROUP * new_groups) as u64 {
            self.partitions = Some(Box::new(Partitions {
                rows: Scatter::new(PARTITION_BITS),
                groups: (0..Self::PARTITIONS).map(|_| None).collect(),
            }));
        } else {
            self.slots.grow(&self.seed);
            (self.rows_before, self.groups_before) = (self.rows, self.slots.len());
        }
    }

    /// Memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.partitions.as_ref().map_or(0, |partitions| partitions.bytes())
    }

    /// Calls `each` once for every group, in no order.
    pub fn for_each(&self, level: Level, mut each: impl FnMut(CountSumGroup)) {
        if self.partitions.is_none() {
            self.slots.for_each(|state| each(state.group()));
        } else {
            Self::for_each_merged(level, &[self], 0..Self::PARTITIONS, each);
        }
    }

    /// Calls `each` once for every group of some partitions of the hash space, merged from the tables of
    /// several threads: different partitions have different groups, so each can be merged by another thread.
    ///
    /// # Panics
    /// When the tables have different seeds or a partition is not below [`CountSum::PARTITIONS`].
    pub fn for_each_merged(
        level: Level,
        tables: &[&Self],
        partitions: Range<usize>,
        mut each: impl FnMut(CountSumGroup),
    ) {
        assert!(partitions.end <= Self::PARTITIONS, "there are {} partitions", Self::PARTITIONS);
        // One table serves all partitions: its memory stays in the cache. Hashes spread keys evenly, so the
        // partition before tells how large the next one will be.
        let mut merged = Slots::new(PARTITION_BITS);
        for partition in partitions {
            merged.clear_for(merged.len() + merged.len() / 8);
            for table in tables {
                assert!(table.seed == tables[0].seed, "tables that are merged have one seed");
                table.merge_into(level, partition, &mut merged);
            }
            merged.for_each(|state| each(state.group()));
        }
    }

    fn merge_into(&self, level: Level, partition: usize, merged: &mut Slots<State>) {
        let early = || self.slots.partition(partition, PARTITION_BITS, &self.seed);
        merged.reserve(early().count(), &self.seed);
        early().for_each(|state| add_state(&self.seed, merged, state));
        let Some(partitions) = &self.partitions else { return };
        if let Some(groups) = &partitions.groups[partition] {
            merged.reserve(groups.len(), &self.seed);
            groups.for_each(|state| add_state(&self.seed, merged, state));
        }
        partitions.rows.each_run(partition, |rows| add_run(level, &self.seed, merged, rows));
    }
}

fn add_state(seed: &Seed, slots: &mut Slots<State>, state: &State) {
    while slots.is_full() {
        slots.grow(seed);
    }
    let mut probe = slots.probe_mut();
    let slot = probe.slot_mut(state.hash(seed), |slot| slot.key ^ state.key);
    let is_new = slot.is_free();
    slot.key = state.key;
    slot.count += state.count;
    slot.carries += state.carries;
    slot.add_value(state.low);
    slots.set_len(slots.len() + usize::from(is_new));
}

impl Partitions {
    fn add(&mut self, level: Level, seed: &Seed, keys: &[u64], values: &[i64]) {
        // In pieces, so that no partition gets far over its limit.
        const PIECE_ROWS: usize = 1 << 16;
        for (keys, values) in keys.chunks(PIECE_ROWS).zip(values.chunks(PIECE_ROWS)) {
            scatter(level, seed, &mut self.rows, keys, values);
            for partition in 0..CountSum::PARTITIONS {
                let groups = self.groups[partition].as_ref().map_or(0, Slots::len);
                // Twice the groups, so that coming back to a table is paid for by its rows.
                if self.rows.len(partition) >= BUFFERED_ROWS_MIN.max(2 * groups) {
                    let slots = self.groups[partition].get_or_insert_with(|| Slots::new(PARTITION_BITS));
                    self.rows.each_run(partition, |rows| add_run(level, seed, slots, rows));
                    self.rows.clear(partition);
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.groups.iter().flatten().map(Slots::bytes).sum::<usize>()
    }
}

kernel! {
    /// Adds rows until the table should grow, and says how many.
    fn add_rows(seed: &Seed, slots: &mut Slots<State>, keys: &[u64], values: &[i64]) -> usize
        = add_rows_plain;
}

#[inline(always)]
fn add_rows_plain(seed: &Seed, slots: &mut Slots<State>, keys: &[u64], values: &[i64]) -> usize {
    let mut done = 0;
    for (keys, values) in keys.chunks(BLOCK_ROWS).zip(values.chunks(BLOCK_ROWS)) {
        if slots.is_full() {
            break;
        }
        for row in (0..keys.len()).step_by(8) {
            prefetch_ptr(keys.as_ptr().wrapping_add(AHEAD_ROWS + row));
            prefetch_ptr(values.as_ptr().wrapping_add(AHEAD_ROWS + row));
        }
        add_block(seed, slots, (keys, values), keys.len());
        done += keys.len();
    }
    done
}

kernel! {
    fn add_run(seed: &Seed, slots: &mut Slots<State>, rows: &[Row]) = add_run_plain;
}

#[inline(always)]
fn add_run_plain(seed: &Seed, slots: &mut Slots<State>, rows: &[Row]) {
    for rows in rows.chunks(BLOCK_ROWS) {
        while slots.is_full() {
            slots.grow(seed);
        }
        add_block(seed, slots, rows, rows.len());
    }
}

/// Two passes over the block. In the first, a row whose key is at home is added there; any other adds nothing
/// there and is remembered: no branch depends on keys. The second probes for the others as usual. At low load
/// they are few, and mispredicted branches with them. Hot, at 1e3 groups: 1.4 ns a row, hashbrown 2.2.
#[inline(always)]
fn add_block(seed: &Seed, slots: &mut Slots<State>, rows: impl Rows, row_count: usize) {
    let mut len = slots.len();
    let mut probe = slots.probe_mut();
    let mut homes = [Home::default(); BLOCK_ROWS];
    let homes = &mut homes[..row_count];
    for (home, (key, _)) in homes.iter_mut().zip(rows.iter()) {
        *home = probe.home(key.hash(seed, 0));
    }
    probe.prefetch_homes(homes);
    const { assert!(BLOCK_ROWS == 1 << u8::BITS, "a row of a block has a byte") };
    let mut others = [0_u8; BLOCK_ROWS];
    let mut home_count = 0;
    for (index, (home, (key, value))) in homes.iter().zip(rows.iter()).enumerate() {
        // SAFETY: the loop above has this home from this probe.
        let slot = unsafe { probe.home_mut(*home) };
        // Key zero finds itself in a free slot, too, and rightly takes it, if without being counted in `len`,
        // which has room for one more.
        let is_home = slot.key == key;
        slot.count += u64::from(is_home);
        slot.add_value(select_unpredictable(is_home, value, 0));
        others[(index - home_count) % BLOCK_ROWS] = index as u8;
        home_count += usize::from(is_home);
    }
    for index in &others[..row_count - home_count] {
        let index = usize::from(*index);
        let (key, value) = rows.row(index);
        let slot = probe.slot_from_mut(homes[index], |slot| slot.key ^ key);
        len += usize::from(slot.is_free());
        slot.key = key;
        slot.count += 1;
        slot.add_value(value);
    }
    slots.set_len(len);
}

kernel! {
    fn scatter(seed: &Seed, out: &mut Scatter<Row>, keys: &[u64], values: &[i64]) = scatter_plain;
}

#[inline(always)]
fn scatter_plain(seed: &Seed, out: &mut Scatter<Row>, keys: &[u64], values: &[i64]) {
    let mut hashes = [0; BLOCK_ROWS];
    for (keys, values) in keys.chunks(BLOCK_ROWS).zip(values.chunks(BLOCK_ROWS)) {
        let hashes = &mut hashes[..keys.len()];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.hash(seed, 0);
        }
        let rows = keys.iter().zip(values).map(|(key, value)| Row { key: *key, value: *value });
        out.extend(hashes.iter().copied().zip(rows));
    }
}

impl std::fmt::Debug for CountSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_partitioned = self.partitions.is_some();
        f.debug_struct("CountSum")
            .field("is_partitioned", &is_partitioned)
            .field("bytes", &self.bytes())
            .finish()
    }
}
