//! The rows of the build side of an equi-join by their keys.
//!
//! The plain version is a hash map from key to the rows that have it. Departures:
//! 1. Rows are numbered from one, and zero is none. A slot names the last row that came into it, and each row the one
//!    that was there before ([`JoinTable::pairs`] follows these chains): beside its key a row
//!    costs 8 bytes and its share of the range, or 20 to 36 bytes where keys are hashed. Where many rows of a slot are far
//!    from each other, they are put side by side instead (`runs.rs`).
//! 2. Several threads insert rows at the same time, each an exchange of one word (Leis et al., "Morsel-Driven
//!    Parallelism", SIGMOD 2014).
//! 3. Integers of a range that is not very much larger than the count of rows have a bit for each number of the range, and
//!    slots for those numbers that are there: the slot is the count of bits before, which is known for each word of
//!    them. No hash and no key is looked at, and keys that come in about their order find their slots in the
//!    caches. A slot for each number instead would take 24 MB of zeros for a range of six million, however few of
//!    them are there; the bits and counts take 1 MB.
//! 4. Elsewhere the upper half of a slot has a bit for each key in its chain, by other bits of the hash. A key that
//!    is not there is mostly known to be absent from the slot alone.
//! 5. Slots, then keys of a block of rows are prefetched together: misses overlap.

#![allow(
    clippy::cast_possible_truncation,
    reason = "hashes and slots are cut; row numbers have 32 bits by assertion"
)]

mod key_set;
mod runs;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub use self::key_set::KeySet;
use crate::hash::{Key, Seed};
use crate::region::{Region, prefetch_ptr};
use crate::{BitBuffer, Bits, Level};

/// Rows whose slots and keys are prefetched together.
const BLOCK_ROWS: usize = 256;
/// Smaller tables are in the near caches, where prefetching only costs time.
const PREFETCH_BYTES: usize = 256 << 10;
const SLOTS_PER_ROW: usize = 2;
const SLOTS_MIN: usize = 64;

/// See the [module](self).
///
/// ```
/// use keirin_kernels::Level;
/// use keirin_kernels::hash::Seed;
/// use keirin_kernels::join_table::{JoinCursor, JoinTable};
///
/// let table = JoinTable::hashed(Seed::random(), vec![7_u64, 9, 7], None);
/// table.insert(Level::best(), 0..3, true);
/// let (probe, mut found) = ([9, 8, 7], vec![0; 3]);
/// table.find(Level::best(), &probe, None, &mut found);
/// let (mut probe_rows, mut build_rows) = (Vec::new(), Vec::new());
/// table.pairs(&probe, &found, &mut JoinCursor::default(), 100, &mut probe_rows, &mut build_rows);
/// assert_eq!((probe_rows, build_rows), (vec![0, 2, 2], vec![1, 0, 2]));
/// ```
pub struct JoinTable<K: Key> {
    keys: Vec<K>,
    /// Rows without a bit match nothing.
    validity: Option<BitBuffer>,
    index: Index<K>,
    links: Links,
    /// Whether a key has two rows.
    has_twins: AtomicBool,
    /// Count of rows in whose slots was another one before, unless that is the next row.
    far_links: AtomicUsize,
}

/// How the rows of a slot follow on each other.
enum Links {
    /// For each row the number of the one that was in its slot before.
    Chains(Region<AtomicU32>),
    /// They are side by side: a bit for the last of each slot.
    Runs(Region<AtomicU64>),
}

impl Links {
    /// The number of the next row in the same slot; zero if there is none.
    #[inline(always)]
    fn next(&self, number: u32) -> u32 {
        let place = number as usize - 1;
        match self {
            Self::Chains(next) => next[place].load(Ordering::Relaxed),
            Self::Runs(lasts) => {
                let is_last = lasts[place / 64].load(Ordering::Relaxed) >> (place % 64) & 1;
                (number + 1) & (is_last as u32).wrapping_sub(1)
            }
        }
    }
}

enum Index<K> {
    Range(RangeIndex<K>),
    /// The slot is the highest bits of the hash.
    Hashed {
        seed: Seed,
        slots: Region<AtomicU64>,
        shift: u32,
    },
}

/// The slots of the keys of a range.
struct RangeIndex<K> {
    first: K,
    /// A bit for each key from `first` on, and one behind the last that is never set.
    bits: Arc<Region<AtomicU64>>,
    range: usize,
    /// For each word the count of bits before.
    ranks: Vec<u32>,
    /// For each key that is there, and a free one behind the last.
    heads: Region<AtomicU32>,
}

impl<K: Key> RangeIndex<K> {
    /// The place of the key's bit; the last one for keys that are not in the range.
    #[inline(always)]
    fn place(&self, key: K) -> u64 {
        key.place(self.first).min(self.range as u64)
    }

    /// The place of a key's slot, and one if the key is there.
    #[inline(always)]
    fn slot(&self, key: K) -> (usize, u32) {
        let place = self.place(key);
        let index = place as usize / 64;
        let word = self.bits[index].load(Ordering::Relaxed);
        let before = word & ((1 << (place % 64)) - 1);
        let slot = self.ranks[index] as usize + before.count_ones() as usize;
        (slot, (word >> (place % 64) & 1) as u32)
    }
}

/// The position in the pairs of a batch of probe rows: start with the default, and continue until
/// [`JoinTable::pairs`] returns that there are no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinCursor {
    /// The probe row whose pairs come next; those of rows before were given.
    pub probe_row: usize,
    /// The number of its next build row, if some were given already.
    next: Option<u32>,
}

impl<K: Key> JoinTable<K> {
    /// A table of rows with these keys, of which none is inserted yet; rows without a value match nothing.
    ///
    /// # Panics
    /// When there are 2^32 - 1 rows or more, or lengths differ.
    #[must_use]
    pub fn hashed(seed: Seed, keys: Vec<K>, validity: Option<BitBuffer>) -> Self {
        let slot_count = Self::slot_count(keys.len());
        let shift = u64::BITS - slot_count.ilog2();
        Self::new(
            keys,
            validity,
            Index::Hashed { seed, slots: Region::<AtomicU64>::zeroed_words(slot_count), shift },
        )
    }

    /// The same for keys of which all that are valid are the `range` keys from `first` on: they begin with the least as
    /// whoever made them compares numbers, and go on with the one that is greater by one.
    ///
    /// # Panics
    /// As [`hashed`](Self::hashed).
    #[must_use]
    pub fn of_range(first: K, range: usize, keys: Vec<K>, validity: Option<BitBuffer>) -> Self {
        let bits = Arc::new(Region::<AtomicU64>::zeroed_words(range / 64 + 1));
        let heads = Region::<AtomicU32>::zeroed_words(1);
        Self::new(keys, validity, Index::Range(RangeIndex { first, bits, range, ranks: Vec::new(), heads }))
    }

    fn new(keys: Vec<K>, validity: Option<BitBuffer>, index: Index<K>) -> Self {
        assert!(keys.len() < u32::MAX as usize, "row numbers have 32 bits");
        assert!(validity.as_ref().is_none_or(|validity| validity.len() == keys.len()), "a bit a key");
        let links = Links::Chains(Region::<AtomicU32>::zeroed_words(keys.len().max(1)));
        let (has_twins, far_links) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { keys, validity, index, links, has_twins, far_links }
    }

    fn slot_count(row_count: usize) -> usize {
        (row_count * SLOTS_PER_ROW).next_power_of_two().max(SLOTS_MIN)
    }

    /// The memory that a hashed table of so many rows takes beside their keys, in bytes.
    #[must_use]
    pub fn hashed_bytes(row_count: usize) -> usize {
        Self::slot_count(row_count) * size_of::<u64>() + row_count * size_of::<u32>()
    }

    /// The same for a table of a range.
    #[must_use]
    pub fn range_bytes(range: usize, row_count: usize) -> usize {
        (range / 64 + 1) * (size_of::<u64>() + size_of::<u32>()) + 2 * (row_count + 1) * size_of::<u32>()
    }

    /// Count of build rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no build rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether no key has two rows.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        !self.has_twins.load(Ordering::Relaxed)
    }

    /// Notes which keys these rows have, where that has to be known before any is inserted. Threads may do that for
    /// other rows at the same time.
    ///
    /// # Panics
    /// When there are no such rows, or a key is outside of the promised range.
    pub fn note(&self, rows: Range<usize>) {
        let Index::Range(index) = &self.index else { return };
        let mut words = (usize::MAX, 0);
        let note = |(place, bits): (usize, u64)| {
            if bits != 0 {
                index.bits[place].fetch_or(bits, Ordering::Relaxed);
            }
        };
        for row in rows.filter(|row| self.is_valid(*row)) {
            let place = self.keys[row].place(index.first);
            assert!(place < index.range as u64, "a key of the range");
            // Keys that come in about their order share words.
            if place as usize / 64 != words.0 {
                note(words);
                words = (place as usize / 64, 0);
            }
            words.1 |= 1 << (place % 64);
        }
        note(words);
    }

    /// Makes slots, when all rows were noted.
    pub fn make_slots(&mut self) {
        let Index::Range(index) = &mut self.index else { return };
        let mut count = 0;
        let ranks = index.bits.iter().map(|word| {
            let before = count;
            count += word.load(Ordering::Relaxed).count_ones();
            before
        });
        index.ranks = ranks.collect();
        index.heads = Region::<AtomicU32>::zeroed_words(count as usize + 1);
    }

    #[inline(always)]
    fn is_valid(&self, row: usize) -> bool {
        self.validity.as_ref().is_none_or(|validity| validity.as_bits().get(row))
    }

    /// Inserts these rows, which nobody inserted, when there are slots; threads may do that for other rows at the same time, unless one
    /// `is_alone`. Who looks for keys must come after.
    ///
    /// # Panics
    /// When there are no such rows, or a key is outside of the promised range.
    pub fn insert(&self, level: Level, rows: Range<usize>, is_alone: bool) {
        assert!(rows.start <= rows.end && rows.end <= self.keys.len(), "rows of the table");
        if is_alone { insert::<K, true>(level, self, rows) } else { insert::<K, false>(level, self, rows) }
    }

    /// Writes for each key the number of a build row with it, zero if there is none.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn find(&self, level: Level, keys: &[K], validity: Option<Bits<'_>>, found: &mut [u32]) {
        assert_eq!(keys.len(), found.len(), "a row a key");
        find(level, self, keys, found);
        if let Some(validity) = validity {
            assert_eq!(validity.len(), keys.len(), "a bit a key");
            for (found, valid) in found.chunks_mut(64).zip(validity.words()) {
                for (row, found) in found.iter_mut().enumerate() {
                    *found &= ((valid >> row & 1) as u32).wrapping_neg();
                }
            }
        }
    }

    /// The number of the next row behind the one of this number, which has this key; zero if there is none.
    ///
    /// # Panics
    /// When there is no row of this number.
    #[must_use]
    #[inline]
    pub fn next(&self, number: u32, key: K) -> u32 {
        let mut number = self.links.next(number);
        if let Index::Hashed { .. } = self.index {
            while number != 0 && self.keys[number as usize - 1].difference(key) != 0 {
                number = self.links.next(number);
            }
        }
        number
    }

    /// Appends pairs of places (probe row, build row) of a batch with these keys, of which [`find`](Self::find) has found
    /// such rows, in the order of probe rows, until the vectors have `pair_count_max` of them or there are no
    /// more. Returns whether there are more: then call again with the same cursor, after making room in the vectors.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn pairs(
        &self,
        keys: &[K],
        found: &[u32],
        cursor: &mut JoinCursor,
        pair_count_max: usize,
        probe_rows: &mut Vec<u32>,
        build_rows: &mut Vec<u32>,
    ) -> bool {
        assert_eq!(keys.len(), found.len(), "a row a key");
        assert_eq!(probe_rows.len(), build_rows.len(), "pairs have two rows");
        assert!(u32::try_from(keys.len()).is_ok(), "row numbers have 32 bits");
        if self.is_unique() {
            let room = pair_count_max.saturating_sub(probe_rows.len());
            let rows = cursor.probe_row..keys.len().min(cursor.probe_row.saturating_add(room));
            unique_pairs(&found[rows.clone()], cursor.probe_row as u32, probe_rows, build_rows);
            cursor.probe_row = rows.end;
            return cursor.probe_row < keys.len();
        }
        while let Some(first) = found.get(cursor.probe_row) {
            let key = keys[cursor.probe_row];
            let mut number = cursor.next.take().unwrap_or(*first);
            while number != 0 {
                if probe_rows.len() >= pair_count_max {
                    cursor.next = Some(number);
                    return true;
                }
                probe_rows.push(cursor.probe_row as u32);
                build_rows.push(number - 1);
                number = self.next(number, key);
            }
            cursor.probe_row += 1;
        }
        false
    }
}

impl<K: Key> fmt::Debug for JoinTable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_hashed = matches!(self.index, Index::Hashed { .. });
        f.debug_struct("JoinTable").field("rows", &self.len()).field("is_hashed", &is_hashed).finish()
    }
}

/// At most one pair for each probe row: always written, but kept only if there is one, without a branch.
fn unique_pairs(found: &[u32], first: u32, probe_rows: &mut Vec<u32>, build_rows: &mut Vec<u32>) {
    let (start, mut next) = (probe_rows.len(), 0);
    probe_rows.resize(start + found.len(), 0);
    build_rows.resize(start + found.len(), 0);
    let (probe_out, build_out) = (&mut probe_rows[start..], &mut build_rows[start..]);
    for (row, number) in (first..).zip(found) {
        probe_out[next] = row;
        build_out[next] = number.wrapping_sub(1);
        next += usize::from(*number != 0);
    }
    probe_rows.truncate(start + next);
    build_rows.truncate(start + next);
}

/// The bit that a key with this hash has in its slot.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    1 << (u64::from(u32::BITS) + hash % u64::from(u32::BITS))
}

kernel! {
    fn insert[K: Key, const IS_ALONE: bool][K, IS_ALONE](table: &JoinTable<K>, rows: Range<usize>)
        = insert_plain::<K, IS_ALONE>;
}

/// From the last row to the first, so that chains are in the order of rows.
#[inline(always)]
fn insert_plain<K: Key, const IS_ALONE: bool>(table: &JoinTable<K>, rows: Range<usize>) {
    let Links::Chains(next) = &table.links else { unreachable!("rows were put side by side before") };
    let (mut has_twins, mut far_links) = (false, 0);
    let mut is_linked = |row: usize, before: u32| {
        far_links += usize::from(before != 0 && before as usize != row + 2);
        before != 0
    };
    match &table.index {
        Index::Range(index) => {
            for row in rows.rev().filter(|row| table.is_valid(*row)) {
                let (slot, is_there) = index.slot(table.keys[row]);
                assert!(is_there == 1, "a key that was noted");
                let (head, number) = (&index.heads[slot], row as u32 + 1);
                let before = if IS_ALONE {
                    let before = head.load(Ordering::Relaxed);
                    head.store(number, Ordering::Relaxed);
                    before
                } else {
                    head.swap(number, Ordering::Relaxed)
                };
                if is_linked(row, before) {
                    next[row].store(before, Ordering::Relaxed);
                    has_twins = true;
                }
            }
        }
        Index::Hashed { seed, slots, shift } => {
            let is_far = slots.bytes() > PREFETCH_BYTES;
            let mut hashes = [0; BLOCK_ROWS];
            let mut end = rows.end;
            while end > rows.start {
                let start = end.saturating_sub(BLOCK_ROWS).max(rows.start);
                for (hash, key) in hashes.iter_mut().zip(&table.keys[start..end]) {
                    *hash = key.hash(seed, 0);
                    if is_far {
                        prefetch_ptr(slots.as_ptr().wrapping_add((*hash >> shift) as usize));
                    }
                }
                for row in (start..end).rev().filter(|row| table.is_valid(*row)) {
                    let hash = hashes[row - start];
                    let slot = &slots[(hash >> shift) as usize];
                    // Whoever sees the row in the slot sees what it is linked with.
                    let with = |before: u64| {
                        if before as u32 != 0 {
                            next[row].store(before as u32, Ordering::Relaxed);
                        }
                        before >> u32::BITS << u32::BITS | tag(hash) | (row as u64 + 1)
                    };
                    let before = if IS_ALONE {
                        let before = slot.load(Ordering::Relaxed);
                        slot.store(with(before), Ordering::Relaxed);
                        before
                    } else {
                        let update = |before| Some(with(before));
                        let updated = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
                        updated.unwrap_or_else(|before| before)
                    };
                    if is_linked(row, before as u32) && !has_twins && before & tag(hash) != 0 {
                        let first = before as u32;
                        let is_twin = table.keys[first as usize - 1].difference(table.keys[row]) == 0;
                        has_twins = is_twin || table.next(first, table.keys[row]) != 0;
                    }
                }
                end = start;
            }
        }
    }
    if has_twins {
        table.has_twins.store(true, Ordering::Relaxed);
    }
    table.far_links.fetch_add(far_links, Ordering::Relaxed);
}

kernel! {
    fn find[K: Key][K](table: &JoinTable<K>, keys: &[K], found: &mut [u32]) = find_plain;
}

#[inline(always)]
fn find_plain<K: Key>(table: &JoinTable<K>, keys: &[K], found: &mut [u32]) {
    match &table.index {
        Index::Range(index) => {
            for (key, found) in keys.iter().zip(found) {
                let (slot, is_there) = index.slot(*key);
                *found = index.heads[slot].load(Ordering::Relaxed) & is_there.wrapping_neg();
            }
        }
        Index::Hashed { seed, slots, shift } => {
            let (is_far, has_twins) = (slots.bytes() > PREFETCH_BYTES, !table.is_unique());
            let mut hashes = [0; BLOCK_ROWS];
            for (keys, found) in keys.chunks(BLOCK_ROWS).zip(found.chunks_mut(BLOCK_ROWS)) {
                for (hash, key) in hashes.iter_mut().zip(keys) {
                    *hash = key.hash(seed, 0);
                    if is_far {
                        prefetch_ptr(slots.as_ptr().wrapping_add((*hash >> shift) as usize));
                    }
                }
                for (hash, found) in hashes.iter().zip(&mut *found) {
                    let slot = slots[(*hash >> shift) as usize].load(Ordering::Relaxed);
                    let may_be_there = u64::from(slot & tag(*hash) != 0);
                    *found = (slot & may_be_there.wrapping_neg()) as u32;
                    if is_far {
                        let place = found.wrapping_sub(1) as usize;
                        prefetch_ptr(table.keys.as_ptr().wrapping_add(place));
                        if let (Links::Chains(next), true) = (&table.links, has_twins) {
                            prefetch_ptr(next.as_ptr().wrapping_add(place));
                        }
                    }
                }
                for (key, found) in keys.iter().zip(found) {
                    while *found != 0 && table.keys[*found as usize - 1].difference(*key) != 0 {
                        *found = table.links.next(*found);
                    }
                }
            }
        }
    }
}

kernel! {
    /// The least and the greatest distance of keys from `first`, around the end of their type; none without keys.
    pub fn distances[K: Key][K](first: K, keys: &[K]) -> Option<(u64, u64)> = distances_plain;
}

#[inline(always)]
fn distances_plain<K: Key>(first: K, keys: &[K]) -> Option<(u64, u64)> {
    let (mut least, mut most) = (u64::MAX, 0);
    for key in keys {
        let distance = key.place(first);
        least = least.min(distance);
        most = most.max(distance);
    }
    (!keys.is_empty()).then_some((least, most))
}
