//! The structure of JSON text, found 64 bytes at a time.
//!
//! Quotes, backslashes and the six characters of structure become bits; whether a byte is inside a text is the parity of the
//! quotes before it, a prefix exclusive-or. Langdale, Lemire, "Parsing Gigabytes of JSON per Second" (VLDB Journal 28,
//! 2019), section 3.1.

use crate::bits::WORD_BITS;
use crate::{BitBuffer, bitmaps::pack_flags};

/// What is structure in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// The bytes that are: outside of texts `{ } [ ] : ,`, and the quotes that open a text.
    pub bits: BitBuffer,
    /// Whether it ends inside of a text.
    pub is_open: bool,
    /// Whether a line ends inside of a text, which in JSON it may not.
    pub has_broken_text: bool,
}

/// A bit for each of 64 bytes.
#[derive(Clone, Copy)]
struct Classes {
    quotes: u64,
    backslashes: u64,
    /// `{`, `}`, `[`, `]`, `:` and `,`.
    marks: u64,
    line_ends: u64,
}

kernel! {
    /// What is structure in `bytes`, which do not begin inside of a text.
    pub fn structure(bytes: &[u8]) -> Structure =
        structure_plain, avx2 = x86::structure_avx2, avx512 = x86::structure_avx512;
}

#[inline(always)]
fn structure_plain(bytes: &[u8]) -> Structure {
    structure_by(bytes, |block| {
        let flags = |is: fn(u8) -> bool| pack_flags(&block.map(is));
        Classes {
            quotes: flags(|byte| byte == b'"'),
            backslashes: flags(|byte| byte == b'\\'),
            marks: flags(|byte| matches!(byte, b'{' | b'}' | b'[' | b']' | b':' | b',')),
            line_ends: flags(|byte| byte == b'\n'),
        }
    })
}

#[inline(always)]
fn structure_by(bytes: &[u8], classes: impl Fn(&[u8; WORD_BITS]) -> Classes) -> Structure {
    let (blocks, rest) = bytes.as_chunks::<WORD_BITS>();
    let mut words = Vec::with_capacity(blocks.len() + 1);
    let mut state = State::default();
    words.extend(blocks.iter().map(|block| state.structure(classes(block))));
    if !rest.is_empty() {
        let mut block = [b' '; WORD_BITS];
        block[..rest.len()].copy_from_slice(rest);
        words.push(state.structure(classes(&block)));
    }
    Structure {
        bits: BitBuffer::from_words(words, bytes.len()),
        is_open: state.in_text != 0,
        has_broken_text: state.line_ends_in_text != 0,
    }
}

/// What the bytes before a block say of it.
#[derive(Default)]
struct State {
    /// One if the first byte of the block is escaped.
    escapes_first: u64,
    /// All bits if the block begins inside a text.
    in_text: u64,
    line_ends_in_text: u64,
}

impl State {
    #[inline(always)]
    fn structure(&mut self, classes: Classes) -> u64 {
        let quotes = classes.quotes & !self.escaped(classes.backslashes);
        // From each opening quote up to before the closing one.
        let in_text = prefix_xor(quotes) ^ self.in_text;
        self.in_text = (in_text.cast_signed() >> (WORD_BITS - 1)).cast_unsigned();
        self.line_ends_in_text |= classes.line_ends & in_text;
        (classes.marks & !in_text) | (quotes & in_text)
    }

    /// The bytes after an odd number of backslashes.
    #[inline(always)]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        const EVEN: u64 = 0x5555_5555_5555_5555;
        if backslashes == 0 {
            return std::mem::take(&mut self.escapes_first);
        }
        let backslashes = backslashes & !self.escapes_first;
        let follows = backslashes << 1 | self.escapes_first;
        // Runs that begin at an odd position: adding their first bit turns them into the bit after them.
        let odd_starts = backslashes & !EVEN & !follows;
        let (after_odd, overflows) = odd_starts.overflowing_add(backslashes);
        self.escapes_first = u64::from(overflows);
        (EVEN ^ after_odd << 1) & follows
    }
}

/// Each bit as the exclusive-or of those up to it.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Sixty-four bytes are compared in two registers, or in one.

    #[allow(clippy::wildcard_imports, reason = "comparisons in two widths")]
    use std::arch::x86_64::*;

    use super::{Classes, Structure, WORD_BITS, structure_by};

    /// `[` and `{`, `]` and `}` differ in this bit.
    const BRACE: u8 = 0x20;

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn structure_avx2(bytes: &[u8]) -> Structure {
        structure_by(bytes, |block| classes_avx2(block))
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn classes_avx2(block: &[u8; WORD_BITS]) -> Classes {
        let half = |index: usize| {
            // SAFETY: both halves of 32 bytes lie inside the 64.
            unsafe { _mm256_loadu_si256(block.as_ptr().add(32 * index).cast()) }
        };
        let [low, high] = [half(0), half(1)];
        let equal = |bytes: __m256i, to: u8| _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(to.cast_signed()));
        let mask = |low: __m256i, high: __m256i| {
            let word = |half| u64::from(_mm256_movemask_epi8(half).cast_unsigned());
            word(low) | word(high) << 32
        };
        let both = |to: u8| mask(equal(low, to), equal(high, to));
        let marks = |bytes: __m256i| {
            let braces = _mm256_or_si256(bytes, _mm256_set1_epi8(BRACE.cast_signed()));
            let braces = _mm256_or_si256(equal(braces, b'{'), equal(braces, b'}'));
            _mm256_or_si256(braces, _mm256_or_si256(equal(bytes, b':'), equal(bytes, b',')))
        };
        Classes {
            quotes: both(b'"'),
            backslashes: both(b'\\'),
            marks: mask(marks(low), marks(high)),
            line_ends: both(b'\n'),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn structure_avx512(bytes: &[u8]) -> Structure {
        structure_by(bytes, |block| classes_avx512(block))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
    fn classes_avx512(block: &[u8; WORD_BITS]) -> Classes {
        // SAFETY: the block has 64 bytes.
        let bytes = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        let equal =
            |bytes: __m512i, to: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(to.cast_signed()));
        let braces = _mm512_or_si512(bytes, _mm512_set1_epi8(BRACE.cast_signed()));
        Classes {
            quotes: equal(bytes, b'"'),
            backslashes: equal(bytes, b'\\'),
            marks: equal(braces, b'{') | equal(braces, b'}') | equal(bytes, b':') | equal(bytes, b','),
            line_ends: equal(bytes, b'\n'),
        }
    }
}
