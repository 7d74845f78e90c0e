//! Copies of the exact loops: all bounds are checked, and small copies need no call.

use super::{DecodeError, Reason};

/// The size of small copies, which are one move if both buffers have room for it.
const SMALL: usize = 16;

/// Copies `count` literals from `input[at..]` to `output[written..]`.
pub(crate) fn copy_literals(
    input: &[u8],
    at: usize,
    output: &mut [u8],
    written: usize,
    count: usize,
) -> Result<(), DecodeError> {
    if count <= SMALL
        && let Some(from) = input.get(at..).and_then(<[u8]>::first_chunk::<SMALL>)
        && let Some(to) = output.get_mut(written..).and_then(<[u8]>::first_chunk_mut)
    {
        *to = *from;
        return Ok(());
    }
    let error = |reason| DecodeError { position: at, reason };
    let from = input.get(at..).and_then(|rest| rest.get(..count)).ok_or(error(Reason::InputEnds))?;
    let to = output.get_mut(written..).and_then(|rest| rest.get_mut(..count));
    to.ok_or(error(Reason::OutputFull))?.copy_from_slice(from);
    Ok(())
}

/// Copies a match of `length` bytes from `offset` bytes back, where `1 <= offset <= written`.
pub(crate) fn copy_match(
    position: usize,
    output: &mut [u8],
    written: usize,
    offset: usize,
    length: usize,
) -> Result<(), DecodeError> {
    let start = written - offset;
    if length <= SMALL && offset >= SMALL && output.len() - written >= SMALL {
        output.copy_within(start..start + SMALL, written);
        return Ok(());
    }
    if length > output.len() - written {
        return Err(DecodeError { position, reason: Reason::OutputFull });
    }
    // The copied bytes are copied again: the distance doubles from step to step.
    let mut done = 0;
    while done < length {
        let step = (offset + done).min(length - done);
        output.copy_within(start..start + step, written + done);
        done += step;
    }
    Ok(())
}
