//! What can be wrong with bytes, and where.

use crate::frame::{Compression, Kind};

/// Why bytes are not what they should be, or values cannot become bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end too early.
    #[error("byte {at}: {needed} more bytes are needed, {left} are left")]
    Truncated {
        /// Where the reading stopped.
        at: usize,
        /// Bytes that belong here.
        needed: usize,
        /// Bytes that are here.
        left: usize,
    },
    /// The bytes go on behind the end of what they hold.
    #[error("byte {at}: {count} bytes too many")]
    Trailing {
        /// Where the end should be.
        at: usize,
        /// Bytes behind it.
        count: usize,
    },
    /// No encoding has this number.
    #[error("byte {at}: no encoding {id} for these values")]
    UnknownEncoding {
        /// Where it stands.
        at: usize,
        /// The number.
        id: u8,
    },
    /// More encodings inside each other than are ever written.
    #[error("byte {at}: encodings are nested more than {limit} deep")]
    TooDeep {
        /// Where the innermost begins.
        at: usize,
        /// How deep they may be.
        limit: u32,
    },
    /// A number or a place that contradicts the others.
    #[error("byte {at}: {reason}")]
    Corrupt {
        /// The part of the bytes that it is in.
        at: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A frame of another version.
    #[error("byte 0: a frame of version {version}, this program reads version 1")]
    Version {
        /// The version.
        version: u8,
    },
    /// No compression has this number.
    #[error("byte 2: no compression {id}")]
    UnknownCompression {
        /// The number.
        id: u8,
    },
    /// The stored bytes are not those that were written.
    #[error("the checksum is {computed:016x}, {written:016x} was written")]
    Checksum {
        /// The one in the header.
        written: u64,
        /// The one that header and stored bytes have.
        computed: u64,
    },
    /// What was compressed does not come back.
    #[error("{reason}")]
    Damaged {
        /// What the decoder says.
        reason: String,
    },
    /// Values were asked for before the frame was decompressed.
    #[error("the frame is compressed ({compression:?})")]
    Compressed {
        /// How.
        compression: Compression,
    },
    /// A frame of other values than were asked for.
    #[error("values of kind {found:?}, not {wanted:?}")]
    Kind {
        /// What was asked for.
        wanted: Kind,
        /// What there is.
        found: Kind,
    },
    /// The values would take more than the caller allows.
    #[error("{needed} rows or bytes of values, {limit} are allowed")]
    Limit {
        /// What they would take.
        needed: u64,
        /// What is allowed.
        limit: u64,
    },
    /// More values, or bytes of text, than one block can hold.
    #[error("a block holds at most {limit} {what}, not {count}")]
    BlockTooLarge {
        /// Rows or bytes.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: u32,
    },
    /// A sum of 128-bit integers that is none.
    #[error("the sum leaves 128 bits")]
    SumOverflow,
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
