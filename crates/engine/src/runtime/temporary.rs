//! Files and directories that must not outlive the process, however it ends.
//!
//! Each removes itself when it is dropped. A program that exits without unwinding drops nothing, so their
//! paths are also listed here: [`remove_temporary_files`] removes all listed files, and prevents new ones as
//! long as the value that it returns lives. A file is made and listed under one lock, so that none is missed
//! in between.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

static LIST: Mutex<List> = Mutex::new(List { paths: BTreeSet::new(), closed: 0 });

struct List {
    paths: BTreeSet<PathBuf>,
    /// How many [`NoTemporaryFiles`] prevent new files, because the process is about to end.
    closed: usize,
}

/// The entry of one path; dropping it removes the path from the list, but not the file.
#[derive(Debug)]
pub(crate) struct Listed {
    path: PathBuf,
}

impl Listed {
    /// Makes a file or directory with `make` and lists its path.
    pub(crate) fn make<T: AsRef<Path>>(make: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Self)> {
        let mut list = LIST.lock();
        if list.closed > 0 {
            return Err(io::Error::other("the program is ending"));
        }
        let made = make()?;
        let path = made.as_ref().to_owned();
        list.paths.insert(path.clone());
        Ok((made, Self { path }))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        LIST.lock().paths.remove(&self.path);
    }
}

/// While this value lives, no database of this process makes temporary files.
#[derive(Debug)]
#[must_use = "temporary files are made again once it is dropped"]
pub struct NoTemporaryFiles(());

impl Drop for NoTemporaryFiles {
    fn drop(&mut self) {
        LIST.lock().closed -= 1;
    }
}

/// Removes the temporary files of all databases of this process, for a program that is about to end:
/// unfinished files of `COPY`, and files that queries spilled to disk. New ones cannot be made, and
/// statements that need one fail, until the returned value is dropped: a program holds it until its end.
///
/// The list of temporary files is global to the process. A program that ends by returning from `main` needs
/// this only if statements may still be running.
pub fn remove_temporary_files() -> NoTemporaryFiles {
    let mut list = LIST.lock();
    list.closed += 1;
    for path in std::mem::take(&mut list.paths) {
        // A failure is ignored: the process is ending.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
    NoTemporaryFiles(())
}
