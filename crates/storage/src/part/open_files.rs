//! The open files of parts, shared by all readers of a part.
//!
//! The system limits the open files of a process, and a table may have more parts than that. So the least recently
//! read files are closed, and opened again when they are read the next time. When the last reader of a part ends,
//! its file is closed at once, so that the space of a removed file is freed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};

use super::cache::PartKey;
use crate::database::locked;
use crate::io::{Input, is_out_of_files};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// The most open files; while a file is read it may be one more.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: HashMap<PartKey, Entry>,
    /// The parts whose files are open, by the time of their last read.
    by_use: BTreeMap<u64, PartKey>,
    /// Goes up with each use.
    clock: u64,
}

/// A part that someone reads.
#[derive(Debug, Default)]
struct Entry {
    reader_count: usize,
    /// The file, if it is open, and when it was read last.
    file: Option<(Arc<dyn Input>, u64)>,
}

impl State {
    /// The file of a part, if it is open.
    fn get(&mut self, key: PartKey) -> Option<Arc<dyn Input>> {
        let (file, used) = self.parts.get_mut(&key)?.file.as_mut()?;
        self.by_use.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.by_use.insert(*used, key);
        Some(Arc::clone(file))
    }

    /// Removes the least recently read file.
    fn take_oldest(&mut self) -> Option<Arc<dyn Input>> {
        let (_, key) = self.by_use.pop_first()?;
        Some(self.parts.get_mut(&key)?.file.take()?.0)
    }
}

impl OpenFiles {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), state: Mutex::default() }
    }

    /// Registers a reader of a part.
    pub(super) fn begin(&self, key: PartKey) {
        locked(&self.state).parts.entry(key).or_default().reader_count += 1;
    }

    /// Removes a reader of a part, and with the last one its file.
    pub(super) fn end(&self, key: PartKey) {
        let mut state = locked(&self.state);
        let Some(entry) = state.parts.get_mut(&key) else { return };
        entry.reader_count -= 1;
        if entry.reader_count > 0 {
            return;
        }
        let file = state.parts.remove(&key).and_then(|entry| entry.file);
        file.iter().for_each(|(_, used)| _ = state.by_use.remove(used));
        // Closing may take long.
        drop(state);
        drop(file);
    }

    /// The file of a part that has a reader; calls `open` if it is not open.
    pub(super) fn get(
        &self,
        key: PartKey,
        open: impl Fn() -> io::Result<Box<dyn Input>>,
    ) -> io::Result<Arc<dyn Input>> {
        if let Some(file) = locked(&self.state).get(key) {
            return Ok(file);
        }
        let mut opened = open();
        // Half of the files are closed rather than one: the rest of the program needs files, too.
        while opened.as_ref().is_err_and(is_out_of_files) && self.close_half() {
            opened = open();
        }
        let file: Arc<dyn Input> = Arc::from(opened?);
        let mut state = locked(&self.state);
        // Another thread may have opened it meanwhile.
        if let Some(file) = state.get(key) {
            return Ok(file);
        }
        state.clock += 1;
        let used = state.clock;
        if let Some(entry) = state.parts.get_mut(&key) {
            entry.file = Some((Arc::clone(&file), used));
            state.by_use.insert(used, key);
        }
        let mut closed = Vec::new();
        while state.by_use.len() > self.limit {
            closed.extend(state.take_oldest());
        }
        drop(state);
        Ok(file)
    }

    /// Closes half of the files; returns whether there were any.
    fn close_half(&self) -> bool {
        let mut state = locked(&self.state);
        let count = state.by_use.len().div_ceil(2);
        let closed: Vec<_> = (0..count).filter_map(|_| state.take_oldest()).collect();
        drop(state);
        !closed.is_empty()
    }

    /// The most open files.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// How many files are open.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        locked(&self.state).by_use.len()
    }
}

/// The default limit of open files: half of the process's own.
pub(crate) fn default_open_files_max() -> usize {
    /// Beyond this, opening a file again costs little beside reading so many.
    const FILES_MAX: u64 = 4096;
    #[cfg(unix)]
    let limit = rlimit::Resource::NOFILE.get_soft().unwrap_or(FILES_MAX);
    #[cfg(not(unix))]
    let limit = FILES_MAX;
    usize::try_from((limit / 2).clamp(1, FILES_MAX)).expect("a few thousand")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Debug)]
    struct File;

    impl Input for File {
        fn byte_count(&self) -> u64 {
            0
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    fn key(part: u64) -> PartKey {
        PartKey { table: 1, part, hash: 0 }
    }

    #[test]
    fn those_that_were_not_read_for_longest_are_closed() {
        let files = OpenFiles::new(2);
        let opened = Cell::new(0);
        let read = |part| {
            let open = || {
                opened.set(opened.get() + 1);
                Ok(Box::new(File) as Box<dyn Input>)
            };
            files.get(key(part), open).unwrap();
            (opened.replace(0), files.count())
        };
        (0..3).for_each(|part| files.begin(key(part)));
        assert_eq!([0, 1, 0, 2, 0, 1].map(read), [(1, 1), (1, 2), (0, 2), (1, 2), (0, 2), (1, 2)]);
        (0..3).for_each(|part| files.begin(key(part)));
        (0..3).for_each(|part| files.end(key(part)));
        assert_eq!(files.count(), 2, "others read them");
        (0..3).for_each(|part| files.end(key(part)));
        assert_eq!(files.count(), 0);
    }

    #[test]
    fn the_others_are_closed_when_the_system_has_no_more() {
        let files = OpenFiles::new(100);
        (0..9).for_each(|part| files.begin(key(part)));
        (0..8).for_each(|part| _ = files.get(key(part), || Ok(Box::new(File))).unwrap());
        let out_of_files = || io::Error::from_raw_os_error(24);
        files
            .get(key(8), || if files.count() > 2 { Err(out_of_files()) } else { Ok(Box::new(File)) })
            .unwrap();
        assert_eq!(files.count(), 3);
        let refused = files.get(key(0), || Err(out_of_files())).unwrap_err();
        assert_eq!((refused.raw_os_error(), files.count()), (Some(24), 0));
    }
}
