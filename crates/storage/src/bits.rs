//! Bit buffers that are appended to.

use keirin_kernels::{BitBuffer, Bits};

/// Appends the bits of `back` to `front`.
pub(crate) fn append(front: BitBuffer, back: Bits<'_>) -> BitBuffer {
    let (len, shift) = (front.len() + back.len(), front.len() % 64);
    let mut words = front.into_words();
    words.reserve(back.word_count());
    for word in back.words() {
        match words.last_mut() {
            Some(last) if shift > 0 => {
                *last |= word << shift;
                words.push(word >> (64 - shift));
            }
            _ => words.push(word),
        }
    }
    words.truncate(len.div_ceil(64));
    BitBuffer::from_words(words, len)
}

/// `len` bits, all set.
pub(crate) fn ones(len: usize) -> BitBuffer {
    BitBuffer::from_words(vec![!0; len.div_ceil(64)], len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_appended_at_every_offset() {
        let flags: Vec<bool> =
            (0_u32..300).map(|index| index.wrapping_mul(2_654_435_769) >> 31 == 1).collect();
        for cut in 0..=flags.len() {
            let front: BitBuffer = flags[..cut].iter().copied().collect();
            let back: BitBuffer = flags.iter().copied().collect();
            let whole = append(front, back.as_bits().slice(cut, flags.len() - cut));
            assert_eq!(whole, back, "cut at {cut}");
        }
    }
}
