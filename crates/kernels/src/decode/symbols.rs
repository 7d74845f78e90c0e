//! Text from codes of one byte, each of which stands for a symbol of up to eight bytes (FSST; see the
//! encoding in
//! `keirin-codecs`).
//!
//! Decoding symbol by symbol, the position of the next is known one addition after that of the last: eight
//! bytes are written for each code, and the next code overwrites the excess. With VBMI eight symbols are one
//! vector, compressed by `vpcompressb` and written by one store (`x86.rs`). Either way 64 bytes are written
//! for eight codes, so the output has that much room behind its end and positions need no check.

use std::mem::MaybeUninit;

/// The most bytes of a symbol.
pub const SYMBOL_BYTES: usize = 8;
/// The code that precedes a byte which is in no symbol.
const ESCAPE: u8 = 255;
/// Codes that are decoded together, and the bytes that they can write.
pub(super) const STEP: usize = 8;
pub(super) const STEP_BYTES: usize = STEP * SYMBOL_BYTES;

/// Symbols by code.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// The bytes of each symbol, the first byte lowest.
    pub(super) words: [u64; 256],
    /// A one for each byte of the symbol; zero for codes without a symbol.
    pub(super) masks: [u8; 256],
    pub(super) lengths: [u8; 256],
}

impl Symbols {
    /// Symbols for the codes 0, 1, 2 and so on.
    ///
    /// # Panics
    /// When a symbol has not 1 to 8 bytes, or there are more than 255.
    #[must_use]
    pub fn new<'a>(symbols: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut table = Self { words: [0; 256], masks: [0; 256], lengths: [0; 256] };
        for (code, symbol) in symbols.into_iter().enumerate() {
            assert!(
                code < usize::from(ESCAPE) && (1..=SYMBOL_BYTES).contains(&symbol.len()),
                "symbol {code}"
            );
            let mut word = [0; SYMBOL_BYTES];
            word[..symbol.len()].copy_from_slice(symbol);
            table.words[code] = u64::from_le_bytes(word);
            table.masks[code] = u8::MAX >> (SYMBOL_BYTES - symbol.len());
            table.lengths[code] = u8::try_from(symbol.len()).expect("at most eight");
        }
        table
    }
}

/// Appends the text of `codes` if that is exactly `byte_count` bytes, and returns true; else appends nothing.
/// Codes without a symbol stand for an empty text.
pub fn decode_symbols(
    level: crate::Level,
    symbols: &Symbols,
    codes: &[u8],
    byte_count: usize,
    out: &mut Vec<u8>,
) -> bool {
    // Each code gives at most eight bytes, so no memory is allocated that the codes cannot fill.
    if byte_count.div_ceil(SYMBOL_BYTES) > codes.len() {
        return false;
    }
    out.reserve(byte_count + STEP_BYTES);
    let room = &mut out.spare_capacity_mut()[..byte_count + STEP_BYTES];
    let is_exact = decode(level, symbols, codes, room) == Some(byte_count);
    if is_exact {
        // SAFETY: so many bytes were written, as the loops promise.
        unsafe { out.set_len(out.len() + byte_count) };
    }
    is_exact
}

kernel! {
    /// Writes the text of `codes` to the beginning of `out`, and any bytes behind it. Returns the count of
    /// bytes, or `None` when less than [`STEP_BYTES`] of room are left or there is no byte behind an escape.
    fn decode(symbols: &Symbols, codes: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize>
        = decode_plain, vbmi = super::x86::decode_vbmi;
}

#[inline(always)]
fn decode_plain(symbols: &Symbols, codes: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
    decode_by(codes, out, |eight, count, at| {
        let mut filled = 0;
        for code in eight.into_iter().take(count) {
            // SAFETY: symbols in front have at most eight bytes each, and there is room for eight symbols.
            let at = unsafe { at.add(filled) };
            // SAFETY: eight bytes of the room for eight symbols, of which there are `count` at most.
            unsafe { at.cast::<u64>().write_unaligned(symbols.words[usize::from(code)].to_le()) };
            filled += usize::from(symbols.lengths[usize::from(code)]);
        }
        filled
    })
}

/// Decodes by `step`, which gets eight codes and how many of them to decode, none of these an escape, writes
/// their text to a place with room for [`STEP_BYTES`], and returns the count of bytes.
#[inline(always)]
pub(super) fn decode_by(
    codes: &[u8],
    out: &mut [MaybeUninit<u8>],
    step: impl Fn([u8; STEP], usize, *mut u8) -> usize,
) -> Option<usize> {
    let (mut rest, mut end) = (codes, 0);
    while !rest.is_empty() {
        if out.len() - end < STEP_BYTES {
            return None;
        }
        // SAFETY: so much room is left.
        let at = unsafe { out.as_mut_ptr().add(end) }.cast::<u8>();
        let (eight, count) = match rest.first_chunk::<STEP>() {
            Some(eight) => (*eight, STEP),
            None => {
                let mut eight = [0; STEP];
                eight[..rest.len()].copy_from_slice(rest);
                (eight, rest.len())
            }
        };
        let count = count.min(codes_before_escape(eight));
        end += step(eight, count, at);
        rest = &rest[count..];
        if count < STEP
            && let Some((&ESCAPE, behind)) = rest.split_first()
        {
            let (byte, behind) = behind.split_first()?;
            out.get_mut(end)?.write(*byte);
            end += 1;
            rest = behind;
        }
    }
    Some(end)
}

/// The number of codes before the first escape.
#[inline(always)]
fn codes_before_escape(eight: [u8; STEP]) -> usize {
    // The high bit is set of bytes that are all ones; the lowest such bit is exact.
    const ONES: u64 = u64::MAX / 255;
    let inverted = !u64::from_le_bytes(eight);
    let escapes = inverted.wrapping_sub(ONES) & !inverted & ONES << 7;
    escapes.trailing_zeros() as usize / 8
}
