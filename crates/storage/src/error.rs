//! What can go wrong between a table and the disk, and where damage is.

use std::fmt;
use std::io;
use std::ops::Range;

/// Why storage could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("cannot {doing} '{path}'")]
    Io {
        /// The operation: `read`, `write`, `sync` ...
        doing: &'static str,
        /// The file, from the directory of the database.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that are not what was written.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// A file of a later version of the program.
    #[error("'{path}' has {what} {found}; this version reads up to {known}")]
    Newer {
        /// The file.
        path: String,
        /// What the number is of: `format`, `actions of kind`.
        what: &'static str,
        /// The number in the file.
        found: u32,
        /// The greatest number that this program reads.
        known: u32,
    },
    /// The directory holds other things.
    #[error("the directory is not empty and not a Keirin database")]
    NotADatabase,
    /// Another process writes to the database.
    #[error("another process has the database open for writing")]
    Locked,
    /// The database was opened for reading.
    #[error("the database was opened for reading only")]
    ReadOnly,
    /// Part of the log cannot be read, so nothing may be added to it.
    #[error("the log is damaged behind version {version}, so the database can only be read")]
    LogDamaged {
        /// The last version that can be read.
        version: u64,
    },
    /// Writing has stopped, because writes could get lost unnoticed.
    #[error("writing has stopped because '{path}' {reason}; open the database again")]
    Stopped {
        /// The file or directory.
        path: String,
        /// What happened to it: `could not be synced`, `was made by another process`.
        reason: &'static str,
    },
    /// The last step of a commit failed.
    #[error("nobody knows whether the changes were committed; open the database again to see")]
    OutcomeUnknown(#[source] Box<Self>),
    /// Another transaction committed a conflicting change first.
    #[error("{what} was changed by another transaction")]
    Conflict {
        /// What both wanted to change.
        what: String,
    },
    /// There is no such version, or no longer.
    #[error("version {version} is not there; versions {oldest} to {newest} are")]
    NoVersion {
        /// What was asked for.
        version: u64,
        /// The oldest that can be read.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
    /// The caller cancelled the work.
    #[error("the work was stopped")]
    Cancelled,
    /// A file of a version that is older than the retention.
    #[error(
        "'{path}' was removed, for version {version} is older than the retention; the newest version is {newest}"
    )]
    Replaced {
        /// The file.
        path: String,
        /// The version that needs it.
        version: u64,
        /// The newest version, which does not need it.
        newest: u64,
    },
    /// The caller asked for something that cannot be stored or does not exist.
    #[error("{0}")]
    Invalid(String),
    /// Values that cannot be encoded.
    #[error("cannot encode column '{column}'")]
    Encode {
        /// The column.
        column: String,
        /// What the codecs said.
        source: keirin_codecs::Error,
    },
    /// Bytes that cannot be compressed.
    #[error("cannot compress column '{column}'")]
    Compress {
        /// The column.
        column: String,
        /// What the codec said.
        source: keirin_codecs::blocks::Error,
    },
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Turns an error of the system into ours, with the operation and the file.
    pub(crate) fn io<'a>(doing: &'static str, path: &'a str) -> impl Fn(io::Error) -> Self + 'a {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Damaged(Box::new(damage))
    }
}

/// The reason that [`Damage`] gives for a missing file.
pub(crate) const MISSING: &str = "it is missing";

/// Bytes that are not what was written: where they are, and which rows are affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The file, from the directory of the database.
    pub path: String,
    /// The table by its number, unless it is the log.
    pub table: Option<u64>,
    /// The part by its number.
    pub part: Option<u64>,
    /// The column by its name, if it is a single one.
    pub column: Option<String>,
    /// Rows of the part that cannot be read; `None` means all.
    pub rows: Option<Range<u64>>,
    /// The block of the column.
    pub stripe: Option<u32>,
    /// The place in the file.
    pub offset: Option<u64>,
    /// What is wrong.
    pub reason: String,
    /// Whether the bytes may be whole: a newer version of the program wrote them, or the system refused to read
    /// them.
    pub is_unknown: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_unknown { "could not be checked" } else { "is damaged" };
        write!(f, "'{}' {verdict}", self.path)?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.reason)?;
        let mut separator = " (";
        let mut say = |f: &mut fmt::Formatter<'_>, what: &str, value: &dyn fmt::Display| {
            write!(f, "{separator}{what} {value}")?;
            separator = ", ";
            Ok(())
        };
        if let Some(table) = &self.table {
            say(f, "table", table)?;
        }
        if let Some(part) = &self.part {
            say(f, "part", part)?;
        }
        if let Some(column) = &self.column {
            say(f, "column", &format_args!("'{column}'"))?;
        }
        if let Some(stripe) = &self.stripe {
            say(f, "block", stripe)?;
        }
        if let Some(rows) = &self.rows {
            say(f, "rows", &format_args!("{} to {}", rows.start, rows.end.saturating_sub(1)))?;
        }
        if separator == ", " { f.write_str(")") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_says_where_and_whose() {
        let damage = Damage { path: "log/7.commit".into(), reason: "cut".into(), ..Damage::default() };
        assert_eq!(damage.to_string(), "'log/7.commit' is damaged: cut");
        let damage = Damage {
            path: "tables/1/2.kpart".into(),
            table: Some(1),
            part: Some(2),
            column: Some("price".into()),
            stripe: Some(0),
            rows: Some(0..65_536),
            offset: Some(64),
            reason: "another checksum".into(),
            is_unknown: false,
        };
        assert_eq!(
            damage.to_string(),
            "'tables/1/2.kpart' is damaged at byte 64: another checksum \
             (table 1, part 2, column 'price', block 0, rows 0 to 65535)"
        );
    }
}
