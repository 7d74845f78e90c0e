//! Raw Snappy blocks (<https://github.com/google/snappy/blob/main/format_description.txt>).
//!
//! A block is the size of the output as a varint, then elements: a tag whose low two bits mean literal or
//! copy, the latter with an offset of 11, 16 or 32 bits. As literals have a tag of their own, there are more
//! elements than LZ4 has sequences, and in text it is unpredictable whether an element is a literal: all
//! variants but the plain one choose the source of a copy without a branch. Copies have at most 64 bytes, 95
//! % of them at most 16, 99 % at most 32.

mod arms;
mod exact;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::Level;
use crate::dispatch::Kind;
use crate::lz::{
    Cursor, DecodeError, Format, Reason,
    hidden::{self, Loop},
};

/// Raw Snappy blocks, as in Parquet.
#[derive(Clone, Copy, Debug)]
pub struct Snappy;

/// The ways to decode a block. All give the same bytes and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// The exact loop alone, safe code: slow, the reference for the others.
    Exact,
    /// Branches for the common cases, then copies of 8 bytes: for columns where literals and copies
    /// alternate.
    Plain,
    /// 16 bytes by one shuffle, from the input or the output.
    Shuffle,
    /// 32 bytes by one permutation.
    Permute,
    /// 64 bytes by one permutation: no branch on lengths.
    PermuteWide,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Exact, Self::Plain, Self::Shuffle, Self::Permute, Self::PermuteWide];

    /// The name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Plain => "plain",
            Self::Shuffle => "shuffle",
            Self::Permute => "permute",
            Self::PermuteWide => "permute-wide",
        }
    }

    /// The variants that may be the fastest on a CPU of this level; the first is the reference of a race.
    #[must_use]
    pub fn racing(level: Level) -> &'static [Self] {
        match level.kind() {
            #[cfg(target_arch = "x86_64")]
            Kind::Vbmi => &Self::ALL[1..],
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Avx2 => &Self::ALL[1..3],
            _ => &Self::ALL[1..2],
        }
    }
}

/// The size that a block claims to decode to, and the length of that header; `None` if it is invalid.
///
/// The size is only a claim: compare it with a limit before allocating memory.
#[must_use]
pub fn decoded_len(input: &[u8]) -> Option<(u32, usize)> {
    let mut length = 0_u64;
    for (index, byte) in input.iter().take(5).enumerate() {
        length |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(length).ok()?, index + 1));
        }
    }
    None
}

impl Format for Snappy {}

impl hidden::Decode for Snappy {
    type Variant = Variant;

    const EXACT: Variant = Variant::Exact;

    fn number(variant: Variant) -> u32 {
        variant as u32
    }

    fn name(variant: Variant) -> &'static str {
        variant.name()
    }

    fn begin(input: &[u8], decoded_bytes: usize) -> Result<usize, DecodeError> {
        match decoded_len(input) {
            Some((length, read)) if u64::from(length) == decoded_bytes as u64 => Ok(read),
            _ => Err(DecodeError { position: 0, reason: Reason::Header }),
        }
    }

    fn fast(variant: Variant) -> Option<Loop> {
        Some(match variant {
            Variant::Exact => return None,
            Variant::Plain => plain,
            Variant::Shuffle => shuffle,
            Variant::Permute => permute,
            Variant::PermuteWide => permute_wide,
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
    fn shuffle(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, avx2 = x86::shuffle;
}
kernel! {
    fn permute(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::permute;
}
kernel! {
    fn permute_wide(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) = arms::plain, vbmi = x86::permute_wide;
}
