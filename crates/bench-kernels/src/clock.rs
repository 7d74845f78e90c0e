//! The time that this thread has run.
//!
//! On a machine that does other work too, a thread waits for a core now and then; that says nothing about
//! a loop. Reading this clock costs some 200 ns, so samples are far longer.

#![allow(unsafe_code, reason = "the standard library does not read this clock")]

use std::time::Duration;

/// Time on a core since the thread began.
#[cfg(target_os = "linux")]
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "every Linux thread has this clock");
    let seconds = u64::try_from(time.tv_sec).expect("threads run forward");
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).expect("below a second"))
}

/// Time since the first call: elsewhere waiting counts.
#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
