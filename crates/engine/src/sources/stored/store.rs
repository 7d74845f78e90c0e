//! A database, open: how it is opened, what a statement sees of it, how its catalogue is changed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field as ArrowField, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use keirin_storage::column::Column;
use keirin_storage::io::{Budget, Disk, Io, Memory};
use keirin_storage::part::{Verify, WriteOptions};
use keirin_storage::schema::{Field, INITIAL};
use keirin_storage::{
    Access, Cancel, Damage, Database, Error as StorageError, Options, Snapshot, Table, Transaction,
};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::administration::upkeep::Upkeep;
use super::reading::blocks::BlockCache;
use super::remote::Remote;
use super::writing::definition::codecs;
use super::{arrow_type, column, storable};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::pool::FairPool;
use crate::sources::remote::{Chunks, is_url};

/// How long opening waits for another writer, which may be about to close: as this program does when it opens a
/// database again.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(500);
const LOCK_WAIT: Duration = Duration::from_millis(5);

/// Newer versions of a remote database are looked for no more often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// How long older versions of a directory are kept unless somebody says so.
const RETENTION: Duration = Duration::from_secs(3600);

/// What to do about files of a later format.
pub(super) const NEWER_HINT: &str = "open it with a newer version of Keirin";

/// What to do about files of a version that is no longer kept.
pub(super) const REPLACED_HINT: &str =
    "run the statement again; SET keirin.retention = '7 days' keeps older versions longer";

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) database: Arc<Database>,
    pub(crate) block_cache: Arc<BlockCache>,
    is_read_only: bool,
    is_in_memory: bool,
    /// The directory or the URL; empty in memory.
    path: PathBuf,
    /// The door to its files, if it has a URL.
    pub(crate) remote: Option<Arc<Remote>>,
    /// When newer versions were looked for the last time.
    refreshed: Mutex<Instant>,
    /// Unless it can only be read.
    upkeep: OnceLock<Upkeep>,
    /// Held while the catalogue changes, so that two names do not become one.
    altering: Mutex<()>,
    /// By table: held by the statement that changes rows that are there, or the definition.
    changing: Mutex<BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>>,
}

/// Memory for files.
#[derive(Debug)]
struct Booked {
    reservation: MemoryReservation,
    /// Whose files they are, as soon as it is open.
    database: OnceLock<Weak<Database>>,
}

impl Budget for Booked {
    fn grow(&self, bytes: usize) -> io::Result<()> {
        let refused = |error| io::Error::new(io::ErrorKind::OutOfMemory, error);
        self.reservation.try_grow(bytes).or_else(|error| {
            // Files that nobody needs any more are removed from time to time, and now that their memory is needed.
            let database = self.database.get().and_then(Weak::upgrade).ok_or_else(|| refused(error))?;
            while database.remove_obsolete(&Cancel::default()).unwrap_or(false) {}
            self.reservation.try_grow(bytes).map_err(refused)
        })
    }

    fn take(&self, bytes: usize) {
        self.reservation.grow(bytes);
    }

    fn shrink(&self, bytes: usize) {
        self.reservation.shrink(bytes);
    }
}

/// Bytes from a server that were right once may come from elsewhere the next time.
fn default_verify(is_remote: bool) -> Verify {
    if is_remote { Verify::Always } else { Verify::default() }
}

impl Store {
    /// Opens the database in directory `path`; makes one if there is nothing, unless it is only to be read.
    pub(crate) fn open(
        path: &Path,
        is_read_only: bool,
        chunks: Arc<Chunks>,
        blocks: Arc<BlockCache>,
    ) -> Result<Self> {
        if is_url(path) {
            return Self::open_remote(path, chunks, blocks);
        }
        let shown = path.display();
        if path.is_file() {
            let message = format!("'{shown}' is a file, not a database directory");
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_hint(format!("to query a file: SELECT * FROM '{shown}'")));
        }
        let failed = |error: StorageError| match error {
            StorageError::NotADatabase if is_read_only && !path.is_dir() => {
                Error::new(ErrorKind::NotFound, format!("there is no database directory '{shown}'"))
            }
            StorageError::NotADatabase => {
                let message = format!("directory '{shown}' is not empty and not a Keirin database");
                let hint = format!("to query the files in it: SELECT * FROM '{shown}/*.parquet'");
                Error::new(ErrorKind::Invalid, message).with_hint(hint)
            }
            newer @ StorageError::Newer { .. } => {
                Error::new(ErrorKind::Invalid, format!("database '{shown}' cannot be opened: {newer}"))
                    .with_hint(NEWER_HINT)
            }
            StorageError::Locked => {
                let message = format!("another process has database '{shown}' open for writing");
                Error::new(ErrorKind::Io, message).with_hint("open it for reading: keirin --readonly")
            }
            other => Error::from(other).with_detail(format!("opening database '{shown}'")),
        };
        let (disk, access) = if is_read_only {
            (Disk::open(path), Access::Read)
        } else {
            let made = Disk::create(path).map_err(|error| {
                let message = format!("cannot create database directory '{shown}': {error}");
                Error::new(ErrorKind::Io, message)
            });
            (made?, Access::Write)
        };
        let disk: Arc<dyn Io> = Arc::new(disk);
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        let database = loop {
            match Database::open(disk.clone(), access, Options::default()) {
                Err(StorageError::Locked) if Instant::now() < deadline => std::thread::sleep(LOCK_WAIT),
                opened => break opened.map_err(failed)?,
            }
        };
        Ok(Self::new(database, blocks, is_read_only, path.to_owned(), None))
    }

    /// A new database in memory, whose files are booked in `pool`.
    pub(crate) fn in_memory(pool: &Arc<FairPool>, blocks: Arc<BlockCache>) -> Result<Self> {
        let pool: Arc<dyn MemoryPool> = pool.clone();
        let reservation = MemoryConsumer::new("tables in memory").register(&pool);
        let booked = Arc::new(Booked { reservation, database: OnceLock::new() });
        let io: Arc<dyn Io> = Arc::new(Memory::new(booked.clone()));
        let database = Database::open(io, Access::Write, Options::default())?;
        booked.database.get_or_init(|| Arc::downgrade(&database));
        let store = Self { is_in_memory: true, ..Self::new(database, blocks, false, PathBuf::new(), None) };
        let retention = store.default_retention();
        store.alter(|transaction| Ok(transaction.set_retention(retention)?))?;
        Ok(store)
    }

    /// Opens the database behind a URL, for reading.
    fn open_remote(url: &Path, chunks: Arc<Chunks>, blocks: Arc<BlockCache>) -> Result<Self> {
        let remote = Arc::new(Remote::new(&url.to_string_lossy(), chunks)?);
        let shown = remote.shown().to_owned();
        let failed = |error: StorageError| match error {
            StorageError::NotADatabase => {
                Error::new(ErrorKind::NotFound, format!("there is no Keirin database at '{shown}'"))
            }
            newer @ StorageError::Newer { .. } => {
                Error::new(ErrorKind::Invalid, format!("database '{shown}' cannot be opened: {newer}"))
                    .with_hint(NEWER_HINT)
            }
            other => Error::from(other).with_detail(format!("opening database '{shown}'")),
        };
        let io: Arc<dyn Io> = remote.clone();
        let options = Options { verify: default_verify(true), ..Options::default() };
        let database = Database::open(io, Access::Read, options).map_err(failed)?;
        Ok(Self::new(database, blocks, true, PathBuf::from(shown), Some(remote)))
    }

    fn new(
        database: Arc<Database>,
        block_cache: Arc<BlockCache>,
        is_read_only: bool,
        path: PathBuf,
        remote: Option<Arc<Remote>>,
    ) -> Self {
        let (refreshed, upkeep) = (Mutex::new(Instant::now()), OnceLock::new());
        let (altering, changing, is_in_memory) = (Mutex::default(), Mutex::default(), false);
        Self {
            database,
            block_cache,
            is_read_only,
            is_in_memory,
            path,
            remote,
            refreshed,
            upkeep,
            altering,
            changing,
        }
    }

    /// Whether [`snapshot`](Self::snapshot) asks the disk or a server what is new.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.is_read_only
    }

    /// Waits until no other statement changes rows of a table that are there, or its definition. Each would commit
    /// and find that another was first; so none looks for its rows before the others are done.
    pub(crate) async fn change_alone(&self, table: u64) -> OwnedMutexGuard<()> {
        let queue = {
            let mut changing = self.changing.lock();
            changing.retain(|_, queue| Arc::strong_count(queue) > 1);
            changing.entry(table).or_default().clone()
        };
        queue.lock_owned().await
    }

    /// What a statement that begins now is to see.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        if self.is_read_only && self.is_refresh_due() {
            self.database.refresh()?;
        }
        Ok(self.database.snapshot())
    }

    fn is_refresh_due(&self) -> bool {
        let mut refreshed = self.refreshed.lock();
        let is_due = self.remote.is_none() || refreshed.elapsed() >= REFRESH_INTERVAL;
        if is_due {
            *refreshed = Instant::now();
        }
        is_due
    }

    /// What to say of every answer when it lacks what was committed last.
    pub(crate) fn behind(&self) -> Option<String> {
        self.database.is_behind().then(|| {
            let version = self.database.snapshot().version();
            format!(
                "the log is damaged behind version {version}: what was committed later is missing; \
                 system.damage says which file, REPAIR DATABASE goes on without it"
            )
        })
    }

    /// Where scans that begin now may keep decoded blocks.
    pub(super) fn blocks(&self) -> Option<Arc<BlockCache>> {
        (self.block_cache.usage().limit_bytes > 0).then(|| self.block_cache.clone())
    }

    pub(crate) fn default_verify(&self) -> Verify {
        default_verify(self.remote.is_some())
    }

    /// How long older versions are kept.
    pub(crate) fn default_retention(&self) -> Duration {
        if self.is_in_memory { Duration::ZERO } else { RETENTION }
    }

    /// Says when blocks are held against their checksums: decoded blocks are used where that is once.
    pub(crate) fn set_verify(&self, verify: Verify) {
        self.database.set_verify(verify);
        if verify != Verify::Once {
            self.block_cache.retain(|_| false);
        }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<Transaction> {
        self.database.begin().map_err(|error| self.explain_refusal(error))
    }

    /// Begins a transaction that deletes or replaces rows of a table.
    pub(crate) fn begin_rewriting(&self, table: u64) -> Result<Transaction> {
        self.database.begin_rewriting(table).map_err(|error| self.explain_refusal(error))
    }

    fn explain_refusal(&self, error: StorageError) -> Error {
        match error {
            StorageError::ReadOnly if self.remote.is_some() => {
                let message =
                    format!("database '{}' can only be read, as all behind a URL", self.path.display());
                Error::new(ErrorKind::Unsupported, message)
                    .with_hint("copy its directory to this machine and open that")
            }
            StorageError::ReadOnly => {
                let message = format!("database '{}' was opened for reading only", self.path.display());
                Error::new(ErrorKind::Unsupported, message).with_hint("open it without --readonly")
            }
            other => other.into(),
        }
    }

    /// Begins the upkeep of a database that may be written to; merges book their memory in `pool`, and `threads` run
    /// queries.
    pub(crate) fn begin_upkeep(&self, pool: Arc<dyn MemoryPool>, threads: usize) {
        if !self.is_read_only {
            let (database, block_cache) = (self.database.clone(), self.block_cache.clone());
            self.upkeep.get_or_init(|| Upkeep::begin(database, block_cache, pool, threads));
        }
    }

    /// Says that rows or tables came or went, so that upkeep may be due.
    pub(crate) fn wake_upkeep(&self) {
        self.upkeep.get().into_iter().for_each(Upkeep::wake);
    }

    /// Ends the upkeep, which has the database open, too.
    pub(crate) fn end_upkeep(&self) {
        let end = if self.is_in_memory { Upkeep::abandon } else { Upkeep::close };
        self.upkeep.get().into_iter().for_each(end);
    }

    /// Changes the catalogue: all of what `change` does or, when that fails, nothing.
    pub(crate) fn alter<T>(&self, change: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
        let _altering = self.altering.lock();
        let mut transaction = self.begin()?;
        let outcome = change(&mut transaction)?;
        transaction.commit()?;
        self.wake_upkeep();
        Ok(outcome)
    }
}

/// How the rows of a table are written.
pub(crate) fn write_options(table: &Table) -> WriteOptions {
    let definition = &table.definition;
    let one = |field: &Field| {
        let values = initial(field)?.ok()?.to_array().ok()?;
        let schema = Schema::new(vec![ArrowField::new("initial", values.data_type().clone(), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![values]).ok()?;
        let stored = storable(&batch, std::slice::from_ref(field)).ok()?;
        let mut one = Column::empty(&field.data_type);
        one.append(&column(stored[0].as_ref()).ok()?).ok()?;
        Some((field.id, one))
    };
    let initial = definition.fields.iter().filter_map(one).collect();
    WriteOptions {
        codecs: codecs(definition),
        is_sorted: !definition.keys.is_empty(),
        initial,
        ..WriteOptions::default()
    }
}

/// The value of a column in parts that are older, if it is not NULL.
pub(super) fn initial(field: &Field) -> Option<DataFusionResult<ScalarValue>> {
    let text = field.properties.get(INITIAL)?.clone();
    Some(ScalarValue::try_from_string(text, &arrow_type(&field.data_type)))
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let message = format!("{error}{cause}");
        match error {
            StorageError::Damaged(damage) => explain_damage(&damage),
            StorageError::Io { source, .. } if is_refused_memory(&source) => {
                let refusal = source.into_inner().and_then(|inner| inner.downcast::<DataFusionError>().ok());
                refusal.map_or_else(|| Self::new(ErrorKind::Resources, message), |refusal| (*refusal).into())
            }
            StorageError::Io { .. } => Self::new(ErrorKind::Io, message),
            StorageError::Locked | StorageError::Stopped { .. } => Self::new(ErrorKind::Io, message),
            StorageError::OutcomeUnknown(_) => Self::new(ErrorKind::Io, message),
            StorageError::Newer { .. } => Self::new(ErrorKind::Unsupported, message).with_hint(NEWER_HINT),
            StorageError::ReadOnly | StorageError::NotADatabase => Self::new(ErrorKind::Unsupported, message),
            StorageError::LogDamaged { .. } => {
                Self::new(ErrorKind::Data, message).with_hint("REPAIR DATABASE makes it writable again")
            }
            StorageError::Conflict { .. } => {
                Self::new(ErrorKind::Conflict, message).with_hint("run the statement again")
            }
            StorageError::NoVersion { .. } => Self::new(ErrorKind::NotFound, message),
            StorageError::Cancelled => Self::new(ErrorKind::Cancelled, message),
            StorageError::Replaced { .. } => Self::new(ErrorKind::NotFound, message).with_hint(REPLACED_HINT),
            StorageError::Encode { .. } | StorageError::Compress { .. } => {
                Self::new(ErrorKind::Data, message)
            }
            _ => Self::new(ErrorKind::Invalid, message),
        }
    }
}

/// Whether the memory pool has refused a file in memory its bytes.
fn is_refused_memory(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<DataFusionError>())
}

fn explain_damage(damage: &Damage) -> Error {
    Error::new(ErrorKind::Data, damage.to_string())
        .with_hint("CHECK TABLE lists what is damaged, REPAIR TABLE keeps the rows that are whole")
}
