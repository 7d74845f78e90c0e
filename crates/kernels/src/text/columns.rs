//! Columns of text as Arrow lays them out: offsets into one buffer, or 16-byte views.
//!
//! Both are validated once when they are made, and borrow the validated bytes, so loops may read a row
//! without bounds checks. Bytes need not be UTF-8. The caller handles NULLs by combining bitmaps; the bytes
//! of a NULL row may be anything, but they must be in bounds.

use std::fmt;

use crate::Level;

/// Why offsets or views are not a valid column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// There are no offsets at all.
    NoOffsets,
    /// An offset is below zero, below the one before it or behind the end of the bytes.
    Offsets,
    /// Text is not UTF-8.
    Utf8,
    /// A view has a length below zero, names a buffer or bytes that are not there, has another prefix than
    /// its bytes, or has anything but zeros behind a short text.
    View {
        /// The row.
        row: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOffsets => f.write_str("a column of text has at least one offset"),
            Self::Offsets => f.write_str("offsets of text do not ascend within its bytes"),
            Self::Utf8 => f.write_str("text is not UTF-8"),
            Self::View { row } => write!(f, "the view of row {row} does not fit its bytes"),
        }
    }
}

impl std::error::Error for LayoutError {}

mod sealed {
    /// Loops trust the order and the value of offsets, so no other crate may implement the trait.
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// The types of offsets: `i32` and `i64`.
pub trait Offset: Copy + Ord + Default + fmt::Debug + sealed::Sealed + 'static {
    /// The offset as an index; only for validated offsets.
    fn index(self) -> usize;

    /// The offset for an index, if the type has it.
    fn from_index(index: usize) -> Option<Self>;
}

impl Offset for i32 {
    #[inline(always)]
    fn index(self) -> usize {
        self as u32 as usize
    }

    #[inline(always)]
    fn from_index(index: usize) -> Option<Self> {
        index.try_into().ok()
    }
}

impl Offset for i64 {
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a checked offset lies within a slice")]
    fn index(self) -> usize {
        self as usize
    }

    #[inline(always)]
    fn from_index(index: usize) -> Option<Self> {
        index.try_into().ok()
    }
}

/// The access to a column of text that loops over rows need.
pub trait Text: Copy + sealed::Sealed {
    /// The type for the length of a row.
    type Length: Offset;

    /// Count of rows.
    fn row_count(&self) -> usize;

    /// The bytes of a row.
    ///
    /// # Panics
    /// When there is no such row.
    fn row(&self, row: usize) -> &[u8];

    /// The length of a row in bytes.
    ///
    /// # Panics
    /// When there is no such row.
    fn row_len(&self, row: usize) -> usize;

    /// The first eight bytes of a row as a number that orders as they do, with `fill` behind a shorter text.
    ///
    /// # Panics
    /// When there is no such row.
    fn prefix(&self, row: usize, fill: u8) -> u64;

    /// The bits of a prefix that are available for every row at little cost; [`Text::prefixes`] leaves zeros
    /// for the others.
    const PREFIX_AT_HAND: u64;

    /// Writes the prefixes of rows from `first` on, one for each element of `prefixes`, with only the bits of
    /// [`Text::PREFIX_AT_HAND`].
    ///
    /// # Panics
    /// When there are fewer rows.
    fn prefixes(&self, first: usize, fill: u8, prefixes: &mut [u64]);

    /// The column as offsets into one buffer, if it has this layout.
    fn as_strings(&self) -> Option<Strings<'_, Self::Length>>;
}

/// Text in one buffer: row `i` has the bytes from offset `i` to offset `i + 1`.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a, O> {
    offsets: &'a [O],
    bytes: &'a [u8],
}

impl<'a, O: Offset> Strings<'a, O> {
    /// A column with one row fewer than there are offsets; the first offset need not be zero.
    ///
    /// # Errors
    /// When there is no offset, or they do not ascend within the bytes.
    pub fn new(level: Level, offsets: &'a [O], bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
            return Err(LayoutError::NoOffsets);
        };
        // An end that does not fit the offset type is greater than every offset.
        let is_inside = *first >= O::default() && O::from_index(bytes.len()).is_none_or(|end| *last <= end);
        if is_inside && ascends(level, offsets) {
            Ok(Self { offsets, bytes })
        } else {
            Err(LayoutError::Offsets)
        }
    }

    /// The offsets, one more than rows.
    #[must_use]
    #[inline(always)]
    pub fn offsets(&self) -> &'a [O] {
        self.offsets
    }

    /// The buffer; it may have bytes that belong to no row.
    #[must_use]
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The start of the first row, and the bytes of all rows.
    #[must_use]
    #[inline(always)]
    pub(super) fn filled(&self) -> (usize, &'a [u8]) {
        let (start, end) = (self.offsets[0].index(), self.offsets[self.offsets.len() - 1].index());
        (start, &self.bytes[start..end])
    }
}

kernel! {
    fn ascends[O: Offset][O](offsets: &[O]) -> bool = ascends_plain;
}

#[inline(always)]
fn ascends_plain<O: Offset>(offsets: &[O]) -> bool {
    let followers = offsets.get(1..).unwrap_or_default();
    // Without an early exit the compiler vectorises it.
    offsets.iter().zip(followers).fold(0_u32, |falls, (this, next)| falls | u32::from(next < this)) == 0
}

impl<O: Offset> sealed::Sealed for Strings<'_, O> {}

impl<O: Offset> Text for Strings<'_, O> {
    type Length = O;

    const PREFIX_AT_HAND: u64 = u64::MAX;

    #[inline(always)]
    fn row_count(&self) -> usize {
        self.offsets.len() - 1
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &[u8] {
        let (start, end) = (self.offsets[row].index(), self.offsets[row + 1].index());
        // SAFETY: `new` saw that offsets ascend within the bytes.
        unsafe { self.bytes.get_unchecked(start..end) }
    }

    #[inline(always)]
    fn row_len(&self, row: usize) -> usize {
        self.offsets[row + 1].index() - self.offsets[row].index()
    }

    #[inline(always)]
    fn prefix(&self, row: usize, fill: u8) -> u64 {
        let (start, end) = (self.offsets[row].index(), self.offsets[row + 1].index());
        // May read bytes of the next row, which are cut off; only at the end of the buffer there are none to
        // read.
        match self.bytes.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(chunk) => cut(u64::from_be_bytes(*chunk), end - start, fill),
            None => prefix_of(&self.bytes[start..end], fill),
        }
    }

    #[inline(always)]
    fn prefixes(&self, first: usize, fill: u8, prefixes: &mut [u64]) {
        let offsets = &self.offsets[first..=first + prefixes.len()];
        let last_start = offsets[offsets.len().saturating_sub(2)].index();
        if last_start + 8 > self.bytes.len() {
            prefixes
                .iter_mut()
                .enumerate()
                .for_each(|(index, prefix)| *prefix = self.prefix(first + index, fill));
            return;
        }
        for (prefix, ends) in prefixes.iter_mut().zip(offsets.windows(2)) {
            let (start, end) = (ends[0].index(), ends[1].index());
            // SAFETY: offsets ascend, and behind the last of these starts are eight bytes.
            let word = unsafe { self.bytes.as_ptr().add(start).cast::<u64>().read_unaligned() };
            *prefix = cut(u64::from_be(word), end - start, fill);
        }
    }

    #[inline(always)]
    fn as_strings(&self) -> Option<Strings<'_, O>> {
        Some(*self)
    }
}

/// The longest text inside a view.
pub(super) const INLINE_MAX: usize = 12;
/// Text in 16-byte views: length, then up to twelve bytes of text, or four bytes of it, a buffer and an
/// offset.
#[derive(Clone, Copy, Debug)]
pub struct Views<'a> {
    views: &'a [u128],
    buffers: &'a [&'a [u8]],
}

impl<'a> Views<'a> {
    /// A column with one row for each view.
    ///
    /// # Errors
    /// When a view does not fit its bytes.
    pub fn new(views: &'a [u128], buffers: &'a [&'a [u8]]) -> Result<Self, LayoutError> {
        let column = Self { views, buffers };
        match (0..views.len()).find(|row| column.checked_row(*row).is_none()) {
            None => Ok(column),
            Some(row) => Err(LayoutError::View { row }),
        }
    }

    /// The views.
    #[must_use]
    #[inline(always)]
    pub fn views(&self) -> &'a [u128] {
        self.views
    }

    /// The buffers of the long texts.
    #[must_use]
    #[inline(always)]
    pub fn buffers(&self) -> &'a [&'a [u8]] {
        self.buffers
    }

    /// `Some` if the view of this row is valid.
    #[inline(always)]
    fn checked_row(&self, row: usize) -> Option<()> {
        let view = self.views[row];
        let len = view_len(view);
        if len <= INLINE_MAX {
            return (len == INLINE_MAX || view >> (32 + 8 * len) == 0).then_some(());
        }
        let (buffer, start) = view_place(view);
        let end = start.checked_add(len).filter(|_| i32::try_from(len).is_ok())?;
        let text = self.buffers.get(buffer)?.get(start..end)?;
        (text[..4] == view_bytes(&view)[4..8]).then_some(())
    }
}

/// The length in a view.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low four bytes are the length")]
pub(super) fn view_len(view: u128) -> usize {
    view as u32 as usize
}

/// The buffer and the offset in the view of a long text.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the high four bytes are the offset, the four before the buffer"
)]
pub(super) fn view_place(view: u128) -> (usize, usize) {
    ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize)
}

/// The bytes of a view in memory order.
#[inline(always)]
fn view_bytes(view: &u128) -> &[u8; 16] {
    const { assert!(cfg!(target_endian = "little"), "views are little endian, as Arrow has them") };
    // SAFETY: any 16 initialised bytes are such an array, which has no alignment.
    unsafe { &*std::ptr::from_ref(view).cast() }
}

impl sealed::Sealed for Views<'_> {}

impl Text for Views<'_> {
    type Length = i32;

    const PREFIX_AT_HAND: u64 = 0xFFFF_FFFF << 32;

    #[inline(always)]
    fn row_count(&self) -> usize {
        self.views.len()
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &[u8] {
        let view = &self.views[row];
        let len = view_len(*view);
        if len <= INLINE_MAX {
            return &view_bytes(view)[4..4 + len];
        }
        let (buffer, start) = view_place(*view);
        // SAFETY: `new` saw that the buffer is there.
        let buffer = unsafe { self.buffers.get_unchecked(buffer) };
        // SAFETY: `new` saw that the text is inside the buffer.
        unsafe { buffer.get_unchecked(start..start + len) }
    }

    #[inline(always)]
    fn row_len(&self, row: usize) -> usize {
        view_len(self.views[row])
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "eight of the sixteen bytes")]
    fn prefix(&self, row: usize, fill: u8) -> u64 {
        let view = self.views[row];
        let len = view_len(view);
        if len <= INLINE_MAX {
            return cut(((view >> 32) as u64).swap_bytes(), len, fill);
        }
        prefix_of(self.row(row), fill)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "eight of the sixteen bytes")]
    fn prefixes(&self, first: usize, fill: u8, prefixes: &mut [u64]) {
        let views = &self.views[first..first + prefixes.len()];
        for (prefix, view) in prefixes.iter_mut().zip(views) {
            // The length and the first four bytes of text are at the same place in long and in short views.
            let head = *view as u64;
            *prefix = cut(head.swap_bytes() << 32, head as u32 as usize, fill) & Self::PREFIX_AT_HAND;
        }
    }

    #[inline(always)]
    fn as_strings(&self) -> Option<Strings<'_, i32>> {
        None
    }
}

/// A big-endian word with `fill` in place of the bytes from `len` on.
#[inline(always)]
fn cut(word: u64, len: usize, fill: u8) -> u64 {
    let behind = if len >= 8 { 0 } else { u64::MAX >> (8 * len) };
    word & !behind | u64::from_be_bytes([fill; 8]) & behind
}

/// The prefix of a text, see [`Text::prefix`].
#[inline(always)]
pub(super) fn prefix_of(text: &[u8], fill: u8) -> u64 {
    if let Some(chunk) = text.first_chunk() {
        return u64::from_be_bytes(*chunk);
    }
    let mut word = [fill; 8];
    word[..text.len()].copy_from_slice(text);
    u64::from_be_bytes(word)
}
