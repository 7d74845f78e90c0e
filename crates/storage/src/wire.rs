//! Writing small records as bytes, and reading them from untrusted bytes.
//!
//! Counts are checked against the bytes that are left before memory is allocated.

use std::fmt;

/// The most bytes of a text.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// What is wrong with a record, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
    pub(crate) reason: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {} of the record)", self.reason, self.at)
    }
}

pub(crate) type Wire<T> = Result<T, Malformed>;

/// Bytes, and the position up to which they were read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// An error at the place that was read last.
    pub(crate) fn malformed<T>(&self, reason: impl Into<String>) -> Wire<T> {
        Err(Malformed { at: self.at, reason: reason.into() })
    }

    /// All bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn take(&mut self, count: usize) -> Wire<&'a [u8]> {
        let Some(taken) = self.rest().get(..count) else {
            let left = self.rest().len();
            return self.malformed(format!("{count} more bytes are needed, {left} are left"));
        };
        self.at += count;
        Ok(taken)
    }

    fn array<const COUNT: usize>(&mut self) -> Wire<[u8; COUNT]> {
        Ok(self.take(COUNT)?.try_into().expect("as many bytes as were asked for"))
    }

    pub(crate) fn u8(&mut self) -> Wire<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Wire<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Wire<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Wire<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads a count of items that take at least `bytes_min` bytes each.
    pub(crate) fn count(&mut self, bytes_min: usize, limit: usize) -> Wire<usize> {
        let count = self.u32()? as usize;
        if count > limit || count.saturating_mul(bytes_min) > self.rest().len() {
            return self.malformed(format!("a count of {count}, more than can be"));
        }
        Ok(count)
    }

    pub(crate) fn text(&mut self) -> Wire<String> {
        let count = self.count(1, TEXT_BYTES_MAX)?;
        match std::str::from_utf8(self.take(count)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.malformed("text that is not UTF-8"),
        }
    }

    /// Fails if there are bytes left.
    pub(crate) fn end(&self) -> Wire<()> {
        match self.rest().len() {
            0 => Ok(()),
            count => self.malformed(format!("{count} bytes too many")),
        }
    }
}

/// Appends values to bytes.
pub(crate) trait Write {
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_i64(&mut self, value: i64);
    /// Appends a count, which was checked against its limit before.
    fn put_count(&mut self, count: usize);
    fn put_text(&mut self, text: &str);
}

impl Write for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend(value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend(value.to_le_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.extend(value.to_le_bytes());
    }

    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("a count within its limit"));
    }

    fn put_text(&mut self, text: &str) {
        self.put_count(text.len());
        self.extend(text.as_bytes());
    }
}
