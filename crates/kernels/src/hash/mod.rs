//! Hashes of rows of one or several columns: 64 bits a row, a batch at a time.
//!
//! A word is hashed by two multiplications with shifts between them, as in the finaliser of MurmurHash3; the
//! second factor is odd and secret. This loop needs no wide product, so compilers vectorise it: with AVX-512
//! eight keys take about as long as one folded multiplication. Each further column is XORed with the hash so
//! far and hashed again; NULL is a word of its own.
//!
//! Each table has a [`Seed`], against keys made to collide. The first multiplication permutes words, and
//! multiplying by a random odd number is 2-universal in its high bits (Dietzfelbinger et al., "A reliable
//! randomized algorithm for the closest-pair problem", 1997). So for any two keys of one column of up to
//! eight bytes that were chosen without knowledge of the seed, the probability that their `b <= 32` highest
//! bits are equal is at most `2 / 2^b`. Wider keys, several columns and strings have no such proof, but each
//! step depends on the secret. Hashes must not leave the process: they reveal information about the seed.

#![allow(clippy::cast_possible_truncation, reason = "hashes are cut into indices and halves")]

mod stored;
mod strings;

pub use stored::{StoredKey, stored_hash, stored_hashes};
pub(crate) use strings::{INLINE_BYTES, hash_bytes, hash_inline};
pub use strings::{Strings, combine_strings, hash_strings};

use std::hash::{BuildHasher, RandomState};

use crate::Bits;
use crate::bits::WORD_BITS;

/// The secret constants of a table's hash function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    xor: u64,
    multiplier: u64,
    /// The secret constants of the string hash.
    folds: [u64; 4],
}

impl Seed {
    /// Constants derived from a number; the same number gives the same hashes on every machine.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ mixed >> 31
        };
        let xor = next();
        let multiplier = loop {
            // Factors with few or many ones mix badly; this accepts 97 of 100.
            let candidate = next() | 1;
            if (24..=40).contains(&candidate.count_ones()) {
                break candidate;
            }
        };
        Self { xor, multiplier, folds: [next(), next(), next(), next()] }
    }

    /// Unpredictable constants, from the randomness of the standard library's hash maps.
    #[must_use]
    pub fn random() -> Self {
        Self::new(RandomState::new().hash_one(0_u64))
    }

    #[inline(always)]
    pub(crate) fn word(&self, word: u64) -> u64 {
        let mixed = word ^ self.xor;
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xE985_5A2F_91C5_4C0B);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(self.multiplier);
        // The high half stays as it is; the low half becomes as well mixed.
        mixed ^ mixed >> 32
    }

    #[inline(always)]
    pub(crate) fn null(&self, so_far: u64) -> u64 {
        self.word(so_far ^ self.folds[0])
    }
}

impl std::fmt::Debug for Seed {
    /// Does not show the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed")
    }
}

/// A fixed-width key: an integer of 1 to 16 bytes, or a [`WideKey`]. Equal numbers of up to eight bytes have equal hashes,
/// whatever their width.
pub trait Key: Copy + Eq + Default + Send + Sync + std::fmt::Debug + sealed::Zero + 'static {
    /// The hash, combined with the hash of the columns before it (zero for the first).
    #[doc(hidden)]
    fn hash(self, seed: &Seed, so_far: u64) -> u64;
    /// Zero for equal keys; a number, because compilers turn truth values into branches.
    #[doc(hidden)]
    fn difference(self, other: Self) -> u64;
    /// By how much it is greater than another key, around the end of its type; very much for wide keys.
    #[doc(hidden)]
    fn place(self, first: Self) -> u64;
}

mod sealed {
    /// Restricts the trait to the types of this file, all of which have a zero.
    pub trait Zero {}
}

macro_rules! keys {
    ($($type:ty),*) => {$(
        impl sealed::Zero for $type {}
        impl Key for $type {
            #[inline(always)]
            #[allow(clippy::cast_lossless, reason = "one line serves all widths")]
            fn hash(self, seed: &Seed, so_far: u64) -> u64 {
                seed.word(self as u64 ^ so_far)
            }
            #[inline(always)]
            #[allow(clippy::cast_lossless, reason = "one line serves all widths")]
            fn difference(self, other: Self) -> u64 {
                self as u64 ^ other as u64
            }
            #[inline(always)]
            #[allow(clippy::cast_lossless, reason = "one line serves all widths")]
            fn place(self, first: Self) -> u64 {
                self.wrapping_sub(first) as u64 & (u64::MAX >> (u64::BITS - Self::BITS))
            }
        }
    )*};
}

keys!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! wide_keys {
    ($($type:ty),*) => {$(
        impl sealed::Zero for $type {}
        impl Key for $type {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "the halves are taken one by one")]
            fn hash(self, seed: &Seed, so_far: u64) -> u64 {
                seed.word((self >> 64) as u64 ^ seed.word(self as u64 ^ so_far))
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "the halves are taken one by one")]
            fn difference(self, other: Self) -> u64 {
                let bits = self ^ other;
                bits as u64 | (bits >> 64) as u64
            }
            #[inline(always)]
            fn place(self, _: Self) -> u64 {
                u64::MAX
            }
        }
    )*};
}

wide_keys!(u128, i128);

/// A key of up to 32 bytes, in two halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WideKey(pub [u128; 2]);

impl sealed::Zero for WideKey {}

impl Key for WideKey {
    #[inline(always)]
    fn hash(self, seed: &Seed, so_far: u64) -> u64 {
        self.0[1].hash(seed, self.0[0].hash(seed, so_far))
    }
    #[inline(always)]
    fn difference(self, other: Self) -> u64 {
        self.0[0].difference(other.0[0]) | self.0[1].difference(other.0[1])
    }
    #[inline(always)]
    fn place(self, _: Self) -> u64 {
        u64::MAX
    }
}

kernel! {
    /// Hashes of a column. All NULLs have the same hash, whatever values are stored for them.
    ///
    /// # Panics
    /// When `keys`, `validity` and `hashes` differ in length.
    pub fn hash_keys[K: Key][K](seed: &Seed, keys: &[K], validity: Option<Bits<'_>>, hashes: &mut [u64])
        = hash_keys_plain;
}

kernel! {
    /// Hashes of several columns: combines the hashes of the columns before with this one.
    ///
    /// # Panics
    /// When `keys`, `validity` and `hashes` differ in length.
    pub fn combine_keys[K: Key][K](seed: &Seed, keys: &[K], validity: Option<Bits<'_>>, hashes: &mut [u64])
        = combine_keys_plain;
}

#[inline(always)]
fn hash_keys_plain<K: Key>(seed: &Seed, keys: &[K], validity: Option<Bits<'_>>, hashes: &mut [u64]) {
    hashes.fill(0);
    combine_keys_plain(seed, keys, validity, hashes);
}

#[inline(always)]
fn combine_keys_plain<K: Key>(seed: &Seed, keys: &[K], validity: Option<Bits<'_>>, hashes: &mut [u64]) {
    assert_eq!(keys.len(), hashes.len(), "a hash a key");
    match validity {
        None => {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = key.hash(seed, *hash);
            }
        }
        Some(validity) => {
            assert_eq!(validity.len(), keys.len(), "a bit a key");
            let words = validity.words();
            for ((keys, hashes), valid) in keys.chunks(WORD_BITS).zip(hashes.chunks_mut(WORD_BITS)).zip(words)
            {
                combine_word(seed, valid, hashes, |row, so_far| keys[row].hash(seed, so_far));
            }
        }
    }
}

/// Hashes up to 64 rows as if all were valid, in one plain loop, and then corrects the NULLs.
#[inline(always)]
fn combine_word(seed: &Seed, valid: u64, hashes: &mut [u64], hash: impl Fn(usize, u64) -> u64) {
    let mut before = [0; WORD_BITS];
    before[..hashes.len()].copy_from_slice(hashes);
    for (row, hash_out) in hashes.iter_mut().enumerate() {
        *hash_out = hash(row, before[row]);
    }
    let mut nulls = !valid;
    while nulls != 0 {
        let row = nulls.trailing_zeros() as usize;
        nulls &= nulls - 1;
        if let Some(hash) = hashes.get_mut(row) {
            *hash = seed.null(before[row]);
        }
    }
}
