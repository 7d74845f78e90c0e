//! A sketch of distinct values, small enough to be stored for each column of each part.

use keirin_kernels::distinct::{HyperLogLog, estimate};

const PRECISION: u32 = 11;
/// Registers of a sketch.
pub(super) const REGISTERS: usize = 1 << PRECISION;
/// The greatest value of a register.
const RANK_MAX: u32 = u64::BITS - PRECISION + 1;

/// The approximate set of a column's values, with a standard error of 2.3 % of its size (HyperLogLog). Sketches of
/// parts can be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    registers: Box<[u8]>,
}

impl Sketch {
    pub(in crate::part) fn of(sketch: &HyperLogLog) -> Self {
        Self { registers: sketch.folded(PRECISION).into() }
    }

    /// A sketch with these registers, if they are those of one.
    pub(super) fn new(registers: Vec<u8>) -> Option<Self> {
        let is_whole =
            registers.len() == REGISTERS && registers.iter().all(|register| u32::from(*register) <= RANK_MAX);
        is_whole.then(|| Self { registers: registers.into() })
    }

    pub(super) fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (register, other) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*other);
        }
    }

    /// The approximate count of distinct values.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let count = estimate(&self.registers).round() as u64;
        count
    }
}
