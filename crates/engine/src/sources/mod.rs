//! What has rows: tables on disk, files, tables in memory, and the catalogue that names them.

pub(crate) mod catalog;
pub(crate) mod files;
pub(crate) mod leaf;
pub(crate) mod stored;
pub mod tpch;
