//! Reads untrusted bytes from front to back.

use keirin_kernels::Level;

use crate::{Error, Result};

/// The greatest depth of nested encodings: a dictionary of deltas of packed bits is three.
pub(crate) const DEPTH_LIMIT: u32 = 4;

/// Bytes, how far they were read, and the state for opening the encodings in them.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    pub(crate) level: Level,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(level: Level, bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0, level }
    }

    /// The position of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..count) else {
            return Err(Error::Truncated { at: self.at, needed: count, left: rest.len() });
        };
        self.at += count;
        Ok(taken)
    }

    pub(crate) fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT]> {
        let bytes = self.take(COUNT)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Reads the id of an encoding, which is its index in `all`.
    pub(crate) fn encoding<E: Copy>(&mut self, all: &[E]) -> Result<E> {
        let at = self.at;
        let id = self.u8()?;
        all.get(usize::from(id)).copied().ok_or(Error::UnknownEncoding { at, id })
    }

    /// Reads a count, which no correct writer makes larger than `limit`.
    pub(crate) fn count(&mut self, limit: usize, reason: &'static str) -> Result<usize> {
        let at = self.at;
        let count = self.array().map(u32::from_le_bytes)? as usize;
        if count > limit { Err(Error::Corrupt { at, reason }) } else { Ok(count) }
    }

    /// Calls `open` for the bytes that follow, one level deeper.
    pub(crate) fn nested<T>(&mut self, open: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_LIMIT {
            return Err(Error::TooDeep { at: self.at, limit: DEPTH_LIMIT });
        }
        self.depth += 1;
        let opened = open(self);
        self.depth -= 1;
        opened
    }

    /// Fails if bytes are left.
    pub(crate) fn end(&self) -> Result<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            count => Err(Error::Trailing { at: self.at, count }),
        }
    }
}
