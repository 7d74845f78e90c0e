//! What is said of tables on disk, and what is done for them: system tables, `inspect`, damage, upkeep.

pub(crate) mod damage;
pub(crate) mod details;
pub(crate) mod inspect;
pub(crate) mod system;
pub(crate) mod upkeep;
