//! What is right: naive oracles, data makers, the SQL text test runner, the way to the test data.
//!
//! This crate knows none of ours, so that every crate may use it in its tests: whoever wants to run SQL
//! texts implements `slt::Connection`. Without the feature `sql` it needs no other crate.

#![forbid(unsafe_code)]

pub mod columns;
#[cfg(feature = "data")]
pub mod data;
pub mod oracle;
#[cfg(feature = "sql")]
pub mod results;
#[cfg(feature = "sql")]
pub mod slt;
