//! How loops over a column see its rows: 64 at a time, with those that do not count replaced.
//!
//! [`for_each_chunk`] gives whole chunks where they lie. Where a mask has holes, or at the end, it gives a
//! copy in which the other rows hold a neutral value, so that a loop needs no notion of nulls. The copy
//! stays in the first cache and costs less than masked arithmetic: a load under a mask streams from memory
//! at half speed (8 against 33 GB/s for the float sum), which is why [`Keep`] loads whole vectors first.

use crate::region::prefetch_ptr;
use crate::{Bits, Selection};

/// Rows in a chunk: the bits of a word.
pub(crate) const CHUNK: usize = 64;

/// Memory is asked for so far ahead of where it is read. CPUs do that by themselves, but not across pages: a sum of 64
/// bits over a mapped file takes as long as reading it, and 1.2 times that without.
const AHEAD_BYTES: usize = 2048;
const LINE_BYTES: usize = 64;

/// Rows that are gathered by number before a loop sees them.
const GATHERED: usize = 16 * CHUNK;

/// Which rows count, by bitmap.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// Every row.
    All,
    /// Rows whose bit is set.
    One(Bits<'a>),
    /// Rows whose bits are both set.
    Both(Bits<'a>, Bits<'a>),
}

impl Mask<'_> {
    /// The bits of some rows.
    pub(crate) fn slice(&self, start: usize, len: usize) -> Self {
        match self {
            Self::All => Self::All,
            Self::One(bits) => Self::One(bits.slice(start, len)),
            Self::Both(left, right) => Self::Both(left.slice(start, len), right.slice(start, len)),
        }
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        match self {
            Self::All => u64::MAX,
            Self::One(bits) => bits.word(index),
            Self::Both(left, right) => left.word(index) & right.word(index),
        }
    }
}

/// Copies a chunk with `fill` where the word has no bit.
pub(crate) trait Keep<T>: Fn(&[T; CHUNK], u64, T) -> [T; CHUNK] {}
impl<T, F: Fn(&[T; CHUNK], u64, T) -> [T; CHUNK]> Keep<T> for F {}

#[inline(always)]
pub(crate) fn keep_plain<T: Copy>(chunk: &[T; CHUNK], word: u64, fill: T) -> [T; CHUNK] {
    let mut kept = [fill; CHUNK];
    for (bit, (kept, value)) in kept.iter_mut().zip(chunk).enumerate() {
        *kept = if word & (1 << bit) != 0 { *value } else { fill };
    }
    kept
}

/// Calls `work` with all rows, `fill` in place of those that do not count.
#[inline(always)]
pub(crate) fn for_each_chunk<T: Copy>(
    values: &[T],
    mask: Mask<'_>,
    fill: T,
    keep: impl Keep<T>,
    mut work: impl FnMut(&[T; CHUNK]),
) {
    let (chunks, tail) = values.as_chunks::<CHUNK>();
    match mask {
        Mask::All => {
            for chunk in chunks {
                let lines = (0..size_of_val(chunk)).step_by(LINE_BYTES);
                lines.for_each(|line| prefetch_ptr(chunk.as_ptr().wrapping_byte_add(line + AHEAD_BYTES)));
                work(chunk);
            }
        }
        mask => {
            for (index, chunk) in chunks.iter().enumerate() {
                work(&keep(chunk, mask.word(index), fill));
            }
        }
    }
    if !tail.is_empty() {
        let mut chunk = [fill; CHUNK];
        chunk[..tail.len()].copy_from_slice(tail);
        work(&keep_plain(&chunk, mask.word(chunks.len()), fill));
    }
}

/// Asserts what all kernels ask of their bitmaps; row numbers are checked as they are used.
pub(crate) fn check(row_count: usize, validity: Option<Bits<'_>>, selection: Selection<'_>) {
    if let Some(validity) = validity {
        assert_eq!(validity.len(), row_count, "a bit of validity for each row");
    }
    match selection {
        Selection::All => {}
        Selection::Bits(bits) => assert_eq!(bits.len(), row_count, "a bit of the selection for each row"),
        Selection::Rows(rows) => {
            assert!(rows.iter().all(|row| (*row as usize) < row_count), "row numbers are below {row_count}");
        }
    }
}

/// Calls `work` with pieces of the column and their masks; rows selected by number are gathered first.
pub(crate) fn for_each_piece<T: Copy + Default>(
    values: &[T],
    validity: Option<Bits<'_>>,
    selection: Selection<'_>,
    mut work: impl FnMut(&[T], Mask<'_>),
) {
    check(values.len(), validity, selection);
    match (validity, selection) {
        (None, Selection::All) => work(values, Mask::All),
        (Some(bits), Selection::All) | (None, Selection::Bits(bits)) => work(values, Mask::One(bits)),
        (Some(validity), Selection::Bits(selected)) => work(values, Mask::Both(validity, selected)),
        (validity, Selection::Rows(rows)) => {
            let mut gathered = [T::default(); GATHERED];
            for rows in rows.chunks(GATHERED) {
                let mut count = 0;
                for row in rows {
                    let row = *row as usize;
                    gathered[count] = values[row];
                    count += usize::from(validity.is_none_or(|bits| bits.get(row)));
                }
                work(&gathered[..count], Mask::All);
            }
        }
    }
}
