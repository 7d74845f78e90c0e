//! Values as bytes, and bytes that nobody can trust as values.
//!
//! An encoding keeps a column of one type in fewer bytes in a way that decodes at many GB/s and can be asked
//! questions without being decoded. Encodings lie inside each other: the codes of a dictionary are packed
//! bits, the deltas of a timestamp are runs. [`integers::encode`] chooses by size and speed of decoding what
//! a [`Goal`] asks for, and [`integers::Column`] reads what was chosen.
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
//! | [`flags`] | booleans, and which rows have a value |
//! | [`floats`] | floats of 32 and 64 bits, to the bit |
//! | [`frame`] | blocks as they are stored, with a checksum |
//! | [`integers`] | whole numbers of 8 to 128 bits |
//! | [`strings`] | text, or any bytes |
//!
//! Bytes are hostile: opening checks counts and places before memory is asked for, and what only decoding can
//! find (a code that the dictionary lacks) is an error there. The count of rows is the caller's: check it
//! against what you are willing to hold before you open. Whatever the bytes, the answer is an error or has
//! as many rows as were asked for.

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
