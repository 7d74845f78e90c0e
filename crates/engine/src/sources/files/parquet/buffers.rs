//! Buffers for decompressed pages, reused when their page is no longer needed.
//!
//! A page lives for a few batches. Fresh memory for each would have to be zeroed and would not be in the
//! cache: both cost about as much as decompressing into it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// The most buffers that are kept for reuse, and the bytes of the largest one kept.
const KEPT_MAX: usize = 16;
const KEPT_BYTES_MAX: usize = 4 << 20;
/// A buffer is reused only for pages of at least its size divided by this: string arrays keep the whole
/// buffer.
const WASTE_MAX: usize = 2;

/// The buffers of one stream of batches. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that returns to its pool when it is dropped.
pub(super) struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    /// A buffer of at least `len` bytes with old content, all to be overwritten.
    pub(super) fn take(&self, len: usize) -> Lent {
        let mut kept = self.0.lock();
        let fits = |buffer: &Vec<u8>| (len..=len.saturating_mul(WASTE_MAX)).contains(&buffer.len());
        let found = kept.iter().rposition(fits).map(|index| kept.remove(index));
        drop(kept);
        let bytes = found.unwrap_or_else(|| vec![0; len]);
        Lent { bytes, home: self.clone() }
    }
}

impl Lent {
    /// The first `len` bytes as a page; the buffer returns with the last view of it.
    pub(super) fn into_bytes(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }

    pub(super) fn as_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[..len]
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.bytes.len() > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = self.home.0.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_fit() {
        let buffers = Buffers::default();
        let page = buffers.take(1000).into_bytes(1000);
        let address = page.as_ptr();
        let view = page.slice(10..20);
        drop(page);
        assert_ne!(buffers.take(1000).as_mut(1000).as_ptr(), address, "still in use");
        drop(view);
        assert_ne!(buffers.take(100).as_mut(100).as_ptr(), address, "too large");
        assert_eq!(buffers.take(600).into_bytes(600).len(), 600);
        let kept = buffers.0.lock().len();
        assert_eq!(kept, 3);
    }
}
