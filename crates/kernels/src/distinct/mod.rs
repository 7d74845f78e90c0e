//! The count of distinct keys, estimated in 16 KiB.

#![allow(clippy::cast_possible_truncation, reason = "ranks of bits fit in a byte")]

mod hyperloglog;

pub use hyperloglog::{HyperLogLog, estimate};
