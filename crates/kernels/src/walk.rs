//! Iterates over set bits: as positions and as runs.
//!
//! A word of zeros costs one test, and so does a word of ones inside a run. Loops that need all positions at
//! once call [`positions`](crate::bitmaps::positions).

use std::iter::from_fn;
use std::ops::Range;

use crate::Bits;
use crate::bits::WORD_BITS;

impl<'a> Bits<'a> {
    /// The numbers of the bits that are set, ascending.
    pub fn ones(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.words().enumerate().flat_map(|(index, word)| {
            let mut rest = word;
            from_fn(move || {
                let bit = (rest != 0).then(|| index * WORD_BITS + rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(bit)
            })
        })
    }

    /// The maximal ranges of set bits, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let bits = *self;
        let mut next = 0;
        from_fn(move || {
            let start = bits.first_from(next, 0)?;
            let end = bits.first_from(start, u64::MAX).unwrap_or(bits.len());
            next = end;
            Some(start..end)
        })
    }

    /// The position of the first set bit at or after `start`; with `flip` all ones, of the first unset bit.
    #[inline(always)]
    fn first_from(&self, start: usize, flip: u64) -> Option<usize> {
        let mut index = start / WORD_BITS;
        let mut ignored = !0 << (start % WORD_BITS);
        while index < self.word_count() {
            let word = (self.word(index) ^ flip) & ignored;
            if word != 0 {
                let bit = index * WORD_BITS + word.trailing_zeros() as usize;
                return (bit < self.len()).then_some(bit);
            }
            ignored = !0;
            index += 1;
        }
        None
    }
}
