//! What programs with mimalloc as their allocator ask of it besides memory.

use std::ffi::{c_int, c_long};

// Its library is linked for the functions below.
use libmimalloc_sys as _;

unsafe extern "C" {
    /// See `mimalloc.h`.
    fn mi_collect(force: bool);
    /// See `mimalloc.h`.
    fn mi_option_set(option: c_int, value: c_long);
}

/// `mi_option_purge_delay` of `mimalloc.h`.
const PURGE_DELAY: c_int = 15;

/// Lets the allocator keep freed memory for so many milliseconds before it returns it to the system, unless
/// [`give_back_freed`] is called.
///
/// Memory that comes back from the system has to be cleared, a page fault at a time: with mimalloc's own delay, tables
/// of groups that grow and go took half as long again.
pub fn keep_freed(milliseconds: u32) {
    // SAFETY: the declaration is that of `mimalloc.h`, where the option is a number of milliseconds.
    unsafe { mi_option_set(PURGE_DELAY, c_long::from(milliseconds)) }
}

/// Returns freed memory to the system. Otherwise mimalloc keeps it for a while, in case it is needed again.
pub fn give_back_freed() {
    // SAFETY: the declaration is that of `mimalloc.h`; any thread may call it at any time, and what is in use
    // stays.
    unsafe { mi_collect(true) }
}
