//! Errors in bytes, and where they are.

use crate::frame::{Compression, Kind};

/// Why bytes are not valid, or values cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end too early.
    #[error("byte {at}: {needed} more bytes are needed, {left} are left")]
    Truncated {
        /// The position at which the bytes end.
        at: usize,
        /// The bytes that are expected there.
        needed: usize,
        /// The bytes that are left.
        left: usize,
    },
    /// There are bytes behind the end of the content.
    #[error("byte {at}: {count} bytes too many")]
    Trailing {
        /// The position of the expected end.
        at: usize,
        /// The count of bytes behind it.
        count: usize,
    },
    /// The id of an encoding is unknown.
    #[error("byte {at}: no encoding {id} for these values")]
    UnknownEncoding {
        /// The position of the id.
        at: usize,
        /// The id.
        id: u8,
    },
    /// Encodings are nested deeper than is ever written.
    #[error("byte {at}: encodings are nested more than {limit} deep")]
    TooDeep {
        /// The position of the innermost encoding.
        at: usize,
        /// The greatest depth.
        limit: u32,
    },
    /// A number or a position contradicts others.
    #[error("byte {at}: {reason}")]
    Corrupt {
        /// The position of the part with the error.
        at: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A frame has another version.
    #[error("byte 0: a frame of version {version}, this program reads version 1")]
    Version {
        /// The version.
        version: u8,
    },
    /// The id of a compression is unknown.
    #[error("byte 2: no compression {id}")]
    UnknownCompression {
        /// The id.
        id: u8,
    },
    /// The stored bytes are not those that were written.
    #[error("the checksum is {computed:016x}, {written:016x} was written")]
    Checksum {
        /// The checksum in the header.
        written: u64,
        /// The checksum of header and stored bytes.
        computed: u64,
    },
    /// Compressed bytes cannot be decompressed.
    #[error("{reason}")]
    Damaged {
        /// The decoder's reason.
        reason: String,
    },
    /// Values were requested before the frame was decompressed.
    #[error("the frame is compressed ({compression:?})")]
    Compressed {
        /// The compression of the frame.
        compression: Compression,
    },
    /// A frame has values of another kind than requested.
    #[error("values of kind {found:?}, not {wanted:?}")]
    Kind {
        /// The requested kind.
        wanted: Kind,
        /// The kind of the frame.
        found: Kind,
    },
    /// The values would take more memory than the caller allows.
    #[error("{needed} rows or bytes of values, {limit} are allowed")]
    Limit {
        /// The bytes that they would take.
        needed: u64,
        /// The bytes that are allowed.
        limit: u64,
    },
    /// There are more values, or bytes of text, than one block can hold.
    #[error("a block holds at most {limit} {what}, not {count}")]
    BlockTooLarge {
        /// Rows or bytes.
        what: &'static str,
        /// Their count.
        count: usize,
        /// The largest count.
        limit: u32,
    },
    /// A sum of 128-bit integers does not fit 128 bits.
    #[error("the sum leaves 128 bits")]
    SumOverflow,
}

/// `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
