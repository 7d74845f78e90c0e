//! A file that appears complete or not at all.
//!
//! The bytes go to a temporary file beside the target, are synced, and take the target's name by an atomic
//! rename. If writing ends before that, for whatever reason, the temporary file is removed; an old file of
//! this name stays until the rename. Pipes and devices are written to directly.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::temporary::Listed;
use crate::sources::files::io_failed;

/// A file to write, which gets its name with [`Self::commit`]; dropping it leaves nothing behind.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("keirin-new-file-{}.txt", std::process::id()));
/// let mut file = keirin::NewFile::create(&path, true)?;
/// file.write_all(b"whole")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"whole");
/// # std::fs::remove_file(path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NewFile {
    file: File,
    place: Option<Place>,
}

/// The name that a new file will have, and its temporary name until then.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    // Dropped in this order: the file is removed, then its entry.
    temporary: TempPath,
    _listed: Listed,
}

impl NewFile {
    /// Starts a file to be named `path`; with `overwrite` it may replace an existing file.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], [`ErrorKind::NotFound`] for its directory, [`ErrorKind::Invalid`] for a
    /// directory, [`ErrorKind::Io`] for other errors of the system.
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<Self> {
        let mut path = path.as_ref().to_owned();
        let name = path.display().to_string();
        let existing = fs::metadata(&path).ok();
        if let Some(existing) = &existing {
            if existing.is_dir() {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("cannot write to '{name}': it is a directory"),
                ));
            }
            // Names such as /dev/stdout lead to an open file, which is written to, never replaced.
            let is_descriptor = path.starts_with("/dev") || path.starts_with("/proc");
            if !existing.is_file() || is_descriptor {
                let file = File::options().append(true).open(&path);
                let file = file.map_err(|error| io_failed("write", &name, &error))?;
                return Ok(Self { file, place: None });
            }
            if !overwrite {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("file '{name}' exists"))
                    .with_hint("overwrite = true replaces it"));
            }
            // Through a symbolic link the file itself is replaced, not the link.
            path = fs::canonicalize(&path).map_err(|error| io_failed("write", &name, &error))?;
        }
        let Some(file_name) = path.file_name() else {
            return Err(Error::new(ErrorKind::Invalid, format!("'{name}' names no file")));
        };
        let directory = directory_of(&path);
        if !directory.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, format!("cannot write file '{name}'"))
                .with_detail(format!("directory '{}' does not exist", directory.display())));
        }
        let prefix = format!(".{}.keirin-tmp-", file_name.to_string_lossy());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        let permissions = existing.map(|existing| existing.permissions());
        #[cfg(unix)]
        let permissions = permissions.or_else(|| {
            // The mode of any new file, before the umask applies.
            Some(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        });
        if let Some(permissions) = permissions {
            builder.permissions(permissions);
        }
        let made = Listed::make(|| builder.tempfile_in(directory));
        let (temporary, listed) = made.map_err(|error| io_failed("write", &name, &error))?;
        let (file, temporary) = temporary.into_parts();
        Ok(Self { file, place: Some(Place { path, temporary, _listed: listed }) })
    }

    /// Splits the open file from its place: dropping the place removes the file, even if it is still being
    /// written to.
    pub(crate) fn into_parts(self) -> (File, Option<Place>) {
        (self.file, self.place)
    }

    /// Writes the file to disk and gives it its name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]; then there is no new file.
    pub fn commit(self) -> Result<()> {
        let Some(place) = self.place else { return Ok(()) };
        self.file.sync_all().map_err(|error| io_failed("write", &place.name(), &error))?;
        place.take()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Place {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Gives the file, which was synced, its name.
    pub(crate) fn take(self) -> Result<()> {
        let name = self.name();
        self.temporary.persist(&self.path).map_err(|error| io_failed("write", &name, &error.error))?;
        // Writes the rename to disk. Some file systems cannot sync a directory; the file itself is safe by
        // then.
        if let Ok(directory) = File::open(directory_of(&self.path)) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        fs::write(&path, "before").unwrap();

        let mut file = NewFile::create(&path, true).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");

        let mut file = NewFile::create(&path, true).unwrap();
        file.write_all(b"after").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_replaced_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("there");
        fs::write(&file, "").unwrap();
        let kind = |path: &Path, overwrite| NewFile::create(path, overwrite).unwrap_err().kind();
        assert_eq!(kind(&file, false), ErrorKind::AlreadyExists);
        assert_eq!(kind(directory.path(), true), ErrorKind::Invalid);
        assert_eq!(kind(&directory.path().join("no/where"), true), ErrorKind::NotFound);
    }

    #[test]
    fn devices_are_written_to_not_replaced() {
        let mut file = NewFile::create("/dev/null", true).unwrap();
        file.write_all(b"x").unwrap();
        file.commit().unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
