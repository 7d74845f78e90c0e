//! Bitmaps combined, turned into flags and row numbers and made from row numbers.
//!
//! Combining is one plain loop; [`Bits::word_inside`](crate::Bits) makes a bitmap that begins inside a byte
//! as cheap as one that does not. Bits become row numbers by compressing the numbers 0..16, sixteen rows at a
//! time.

use crate::bits::WORD_BITS;
use crate::{BitBuffer, Bits};

#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::pack_flags_avx2;

/// Compiles a combination of two bitmaps of the same length.
macro_rules! combination {
    ($(#[$meta:meta])* $name:ident, $plain:ident, $op:expr) => {
        kernel! {
            $(#[$meta])*
            ///
            /// # Panics
            /// When the lengths differ.
            pub fn $name(left: Bits<'_>, right: Bits<'_>) -> BitBuffer = $plain;
        }

        #[inline(always)]
        fn $plain(left: Bits<'_>, right: Bits<'_>) -> BitBuffer {
            combine(left, right, $op)
        }
    };
}

combination! {
    /// Bits that are set in both.
    and, and_plain, |left, right| left & right
}
combination! {
    /// Bits that are set in either.
    or, or_plain, |left, right| left | right
}
kernel! {
    /// Bits that are not set.
    pub fn not(bits: Bits<'_>) -> BitBuffer = not_plain;
}

#[inline(always)]
fn not_plain(bits: Bits<'_>) -> BitBuffer {
    combine(bits, bits, |word, _| !word)
}

#[inline(always)]
fn combine(left: Bits<'_>, right: Bits<'_>, op: impl Fn(u64, u64) -> u64) -> BitBuffer {
    assert_eq!(left.len(), right.len(), "bitmaps of as many rows");
    let mut words = Vec::with_capacity(left.word_count());
    let inside = left.inside_word_count().min(right.inside_word_count());
    words.extend((0..inside).map(|index| {
        // SAFETY: `index` is below the count of words inside, of both.
        op(unsafe { left.word_inside(index) }, unsafe { right.word_inside(index) })
    }));
    words.extend((inside..left.word_count()).map(|index| op(left.word(index), right.word(index))));
    BitBuffer::from_words(words, left.len())
}

kernel! {
    /// Count of the bits that are set in both.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn count_ones_in_both(left: Bits<'_>, right: Bits<'_>) -> usize = count_ones_in_both_plain;
}

#[inline(always)]
fn count_ones_in_both_plain(left: Bits<'_>, right: Bits<'_>) -> usize {
    assert_eq!(left.len(), right.len(), "bitmaps of as many rows");
    let inside = left.inside_word_count().min(right.inside_word_count());
    let mut count = 0;
    for index in 0..inside {
        // SAFETY: `index` is below the count of words inside, of both.
        let both = unsafe { left.word_inside(index) } & unsafe { right.word_inside(index) };
        count += both.count_ones() as usize;
    }
    for index in inside..left.word_count() {
        count += (left.word(index) & right.word(index)).count_ones() as usize;
    }
    count
}

/// The flags as bits, the first flag as the least significant.
///
/// Eight flags are a word with ones at bits 0, 8, 16 ...; the factor moves each to the top byte, in order.
#[inline(always)]
pub(crate) fn pack_flags(flags: &[bool; WORD_BITS]) -> u64 {
    let (eights, _) = flags.as_chunks::<8>();
    let mut word = 0;
    for (index, eight) in eights.iter().enumerate() {
        let bytes = u64::from_le_bytes(eight.map(u8::from));
        word |= (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * index);
    }
    word
}

kernel! {
    /// A flag for each bit.
    pub fn to_bools(bits: Bits<'_>) -> Vec<bool> = to_bools_plain;
}

#[inline(always)]
fn to_bools_plain(bits: Bits<'_>) -> Vec<bool> {
    let mut flags = vec![false; bits.word_count() * WORD_BITS];
    let (chunks, _) = flags.as_chunks_mut::<WORD_BITS>();
    bits.for_each_word(|index, word| {
        for (bit, flag) in chunks[index].iter_mut().enumerate() {
            *flag = word >> bit & 1 == 1;
        }
    });
    flags.truncate(bits.len());
    flags
}

kernel! {
    /// The numbers of the bits that are set, ascending.
    ///
    /// # Panics
    /// When there are more bits than `u32` has numbers.
    pub fn positions(bits: Bits<'_>) -> Vec<u32> = positions_plain, avx512 = x86::positions_avx512;
}

#[inline(always)]
fn positions_plain(bits: Bits<'_>) -> Vec<u32> {
    // SAFETY: `positions_by` hands out room for a word's numbers.
    positions_by(bits, |word, first, out| unsafe { write_positions(word, first, out) })
}

/// Writes the positions of a word one by one.
///
/// # Safety
/// `out` must have room for [`WORD_BITS`] numbers.
#[inline(always)]
unsafe fn write_positions(word: u64, first: u32, out: *mut u32) {
    let (mut rest, mut at) = (word, out);
    while rest != 0 {
        // SAFETY: `out` has room for a number of each bit of a word.
        unsafe { at.write(first + rest.trailing_zeros()) };
        // SAFETY: it goes to the next of a word's places, or behind the last.
        at = unsafe { at.add(1) };
        rest &= rest - 1;
    }
}

/// Collects the positions of each word. `write` gets a word, the number of its first bit, and a place with
/// room for [`WORD_BITS`] numbers. It writes as many numbers as the word has ones; anything behind them is
/// overwritten.
#[inline(always)]
fn positions_by(bits: Bits<'_>, write: impl Fn(u64, u32, *mut u32)) -> Vec<u32> {
    u32::try_from(bits.len()).expect("a batch has at most u32::MAX rows");
    let mut count = 0;
    bits.for_each_word(|_, word| count += word.count_ones() as usize);
    let mut rows: Vec<u32> = Vec::with_capacity(count + WORD_BITS);
    let mut written = 0;
    bits.for_each_word(|index, word| {
        // SAFETY: `written` is at most `count`, behind which there is room for a word's numbers.
        let at = unsafe { rows.as_mut_ptr().add(written) };
        #[expect(clippy::cast_possible_truncation, reason = "all row numbers were seen to fit")]
        write(word, (index * WORD_BITS) as u32, at);
        written += word.count_ones() as usize;
    });
    // SAFETY: each word wrote as many numbers as it has ones.
    unsafe { rows.set_len(written) };
    rows
}

impl BitBuffer {
    /// `len` bits, with those set whose numbers are in `positions`.
    ///
    /// # Panics
    /// When a number is not below `len`.
    #[must_use]
    pub fn from_positions(len: usize, positions: &[u32]) -> Self {
        let mut words = vec![0; len.div_ceil(WORD_BITS)];
        for position in positions {
            let position = *position as usize;
            assert!(position < len, "row {position} of {len}");
            words[position / WORD_BITS] |= 1_u64 << (position % WORD_BITS);
        }
        Self::from_words(words, len)
    }
}
