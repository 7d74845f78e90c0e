//! Benchmark suites of the hot loops: our variants, the race among them, and the best libraries, in one
//! process, interleaved, answers compared.
//!
//! A suite is a function that adds cases to a [`Report`]; a case is a list of [`Lane`]s that do the same
//! work. `duel.rs` says how it is timed.

#![forbid(unsafe_code)]

mod corpora;
mod duel;
mod geomean;
mod suites;

pub use duel::{Lane, Report, Unit};
pub use suites::{SUITES, Suite};
