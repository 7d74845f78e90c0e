//! Tables on disk: immutable parts of columns, a log of commits, and recovery that serves what is whole.
//!
//! `docs/format/` has the bytes. Nothing here knows SQL, Arrow or DataFusion: columns are slices of values.
//!
//! ```
//! use std::sync::Arc;
//! use keirin_storage::column::{Column, Values};
//! use keirin_storage::io::Disk;
//! use keirin_storage::part::WriteOptions;
//! use keirin_storage::schema::{DataType, Definition};
//! use keirin_storage::{Access, Database, Options};
//!
//! # let directory = tempfile::tempdir()?;
//! let disk = Arc::new(Disk::create(&directory.path().join("mydb"))?);
//! let database = Database::open(disk, Access::Write, Options::default())?;
//! let mut transaction = database.begin()?;
//! let table = transaction.create_table(Definition::new("main", "trips", vec![("year", DataType::I32)]))?;
//! let mut writer = transaction.write_part(table, WriteOptions::default())?;
//! writer.push(&[Column { validity: None, values: Values::I32(vec![2019, 2020].into()) }])?;
//! transaction.add_part(table, writer.finish()?)?;
//! transaction.commit()?;
//!
//! let snapshot = database.snapshot();
//! assert_eq!(snapshot.table_named("main", "trips").map(|table| table.row_count()), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`schema`] | tables, columns and types |
//! | [`mod@column`], [`buffer`] | values in memory |
//! | [`part`] | rows in files: stripes, blocks, statistics |
//! | [`io`] | the file system behind a trait |
//!
//! A [`Database`] gives [`Snapshot`]s to read and [`Transaction`]s to write. Unsorted rows are sorted in [`Run`]s.
//! [`Database::insert`] commits small inserts together; [`Database::maintain`] does the background work;
//! [`Transaction::repair_part`] and [`Database::repair_log`] save what is whole.
//!
//! Bytes from disk are not trusted: they are checked against checksums, limits and each other before memory is
//! allocated, and an error names the file, table, part, column and block that is damaged.

// Denied rather than forbidden because of `io/map.rs`.
#![deny(unsafe_code)]

mod bits;
pub mod buffer;
mod cancel;
mod checking;
pub mod column;
mod compaction;
mod database;
mod deletions;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header;
mod history;
mod inserts;
pub mod io;
mod log;
mod maintenance;
mod marker;
mod merge;
mod opening;
pub mod part;
mod races;
mod removal;
mod repair;
mod run;
pub mod schema;
#[cfg(any(test, feature = "fuzzing"))]
mod simulated_disk;
mod snapshot;
mod sort;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod tiers;
mod transaction;
mod unsynced;
mod usage;
mod view;
mod wire;

pub use cancel::Cancel;
pub use database::{Access, Database, Options};
pub use deletions::DeletionVector;
pub use error::{Damage, Error, Result};
pub use history::{Changes, Commit};
pub use inserts::PartitionedRows;
pub use maintenance::Merge;
pub use repair::RepairLoss;
pub use run::Run;
pub use snapshot::Snapshot;
pub use state::{Deletions, MAIN_SCHEMA, Part, State, Table};
pub use transaction::Transaction;
pub use usage::{FileUse, Space};
pub use view::View;
