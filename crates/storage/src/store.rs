//! The files of an open database, and whether writing has stopped.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::Mutex;

use keirin_kernels::Level;
use keirin_race::Races;

use crate::buffer::Pool;
use crate::database::{Options, locked};
use crate::error::{Error, Result};
use crate::io::{Io, Output};
use crate::part::{Footers, OpenFiles, TablePlans, Verify};

pub(crate) const TABLES: &str = "tables";

/// What all readers and writers of one database's files share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) io: Arc<dyn Io>,
    pub(crate) level: Level,
    /// The races that find the fastest decoders.
    pub(crate) races: Arc<Races>,
    verify: Mutex<Verify>,
    pub(crate) footers: Footers,
    pub(crate) open_files: OpenFiles,
    pub(crate) plans: TablePlans,
    /// The buffers that blocks are read into.
    pub(crate) pool: Arc<Pool>,
    /// The path and the reason that stopped writing: a failed sync, or a file of another writer.
    stopped: Mutex<Option<(String, &'static str)>>,
}

/// A reason why writing stops.
pub(crate) const UNSYNCED: &str = "could not be synced";
const ANOTHER_WRITES: &str = "shows that another process writes";

impl Store {
    pub(crate) fn new(io: Arc<dyn Io>, options: Options) -> Self {
        let (races, footers, stopped) = (Arc::default(), Footers::default(), Mutex::default());
        Self {
            io,
            level: Level::best(),
            races,
            verify: Mutex::new(options.verify),
            footers,
            open_files: OpenFiles::new(options.open_files_max),
            plans: TablePlans::default(),
            pool: Arc::default(),
            stopped,
        }
    }

    /// When checksums are verified, for parts that are opened now.
    pub(crate) fn verify(&self) -> Verify {
        *locked(&self.verify)
    }

    pub(crate) fn set_verify(&self, verify: Verify) {
        *locked(&self.verify) = verify;
    }

    /// Fails when writing has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        let stopped = locked(&self.stopped);
        stopped.as_ref().map_or(Ok(()), |(path, reason)| Err(Error::Stopped { path: path.clone(), reason }))
    }

    /// Stops all writing, because this file or directory could not be synced.
    pub(crate) fn stop(&self, path: &str) {
        locked(&self.stopped).get_or_insert_with(|| (path.to_owned(), UNSYNCED));
    }

    /// Stops all writing, because this file shows that another process writes, too.
    pub(crate) fn stop_beside_another(&self, path: &str) -> Error {
        locked(&self.stopped).get_or_insert_with(|| (path.to_owned(), ANOTHER_WRITES));
        Error::Locked
    }

    /// Creates a file under a name that was free when this process started. If the name is taken, another process
    /// writes, too.
    pub(crate) fn create(&self, path: &str) -> Result<Box<dyn Output>> {
        self.check()?;
        self.io.create(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => self.stop_beside_another(path),
            _ => Error::io("create", path)(error),
        })
    }

    pub(crate) fn sync(&self, output: &mut dyn Output, path: &str) -> Result<()> {
        output.sync().inspect_err(|_| self.stop(path)).map_err(Error::io("sync", path))
    }

    pub(crate) fn sync_directory(&self, path: &str) -> Result<()> {
        self.io.sync_directory(path).inspect_err(|_| self.stop(path)).map_err(Error::io("sync", path))
    }
}

/// Creates a directory if it does not exist. An empty one is created anew: its name may be in the system's cache
/// only, and a sync that failed once reports success the next time.
pub(crate) fn make_directory(io: &dyn Io, path: &str) -> Result<()> {
    match io.create_directory(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if io.remove_directory(path).is_err() {
                return Ok(());
            }
            io.create_directory(path)
        }
        outcome => outcome,
    }
    .map_err(Error::io("create", path))
}

/// The number of a table from the name of its directory.
pub(crate) fn table_of(name: &str) -> Option<u64> {
    /// No counter gets this far, so such names are not ours.
    const NUMBERS_END: u64 = 1 << 63;
    name.parse::<u64>().ok().filter(|number| *number < NUMBERS_END && number.to_string() == name)
}

/// The number of a part or deletion vector from the name of its file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let (digits, "kpart" | "kdel") = name.split_once('.')? else { return None };
    table_of(digits)
}

pub(crate) fn table_path(table: u64) -> String {
    format!("{TABLES}/{table}")
}

pub(crate) fn part_path(table: u64, part: u64) -> String {
    format!("{TABLES}/{table}/{part}.kpart")
}

pub(crate) fn deletions_path(table: u64, number: u64) -> String {
    format!("{TABLES}/{table}/{number}.kdel")
}
