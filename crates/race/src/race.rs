//! One race: choosing an arm for each block of work, and learning from its time.
//!
//! Each arm's belief gives one random mean; the arm with the smallest runs (Thompson 1933). So an arm runs
//! as often as it is likely to be the fastest, and equal arms share the work.
//!
//! Prior knowledge, from another race or an earlier run, tells how the arms compare, not how long they take: one
//! stream is text and the next one flags. So the means of arms with a prior are ratios, of arbitrary scale, until
//! the first calls of such arms set the scale of all.

use std::fmt;
use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use crate::arm::{Arm, time_of_unit};

/// The most arms of a race: quarantine takes a bit each.
pub const ARM_COUNT_MAX: usize = 64;

/// An arm is hopeless, and its second call is put off, if its first call took this many times as long as the best
/// arm's.
const HOPELESS: f32 = 1.2;
/// Calls of the race after which a hopeless arm gets its second call: the first may have been preempted.
const PUT_OFF_CALLS: u32 = 128;

/// Modes other than the number of a forced arm.
const FREE: usize = usize::MAX;
const FROZEN: usize = usize::MAX - 1;

/// All means are times.
const SCALED: u8 = 0;
/// Means of arms with a prior are ratios.
const RATIOS: u8 = 1;
/// One call has set the scale; it may have been cold or preempted, so the next may lower it.
const SCALED_ONCE: u8 = 2;
/// A thread is setting the scale.
const BEING_SCALED: u8 = 3;

/// Implementations of one loop, racing over one kind of data. Threads share it without a lock.
pub struct Race {
    names: Box<[&'static str]>,
    arms: Box<[Arm]>,
    /// [`FREE`], [`FROZEN`], or the arm that is forced.
    mode: AtomicUsize,
    /// A bit for each arm that must not run.
    quarantined: AtomicU64,
    /// A bit for each arm whose mean was learned elsewhere.
    with_prior: AtomicU64,
    /// Whether those means are times or ratios: [`SCALED`] and so on.
    scale: AtomicU8,
    /// Calls so far; it may wrap around.
    now: AtomicU32,
    seed: u64,
}

/// What is known of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The arm's name.
    pub arm: &'static str,
    /// Blocks that it did.
    pub calls: u64,
    /// Units of work (bytes, rows) that it did.
    pub units: u64,
    /// Time that it took, in picoseconds.
    pub picoseconds: u64,
    /// The time that is believed to be its mean, in picoseconds per unit; `None` until it ran.
    pub mean_picoseconds_per_unit: Option<f64>,
    /// Whether it was found to be wrong and runs no more.
    pub is_quarantined: bool,
}

/// There is no arm of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownArm {
    /// The name that was asked for.
    pub name: String,
    /// The names that there are.
    pub arms: Vec<&'static str>,
}

impl fmt::Display for UnknownArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no variant {:?}; there are {}", self.name, self.arms.join(", "))
    }
}

impl std::error::Error for UnknownArm {}

impl fmt::Debug for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").field("standings", &self.standings()).finish_non_exhaustive()
    }
}

impl Race {
    /// A race among `arms`, the first of which is the reference; between arms with equal beliefs only `seed`
    /// decides.
    ///
    /// # Panics
    /// With no arms or more than [`ARM_COUNT_MAX`].
    #[must_use]
    pub fn new(arms: &[&'static str], seed: u64) -> Self {
        assert!((1..=ARM_COUNT_MAX).contains(&arms.len()), "{} arms", arms.len());
        Self {
            names: arms.into(),
            arms: arms.iter().map(|_| Arm::default()).collect(),
            mode: AtomicUsize::new(FREE),
            quarantined: AtomicU64::new(0),
            with_prior: AtomicU64::new(0),
            scale: AtomicU8::new(SCALED),
            now: AtomicU32::new(0),
            seed,
        }
    }

    /// The arms' names.
    #[must_use]
    pub fn arms(&self) -> &[&'static str] {
        &self.names
    }

    /// Does `units` of work with the arm that is picked, and learns from the time.
    #[inline]
    pub fn run<R>(&self, units: u64, work: impl FnOnce(usize) -> R) -> R {
        let arm = self.choose();
        let start = Instant::now();
        let result = work(arm);
        self.record(arm, units, start.elapsed());
        result
    }

    /// The number of the arm to run next.
    #[must_use]
    pub fn choose(&self) -> usize {
        let mode = self.mode.load(Relaxed);
        if mode < self.arms.len() {
            return mode;
        }
        let now = self.now.fetch_add(1, Relaxed);
        let quarantined = self.quarantined.load(Relaxed);
        // Ratios cannot be compared with times, so an arm with a ratio goes first.
        let with_prior = self.with_prior.load(Relaxed) & !quarantined;
        let are_ratios = matches!(self.scale.load(Relaxed), RATIOS | BEING_SCALED) && with_prior != 0;
        let candidates = if are_ratios { with_prior } else { !quarantined };
        let allowed = |index: &usize| candidates >> index & 1 == 1;
        if mode == FREE
            && let Some(next) = self.next_first_call(now, allowed)
        {
            return next;
        }
        let calls_done = u64::from(now).wrapping_mul(self.arms.len() as u64);
        let mut random = self.seed.wrapping_add(calls_done.wrapping_mul(STEP));
        let (mut fastest, mut shortest) = (candidates.trailing_zeros() as usize, f32::INFINITY);
        for index in (0..self.arms.len()).filter(allowed) {
            // In a free race, an arm still short of first calls at this point is hopeless.
            let is_waiting = mode == FREE && self.arms[index].first_calls_left() > 0;
            let Some(belief) = self.arms[index].belief(now).filter(|_| !is_waiting) else { continue };
            let doubt = if mode == FREE { normal(random) * belief.variance.sqrt() } else { 0.0 };
            random = random.wrapping_add(STEP);
            if belief.mean + doubt < shortest {
                (fastest, shortest) = (index, belief.mean + doubt);
            }
        }
        fastest
    }

    /// The arm to try before beliefs decide, if any: every arm once, then those that are not hopeless a second
    /// time.
    fn next_first_call(&self, now: u32, allowed: impl Fn(&usize) -> bool) -> Option<usize> {
        let waiting = |index: &usize| allowed(index) && self.arms[*index].first_calls_left() > 0;
        (0..self.arms.len()).find(waiting)?;
        let mean = |index: usize| self.arms[index].belief(now).map(|belief| belief.mean);
        let best = (0..self.arms.len()).filter(&allowed).filter_map(mean).fold(f32::INFINITY, f32::min);
        let has_hope =
            |index: &usize| now >= PUT_OFF_CALLS || mean(*index).is_none_or(|mean| mean < HOPELESS * best);
        (0..self.arms.len())
            .filter(|index| waiting(index) && has_hope(index))
            .max_by_key(|index| (self.arms[*index].first_calls_left(), std::cmp::Reverse(*index)))
    }

    /// Learns that `arm` did `units` of work in `time`. A frozen race learns nothing.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn record(&self, arm: usize, units: u64, time: Duration) {
        if self.mode.load(Relaxed) == FROZEN {
            return;
        }
        let picoseconds = u64::try_from(time.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX);
        let scale = self.scale.load(Relaxed);
        let has_prior = self.with_prior.load(Relaxed) >> arm & 1 == 1;
        if scale == SCALED || !has_prior || units == 0 {
            return self.arms[arm].observe(self.now.load(Relaxed), units, picoseconds);
        }
        self.arms[arm].count(units, picoseconds);
        // A call is lost while another thread sets the scale, which does no harm.
        if scale != BEING_SCALED && self.scale.compare_exchange(scale, BEING_SCALED, Acquire, Relaxed).is_ok()
        {
            self.set_scale(arm, time_of_unit(units, picoseconds), scale == RATIOS);
            self.scale.store(if scale == RATIOS { SCALED_ONCE } else { SCALED }, Release);
        }
    }

    /// Scales ratios to times by the observed time of one arm; a second call only lowers the scale.
    fn set_scale(&self, arm: usize, observed: f32, is_first: bool) {
        let now = self.now.load(Relaxed);
        let Some(believed) = self.arms[arm].belief(now).map(|belief| belief.mean) else { return };
        if is_first || observed < believed {
            let with_prior = self.with_prior.load(Relaxed);
            let scaled = self.arms.iter().enumerate().filter(|(index, _)| with_prior >> index & 1 == 1);
            scaled.for_each(|(_, arm)| arm.scale(observed / believed));
        }
    }

    /// From now on only the arm called `name` runs, unless it is quarantined; it still learns.
    ///
    /// # Errors
    /// When there is no arm of that name.
    pub fn force(&self, name: &str) -> Result<(), UnknownArm> {
        let index = self.index(name)?;
        if self.quarantined.load(Relaxed) >> index & 1 == 0 {
            self.mode.store(index, Relaxed);
        }
        Ok(())
    }

    /// From now on the arm that is believed to be the fastest runs, and nothing is learned.
    pub fn freeze(&self) {
        self.mode.store(FROZEN, Relaxed);
    }

    /// Ends [`Self::force`] and [`Self::freeze`].
    pub fn release(&self) {
        self.mode.store(FREE, Relaxed);
    }

    /// Takes an arm that gave a wrong answer out of the race for good. The last one stays; then, `false` says that no
    /// arm is left that may run.
    ///
    /// # Errors
    /// When there is no arm of that name.
    pub fn quarantine(&self, name: &str) -> Result<bool, UnknownArm> {
        let bit = 1 << self.index(name)?;
        let all = u64::MAX >> (ARM_COUNT_MAX - self.arms.len());
        let without = |quarantined| Some(quarantined | bit).filter(|quarantined| *quarantined != all);
        let is_left = self.quarantined.fetch_update(Relaxed, Relaxed, without).is_ok();
        if is_left {
            // A forced arm that is wrong is not forced any more.
            let _ = self.mode.compare_exchange(self.index(name)?, FREE, Relaxed, Relaxed);
        }
        Ok(is_left)
    }

    /// What is known of each arm.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        let now = self.now.load(Relaxed);
        let quarantined = self.quarantined.load(Relaxed);
        let are_ratios = matches!(self.scale.load(Relaxed), RATIOS | BEING_SCALED);
        let is_ratio = |index: usize| are_ratios && self.with_prior.load(Relaxed) >> index & 1 == 1;
        let standing = |(index, (arm, name)): (usize, (&Arm, &&'static str))| {
            let (calls, units, picoseconds) = arm.totals();
            Standing {
                arm: name,
                calls,
                units,
                picoseconds,
                mean_picoseconds_per_unit: arm
                    .belief(now)
                    .filter(|_| !is_ratio(index))
                    .map(|belief| f64::from(belief.mean)),
                is_quarantined: quarantined >> index & 1 == 1,
            }
        };
        self.arms.iter().zip(&self.names).enumerate().map(standing).collect()
    }

    /// Calls of all arms so far.
    pub(crate) fn calls(&self) -> u64 {
        self.arms.iter().map(|arm| arm.totals().0).sum()
    }

    /// Mean and noise of an arm, for a similar race or for saving.
    pub(crate) fn known(&self, index: usize) -> Option<(f32, f32)> {
        let belief = self.arms[index].belief(self.now.load(Relaxed))?;
        // A single call may have been cold or preempted, so it does not count as knowledge.
        (self.arms[index].first_calls_left() == 0).then_some((belief.mean, belief.noise))
    }

    /// Starts an arm from a mean and a noise that were learned elsewhere, together with those of the other arms.
    /// Must come before the first call.
    pub(crate) fn begin_from(&self, index: usize, (mean, noise): (f32, f32)) {
        self.arms[index].begin_from(mean, noise, self.now.load(Relaxed));
        self.with_prior.fetch_or(1 << index, Relaxed);
        self.scale.store(RATIOS, Release);
    }

    fn index(&self, name: &str) -> Result<usize, UnknownArm> {
        let unknown = || UnknownArm { name: name.to_owned(), arms: self.names.to_vec() };
        self.names.iter().position(|arm| *arm == name).ok_or_else(unknown)
    }
}

/// The increment of the random generator's counter.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// An approximately normal random number, good to four standard deviations: the count of ones in 64 random bits is
/// binomial, and a uniform number smooths the steps. It takes some 2 ns, exact methods 10.
fn normal(counter: u64) -> f32 {
    // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the sequence is a counter, so threads can share it.
    let mut bits = counter;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    let ones = bits.count_ones() as f32 - 32.0;
    let step = (bits.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40) as f32 / (1_u32 << 24) as f32 - 0.5;
    (ones + step) / 4.0
}
