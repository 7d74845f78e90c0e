//! The cache of the simulated disk: what a power cut leaves of unsynced writes and names.
//!
//! Of a file it keeps any combination of 512-byte sectors, sometimes half a sector, and a length that fits. In a
//! directory it keeps or loses each added or removed name independently.

use std::collections::BTreeMap;
use std::time::Duration;

use super::random::Random;

const SECTOR_BYTES: usize = 512;

/// A file as programs see it, and as it is on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct FileData {
    pub(super) cached: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that are not on disk yet.
    dirty: Vec<(usize, Vec<u8>)>,
    pub(super) modified: Duration,
}

impl FileData {
    /// A file with bytes that are not on disk yet.
    pub(super) fn new(bytes: &[u8], modified: Duration) -> Self {
        let mut data = Self::default();
        data.append(bytes, modified);
        data
    }

    pub(super) fn append(&mut self, bytes: &[u8], now: Duration) {
        self.dirty.push((self.cached.len(), bytes.to_vec()));
        self.cached.extend_from_slice(bytes);
        self.modified = now;
    }

    pub(super) fn sync(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.dirty) {
            write_at(&mut self.durable, offset, &bytes);
        }
    }

    /// A power cut: makes some of the unsynced sectors durable and drops the others.
    pub(super) fn keep_some(&mut self, random: &mut Random) {
        let mut dirty = std::mem::take(&mut self.dirty);
        while !dirty.is_empty() {
            let (offset, bytes) = dirty.swap_remove(random.below(dirty.len()));
            for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                let kept = match random.below(16) {
                    0 => random.below(sector.len() + 1),
                    1..8 => sector.len(),
                    _ => 0,
                };
                let at = offset + index * SECTOR_BYTES;
                write_at(&mut self.durable, at, &sector[..kept]);
            }
        }
        if random.once_in(4) && self.durable.len() < self.cached.len() {
            self.durable.resize(self.cached.len(), 0);
        }
    }

    /// After a power cut: programs see what is on disk.
    pub(super) fn restart(&mut self) {
        self.cached.clone_from(&self.durable);
    }
}

fn write_at(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if !new.is_empty() {
        bytes.resize(bytes.len().max(at + new.len()), 0);
        bytes[at..at + new.len()].copy_from_slice(new);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    File(usize),
    Directory,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Add(String, Node),
    Remove(String),
}

/// The names of a directory as programs see them, and as they are on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) cached: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    /// Changes that are not on disk yet.
    pending: Vec<Change>,
}

impl Directory {
    pub(super) fn change(&mut self, new: Change) {
        carry_out(&mut self.cached, &new);
        self.pending.push(new);
    }

    pub(super) fn sync(&mut self) {
        std::mem::take(&mut self.pending).iter().for_each(|change| carry_out(&mut self.durable, change));
    }

    /// A power cut: makes some of the unsynced changes durable and drops the others.
    pub(super) fn keep_some(&mut self, random: &mut Random) {
        for pending in std::mem::take(&mut self.pending) {
            if random.once_in(2) {
                carry_out(&mut self.durable, &pending);
            }
        }
    }

    /// After a power cut: programs see what is on disk.
    pub(super) fn restart(&mut self) {
        self.cached.clone_from(&self.durable);
    }
}

fn carry_out(names: &mut BTreeMap<String, Node>, change: &Change) {
    match change {
        Change::Add(name, node) => _ = names.insert(name.clone(), *node),
        Change::Remove(name) => _ = names.remove(name),
    }
}
