//! The variants that need byte shuffles.

use std::arch::x86_64::__m512i;

use super::arms::{
    Alone, General, INPUT_ROOM, Rest, Sequence, TOKEN_LITERALS_MAX, TOKEN_MATCH_MAX, general_by_parts,
    general_out_of_line, other,
};
use crate::lz::x86::{Permute32, Permute64, Shuffle16, arm, window};
use crate::lz::{Arm, Cursor, End, Step, StepByParts, read_u16, run};

impl Rest for Shuffle16 {
    const GENERAL: StepByParts = general_out_of_line;
}

impl Rest for Permute32 {
    const GENERAL: StepByParts = general_by_64;
}

impl Rest for Permute64 {
    const GENERAL: StepByParts = general_by_64;
}

/// # Safety
/// As [`general_by_parts`], on a CPU with VBMI.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2")]
unsafe fn general_by_64(
    at: *const u8,
    input_end: *const u8,
    output: *mut u8,
    written: usize,
    output_len: usize,
) -> End {
    // SAFETY: the caller's promise.
    unsafe { general_by_parts::<Permute64>(at, input_end, output, written, output_len) }
}

arm!(plain_by_16, General<Shuffle16>, "avx2,bmi1,bmi2,lzcnt,popcnt,movbe");
arm!(plain, General<Permute64>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(shuffle, Sequence<Shuffle16, 16, false, false>, alone Alone<Shuffle16>, "avx2,bmi1,bmi2,lzcnt,popcnt,movbe");
arm!(shuffle_skip, Sequence<Shuffle16, 16, true, false>, "avx2,bmi1,bmi2,lzcnt,popcnt,movbe");
arm!(permute, Sequence<Permute32, 16, false, false>, alone Alone<Permute32>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(extend, Sequence<Permute64, 16, false, true>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(extend_skip, Sequence<Permute64, 16, true, true>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(long, Sequence<Permute32, 32, false, false>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(long_extend, Sequence<Permute64, 64, false, true>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(window, Window, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");

/// A step with the last 64 bytes in a register; it calls the general step for sequences that it cannot
/// handle.
struct Window;

impl Arm for Window {
    type State = __m512i;
    const INPUT_ROOM: usize = INPUT_ROOM;
    const OUTPUT_ROOM: usize = window::BYTES;

    #[inline(always)]
    unsafe fn start(cursor: &mut Cursor<'_>) -> Option<__m512i> {
        while cursor.written() < window::BYTES {
            let has_room =
                cursor.input_left() >= Self::INPUT_ROOM && cursor.output_left() >= Self::OUTPUT_ROOM;
            // SAFETY: the cursor has room.
            if !has_room || unsafe { other::<Permute64>(cursor) } == Step::Stop {
                return None;
            }
        }
        // SAFETY: 64 bytes are written.
        Some(unsafe { window::load(cursor.output().add(cursor.written())) })
    }

    #[inline(always)]
    unsafe fn step(cursor: &mut Cursor<'_>, state: &mut __m512i) -> Step {
        // SAFETY: the cursor has room for all reads of input below.
        let token = usize::from(unsafe { *cursor.at() });
        let literal_count = token >> 4;
        let literals = cursor.at().wrapping_add(1);
        if literal_count <= TOKEN_LITERALS_MAX {
            let behind = cursor.at().wrapping_add(literal_count);
            // SAFETY: the cursor has room for an offset behind 14 literals.
            let offset = unsafe { read_u16(behind.wrapping_add(1)) };
            let mut next = behind.wrapping_add(3);
            let mut length = (token & 15) + 4;
            let is_extended = usize::from(length > TOKEN_MATCH_MAX);
            // SAFETY: the cursor has room for a byte behind the offset.
            length += usize::from(unsafe { *next }) & is_extended.wrapping_neg();
            next = next.wrapping_add(is_extended);
            let count = literal_count + length;
            if offset.wrapping_sub(1) < window::BYTES && count <= window::BYTES {
                // SAFETY: 16 bytes of input were there; counts and offset are in their ranges.
                *state = unsafe { window::next(*state, literals, literal_count, offset, length) };
                // SAFETY: a sequence of the token and one byte more was read, and up to 64 bytes are written
                // below.
                unsafe { cursor.go_to(next, cursor.written() + count) };
                // SAFETY: 64 bytes or more were written before, and these had room.
                unsafe { window::store(*state, cursor.output().add(cursor.written())) };
                return Step::Short;
            }
        }
        // SAFETY: as the caller promises.
        let step = unsafe { other::<Permute64>(cursor) };
        if step == Step::Stop {
            return step;
        }
        // SAFETY: 64 bytes or more are written.
        *state = unsafe { window::load(cursor.output().add(cursor.written())) };
        step
    }
}
