//! The hot loops: safe functions over slices and bitmaps.
//!
//! A kernel takes a [`Level`] (the level of the CPU), slices and numbers, and never returns an error:
//! preconditions are asserted. There is no I/O and no configuration here, Arrow only with the feature
//! `arrow`, and this crate is the only home of unsafe code.
//!
//! ```
//! use keirin_kernels::{Bits, Level};
//!
//! let valid = Bits::new(&[0b0000_1011], 0, 4);
//! assert_eq!(keirin_kernels::count_ones(Level::best(), valid), 3);
//! ```
//!
//! To add a kernel: write the loop once, plainly, `#[inline(always)]`, and pass it to the `kernel!` macro of
//! `dispatch.rs`, which compiles it for each level. Write intrinsics only when a benchmark shows the gain;
//! they are next to the plain loop and have the same signature, and `tests/` compares both with the naive
//! answer of the testkit at every level.
//!
//! | module | what |
//! |---|---|
//! | `arrow` | Arrow's arrays of text that was checked |
//! | [`aggregate`] | sum, count, smallest and largest of a column |
//! | [`allocator`] | memory that was freed, back to the system |
//! | [`bitmaps`] | combine bitmaps, turn them into row numbers and back |
//! | [`bitpack`] | integers of a few bits: pack, unpack, compare and sum without unpacking |
//! | [`bloom`] | reject keys before they are looked for |
//! | [`compact`] | keep the rows whose bit is set |
//! | [`compare`] | columns with constants, into bitmaps |
//! | [`decode`] | sums of differences, runs, floats from integers, text from symbols |
//! | [`distinct`] | about how many different keys |
//! | [`gather`] | take values by number |
//! | [`group_small`] | sums and counts by keys of 8 and 16 bits |
//! | [`group_table`] | from keys to group numbers; partitions |
//! | [`hash`] | hashes of rows |
//! | [`join_table`] | the build side of a join, made by several threads |
//! | [`json`] | the structure of JSON text |
//! | [`lz`] | LZ77 blocks: what the formats share |
//! | [`lz4`] | LZ4 blocks |
//! | [`map`] | files as memory |
//! | [`snappy`] | Snappy blocks |
//! | [`sort`] | sort rows by several keys, find the first few |
//! | [`text`] | search, equality, order, `LIKE` and case of text |
//!
//! Buffers need no padding: loops read whole vectors inside the slice and copy the tail to a buffer of their
//! own.

#![deny(unsafe_op_in_unsafe_fn)]

const _: () = assert!(usize::BITS == 64, "sums of lengths and of 32-bit offsets fit in a usize");

#[macro_use]
mod dispatch;
pub mod aggregate;
pub mod aligned;
pub mod allocator;
#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(feature = "bench")]
pub mod bench;
pub mod bitmaps;
pub mod bitpack;
mod bits;
pub mod bloom;
pub mod compact;
pub mod compare;
pub mod decode;
pub mod distinct;
pub mod gather;
pub mod group_small;
pub mod group_table;
pub mod hash;
pub mod join_table;
pub mod json;
pub mod lz;
pub mod lz4;
pub mod map;
mod region;
mod sealed;
mod selection;
pub mod snappy;
pub mod sort;
pub mod text;
mod walk;

pub use bits::{BitBuffer, Bits, count_ones};
pub use dispatch::{Level, UnknownLevel};
pub use selection::Selection;
