//! [`Io`] for a directory of the file system.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keirin_kernels::map::Map;

use super::map::map;
use super::{Input, Io, Lock, Output};
use crate::database::locked;

/// Threads that sync files at the same time: the system then writes its journal once for all of them.
const SYNCS: usize = 16;

/// A directory of the file system.
#[derive(Debug)]
pub struct Disk {
    /// Absolute, so that a change of the working directory does not matter.
    root: PathBuf,
}

impl Disk {
    /// The database in this directory; creates the directory durably if need be.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(root: &Path) -> io::Result<Self> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<&Path> = root.ancestors().take_while(is_missing).collect();
        std::fs::create_dir_all(root)?;
        // Another process may have made the parent directory and not synced it, unless there is a database already.
        let is_new = !root.join(crate::marker::PATH).exists();
        for directory in missing.into_iter().chain(is_new.then_some(root)) {
            sync_parent(directory)?;
        }
        Ok(Self::open(root))
    }

    /// The database in this directory.
    #[must_use]
    pub fn open(root: &Path) -> Self {
        let absolute = || std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Self { root: root.canonicalize().unwrap_or_else(|_| absolute()) }
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
            // If the old name stays, it counts as an unfinished file.
            Ok(()) => {
                std::fs::remove_file(from).unwrap_or_default();
                Ok(())
            }
            // The writer holds the lock, so nobody creates `to` between the check and the rename.
            Err(error) if has_no_links(&error) && !to.try_exists()? => std::fs::rename(from, to),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(path))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        std::fs::create_dir(self.path(path))
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        std::fs::remove_dir(self.path(path))
    }

    fn sync_files(&self, files: &mut [Box<dyn Output>]) -> Result<(), (usize, io::Error)> {
        let helper_count = files.len().min(SYNCS).saturating_sub(1);
        let waiting = Mutex::new(files.iter_mut().enumerate());
        let sync_some = || {
            let next = || locked(&waiting).next();
            std::iter::from_fn(next).find_map(|(index, file)| Some((index, file.sync().err()?)))
        };
        let failed = thread::scope(|scope| {
            let help = |_| thread::Builder::new().spawn_scoped(scope, sync_some).ok();
            // If threads cannot be started, fewer do the work.
            let helpers: Vec<_> = (0..helper_count).map_while(help).collect();
            let own = sync_some();
            helpers.into_iter().fold(own, |failed, helper| failed.or(helper.join().expect("it only syncs")))
        });
        failed.map_or(Ok(()), Err)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        sync_names(&self.path(path))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path))? {
            // Names that are not UTF-8 are not ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn modified(&self, path: &str) -> io::Result<Duration> {
        let modified = std::fs::metadata(self.path(path))?.modified()?;
        Ok(modified.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Lock>> {
        let path = self.path(path);
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let lock = DiskLock { file, path: path.clone(), process: std::process::id() };
            // If the file was removed after it was opened, its lock keeps nobody out.
            if lock.is_held()? {
                return Ok(Box::new(lock));
            }
        }
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        RandomState::new().hash_one(0_u64)
    }
}

/// Makes the names in a directory durable.
fn sync_names(directory: &Path) -> io::Result<()> {
    // Windows cannot open a directory as a file, and NTFS journals names.
    if cfg!(windows) { Ok(()) } else { File::open(directory)?.sync_all() }
}

/// Makes the name of a directory durable.
fn sync_parent(directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        // A root directory always exists.
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    match sync_names(parent) {
        // A directory may be writable without being readable, and so cannot be opened to be synced.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        outcome => outcome,
    }
}

/// Whether the error says that the file system has no hard links. Any other error may have another cause, or be
/// reported although the link was made.
fn has_no_links(error: &io::Error) -> bool {
    /// EPERM, of file systems such as VFAT.
    const NOT_PERMITTED: i32 = 1;
    let is_not_permitted = cfg!(unix) && error.raw_os_error() == Some(NOT_PERMITTED);
    is_not_permitted || error.kind() == ErrorKind::Unsupported
}

/// A file that is locked until it is closed.
#[derive(Debug)]
struct DiskLock {
    file: File,
    path: PathBuf,
    /// The process that locked the file: a forked process inherits the open file.
    process: u32,
}

impl Lock for DiskLock {
    fn is_held(&self) -> io::Result<bool> {
        Ok(self.process == std::process::id() && is_at(&self.file, &self.path)?)
    }
}

/// Whether a file still has this name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let ours = file.metadata()?;
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

/// On this system open files cannot be removed.
#[cfg(windows)]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

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

    fn map(&self) -> Option<Map> {
        map(&self.file, self.byte_count)
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
