//! A file system in memory that loses what a real one may lose.
//!
//! A power cut keeps a random part of what was not synced. So does a failed sync, after which the cache still shows
//! everything and later syncs report success. All of it follows from one seed.

#![allow(clippy::cast_possible_truncation, reason = "all numbers are small")]

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod cache;
mod random;
mod world;

use self::cache::{Change, Directory, FileData, Node};
pub(crate) use self::random::Random;
pub(crate) use self::world::Faults;
use self::world::{World, dead, split};
use crate::io::{Input, Io, Lock, Output};

/// [`Io`] for an unreliable file system.
#[derive(Debug)]
pub(crate) struct Unreliable {
    world: Arc<Mutex<World>>,
    life: u64,
}

impl Unreliable {
    pub(crate) fn new(seed: u64) -> Self {
        let world = World {
            random: Random::new(seed),
            faults: Faults::default(),
            operations: 0,
            opened: 0,
            clock: Duration::from_secs(1_000_000),
            elapsed: Duration::ZERO,
            is_off: false,
            life: 0,
            is_locked: false,
            files: Vec::new(),
            directories: BTreeMap::from([(String::new(), Directory::default())]),
            fault_count: 0,
            root_sync_failed: false,
        };
        Self { world: Arc::new(Mutex::new(world)), life: 0 }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no operation panics")
    }

    /// An independent copy of the files.
    pub(crate) fn fork(&self) -> Self {
        Self { world: Arc::new(Mutex::new(self.world().clone())), life: self.life }.restarted(false)
    }

    /// The file system after all processes have ended; with `cut`, after a power cut.
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
        world.root_sync_failed = false;
        Self { world: Arc::clone(&self.world), life: world.life }
    }

    /// Kills the process: its later operations have no effect.
    pub(crate) fn kill(&self) {
        self.world().life += 1;
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.world().faults = faults;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.world().operations
    }

    pub(crate) fn opened(&self) -> u64 {
        self.world().opened
    }

    /// Breaks the lock, so that a second writer gets in.
    pub(crate) fn break_lock(&self) {
        self.world().is_locked = false;
    }

    /// Whether anything went wrong since the last restart.
    pub(crate) fn had_fault(&self) -> bool {
        let world = self.world();
        world.fault_count > 0 || world.is_off
    }

    /// Whether the sync of the root directory failed: it is unknown whether the database exists, and a real file
    /// system stops then.
    pub(crate) fn must_restart(&self) -> bool {
        self.world().root_sync_failed
    }

    pub(crate) fn pass(&self, time: Duration) {
        let mut world = self.world();
        world.clock += time;
        world.elapsed += time;
    }

    /// Sets the wall clock.
    pub(crate) fn set_clock(&self, time: Duration) {
        self.world().clock = time;
    }

    /// Begins an operation that changes nothing; fails if the power is off.
    fn look(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world();
        if world.is_off || world.life != self.life { Err(dead()) } else { Ok(world) }
    }

    /// Creates a file behind the back of the processes.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let (directory, name) = split(path);
        let mut world = self.world();
        let file = world.files.len();
        let modified = world.clock;
        world.files.push(FileData::new(bytes, modified));
        world.change(directory, Change::Add(name.to_owned(), Node::File(file))).expect("a directory");
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

    /// The content of a file.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let mut world = self.world();
        let file = world.file(path).expect("it is there");
        world.files[file].cached.clone()
    }

    /// Changes a file behind the back of the processes.
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
            world.files.push(FileData::new(&[], world.clock));
            world.change(directory, Change::Add(name.to_owned(), Node::File(file)))?;
            Ok(file)
        })?;
        Ok(Box::new(Handle { world: Arc::clone(&self.world), life: self.life, file }))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Input>> {
        let mut world = self.look()?;
        world.refusal("open").0?;
        world.read_fault(path)?;
        world.opened += 1;
        let file = world.file(path)?;
        Ok(Box::new(Handle { world: Arc::clone(&self.world), life: self.life, file }))
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let (directory, to) = split(to);
        let (_, old) = split(from);
        self.world().act(self.life, |world| {
            let (answer, is_done) = world.refusal("publish");
            if !is_done {
                return answer;
            }
            let file = world.file(from)?;
            if world.directory(directory)?.cached.contains_key(to) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if world.fault(world.faults.disk_full) {
                return Err(ErrorKind::StorageFull.into());
            }
            world.change(directory, Change::Add(to.to_owned(), Node::File(file)))?;
            answer
        })?;
        self.world().act(self.life, |world| world.change(directory, Change::Remove(old.to_owned())))
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let ((directory, to), (_, old)) = (split(to), split(from));
        self.world().act(self.life, |world| {
            let file = world.file(from)?;
            if world.fault(world.faults.disk_full) {
                return Err(ErrorKind::StorageFull.into());
            }
            world.change(directory, Change::Add(to.to_owned(), Node::File(file)))?;
            world.change(directory, Change::Remove(old.to_owned()))
        })
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
            if world.directory(parent)?.cached.contains_key(name) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            world.change(parent, Change::Add(name.to_owned(), Node::Directory))?;
            world.directories.insert(path.to_owned(), Directory::default());
            Ok(())
        })
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = split(path);
        self.world().act(self.life, |world| {
            if !world.directory(path)?.cached.is_empty() {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            world.change(parent, Change::Remove(name.to_owned()))
        })
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.world().act(self.life, |world| {
            if world.refusal("sync_directory").0.is_err() || world.fault(world.faults.failed_sync) {
                let World { directories, random, .. } = world;
                directories.get_mut(path).into_iter().for_each(|directory| directory.keep_some(random));
                world.root_sync_failed |= path.is_empty();
                return Err(io::Error::other("the directory could not be synced"));
            }
            if world.faults.lying_syncs[1] {
                return Ok(());
            }
            world.directory(path)?.sync();
            Ok(())
        })
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut world = self.look()?;
        world.refusal("list").0?;
        world.read_fault(path)?;
        let unlisted = world.faults.unlisted;
        let names = world.directory(path)?.cached.keys();
        Ok(names.filter(|name| unlisted != Some(name.as_str())).cloned().collect())
    }

    fn modified(&self, path: &str) -> io::Result<Duration> {
        let mut world = self.look()?;
        world.refusal("modified").0?;
        world.read_fault(path)?;
        let file = world.file(path)?;
        Ok(world.files[file].modified)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Lock>> {
        self.world().act(self.life, |world| {
            world.refusal("lock").0?;
            world.read_fault(path)?;
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

    fn elapsed(&self) -> Duration {
        self.world().elapsed
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
            world.files[self.file].append(&bytes[..count], now);
            Ok(count)
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.world.lock().expect("no operation panics");
        world.act(self.life, |world| {
            if world.fault(world.faults.failed_sync) {
                let World { files, random, .. } = world;
                files[self.file].keep_some(random);
                return Err(io::Error::other("the file could not be synced"));
            }
            if world.faults.lying_syncs[0] {
                return Ok(());
            }
            world.files[self.file].sync();
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
        world.read_fault("the file")?;
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

    /// All contents that the file which `write` makes can end up with, over many seeds.
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
