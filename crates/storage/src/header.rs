//! The 64 bytes that every file begins with, and the footer of a part ends with: `docs/format/README.md`.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Damage, Error, Result};
use crate::wire::{Malformed, Reader, Wire, Write};

pub(crate) const HEADER_BYTES: usize = 64;
/// The most bytes that may belong to a header.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Bytes of the header that its own hash covers.
const HASHED_BYTES: usize = 56;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Commit,
    Checkpoint,
    Part,
    Footer,
    Deletions,
}

impl FileKind {
    /// The format that this version writes; it reads this and all earlier ones.
    fn format(self) -> u32 {
        match self {
            Self::Commit | Self::Checkpoint | Self::Part | Self::Deletions => 1,
            Self::Footer => 2,
        }
    }

    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Commit => b"KEIRINCM",
            Self::Checkpoint => b"KEIRINCP",
            Self::Part => b"KEIRINPT",
            Self::Footer => b"KEIRINFT",
            Self::Deletions => b"KEIRINDL",
        }
    }
}

/// The id of a database.
pub(crate) type DatabaseId = [u8; 16];

/// The database, table and number that a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) database: DatabaseId,
    /// 0 in the log.
    pub(crate) table: u64,
    /// The version or the number of the file.
    pub(crate) number: u64,
}

/// A header that was read, its own hash verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) identity: Identity,
    pub(crate) format: u32,
    pub(crate) payload_bytes: usize,
    payload_hash: u64,
    /// The hash of the header, which names the content.
    pub(crate) hash: u64,
}

/// The bytes of a payload's header, and the hash in it.
pub(crate) fn write(kind: FileKind, identity: Identity, payload: &[u8]) -> ([u8; HEADER_BYTES], u64) {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend(kind.magic());
    bytes.put_u32(kind.format());
    bytes.put_count(payload.len());
    bytes.extend(identity.database);
    bytes.put_u64(identity.table);
    bytes.put_u64(identity.number);
    bytes.put_u64(xxh3_64(payload));
    let hash = xxh3_64(&bytes);
    bytes.put_u64(hash);
    (bytes.try_into().expect("64 bytes were written"), hash)
}

/// A header and its payload as one file.
pub(crate) fn file(kind: FileKind, identity: Identity, payload: &[u8]) -> (Vec<u8>, u64) {
    let (header, hash) = write(kind, identity, payload);
    ([&header[..], payload].concat(), hash)
}

impl Header {
    /// Reads the header that `bytes` begin with; `path` is for errors.
    pub(crate) fn read(kind: FileKind, bytes: &[u8], path: &str) -> Result<Self> {
        let damaged = |malformed: Malformed| Damage {
            path: path.to_owned(),
            reason: malformed.to_string(),
            ..Damage::default()
        };
        let (header, format) = Self::parse(kind, bytes).map_err(damaged)?;
        match header {
            Some(header) => Ok(header),
            None => {
                let known = kind.format();
                Err(Error::Newer { path: path.to_owned(), what: "format", found: format, known })
            }
        }
    }

    /// The header and its format; no header if the format is a later one. Magic, format and hash have the same
    /// places in every format.
    fn parse(kind: FileKind, bytes: &[u8]) -> Wire<(Option<Self>, u32)> {
        let mut reader = Reader::new(bytes);
        let hashed = bytes.get(..HASHED_BYTES).map(xxh3_64);
        if reader.take(8)? != kind.magic() {
            return reader.malformed(format!("{} is missing", kind.magic().escape_ascii()));
        }
        let format = reader.u32()?;
        let payload_bytes = reader.u32()? as usize;
        let database = reader.take(16)?.try_into().expect("16 bytes were taken");
        let identity = Identity { database, table: reader.u64()?, number: reader.u64()? };
        let payload_hash = reader.u64()?;
        let hash = reader.u64()?;
        if hashed != Some(hash) {
            return reader.malformed("the checksum of the header is another");
        }
        if format > kind.format() {
            return Ok((None, format));
        }
        if format == 0 || payload_bytes > PAYLOAD_BYTES_MAX {
            return reader.malformed(format!("format {format} with {payload_bytes} bytes"));
        }
        Ok((Some(Self { identity, format, payload_bytes, payload_hash, hash }), format))
    }

    /// Fails if the payload's length or hash is not that of the header.
    pub(crate) fn check_payload(&self, payload: &[u8], path: &str) -> Result<()> {
        let damaged = |reason: String| Damage { path: path.to_owned(), reason, ..Damage::default() };
        if payload.len() != self.payload_bytes {
            let reason = format!("{} bytes behind the header, not {}", payload.len(), self.payload_bytes);
            return Err(damaged(reason).into());
        }
        if xxh3_64(payload) != self.payload_hash {
            return Err(damaged("the checksum is another".to_owned()).into());
        }
        Ok(())
    }

    /// Fails if the header belongs to another file.
    pub(crate) fn check_identity(&self, expected: Identity, path: &str) -> Result<()> {
        if self.identity == expected {
            return Ok(());
        }
        let reason = if self.identity.database != expected.database {
            "it belongs to another database".to_owned()
        } else {
            let Identity { table, number, .. } = self.identity;
            format!("it is file {number} of table {table}")
        };
        Err(Damage { path: path.to_owned(), reason, ..Damage::default() }.into())
    }
}

/// The header and the payload of a file that has nothing else.
pub(crate) fn open<'a>(kind: FileKind, bytes: &'a [u8], path: &str) -> Result<(Header, &'a [u8])> {
    let header = Header::read(kind, bytes, path)?;
    let payload = &bytes[HEADER_BYTES..];
    header.check_payload(payload, path)?;
    Ok((header, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greater_format_is_no_damage_whatever_else_it_says() {
        let identity = Identity { database: [7; 16], table: 1, number: 2 };
        let (mut file, _) = file(FileKind::Commit, identity, b"payload");
        file[8..16].copy_from_slice(&[2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(
            matches!(open(FileKind::Commit, &file, "x"), Err(Error::Damaged(_))),
            "the hash is the old one"
        );
        let hash = xxh3_64(&file[..HASHED_BYTES]).to_le_bytes();
        file[HASHED_BYTES..HEADER_BYTES].copy_from_slice(&hash);
        let newer = open(FileKind::Commit, &file, "x");
        assert!(matches!(newer, Err(Error::Newer { found: 2, known: 1, .. })), "{newer:?}");
    }

    #[test]
    fn every_changed_bit_of_a_file_is_found() {
        let identity = Identity { database: [7; 16], table: 1, number: 2 };
        let (file, hash) = file(FileKind::Deletions, identity, b"payload");
        let (header, payload) = open(FileKind::Deletions, &file, "x").unwrap();
        assert_eq!((header.identity, header.hash, payload), (identity, hash, &b"payload"[..]));
        for bit in 0..file.len() * 8 {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(open(FileKind::Deletions, &changed, "x").is_err(), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(open(FileKind::Deletions, &file[..length], "x").is_err(), "{length} bytes");
        }
        assert!(open(FileKind::Commit, &file, "x").is_err());
    }
}
