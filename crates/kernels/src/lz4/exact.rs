//! The loop that checks every byte: for the ends of blocks, and all errors.

use crate::lz::{DecodeError, Reason, copy_literals, copy_match};

/// Decodes the rest of a block from the token at `at` on; `written` bytes of the output are decoded already.
pub(super) fn finish(
    input: &[u8],
    mut at: usize,
    output: &mut [u8],
    mut written: usize,
) -> Result<(), DecodeError> {
    loop {
        let token = usize::from(byte(input, &mut at)?);
        let literals = length(token >> 4, input, &mut at)?;
        copy_literals(input, at, output, written, literals)?;
        at += literals;
        written += literals;
        if at == input.len() {
            if written < output.len() {
                return Err(DecodeError { position: at, reason: Reason::OutputShort(written) });
            }
            return Ok(());
        }
        let position = at;
        let offset = usize::from(byte(input, &mut at)?) | usize::from(byte(input, &mut at)?) << 8;
        if offset.wrapping_sub(1) >= written {
            return Err(DecodeError { position, reason: Reason::Offset { offset, written } });
        }
        let length = length(token & 15, input, &mut at)? + 4;
        copy_match(position, output, written, offset, length)?;
        written += length;
    }
}

fn byte(input: &[u8], at: &mut usize) -> Result<u8, DecodeError> {
    let byte = *input.get(*at).ok_or(DecodeError { position: *at, reason: Reason::InputEnds })?;
    *at += 1;
    Ok(byte)
}

/// The length of `nibble`, plus, if that is 15, all extension bytes: at most 255 for each byte of input,
/// which cannot overflow.
fn length(nibble: usize, input: &[u8], at: &mut usize) -> Result<usize, DecodeError> {
    let mut length = nibble;
    if nibble == 15 {
        loop {
            let more = byte(input, at)?;
            length += usize::from(more);
            if more != 255 {
                break;
            }
        }
    }
    Ok(length)
}
