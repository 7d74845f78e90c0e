//! Files behind URLs: `FROM 's3://bucket/trips/*.parquet'`, `FROM 'https://host/x.csv'`.
//!
//! One request says how long a file is and what the server calls its contents. By these, chunks of it that are kept are
//! told from those of other contents. Its bytes are fetched by ranges, ahead of who reads them. From a web server that
//! does not know ranges a file is copied whole, to a temporary file.

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use tempfile::TempPath;
use url::Url;
use xxhash_rust::xxh3::Xxh3;

use super::format::FileFormat;
use super::paths::{DataFile, Spool, is_no_data, listed};
use crate::error::{Error, ErrorKind, Result};
use crate::sources::remote::{
    CHUNK_BYTES, CacheOptions, Chunks, File, Seen, Server, of_credentials, place, place_of_file, random,
    wait, without_secrets,
};

/// Bytes that are fetched ahead of who reads a file from beginning to end.
const AHEAD_BYTES: u64 = 8 * CHUNK_BYTES;
/// Servers whose connections are kept.
const SERVERS_MAX: usize = 64;
/// Copies of whole files that are kept.
const COPIES_MAX: usize = 16;
/// URLs that are looked at side by side.
const LOOKED_AT_ONCE: usize = 32;

/// What a database knows of servers, and what it keeps of their files.
#[derive(Debug)]
pub(crate) struct RemoteFiles {
    chunks: Arc<Chunks>,
    /// By the part of the URL that they stand for, the latest first.
    servers: Mutex<Vec<(String, Arc<Server>)>>,
    /// Of files on web servers that do not know ranges, the latest first.
    copies: Mutex<Vec<Copied>>,
}

#[derive(Clone, Debug)]
struct Copied {
    name: Arc<str>,
    size_bytes: u64,
    changed: SystemTime,
    path: Arc<TempPath>,
}

/// A file whose bytes are fetched by ranges.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFile {
    chunks: Arc<Chunks>,
    file: File,
    name: Arc<str>,
}

/// A URL as a server and what it is asked for.
struct Address {
    server: Arc<Server>,
    location: Path,
    is_web: bool,
    /// Without passwords.
    shown: String,
}

/// Whether a path is a URL of another machine.
pub(super) fn is_remote(written: &str) -> bool {
    crate::sources::remote::is_url(written.as_ref()) && !written.starts_with("file://")
}

impl RemoteFiles {
    pub(crate) fn new(options: CacheOptions) -> Self {
        let chunks = Arc::new(Chunks::new(options));
        Self { chunks, servers: Mutex::default(), copies: Mutex::default() }
    }

    pub(crate) fn chunks(&self) -> &Arc<Chunks> {
        &self.chunks
    }

    /// The files of some URLs, globs or directories, in the order of the URLs.
    pub(super) fn find(
        self: &Arc<Self>,
        written: Vec<String>,
        format: Option<FileFormat>,
        spool: &Spool<'_>,
    ) -> Result<Vec<Vec<DataFile>>> {
        let addresses = written.iter().map(|written| self.address(written)).collect::<Result<Vec<_>>>()?;
        let (files, directory, stop) = (self.clone(), spool.directory.to_owned(), spool.stop.clone());
        let found = wait(async move {
            let found = addresses.into_iter().map(|address| {
                let (files, directory, stop) = (files.clone(), directory.clone(), stop.clone());
                async move { files.find_one(address, format, directory, &stop).await }
            });
            Ok(futures::stream::iter(found).buffered(LOOKED_AT_ONCE).collect::<Vec<_>>().await)
        });
        found.map_err(|error| failed(&error, ""))?.into_iter().collect()
    }

    async fn find_one(
        &self,
        address: Address,
        format: Option<FileFormat>,
        directory: PathBuf,
        stop: &AtomicBool,
    ) -> Result<Vec<DataFile>> {
        let Address { server, location, is_web, shown } = &address;
        let is_glob = |text: &str| text.contains(['*', '?', '[']);
        if *is_web && shown.split('?').next().is_some_and(|path| path.contains('*')) {
            let message = format!("cannot list '{shown}': a web server does not tell what files it has");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("name the files: read_parquet(['https://host/1.parquet', ...])"));
        }
        if !is_web && is_glob(location.as_ref()) {
            return self.find_matches(&address, format).await;
        }
        match server.look(location, *is_web).await.map_err(|error| failed(&error, &address.shown))? {
            Seen::Ranged(meta) => Ok(vec![self.file(&address, &meta, shown.as_str().into())]),
            Seen::Whole(meta) => Ok(vec![self.copy(&address, &meta, directory, stop).await?]),
            Seen::Nothing if !is_web => self.find_below(&address, format).await,
            Seen::Nothing => Err(Error::new(ErrorKind::NotFound, format!("no such file: '{shown}'"))),
        }
    }

    /// The files of an object store that match a glob, or those below the directories that do.
    async fn find_matches(&self, address: &Address, format: Option<FileFormat>) -> Result<Vec<DataFile>> {
        let pattern = address.location.as_ref();
        let matcher = glob::Pattern::new(pattern).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("malformed glob '{}': {}", address.shown, error.msg))
        })?;
        let fixed: Vec<&str> =
            pattern.split('/').take_while(|part| !part.contains(['*', '?', '['])).collect();
        let objects = self.list(address, &fixed.join("/")).await?;
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let files = |is_found: &dyn Fn(&str) -> bool| {
            let found = objects.iter().filter(|object| is_found(object.location.as_ref()));
            found.map(|object| self.listed_file(address, object)).collect::<Vec<_>>()
        };
        let is_match = |path: &str| matcher.matches_with(path, options);
        let is_data = |path: &str| path.rsplit('/').next().is_some_and(|name| !is_no_data(name));
        let mut found = files(&|path| is_match(path) && is_data(path));
        if found.is_empty() && !pattern.contains("**") {
            let is_below = |path: &str| {
                let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
                above.any(|directory| is_match(directory) && is_visible(&path[directory.len()..]))
            };
            found = files(&|path| is_below(path) && is_of(path, format));
        }
        if found.is_empty() {
            let names: Vec<String> =
                objects.iter().filter_map(|object| object.location.filename()).map(str::to_owned).collect();
            let error = Error::new(ErrorKind::NotFound, format!("no file matches '{}'", address.shown));
            return Err(error.with_detail(match names.is_empty() {
                true => "there is no file whose name begins so".to_owned(),
                false => format!("there are {}", listed(&names)),
            }));
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The files below a directory of an object store.
    async fn find_below(&self, address: &Address, format: Option<FileFormat>) -> Result<Vec<DataFile>> {
        let directory = address.location.as_ref();
        let objects = self.list(address, directory).await?;
        let shown = &address.shown;
        if objects.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no such file: '{shown}'")));
        }
        let is_found = |path: &str| is_visible(&path[directory.len()..]) && is_of(path, format);
        let found = objects.iter().filter(|object| is_found(object.location.as_ref()));
        let mut found: Vec<_> = found.map(|object| self.listed_file(address, object)).collect();
        if found.is_empty() {
            let wanted = format.map_or("data", FileFormat::name);
            let message = format!("directory '{shown}' has no {wanted} files");
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// All objects below a directory.
    async fn list(&self, address: &Address, directory: &str) -> Result<Vec<ObjectMeta>> {
        let directory = Path::parse(directory).map_err(|error| invalid(&address.shown, &error))?;
        address.server.list_below(&directory).await.map_err(|error| failed(&error, &address.shown))
    }

    fn listed_file(&self, address: &Address, object: &ObjectMeta) -> DataFile {
        let shown = format!("{}/{}", address.server.shown(), object.location);
        self.file(address, object, shown.into())
    }

    fn file(&self, address: &Address, meta: &ObjectMeta, name: Arc<str>) -> DataFile {
        let contents = contents(meta);
        let location = if meta.location.as_ref().is_empty() { &address.location } else { &meta.location };
        let file = File::new(address.server.clone(), location.clone(), meta.size, contents);
        DataFile {
            path: path_of(&name),
            size_bytes: meta.size,
            changed: as_time(contents),
            temporary: None,
            remote: Some(RemoteFile { chunks: self.chunks.clone(), file, name: name.clone() }),
            name,
        }
    }

    /// A copy on this machine of a file that can only be had whole.
    async fn copy(
        &self,
        address: &Address,
        meta: &ObjectMeta,
        directory: PathBuf,
        stop: &AtomicBool,
    ) -> Result<DataFile> {
        let name: Arc<str> = address.shown.as_str().into();
        let (size_bytes, changed) = (meta.size, as_time(contents(meta)));
        let is_it =
            |copy: &Copied| (&copy.name, copy.size_bytes, copy.changed) == (&name, size_bytes, changed);
        let known = self.copies.lock().iter().find(|copy| is_it(copy)).cloned();
        let path = match known {
            Some(copy) => copy.path,
            None => {
                let not_kept = |error: io::Error| {
                    let message = format!("cannot keep a copy of '{name}': {error}");
                    Error::new(ErrorKind::Io, message)
                        .with_detail(format!("it goes to a temporary file in '{}'", directory.display()))
                };
                let mut kept =
                    tempfile::Builder::new().prefix("copy-").tempfile_in(&directory).map_err(not_kept)?;
                let copying = address.server.copy(&address.location, kept.as_file_mut(), stop);
                let copied = copying.await.map_err(|error| failed(&error, &address.shown))?;
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
                }
                if copied != size_bytes {
                    let message =
                        format!("cannot read '{name}': the server sent {copied} bytes of {size_bytes}");
                    return Err(Error::new(ErrorKind::Io, message));
                }
                let path = Arc::new(kept.into_temp_path());
                let mut copies = self.copies.lock();
                copies.retain(|copy| copy.name != name);
                copies.insert(0, Copied { name: name.clone(), size_bytes, changed, path: path.clone() });
                copies.truncate(COPIES_MAX);
                path
            }
        };
        Ok(DataFile {
            path: path.to_path_buf(),
            name,
            size_bytes,
            changed,
            temporary: Some(path),
            remote: None,
        })
    }

    fn address(&self, written: &str) -> Result<Address> {
        let shown = without_secrets(written);
        let (scheme, rest) = written.split_once("://").unwrap_or_default();
        if !matches!(scheme, "http" | "https") {
            let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
            // A key is written as it is.
            let location = Path::parse(key).map_err(|error| invalid(&shown, &error))?;
            let server = self.server(&format!("{scheme}://{authority}"), place)?;
            return Ok(Address { server, location, is_web: false, shown });
        }
        let url = Url::parse(written).map_err(|error| invalid(&shown, &error))?;
        let origin = url.origin().ascii_serialization();
        let location = Path::from_url_path(url.path()).ok().filter(|location| {
            let again = Url::parse(&origin).ok().and_then(|mut again| {
                again.path_segments_mut().ok()?.extend(location.parts());
                Some(again)
            });
            again.is_some_and(|again| again == url)
        });
        // What a path and the server's name do not say again as it was written is asked for as it is.
        let (base, location) = match location {
            Some(location) => (origin, location),
            None => (written.to_owned(), Path::default()),
        };
        Ok(Address { server: self.server(&base, place_of_file)?, location, is_web: true, shown })
    }

    fn server(
        &self,
        base: &str,
        place: impl FnOnce(&str) -> Result<crate::sources::remote::Place>,
    ) -> Result<Arc<Server>> {
        let mut servers = self.servers.lock();
        let found = match servers.iter().position(|(known, _)| known == base) {
            Some(found) => servers.remove(found),
            None => (base.to_owned(), Arc::new(Server::new(place(base)?))),
        };
        let server = found.1.clone();
        servers.insert(0, found);
        servers.truncate(SERVERS_MAX);
        Ok(server)
    }
}

impl RemoteFile {
    pub(super) fn byte_count(&self) -> u64 {
        self.file.byte_count
    }

    /// Fills the buffer from a place in the file, up to its end, and says how many bytes that are.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let failed = |error: io::Error| {
            // Whoever reads names the file.
            let text = error.to_string();
            let reason = text.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix(": "));
            io::Error::other(reason.unwrap_or(&text).to_owned())
        };
        self.chunks.read_at(&self.file, offset, buffer).map_err(failed)
    }

    /// Says what will be read soon.
    pub(super) fn expect(&self, ranges: impl IntoIterator<Item = Range<u64>>) {
        self.chunks.expect(&self.file, &mut ranges.into_iter());
    }
}

impl DataFile {
    /// Opens the file, here or where it is.
    pub(crate) fn open(&self) -> io::Result<OpenedFile> {
        match &self.remote {
            Some(remote) => Ok(OpenedFile::Remote(RemoteReader { file: remote.clone(), at: 0 })),
            None => fs::File::open(&self.path).map(OpenedFile::Local),
        }
    }
}

/// An opened file.
pub(crate) enum OpenedFile {
    Local(fs::File),
    Remote(RemoteReader),
}

/// Reads a file from beginning to end.
pub(crate) struct RemoteReader {
    file: RemoteFile,
    at: u64,
}

impl OpenedFile {
    pub(super) fn byte_count(&self) -> io::Result<u64> {
        match self {
            Self::Local(file) => Ok(file.metadata()?.len()),
            Self::Remote(reader) => Ok(reader.file.byte_count()),
        }
    }
}

impl Read for OpenedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(file) => file.read(buffer),
            Self::Remote(reader) => {
                reader.file.expect(std::iter::once(reader.at..reader.at + AHEAD_BYTES));
                let count = reader.file.read_at(reader.at, buffer)?;
                reader.at += count as u64;
                Ok(count)
            }
        }
    }
}

impl Seek for OpenedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Local(file) => file.seek(to),
            Self::Remote(reader) => {
                let place = match to {
                    SeekFrom::Start(place) => Some(place),
                    SeekFrom::End(offset) => reader.file.byte_count().checked_add_signed(offset),
                    SeekFrom::Current(offset) => reader.at.checked_add_signed(offset),
                };
                reader.at = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
                Ok(reader.at)
            }
        }
    }
}

/// What tells the contents of an object from others at the same place; another one each time if the server does not say.
fn contents(meta: &ObjectMeta) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&meta.size.to_le_bytes());
    match &meta.e_tag {
        Some(tag) => hasher.update(tag.as_bytes()),
        // What a crate says that was told nothing.
        None if meta.last_modified.timestamp() == 0 => hasher.update(&random().to_le_bytes()),
        None => hasher.update(&meta.last_modified.timestamp_micros().to_le_bytes()),
    }
    hasher.digest()
}

/// A time in the past that stands for contents.
fn as_time(contents: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(contents >> 4)
}

/// A URL as a path, whose last part has the extension, and directories the columns that names have.
pub(super) fn path_of(shown: &str) -> PathBuf {
    PathBuf::from(shown.split('?').next().unwrap_or_default())
}

/// Whether no name in a path below a directory begins as those do that other programs hide.
fn is_visible(below: &str) -> bool {
    below.split('/').all(|name| !name.starts_with(['.', '_']))
}

fn is_of(path: &str, format: Option<FileFormat>) -> bool {
    FileFormat::of_name(path).is_some_and(|found| format.is_none_or(|format| format == found))
}

fn invalid(shown: &str, reason: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("'{shown}' is no URL of a file: {reason}"))
}

/// What a server did, which names the URL.
fn failed(error: &io::Error, shown: &str) -> Error {
    let failed = Error::new(ErrorKind::Io, format!("cannot read {error}"));
    match of_credentials(shown).filter(|_| error.kind() == io::ErrorKind::PermissionDenied) {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}
