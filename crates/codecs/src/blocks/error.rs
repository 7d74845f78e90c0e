//! What can go wrong with a block.

use keirin_kernels::lz::DecodeError;

/// A block could not be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not what the codec makes. After this the output is all zeros.
    #[error("damaged {codec} block: {source}")]
    Damaged {
        /// The codec's name.
        codec: &'static str,
        /// What is wrong, and where.
        source: DecodeError,
    },
    /// ZSTD refused the bytes. After this the output is all zeros.
    #[error("damaged zstd block: {0}")]
    Zstd(std::io::Error),
    /// A block that is stored as it is has another size than was declared.
    #[error("a block of {declared} bytes that is not compressed has {stored} bytes")]
    Size {
        /// Bytes that the output holds.
        declared: usize,
        /// Bytes that are there.
        stored: usize,
    },
    /// A library failed to compress.
    #[error("cannot compress a block of {bytes} bytes with {codec}: {reason}")]
    Compress {
        /// The codec's name.
        codec: &'static str,
        /// The size of the block.
        bytes: usize,
        /// What the library said.
        reason: String,
    },
    /// There is no such dictionary.
    #[error("no zstd dictionary: {reason}")]
    Dictionary {
        /// Why not.
        reason: String,
    },
    /// A chunk of a stream is not what it should be.
    #[error("the chunk at byte {at}: {reason}")]
    Frame {
        /// Where it begins.
        at: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The block in a chunk of a stream is damaged.
    #[error("the chunk at byte {at}: {source}")]
    Chunk {
        /// Where it begins.
        at: usize,
        /// What is wrong with the block.
        source: Box<Self>,
    },
    /// Blocks declare more bytes than the caller allows.
    #[error("compressed bytes declare {declared} bytes; at most {limit} are allowed")]
    TooLarge {
        /// What it declares.
        declared: u64,
        /// What is allowed.
        limit: usize,
    },
}
