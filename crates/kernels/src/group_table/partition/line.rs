//! A few rows that fill whole cache lines and are written to memory together.
//!
//! Streaming stores write a line without reading it first. That halves the memory traffic of scattering,
//! which is bound by memory; they need no CPU level, as every x86-64 has SSE2.

use std::mem::MaybeUninit;

use crate::region::Zero;

/// Rows of 16 bytes in a [`Line`]. The unpredictable branch for a full line is taken once in this many rows.
pub(crate) const LINE_ROWS: usize = 8;

/// Rows that fill cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line<R>(pub(crate) [R; LINE_ROWS]);

// SAFETY: an array of values that may be zero.
unsafe impl<R: Zero> Zero for Line<R> {}

impl<R: Zero> Line<R> {
    /// Writes the line, bypassing the caches; call [`fence`] before the target is read.
    #[inline(always)]
    pub(crate) fn stream_to(&self, target: &mut MaybeUninit<Self>) {
        const { assert!(size_of::<Self>() == LINE_ROWS * 16) };
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_stream_si128};
            let from = std::ptr::from_ref(self).cast::<__m128i>();
            let to = target.as_mut_ptr().cast::<__m128i>();
            for row in 0..LINE_ROWS {
                // SAFETY: both lines have `LINE_ROWS` times 16 bytes and are aligned; every x86-64 has SSE2.
                // The caller issues the fence before anyone reads the line.
                unsafe { _mm_stream_si128(to.add(row), _mm_load_si128(from.add(row))) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            target.write(*self);
        }
    }
}

/// Ends a series of streaming stores, so that other threads see them.
pub(crate) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
