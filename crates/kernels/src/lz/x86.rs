//! Matches by byte shuffles: the bytes of a pattern are repeated in a register.
//!
//! The control vector of the shuffle is row `min(offset, WIDTH)` of a table: byte `i` is `i mod offset`; the
//! last row copies. So there is no branch on the offset, which is unpredictable in most data.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the entries of tables are below 256, or wrap as bytes do"
)]

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128, _mm256_loadu_si256,
    _mm256_permutexvar_epi8, _mm256_storeu_si256, _mm512_loadu_si512, _mm512_permutexvar_epi8,
    _mm512_storeu_si512,
};

use super::copy::{FromAnywhere, Match, fill, grow};

/// A function that runs an arm over one block or two, compiled with the features that the arm requires. A
/// single block may have an arm of its own.
macro_rules! arm {
    ($name:ident, $arm:ty, alone $alone:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
            match b {
                // SAFETY: this function has the features that the arm is made of.
                None => unsafe { run::<$alone>(a, None) },
                // SAFETY: this function has the features that the arm is made of.
                b => unsafe { run::<$arm>(a, b) },
            }
        }
    };
    ($name:ident, $arm:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
            // SAFETY: this function has the features that the arm is made of.
            unsafe { run::<$arm>(a, b) };
        }
    };
}
pub(crate) use arm;

#[repr(align(64))]
struct Rows<const WIDTH: usize, const COUNT: usize>([[u8; WIDTH]; COUNT]);

impl<const WIDTH: usize, const COUNT: usize> Rows<WIDTH, COUNT> {
    const REPEATING: Self = {
        let mut rows = [[0; WIDTH]; COUNT];
        let mut offset = 1;
        while offset < COUNT {
            let mut index = 0;
            while index < WIDTH {
                rows[offset][index] = (index % offset) as u8;
                index += 1;
            }
            offset += 1;
        }
        Self(rows)
    };

    #[inline(always)]
    fn row(&self, offset: usize) -> &[u8; WIDTH] {
        &self.0[offset.min(COUNT - 1)]
    }
}

// SAFETY: `short` reads 16 bytes at `from`.
unsafe impl FromAnywhere for Shuffle16 {}
// SAFETY: `short` reads 32 bytes at `from`.
unsafe impl FromAnywhere for Permute32 {}
// SAFETY: `short` reads 64 bytes at `from`.
unsafe impl FromAnywhere for Permute64 {}

static REPEAT16: Rows<16, 17> = Rows::REPEATING;
static REPEAT32: Rows<32, 33> = Rows::REPEATING;
static REPEAT64: Rows<64, 65> = Rows::REPEATING;

/// 16 bytes by `pshufb` (SSSE3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle16;

impl Match for Shuffle16 {
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn short(from: *const u8, to: *mut u8, offset: usize) {
        // SAFETY: the caller's promise: memory and CPU.
        unsafe { _mm_storeu_si128(to.cast(), repeat16(from, offset)) };
    }

    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, offset: usize, length: usize) {
        if offset >= 16 {
            // SAFETY: the caller's promise.
            return unsafe { fill(from, to, offset, length) };
        }
        // SAFETY: the caller's promise.
        let pattern = unsafe { repeat16(from, offset) };
        let distance = usize::from(WHOLE_PERIODS16[offset]);
        let mut done = 0;
        while done < length {
            // SAFETY: `done < length`, so these 16 bytes end before the room does.
            unsafe { _mm_storeu_si128(to.add(done).cast(), pattern) };
            done += distance;
        }
    }
}

/// # Safety
/// As [`Match::short`].
#[inline(always)]
unsafe fn repeat16(from: *const u8, offset: usize) -> __m128i {
    // SAFETY: a row has 16 bytes.
    let row = unsafe { _mm_loadu_si128(REPEAT16.row(offset).as_ptr().cast()) };
    // SAFETY: the caller's promise.
    let bytes = unsafe { _mm_loadu_si128(from.cast()) };
    // SAFETY: the CPU has SSSE3 by the caller's promise.
    unsafe { _mm_shuffle_epi8(bytes, row) }
}

/// 32 bytes by `vpermb` (AVX-512 VBMI and VL).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permute32;

impl Match for Permute32 {
    const WIDTH: usize = 32;

    #[inline(always)]
    unsafe fn short(from: *const u8, to: *mut u8, offset: usize) {
        // SAFETY: a row has 32 bytes.
        let row: __m256i = unsafe { _mm256_loadu_si256(REPEAT32.row(offset).as_ptr().cast()) };
        // SAFETY: the caller's promise.
        let bytes = unsafe { _mm256_loadu_si256(from.cast()) };
        // SAFETY: the caller's promise: memory and CPU.
        unsafe { _mm256_storeu_si256(to.cast(), _mm256_permutexvar_epi8(row, bytes)) };
    }

    const LONG_ROOM: usize = 64;

    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, offset: usize, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { fill64(from, to, offset, length) };
    }
}

/// 64 bytes by `vpermb` (AVX-512 VBMI).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permute64;

impl Match for Permute64 {
    const WIDTH: usize = 64;

    #[inline(always)]
    unsafe fn short(from: *const u8, to: *mut u8, offset: usize) {
        // SAFETY: the caller's promise: memory and CPU.
        unsafe { _mm512_storeu_si512(to.cast(), repeat64(from, offset)) };
    }

    const LONG_ROOM: usize = 64;

    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, offset: usize, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { fill64(from, to, offset, length) };
    }
}

/// # Safety
/// As [`Match::short`].
#[inline(always)]
unsafe fn repeat64(from: *const u8, offset: usize) -> __m512i {
    // SAFETY: a row has 64 bytes.
    let row = unsafe { _mm512_loadu_si512(REPEAT64.row(offset).as_ptr().cast()) };
    // SAFETY: the caller's promise.
    let bytes = unsafe { _mm512_loadu_si512(from.cast()) };
    // SAFETY: the CPU has VBMI by the caller's promise.
    unsafe { _mm512_permutexvar_epi8(row, bytes) }
}

/// A pattern is stored again and again, each time as many bytes further on as the whole periods in a register
/// have: no bytes that were just written are read again.
///
/// # Safety
/// As [`Match::long`], with 64 bytes of room.
#[inline(always)]
unsafe fn fill64(from: *const u8, to: *mut u8, offset: usize, length: usize) {
    if offset >= 64 {
        // SAFETY: the caller's promise; each step reads what is an offset behind, no less than a step.
        unsafe { grow::<64>(from, to, length) };
        return;
    }
    // SAFETY: the caller's promise.
    let pattern = unsafe { repeat64(from, offset) };
    let distance = usize::from(WHOLE_PERIODS64[offset]);
    let mut done = 0;
    while done < length {
        // SAFETY: `done < length`, so these 64 bytes end before the room does.
        unsafe { _mm512_storeu_si512(to.add(done).cast(), pattern) };
        done += distance;
    }
}

/// For each offset below `WIDTH`, its largest multiple up to `WIDTH`.
const fn whole_periods<const WIDTH: usize>() -> [u8; WIDTH] {
    let mut distances = [WIDTH as u8; WIDTH];
    let mut offset = 1;
    while offset < WIDTH {
        distances[offset] = (WIDTH - WIDTH % offset) as u8;
        offset += 1;
    }
    distances
}

static WHOLE_PERIODS16: [u8; 16] = whole_periods();
static WHOLE_PERIODS64: [u8; 64] = whole_periods();

/// Keeps the last 64 bytes of a block's output in a register, so that a match in them does not wait for
/// memory.
///
/// A sequence of literals and a match gives the next window by one permutation of a pair of registers: the
/// last window (bytes 0..64) and the literals (64..80). Relative to the first literal, byte `p` of the output
/// is byte `64 + p` of the pair if it is a literal or earlier; byte `k` of the match is `(k mod offset) -
/// offset` from the match's start. So with `row[k] = k mod offset`, continued by `offset + k` below zero,
/// both are `64 + literals - offset + row[p - literals]`: the control vector is one load from the middle of a
/// row and one addition.
pub(crate) mod window {
    use std::arch::x86_64::{
        __m512i, _mm_loadu_si128, _mm512_add_epi8, _mm512_loadu_si512, _mm512_permutex2var_epi8,
        _mm512_set1_epi8, _mm512_storeu_si512, _mm512_zextsi128_si512,
    };

    /// Bytes of a window, and the longest match and offset that it can handle.
    pub(crate) const BYTES: usize = 64;

    #[repr(align(64))]
    struct Rows([[u8; 2 * BYTES]; BYTES + 1]);

    static ROWS: Rows = {
        let mut rows = [[0; 2 * BYTES]; BYTES + 1];
        let mut offset = 1;
        while offset <= BYTES {
            let mut index = 0;
            while index < 2 * BYTES {
                rows[offset][index] = if index < BYTES {
                    // Below zero: wraps, as the addition of bytes does.
                    (256 + offset + index - BYTES) as u8
                } else {
                    ((index - BYTES) % offset) as u8
                };
                index += 1;
            }
            offset += 1;
        }
        Rows(rows)
    };

    /// Loads the 64 bytes before `end`.
    ///
    /// # Safety
    /// The 64 bytes before `end` must be readable; the CPU must have AVX-512.
    #[inline(always)]
    pub(crate) unsafe fn load(end: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(end.sub(BYTES).cast()) }
    }

    /// Writes the window to the 64 bytes before `end`.
    ///
    /// # Safety
    /// The 64 bytes before `end` must be writable; the CPU must have AVX-512.
    #[inline(always)]
    pub(crate) unsafe fn store(window: __m512i, end: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(end.sub(BYTES).cast(), window) };
    }

    /// The window after `literal_count` literals and a match.
    ///
    /// # Safety
    /// 16 bytes can be read at `literals`; `literal_count <= 16`, `1 <= offset <= 64`, `length <= 64`; the
    /// CPU has VBMI.
    #[inline(always)]
    pub(crate) unsafe fn next(
        window: __m512i,
        literals: *const u8,
        literal_count: usize,
        offset: usize,
        length: usize,
    ) -> __m512i {
        // SAFETY: the caller's promise.
        let literals = unsafe { _mm512_zextsi128_si512(_mm_loadu_si128(literals.cast())) };
        // SAFETY: `offset` names a row; the window begins `64 - length` before the match, a row 64 before it.
        let row = unsafe { _mm512_loadu_si512(ROWS.0.get_unchecked(offset).as_ptr().add(length).cast()) };
        let base = (BYTES + literal_count - offset) as i8;
        // SAFETY: the caller's promise about the CPU.
        unsafe {
            let control = _mm512_add_epi8(row, _mm512_set1_epi8(base));
            _mm512_permutex2var_epi8(window, control, literals)
        }
    }
}
