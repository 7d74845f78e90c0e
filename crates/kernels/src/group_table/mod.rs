//! Grouping: maps keys to dense group numbers.
//!
//! | the keys | use |
//! |---|---|
//! | integers of a known small range, dictionary codes | [`DenseTable`]: an array, no hash |
//! | integers of 1-16 bytes; several columns packed into one ([`pack_keys`]) | [`GroupTable`] |
//! | strings; rows encoded as bytes | [`StringGroupTable`] |
//!
//! A table gives each new key the next number, so aggregate states are plain vectors indexed by group. Tables
//! begin small and grow with the groups; no estimate is needed. With several threads each thread has a table;
//! then for each partition of the hash space (the highest bits of the hash, [`partition_rows`]) one thread groups
//! the keys of all tables ([`GroupTable::for_partition`]): without locks, and each partition fits the L2 cache. If
//! there are few rows per group, rows are better partitioned first.

#![allow(
    clippy::cast_possible_truncation,
    reason = "hashes are cut to indices; group and row numbers have 32 bits by assertion"
)]

mod dense;
mod pack;
mod partition;
mod slots;
mod strings;
mod table;
mod views;

pub use dense::DenseTable;
pub use pack::{Fold, KeyColumn, KeyValues, fold_keys, pack_keys, packed_bytes};
pub use partition::{PartitionedRows, partition_rows};
pub(crate) use slots::{BLOCK_ROWS, Slot, Slots, Ticket};
pub use strings::StringGroupTable;
pub use table::GroupTable;
pub use views::Repeated;

/// The group number of a key that is not in the table.
pub const NO_GROUP: u32 = u32::MAX;
