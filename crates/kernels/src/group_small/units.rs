//! Values as integers: how grouped sums become exact without a compensated addition a row.
//!
//! A float that is a multiple of a unit 2^u, and not too large, is an integer number of units, which adding
//! and subtracting 1.5 * 2^(u + 52) tells along with whether it is (see `aggregate/floats.rs`). Two parts, the
//! upper one in units of 2^(u + 46), take what is too long for one: prices as doubles, for example. Then the
//! tables add integers, exactly, in any order. The conversion costs nothing beside the tables' loads and
//! stores (0.334 against 0.338 ns a row for additions of plain floats).

#![allow(clippy::cast_possible_truncation, reason = "halves of words are cut on purpose")]

use crate::aggregate::{ExactSum, power_of_two};

/// Rows that are converted at a time.
pub(super) const STEP: usize = 512;

/// What a conversion found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fit {
    /// Zero when every value was a number of units.
    pub(super) rest: u64,
    /// The bits of all magnitudes.
    pub(super) magnitudes: u64,
}

impl Fit {
    pub(super) fn and(self, other: Self) -> Self {
        Self { rest: self.rest | other.rest, magnitudes: self.magnitudes | other.magnitudes }
    }
}

/// A number that groups can sum: integers of up to 64 bits and floats.
pub trait Value: Copy + Default + crate::aggregate::Ordered + sealed::Sealed {
    /// Whether the unit is not always 1.
    #[doc(hidden)]
    const IS_FLOAT: bool;
    /// How many powers of two the upper of two parts is above the lower.
    #[doc(hidden)]
    const UPPER: i32;
    /// Parts that are enough for most values.
    #[doc(hidden)]
    const PARTS: u8;
    #[doc(hidden)]
    fn convert<const PARTS: usize>(values: &[Self], unit: i32, parts: &mut [[i64; STEP]; PARTS]) -> Fit;
    #[doc(hidden)]
    fn push_to(self, sum: &mut ExactSum);
    /// The value as a double, where it is a float.
    #[doc(hidden)]
    fn double(self) -> f64;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($type:ty: $parts:literal),*) => { $(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            const IS_FLOAT: bool = false;
            const UPPER: i32 = 32;
            const PARTS: u8 = $parts;

            #[inline(always)]
            fn convert<const PARTS: usize>(values: &[Self], _unit: i32, parts: &mut [[i64; STEP]; PARTS]) -> Fit {
                for (row, value) in values.iter().enumerate() {
                    if PARTS == 1 {
                        parts[0][row] = *value as i64;
                    } else {
                        parts[0][row] = (*value >> (<$type>::BITS / 2)) as i64;
                        parts[1][row] = i64::from(*value as u32);
                    }
                }
                Fit { rest: 0, magnitudes: u64::from(u32::MAX) }
            }

            fn push_to(self, sum: &mut ExactSum) {
                sum.push_scaled(i64::from(self as u32), 1074);
                sum.push_scaled((i128::from(self) >> 32) as i64, 1074 + 32);
            }

            fn double(self) -> f64 {
                self as f64
            }
        }
    )* };
}
integers! { i8: 1, u8: 1, i16: 1, u16: 1, i32: 1, u32: 1, i64: 2, u64: 2 }

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            const IS_FLOAT: bool = true;
            const UPPER: i32 = 46;
            const PARTS: u8 = 1;

            #[inline(always)]
            fn convert<const PARTS: usize>(values: &[Self], unit: i32, parts: &mut [[i64; STEP]; PARTS]) -> Fit {
                const LANES: usize = 16;
                let mut tail = [0.0; LANES];
                let (chunks, rest_values) = values.as_chunks::<LANES>();
                tail[..rest_values.len()].copy_from_slice(rest_values);
                let starts: [f64; PARTS] = std::array::from_fn(|part| start(unit, PARTS - 1 - part));
                let (mut rests, mut magnitudes) = ([0_u64; LANES], [0_u64; LANES]);
                for (index, chunk) in chunks.iter().chain([&tail]).enumerate() {
                    if index * LANES >= values.len() {
                        break;
                    }
                    for lane in 0..LANES {
                        let mut rest = f64::from(chunk[lane]);
                        for part in 0..PARTS {
                            let after = rest + starts[part];
                            let number = (after.to_bits().wrapping_sub(starts[part].to_bits())).cast_signed();
                            parts[part][index * LANES + lane] = number;
                            magnitudes[lane] |= (number ^ (number >> 63)).cast_unsigned();
                            rest -= after - starts[part];
                        }
                        rests[lane] |= rest.to_bits();
                    }
                }
                Fit {
                    rest: rests.into_iter().fold(0, |all, rest| all | rest) << 1,
                    magnitudes: magnitudes.into_iter().fold(0, |all, bits| all | bits),
                }
            }

            fn push_to(self, sum: &mut ExactSum) {
                sum.push(self.into());
            }

            fn double(self) -> f64 {
                self.into()
            }
        }
    )* };
}
floats! { f32, f64 }

/// What turns doubles into numbers of 2^unit, or of the part above it.
#[inline(always)]
pub(super) fn start(unit: i32, above: usize) -> f64 {
    1.5 * power_of_two(unit + 52 + if above == 0 { 0 } else { <f64 as Value>::UPPER })
}

/// The powers of two of the lowest and the highest bit of all values; nothing when one is not finite.
pub(super) fn span<T: Value>(values: &[T]) -> Option<(i32, i32)> {
    let (mut low, mut high) = (i32::MAX, i32::MIN);
    for value in values {
        let value = value.double();
        if !value.is_finite() {
            return None;
        }
        if value != 0.0 {
            let bits = value.to_bits();
            let exponent = (bits >> 52 & 0x7FF) as i32;
            let fraction = bits & ((1 << 52) - 1) | u64::from(exponent > 0) << 52;
            let place = exponent.max(1) - 1075;
            low = low.min(place + fraction.trailing_zeros() as i32);
            high = high.max(place + 63 - fraction.leading_zeros() as i32);
        }
    }
    Some(if low <= high { (low, high) } else { (0, 0) })
}
