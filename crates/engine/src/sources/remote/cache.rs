//! Chunks of remote files in a directory that several processes share.
//!
//! A chunk is a file: its bytes, and the XXH3 of them and of what they are. So one that was cut, changed or renamed is
//! found out, thrown away and fetched again. It gets its name when it is whole. When there are too many bytes, those
//! that were not used for longest go, whoever put them there. Nothing here may fail a query: what cannot be kept
//! is not kept.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are kept unless it is said otherwise.
pub(crate) const LIMIT_BYTES: u64 = 4 << 30;
const SUFFIX: &str = "kchunk";
const UNFINISHED: &str = "ktmp";
/// What a process left that was ended while it wrote.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);
const CHECKSUM_BYTES: usize = 16;
/// A process adds up the files in the cache, and removes the oldest if they are more than the limit, with its first write
/// and whenever it has written one of so many parts of the limit.
const LOOKED_EVERY: u64 = 16;

/// How much of what lies behind URLs is kept on this machine, and where.
#[derive(Clone, Debug)]
pub(crate) struct CacheOptions {
    /// Nothing is kept if there is no such place.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) limit_bytes: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { directory: default_directory(), limit_bytes: LIMIT_BYTES }
    }
}

impl CacheOptions {
    pub(crate) fn shown_directory(&self) -> String {
        self.directory.as_ref().map_or_else(String::new, |directory| directory.display().to_string())
    }
}

/// Where programs keep what they can fetch again.
fn default_directory() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_the_system = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Caches"))
    } else {
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))
    };
    of_the_system.map(|directory| directory.join("keirin"))
}

/// A number that nobody can foretell.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u64)
}

/// A file and the number of a chunk in it.
pub(super) type Key = (u128, u64);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Cache {
    options: Mutex<CacheOptions>,
    /// Bytes that were written since this process looked how much there is.
    written: AtomicU64,
}

impl Cache {
    pub(super) fn new(options: CacheOptions) -> Self {
        Self { options: Mutex::new(options), written: AtomicU64::new(u64::MAX / 2) }
    }

    pub(crate) fn options(&self) -> CacheOptions {
        self.options.lock().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut CacheOptions)) {
        change(&mut self.options.lock());
        self.written.store(u64::MAX / 2, Ordering::Relaxed);
    }

    /// The directory, if anything is to be kept.
    fn directory(&self) -> Option<(PathBuf, u64)> {
        let options = self.options.lock();
        let directory = options.directory.clone().filter(|_| options.limit_bytes > 0)?;
        Some((directory, options.limit_bytes))
    }

    /// A chunk of so many bytes.
    pub(super) fn get(&self, key: Key, byte_count: usize) -> Option<Bytes> {
        let path = self.directory()?.0.join(name(key));
        // Others may write there, too: a pipe would be read for ever.
        let there = fs::symlink_metadata(&path).ok()?;
        if !there.is_file() || there.len() > (byte_count + CHECKSUM_BYTES) as u64 {
            _ = fs::remove_file(path);
            return None;
        }
        let mut found = fs::read(&path).ok()?;
        let bytes = found.len().checked_sub(CHECKSUM_BYTES).map_or(&[][..], |count| &found[..count]);
        if bytes.len() != byte_count || found[byte_count..] != checksum(key, bytes) {
            _ = fs::remove_file(path);
            return None;
        }
        // What is used stays.
        _ = File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
        found.truncate(byte_count);
        Some(found.into())
    }

    pub(super) fn put(&self, key: Key, bytes: &[u8]) {
        let Some((directory, limit)) = self.directory() else { return };
        let name = name(key);
        let unfinished = directory.join(format!("{name}.{:016x}.{UNFINISHED}", random()));
        let write = || {
            make(&directory)?;
            fs::write(&unfinished, [bytes, &checksum(key, bytes)].concat())?;
            fs::rename(&unfinished, directory.join(&name))
        };
        if write().is_err() {
            _ = fs::remove_file(&unfinished);
            return;
        }
        let written = self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if written > limit / LOOKED_EVERY {
            self.written.store(0, Ordering::Relaxed);
            _ = sweep(&directory, limit);
        }
    }

    pub(super) fn remove(&self, key: Key) {
        if let Some((directory, _)) = self.directory() {
            _ = fs::remove_file(directory.join(name(key)));
        }
    }
}

fn name((file, chunk): Key) -> String {
    format!("{file:032x}-{chunk:08x}.{SUFFIX}")
}

fn checksum((file, chunk): Key, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = Xxh3::new();
    hasher.update(&file.to_le_bytes());
    hasher.update(&chunk.to_le_bytes());
    hasher.update(bytes);
    hasher.digest128().to_le_bytes()
}

/// Makes the directory, for the eyes of this user alone.
fn make(directory: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// Removes what was not used for longest until there are no more bytes than `limit`, and then some.
fn sweep(directory: &Path, limit: u64) -> Result<()> {
    let now = SystemTime::now();
    let mut chunks = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        // Another process may have removed it.
        let Ok(found) = fs::metadata(&path) else { continue };
        let Ok(modified) = found.modified() else { continue };
        match extension {
            Some(SUFFIX) => chunks.push((modified, found.len(), path)),
            Some(UNFINISHED) if now.duration_since(modified).is_ok_and(|age| age > UNFINISHED_AGE) => {
                _ = fs::remove_file(path);
            }
            _ => {}
        }
    }
    let mut total: u64 = chunks.iter().map(|(_, bytes, _)| bytes).sum();
    if total <= limit {
        return Ok(());
    }
    chunks.sort_unstable();
    for (_, bytes, path) in chunks {
        if total <= limit - limit / LOOKED_EVERY {
            break;
        }
        _ = fs::remove_file(path);
        total -= bytes;
    }
    Ok(())
}
