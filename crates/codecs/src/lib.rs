//! Encodes values as bytes, and decodes untrusted bytes.
//!
//! An encoding stores a column of one type in fewer bytes, decodes at many GB/s, and can compute predicates
//! without decoding. Encodings can be nested: the codes of a dictionary are packed bits, the deltas of a
//! timestamp are runs. [`integers::encode`] chooses by size and decoding speed according to a [`Goal`], and
//! [`integers::Column`] reads the result.
//!
//! ```
//! use keirin_codecs::{Goal, integers};
//! use keirin_kernels::Level;
//!
//! let (level, years) = (Level::best(), [2019_i32, 2020, 2020, 2021, 2019].repeat(100));
//! let bytes = integers::encode(level, Goal::Balanced, &years)?;
//! let column = integers::Column::<i32>::open(level, &bytes, years.len())?;
//! assert_eq!(column.decode(level)?, years);
//! assert_eq!(column.explain(), "bitpack(2)");
//! # Ok::<(), keirin_codecs::Error>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`blocks`] | bytes compressed by LZ4, Snappy, ZSTD |
//! | [`flags`] | booleans, and validity bitmaps |
//! | [`floats`] | floats of 32 and 64 bits; all bits are kept |
//! | [`frame`] | blocks as they are stored, with a checksum |
//! | [`integers`] | whole numbers of 8 to 128 bits |
//! | [`strings`] | text, or any bytes |
//!
//! Bytes may be hostile: opening checks counts and positions before it allocates memory, and faults that only
//! decoding can find (a code without an entry in the dictionary) are errors there. The caller provides the
//! row count: check it against your memory before you open. Whatever the bytes are, the result is an error or
//! has the requested number of rows.

#![forbid(unsafe_code)]

pub mod blocks;
mod encodings;
mod error;
mod explain;
pub mod frame;
mod goal;
mod judge;
mod plan;
mod reader;
mod writer;

pub use encodings::{flags, floats, integers, strings};
pub use error::{Error, Result};
pub use goal::{Choice, Clock, Goal};
pub use plan::Plan;
