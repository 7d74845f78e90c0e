//! Where answers go: standard output or a file.
//!
//! A file gets its name when it is completely written, so a failure leaves the old file in place. Devices and pipes
//! are written directly, and so is a file that an interactive user wants to watch.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use keirin::NewFile;

use crate::error::{Failure, Result};
use crate::format::Format;

const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Output {
    target: Target,
    /// Whether the reader has closed the output.
    closed: bool,
    /// Answers written, see [`Self::holds_one_answer`].
    pub(crate) answers: usize,
    /// The format of this output, if it differs from the setting.
    pub(crate) format: Option<Format>,
}

#[derive(Debug)]
enum Target {
    Stdout(BufWriter<io::Stdout>),
    Direct(BufWriter<File>, PathBuf),
    New(BufWriter<NewFile>, PathBuf),
}

impl Output {
    pub(crate) fn stdout() -> Self {
        Self::new(Target::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())))
    }

    /// A file that is written directly, so that each answer shows at once.
    pub(crate) fn file_at_once(path: &Path) -> Result<Self> {
        let file = File::create(path)
            .map_err(|error| Failure::file(format!("write to '{}'", path.display()), error))?;
        Ok(Self::new(Target::Direct(BufWriter::with_capacity(BUFFER_BYTES, file), path.to_owned())))
    }

    /// A file that gets its name by [`Self::commit`].
    pub(crate) fn file(path: &Path) -> Result<Self> {
        let file = NewFile::create(path, true).map_err(Failure::engine)?;
        Ok(Self::new(Target::New(BufWriter::with_capacity(BUFFER_BYTES, file), path.to_owned())))
    }

    fn new(target: Target) -> Self {
        Self { target, closed: false, answers: 0, format: None }
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout(_))
    }

    /// Whether a second answer, or any other text, would break what was written in `format`. A pipe may get several
    /// JSON arrays, as its readers expect; a JSON file holds one.
    pub(crate) fn holds_one_answer(&self, format: Format) -> bool {
        format.is_binary() || (format == Format::Json && !self.is_stdout())
    }

    /// The file's name, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.target {
            Target::Stdout(_) => None,
            Target::Direct(_, path) | Target::New(_, path) => Some(path),
        }
    }

    /// The last step: a file gets its name.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.flush().map_err(|error| self.failure(error))?;
        if let Target::New(file, path) = self.target {
            let file = file.into_inner().map_err(|error| {
                Failure::file(format!("write to '{}'", path.display()), error.into_error())
            })?;
            file.commit().map_err(Failure::engine)?;
        }
        Ok(())
    }

    /// The failure that a write error means.
    pub(crate) fn failure(&self, error: io::Error) -> Failure {
        if self.closed || error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::file(format!("write to {}", self.name()), error)
    }

    /// The name of the output in messages.
    pub(crate) fn name(&self) -> String {
        self.path().map_or_else(|| "standard output".to_owned(), |path| format!("'{}'", path.display()))
    }

    /// Whether a write has failed because the reader has closed the output.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn target(&mut self) -> &mut dyn Write {
        match &mut self.target {
            Target::Stdout(stdout) => stdout,
            Target::Direct(file, _) => file,
            Target::New(file, _) => file,
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
