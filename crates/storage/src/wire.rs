//! Small records as bytes, and bytes that nobody can trust as records.
//!
//! Counts are held against the bytes that are left before memory is asked for.

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

/// Bytes and how far they were read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// What the bytes should have been, at the place that was read last.
    pub(crate) fn malformed<T>(&self, reason: impl Into<String>) -> Wire<T> {
        Err(Malformed { at: self.at, reason: reason.into() })
    }

    /// All that was not read.
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

    /// A count of things of which each takes at least `bytes_min` bytes.
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

    /// Fails when there are bytes left.
    pub(crate) fn end(&self) -> Wire<()> {
        match self.rest().len() {
            0 => Ok(()),
            count => self.malformed(format!("{count} bytes too many")),
        }
    }
}

/// What can be written to the end of bytes.
pub(crate) trait Write {
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_i64(&mut self, value: i64);
    /// A count that was held against its limit when the thing was made.
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
