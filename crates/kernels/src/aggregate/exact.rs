//! A sum of floats that is exact, and rounded only when it is read.
//!
//! A float is an integer times a power of two, and so is any sum of floats: [`ExactSum`] holds it as a
//! fixed-point number of 68 limbs, bit 0 worth 2^-1074, with room for 2^64 terms of the largest size
//! (Kulisch's accumulator; limbs that hold 32 bits and carry late are from R. Neal, "Fast exact summation
//! using small and large superaccumulators", 2015). Addition of integers does not depend on their order,
//! hence:
//!
//! - [`ExactSum::value`] is the exact sum, rounded once to the nearest float, ties to even. Cuts into batches, the
//!   order of rows and of merges, and the number of threads cannot change a bit of it.
//! - Terms may overflow on the way: 1e308 + 1e308 - 1e308 is 1e308. Only a sum that is itself too large is
//!   infinite.
//! - A NaN, or infinities of both signs, make NaN; infinities of one sign make that infinity.
//! - A sum of zero is +0.0, of negative zeros, too.
//!
//! Whole columns are added by the vectorised loop of `floats.rs`, single floats by [`ExactSum::push`] (2 ns).

#![allow(clippy::cast_possible_truncation, reason = "limbs are cut on purpose, and bits are few")]

use super::floats::Window;

/// Bits that a limb has after carrying.
const LIMB_BITS: u32 = 32;
const LIMB_MASK: i64 = (1 << LIMB_BITS) - 1;
/// 2098 bits of a float, 64 of their count, the sign.
const LIMBS: usize = 68;
/// The bit position of 1.0.
const ONE_PLACE: usize = 1074;
/// After this many additions limbs are carried, before one can overflow: each addition adds less than 2^32 to
/// a limb.
const CARRY_AFTER: u32 = 1 << 29;

/// The exact sum of floats.
#[derive(Clone)]
pub struct ExactSum {
    limbs: [i64; LIMBS],
    /// Additions since the limbs were last carried.
    uncarried: u32,
    /// The sum of all terms that are not finite: an infinity, or NaN, also for infinities of both signs; else
    /// zero.
    special: f64,
    /// What the vectorised loop expects of the next values; not part of the sum.
    pub(super) window: Window,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { limbs: [0; LIMBS], uncarried: 0, special: 0.0, window: Window::default() }
    }
}

impl std::fmt::Debug for ExactSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExactSum").field(&self.value()).finish()
    }
}

impl PartialEq for ExactSum {
    /// Whether the exact sums are equal.
    fn eq(&self, other: &Self) -> bool {
        self.to_words() == other.to_words()
    }
}

impl ExactSum {
    /// Adds one float.
    #[inline]
    pub fn push(&mut self, value: f64) {
        if !value.is_finite() {
            self.special += value;
            return;
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7FF) as usize;
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        // Subnormals have the exponent of the smallest normals and no hidden bit.
        let (magnitude, place) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        self.push_scaled(if value.is_sign_negative() { -magnitude } else { magnitude }, place);
    }

    /// Adds `number * 2^(place - 1074)`; `place` is at most 2045.
    #[inline]
    pub(crate) fn push_scaled(&mut self, number: i64, place: usize) {
        let shifted = i128::from(number) << (place as u32 % LIMB_BITS);
        let first = place / LIMB_BITS as usize;
        self.limbs[first] += shifted as i64 & LIMB_MASK;
        self.limbs[first + 1] += (shifted >> LIMB_BITS) as i64 & LIMB_MASK;
        self.limbs[first + 2] += (shifted >> (2 * LIMB_BITS)) as i64;
        self.uncarried += 1;
        if self.uncarried == CARRY_AFTER {
            self.carry();
        }
    }

    /// Adds `number * 2^unit`.
    ///
    /// # Panics
    /// When the unit is not from -1074 to 800.
    pub fn push_wide(&mut self, number: i128, unit: i32) {
        const BITS: usize = 62;
        let place = usize::try_from(unit + ONE_PLACE as i32).expect("no unit is below the smallest float");
        let piece = |index: usize| (number >> (index * BITS)) as i64 & ((1 << BITS) - 1);
        self.push_scaled(piece(0), place);
        self.push_scaled(piece(1), place + BITS);
        self.push_scaled((number >> (2 * BITS)) as i64, place + 2 * BITS);
    }

    /// Adds an integer.
    pub fn push_integer(&mut self, number: i128) {
        self.push_wide(number, 0);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.special += other.special;
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (limb, other) in self.limbs.iter_mut().zip(other.limbs) {
            *limb += other;
        }
        self.uncarried = 1;
    }

    /// Reduces every limb but the last to 32 bits without sign; the last keeps the sign. This form of a sum
    /// is unique.
    fn carry(&mut self) {
        let mut carried = 0;
        for limb in &mut self.limbs[..LIMBS - 1] {
            let sum = *limb + carried;
            *limb = sum & LIMB_MASK;
            carried = sum >> LIMB_BITS;
        }
        self.limbs[LIMBS - 1] += carried;
        self.uncarried = 0;
    }

    /// The sign and the limbs of the magnitude.
    fn magnitude(&self) -> (bool, [i64; LIMBS]) {
        let mut sum = self.clone();
        sum.carry();
        let is_negative = sum.limbs[LIMBS - 1] < 0;
        if is_negative {
            sum.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            sum.carry();
        }
        (is_negative, sum.limbs)
    }

    /// The sum, rounded once.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.mean_of(1)
    }

    /// The sum divided by `count`, rounded once; `None` for a count of zero.
    #[must_use]
    pub fn mean(&self, count: u64) -> Option<f64> {
        (count > 0).then(|| self.mean_of(count))
    }

    fn mean_of(&self, count: u64) -> f64 {
        if self.special != 0.0 {
            // The same NaN always, whatever the bits of the NaNs that were added.
            return if self.special.is_nan() { f64::NAN } else { self.special };
        }
        let (is_negative, mut limbs) = self.magnitude();
        // Long division from the top limb. No more bits below the point are needed: the remainder shows on
        // which side of a tie the quotient lies, which is enough for rounding.
        let mut remainder = 0_u128;
        // Division by one changes nothing.
        for limb in limbs.iter_mut().rev().filter(|_| count > 1) {
            let part = remainder << LIMB_BITS | *limb as u128;
            // Below 2^32, because the remainder is below `count`; the top limb has at most 2^63.
            *limb = (part / u128::from(count)) as i64;
            remainder = part % u128::from(count);
        }
        let magnitude = round(&limbs, remainder, count);
        if is_negative { -magnitude } else { magnitude }
    }

    /// The sum as numbers that are equal for equal sums: the bits of the sum of non-finite terms, the index
    /// of the first nonzero limb, and the limbs from there up to the last nonzero one.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let mut sum = self.clone();
        sum.carry();
        let special = if sum.special.is_nan() { f64::NAN } else { sum.special };
        let first = sum.limbs.iter().position(|limb| *limb != 0).unwrap_or(LIMBS);
        let mut words = vec![special.to_bits(), first as u64];
        words.extend(sum.limbs[first..].iter().map(|limb| *limb as u64));
        while words.len() > 2 && words.last() == Some(&0) {
            words.pop();
        }
        words
    }

    /// The sum that [`ExactSum::to_words`] wrote; `None` when the words are not of a sum.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let [special, first, limbs @ ..] = words else { return None };
        let special = f64::from_bits(*special);
        let first = usize::try_from(*first).ok()?;
        if first > LIMBS || limbs.len() > LIMBS - first || (special.is_finite() && special != 0.0) {
            return None;
        }
        let mut sum = Self { special, ..Self::default() };
        for (index, limb) in limbs.iter().enumerate() {
            let is_top = first + index == LIMBS - 1;
            // After 2^64 terms the last limb still has 18 free bits; a larger one could overflow later.
            let in_range =
                if is_top { (*limb as i64).unsigned_abs() < 1 << 20 } else { *limb >> LIMB_BITS == 0 };
            if !in_range {
                return None;
            }
            sum.limbs[first + index] = *limb as i64;
        }
        Some(sum)
    }
}

impl Extend<f64> for ExactSum {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

/// The float nearest to `limbs + remainder / divisor`, in units of 2^-1074, ties to even.
fn round(limbs: &[i64; LIMBS], remainder: u128, divisor: u64) -> f64 {
    let Some(top) = limbs.iter().rposition(|limb| *limb != 0) else {
        // Less than the smallest float: rounds up if it is more than half of that.
        return f64::from_bits(u64::from(remainder * 2 > u128::from(divisor)));
    };
    // From the top limb down, three limbs hold at least 65 significant bits, or all there are.
    let limb = |index: usize| limbs.get(index).map_or(0, |limb| *limb as u128);
    let base = top.saturating_sub(2);
    let head = limb(base + 2) << (2 * LIMB_BITS) | limb(base + 1) << LIMB_BITS | limb(base);
    let bits = u128::BITS - head.leading_zeros();
    let is_inexact_below = limbs[..base].iter().any(|limb| *limb != 0) || remainder > 0;
    // The lowest bit of the result: 53 bits below the top one, but not below the smallest float.
    let cut = bits.saturating_sub(f64::MANTISSA_DIGITS);
    let (mut kept, half_is_set, rest_is_set) = if cut == 0 {
        // Only when `base` is 0: the quotient is a float already, and the remainder rounds it.
        let twice = remainder * 2;
        (head as u64, twice >= u128::from(divisor), twice != u128::from(divisor))
    } else {
        let rest = head & ((1 << (cut - 1)) - 1);
        ((head >> cut) as u64, head >> (cut - 1) & 1 == 1, rest != 0 || is_inexact_below)
    };
    kept += u64::from(half_is_set && (rest_is_set || kept & 1 == 1));
    // A carry out of 53 bits leaves zeros, which with the next exponent is correct.
    let place = base * LIMB_BITS as usize + cut as usize;
    if place == 0 {
        return f64::from_bits(kept); // subnormals and their neighbours: an integer of the smallest unit
    }
    // 2^52 <= kept <= 2^53: the product with a power of two is exact, and infinite when too large.
    let place = i32::try_from(place).expect("a sum has 2200 bits") - ONE_PLACE as i32;
    kept as f64 * power_of_two(place / 2) * power_of_two(place - place / 2)
}

/// 2 to the power of a normal float's exponent.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent), "{exponent} is an exponent of a normal float");
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
