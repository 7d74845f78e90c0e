//! Native tables: what `keirin-storage` keeps on disk, as DataFusion sees it.
//!
//! Arrow's types and storage's meet here alone.

#![allow(dead_code, unused_imports, reason = "the tables that use it follow")]

mod arrow;
#[cfg(test)]
mod testing;
mod types;

pub(crate) use arrow::{array, column, storable};
pub(crate) use types::{arrow_field, arrow_schema, arrow_type, stored_field};
