//! A file system in memory that loses what a real one may lose.
//!
//! What is written and not synced lies in the cache; a power cut keeps any of its sectors of 512 bytes, in any
//! combination, sometimes half of one, and file lengths that fit. Names that were added and removed in a
//! directory that is not synced are kept or lost each by itself. A sync that fails keeps some and forgets the
//! rest: the cache still shows it, and later syncs report success. All of it follows from one seed.

#![allow(clippy::cast_possible_truncation, reason = "all numbers are small")]

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::{Entry, Input, Io, Lock, Output};

const SECTOR_BYTES: usize = 512;

/// Numbers that follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        times > 0 && self.below(times) == 0
    }
}

/// What goes wrong, each once in so many times, never at 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The number of the operation at which the power is cut.
    pub(crate) cut_at: Option<u64>,
    pub(crate) disk_full: usize,
    pub(crate) failed_sync: usize,
    pub(crate) read_error: usize,
    pub(crate) short: usize,
    /// Syncs of files, and of directories, do nothing and report success.
    pub(crate) lying_syncs: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    File(usize),
    Directory,
}

#[derive(Clone, Debug)]
enum Change {
    Add(String, Node),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
struct FileData {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: Vec<(usize, Vec<u8>)>,
    modified: Duration,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    cached: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    pending: Vec<Change>,
}

fn change(names: &mut BTreeMap<String, Node>, change: &Change) {
    match change {
        Change::Add(name, node) => _ = names.insert(name.clone(), *node),
        Change::Remove(name) => _ = names.remove(name),
    }
}

#[derive(Clone, Debug)]
struct World {
    random: Random,
    faults: Faults,
    /// Operations that change something, so far.
    operations: u64,
    clock: Duration,
    is_off: bool,
    /// Counts restarts: handles of an earlier life are dead.
    life: u64,
    is_locked: bool,
    files: Vec<FileData>,
    directories: BTreeMap<String, Directory>,
    /// Faults that were made since the last restart.
    fault_count: u64,
    directory_sync_failed: bool,
}

/// The door to a file system that is unreliable.
#[derive(Debug)]
pub(crate) struct Unreliable {
    world: Arc<Mutex<World>>,
    life: u64,
}

fn dead() -> io::Error {
    io::Error::other("the power is off")
}

/// The directory and the name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl World {
    fn fault(&mut self, once_in: usize) -> bool {
        let is_fault = self.random.once_in(once_in);
        self.fault_count += u64::from(is_fault);
        is_fault
    }

    /// Runs an operation that changes something; the power may go before it or after it.
    fn act<T>(&mut self, life: u64, operation: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        if self.is_off || self.life != life {
            return Err(dead());
        }
        self.operations += 1;
        self.clock += Duration::from_millis(1);
        if self.faults.cut_at != Some(self.operations) {
            return operation(self);
        }
        if self.random.once_in(2) {
            // Its outcome nobody hears of.
            _ = operation(self);
        }
        self.cut_power();
        Err(dead())
    }

    fn directory(&mut self, path: &str) -> io::Result<&mut Directory> {
        self.directories.get_mut(path).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn file(&mut self, path: &str) -> io::Result<usize> {
        let (directory, name) = split(path);
        match self.directory(directory)?.cached.get(name) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Directory) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn change(&mut self, directory: &str, new: Change) -> io::Result<()> {
        let directory = self.directory(directory)?;
        change(&mut directory.cached, &new);
        directory.pending.push(new);
        Ok(())
    }

    /// Makes durable any of a file's sectors that are not.
    fn keep_some(&mut self, file: usize) {
        let data = &mut self.files[file];
        let mut dirty = std::mem::take(&mut data.dirty);
        while !dirty.is_empty() {
            let (offset, bytes) = dirty.swap_remove(self.random.below(dirty.len()));
            for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                let kept = match self.random.below(16) {
                    0 => self.random.below(sector.len() + 1),
                    1..8 => sector.len(),
                    _ => 0,
                };
                let at = offset + index * SECTOR_BYTES;
                write_at(&mut data.durable, at, &sector[..kept]);
            }
        }
        if self.random.once_in(4) && data.durable.len() < data.cached.len() {
            data.durable.resize(data.cached.len(), 0);
        }
    }

    fn keep_some_names(&mut self, path: &str) {
        let Some(directory) = self.directories.get_mut(path) else { return };
        for pending in std::mem::take(&mut directory.pending) {
            if self.random.once_in(2) {
                change(&mut directory.durable, &pending);
            }
        }
    }

    fn cut_power(&mut self) {
        self.is_off = true;
        (0..self.files.len()).for_each(|file| self.keep_some(file));
        let paths: Vec<String> = self.directories.keys().cloned().collect();
        paths.iter().for_each(|path| self.keep_some_names(path));
        for data in &mut self.files {
            data.cached.clone_from(&data.durable);
        }
        for directory in self.directories.values_mut() {
            directory.cached.clone_from(&directory.durable);
        }
        // What is in no directory is gone, and so is what is in a directory that is gone.
        for path in paths {
            let (parent, name) = split(&path);
            let is_there = path.is_empty()
                || self.directories.get(parent).is_some_and(|parent| parent.cached.contains_key(name));
            if !is_there {
                self.directories.remove(&path);
            }
        }
    }
}

fn write_at(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if !new.is_empty() {
        bytes.resize(bytes.len().max(at + new.len()), 0);
        bytes[at..at + new.len()].copy_from_slice(new);
    }
}

impl Unreliable {
    pub(crate) fn new(seed: u64) -> Self {
        let world = World {
            random: Random::new(seed),
            faults: Faults::default(),
            operations: 0,
            clock: Duration::from_secs(1_000_000),
            is_off: false,
            life: 0,
            is_locked: false,
            files: Vec::new(),
            directories: BTreeMap::from([(String::new(), Directory::default())]),
            fault_count: 0,
            directory_sync_failed: false,
        };
        Self { world: Arc::new(Mutex::new(world)), life: 0 }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no operation panics")
    }

    /// The same files again, of which this one knows nothing.
    pub(crate) fn fork(&self) -> Self {
        Self { world: Arc::new(Mutex::new(self.world().clone())), life: self.life }.restarted(false)
    }

    /// The door after all processes have ended, and with `cut` after the power has been off.
    pub(crate) fn restarted(&self, cut: bool) -> Self {
        let mut world = self.world();
        if cut && !world.is_off {
            world.cut_power();
        }
        world.is_off = false;
        world.is_locked = false;
        world.life += 1;
        world.faults = Faults::default();
        world.fault_count = 0;
        world.directory_sync_failed = false;
        Self { world: Arc::clone(&self.world), life: world.life }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.world().faults = faults;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.world().operations
    }

    /// Whether anything went wrong since the last restart.
    pub(crate) fn had_fault(&self) -> bool {
        let world = self.world();
        world.fault_count > 0 || world.is_off
    }

    /// Whether nobody can know what a directory will have: file systems stop then.
    pub(crate) fn must_restart(&self) -> bool {
        self.world().directory_sync_failed
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.world().clock += time;
    }

    /// Paths of all files with their sizes.
    pub(crate) fn paths(&self) -> Vec<(String, usize)> {
        let world = self.world();
        let files = world.directories.iter().flat_map(|(directory, names)| {
            names.cached.iter().filter_map(move |(name, node)| match node {
                Node::File(file) if directory.is_empty() => Some((name.clone(), *file)),
                Node::File(file) => Some((format!("{directory}/{name}"), *file)),
                Node::Directory => None,
            })
        });
        files.map(|(path, file)| (path, world.files[file].cached.len())).collect()
    }

    /// All of a file.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let mut world = self.world();
        let file = world.file(path).expect("it is there");
        world.files[file].cached.clone()
    }

    /// Changes a file behind everyone's back.
    pub(crate) fn tamper(&self, path: &str, tamper: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.world();
        let file = world.file(path).expect("it is there");
        tamper(&mut world.files[file].cached);
    }
}

impl Io for Unreliable {
    fn create(&self, path: &str) -> io::Result<Box<dyn Output>> {
        let file = self.world().act(self.life, |world| {
            let (directory, name) = split(path);
            if world.directory(directory)?.cached.contains_key(name) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if world.fault(world.faults.disk_full) {
                return Err(ErrorKind::StorageFull.into());
            }
            let file = world.files.len();
            world.files.push(FileData { modified: world.clock, ..FileData::default() });
            world.change(directory, Change::Add(name.to_owned(), Node::File(file)))?;
            Ok(file)
        })?;
        Ok(Box::new(Handle { world: Arc::clone(&self.world), life: self.life, file }))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Input>> {
        let mut world = self.world();
        if world.is_off || world.life != self.life {
            return Err(dead());
        }
        let file = world.file(path)?;
        Ok(Box::new(Handle { world: Arc::clone(&self.world), life: self.life, file }))
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let (directory, to) = split(to);
        let (_, old) = split(from);
        self.world().act(self.life, |world| {
            let file = world.file(from)?;
            if world.directory(directory)?.cached.contains_key(to) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if world.fault(world.faults.disk_full) {
                return Err(ErrorKind::StorageFull.into());
            }
            world.change(directory, Change::Add(to.to_owned(), Node::File(file)))
        })?;
        self.world().act(self.life, |world| world.change(directory, Change::Remove(old.to_owned())))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (directory, name) = split(path);
        self.world().act(self.life, |world| {
            world.file(path)?;
            world.change(directory, Change::Remove(name.to_owned()))
        })
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = split(path);
        self.world().act(self.life, |world| {
            if !world.directories.contains_key(path) {
                world.change(parent, Change::Add(name.to_owned(), Node::Directory))?;
                world.directories.insert(path.to_owned(), Directory::default());
            }
            Ok(())
        })
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.world().act(self.life, |world| {
            if world.fault(world.faults.failed_sync) {
                world.keep_some_names(path);
                world.directory_sync_failed = true;
                return Err(io::Error::other("the directory could not be synced"));
            }
            if world.faults.lying_syncs[1] {
                return Ok(());
            }
            let directory = world.directory(path)?;
            for pending in std::mem::take(&mut directory.pending) {
                change(&mut directory.durable, &pending);
            }
            Ok(())
        })
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut world = self.world();
        if world.is_off || world.life != self.life {
            return Err(dead());
        }
        let read_error = world.faults.read_error;
        if world.fault(read_error) {
            return Err(io::Error::other("the directory could not be read"));
        }
        let names = world.directory(path)?.cached.clone();
        let entry = |(name, node): (String, Node)| {
            let modified = if let Node::File(file) = node { world.files[file].modified } else { world.clock };
            Entry { name, modified }
        };
        Ok(names.into_iter().map(entry).collect())
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn Lock>> {
        self.world().act(self.life, |world| {
            if std::mem::replace(&mut world.is_locked, true) {
                return Err(ErrorKind::WouldBlock.into());
            }
            Ok(())
        })?;
        Ok(Box::new(Held { world: Arc::clone(&self.world), life: self.life }))
    }

    fn now(&self) -> Duration {
        self.world().clock
    }

    fn random(&self) -> u64 {
        self.world().random.next()
    }
}

#[derive(Debug)]
struct Held {
    world: Arc<Mutex<World>>,
    life: u64,
}

impl Lock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut world = self.world.lock().expect("no operation panics");
        if world.life == self.life {
            world.is_locked = false;
        }
    }
}

#[derive(Debug)]
struct Handle {
    world: Arc<Mutex<World>>,
    life: u64,
    file: usize,
}

impl Output for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut world = self.world.lock().expect("no operation panics");
        world.act(self.life, |world| {
            if world.fault(world.faults.disk_full) {
                return Err(ErrorKind::StorageFull.into());
            }
            if world.random.once_in(world.faults.short) && world.random.once_in(2) {
                return Err(ErrorKind::Interrupted.into());
            }
            let is_short = world.random.once_in(world.faults.short);
            let count = if is_short { 1 + world.random.below(bytes.len()) } else { bytes.len() };
            let now = world.clock;
            let data = &mut world.files[self.file];
            data.dirty.push((data.cached.len(), bytes[..count].to_vec()));
            data.cached.extend_from_slice(&bytes[..count]);
            data.modified = now;
            Ok(count)
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.world.lock().expect("no operation panics");
        world.act(self.life, |world| {
            if world.fault(world.faults.failed_sync) {
                world.keep_some(self.file);
                return Err(io::Error::other("the file could not be synced"));
            }
            if world.faults.lying_syncs[0] {
                return Ok(());
            }
            let data = &mut world.files[self.file];
            for (offset, bytes) in std::mem::take(&mut data.dirty) {
                write_at(&mut data.durable, offset, &bytes);
            }
            Ok(())
        })
    }
}

impl Input for Handle {
    fn byte_count(&self) -> u64 {
        self.world.lock().expect("no operation panics").files[self.file].cached.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world.lock().expect("no operation panics");
        if world.is_off || world.life != self.life {
            return Err(dead());
        }
        let read_error = world.faults.read_error;
        if world.fault(read_error) {
            return Err(io::Error::other("the disk could not be read"));
        }
        let short = world.faults.short;
        let is_short = world.random.once_in(short);
        if is_short && world.random.once_in(2) {
            return Err(ErrorKind::Interrupted.into());
        }
        let offset = usize::try_from(offset).expect("a small file");
        let bytes = world.files[self.file].cached.get(offset..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        let count = if is_short && count > 0 { 1 + count / 2 } else { count }.min(count);
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(io: &Unreliable, path: &str) -> Option<Vec<u8>> {
        let input = io.open(path).ok()?;
        let mut bytes = vec![0; input.byte_count() as usize];
        input.read_exact_at(0, &mut bytes).expect("no faults");
        Some(bytes)
    }

    fn write(io: &Unreliable, path: &str, is_synced: bool) {
        let mut output = io.create(path).expect("no faults");
        output.write_all(&[7; 2000]).expect("no faults");
        if is_synced {
            output.sync().expect("no faults");
        }
    }

    /// How the file ends up that `write` makes, over many seeds.
    fn outcomes(write: impl Fn(&Unreliable)) -> std::collections::BTreeSet<Option<Vec<u8>>> {
        let outcome = |seed| {
            let io = Unreliable::new(seed);
            write(&io);
            contents(&io.restarted(true), "f")
        };
        (0..200).map(outcome).collect()
    }

    #[test]
    fn only_what_was_synced_is_kept_for_certain() {
        let whole = Some(vec![7; 2000]);
        let kept = outcomes(|io| {
            write(io, "f", true);
            io.sync_directory("").expect("no faults");
        });
        assert_eq!(kept, [whole.clone()].into());
        let nameless = outcomes(|io| write(io, "f", true));
        assert_eq!(nameless, [None, whole.clone()].into());
        let torn = outcomes(|io| {
            write(io, "f", false);
            io.sync_directory("").expect("no faults");
        });
        assert!(torn.len() > 10 && torn.contains(&whole) && !torn.contains(&None));
    }

    #[test]
    fn a_failed_sync_forgets_and_the_next_lies() {
        let outcome = outcomes(|io| {
            let mut output = io.create("f").expect("no faults");
            io.sync_directory("").expect("no faults");
            output.write_all(&[7; 2000]).expect("no faults");
            io.set_faults(Faults { failed_sync: 1, ..Faults::default() });
            output.sync().unwrap_err();
            io.set_faults(Faults::default());
            output.sync().expect("it lies");
            assert_eq!(contents(io, "f"), Some(vec![7; 2000]), "the cache still has it");
        });
        assert!(outcome.len() > 10, "{} outcomes", outcome.len());
    }

    #[test]
    fn after_a_power_cut_old_handles_are_dead() {
        let io = Unreliable::new(1);
        io.set_faults(Faults { cut_at: Some(2), ..Faults::default() });
        let mut output = io.create("f").expect("the first operation");
        output.write_all(b"x").unwrap_err();
        io.create("g").map(|_| ()).unwrap_err();
        let restarted = io.restarted(true);
        write(&restarted, "h", true);
        io.create("g").map(|_| ()).unwrap_err();
    }
}
