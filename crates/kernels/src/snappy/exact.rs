//! The loop that checks every byte: for the ends of blocks, and all errors.

use crate::lz::{DecodeError, Reason, copy_literals, copy_match};

/// Decodes the rest of a block from the tag at `at` on; `written` bytes of the output are decoded already.
pub(super) fn finish(
    input: &[u8],
    mut at: usize,
    output: &mut [u8],
    mut written: usize,
) -> Result<(), DecodeError> {
    while at < input.len() {
        let tag = usize::from(input[at]);
        at += 1;
        if tag & 3 == 0 {
            let mut length = (tag >> 2) + 1;
            if length > 60 {
                length = number(input, &mut at, length - 60)? + 1;
            }
            copy_literals(input, at, output, written, length)?;
            at += length;
            written += length;
            continue;
        }
        let position = at;
        let (offset, length) = match tag & 3 {
            1 => ((tag >> 5) << 8 | number(input, &mut at, 1)?, (tag >> 2 & 7) + 4),
            2 => (number(input, &mut at, 2)?, (tag >> 2) + 1),
            _ => (number(input, &mut at, 4)?, (tag >> 2) + 1),
        };
        if written.wrapping_sub(offset) >= written {
            return Err(DecodeError { position, reason: Reason::Offset { offset, written } });
        }
        copy_match(position, output, written, offset, length)?;
        written += length;
    }
    if written < output.len() {
        return Err(DecodeError { position: at, reason: Reason::OutputShort(written) });
    }
    Ok(())
}

/// Reads a number of up to four bytes, the lowest first.
fn number(input: &[u8], at: &mut usize, bytes: usize) -> Result<usize, DecodeError> {
    let rest = input.get(*at..).unwrap_or_default();
    let Some(bytes) = rest.get(..bytes) else {
        return Err(DecodeError { position: input.len(), reason: Reason::InputEnds });
    };
    *at += bytes.len();
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}
