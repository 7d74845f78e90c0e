//! Values in memory: borrowed, owned, or shared memory that a file was read into.
//!
//! Values that a file stores in their memory format are used in place, and that memory lives as long as anyone
//! holds it. Free buffers are kept and reused: memory that was used before is there at once, whereas the system
//! clears new memory page by page, which takes longer than reading.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex};

use keirin_kernels::aligned::{AlignedBytes, Number, numbers, numbers_mut};

use crate::database::locked;

/// Values, borrowed, owned or shared.
#[derive(Clone)]
pub enum Buffer<'a, T> {
    /// Borrowed from the caller.
    Borrowed(&'a [T]),
    /// Owned by this buffer.
    Owned(Vec<T>),
    /// In memory with several holders.
    Shared(Shared<T>),
}

impl<T: Number> Deref for Buffer<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(values) => values,
            Self::Owned(values) => values,
            Self::Shared(values) => values,
        }
    }
}

impl<T: Number> Buffer<'_, T> {
    /// Mutable access to the values; copies them unless they are owned.
    pub fn to_mut(&mut self) -> &mut Vec<T> {
        if !matches!(self, Self::Owned(_)) {
            *self = Self::Owned(self.to_vec());
        }
        match self {
            Self::Owned(values) => values,
            _ => unreachable!("they were copied"),
        }
    }

    /// The values as a vector; copies them unless they are owned.
    #[must_use]
    pub fn into_owned(self) -> Vec<T> {
        match self {
            Self::Owned(values) => values,
            other => other.to_vec(),
        }
    }
}

impl<T> Default for Buffer<'_, T> {
    fn default() -> Self {
        Self::Owned(Vec::new())
    }
}

impl<T> From<Vec<T>> for Buffer<'_, T> {
    fn from(values: Vec<T>) -> Self {
        Self::Owned(values)
    }
}

impl<'a, T> From<&'a [T]> for Buffer<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self::Borrowed(values)
    }
}

impl<'a, T, const COUNT: usize> From<&'a [T; COUNT]> for Buffer<'a, T> {
    fn from(values: &'a [T; COUNT]) -> Self {
        Self::Borrowed(values)
    }
}

impl<'a, T: Clone> From<Cow<'a, [T]>> for Buffer<'a, T> {
    fn from(values: Cow<'a, [T]>) -> Self {
        match values {
            Cow::Borrowed(values) => Self::Borrowed(values),
            Cow::Owned(values) => Self::Owned(values),
        }
    }
}

impl<T> FromIterator<T> for Buffer<'_, T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::Owned(values.into_iter().collect())
    }
}

impl<T: Number + fmt::Debug> fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

/// Aligned, immutable values in memory with several holders. Arrow takes its bytes without a copy.
#[derive(Clone)]
pub struct Shared<T> {
    bytes: Arc<FileBytes>,
    range: Range<usize>,
    values: PhantomData<T>,
}

impl<T: Number> Shared<T> {
    /// A range of the bytes as values, if its alignment allows that.
    pub(crate) fn new(bytes: &Arc<FileBytes>, range: Range<usize>) -> Option<Self> {
        numbers::<T>(bytes.get(range.clone())?)?;
        Some(Self { bytes: Arc::clone(bytes), range, values: PhantomData })
    }
}

impl<T> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl<T: Number> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        numbers(self.as_ref()).expect("the range was looked at when it was made")
    }
}

/// A buffer that bytes of a file are read into; dropping it gives it back to the pool.
#[derive(Debug)]
pub(crate) struct FileBytes {
    /// `None` only while it is dropped.
    bytes: Option<AlignedBytes>,
    used: usize,
    pool: Arc<Pool>,
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| &bytes[..self.used])
    }
}

impl DerefMut for FileBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().map_or(&mut [], |bytes| &mut bytes[..self.used])
    }
}

impl Drop for FileBytes {
    fn drop(&mut self) {
        self.bytes.take().into_iter().for_each(|bytes| self.pool.put(bytes));
    }
}

/// Free buffers, kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// By their size.
    buffers: BTreeMap<usize, Vec<AlignedBytes>>,
    bytes: usize,
}

impl Free {
    /// A buffer of this size or a little more.
    fn take(&mut self, size: usize) -> Option<AlignedBytes> {
        let mut fitting = self.buffers.range_mut(size..=size + size / 4);
        let bytes = fitting.find_map(|(_, buffers)| buffers.pop())?;
        self.bytes -= bytes.len();
        Some(bytes)
    }

    /// Drops the largest buffer of another size; returns whether there was one.
    fn drop_other(&mut self, size: usize) -> bool {
        let mut others = self.buffers.iter_mut().rev().filter(|(other, _)| **other != size);
        let dropped = others.find_map(|(_, buffers)| buffers.pop());
        self.bytes -= dropped.as_ref().map_or(0, |bytes| bytes.len());
        dropped.is_some()
    }
}

impl Pool {
    /// Larger buffers are not kept.
    const BYTES_MAX: usize = 2 << 20;
    /// The most bytes of all kept buffers together.
    const FREE_BYTES_MAX: usize = 32 << 20;

    /// A buffer of numbers, all of which `write` must set: their content is arbitrary before. `None` on big-endian
    /// machines.
    pub(crate) fn numbers<T: Number, E>(
        self: &Arc<Self>,
        count: usize,
        write: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<Option<Shared<T>>, E> {
        let mut bytes = self.take(count * size_of::<T>());
        let Some(numbers) = numbers_mut(&mut bytes) else { return Ok(None) };
        write(numbers)?;
        let range = 0..bytes.len();
        Ok(Shared::new(&Arc::new(bytes), range))
    }

    /// A buffer of arbitrary content.
    pub(crate) fn take(self: &Arc<Self>, byte_count: usize) -> FileBytes {
        // Few sizes, so that free buffers fit, but no more than an eighth more than is used: with powers of two, scans
        // of wide rows took half as much memory again as their values.
        let size = byte_count.max(1).next_multiple_of((byte_count.next_power_of_two() / 16).max(1 << 12));
        // Large buffers are not kept, so their size need not be rounded up.
        let (kept, size) = match size > Self::BYTES_MAX {
            true => (None, byte_count),
            false => (locked(&self.free).take(size), size),
        };
        let bytes = kept.unwrap_or_else(|| AlignedBytes::zeroed(size));
        FileBytes { bytes: Some(bytes), used: byte_count, pool: Arc::clone(self) }
    }

    fn put(&self, bytes: AlignedBytes) {
        let size = bytes.len();
        if size > Self::BYTES_MAX {
            return;
        }
        let mut free = locked(&self.free);
        // Buffers of sizes that are not used any more make room for those that are.
        while free.bytes + size > Self::FREE_BYTES_MAX && free.drop_other(size) {}
        if free.bytes + size <= Self::FREE_BYTES_MAX {
            free.bytes += size;
            free.buffers.entry(size).or_default().push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_free_is_used_again() {
        let pool = Arc::new(Pool::default());
        let mut bytes = pool.take(5000);
        bytes.fill(7);
        let place = bytes.as_ptr();
        let bytes = Arc::new(bytes);
        let shared = Shared::<i32>::new(&bytes, 64..72).unwrap();
        assert!(Shared::<i32>::new(&bytes, 66..70).is_none());
        assert!(Shared::<i32>::new(&bytes, 4998..5002).is_none());
        drop(bytes);
        assert_eq!((&*shared, pool.take(8000).as_ptr() == place), (&[0x0707_0707; 2][..], false));
        drop(shared);
        assert_eq!(pool.take(8000).as_ptr(), place);
        assert_eq!(pool.take(9 << 20).len(), 9 << 20);
        let write = |numbers: &mut [u64]| {
            numbers.fill(7);
            if numbers.len() > 1 { Err(numbers.len()) } else { Ok(()) }
        };
        assert_eq!(pool.numbers(1, write).unwrap().as_deref(), Some(&[7][..]));
        assert_eq!(pool.numbers(2, write).map(|_| ()), Err(2));
    }

    #[test]
    fn buffers_are_little_larger_than_what_they_are_used_for() {
        let pool = Arc::new(Pool::default());
        for byte_count in [1, 5000, 100_000, (1 << 20) + 1, 1_336_108, 2 << 20, (2 << 20) + 1] {
            let bytes = pool.take(byte_count);
            assert_eq!(bytes.len(), byte_count);
            let size = bytes.bytes.as_ref().unwrap().len();
            assert!(size <= byte_count + (byte_count / 8).max(1 << 12), "{size} for {byte_count}");
        }
        assert_eq!(locked(&pool.free).buffers.len(), 6);
    }

    #[test]
    fn buffers_of_other_sizes_make_room() {
        let pool = Arc::new(Pool::default());
        drop(Vec::from_iter((0..40).map(|_| pool.take(1 << 20))));
        assert_eq!(locked(&pool.free).bytes, Pool::FREE_BYTES_MAX);
        let bytes = pool.take(1 << 14);
        let place = bytes.as_ptr();
        drop(bytes);
        assert_eq!(locked(&pool.free).bytes, Pool::FREE_BYTES_MAX - (1 << 20) + (1 << 14));
        assert_eq!(pool.take(1 << 14).as_ptr(), place);
    }

    #[test]
    fn values_are_copied_before_they_are_changed() {
        let mut buffer = Buffer::from(&[1, 2][..]);
        buffer.to_mut().push(3);
        assert_eq!(&*buffer, [1, 2, 3]);
        assert_eq!(Buffer::from(&[1_u8, 2]).into_owned(), [1, 2]);
    }
}
