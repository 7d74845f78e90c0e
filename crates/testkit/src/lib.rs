//! Test support: naive oracles, generators of data, the runner of SQL text tests, access to test data.
//!
//! This crate depends on none of ours, so that every crate may use it in its tests: to run SQL text tests,
//! implement `slt::Connection`. Without the feature `sql` it needs no other crate.

#![forbid(unsafe_code)]

pub mod columns;
#[cfg(feature = "data")]
pub mod data;
pub mod oracle;
#[cfg(feature = "sql")]
pub mod results;
#[cfg(feature = "sql")]
pub mod slt;
