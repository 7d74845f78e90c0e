//! Equality and order of text: with a constant, column with column, least and greatest row.
//!
//! Most rows are told apart by eight bytes or by their length, so no function is called for them: equality
//! compares 64 lengths with the constant's first (`compare_x86.rs`) and then two overlapping words of the
//! rows of that length; order compares big-endian prefixes and looks at the whole text only when they tie.
//! Equality with a constant takes 0.06 ns a row where lengths tell, 0.12 to 0.18 where a row in seventeen has
//! the constant's length; arrow, which looks at a row at a time, takes 0.4, and 0.5 to 1.5.
//!
//! [`Pad`] says what trailing spaces mean. It costs nothing where a block is known to have none (see
//! [`Facts`](super::Facts)): equality is then the equality of bytes with the trimmed constant.

use std::cmp::Ordering;

use super::columns::{Offset, Strings, Text, Views, prefix_of};
#[cfg(target_arch = "x86_64")]
use super::compare_x86 as x86;
use crate::bits::WORD_BITS;
use crate::{BitBuffer, Selection};

/// What trailing spaces mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pad {
    /// They are bytes like all others.
    None,
    /// They are cut off before bytes are compared (TiDB): `'a' < 'a\t'`.
    Trim,
    /// The shorter text is filled up with spaces (MySQL, standard SQL): `'a\t' < 'a'`.
    Fill,
}

impl Pad {
    /// The cheapest pad that gives the same answers when no text of the operands ends in a space; the
    /// constant is to be trimmed first. `Fill` stays for order, where bytes below a space matter.
    #[must_use]
    pub fn without_trailing_spaces(self) -> Self {
        if self == Self::Trim { Self::None } else { self }
    }

    /// How two texts compare.
    #[must_use]
    #[inline(always)]
    pub fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            Self::None => left.cmp(right),
            Self::Trim => trimmed(left).cmp(trimmed(right)),
            Self::Fill => compare_filled(left, right),
        }
    }

    #[inline(always)]
    fn fill(self) -> u8 {
        if self == Self::Fill { b' ' } else { 0 }
    }
}

/// A text without its trailing spaces.
#[must_use]
#[inline(always)]
pub fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

fn compare_filled(left: &[u8], right: &[u8]) -> Ordering {
    let common = left.len().min(right.len());
    let behind = |text: &[u8]| text[common..].iter().find(|byte| **byte != b' ').map(|byte| byte.cmp(&b' '));
    left[..common].cmp(&right[..common]).then_with(|| {
        let left_behind = behind(left);
        left_behind.or_else(|| behind(right).map(Ordering::reverse)).unwrap_or(Ordering::Equal)
    })
}

/// The comparisons that are not equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Inequality {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Inequality {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// Whether operands that compare like this fulfil it.
    #[must_use]
    #[inline(always)]
    pub fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// A bit a row, 64 rows at a time: `word(first, count)` gives the bits of rows `first .. first + count`.
#[inline(always)]
pub(super) fn collect_words(row_count: usize, mut word: impl FnMut(usize, usize) -> u64) -> BitBuffer {
    let firsts = (0..row_count).step_by(WORD_BITS);
    let words = firsts.map(|first| word(first, (row_count - first).min(WORD_BITS))).collect();
    BitBuffer::from_words(words, row_count)
}

/// The bits that `holds` gives for `count` rows from `first` on.
#[inline(always)]
pub(super) fn gather_word(first: usize, count: usize, mut holds: impl FnMut(usize) -> bool) -> u64 {
    (0..count).fold(0, |word, bit| word | u64::from(holds(first + bit)) << bit)
}

/// Those bits of `word` for which `holds` is true of the row.
#[inline(always)]
pub(super) fn retain(first: usize, mut word: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    if word == u64::MAX {
        return gather_word(first, WORD_BITS, holds);
    }
    let mut kept = 0;
    while word != 0 {
        let bit = word.trailing_zeros();
        kept |= u64::from(holds(first + bit as usize)) << bit;
        word &= word - 1;
    }
    kept
}

/// Where a constant has to be in a row.
pub(super) type Place = u8;
/// The row is the constant.
pub(super) const WHOLE: Place = 0;
/// The row begins with it.
pub(super) const START: Place = 1;
/// The row ends with it.
pub(super) const END: Place = 2;

kernel! {
    /// Rows that are the constant, byte for byte. See [`equal_constant_padded`] for trailing spaces.
    pub fn equal_constant[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        place_plain::<O, WHOLE>, avx512 = x86::place::<O, WHOLE>;
}

kernel! {
    /// Rows that begin with the constant.
    pub fn starts_with[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        place_plain::<O, START>, avx512 = x86::place::<O, START>;
}

kernel! {
    /// Rows that end with the constant.
    pub fn ends_with[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        place_plain::<O, END>, avx512 = x86::place::<O, END>;
}

#[inline(always)]
fn place_plain<O: Offset, const PLACE: Place>(column: Strings<'_, O>, constant: &[u8]) -> BitBuffer {
    place_with::<O, PLACE>(column, constant, length_masks::<O, PLACE>)
}

/// Which rows have that length, or at least that one: 64 rows a word.
#[inline(always)]
pub(super) fn length_masks<O: Offset, const PLACE: Place>(offsets: &[O], len: usize, words: &mut [u64]) {
    for (index, word) in words.iter_mut().enumerate() {
        let first = index * WORD_BITS;
        let count = (offsets.len() - 1 - first).min(WORD_BITS);
        *word = gather_word(first, count, |row| {
            let row_len = offsets[row + 1].index() - offsets[row].index();
            if PLACE == WHOLE { row_len == len } else { row_len >= len }
        });
    }
}

/// Compares as many bytes of a row as the constant has. A trait and no closure: loops must have it inlined.
trait SameBytes: Copy {
    /// # Safety
    /// The row has as many bytes as the constant.
    unsafe fn is_at(self, row: *const u8) -> bool;
}

/// Two loads of a word that together cover a text of at least a word and at most two.
#[derive(Clone, Copy)]
struct TwoWords<W> {
    low: W,
    high: W,
    high_at: usize,
}

macro_rules! two_words {
    ($($word:ty)*) => { $(
        impl TwoWords<$word> {
            fn new(constant: &[u8]) -> Self {
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
        }
    )* };
}

two_words!(u16 u32 u64 u128);

impl SameBytes for &[u8] {
    #[inline(always)]
    unsafe fn is_at(self, row: *const u8) -> bool {
        // SAFETY: the caller's.
        let row = unsafe { std::slice::from_raw_parts(row, self.len()) };
        row.first_chunk::<8>() == self.first_chunk::<8>() && row == self
    }
}

/// The rows where the constant is in its place; `masks` is [`length_masks`].
#[inline(always)]
pub(super) fn place_with<O: Offset, const PLACE: Place>(
    column: Strings<'_, O>,
    constant: &[u8],
    masks: impl Fn(&[O], usize, &mut [u64]),
) -> BitBuffer {
    let len = constant.len();
    match len {
        0 | 1 | 33.. => place_rows::<O, PLACE>(column, len, masks, constant),
        2..4 => place_rows::<O, PLACE>(column, len, masks, TwoWords::<u16>::new(constant)),
        4..8 => place_rows::<O, PLACE>(column, len, masks, TwoWords::<u32>::new(constant)),
        8..=16 => place_rows::<O, PLACE>(column, len, masks, TwoWords::<u64>::new(constant)),
        17..=32 => place_rows::<O, PLACE>(column, len, masks, TwoWords::<u128>::new(constant)),
    }
}

/// Rows whose lengths are compared at once, so that their offsets are still in the first-level cache when the
/// bytes of those that are left are compared.
const BLOCK_WORDS: usize = 32;

#[inline(always)]
fn place_rows<O: Offset, const PLACE: Place>(
    column: Strings<'_, O>,
    len: usize,
    masks: impl Fn(&[O], usize, &mut [u64]),
    constant: impl SameBytes,
) -> BitBuffer {
    let (offsets, bytes, row_count) = (column.offsets(), column.bytes().as_ptr(), column.row_count());
    let mut words = vec![0; row_count.div_ceil(WORD_BITS)];
    for (block, words) in words.chunks_mut(BLOCK_WORDS).enumerate() {
        let first = block * BLOCK_WORDS * WORD_BITS;
        let block_rows = (row_count - first).min(BLOCK_WORDS * WORD_BITS);
        let offsets = &offsets[first..=first + block_rows];
        masks(offsets, len, words);
        for (index, word) in words.iter_mut().enumerate() {
            *word = retain(index * WORD_BITS, *word, |row| {
                let start = if PLACE == END { offsets[row + 1].index() - len } else { offsets[row].index() };
                // SAFETY: the row lies within the bytes and is at least `len` long, so `start + len` does, too,
                // and as many bytes are there.
                unsafe { constant.is_at(bytes.add(start)) }
            });
        }
    }
    BitBuffer::from_words(words, row_count)
}

kernel! {
    /// Rows that are the constant but for trailing spaces: where a block may have some.
    pub fn equal_constant_padded[O: Offset][O](column: Strings<'_, O>, constant: &[u8]) -> BitBuffer =
        equal_padded_plain, avx512 = x86::equal_padded;
}

#[inline(always)]
fn equal_padded_plain<O: Offset>(column: Strings<'_, O>, constant: &[u8]) -> BitBuffer {
    only_spaces_behind(column, place_plain::<O, START>(column, trimmed(constant)), trimmed(constant).len())
}

/// Of the rows that begin with `len` bytes that are right, those with nothing but spaces behind them.
#[inline(always)]
pub(super) fn only_spaces_behind<O: Offset>(
    column: Strings<'_, O>,
    rows: BitBuffer,
    len: usize,
) -> BitBuffer {
    let mut words = rows.into_words();
    for (index, word) in words.iter_mut().enumerate() {
        *word =
            retain(index * WORD_BITS, *word, |row| column.row(row)[len..].iter().all(|byte| *byte == b' '));
    }
    BitBuffer::from_words(words, column.row_count())
}

kernel! {
    /// Rows of views that are the constant, byte for byte.
    pub fn equal_constant_view(column: Views<'_>, constant: &[u8]) -> BitBuffer =
        equal_view_plain, avx512 = x86::equal_view;
}

#[inline(always)]
fn equal_view_plain(column: Views<'_>, constant: &[u8]) -> BitBuffer {
    equal_view_with(column, constant, |views, wanted, mask| {
        gather_word(0, WORD_BITS, |row| (views[row] ^ wanted) & mask == 0)
    })
}

/// `equal` tells which of 64 views have the wanted bits where the mask has ones.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "no view is so long, and then none is equal")]
pub(super) fn equal_view_with(
    column: Views<'_>,
    constant: &[u8],
    equal: impl Fn(&[u128; 64], u128, u128) -> u64,
) -> BitBuffer {
    let (views, is_inline) = (column.views(), constant.len() <= super::columns::INLINE_MAX);
    let mut wanted = [0; 16];
    let head_len = if is_inline { constant.len() } else { 4 };
    wanted[..4].copy_from_slice(&(constant.len() as u32).to_le_bytes());
    wanted[4..4 + head_len].copy_from_slice(&constant[..head_len]);
    let wanted = u128::from_le_bytes(wanted);
    let mask = if is_inline { u128::MAX } else { u128::from(u64::MAX) };
    collect_words(column.row_count(), |first, count| {
        let candidates = match views[first..].first_chunk() {
            Some(chunk) => equal(chunk, wanted, mask),
            None => gather_word(first, count, |row| (views[row] ^ wanted) & mask == 0),
        };
        if is_inline { candidates } else { retain(first, candidates, |row| column.row(row) == constant) }
    })
}

kernel! {
    /// Rows that are equal in both columns.
    ///
    /// # Panics
    /// When the columns differ in length.
    pub fn equal_columns[A: Text, B: Text][A, B](left: A, right: B, pad: Pad) -> BitBuffer = equal_columns_plain;
}

#[inline(always)]
fn equal_columns_plain<A: Text, B: Text>(left: A, right: B, pad: Pad) -> BitBuffer {
    assert_eq!(left.row_count(), right.row_count(), "columns of one batch");
    collect_words(left.row_count(), |first, count| {
        if pad == Pad::None {
            // Most rows differ in length: those are told apart without a branch.
            let candidates = gather_word(first, count, |row| left.row_len(row) == right.row_len(row));
            return retain(first, candidates, |row| is_equal(left.row(row), right.row(row)));
        }
        gather_word(first, count, |row| is_equal(trimmed(left.row(row)), trimmed(right.row(row))))
    })
}

/// Equality without a call for short texts.
#[inline(always)]
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    macro_rules! words {
        ($size:literal, $word:ty) => {
            if let (Some(left_low), Some(right_low), Some(left_high), Some(right_high)) = (
                left.first_chunk::<$size>(),
                right.first_chunk::<$size>(),
                left.last_chunk::<$size>(),
                right.last_chunk::<$size>(),
            ) && left.len() <= 2 * $size
            {
                let low = <$word>::from_le_bytes(*left_low) ^ <$word>::from_le_bytes(*right_low);
                let high = <$word>::from_le_bytes(*left_high) ^ <$word>::from_le_bytes(*right_high);
                return low | high == 0;
            }
        };
    }
    words!(8, u64);
    words!(4, u32);
    words!(16, u128);
    left == right
}

kernel! {
    /// Rows that compare like this with the constant.
    pub fn compare_constant[T: Text][T](column: T, inequality: Inequality, constant: &[u8], pad: Pad) -> BitBuffer =
        compare_constant_plain;
}

#[inline(always)]
fn compare_constant_plain<T: Text>(
    column: T,
    inequality: Inequality,
    constant: &[u8],
    pad: Pad,
) -> BitBuffer {
    let constant = if pad == Pad::None { constant } else { trimmed(constant) };
    let prefix = prefix_of(constant, pad.fill());
    let fill = |first: usize, left: &mut [u64], right: &mut [u64]| {
        prefixes_padded(&column, first, pad, left);
        right.fill(prefix);
    };
    let full = |row: usize| pad.compare(column.row(row), constant);
    compare_prefixes(column.row_count(), inequality, fill, full)
}

kernel! {
    /// Rows of two columns that compare like this.
    ///
    /// # Panics
    /// When the columns differ in length.
    pub fn compare_columns[A: Text, B: Text][A, B](left: A, inequality: Inequality, right: B, pad: Pad) -> BitBuffer =
        compare_columns_plain;
}

#[inline(always)]
fn compare_columns_plain<A: Text, B: Text>(left: A, inequality: Inequality, right: B, pad: Pad) -> BitBuffer {
    assert_eq!(left.row_count(), right.row_count(), "columns of one batch");
    let fill = |first: usize, left_prefixes: &mut [u64], right_prefixes: &mut [u64]| {
        prefixes_padded(&left, first, pad, left_prefixes);
        prefixes_padded(&right, first, pad, right_prefixes);
    };
    let full = |row: usize| pad.compare(left.row(row), right.row(row));
    compare_prefixes(left.row_count(), inequality, fill, full)
}

#[inline(always)]
fn prefix_padded<T: Text>(column: &T, row: usize, pad: Pad) -> u64 {
    if pad == Pad::Trim { prefix_of(trimmed(column.row(row)), 0) } else { column.prefix(row, pad.fill()) }
}

#[inline(always)]
fn prefixes_padded<T: Text>(column: &T, first: usize, pad: Pad, prefixes: &mut [u64]) {
    if pad != Pad::Trim {
        return column.prefixes(first, pad.fill(), prefixes);
    }
    for (index, prefix) in prefixes.iter_mut().enumerate() {
        *prefix = prefix_padded(column, first + index, pad);
    }
}

/// Compares the prefixes of each row and asks for the full order only where they tie. `fill` writes the
/// prefixes of both sides from a row on.
#[inline(always)]
fn compare_prefixes(
    row_count: usize,
    inequality: Inequality,
    fill: impl Fn(usize, &mut [u64], &mut [u64]),
    full: impl Fn(usize) -> Ordering,
) -> BitBuffer {
    let is_greater = inequality.holds(Ordering::Greater);
    // Arrays of a fixed length, so that comparing them becomes vectors; behind the rows they hold anything.
    let (mut left, mut right) = ([0; WORD_BITS], [0; WORD_BITS]);
    collect_words(row_count, |first, count| {
        fill(first, &mut left[..count], &mut right[..count]);
        let less = gather_word(0, WORD_BITS, |row| left[row] < right[row]);
        let ties =
            gather_word(0, WORD_BITS, |row| left[row] == right[row]) & (u64::MAX >> (WORD_BITS - count));
        let decided = if is_greater { !(less | ties) } else { less };
        decided | retain(first, ties, |row| inequality.holds(full(row)))
    })
}

/// Which end of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Extreme {
    Least,
    Greatest,
}

kernel! {
    /// The first row that is the least or greatest of those selected, if one is.
    ///
    /// # Panics
    /// When the selection has not as many bits as rows or names a row that is not there.
    pub fn extreme_row[T: Text][T](column: T, selection: Selection<'_>, extreme: Extreme, pad: Pad)
        -> Option<usize> = extreme_row_plain;
}

#[inline(always)]
fn extreme_row_plain<T: Text>(
    column: T,
    selection: Selection<'_>,
    extreme: Extreme,
    pad: Pad,
) -> Option<usize> {
    // Turned over, the greatest prefix is the least.
    let flip = if extreme == Extreme::Least { 0 } else { u64::MAX };
    let (mut best, mut best_prefix) = (None, u64::MAX);
    for_each_row(column.row_count(), selection, |row| {
        let prefix = prefix_padded(&column, row, pad) ^ flip;
        if prefix > best_prefix {
            return;
        }
        let is_better = match best {
            Some(best) if prefix == best_prefix => {
                let ordering = pad.compare(column.row(row), column.row(best));
                if extreme == Extreme::Least { ordering.is_lt() } else { ordering.is_gt() }
            }
            _ => true,
        };
        if is_better {
            (best, best_prefix) = (Some(row), prefix);
        }
    });
    best
}

/// Calls `visit` with each selected row, in order.
#[inline(always)]
pub(super) fn for_each_row(row_count: usize, selection: Selection<'_>, mut visit: impl FnMut(usize)) {
    match selection {
        Selection::All => (0..row_count).for_each(visit),
        Selection::Bits(bits) => {
            assert_eq!(bits.len(), row_count, "a bit a row");
            for (index, mut word) in bits.words().enumerate() {
                while word != 0 {
                    visit(index * WORD_BITS + word.trailing_zeros() as usize);
                    word &= word - 1;
                }
            }
        }
        Selection::Rows(rows) => rows.iter().for_each(|row| visit(*row as usize)),
    }
}
