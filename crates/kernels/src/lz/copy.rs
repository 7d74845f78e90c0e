//! Copies inside a buffer whose source may overlap the bytes being written.
//!
//! A match `offset` bytes back that is longer than `offset` repeats its pattern. Copies that are wider than
//! the offset must build the pattern in a register: here by a multiplication, in `x86.rs` by a shuffle.

/// Copies `N` bytes; the ranges may overlap, as all bytes are read before the first is written.
///
/// # Safety
/// `N` bytes must be readable at `from` and writable at `to`.
#[inline(always)]
pub(crate) unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; arrays of bytes have no alignment.
    let bytes = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: the caller's promise: `N` bytes can be written there.
    unsafe { to.cast::<[u8; N]>().write(bytes) };
}

/// Reads two bytes as a number, the lower first.
///
/// # Safety
/// Two bytes must be readable at `from`.
#[inline(always)]
pub(crate) unsafe fn read_u16(from: *const u8) -> usize {
    // SAFETY: the caller's promise; arrays of bytes have no alignment.
    usize::from(u16::from_le_bytes(unsafe { from.cast::<[u8; 2]>().read() }))
}

/// Copies at least `length` bytes in steps of `N`, in order; so `to - from` must be `N` or more if positive.
///
/// # Safety
/// `length + N - 1` bytes must be readable at `from` and writable at `to`.
#[inline(always)]
pub(crate) unsafe fn grow<const N: usize>(from: *const u8, to: *mut u8, length: usize) {
    let mut done = 0;
    loop {
        // SAFETY: `done < length` or zero, so the step ends before `length + N`; `length` is not zero here or
        // one step is written, which the callers have room for.
        unsafe { copy::<N>(from.add(done), to.add(done)) };
        done += N;
        if done >= length {
            break;
        }
    }
}

/// How matches are copied.
pub(crate) trait Match {
    /// The bytes that `short` writes, whatever the length of the match.
    const WIDTH: usize;

    /// Writes `WIDTH` bytes at `to` that repeat the `offset` bytes before it, which begin at `from`.
    ///
    /// # Safety
    /// `1 <= offset`, `from` is `to - offset`, and the bytes from `from` to `to + WIDTH` are of one buffer and can be
    /// written; the CPU has what is used. (What [`FromAnywhere`] allows, too, is said there.)
    unsafe fn short(from: *const u8, to: *mut u8, offset: usize);

    /// How many bytes [`Match::long`] may write beyond the match.
    const LONG_ROOM: usize = FILL_ROOM;

    /// Writes at least `length` bytes as [`Match::short`] does, and fewer than `LONG_ROOM` more.
    ///
    /// # Safety
    /// `1 <= offset`, `from` is `to - offset`, and the bytes from `from` to `to + length + LONG_ROOM` are of one buffer
    /// and can be written; the CPU has what is used.
    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, offset: usize, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { fill(from, to, offset, length) };
    }
}

/// Matches whose bytes are all read before the first is written.
///
/// # Safety
/// With an `offset` of `WIDTH` or more, [`Match::short`] reads the `WIDTH` bytes at `from`, wherever they
/// are, and nothing else: a caller may let it copy from another buffer.
pub(crate) unsafe trait FromAnywhere: Match {}

/// Copies of 8 bytes; shorter patterns are repeated by a multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes8;

#[derive(Clone, Copy)]
struct Pattern8 {
    /// Keeps one period of the pattern.
    mask: u64,
    /// Multiplying by it repeats the period.
    factor: u64,
    /// The smallest distance of 8 or more that is a multiple of the period.
    distance: usize,
}

/// Indexed by the offset, or 8 if it is more.
static PATTERNS8: [Pattern8; 9] = {
    let mut patterns = [Pattern8 { mask: 0, factor: 0, distance: 8 }; 9];
    let mut offset = 1;
    while offset <= 8 {
        let bits = 8 * offset;
        let mut factor = 0;
        let mut shift = 0;
        while shift < 64 {
            factor |= 1 << shift;
            shift += bits;
        }
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        patterns[offset] = Pattern8 { mask, factor, distance: 8_usize.div_ceil(offset) * offset };
        offset += 1;
    }
    patterns
};

impl Match for Bytes8 {
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn short(from: *const u8, to: *mut u8, offset: usize) {
        // SAFETY: the caller's promise.
        let distance = unsafe { first8(from, to, offset) };
        // SAFETY: the distance is the offset, or up to 14 where a whole number of periods was just written.
        unsafe { copy::<8>(to.add(8).sub(distance), to.add(8)) };
    }
}

/// Writes the first 8 bytes of a match; returns how far before the next 8 they can be copied from.
///
/// # Safety
/// As [`Match::short`].
#[inline(always)]
unsafe fn first8(from: *const u8, to: *mut u8, offset: usize) -> usize {
    let pattern = &PATTERNS8[offset.min(8)];
    // SAFETY: the bytes from `to - offset` to `to + 8` are of one buffer.
    let found = u64::from_le_bytes(unsafe { from.cast::<[u8; 8]>().read() });
    let bytes = (found & pattern.mask).wrapping_mul(pattern.factor).to_le_bytes();
    // SAFETY: the bytes from `to` to `to + 8` can be written.
    unsafe { to.cast::<[u8; 8]>().write(bytes) };
    offset.max(pattern.distance)
}

/// How many bytes [`fill`] may write beyond the requested length.
pub(crate) const FILL_ROOM: usize = 32;

/// Writes at least `length` bytes at `to` that repeat the `offset` bytes before it, which begin at `from`,
/// and fewer than [`FILL_ROOM`] more.
///
/// # Safety
/// `1 <= offset`; the bytes from `from` to `to + length + FILL_ROOM` are of one buffer.
#[inline(always)]
pub(crate) unsafe fn fill(from: *const u8, to: *mut u8, offset: usize, length: usize) {
    if offset >= 32 {
        // SAFETY: the caller's promise; each step reads what is an offset behind, no less than a step.
        unsafe { grow::<32>(from, to, length) };
    } else if offset >= 16 {
        // SAFETY: the caller's promise; the offset is 16 or more, so each step reads what was there before
        // it.
        unsafe { grow::<16>(from, to, length) };
    } else if 8 % offset == 0 {
        // SAFETY: the caller's promise.
        unsafe { first8(from, to, offset) };
        // SAFETY: just written.
        let word = unsafe { to.cast::<[u8; 8]>().read() };
        let mut done = 8;
        while done < length {
            // SAFETY: `done < length`, so these 16 bytes end before the room does.
            unsafe { to.add(done).cast::<[[u8; 8]; 2]>().write([word; 2]) };
            done += 16;
        }
    } else {
        const FIRST: usize = 32;
        // SAFETY: the caller's promise.
        let distance = unsafe { first8(from, to, offset) };
        // SAFETY: `distance` is 8 or more, and the bytes there hold whole periods.
        unsafe { grow::<8>(to.add(8).sub(distance), to.add(8), length.clamp(9, FIRST) - 8) };
        if length > FIRST {
            // The source is at a distance of whole periods, 22 bytes or more.
            let distance = FIRST / offset * offset;
            // SAFETY: `FIRST` bytes are written, and each step reads no fewer than 16 bytes behind what it
            // writes.
            unsafe { grow::<16>(to.add(FIRST).sub(distance), to.add(FIRST), length - FIRST) };
        }
    }
}
