//! What is right: the SQL text test runner, equality of results, and the way to the test data.
//!
//! This crate knows none of ours, so that every crate may use it in its tests: whoever wants to run SQL
//! texts implements [`slt::Connection`].

#![forbid(unsafe_code)]

pub mod data;
pub mod results;
pub mod slt;
