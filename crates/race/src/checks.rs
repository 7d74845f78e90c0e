//! When work is done again by the reference, to find arms that are wrong.
//!
//! Whatever an arm does first is checked, and after that so much that checks take a share of the time. What they find is
//! a [`Fault`]; the arm runs no more then, in no race of its kernel.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Checks take one part in so many of the time of the work.
const SHARE: u64 = 100;

/// The checks of a kernel's work. Threads share it without a lock.
#[derive(Debug, Default)]
pub struct Checks {
    /// A bit for each arm of which work was checked, and was right.
    checked: AtomicU64,
    /// A bit for each arm of which some was wrong.
    wrong: AtomicU64,
    /// Counts the work.
    turns: AtomicUsize,
    /// Time of the work, and of checks.
    worked: AtomicU64,
    spent: AtomicU64,
    is_distrusted: AtomicBool,
}

/// An arm gave another answer than the reference, which was used instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the arm is an implementation of.
    pub kernel: String,
    /// The data over which it worked.
    pub stream: String,
    /// The arm.
    pub arm: &'static str,
    /// How the answers differ.
    pub detail: String,
    /// When.
    pub time: SystemTime,
}

impl Checks {
    /// Whether among the arms with these bits is one of which no work was found right.
    #[must_use]
    pub fn are_new(&self, arms: u64) -> bool {
        arms & (!self.checked.load(Relaxed) | self.wrong.load(Relaxed)) != 0
    }

    /// A number that is greater by one each time.
    #[must_use]
    pub fn next_turn(&self) -> usize {
        self.turns.fetch_add(1, Relaxed)
    }

    /// Counts work, and tells whether there is time for a check that is expected to take so long.
    #[must_use]
    pub fn are_due(&self, worked: Duration, expected: Duration) -> bool {
        let worked = nanoseconds(worked);
        let worked = self.worked.fetch_add(worked, Relaxed).saturating_add(worked);
        self.spent.load(Relaxed).saturating_add(nanoseconds(expected)).saturating_mul(SHARE) <= worked
    }

    /// Counts the time of a check that was [due](Self::are_due).
    pub fn took(&self, time: Duration) {
        self.spent.fetch_add(nanoseconds(time), Relaxed);
    }

    /// Says that work of these arms was found right.
    pub fn are_right(&self, arms: u64) {
        self.checked.fetch_or(arms, Relaxed);
    }

    /// Says that these arms are wrong: all that they do is checked from now on, as other threads have them work still.
    pub fn are_wrong(&self, arms: u64) {
        self.wrong.fetch_or(arms, Relaxed);
    }

    /// From now on nothing but the reference works: all arms were wrong.
    pub fn distrust(&self) {
        self.is_distrusted.store(true, Relaxed);
    }

    /// Whether nothing but the reference works.
    #[must_use]
    pub fn is_distrusted(&self) -> bool {
        self.is_distrusted.load(Relaxed)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_work_of_each_arm_is_checked_and_then_a_share() {
        let checks = Checks::default();
        let micros = Duration::from_micros;
        let check = |arms: u64| {
            let is_checked = checks.are_due(micros(10), micros(30)) || checks.are_new(arms);
            if is_checked {
                checks.took(micros(30));
                checks.are_right(arms);
            }
            is_checked
        };
        assert_eq!([0b01, 0b01, 0b10, 0b11, 0b100].map(check), [true, false, true, false, true]);
        let later = (0..100_000).filter(|_| check(0b11)).count();
        assert!((330..=334).contains(&later), "{later}");
        checks.are_wrong(0b1);
        checks.are_right(0b11);
        assert_eq!([0b1, 0b11, 0b10].map(|arms| checks.are_new(arms)), [true, true, false]);
    }
}
