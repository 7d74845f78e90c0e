//! Requests: each is tried a few times and given up in time, and an error names the URL.
//!
//! A refused request is tried again by `object_store`. One that gets no answer, or whose answer breaks off or
//! stalls, is tried again here: so a slow line is not taken for a dead one, as a limit for the whole would.

use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Requests that run at the same time.
const REQUESTS_MAX: usize = 16;
/// Characters of an error of a server that are shown.
const SHOWN_MAX: usize = 200;

/// What is said of the server and not of the file: storage takes it for no damage.
const OF_THE_SERVER: ErrorKind = ErrorKind::TimedOut;

/// How long a server may be silent, and how often that is tried.
const SILENCE_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
const TRIES_MAX: u32 = 3;

/// A place with files.
#[derive(Debug)]
pub(super) struct Server {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    shown: String,
    requests: Semaphore,
    /// Always some, until it is dropped.
    runtime: Option<Runtime>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) bytes: Bytes,
    /// Bytes of the whole file.
    pub(super) size: u64,
    /// What the server calls these contents.
    pub(super) tag: Option<String>,
}

/// Why nothing was read.
enum Failure {
    /// Another try may help.
    Broken(Error),
    Final(Error),
}

impl Server {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: Path, shown: String) -> Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).thread_name("keirin-remote").enable_all().build()?;
        let runtime = Some(runtime);
        Ok(Self { store, prefix, shown, requests: Semaphore::new(REQUESTS_MAX), runtime })
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.as_ref().expect("it lives until drop").spawn(task);
    }

    /// What becomes of `task`, which runs on another thread: so this one may be any.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            // Whoever waits is there until this is sent.
            _ = sender.send(task.await);
        });
        receiver.recv().unwrap_or_else(|_| Err(self.error(OF_THE_SERVER, "", "the request broke off")))
    }

    fn location(&self, path: &str) -> Path {
        path.split('/')
            .filter(|name| !name.is_empty())
            .fold(self.prefix.clone(), |path, name| path.join(name))
    }

    /// An error that names the file.
    pub(super) fn error(&self, kind: ErrorKind, path: &str, reason: &str) -> Error {
        let slash = if path.is_empty() { "" } else { "/" };
        Error::new(kind, format!("{}{slash}{path}: {reason}", self.shown))
    }

    fn explain(&self, path: &str, error: &object_store::Error) -> Error {
        let reason = innermost(error);
        let kind = match error {
            object_store::Error::NotFound { .. } => ErrorKind::NotFound,
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                ErrorKind::PermissionDenied
            }
            _ if reason.contains("416") => ErrorKind::InvalidData,
            _ => OF_THE_SERVER,
        };
        // As the crate says it, of web servers and of others.
        let of_whole_files = ["Range request not supported", "Received non-partial response"];
        match of_whole_files.iter().any(|text| reason.starts_with(text)) {
            true => self.error(kind, path, "the server does not know ranged requests"),
            false => self.error(kind, path, &reason),
        }
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
        let _request = self.requests.acquire().await.map_err(Error::other)?;
        for again in 1.. {
            match attempt().await {
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
    pub(super) async fn get(&self, path: &str, range: Option<Range<u64>>, limit: u64) -> Result<Found> {
        let location = &self.location(path);
        self.persist(|| self.try_get(path, location, range.clone(), limit)).await
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
        let (size, tag) = (answer.meta.size, answer.meta.e_tag.clone());
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
        Ok(Found { bytes: bytes.freeze(), size, tag })
    }

    pub(super) async fn is_there(&self, path: &str) -> Result<bool> {
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
    pub(super) async fn list(&self, path: &str) -> Result<Vec<String>> {
        /// A listing is many requests.
        const REQUESTS: u32 = 20;
        let location = &self.location(path);
        let list = || async {
            let listing = self.store.list_with_delimiter(Some(location));
            let listing = timeout(SILENCE_MAX * REQUESTS, listing).await;
            let listing = listing.map_err(|_| self.silent(path))?;
            let listing = listing.map_err(|error| Failure::Final(self.explain(path, &error)))?;
            let files = listing.objects.iter().map(|object| &object.location);
            let names = files.chain(&listing.common_prefixes).filter_map(Path::filename);
            Ok(names.map(str::to_owned).collect())
        };
        self.persist(list).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Waiting would panic inside of another runtime.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// What is at the bottom of an error, which says most, in one line; not the page that a server may have sent.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let text = text.split(['\n', '<']).next().unwrap_or_default().trim_end_matches([' ', ':']);
    text.chars().take(SHOWN_MAX).collect()
}
