//! The steps of the fast loop: each decodes one sequence.
//!
//! [`general`] decodes every sequence, with a branch for each kind: liblz4's strategy. The others have a
//! short path without branches for sequences whose lengths are in the token, and call [`general`] for the
//! rest. That this is a call matters: inlined twice, it takes the registers that two lanes need.

use std::hint::cold_path;
use std::marker::PhantomData;

use crate::lz::{Arm, Bytes8, Cursor, End, Match, Step, StepByParts, copy, grow, out_of_line, read_u16, run};

/// A token, 14 literals, for which 16 bytes are read, an offset and a byte of length.
pub(super) const INPUT_ROOM: usize = 32;
/// 14 literals, for which 16 bytes are written, and a match of up to 18 bytes.
const GENERAL_OUTPUT_ROOM: usize = 32;
/// The largest count of literals and the longest match for which the token needs no extension bytes.
pub(super) const TOKEN_LITERALS_MAX: usize = 14;
pub(super) const TOKEN_MATCH_MAX: usize = 18;

/// Decodes one sequence of any kind, and sets `token` to the next one.
///
/// The common case has as few instructions as possible, as these limit its speed. The rest is marked as cold,
/// or it would take registers from the common case (two lanes: 1.03 times liblz4 instead of 1.39).
///
/// # Safety
/// The cursor has `INPUT_ROOM` and `GENERAL_OUTPUT_ROOM`, and `token` is the byte that it points to.
#[inline(always)]
unsafe fn general<M: Match>(cursor: &mut Cursor<'_>, token: &mut usize) -> Step {
    let mut literals = *token >> 4;
    let mut length = *token & 15;
    let mut behind = cursor.at().wrapping_add(literals);
    if literals <= TOKEN_LITERALS_MAX {
        let to = cursor.output().wrapping_add(cursor.written());
        // SAFETY: the cursor has room.
        unsafe { copy::<16>(cursor.at().wrapping_add(1), to) };
        if length < 15 {
            // SAFETY: the cursor has room for an offset behind 14 literals.
            let offset = unsafe { read_u16(behind.wrapping_add(1)) };
            if offset >= 8 {
                // SAFETY: the cursor has room for a token behind 14 literals and an offset.
                let next = usize::from(unsafe { *behind.wrapping_add(3) });
                let written = cursor.written() + literals;
                let (from, is_before) = written.overflowing_sub(offset);
                if is_before {
                    return Step::Stop;
                }
                let from = cursor.output().wrapping_add(from);
                let to = cursor.output().wrapping_add(written);
                // SAFETY: 18 bytes are left behind 14 literals; each copy reads what is before it.
                unsafe { copy::<8>(from, to) };
                // SAFETY: bytes 8 to 16 of the 18 that are left.
                unsafe { copy::<8>(from.add(8), to.add(8)) };
                // SAFETY: the last two of the 18 bytes that are left.
                unsafe { copy::<2>(from.add(16), to.add(16)) };
                // SAFETY: a token behind the offset was read, and 18 bytes behind the literals were written.
                unsafe { cursor.go_to(behind.wrapping_add(3), written + length + 4) };
                *token = next;
                return Step::Short;
            }
        }
        cold_path();
    } else {
        cold_path();
        let mut at = cursor.at().wrapping_add(1);
        // SAFETY: the cursor has room behind the token, so `at` is inside the input.
        let Some(extension) = (unsafe { extension(&mut at, cursor.input_end()) }) else { return Step::Stop };
        literals += extension;
        let input_left = cursor.input_end().addr() - at.addr();
        // If the match and the next step have no room behind the literals, nothing is copied.
        if literals.saturating_add(INPUT_ROOM) > input_left
            || literals.saturating_add(GENERAL_OUTPUT_ROOM) > cursor.output_left()
        {
            return Step::Stop;
        }
        let to = cursor.output().wrapping_add(cursor.written());
        // SAFETY: the last of the steps ends at most 31 bytes behind the literals, where both have room.
        unsafe { grow::<32>(at, to, literals) };
        behind = at.wrapping_add(literals - 1);
    }
    let written = cursor.written() + literals;
    // SAFETY: behind 14 literals there is room for an offset, and behind more it was seen to be.
    let offset = unsafe { read_u16(behind.wrapping_add(1)) };
    let mut at = behind.wrapping_add(3);
    // Offset zero is as invalid as one before the start.
    if written.wrapping_sub(offset) >= written {
        return Step::Stop;
    }
    if length == 15 {
        // SAFETY: an offset was read in front of `at`, so `at` is at most the end of the input.
        let Some(extension) = (unsafe { extension(&mut at, cursor.input_end()) }) else { return Step::Stop };
        length += extension;
    }
    length += 4;
    if length.saturating_add(M::LONG_ROOM) > cursor.output_len() - written || at == cursor.input_end() {
        return Step::Stop;
    }
    let from = cursor.output().wrapping_add(written - offset);
    // SAFETY: `1 <= offset <= written`, and the room was just seen.
    unsafe { M::long(from, cursor.output().wrapping_add(written), offset, length) };
    // SAFETY: before the end of the input.
    *token = usize::from(unsafe { *at });
    // SAFETY: what was read lay in the input, and the literals and the match were seen to fit.
    unsafe { cursor.go_to(at, written + length) };
    Step::Long
}

/// The sum of the bytes that extend a length; `None` if the input ends before they do.
///
/// # Safety
/// `at` is at or before `end` in one allocation.
#[inline(always)]
unsafe fn extension(at: &mut *const u8, end: *const u8) -> Option<usize> {
    let mut sum = 0;
    loop {
        if *at >= end {
            return None;
        }
        // SAFETY: `at` is before `end`.
        let byte = unsafe { **at };
        *at = at.wrapping_add(1);
        sum += usize::from(byte);
        if byte != 255 {
            return Some(sum);
        }
    }
}

/// How the sequences are decoded that an arm does not handle.
pub(super) trait Rest: Match {
    /// [`general`], compiled with the CPU features of the arm.
    const GENERAL: StepByParts;
}

impl Rest for Bytes8 {
    const GENERAL: StepByParts = general_out_of_line;
}

/// # Safety
/// As [`general`], for the cursor that has these parts.
#[cold]
#[inline(never)]
pub(super) unsafe fn general_out_of_line(
    at: *const u8,
    input_end: *const u8,
    output: *mut u8,
    written: usize,
    output_len: usize,
) -> End {
    // SAFETY: the caller's promise.
    unsafe { general_by_parts::<Bytes8>(at, input_end, output, written, output_len) }
}

/// # Safety
/// As [`general`], for the cursor that has these parts.
#[inline(always)]
pub(super) unsafe fn general_by_parts<M: Match>(
    at: *const u8,
    input_end: *const u8,
    output: *mut u8,
    written: usize,
    output_len: usize,
) -> End {
    // SAFETY: the parts are those of a cursor, which waits for this call to end.
    let mut cursor = unsafe { Cursor::from_parts(at, input_end, output, written, output_len) };
    // SAFETY: the cursor has room for a token.
    let mut token = usize::from(unsafe { *at });
    // SAFETY: the cursor has the room that the caller promises.
    let step = unsafe { general::<M>(&mut cursor, &mut token) };
    cursor.end(step)
}

/// [`general`] as a call.
///
/// # Safety
/// As [`general`].
#[inline(always)]
pub(super) unsafe fn other<M: Rest>(cursor: &mut Cursor<'_>) -> Step {
    // SAFETY: the caller's promise.
    unsafe { out_of_line(cursor, M::GENERAL) }
}

/// Decodes every sequence by [`general`].
pub(super) struct General<M>(PhantomData<M>);

impl<M: Match> Arm for General<M> {
    /// The next token.
    type State = usize;
    const INPUT_ROOM: usize = INPUT_ROOM;
    const OUTPUT_ROOM: usize = GENERAL_OUTPUT_ROOM;

    #[inline(always)]
    unsafe fn start(cursor: &mut Cursor<'_>) -> Option<usize> {
        Some(next_token(cursor))
    }

    #[inline(always)]
    unsafe fn step(cursor: &mut Cursor<'_>, token: &mut usize) -> Step {
        // SAFETY: the caller's promise.
        unsafe { general::<M>(cursor, token) }
    }
}

/// A step that copies `LITERALS` bytes from the input and then matches of up to `M::WIDTH` bytes by `M`; with
/// `SKIP` it branches on "no literals". With `EXTEND` the first byte that extends the length of a match is
/// added without a branch; so is that of literals if `LITERALS` is more than 16.
pub(super) struct Sequence<M, const LITERALS: usize, const SKIP: bool, const EXTEND: bool>(PhantomData<M>);

impl<M: Rest, const LITERALS: usize, const SKIP: bool, const EXTEND: bool> Arm
    for Sequence<M, LITERALS, SKIP, EXTEND>
{
    type State = ();
    const INPUT_ROOM: usize = LITERALS + 16;
    const OUTPUT_ROOM: usize = (LITERALS + M::WIDTH).next_power_of_two();

    #[inline(always)]
    unsafe fn start(_: &mut Cursor<'_>) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    unsafe fn step(cursor: &mut Cursor<'_>, (): &mut ()) -> Step {
        // SAFETY: the cursor has room for all reads of input below.
        let token = usize::from(unsafe { *cursor.at() });
        let mut literals = token >> 4;
        let mut from = cursor.at().wrapping_add(1);
        let mut literals_max = TOKEN_LITERALS_MAX;
        if LITERALS > 16 {
            let is_extended = usize::from(literals > TOKEN_LITERALS_MAX);
            // SAFETY: the cursor has room for a byte behind the token.
            literals += usize::from(unsafe { *from }) & is_extended.wrapping_neg();
            from = from.wrapping_add(is_extended);
            literals_max = LITERALS;
        }
        if literals > literals_max {
            // SAFETY: the cursor has room.
            return unsafe { other::<M>(cursor) };
        }
        let to = cursor.output().wrapping_add(cursor.written());
        if !SKIP || literals > 0 {
            // SAFETY: the cursor has room.
            unsafe { copy::<LITERALS>(from, to) };
        }
        let behind = from.wrapping_add(literals);
        // SAFETY: the cursor has room for an offset behind `LITERALS` literals.
        let offset = unsafe { read_u16(behind) };
        let mut next = behind.wrapping_add(2);
        let mut length = (token & 15) + 4;
        let mut length_max = if M::WIDTH < TOKEN_MATCH_MAX { M::WIDTH } else { TOKEN_MATCH_MAX };
        if EXTEND {
            let is_extended = usize::from(length > TOKEN_MATCH_MAX);
            // SAFETY: the cursor has room for a byte behind the offset.
            length += usize::from(unsafe { *next }) & is_extended.wrapping_neg();
            next = next.wrapping_add(is_extended);
            length_max = M::WIDTH;
        }
        if length > length_max {
            // SAFETY: the cursor has room; what was written is written again.
            return unsafe { other::<M>(cursor) };
        }
        let written = cursor.written() + literals;
        let from = written.wrapping_sub(offset);
        // Offset zero is as invalid as one before the start.
        if from >= written {
            return Step::Stop;
        }
        // SAFETY: `1 <= offset <= written`, and `WIDTH` bytes are left behind the literals.
        unsafe { M::short(cursor.output().add(from), cursor.output().add(written), offset) };
        // SAFETY: no more was read and written than the cursor has room for.
        unsafe { cursor.go_to(next, written + length) };
        Step::Short
    }
}

/// The step for a single block: 16 literals and a short match, as in [`Sequence`], but the next token is
/// loaded first, from an address that depends on little else. That gains 15 to 20 % on text; two blocks have
/// no registers for it, and gain nothing.
pub(super) struct Alone<M>(PhantomData<M>);

impl<M: Rest> Arm for Alone<M> {
    /// The next token.
    type State = usize;
    const INPUT_ROOM: usize = INPUT_ROOM;
    const OUTPUT_ROOM: usize = (16 + M::WIDTH).next_power_of_two();

    #[inline(always)]
    unsafe fn start(cursor: &mut Cursor<'_>) -> Option<usize> {
        Some(next_token(cursor))
    }

    #[inline(always)]
    unsafe fn step(cursor: &mut Cursor<'_>, token: &mut usize) -> Step {
        let literals = *token >> 4;
        let length = (*token & 15) + 4;
        let length_max = if M::WIDTH < TOKEN_MATCH_MAX { M::WIDTH } else { TOKEN_MATCH_MAX };
        if literals > TOKEN_LITERALS_MAX || length > length_max {
            // SAFETY: the cursor has room.
            let step = unsafe { other::<M>(cursor) };
            *token = next_token(cursor);
            return step;
        }
        let behind = cursor.at().wrapping_add(literals);
        // SAFETY: the cursor has room for all reads of input.
        *token = usize::from(unsafe { *behind.wrapping_add(3) });
        // SAFETY: the cursor has room.
        unsafe { copy::<16>(cursor.at().add(1), cursor.output().add(cursor.written())) };
        // SAFETY: the cursor has room for an offset behind 14 literals.
        let offset = unsafe { read_u16(behind.wrapping_add(1)) };
        let written = cursor.written() + literals;
        let from = written.wrapping_sub(offset);
        // Offset zero is as invalid as one before the start.
        if from >= written {
            return Step::Stop;
        }
        // SAFETY: `1 <= offset <= written`, and `WIDTH` bytes are left behind 14 literals.
        unsafe { M::short(cursor.output().add(from), cursor.output().add(written), offset) };
        // SAFETY: no more was read and written than the cursor has room for.
        unsafe { cursor.go_to(behind.wrapping_add(3), written + length) };
        Step::Short
    }
}

/// The token at the cursor; any value at the end of the input.
#[inline(always)]
fn next_token(cursor: &Cursor<'_>) -> usize {
    if cursor.input_left() == 0 {
        return 0;
    }
    // SAFETY: before the end of the input.
    usize::from(unsafe { *cursor.at() })
}

#[inline(always)]
pub(super) fn plain(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
    // SAFETY: every CPU has what this arm is made of.
    unsafe { run::<General<Bytes8>>(a, b) };
}

#[inline(always)]
pub(super) fn eight(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
    // SAFETY: every CPU has what this arm is made of.
    unsafe { run::<Sequence<Bytes8, 16, false, false>>(a, b) };
}
