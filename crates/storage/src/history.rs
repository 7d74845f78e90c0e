//! Versions before the newest: which of them are kept, and how they are found.

use std::sync::Arc;

use crate::database::{Database, micros};
use crate::error::{Error, Result};
use crate::log;
use crate::opening::load;
use crate::snapshot::Snapshot;
use crate::state::State;

impl Database {
    /// An older version.
    ///
    /// # Errors
    /// `NoVersion` when it is out of the retention, or not there yet.
    pub fn as_of_version(&self, version: u64) -> Result<Snapshot> {
        let (io, newest) = (&*self.store.io, self.current());
        let is_retained = match version.cmp(&newest.version()) {
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => {
                log::time(io, version + 1)?.is_some_and(|time| self.is_retained(&newest, time))
            }
        };
        if is_retained {
            let (loaded, _) = load(io, version, false)?;
            if loaded.state.version() == version {
                return Ok(self.give(Arc::new(loaded.state)));
            }
        }
        let oldest = self.oldest_needed(&newest)?;
        Err(Error::NoVersion { version, oldest, newest: newest.version() })
    }

    /// The version that was the newest at a time, in microseconds since 1970.
    ///
    /// # Errors
    /// `NoVersion` when it is out of the retention.
    pub fn as_of_time(&self, time: i64) -> Result<Snapshot> {
        let newest = self.current();
        let version = log::last_version(&*self.store.io, newest.version(), |other| other <= time)?;
        self.as_of_version(version)
    }

    /// The versions that can be read, oldest first, and when they were committed, in microseconds since 1970.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn versions(&self) -> Result<Vec<(u64, i64)>> {
        let newest = self.current();
        let versions = self.oldest_needed(&newest)?.max(1)..=newest.version();
        let time = |version| Ok(log::time(&*self.store.io, version)?.map(|time| (version, time)));
        versions.map(time).filter_map(Result::transpose).collect()
    }

    /// The oldest version that was still the newest at some time within the retention.
    pub(crate) fn oldest_needed(&self, newest: &State) -> Result<u64> {
        log::last_version(&*self.store.io, newest.version(), |time| !self.is_retained(newest, time))
    }

    /// Whether what was replaced at a time is kept.
    pub(crate) fn is_retained(&self, newest: &State, time: i64) -> bool {
        let limit = micros(self.store.io.now().saturating_sub(newest.retention()));
        // A time after that of the newest version is from a clock that was wrong.
        time.min(newest.time()) >= limit
    }
}
