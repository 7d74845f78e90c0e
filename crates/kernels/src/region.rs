//! Memory for large tables: zeroed, in huge pages where the system has them.
//!
//! A table that is probed at random misses the TLB at nearly every row if it is in 4 KiB pages: huge pages
//! made probing 2 to 2.5 times faster in an experiment, from a few megabytes on. So a region of that size
//! begins at a multiple of 2 MiB, and huge pages are requested (`madvise`, Linux only; elsewhere and for
//! small regions nothing happens). The memory comes from the global allocator and is not touched here: pages
//! are zeroed when they are first written to.
//!
//! The unsafe code gains untouched memory with an alignment, which `Vec` cannot give.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

const HUGE_PAGE_BYTES: usize = 2 << 20;
pub(crate) const LINE_BYTES: usize = 64;
/// The alignment up to which the standard library uses `calloc`, on 64-bit machines.
const SYSTEM_ALIGN: usize = 16;

/// Types of which all-zero bytes are a value.
///
/// # Safety
/// All-zero bytes must be a value, and the type must not need to be dropped.
pub(crate) unsafe trait Zero: Copy {
    /// The value whose bytes are all zero.
    // SAFETY: implementing the trait says that all-zero bytes are a value.
    const ZERO: Self = unsafe { std::mem::zeroed() };
}

/// A buffer of fixed size on cache lines of its own, with zeros at first.
pub(crate) struct Region<T> {
    base: NonNull<u8>,
    layout: Layout,
    first: NonNull<T>,
    len: usize,
}

// SAFETY: a region owns its memory as a `Box<[T]>` does.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: the memory is the region's own, as in a vector; shared access only reads.
unsafe impl<T: Sync> Sync for Region<T> {}

impl<T: Zero> Region<T> {
    /// `len` zeros; `len` and the size of `T` are not zero.
    pub(crate) fn zeroed(len: usize) -> Self {
        // SAFETY: zeros are a value of `T`.
        unsafe { Self::allocate(len, alloc_zeroed) }
    }
}

impl Region<AtomicU32> {
    /// `len` zeros, which several threads write; `len` is not zero.
    pub(crate) fn zeroed_words(len: usize) -> Self {
        // SAFETY: zeros are a value of the type, and it need not be dropped.
        unsafe { Self::allocate(len, alloc_zeroed) }
    }
}

impl Region<AtomicU64> {
    /// `len` zeros, which several threads write; `len` is not zero.
    pub(crate) fn zeroed_words(len: usize) -> Self {
        // SAFETY: zeros are a value of the type, and it need not be dropped.
        unsafe { Self::allocate(len, alloc_zeroed) }
    }
}

impl<T> Region<T> {
    /// # Safety
    /// `allocate` must be a function of the global allocator, and the bytes that it gives must be values of
    /// `T`, which must not need to be dropped.
    unsafe fn allocate(len: usize, allocate: unsafe fn(Layout) -> *mut u8) -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= LINE_BYTES) };
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0).expect("a size in memory");
        let is_huge = bytes >= HUGE_PAGE_BYTES;
        // With slack to begin at a huge page; skipped memory is never touched and costs nothing. The system's
        // allocator passes on zeroed pages from the kernel only for its own alignment; for others it writes
        // zeros.
        let (slack, align) = if is_huge { (HUGE_PAGE_BYTES, SYSTEM_ALIGN) } else { (0, LINE_BYTES) };
        let layout = bytes
            .checked_add(slack)
            .and_then(|bytes| Layout::from_size_align(bytes, align).ok())
            .expect("a size in memory");
        // SAFETY: the layout has a size above zero.
        let base = NonNull::new(unsafe { allocate(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let skip = if is_huge { base.as_ptr().align_offset(HUGE_PAGE_BYTES) } else { 0 };
        assert!(skip <= slack, "huge pages begin at multiples of their size");
        // SAFETY: `skip` bytes of slack were allocated in front of `bytes`.
        let first = unsafe { base.add(skip) };
        if is_huge {
            advise_huge_pages(first.as_ptr(), bytes);
        }
        Self { base, layout, first: first.cast(), len }
    }

    /// The size of the values in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and given back once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl<T> Deref for Region<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` places from `first` on are allocated and hold values of `T`, see `allocate`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Region<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the region is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

/// Requests huge pages for the whole pages inside the range; ignored except on Linux.
pub(crate) fn advise_huge_pages(start: *mut u8, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const PAGE_BYTES: usize = 4096;
        let skip = start.align_offset(PAGE_BYTES);
        if skip < bytes {
            // SAFETY: advice changes no byte, wherever it points; the system checks the range. An error means
            // that there are no huge pages, which is no error here.
            unsafe { libc::madvise(start.wrapping_add(skip).cast(), bytes - skip, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}

/// Prefetches the cache line of `value`, for reading and writing.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_ptr(value);
}

/// As [`prefetch`], for an address that need not be valid.
#[inline(always)]
pub(crate) fn prefetch_ptr<T>(value: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has SSE, and prefetching has no effect that a program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(value.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: prefetching has no effect that a program can see.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) value, options(nostack, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = value;
}
