//! What has rows: tables, files, and the catalogue that names them.

pub(crate) mod catalog;
pub(crate) mod experience;
pub(crate) mod files;
pub(crate) mod given;
pub(crate) mod leaf;
pub(crate) mod narrowing;
pub(crate) mod remote;
pub(crate) mod runs;
pub(crate) mod stored;
pub mod tpch;
