//! What a look at a block says about the variants: which are not worth trying.
//!
//! A race tries each of its arms a few times, and a variant that does not fit the data takes three times as
//! long. What makes it unfit is plain to see: a branch on "no literals" is mispredicted (25 cycles) unless
//! nearly all or nearly no sequences have some, the window leaves each offset above 64 to a call, the extension
//! of lengths without a branch costs every sequence and pays where there are many. The limits were fitted
//! to 30 columns and files; over 60 others, the race that begins with this look and nothing else was 1.55 times
//! liblz4 in its first 8 MiB, 1.69 times later (1.47 and 1.60 with blocks of 1 MiB).

use super::Variant;
use crate::Level;

/// Enough for shares of a few per cent, and to get past the start of a block, where matches have nowhere to lie;
/// read in some ten microseconds, once a stream.
const SEQUENCE_COUNT: usize = 4096;

/// Shares of sequences.
#[derive(Debug, Default)]
struct Sample {
    without_literals: f64,
    /// There are 15 literals or more.
    long_literals: f64,
    /// The match is longer than 16 bytes.
    long: f64,
    /// Bytes extend the length of the match.
    extended: f64,
    /// The offset is 64 or less.
    near: f64,
}

impl Sample {
    fn of(input: &[u8]) -> Option<Self> {
        let mut sample = Self::default();
        let mut count = 0.0;
        let mut rest = input.iter().map(|byte| usize::from(*byte));
        let mut next = || rest.next();
        // Ends early, and with what it has, where the block ends or is none.
        let mut sequence = |sample: &mut Self| -> Option<()> {
            let token = next()?;
            let mut literals = token >> 4;
            let mut more = if literals == 15 { 255 } else { 0 };
            while more == 255 {
                more = next()?;
                literals += more;
            }
            for _ in 0..literals {
                next()?;
            }
            let offset = next()? | next()? << 8;
            sample.long_literals += f64::from(u8::from(token >> 4 == 15));
            sample.without_literals += f64::from(u8::from(literals == 0));
            sample.long += f64::from(u8::from(token & 15 > 12));
            sample.extended += f64::from(u8::from(token & 15 == 15));
            sample.near += f64::from(u8::from(offset <= 64));
            let mut more = if token & 15 == 15 { 255 } else { 0 };
            while more == 255 {
                more = next()?;
            }
            Some(())
        };
        for _ in 0..SEQUENCE_COUNT {
            if sequence(&mut sample).is_none() {
                break;
            }
            count += 1.0;
        }
        if count == 0.0 {
            return None;
        }
        for share in [
            &mut sample.without_literals,
            &mut sample.long_literals,
            &mut sample.long,
            &mut sample.extended,
            &mut sample.near,
        ] {
            *share /= count;
        }
        Some(sample)
    }

    fn speaks_for(&self, variant: Variant, racing: &[Variant]) -> bool {
        let has = |variant| racing.contains(&variant);
        match variant {
            Variant::Exact => false,
            Variant::Eight => !has(Variant::Shuffle),
            Variant::Plain => true,
            Variant::Shuffle => !has(Variant::Permute) || self.long < 0.12,
            Variant::ShuffleSkip => {
                self.without_literals.min(1.0 - self.without_literals) < 0.06 && self.long < 0.12
            }
            Variant::Permute => self.long > 0.015,
            Variant::Extend => self.extended > 0.05,
            Variant::Long => self.long_literals > 0.05,
            Variant::LongExtend => self.extended > 0.05 && self.long_literals > 0.05,
            Variant::Window => self.near > 0.5,
        }
    }
}

impl Variant {
    /// Those of [`Variant::racing`] that fit a stream of blocks like `input`; the first is the reference.
    #[must_use]
    pub fn promising(level: Level, input: &[u8]) -> Vec<Self> {
        let racing = Self::racing(level);
        let sample = Sample::of(input).unwrap_or_default();
        racing.iter().copied().filter(|variant| sample.speaks_for(*variant, racing)).collect()
    }
}
