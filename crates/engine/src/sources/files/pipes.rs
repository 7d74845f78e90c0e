//! Pipes as files: `FROM '/dev/stdin'`, `FROM '/dev/fd/63'`.
//!
//! A file is read for its format and its types before the scan, perhaps by several threads; a pipe gives its
//! bytes only once. So a pipe is copied to a temporary file, which exists as long as something reads it.

use std::fs::{File, FileType};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::failure::io_failed;
use super::paths::DataFile;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of one read from a pipe; Linux returns no more at once.
const READ_BYTES: usize = 64 << 10;

/// Whether the file at `path` gives its bytes only once. Names such as `/dev/stdin` count whatever they lead
/// to: on some systems opening one again continues where the first reader stopped.
pub(super) fn is_pipe(path: &Path, file_type: FileType) -> bool {
    #[cfg(unix)]
    let is_fifo = std::os::unix::fs::FileTypeExt::is_fifo(&file_type);
    #[cfg(not(unix))]
    let is_fifo = false;
    let is_descriptor = path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"].iter().any(|directory| path.starts_with(directory));
    is_fifo || is_descriptor && file_type.is_file()
}

/// Copies the pipe at `path` to a temporary file in `directory`, unless `stop` is set meanwhile.
pub(super) fn spool(path: &Path, directory: &Path, stop: &AtomicBool) -> Result<DataFile> {
    let name: Arc<str> = path.to_string_lossy().into();
    let failed = |error: io::Error| io_failed("read", &name, &error);
    let not_kept = |error: io::Error| {
        Error::new(ErrorKind::Io, format!("cannot keep what '{name}' gives: {error}"))
            .with_detail(format!("it goes to a temporary file in '{}'", directory.display()))
    };
    let mut pipe = File::open(path).map_err(failed)?;
    let mut kept = tempfile::Builder::new().prefix("pipe-").tempfile_in(directory).map_err(not_kept)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut size_bytes = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        let count = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        kept.write_all(&buffer[..count]).map_err(not_kept)?;
        size_bytes += count as u64;
    }
    if size_bytes == 0 {
        return Err(Error::new(ErrorKind::Data, format!("cannot read '{name}': it gives nothing"))
            .with_detail("it is a pipe, which gives its bytes only once"));
    }
    let temporary = kept.into_temp_path();
    Ok(DataFile {
        path: temporary.to_path_buf(),
        name,
        size_bytes,
        changed: SystemTime::now(),
        temporary: Some(Arc::new(temporary)),
        remote: None,
    })
}

/// Sets a stop flag when it is dropped, because its owner no longer waits.
#[derive(Default)]
pub(super) struct StopOnDrop(Arc<AtomicBool>);

impl StopOnDrop {
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
