//! Values that end where readable memory ends, or begin where it begins: a read past them is a crash, not luck.
//!
//! Under Miri, which sees every such read, they are a `Vec`.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::ops::{Deref, DerefMut};

/// A copy of values, the last byte of which is the last of a page before one that cannot be read; or the first byte of
/// which is the first of a page behind one.
pub(crate) struct AtPageEnd<T: Copy> {
    #[cfg(miri)]
    values: Vec<T>,
    #[cfg(not(miri))]
    pages: (*mut libc::c_void, usize),
    #[cfg(not(miri))]
    start: *const T,
    #[cfg(not(miri))]
    len: usize,
}

#[cfg(miri)]
impl<T: Copy> AtPageEnd<T> {
    pub(crate) fn new(values: &[T]) -> Self {
        Self { values: values.to_vec() }
    }

    pub(crate) fn begins_a_page(values: &[T]) -> Self {
        Self::new(values)
    }
}

#[cfg(not(miri))]
impl<T: Copy> AtPageEnd<T> {
    pub(crate) fn new(values: &[T]) -> Self {
        Self::placed(values, |readable, bytes| readable - bytes)
    }

    pub(crate) fn begins_a_page(values: &[T]) -> Self {
        Self::placed(values, |_, _| 0)
    }

    /// `place` says where in the readable bytes so many begin.
    fn placed(values: &[T], place: impl Fn(usize, usize) -> usize) -> Self {
        // Large enough for every page size in use.
        const PAGE: usize = 64 << 10;
        let bytes = size_of_val(values);
        let readable = bytes.next_multiple_of(PAGE);
        let length = PAGE + readable + PAGE;
        let access = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping of its own.
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), length, access.0, access.1, -1, 0) };
        assert!(pages != libc::MAP_FAILED, "no memory for a page");
        for at in [0, PAGE + readable] {
            // SAFETY: the first and the last page of the mapping.
            let guard = unsafe { libc::mprotect(pages.byte_add(at), PAGE, libc::PROT_NONE) };
            assert_eq!(guard, 0, "no guard page");
        }
        // SAFETY: inside the mapping; sizes are multiples of the alignment.
        let start: *mut T = unsafe { pages.byte_add(PAGE + place(readable, bytes)) }.cast();
        // SAFETY: `bytes` bytes lie there between the guards.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), start, values.len()) };
        Self { pages: (pages, length), start, len: values.len() }
    }
}

impl<T: Copy> Deref for AtPageEnd<T> {
    type Target = [T];

    #[cfg(miri)]
    fn deref(&self) -> &[T] {
        &self.values
    }

    #[cfg(not(miri))]
    fn deref(&self) -> &[T] {
        // SAFETY: as many values were copied there, and the mapping lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T: Copy> DerefMut for AtPageEnd<T> {
    #[cfg(miri)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    #[cfg(not(miri))]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, the pages can be written, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast_mut(), self.len) }
    }
}

#[cfg(not(miri))]
impl<T: Copy> Drop for AtPageEnd<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing borrows it any more.
        unsafe { libc::munmap(self.pages.0, self.pages.1) };
    }
}
