//! Set bits one after the other: as positions and as runs.
//!
//! Whole words of zeros cost one test, whole words of ones extend a run by one test. Loops that want all
//! positions at once call [`positions`](crate::bitmaps::positions).

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

    /// The longest ranges of set bits, ascending.
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

    /// The number of the first bit at or behind `start` that is set, or with `flip` all ones, is not.
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
