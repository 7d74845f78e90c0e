//! A blocked Bloom filter: rejects most keys without a match in a join at the price of one cache line.
//!
//! The plain version sets `k` bits anywhere in the array for each key, and tests all of them: `k` cache
//! misses. Here the bits of a key are in one block of 32 bytes, one bit in each of eight words, as in
//! Parquet's filters: the multiplications and shifts of a block are one vector instruction each. Putze,
//! Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2009; Polychroniou, Ross, DaMoN 2014.
//! The false positive rate is about 1 in 1,000 at 16 bits a key, about 1 in 40 at 8.
//!
//! Blocks, masks and their order are those of the split block filter of the Parquet format, so that the bytes of a filter
//! can be stored. A stored filter is asked block by block, without reading the others.

#![allow(clippy::cast_possible_truncation, reason = "hashes are cut to indices")]

use crate::region::{Region, Zero, prefetch};
use crate::{BitBuffer, Level};

const WORDS: usize = 8;
/// Odd factors that spread one half of the hash over the words, as in the Parquet format.
const FACTORS: [u32; WORDS] =
    [0x47B6_137B, 0x4497_4D91, 0x8824_AD5B, 0xA2B7_289D, 0x7054_95C7, 0x2DF1_424B, 0x9EFC_4947, 0x5C6B_FB31];
const BLOCK_ROWS: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Block([u32; WORDS]);

// SAFETY: an array of integers.
unsafe impl Zero for Block {}

/// A set of hashes with false positives, but no false negatives.
pub struct BloomFilter {
    blocks: Region<Block>,
}

impl BloomFilter {
    /// An empty filter for about `key_count` keys with `bits_per_key` bits each.
    #[must_use]
    pub fn new(key_count: usize, bits_per_key: usize) -> Self {
        let bits = key_count.saturating_mul(bits_per_key).max(1);
        Self { blocks: Region::zeroed(bits.div_ceil(WORDS * 32)) }
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.bytes()
    }

    /// Adds hashes.
    pub fn insert(&mut self, level: Level, hashes: &[u64]) {
        insert(level, self, hashes);
    }

    /// A bit for each hash: whether it may be in the set.
    #[must_use]
    pub fn may_contain(&self, level: Level, hashes: &[u64]) -> BitBuffer {
        may_contain(level, self, hashes)
    }

    /// The filter as bytes, block by block: the same on every machine.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.blocks.iter().flat_map(|block| block.0).flat_map(u32::to_le_bytes).collect()
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        block_of(hash, self.blocks.len())
    }
}

/// Bytes of a block of a stored filter.
pub const BLOCK_BYTES: usize = WORDS * 4;

/// Which of the blocks of a filter has the bits of a hash: the high half of the hash chooses it, the low half the bits in
/// it.
#[inline(always)]
#[must_use]
pub fn block_of(hash: u64, block_count: usize) -> usize {
    ((u128::from(hash >> 32) * block_count as u128) >> 32) as usize
}

/// Whether a hash may be in the set, by its block of a stored filter.
#[must_use]
pub fn block_may_contain(block: &[u8; BLOCK_BYTES], hash: u64) -> bool {
    let words = block.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    mask(hash).into_iter().zip(words).all(|(bit, word)| word & bit != 0)
}

#[inline(always)]
fn mask(hash: u64) -> [u32; WORDS] {
    FACTORS.map(|factor| 1 << ((hash as u32).wrapping_mul(factor) >> 27))
}

kernel! {
    fn insert(filter: &mut BloomFilter, hashes: &[u64]) = insert_plain;
}

#[inline(always)]
fn insert_plain(filter: &mut BloomFilter, hashes: &[u64]) {
    for hashes in hashes.chunks(BLOCK_ROWS) {
        hashes.iter().for_each(|hash| prefetch(&filter.blocks[filter.index(*hash)]));
        for hash in hashes {
            let index = filter.index(*hash);
            for (word, bit) in filter.blocks[index].0.iter_mut().zip(mask(*hash)) {
                *word |= bit;
            }
        }
    }
}

kernel! {
    fn may_contain(filter: &BloomFilter, hashes: &[u64]) -> BitBuffer = may_contain_plain;
}

#[inline(always)]
fn may_contain_plain(filter: &BloomFilter, hashes: &[u64]) -> BitBuffer {
    let mut words = vec![0; hashes.len().div_ceil(BLOCK_ROWS)];
    // A loop of ours: what a closure does within `collect` is compiled for any CPU.
    for (word, hashes) in words.iter_mut().zip(hashes.chunks(BLOCK_ROWS)) {
        hashes.iter().for_each(|hash| prefetch(&filter.blocks[filter.index(*hash)]));
        for (row, hash) in hashes.iter().enumerate() {
            let block = &filter.blocks[filter.index(*hash)].0;
            let missing =
                mask(*hash).iter().zip(block).fold(0, |missing, (bit, word)| missing | (bit & !word));
            *word |= u64::from(missing == 0) << row;
        }
    }
    BitBuffer::from_words(words, hashes.len())
}

impl std::fmt::Debug for BloomFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BloomFilter").field("bytes", &self.bytes()).finish()
    }
}
