//! The memory of the whole process, reserved or not.
//!
//! Operators reserve the memory that they keep, but not batches between operators, nor what the allocator
//! keeps after it was freed. For a process that is little else than a database the system knows the true sum:
//! anonymous memory, which no file backs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use keirin_kernels::allocator::{give_back_freed, keep_freed};

/// How long freed memory is kept, in case it is needed again, and how long where there is little of it.
const KEEP_FREED_MS: u32 = 10_000;
const KEEP_FREED_OF_LITTLE_MS: u32 = 10;
/// A lower limit is little memory.
const LITTLE_BYTES: usize = 1 << 30;

/// Measures how much the process's memory grows from a certain moment on.
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    page_bytes: usize,
    bytes_at_start: usize,
    began: Instant,
    /// When it was last measured, in milliseconds after `began`.
    counted_ms: AtomicU64,
    grown_bytes: AtomicUsize,
}

impl ProcessMemory {
    /// Measures from now on; `None` if the system does not provide the figures.
    pub(crate) fn from_now() -> Option<Self> {
        let maps = BufReader::new(File::open("/proc/self/smaps").ok()?);
        let mut lines = maps.lines().map_while(Result::ok);
        let page = lines.find_map(|line| line.strip_prefix("KernelPageSize:").map(str::to_owned))?;
        let page_bytes = 1024 * page.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?;
        let mut memory = Self {
            page_bytes,
            bytes_at_start: 0,
            began: Instant::now(),
            counted_ms: AtomicU64::new(0),
            grown_bytes: AtomicUsize::new(0),
        };
        memory.bytes_at_start = memory.bytes()?;
        Some(memory)
    }

    /// Has freed memory kept for as long as the limit allows.
    pub(crate) fn fit_to(&self, limit_bytes: usize) {
        keep_freed(if limit_bytes < LITTLE_BYTES { KEEP_FREED_OF_LITTLE_MS } else { KEEP_FREED_MS });
    }

    fn bytes(&self) -> Option<usize> {
        let text = fs::read_to_string("/proc/self/statm").ok()?;
        // Counts of pages: the total size, the resident ones, and those of them that files back.
        let mut pages = text.split(' ').skip(1).map_while(|pages| pages.parse::<usize>().ok());
        let (resident, of_files) = (pages.next()?, pages.next()?);
        Some(resident.saturating_sub(of_files) * self.page_bytes)
    }

    /// By how many bytes the process has grown since the start; at most a millisecond old. Beyond
    /// `limit_bytes` the allocator first returns freed memory to the system: until then it is cheaper to keep
    /// it.
    pub(crate) fn grown_bytes(&self, limit_bytes: usize) -> usize {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.counted_ms.swap(now, Ordering::Relaxed) == now {
            return self.grown_bytes.load(Ordering::Relaxed);
        }
        self.recount(limit_bytes)
    }

    /// As [`Self::grown_bytes`], but measured now: for use after memory was given back.
    pub(crate) fn recount(&self, limit_bytes: usize) -> usize {
        let grown = || self.bytes().unwrap_or(0).saturating_sub(self.bytes_at_start);
        let mut bytes = grown();
        if bytes > limit_bytes {
            give_back_freed();
            bytes = grown();
        }
        self.grown_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_counts() {
        let memory = ProcessMemory::from_now().unwrap();
        let taken = vec![1_u8; 64 << 20];
        assert!(memory.grown_bytes(usize::MAX) > 32 << 20);
        drop(taken);
    }
}
