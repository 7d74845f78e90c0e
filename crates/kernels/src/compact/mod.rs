//! Keeps the rows whose bit is set: of values, bitmaps and strings.
//!
//! A word of the selection covers 64 rows. If none or all of them are kept, that costs one test; if some are,
//! AVX-512 compresses in a register and stores all of it, and the next store overwrites the excess. Few rows
//! are copied one by one. Bitmaps are compacted by `pext`, strings by runs of rows, short runs with a copy of
//! fixed size that needs no call.

use crate::bits::WORD_BITS;
use crate::compare::Comparable;
use crate::{BitBuffer, Bits};

mod strings;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use strings::{Offset, Strings, compact_strings, gather_strings};

kernel! {
    /// Appends the values whose bit is set.
    ///
    /// # Panics
    /// When there are not as many bits as values.
    pub fn compact_into[T: Comparable][T](values: &[T], kept: Bits<'_>, out: &mut Vec<T>)
        = compact_plain, avx512 = x86::compact_avx512, vbmi = x86::compact_vbmi;
}

#[inline(always)]
fn compact_plain<T: Comparable>(values: &[T], kept: Bits<'_>, out: &mut Vec<T>) {
    compact_by(values, kept, out, usize::MAX, |_, _, _| unreachable!("all words are sparse"));
}

/// Appends values one by one where at most `sparse` rows of a word are kept or the word is incomplete;
/// elsewhere calls `dense` with 64 values, their bits and a place with room for 64.
#[inline(always)]
fn compact_by<T: Comparable>(
    values: &[T],
    kept: Bits<'_>,
    out: &mut Vec<T>,
    sparse: usize,
    dense: impl Fn(&[T; WORD_BITS], u64, *mut T),
) {
    assert_eq!(values.len(), kept.len(), "a selection of as many rows");
    let mut count = 0;
    kept.for_each_word(|_, word| count += word.count_ones() as usize);
    out.reserve(count + WORD_BITS);
    let mut len = out.len();
    let (chunks, tail) = values.as_chunks::<WORD_BITS>();
    kept.for_each_word(|index, word| {
        // SAFETY: room for all kept rows and a word more was reserved.
        let at = unsafe { out.as_mut_ptr().add(len) };
        len += word.count_ones() as usize;
        let rows: &[T] = chunks.get(index).map_or(tail, |chunk| chunk);
        match chunks.get(index) {
            _ if word == 0 => {}
            Some(chunk) if word == u64::MAX => {
                // SAFETY: there is room for a word of rows.
                unsafe { at.copy_from_nonoverlapping(chunk.as_ptr(), WORD_BITS) };
            }
            Some(chunk) if word.count_ones() as usize > sparse => dense(chunk, word, at),
            _ => {
                let (mut rest, mut at) = (word, at);
                while rest != 0 {
                    // SAFETY: bits behind the last row are zero, and a word has as many rows as bits.
                    let value = unsafe { *rows.get_unchecked(rest.trailing_zeros() as usize) };
                    // SAFETY: fewer than a word's rows were written to a place with room for them.
                    unsafe { at.write(value) };
                    // SAFETY: it goes to the next of a word's places, or behind the last.
                    at = unsafe { at.add(1) };
                    rest &= rest - 1;
                }
            }
        }
    });
    // SAFETY: each word wrote as many values as it has ones.
    unsafe { out.set_len(len) };
}

kernel! {
    /// The bits of `bits` at the places where `kept` has ones.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn compact_bits(bits: Bits<'_>, kept: Bits<'_>) -> BitBuffer
        = compact_bits_plain, avx2 = x86::compact_bits_avx2;
}

#[inline(always)]
fn compact_bits_plain(bits: Bits<'_>, kept: Bits<'_>) -> BitBuffer {
    compact_bits_by(bits, kept, |word, mask| {
        let (mut rest, mut packed, mut place) = (mask, 0, 0);
        while rest != 0 {
            packed |= (word >> rest.trailing_zeros() & 1) << place;
            place += 1;
            rest &= rest - 1;
        }
        packed
    })
}

/// Appends the bits that `extract` takes from each word where the mask has ones, moved to the low end.
#[inline(always)]
fn compact_bits_by(bits: Bits<'_>, kept: Bits<'_>, extract: impl Fn(u64, u64) -> u64) -> BitBuffer {
    assert_eq!(bits.len(), kept.len(), "bitmaps of as many rows");
    let mut words = Vec::with_capacity(bits.word_count());
    let (mut pending, mut len) = (0_u64, 0_usize);
    kept.for_each_word(|index, mask| {
        let (packed, count) = (extract(bits.word(index), mask), mask.count_ones() as usize);
        let filled = len % WORD_BITS;
        pending |= packed << filled;
        if filled + count >= WORD_BITS {
            words.push(pending);
            // The bits that did not fit: by two shifts, since a shift by all 64 bits does nothing.
            pending = packed >> 1 >> (WORD_BITS - 1 - filled);
        }
        len += count;
    });
    if !len.is_multiple_of(WORD_BITS) {
        words.push(pending);
    }
    BitBuffer::from_words(words, len)
}
