//! The log: which versions there are, how one is read, and how the next is made durable.
//!
//! `docs/format/log.md` has the bytes, `docs/format/database.md` the order of steps and what damage leads to.

mod record;

use std::collections::BTreeSet;
use std::io::ErrorKind;

use crate::error::{Damage, Error, Result};
use crate::header::{self, FileKind, Header, Identity};
use crate::io::{Io, is_shortage};
use crate::state::State;
use crate::store::Store;
pub(crate) use record::Record;

pub(crate) const DIRECTORY: &str = "log";
/// Names of unfinished files end so.
const UNFINISHED: &str = ".tmp";

/// Names of files that a repair has set aside end so.
pub(crate) const SET_ASIDE: &str = ".damaged";

/// The files of the log by their versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(crate) commits: BTreeSet<u64>,
    pub(crate) checkpoints: BTreeSet<u64>,
    /// Names of what was begun and not finished.
    pub(crate) unfinished: Vec<String>,
    /// Whether there are files that a repair has set aside.
    pub(crate) has_set_aside: bool,
}

impl Files {
    pub(crate) fn list(io: &dyn Io) -> Result<Self> {
        let mut files = Self::default();
        let entries = match io.list(DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
            entries => entries.map_err(Error::io("list", DIRECTORY))?,
        };
        for entry in entries {
            let version = |suffix: &str| {
                let digits = entry.name.strip_suffix(suffix)?;
                let version = digits.parse::<u64>().ok().filter(|_| digits.len() == 20)?;
                // What comes after it must be a number, too.
                (version < u64::MAX).then_some(version)
            };
            if let Some(commit) = version(".commit") {
                files.commits.insert(commit);
            } else if let Some(checkpoint) = version(".checkpoint") {
                files.checkpoints.insert(checkpoint);
            } else if entry.name.ends_with(UNFINISHED) {
                files.unfinished.push(format!("{DIRECTORY}/{}", entry.name));
            }
            files.has_set_aside |= entry.name.ends_with(SET_ASIDE);
        }
        Ok(files)
    }

    /// The newest version that has a file.
    pub(crate) fn newest(&self) -> u64 {
        let newest = |versions: &BTreeSet<u64>| versions.last().copied().unwrap_or(0);
        newest(&self.commits).max(newest(&self.checkpoints))
    }
}

pub(crate) fn path(kind: FileKind, version: u64) -> String {
    let suffix = if kind == FileKind::Commit { "commit" } else { "checkpoint" };
    format!("{DIRECTORY}/{version:020}.{suffix}")
}

/// A version that was read, and what could not be.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    /// The version of the checkpoint that it began with, 0 for none.
    pub(crate) checkpoint: u64,
    pub(crate) damage: Vec<Damage>,
    /// Whether nothing can be behind the version that was read.
    pub(crate) is_whole: bool,
}

/// Reads a version, or else the newest below it that can be read.
pub(crate) fn load(io: &dyn Io, files: &Files, version: u64) -> Result<Loaded> {
    let mut damage = Vec::new();
    let mut base = State::default();
    for checkpoint in files.checkpoints.range(..=version).rev() {
        match read_checkpoint(io, files, *checkpoint) {
            Ok(state) => {
                base = state;
                break;
            }
            Err(Error::Damaged(found)) => damage.push(*found),
            Err(other) => return Err(other),
        }
    }
    let (checkpoint, mut state) = (base.version, base);
    let mut is_whole = true;
    for commit in files.commits.range(state.version + 1..).copied().take_while(|commit| *commit <= version) {
        if commit != state.version + 1 {
            let path = path(FileKind::Commit, state.version + 1);
            damage.push(Damage { path, reason: "it is missing".to_owned(), ..Damage::default() });
            is_whole = false;
            break;
        }
        match read(io, FileKind::Commit, commit, Some(&state)) {
            Ok(next) => state = next,
            Err(Error::Damaged(found)) => {
                damage.push(*found);
                is_whole = false;
                break;
            }
            Err(other) => return Err(other),
        }
    }
    // A checkpoint that cannot be read says of a version that there was one.
    is_whole &= files.newest().min(version) <= state.version;
    Ok(Loaded { state, checkpoint, damage, is_whole })
}

/// The bytes of a whole file. That the system cannot read it is damage; that it is gone, or that something runs
/// short, is not.
pub(crate) fn read_file(io: &dyn Io, path: &str) -> Result<Vec<u8>> {
    let limit = (header::HEADER_BYTES + header::PAYLOAD_BYTES_MAX) as u64;
    let damaged = |reason: String| Error::from(Damage { path: path.to_owned(), reason, ..Damage::default() });
    let failed = |error: std::io::Error| {
        if error.kind() == ErrorKind::NotFound || is_shortage(&error) {
            Error::io("read", path)(error)
        } else {
            damaged(format!("it cannot be read: {error}"))
        }
    };
    let input = io.open(path).map_err(failed)?;
    if input.byte_count() > limit {
        return Err(damaged(format!("it has {} bytes, at most {limit} are possible", input.byte_count())));
    }
    let byte_count = usize::try_from(input.byte_count()).expect("a count below the limit");
    let mut bytes = vec![0; byte_count];
    input.read_exact_at(0, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn damaged(kind: FileKind, version: u64, reason: String) -> Error {
    Damage { path: path(kind, version), reason, ..Damage::default() }.into()
}

/// A file of the log, as far as it can be judged alone.
fn read_record(io: &dyn Io, kind: FileKind, version: u64) -> Result<(Header, Record)> {
    let path = path(kind, version);
    let bytes = read_file(io, &path)?;
    let (header, payload) = header::open(kind, &bytes, &path)?;
    header.check_identity(Identity { table: 0, number: version, ..header.identity }, &path)?;
    let record = Record::read(payload).map_err(|malformed| damaged(kind, version, malformed.to_string()))?;
    Ok((header, record))
}

/// The version of a file of the log: a checkpoint, or a commit on top of a state.
fn read(io: &dyn Io, kind: FileKind, version: u64, before: Option<&State>) -> Result<State> {
    let (header, record) = read_record(io, kind, version)?;
    if let Some(before) = before {
        let is_first = before.version == 0;
        if record.previous != before.hash || !is_first && header.identity.database != before.database {
            let reason = "it does not follow the commit before it".to_owned();
            return Err(damaged(kind, version, reason));
        }
    }
    let mut state = before.cloned().unwrap_or_default();
    for action in &record.actions {
        state.apply(action).map_err(|reason| damaged(kind, version, reason))?;
    }
    state.database = header.identity.database;
    state.version = version;
    state.time = record.time;
    state.hash = if kind == FileKind::Commit { header.hash } else { record.previous };
    state.next_number = record.next_number;
    Ok(state)
}

/// The version of a checkpoint, which must be that of the commit of this number, if there is one: another
/// database's, or another copy's, may lie beside our commits.
fn read_checkpoint(io: &dyn Io, files: &Files, version: u64) -> Result<State> {
    let state = read(io, FileKind::Checkpoint, version, None)?;
    if files.commits.contains(&version)
        && let Ok((commit, _)) = read_record(io, FileKind::Commit, version)
        && (commit.hash, commit.identity.database) != (state.hash, state.database)
    {
        let reason = "it is not that of the commit of its version".to_owned();
        return Err(damaged(FileKind::Checkpoint, version, reason));
    }
    Ok(state)
}

/// The version after this one.
pub(crate) fn next(io: &dyn Io, state: &State) -> Result<State> {
    read(io, FileKind::Commit, state.version + 1, Some(state))
}

/// When a version was committed; version 0 was there before all times.
pub(crate) fn time(io: &dyn Io, version: u64) -> Result<i64> {
    if version == 0 {
        return Ok(i64::MIN);
    }
    match read_record(io, FileKind::Commit, version) {
        // Removed; a commit that cannot be read is another matter.
        Err(Error::Io { .. }) => time_of_checkpoint(io, version),
        commit => Ok(commit?.1.time),
    }
}

/// The same from a checkpoint, which is whole if there is an answer.
pub(crate) fn time_of_checkpoint(io: &dyn Io, version: u64) -> Result<i64> {
    Ok(read_record(io, FileKind::Checkpoint, version)?.1.time)
}

/// What is left after a step of [`write`] failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing: the file is not there.
    Before(Error),
    /// Perhaps the file, perhaps not. Nothing more may be written.
    Unknown(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Before(error) | Failed::Unknown(error) => error,
        }
    }
}

/// Makes a record durable under its name and gives the hash of its header.
pub(crate) fn write(
    store: &Store,
    kind: FileKind,
    database: header::DatabaseId,
    version: u64,
    record: &Record,
) -> std::result::Result<u64, Failed> {
    let io = &*store.io;
    let (path, unfinished) = (path(kind, version), format!("{DIRECTORY}/{version:020}{UNFINISHED}"));
    let payload = record.write();
    if payload.len() > header::PAYLOAD_BYTES_MAX {
        let message = format!("a commit of {} bytes is too large; make it several", payload.len());
        return Err(Failed::Before(Error::Invalid(message)));
    }
    // What cannot be read again would end the log.
    if let Err(malformed) = Record::read(&payload) {
        let message = format!("a commit of these changes could not be read again: {malformed}");
        return Err(Failed::Before(Error::Invalid(message)));
    }
    let identity = Identity { database, table: 0, number: version };
    let (bytes, hash) = header::file(kind, identity, &payload);
    let before = |doing| {
        let unfinished = &unfinished;
        move |source| {
            // Whether or not that works: the next writer of this name removes it.
            io.remove(unfinished).unwrap_or_default();
            Failed::Before(Error::io(doing, unfinished)(source))
        }
    };
    match io.remove(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(before("remove")(error)),
        _ => {}
    }
    let mut output = io.create(&unfinished).map_err(before("create"))?;
    output.write_all(&bytes).map_err(before("write"))?;
    store.sync(&mut *output, &unfinished).map_err(Failed::Before)?;
    drop(output);
    io.publish(&unfinished, &path).map_err(|source| Failed::Unknown(Error::io("publish", &path)(source)))?;
    io.sync_directory(DIRECTORY).map_err(|source| Failed::Unknown(Error::io("sync", DIRECTORY)(source)))?;
    Ok(hash)
}
