//! Where answers go: standard output or a file.
//!
//! A file gets its name when all that belongs into it is written: one that fails half way leaves what
//! was there before. Devices and pipes are written to directly, and so is a file that a person at the
//! shell wants to watch.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Failure, Result};
use crate::format::Format;

const BUFFER_BYTES: usize = 64 << 10;
/// As for any new file: what the user's mask leaves of it.
const NEW_FILE_MODE: u32 = 0o666;
const PERMISSION_BITS: u32 = 0o777;

#[derive(Debug)]
pub(crate) struct Output {
    target: Target,
    /// Whoever reads us has left.
    closed: bool,
    /// Answers written: a Parquet or Arrow file holds one.
    pub(crate) answers: usize,
    /// The format that this output asks for, whatever the others get.
    pub(crate) format: Option<Format>,
}

#[derive(Debug)]
enum Target {
    Stdout(BufWriter<io::Stdout>),
    Direct(BufWriter<File>, PathBuf),
    Renamed(BufWriter<NamedTempFile>, PathBuf),
}

impl Output {
    pub(crate) fn stdout() -> Self {
        Self::new(Target::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())))
    }

    /// A file that shows each answer as soon as it is there.
    pub(crate) fn file_at_once(path: &Path) -> Result<Self> {
        let file = File::create(path)
            .map_err(|error| Failure::file(format!("write to '{}'", path.display()), error))?;
        Ok(Self::new(Target::Direct(BufWriter::with_capacity(BUFFER_BYTES, file), path.to_owned())))
    }

    /// A file that appears with [`Self::commit`].
    pub(crate) fn file(path: &Path) -> Result<Self> {
        let failed = |error| Failure::file(format!("write to '{}'", path.display()), error);
        let existing = path.metadata().ok();
        // Names such as /dev/stdout lead to whatever is open there, which is written to, never replaced.
        let is_descriptor = path.starts_with("/dev") || path.starts_with("/proc");
        if existing.as_ref().is_some_and(|file| !file.is_file() || is_descriptor) {
            let file = File::options().append(true).open(path).map_err(failed)?;
            return Ok(Self::new(Target::Direct(
                BufWriter::with_capacity(BUFFER_BYTES, file),
                path.to_owned(),
            )));
        }
        // The file that a link points to is replaced, not the link.
        let path = if existing.is_some() { path.canonicalize().map_err(failed)? } else { path.to_owned() };
        let mode = existing.map_or(NEW_FILE_MODE, |file| file.permissions().mode() & PERMISSION_BITS);
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".keirin-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)
            .map_err(failed)?;
        Ok(Self::new(Target::Renamed(BufWriter::with_capacity(BUFFER_BYTES, file), path)))
    }

    fn new(target: Target) -> Self {
        Self { target, closed: false, answers: 0, format: None }
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout(_))
    }

    /// The file's name, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.target {
            Target::Stdout(_) => None,
            Target::Direct(_, path) | Target::Renamed(_, path) => Some(path),
        }
    }

    /// The last step: a file gets its name.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.flush().map_err(|error| self.failure(error))?;
        if let Target::Renamed(file, path) = self.target {
            let failed = |error| Failure::file(format!("write to '{}'", path.display()), error);
            let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
            file.persist(&path).map_err(|error| failed(error.error))?;
        }
        Ok(())
    }

    /// What a failed write means.
    pub(crate) fn failure(&self, error: io::Error) -> Failure {
        if self.closed || error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        let name = match &self.target {
            Target::Stdout(_) => "standard output".to_owned(),
            Target::Direct(_, path) | Target::Renamed(_, path) => format!("'{}'", path.display()),
        };
        Failure::file(format!("write to {name}"), error)
    }

    /// Whether a write has failed because nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn target(&mut self) -> &mut dyn Write {
        match &mut self.target {
            Target::Stdout(stdout) => stdout,
            Target::Direct(file, _) => file,
            Target::Renamed(file, _) => file,
        }
    }

    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.closed |= result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.target().write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.target().flush();
        self.note(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        std::fs::write(&path, "before").unwrap();

        let mut output = Output::file(&path).unwrap();
        output.write_all(b"half").unwrap();
        drop(output);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");

        let mut output = Output::file(&path).unwrap();
        output.write_all(b"after").unwrap();
        output.commit().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_are_written_to_not_replaced() {
        let mut output = Output::file(Path::new("/dev/null")).unwrap();
        output.write_all(b"x").unwrap();
        output.commit().unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
