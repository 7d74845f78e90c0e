//! Strings compacted and gathered, in Arrow's form: offsets into bytes.
//!
//! Most strings are short, and calling `memcpy` for each costs more than the copy. Where 32 bytes can be
//! read, 32 are copied, and the next string overwrites the excess. Where most rows are kept, runs of strings
//! are copied whole.

use std::ops::Range;

use crate::Bits;
use crate::sealed::Sealed;

/// An offset into the bytes of strings: `i32` or `i64`.
pub trait Offset: Copy + Default + Ord + Sealed + 'static {
    /// The number, or `None` if it is negative.
    fn to_usize(self) -> Option<usize>;

    /// The number as an offset, or `None` if it is too large.
    fn from_usize(value: usize) -> Option<Self>;

    /// `self` shifted by the distance from `from` to `to`.
    #[must_use]
    fn moved(self, from: Self, to: Self) -> Self;
}

macro_rules! offsets {
    ($($T:ident)*) => {$(
        impl Offset for $T {
            #[inline(always)]
            fn to_usize(self) -> Option<usize> {
                usize::try_from(self).ok()
            }

            #[inline(always)]
            fn from_usize(value: usize) -> Option<Self> {
                Self::try_from(value).ok()
            }

            #[inline(always)]
            fn moved(self, from: Self, to: Self) -> Self {
                self.wrapping_sub(from).wrapping_add(to)
            }
        }
    )*};
}

offsets!(i32 i64);

/// Borrowed strings: `offsets` has the beginning of the first string in `bytes` and the end of each.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a, O> {
    offsets: &'a [O],
    bytes: &'a [u8],
}

impl<'a, O: Offset> Strings<'a, O> {
    /// One string fewer than there are offsets. Offsets are checked when they are used.
    ///
    /// # Panics
    /// When there is no offset.
    #[must_use]
    pub fn new(offsets: &'a [O], bytes: &'a [u8]) -> Self {
        assert!(!offsets.is_empty(), "strings have an offset more than there are");
        Self { offsets, bytes }
    }

    /// Count of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The byte range of the string of a row.
    #[inline(always)]
    fn range(&self, row: usize) -> Range<usize> {
        let range = self.offsets[row].to_usize().zip(self.offsets[row + 1].to_usize());
        match range {
            Some((start, end)) if start <= end && end <= self.bytes.len() => start..end,
            _ => bad_offsets(row),
        }
    }
}

#[cold]
#[inline(never)]
fn bad_offsets(row: usize) -> ! {
    panic!("the offsets of string {row} do not ascend or leave the bytes");
}

kernel! {
    /// The strings whose bit is set: their offsets, beginning at zero, and their bytes.
    ///
    /// # Panics
    /// When there are not as many bits as strings, when the offsets of a kept string do not ascend or leave
    /// the bytes, or when the kept strings are too long for the offsets.
    pub fn compact_strings[O: Offset][O](strings: Strings<'_, O>, kept: Bits<'_>) -> (Vec<O>, Vec<u8>)
        = compact_strings_plain;
}

#[inline(always)]
fn compact_strings_plain<O: Offset>(strings: Strings<'_, O>, kept: Bits<'_>) -> (Vec<O>, Vec<u8>) {
    assert_eq!(strings.len(), kept.len(), "a selection of as many rows");
    let mut count = 0;
    kept.for_each_word(|_, word| count += word.count_ones() as usize);
    // If three rows in four are kept, a run has about four of them.
    if count >= strings.len() / 4 * 3 {
        return copy_runs(strings, kept, count);
    }
    let mut rows = Vec::with_capacity(count);
    rows.extend(kept.ones());
    copy_rows(strings, rows.iter().copied())
}

kernel! {
    /// The strings of rows: their offsets, beginning at zero, and their bytes.
    ///
    /// # Panics
    /// When a row is not below the count of strings, when the offsets of a string do not ascend or leave the
    /// bytes, or when the strings are too long for the offsets.
    pub fn gather_strings[O: Offset][O](strings: Strings<'_, O>, rows: &[u32]) -> (Vec<O>, Vec<u8>)
        = gather_strings_plain;
}

#[inline(always)]
fn gather_strings_plain<O: Offset>(strings: Strings<'_, O>, rows: &[u32]) -> (Vec<O>, Vec<u8>) {
    copy_rows(strings, rows.iter().map(|row| *row as usize))
}

/// Two passes over the rows: first the lengths, which are checked, then the bytes.
#[inline(always)]
fn copy_rows<O: Offset>(
    strings: Strings<'_, O>,
    rows: impl ExactSizeIterator<Item = usize> + Clone,
) -> (Vec<O>, Vec<u8>) {
    /// The size of the fixed copy of a short string; enough for most words and few URLs.
    const SHORT: usize = 32;
    let mut offsets = Vec::with_capacity(rows.len() + 1);
    offsets.push(O::default());
    let mut total = 0;
    offsets.extend(rows.clone().map(|row| {
        total += strings.range(row).len();
        O::from_usize(total).expect("strings that fit their offsets")
    }));
    let mut bytes: Vec<u8> = Vec::with_capacity(total + SHORT);
    let mut len = 0;
    for row in rows {
        let range = strings.range(row);
        let short = strings.bytes.get(range.start..).and_then(<[u8]>::first_chunk::<SHORT>);
        // SAFETY: `len` is at most the sum of the lengths, `total`, and `SHORT` more bytes were reserved.
        let at = unsafe { bytes.as_mut_ptr().add(len) };
        match short {
            Some(short) if range.len() <= SHORT => {
                // SAFETY: there is room for `SHORT` bytes at `at`.
                unsafe { at.copy_from_nonoverlapping(short.as_ptr(), SHORT) };
            }
            _ => {
                // SAFETY: this string is part of `total`.
                unsafe { at.copy_from_nonoverlapping(strings.bytes[range.clone()].as_ptr(), range.len()) };
            }
        }
        len += range.len();
    }
    // SAFETY: the strings wrote these bytes one after the other.
    unsafe { bytes.set_len(len) };
    (offsets, bytes)
}

/// The bytes of a run of strings are contiguous, and its offsets all change by one number.
#[inline(always)]
fn copy_runs<O: Offset>(strings: Strings<'_, O>, kept: Bits<'_>, count: usize) -> (Vec<O>, Vec<u8>) {
    let mut offsets = Vec::with_capacity(count + 1);
    offsets.push(O::default());
    let mut bytes = Vec::new();
    for run in kept.runs() {
        let ends = &strings.offsets[run.start..=run.end];
        if !ends.is_sorted() {
            bad_offsets(run.start);
        }
        let range = strings.range(run.start).start..strings.range(run.end - 1).end;
        let moved = O::from_usize(bytes.len()).expect("strings that fit their offsets");
        bytes.extend_from_slice(&strings.bytes[range]);
        O::from_usize(bytes.len()).expect("strings that fit their offsets");
        offsets.extend(ends[1..].iter().map(|end| end.moved(ends[0], moved)));
    }
    (offsets, bytes)
}
