//! What can go wrong with a block.

use keirin_kernels::lz::DecodeError;

/// A block could not be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not valid for the codec. The output is all zeros.
    #[error("damaged {codec} block: {source}")]
    Damaged {
        /// The codec's name.
        codec: &'static str,
        /// What is wrong, and at which byte.
        source: DecodeError,
    },
    /// ZSTD refused the bytes. The output is all zeros.
    #[error("damaged zstd block: {0}")]
    Zstd(std::io::Error),
    /// An uncompressed block has another size than was declared.
    #[error("a block of {declared} bytes that is not compressed has {stored} bytes")]
    Size {
        /// The size of the output.
        declared: usize,
        /// The size of the block.
        stored: usize,
    },
    /// A library failed to compress.
    #[error("cannot compress a block of {bytes} bytes with {codec}: {reason}")]
    Compress {
        /// The codec's name.
        codec: &'static str,
        /// The size of the block.
        bytes: usize,
        /// The library's reason.
        reason: String,
    },
    /// The dictionary cannot be made or used.
    #[error("no zstd dictionary: {reason}")]
    Dictionary {
        /// Why not.
        reason: String,
    },
    /// A chunk of a stream is malformed.
    #[error("the chunk at byte {at}: {reason}")]
    Frame {
        /// The position of the chunk.
        at: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The block in a chunk of a stream is damaged.
    #[error("the chunk at byte {at}: {source}")]
    Chunk {
        /// The position of the chunk.
        at: usize,
        /// What is wrong with the block.
        source: Box<Self>,
    },
    /// Blocks declare more bytes than the caller allows.
    #[error("compressed bytes declare {declared} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The declared bytes.
        declared: u64,
        /// The allowed bytes.
        limit: usize,
    },
}
