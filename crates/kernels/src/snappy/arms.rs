//! The steps of the fast loop: each decodes one element, or literals and a copy.

use std::hint::{cold_path, select_unpredictable};
use std::marker::PhantomData;

use crate::lz::{
    Arm, Bytes8, Cursor, End, FILL_ROOM, FromAnywhere, Match, Step, copy, grow, out_of_line, read_u16, run,
};

/// The input that [`general`] reads without checks: a tag, 16 literals, a tag and four bytes of offset.
const GENERAL_INPUT_ROOM: usize = 32;
/// 16 literals and a copy of up to 16 bytes.
const GENERAL_OUTPUT_ROOM: usize = 32;

/// Decodes a copy and, if there are any, up to 16 literals before it, or one element of another kind.
///
/// A copy nearly always follows literals, so that is not checked first. The rest is marked as cold, or it
/// would take registers from the common case.
///
/// # Safety
/// The cursor has `GENERAL_INPUT_ROOM` and `GENERAL_OUTPUT_ROOM`.
#[inline(always)]
unsafe fn general<M: Match>(cursor: &mut Cursor<'_>) -> Step {
    let (mut at, mut written) = (cursor.at(), cursor.written());
    // SAFETY: the cursor has room.
    let mut tag = usize::from(unsafe { *at });
    if tag & 3 == 0 {
        let length = (tag >> 2) + 1;
        if length > 16 {
            cold_path();
            // SAFETY: the caller's promise.
            return unsafe { long_literals(cursor) };
        }
        // SAFETY: the cursor has room.
        unsafe { copy::<16>(at.wrapping_add(1), cursor.output().wrapping_add(written)) };
        at = at.wrapping_add(1 + length);
        written += length;
        // SAFETY: the cursor has room for a tag behind 16 literals.
        tag = usize::from(unsafe { *at });
    }
    let Tag { offset, mask, length } = COPIES[tag];
    // SAFETY: the cursor has room for a tag and two bytes behind 16 literals.
    let low = unsafe { read_u16(at.wrapping_add(1)) };
    let offset = usize::from(offset) + (low & usize::from(mask));
    let length = usize::from(length);
    if length <= 16 && offset >= 8 {
        let (from, is_before) = written.overflowing_sub(offset);
        if is_before {
            return Step::Stop;
        }
        let (from, to) = (cursor.output().wrapping_add(from), cursor.output().wrapping_add(written));
        // SAFETY: the cursor has room for 16 bytes behind 16 literals; each copy reads what is before it.
        unsafe { copy::<8>(from, to) };
        // SAFETY: the second half of the 16 bytes that the cursor has room for.
        unsafe { copy::<8>(from.wrapping_add(8), to.wrapping_add(8)) };
        // SAFETY: the cursor has room for literals and a tag with an offset, and as much was written.
        unsafe { cursor.go_to(at.wrapping_add(1 + (tag & 3)), written + length) };
        return Step::Short;
    }
    cold_path();
    if tag & 3 == 0 {
        // Literals after literals are left to the next step.
        // SAFETY: the cursor has room for the literals that were copied.
        unsafe { cursor.go_to(at, written) };
        return Step::Short;
    }
    // SAFETY: the cursor has room for a tag with an offset behind literals.
    let number = u32::from_le_bytes(unsafe { at.wrapping_add(1).cast::<[u8; 4]>().read() }) as usize;
    let (offset, length, bytes) = match tag & 3 {
        1 => (offset, length, 2),
        2 => (offset, length, 3),
        _ => (number, (tag >> 2) + 1, 5),
    };
    // Offset zero is as invalid as one before the start.
    if written.wrapping_sub(offset) >= written || length + M::LONG_ROOM > cursor.output_len() - written {
        return Step::Stop;
    }
    let from = cursor.output().wrapping_add(written - offset);
    // SAFETY: `1 <= offset <= written`, and the room was just seen.
    unsafe { M::long(from, cursor.output().wrapping_add(written), offset, length) };
    // SAFETY: the cursor has room for a tag with an offset, and the match was seen to fit.
    unsafe { cursor.go_to(at.wrapping_add(bytes), written + length) };
    Step::Long
}

/// # Safety
/// As [`general`]; the cursor is at a tag of more than 16 literals.
#[inline(always)]
unsafe fn long_literals(cursor: &mut Cursor<'_>) -> Step {
    // SAFETY: the cursor has room for a tag and the four bytes behind it.
    let [tag, rest @ ..] = unsafe { cursor.at().cast::<[u8; 5]>().read() };
    let short = (usize::from(tag) >> 2) + 1;
    let size_bytes = short.saturating_sub(60);
    let number = u32::from_le_bytes(rest) as usize;
    let length =
        if size_bytes == 0 { short } else { (number & (u32::MAX as usize >> (32 - 8 * size_bytes))) + 1 };
    let from = cursor.at().wrapping_add(1 + size_bytes);
    let input_left = cursor.input_left() - 1 - size_bytes;
    // If the next element has no room behind the literals, nothing is copied.
    if length + GENERAL_INPUT_ROOM > input_left || length + FILL_ROOM > cursor.output_left() {
        return Step::Stop;
    }
    // SAFETY: the last of the steps ends at most 31 bytes behind the literals, where both have room.
    unsafe { grow::<32>(from, cursor.output().wrapping_add(cursor.written()), length) };
    // SAFETY: both buffers were seen to have more than the literals.
    unsafe { cursor.go_to(from.wrapping_add(length), cursor.written() + length) };
    Step::Long
}

/// The facts that a tag determines.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Tag {
    /// The fixed part of the offset; the two bytes behind the tag, masked by `mask`, are added to it.
    offset: u16,
    mask: u16,
    /// Bytes of output; 255 for tags that the short path does not handle.
    length: u8,
}

/// The table for copies with up to 16 bits of offset; and, if `literal_offset` is given, for literals as
/// copies from that far back.
#[expect(clippy::cast_possible_truncation, reason = "a tag is a byte, a width less")]
const fn tags(literal_offset: Option<usize>) -> [Tag; 256] {
    let mut tags = [Tag { offset: 0, mask: 0, length: 255 }; 256];
    let mut tag = 0;
    while tag < 256 {
        let short = (tag >> 2) as u8 + 1;
        tags[tag] = match (tag & 3, literal_offset) {
            (0, Some(offset)) if short <= 60 => Tag { offset: offset as u16, mask: 0, length: short },
            (1, _) => Tag { offset: (tag >> 5 << 8) as u16, mask: 0xFF, length: (tag >> 2 & 7) as u8 + 4 },
            (2, _) => Tag { offset: 0, mask: 0xFFFF, length: short },
            _ => tags[tag],
        };
        tag += 1;
    }
    tags
}

static COPIES: [Tag; 256] = tags(None);

/// # Safety
/// As [`general`], for the cursor that has these parts.
#[cold]
#[inline(never)]
unsafe fn general_out_of_line(
    at: *const u8,
    input_end: *const u8,
    output: *mut u8,
    written: usize,
    output_len: usize,
) -> End {
    // SAFETY: the parts are those of a cursor, which waits for this call to end.
    let mut cursor = unsafe { Cursor::from_parts(at, input_end, output, written, output_len) };
    // SAFETY: the cursor has the room that the caller promises.
    let step = unsafe { general::<Bytes8>(&mut cursor) };
    cursor.end(step)
}

/// Decodes everything by [`general`].
pub(super) struct General<M>(PhantomData<M>);

impl<M: Match> Arm for General<M> {
    type State = ();
    const INPUT_ROOM: usize = GENERAL_INPUT_ROOM;
    const OUTPUT_ROOM: usize = GENERAL_OUTPUT_ROOM;

    #[inline(always)]
    unsafe fn start(_: &mut Cursor<'_>) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    unsafe fn step(cursor: &mut Cursor<'_>, (): &mut ()) -> Step {
        // SAFETY: the caller's promise.
        unsafe { general::<M>(cursor) }
    }
}

/// A step without branches for elements of up to `M::WIDTH` bytes and offsets of up to 16 bits. A literal is
/// treated as a copy with offset `M::WIDTH`, at which a match has no repeated pattern, but from the input.
pub(super) struct Element<M>(PhantomData<M>);

impl<M: FromAnywhere> Element<M> {
    const TAGS: &[Tag; 256] = &tags(Some(M::WIDTH));
}

impl<M: FromAnywhere> Arm for Element<M> {
    type State = ();
    const INPUT_ROOM: usize = (GENERAL_INPUT_ROOM + M::WIDTH).next_power_of_two();
    const OUTPUT_ROOM: usize = if M::WIDTH > GENERAL_OUTPUT_ROOM { M::WIDTH } else { GENERAL_OUTPUT_ROOM };

    #[inline(always)]
    unsafe fn start(cursor: &mut Cursor<'_>) -> Option<()> {
        // A literal is treated as if it were `WIDTH` bytes back, so that must be inside the output.
        while cursor.written() < M::WIDTH {
            let has_room =
                cursor.input_left() >= Self::INPUT_ROOM && cursor.output_left() >= Self::OUTPUT_ROOM;
            // SAFETY: the cursor has room.
            if !has_room || unsafe { out_of_line(cursor, general_out_of_line) } == Step::Stop {
                return None;
            }
        }
        Some(())
    }

    #[inline(always)]
    unsafe fn step(cursor: &mut Cursor<'_>, (): &mut ()) -> Step {
        // SAFETY: the cursor has room for all reads of input below.
        let tag = usize::from(unsafe { *cursor.at() });
        let behind = cursor.at().wrapping_add(1);
        let Tag { offset, mask, length } = Self::TAGS[tag];
        let length = usize::from(length);
        if length > M::WIDTH {
            // SAFETY: the cursor has room.
            return unsafe { out_of_line(cursor, general_out_of_line) };
        }
        // SAFETY: the cursor has room for two bytes behind the tag.
        let low = unsafe { read_u16(behind) };
        let offset = usize::from(offset) + (low & usize::from(mask));
        let is_literal = tag & 3 == 0;
        // Everything else waits for the position of the next tag: computing it takes fewer cycles than a
        // load.
        let next = behind.wrapping_add(select_unpredictable(is_literal, (tag >> 2) + 1, tag & 3));
        let start = cursor.written().wrapping_sub(offset);
        // Offset zero is as invalid as one before the start.
        if start >= cursor.written() {
            return Step::Stop;
        }
        let from = cursor.output().wrapping_add(start).cast_const();
        let from = select_unpredictable(is_literal, behind, from);
        // SAFETY: a match lies in the output, and `WIDTH` bytes are left there. Of a literal the offset is
        // `WIDTH`, so that it may come from anywhere, and `WIDTH` bytes can be read behind its tag.
        unsafe { M::short(from, cursor.output().add(cursor.written()), offset) };
        // SAFETY: no more was read and written than the cursor has room for.
        unsafe { cursor.go_to(next, cursor.written() + length) };
        Step::Short
    }
}

#[inline(always)]
pub(super) fn plain(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
    // SAFETY: every CPU has what this arm is made of.
    unsafe { run::<General<Bytes8>>(a, b) };
}
