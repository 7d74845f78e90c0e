//! `select key, count(*), sum(value) group by key`, fused: the aggregate states are in the slots of the
//! table.
//!
//! A slot holds key, count and exact sum: 32 bytes, half a cache line, one miss a row. That is good up to
//! some hundred thousand groups, and for more when few keys are frequent. When nearly every row has a new
//! key, a growing table costs a miss to memory a row; then rows are scattered by the high bits of their hash
//! ([`Scatter`]) and each partition is grouped in a table that fits the L2 cache. The table decides this when
//! it has to grow, from the rows per new group since it last grew. All partitions use the same table, one
//! after the other, which stays in the L2 cache.
//!
//! Against hashbrown + foldhash (16M rows from memory, one core, growth and final scan included; suite
//! `group`), ns a row: 1.4 and 2.3 at 1e3 groups, 3.1 and 4.4 at 1e5, 7.6 and 30 at 1e6, 10 and 75 at 1e7.

mod groups;

use std::ops::Range;

pub use groups::CountSumGroup;
pub(super) use groups::{Groups, LOW_BITS, LOW_MASK, Row, State, add_rows_by, add_run_by};
use groups::{LINE_WORDS, Rows, add_rows, add_run};

use crate::Level;
use crate::group_table::BLOCK_ROWS;
use crate::group_table::partition::{Line, Scatter, Stream, fence};
#[cfg(target_arch = "x86_64")]
use crate::group_table::x86;
use crate::hash::{Key, Seed};

/// From this many groups on, a table may be replaced by partitions.
const PARTITION_GROUPS_MIN: usize = 1 << 17;
/// With fewer rows than this for each new group, rows do not group well.
const ROWS_PER_NEW_GROUP: usize = 3;
/// 2^10 tables of 10,000 groups are 10M groups, each table in L2; scattering to more partitions would exceed
/// the L1 cache.
const PARTITION_BITS: u32 = 10;
/// Rows that a partition buffers before they are grouped together: enough to justify loading its table into
/// the cache.
const BUFFERED_ROWS_MIN: usize = 1 << 15;

/// Groups of `u64` keys with count and sum of `i64` values.
pub struct CountSum {
    seed: Seed,
    groups: Groups,
    /// Rows and groups when the table last grew.
    rows_before: u64,
    groups_before: usize,
    rows: u64,
    partitions: Option<Box<Partitions>>,
}

/// Rows by the highest bits of their hash, and the groups of partitions that had too many rows to buffer.
struct Partitions {
    rows: Scatter<Row>,
    groups: Vec<Option<Groups>>,
}

impl CountSum {
    /// Count of partitions in [`CountSum::for_each_merged`].
    pub const PARTITIONS: usize = 1 << PARTITION_BITS;

    /// No groups.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { seed, groups: Groups::new(0), rows_before: 0, groups_before: 0, rows: 0, partitions: None }
    }

    /// Adds rows.
    ///
    /// # Panics
    /// When `keys` and `values` differ in length, or a group has more than 2^39 rows; the table is not to be
    /// used after that.
    pub fn add(&mut self, level: Level, keys: &[u64], values: &[i64]) {
        assert_eq!(keys.len(), values.len(), "a value a key");
        let mut done = 0;
        while done < keys.len() && self.partitions.is_none() {
            let (keys, values) = (&keys[done..], &values[done..]);
            let added = add_rows(level, &self.seed, &mut self.groups, keys, values);
            done += added;
            self.rows += added as u64;
            if self.groups.slots.is_full() {
                self.grow_or_partition();
            }
        }
        if let Some(partitions) = &mut self.partitions {
            partitions.add(level, &self.seed, &keys[done..], &values[done..]);
        }
    }

    fn grow_or_partition(&mut self) {
        let slots = &mut self.groups.slots;
        let new_groups = slots.len() - self.groups_before;
        let new_rows = self.rows - self.rows_before;
        if slots.len() >= PARTITION_GROUPS_MIN && new_rows < (ROWS_PER_NEW_GROUP * new_groups) as u64 {
            self.partitions = Some(Box::new(Partitions {
                rows: Scatter::new(PARTITION_BITS),
                groups: (0..Self::PARTITIONS).map(|_| None).collect(),
            }));
        } else {
            slots.grow(&self.seed);
            (self.rows_before, self.groups_before) = (self.rows, slots.len());
        }
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.groups.slots.bytes() + self.partitions.as_ref().map_or(0, |partitions| partitions.bytes())
    }

    /// Calls `each` once for every group, in no order.
    pub fn for_each(&self, level: Level, mut each: impl FnMut(CountSumGroup)) {
        if self.partitions.is_none() {
            self.groups.slots.for_each(|state| each(state.group()));
        } else {
            Self::for_each_merged(level, &[self], 0..Self::PARTITIONS, each);
        }
    }

    /// Calls `each` once for every group of some partitions of the hash space, merged from the tables of
    /// several threads. Partitions have no groups in common, so several threads can merge different
    /// partitions.
    ///
    /// # Panics
    /// When the tables have different seeds, a partition is not below [`CountSum::PARTITIONS`], or a group
    /// has more than 2^39 rows.
    pub fn for_each_merged(
        level: Level,
        tables: &[&Self],
        partitions: Range<usize>,
        mut each: impl FnMut(CountSumGroup),
    ) {
        assert!(partitions.end <= Self::PARTITIONS, "there are {} partitions", Self::PARTITIONS);
        // One table is used for all partitions: its memory stays in the cache. Hashes spread keys evenly, so
        // the previous partition tells how large the next one will be.
        let mut merged = Groups::new(PARTITION_BITS);
        for partition in partitions {
            let len = merged.slots.len();
            merged.clear_for(len + len / 8);
            for table in tables {
                assert!(table.seed == tables[0].seed, "tables that are merged have one seed");
                table.merge_into(level, partition, &mut merged);
            }
            merged.slots.for_each(|state| each(state.group()));
        }
    }

    fn merge_into(&self, level: Level, partition: usize, merged: &mut Groups) {
        let early = || self.groups.slots.partition(partition, PARTITION_BITS, &self.seed);
        merged.slots.reserve(early().count(), &self.seed);
        early().for_each(|state| merged.add_state(&self.seed, state));
        let Some(partitions) = &self.partitions else { return };
        if let Some(groups) = &partitions.groups[partition] {
            merged.slots.reserve(groups.slots.len(), &self.seed);
            groups.slots.for_each(|state| merged.add_state(&self.seed, state));
        }
        partitions.rows.each_run(partition, |rows, next| add_run(level, &self.seed, merged, rows, next));
    }
}

impl Partitions {
    fn add(&mut self, level: Level, seed: &Seed, keys: &[u64], values: &[i64]) {
        // In pieces, so that no partition exceeds its limit by much.
        const PIECE_ROWS: usize = 1 << 16;
        for (keys, values) in keys.chunks(PIECE_ROWS).zip(values.chunks(PIECE_ROWS)) {
            scatter(level, seed, &mut self.rows, keys, values);
            for partition in 0..CountSum::PARTITIONS {
                let groups = self.groups[partition].as_ref().map_or(0, |groups| groups.slots.len());
                // At least twice as many rows as groups, to justify loading the table again.
                if self.rows.len(partition) >= BUFFERED_ROWS_MIN.max(2 * groups) {
                    let groups = self.groups[partition].get_or_insert_with(|| Groups::new(PARTITION_BITS));
                    self.rows.each_run(partition, |rows, next| add_run(level, seed, groups, rows, next));
                    self.rows.clear(partition);
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.groups.iter().flatten().map(|groups| groups.slots.bytes()).sum::<usize>()
    }
}

kernel! {
    fn scatter(seed: &Seed, out: &mut Scatter<Row>, keys: &[u64], values: &[i64])
        = scatter_plain, avx512 = x86::scatter;
}

#[inline(always)]
fn scatter_plain(seed: &Seed, out: &mut Scatter<Row>, keys: &[u64], values: &[i64]) {
    // SAFETY: `stream_to` writes the whole line.
    unsafe { scatter_by(seed, out, keys, values, Line::stream_to) };
}

/// # Safety
/// `stream` must write the whole line.
#[inline(always)]
pub(super) unsafe fn scatter_by(
    seed: &Seed,
    out: &mut Scatter<Row>,
    keys: &[u64],
    values: &[i64],
    stream: impl Stream<Row>,
) {
    let mut hashes = [0; BLOCK_ROWS];
    for (keys, values) in keys.chunks(BLOCK_ROWS).zip(values.chunks(BLOCK_ROWS)) {
        let hashes = &mut hashes[..keys.len()];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.hash(seed, 0);
        }
        for start in (0..keys.len()).step_by(LINE_WORDS) {
            let end = keys.len().min(start + LINE_WORDS);
            let (keys, values) = (&keys[start..end], &values[start..end]);
            (keys, values).prefetch();
            let rows = keys.iter().zip(values).map(|(key, value)| Row { key: *key, value: *value });
            // SAFETY: the callers' streams write whole lines.
            unsafe { out.extend(hashes[start..end].iter().copied().zip(rows), &stream) };
        }
    }
    fence();
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
