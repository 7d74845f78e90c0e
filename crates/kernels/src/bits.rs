//! Bitmaps: one bit a row, least significant bit first, as Arrow has them.
//!
//! [`Bits`] borrows bytes and may begin inside a byte; [`BitBuffer`] owns whole words and begins at zero.
//! Bits behind the end of a [`BitBuffer`] are zero, and [`Bits::word`] gives zeros there.

/// The bits of a word.
pub(crate) const WORD_BITS: usize = u64::BITS as usize;

/// Borrowed bits.
#[derive(Clone, Copy, Debug)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    offset: usize,
    len: usize,
}

impl<'a> Bits<'a> {
    /// `len` bits of `bytes`, beginning `offset` bits in.
    ///
    /// # Panics
    /// When `bytes` is too short.
    #[must_use]
    pub fn new(bytes: &'a [u8], offset: usize, len: usize) -> Self {
        let end = offset.checked_add(len).expect("bits end within the address space");
        assert!(end.div_ceil(8) <= bytes.len(), "{end} bits do not fit in {} bytes", bytes.len());
        Self { bytes: &bytes[offset / 8..end.div_ceil(8)], offset: offset % 8, len }
    }

    /// Count of bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bit at `index`.
    ///
    /// # Panics
    /// When `index` is not below the count of bits.
    #[must_use]
    #[inline(always)]
    pub fn get(&self, index: usize) -> bool {
        assert!(index < self.len, "bit {index} of {}", self.len);
        // SAFETY: just checked.
        unsafe { self.get_unchecked(index) }
    }

    /// [`Self::get`] without its check.
    ///
    /// # Safety
    /// `index` is below the count of bits.
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked(&self, index: usize) -> bool {
        let bit = self.offset + index;
        // SAFETY: there are bytes for `offset + len` bits, of which this is one.
        let byte = unsafe { *self.bytes.get_unchecked(bit / 8) };
        byte >> (bit % 8) & 1 == 1
    }

    /// Count of words, the last one perhaps in part.
    #[must_use]
    pub fn word_count(&self) -> usize {
        self.len.div_ceil(WORD_BITS)
    }

    /// Bits `64 * index ..`, with zeros behind the end.
    #[must_use]
    #[inline(always)]
    pub fn word(&self, index: usize) -> u64 {
        let start = index.saturating_mul(8);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let word = match (rest.first_chunk::<9>(), rest.first_chunk::<8>()) {
            (Some(bytes), Some(low)) if self.offset > 0 => {
                u64::from_le_bytes(*low) >> self.offset | u64::from(bytes[8]) << (WORD_BITS - self.offset)
            }
            (_, Some(low)) => u64::from_le_bytes(*low) >> self.offset,
            (_, None) => tail_word(rest) >> self.offset,
        };
        let rest_bits = self.len.saturating_sub(index.saturating_mul(WORD_BITS));
        if rest_bits >= WORD_BITS { word } else { word & ((1 << rest_bits) - 1) }
    }

    /// Count of the words that [`Bits::word_inside`] may read: whole ones with a byte behind them.
    #[inline(always)]
    pub(crate) fn inside_word_count(&self) -> usize {
        (self.len / WORD_BITS).min(self.bytes.len().saturating_sub(1) / 8)
    }

    /// [`Bits::word`] without branches, so that loops over it vectorise at every offset.
    ///
    /// # Safety
    /// `index` must be below [`Bits::inside_word_count`].
    #[inline(always)]
    pub(crate) unsafe fn word_inside(&self, index: usize) -> u64 {
        debug_assert!(index < self.inside_word_count());
        // SAFETY: byte `8 * index + 8` is inside, as the caller promises.
        let at = unsafe { self.bytes.as_ptr().add(index * 8) };
        // SAFETY: bytes `8 * index .. 8 * index + 8` are inside.
        let low = u64::from_le(unsafe { at.cast::<u64>().read_unaligned() });
        // SAFETY: bytes `8 * index + 1 .. 8 * index + 9` are inside.
        let high = u64::from_le(unsafe { at.add(1).cast::<u64>().read_unaligned() });
        // Where the two words overlap they hold the same bits.
        low >> self.offset | high << (8 - self.offset)
    }

    /// Calls `visit` with the index and the bits of each word.
    #[inline(always)]
    pub(crate) fn for_each_word(self, mut visit: impl FnMut(usize, u64)) {
        let inside = self.inside_word_count();
        for index in 0..inside {
            // SAFETY: `index` is below the count of words inside.
            visit(index, unsafe { self.word_inside(index) });
        }
        for index in inside..self.word_count() {
            visit(index, self.word(index));
        }
    }

    /// The words, with zeros behind the end of the last.
    #[inline(always)]
    pub fn words(&self) -> impl Iterator<Item = u64> + use<'a> {
        let bits = *self;
        (0..self.word_count()).map(move |index| bits.word(index))
    }

    /// Bits `start .. start + len`.
    ///
    /// # Panics
    /// When there are not so many bits.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "bits {start} .. + {len} of {}", self.len);
        Self::new(self.bytes, self.offset + start, len)
    }
}

kernel! {
    /// Count of bits that are set.
    pub fn count_ones(bits: Bits<'_>) -> usize = count_ones_plain;
}

#[inline(always)]
fn count_ones_plain(bits: Bits<'_>) -> usize {
    let mut count = 0;
    bits.for_each_word(|_, word| count += word.count_ones() as usize);
    count
}

/// A word from fewer than eight bytes, zero-extended.
#[cold]
fn tail_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Owned bits; those behind the end are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitBuffer {
    words: Vec<u64>,
    len: usize,
}

impl BitBuffer {
    /// `len` bits, all zero.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(WORD_BITS)], len }
    }

    /// `len` bits from words; bits behind the end are cleared.
    ///
    /// # Panics
    /// When the count of words is not the smallest that has `len` bits.
    #[must_use]
    pub fn from_words(mut words: Vec<u64>, len: usize) -> Self {
        assert_eq!(words.len(), len.div_ceil(WORD_BITS), "words for {len} bits");
        if let Some(last) = words.last_mut()
            && !len.is_multiple_of(WORD_BITS)
        {
            *last &= (1 << (len % WORD_BITS)) - 1;
        }
        Self { words, len }
    }

    /// Count of bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, with zeros behind the end of the last.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words alone, without the length.
    #[must_use]
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// The same bits, borrowed.
    #[must_use]
    pub fn as_bits(&self) -> Bits<'_> {
        Bits::new(word_bytes(&self.words), 0, self.len)
    }
}

impl FromIterator<bool> for BitBuffer {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        let (mut words, mut len) = (Vec::new(), 0_usize);
        for bit in bits {
            if len.is_multiple_of(WORD_BITS) {
                words.push(0);
            }
            if let Some(last) = words.last_mut() {
                *last |= u64::from(bit) << (len % WORD_BITS);
            }
            len += 1;
        }
        Self { words, len }
    }
}

/// The bytes of words whose least significant byte comes first in memory.
fn word_bytes(words: &[u64]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "bitmaps are little endian, as Arrow has them") };
    // SAFETY: the bytes are those of an initialised slice; u8 has no alignment and no invalid values.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn check(bytes: &[u8], offset: usize, len: usize) {
        let bits = Bits::new(bytes, offset, len);
        let expected: Vec<bool> =
            (offset..offset + len).map(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1).collect();
        assert_eq!((0..len).map(|index| bits.get(index)).collect::<Vec<_>>(), expected);
        let owned: BitBuffer = expected.iter().copied().collect();
        assert_eq!(bits.words().collect::<Vec<_>>(), owned.words(), "offset {offset}, {len} bits");
        for level in Level::available() {
            assert_eq!(count_ones(*level, bits), expected.iter().filter(|bit| **bit).count(), "{level}");
        }
        assert_eq!(owned.as_bits().words().collect::<Vec<_>>(), owned.words());
    }

    #[test]
    fn words_are_the_bits_at_every_offset_and_length() {
        let byte_count = if cfg!(miri) { 11 } else { 40 };
        let bytes: Vec<u8> = (0_u16..byte_count).map(|index| (index.wrapping_mul(167) % 251) as u8).collect();
        for offset in (0..20).step_by(if cfg!(miri) { 5 } else { 1 }) {
            for len in (0..=bytes.len() * 8 - offset).step_by(if cfg!(miri) { 9 } else { 1 }) {
                check(&bytes, offset, len);
            }
        }
    }
}
