//! `COPY ... TO 'file'`: all of the answer in the file, or no file at all.
//!
//! A thread of its own encodes and writes while the query goes on; the file's name stays with the query, so that
//! cancelling it removes the file at once.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::sync::mpsc;

use super::{BatchWriter, NewFile, OutputFormat, WriteOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{OptionValue, Options, local_path};

/// Batches that wait while the file is written.
const BATCHES_AHEAD: usize = 2;

enum Message {
    Batch(RecordBatch),
    /// The answer is complete. A channel that closes without it means failure or cancellation.
    End,
}

/// Writes what `stream` gives to the file at `path` and tells how many rows that were. The format is `format` or
/// what the extension of `path` tells.
///
/// # Errors
/// What the stream says; [`ErrorKind::Io`] when the file cannot be written, with its name;
/// [`ErrorKind::Invalid`] for options that do not exist or fit.
pub(crate) async fn copy_to_file(
    mut stream: SendableRecordBatchStream,
    path: &str,
    format: Option<OutputFormat>,
    options: &[(String, OptionValue)],
) -> Result<u64> {
    let format = format.or_else(|| OutputFormat::from_path(path)).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("cannot tell the format of '{path}'"))
            .with_hint("name it: COPY ... TO 'file' (FORMAT parquet), or csv, tsv, json, jsonl, arrow")
    })?;
    let owner = format!("COPY TO {format}");
    let mut taken = Options::new(&owner, options)?;
    let overwrite = taken.boolean(&["overwrite", "overwrite_or_ignore"])?.unwrap_or(true);
    let write_options = WriteOptions::for_path(path).take(format, &mut taken)?;
    taken.finish()?;

    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let (schema, name) = (stream.schema(), path.to_owned());
    let target = local_path(path)?;
    let made = tokio::task::spawn_blocking(move || NewFile::create(target, overwrite)).await;
    let made = made.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
    // The place stays here: cancelling drops this future, and the file with it, at once.
    let (file, place) = made.into_parts();
    let is_synced = place.is_some();
    let writer = tokio::task::spawn_blocking(move || {
        let written = write_all(format, schema, &write_options, receiver, file).and_then(|file| {
            if is_synced { file.sync_all().map_err(|error| super::write_failed(&error)) } else { Ok(()) }
        });
        written.map_err(|error| named(error, &name))
    });
    let mut rows = 0;
    let mut failure = None;
    loop {
        let message = match stream.next().await {
            Some(Ok(batch)) => {
                rows += batch.num_rows() as u64;
                Message::Batch(batch)
            }
            Some(Err(error)) => {
                failure = Some(error.into());
                break;
            }
            None => Message::End,
        };
        let last = matches!(message, Message::End);
        // The writer hangs up when it has failed; it says why below.
        if sender.send(message).await.is_err() || last {
            break;
        }
    }
    drop(sender);
    let written = writer.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    match (failure, written) {
        (Some(error), _) | (None, Err(error)) => Err(error),
        (None, Ok(())) => {
            if let Some(place) = place {
                place.take()?;
            }
            Ok(rows)
        }
    }
}

fn write_all<W: Write + Send>(
    format: OutputFormat,
    schema: SchemaRef,
    options: &WriteOptions,
    mut batches: mpsc::Receiver<Message>,
    sink: W,
) -> Result<W> {
    let mut writer = BatchWriter::new(format, schema, options, sink)?;
    loop {
        match batches.blocking_recv() {
            Some(Message::Batch(batch)) => writer.write(&batch)?,
            Some(Message::End) => return writer.finish(),
            None => return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled")),
        }
    }
}

/// Adds which file it is about.
fn named(error: Error, name: &str) -> Error {
    if error.kind() == ErrorKind::Cancelled {
        return error;
    }
    let reason = error.message().strip_prefix("cannot write: ").unwrap_or(error.message());
    Error::new(error.kind(), format!("cannot write file '{name}': {reason}"))
}
