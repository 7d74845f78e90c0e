//! Rows to parts: the definition of tables, their partitions, and the operator that writes.

pub(crate) mod definition;
pub(crate) mod partitions;
pub(crate) mod write;
