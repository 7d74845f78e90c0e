//! What real data says: tests that run where `KEIRIN_DATA` is, and say so where it is not.
//!
//! One program for all of them, because linking DataFusion takes longer than most of them run.

#[path = "../common/mod.rs"]
mod common;

mod clickbench;
mod hostile;
mod parquet;
mod sqlite;
mod tables;
