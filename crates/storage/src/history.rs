//! Older versions: which of them are kept, and how they are found.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::database::{Database, micros};
use crate::error::{Error, Result};
use crate::log;
use crate::opening::load;
use crate::snapshot::Snapshot;
use crate::state::{Action, Deletions, Part, State};

/// A commit in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The version that it made.
    pub version: u64,
    /// The time of the commit, in microseconds since 1970.
    pub time: i64,
    /// What it changed; `None` if the version before it cannot be read.
    pub changes: Option<Changes>,
}

/// What a commit changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Schemas and names of the tables and views that it changed; both names of a renamed one.
    pub relations: BTreeSet<(String, String)>,
    /// Schemas that it created, dropped or gave properties.
    pub schemas: BTreeSet<String>,
    /// Properties of the database that it set.
    pub properties: BTreeSet<String>,
    /// Rows that it added, rewritten ones included.
    pub rows_added: u64,
    /// Rows that it removed, rewritten ones included.
    pub rows_removed: u64,
    /// Parts that it added.
    pub parts_added: u64,
    /// Parts that it removed.
    pub parts_removed: u64,
}

impl Changes {
    /// Counts what an action changes; `before` is the state it is applied to.
    fn look(&mut self, before: &State, action: &Action) {
        match action {
            Action::CreateTable { definition, .. } | Action::AlterTable { definition, .. } => {
                self.touch(&definition.schema, &definition.name);
            }
            Action::SetView { view, definition } => {
                let views = [before.view(*view), definition.as_ref()];
                views.into_iter().flatten().for_each(|view| self.touch(&view.schema, &view.name));
            }
            Action::SetSchema { schema, .. } => _ = self.schemas.insert(schema.clone()),
            Action::SetProperty { key, .. } => _ = self.properties.insert(key.clone()),
            _ => {}
        }
        let (Action::AlterTable { table, .. }
        | Action::DropTable { table }
        | Action::AddPart { table, .. }
        | Action::RemovePart { table, .. }
        | Action::SetDeletions { table, .. }) = action
        else {
            return;
        };
        let Some(table) = before.table(*table) else { return };
        self.touch(&table.definition.schema, &table.definition.name);
        match action {
            Action::AddPart { part, .. } => {
                self.parts_added += 1;
                self.rows_added += part.live_row_count();
            }
            Action::RemovePart { part, .. } => {
                table.part(*part).into_iter().for_each(|part| self.remove(part));
            }
            Action::DropTable { .. } => table.parts.values().for_each(|part| self.remove(part)),
            Action::SetDeletions { part, deletions, .. } => {
                let deleted = |of: Option<Deletions>| of.map_or(0, |deletions| deletions.row_count);
                let (was, is) =
                    (deleted(table.part(*part).and_then(|part| part.deletions)), deleted(*deletions));
                self.rows_removed += is.saturating_sub(was);
                self.rows_added += was.saturating_sub(is);
            }
            _ => {}
        }
    }

    fn touch(&mut self, schema: &str, name: &str) {
        self.relations.insert((schema.to_owned(), name.to_owned()));
    }

    fn remove(&mut self, part: &Part) {
        self.parts_removed += 1;
        self.rows_removed += part.live_row_count();
    }
}

impl Database {
    /// An older version.
    ///
    /// # Errors
    /// `NoVersion` when it is out of the retention or does not exist yet.
    pub fn as_of_version(&self, version: u64) -> Result<Snapshot> {
        let (io, newest) = (&*self.store.io, self.current());
        if version == newest.version() {
            return Ok(self.pin(newest));
        }
        let is_retained = version < newest.version() && {
            let behind = log::first_time(io, version + 1..newest.version())?;
            behind.unwrap_or(Some(newest.time())).is_some_and(|time| self.is_retained(&newest, time))
        };
        if is_retained {
            let (loaded, _) = load(io, version, false)?;
            if loaded.state.version() == version {
                return Ok(self.pin(Arc::new(loaded.state)));
            }
        }
        let oldest = self.oldest_needed(&newest)?;
        Err(Error::NoVersion { version, oldest, newest: newest.version() })
    }

    /// The version that was the newest at a time, in microseconds since 1970.
    ///
    /// # Errors
    /// `NoVersion` when it is out of the retention, `Damaged` when the version of that time may be a damaged one.
    pub fn as_of_time(&self, time: i64) -> Result<Snapshot> {
        let (io, newest) = (&*self.store.io, self.current());
        if newest.time() <= time {
            return self.as_of_version(newest.version());
        }
        let version = log::last_version(io, newest.version(), |other| other <= time)?;
        // If the next version is damaged, it may be the one of that time.
        log::time(io, version + 1)?;
        self.as_of_version(version)
    }

    /// The commits of the versions that can be read, oldest first.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn commits(&self) -> Result<Vec<Commit>> {
        let (io, newest) = (&*self.store.io, self.current());
        let read = |version| {
            let loaded = if_whole(load(io, version, false))?.map(|(loaded, _)| loaded.state);
            Ok::<_, Error>(loaded.filter(|state| state.version() == version))
        };
        let oldest = self.oldest_needed(&newest)?.max(1);
        let mut state = if oldest == 1 { Some(State::default()) } else { read(oldest - 1)? };
        let mut commits = Vec::new();
        for version in oldest..=newest.version() {
            let mut changes = Changes::default();
            let mut look = |before: &State, action: &Action| changes.look(before, action);
            let is_known = match &mut state {
                Some(state) => if_whole(log::advance_and_look(io, state, &mut look))?.is_some(),
                None => false,
            };
            if !is_known {
                // After an unreadable commit, versions are readable again from the next checkpoint on.
                let is_base = version == oldest || if_whole(log::time_of_checkpoint(io, version))?.is_some();
                state = if is_base { read(version)? } else { None };
            }
            if let Some(state) = &state {
                let changes = is_known.then_some(changes);
                commits.push(Commit { version, time: state.time(), changes });
            }
        }
        Ok(commits)
    }

    /// The oldest version that was still the newest at some time within the retention.
    pub(crate) fn oldest_needed(&self, newest: &State) -> Result<u64> {
        log::last_version(&*self.store.io, newest.version(), |time| !self.is_retained(newest, time))
    }

    /// Whether files that were replaced at a time are still within the retention.
    pub(crate) fn is_retained(&self, newest: &State, time: i64) -> bool {
        let limit = micros(self.store.io.now().saturating_sub(newest.retention()));
        // A time after the newest version's comes from a wrong clock.
        time.min(newest.time()) >= limit
    }
}

/// `None` instead of the error that it is damaged or gone.
fn if_whole<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(Error::Damaged(_)) => Ok(None),
        Err(error) if log::is_gone(&error) => Ok(None),
        outcome => outcome.map(Some),
    }
}
