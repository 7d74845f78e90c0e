//! Strings, as offset arrays and as views, and their hashes.
//!
//! A string of up to 12 bytes is handled as the 16-byte word that Arrow's views use: length, then bytes,
//! zeros behind the end. Reading one from an offset array is a load and a mask, without branches on the
//! length, and its hash is that of two words. Longer strings are folded 32 bytes at a time by wide products
//! with secrets (as in wyhash and rapidhash); the last block overlaps the one before, so that no loop over
//! the last bytes is needed.
//!
//! A branch on each length would be mispredicted more often than not. So 64 rows are hashed together: first
//! all as if they were short, which vectorises, and then the long ones by classes of lengths. Random strings
//! of 2 to 14 bytes take 1.8 ns instead of 4.9 in this way, those of 30 to 90 bytes 4.8 ns instead of 5.3.

use super::Seed;
use crate::Bits;
use crate::bits::WORD_BITS;
use crate::region::prefetch;

/// The most bytes that fit inside a 16-byte view.
pub(crate) const INLINE_BYTES: usize = 12;

/// A column of strings (or other bytes), without validity.
#[derive(Clone, Copy, Debug)]
pub enum Strings<'a> {
    /// Row `i` is `bytes[offsets[i]..offsets[i + 1]]`; one offset more than rows.
    Offsets32(&'a [i32], &'a [u8]),
    /// As [`Self::Offsets32`], with 64-bit offsets.
    Offsets64(&'a [i64], &'a [u8]),
    /// Arrow's views: the length in the low 32 bits, then either up to 12 bytes of the string, or its first 4
    /// bytes, the number of a buffer and the offset there.
    Views(&'a [u128], &'a [&'a [u8]]),
}

impl<'a> Strings<'a> {
    /// Count of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Offsets32(offsets, _) => offsets.len().saturating_sub(1),
            Self::Offsets64(offsets, _) => offsets.len().saturating_sub(1),
            Self::Views(views, _) => views.len(),
        }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range of rows.
    ///
    /// # Panics
    /// When there are fewer rows.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        match *self {
            Self::Offsets32(offsets, bytes) => Self::Offsets32(&offsets[rows.start..=rows.end], bytes),
            Self::Offsets64(offsets, bytes) => Self::Offsets64(&offsets[rows.start..=rows.end], bytes),
            Self::Views(views, buffers) => Self::Views(&views[rows], buffers),
        }
    }

    /// The bytes of a row; `inline` keeps those of a short one.
    ///
    /// # Panics
    /// When `row` is not a row, or its bytes are not in the buffer.
    #[inline(always)]
    pub fn get<'b>(&self, row: usize, inline: &'b mut [u8; 16]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.word_or_bytes(row) {
            Ok(word) => {
                *inline = word.to_le_bytes();
                &inline[4..4 + word as u32 as usize]
            }
            Err(bytes) => bytes,
        }
    }

    /// Fetches the bytes of a row to the caches, if there is such a row.
    #[inline(always)]
    pub fn prefetch(&self, row: usize) {
        let first = match *self {
            Self::Offsets32(offsets, bytes) => offsets.get(row).map(|offset| (bytes, *offset as usize)),
            Self::Offsets64(offsets, bytes) => offsets.get(row).map(|offset| (bytes, *offset as usize)),
            Self::Views(views, buffers) => views.get(row).and_then(|view| {
                let is_long = *view as u32 as usize > INLINE_BYTES;
                let buffer = buffers.get((view >> 64) as u32 as usize).filter(|_| is_long)?;
                Some((*buffer, (view >> 96) as usize))
            }),
        };
        if let Some(byte) = first.and_then(|(bytes, offset)| bytes.get(offset)) {
            prefetch(byte);
        }
    }

    /// The short form of a row, or its bytes.
    ///
    /// # Panics
    /// When `row` is not a row, or its bytes are not in the buffer.
    #[inline(always)]
    pub(crate) fn word_or_bytes(&self, row: usize) -> Result<u128, &'a [u8]> {
        match *self {
            Self::Offsets32(offsets, bytes) => {
                word_or_bytes(bytes, offsets[row] as usize, offsets[row + 1] as usize)
            }
            Self::Offsets64(offsets, bytes) => {
                word_or_bytes(bytes, offsets[row] as usize, offsets[row + 1] as usize)
            }
            Self::Views(views, buffers) => {
                let view = views[row];
                let len = view as u32 as usize;
                if len <= INLINE_BYTES {
                    Ok(view & inline_mask(len))
                } else {
                    let start = (view >> 96) as usize;
                    Err(&buffers[(view >> 64) as u32 as usize][start..start + len])
                }
            }
        }
    }
}

#[inline(always)]
fn word_or_bytes(bytes: &[u8], start: usize, end: usize) -> Result<u128, &[u8]> {
    if end.wrapping_sub(start) > INLINE_BYTES {
        return Err(&bytes[start..end]);
    }
    Ok(match bytes.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(chunk) => inline_word(u128::from_le_bytes(*chunk), end - start),
        None => inline_form(&bytes[start..end]),
    })
}

/// The short form of a string of `len` bytes, loaded with any bytes behind it.
#[inline(always)]
fn inline_word(loaded: u128, len: usize) -> u128 {
    (loaded << 32 & inline_mask(len)) | len as u128
}

/// A mask of the length and the bytes in the short form of a string of `len <= 12` bytes.
#[inline(always)]
fn inline_mask(len: usize) -> u128 {
    u128::MAX >> (8 * (INLINE_BYTES - len))
}

/// The short form of a string of up to 12 bytes.
#[cold]
pub(crate) fn inline_form(bytes: &[u8]) -> u128 {
    let mut chunk = [0; 16];
    chunk[..bytes.len()].copy_from_slice(bytes);
    inline_word(u128::from_le_bytes(chunk), bytes.len())
}

/// The hash of a short form.
#[inline(always)]
pub(crate) fn hash_inline(seed: &Seed, word: u128, so_far: u64) -> u64 {
    seed.word((word >> 64) as u64 ^ seed.word(word as u64 ^ so_far))
}

/// The hash of a string of more than 12 bytes.
#[inline(always)]
pub(crate) fn hash_bytes(seed: &Seed, bytes: &[u8], so_far: u64) -> u64 {
    assert!(bytes.len() > INLINE_BYTES, "shorter ones have another hash");
    // SAFETY: a slice has as many bytes.
    unsafe { hash_long(seed, bytes.as_ptr(), bytes.len(), class_of(bytes.len()), so_far) }
}

/// The class of a string of more than 12 bytes, by which it is hashed: 0 for two words, or the count of
/// blocks of 32 bytes.
#[inline(always)]
fn class_of(len: usize) -> usize {
    if len <= 16 { 0 } else { len.div_ceil(32) }
}

/// The hash of `len` bytes, more than 12, of that class. If the class is a constant at the call, there are no
/// branches.
///
/// # Safety
/// `len` bytes must be readable at `bytes`, and `class` must be theirs.
#[inline(always)]
unsafe fn hash_long(seed: &Seed, bytes: *const u8, len: usize, class: usize, so_far: u64) -> u64 {
    debug_assert!(len > INLINE_BYTES && class == class_of(len));
    let [mut first, mut second, third, fourth] = seed.folds;
    // SAFETY: words begin eight bytes or more before the end: of more than 12 bytes, of more than 16 where
    // there are blocks, and of blocks that end before the last byte.
    unsafe {
        if class == 0 {
            first = fold(word_at(bytes, 0) ^ first, word_at(bytes, len - 8) ^ third);
        } else {
            let mut start = 0;
            for _ in 1..class {
                first = fold(word_at(bytes, start) ^ first, word_at(bytes, start + 8) ^ third);
                second = fold(word_at(bytes, start + 16) ^ second, word_at(bytes, start + 24) ^ fourth);
                start += 32;
            }
            // The last 32 bytes, or, if there are fewer, the first and the last 16, which overlap.
            let start = len.saturating_sub(32);
            first = fold(word_at(bytes, start) ^ first, word_at(bytes, start + 8) ^ third);
            second = fold(word_at(bytes, len - 16) ^ second, word_at(bytes, len - 8) ^ fourth);
        }
    }
    seed.word(first ^ second.rotate_left(23) ^ so_far ^ (len as u64) << 32)
}

/// The two halves of the wide product, XORed.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// # Safety
/// Eight bytes must be readable from `start` on.
#[inline(always)]
unsafe fn word_at(bytes: *const u8, start: usize) -> u64 {
    // SAFETY: eight bytes from `start` on are readable, as the caller promises.
    let word = unsafe { bytes.add(start).cast::<u64>() };
    // SAFETY: `word` points to eight readable bytes, as the caller promises.
    u64::from_le(unsafe { word.read_unaligned() })
}

kernel! {
    /// Hashes of a column of strings; all NULLs have the same hash.
    ///
    /// # Panics
    /// When lengths differ, or a string is not within its buffer.
    pub fn hash_strings(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64])
        = hash_strings_plain;
}

kernel! {
    /// Combines the hashes of the columns before with this one.
    ///
    /// # Panics
    /// When lengths differ, or a string is not within its buffer.
    pub fn combine_strings(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64])
        = combine_strings_plain;
}

#[inline(always)]
fn hash_strings_plain(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64]) {
    hashes.fill(0);
    combine_strings_plain(seed, strings, validity, hashes);
}

#[inline(always)]
fn combine_strings_plain(seed: &Seed, strings: Strings<'_>, validity: Option<Bits<'_>>, hashes: &mut [u64]) {
    assert_eq!(strings.len(), hashes.len(), "a hash a string");
    assert!(validity.is_none_or(|validity| validity.len() == hashes.len()), "a bit a string");
    // No closures here: one that the compiler does not inline is not compiled for the level.
    for (index, hashes) in hashes.chunks_mut(WORD_BITS).enumerate() {
        let first = index * WORD_BITS;
        let valid = validity.map_or(u64::MAX, |validity| validity.word(index));
        if let Some(hashes) = hashes.first_chunk_mut()
            && hash_64(seed, strings, first, valid, hashes)
        {
            continue;
        }
        for (row, hash) in hashes.iter_mut().enumerate() {
            *hash = if valid >> row & 1 == 0 {
                seed.null(*hash)
            } else {
                match strings.word_or_bytes(first + row) {
                    Ok(word) => hash_inline(seed, word, *hash),
                    Err(bytes) => hash_bytes(seed, bytes, *hash),
                }
            };
        }
    }
}

/// Hashes 64 rows. Returns false, and changes nothing, if bytes behind the last string cannot be read or
/// offsets descend, are negative or out of bounds: hashing such rows one by one then panics where it must.
#[inline(always)]
fn hash_64(
    seed: &Seed,
    strings: Strings<'_>,
    first: usize,
    valid: u64,
    hashes: &mut [u64; WORD_BITS],
) -> bool {
    match strings {
        Strings::Offsets32(offsets, bytes) => {
            let Some(rows) = OffsetRows::new(&offsets[first..], bytes) else { return false };
            hash_rows(seed, &rows, valid, hashes);
        }
        Strings::Offsets64(offsets, bytes) => {
            let Some(rows) = OffsetRows::new(&offsets[first..], bytes) else { return false };
            hash_rows(seed, &rows, valid, hashes);
        }
        Strings::Views(views, buffers) => {
            let views = views[first..].first_chunk().expect("64 rows");
            hash_rows(seed, &ViewRows { views, buffers }, valid, hashes);
        }
    }
    true
}

/// 64 rows that can be read without a branch on their lengths.
trait Rows {
    /// The length of a row.
    fn len(&self, row: usize) -> usize;
    /// The first 4 bytes and the next 8, with any bytes behind the end of the row; anything for a long row.
    fn head(&self, row: usize) -> (u32, u64);
    /// The bytes of a row of more than 12.
    fn long(&self, row: usize) -> &[u8];
}

struct OffsetRows<'a, O> {
    offsets: &'a [O; WORD_BITS + 1],
    bytes: &'a [u8],
}

impl<'a, O: Copy + Into<i64>> OffsetRows<'a, O> {
    /// The first 64 rows, if they are inside the bytes, and so are twelve bytes from the start of the last
    /// one.
    #[inline(always)]
    fn new(offsets: &'a [O], bytes: &'a [u8]) -> Option<Self> {
        let offsets: &[O; WORD_BITS + 1] = offsets.first_chunk()?;
        let mut falls = 0;
        for row in 0..WORD_BITS {
            falls |= u32::from(offsets[row + 1].into() < offsets[row].into());
        }
        let (start, last): (i64, i64) = (offsets[0].into(), offsets[WORD_BITS - 1].into());
        let end: i64 = offsets[WORD_BITS].into();
        let needed = usize::try_from(end.max(last.saturating_add(INLINE_BYTES as i64))).ok()?;
        (falls == 0 && start >= 0 && needed <= bytes.len()).then_some(Self { offsets, bytes })
    }
}

impl<O: Copy + Into<i64>> Rows for OffsetRows<'_, O> {
    #[inline(always)]
    fn len(&self, row: usize) -> usize {
        (self.offsets[row + 1].into() - self.offsets[row].into()) as usize
    }

    #[inline(always)]
    fn head(&self, row: usize) -> (u32, u64) {
        // SAFETY: offsets ascend from zero or more to the last start, behind which there are twelve bytes.
        let at = unsafe { self.bytes.as_ptr().add(self.offsets[..WORD_BITS][row].into() as usize) };
        // SAFETY: the first four of those bytes.
        let head = unsafe { at.cast::<u32>().read_unaligned() };
        // SAFETY: the other eight.
        let tail = unsafe { at.add(4).cast::<u64>().read_unaligned() };
        (u32::from_le(head), u64::from_le(tail))
    }

    #[inline(always)]
    fn long(&self, row: usize) -> &[u8] {
        let (start, end) = (self.offsets[row].into() as usize, self.offsets[row + 1].into() as usize);
        // SAFETY: offsets ascend to an end within the bytes.
        unsafe { self.bytes.get_unchecked(start..end) }
    }
}

struct ViewRows<'a> {
    views: &'a [u128; WORD_BITS],
    buffers: &'a [&'a [u8]],
}

impl Rows for ViewRows<'_> {
    #[inline(always)]
    fn len(&self, row: usize) -> usize {
        self.views[row] as u32 as usize
    }

    #[inline(always)]
    fn head(&self, row: usize) -> (u32, u64) {
        ((self.views[row] >> 32) as u32, (self.views[row] >> 64) as u64)
    }

    #[inline(always)]
    fn long(&self, row: usize) -> &[u8] {
        let view = self.views[row];
        let start = (view >> 96) as usize;
        &self.buffers[(view >> 64) as u32 as usize][start..start + self.len(row)]
    }
}

/// Hashes 64 rows: first all as if they were short, in one loop, and then long ones by class, so that no
/// branch depends on the length of a single row.
#[inline(always)]
fn hash_rows(seed: &Seed, rows: &impl Rows, valid: u64, hashes: &mut [u64; WORD_BITS]) {
    let before = *hashes;
    let mut lens = [0_u32; WORD_BITS];
    let (mut shortest, mut longest) = (u32::MAX, 0);
    for (row, len) in lens.iter_mut().enumerate() {
        *len = rows.len(row).min(u32::MAX as usize) as u32;
        (shortest, longest) = (shortest.min(*len), longest.max(*len));
    }
    if shortest as usize <= INLINE_BYTES {
        let (mut lows, mut highs) = ([0; WORD_BITS], [0; WORD_BITS]);
        for row in 0..WORD_BITS {
            let (head, tail) = rows.head(row);
            // Volatile, because the compiler would gather the rows into vectors, which takes longer.
            // SAFETY: a place in an array.
            unsafe { (&raw mut lows[row]).write_volatile(u64::from(head) << 32) };
            // SAFETY: a place in an array, which has one for each of the word's rows.
            unsafe { (&raw mut highs[row]).write_volatile(tail) };
        }
        for row in 0..WORD_BITS {
            let len = u64::from(lens[row]);
            let low = lows[row] & low_bits(32 + 8 * len.min(4)) | len;
            let high = highs[row] & low_bits(8 * (len.clamp(4, 12) - 4));
            hashes[row] = seed.word(high ^ seed.word(low ^ before[row]));
        }
    }
    if longest as usize > INLINE_BYTES {
        // Class 4 stands for all classes from the fourth on; their hashes use a loop.
        hash_class::<0>(seed, rows, &lens, valid, &before, hashes);
        if longest > 16 {
            hash_class::<1>(seed, rows, &lens, valid, &before, hashes);
            hash_class::<2>(seed, rows, &lens, valid, &before, hashes);
            hash_class::<3>(seed, rows, &lens, valid, &before, hashes);
            hash_class::<4>(seed, rows, &lens, valid, &before, hashes);
        }
    }
    let mut nulls = !valid;
    while nulls != 0 {
        let row = nulls.trailing_zeros() as usize;
        nulls &= nulls - 1;
        hashes[row] = seed.null(before[row]);
    }
}

/// Hashes the rows of a class; with `CLASS` 4, those of the fourth and all higher classes.
#[inline(always)]
fn hash_class<const CLASS: usize>(
    seed: &Seed,
    rows: &impl Rows,
    lens: &[u32; WORD_BITS],
    valid: u64,
    before: &[u64; WORD_BITS],
    hashes: &mut [u64; WORD_BITS],
) {
    let (least, most) = match CLASS {
        0 => (13, 16),
        1 => (17, 32),
        2 => (33, 64),
        3 => (65, 96),
        _ => (97, u32::MAX),
    };
    let mut members = 0;
    for (row, len) in lens.iter().enumerate() {
        members |= u64::from((*len >= least) & (*len <= most)) << row;
    }
    members &= valid;
    while members != 0 {
        let row = members.trailing_zeros() as usize;
        members &= members - 1;
        let bytes = rows.long(row);
        let class = if CLASS < 4 { CLASS } else { class_of(bytes.len()) };
        // SAFETY: a slice has as many bytes.
        hashes[row] = unsafe { hash_long(seed, bytes.as_ptr(), bytes.len(), class, before[row]) };
    }
}

/// A word with `count` ones, up to 64; by two shifts, since one by 64 is not allowed.
#[inline(always)]
fn low_bits(count: u64) -> u64 {
    !((u64::MAX << (count / 2)) << (count - count / 2))
}
