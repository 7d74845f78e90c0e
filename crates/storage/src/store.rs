//! The files of an open database, and whether writing still makes sense.

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

/// What everything that reads or writes files of one database has in common.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) io: Arc<dyn Io>,
    pub(crate) level: Level,
    /// Which decoders are fastest.
    pub(crate) races: Races,
    verify: Mutex<Verify>,
    pub(crate) footers: Footers,
    pub(crate) open_files: OpenFiles,
    pub(crate) plans: TablePlans,
    /// What blocks are read to.
    pub(crate) pool: Arc<Pool>,
    /// What could not be synced, or what another process wrote: from then on nothing is written.
    stopped: Mutex<Option<(String, &'static str)>>,
}

/// Why writing stops.
pub(crate) const UNSYNCED: &str = "could not be synced";
const ANOTHER_WRITES: &str = "shows that another process writes";

impl Store {
    pub(crate) fn new(io: Arc<dyn Io>, options: Options) -> Self {
        let (races, footers, stopped) = (Races::default(), Footers::default(), Mutex::default());
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

    /// When blocks of parts that are opened now are held against their checksums.
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

    /// Lets nothing be written any more, for this could not be synced.
    pub(crate) fn stop(&self, path: &str) {
        locked(&self.stopped).get_or_insert_with(|| (path.to_owned(), UNSYNCED));
    }

    /// Lets nothing be written any more, for this shows that another process writes, too.
    pub(crate) fn stop_beside_another(&self, path: &str) -> Error {
        locked(&self.stopped).get_or_insert_with(|| (path.to_owned(), ANOTHER_WRITES));
        Error::Locked
    }

    /// Creates a file of which the name was free when this process looked. If it is taken now, another process writes
    /// that no lock keeps out.
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

/// Makes a directory, unless it is there. One in which there is nothing is made anew: its name may be in the cache
/// alone, and a sync that failed once reports success the next time.
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

/// The number of a table by the name of its directory.
pub(crate) fn table_of(name: &str) -> Option<u64> {
    /// No counter gets there, so whoever gave that name was not us.
    const NUMBERS_END: u64 = 1 << 63;
    name.parse::<u64>().ok().filter(|number| *number < NUMBERS_END && number.to_string() == name)
}

/// The number of a part or deletion vector by its name.
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
