//! The one door to files: every byte that storage reads or writes goes through [`Io`].
//!
//! Paths are relative to the directory of the database, with `/` between names, as the keys of an object
//! store. [`Disk`] is the real door; the tests have another one that loses what a file system may lose.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use keirin_kernels::map::Map;

mod disk;
mod map;

pub use disk::Disk;

/// Where the files of a database are.
pub trait Io: Debug + Send + Sync {
    /// Creates a file.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one.
    fn create(&self, path: &str) -> io::Result<Box<dyn Output>>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// `NotFound` if it is not.
    fn open(&self, path: &str) -> io::Result<Box<dyn Input>>;

    /// Gives a file another name, in the same directory.
    ///
    /// # Errors
    /// `AlreadyExists` if something has that name; nothing is replaced.
    fn publish(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file the name of another, in the same directory, which is gone then.
    ///
    /// # Errors
    /// When the system refuses; then both are what they were.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// `AlreadyExists` if it is there.
    fn create_directory(&self, path: &str) -> io::Result<()>;

    /// Removes a directory in which there is nothing.
    ///
    /// # Errors
    /// When there is something.
    fn remove_directory(&self, path: &str) -> io::Result<()>;

    /// Makes durable what was written to files, of this door. When it fails for one, which it says, nothing is known
    /// about any of them.
    ///
    /// # Errors
    /// When the system refuses.
    fn sync_files(&self, files: &mut [Box<dyn Output>]) -> Result<(), (usize, io::Error)> {
        let mut files = files.iter_mut().enumerate();
        files.try_for_each(|(index, file)| file.sync().map_err(|error| (index, error)))
    }

    /// Makes durable which files a directory has; the empty path is the directory of the database.
    ///
    /// # Errors
    /// When the system refuses.
    fn sync_directory(&self, path: &str) -> io::Result<()>;

    /// The names in a directory, in any order. Names that come or go meanwhile may be left out.
    ///
    /// # Errors
    /// `NotFound` or `NotADirectory` if there is no such directory.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// Whether [`Io::list`] works: web servers know their files by their names alone.
    fn can_list(&self) -> bool {
        true
    }

    /// Which of these files are there.
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

    /// Says which small files will be opened next, once each: where that takes long, all are fetched at once.
    fn fetch(&self, _paths: &mut dyn Iterator<Item = String>) {}

    /// Opens a file of which the log says what it is. That it is not there, or something else, may come out only
    /// when it is read.
    ///
    /// # Errors
    /// `NotFound` if it is not there.
    fn open_known(&self, file: Known<'_>) -> io::Result<Box<dyn Input>> {
        self.open(file.path)
    }

    /// Whether reading takes long: [`expect`](Self::expect) does something.
    fn is_far(&self) -> bool {
        false
    }

    /// Says which bytes of a file will be read soon: where that takes long, they are fetched meanwhile.
    fn expect(&self, _file: Known<'_>, _ranges: &mut dyn Iterator<Item = Range<u64>>) {}

    /// Says that bytes of a file were not what was written: copies of them are worth nothing.
    fn distrust(&self, _file: Known<'_>, _range: Range<u64>) {}

    /// When a file was written to last, since 1970.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn modified(&self, path: &str) -> io::Result<Duration>;

    /// Locks a file against all others who would, making it if need be, until the answer is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if someone else has locked it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Lock>>;

    /// The time since 1970.
    fn now(&self) -> Duration;

    /// The time since some moment, by a clock that nobody sets.
    fn elapsed(&self) -> Duration {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        BEGUN.get_or_init(Instant::now).elapsed()
    }

    /// Numbers that nobody can foretell.
    fn random(&self) -> u64;
}

/// What the log says of a file that never changes.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Where it is.
    pub path: &'a str,
    /// Count of its bytes.
    pub byte_count: u64,
    /// The hash of a header in it, which names the content.
    pub hash: u64,
}

/// A file that is written from begin to end.
pub trait Output: Debug + Send {
    /// Writes some of the bytes, at least one, and says how many.
    ///
    /// # Errors
    /// When the system refuses.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes durable what was written. When it fails, nothing is known about any of it: never try again.
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

/// A file that is read anywhere, by any number of threads.
pub trait Input: Debug + Send + Sync {
    /// Count of bytes.
    fn byte_count(&self) -> u64;

    /// Reads some bytes from a place on, none at the end, and says how many.
    ///
    /// # Errors
    /// When the system refuses.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The file as memory, if it can be that.
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

/// Whether an error says more of this process and moment than of the file: too many open files, no memory, no
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
    /// Numbers of Unix for what has no kind: ENFILE and EMFILE.
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

/// A lock, given back when it is dropped.
pub trait Lock: Debug + Send + Sync {
    /// Whether it still keeps others out: someone may have removed the file that is locked, and another process may
    /// have made and locked it anew; a process that was forked has the lock of its parent.
    ///
    /// # Errors
    /// When the system refuses.
    fn is_held(&self) -> io::Result<bool> {
        Ok(true)
    }
}
