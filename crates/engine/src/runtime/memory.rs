//! How much memory queries may use, and where they spill when it runs out.
//!
//! The limit is one pool for all sessions of a database: operators that can spill share fairly what is left,
//! so that one greedy sort cannot starve the others. Spill files are in a directory of this process, marked
//! by a locked file: when a process dies without cleaning up, the next one that opens a database sees that
//! nobody holds the lock, and removes the directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use datafusion::config::ConfigOptions;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::temporary::Listed;
use crate::sources::files::system_reason;

/// Share of the machine's memory that queries may use by default.
const DEFAULT_SHARE_PERCENT: u64 = 80;
/// Batches have at least this many rows, if memory is limited: a query whose rows are too wide for that
/// fails.
const BATCH_ROWS_MIN: usize = 128;
const DIRECTORY_PREFIX: &str = "keirin-spill-";
const LOCK_NAME: &str = "lock";

/// The memory that one partition of a query needs to sort, group and join with spilling, in bytes.
const PART_BYTES_MIN: usize = 32 << 20;
/// Memory of a partition per row of a batch: sorted runs are merged with a batch of each in memory, so rows
/// of a few kilobytes need smaller batches where memory is short.
const PART_BYTES_PER_BATCH_ROW: usize = 128 << 10;
/// The share of a partition's memory that a sort reserves for merging its rows before it spills: 1/16.
const SORT_RESERVE_DIVISOR: usize = 16;

/// Fits the options of a query to the memory limit: fewer partitions, smaller batches and reserves than in
/// `options` if the limit leaves no room for more.
pub(crate) fn fit(options: &mut ConfigOptions, limit_bytes: usize) {
    let parts = options.execution.target_partitions.min(limit_bytes / PART_BYTES_MIN).max(1);
    let part_bytes = limit_bytes / parts;
    options.execution.target_partitions = parts;
    let rows = (part_bytes / PART_BYTES_PER_BATCH_ROW).max(BATCH_ROWS_MIN);
    if options.execution.batch_size.get() > rows {
        // The value is valid: it is at least BATCH_ROWS_MIN.
        let _ = options.set("datafusion.execution.batch_size", &rows.to_string());
    }
    let reserve = part_bytes / SORT_RESERVE_DIVISOR;
    let reserved = &mut options.execution.sort_spill_reservation_bytes;
    *reserved = reserve.min(*reserved);
}

/// 80 % of the memory that this process may use, in bytes.
pub(crate) fn default_limit_bytes() -> usize {
    usize::try_from(usable_bytes() / 100 * DEFAULT_SHARE_PERCENT).unwrap_or(usize::MAX)
}

/// The memory that this process may use, in bytes: the machine's memory or its control group's limit.
fn usable_bytes() -> u64 {
    let cgroup = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = cgroup.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    limits.chain(machine_bytes()).min().unwrap_or(4 << 30)
}

/// Reads `512MB`, `1.5 GiB`, `50%` (of the machine or its control group) or a number of bytes.
///
/// # Errors
/// What was expected, as the end of a sentence.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a limit need not be exact to the byte; the range is checked"
)]
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "expected a size such as '512MB', '4GB' or '50%'";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| EXPECTED.to_owned())?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "%" => usable_bytes() as f64 / 100.0,
        _ => return Err(EXPECTED.to_owned()),
    };
    let bytes = number * unit;
    if !(1.0..=1e18).contains(&bytes) {
        return Err(EXPECTED.to_owned());
    }
    Ok(bytes as usize)
}

/// A size for people: `512 MB`, `1.5 GB`. Units are powers of 1024, as [`parse_bytes`] reads them.
#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
pub(crate) fn format_bytes(bytes: usize) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let step = (0..units.len()).rev().find(|step| bytes >> (10 * step) > 0).unwrap_or(0);
    let number = bytes as f64 / (1_u64 << (10 * step)) as f64;
    let text = format!("{number:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), units[step])
}

fn machine_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The spill directory of this process; dropping it removes the directory with all of its files.
#[derive(Debug)]
pub(crate) struct SpillDirectory {
    path: PathBuf,
    // Held, not read: the lock tells other processes that the directory is in use.
    _lock: File,
    _listed: Listed,
}

impl SpillDirectory {
    /// Makes a fresh directory under `parent` and removes those that dead processes left there.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        let failed = |what: &str, path: &Path, error: std::io::Error| {
            Error::new(
                ErrorKind::Io,
                format!("cannot {what} temporary directory '{}': {}", path.display(), system_reason(&error)),
            )
            .with_hint("choose another with --temp-directory, or DatabaseBuilder::temp_directory")
        };
        fs::create_dir_all(parent).map_err(|error| failed("create", parent, error))?;
        remove_abandoned(parent);
        let made = Listed::make(|| tempfile::Builder::new().prefix(DIRECTORY_PREFIX).tempdir_in(parent));
        let (directory, listed) = made.map_err(|error| failed("write to", parent, error))?;
        let lock = new_lock(directory.path()).map_err(|error| failed("lock", directory.path(), error))?;
        Ok(Self { path: directory.keep(), _lock: lock, _listed: listed })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        // A failure is ignored: the next process tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes the lock file of a directory. The file is locked before it gets its name, or another process could
/// take the directory for an abandoned one.
fn new_lock(directory: &Path) -> std::io::Result<File> {
    let unnamed = directory.join("lock.new");
    let lock = File::create(&unnamed)?;
    lock.lock()?;
    fs::rename(unnamed, directory.join(LOCK_NAME))?;
    Ok(lock)
}

/// Removes the spill directories of processes that ended. A directory without a lock file is just being made.
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
    fn sizes_are_read_as_people_write_them() {
        let check =
            |text: &str, expected: Option<usize>| assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        check("1048576", Some(1 << 20));
        check("512MB", Some(512 << 20));
        check(" 1.5 GiB ", Some(3 << 29));
        check("100%", usize::try_from(usable_bytes()).ok());
        check("0", None);
        check("-1GB", None);
        check("many", None);
        check("1XB", None);
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        let check = |bytes: usize, expected: &str| assert_eq!(format_bytes(bytes), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1 << 30, "1 GB");
        check(3 << 29, "1.5 GB");
        check(512 << 20, "512 MB");
    }

    #[test]
    fn a_query_is_fitted_to_small_limits_only() {
        let check = |threads: usize, limit_bytes: usize, expected: (usize, usize, usize)| {
            let mut options = ConfigOptions::new();
            options.execution.target_partitions = threads;
            fit(&mut options, limit_bytes);
            let execution = &options.execution;
            let reserved = execution.sort_spill_reservation_bytes;
            let fitted = (execution.target_partitions, execution.batch_size.get(), reserved);
            assert_eq!(fitted, expected, "{threads} threads, {limit_bytes} bytes");
        };
        check(8, 8 << 30, (8, 8192, 10 << 20));
        check(2, 128 << 20, (2, 512, 4 << 20));
        check(16, 128 << 20, (4, 256, 2 << 20));
        check(2, 1 << 20, (1, 128, 64 << 10));
    }

    #[test]
    fn the_default_limit_is_a_share_of_a_real_machine() {
        let limit = default_limit_bytes();
        assert!(limit > 64 << 20, "{limit}");
    }
}
