//! LZ4 blocks (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>).
//!
//! A block is a row of sequences: a token, literals, two bytes of offset, a match. The high half of the token
//! is the count of literals, the low half the length of the match less 4; 15 means that bytes follow that are
//! added, as long as they are 255. The last sequence ends with its literals.
//!
//! What limits decoding is the chain from token to token, matches that read what was just written (a load that
//! needs two stores waits some 15 cycles for both), and mispredicted branches on lengths and offsets. Which of
//! them hurts depends on the data, and so which of the variants is fastest: by up to a factor of two. On a Zen 5,
//! two blocks at a time, a race is 1.5 to 1.7 times as fast as liblz4 1.10 (geometric mean over 90 columns and
//! files in blocks of 64 KiB and 1 MiB), 1.1 to 1.2 times as fast as the best variant alone.
//!
//! Stricter than liblz4 in one point, offset 0 is refused, and laxer in another: matches may end where they
//! like, the rule that the last five bytes are literals binds encoders only.

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
    /// The exact loop alone, safe code: slow, and what the others are held against.
    Exact,
    /// liblz4's strategy: branches for what is common, then copies of 8 to 32 bytes.
    Plain,
    /// Copies of 8 bytes, no branch on the offset: for CPUs without shuffles of bytes.
    Eight,
    /// 16 literals, then 16 bytes of the match by one shuffle; a branch for longer ones only. The best on half of
    /// all data, numbers and prose.
    Shuffle,
    /// The same with a branch on "no literals": columns where all sequences have some, or none, by up to 1.3.
    ShuffleSkip,
    /// 32 bytes of the match by one permutation: names and paths, by up to 1.4.
    Permute,
    /// 64 bytes of the match by one permutation; no branch on the byte that extends a length: JSON, XML, URLs,
    /// by up to 1.4.
    Extend,
    /// The same with a branch on "no literals": small counts, flags and repeated words, by up to 1.7.
    ExtendSkip,
    /// The last 64 bytes stay in a register, for offsets up to 64: keys that count up, flags, by up to 2.7.
    Window,
    /// 32 literals and 32 bytes of the match; no branch on the byte that extends the count of literals: UUIDs,
    /// hashes, by up to 1.5.
    Long,
    /// 64 of both; no branch on either of the bytes that extend lengths: pages of rows, by up to 1.5.
    LongExtend,
}

impl Variant {
    /// All of them.
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

    /// What a user calls it.
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

    /// Those that may be the fastest on a CPU of this level; the first is the reference of a race.
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
    fn plain(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::plain;
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
