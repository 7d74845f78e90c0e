//! Rows from parts: which are read, what storage answers on encoded blocks, and blocks that are kept.

pub(crate) mod aggregate;
pub(crate) mod ahead;
pub(crate) mod blocks;
pub(crate) mod clusters;
pub(crate) mod encoded;
pub(crate) mod excluded;
pub(crate) mod filter;
pub(crate) mod grouped;
pub(crate) mod lengths;
pub(crate) mod prune;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod worker;
