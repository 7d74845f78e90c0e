//! The file system behind a trait: every byte that storage reads or writes goes through [`Io`].
//!
//! Paths are relative to the directory of the database, with `/` between names, as the keys of an object store.
//! [`Disk`] is the real one, and [`Memory`] has all in memory; tests have another one that loses what a real file system may
//! lose.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use keirin_kernels::map::Map;

mod disk;
mod map;
mod memory;

pub use disk::Disk;
pub use memory::{Budget, Memory};

/// Where the files of a database are.
pub trait Io: Debug + Send + Sync {
    /// Creates a file.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one.
    fn create(&self, path: &str) -> io::Result<Box<dyn Output>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// `NotFound` if it is not.
    fn open(&self, path: &str) -> io::Result<Box<dyn Input>>;

    /// Gives a file another name, in the same directory.
    ///
    /// # Errors
    /// `AlreadyExists` if something has that name; nothing is replaced.
    fn publish(&self, from: &str, to: &str) -> io::Result<()>;

    /// Renames a file over another one in the same directory.
    ///
    /// # Errors
    /// When the system refuses; then both files are unchanged.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// `AlreadyExists` if it exists.
    fn create_directory(&self, path: &str) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// When it is not empty.
    fn remove_directory(&self, path: &str) -> io::Result<()>;

    /// Syncs files. The error says for which file it failed; after that the content of none of them is certain.
    ///
    /// # Errors
    /// When the system refuses.
    fn sync_files(&self, files: &mut [Box<dyn Output>]) -> Result<(), (usize, io::Error)> {
        let mut files = files.iter_mut().enumerate();
        files.try_for_each(|(index, file)| file.sync().map_err(|error| (index, error)))
    }

    /// Makes the names in a directory durable; the empty path is the directory of the database.
    ///
    /// # Errors
    /// When the system refuses.
    fn sync_directory(&self, path: &str) -> io::Result<()>;

    /// The names in a directory, in any order. Names that are added or removed meanwhile may be missing.
    ///
    /// # Errors
    /// `NotFound` or `NotADirectory` if there is no such directory.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// Whether [`Io::list`] works: web servers cannot list their files.
    fn can_list(&self) -> bool {
        true
    }

    /// Which of these files exist.
    ///
    /// # Errors
    /// When the system refuses.
    fn are_there(&self, paths: &[String]) -> io::Result<Vec<bool>> {
        let is_there = |path: &String| match self.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            there => there.map(|_| true),
        };
        paths.iter().map(is_there).collect()
    }

    /// Prefetch hint: these small files will be opened next, once each. A remote store fetches all at once.
    fn fetch(&self, _paths: &mut dyn Iterator<Item = String>) {}

    /// Opens a file whose length and hash the log knows. That it is missing or another may show only when it is
    /// read.
    ///
    /// # Errors
    /// `NotFound` if it is not there.
    fn open_known(&self, file: KnownFile<'_>) -> io::Result<Box<dyn Input>> {
        self.open(file.path)
    }

    /// Whether files are remote, so that [`expect`](Self::expect) has an effect.
    fn is_far(&self) -> bool {
        false
    }

    /// Prefetch hint: these bytes of a file will be read soon. A remote store fetches them meanwhile.
    fn expect(&self, _file: KnownFile<'_>, _ranges: &mut dyn Iterator<Item = Range<u64>>) {}

    /// Drops cached copies of bytes that turned out to be damaged.
    fn invalidate(&self, _file: KnownFile<'_>, _range: Range<u64>) {}

    /// When a file was last modified, since 1970.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn modified(&self, path: &str) -> io::Result<Duration>;

    /// Locks a file, creating it if need be, until the returned lock is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Lock>>;

    /// The wall clock: the time since 1970.
    fn now(&self) -> Duration;

    /// The monotonic clock: the time since some moment.
    fn elapsed(&self) -> Duration {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        BEGUN.get_or_init(Instant::now).elapsed()
    }

    /// An unpredictable number.
    fn random(&self) -> u64;
}

/// What the log says of an immutable file.
#[derive(Clone, Copy, Debug)]
pub struct KnownFile<'a> {
    /// Where it is.
    pub path: &'a str,
    /// Count of its bytes.
    pub byte_count: u64,
    /// The hash of a header in it, which names the content.
    pub hash: u64,
}

/// A file that is written from beginning to end.
pub trait Output: Debug + Send {
    /// Writes some of the bytes, at least one, and says how many.
    ///
    /// # Errors
    /// When the system refuses.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes the written bytes durable. After a failure none of them is certain, and another sync may report
    /// success falsely: never retry.
    ///
    /// # Errors
    /// When the system refuses.
    fn sync(&mut self) -> io::Result<()>;

    /// Writes all of the bytes.
    ///
    /// # Errors
    /// When the system refuses.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file for random reads by any number of threads.
pub trait Input: Debug + Send + Sync {
    /// Count of bytes.
    fn byte_count(&self) -> u64;

    /// Reads some bytes at an offset and says how many; 0 at the end.
    ///
    /// # Errors
    /// When the system refuses.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The memory map of the file, if it can be mapped.
    fn map(&self) -> Option<Map> {
        None
    }

    /// Fills the buffer.
    ///
    /// # Errors
    /// `UnexpectedEof` if there are fewer bytes.
    fn read_exact_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(offset, buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether an error is about this process or moment rather than the file: too many open files, no memory, no
/// permission, a file server that does not answer.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    is_out_of_files(error)
        || matches!(
            error.kind(),
            io::ErrorKind::OutOfMemory
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::StaleNetworkFileHandle
                | io::ErrorKind::TimedOut
                | io::ErrorKind::WouldBlock
        )
}

/// Whether an error says that too many files are open, in this process or on this machine.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    /// ENFILE and EMFILE, which have no [`ErrorKind`].
    const TOO_MANY_FILES: [i32; 2] = [23, 24];
    error.raw_os_error().is_some_and(|number| TOO_MANY_FILES.contains(&number))
}

/// Whether an error says for certain that nothing was changed.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotFound
    )
}

/// A lock, released when it is dropped.
pub trait Lock: Debug + Send + Sync {
    /// Whether the lock still keeps others out: the locked file may have been removed, and another process may have
    /// created and locked a new one; a forked process only inherits its parent's lock.
    ///
    /// # Errors
    /// When the system refuses.
    fn is_held(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// A budget for tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Unlimited;

#[cfg(test)]
impl Budget for Unlimited {
    fn grow(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn take(&self, _: usize) {}

    fn shrink(&self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_disk_keeps_the_promises_of_the_door() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::create(&directory.path().join("db")).unwrap();
        check(&disk);
        let lock = disk.lock("LOCK").unwrap();
        disk.remove("LOCK").unwrap();
        assert!(!lock.is_held().unwrap());
        let other = disk.lock("LOCK").unwrap();
        assert!(other.is_held().unwrap() && !lock.is_held().unwrap());
        drop(lock);
        assert_eq!(disk.lock("LOCK").unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn memory_keeps_the_promises_of_the_door() {
        check(&Memory::new(Arc::new(Unlimited)));
    }

    fn check(disk: &dyn Io) {
        disk.create_directory("log").unwrap();
        assert_eq!(disk.create_directory("log").unwrap_err().kind(), ErrorKind::AlreadyExists);
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
        let mut names = disk.list("log").unwrap();
        names.sort();
        assert_eq!(names, ["b", "c"]);
        assert!(disk.now() - disk.modified("log/c").unwrap() < Duration::from_secs(60));
        disk.replace("log/c", "log/b").unwrap();
        assert_eq!(disk.open("log/b").unwrap().byte_count(), 5);
        disk.remove_directory("log").unwrap_err();
        disk.remove("log/b").unwrap();
        assert_eq!(disk.remove("log/b").unwrap_err().kind(), ErrorKind::NotFound);
        disk.remove_directory("log").unwrap();
        assert_eq!(disk.list("log").unwrap_err().kind(), ErrorKind::NotFound);
        let lock = disk.lock("LOCK").unwrap();
        assert_eq!(disk.lock("LOCK").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(lock.is_held().unwrap());
        drop(lock);
        disk.lock("LOCK").unwrap();
    }
}
