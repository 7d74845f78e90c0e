//! Blocks of bytes, compressed and back.
//!
//! A [`Codec`] compresses a block; a [`Decoder`] decompresses the blocks of one stream, such as the pages of
//! a column, many at a time. The libraries of the formats' authors compress. LZ4 and Snappy are decoded by
//! our own loops, of which there are several: they race, and the one that is fastest on this CPU for this
//! stream does most of the work. No bytes make a decoder read or write outside of its buffers, or allocate,
//! but for checks of some blocks of at most 16 MiB: the caller provides the output, with exactly the size that was declared and that the caller allows.
//!
//! ```
//! use keirin_codecs::blocks::{Codec, Decoder};
//! use keirin_race::Races;
//!
//! let page = b"the same again, the same again, the same again".repeat(100);
//! let stored = Codec::Lz4.compress(&page)?;
//! assert!(stored.len() < page.len() / 10);
//!
//! let decoder = Decoder::new(Codec::Lz4, &Races::default(), "trips.vendor", &stored);
//! let mut output = vec![0; page.len()];
//! decoder.decompress(&stored, &mut output)?;
//! assert_eq!(output, page);
//! # Ok::<(), keirin_codecs::blocks::Error>(())
//! ```
//!
//! | codec | good for | not for |
//! |---|---|---|
//! | `None` | bytes that do not compress | all else |
//! | `Lz4` | hot data: 4 to 10 GB/s a core | the smallest size |
//! | `Lz4Hc` | data written once: smaller and still faster to decode, slow to write | data that changes |
//! | `Snappy` | Parquet files for others | ours: LZ4 is smaller and faster |
//! | `Zstd` | cold data: the smallest size, 1 to 2 GB/s | what every query reads |
//!
//! A [`Dictionary`] holds the common parts of small blocks, for ZSTD. [`snappy_frames`] reads and writes
//! Snappy's format for streams.

mod checked;
mod codec;
mod decoder;
mod dictionary;
mod error;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
pub mod snappy_frames;
mod tally;

pub use codec::Codec;
pub use decoder::{Decoder, Stream, racing_kernels};
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionary};
pub use error::Error;
pub use tally::{Decoded, Tally};
