//! Hashes that are stored: XXH3 with seed 0 of a number as 8 bytes, little endian.
//!
//! Unlike the other hashes they are the same in every process and version. They are no secret: whoever chooses the keys
//! can make them collide, so tables in memory use seeded ones. This is the branch of XXH3 for inputs of 8 bytes with the
//! constants of its default secret folded (xxHash, `XXH3_len_4to8_64b`), so that the loop vectorises.

/// The exclusive or of bytes 8 to 15 and 16 to 23 of the default secret.
const BIT_FLIP: u64 = 0xc73a_b174_c5ec_d5a2;
/// `PRIME_MX2`
const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
const BYTE_COUNT: u64 = 8;

/// A number of up to 64 bits; signed ones are extended by their sign. Equal numbers have equal hashes, whatever their width.
pub trait StoredKey: Copy + sealed::Number {
    /// The number in 64 bits.
    #[doc(hidden)]
    fn word(self) -> u64;
}

mod sealed {
    pub trait Number {}
}

macro_rules! keys {
    ($($type:ty),*) => {$(
        impl sealed::Number for $type {}
        impl StoredKey for $type {
            #[inline(always)]
            #[allow(clippy::cast_lossless, reason = "one line serves all widths")]
            #[allow(clippy::cast_sign_loss, reason = "the sign fills the high bits")]
            fn word(self) -> u64 {
                self as u64
            }
        }
    )*};
}

keys!(u8, u16, u32, u64, i8, i16, i32, i64);

/// The hash of one number.
#[inline(always)]
#[must_use]
pub fn stored_hash(key: impl StoredKey) -> u64 {
    let mixed = key.word().rotate_left(32) ^ BIT_FLIP;
    let mixed = (mixed ^ mixed.rotate_left(49) ^ mixed.rotate_left(24)).wrapping_mul(FACTOR);
    let mixed = (mixed ^ (mixed >> 35).wrapping_add(BYTE_COUNT)).wrapping_mul(FACTOR);
    mixed ^ mixed >> 28
}

kernel! {
    /// The hashes of numbers.
    ///
    /// # Panics
    /// When `keys` and `hashes` differ in length.
    pub fn stored_hashes[K: StoredKey][K](keys: &[K], hashes: &mut [u64]) = stored_hashes_plain;
}

#[inline(always)]
fn stored_hashes_plain<K: StoredKey>(keys: &[K], hashes: &mut [u64]) {
    assert_eq!(keys.len(), hashes.len(), "a hash a key");
    for (hash, key) in hashes.iter_mut().zip(keys) {
        *hash = stored_hash(*key);
    }
}
