//! A database: memory, threads, a catalogue, and the sessions that share them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use keirin_kernels::Level;
use keirin_race::Races;
use tokio::runtime::{Builder, Runtime};

use crate::compile::plan_cache::Changes;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::memory::{self, SpillDirectory};
use crate::runtime::pool::FairPool;
use crate::runtime::spill_files::SpillFiles;
use crate::runtime::work::Work;
use crate::session::Session;
use crate::sources::files::{KnownFiles, RemoteFiles};
use crate::sources::remote::CacheOptions;
use crate::sources::stored::{BlockCache, Store};

/// How long closing a database waits for threads that are still running something.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Planning deep expressions recurses; unoptimised builds need room for it.
const THREAD_STACK_BYTES: usize = 16 << 20;

/// The default limit of the cache of decoded blocks, as a share of the memory limit.
pub(crate) fn default_block_cache_bytes(memory_limit_bytes: usize) -> usize {
    memory_limit_bytes / 8
}

/// A database, open. Clones share it; it closes with the last clone and session.
///
/// ```
/// # fn main() -> keirin::Result<()> {
/// let database = keirin::Database::builder().threads(2).memory_limit_bytes(256 << 20).in_memory()?;
/// let session = database.session();
/// database.block_on(async {
///     session.sql("CREATE TABLE t AS VALUES (1), (2)").await?.collect().await?;
///     session.sql("SELECT sum(column1) FROM t").await?.collect().await
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Database {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) environment: Arc<RuntimeEnv>,
    pub(crate) pool: Arc<FairPool>,
    pub(crate) threads: usize,
    /// Measurements of which variants of raced loops are fastest.
    pub(crate) races: Arc<Races>,
    pub(crate) known_files: Arc<KnownFiles>,
    pub(crate) remote_files: Arc<RemoteFiles>,
    /// The memory limit in bytes that the database was opened with; RESET restores it.
    pub(crate) memory_limit_bytes: usize,
    /// Statements whose task has not ended.
    pub(crate) statement_count: AtomicUsize,
    /// Statements that are no queries, of all sessions.
    pub(crate) changes: Arc<Changes>,
    /// The database's work on threads that may block.
    pub(crate) work: Work,
    /// Its tables.
    pub(crate) store: Arc<Store>,
    runtime: Option<Runtime>,
    pub(crate) spill_files: Arc<SpillFiles>,
    _spill: SpillDirectory,
}

impl Shared {
    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime lives until drop")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.store.end_upkeep();
        let Some(runtime) = self.runtime.take() else { return };
        // Waiting would panic inside a runtime. Elsewhere a short wait lets cancelled writers remove their
        // files.
        if tokio::runtime::Handle::try_current().is_ok() {
            runtime.shutdown_background();
        } else {
            runtime.shutdown_timeout(SHUTDOWN_WAIT_MAX);
        }
    }
}

impl Database {
    /// Opens a database in memory, which is gone with its last handle.
    ///
    /// # Errors
    /// See [`DatabaseBuilder::in_memory`].
    pub fn in_memory() -> Result<Self> {
        Self::builder().in_memory()
    }

    /// Opens the database in directory `path`, or creates it if there is none.
    ///
    /// # Errors
    /// See [`DatabaseBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path)
    }

    /// Builds a database with other settings than the default ones.
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::default()
    }

    /// A new session: its own settings and temporary objects, and the database's tables.
    pub fn session(&self) -> Session {
        Session::new(self.shared.clone())
    }

    /// Runs `future` on the database's threads and waits: for programs that are not asynchronous.
    ///
    /// # Panics
    /// When called from inside an asynchronous runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared.runtime().block_on(future)
    }
}

/// How a [`Database`] is to be opened.
#[derive(Clone, Debug, Default)]
pub struct DatabaseBuilder {
    threads: Option<usize>,
    blocking_threads: Option<usize>,
    memory_limit_bytes: Option<usize>,
    temp_directory: Option<PathBuf>,
    read_only: bool,
    cache: CacheOptions,
    whole_process: bool,
}

impl DatabaseBuilder {
    /// Threads that run queries; by default as many as there are cores.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Extra threads for work that may block, such as reading files; they are started when needed. By default
    /// 64 for each query thread, and at least 512. With fewer, work waits for a free thread.
    #[must_use]
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = Some(threads.max(1));
        self
    }

    /// The memory limit that all queries share; by default 80 % of the machine's or control group's memory.
    #[must_use]
    pub fn memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Whether the limit also applies to all memory that the process allocates after the database was opened:
    /// for programs that consist of little else than this database and use mimalloc as their allocator. Linux
    /// only.
    #[must_use]
    pub fn whole_process(mut self, whole_process: bool) -> Self {
        self.whole_process = whole_process;
        self
    }

    /// Where spill files go; by default the system's directory for temporary files.
    #[must_use]
    pub fn temp_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.temp_directory = Some(path.into());
        self
    }

    /// Whether a database directory is opened only for reading: beside the one process that writes to it, any
    /// number of processes may read it. Each statement sees the newest version.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// The directory of the cache for a database and files behind URLs, so that data is not fetched again; by default
    /// the system's cache directory. Processes may share it.
    #[must_use]
    pub fn cache_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache.directory = Some(path.into());
        self
    }

    /// The size limit of that cache in bytes, 4 GB by default; with 0 nothing is cached.
    #[must_use]
    pub fn cache_limit_bytes(mut self, bytes: u64) -> Self {
        self.cache.limit_bytes = bytes;
        self
    }

    /// Whether files of tables may be memory-mapped, which is the default. That needs a handler of SIGBUS,
    /// one for the process, which the first mapped file installs; signals from other memory go to the handler
    /// that was there before. A program that wants its own handler passes `false` for all its databases: then
    /// files are read into memory instead, and no database of this process ever installs a handler again.
    /// Linux only.
    #[must_use]
    pub fn memory_maps(self, memory_maps: bool) -> Self {
        if !memory_maps {
            keirin_kernels::map::switch_off();
        }
        self
    }

    /// Opens a database that lives in memory.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the temporary directory cannot be written or no thread can be started,
    /// [`ErrorKind::Invalid`] when the environment variable `KEIRIN_CPU_LEVEL` is no level of CPU.
    pub fn in_memory(self) -> Result<Database> {
        let pool = self.pool();
        let blocks = BlockCache::new(&pool, default_block_cache_bytes(pool.limit_bytes()));
        let store = Store::in_memory(&pool, blocks)?;
        let remote_files = RemoteFiles::new(self.cache.clone());
        self.build(pool, store, remote_files)
    }

    /// Opens the database in directory `path`, or creates it if there is none. `path` may also be a URL: a
    /// database in an object store (`s3://bucket/path`, `gs://`, `az://`) or on a web server
    /// (`https://host/path`) can be read.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the directory cannot be read or made, or another process writes to it,
    /// [`ErrorKind::Invalid`] when it holds something else or was made by a newer version.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let pool = self.pool();
        let blocks = BlockCache::new(&pool, default_block_cache_bytes(pool.limit_bytes()));
        let remote_files = RemoteFiles::new(self.cache.clone());
        let store = Store::open(path.as_ref(), self.read_only, remote_files.chunks().clone(), blocks)?;
        self.build(pool, store, remote_files)
    }

    fn pool(&self) -> Arc<FairPool> {
        let limit_bytes = self.memory_limit_bytes.unwrap_or_else(memory::default_limit_bytes);
        Arc::new(match self.whole_process {
            true => FairPool::of_process(limit_bytes),
            false => FairPool::new(limit_bytes),
        })
    }

    fn build(self, pool: Arc<FairPool>, store: Store, remote_files: RemoteFiles) -> Result<Database> {
        Level::check_environment().map_err(|unknown| Error::new(ErrorKind::Invalid, unknown.to_string()))?;
        let parent = self.temp_directory.unwrap_or_else(std::env::temp_dir);
        // Absolute, as the program may change its working directory.
        let spill = SpillDirectory::create(&std::path::absolute(&parent).unwrap_or(parent))?;
        let memory_limit_bytes = pool.limit_bytes();
        let races = store.database.races().clone();
        // No limit but the disk's size. The directory, and any file left in it, is removed with the database.
        let spill_files = Arc::new(SpillFiles::new(spill.path(), &races));
        let disk = DiskManagerBuilder::default().with_temp_file_factory(spill_files.clone());
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(pool.clone())
            .with_disk_manager_builder(disk)
            .build_arc()?;
        let threads =
            self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let work = Work::default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            // Each partition of an aggregation occupies one until it is done; tokio's default of 512 is too
            // few for many queries.
            .max_blocking_threads(self.blocking_threads.unwrap_or(512.max(64 * threads)))
            .on_thread_start({
                let work = work.clone();
                move || work.enter()
            })
            .thread_stack_size(THREAD_STACK_BYTES)
            .thread_name("keirin")
            .enable_all()
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, format!("cannot start threads: {error}")))?;
        let runtime = Some(runtime);
        let store = Arc::new(store);
        store.begin_upkeep(pool.clone(), threads);
        Ok(Database {
            shared: Arc::new(Shared {
                environment,
                pool,
                threads,
                races,
                known_files: Arc::default(),
                remote_files: Arc::new(remote_files),
                memory_limit_bytes,
                statement_count: AtomicUsize::new(0),
                changes: Arc::default(),
                work,
                store,
                runtime,
                spill_files,
                _spill: spill,
            }),
        })
    }
}
