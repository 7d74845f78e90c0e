//! Makes views of rows that are contiguous in one buffer.
//!
//! No branch depends on whether a text is short: tables by its length give masks for the loaded bytes that
//! are its own, and for whether its position belongs in the view.

use super::columns::{INLINE_MAX, Offset, Strings, Text};

/// Masks of the parts of a view, by the length of the row; the last entry is for all long rows.
struct Masks {
    /// For the first four bytes.
    low: [u64; INLINE_MAX + 2],
    /// For the next eight bytes.
    high: [u64; INLINE_MAX + 2],
    /// For the position.
    place: [u64; INLINE_MAX + 2],
}

const MASKS: Masks = {
    let mut masks = Masks { low: [0; INLINE_MAX + 2], high: [0; INLINE_MAX + 2], place: [0; INLINE_MAX + 2] };
    let mut length = 1;
    while length <= INLINE_MAX {
        masks.low[length] = u64::MAX >> (8 * (8 - if length < 4 { length + 4 } else { 8 })) & u64::MAX << 32;
        masks.high[length] = if length > 4 { u64::MAX >> (8 * (INLINE_MAX - length)) } else { 0 };
        length += 1;
    }
    masks.low[length] = u64::MAX << 32;
    masks.place[length] = u64::MAX;
    masks
};

kernel! {
    /// A view of each row; the text of long rows is in buffer 0, which must be the rows' buffer.
    pub(crate) fn views_of(column: Strings<'_, i32>) -> Vec<u128> = views_of_plain;
}

#[inline(always)]
fn views_of_plain(column: Strings<'_, i32>) -> Vec<u128> {
    let (offsets, bytes) = (column.offsets(), column.bytes());
    let view = |start: usize, end: usize, twelve: &[u8; INLINE_MAX]| {
        let len = end - start;
        let index = len.min(INLINE_MAX + 1);
        let [first, second, third] = *twelve.as_chunks().0 else {
            unreachable!("twelve are three times four")
        };
        let word = |bytes| u64::from(u32::from_le_bytes(bytes));
        let low = len as u64 | word(first) << 32 & MASKS.low[index];
        let high = (word(second) | word(third) << 32) & MASKS.high[index];
        u128::from(low) | u128::from(high | (start as u64) << 32 & MASKS.place[index]) << 64
    };
    // The rows from whose start the buffer has enough bytes, and the others.
    let whole = offsets.partition_point(|start| start.index() + INLINE_MAX <= bytes.len());
    let whole = whole.min(column.row_count());
    let mut views = Vec::with_capacity(column.row_count());
    views.extend(offsets.windows(2).take(whole).map(|ends| {
        let (start, end) = (ends[0].index(), ends[1].index());
        // SAFETY: the offsets ascend, and behind the last of these starts are so many bytes.
        view(start, end, unsafe { &*bytes.as_ptr().add(start).cast() })
    }));
    views.extend(offsets.windows(2).skip(whole).map(|ends| {
        let (start, end) = (ends[0].index(), ends[1].index());
        let mut twelve = [0; INLINE_MAX];
        let rest = &bytes[start..];
        twelve[..rest.len()].copy_from_slice(rest);
        view(start, end, &twelve)
    }));
    views
}
