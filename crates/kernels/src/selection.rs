//! The rows of a batch that a kernel processes.

use crate::bits::count_ones;
use crate::{Bits, Level};

/// A selection of rows of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// Every row.
    All,
    /// Rows whose bit is set; as many bits as rows.
    Bits(Bits<'a>),
    /// Rows by number, in this order; numbers may repeat.
    Rows(&'a [u32]),
}

impl Selection<'_> {
    /// Count of selected rows among `row_count`.
    #[must_use]
    pub fn count(&self, level: Level, row_count: usize) -> usize {
        match self {
            Self::All => row_count,
            Self::Bits(bits) => count_ones(level, *bits),
            Self::Rows(rows) => rows.len(),
        }
    }
}
