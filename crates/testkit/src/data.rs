//! Finds test data that is too large, or not ours, to be kept beside the code.
//!
//! `KEIRIN_DATA` names a directory of files and packs (`NAME.tar.zst`); by default it is `../shared/data`
//! beside the repository. A pack is unpacked once, below the target directory. Tests that find no
//! data say so with [`skipped`] and pass.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Packs are compressed with a window of up to 2^27 bytes (`zstd --long=27`).
const WINDOW_LOG_MAX: u32 = 27;

/// The directory of the data, if there is one.
pub fn directory() -> Option<PathBuf> {
    let path = match std::env::var_os("KEIRIN_DATA") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    path.is_dir().then(|| path.canonicalize().unwrap_or(path))
}

/// A file of the data; `None`, with a notice, if it is not there.
pub fn file(name: &str) -> Option<PathBuf> {
    let path = directory().map(|directory| directory.join(name)).filter(|path| path.is_file());
    if path.is_none() {
        skipped(&format!("no {name} in KEIRIN_DATA"));
    }
    path
}

/// Reports that the calling test was skipped, and why.
///
/// The test runner shows nothing of a test that passes, so this writes past it, to standard error. Where
/// `KEIRIN_SKIPPED` names a file, a line goes there as well, for whoever counts the tests of a whole run.
///
/// # Panics
/// When the file cannot be written: a run that asks for the count must not get a wrong one.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped {}: {reason}\n", thread.name().unwrap_or("(a thread without a name)"));
    // Standard error may be closed; that is no reason to fail.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("KEIRIN_SKIPPED") {
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

/// The directory with what pack `name` holds; `None`, with a notice, if the pack is not there.
///
/// # Panics
/// When the pack cannot be unpacked: it is there, so the test is meant to run.
pub fn pack(name: &str) -> Option<PathBuf> {
    let archive = file(&format!("{name}.tar.zst"))?;
    Some(
        unpack(name, &archive).unwrap_or_else(|error| panic!("cannot unpack {}: {error}", archive.display())),
    )
}

fn unpack(name: &str, archive: &Path) -> io::Result<PathBuf> {
    let metadata = archive.metadata()?;
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let cache = cache_directory();
    let target = cache.join(format!("{name}-{}-{changed}", metadata.len()));
    if target.is_dir() {
        return Ok(target);
    }
    // Tests run side by side: each unpacks for itself, the first to finish wins.
    fs::create_dir_all(&cache)?;
    let own = tempfile::Builder::new().prefix(name).tempdir_in(&cache)?;
    let mut decoder = zstd::Decoder::new(File::open(archive)?)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    for entry in tar::Archive::new(decoder).entries()? {
        let mut entry = entry?;
        // A pack may contain a link twice.
        let is_there = own.path().join(entry.path()?).exists();
        if !(is_there && entry.header().entry_type().is_hard_link()) {
            entry.unpack_in(own.path())?;
        }
    }
    match fs::rename(own.path(), &target) {
        Ok(()) => drop(own.keep()),
        Err(_) if target.is_dir() => {}
        Err(error) => return Err(error),
    }
    Ok(target)
}

/// Below the target directory that the running test was built in, so that `cargo clean` removes it.
fn cache_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    target.map_or_else(std::env::temp_dir, Path::to_owned).join("test-data")
}
