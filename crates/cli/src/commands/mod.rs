//! What `keirin` can be told to do.

pub(crate) mod demo;
pub(crate) mod inspect;
pub(crate) mod sql;
