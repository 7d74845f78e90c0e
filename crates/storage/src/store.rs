//! The files of an open database, and whether writing still makes sense.

use std::sync::Arc;
use std::sync::Mutex;

use keirin_kernels::Level;
use keirin_race::Races;

use crate::error::{Error, Result};
use crate::io::{Io, Output};
use crate::part::{Footers, Verify};

pub(crate) const TABLES: &str = "tables";

/// What everything that reads or writes files of one database has in common.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) io: Arc<dyn Io>,
    pub(crate) level: Level,
    /// Which decoders are fastest.
    pub(crate) races: Races,
    pub(crate) verify: Verify,
    pub(crate) footers: Footers,
    /// What could not be synced: from then on nothing is written.
    stopped: Mutex<Option<String>>,
}

impl Store {
    pub(crate) fn new(io: Arc<dyn Io>, verify: Verify) -> Self {
        let (races, footers, stopped) = (Races::default(), Footers::default(), Mutex::default());
        Self { io, level: Level::best(), races, verify, footers, stopped }
    }

    /// Fails when writing has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        let stopped = self.stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        stopped.as_ref().map_or(Ok(()), |path| Err(Error::Stopped { path: path.clone() }))
    }

    /// Lets nothing be written any more.
    pub(crate) fn stop(&self, path: &str) {
        let mut stopped = self.stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        stopped.get_or_insert_with(|| path.to_owned());
    }

    pub(crate) fn sync(&self, output: &mut dyn Output, path: &str) -> Result<()> {
        output.sync().inspect_err(|_| self.stop(path)).map_err(Error::io("sync", path))
    }

    pub(crate) fn sync_directory(&self, path: &str) -> Result<()> {
        self.io.sync_directory(path).inspect_err(|_| self.stop(path)).map_err(Error::io("sync", path))
    }
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
