//! Bytes that begin on a cache line, and bytes viewed as numbers.
//!
//! File contents are used where they were read: the buffer begins at a multiple of 64 bytes, values lie in it
//! at multiples of their size, and [`numbers`] views them without a copy. The unsafe code saves that copy,
//! which takes as long as reading the bytes from the page cache.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::region::{Region, Zero};

/// A buffer of fixed size on cache lines of its own.
pub struct AlignedBytes {
    region: Region<u8>,
}

// SAFETY: zero is a byte, and bytes need not be dropped.
unsafe impl Zero for u8 {}

impl AlignedBytes {
    /// A buffer of `len` zeros.
    ///
    /// # Panics
    /// When the address space has no room for them.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        // A region cannot be empty.
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

/// Numbers for which any bytes are a valid value.
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

/// Little-endian bytes viewed as numbers, without a copy. `None` if they are not aligned to the size of a
/// number, are not a whole count of numbers, or this machine is big-endian.
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

/// As [`numbers`], for writing; the bytes there are valid numbers, too.
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

/// Numbers viewed, for writing, as those of another type that have the same bytes.
///
/// # Panics
/// When the types differ in size or alignment.
#[must_use]
pub fn same_bytes_mut<T: Number, U: Number>(numbers: &mut [T]) -> &mut [U] {
    assert!(size_of::<T>() == size_of::<U>() && align_of::<T>() == align_of::<U>(), "types of the same size");
    // SAFETY: any bytes are a number of each type, as the trait promises, and sizes and alignments are the same.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// Numbers viewed as their little-endian bytes, without a copy. `None` if this machine is big-endian.
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
        let mut floats = [1.0, -0.0];
        same_bytes_mut::<f64, u64>(&mut floats)[0] = 2.0_f64.to_bits();
        assert_eq!(floats, [2.0, 0.0]);
        assert_eq!(numbers::<i128>(&bytes[32..80]).map(<[i128]>::len), Some(3));
        assert_eq!(numbers::<f64>(&bytes[..0]), Some(&[][..]));
        numbers_mut::<u16>(&mut bytes[4..6]).unwrap().fill(0x0908);
        assert_eq!(bytes[3..7], [3, 8, 9, 6]);
        assert_eq!(numbers_mut::<u16>(&mut bytes[1..3]), None);
        assert_eq!(AlignedBytes::zeroed(0).len(), 1);
        assert_eq!(bytes_of(&[0x0201_u16, 0x0403]), Some(&[1, 2, 3, 4][..]));
    }
}
