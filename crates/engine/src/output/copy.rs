//! `COPY ... TO 'file'`: all of the answer in the file, or no file at all.
//!
//! The answer goes to a temporary file beside the target, is synced, and takes the target's name by an atomic
//! rename. Errors and cancellation remove the temporary file; what stood under the name before stays until the
//! rename.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tempfile::NamedTempFile;
use tokio::sync::mpsc;

use super::{BatchWriter, OutputFormat, WriteOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{OptionValue, Options, io_failed, local_path};

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
    let target = {
        let name = name.clone();
        tokio::task::spawn_blocking(move || Target::new(&name, overwrite)).await
    };
    let target = target.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
    // The name of the temporary file stays here: cancelling drops this future, and the file with it, at once.
    let (file, place) = match target {
        Target::File { path, temporary } => {
            let (file, temporary) = temporary.into_parts();
            (file, Some((path, temporary)))
        }
        Target::Stream { file } => (file, None),
    };
    let is_synced = place.is_some();
    let writer_name = name.clone();
    let writer = tokio::task::spawn_blocking(move || {
        let written = write_all(format, schema, &write_options, receiver, file).and_then(|file| {
            if is_synced { file.sync_all().map_err(|error| super::write_failed(&error)) } else { Ok(()) }
        });
        written.map_err(|error| named(error, &writer_name))
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
            if let Some((path, temporary)) = place {
                temporary.persist(&path).map_err(|error| io_failed("write", &name, &error.error))?;
                sync_directory(directory_of(&path));
            }
            Ok(rows)
        }
    }
}

/// Where the bytes go.
enum Target {
    /// A regular file, or nothing yet: replaced as a whole.
    File { path: PathBuf, temporary: NamedTempFile },
    /// A pipe or device: written as it comes.
    Stream { file: File },
}

impl Target {
    fn new(name: &str, overwrite: bool) -> Result<Self> {
        let mut path = PathBuf::from(local_path(name)?);
        let existing = fs::metadata(&path).ok();
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("cannot write to '{name}': it is a directory"),
                ));
            }
            // Names such as /dev/stdout lead to whatever is open there, which is written to, never replaced.
            let is_descriptor = path.starts_with("/dev") || path.starts_with("/proc");
            if !existing.is_file() || is_descriptor {
                let file = File::options().append(true).open(&path);
                let file = file.map_err(|error| io_failed("write", name, &error))?;
                return Ok(Self::Stream { file });
            }
            if !overwrite {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("file '{name}' exists"))
                    .with_hint("overwrite = true replaces it"));
            }
            // Behind a symbolic link the file itself is replaced, not the link.
            path = fs::canonicalize(&path).map_err(|error| io_failed("write", name, &error))?;
        }
        let Some(file_name) = path.file_name() else {
            return Err(Error::new(ErrorKind::Invalid, format!("'{name}' names no file")));
        };
        if !directory_of(&path).is_dir() {
            let directory = directory_of(&path).display().to_string();
            return Err(Error::new(ErrorKind::NotFound, format!("cannot write file '{name}'"))
                .with_detail(format!("directory '{directory}' does not exist")));
        }
        let prefix = format!(".{}.keirin-tmp-", file_name.to_string_lossy());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        let permissions = existing.map(|existing| existing.permissions());
        #[cfg(unix)]
        let permissions = permissions.or_else(|| {
            // What any new file gets; the umask takes its share.
            Some(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        });
        if let Some(permissions) = permissions {
            builder.permissions(permissions);
        }
        let temporary =
            builder.tempfile_in(directory_of(&path)).map_err(|error| io_failed("write", name, &error))?;
        Ok(Self::File { path, temporary })
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

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the rename last. Some file systems cannot sync a directory; the file itself is safe by then.
fn sync_directory(directory: &Path) {
    if let Ok(directory) = File::open(directory) {
        let _ = directory.sync_all();
    }
}
