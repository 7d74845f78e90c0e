//! Loops that decode columns: sums of differences, runs, floats from integers, text from symbols.
//!
//! A column is decoded a block at a time, which stays in the first-level cache from one loop to the next. So
//! these loops are bound by instructions, not by memory, and depend on the vector instructions for which they
//! are compiled.

mod differences;
mod floats;
mod runs;
mod symbols;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use differences::prefix_sums;
pub use floats::{Decimal, Halves, decimals_to_floats, join_halves};
pub use runs::expand_runs;
pub use symbols::{SYMBOL_BYTES, Symbols, decode_symbols};
