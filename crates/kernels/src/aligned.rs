//! Bytes that begin on a cache line, and bytes as the numbers that they are.
//!
//! What is read from a file is used where it lies: the buffer begins at a multiple of 64 bytes, values lie at
//! multiples of their size in it, and [`numbers`] gives them without a copy. Unsafe buys that copy, which takes as
//! long as reading the bytes from the cache of the system.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::region::{Region, Zero};

/// A fixed count of bytes on cache lines of their own.
pub struct AlignedBytes {
    region: Region<u8>,
}

// SAFETY: zero is a byte, and bytes need not be dropped.
unsafe impl Zero for u8 {}

impl AlignedBytes {
    /// So many zeros.
    ///
    /// # Panics
    /// When there is no room for them in the address space.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        // A region is not empty.
        Self { region: Region::zeroed(len.max(1)) }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.region
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.region
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Numbers of which any bytes are a value.
pub trait Number: Copy + sealed::Sealed {}

mod sealed {
    /// # Safety
    /// Any bytes must be a value, and bytes are all that it has.
    pub unsafe trait Sealed {}
}

macro_rules! numbers {
    ($($type:ty),*) => { $(
        // SAFETY: any bytes are a number, none of its bytes is padding.
        unsafe impl sealed::Sealed for $type {}
        impl Number for $type {}
    )* };
}
numbers! { i8, i16, i32, i64, i128, u8, u16, u32, u64, u128, f32, f64 }

/// Little-endian bytes as numbers, without a copy: none if they do not lie at a multiple of the size of a number, are
/// no whole count of them, or this machine has its bytes the other way round.
#[must_use]
pub fn numbers<T: Number>(bytes: &[u8]) -> Option<&[T]> {
    if cfg!(target_endian = "big") && size_of::<T>() > 1 {
        return None;
    }
    // SAFETY: any bytes are a number, as the trait promises.
    match unsafe { bytes.align_to::<T>() } {
        ([], numbers, []) => Some(numbers),
        _ => None,
    }
}

/// The same, to be written; whatever is there are numbers, too.
#[must_use]
pub fn numbers_mut<T: Number>(bytes: &mut [u8]) -> Option<&mut [T]> {
    if cfg!(target_endian = "big") && size_of::<T>() > 1 {
        return None;
    }
    // SAFETY: any bytes are a number and any number is bytes, as the trait promises.
    match unsafe { bytes.align_to_mut::<T>() } {
        ([], numbers, []) => Some(numbers),
        _ => None,
    }
}

/// Numbers as their little-endian bytes, without a copy: none if this machine has its bytes the other way round.
#[must_use]
pub fn bytes_of<T: Number>(numbers: &[T]) -> Option<&[u8]> {
    if cfg!(target_endian = "big") && size_of::<T>() > 1 {
        return None;
    }
    // SAFETY: bytes are all that numbers have, as the trait promises, and bytes need no alignment.
    Some(unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_numbers_where_they_are_aligned() {
        let mut bytes = AlignedBytes::zeroed(200);
        for (index, byte) in (0_u8..).zip(&mut *bytes) {
            *byte = index;
        }
        assert_eq!(bytes.as_ptr().addr() % 64, 0);
        assert_eq!(numbers::<u16>(&bytes[2..6]), Some(&[0x0302, 0x0504][..]));
        assert_eq!(numbers::<u16>(&bytes[1..5]), None);
        assert_eq!(numbers::<u16>(&bytes[2..5]), None);
        assert_eq!(numbers::<i128>(&bytes[32..80]).map(<[i128]>::len), Some(3));
        assert_eq!(numbers::<f64>(&bytes[..0]), Some(&[][..]));
        numbers_mut::<u16>(&mut bytes[4..6]).unwrap().fill(0x0908);
        assert_eq!(bytes[3..7], [3, 8, 9, 6]);
        assert_eq!(numbers_mut::<u16>(&mut bytes[1..3]), None);
        assert_eq!(AlignedBytes::zeroed(0).len(), 1);
        assert_eq!(bytes_of(&[0x0201_u16, 0x0403]), Some(&[1, 2, 3, 4][..]));
    }
}
