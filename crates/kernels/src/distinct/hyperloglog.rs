//! HyperLogLog: the count of distinct hashes in 2^14 bytes, with a standard error of 0.81 %.
//!
//! The 14 highest bits of a hash choose a register. It keeps the largest number of leading zeros of the other
//! bits, plus one. The estimate is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches",
//! 2017, algorithm 6): one formula for counts up to 2^64, without tables of measured bias. Sketches can be
//! merged only when their hashes were made with the same seed.

use std::fmt;

const PRECISION: u32 = 14;
const REGISTERS: usize = 1 << PRECISION;
/// The bits of a hash behind those that choose the register.
const REST_BITS: u32 = u64::BITS - PRECISION;

/// A sketch of a set of hashes.
#[derive(Clone, PartialEq, Eq)]
pub struct HyperLogLog {
    registers: Box<[u8]>,
}

impl HyperLogLog {
    /// An empty sketch.
    #[must_use]
    pub fn new() -> Self {
        Self { registers: vec![0; REGISTERS].into() }
    }

    /// Adds hashes.
    pub fn insert(&mut self, hashes: &[u64]) {
        for hash in hashes {
            // The bit set behind the hash ends a run of zeros that covers all of it.
            let rank = ((hash << PRECISION) | 1 << (PRECISION - 1)).leading_zeros() + 1;
            let register = &mut self.registers[(hash >> REST_BITS) as usize];
            *register = (*register).max(rank as u8);
        }
    }

    /// Adds the hashes of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (register, other) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*other);
        }
    }

    /// An estimate of how many distinct hashes were added.
    #[must_use]
    pub fn estimate(&self) -> f64 {
        estimate(&self.registers)
    }

    /// The registers of the sketch with fewer bits for the register, which the same hashes would have made.
    ///
    /// # Panics
    /// When `precision` is more than 14.
    #[must_use]
    pub fn folded(&self, precision: u32) -> Vec<u8> {
        // Bits that chose a register lead the other bits in the smaller sketch.
        let dropped = PRECISION.checked_sub(precision).expect("at most the precision of this sketch");
        let mut folded = vec![0_u8; 1 << precision];
        for (index, value) in self.registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            let bits = index as u32 & ((1 << dropped) - 1);
            let rank = match bits {
                0 => u32::from(*value) + dropped,
                bits => bits.leading_zeros() - (u32::BITS - dropped) + 1,
            };
            let register = &mut folded[index >> dropped];
            *register = (*register).max(rank as u8);
        }
        folded
    }
}

/// An estimate of how many distinct hashes made these registers; what a register cannot have counts as its maximum.
///
/// # Panics
/// When the count of registers is not a power of two of at most 2^32.
#[must_use]
pub fn estimate(registers: &[u8]) -> f64 {
    assert!(registers.len().is_power_of_two(), "a power of two registers");
    let rank_max = (u64::BITS - registers.len().ilog2() + 1) as usize;
    let mut counts = [0_u32; u64::BITS as usize + 2];
    for register in registers {
        counts[usize::from(*register).min(rank_max)] += 1;
    }
    let m = registers.len() as f64;
    let mut z = m * tau(1.0 - f64::from(counts[rank_max]) / m);
    for count in counts[1..rank_max].iter().rev() {
        z = 0.5 * (z + f64::from(*count));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * z)
}

/// The contribution of registers that are zero: infinite when all are.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z <= before {
            return z;
        }
    }
}

/// The contribution of registers at their maximum.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z >= before {
            return z / 3.0;
        }
    }
}

impl Default for HyperLogLog {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HyperLogLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HyperLogLog(about {:.0})", self.estimate())
    }
}
