//! `COPY ... TO 'file'`: the file has all of the answer, or does not exist.
//!
//! A blocking thread encodes and writes while the query continues; the file's `Place` stays with the query,
//! so that cancelling it removes the file at once.

use std::fs::File;

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;

use super::{BatchWriter, NewFile, OutputFormat, WriteOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::work::{blocking, feed};
use crate::sources::files::{OptionValue, Options, local_path};
use crate::sources::remote::without_secrets;

/// Writes the rows of `stream` to the file at `path` and returns their number. Without `format` the extension
/// of `path` decides.
///
/// # Errors
/// The stream's; [`ErrorKind::Io`] when the file cannot be written, with its name;
/// [`ErrorKind::Invalid`] for options that do not exist or fit.
pub(crate) async fn copy_to_file(
    stream: SendableRecordBatchStream,
    path: &str,
    format: Option<OutputFormat>,
    options: &[(String, OptionValue)],
) -> Result<u64> {
    let format = format.or_else(|| OutputFormat::from_path(path)).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("cannot tell the format of '{}'", without_secrets(path)))
            .with_hint("name it: COPY ... TO 'file' (FORMAT parquet), or csv, tsv, json, jsonl, arrow")
    })?;
    let owner = format!("COPY TO {format}");
    let mut taken = Options::new(&owner, options)?;
    let overwrite = taken.boolean(&["overwrite", "overwrite_or_ignore"])?.unwrap_or(true);
    let write_options = WriteOptions::for_path(path).take(format, &mut taken)?;
    taken.finish()?;

    let (schema, name) = (stream.schema(), path.to_owned());
    let target = local_path(path)?;
    // The place stays in this future: cancelling drops it, which removes the file at once.
    let (file, place) = blocking(move || NewFile::create(target, overwrite)).await?.into_parts();
    let is_synced = place.is_some();
    let begin = move || {
        let writer = BatchWriter::new(format, schema, &write_options, file);
        let writer = writer.map_err(|error| named(error, &name))?;
        Ok(Copying { writer, row_count: 0, name })
    };
    let written = feed(stream, blocking(begin).await?, Copying::write).await?;
    let row_count = written.row_count;
    blocking(move || written.finish(is_synced)).await?;
    if let Some(place) = place {
        place.take()?;
    }
    Ok(row_count)
}

/// A file being written.
struct Copying {
    writer: BatchWriter<File>,
    row_count: u64,
    name: String,
}

impl Copying {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.row_count += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|error| named(error, &self.name))
    }

    /// Writes the rest; if `is_synced`, also to disk.
    fn finish(self, is_synced: bool) -> Result<()> {
        let written = self.writer.finish().and_then(|file| match is_synced {
            true => file.sync_all().map_err(|error| super::write_failed(&error)),
            false => Ok(()),
        });
        written.map_err(|error| named(error, &self.name))
    }
}

/// Adds the name of the file to an error.
fn named(error: Error, name: &str) -> Error {
    let reason = error.message().strip_prefix("cannot write: ").unwrap_or(error.message());
    Error::new(error.kind(), format!("cannot write file '{name}': {reason}"))
}
