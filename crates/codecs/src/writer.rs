//! Where encodings are written, and what their choice goes by.

use keirin_kernels::Level;

use crate::Goal;
use crate::reader::DEPTH_LIMIT;

/// Bytes that grow, and how to choose what is appended.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) level: Level,
    pub(crate) goal: Goal,
    /// How many encodings lie around the one that is written.
    depth: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(level: Level, goal: Goal) -> Self {
        Self { level, goal, depth: 0, bytes: Vec::new() }
    }

    /// Another writer at the same depth, to see how long something gets.
    pub(crate) fn trial(&self) -> Self {
        Self { bytes: Vec::new(), ..*self }
    }

    /// Whether an encoding may have others inside.
    pub(crate) fn may_nest(&self) -> bool {
        self.depth + 1 < DEPTH_LIMIT
    }

    /// A count that a reader takes with `Reader::count`.
    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("a block has fewer than 2^32 rows");
        self.bytes.extend_from_slice(&count.to_le_bytes());
    }

    /// What `write` appends, one level further in.
    pub(crate) fn nested(&mut self, write: impl FnOnce(&mut Self)) {
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }
}
