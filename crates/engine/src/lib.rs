//! Keirin: an analytical SQL engine in a library.
//!
//! Files are tables, answers are Arrow batches, nothing needs to be set up:
//!
//! ```
//! # fn main() -> keirin::Result<()> {
//! let database = keirin::Database::in_memory()?;
//! let session = database.session();
//! let batches = database.block_on(async {
//!     session.sql("SELECT 6 * 7 AS answer").await?.collect().await
//! })?;
//! assert_eq!(batches[0].num_rows(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! The modules, in the order in which a query meets them: [`Database`] owns memory, threads and the
//! catalogue; a [`Session`] parses text into [`Statement`]s, resolves files to tables, binds
//! [`Parameters`], plans with DataFusion and hands back a [`ResultStream`].
//!
//! Promises: a dropped stream stops its query; memory stays under `keirin.memory_limit`, spilling to
//! a temporary directory that is removed; an [`Error`] names what was wrong and what to do.
//!
//! State that is global to the process: the list of temporary files ([`remove_temporary_files`]); on Linux a
//! handler of SIGBUS, installed when a file of a database directory is first mapped, which passes on signals
//! that are not its own and which [`DatabaseBuilder::memory_maps`] can prevent; and, only if a program asks
//! for it, a panic hook ([`hide_caught_panics`]).

#![forbid(unsafe_code)]

mod database;
mod memory;
mod pool;
mod process;
mod temporary;
mod work;

mod guard;
mod running;
mod session;
mod settings;

mod alterations;
mod arithmetic;
mod as_of;
mod bind;
mod casts;
mod column_names;
mod compact;
mod conditions;
mod depth;
mod dialect;
pub mod display;
mod fast_path;
mod functions;
mod grouping;
mod join;
mod numbers;
mod parameters;
mod parser;
mod plan_cache;
mod prepared;
mod refused;
mod relations;
mod rules;
mod sorting;
mod table_clauses;
mod text;
mod tokens;
mod walk;
mod windows;

mod catalog;
mod files;
mod in_order;
mod leaf;
mod output;
mod sql_types;
mod statements;
mod stored;
mod types;
mod uuids;

mod progress;
mod stream;
mod subplans;
pub mod tpch;

mod error;
mod explain_error;

pub use arrow;
pub use database::{Database, DatabaseBuilder};
pub use error::{Error, ErrorKind, Result};
pub use files::hide_caught_panics;
pub use output::{BatchWriter, NewFile, OutputCompression, OutputFormat, WriteOptions};
pub use parameters::{Parameters, Value};
pub use parser::{Statement, is_complete, parse};
pub use progress::Progress;
pub use session::Session;
pub use stream::{ResultStream, StatementKind};
pub use temporary::{NoTemporaryFiles, remove_temporary_files};
pub use types::sql_type_name;
