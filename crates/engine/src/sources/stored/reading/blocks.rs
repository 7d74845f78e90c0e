//! Decoded blocks that are kept for the next scan, where they earn the memory that they take.
//!
//! A block has to be slow to decode for each byte that it takes when it is decoded, and to be read more often than
//! the block that would go for it. How often blocks are read, small counters say that are halved from time to time
//! (Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017): so a scan of
//! more than there is room for neither fills the cache the first time nor throws out what the next one finds.
//! Parts never change, so nothing in here gets old. Bytes are booked, and go when a query needs them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use keirin_storage::part::PartKey;
use parking_lot::Mutex;

use crate::runtime::pool::{FairPool, RECLAIMABLE, Reclaim};

/// What is decoded at less than 8 GB a second: text that is compressed, and checked and given views when it is text
/// again. Most numbers are faster.
const EXPENSIVE_PICOSECONDS_PER_BYTE: u128 = 125;
/// Reads after which a block is kept, if there is room.
const USES_MIN: u8 = 2;
/// Counters stop here, so that what was read often long ago goes some time.
const USES_MAX: u8 = 7;
/// Counters, and the uses after which all are halved.
const COUNTERS: usize = 1 << 16;
/// The block that goes is the least used of so many.
const SAMPLE: usize = 8;

/// Which block it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockKey {
    pub(super) part: PartKey,
    /// The column's place in the part.
    pub(super) column: usize,
    pub(super) stripe: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct BlockCache {
    state: Mutex<State>,
}

/// What the cache has, and what it was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) blocks: usize,
    pub(crate) bytes: usize,
    pub(crate) limit_bytes: usize,
    /// Blocks that were found.
    pub(crate) hits: u64,
    /// Whole blocks that were decoded and slow.
    pub(crate) misses: u64,
    /// Blocks that went for others, or for queries.
    pub(crate) evictions: u64,
}

#[derive(Debug)]
struct State {
    usage: Usage,
    kept: Vec<Kept>,
    /// Where among them.
    places: HashMap<BlockKey, usize>,
    /// Where the next sample begins.
    hand: usize,
    /// By hashes of the blocks.
    uses: Vec<u8>,
    hasher: RandomState,
    /// Since all were halved.
    counted: usize,
    reservation: MemoryReservation,
}

#[derive(Debug)]
struct Kept {
    key: BlockKey,
    array: ArrayRef,
    bytes: usize,
}

impl BlockCache {
    /// Keeps at most so many bytes, and gives them back to `pool` when that runs short.
    pub(crate) fn new(pool: &Arc<FairPool>, limit_bytes: usize) -> Arc<Self> {
        let shared: Arc<dyn MemoryPool> = pool.clone();
        let state = State {
            usage: Usage { limit_bytes, ..Usage::default() },
            kept: Vec::new(),
            places: HashMap::new(),
            hand: 0,
            uses: vec![0; COUNTERS],
            hasher: RandomState::new(),
            counted: 0,
            reservation: MemoryConsumer::new(RECLAIMABLE).register(&shared),
        };
        let cache = Arc::new(Self { state: Mutex::new(state) });
        let weak: Weak<Self> = Arc::downgrade(&cache);
        pool.set_reclaimable(weak);
        cache
    }

    pub(crate) fn usage(&self) -> Usage {
        self.state.lock().usage
    }

    /// Keeps at most so many bytes from now on.
    pub(crate) fn set_limit_bytes(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.usage.limit_bytes = bytes;
        let excess = state.usage.bytes.saturating_sub(bytes);
        state.give_back(excess);
    }

    /// Forgets blocks of parts that are not to be kept.
    pub(crate) fn retain(&self, is_kept: impl Fn(&PartKey) -> bool) {
        let mut state = self.state.lock();
        for place in (0..state.kept.len()).rev() {
            if !is_kept(&state.kept[place].key.part) {
                state.remove(place);
            }
        }
    }

    /// All rows of a block, if it is kept as values of such a type.
    pub(super) fn get(&self, key: &BlockKey, is_wanted: impl Fn(&DataType) -> bool) -> Option<ArrayRef> {
        let mut state = self.state.lock();
        let kept = &state.kept[*state.places.get(key)?];
        let array = Some(&kept.array).filter(|array| is_wanted(array.data_type()))?.clone();
        state.count(key);
        state.usage.hits += 1;
        Some(array)
    }

    /// Keeps all rows of a block, whose decoding took so long, if they earn it.
    pub(super) fn offer(&self, key: BlockKey, array: &ArrayRef, took: Duration) {
        let bytes = array.get_array_memory_size();
        if took.as_nanos() * 1000 < bytes as u128 * EXPENSIVE_PICOSECONDS_PER_BYTE {
            return;
        }
        let mut state = self.state.lock();
        state.usage.misses += 1;
        let uses = state.count(&key);
        let limit_bytes = state.usage.limit_bytes;
        if uses < USES_MIN || bytes > limit_bytes || state.places.contains_key(&key) {
            return;
        }
        while state.usage.bytes + bytes > limit_bytes {
            let Some((victim, its_uses)) = state.least_used() else { return };
            if its_uses >= uses {
                return;
            }
            state.evict(victim);
        }
        if state.reservation.try_grow(bytes).is_ok() {
            let place = state.kept.len();
            state.places.insert(key, place);
            state.kept.push(Kept { key, array: array.clone(), bytes });
            state.usage.blocks += 1;
            state.usage.bytes += bytes;
        }
    }
}

impl Reclaim for BlockCache {
    fn give_back(&self, bytes: usize) {
        self.state.lock().give_back(bytes);
    }
}

impl State {
    /// Two counters, because others share them: the lower one is right unless both are shared (Cormode and
    /// Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and its Applications", 2005).
    fn counters(&self, key: &BlockKey) -> [usize; 2] {
        let hash = self.hasher.hash_one(key);
        [hash, hash >> 32]
            .map(|hash| usize::try_from(hash % COUNTERS as u64).expect("there are few counters"))
    }

    fn uses(&self, key: &BlockKey) -> u8 {
        let [first, second] = self.counters(key);
        self.uses[first].min(self.uses[second])
    }

    /// How often a block was used, this time included.
    fn count(&mut self, key: &BlockKey) -> u8 {
        self.counted += 1;
        if self.counted > COUNTERS {
            self.counted = 0;
            self.uses.iter_mut().for_each(|uses| *uses /= 2);
        }
        let uses = (self.uses(key) + 1).min(USES_MAX);
        for counter in self.counters(key) {
            self.uses[counter] = self.uses[counter].max(uses);
        }
        uses
    }

    /// The place of a block that is used less than some others, and how often it was used.
    fn least_used(&mut self) -> Option<(usize, u8)> {
        let count = self.kept.len();
        let sample = (0..SAMPLE.min(count)).map(|step| (self.hand + step) % count);
        let least = sample.map(|place| (place, self.uses(&self.kept[place].key)));
        let least = least.min_by_key(|(_, uses)| *uses);
        self.hand = (self.hand + SAMPLE) % count.max(1);
        least
    }

    /// Lets go of at least so many bytes, if there are as many.
    fn give_back(&mut self, bytes: usize) {
        let target = self.usage.bytes.saturating_sub(bytes);
        while self.usage.bytes > target
            && let Some((victim, _)) = self.least_used()
        {
            self.evict(victim);
        }
    }

    fn evict(&mut self, place: usize) {
        self.usage.evictions += 1;
        self.remove(place);
    }

    fn remove(&mut self, place: usize) {
        let removed = self.kept.swap_remove(place);
        self.places.remove(&removed.key);
        if let Some(moved) = self.kept.get(place) {
            self.places.insert(moved.key, place);
        }
        self.usage.blocks -= 1;
        self.usage.bytes -= removed.bytes;
        self.reservation.shrink(removed.bytes);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::execution::memory_pool::MemoryPool;

    use super::*;

    const BLOCK_ROWS: usize = 1000;
    const SLOW: Duration = Duration::from_millis(1);

    fn key(stripe: usize) -> BlockKey {
        BlockKey { part: PartKey { table: 1, part: 2, hash: 3 }, column: 0, stripe }
    }

    fn block() -> ArrayRef {
        Arc::new(Int64Array::from(vec![7; BLOCK_ROWS]))
    }

    /// A cache with room for some blocks, in a pool with room for more.
    fn cache(blocks: usize, pool_blocks: usize) -> (Arc<BlockCache>, Arc<FairPool>) {
        let bytes = block().get_array_memory_size();
        let pool = Arc::new(FairPool::new(pool_blocks * bytes));
        (BlockCache::new(&pool, blocks * bytes), pool)
    }

    /// Reads blocks as a scan does; how many of them were found.
    fn scan(cache: &BlockCache, stripes: impl Iterator<Item = usize>, took: Duration) -> usize {
        let find = |stripe: &usize| match cache.get(&key(*stripe), |kept| *kept == DataType::Int64) {
            Some(array) => array.len() == BLOCK_ROWS,
            None => {
                cache.offer(key(*stripe), &block(), took);
                false
            }
        };
        stripes.filter(find).count()
    }

    #[test]
    fn blocks_that_are_slow_are_kept_at_the_second_read() {
        let (cache, pool) = cache(10, 100);
        let found = [0, 0, 10, 10].map(|_| scan(&cache, 0..10, SLOW));
        assert_eq!(found, [0, 0, 10, 10]);
        let Usage { blocks, bytes, hits, misses, evictions, .. } = cache.usage();
        assert_eq!((blocks, hits, misses, evictions), (10, 20, 20, 0));
        assert_eq!(pool.reserved(), bytes);
        assert!(cache.get(&key(0), |kept| *kept == DataType::Int32).is_none(), "it has another type");

        assert_eq!(
            [(); 3].map(|()| scan(&cache, 20..30, Duration::from_nanos(100))),
            [0; 3],
            "they are fast"
        );
        assert_eq!(cache.usage().misses, 20);
    }

    #[test]
    fn a_scan_of_more_than_there_is_room_for_throws_out_nothing() {
        let (cache, _) = cache(10, 100);
        scan(&cache, (0..10).chain(0..10).chain(0..10), SLOW);
        scan(&cache, 100..1000, SLOW);
        assert_eq!(scan(&cache, 0..10, SLOW), 10);
        // Again and again: what was kept the first time stays and is found.
        let found = [(); 4].map(|()| scan(&cache, 0..1000, SLOW));
        assert!(found.iter().all(|found| *found >= 8), "{found:?}");
        let Usage { bytes, limit_bytes, .. } = cache.usage();
        assert!(bytes <= limit_bytes, "{bytes}");
    }

    #[test]
    fn what_is_read_more_takes_the_place_of_what_is_read_less() {
        let (cache, _) = cache(10, 100);
        scan(&cache, (0..10).chain(0..10), SLOW);
        for _ in 0..4 {
            scan(&cache, 50..60, SLOW);
        }
        assert_eq!(scan(&cache, 50..60, SLOW), 10);
        assert_eq!(cache.usage().evictions, 10);
    }

    #[test]
    fn queries_that_need_memory_get_it_back() {
        let (cache, pool) = cache(60, 100);
        scan(&cache, (0..60).chain(0..60), SLOW);
        assert_eq!(cache.usage().blocks, 60);
        let shared: Arc<dyn MemoryPool> = pool.clone();
        let user = MemoryConsumer::new("user").register(&shared);
        user.try_grow(pool.limit_bytes() / 10 * 8).unwrap();
        assert_eq!(cache.usage().blocks, 20);
        assert_eq!(pool.reserved(), pool.limit_bytes());
        assert!(user.try_grow(pool.limit_bytes()).is_err(), "nobody has that");
        user.try_grow(pool.limit_bytes() / 10 * 2).unwrap();
        assert_eq!(cache.usage().blocks, 0);
        scan(&cache, (0..60).chain(0..60), SLOW);
        assert_eq!(cache.usage().blocks, 0, "it takes nothing from queries");
    }

    #[test]
    fn a_lower_limit_and_parts_that_are_gone_give_back_memory() {
        let (cache, pool) = cache(60, 100);
        scan(&cache, (0..60).chain(0..60), SLOW);
        cache.set_limit_bytes(pool.limit_bytes() / 10);
        assert_eq!(cache.usage().blocks, 10);
        assert_eq!(cache.usage().evictions, 50);
        cache.retain(|part| part.table != 1);
        assert_eq!((cache.usage().blocks, cache.usage().bytes, pool.reserved()), (0, 0, 0));
        cache.set_limit_bytes(0);
        scan(&cache, (0..60).chain(0..60), SLOW);
        assert_eq!(cache.usage().blocks, 0);
    }
}
