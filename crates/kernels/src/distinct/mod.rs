//! The count of distinct keys: exactly, in a set, or estimated, in 16 KiB.

#![allow(clippy::cast_possible_truncation, reason = "ranks of bits fit in a byte, keys in their own width")]

mod hyperloglog;
mod set;

pub use hyperloglog::{HyperLogLog, SketchError, estimate};
pub use set::DistinctSet;
