//! What the benchmarks need unsafe code for: foreign rivals, the CPU time of a thread, huge pages.
//!
//! Built only with the feature `bench`. It is here because this crate is the one home of unsafe code.

use std::time::Duration;

use crate::compare::Comparable;
use crate::dispatch::stream_ahead_bytes;
use crate::region::{advise_huge_pages, prefetch_ptr};

pub mod glibc;
pub mod google_snappy;
#[cfg(target_arch = "x86_64")]
pub mod tiflash;

/// CPU time of the thread since it began.
///
/// On a busy machine a thread waits for a core now and then, which does not concern the loop being measured.
/// Reading this clock costs some 200 ns.
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

/// Wall-clock time since the first call: on other systems waiting is included.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn thread_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

kernel! {
    /// Sums the words of a column, except for a few lines, as fast as we know how to read: in two places
    /// alternately, which is faster than in one; and compiled for a level, without which it reaches four
    /// fifths of the speed.
    pub fn read[T: Comparable][T](values: &[T]) -> u64 = read_plain;
}

#[inline(always)]
fn read_plain<T: Comparable>(values: &[T]) -> u64 {
    /// A cache line.
    #[repr(align(64))]
    struct Line([u64; 8]);
    let ahead = stream_ahead_bytes();
    let mut sums = [[0_u64; 8]; 4];
    // SAFETY: numbers have no padding, and every word is a number.
    let (_, lines, _) = unsafe { values.align_to::<Line>() };
    let (first, second) = lines.split_at(lines.len() / 2);
    for (first, second) in first.as_chunks::<2>().0.iter().zip(second.as_chunks::<2>().0) {
        for (sums, line) in sums.iter_mut().zip([&first[0], &second[0], &first[1], &second[1]]) {
            prefetch_ptr(std::ptr::from_ref(line).wrapping_byte_add(ahead));
            for (sum, word) in sums.iter_mut().zip(line.0) {
                *sum = sum.wrapping_add(word);
            }
        }
    }
    sums.as_flattened().iter().copied().fold(0, u64::wrapping_add)
}

/// `rows` values in huge pages, which are requested before the first is written: small pages cost a third of
/// the bandwidth, which no loop could win back.
pub fn vec_in_huge_pages<T>(rows: usize, make: impl FnMut() -> T) -> Vec<T> {
    let mut values = Vec::<T>::with_capacity(rows);
    advise_huge_pages(values.as_mut_ptr().cast(), rows * size_of::<T>());
    values.extend(std::iter::repeat_with(make).take(rows));
    values
}
