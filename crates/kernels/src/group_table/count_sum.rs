//! `select key, count(*), sum(value) group by key`, fused: the states lie in the slots of the table.
//!
//! One slot is key, count and exact sum: 32 bytes, half a cache line, one miss a row. That serves up to some
//! hundred thousand groups, and more when few keys are frequent. When nearly every row brings a new group, a
//! growing table costs a miss to memory a row; then rows are scattered by the high bits of their hash
//! ([`Scatter`]) and each partition is grouped in a table that fits the L2 cache. The table decides when it
//! has to grow: it watches how many rows there were for each new group since it grew last.
//!
//! Against hashbrown + foldhash (16M rows, one core, growth and final scan included): suite `group`.

use crate::Level;
use crate::group_table::partition::Scatter;
use crate::group_table::{BLOCK_ROWS, Slot, Slots};
use crate::hash::{Key, Seed};
use crate::region::Zero;

/// From here on a table is worth giving up.
const PARTITION_GROUPS_MIN: usize = 1 << 17;
/// Fewer rows than this for each new group: rows do not group well.
const ROWS_PER_NEW_GROUP: usize = 3;
/// 2^10 tables of 10,000 groups are 10M groups in L2; more partitions outrun the L1 cache when scattering.
const PARTITION_BITS: u32 = 10;
/// Buffered rows of a partition, before they are grouped at once: enough for its table to come into cache.
const BUFFERED_ROWS_MIN: usize = 1 << 15;

/// Groups of `u64` keys with count and sum of `i64` values.
pub struct CountSum {
    seed: Seed,
    slots: Slots<CountSumGroup>,
    /// Rows and groups when the table grew last.
    rows_before: u64,
    groups_before: usize,
    rows: u64,
    partitions: Option<Box<Partitions>>,
}

/// Rows by the highest bits of their hash, and the groups of those partitions that had too many rows to wait.
struct Partitions {
    rows: Scatter<Row>,
    groups: Vec<Option<Slots<CountSumGroup>>>,
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

// SAFETY: integers without padding.
unsafe impl Zero for CountSumGroup {}

impl Slot for CountSumGroup {
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

impl CountSum {
    /// Count of partitions in [`CountSum::merge_partition`].
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
            self.slots.taken().for_each(|group| each(*group));
        } else {
            let mut expected = 0;
            for partition in 0..Self::PARTITIONS {
                let groups = merged(level, &[self], partition, expected);
                expected = groups.len();
                groups.taken().for_each(|group| each(*group));
            }
        }
    }

    /// The groups of one partition of the hash space, merged from the tables of several threads: different
    /// partitions have different groups, so each can be merged by another thread.
    ///
    /// # Panics
    /// When the tables have different seeds or `partition` is not below [`CountSum::PARTITIONS`].
    #[must_use]
    pub fn merge_partition(level: Level, tables: &[&Self], partition: usize) -> Vec<CountSumGroup> {
        assert!(partition < Self::PARTITIONS, "there is no partition {partition}");
        merged(level, tables, partition, 0).taken().copied().collect()
    }
}

fn merged(level: Level, tables: &[&CountSum], partition: usize, expected: usize) -> Slots<CountSumGroup> {
    // Hashes spread keys evenly: the partition before tells how large this one will be.
    let mut merged = Slots::for_len(expected + expected / 8, PARTITION_BITS);
    for table in tables {
        assert!(table.seed == tables[0].seed, "tables that are merged have one seed");
        let early = || table.slots.partition(partition, PARTITION_BITS, &table.seed);
        merged.reserve(early().count(), &table.seed);
        early().for_each(|group| add_group(&table.seed, &mut merged, group));
        let Some(partitions) = &table.partitions else { continue };
        if let Some(groups) = &partitions.groups[partition] {
            merged.reserve(groups.len(), &table.seed);
            groups.taken().for_each(|group| add_group(&table.seed, &mut merged, group));
        }
        partitions.rows.each_run(partition, |rows| add_run(level, &table.seed, &mut merged, rows));
    }
    merged
}

fn add_group(seed: &Seed, slots: &mut Slots<CountSumGroup>, group: &CountSumGroup) {
    while slots.is_full() {
        slots.grow(seed);
    }
    let mut probe = slots.probe_mut();
    let slot = probe.slot_mut(group.hash(seed), |slot| slot.key ^ group.key);
    let is_new = slot.is_free();
    *slot = CountSumGroup { key: group.key, count: slot.count + group.count, sum: slot.sum + group.sum };
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
    fn add_rows(seed: &Seed, slots: &mut Slots<CountSumGroup>, keys: &[u64], values: &[i64]) -> usize
        = add_rows_plain;
}

#[inline(always)]
fn add_rows_plain(seed: &Seed, slots: &mut Slots<CountSumGroup>, keys: &[u64], values: &[i64]) -> usize {
    let mut hashes = [0; BLOCK_ROWS];
    let mut done = 0;
    for (keys, values) in keys.chunks(BLOCK_ROWS).zip(values.chunks(BLOCK_ROWS)) {
        if slots.is_full() {
            break;
        }
        let hashes = &mut hashes[..keys.len()];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.hash(seed, 0);
        }
        add_block(slots, hashes, keys.iter().copied().zip(values.iter().copied()));
        done += keys.len();
    }
    done
}

kernel! {
    fn add_run(seed: &Seed, slots: &mut Slots<CountSumGroup>, rows: &[Row]) = add_run_plain;
}

#[inline(always)]
fn add_run_plain(seed: &Seed, slots: &mut Slots<CountSumGroup>, rows: &[Row]) {
    let mut hashes = [0; BLOCK_ROWS];
    for rows in rows.chunks(BLOCK_ROWS) {
        while slots.is_full() {
            slots.grow(seed);
        }
        let hashes = &mut hashes[..rows.len()];
        for (hash, row) in hashes.iter_mut().zip(rows) {
            *hash = row.key.hash(seed, 0);
        }
        add_block(slots, hashes, rows.iter().map(|row| (row.key, row.value)));
    }
}

#[inline(always)]
fn add_block(slots: &mut Slots<CountSumGroup>, hashes: &[u64], rows: impl Iterator<Item = (u64, i64)>) {
    let mut len = slots.len();
    let mut probe = slots.probe_mut();
    probe.prefetch(hashes);
    for (hash, (key, value)) in hashes.iter().zip(rows) {
        let slot = probe.slot_mut(*hash, |slot| slot.key ^ key);
        len += usize::from(slot.is_free());
        slot.key = key;
        slot.count += 1;
        slot.sum += i128::from(value);
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
