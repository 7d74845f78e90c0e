//! What an operator says that finds no room on the disk for rows that do not fit in memory.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use crate::error::{Error, ErrorKind};
use crate::sources::files::system_reason;

/// `error`, with who spilled and where, if it is that of a full disk, a quota or a file that may not grow.
pub(super) fn explained(error: DataFusionError, operator: &str, directory: &Path) -> DataFusionError {
    let Some(full) = full(&error) else { return error };
    let reason = system_reason(full);
    let message = format!("{operator} cannot spill to '{}': {reason}", directory.display());
    let explained = Error::new(ErrorKind::Io, message)
        .with_hint("free space there, spill elsewhere (--temp-directory), or raise keirin.memory_limit");
    DataFusionError::External(Box::new(explained))
}

/// The system's error that is the cause of `error`, if it is about room.
fn full<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e io::Error> {
    if let Some(error) = error.downcast_ref::<DataFusionError>() {
        return match error {
            DataFusionError::IoError(error) => full(error),
            DataFusionError::ArrowError(error, _) => full(error.as_ref()),
            DataFusionError::External(error) => full(error.as_ref()),
            DataFusionError::Context(_, error) => full(error.as_ref()),
            DataFusionError::Shared(error) => full(error.as_ref()),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<ArrowError>() {
        return match error {
            ArrowError::IoError(_, error) => full(error),
            ArrowError::ExternalError(error) => full(error.as_ref()),
            _ => None,
        };
    }
    let error = error.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some(error)
        }
        _ => full(error.get_ref()?),
    }
}
