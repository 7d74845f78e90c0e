//! Errors about files: each names the file as the user wrote it.

use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Decimal256Type};
use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::parquet::WRONG_CHECKSUM;
use crate::error::{Error, ErrorKind, Result};

/// Fails when a file has decimals of more digits than it says: Arrow's casts rely on it, and panic.
pub(super) fn check_decimals(batch: &RecordBatch) -> Result<(), ArrowError> {
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        if let DataType::Decimal256(precision, _) = column.data_type() {
            let decimals = column.as_primitive::<Decimal256Type>();
            let wrong =
                |error| ArrowError::InvalidArgumentError(format!("column '{}': {error}", field.name()));
            decimals.validate_decimal_precision(*precision).map_err(wrong)?;
        }
    }
    Ok(())
}

/// The system refused something: `cannot read file 'x': permission denied`.
pub(crate) fn io_failed(what: &str, name: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound if what != "write" => {
            Error::new(ErrorKind::NotFound, format!("no such file: '{name}'"))
        }
        // Decompressors and readers report damage in this way.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Data, format!("cannot {what} file '{name}': {error}"))
        }
        _ => Error::new(ErrorKind::Io, format!("cannot {what} file '{name}': {}", system_reason(error))),
    }
}

/// The system's words as the end of a sentence: without "(os error 13)", in lower case.
pub(crate) fn system_reason(error: &io::Error) -> String {
    let text = match error.raw_os_error() {
        // Whoever wrapped the error may have added a path, which we name ourselves.
        None if error.kind() == io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        None if error.kind() != io::ErrorKind::Other => error.kind().to_string(),
        _ => error.to_string(),
    };
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// The bytes are not what they should be: `cannot read 'x' as Parquet: the footer is damaged`.
pub(crate) fn damaged(name: &str, format: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, format!("cannot read file '{name}' as {format}: {reason}"))
}

/// What a decoder's panic means.
pub(crate) fn unexpected(name: &str, format: &str) -> Error {
    damaged(name, format, "it is damaged in a way that its decoder does not expect")
}

/// Keeps panics that are caught from being printed. Decoders of others panic on some bytes that they did not
/// expect, which becomes an error about the file; Rust's panic hook prints a message all the same.
///
/// This replaces the panic hook of the process, once, by one that calls the hook before it for all other panics.
/// Nothing here does so unless a program asks for it.
pub fn hide_caught_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if SURVIVING.get() == 0 {
                usual(panic);
            }
        }));
    });
}

/// Runs a decoder. Decoders of others panic on some bytes that they did not expect; `None` says that this one
/// did: for our users that is one more kind of damage in a file.
pub(crate) fn survive<T>(work: impl FnOnce() -> T) -> Option<T> {
    SURVIVING.set(SURVIVING.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    SURVIVING.set(SURVIVING.get() - 1);
    outcome.ok()
}

thread_local! {
    /// Calls of [`survive`] that this thread is in.
    static SURVIVING: Cell<u32> = const { Cell::new(0) };
}

/// [`survive`] for one file.
pub(crate) fn guarded<T>(name: &str, format: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    survive(work).unwrap_or_else(|| Err(unexpected(name, format)))
}

/// Lets an error travel through DataFusion; whoever takes it from there finds it as the external error.
pub(crate) fn into_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Names the file in an error that reading it raised.
///
/// Errors that already are ours, and those that are not about the file (memory ran out, the query is
/// wrong), pass unchanged.
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

/// Whether an expression of the query failed, which DataFusion's scan runs, too.
fn is_of_query(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::ArrowError(arrow, _) => {
            matches!(**arrow, ArrowError::DivideByZero | ArrowError::ArithmeticOverflow(_))
        }
        // The parquet crate keeps nothing of such an error but its text.
        DataFusionError::ParquetError(parquet) => {
            parquet.to_string().contains("Error evaluating filter predicate")
        }
        _ => false,
    }
}

fn is_ours(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(inner) if inner.is::<Error>())
}

/// An [`Error`] from what DataFusion's readers raise while a file is opened.
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
