//! Rows put side by side by their slots.
//!
//! A row of a chain costs a miss for its link and one for each of its columns. Where many rows share keys and are far from
//! each other, rows are put in the order of their slots, and who has their columns puts these in the same order: then
//! the rows of a key follow on each other. It is a counting sort: threads count the rows of slots
//! ([`JoinTable::count`]), sums of the counts are the places of slots ([`JoinTable::make_places`]), and threads give
//! each row one of its slot's places ([`JoinTable::place`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BLOCK_ROWS, Index, JoinTable, Links, PREFETCH_BYTES};
use crate::Level;
use crate::hash::Key;
use crate::region::{Region, prefetch_ptr};

/// The part of a slot that is no number of a row.
const TAGS: u64 = u64::MAX << u32::BITS;

impl<K: Key> JoinTable<K> {
    /// Whether so many rows with equal keys are far from each other that it is worth to put them side by side.
    #[must_use]
    pub fn is_scattered(&self) -> bool {
        !self.is_unique() && self.far_links.load(Ordering::Relaxed) > self.len() / 2
    }

    /// The memory that is needed to put rows side by side, in bytes.
    #[must_use]
    pub fn runs_bytes(&self) -> usize {
        self.len() * (size_of::<K>() + size_of::<u32>()) + self.len() / 8
    }

    /// Begins to put the rows side by side, when all are inserted.
    pub fn begin_runs(&mut self) {
        self.renumber(|_| 0);
    }

    /// Counts these rows. Threads may do that for other rows at the same time.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn count(&self, level: Level, rows: Range<usize>) {
        count(level, self, rows);
    }

    /// Makes places of counts, when all rows were counted.
    pub fn make_places(&mut self) {
        let mut count = 0;
        self.renumber(|own| {
            count += own;
            count - own
        });
    }

    /// Gives these rows their places, when there are some. Threads may do that for other rows at the same time.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn place(&self, level: Level, rows: Range<usize>) {
        place(level, self, rows);
    }

    /// Renumbers the rows, when all have places: for each row which one it was. Those without a value are the last.
    ///
    /// # Panics
    /// When not all have places.
    #[must_use]
    pub fn end_runs(&mut self) -> Vec<u32> {
        let lasts = Region::<AtomicU64>::zeroed_words(self.len() / 64 + 1);
        let mut end = 0;
        // A slot's place is behind its last row now.
        self.renumber(|own_end| {
            let start = std::mem::replace(&mut end, own_end);
            if start == own_end {
                return 0;
            }
            let last = own_end as usize - 1;
            lasts[last / 64].fetch_or(1 << (last % 64), Ordering::Relaxed);
            start + 1
        });
        let placed = end as usize;
        let links = std::mem::replace(&mut self.links, Links::Runs(lasts));
        let Links::Chains(places) = links else { unreachable!("rows were put side by side before") };
        let mut order: Vec<u32> = places[..placed].iter().map(|row| row.load(Ordering::Relaxed)).collect();
        order.extend((0..self.len()).filter(|row| !self.is_valid(*row)).map(|row| row as u32));
        assert_eq!(order.len(), self.len(), "all rows have places");
        // Nobody looks at keys that are places.
        if let Index::Hashed { .. } = self.index {
            self.keys = order.iter().map(|row| self.keys[*row as usize]).collect();
        }
        if self.validity.is_some() {
            self.validity = Some((0..self.len()).map(|row| row < placed).collect());
        }
        order
    }

    /// Gives each slot another number, one slot after the other.
    fn renumber(&mut self, mut other: impl FnMut(u32) -> u32) {
        match &self.index {
            Index::Range(index) => {
                for head in index.heads.iter() {
                    head.store(other(head.load(Ordering::Relaxed)), Ordering::Relaxed);
                }
            }
            Index::Hashed { slots, .. } => {
                for slot in slots.iter() {
                    let own = slot.load(Ordering::Relaxed);
                    slot.store(own & TAGS | u64::from(other(own as u32)), Ordering::Relaxed);
                }
            }
        }
    }

    /// Adds one to the number in a slot, and returns what it was.
    #[inline(always)]
    fn raise(&self, slot: usize) -> u32 {
        match &self.index {
            Index::Range(index) => index.heads[slot].fetch_add(1, Ordering::Relaxed),
            Index::Hashed { slots, .. } => slots[slot].fetch_add(1, Ordering::Relaxed) as u32,
        }
    }
}

/// Calls `take` with each of these rows that has a value and its slot.
#[inline(always)]
fn with_slots<K: Key>(table: &JoinTable<K>, rows: Range<usize>, mut take: impl FnMut(usize, usize)) {
    match &table.index {
        Index::Range(index) => {
            for row in rows.filter(|row| table.is_valid(*row)) {
                take(row, index.slot(table.keys[row]).0);
            }
        }
        Index::Hashed { seed, slots, shift } => {
            let is_far = slots.bytes() > PREFETCH_BYTES;
            let mut places = [0; BLOCK_ROWS];
            for start in rows.clone().step_by(BLOCK_ROWS) {
                let block = start..rows.end.min(start + BLOCK_ROWS);
                for (place, key) in places.iter_mut().zip(&table.keys[block.clone()]) {
                    *place = (key.hash(seed, 0) >> shift) as usize;
                    if is_far {
                        prefetch_ptr(slots.as_ptr().wrapping_add(*place));
                    }
                }
                block.filter(|row| table.is_valid(*row)).for_each(|row| take(row, places[row - start]));
            }
        }
    }
}

kernel! {
    fn count[K: Key][K](table: &JoinTable<K>, rows: Range<usize>) = count_plain;
}

#[inline(always)]
fn count_plain<K: Key>(table: &JoinTable<K>, rows: Range<usize>) {
    with_slots(table, rows, |_, slot| {
        table.raise(slot);
    });
}

kernel! {
    fn place[K: Key][K](table: &JoinTable<K>, rows: Range<usize>) = place_plain;
}

#[inline(always)]
fn place_plain<K: Key>(table: &JoinTable<K>, rows: Range<usize>) {
    // Nobody follows chains any more.
    let Links::Chains(places) = &table.links else { unreachable!("rows were put side by side before") };
    with_slots(table, rows, |row, slot| {
        places[table.raise(slot) as usize].store(row as u32, Ordering::Relaxed);
    });
}
