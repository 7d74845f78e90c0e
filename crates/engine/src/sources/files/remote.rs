//! Files behind URLs: `FROM 's3://bucket/trips/*.parquet'`, `FROM 'https://host/x.csv'`.
//!
//! One request says how long a file is and what the server calls its contents. By these, chunks of it that are kept are
//! told from those of other contents. Its bytes are fetched by ranges, ahead of who reads them. From a web server that
//! does not know ranges a file is copied whole, to a temporary file.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use tempfile::TempPath;
use url::Url;

use super::format::FileFormat;
use super::paths::{DataFile, Spool, is_no_data, listed};
use crate::error::{Error, ErrorKind, Result};
use crate::sources::remote::{
    CHUNK_BYTES, CacheOptions, Chunks, File, Seen, Server, of_credentials, place, place_of_file, wait_unless,
    without_secrets,
};

/// Bytes that are fetched ahead of who reads a file from beginning to end.
const AHEAD_BYTES: u64 = 8 * CHUNK_BYTES;
/// Servers whose connections are kept.
const SERVERS_MAX: usize = 64;
/// Copies of whole files that are kept.
const COPIES_MAX: usize = 16;
const GLOB: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};
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
    /// Of the contents.
    number: u64,
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
    crate::sources::remote::is_url(written.as_ref())
        && !written.split("://").next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("file"))
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
        let found = wait_unless(spool.stop, async move {
            let found = addresses.into_iter().map(|address| {
                let (files, directory, stop) = (files.clone(), directory.clone(), stop.clone());
                async move { files.find_one(address, format, directory, &stop).await }
            });
            Ok(stream::iter(found).buffered(LOOKED_AT_ONCE).try_collect().await)
        });
        found.map_err(|error| failed(&error, ""))?
    }

    async fn find_one(
        &self,
        address: Address,
        format: Option<FileFormat>,
        directory: PathBuf,
        stop: &AtomicBool,
    ) -> Result<Vec<DataFile>> {
        let Address { server, location, is_web, shown } = &address;
        if *is_web && shown.split('?').next().is_some_and(|path| path.contains('*')) {
            let message = format!("cannot list '{shown}': a web server does not tell what files it has");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("name the files: read_parquet(['https://host/1.parquet', ...])"));
        }
        let looks = || async { server.look(location, *is_web).await.map_err(|error| failed(&error, shown)) };
        if !is_web && is_glob(location.as_ref()) {
            // As here, a file is found by its name before its name is a pattern.
            if !location.as_ref().contains('*')
                && let Seen::Ranged(meta) = looks().await?
            {
                return Ok(vec![self.file(&address, &meta)]);
            }
            return self.find_matches(&address, format).await;
        }
        if !is_web && location.as_ref().is_empty() {
            return self.find_below(&address, format).await;
        }
        match looks().await? {
            Seen::Ranged(meta) => Ok(vec![self.file(&address, &meta)]),
            Seen::Whole(meta) => Ok(vec![self.copy(&address, &meta, directory, stop).await?]),
            Seen::Nothing if !is_web => self.find_below(&address, format).await,
            Seen::Nothing => Err(Error::new(ErrorKind::NotFound, format!("no such file: '{shown}'"))),
        }
    }

    /// The files of an object store that match a glob, or those below the directories that do.
    async fn find_matches(&self, address: &Address, format: Option<FileFormat>) -> Result<Vec<DataFile>> {
        let pattern = address.location.as_ref();
        let malformed = |error: glob::PatternError| {
            Error::new(ErrorKind::Invalid, format!("malformed glob '{}': {}", address.shown, error.msg))
        };
        let parts: Vec<&str> = pattern.split('/').collect();
        let fixed = parts.iter().take_while(|part| !is_glob(part)).count();
        let first = Path::parse(parts[..fixed].join("/")).map_err(|error| invalid(&address.shown, &error))?;
        let (mut objects, mut directories) = (Vec::new(), vec![first.clone()]);
        if pattern.contains("**") {
            let whole = glob::Pattern::new(pattern).map_err(malformed)?;
            objects = self.list(address, &first).await?;
            objects.retain(|object| whole.matches_with(object.location.as_ref(), GLOB));
            directories.clear();
        } else {
            // Level by level, so that nothing is listed that is beside.
            for (depth, part) in parts.iter().enumerate().skip(fixed) {
                let matcher = glob::Pattern::new(part).map_err(malformed)?;
                let is_match =
                    |path: &Path| path.filename().is_some_and(|name| matcher.matches_with(name, GLOB));
                let levels = stream::iter(std::mem::take(&mut directories))
                    .map(|directory| async move { address.server.list_level(&directory).await })
                    .buffered(LOOKED_AT_ONCE);
                let levels: Vec<_> =
                    levels.try_collect().await.map_err(|error| failed(&error, &address.shown))?;
                for level in levels {
                    directories.extend(level.common_prefixes.into_iter().filter(is_match));
                    if depth + 1 == parts.len() {
                        objects.extend(level.objects.into_iter().filter(|object| is_match(&object.location)));
                    }
                }
            }
        }
        let is_data = |object: &ObjectMeta| object.location.filename().is_some_and(|name| !is_no_data(name));
        objects.retain(|object| is_data(object) && !directories.contains(&object.location));
        if objects.is_empty() {
            for directory in &directories {
                objects.extend(self.data_below(address, directory, format).await?.0);
            }
        }
        if objects.is_empty() {
            let error = Error::new(ErrorKind::NotFound, format!("no file matches '{}'", address.shown));
            let beside =
                address.server.list_level(&first).await.map_err(|error| failed(&error, &address.shown))?;
            let files = beside.objects.iter().map(|object| &object.location);
            let names = files.chain(&beside.common_prefixes).filter_map(Path::filename);
            let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).map(str::to_owned).collect();
            names.sort();
            return Err(error.with_detail(match names.is_empty() {
                true => format!("there is nothing in '{}/{first}'", address.server.shown()),
                false => format!("'{}/{first}' has {}", address.server.shown(), listed(&names)),
            }));
        }
        Ok(self.sorted(address, &objects))
    }

    /// The files below a directory of an object store.
    async fn find_below(&self, address: &Address, format: Option<FileFormat>) -> Result<Vec<DataFile>> {
        let (found, others) = self.data_below(address, &address.location, format).await?;
        let shown = &address.shown;
        if found.is_empty() && others.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no such file: '{shown}'")));
        }
        if found.is_empty() {
            let wanted = format.map_or("data", FileFormat::name);
            let message = format!("directory '{shown}' has no {wanted} files");
            return Err(Error::new(ErrorKind::NotFound, message)
                .with_detail(format!("it has {}", listed(&others)))
                .with_hint("files are found by their extension; name files of other names by a glob"));
        }
        Ok(self.sorted(address, &found))
    }

    /// The data files below a directory, and the names of other files.
    async fn data_below(
        &self,
        address: &Address,
        directory: &Path,
        format: Option<FileFormat>,
    ) -> Result<(Vec<ObjectMeta>, Vec<String>)> {
        let is_visible = |object: &ObjectMeta| {
            let below = object.location.prefix_match(directory);
            below.is_some_and(|mut names| names.all(|name| !name.as_ref().starts_with(['.', '_'])))
        };
        let is_wanted = |object: &ObjectMeta| {
            let found = FileFormat::of_name(object.location.as_ref());
            found.is_some_and(|found| format.is_none_or(|format| format == found))
        };
        let all = self.list(address, directory).await?.into_iter().filter(is_visible);
        let (found, others): (Vec<_>, Vec<_>) = all.partition(is_wanted);
        let names = others.iter().filter_map(|object| object.location.filename()).map(str::to_owned);
        Ok((found, names.collect()))
    }

    fn sorted(&self, address: &Address, objects: &[ObjectMeta]) -> Vec<DataFile> {
        let mut files: Vec<_> = objects.iter().map(|object| self.file(address, object)).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// All objects below a directory but those that stand for directories themselves.
    async fn list(&self, address: &Address, directory: &Path) -> Result<Vec<ObjectMeta>> {
        let objects = address.server.list_below(directory).await;
        let mut objects = objects.map_err(|error| failed(&error, &address.shown))?;
        let mut directories = HashSet::new();
        for object in &objects {
            let mut rest = object.location.as_ref();
            while let Some((above, _)) = rest.rsplit_once('/') {
                if !directories.insert(above.to_owned()) {
                    break;
                }
                rest = above;
            }
        }
        objects.retain(|object| object.size > 0 || !directories.contains(object.location.as_ref()));
        Ok(objects)
    }

    fn file(&self, address: &Address, meta: &ObjectMeta) -> DataFile {
        let name: Arc<str> = match address.is_web {
            true => address.shown.as_str().into(),
            false => format!("{}/{}", address.server.shown(), meta.location).into(),
        };
        let file = File::seen(address.server.clone(), &address.location, meta);
        DataFile {
            path: path_of(&name),
            size_bytes: meta.size,
            changed: as_time(file.number()),
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
        let seen = File::seen(address.server.clone(), &address.location, meta);
        let (size_bytes, number) = (meta.size, seen.number());
        let known = self.copies.lock().iter().find(|copy| copy.number == number).cloned();
        let path = match known {
            Some(copy) => copy.path,
            None => {
                let not_kept = |error: &io::Error| {
                    let message = format!("cannot keep a copy of '{name}': {error}");
                    Error::new(ErrorKind::Io, message)
                        .with_detail(format!("it goes to a temporary file in '{}'", directory.display()))
                };
                let kept = tempfile::Builder::new().prefix("copy-").tempfile_in(&directory);
                let mut kept = kept.map_err(|error| not_kept(&error))?;
                let mut unwritten = None;
                let copying = address.server.copy(&address.location, size_bytes, stop, |bytes| {
                    kept.write_all(bytes).inspect_err(|error| unwritten = Some(not_kept(error)))
                });
                let copied = copying.await;
                if let Some(error) = unwritten {
                    return Err(error);
                }
                let copied = copied.map_err(|error| failed(&error, &address.shown))?;
                if copied != size_bytes {
                    let message = format!(
                        "cannot read '{name}': the server does not send {size_bytes} bytes, as it says"
                    );
                    return Err(Error::new(ErrorKind::Io, message));
                }
                let path = Arc::new(kept.into_temp_path());
                if seen.is_told() {
                    let mut copies = self.copies.lock();
                    copies.insert(0, Copied { number, path: path.clone() });
                    copies.truncate(COPIES_MAX);
                }
                path
            }
        };
        let (changed, temporary) = (as_time(number), Some(path.clone()));
        Ok(DataFile { path: path.to_path_buf(), name, size_bytes, changed, temporary, remote: None })
    }

    fn address(&self, written: &str) -> Result<Address> {
        let (scheme, rest) = written.split_once("://").unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        let written = &format!("{scheme}://{rest}");
        let shown = without_secrets(written);
        if !matches!(scheme.as_str(), "http" | "https") {
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
            Some(remote) => Ok(OpenedFile::Remote(RemoteReader::new(remote.clone(), 0))),
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
    /// Up to there the file is fetched already.
    expected: u64,
}

impl OpenedFile {
    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    pub(super) fn byte_count(&self) -> io::Result<u64> {
        match self {
            Self::Local(file) => Ok(file.metadata()?.len()),
            Self::Remote(reader) => Ok(reader.file.byte_count()),
        }
    }
}

impl RemoteReader {
    pub(super) fn new(file: RemoteFile, at: u64) -> Self {
        Self { file, at, expected: at }
    }
}

impl Read for RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Half of what is ahead at a time: then a request asks for several chunks.
        if self.at.saturating_add(AHEAD_BYTES / 2) > self.expected {
            let end = self.at.saturating_add(AHEAD_BYTES);
            self.file.expect(std::iter::once(self.expected.max(self.at)..end));
            self.expected = end;
        }
        let count = self.file.read_at(self.at, buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Read for OpenedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(file) => file.read(buffer),
            Self::Remote(reader) => reader.read(buffer),
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
                let place = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
                *reader = RemoteReader::new(reader.file.clone(), place);
                Ok(place)
            }
        }
    }
}

/// A time in the past that stands for contents.
fn as_time(contents: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(contents >> 4)
}

/// A URL as a path, whose last part has the extension, and directories the columns that names have.
pub(super) fn path_of(shown: &str) -> PathBuf {
    // In an object store a question mark is part of the name.
    let is_web = shown.starts_with("http://") || shown.starts_with("https://");
    PathBuf::from(if is_web { shown.split('?').next().unwrap_or_default() } else { shown })
}

fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
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
