//! The log of commits: which versions exist, how one is read, and how the next is made durable.
//!
//! `docs/format/log.md` has the bytes, `docs/format/database.md` the order of steps and the consequences of damage.

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
/// The suffix of unfinished files.
const UNFINISHED: &str = ".tmp";
/// No counter gets this far, so files of such versions are not ours.
const VERSIONS_END: u64 = 1 << 63;

/// The most bytes of a commit or checkpoint, which takes several times as much memory. A part takes 60 to 100 bytes
/// of it.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// The suffix of files that a repair has set aside.
pub(crate) const SET_ASIDE: &str = ".damaged";

/// The files of the log by their versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(crate) commits: BTreeSet<u64>,
    pub(crate) checkpoints: BTreeSet<u64>,
    /// Paths of unfinished files.
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
            // Version 0 exists before the first commit.
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

    /// Whether the log is lost: it has no version, though every log begins with a checkpoint.
    pub(crate) fn is_lost(&self) -> bool {
        self.commits.is_empty() && self.checkpoints.is_empty()
    }

    /// The newest version that has a commit or checkpoint.
    pub(crate) fn newest(&self) -> u64 {
        let newest = |versions: &BTreeSet<u64>| versions.last().copied().unwrap_or(0);
        newest(&self.commits).max(newest(&self.checkpoints))
    }
}

pub(crate) fn path(kind: FileKind, version: u64) -> String {
    let suffix = if kind == FileKind::Commit { "commit" } else { "checkpoint" };
    format!("{DIRECTORY}/{version:020}.{suffix}")
}

/// A version that was read, and the damage found on the way.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    /// The version of the checkpoint that reading began with, 0 for none.
    pub(crate) checkpoint: u64,
    pub(crate) damage: Vec<Damage>,
    /// Whether no later version can exist, up to the one asked for.
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
        // No other checkpoint is known.
        return Err(found.into());
    }
    let last = files.commits.range(..=version).next_back().copied().unwrap_or(0);
    io.fetch(&mut (checkpoint + 1..=last).map(|version| path(FileKind::Commit, version)));
    while state.version < last {
        let (before, commit) = (state.version, state.version + 1);
        let found = match advance(io, &mut state) {
            Ok(()) => continue,
            Err(Error::Damaged(found)) => *found,
            // Missing from the listing, too. A commit that was listed and is gone was removed meanwhile, and the
            // caller lists again.
            Err(error) if is_gone(&error) && !files.commits.contains(&commit) => {
                let path = path(FileKind::Commit, commit);
                Damage { path, reason: "it is missing".to_owned(), ..Damage::default() }
            }
            Err(other) => return Err(other),
        };
        // Some actions of the damaged commit may have been applied to `state`, so it is loaded anew.
        let mut loaded = load(io, files, before)?;
        loaded.damage.push(found);
        loaded.is_whole = false;
        return Ok(loaded);
    }
    // Even an unreadable checkpoint shows that its version existed.
    let is_whole = files.newest().min(version) <= state.version;
    Ok(Loaded { state, checkpoint, damage, is_whole })
}

/// Whether the error is that a file does not exist.
pub(crate) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// Syncs the names in the log before a reader relies on them: the writer may have published a commit and not synced
/// the directory yet. Errors of directories that cannot be synced, as read-only ones, are ignored: there is no
/// writer there.
pub(crate) fn sync(io: &dyn Io) -> Result<()> {
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

/// The bytes of a whole file. A file that the system cannot read counts as damaged; a missing file or a shortage of
/// resources does not.
pub(crate) fn read_file(io: &dyn Io, path: &str) -> Result<Vec<u8>> {
    read_input(path, RECORD_BYTES_MAX, || io.open(path))
}

/// As [`read_file`], for a file of at most `limit` bytes that `open` opens.
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

/// Reads a file of the log and checks what can be checked without the other files. A second time, if it seems damaged:
/// the failure of the disk may have been temporary, and what is taken for damaged is set aside by a repair, and its
/// files for orphans.
fn read_record(io: &dyn Io, kind: FileKind, version: u64) -> Result<(Header, Record)> {
    match read_record_once(io, kind, version) {
        Err(Error::Damaged(_)) => read_record_once(io, kind, version),
        read => read,
    }
}

fn read_record_once(io: &dyn Io, kind: FileKind, version: u64) -> Result<(Header, Record)> {
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

/// Applies a file of the log: a checkpoint to the empty state, a commit to the version before it. After an error
/// some actions may have been applied. `look` gets each action and the state before it.
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

/// Reads a checkpoint, which must match the commit of its version if there is one: a checkpoint of another database
/// or copy may lie beside our commits.
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

/// Applies a commit to the version before it.
pub(crate) fn apply_commit(state: &mut State, header: &Header, record: &Record) -> Result<()> {
    let version = state.version + 1;
    apply(state, FileKind::Commit, version, (header, record), |_, _| ())
}

/// Advances the state to the next version. After an error the state is no valid version.
pub(crate) fn advance(io: &dyn Io, state: &mut State) -> Result<()> {
    advance_and_look(io, state, |_, _| ())
}

/// As [`advance`]; `look` gets each action and the state before it.
pub(crate) fn advance_and_look(
    io: &dyn Io,
    state: &mut State,
    look: impl FnMut(&State, &Action),
) -> Result<()> {
    let (header, record) = read_commit(io, state)?;
    apply(state, FileKind::Commit, state.version + 1, (&header, &record), look)
}

/// Reads the commit after a version.
pub(crate) fn read_commit(io: &dyn Io, before: &State) -> Result<(Header, Record)> {
    let version = before.version + 1;
    let (header, record) = read_record(io, FileKind::Commit, version)?;
    let is_ours = before.database == DatabaseId::default() || header.identity.database == before.database;
    if record.previous == before.hash && is_ours {
        return Ok((header, record));
    }
    Err(damaged(FileKind::Commit, version, "it does not follow the commit before it".to_owned()))
}

/// When a version was committed; `None` if its files have been removed. Version 0 is earlier than any time.
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

/// Binary search for the last version up to `newest` whose time is early; versions whose files were removed count
/// as early. Times ascend, or nearly so; a damaged version takes the time of the next one, so the answer may be too
/// low.
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

/// The [`time`] of the first undamaged version of these.
pub(crate) fn first_time(io: &dyn Io, versions: Range<u64>) -> Result<Option<Option<i64>>> {
    let mut times = versions.map(|version| time(io, version));
    times.find(|time| !matches!(time, Err(Error::Damaged(_)))).transpose()
}

/// The time in the checkpoint of a version; an answer shows that the checkpoint is whole.
pub(crate) fn time_of_checkpoint(io: &dyn Io, version: u64) -> Result<i64> {
    Ok(read_record(io, FileKind::Checkpoint, version)?.1.time)
}

/// A failure of [`write`], by what is left on disk.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing is left: the file was not published.
    Before(Error),
    /// The file may or may not be there. Nothing more may be written.
    Unknown(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Before(error) | Failed::Unknown(error) => error,
        }
    }
}

/// Writes checkpoint 0 of an empty database, which tells an empty log from a lost one.
pub(crate) fn begin(store: &Store, database: DatabaseId) -> Result<()> {
    let time = micros(store.io.now());
    let record = Record { previous: 0, time, next_number: 1, actions: Vec::new() };
    write(store, FileKind::Checkpoint, database, 0, &record)?;
    Ok(())
}

/// Writes a record durably and returns the hash of its header.
pub(crate) fn write(
    store: &Store,
    kind: FileKind,
    database: DatabaseId,
    version: u64,
    record: &Record,
) -> std::result::Result<u64, Failed> {
    let io = &*store.io;
    let path = path(kind, version);
    // A random name, in case locks do not work and another process writes too.
    let unfinished = format!("{DIRECTORY}/{version:020}.{:016x}{UNFINISHED}", io.random());
    let payload = record.write();
    if (header::HEADER_BYTES + payload.len()) as u64 > RECORD_BYTES_MAX {
        let message = format!("a commit of {} bytes is too large; make it several", payload.len());
        return Err(Failed::Before(Error::Invalid(message)));
    }
    // A record that cannot be read again would end the log.
    if let Err(malformed) = Record::read(&payload) {
        let message = format!("a commit of these changes could not be read again: {malformed}");
        return Err(Failed::Before(Error::Invalid(message)));
    }
    let identity = Identity { database, table: 0, number: version };
    let (bytes, hash) = header::file(kind, identity, &payload);
    let before = |doing| {
        let unfinished = &unfinished;
        move |source| {
            // If this fails, the next writer removes the file.
            io.remove(unfinished).unwrap_or_default();
            Failed::Before(Error::io(doing, unfinished)(source))
        }
    };
    let mut output = io.create(&unfinished).map_err(before("create"))?;
    output.write_all(&bytes).map_err(before("write"))?;
    store.sync(&mut *output, &unfinished).map_err(Failed::Before)?;
    drop(output);
    if kind == FileKind::Checkpoint {
        // A file of that name has the same content, or cannot be read, or may be in the system's cache only.
        io.replace(&unfinished, &path).map_err(before("rename"))?;
        store.sync_directory(DIRECTORY).map_err(Failed::Before)?;
        newest::point(store, version);
        return Ok(hash);
    }
    if let Err(error) = io.publish(&unfinished, &path) {
        let is_refused = is_refusal(&error);
        match read_record(io, kind, version) {
            // The file server published the file, and its reply was lost.
            Ok((header, _)) if header.hash == hash => io.remove(&unfinished).unwrap_or_default(),
            Err(there) if is_gone(&there) && is_refused => return Err(before("publish")(error)),
            Ok(_) => return Err(Failed::Before(store.stop_beside_another(&path))),
            Err(_) => return Err(Failed::Unknown(Error::io("publish", &path)(error))),
        }
    }
    io.sync_directory(DIRECTORY).map_err(|source| Failed::Unknown(Error::io("sync", DIRECTORY)(source)))?;
    Ok(hash)
}
