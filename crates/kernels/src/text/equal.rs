//! Equality of text with a constant: of whole rows, their beginnings or their ends.
//!
//! Lengths exclude most rows. The others are compared in two overlapping words, so that constants of up to 32
//! bytes need no function call and no bytes behind a row are read (`equal_x86.rs` has the loop that separates
//! the two steps, which makes it fast).

use super::columns::{Offset, Strings, Text};
#[cfg(target_arch = "x86_64")]
use super::equal_x86 as x86;
use super::rows::{collect_words, gather_word, retain};
use crate::BitBuffer;

/// Where in a row the constant must be.
pub(super) type Place = u8;
/// The row equals the constant.
pub(super) const WHOLE: Place = 0;
/// The row begins with the constant.
pub(super) const START: Place = 1;
/// The row ends with the constant.
pub(super) const END: Place = 2;

kernel! {
    /// Selects the rows that equal the constant, byte for byte.
    pub fn equal_constant[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        place_plain::<O, WHOLE>, avx512 = x86::place::<O, WHOLE>;
}

kernel! {
    /// Selects the rows that begin with the constant.
    pub fn starts_with[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        place_plain::<O, START>, avx512 = x86::place::<O, START>;
}

kernel! {
    /// Selects the rows that end with the constant.
    pub fn ends_with[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        place_plain::<O, END>, avx512 = x86::place::<O, END>;
}

/// Compares as many bytes of a row as the constant has. A trait instead of a closure, so that loops inline
/// it.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only the vector loop works in two steps")
)]
pub(super) trait SameBytes: Copy {
    /// Whether there is nothing to compare.
    const IS_EMPTY: bool = false;

    /// # Safety
    /// The row must have as many bytes as the constant.
    unsafe fn is_at(self, row: *const u8) -> bool;

    /// Whether the first bytes are equal, which takes half the time and excludes most rows.
    ///
    /// # Safety
    /// As for [`SameBytes::is_at`].
    unsafe fn may_be_at(self, row: *const u8) -> bool;
}

/// The empty constant.
#[derive(Clone, Copy)]
pub(super) struct Nothing;

impl SameBytes for Nothing {
    const IS_EMPTY: bool = true;

    #[inline(always)]
    unsafe fn is_at(self, _row: *const u8) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn may_be_at(self, _row: *const u8) -> bool {
        true
    }
}

/// Two loads of a word that together cover a text of one to two words.
#[derive(Clone, Copy)]
pub(super) struct TwoWords<W> {
    low: W,
    high: W,
    high_at: usize,
}

macro_rules! two_words {
    ($($word:ty)*) => { $(
        impl TwoWords<$word> {
            pub(super) fn new(constant: &[u8]) -> Self {
                let load = |chunk: Option<&_>| chunk.map_or(0, |chunk| <$word>::from_le_bytes(*chunk));
                let high_at = constant.len() - size_of::<$word>();
                Self { low: load(constant.first_chunk()), high: load(constant.last_chunk()), high_at }
            }
        }

        impl SameBytes for TwoWords<$word> {
            #[inline(always)]
            unsafe fn is_at(self, row: *const u8) -> bool {
                // SAFETY: the row has at least a word.
                let low = <$word>::from_le(unsafe { row.cast::<$word>().read_unaligned() });
                // SAFETY: the word ends where the constant's length ends.
                let high = <$word>::from_le(unsafe { row.add(self.high_at).cast::<$word>().read_unaligned() });
                (low ^ self.low) | (high ^ self.high) == 0
            }

            #[inline(always)]
            unsafe fn may_be_at(self, row: *const u8) -> bool {
                // SAFETY: the row has at least a word.
                <$word>::from_le(unsafe { row.cast::<$word>().read_unaligned() }) == self.low
            }
        }
    )* };
}

two_words!(u8 u16 u32 u64 u128);

impl SameBytes for &[u8] {
    #[inline(always)]
    unsafe fn is_at(self, row: *const u8) -> bool {
        // SAFETY: the row has as many bytes as the constant, as the caller promises.
        let row = unsafe { std::slice::from_raw_parts(row, self.len()) };
        row == self
    }

    #[inline(always)]
    unsafe fn may_be_at(self, row: *const u8) -> bool {
        // SAFETY: the row has as many bytes as the constant, as the caller promises.
        let row = unsafe { std::slice::from_raw_parts(row, self.len()) };
        row.first_chunk::<8>() == self.first_chunk::<8>()
    }
}

/// Evaluates `$run` with `$same` as the form of the constant that compares fastest.
macro_rules! with_same_bytes {
    ($constant:ident, $same:ident => $run:expr) => {{
        use $crate::text::equal::{Nothing, TwoWords};
        macro_rules! run_with {
            ($form:expr) => {{
                let $same = $form;
                $run
            }};
        }
        match $constant.len() {
            0 => run_with!(Nothing),
            1 => run_with!(TwoWords::<u8>::new($constant)),
            2..4 => run_with!(TwoWords::<u16>::new($constant)),
            4..8 => run_with!(TwoWords::<u32>::new($constant)),
            8..=16 => run_with!(TwoWords::<u64>::new($constant)),
            17..=32 => run_with!(TwoWords::<u128>::new($constant)),
            33.. => run_with!($constant),
        }
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use with_same_bytes;

#[inline(always)]
fn place_plain<O: Offset, const PLACE: Place>(column: Strings<'_, O>, constant: &[u8]) -> BitBuffer {
    let (offsets, len) = (column.offsets(), constant.len());
    with_same_bytes!(constant, same => {
        collect_words(column.row_count(), |first, count| {
            let candidates = gather_word(first, count, |row| has_length::<O, PLACE>(offsets, row, len));
            retain(first, candidates, |row| {
                // SAFETY: the row is at least as long as the constant.
                unsafe { same.is_at(column.bytes().as_ptr().add(start_of::<O, PLACE>(offsets, row, len))) }
            })
        })
    })
}

/// Whether a row has the length `len`, or, unless the whole row is compared, at least that.
#[inline(always)]
pub(super) fn has_length<O: Offset, const PLACE: Place>(offsets: &[O], row: usize, len: usize) -> bool {
    let row_len = offsets[row + 1].index() - offsets[row].index();
    if PLACE == WHOLE { row_len == len } else { row_len >= len }
}

/// Where the constant must begin in a row that is long enough.
#[inline(always)]
pub(super) fn start_of<O: Offset, const PLACE: Place>(offsets: &[O], row: usize, len: usize) -> usize {
    if PLACE == END { offsets[row + 1].index() - len } else { offsets[row].index() }
}
