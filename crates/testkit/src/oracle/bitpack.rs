//! Packed integers, one bit at a time.

/// The low `width` bits of each value, one after the other, the least significant first.
#[must_use]
pub fn pack(values: &[u64], width: u32) -> Vec<u8> {
    let bit_of = |value: u64| (0..width).map(move |bit| value >> bit & 1 == 1);
    let bits: Vec<bool> = values.iter().flat_map(|value| bit_of(*value)).collect();
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect()
}
