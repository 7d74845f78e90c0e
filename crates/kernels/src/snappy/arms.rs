//! One step of the fast loop: an element.

use std::hint::select_unpredictable;
use std::marker::PhantomData;

use crate::lz::{
    Arm, Cursor, End, FILL_ROOM, FromAnywhere, Step, copy, fill, grow, out_of_line, read_u16, run,
};

/// The longest element that [`general`] reads without asking: a tag, four bytes of length, and 16 literals.
const GENERAL_INPUT_ROOM: usize = 32;
const GENERAL_OUTPUT_ROOM: usize = 16;

/// Decodes one element, whatever it is.
///
/// # Safety
/// The cursor has `GENERAL_INPUT_ROOM` and `GENERAL_OUTPUT_ROOM`.
#[inline(always)]
unsafe fn general(cursor: &mut Cursor<'_>) -> Step {
    // SAFETY: the cursor has room for a tag and the four bytes behind it.
    let [tag, rest @ ..] = unsafe { cursor.at().cast::<[u8; 5]>().read() };
    let (tag, number) = (usize::from(tag), u32::from_le_bytes(rest) as usize);
    let to = cursor.output().wrapping_add(cursor.written());
    let output_left = cursor.output_left();
    if tag & 3 == 0 {
        let short = (tag >> 2) + 1;
        if short <= 16 {
            // SAFETY: the cursor has room.
            unsafe { copy::<16>(cursor.at().wrapping_add(1), to) };
            // SAFETY: a tag and up to 16 literals, for which the cursor has room.
            unsafe { cursor.go_to(cursor.at().wrapping_add(1 + short), cursor.written() + short) };
            return Step::Short;
        }
        let size_bytes = short.saturating_sub(60);
        let length =
            if size_bytes == 0 { short } else { (number & (u32::MAX as usize >> (32 - 8 * size_bytes))) + 1 };
        let from = cursor.at().wrapping_add(1 + size_bytes);
        let input_left = cursor.input_left() - 1 - size_bytes;
        // The next element has room behind the literals, or they are not copied.
        if length + GENERAL_INPUT_ROOM > input_left || length + FILL_ROOM > output_left {
            return Step::Stop;
        }
        // SAFETY: the last of the steps ends at most 31 bytes behind the literals, where both have room.
        unsafe { grow::<32>(from, to, length) };
        // SAFETY: both buffers were seen to have more than the literals.
        unsafe { cursor.go_to(from.wrapping_add(length), cursor.written() + length) };
        return Step::Long;
    }
    let (offset, length, bytes) = match tag & 3 {
        1 => ((tag >> 5) << 8 | number & 0xFF, (tag >> 2 & 7) + 4, 2),
        2 => (number & 0xFFFF, (tag >> 2) + 1, 3),
        _ => (number, (tag >> 2) + 1, 5),
    };
    // Zero bytes back is as wrong as before the start.
    let start = cursor.written().wrapping_sub(offset);
    if start >= cursor.written() {
        return Step::Stop;
    }
    let from = cursor.output().wrapping_add(start);
    let step = if length <= 16 && offset >= 8 {
        // SAFETY: the cursor has room for 16 bytes; each copy reads what is before it.
        unsafe { copy::<8>(from, to) };
        // SAFETY: the second half of the 16 bytes that the cursor has room for.
        unsafe { copy::<8>(from.wrapping_add(8), to.wrapping_add(8)) };
        Step::Short
    } else {
        if length + FILL_ROOM > output_left {
            return Step::Stop;
        }
        // SAFETY: `1 <= offset <= written`, and the room was just seen.
        unsafe { fill(from, to, offset, length) };
        Step::Long
    };
    // SAFETY: the cursor has room for a tag with an offset, and the match was seen to fit.
    unsafe { cursor.go_to(cursor.at().wrapping_add(bytes), cursor.written() + length) };
    step
}

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
    let step = unsafe { general(&mut cursor) };
    cursor.end(step)
}

/// Every element by [`general`].
struct General;

impl Arm for General {
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
        unsafe { general(cursor) }
    }
}

/// A step without branches for elements of up to `M::WIDTH` bytes and offsets of up to 16 bits. A literal is a
/// copy from the input, as if `M::WIDTH` bytes back, where a match has no pattern.
pub(super) struct Element<M>(PhantomData<M>);

/// What is known from a tag.
#[derive(Clone, Copy)]
struct Tag {
    /// The upper bits of the offset of a copy with 11 of them.
    offset: u16,
    /// Bytes of output; 255 for those that a step leaves to [`general`].
    length: u8,
}

#[expect(clippy::cast_possible_truncation, reason = "a tag is a byte")]
static TAGS: [Tag; 256] = {
    let mut tags = [Tag { offset: 0, length: 255 }; 256];
    let mut tag = 0;
    while tag < 256 {
        let short = (tag >> 2) as u8 + 1;
        match tag & 3 {
            0 if short <= 60 => tags[tag].length = short,
            1 => tags[tag] = Tag { offset: (tag >> 5 << 8) as u16, length: (tag >> 2 & 7) as u8 + 4 },
            2 => tags[tag].length = short,
            _ => {}
        }
        tag += 1;
    }
    tags
};

impl<M: FromAnywhere> Arm for Element<M> {
    type State = ();
    const INPUT_ROOM: usize = (GENERAL_INPUT_ROOM + M::WIDTH).next_power_of_two();
    const OUTPUT_ROOM: usize = M::WIDTH;

    #[inline(always)]
    unsafe fn start(cursor: &mut Cursor<'_>) -> Option<()> {
        // A literal must be able to lie `WIDTH` bytes back.
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
        let Tag { offset, length } = TAGS[tag];
        let length = usize::from(length);
        if length > M::WIDTH {
            // SAFETY: the cursor has room.
            return unsafe { out_of_line(cursor, general_out_of_line) };
        }
        let kind = tag & 3;
        let is_literal = kind == 0;
        // SAFETY: the cursor has room for two bytes behind the tag.
        let low = unsafe { read_u16(behind) } & ((1 << (8 * kind)) - 1);
        let offset = select_unpredictable(is_literal, M::WIDTH, usize::from(offset) + low);
        let next = behind.wrapping_add(select_unpredictable(is_literal, (tag >> 2) + 1, kind));
        let start = cursor.written().wrapping_sub(offset);
        // Zero bytes back is as wrong as before the start.
        if start >= cursor.written() {
            return Step::Stop;
        }
        let from = cursor.output().wrapping_add(start).cast_const();
        let from = select_unpredictable(is_literal, behind, from);
        // SAFETY: a match lies in the output, and `WIDTH` bytes are left there. Of a literal the offset is `WIDTH`, so that
        // it may come from anywhere, and `WIDTH` bytes can be read behind its tag.
        unsafe { M::short(from, cursor.output().add(cursor.written()), offset) };
        // SAFETY: no more was read and written than the cursor has room for.
        unsafe { cursor.go_to(next, cursor.written() + length) };
        Step::Short
    }
}

#[inline(always)]
pub(super) fn plain(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
    // SAFETY: every CPU has what this arm is made of.
    unsafe { run::<General>(a, b) };
}
