//! Where encodings are written, and what their choice goes by.

use keirin_kernels::Level;

use crate::blocks::Codec;
use crate::goal::Clock;
use crate::reader::DEPTH_LIMIT;
use crate::{Choice, Goal, judge};

/// Bytes that grow, and how to choose what is appended.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) level: Level,
    choice: Choice,
    /// Whether all of the bytes may be compressed.
    may_compress: bool,
    /// How many encodings lie around the one that is written.
    depth: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(level: Level, choice: Choice) -> Self {
        Self { level, choice, may_compress: false, depth: 0, bytes: Vec::new() }
    }

    /// A writer of bytes that may be compressed, if the choice has it so.
    pub(crate) fn for_frame(level: Level, choice: Choice) -> Self {
        Self { may_compress: choice.may_compress, ..Self::new(level, choice) }
    }

    /// Another writer at the same depth, to see how long something gets.
    pub(crate) fn trial(&self) -> Self {
        Self { bytes: Vec::new(), ..*self }
    }

    pub(crate) fn goal(&self) -> Goal {
        self.choice.goal
    }

    /// Whether the choice at this depth, for so many rows, takes times.
    pub(crate) fn is_timed(&self, row_count: usize) -> bool {
        self.depth == 0 && row_count >= judge::TIMED_ROWS_MIN && self.choice.clock == Clock::Measured
    }

    /// How what is written at this depth may be compressed.
    pub(crate) fn codecs(&self) -> &'static [Codec] {
        if self.may_compress && self.depth == 0 { judge::codecs(self.choice.goal) } else { &[] }
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
    pub(crate) fn nested<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }
}
