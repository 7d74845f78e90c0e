//! Databases behind a URL: in an object store (S3, GCS, Azure) or on a web server.
//!
//! [`Remote`] is storage's door to files, for reading alone. Requests run on threads of their own; whoever reads waits
//! for them with a plain lock, so it does not matter on which thread that is. Files of the log are read whole. Of
//! parts, which never change, chunks are fetched, ahead of who reads them where that is known, and kept in memory and
//! in a directory ([`crate::sources::remote`]). What the server says is not trusted: storage holds all of it against checksums.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::future::join_all;
use keirin_storage::io::{Input, Io, KnownFile, Lock, Output};
use parking_lot::Mutex;

use crate::error::Result;
use crate::sources::remote::{Chunks, File, Load, Server, place, random, spawn, wait};

/// No file of the log is larger.
const FILE_BYTES_MAX: u64 = (1 << 30) + (1 << 20);
/// So many small files are fetched before anyone opens them, each no larger than that.
const FETCHED_MAX: usize = 256;
const FETCHED_BYTES_MAX: u64 = 256 << 10;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Remote {
    server: Arc<Server>,
    chunks: Arc<Chunks>,
    can_list: bool,
    /// Small files that were asked for before they are opened.
    fetched: Mutex<HashMap<String, Arc<Load>>>,
}

impl Remote {
    /// The database at a URL. Nothing is asked of the server yet.
    ///
    /// # Errors
    /// When it is no URL of a database, or the environment lacks what the object store wants to know.
    pub(crate) fn new(url: &str, chunks: Arc<Chunks>) -> Result<Self> {
        let place = place(url)?;
        let can_list = place.can_list;
        Ok(Self { server: Arc::new(Server::new(place)), chunks, can_list, fetched: Mutex::default() })
    }

    /// The URL, without passwords.
    pub(crate) fn shown(&self) -> &str {
        self.server.shown()
    }

    fn file(&self, file: &KnownFile<'_>) -> File {
        File::new(self.server.clone(), self.server.location(file.path), file.byte_count, file.hash)
    }

    fn read_only<T>(&self) -> io::Result<T> {
        Err(io::Error::new(ErrorKind::Unsupported, format!("{} can only be read", self.shown())))
    }
}

impl Io for Remote {
    fn create(&self, _: &str) -> io::Result<Box<dyn Output>> {
        self.read_only()
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn Input>> {
        let fetched = self.fetched.lock().remove(path);
        let bytes = match fetched.map(|load| load.wait()) {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => return Err(error),
            _ => {
                let (server, location) = (self.server.clone(), self.server.location(path));
                wait(async move { server.get(&location, None, FILE_BYTES_MAX).await })?.bytes
            }
        };
        Ok(Box::new(Whole(bytes)))
    }

    fn publish(&self, _: &str, _: &str) -> io::Result<()> {
        self.read_only()
    }

    fn replace(&self, _: &str, _: &str) -> io::Result<()> {
        self.read_only()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        self.read_only()
    }

    fn create_directory(&self, _: &str) -> io::Result<()> {
        self.read_only()
    }

    fn remove_directory(&self, _: &str) -> io::Result<()> {
        self.read_only()
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        self.read_only()
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let (server, path) = (self.server.clone(), path.to_owned());
        wait(async move { server.list(&path).await })
    }

    fn can_list(&self) -> bool {
        self.can_list
    }

    fn are_there(&self, paths: &[String]) -> io::Result<Vec<bool>> {
        let (server, paths) = (self.server.clone(), paths.to_vec());
        wait(async move {
            let found = join_all(paths.iter().map(|path| server.is_there(path))).await;
            found.into_iter().collect()
        })
    }

    fn fetch(&self, paths: &mut dyn Iterator<Item = String>) {
        let mut fetched = self.fetched.lock();
        fetched.clear();
        for path in paths.take(FETCHED_MAX) {
            let (server, load) = (self.server.clone(), Arc::<Load>::default());
            fetched.insert(path.clone(), load.clone());
            let promise = load.promise();
            let location = server.location(&path);
            spawn(async move {
                let found = server.get(&location, None, FETCHED_BYTES_MAX).await;
                promise.keep(found.map(|found| found.bytes));
            });
        }
    }

    fn open_known(&self, file: KnownFile<'_>) -> io::Result<Box<dyn Input>> {
        Ok(Box::new(Part { chunks: self.chunks.clone(), file: self.file(&file) }))
    }

    fn is_far(&self) -> bool {
        true
    }

    fn expect(&self, file: KnownFile<'_>, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        self.chunks.expect(&self.file(&file), ranges);
    }

    fn invalidate(&self, file: KnownFile<'_>, range: Range<u64>) {
        self.chunks.forget(&self.file(&file), range);
    }

    fn modified(&self, _: &str) -> io::Result<Duration> {
        self.read_only()
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn Lock>> {
        self.read_only()
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        random()
    }
}

/// A file that was read whole.
#[derive(Debug)]
struct Whole(Bytes);

impl Input for Whole {
    fn byte_count(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// A file that never changes, read in chunks.
#[derive(Debug)]
struct Part {
    chunks: Arc<Chunks>,
    file: File,
}

impl Input for Part {
    fn byte_count(&self) -> u64 {
        self.file.byte_count
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.chunks.read_at(&self.file, offset, buffer)
    }
}
