//! The file that makes a directory a database: `KEIRIN`, a few lines of text with the format and the id.

use std::io::ErrorKind;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Damage, Error, Result};
use crate::header::DatabaseId;
use crate::io::Io;
use crate::log::Files;

pub(crate) const PATH: &str = "KEIRIN";
const UNFINISHED: &str = "KEIRIN.tmp";
const PREFIX: &str = "keirin database, format ";
const FORMAT: u32 = 1;
/// The most bytes of a marker.
const BYTES_MAX: u64 = 256;

/// The text of the marker.
fn text(id: DatabaseId) -> String {
    let lines = format!("{PREFIX}{FORMAT}\nid {:032x}\n", u128::from_be_bytes(id));
    format!("{lines}check {:016x}\n", xxh3_64(lines.as_bytes()))
}

/// The id, if the text is whole. A later format is known by its first line, whatever its other lines say; but if
/// our checksum line follows and is wrong, a digit of the format was changed.
fn parse(text: &str) -> Result<Option<DatabaseId>> {
    let (lines, check) = text.split_once("check ").unwrap_or((text, ""));
    let mut words = lines.lines();
    let format = words.next().and_then(|line| line.strip_prefix(PREFIX)?.parse::<u32>().ok());
    let is_whole = check == format!("{:016x}\n", xxh3_64(lines.as_bytes()));
    match format {
        Some(found) if found > FORMAT && (is_whole || check.is_empty()) => {
            return Err(Error::Newer { path: PATH.to_owned(), what: "format", found, known: FORMAT });
        }
        Some(FORMAT) if is_whole => {}
        _ => return Ok(None),
    }
    let id = words.next().and_then(|line| u128::from_str_radix(line.strip_prefix("id ")?, 16).ok());
    Ok(id.map(u128::to_be_bytes))
}

/// The state of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Id(DatabaseId),
    /// The marker is damaged or missing, which was reported.
    Unreadable,
    /// The directory is empty: a database may be created in it.
    Empty,
}

/// Reads the marker. A damaged or missing marker is only reported: the database's content is in other files.
pub(crate) fn read(io: &dyn Io, damage: &mut Vec<Damage>) -> Result<Marker> {
    let mut unreadable = |reason: String| {
        damage.push(Damage { path: PATH.to_owned(), reason, ..Damage::default() });
        Ok(Marker::Unreadable)
    };
    let input = match io.open(PATH) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let files = Files::list(io)?;
            if !files.commits.is_empty() || !files.checkpoints.is_empty() {
                return unreadable("it is missing".to_owned());
            }
            let names = io.list("").map_err(Error::io("list", "."))?;
            let is_ours = |name: &String| ["LOCK", UNFINISHED].contains(&name.as_str());
            return if names.iter().all(is_ours) { Ok(Marker::Empty) } else { Err(Error::NotADatabase) };
        }
        input => input.map_err(Error::io("open", PATH))?,
    };
    let mut bytes = vec![0; usize::try_from(input.byte_count().min(BYTES_MAX)).expect("few bytes")];
    let read = input.read_exact_at(0, &mut bytes);
    let found = read.ok().and_then(|()| String::from_utf8(bytes).ok());
    match found.map_or(Ok(None), |found| parse(&found))? {
        Some(id) => Ok(Marker::Id(id)),
        None => {
            unreadable(format!("it should say \"{PREFIX}{FORMAT}\", the id of the database and a checksum"))
        }
    }
}

/// Writes the marker, replacing whatever has its name; the caller holds the lock.
pub(crate) fn create(io: &dyn Io, id: DatabaseId) -> Result<()> {
    match io.remove(UNFINISHED) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Error::io("remove", UNFINISHED)(error));
        }
        _ => {}
    }
    let mut output = io.create(UNFINISHED).map_err(Error::io("create", UNFINISHED))?;
    output.write_all(text(id).as_bytes()).map_err(Error::io("write", UNFINISHED))?;
    output.sync().map_err(Error::io("sync", UNFINISHED))?;
    io.replace(UNFINISHED, PATH).map_err(Error::io("rename", PATH))?;
    io.sync_directory("").map_err(Error::io("sync", "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_is_found_and_a_greater_format_is_refused() {
        let id = [0xA5; 16];
        let ours = text(id);
        assert_eq!(parse(&ours).unwrap(), Some(id));
        for bit in 0..ours.len() * 8 {
            let mut changed = ours.clone().into_bytes();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(changed) = String::from_utf8(changed) else { continue };
            assert!(parse(&changed).is_ok_and(|id| id.is_none()), "{changed}");
        }
        let newer = ours.replace("format 1", "format 2");
        let lines = newer.split_once("check").unwrap().0;
        let theirs = format!("{lines}check {:016x}\n", xxh3_64(lines.as_bytes()));
        for theirs in
            [theirs.as_str(), "keirin database, format 99\n", "keirin database, format 2\nand more\n"]
        {
            assert!(matches!(parse(theirs), Err(Error::Newer { .. })), "{theirs}");
        }
        for foreign in ["", "x", "keirin database, format 1\n", "keirin database, format 0\n", &ours[..40]] {
            assert_eq!(parse(foreign).unwrap(), None, "{foreign}");
        }
    }
}
