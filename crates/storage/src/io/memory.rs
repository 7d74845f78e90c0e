//! [`Io`] for a database that lives in memory, and is gone with it.
//!
//! Files are lists of pieces, so that none is copied when it grows. What they take is asked of a [`Budget`] before.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Input, Io, Lock, Output};
use crate::database::locked;
use crate::store::TABLES;

/// The least and the largest piece of a file, in bytes, unless more is written at once.
const PIECE_BYTES_MIN: usize = 1 << 10;
const PIECE_BYTES_MAX: usize = 1 << 20;

/// What grants memory for files.
pub trait Budget: std::fmt::Debug + Send + Sync {
    /// Asks for so many bytes.
    ///
    /// # Errors
    /// When there are not so many.
    fn grow(&self, bytes: usize) -> io::Result<()>;

    /// Takes bytes whether there are so many or not: few, without which nothing could be given back.
    fn take(&self, bytes: usize);

    /// Gives bytes back.
    fn shrink(&self, bytes: usize);
}

/// Files in memory, for the time that this value lives. Each piece of them is asked of a [`Budget`] before.
#[derive(Debug)]
pub struct Memory {
    names: Mutex<Names>,
    is_locked: Arc<AtomicBool>,
    budget: Arc<dyn Budget>,
}

#[derive(Debug, Default)]
struct Names {
    files: BTreeMap<String, Arc<Content>>,
    directories: BTreeSet<String>,
}

/// What is in a file.
#[derive(Debug)]
struct Content {
    pieces: RwLock<Pieces>,
    modified: Duration,
    budget: Arc<dyn Budget>,
    /// Whether the budget may refuse it memory.
    is_asked: bool,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Where each piece begins.
    starts: Vec<u64>,
    pieces: Vec<Vec<u8>>,
    byte_count: u64,
    booked: usize,
}

impl Drop for Content {
    fn drop(&mut self) {
        let pieces = self.pieces.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.shrink(pieces.booked);
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The directory of a path; the empty one for names without.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Memory {
    /// No files yet.
    #[must_use]
    pub fn new(budget: Arc<dyn Budget>) -> Self {
        Self { names: Mutex::default(), is_locked: Arc::default(), budget }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        locked(&self.names)
    }
}

impl Names {
    fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.has_directory(path)
    }

    fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || self.directories.contains(path)
    }

    fn check_new(&self, path: &str) -> io::Result<()> {
        match (self.has(path), self.has_directory(parent(path))) {
            (true, _) => Err(ErrorKind::AlreadyExists.into()),
            (false, false) => Err(ErrorKind::NotFound.into()),
            (false, true) => Ok(()),
        }
    }

    fn take(&mut self, path: &str) -> io::Result<Arc<Content>> {
        self.files.remove(path).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// What is directly in a directory.
    fn inside<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let files = self.files.range(prefix.clone()..).map(|(path, _)| path);
        let directories = self.directories.range(prefix.clone()..);
        let (of_files, of_directories) = (prefix.clone(), prefix);
        let files = files.take_while(move |path| path.starts_with(&of_files));
        let directories = directories.take_while(move |path| path.starts_with(&of_directories));
        let inside = files.chain(directories).filter(move |path| parent(path) == directory);
        inside.map(|path| path.rsplit('/').next().unwrap_or(path))
    }
}

impl Io for Memory {
    fn create(&self, path: &str) -> io::Result<Box<dyn Output>> {
        let mut names = self.names();
        names.check_new(path)?;
        let (pieces, budget) = (RwLock::default(), self.budget.clone());
        // What is dropped has to be written to the log.
        let is_asked = path.starts_with(TABLES);
        let content = Arc::new(Content { pieces, modified: now(), budget, is_asked });
        names.files.insert(path.to_owned(), content.clone());
        Ok(Box::new(MemoryOutput(content)))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Input>> {
        let content = self.names().files.get(path).cloned().ok_or(ErrorKind::NotFound)?;
        Ok(Box::new(MemoryInput(content)))
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names();
        names.check_new(to)?;
        let content = names.take(from)?;
        names.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names();
        let content = names.take(from)?;
        names.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        // Readers that have it open keep what is in it.
        let content = self.names().take(path)?;
        drop(content);
        Ok(())
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        names.check_new(path)?;
        names.directories.insert(path.to_owned());
        Ok(())
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        if names.inside(path).next().is_some() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        if names.directories.remove(path) { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let names = self.names();
        if !names.has_directory(path) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(names.inside(path).map(str::to_owned).collect())
    }

    fn modified(&self, path: &str) -> io::Result<Duration> {
        let names = self.names();
        names.files.get(path).map(|content| content.modified).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn Lock>> {
        if self.is_locked.swap(true, Ordering::AcqRel) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock(self.is_locked.clone())))
    }

    fn now(&self) -> Duration {
        now()
    }

    fn random(&self) -> u64 {
        RandomState::new().hash_one(0_u64)
    }
}

#[derive(Debug)]
struct MemoryLock(Arc<AtomicBool>);

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct MemoryOutput(Arc<Content>);

impl Output for MemoryOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pieces = self.0.pieces.write().unwrap_or_else(PoisonError::into_inner);
        let room = pieces.pieces.last().map_or(0, |last| last.capacity() - last.len());
        if room == 0 && !bytes.is_empty() {
            // As much as there is, within bounds: a small file wastes little, and a large one has few pieces.
            let written = usize::try_from(pieces.byte_count).unwrap_or(PIECE_BYTES_MAX);
            let size = written.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).max(bytes.len());
            if self.0.is_asked {
                self.0.budget.grow(size)?;
            } else {
                self.0.budget.take(size);
            }
            let start = pieces.byte_count;
            pieces.booked += size;
            pieces.starts.push(start);
            pieces.pieces.push(Vec::with_capacity(size));
        }
        let Some(last) = pieces.pieces.last_mut() else { return Ok(0) };
        let count = bytes.len().min(last.capacity() - last.len());
        last.extend_from_slice(&bytes[..count]);
        pieces.byte_count += count as u64;
        Ok(count)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut pieces = self.0.pieces.write().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = pieces.pieces.last_mut() else { return Ok(()) };
        let spare = last.capacity() - last.len();
        last.shrink_to_fit();
        pieces.booked -= spare;
        self.0.budget.shrink(spare);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryInput(Arc<Content>);

impl Input for MemoryInput {
    fn byte_count(&self) -> u64 {
        self.0.pieces.read().unwrap_or_else(PoisonError::into_inner).byte_count
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let pieces = self.0.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = pieces.starts.partition_point(|start| *start <= offset).checked_sub(1) else {
            return Ok(0);
        };
        let skipped = usize::try_from(offset - pieces.starts[place]).unwrap_or(usize::MAX);
        let bytes = pieces.pieces[place].get(skipped..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Debug, Default)]
    struct Limited(AtomicUsize);

    const LIMIT: usize = 100_000;

    impl Budget for Limited {
        fn grow(&self, bytes: usize) -> io::Result<()> {
            if self.0.fetch_add(bytes, Ordering::Relaxed) + bytes > LIMIT {
                self.0.fetch_sub(bytes, Ordering::Relaxed);
                return Err(ErrorKind::OutOfMemory.into());
            }
            Ok(())
        }

        fn take(&self, bytes: usize) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }

        fn shrink(&self, bytes: usize) {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let memory = Memory::new(Arc::<Limited>::default());
        let bytes: Vec<u8> = (0..50_000_u32).map(|number| number.to_le_bytes()[0] ^ 7).collect();
        let mut file = memory.create("a").unwrap();
        for piece in bytes.chunks(777) {
            file.write_all(piece).unwrap();
        }
        file.sync().unwrap();
        let input = memory.open("a").unwrap();
        assert_eq!(input.byte_count(), 50_000);
        for (start, end) in [(0, 50_000), (0, 0), (1_023, 1_025), (776, 49_999), (50_000, 50_000)] {
            let mut read = vec![0; end - start];
            input.read_exact_at(start as u64, &mut read).unwrap();
            assert_eq!(read, bytes[start..end]);
        }
        let mut one = [0];
        assert_eq!(input.read_at(50_000, &mut one).unwrap(), 0);
        assert_eq!(input.read_at(u64::MAX, &mut one).unwrap(), 0);
    }

    #[test]
    fn files_take_what_was_granted_and_give_it_back() {
        let budget = Arc::<Limited>::default();
        let memory = Memory::new(budget.clone());
        let booked = || budget.0.load(Ordering::Relaxed);
        let (table, part) = (TABLES, format!("{TABLES}/a"));
        memory.create_directory(table).unwrap();
        let mut file = memory.create(&part).unwrap();
        file.write_all(&[1; 10]).unwrap();
        assert_eq!(booked(), PIECE_BYTES_MIN);
        file.sync().unwrap();
        assert_eq!(booked(), 10);
        file.write_all(&[2; 5_000]).unwrap();
        assert_eq!(booked(), 5_010);
        let refused = file.write_all(&[3; LIMIT]).unwrap_err();
        assert_eq!((refused.kind(), booked()), (ErrorKind::OutOfMemory, 5_010));
        // The log is written whatever there is.
        let mut log = memory.create("log").unwrap();
        log.write_all(&[4; LIMIT]).unwrap();
        drop(log);
        memory.remove("log").unwrap();
        drop(file);
        let input = memory.open(&part).unwrap();
        memory.remove(&part).unwrap();
        assert_eq!((booked(), input.byte_count()), (5_010, 5_010));
        drop(input);
        assert_eq!(booked(), 0);
    }
}
