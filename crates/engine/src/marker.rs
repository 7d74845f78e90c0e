//! The file that makes a directory a database.
//!
//! `KEIRIN` holds one line, `keirin database, format 1`. A directory that holds other things is never
//! turned into a database, and one of a newer format is never touched.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

const NAME: &str = "KEIRIN";
const PREFIX: &str = "keirin database, format ";
const FORMAT: u32 = 1;

/// Checks that `path` is a database; makes it one if it does not exist or is empty.
pub(crate) fn open_or_create(path: &Path) -> Result<()> {
    let failed = |what: &str, error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot {what} database directory '{}': {error}", path.display()))
    };
    let marker = path.join(NAME);
    if marker.is_file() {
        return check(path, &fs::read(&marker).map_err(|error| failed("read", error))?);
    }
    if path.is_file() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("'{}' is a file, not a database directory", path.display()),
        )
        .with_hint(format!("to query a file: SELECT * FROM '{}'", path.display())));
    }
    fs::create_dir_all(path).map_err(|error| failed("create", error))?;
    if fs::read_dir(path).map_err(|error| failed("read", error))?.next().is_some() {
        let message = format!("directory '{}' is not empty and not a Keirin database", path.display());
        let hint = format!("to query the files in it: SELECT * FROM '{}/*.parquet'", path.display());
        return Err(Error::new(ErrorKind::Invalid, message).with_hint(hint));
    }
    let text = format!("{PREFIX}{FORMAT}\n");
    let written = tempfile::NamedTempFile::new_in(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&marker)?;
        fs::File::open(path)?.sync_all()
    });
    written.map_err(|error| failed("write to", error))
}

fn check(path: &Path, text: &[u8]) -> Result<()> {
    let format =
        std::str::from_utf8(text).ok().and_then(|text| text.strip_prefix(PREFIX)?.trim().parse::<u32>().ok());
    match format {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => {
            let message = format!(
                "database '{}' has format {newer}; this version reads up to {FORMAT}",
                path.display()
            );
            Err(Error::new(ErrorKind::Invalid, message).with_hint("open it with a newer version of Keirin"))
        }
        _ => Err(Error::new(
            ErrorKind::Data,
            format!("file '{NAME}' of database '{}' is damaged", path.display()),
        )
        .with_detail(format!("it should say \"{PREFIX}{FORMAT}\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_directories_become_databases() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new");
        open_or_create(&path).unwrap();
        open_or_create(&path).unwrap();

        fs::write(path.join(NAME), "keirin database, format 99\n").unwrap();
        assert!(open_or_create(&path).unwrap_err().message().contains("format 99"));
        fs::write(path.join(NAME), "x").unwrap();
        assert_eq!(open_or_create(&path).unwrap_err().kind(), ErrorKind::Data);

        fs::write(parent.path().join("data.csv"), "a").unwrap();
        assert!(open_or_create(parent.path()).unwrap_err().message().contains("not empty"));
        assert!(open_or_create(&parent.path().join("data.csv")).unwrap_err().message().contains("is a file"));
    }
}
