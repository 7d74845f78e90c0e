//! LZ4 blocks (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>).
//!
//! A block is a list of sequences: a token, literals, two bytes of offset, a match. The high half of the
//! token is the count of literals, the low half the length of the match minus 4; 15 means that extension
//! bytes follow, which are added up to the first that is not 255. The last sequence ends with its literals.
//!
//! What limits decoding is the chain from token to token, matches that read bytes just written (a load that
//! needs two stores waits some 15 cycles for both), and mispredicted branches on lengths and offsets. Which
//! of them dominates depends on the data, and so does the fastest variant: by up to a factor of two. On a Zen
//! 5, two blocks at a time, a race is 1.5 to 1.7 times as fast as liblz4 1.10 (geometric mean over 90 columns
//! and files in blocks of 64 KiB and 1 MiB), 1.1 to 1.2 times as fast as the best single variant. On a Zen 4
//! it is 1.4 to 1.5 times as fast as liblz4, and the plain variant alone 1.3 to 1.4 times.
//!
//! Stricter than liblz4 in one point, as offset 0 is refused, and more lenient in another: matches may end
//! anywhere; the rule that the last five bytes are literals binds only encoders.

mod arms;
mod exact;
mod sample;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::Level;
use crate::dispatch::Kind;
use crate::lz::{
    Cursor, DecodeError, Format,
    hidden::{self, Loop},
};

/// LZ4 blocks without a header; the largest offset is 65,535.
#[derive(Clone, Copy, Debug)]
pub struct Lz4;

/// The ways to decode a block. All give the same bytes and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// The exact loop alone, safe code: slow, the reference for the others.
    Exact,
    /// liblz4's strategy: branches for the common cases, then copies of 8 bytes. It has the fewest
    /// instructions, and is the best on most data on a Zen 4.
    Plain,
    /// Copies of 8 bytes, no branch on the offset: for CPUs without byte shuffles.
    Eight,
    /// 16 literals, then 16 bytes of the match by one shuffle; a branch only for longer ones. The best on
    /// half of all data, such as numbers and prose.
    Shuffle,
    /// As `Shuffle`, with a branch on "no literals": columns where all sequences have some, or none; up to
    /// 1.3 times faster.
    ShuffleSkip,
    /// 32 bytes of the match by one permutation: names and paths, up to 1.4 times faster.
    Permute,
    /// 64 bytes of the match by one permutation; no branch on the byte that extends a match: JSON, XML, URLs,
    /// up to 1.4 times faster.
    Extend,
    /// As `Extend`, with a branch on "no literals": small counts, flags and repeated words, up to 1.7 times
    /// faster.
    ExtendSkip,
    /// The last 64 bytes stay in a register, for offsets up to 64: ascending keys, flags, up to 2.7 times
    /// faster.
    Window,
    /// 32 literals and 32 bytes of the match; no branch on the byte that extends the count of literals:
    /// UUIDs, hashes, up to 1.5 times faster.
    Long,
    /// 64 of both; no branch on either of the bytes that extend lengths: pages of rows, up to 1.5 times
    /// faster.
    LongExtend,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 11] = [
        Self::Exact,
        Self::Plain,
        Self::Eight,
        Self::Shuffle,
        Self::ShuffleSkip,
        Self::Permute,
        Self::Extend,
        Self::ExtendSkip,
        Self::Window,
        Self::Long,
        Self::LongExtend,
    ];

    /// The name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Plain => "plain",
            Self::Eight => "eight",
            Self::Shuffle => "shuffle",
            Self::ShuffleSkip => "shuffle-skip",
            Self::Permute => "permute",
            Self::Extend => "extend",
            Self::ExtendSkip => "extend-skip",
            Self::Window => "window",
            Self::Long => "long",
            Self::LongExtend => "long-extend",
        }
    }

    /// The variants that may be the fastest on a CPU of this level; the first is the reference of a race.
    #[must_use]
    pub fn racing(level: Level) -> &'static [Self] {
        match level.kind() {
            #[cfg(target_arch = "x86_64")]
            Kind::Vbmi => &Self::ALL[1..],
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Avx2 => &Self::ALL[1..5],
            _ => &Self::ALL[1..3],
        }
    }
}

impl Format for Lz4 {}

impl hidden::Decode for Lz4 {
    type Variant = Variant;

    const EXACT: Variant = Variant::Exact;

    fn number(variant: Variant) -> u32 {
        variant as u32
    }

    fn name(variant: Variant) -> &'static str {
        variant.name()
    }

    fn begin(_: &[u8], _: usize) -> Result<usize, DecodeError> {
        Ok(0)
    }

    fn fast(variant: Variant) -> Option<Loop> {
        Some(match variant {
            Variant::Exact => return None,
            Variant::Plain => plain,
            Variant::Eight => eight,
            Variant::Shuffle => shuffle,
            Variant::ShuffleSkip => shuffle_skip,
            Variant::Permute => permute,
            Variant::Extend => extend,
            Variant::ExtendSkip => extend_skip,
            Variant::Window => window,
            Variant::Long => long,
            Variant::LongExtend => long_extend,
        })
    }

    fn finish(input: &[u8], read: usize, output: &mut [u8], written: usize) -> Result<(), DecodeError> {
        exact::finish(input, read, output, written)
    }
}

kernel! {
    fn plain(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, avx2 = x86::plain_by_16, vbmi = x86::plain;
}
kernel! {
    fn eight(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::eight;
}
kernel! {
    fn shuffle(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, avx2 = x86::shuffle;
}
kernel! {
    fn shuffle_skip(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>)
        = arms::plain, avx2 = x86::shuffle_skip;
}
kernel! {
    fn permute(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::permute;
}
kernel! {
    fn extend(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::extend;
}
kernel! {
    fn extend_skip(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::extend_skip;
}
kernel! {
    fn window(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::window;
}
kernel! {
    fn long(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::long;
}
kernel! {
    fn long_extend(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::long_extend;
}
