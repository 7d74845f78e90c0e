//! Errors about files: each names the file as the user wrote it.

use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::parquet::WRONG_CHECKSUM;
use crate::error::{Error, ErrorKind, Result};

/// An error of the operating system: `cannot read file 'x': permission denied`.
pub(crate) fn io_failed(what: &str, name: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound if what != "write" => {
            Error::new(ErrorKind::NotFound, format!("no such file: '{name}'"))
        }
        // Decompressors and readers report damage by these kinds.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Data, format!("cannot {what} file '{name}': {error}"))
        }
        _ => Error::new(ErrorKind::Io, format!("cannot {what} file '{name}': {}", system_reason(error))),
    }
}

/// The system's reason as the end of a sentence: without "(os error 13)", in lower case.
pub(crate) fn system_reason(error: &io::Error) -> String {
    let text = match error.raw_os_error() {
        // A library that wrapped the error may have added a path, which we name ourselves.
        None if error.kind() == io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        None if error.kind() != io::ErrorKind::Other => error.kind().to_string(),
        _ => error.to_string(),
    };
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// The error of a damaged file: `cannot read 'x' as Parquet: the footer is damaged`.
pub(crate) fn damaged(name: &str, format: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, format!("cannot read file '{name}' as {format}: {reason}"))
}

/// The error of a file whose decoder panicked.
pub(crate) fn unexpected(name: &str, format: &str) -> Error {
    damaged(name, format, "it is damaged in a way that its decoder does not expect")
}

/// Keeps panics that are caught from being printed. Foreign decoders panic on some damaged bytes; the panic
/// becomes an error about the file, but Rust's panic hook prints a message all the same.
///
/// This replaces the panic hook of the process, once, by one that calls the previous hook for all other
/// panics. It happens only if a program calls this function.
pub fn hide_caught_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if CATCHING.get() == 0 {
                usual(panic);
            }
        }));
    });
}

/// Runs a decoder; `None` if it panics. Foreign decoders panic on some damaged bytes, which for users is one
/// more kind of damage in a file.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    CATCHING.set(CATCHING.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(CATCHING.get() - 1);
    outcome.ok()
}

thread_local! {
    /// How many calls of [`catch_panic`] enclose the current code of this thread.
    static CATCHING: Cell<u32> = const { Cell::new(0) };
}

/// [`catch_panic`] for one file.
pub(crate) fn guarded<T>(name: &str, format: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_panic(work).unwrap_or_else(|| Err(unexpected(name, format)))
}

/// Wraps an error to travel through DataFusion; it is found again as the external error.
pub(crate) fn into_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Names the file in an error that occurred while it was read.
///
/// Our own errors, and those that are not about the file (memory ran out, the query is wrong), pass
/// unchanged.
pub(crate) fn name_file(error: DataFusionError, name: &str, format: &str) -> DataFusionError {
    if is_ours(&error) || is_of_query(error.find_root()) {
        return error;
    }
    match error.find_root() {
        DataFusionError::ParquetError(_)
        | DataFusionError::ArrowError(..)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::IoError(_)
        | DataFusionError::External(_)
        | DataFusionError::Execution(_)
        | DataFusionError::Internal(_) => into_datafusion(damaged(name, format, reason(&error))),
        _ => error,
    }
}

/// Whether the error is of an expression of the query, which DataFusion's scan evaluates as well.
fn is_of_query(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::ArrowError(arrow, _) => {
            matches!(**arrow, ArrowError::DivideByZero | ArrowError::ArithmeticOverflow(_))
        }
        // The parquet crate keeps only the text of such an error.
        DataFusionError::ParquetError(parquet) => {
            parquet.to_string().contains("Error evaluating filter predicate")
        }
        _ => false,
    }
}

fn is_ours(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(inner) if inner.is::<Error>())
}

/// An [`Error`] from an error of DataFusion's readers while they open a file.
pub(crate) fn from_datafusion(error: DataFusionError, name: &str, format: &str) -> Error {
    if let DataFusionError::External(inner) = error.find_root()
        && let Some(ours) = inner.downcast_ref::<Error>()
    {
        return ours.clone();
    }
    damaged(name, format, reason(&error))
}

/// The innermost message, without the names of the layers it came through.
fn reason(error: &DataFusionError) -> String {
    let mut text = error.find_root().strip_backtrace();
    loop {
        let stripped = [
            "External error: ",
            "External: ",
            "Parquet error: ",
            "Arrow error: ",
            "Parquet argument error: ",
            "Object Store error: ",
            "Execution error: ",
            "IO error: ",
            "Ipc error: ",
            "Parser error: ",
            "EOF: ",
        ]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix));
        match stripped {
            Some(rest) => text = rest.to_owned(),
            None if text == "Page CRC checksum mismatch" => {
                return format!("a page: {WRONG_CHECKSUM}");
            }
            None => return text,
        }
    }
}
