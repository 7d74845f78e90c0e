//! Group numbers of fixed-width keys.
//!
//! The rows of a block first look only at their home slots, without a branch: most keys are there. Only the
//! others search, and new keys get their numbers then, in the order of rows. Keys are prefetched 8 KiB ahead,
//! a line at a time. Against hashbrown + foldhash (16-byte keys, ns a row): 2.8 and 2.3 at 1e3 groups, 5.1
//! and 4.8 at 1e5, 22 and 30 at 1e6, 58 and 36 at 1e7, where [`partition_rows`](super::partition_rows) should
//! come first; 3.7 at 1e3 before keys were prefetched.

use crate::group_table::slots::Probe;
use crate::group_table::{BLOCK_ROWS, NO_GROUP, Slot, Slots, Ticket};
use crate::hash::{Key, Seed};
use crate::region::{LINE_BYTES, prefetch_ptr};
use crate::{Bits, Level};

/// The prefetch distance in the keys.
const AHEAD_BYTES: usize = 8 << 10;
/// Keys of groups that take no more bytes are in the near caches.
const NEAR_BYTES: usize = 256 << 10;

/// Maps keys to group numbers `0, 1, 2 ...`, in order of first occurrence.
///
/// ```
/// use keirin_kernels::{Level, group_table::GroupTable, hash::Seed};
///
/// let mut table = GroupTable::new(Seed::random());
/// let mut groups = [0; 5];
/// table.find_or_insert(Level::best(), &[7_u64, 9, 7, 8, 9], None, &mut groups);
/// assert_eq!(groups, [0, 1, 0, 2, 1]);
/// assert_eq!(table.keys(), [7, 9, 8]);
/// ```
pub struct GroupTable<K: Key> {
    seed: Seed,
    slots: Slots<Ticket>,
    keys: Vec<K>,
    /// The group of rows without a value; its entry in `keys` is zero, and it has no slot.
    null_group: Option<u32>,
}

impl<K: Key> GroupTable<K> {
    /// An empty table.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { seed, slots: Slots::new(0), keys: Vec::new(), null_group: None }
    }

    /// An empty table for keys of one of the 2^`bits` partitions of the hash space: from
    /// [`partition_rows`](super::partition_rows) with this seed. In a table from [`GroupTable::new`] they would
    /// crowd in one range, as slots are in the order of hashes.
    ///
    /// # Panics
    /// When `bits` is above 16.
    #[must_use]
    pub fn for_partition(seed: Seed, bits: u32) -> Self {
        assert!(bits <= 16, "2^{bits} partitions");
        Self { slots: Slots::new(bits), ..Self::new(seed) }
    }

    /// Count of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of each group, in the order of group numbers; zero for the group of NULLs.
    #[must_use]
    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Takes [`Self::keys`]: the table has no groups then, and memory for new ones.
    #[must_use]
    pub fn take_keys(&mut self) -> Vec<K> {
        self.slots.clear();
        self.null_group = None;
        std::mem::take(&mut self.keys)
    }

    /// The group of rows without a value, if there is one.
    #[must_use]
    pub fn null_group(&self) -> Option<u32> {
        self.null_group
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.keys.capacity() * size_of::<K>()
    }

    /// Writes the group of each row; new keys get new groups. All NULLs are one group.
    ///
    /// # Panics
    /// When lengths differ, or there are more than 2^32 - 2 groups.
    pub fn find_or_insert(
        &mut self,
        level: Level,
        keys: &[K],
        validity: Option<Bits<'_>>,
        groups: &mut [u32],
    ) {
        assert_eq!(keys.len(), groups.len(), "a group a key");
        match validity {
            None => insert(level, self, keys, groups),
            Some(validity) => {
                let (valid_keys, rows) = valid_rows(level, keys, validity);
                let mut valid_groups = vec![0; rows.len()];
                // The group of NULLs is numbered in row order, too: after the keys before the first NULL,
                // before the others.
                let is_here = |(place, row): (usize, &u32)| place == *row as usize;
                let in_front = rows.iter().enumerate().take_while(|pair| is_here(*pair)).count();
                insert(level, self, &valid_keys[..in_front], &mut valid_groups[..in_front]);
                if rows.len() < keys.len() {
                    let null_group = *self.null_group.get_or_insert_with(|| {
                        self.keys.push(K::default());
                        (self.keys.len() - 1) as u32
                    });
                    groups.fill(null_group);
                }
                insert(level, self, &valid_keys[in_front..], &mut valid_groups[in_front..]);
                for (row, group) in rows.iter().zip(valid_groups) {
                    groups[*row as usize] = group;
                }
            }
        }
    }

    /// Writes the group of each row, [`NO_GROUP`] for keys that are not in the table. NULLs are found if the
    /// table has a group of NULLs; a join, where NULLs match nothing, does not insert them.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn find(&self, level: Level, keys: &[K], validity: Option<Bits<'_>>, groups: &mut [u32]) {
        assert_eq!(keys.len(), groups.len(), "a group a key");
        find(level, self, keys, groups);
        if let Some(validity) = validity {
            assert_eq!(validity.len(), keys.len(), "a bit a key");
            for (row, group) in groups.iter_mut().enumerate() {
                if !validity.get(row) {
                    *group = self.null_group.unwrap_or(NO_GROUP);
                }
            }
        }
    }
}

impl<K: Key> std::fmt::Debug for GroupTable<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupTable").field("groups", &self.len()).field("bytes", &self.bytes()).finish()
    }
}

/// The valid keys without gaps, and their rows.
fn valid_rows<K: Key>(level: Level, keys: &[K], validity: Bits<'_>) -> (Vec<K>, Vec<u32>) {
    assert_eq!(validity.len(), keys.len(), "a bit a key");
    let rows = crate::bitmaps::positions(level, validity);
    (rows.iter().map(|row| keys[*row as usize]).collect(), rows)
}

/// Writes the groups of the rows whose key's home slot is its own, and lists the other rows and, with `LIST_NEW`, those
/// with a new key: most rows are done then without a branch. `found` are the keys of the groups.
///
/// Keys of groups are prefetched while the other home slots are read: a row waits twice, but all rows of a block
/// wait together.
#[inline(always)]
fn find_at_home<K: Key, const LIST_NEW: bool>(
    probe: &Probe<&[Ticket]>,
    found: &[K],
    keys: &[K],
    hashes: &[u64],
    groups: &mut [u32],
    others: &mut [u32; BLOCK_ROWS],
) -> usize {
    let line_rows = const { LINE_BYTES / size_of::<K>() };
    let is_far = size_of_val(found) > NEAR_BYTES;
    let lines = keys.chunks(line_rows).zip(hashes.chunks(line_rows)).zip(groups.chunks_mut(line_rows));
    for ((keys, hashes), groups) in lines {
        // The CPU's own prefetching ends at each page; all lines of a block at once would wait for each other.
        prefetch_ptr(keys.as_ptr().wrapping_byte_add(AHEAD_BYTES));
        for (hash, group) in hashes.iter().zip(groups) {
            *group = probe.home_slot(*hash).group();
            if is_far {
                prefetch_ptr(found.as_ptr().wrapping_add(*group as usize));
            }
        }
    }
    let Some(last) = found.len().checked_sub(1) else {
        (0..).zip(&mut *others).for_each(|(row, other)| *other = row);
        return if LIST_NEW { keys.len() } else { 0 };
    };
    let mut other_count = 0;
    for (row, (key, group)) in (0..).zip(keys.iter().zip(groups)) {
        others[other_count % BLOCK_ROWS] = row;
        // A free slot has the largest number.
        let is_other = found[(*group as usize).min(last)].difference(*key) != 0;
        let is_free = *group == NO_GROUP;
        other_count += usize::from(if LIST_NEW { is_other | is_free } else { is_other & !is_free });
    }
    other_count
}

#[inline(always)]
fn hash_block<'a, K: Key>(seed: &Seed, keys: &[K], hashes: &'a mut [u64; BLOCK_ROWS]) -> &'a [u64] {
    let hashes = &mut hashes[..keys.len()];
    hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = key.hash(seed, 0));
    hashes
}

/// Zero for the ticket of the group with this key.
#[inline(always)]
fn difference<K: Key>(ticket: Ticket, keys: &[K], key: K, tag: u32) -> u64 {
    if !ticket.may_have(tag) {
        return 1;
    }
    keys.get(ticket.group() as usize).map_or(0, |found| found.difference(key))
}

kernel! {
    fn insert[K: Key][K](table: &mut GroupTable<K>, keys: &[K], groups: &mut [u32]) = insert_plain;
}

#[inline(always)]
fn insert_plain<K: Key>(table: &mut GroupTable<K>, keys: &[K], groups: &mut [u32]) {
    let (mut hashes, mut others) = ([0; BLOCK_ROWS], [0; BLOCK_ROWS]);
    for (keys, groups) in keys.chunks(BLOCK_ROWS).zip(groups.chunks_mut(BLOCK_ROWS)) {
        while table.slots.is_full() {
            table.slots.grow_tickets();
        }
        assert!(table.keys.len() < (NO_GROUP as usize - 1) - BLOCK_ROWS, "group numbers have 32 bits");
        let hashes = hash_block(&table.seed, keys, &mut hashes);
        let probe = table.slots.probe();
        probe.prefetch(hashes);
        let other_count = find_at_home::<_, true>(&probe, &table.keys, keys, hashes, groups, &mut others);
        let known = table.keys.len();
        let mut taken = table.slots.len();
        let mut probe = table.slots.probe_mut();
        // Each row writes its key behind the groups so far; a key that is new stays there.
        table.keys.resize(known + other_count + 1, K::default());
        let found = &mut table.keys[..];
        let mut next = 0;
        for row in &others[..other_count] {
            let row = *row as usize;
            let (key, hash) = (keys[row], hashes[row]);
            let tag = probe.tag(hash);
            let ticket = probe.slot_mut(hash, |ticket| difference(*ticket, found, key, tag));
            let is_new = ticket.is_free();
            let group = if is_new { (known + next) as u32 } else { ticket.group() };
            *ticket = Ticket::new(tag, group);
            found[known + next] = key;
            next += usize::from(is_new);
            taken += usize::from(is_new);
            groups[row] = group;
        }
        table.keys.truncate(known + next);
        table.slots.set_len(taken);
    }
}

kernel! {
    fn find[K: Key][K](table: &GroupTable<K>, keys: &[K], groups: &mut [u32]) = find_plain;
}

#[inline(always)]
fn find_plain<K: Key>(table: &GroupTable<K>, keys: &[K], groups: &mut [u32]) {
    let (mut hashes, mut others) = ([0; BLOCK_ROWS], [0; BLOCK_ROWS]);
    let probe = table.slots.probe();
    for (keys, groups) in keys.chunks(BLOCK_ROWS).zip(groups.chunks_mut(BLOCK_ROWS)) {
        let hashes = hash_block(&table.seed, keys, &mut hashes);
        probe.prefetch(hashes);
        let other_count = find_at_home::<_, false>(&probe, &table.keys, keys, hashes, groups, &mut others);
        for row in &others[..other_count] {
            let row = *row as usize;
            let (key, hash) = (keys[row], hashes[row]);
            let tag = probe.tag(hash);
            groups[row] = probe.slot(hash, |ticket| difference(*ticket, &table.keys, key, tag)).group();
        }
    }
}
