//! The door to a directory of the file system.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Entry, Input, Io, Lock, Output};

/// A directory of the file system.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
}

impl Disk {
    /// The database in this directory, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        Ok(Self::open(root))
    }

    /// The database in this directory.
    #[must_use]
    pub fn open(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

impl Io for Disk {
    fn create(&self, path: &str) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::create_new(self.path(path))?))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Input>> {
        let file = File::open(self.path(path))?;
        let byte_count = file.metadata()?.len();
        Ok(Box::new(DiskInput { file, byte_count }))
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        match std::fs::hard_link(&from, &to) {
            Ok(()) => std::fs::remove_file(from),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            // File systems without links. Whoever publishes has the lock, so nobody comes in between.
            Err(_) if !to.try_exists()? => std::fs::rename(from, to),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(path))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        match std::fs::create_dir(self.path(path)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        File::open(self.path(path))?.sync_all()
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.path(path))? {
            let entry = entry?;
            // Names that are not UTF-8 are none of ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                // Gone already.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            entries.push(Entry { name, modified });
        }
        Ok(entries)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Lock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.path(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        RandomState::new().hash_one(0_u64)
    }
}

/// The lock of a file ends when the file is closed.
impl Lock for File {}

impl Output for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

#[derive(Debug)]
struct DiskInput {
    file: File,
    byte_count: u64,
}

impl Input for DiskInput {
    fn byte_count(&self) -> u64 {
        self.byte_count
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_keeps_the_promises_of_the_door() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::create(&directory.path().join("db")).unwrap();
        disk.create_directory("log").unwrap();
        disk.create_directory("log").unwrap();
        for (name, bytes) in [("log/a", "hello"), ("log/b", "world")] {
            let mut file = disk.create(name).unwrap();
            file.write_all(bytes.as_bytes()).unwrap();
            file.sync().unwrap();
        }
        disk.sync_directory("log").unwrap();
        disk.sync_directory("").unwrap();
        assert_eq!(disk.create("log/a").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(disk.publish("log/a", "log/b").unwrap_err().kind(), ErrorKind::AlreadyExists);
        disk.publish("log/a", "log/c").unwrap();
        assert_eq!(disk.open("log/a").unwrap_err().kind(), ErrorKind::NotFound);
        let input = disk.open("log/c").unwrap();
        let mut bytes = [0; 3];
        input.read_exact_at(2, &mut bytes).unwrap();
        assert_eq!((&bytes, input.byte_count()), (b"llo", 5));
        assert_eq!(input.read_exact_at(3, &mut bytes).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let mut names: Vec<_> = disk.list("log").unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, ["b", "c"]);
        disk.remove("log/b").unwrap();
        assert_eq!(disk.remove("log/b").unwrap_err().kind(), ErrorKind::NotFound);
        let lock = disk.lock("LOCK").unwrap();
        assert_eq!(disk.lock("LOCK").unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(lock);
        disk.lock("LOCK").unwrap();
    }
}
