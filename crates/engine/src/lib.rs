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
mod session;
mod settings;

mod bind;
mod compile;
mod expressions;
mod runtime;
mod sources;
mod sql;
mod statements;

mod compact;
pub mod display;
mod error;
mod explain_error;
mod types;

pub use arrow;
pub use bind::parameters::{Parameters, Value};
pub use database::{Database, DatabaseBuilder};
pub use error::{Error, ErrorKind, Result};
pub use runtime::progress::Progress;
pub use runtime::stream::{ResultStream, StatementKind};
pub use runtime::temporary::{NoTemporaryFiles, remove_temporary_files};
pub use session::Session;
pub use sources::files::hide_caught_panics;
pub use sources::tpch;
pub use sql::parser::{Statement, is_complete, parse};
pub use statements::output::{BatchWriter, NewFile, OutputCompression, OutputFormat, WriteOptions};
pub use types::sql_type_name;
