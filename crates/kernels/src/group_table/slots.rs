//! Linear probing: the one hash table for grouping.
//!
//! The plain version: `i = high bits of the hash; while slot[i] is taken by another key: i += 1`. What makes
//! it fast, on 16M rows with one core:
//! 1. A slot has a [`Ticket`], and the key is elsewhere: two misses a row, which overlap with those of other rows, but
//!    slots of 8 bytes, which never straddle a cache line, are in the caches for longer and grow without keys.
//! 2. Low load: at load 0.5 a third of the probes take a second step, which is a mispredicted branch. As long
//!    as the table fits the L2 cache, load stays below 1/8, and a second step is rare. See [`max_len`].
//! 3. "Free" and "mine" are one branch, on the smaller of two numbers, either of which is zero then; the
//!    caller writes the key in both cases. So there is no unpredictable branch for new keys among old ones.
//! 4. The caller hashes [`BLOCK_ROWS`] rows, prefetches their slots, then probes: misses overlap.
//! 5. The index is the high bits of the hash, so slots are in the order of hashes: growing reads and writes
//!    sequentially.
//!
//! Comparing two slots at a time, chosen without a branch, was slower: 3.1 ns a row against 2.7 at 1e3
//! groups, equal at 1e5.

use std::ops::Deref;

use crate::region::{Region, Zero, prefetch_ptr};

/// Rows that are hashed, prefetched and probed together. More would exceed the L1 cache, fewer hide less
/// latency.
pub(crate) const BLOCK_ROWS: usize = 256;

const FIRST_SLOTS: usize = 1024;
/// Half of a usual L2 cache.
const LOW_LOAD_BYTES: usize = 512 << 10;
/// A usual share of the L3 cache.
const MEDIUM_LOAD_BYTES: usize = 4 << 20;
/// A table up to this size grows fourfold: whoever has met so many keys meets more, and each time all move.
const STEEP_BYTES: usize = 4 << 20;
/// A table up to this size that had so many keys keeps its memory when it is cleared: new memory is cleared, too, and a
/// page at a time.
const KEPT_BYTES: usize = 4 << 20;
const KEPT_SLOTS_PER_KEY: usize = 64;
/// A smaller table is in L1 and L2, where prefetching only costs time.
const PREFETCH_BYTES: usize = 256 << 10;

/// A slot: a key and its data. All zeros means free.
pub(crate) trait Slot: Zero {
    /// Nonzero if the slot is taken.
    fn taken(&self) -> u64;
    fn is_free(&self) -> bool {
        self.taken() == 0
    }
}

/// A slot from which the hash of its key can be computed.
pub(crate) trait Hashed: Slot {
    /// What is needed to compute a key's hash again.
    type Context;
    /// The hash that the slot's key was inserted with.
    fn hash(&self, context: &Self::Context) -> u64;
}

/// A slot that names a group, whose key is kept elsewhere: an eighth or a quarter of a slot with the key, so that large
/// tables stay in the caches for longer and take less time to clear and to grow.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    /// The high half of the hash, less the bits that are equal in the table: the first of them are the place of the
    /// slot, also in a larger table, so that growing needs no keys.
    tag: u32,
    /// The group number plus one.
    number: u32,
}

// SAFETY: zero bytes are a value of both fields.
unsafe impl Zero for Ticket {}

impl Slot for Ticket {
    #[inline(always)]
    fn taken(&self) -> u64 {
        u64::from(self.number)
    }
}

impl Hashed for Ticket {
    /// The highest bits of hashes that are equal in the table.
    type Context = u32;

    #[inline(always)]
    fn hash(&self, skip: &u32) -> u64 {
        u64::from(self.tag) << u32::BITS >> skip
    }
}

impl Ticket {
    /// The ticket of a group whose key has this [`tag`](Probe::tag).
    #[inline(always)]
    pub(crate) fn new(tag: u32, group: u32) -> Self {
        Self { tag, number: group + 1 }
    }

    /// The group, [`NO_GROUP`](super::NO_GROUP) of a free slot.
    #[inline(always)]
    pub(crate) fn group(self) -> u32 {
        self.number.wrapping_sub(1)
    }

    /// Whether the key may have this tag.
    #[inline(always)]
    pub(crate) fn may_have(self, tag: u32) -> bool {
        self.tag == tag
    }
}

impl Slots<Ticket> {
    /// Makes room for at least one block: see [`Self::grow`].
    pub(crate) fn grow_tickets(&mut self) {
        let skip = self.skip;
        self.grow(&skip);
    }
}

/// The slots of a table; some are always free.
pub(crate) struct Slots<S> {
    slots: Region<S>,
    /// The index is `hash << skip >> shift`: the highest `skip` bits are equal for all keys of the table.
    skip: u32,
    shift: u32,
    len: usize,
}

impl<S: Slot> Slots<S> {
    /// A small table for keys whose highest `skip` hash bits are all the same.
    pub(crate) fn new(skip: u32) -> Self {
        Self::with_slots(FIRST_SLOTS, skip)
    }

    /// Removes all keys. Keeps the memory for as many keys again, unless it is much.
    pub(crate) fn clear(&mut self) {
        if self.len >= self.slots.len() / KEPT_SLOTS_PER_KEY && self.slots.bytes() <= KEPT_BYTES {
            self.slots.fill(S::ZERO);
            self.len = 0;
        } else {
            *self = Self::new(self.skip);
        }
    }

    fn with_slots(slot_count: usize, skip: u32) -> Self {
        assert!(slot_count.ilog2() <= u32::BITS, "slot numbers have 32 bits");
        Self { slots: Region::zeroed(slot_count), skip, shift: u64::BITS - slot_count.ilog2(), len: 0 }
    }

    /// Count of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets the count of keys after the caller has taken free slots.
    #[inline(always)]
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Whether the table must grow before the next block.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        // The second condition keeps free slots for the next block, whatever the load policy.
        self.len > max_len::<S>(self.slots.len(), self.skip)
            || self.len + BLOCK_ROWS > self.slots.len() / 4 * 3
    }

    /// How many slots there are when it has grown.
    fn grown_count(&self) -> usize {
        self.slots.len() * if self.slots.bytes() <= STEEP_BYTES { 4 } else { 2 }
    }

    /// A view for probing, with its fields in registers; only valid until the table grows.
    #[inline(always)]
    pub(crate) fn probe(&self) -> Probe<&[S]> {
        Probe { slots: &self.slots, skip: self.skip, shift: self.shift }
    }

    /// As [`Self::probe`], for writing.
    #[inline(always)]
    pub(crate) fn probe_mut(&mut self) -> Probe<&mut [S]> {
        Probe { slots: &mut self.slots, skip: self.skip, shift: self.shift }
    }

    /// The taken slots, in the order of hashes except for those that wrapped around.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().filter(|slot| !slot.is_free())
    }
}

impl<S: Hashed> Slots<S> {
    /// Makes room for at least one block. The cost per key inserted since the last time is constant, and
    /// access is sequential: 2-4 ns a key.
    #[cold]
    pub(crate) fn grow(&mut self, context: &S::Context) {
        self.resize(self.grown_count(), context);
    }

    fn resize(&mut self, slot_count: usize, context: &S::Context) {
        let mut grown = Self::with_slots(slot_count, self.skip);
        let mut probe = grown.probe_mut();
        for slot in self.taken() {
            *probe.slot_mut(slot.hash(context), |_| 1) = *slot;
        }
        grown.len = self.len;
        *self = grown;
    }
}

/// The index at which the search for a key begins.
#[derive(Clone, Copy, Default)]
pub(crate) struct Home(u32);

/// Borrowed slots. Passed by value: behind a reference, the compiler would reload the fields after every
/// store to a slot.
pub(crate) struct Probe<S> {
    slots: S,
    skip: u32,
    shift: u32,
}

impl<S: Slot, R: Deref<Target = [S]>> Probe<R> {
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> Home {
        Home((hash << self.skip >> self.shift) as u32)
    }

    /// What [`Ticket`]s keep of a hash.
    #[inline(always)]
    pub(crate) fn tag(&self, hash: u64) -> u32 {
        (hash << self.skip >> u32::BITS) as u32
    }

    /// The slot of a key, or the free one where it belongs. `difference` is zero for the slot with this key.
    #[inline(always)]
    pub(crate) fn slot(&self, hash: u64, difference: impl Fn(&S) -> u64) -> &S {
        self.at(self.find(self.home(hash), difference))
    }

    /// The first slot to look at for a key; the key is further on if another one took it before.
    #[inline(always)]
    pub(crate) fn home_slot(&self, hash: u64) -> &S {
        self.at(self.home(hash).0 as usize)
    }

    #[inline(always)]
    fn find(&self, home: Home, difference: impl Fn(&S) -> u64) -> usize {
        let mut at = home.0 as usize;
        loop {
            at &= self.slots.len() - 1;
            let slot = self.at(at);
            if slot.taken().min(difference(slot)) == 0 {
                return at;
            }
            at += 1;
        }
    }

    /// The slot at an index, which must be less than the count of slots.
    #[inline(always)]
    fn at(&self, index: usize) -> &S {
        debug_assert!(index < self.slots.len());
        // SAFETY: the callers mask with the count of slots, a power of two, less one, or come from `home`,
        // which gives less than `1 << (64 - shift)`, that count.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// Prefetches the slots of a block of hashes, if the table exceeds the near caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hashes: &[u64]) {
        if size_of_val(&*self.slots) > PREFETCH_BYTES {
            for hash in hashes {
                self.prefetch_home(self.home(*hash));
            }
        }
    }

    #[inline(always)]
    fn prefetch_home(&self, home: Home) {
        prefetch_ptr(self.slots.as_ptr().wrapping_add(home.0 as usize));
    }
}

impl<S: Slot> Probe<&mut [S]> {
    /// As [`Probe::slot`], for writing.
    #[inline(always)]
    pub(crate) fn slot_mut(&mut self, hash: u64, difference: impl Fn(&S) -> u64) -> &mut S {
        self.slot_from_mut(self.home(hash), difference)
    }

    /// As [`Self::slot_mut`], with a known home.
    #[inline(always)]
    pub(crate) fn slot_from_mut(&mut self, home: Home, difference: impl Fn(&S) -> u64) -> &mut S {
        let index = self.find(home, difference);
        // SAFETY: `find` masks its index with the count of slots, a power of two, minus one.
        unsafe { self.slots.get_unchecked_mut(index) }
    }
}

/// The most keys before a table grows: a lower load means fewer second steps, as long as the caches have
/// room.
const fn max_len<S>(slot_count: usize, skip: u32) -> usize {
    if skip > 0 {
        // One of many tables, in which most keys occur once or twice: here staying in L2 matters most.
        return slot_count / 2;
    }
    let bytes = slot_count * size_of::<S>();
    if bytes <= LOW_LOAD_BYTES {
        slot_count / 8
    } else if bytes <= MEDIUM_LOAD_BYTES {
        slot_count / 4
    } else {
        slot_count / 2
    }
}
