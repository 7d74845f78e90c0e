//! Requests: each is tried a few times and given up in time, and an error names the URL.
//!
//! A refused request is tried again by `object_store`. One that gets no answer, or whose answer breaks off or
//! stalls, is tried again here: so a slow line is not taken for a dead one, as a limit for the whole would.

use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ListResult, ObjectMeta, ObjectStore};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use xxhash_rust::xxh3::xxh3_64;

use super::cache::random;
use super::connect::Place;

/// Requests that run at the same time.
const REQUESTS_MAX: usize = 16;
/// Who waits looks so often whether the statement was stopped.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Shorter values of a query are no secrets, and may be words.
const SECRET_CHARACTERS_MIN: usize = 4;
/// Files that a statement may ask a server to list.
const LISTED_MAX: usize = 1_000_000;
/// A listing is many requests.
const LISTING_REQUESTS: u32 = 20;
/// Characters of an error of a server that are shown.
const SHOWN_MAX: usize = 200;

/// What is said of the server and not of the file: storage takes it for no damage.
const OF_THE_SERVER: ErrorKind = ErrorKind::TimedOut;

/// How long a server may be silent, and how often that is tried.
const SILENCE_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
const TRIES_MAX: u32 = 3;

/// A place with files.
#[derive(Debug)]
pub(crate) struct Server {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    shown: String,
    /// The URL as it is asked for, with its secrets.
    asked: String,
    requests: Semaphore,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) bytes: Bytes,
    /// Bytes of the whole file.
    pub(crate) size: u64,
    pub(crate) version: Version,
}

/// What a server calls the contents of a file.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Its ETag, without what says that it is weak, and without quotes: listings leave them out.
    pub(super) tag: Option<String>,
    /// When it was changed, in seconds; 0 if the server does not say.
    modified: i64,
}

impl Version {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let tag = meta.e_tag.as_ref().map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        Self { tag, modified: meta.last_modified.timestamp() }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        match (&self.tag, &other.tag) {
            (Some(tag), Some(other)) => tag == other,
            _ => self.modified == other.modified,
        }
    }

    /// Whether other contents have another name.
    pub(super) fn is_told(&self) -> bool {
        self.tag.is_some() || self.modified != 0
    }

    /// Another number for other contents, and another one each time if the server does not tell.
    pub(super) fn hash(&self) -> u64 {
        match &self.tag {
            Some(tag) => xxh3_64(tag.as_bytes()),
            None if self.is_told() => xxh3_64(&self.modified.to_le_bytes()),
            None => random(),
        }
    }
}

/// What is at a place.
#[derive(Debug)]
pub(crate) enum Seen {
    Nothing,
    /// A file that can be read by ranges.
    Ranged(ObjectMeta),
    /// A file that can only be had whole.
    Whole(ObjectMeta),
}

/// Why nothing was read.
enum Failure {
    /// Another try may help.
    Broken(Error),
    Final(Error),
}

/// The threads of all requests of the process.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    let start = || {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(2).thread_name("keirin-remote").enable_all().build()
    };
    let runtime = RUNTIME.get_or_init(|| start().map_err(|error| error.to_string()));
    runtime.as_ref().map_err(|error| Error::other(format!("cannot start threads: {error}")))
}

/// Begins `task` on another thread. Without threads it is dropped, as one that breaks off.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    _ = runtime().map(|runtime| runtime.spawn(task));
}

/// What becomes of `task`, which runs on another thread: so this one may be any.
pub(crate) fn wait<T: Send + 'static>(task: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    wait_unless(&AtomicBool::new(false), task)
}

/// As [`wait`], until `stop` is set: then the task ends.
pub(crate) fn wait_unless<T: Send + 'static>(
    stop: &AtomicBool,
    task: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let task = runtime()?.spawn(async move {
        // Whoever waits is there until this is sent, or has gone.
        _ = sender.send(task.await);
    });
    loop {
        match receiver.recv_timeout(ASK_AGAIN) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(OF_THE_SERVER, "the request broke off"));
            }
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                task.abort();
                return Err(Error::new(OF_THE_SERVER, "nobody waits for it any more"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Server {
    pub(crate) fn new(place: Place) -> Self {
        let Place { store, prefix, shown, asked, .. } = place;
        Self { store, prefix, shown, asked, requests: Semaphore::new(REQUESTS_MAX) }
    }

    /// What tells its files from those of other servers; not for eyes.
    pub(super) fn asked(&self) -> &str {
        &self.asked
    }

    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Where a file is of which names are known.
    pub(crate) fn location(&self, path: &str) -> Path {
        path.split('/')
            .filter(|name| !name.is_empty())
            .fold(self.prefix.clone(), |path, name| path.join(name))
    }

    /// An error that names the file.
    pub(crate) fn error(&self, kind: ErrorKind, path: &str, reason: &str) -> Error {
        let slash = if path.is_empty() { "" } else { "/" };
        Error::new(kind, format!("{}{slash}{path}: {reason}", self.shown))
    }

    /// As [`error`](Self::error), for a file of the server.
    pub(super) fn error_at(&self, kind: ErrorKind, location: &Path, reason: &str) -> Error {
        self.error(kind, &self.name(location), reason)
    }

    fn explain(&self, path: &str, error: &object_store::Error) -> Error {
        let reason = self.without_query(innermost(error));
        let kind = match error {
            object_store::Error::NotFound { .. } => ErrorKind::NotFound,
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                ErrorKind::PermissionDenied
            }
            _ if reason.contains("status code: 416") => ErrorKind::InvalidData,
            _ => OF_THE_SERVER,
        };
        // As the crate says it, of web servers and of others.
        let of_whole_files = ["Range request not supported", "Received non-partial response"];
        match of_whole_files.iter().any(|text| reason.starts_with(text)) {
            true => self.error(ErrorKind::Unsupported, path, "the server does not know ranged requests"),
            false => self.error(kind, path, &reason),
        }
    }

    /// What a server says, which may repeat the request, without the values of the URL's query.
    fn without_query(&self, reason: String) -> String {
        let query = self.asked.split_once('?').map_or("", |(_, query)| query);
        let values = query.split(['&', '#']).filter_map(|part| part.split('=').nth(1));
        let secrets = values.filter(|value| value.len() >= SECRET_CHARACTERS_MIN);
        secrets.fold(reason, |reason, secret| reason.replace(secret, "..."))
    }

    fn silent(&self, path: &str) -> Failure {
        let reason = format!("the server does not answer for {SILENCE_MAX:?}");
        Failure::Broken(self.error(OF_THE_SERVER, path, &reason))
    }

    /// Tries a request as often as there is patience for.
    async fn persist<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Failure>>,
    {
        for again in 1.. {
            let request = self.requests.acquire().await.map_err(Error::other)?;
            let outcome = attempt().await;
            drop(request);
            match outcome {
                Ok(found) => return Ok(found),
                Err(Failure::Broken(_)) if again < TRIES_MAX => {
                    sleep(Duration::from_millis(100) * 2_u32.pow(again)).await;
                }
                Err(Failure::Broken(error) | Failure::Final(error)) => return Err(error),
            }
        }
        unreachable!("there is an end to patience")
    }

    /// Some bytes of a file, or all; no more than `limit`.
    pub(crate) async fn get(&self, location: &Path, range: Option<Range<u64>>, limit: u64) -> Result<Found> {
        let path = self.name(location);
        self.persist(|| self.try_get(&path, location, range.clone(), limit)).await
    }

    /// How the file at `location` is called below the server's URL.
    fn name(&self, location: &Path) -> String {
        let below =
            location.prefix_match(&self.prefix).map(|parts| parts.map(|part| part.as_ref().to_owned()));
        below.map_or_else(|| location.to_string(), |parts| parts.collect::<Vec<_>>().join("/"))
    }

    async fn try_get(
        &self,
        path: &str,
        location: &Path,
        range: Option<Range<u64>>,
        limit: u64,
    ) -> std::result::Result<Found, Failure> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let answer = timeout(SILENCE_MAX, self.store.get_opts(location, options));
        let answer = answer.await.map_err(|_| self.silent(path))?;
        let answer = answer.map_err(|error| Failure::Final(self.explain(path, &error)))?;
        let (size, version) = (answer.meta.size, Version::of(&answer.meta));
        let expected = answer.range.end.saturating_sub(answer.range.start);
        if expected > limit {
            let reason = format!("it has {expected} bytes, at most {limit} are possible");
            return Err(Failure::Final(self.error(ErrorKind::InvalidData, path, &reason)));
        }
        let mut bytes = BytesMut::new();
        let mut frames = answer.into_stream();
        loop {
            let frame = timeout(SILENCE_MAX, frames.next()).await.map_err(|_| self.silent(path))?;
            let Some(frame) = frame else { break };
            bytes.extend_from_slice(&frame.map_err(|error| Failure::Broken(self.explain(path, &error)))?);
            if bytes.len() as u64 > expected {
                break;
            }
        }
        if bytes.len() as u64 != expected {
            let reason = format!("the server sent {} bytes and not {expected}", bytes.len());
            return Err(Failure::Broken(self.error(OF_THE_SERVER, path, &reason)));
        }
        Ok(Found { bytes: bytes.freeze(), size, version })
    }

    /// What is at a place. A web server is asked for a byte, so that it shows whether it knows ranges.
    pub(crate) async fn look(&self, location: &Path, is_web: bool) -> Result<Seen> {
        let path = self.name(location);
        let ask = |head: bool| {
            let path = &path;
            self.persist(move || async move {
                let range = (!head).then_some(GetRange::Bounded(0..1));
                let options = GetOptions { head, range, ..GetOptions::default() };
                let answer = timeout(SILENCE_MAX, self.store.get_opts(location, options)).await;
                match answer.map_err(|_| self.silent(path))? {
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(Failure::Final(self.explain(path, &error))),
                    Ok(found) => Ok(Some(found.meta)),
                }
            })
        };
        let ranged = if is_web { ask(false).await } else { ask(true).await };
        match ranged {
            Ok(found) => Ok(found.map_or(Seen::Nothing, Seen::Ranged)),
            // A file without a byte, or a server without ranges.
            Err(error)
                if is_web && matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Unsupported) =>
            {
                Ok(ask(true).await?.map_or(Seen::Nothing, Seen::Whole))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives all of a file to `take`, piece by piece, unless `stop` is set meanwhile, and says how many bytes that were; no
    /// more than `limit`, and a piece.
    pub(crate) async fn copy(
        &self,
        location: &Path,
        limit: u64,
        stop: &AtomicBool,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let path = self.name(location);
        let _request = self.requests.acquire().await.map_err(Error::other)?;
        let broken = |failure| match failure {
            Failure::Broken(error) | Failure::Final(error) => error,
        };
        let answer = timeout(SILENCE_MAX, self.store.get_opts(location, GetOptions::default())).await;
        let answer = answer.map_err(|_| broken(self.silent(&path)))?;
        let mut frames = answer.map_err(|error| self.explain(&path, &error))?.into_stream();
        let mut copied = 0;
        loop {
            let frame = timeout(SILENCE_MAX, frames.next()).await.map_err(|_| broken(self.silent(&path)))?;
            let goes_on = copied <= limit && !stop.load(Ordering::Relaxed);
            let Some(frame) = frame.filter(|_| goes_on) else { return Ok(copied) };
            let frame = frame.map_err(|error| self.explain(&path, &error))?;
            copied += frame.len() as u64;
            take(&frame)?;
        }
    }

    /// The files and directories in a directory.
    pub(crate) async fn list_level(&self, directory: &Path) -> Result<ListResult> {
        let path = self.name(directory);
        let list = || async {
            let listing = self.store.list_with_delimiter(Some(directory));
            let listing = timeout(SILENCE_MAX * LISTING_REQUESTS, listing).await;
            let listing = listing.map_err(|_| self.silent(&path))?;
            listing.map_err(|error| Failure::Final(self.explain(&path, &error)))
        };
        self.persist(list).await
    }

    /// All files below a directory, however deep.
    pub(crate) async fn list_below(&self, directory: &Path) -> Result<Vec<ObjectMeta>> {
        let path = self.name(directory);
        let list = || async {
            let mut objects = self.store.list(Some(directory));
            let mut found = Vec::new();
            loop {
                let next = timeout(SILENCE_MAX, objects.next()).await.map_err(|_| self.silent(&path))?;
                let Some(object) = next else { return Ok(found) };
                found.push(object.map_err(|error| Failure::Final(self.explain(&path, &error)))?);
                if found.len() > LISTED_MAX {
                    let reason = format!("there are more than {LISTED_MAX} files below it");
                    return Err(Failure::Final(self.error(ErrorKind::InvalidInput, &path, &reason)));
                }
            }
        };
        self.persist(list).await
    }

    pub(crate) async fn is_there(&self, path: &str) -> Result<bool> {
        let location = &self.location(path);
        let head = || async {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let answer = timeout(SILENCE_MAX, self.store.get_opts(location, options));
            match answer.await.map_err(|_| self.silent(path))? {
                Err(object_store::Error::NotFound { .. }) => Ok(false),
                Err(error) => Err(Failure::Final(self.explain(path, &error))),
                Ok(_) => Ok(true),
            }
        };
        self.persist(head).await
    }

    /// The names in a directory.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<String>> {
        let listing = self.list_level(&self.location(path)).await?;
        let files = listing.objects.iter().map(|object| &object.location);
        let names = files.chain(&listing.common_prefixes).filter_map(Path::filename);
        Ok(names.map(str::to_owned).collect())
    }
}

/// What is at the bottom of an error, which says most, in one line; not the page that a server may have sent.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let text = text.split(['\n', '<']).next().unwrap_or_default();
    let text = text.split(" (os error").next().unwrap_or_default().trim_end_matches([' ', ':']);
    text.chars().take(SHOWN_MAX).collect()
}
