//! Decoding of LZ77 blocks from untrusted bytes: what LZ4 and Snappy share.
//!
//! A [`Block`] is compressed bytes and a buffer for exactly the bytes they decode to. [`decode`] decodes one
//! block with one variant. [`advance`] works on many, two at a time in one loop, as the next token of one
//! block is known long before the last copy of the other has arrived. It returns after some bytes, so that a
//! caller who measures can continue with another variant in the middle of a block.
//!
//! Every variant has two loops. The fast one runs while a whole step fits into the rest of both buffers, so
//! it copies fixed widths without checks; on anything unusual it stops without changing anything. The exact
//! one, safe code, finishes the block, and only it detects errors. So buffers need no padding, no input makes
//! a loop read or write outside of them, and all variants give the same bytes and the same errors.
//!
//! Every byte of the output of a successfully decoded block was written for it: matches never reach before
//! its start, and copies that read past the bytes decoded so far repeat the pattern instead of using old
//! bytes. After an error the whole output is zero.

use std::fmt;
use std::marker::PhantomData;

mod copy;
mod cursor;
mod exact;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) use copy::{Bytes8, FILL_ROOM, FromAnywhere, Match, copy, grow, read_u16};
pub(crate) use cursor::{Arm, Cursor, End, Step, StepByParts, out_of_line, run};
pub(crate) use exact::{copy_literals, copy_match};

use crate::Level;

/// A compressed format, such as [`Lz4`](crate::lz4::Lz4).
pub trait Format: hidden::Decode {}

/// The part of a format that only this crate can implement.
pub(crate) mod hidden {
    use super::{Cursor, DecodeError, Level};

    /// The fast loop over one or two blocks.
    pub(crate) type Loop = fn(Level, &mut Cursor<'_>, Option<&mut Cursor<'_>>);

    pub trait Decode {
        /// The loops of the format.
        type Variant: Copy;

        /// Reads the header before the first token; returns its size.
        fn begin(input: &[u8], decoded_bytes: usize) -> Result<usize, DecodeError>;

        /// The variant that has only the exact loop.
        const EXACT: Self::Variant;

        /// A number below 32, another one for each variant.
        fn number(variant: Self::Variant) -> u32;

        /// The name for users.
        fn name(variant: Self::Variant) -> &'static str;

        /// The fast loop of a variant; `None` for the variant that has only the exact loop.
        fn fast(variant: Self::Variant) -> Option<Loop>;

        /// Decodes the rest, from positions `read` and `written` on, by the exact loop.
        fn finish(input: &[u8], read: usize, output: &mut [u8], written: usize) -> Result<(), DecodeError>;
    }
}

/// Why a block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The byte of the input at which it was noticed.
    pub position: usize,
    /// What was wrong.
    pub reason: Reason,
}

/// What can be wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The input ends inside a token, a length, literals or an offset.
    InputEnds,
    /// The input decodes to more than the output holds.
    OutputFull,
    /// The input ended properly but decoded to this many bytes, fewer than the output holds.
    OutputShort(usize),
    /// A match starts `offset` bytes back when only `written` bytes are there, or zero back.
    Offset {
        /// How far back.
        offset: usize,
        /// Bytes decoded so far.
        written: usize,
    },
    /// The header has another size than the output, or is invalid.
    Header,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::InputEnds => write!(f, "the compressed bytes end too early"),
            Reason::OutputFull => write!(f, "the compressed bytes hold more than was declared"),
            Reason::OutputShort(written) => {
                write!(f, "the compressed bytes hold {written} bytes, fewer than was declared")
            }
            Reason::Offset { offset, written } => {
                write!(f, "a match of compressed bytes lies {offset} bytes back when there are {written}")
            }
            Reason::Header => write!(f, "the size in front of the compressed bytes is not what was declared"),
        }?;
        write!(f, " (at byte {} of the compressed bytes)", self.position)
    }
}

impl std::error::Error for DecodeError {}

/// If fewer bytes than this would remain of a block, they are decoded as well.
const REST_BYTES: usize = 4096;

/// A compressed block, and the buffer for its decoded bytes.
#[derive(Debug)]
pub struct Block<'a, F> {
    input: &'a [u8],
    output: &'a mut [u8],
    read: usize,
    written: usize,
    /// Of those, what fast loops wrote.
    by_loops: usize,
    outcome: Option<Result<(), DecodeError>>,
    format: PhantomData<F>,
}

impl<'a, F: Format> Block<'a, F> {
    /// `input` is a whole block, `output` has exactly the size that it decodes to.
    #[must_use]
    pub fn new(input: &'a [u8], output: &'a mut [u8]) -> Self {
        let mut block =
            Self { input, output, read: 0, written: 0, by_loops: 0, outcome: None, format: PhantomData };
        match F::begin(block.input, block.output.len()) {
            Ok(read) => block.read = read,
            Err(error) => block.end(Err(error)),
        }
        block
    }

    /// The result; `None` while decoding has not ended. After an error the output is all zeros.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), DecodeError>> {
        self.outcome
    }

    /// Bytes decoded so far.
    #[must_use]
    pub fn written(&self) -> usize {
        self.written
    }

    /// Bytes that fast loops decoded so far; the exact loop decoded the others.
    #[must_use]
    pub fn by_loops(&self) -> usize {
        self.by_loops
    }

    /// The compressed bytes, and the buffer for the decoded ones.
    #[must_use]
    pub fn parts(&mut self) -> (&'a [u8], &mut [u8]) {
        (self.input, self.output)
    }

    fn cursor(&mut self, bytes: usize) -> Cursor<'_> {
        let until = self.written.saturating_add(bytes);
        let until = if until.saturating_add(REST_BYTES) < self.output.len() { until } else { usize::MAX };
        Cursor::new(self.input, self.read, self.output, self.written, until)
    }

    /// Takes over the progress of a fast loop and, unless that stopped only because it reached its target,
    /// decodes the rest exactly.
    fn take(&mut self, (read, written, has_arrived): (usize, usize, bool)) {
        self.by_loops += written - self.written;
        (self.read, self.written) = (read, written);
        if !has_arrived {
            let outcome = F::finish(self.input, read, self.output, written);
            self.end(outcome);
        }
    }

    fn end(&mut self, outcome: Result<(), DecodeError>) {
        match outcome {
            Ok(()) => self.written = self.output.len(),
            Err(_) => self.output.fill(0),
        }
        self.outcome = Some(outcome);
    }
}

/// Decodes one block; if the level lacks the variant, the plain one is used. After an error `output` is zero.
///
/// # Errors
/// When `input` is not a block that decodes to exactly `output.len()` bytes.
pub fn decode<F: Format>(
    level: Level,
    variant: F::Variant,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), DecodeError> {
    let mut block = Block::<F>::new(input, output);
    loop {
        if let Some(outcome) = block.outcome {
            return outcome;
        }
        one(level, variant, &mut block, usize::MAX);
    }
}

/// Decodes about `bytes` more bytes of the unfinished blocks, two at a time beginning with the first, and
/// returns how many bytes it decoded. It is finished when all blocks have ended.
pub fn advance<F: Format>(
    level: Level,
    variant: F::Variant,
    blocks: &mut [Block<'_, F>],
    bytes: usize,
) -> usize {
    let mut done: usize = 0;
    let mut rest = blocks;
    // The blocks between the first unfinished one and here have ended; they are not visited again.
    let mut ended: usize = 1;
    while let Some(first) = rest.iter().position(|block| block.outcome.is_none()) {
        rest = &mut rest[first..];
        ended = ended.saturating_sub(first).max(1);
        let next = rest[ended..].iter().position(|block| block.outcome.is_none());
        ended = next.map_or(rest.len(), |next| ended + next);
        let (front, others) = rest.split_at_mut(ended);
        let (a, b) = (&mut front[0], others.first_mut());
        let share = bytes.saturating_sub(done);
        // Short runs of the loop cost more than they gain. So if only a quarter of the bytes or less remains
        // to be decoded, that is left to the next call, unless it finishes the last block.
        let is_little = b.is_none() && a.output.len() - a.written <= bytes / 4;
        if share <= bytes / 4 && !is_little {
            break;
        }
        done += match b {
            Some(b) => two(level, variant, a, b, (share / 2).max(1)),
            None if is_little => one(level, variant, a, usize::MAX),
            None => one(level, variant, a, share),
        };
    }
    done
}

fn one<F: Format>(level: Level, variant: F::Variant, block: &mut Block<'_, F>, bytes: usize) -> usize {
    let before = block.written;
    let mut cursor = block.cursor(bytes);
    match F::fast(variant) {
        Some(run) => run(level, &mut cursor, None),
        None => cursor.stop(),
    }
    let progress = cursor.progress();
    block.take(progress);
    block.written - before
}

/// Runs until one of the two blocks has ended or advanced by `bytes`.
fn two<F: Format>(
    level: Level,
    variant: F::Variant,
    a: &mut Block<'_, F>,
    b: &mut Block<'_, F>,
    bytes: usize,
) -> usize {
    let before = a.written + b.written;
    let (mut first, mut second) = (a.cursor(bytes), b.cursor(bytes));
    match F::fast(variant) {
        Some(run) => run(level, &mut first, Some(&mut second)),
        None => [&mut first, &mut second].into_iter().for_each(Cursor::stop),
    }
    let (first, second) = (first.progress(), second.progress());
    a.take(first);
    b.take(second);
    a.written + b.written - before
}
