//! Samples a block to find which variants are not worth trying.
//!
//! A race tries each of its arms, and a variant that does not suit the data takes three times as long. A
//! sample shows what makes it unsuitable: a branch on "no literals" is mispredicted (25 cycles) unless nearly
//! all or nearly no sequences have some; the window makes a call for each offset above 64; extending lengths
//! without a branch costs time for every sequence and pays only if many are extended. The limits were fitted
//! to 30 columns and files. Over 60 others, a race that begins with this sample and no other knowledge was
//! 1.51 times as fast as liblz4 in its first 8 MiB, 1.67 times later (1.44 and 1.63 with blocks of 1 MiB).

use super::Variant;
use crate::Level;

/// Enough for shares of a few per cent, and to get past the start of a block, where there is little for
/// matches to refer to; read in some 15 microseconds, once for each stream.
const SEQUENCE_COUNT: usize = 4096;

/// Shares of sequences with some property.
#[derive(Debug, Default)]
struct Sample {
    without_literals: f64,
    /// With 15 literals or more.
    long_literals: f64,
    /// With more than 32 literals.
    very_long_literals: f64,
    /// With a match longer than 16 bytes.
    long: f64,
    /// With bytes that extend the length of the match.
    extended: f64,
    /// With an offset of 64 or less.
    near: f64,
}

impl Sample {
    fn of(input: &[u8]) -> Option<Self> {
        let mut sample = Self::default();
        let mut count = 0.0;
        let mut at = 0;
        for _ in 0..SEQUENCE_COUNT {
            // The sample ends early where the block ends or is invalid.
            let Some(next) = sample.note(input, at) else { break };
            at = next;
            count += 1.0;
        }
        if count == 0.0 {
            return None;
        }
        for share in [
            &mut sample.without_literals,
            &mut sample.long_literals,
            &mut sample.very_long_literals,
            &mut sample.long,
            &mut sample.extended,
            &mut sample.near,
        ] {
            *share /= count;
        }
        Some(sample)
    }

    /// Counts the sequence at `at`; returns where the next one starts.
    fn note(&mut self, input: &[u8], mut at: usize) -> Option<usize> {
        let extended = |at: &mut usize, length: usize| {
            let mut length = length;
            if length == 15 {
                loop {
                    let more = usize::from(*input.get(*at)?);
                    *at += 1;
                    length += more;
                    if more < 255 {
                        break;
                    }
                }
            }
            Some(length)
        };
        let share = |is: bool| f64::from(u8::from(is));
        let token = usize::from(*input.get(at)?);
        at += 1;
        let literals = extended(&mut at, token >> 4)?;
        at = at.checked_add(literals)?;
        let offset = u16::from_le_bytes([*input.get(at)?, *input.get(at + 1)?]);
        at += 2;
        extended(&mut at, token & 15)?;
        self.without_literals += share(literals == 0);
        self.long_literals += share(literals >= 15);
        self.very_long_literals += share(literals > 32);
        self.long += share(token & 15 > 12);
        self.extended += share(token & 15 == 15);
        self.near += share(offset <= 64);
        Some(at)
    }

    fn speaks_for(&self, variant: Variant, racing: &[Variant]) -> bool {
        let has = |variant| racing.contains(&variant);
        let is_skip_predictable = self.without_literals.min(1.0 - self.without_literals) < 0.1;
        match variant {
            Variant::Exact => false,
            Variant::Eight => !has(Variant::Shuffle),
            Variant::Plain => true,
            Variant::Shuffle => !has(Variant::Permute) || self.long < 0.2,
            Variant::ShuffleSkip => is_skip_predictable && self.long < 0.2,
            Variant::ExtendSkip => is_skip_predictable && self.extended > 0.02,
            Variant::Permute => self.long > 0.015,
            Variant::Extend => self.extended > 0.05,
            Variant::Long => self.long_literals > 0.05,
            Variant::LongExtend => {
                self.long_literals > 0.05 && (self.extended > 0.05 || self.very_long_literals > 0.05)
            }
            Variant::Window => self.near > 0.5,
        }
    }
}

impl Variant {
    /// The variants of [`Variant::racing`] that suit a stream of blocks like `input`; the first is the
    /// reference.
    #[must_use]
    pub fn promising(level: Level, input: &[u8]) -> Vec<Self> {
        let racing = Self::racing(level);
        let sample = Sample::of(input).unwrap_or_default();
        racing.iter().copied().filter(|variant| sample.speaks_for(*variant, racing)).collect()
    }
}
