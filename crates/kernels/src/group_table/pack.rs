//! Packs several columns of fixed width into one key.
//!
//! Columns are packed side by side, the first lowest; a nullable column is followed by a byte that is 1 for
//! NULL (and then its value is zero, so that all NULLs are equal). Its type says whether a column is
//! nullable, so that all chunks of a query have one layout, also those without NULLs. Up to 8 bytes become a
//! `u64`, up to 16 a `u128`.

use std::ops::{BitOr, Shl};

use crate::hash::Key;
use crate::{Bits, Level};

/// A column of a key, with values as bits.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn<'a> {
    /// The values.
    pub values: KeyValues<'a>,
    /// Which rows are valid; `None` if all are.
    pub validity: Option<Bits<'a>>,
    /// Whether there can be rows without a value, be it in other chunks.
    pub is_nullable: bool,
}

/// The values by their width.
#[derive(Clone, Copy, Debug)]
pub enum KeyValues<'a> {
    /// One byte.
    Bytes1(&'a [u8]),
    /// Two bytes.
    Bytes2(&'a [u16]),
    /// Four bytes.
    Bytes4(&'a [u32]),
    /// Eight bytes.
    Bytes8(&'a [u64]),
}

impl KeyColumn<'_> {
    fn bytes(&self) -> u32 {
        let width = match self.values {
            KeyValues::Bytes1(_) => 1,
            KeyValues::Bytes2(_) => 2,
            KeyValues::Bytes4(_) => 4,
            KeyValues::Bytes8(_) => 8,
        };
        width + u32::from(self.is_nullable)
    }
}

/// The bytes of a packed row of these columns: `u64` has room for 8, `u128` for 16.
#[must_use]
pub fn packed_bytes(columns: &[KeyColumn<'_>]) -> usize {
    columns.iter().map(|column| column.bytes() as usize).sum()
}

/// Packs rows into keys.
///
/// # Panics
/// When a column has another length than `keys`, rows are wider than keys, or a column that is not nullable has validity.
pub fn pack_keys<K>(level: Level, columns: &[KeyColumn<'_>], keys: &mut [K])
where
    K: Key + From<u64> + Shl<u32, Output = K> + BitOr<Output = K>,
{
    assert!(packed_bytes(columns) <= size_of::<K>(), "rows are wider than {} bytes", size_of::<K>());
    keys.fill(K::from(0));
    let mut shift = 0;
    for column in columns {
        assert!(column.is_nullable || column.validity.is_none(), "room for nulls");
        match column.values {
            KeyValues::Bytes1(values) => pack(level, values, column.validity, shift, keys),
            KeyValues::Bytes2(values) => pack(level, values, column.validity, shift, keys),
            KeyValues::Bytes4(values) => pack(level, values, column.validity, shift, keys),
            KeyValues::Bytes8(values) => pack(level, values, column.validity, shift, keys),
        }
        shift += 8 * column.bytes();
    }
}

kernel! {
    fn pack[V: Copy + Into<u64>, K: Key + From<u64> + Shl<u32, Output = K> + BitOr<Output = K>][V, K](
        values: &[V], validity: Option<Bits<'_>>, shift: u32, keys: &mut [K],
    ) = pack_plain;
}

#[inline(always)]
fn pack_plain<V: Copy + Into<u64>, K>(values: &[V], validity: Option<Bits<'_>>, shift: u32, keys: &mut [K])
where
    K: Key + From<u64> + Shl<u32, Output = K> + BitOr<Output = K>,
{
    assert_eq!(values.len(), keys.len(), "a value a key");
    match validity {
        None => {
            for (key, value) in keys.iter_mut().zip(values) {
                *key = *key | K::from((*value).into()) << shift;
            }
        }
        Some(validity) => {
            assert_eq!(validity.len(), keys.len(), "a bit a key");
            let null_shift = shift + 8 * size_of::<V>() as u32;
            let rows = keys.chunks_mut(64).zip(values.chunks(64)).zip(validity.words());
            for ((keys, values), valid) in rows {
                for (row, (key, value)) in keys.iter_mut().zip(values).enumerate() {
                    let is_valid = valid >> row & 1;
                    let value = (*value).into() & is_valid.wrapping_neg();
                    *key = *key | K::from(value) << shift | K::from(is_valid ^ 1) << null_shift;
                }
            }
        }
    }
}
/// Some bits of keys, side by side in 16 bits.
#[derive(Clone, Debug)]
pub struct Fold {
    /// Where bits are, which, and where they go; those that are not used have none.
    fields: [(u32, u64, u32); Self::FIELDS],
    /// All other bits.
    rest: u64,
}

impl Fold {
    /// The most fields.
    pub const FIELDS: usize = 8;

    /// Folds these fields, of each its lowest bit in keys and its count of bits, the first lowest.
    ///
    /// # Panics
    /// When there are more than [`Self::FIELDS`], a field ends behind the key, or all have more than 16 bits.
    #[must_use]
    pub fn new(fields: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut fold = Self { fields: [(0, 0, 0); Self::FIELDS], rest: u64::MAX };
        let mut used = 0;
        for (place, (shift, bits)) in fields.into_iter().enumerate() {
            assert!(shift + bits <= u64::BITS && used + bits <= u16::BITS, "fields within a key, in 16 bits");
            let mask = (1 << bits) - 1;
            fold.fields[place] = (shift, mask, used);
            fold.rest &= !(mask << shift);
            used += bits;
        }
        fold
    }

    /// The key of a number.
    #[must_use]
    pub fn unfold(&self, number: u64) -> u64 {
        self.fields.iter().fold(0, |key, (shift, mask, used)| key | (number >> used & mask) << shift)
    }
}

kernel! {
    /// Sets `folded` to the number of each key; `false`, with any numbers, if some keys have other bits.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn fold_keys(fold: &Fold, keys: &[u64], folded: &mut [u16]) -> bool = fold_plain;
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "fields have 16 bits together")]
fn fold_plain(fold: &Fold, keys: &[u64], folded: &mut [u16]) -> bool {
    /// Numbers that stay in registers or nearly while field after field is added.
    const CHUNK: usize = 64;
    assert_eq!(keys.len(), folded.len(), "a number a key");
    let used = fold.fields.iter().filter(|(_, mask, _)| *mask > 0);
    let mut rest = 0;
    for (keys, folded) in keys.chunks(CHUNK).zip(folded.chunks_mut(CHUNK)) {
        let mut numbers = [0; CHUNK];
        for (shift, mask, place) in used.clone() {
            for (number, key) in numbers.iter_mut().zip(keys) {
                *number |= (key >> shift & mask) << place;
            }
        }
        for ((folded, number), key) in folded.iter_mut().zip(numbers).zip(keys) {
            *folded = number as u16;
            rest |= key & fold.rest;
        }
    }
    rest == 0
}
