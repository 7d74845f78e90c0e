//! How much memory there is, and where to go when it is used up.
//!
//! The limit is one pool for all sessions of a database: operators that can spill share what is left
//! fairly, so that one greedy sort cannot starve the others. Spill files live in a directory of this
//! process, marked by a locked file: when a process dies without cleaning up, the next one that opens
//! a database sees that nobody holds the lock and removes the directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Share of the machine's memory that queries may use unless told otherwise.
const DEFAULT_SHARE_PERCENT: u64 = 80;
const DIRECTORY_PREFIX: &str = "keirin-spill-";
const LOCK_NAME: &str = "lock";

/// 80 % of what this process may use: the machine's memory or its control group's limit, in bytes.
pub(crate) fn default_limit_bytes() -> usize {
    let cgroup = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = cgroup.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    let bytes = limits.chain(machine_bytes()).min().unwrap_or(4 << 30);
    usize::try_from(bytes / 100 * DEFAULT_SHARE_PERCENT).unwrap_or(usize::MAX)
}

fn machine_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The spill directory of this process; dropping it removes it with all it holds.
#[derive(Debug)]
pub(crate) struct SpillDirectory {
    path: PathBuf,
    // Held, not read: the lock tells other processes that the directory is in use.
    _lock: File,
}

impl SpillDirectory {
    /// Makes a fresh directory under `parent` and removes those that dead processes left there.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        let failed = |what: &str, path: &Path, error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot {what} temporary directory '{}': {error}", path.display()))
                .with_hint("SET keirin.temp_directory to a directory that can be written")
        };
        fs::create_dir_all(parent).map_err(|error| failed("create", parent, error))?;
        remove_abandoned(parent);
        let directory = tempfile::Builder::new()
            .prefix(DIRECTORY_PREFIX)
            .tempdir_in(parent)
            .map_err(|error| failed("write to", parent, error))?;
        let lock = File::create(directory.path().join(LOCK_NAME))
            .and_then(|lock| lock.lock().map(|()| lock))
            .map_err(|error| failed("lock", directory.path(), error))?;
        Ok(Self { path: directory.keep(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        // Nothing to be done about a failure here: the next process tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the spill directories whose process is gone. One without a lock file is being made just now.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK_NAME)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_directory_is_removed_and_a_live_one_stays() {
        let parent = tempfile::tempdir().unwrap();
        let live = SpillDirectory::create(parent.path()).unwrap();
        let dead = parent.path().join(format!("{DIRECTORY_PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK_NAME), "").unwrap();
        fs::write(dead.join("run-1"), "left behind").unwrap();

        let next = SpillDirectory::create(parent.path()).unwrap();
        assert!(!dead.exists());
        assert!(live.path().exists() && next.path().exists());

        let path = live.path().to_owned();
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn the_default_limit_is_a_share_of_a_real_machine() {
        let limit = default_limit_bytes();
        assert!(limit > 64 << 20, "{limit}");
    }
}
