//! The keys of the build side, as the probe side is asked for them before it is joined.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BLOCK_ROWS, Index, JoinTable, RangeIndex};
use crate::bloom::BloomFilter;
use crate::hash::{Key, Seed, hash_keys};
use crate::region::Region;
use crate::{BitBuffer, Bits, Level};

/// The keys of the build side, to drop rows of the probe side early: exact for integers of a range, elsewhere with a few
/// keys too many.
#[derive(Debug)]
pub struct KeySet<K: Key>(Set<K>);

enum Set<K> {
    /// See [`RangeIndex`].
    Range {
        first: K,
        range: usize,
        bits: Arc<Region<AtomicU64>>,
    },
    Bloom {
        seed: Seed,
        filter: BloomFilter,
    },
}

impl<K: Key> fmt::Debug for Set<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { range, .. } => f.debug_struct("Range").field("range", range).finish(),
            Self::Bloom { filter, .. } => f.debug_tuple("Bloom").field(filter).finish(),
        }
    }
}

impl<K: Key> KeySet<K> {
    /// About one key in a thousand is believed to be there though it is not.
    const BLOOM_BITS: usize = 16;

    /// The keys of a table.
    #[must_use]
    pub fn of(level: Level, table: &JoinTable<K>) -> Self {
        let seed = match &table.index {
            Index::Range(RangeIndex { first, range, bits, .. }) => {
                return Self(Set::Range { first: *first, range: *range, bits: bits.clone() });
            }
            Index::Hashed { seed, .. } => seed,
        };
        Self::hashed(level, *seed, &table.keys, table.validity.as_ref().map(BitBuffer::as_bits))
    }

    /// These keys, but for those without a value.
    #[must_use]
    pub fn of_keys(level: Level, keys: &[K], validity: Option<Bits<'_>>) -> Self {
        Self::hashed(level, Seed::random(), keys, validity)
    }

    fn hashed(level: Level, seed: Seed, keys: &[K], validity: Option<Bits<'_>>) -> Self {
        let mut filter = BloomFilter::new(keys.len(), Self::BLOOM_BITS);
        let mut hashes = Vec::with_capacity(BLOCK_ROWS);
        for start in (0..keys.len()).step_by(BLOCK_ROWS) {
            let rows = start..keys.len().min(start + BLOCK_ROWS);
            let valid = rows.filter(|row| validity.is_none_or(|validity| validity.get(*row)));
            hashes.clear();
            hashes.extend(valid.map(|row| keys[row].hash(&seed, 0)));
            filter.insert(level, &hashes);
        }
        Self(Set::Bloom { seed, filter })
    }

    /// What the set of a table takes beside the table, in bytes.
    #[must_use]
    pub fn bytes_of(table: &JoinTable<K>) -> usize {
        match &table.index {
            Index::Range(_) => 0,
            Index::Hashed { .. } => table.len() * Self::BLOOM_BITS / 8,
        }
    }

    /// A bit for each key: whether it may be in the set.
    #[must_use]
    pub fn may_contain(&self, level: Level, keys: &[K]) -> BitBuffer {
        match &self.0 {
            Set::Range { first, range, bits } => {
                let mut words = vec![0; keys.len().div_ceil(64)];
                range_contains(level, *first, *range, bits, keys, &mut words);
                BitBuffer::from_words(words, keys.len())
            }
            Set::Bloom { seed, filter } => {
                let mut hashes = vec![0; keys.len()];
                hash_keys(level, seed, keys, None, &mut hashes);
                filter.may_contain(level, &hashes)
            }
        }
    }
}

kernel! {
    fn range_contains[K: Key][K](
        first: K, range: usize, bits: &[AtomicU64], keys: &[K], words: &mut [u64],
    ) = range_contains_plain;
}

#[inline(always)]
fn range_contains_plain<K: Key>(first: K, range: usize, bits: &[AtomicU64], keys: &[K], words: &mut [u64]) {
    assert!(bits.len() == range / 64 + 1, "a bit a key, and one behind");
    for (keys, word) in keys.chunks(64).zip(words) {
        let mut found = 0;
        for (row, key) in keys.iter().enumerate() {
            let place = key.place(first).min(range as u64);
            found |= (bits[place as usize / 64].load(Ordering::Relaxed) >> (place % 64) & 1) << row;
        }
        *word = found;
    }
}
