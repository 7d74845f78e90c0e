//! Native tables: what `keirin-storage` keeps on disk, as DataFusion sees it.
//!
//! Arrow's types and storage's meet here alone.

mod aggregate;
mod ahead;
mod arrow;
mod blocks;
mod catalog;
mod damage;
mod definition;
mod details;
mod encoded;
mod excluded;
mod grouped;
mod inspect;
mod lengths;
mod open;
#[cfg(test)]
mod oracle;
mod partitions;
mod prune;
mod read;
mod remote;
mod scan;
mod store;
mod system;
mod table;
#[cfg(test)]
#[allow(dead_code, reason = "each test uses its part")]
mod testing;
mod types;
mod upkeep;
mod write;

pub(crate) use aggregate::{AggregateStored, over_input};
pub(crate) use arrow::{column, storable};
pub(crate) use blocks::BlockCache;
pub(crate) use catalog::{StoredCatalog, drop_named, names_in, set_view};
pub(crate) use damage::{damage_batch, known_damage};
pub(crate) use definition::{
    CODEC, COLLATION, COMMENT, DEFAULT, check_codec, create_table_sql, define, field_named, number_next,
    sort_keys,
};
pub(crate) use grouped::GroupStored;
pub(crate) use inspect::Inspect;
pub(crate) use keirin_storage::schema::INITIAL;
pub(crate) use lengths::TextLengths;
pub(crate) use partitions::{PARTITION, Partitions, partition_columns, with_renamed};
pub(crate) use read::is_dynamic;
pub(crate) use remote::CacheOptions;
pub(crate) use scan::{Step as ScanStep, StoredScan, Worker as ScanWorker, blocking_step};
pub(crate) use store::{Store, write_options};
pub(crate) use system::system_tables;
pub(crate) use table::{ROW_NUMBER, StoredTable};
pub(crate) use types::{arrow_schema, arrow_type, stored_field};
pub(crate) use write::{
    PartsWriter, Place, Target, Threads, WriteExec, add_in_order, check_unchanged, remove_all, sole,
    write_stream,
};

pub(crate) use crate::work::blocking;
