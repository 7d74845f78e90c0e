//! Sorting rows by several keys.
//!
//! The plain version compares rows key by key, with a call and several branches for each comparison. Here
//! rows are sorted as plain numbers instead:
//!
//! 1. From each row's keys the most significant bits are packed into one `u64`: a number is taken as the
//!    distance from the smallest of its column, so it needs few bits; a text gives its bytes after the
//!    prefix that all rows share. The row's place fills the low bits, which makes the sort stable.
//! 2. The packed numbers are sorted, by radix or by comparison ([`Method`]; which is faster depends on how
//!    many bits differ and on the order that is already there).
//! 3. Runs of rows whose packed keys are equal, although keys were cut off, are sorted by themselves in the
//!    same way: among them the ranges are narrower, the shared prefixes longer.
//!
//! Packed, order-preserving key prefixes come from AlphaSort (Nyberg and others, SIGMOD 1994, section 3);
//! because each run gets its own ranges and prefixes, one word is enough.

mod key;
mod packed;
mod radix;

pub use key::{Key, Values};
pub use packed::{Method, sort_rows, sort_rows_while};
