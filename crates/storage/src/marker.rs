//! The file that makes a directory a database: `KEIRIN`, one line that says the format.

use std::io::ErrorKind;

use crate::error::{Damage, Error, Result};
use crate::io::Io;

const PATH: &str = "KEIRIN";
const UNFINISHED: &str = "KEIRIN.tmp";
const PREFIX: &str = "keirin database, format ";
const FORMAT: u32 = 1;
/// No marker is longer.
const BYTES_MAX: u64 = 64;

/// Checks that this is a database of a format that can be read. That the file itself is damaged is only
/// reported: what the database has is in other files.
pub(crate) fn check(io: &dyn Io, damage: &mut Vec<Damage>) -> Result<()> {
    let input = io.open(PATH).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NotADatabase,
        _ => Error::io("open", PATH)(error),
    })?;
    let mut bytes = vec![0; usize::try_from(input.byte_count().min(BYTES_MAX)).expect("few bytes")];
    let read = input.read_exact_at(0, &mut bytes);
    let text = read.ok().and_then(|()| String::from_utf8(bytes).ok());
    let format = text.as_deref().and_then(|text| text.strip_prefix(PREFIX)?.trim_end().parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(found) if found > FORMAT => {
            return Err(Error::Newer { path: PATH.to_owned(), found, known: FORMAT });
        }
        _ => {
            let reason = format!("it should say \"{PREFIX}{FORMAT}\"");
            damage.push(Damage { path: PATH.to_owned(), reason, ..Damage::default() });
        }
    }
    Ok(())
}

/// The same, or that the directory is empty but for what creating a database may have left.
pub(crate) fn check_or_empty(io: &dyn Io, damage: &mut Vec<Damage>) -> Result<()> {
    let names = io.list("").map_err(Error::io("list", "."))?;
    let mut names = names.iter().map(|entry| entry.name.as_str());
    if names.clone().any(|name| name == PATH) {
        return check(io, damage);
    }
    if names.all(|name| ["LOCK", UNFINISHED].contains(&name)) { Ok(()) } else { Err(Error::NotADatabase) }
}

/// Makes the directory a database unless it is; only by whoever has the lock.
pub(crate) fn create(io: &dyn Io) -> Result<()> {
    match io.open(PATH) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("open", PATH)(error)),
    }
    match io.remove(UNFINISHED) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Error::io("remove", UNFINISHED)(error));
        }
        _ => {}
    }
    let mut output = io.create(UNFINISHED).map_err(Error::io("create", UNFINISHED))?;
    output.write_all(format!("{PREFIX}{FORMAT}\n").as_bytes()).map_err(Error::io("write", UNFINISHED))?;
    output.sync().map_err(Error::io("sync", UNFINISHED))?;
    io.publish(UNFINISHED, PATH).map_err(Error::io("publish", PATH))?;
    io.sync_directory("").map_err(Error::io("sync", "."))
}
