//! Files that never change, in chunks of 1 MiB: on their way, in memory for a while, in the cache's directory.
//!
//! Chunks that lie side by side are fetched by one request. Whoever wants a chunk that is on its way waits for it, so
//! none is fetched twice. Those of which is said that they will be read are fetched ahead, a limited number at a time.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::{Condvar, Mutex};
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::Xxh3;

use super::cache::{Cache, CacheOptions};
use super::server::{Found, Server, Version, spawn};
use crate::runtime::work::is_abandoned;

const CHANGED: &str = "it changed on the server while it was read, or servers call the same contents by other names: read it \
                       again";
/// Bytes of a chunk; the last of a file has the rest.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks that one request asks for.
const RUN_MAX: u64 = 4;
/// Chunks that are kept in memory.
const KEPT_MAX: usize = 128;
/// So many are on their way, and no more are fetched ahead.
const AHEAD_MAX: usize = 64;
/// Who waits for a chunk looks so often whether anyone waits for him.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// A chunk that was fetched ahead and not read counts as used so much later than it came.
const AHEAD_BONUS: u64 = 2 * KEPT_MAX as u64;
/// Chunks that are looked at when someone says what will be read, those named twice included.
const EXPECTED_MAX: usize = 1 << 14;

/// A file that never changes: where it is, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    server: Arc<Server>,
    location: Path,
    pub(crate) byte_count: u64,
    /// What the server called the contents when it was asked what there is, if it was.
    version: Option<Version>,
    /// Another for other contents.
    key: u128,
}

impl File {
    /// `hash` is another one when the contents of the file are.
    pub(crate) fn new(server: Arc<Server>, location: Path, byte_count: u64, hash: u64) -> Self {
        let mut hasher = Xxh3::new();
        for text in [server.asked(), location.as_ref()] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(&byte_count.to_le_bytes());
        hasher.update(&hash.to_le_bytes());
        Self { server, location, byte_count, version: None, key: hasher.digest128() }
    }

    /// The file as the server said that it is.
    pub(crate) fn seen(server: Arc<Server>, asked: &Path, meta: &ObjectMeta) -> Self {
        let version = Version::of(meta);
        let location = if meta.location.as_ref().is_empty() { asked } else { &meta.location };
        let file = Self::new(server, location.clone(), meta.size, version.hash());
        Self { version: Some(version), ..file }
    }

    /// A number that is another one for other contents.
    pub(crate) fn number(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "half of a hash is one")]
        let half = self.key as u64;
        half
    }

    /// Whether the server tells other contents apart.
    pub(crate) fn is_told(&self) -> bool {
        self.version.as_ref().is_none_or(Version::is_told)
    }

    /// The chunks that have these bytes, as far as the file has them.
    fn chunks(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.byte_count);
        if range.start >= end { 0..0 } else { range.start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES) }
    }

    /// Where chunks are in the file.
    fn bytes(&self, chunks: &Range<u64>) -> Range<u64> {
        chunks.start * CHUNK_BYTES..(chunks.end * CHUNK_BYTES).min(self.byte_count)
    }
}

/// Bytes that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Load {
    outcome: Mutex<Option<std::result::Result<Bytes, (ErrorKind, String)>>>,
    is_done: Condvar,
}

impl Load {
    /// The bytes, when they are there.
    pub(crate) fn wait(&self) -> Result<Bytes> {
        let mut outcome = self.outcome.lock();
        while outcome.is_none() {
            self.is_done.wait_for(&mut outcome, ASK_AGAIN);
            if outcome.is_none() && is_abandoned() {
                return Err(Error::new(ErrorKind::TimedOut, "nobody waits for it any more"));
            }
        }
        let outcome = outcome.clone().expect("it was waited for");
        outcome.map_err(|(kind, reason)| Error::new(kind, reason))
    }

    /// What whoever brings the bytes has.
    pub(crate) fn promise(self: &Arc<Self>) -> Promise {
        Promise(self.clone())
    }
}

/// Sees to it that nobody waits for ever.
pub(crate) struct Promise(Arc<Load>);

impl Promise {
    pub(crate) fn keep(&self, outcome: Result<Bytes>) {
        let outcome = outcome.map_err(|error| (error.kind(), error.to_string()));
        self.0.outcome.lock().get_or_insert(outcome);
        self.0.is_done.notify_all();
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(Err(Error::new(ErrorKind::TimedOut, "the request broke off")));
    }
}

#[derive(Debug)]
enum Slot {
    Loading(Arc<Load>),
    /// And when it was used last.
    Ready(Bytes, u64),
}

#[derive(Debug, Default)]
struct Slots {
    by_chunk: HashMap<(u128, u64), Slot>,
    loading: usize,
    /// Goes up with each use.
    clock: u64,
    /// What the server called the contents of files when they were first read.
    tags: HashMap<u128, String>,
    /// When chunks were found to be wrong.
    forgotten: HashMap<(u128, u64), u64>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Chunks {
    cache: Arc<Cache>,
    slots: Mutex<Slots>,
}

impl Chunks {
    pub(crate) fn new(options: CacheOptions) -> Self {
        Self { cache: Arc::new(Cache::new(options)), slots: Mutex::default() }
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Fills the buffer from a place in the file, up to its end, and says how many bytes that are.
    pub(crate) fn read_at(self: &Arc<Self>, file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let end = file.byte_count.min(offset.saturating_add(buffer.len() as u64));
        let chunks = file.chunks(&(offset..end));
        // More than are kept would drive each other out.
        let chunks = chunks.start..chunks.end.min(chunks.start + (KEPT_MAX / 4) as u64);
        self.begin(file, chunks.clone(), usize::MAX);
        let mut filled = 0;
        for chunk in chunks {
            let bytes = self.chunk(file, chunk)?;
            let at = offset + filled as u64 - chunk * CHUNK_BYTES;
            let bytes = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
            let count = bytes.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&bytes[..count]);
            filled += count;
        }
        Ok(filled)
    }

    /// Fetches what is not there, as long as not too much is on its way.
    pub(crate) fn expect(self: &Arc<Self>, file: &File, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        // However large a log says that a file is.
        let mut chunks: Vec<u64> = ranges.flat_map(|range| file.chunks(&range)).take(EXPECTED_MAX).collect();
        chunks.sort_unstable();
        chunks.dedup();
        for run in chunks.chunk_by(|a, b| a + 1 == *b) {
            self.begin(file, run[0]..run[run.len() - 1] + 1, AHEAD_MAX);
        }
    }

    /// Throws away chunks that have these bytes.
    pub(crate) fn forget(&self, file: &File, range: Range<u64>) {
        let mut slots = self.slots.lock();
        slots.tags.remove(&file.key);
        for chunk in file.chunks(&range).take(EXPECTED_MAX) {
            let (key, now) = ((file.key, chunk), slots.clock);
            slots.forgotten.insert(key, now);
            if let Some(Slot::Ready(..)) = slots.by_chunk.get(&key) {
                slots.by_chunk.remove(&key);
            }
            self.cache.remove(key);
        }
    }

    /// Puts a chunk into the cache that was fetched at a time, unless it was found to be wrong since.
    fn put(&self, key: (u128, u64), bytes: &[u8], fetched: u64) {
        let is_wrong =
            || self.slots.lock().forgotten.get(&key).is_some_and(|forgotten| *forgotten >= fetched);
        if !is_wrong() {
            self.cache.put(key, bytes);
        }
        if is_wrong() {
            self.cache.remove(key);
        }
    }

    fn chunk(self: &Arc<Self>, file: &File, chunk: u64) -> Result<Bytes> {
        loop {
            let load = {
                let mut slots = self.slots.lock();
                slots.clock += 1;
                let now = slots.clock;
                match slots.by_chunk.get_mut(&(file.key, chunk)) {
                    Some(Slot::Ready(bytes, used)) => {
                        *used = now;
                        return Ok(bytes.clone());
                    }
                    Some(Slot::Loading(load)) => Some(load.clone()),
                    None => None,
                }
            };
            match load {
                Some(load) => return load.wait(),
                // It went since it was there.
                None => self.begin(file, chunk..chunk + 1, usize::MAX),
            }
        }
    }

    /// Sends for those of some chunks that are neither there nor on their way, until so many are.
    fn begin(self: &Arc<Self>, file: &File, chunks: Range<u64>, loading_max: usize) {
        let mut runs: Vec<(u64, Vec<Promise>)> = Vec::new();
        let mut slots = self.slots.lock();
        for chunk in chunks {
            let key = (file.key, chunk);
            if slots.loading >= loading_max {
                break;
            }
            if slots.by_chunk.contains_key(&key) {
                continue;
            }
            let load = Arc::<Load>::default();
            let promise = load.promise();
            slots.by_chunk.insert(key, Slot::Loading(load));
            slots.loading += 1;
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as u64 == chunk && (run.len() as u64) < RUN_MAX => {
                    run.push(promise);
                }
                _ => runs.push((chunk, vec![promise])),
            }
        }
        drop(slots);
        for (first, run) in runs {
            let run = Run { chunks: self.clone(), file: file.clone(), first, promises: run };
            spawn(run.load());
        }
    }
}

/// Chunks side by side that are on their way.
struct Run {
    chunks: Arc<Chunks>,
    file: File,
    first: u64,
    promises: Vec<Promise>,
}

impl Run {
    async fn load(mut self) {
        let (cache, key, file) = (self.chunks.cache.clone(), self.file.key, self.file.clone());
        let wanted = self.first..self.first + self.promises.len() as u64;
        let byte_count = move |chunk: u64| {
            let bytes = file.bytes(&(chunk..chunk + 1));
            usize::try_from(bytes.end - bytes.start).expect("a chunk is small")
        };
        let look = move || wanted.map(|chunk| cache.get((key, chunk), byte_count(chunk))).collect();
        let kept: Vec<Option<Bytes>> = spawn_blocking(look).await.unwrap_or_default();
        // What is not there is asked for, side by side.
        let mut missing: Option<Range<u64>> = None;
        for (chunk, bytes) in (self.first..self.first + self.promises.len() as u64)
            .zip(kept.into_iter().chain(std::iter::repeat(None)))
        {
            match bytes {
                Some(bytes) => {
                    if let Some(missing) = missing.take() {
                        self.fetch(missing).await;
                    }
                    self.keep(chunk, Ok(bytes));
                }
                None => missing = Some(missing.map_or(chunk, |missing| missing.start)..chunk + 1),
            }
        }
        if let Some(missing) = missing {
            self.fetch(missing).await;
        }
    }

    async fn fetch(&mut self, chunks: Range<u64>) {
        let range = self.file.bytes(&chunks);
        let limit = range.end - range.start;
        let found = self.file.server.get(&self.file.location, Some(range), limit).await;
        let found = found.and_then(|found| self.check(found));
        let bytes = match found {
            Ok(found) => found.bytes,
            Err(error) => {
                for chunk in chunks {
                    self.keep(chunk, Err(Error::new(error.kind(), error.to_string())));
                }
                return;
            }
        };
        let step = usize::try_from(CHUNK_BYTES).expect("a chunk is small");
        for (chunk, bytes) in chunks.zip(bytes.chunks(step)) {
            // A copy, so that a chunk that stays does not keep the others.
            let bytes = Bytes::copy_from_slice(bytes);
            let fetched = self.keep(chunk, Ok(bytes.clone()));
            let (chunks, key) = (self.chunks.clone(), (self.file.key, chunk));
            if self.file.is_told() {
                spawn_blocking(move || chunks.put(key, &bytes, fetched));
            }
        }
    }

    /// Fails when the server has something else than is known of the file, or than it had.
    fn check(&self, found: Found) -> Result<Found> {
        let fail = |kind, reason: &str| Err(self.file.server.error_at(kind, &self.file.location, reason));
        if found.size != self.file.byte_count {
            let reason = format!("it has {} bytes, not {}", found.size, self.file.byte_count);
            return fail(ErrorKind::InvalidData, &reason);
        }
        if let Some(version) = &self.file.version {
            if !version.is(&found.version) {
                return fail(ErrorKind::TimedOut, CHANGED);
            }
        } else if let Some(tag) = &found.version.tag {
            let mut slots = self.chunks.slots.lock();
            if slots.tags.entry(self.file.key).or_insert_with(|| tag.clone()) != tag {
                return fail(ErrorKind::TimedOut, CHANGED);
            }
        }
        Ok(found)
    }

    /// Hands out a chunk, or says why there is none, and gives the time.
    fn keep(&self, chunk: u64, outcome: Result<Bytes>) -> u64 {
        let mut slots = self.chunks.slots.lock();
        slots.clock += 1;
        slots.loading -= 1;
        let (now, key) = (slots.clock, (self.file.key, chunk));
        match &outcome {
            Ok(bytes) => _ = slots.by_chunk.insert(key, Slot::Ready(bytes.clone(), now + AHEAD_BONUS)),
            Err(_) => _ = slots.by_chunk.remove(&key),
        }
        if slots.by_chunk.len() > KEPT_MAX + slots.loading {
            let ready = slots.by_chunk.iter().filter_map(|(key, slot)| match slot {
                Slot::Ready(_, used) => Some((*used, *key)),
                Slot::Loading(_) => None,
            });
            if let Some((_, oldest)) = ready.min() {
                slots.by_chunk.remove(&oldest);
            }
        }
        drop(slots);
        let place = usize::try_from(chunk - self.first).expect("a run is short");
        self.promises[place].keep(outcome);
        now
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // What broke off is neither there nor on its way.
        let mut slots = self.chunks.slots.lock();
        for (chunk, promise) in (self.first..).zip(&self.promises) {
            if promise.0.outcome.lock().is_none() && slots.by_chunk.remove(&(self.file.key, chunk)).is_some()
            {
                slots.loading -= 1;
            }
        }
    }
}
