//! What this machine can do at most, measured once: how fast its processors read memory.

use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use keirin_kernels::Level;
use keirin_kernels::aggregate::sum_two;

/// What is read, all threads together: more than caches hold, as a rule.
const BYTES: usize = 256 << 20;
/// So often; the fastest counts, for others may be at work.
const TURNS: usize = 3;

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    /// The processor's name, as its maker has it where the system tells, or its kind.
    pub(crate) cpu: &'static str,
    /// Threads that run at the same time.
    pub(crate) threads: usize,
    /// Bytes a second that one thread reads from memory.
    pub(crate) thread_bandwidth: f64,
    /// Bytes a second that all threads together read.
    pub(crate) bandwidth: f64,
}

impl Machine {
    /// This machine. The first call measures, for about 0.2 seconds, with 256 MiB of memory; with little memory, as often as it
    /// is asked, with a part in sixteen of `limit_bytes`.
    pub(crate) fn this(limit_bytes: usize) -> Self {
        static MACHINE: OnceLock<Machine> = OnceLock::new();
        let bytes = BYTES.min(limit_bytes / 16);
        match bytes {
            BYTES => MACHINE.get_or_init(|| Self::measured(bytes)).clone(),
            // Caches may hold so much, so it does not hold for others.
            _ => MACHINE.get().cloned().unwrap_or_else(|| Self::measured(bytes)),
        }
    }

    fn measured(bytes: usize) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let words = vec![1_u64; (bytes / size_of::<u64>()).max(1)];
        Self {
            cpu: keirin_race::cpu_name(),
            threads,
            thread_bandwidth: bandwidth(&words, 1),
            bandwidth: bandwidth(&words, threads),
        }
    }
}

/// Bytes a second at which so many threads read `words`.
#[expect(clippy::cast_precision_loss, reason = "a speed")]
fn bandwidth(words: &[u64], threads: usize) -> f64 {
    let level = Level::best();
    let turn = || {
        let began = Instant::now();
        let sum: i128 = thread::scope(|scope| {
            let parts = words.chunks(words.len().div_ceil(threads).max(1));
            let started: Vec<_> = parts
                .map(|part| {
                    scope.spawn(move || {
                        let (first, second) = part.split_at(part.len() / 2);
                        let rest = i128::from(second.len() > first.len());
                        sum_two(level, [first, &second[..first.len()]]) + rest
                    })
                })
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        });
        debug_assert_eq!(sum, words.len() as i128);
        size_of_val(words) as f64 / began.elapsed().as_secs_f64()
    };
    (0..TURNS).map(|_| turn()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_read_memory() {
        for limit_bytes in [0, 64 << 20] {
            let machine = Machine::this(limit_bytes);
            assert!(machine.bandwidth > 0.0 && machine.thread_bandwidth > 0.0, "{machine:?}");
            assert!(!machine.cpu.is_empty() && machine.threads > 0);
        }
    }
}
