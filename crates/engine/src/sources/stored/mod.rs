//! Native tables: what `keirin-storage` keeps on disk, as DataFusion sees it.
//!
//! Arrow's types and storage's meet here alone.

mod administration;
mod arrow;
mod catalog;
mod open;
#[cfg(test)]
mod oracle;
mod reading;
mod remote;
mod store;
mod table;
#[cfg(test)]
#[allow(dead_code, reason = "each test uses its part")]
mod testing;
mod types;
mod writing;

pub(crate) use administration::damage::{damage_batch, known_damage};
pub(crate) use administration::inspect::Inspect;
pub(crate) use administration::system::system_tables;
pub(crate) use arrow::{column, storable};
pub(crate) use catalog::{StoredCatalog, drop_named, names_in, set_view};
pub(crate) use keirin_storage::schema::INITIAL;
pub(crate) use reading::aggregate::{AggregateStored, over_input};
pub(crate) use reading::blocks::BlockCache;
pub(crate) use reading::clusters::Clusters;
pub(crate) use reading::filter::is_dynamic;
pub(crate) use reading::grouped::GroupStored;
pub(crate) use reading::lengths::TextLengths;
pub(crate) use reading::scan::StoredScan;
pub(crate) use reading::worker::{Step as ScanStep, Worker as ScanWorker, blocking_step};
pub(crate) use store::{Store, write_options};
pub(crate) use table::{ROW_NUMBER, StoredTable};
pub(crate) use types::{arrow_schema, arrow_type, stored_field};
pub(crate) use writing::definition::{
    CODEC, COLLATION, COMMENT, DEFAULT, check_codec, create_table_sql, define, field_named, number_next,
    sort_keys,
};
pub(crate) use writing::partitions::{PARTITION, Partitions, partition_columns, with_renamed};
pub(crate) use writing::write::{
    PartsWriter, Place, Target, Threads, WriteExec, add_in_order, check_unchanged, remove_all, sole,
    write_stream,
};

pub(crate) use crate::runtime::work::blocking;
