//! Finding the newest version without listing the log: `log/newest` names a checkpoint, and later commits are found
//! by trying their names.
//!
//! The file is a hint, written after the checkpoint is durable and never read by those who can list. If it is old,
//! the commits after its checkpoint still lead to the newest version; if it is damaged or missing, or its
//! checkpoint is gone, opening fails. `docs/format/log.md` has the bytes.

use std::io::{Error as IoError, ErrorKind};

use xxhash_rust::xxh3::xxh3_64;

use super::{DIRECTORY, Files, UNFINISHED, VERSIONS_END, path};
use crate::error::{Error, Result};
use crate::header::FileKind;
use crate::io::Io;
use crate::store::Store;

pub(super) const PATH: &str = "log/newest";
/// The most bytes of the hint.
const BYTES_MAX: u64 = 256;
/// How many names are tried at once.
const TRIED: u64 = 16;
/// More commits than any writer leaves after a checkpoint: ends the search on servers that answer for every name.
const BEHIND_MAX: u64 = 1 << 14;

fn text(checkpoint: u64) -> String {
    let line = format!("checkpoint {checkpoint}\n");
    format!("{line}check {:016x}\n", xxh3_64(line.as_bytes()))
}

fn parse(found: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(found).ok()?.lines().next()?;
    let checkpoint = line.strip_prefix("checkpoint ")?.parse().ok()?;
    (checkpoint < VERSIONS_END && found == text(checkpoint).as_bytes()).then_some(checkpoint)
}

/// Writes the hint: the newest checkpoint, which is durable already. If that fails, the old hint stays.
pub(super) fn point(store: &Store, checkpoint: u64) {
    let io = &*store.io;
    let unfinished = format!("{DIRECTORY}/newest.{:016x}{UNFINISHED}", io.random());
    let write = || {
        let mut output = io.create(&unfinished)?;
        output.write_all(text(checkpoint).as_bytes())?;
        // Synced before the rename, so that no half-written file replaces a whole one.
        store.sync(&mut *output, &unfinished).map_err(IoError::other)?;
        drop(output);
        io.replace(&unfinished, PATH)
    };
    if write().is_err() {
        io.remove(&unfinished).unwrap_or_default();
    }
}

/// The files of the log from the hinted checkpoint on.
pub(super) fn find(io: &dyn Io) -> Result<Files> {
    let failed = Error::io("find the newest version by", PATH);
    let useless = |what: &str| {
        failed(IoError::new(
            ErrorKind::Unsupported,
            format!("{what}, and a web server cannot list its files"),
        ))
    };
    let input = match io.open(PATH) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(useless("it is not there")),
        input => input.map_err(&failed)?,
    };
    let mut bytes = vec![0; usize::try_from(input.byte_count().min(BYTES_MAX)).expect("few bytes")];
    input.read_exact_at(0, &mut bytes).map_err(&failed)?;
    let Some(checkpoint) = parse(&bytes) else { return Err(useless("it is damaged")) };
    let mut files = Files::default();
    let mut next = checkpoint;
    loop {
        let mut names = vec![path(FileKind::Checkpoint, checkpoint)];
        names.extend((next..next + TRIED).map(|version| path(FileKind::Commit, version)));
        let found = io.are_there(&names).map_err(&failed)?;
        let Some((true, commits)) = found.split_first() else {
            return Err(useless(&format!("it names checkpoint {checkpoint}, which is gone")));
        };
        files.commits.extend((next..).zip(commits).filter(|(_, is_there)| **is_there).map(|found| found.0));
        next += TRIED;
        if next - checkpoint > BEHIND_MAX {
            return Err(useless("every name is there"));
        }
        // A gap among the commits shows when it is read.
        if files.commits.range(next - TRIED / 2..).next().is_none() {
            break;
        }
    }
    files.checkpoints.insert(checkpoint);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_of_the_hint_is_found() {
        let ours = text(4711);
        assert_eq!(parse(ours.as_bytes()), Some(4711));
        for bit in 0..ours.len() * 8 {
            let mut changed = ours.clone().into_bytes();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&changed), None);
        }
        for foreign in ["", "checkpoint 4711\n", "checkpoint\n", &ours[..ours.len() - 1]] {
            assert_eq!(parse(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
