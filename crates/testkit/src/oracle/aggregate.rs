//! Sums, one row at a time.

#![allow(clippy::cast_possible_truncation, reason = "limbs are cut on purpose, and bits are few")]

/// A fixed-point number of 2,240 bits, bit 0 worth 2^-1074: the sum of floats without any rounding.
#[derive(Clone, Debug)]
struct Fixed([u64; 35]);

impl Fixed {
    fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7FF) as usize;
        let fraction = bits & ((1 << 52) - 1);
        let (magnitude, place) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let wide = u128::from(magnitude) << (place % 64);
        let mut term = [0; 35];
        term[place / 64] = wide as u64;
        term[place / 64 + 1] = (wide >> 64) as u64;
        if value < 0.0 {
            term = negated(term);
        }
        let mut carry = 0;
        for (limb, term) in self.0.iter_mut().zip(term) {
            let sum = u128::from(*limb) + u128::from(term) + carry;
            *limb = sum as u64;
            carry = sum >> 64;
        }
    }

    /// The nearest float: walks the bits.
    fn round(&self) -> f64 {
        let is_negative = self.0[34] >> 63 == 1;
        let limbs = if is_negative { negated(self.0) } else { self.0 };
        let bit = |index: usize| limbs[index / 64] >> (index % 64) & 1;
        let Some(top) = (0..35 * 64).rev().find(|index| bit(*index) == 1) else {
            return 0.0;
        };
        let low = top.saturating_sub(52);
        let mut mantissa = (low..=top).rev().fold(0, |mantissa, index| mantissa << 1 | bit(index));
        if low > 0 && bit(low - 1) == 1 {
            let is_tie = (0..low - 1).all(|index| bit(index) == 0);
            mantissa += u64::from(!is_tie || mantissa & 1 == 1);
        }
        // Scaled in exact steps: subnormals are built from their bits, other values are at least 2^-1021.
        let value = match low {
            0 => f64::from_bits(mantissa),
            1..1074 => mantissa as f64 * power_of_two(low as i32 - 1022) * power_of_two(-52),
            _ => mantissa as f64 * power_of_two((low as i32 - 1074).min(1023)),
        };
        if is_negative { -value } else { value }
    }
}

/// An exact power of two, which `powi` does not promise.
///
/// # Panics
/// When it is not a normal float.
pub fn power_of_two(exponent: i32) -> f64 {
    assert!((-1022..=1023).contains(&exponent), "2^{exponent} is a normal float");
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

fn negated(mut limbs: [u64; 35]) -> [u64; 35] {
    let mut carry = true;
    for limb in &mut limbs {
        (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
    }
    limbs
}

/// The exact sum, rounded once to the nearest float; NaN for a NaN or for infinities of both signs.
pub fn float_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = Fixed([0; 35]);
    let mut special = 0.0;
    for value in values {
        if value.is_finite() {
            sum.add(value);
        } else {
            special += value;
        }
    }
    if special == 0.0 { sum.round() } else { special }
}

/// Values by key.
pub fn groups<T>(rows: impl IntoIterator<Item = (usize, T)>) -> std::collections::BTreeMap<usize, Vec<T>> {
    let mut groups = std::collections::BTreeMap::<usize, Vec<T>>::new();
    for (key, value) in rows {
        groups.entry(key).or_default().push(value);
    }
    groups
}

/// The exact sum.
pub fn integer_sum<T: Into<i128>>(values: impl IntoIterator<Item = T>) -> i128 {
    values.into_iter().map(Into::into).sum()
}

/// The exact sum, if it fits.
///
/// Positive and negative values take turns, so that sums on the way fit whenever the sum of all does.
pub fn decimal_sum(values: impl IntoIterator<Item = i128>) -> Option<i128> {
    let (mut negative, mut positive): (Vec<i128>, Vec<i128>) =
        values.into_iter().partition(|value| *value < 0);
    let mut sum = 0_i128;
    loop {
        let side = if sum >= 0 && !negative.is_empty() || positive.is_empty() {
            &mut negative
        } else {
            &mut positive
        };
        match side.pop() {
            Some(value) => sum = sum.checked_add(value)?,
            None => return Some(sum),
        }
    }
}
