//! The subcommands of `keirin`.

pub(crate) mod demo;
pub(crate) mod inspect;
pub(crate) mod sql;
