//! What the benchmarks need and only unsafe code gives: foreign rivals, the clock of a thread, huge pages.
//!
//! Built with the feature `bench` only. It stands here because this crate is the one home of unsafe code.

use std::time::Duration;

use crate::compare::Comparable;
use crate::region::{advise_huge_pages, prefetch_ptr};

pub mod glibc;
pub mod google_snappy;
#[cfg(target_arch = "x86_64")]
pub mod tiflash;

/// Time on a core since the thread began.
///
/// On a machine that does other work too, a thread waits for a core now and then; that says nothing about a
/// loop. Reading this clock costs some 200 ns.
#[cfg(target_os = "linux")]
#[must_use]
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "every Linux thread has this clock");
    let seconds = u64::try_from(time.tv_sec).expect("threads run forward");
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).expect("below a second"))
}

/// Time since the first call: elsewhere waiting counts.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn thread_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

kernel! {
    /// The words of a column, added up as fast as this CPU reads: nothing that looks at each value can do less.
    /// Compiled for no level, the same loop reads memory at four fifths of the speed.
    pub fn read[T: Comparable][T](values: &[T]) -> u64 = read_plain;
}

#[inline(always)]
fn read_plain<T: Comparable>(values: &[T]) -> u64 {
    const AHEAD: usize = 1024;
    let mut sums = [0_u64; 32];
    // SAFETY: numbers have no padding, and every word is a number.
    let (_, words, _) = unsafe { values.align_to::<u64>() };
    for words in words.as_chunks::<32>().0 {
        for line in words.chunks(8) {
            prefetch_ptr(line.as_ptr().wrapping_add(AHEAD));
        }
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// `rows` values; the system is asked for huge pages before the first is written, as small pages cost a
/// third of the bandwidth, which no loop could win back.
pub fn vec_in_huge_pages<T>(rows: usize, make: impl FnMut() -> T) -> Vec<T> {
    let mut values = Vec::<T>::with_capacity(rows);
    advise_huge_pages(values.as_mut_ptr().cast(), rows * size_of::<T>());
    values.extend(std::iter::repeat_with(make).take(rows));
    values
}
