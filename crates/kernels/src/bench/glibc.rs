//! The C library's memory functions, as rivals in benchmarks.

use std::cmp::Ordering;

use libc::c_void;

fn position(haystack: &[u8], hit: *const c_void) -> Option<usize> {
    (!hit.is_null()).then(|| hit.addr() - haystack.as_ptr().addr())
}

/// The first position of the byte.
#[must_use]
pub fn memchr(haystack: &[u8], byte: u8) -> Option<usize> {
    // SAFETY: pointer and length of a slice.
    position(haystack, unsafe { libc::memchr(haystack.as_ptr().cast(), i32::from(byte), haystack.len()) })
}

/// The first position of the needle.
#[must_use]
pub fn memmem(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (start, needle_start) = (haystack.as_ptr().cast(), needle.as_ptr().cast());
    // SAFETY: pointers and lengths of slices.
    position(haystack, unsafe { libc::memmem(start, haystack.len(), needle_start, needle.len()) })
}

/// Compares the common length.
#[must_use]
pub fn memcmp(left: &[u8], right: &[u8]) -> Ordering {
    let len = left.len().min(right.len());
    // SAFETY: both slices have as many bytes.
    unsafe { libc::memcmp(left.as_ptr().cast(), right.as_ptr().cast(), len) }.cmp(&0)
}

/// Copies `source`; both must have the same length.
pub fn memcpy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len());
    // SAFETY: as many bytes in both; one is borrowed mutably, so they are apart.
    unsafe { libc::memcpy(target.as_mut_ptr().cast(), source.as_ptr().cast(), source.len()) };
}
