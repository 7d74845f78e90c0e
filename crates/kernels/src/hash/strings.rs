//! Strings, as offset arrays and as views, and their hashes.
//!
//! A string of up to 12 bytes is taken as the 16-byte word that Arrow's views are: length, then bytes, zeros
//! behind the end. Reading one from an offset array is a load and a mask, without branches on the length, and
//! its hash is that of two words. Longer strings are folded 32 bytes at a time by wide products with secrets
//! (as wyhash and rapidhash do); the last block overlaps the one before instead of ending in a loop.

use super::Seed;
use crate::Bits;

/// The most bytes that a 16-byte view has in itself.
pub(crate) const INLINE_BYTES: usize = 12;

/// A column of strings (or other bytes), without validity.
#[derive(Clone, Copy, Debug)]
pub enum Strings<'a> {
    /// Row `i` is `bytes[offsets[i]..offsets[i + 1]]`; one offset more than rows.
    Offsets32(&'a [i32], &'a [u8]),
    /// The same with wide offsets.
    Offsets64(&'a [i64], &'a [u8]),
    /// Arrow's views: the length in the low 32 bits, then either up to 12 bytes, or 4 bytes, the number of a
    /// buffer and the offset there.
    Views(&'a [u128], &'a [&'a [u8]]),
}

impl<'a> Strings<'a> {
    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Offsets32(offsets, _) => offsets.len().saturating_sub(1),
            Self::Offsets64(offsets, _) => offsets.len().saturating_sub(1),
            Self::Views(views, _) => views.len(),
        }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The short form of a row, or its bytes.
    ///
    /// # Panics
    /// When `row` is not a row, or its bytes are not in the buffer.
    #[inline(always)]
    pub(crate) fn word_or_bytes(&self, row: usize) -> Result<u128, &'a [u8]> {
        match *self {
            Self::Offsets32(offsets, bytes) => {
                word_or_bytes(bytes, offsets[row] as usize, offsets[row + 1] as usize)
            }
            Self::Offsets64(offsets, bytes) => {
                word_or_bytes(bytes, offsets[row] as usize, offsets[row + 1] as usize)
            }
            Self::Views(views, buffers) => {
                let view = views[row];
                let len = view as u32 as usize;
                if len <= INLINE_BYTES {
                    Ok(view & inline_mask(len))
                } else {
                    let start = (view >> 96) as usize;
                    Err(&buffers[(view >> 64) as u32 as usize][start..start + len])
                }
            }
        }
    }
}

#[inline(always)]
fn word_or_bytes(bytes: &[u8], start: usize, end: usize) -> Result<u128, &[u8]> {
    if end.wrapping_sub(start) > INLINE_BYTES {
        return Err(&bytes[start..end]);
    }
    Ok(match bytes.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(chunk) => inline_word(u128::from_le_bytes(*chunk), end - start),
        None => inline_form(&bytes[start..end]),
    })
}

/// The short form of a string from 16 bytes that begin with it.
#[inline(always)]
fn inline_word(loaded: u128, len: usize) -> u128 {
    (loaded << 32 & inline_mask(len)) | len as u128
}

/// The bits of a short form that has `len <= 12` bytes: the length and the bytes.
#[inline(always)]
fn inline_mask(len: usize) -> u128 {
    u128::MAX >> (8 * (INLINE_BYTES - len))
}

/// The short form of up to 12 bytes.
#[cold]
pub(crate) fn inline_form(bytes: &[u8]) -> u128 {
    let mut chunk = [0; 16];
    chunk[..bytes.len()].copy_from_slice(bytes);
    inline_word(u128::from_le_bytes(chunk), bytes.len())
}

/// The hash of a short form.
#[inline(always)]
pub(crate) fn hash_inline(seed: &Seed, word: u128, so_far: u64) -> u64 {
    seed.word((word >> 64) as u64 ^ seed.word(word as u64 ^ so_far))
}

/// The hash of a string of more than 12 bytes.
#[inline(always)]
pub(crate) fn hash_bytes(seed: &Seed, bytes: &[u8], so_far: u64) -> u64 {
    let [mut first, mut second, third, fourth] = seed.folds;
    let len = bytes.len();
    if len <= 16 {
        first = fold(word_at(bytes, 0) ^ first, word_at(bytes, len - 8) ^ third);
    } else {
        let mut start = 0;
        while len - start > 32 {
            first = fold(word_at(bytes, start) ^ first, word_at(bytes, start + 8) ^ third);
            second = fold(word_at(bytes, start + 16) ^ second, word_at(bytes, start + 24) ^ fourth);
            start += 32;
        }
        // The last 32 bytes, or, where there are fewer, two ends of 16 that overlap.
        let start = len.saturating_sub(32);
        first = fold(word_at(bytes, start) ^ first, word_at(bytes, start + 8) ^ third);
        second = fold(word_at(bytes, len - 16) ^ second, word_at(bytes, len - 8) ^ fourth);
    }
    seed.word(first ^ second.rotate_left(23) ^ so_far ^ (len as u64) << 32)
}

/// The halves of the wide product, one over the other.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn word_at(bytes: &[u8], start: usize) -> u64 {
    u64::from_le_bytes(*bytes[start..].first_chunk().expect("the caller stays eight bytes from the end"))
}

kernel! {
    /// Hashes of a column of strings; nulls have one hash.
    ///
    /// # Panics
    /// When lengths differ, or a string is not within its buffer.
    pub fn hash_strings(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64])
        = hash_strings_plain;
}

kernel! {
    /// Turns the hashes of the columns before into those with this one.
    ///
    /// # Panics
    /// When lengths differ, or a string is not within its buffer.
    pub fn combine_strings(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64])
        = combine_strings_plain;
}

#[inline(always)]
fn hash_strings_plain(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64]) {
    hashes.fill(0);
    combine_strings_plain(seed, strings, validity, hashes);
}

#[inline(always)]
fn combine_strings_plain(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64]) {
    assert_eq!(strings.len(), hashes.len(), "a hash a string");
    assert!(validity.is_none_or(|validity| validity.len() == hashes.len()), "a bit a string");
    // No closures here: where the compiler leaves one a function of its own, it is compiled for no level.
    for (row, hash) in hashes.iter_mut().enumerate() {
        *hash = if validity.is_some_and(|validity| !validity.get(row)) {
            seed.null(*hash)
        } else {
            match strings.word_or_bytes(row) {
                Ok(word) => hash_inline(seed, word, *hash),
                Err(bytes) => hash_bytes(seed, bytes, *hash),
            }
        };
    }
}
