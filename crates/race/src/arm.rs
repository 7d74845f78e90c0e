//! The belief about one implementation: its time per unit of work, and how certain that is.
//!
//! The belief is a normal distribution over the true mean, in picoseconds per unit, and follows a Kalman
//! filter for a mean that wanders (Kalman 1960; Thompson sampling over it: Gupta, Granmo, Agrawala 2011):
//! each call of the race adds a little variance to every arm, each observation takes some away. An arm that
//! is not tried becomes uncertain and is tried again, the more rarely the further it is behind.
//!
//! Noise only adds time: a preempted call takes longer, none is faster than it can be. So a time far above the
//! belief is clipped to [`CLIP`] standard deviations above it, but raises the variance; if the next ones are as
//! slow, the belief follows in a few calls. A time far below replaces the belief.
//!
//! The variance of a mean falls with the amount of work, so a call that did twice the usual work weighs twice as
//! much.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// When an observation is too far off to be noise, this share of the squared difference is added to the variance.
const SURPRISE_DOUBT: f32 = 0.25;
/// Observations more than this many standard deviations above the belief are clipped.
const CLIP: f32 = 3.0;
/// The drift of a mean in one call of the race: a standard deviation, as a share of the mean.
const DRIFT: f32 = 0.0015;
/// Standard deviation of a belief from one observation, as a share of the mean.
const FIRST_DEVIATION: f32 = 0.2;
/// Standard deviation of a belief taken over from a similar race. Ratios between arms differ more from stream to stream
/// than their times from call to call.
const PRIOR_DEVIATION: f32 = 0.15;
/// The greatest standard deviation of a belief, as a share of the mean, so that an arm that once looked slow is
/// tried again.
const DEVIATION_MAX: f32 = 0.4;
/// Weight of an observation in the estimate of noise.
const NOISE_WEIGHT: f32 = 1.0 / 16.0;
/// The least and the greatest weight of a call; a call of the usual size has 1.
const WEIGHTS: (f32, f32) = (1.0 / 32.0, 8.0);
/// The least noise, from clocks and caches, as a share of the mean.
const NOISE_MIN: f32 = 0.01;

/// A snapshot of a belief: picoseconds per unit and their squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Belief {
    pub(crate) mean: f32,
    pub(crate) variance: f32,
    pub(crate) noise: f32,
}

/// One implementation, shared by threads.
#[derive(Debug, Default)]
pub(crate) struct Arm {
    /// Mean and variance as the bits of two f32. Zero means that nothing is known. The variance is negative after
    /// the first call, which also warmed up caches and predictors: that call only shows which arms are hopeless.
    belief: AtomicU64,
    /// Variance of single observations (f32), and the call of the race at the last of them. Threads may
    /// overwrite each other's estimate of noise; beliefs and totals lose nothing.
    noise_and_call: AtomicU64,
    calls: AtomicU64,
    units: AtomicU64,
    picoseconds: AtomicU64,
}

fn pack(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[expect(clippy::cast_possible_truncation, reason = "takes a pair of 32-bit halves apart")]
fn unpack(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

impl Arm {
    /// How many more calls the arm needs before its belief can decide.
    pub(crate) fn first_calls_left(&self) -> u32 {
        let (mean, variance) = self.mean_and_variance();
        if mean <= 0.0 { 2 } else { u32::from(variance < 0.0) }
    }

    fn mean_and_variance(&self) -> (f32, f32) {
        let (mean, variance) = unpack(self.belief.load(Relaxed));
        (f32::from_bits(mean), f32::from_bits(variance))
    }

    /// The belief at call `now` of the race, with the variance that grew since the last observation.
    pub(crate) fn belief(&self, now: u32) -> Option<Belief> {
        let (noise, call) = unpack(self.noise_and_call.load(Relaxed));
        let (mean, variance) = self.mean_and_variance();
        (mean > 0.0).then(|| Belief {
            mean,
            variance: drifted(mean, variance.abs(), elapsed(call, now)),
            noise: f32::from_bits(noise),
        })
    }

    /// Counts one call.
    pub(crate) fn count(&self, units: u64, picoseconds: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.units.fetch_add(units, Relaxed);
        self.picoseconds.fetch_add(picoseconds, Relaxed);
    }

    /// Learns from one call, and counts it.
    pub(crate) fn observe(&self, now: u32, units: u64, picoseconds: u64) {
        let (calls, units_before, _) = self.totals();
        self.count(units, picoseconds);
        if units == 0 {
            return;
        }
        // Relative to the mean size of calls so far; the first has weight 1.
        let weight = if units_before == 0 { 1.0 } else { units as f32 * calls as f32 / units_before as f32 };
        let weight = weight.clamp(WEIGHTS.0, WEIGHTS.1);
        let observed = time_of_unit(units, picoseconds);
        let (noise, call) = unpack(self.noise_and_call.load(Relaxed));
        let mut noise = f32::from_bits(noise);
        let elapsed = elapsed(call, now);
        let updated = self.belief.fetch_update(Relaxed, Relaxed, |belief| {
            let (mean, variance) = unpack(belief);
            let (next, next_noise) = learned(
                Belief { mean: f32::from_bits(mean), variance: f32::from_bits(variance), noise },
                elapsed,
                observed,
                weight,
            );
            noise = next_noise;
            Some(pack(next.0.to_bits(), next.1.to_bits()))
        });
        debug_assert!(updated.is_ok(), "the update always gives a value");
        self.noise_and_call.store(pack(noise.to_bits(), now), Relaxed);
    }

    /// Multiplies the belief, whose times were in other units.
    pub(crate) fn scale(&self, factor: f32) {
        let (noise, call) = unpack(self.noise_and_call.load(Relaxed));
        let (mean, variance) = self.mean_and_variance();
        let [mean, variance, noise] =
            [mean * factor, variance * factor * factor, f32::from_bits(noise) * factor * factor];
        self.noise_and_call.store(pack(noise.to_bits(), call), Relaxed);
        self.belief.store(pack(mean.to_bits(), variance.to_bits()), Relaxed);
    }

    /// Starts from the mean of a similar arm, with a large variance.
    pub(crate) fn begin_from(&self, mean: f32, noise: f32, now: u32) {
        let deviation = PRIOR_DEVIATION * mean;
        self.noise_and_call.store(pack(noise.to_bits(), now), Relaxed);
        self.belief.store(pack(mean.to_bits(), (deviation * deviation).to_bits()), Relaxed);
    }

    /// Calls, units and picoseconds so far, warm-up included.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        (self.calls.load(Relaxed), self.units.load(Relaxed), self.picoseconds.load(Relaxed))
    }
}

/// Picoseconds of a unit in a call.
pub(crate) fn time_of_unit(units: u64, picoseconds: u64) -> f32 {
    picoseconds.max(1) as f32 / units as f32
}

/// Calls of the race from `call` to `now`; another thread may have gone on after `now` was read.
fn elapsed(call: u32, now: u32) -> u32 {
    let calls = now.wrapping_sub(call);
    if calls > u32::MAX / 2 { 0 } else { calls }
}

fn drifted(mean: f32, variance: f32, elapsed: u32) -> f32 {
    let drift = DRIFT * mean;
    let limit = DEVIATION_MAX * mean;
    (variance + drift * drift * elapsed as f32).min(limit * limit)
}

/// Mean and variance, and the noise of the usual call, after an observation `elapsed` calls after the last one.
fn learned(belief: Belief, elapsed: u32, observed: f32, weight: f32) -> ((f32, f32), f32) {
    let floor = |mean: f32| (NOISE_MIN * mean) * (NOISE_MIN * mean);
    let fresh = |mean: f32| {
        let deviation = FIRST_DEVIATION * mean;
        ((mean, deviation * deviation), deviation * deviation)
    };
    if belief.mean <= 0.0 {
        let ((mean, variance), noise) = fresh(observed);
        return ((mean, -variance), noise);
    }
    if belief.variance < 0.0 {
        // The second call is the first warm one; if it was preempted, the first is nearer the truth.
        return fresh(observed.min(belief.mean));
    }
    let variance = drifted(belief.mean, belief.variance, elapsed);
    let usual_noise = belief.noise.max(floor(belief.mean));
    let noise = usual_noise / weight;
    let deviation = (variance + noise).sqrt();
    if observed < belief.mean - CLIP * deviation {
        return fresh(observed);
    }
    let surprise = observed - belief.mean;
    let clipped = surprise.min(CLIP * deviation);
    let gain = variance / (variance + noise);
    let mean = belief.mean + gain * clipped;
    let next_noise = usual_noise + NOISE_WEIGHT * (weight * (clipped * clipped - variance) - usual_noise);
    let doubt = if surprise > clipped { SURPRISE_DOUBT * clipped * clipped } else { 0.0 };
    ((mean, (1.0 - gain) * variance + doubt), next_noise.max(floor(mean)))
}
