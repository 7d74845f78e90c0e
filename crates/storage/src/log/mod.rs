//! The log: which versions there are, how one is read, and how the next is made durable.
//!
//! `docs/format/log.md` has the bytes, `docs/format/database.md` the order of steps and what damage leads to.

mod newest;
mod record;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;

use crate::database::micros;
use crate::error::{Damage, Error, Result};
use crate::header::{self, DatabaseId, FileKind, Header, Identity};
use crate::io::{Input, Io, is_refusal, is_shortage};
use crate::state::{Action, State};
use crate::store::Store;
use record::KINDS_MAX;
pub(crate) use record::Record;

pub(crate) const DIRECTORY: &str = "log";
/// Names of unfinished files end so.
const UNFINISHED: &str = ".tmp";
/// No counter gets there, so whoever gave a file such a version was not us.
const VERSIONS_END: u64 = 1 << 63;

/// No commit or checkpoint has more bytes: what it says takes several times as much memory. A part takes 60 to 100 of
/// them.
const RECORD_BYTES_MAX: u64 = 256 << 20;
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
        if !io.can_list() {
            return newest::find(io);
        }
        let mut files = Self::default();
        let entries = match io.list(DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
            entries => entries.map_err(Error::io("list", DIRECTORY))?,
        };
        for name in entries {
            let version = |suffix: &str| {
                let digits = name.strip_suffix(suffix)?;
                let version = digits.parse::<u64>().ok().filter(|_| digits.len() == 20)?;
                (version < VERSIONS_END).then_some(version)
            };
            // Version 0 is there before the first commit.
            if let Some(commit) = version(".commit").filter(|commit| *commit > 0) {
                files.commits.insert(commit);
            } else if let Some(checkpoint) = version(".checkpoint") {
                files.checkpoints.insert(checkpoint);
            } else if name.ends_with(UNFINISHED) {
                files.unfinished.push(format!("{DIRECTORY}/{name}"));
            }
            files.has_set_aside |= name.ends_with(SET_ASIDE);
        }
        Ok(files)
    }

    /// Whether there is nothing, not even what every log begins with.
    pub(crate) fn is_lost(&self) -> bool {
        self.commits.is_empty() && self.checkpoints.is_empty()
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
    let mut state = State::default();
    for checkpoint in files.checkpoints.range(..=version).rev() {
        match read_checkpoint(io, files, *checkpoint) {
            Ok(read) => {
                state = read;
                break;
            }
            Err(Error::Damaged(found)) => damage.push(*found),
            Err(other) => return Err(other),
        }
    }
    let checkpoint = state.version;
    if let Some(found) =
        damage.pop_if(|_| !io.can_list() && files.checkpoints.range(..=checkpoint).next().is_none())
    {
        // There is no other that is known of.
        return Err(found.into());
    }
    let last = files.commits.range(..=version).next_back().copied().unwrap_or(0);
    io.fetch(&mut (checkpoint + 1..=last).map(|version| path(FileKind::Commit, version)));
    while state.version < last {
        let (before, commit) = (state.version, state.version + 1);
        let found = match advance(io, &mut state) {
            Ok(()) => continue,
            Err(Error::Damaged(found)) => *found,
            // Not even by its name, which a listing may lack that was made while names came.
            Err(error) if is_gone(&error) && !files.commits.contains(&commit) => {
                let path = path(FileKind::Commit, commit);
                Damage { path, reason: "it is missing".to_owned(), ..Damage::default() }
            }
            Err(other) => return Err(other),
        };
        // Some of its actions may have been carried out.
        let mut loaded = load(io, files, before)?;
        loaded.damage.push(found);
        loaded.is_whole = false;
        return Ok(loaded);
    }
    // A checkpoint that cannot be read says of a version that there was one.
    let is_whole = files.newest().min(version) <= state.version;
    Ok(Loaded { state, checkpoint, damage, is_whole })
}

/// Whether there is no such file.
pub(crate) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// Makes durable what a reader is about to rely on: the writer may have given a commit its name and not synced
/// that yet. Where that cannot be asked for, there is no writer or no help.
pub(crate) fn settle(io: &dyn Io) -> Result<()> {
    match io.sync_directory(DIRECTORY) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound
                    | ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::Unsupported
                    | ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        outcome => outcome.map_err(Error::io("sync", DIRECTORY)),
    }
}

/// The bytes of a whole file. That the system cannot read it is damage; that it is gone, or that something runs
/// short, is not.
pub(crate) fn read_file(io: &dyn Io, path: &str) -> Result<Vec<u8>> {
    read_input(path, RECORD_BYTES_MAX, || io.open(path))
}

/// The same of a file of at most so many bytes that is opened in some way.
pub(crate) fn read_input(
    path: &str,
    limit: u64,
    open: impl FnOnce() -> std::io::Result<Box<dyn Input>>,
) -> Result<Vec<u8>> {
    let damaged = |reason: String| Error::from(Damage { path: path.to_owned(), reason, ..Damage::default() });
    let failed = |error: std::io::Error| {
        if error.kind() == ErrorKind::NotFound || is_shortage(&error) {
            Error::io("read", path)(error)
        } else {
            damaged(format!("it cannot be read: {error}"))
        }
    };
    let input = open().map_err(failed)?;
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
    let newer = |kind| {
        let (found, known) = (u32::from(kind), u32::from(KINDS_MAX));
        Error::Newer { path, what: "actions of kind", found, known }
    };
    Ok((header, record.map_err(newer)?))
}

/// Makes the state the version of a file of the log: of a checkpoint the empty state, of a commit the one
/// before. When that fails, some of the actions may have been carried out. `look` gets each action and the state
/// that it meets.
fn apply(
    state: &mut State,
    kind: FileKind,
    version: u64,
    (header, record): (&Header, &Record),
    mut look: impl FnMut(&State, &Action),
) -> Result<()> {
    for action in &record.actions {
        look(state, action);
        state.apply(action).map_err(|reason| damaged(kind, version, reason))?;
    }
    state.database = header.identity.database;
    state.version = version;
    state.time = record.time;
    state.hash = if kind == FileKind::Commit { header.hash } else { record.previous };
    state.next_number = record.next_number;
    Ok(())
}

/// The version of a checkpoint, which must be that of the commit of this number, if there is one: another
/// database's, or another copy's, may lie beside our commits.
fn read_checkpoint(io: &dyn Io, files: &Files, version: u64) -> Result<State> {
    let (header, record) = read_record(io, FileKind::Checkpoint, version)?;
    let mut state = State::default();
    apply(&mut state, FileKind::Checkpoint, version, (&header, &record), |_, _| ())?;
    if files.commits.contains(&version)
        && let Ok((commit, _)) = read_record(io, FileKind::Commit, version)
        && (commit.hash, commit.identity.database) != (state.hash, state.database)
    {
        let reason = "it is not that of the commit of its version".to_owned();
        return Err(damaged(FileKind::Checkpoint, version, reason));
    }
    Ok(state)
}

/// Makes the state the version of a commit that follows it.
pub(crate) fn apply_commit(state: &mut State, header: &Header, record: &Record) -> Result<()> {
    let version = state.version + 1;
    apply(state, FileKind::Commit, version, (header, record), |_, _| ())
}

/// Makes the state the version after it. When that fails, it is none.
pub(crate) fn advance(io: &dyn Io, state: &mut State) -> Result<()> {
    advance_and_look(io, state, |_, _| ())
}

/// The same, and `look` gets each action and the state that it meets.
pub(crate) fn advance_and_look(
    io: &dyn Io,
    state: &mut State,
    look: impl FnMut(&State, &Action),
) -> Result<()> {
    let (header, record) = read_commit(io, state)?;
    apply(state, FileKind::Commit, state.version + 1, (&header, &record), look)
}

/// The commit that follows a version.
pub(crate) fn read_commit(io: &dyn Io, before: &State) -> Result<(Header, Record)> {
    let version = before.version + 1;
    let (header, record) = read_record(io, FileKind::Commit, version)?;
    let is_ours = before.database == DatabaseId::default() || header.identity.database == before.database;
    if record.previous == before.hash && is_ours {
        return Ok((header, record));
    }
    Err(damaged(FileKind::Commit, version, "it does not follow the commit before it".to_owned()))
}

/// When a version was committed, unless its files have been removed; version 0 was there before all times.
pub(crate) fn time(io: &dyn Io, version: u64) -> Result<Option<i64>> {
    if version == 0 {
        return Ok(Some(i64::MIN));
    }
    let commit = read_record(io, FileKind::Commit, version).map(|(_, record)| record.time);
    let time = match commit {
        Err(error) if is_gone(&error) => time_of_checkpoint(io, version),
        Err(error @ Error::Damaged(_)) => time_of_checkpoint(io, version).map_err(|_| error),
        commit => commit,
    };
    match time {
        Err(error) if is_gone(&error) => Ok(None),
        time => time.map(Some),
    }
}

/// The last version up to this one whose time is early; that is one whose files have been removed. Times
/// ascend, or nearly so; a damaged version is taken for as late as the next, so that the answer may be too low.
pub(crate) fn last_version(io: &dyn Io, newest: u64, is_early: impl Fn(i64) -> bool) -> Result<u64> {
    let (mut early, mut late) = (0, newest.saturating_add(1));
    while late - early > 1 {
        let middle = early + (late - early) / 2;
        let known = first_time(io, middle..late)?;
        if known.is_some_and(|time| time.is_none_or(&is_early)) {
            early = middle;
        } else {
            late = middle;
        }
    }
    Ok(early)
}

/// The [`time`] of the first of these versions that is not damaged, if there is one.
pub(crate) fn first_time(io: &dyn Io, versions: Range<u64>) -> Result<Option<Option<i64>>> {
    let mut times = versions.map(|version| time(io, version));
    times.find(|time| !matches!(time, Err(Error::Damaged(_)))).transpose()
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

/// Begins the log of a database that has nothing, so that there is a difference to a log that is lost.
pub(crate) fn begin(store: &Store, database: DatabaseId) -> Result<()> {
    let time = micros(store.io.now());
    let record = Record { previous: 0, time, next_number: 1, actions: Vec::new() };
    write(store, FileKind::Checkpoint, database, 0, &record)?;
    Ok(())
}

/// Makes a record durable under its name and gives the hash of its header.
pub(crate) fn write(
    store: &Store,
    kind: FileKind,
    database: DatabaseId,
    version: u64,
    record: &Record,
) -> std::result::Result<u64, Failed> {
    let io = &*store.io;
    let path = path(kind, version);
    // Another name than that of anyone else who may write, should locks not work.
    let unfinished = format!("{DIRECTORY}/{version:020}.{:016x}{UNFINISHED}", io.random());
    let payload = record.write();
    if (header::HEADER_BYTES + payload.len()) as u64 > RECORD_BYTES_MAX {
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
            // Whether or not that works: who opens the database next removes it.
            io.remove(unfinished).unwrap_or_default();
            Failed::Before(Error::io(doing, unfinished)(source))
        }
    };
    let mut output = io.create(&unfinished).map_err(before("create"))?;
    output.write_all(&bytes).map_err(before("write"))?;
    store.sync(&mut *output, &unfinished).map_err(Failed::Before)?;
    drop(output);
    if kind == FileKind::Checkpoint {
        // Whatever has that name says the same, or cannot be read, or may be in the cache alone.
        io.replace(&unfinished, &path).map_err(before("rename"))?;
        store.sync_directory(DIRECTORY).map_err(Failed::Before)?;
        newest::point(store, version);
        return Ok(hash);
    }
    if let Err(error) = io.publish(&unfinished, &path) {
        let is_refused = is_refusal(&error);
        match read_record(io, kind, version) {
            // A file server did it, and its answer was lost.
            Ok((header, _)) if header.hash == hash => io.remove(&unfinished).unwrap_or_default(),
            Err(there) if is_gone(&there) && is_refused => return Err(before("publish")(error)),
            Ok(_) => return Err(Failed::Before(store.stop_beside_another(&path))),
            Err(_) => return Err(Failed::Unknown(Error::io("publish", &path)(error))),
        }
    }
    io.sync_directory(DIRECTORY).map_err(|source| Failed::Unknown(Error::io("sync", DIRECTORY)(source)))?;
    Ok(hash)
}
