//! Packs values to bits.
//!
//! The values in eight bytes are squeezed together inside a word: first neighbours, then pairs, then fours,
//! each by one shift; the word's bits are then appended to the bits before it. Eight values end at a byte, so
//! the next eight do not depend on them. All widths use the same code.

use super::{Integer, packed_bytes};
use crate::Level;

/// Values that fill whole bytes, whatever the width is.
const GROUP: usize = 8;

/// `values` minus `reference`, `width` bits each; higher bits are cut off.
///
/// # Panics
/// When `width` is more than `T` has.
#[must_use]
pub fn pack<T: Integer>(level: Level, values: &[T], width: u32, reference: T) -> Vec<u8> {
    assert!(width <= T::BITS, "{width} bits of values of {}", T::BITS);
    pack_values(level, values, width, reference)
}

kernel! {
    fn pack_values[T: Integer][T](values: &[T], width: u32, reference: T) -> Vec<u8> = pack_plain;
}

#[inline(always)]
fn pack_plain<T: Integer>(values: &[T], width: u32, reference: T) -> Vec<u8> {
    // Words are stored whole, wherever they begin, and the next ones overwrite their excess.
    let mut bytes = vec![0_u8; packed_bytes(values.len(), width) + 16];
    let (groups, rest) = values.as_chunks::<GROUP>();
    for (index, group) in groups.iter().enumerate() {
        pack_group(group, width, reference, &mut bytes[index * width as usize..]);
    }
    pack_group(rest, width, reference, &mut bytes[groups.len() * width as usize..]);
    bytes.truncate(packed_bytes(values.len(), width));
    bytes
}

/// Packs at most a group; bytes behind it are overwritten.
#[inline(always)]
fn pack_group<T: Integer>(values: &[T], width: u32, reference: T, bytes: &mut [u8]) {
    let per_word = (u64::BITS / T::BITS) as usize;
    let mask = u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0);
    let (mut pending, mut bit) = (0_u128, 0_usize);
    for chunk in values.chunks(per_word) {
        let mut word = 0;
        for (index, value) in chunk.iter().enumerate() {
            word |= (value.less_reference(reference) & mask) << (index * T::BITS as usize);
        }
        let mut lane = T::BITS;
        let mut filled = width;
        while lane < u64::BITS {
            word = squeeze(word, lane, filled);
            lane *= 2;
            filled *= 2;
        }
        pending |= u128::from(word) << (bit % 8);
        bytes[bit / 8..bit / 8 + 16].copy_from_slice(&pending.to_le_bytes());
        let next = bit + chunk.len() * width as usize;
        pending >>= (next / 8 - bit / 8) * 8;
        bit = next;
    }
}

/// Moves odd lanes down next to the even ones, where `filled` bits of each lane are used.
#[inline(always)]
fn squeeze(word: u64, lane: u32, filled: u32) -> u64 {
    let even = u64::MAX / ((1 << lane) + 1);
    word & even | (word & !even) >> (lane - filled)
}
