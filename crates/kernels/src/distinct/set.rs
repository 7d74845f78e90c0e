//! A set of fixed-width keys: only what `count(distinct)` needs.
//!
//! A slot holds only the key, so a cache line has twice as many slots as in a table of groups. Zero marks
//! free slots; whether it is itself in the set is kept separately.

use crate::Level;
use crate::group_table::{BLOCK_ROWS, Hashed, Slot, Slots};
use crate::hash::{Key, Seed};
use crate::region::Zero;

/// A set of distinct keys.
pub struct DistinctSet<K: Key> {
    seed: Seed,
    slots: Slots<Only<K>>,
    has_zero: bool,
}

#[derive(Clone, Copy)]
struct Only<K>(K);

// SAFETY: keys are integers (the trait is sealed).
unsafe impl<K: Key> Zero for Only<K> {}

impl<K: Key> Slot for Only<K> {
    #[inline(always)]
    fn taken(&self) -> u64 {
        self.0.difference(K::default())
    }
}

impl<K: Key> Hashed for Only<K> {
    type Context = Seed;

    #[inline(always)]
    fn hash(&self, seed: &Seed) -> u64 {
        self.0.hash(seed, 0)
    }
}

impl<K: Key> DistinctSet<K> {
    /// The empty set.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { seed, slots: Slots::new(0), has_zero: false }
    }

    /// Count of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() + usize::from(self.has_zero)
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Adds keys.
    pub fn insert(&mut self, level: Level, keys: &[K]) {
        insert(level, self, keys);
    }

    /// Adds the keys of another set.
    pub fn merge(&mut self, level: Level, other: &Self) {
        // With the same seed both sets are in the order of hashes, so room is made first.
        self.slots.reserve(other.slots.len(), &self.seed);
        let keys: Vec<K> = other.slots.taken().map(|slot| slot.0).collect();
        self.insert(level, &keys);
        self.has_zero |= other.has_zero;
    }

    /// The keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.slots.taken().map(|slot| slot.0).chain(self.has_zero.then(K::default))
    }
}

kernel! {
    fn insert[K: Key][K](set: &mut DistinctSet<K>, keys: &[K]) = insert_plain;
}

#[inline(always)]
fn insert_plain<K: Key>(set: &mut DistinctSet<K>, keys: &[K]) {
    let mut hashes = [0; BLOCK_ROWS];
    for keys in keys.chunks(BLOCK_ROWS) {
        while set.slots.is_full() {
            set.slots.grow(&set.seed);
        }
        let hashes = &mut hashes[..keys.len()];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.hash(&set.seed, 0);
        }
        let mut len = set.slots.len();
        let mut probe = set.slots.probe_mut();
        probe.prefetch(hashes);
        for (key, hash) in keys.iter().zip(&*hashes) {
            // Zero takes no slot: it is written to a free one, which stays free.
            let is_zero = *key == K::default();
            set.has_zero |= is_zero;
            let slot = probe.slot_mut(*hash, |slot| slot.0.difference(*key));
            len += usize::from(slot.is_free() & !is_zero);
            *slot = Only(*key);
        }
        set.slots.set_len(len);
    }
}

impl<K: Key> std::fmt::Debug for DistinctSet<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistinctSet").field("keys", &self.len()).field("bytes", &self.bytes()).finish()
    }
}
