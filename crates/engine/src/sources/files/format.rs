//! File formats, and how they are told from names and contents.

use std::io::Read;
use std::str::FromStr;

use super::decompress::PlainReader;
use super::failure::io_failed;
use super::paths::DataFile;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a text file from which its format is guessed.
const TEXT_BYTES: u64 = 4096;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileFormat {
    Parquet,
    Csv,
    Tsv,
    Json,
    Arrow,
}

/// How a text file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}

/// The formats with their extensions, as messages list them.
pub(crate) const EXTENSIONS: [(&str, FileFormat); 13] = [
    ("parquet", FileFormat::Parquet),
    ("pq", FileFormat::Parquet),
    ("parq", FileFormat::Parquet),
    ("csv", FileFormat::Csv),
    ("tsv", FileFormat::Tsv),
    ("tab", FileFormat::Tsv),
    ("json", FileFormat::Json),
    ("jsonl", FileFormat::Json),
    ("ndjson", FileFormat::Json),
    ("arrow", FileFormat::Arrow),
    ("arrows", FileFormat::Arrow),
    ("feather", FileFormat::Arrow),
    ("ipc", FileFormat::Arrow),
];

impl FileFormat {
    /// The format by the extension of `name`: `x.parquet`, `x.csv.gz`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let (stem, compression) = Compression::split(&name);
        let (rest, extension) = stem.rsplit_once('.')?;
        // ".csv" alone is a hidden file without extension.
        if rest.is_empty() || rest.ends_with('/') {
            return None;
        }
        let (_, format) = EXTENSIONS.iter().find(|(known, _)| *known == extension)?;
        (compression == Compression::None || format.is_text()).then_some(*format)
    }

    /// The format by the first bytes of a file, for names without a known extension.
    ///
    /// # Errors
    /// When a server fails; a file here that cannot be read has none.
    pub(crate) fn of_content(file: &DataFile) -> Result<Option<Self>> {
        let mut magic = [0; 6];
        let read = file.open().and_then(|mut opened| opened.read_exact(&mut magic));
        match read {
            Err(error) if file.remote.is_some() && error.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(io_failed("read", &file.name, &error));
            }
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        Ok(match &magic {
            [b'P', b'A', b'R', b'1', ..] => Some(Self::Parquet),
            b"ARROW1" => Some(Self::Arrow),
            _ => None,
        })
    }

    /// The format of a text file without a known extension: JSON if it begins as an object or a list of
    /// objects, else CSV.
    pub(crate) fn of_text(file: &DataFile) -> Self {
        let mut begin = Vec::new();
        // A file that cannot be read is taken for CSV; reading it then reports the error.
        if let Ok(text) = PlainReader::open(file, None) {
            let _ = text.take(TEXT_BYTES).read_to_end(&mut begin);
        }
        let mut bytes = begin.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&begin).trim_ascii_start();
        if let Some(rest) = bytes.strip_prefix(b"[") {
            bytes = rest.trim_ascii_start();
        }
        if bytes.starts_with(b"{") { Self::Json } else { Self::Csv }
    }

    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Json)
    }

    /// The SQL function that reads the format.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Parquet => "read_parquet",
            Self::Csv => "read_csv",
            Self::Tsv => "read_tsv",
            Self::Json => "read_json",
            Self::Arrow => "read_arrow",
        }
    }

    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Json => "JSON",
            Self::Arrow => "Arrow",
        }
    }
}

impl FromStr for FileFormat {
    type Err = Error;

    /// A format by its name or one of its extensions, as in `COPY t FROM 'x' (FORMAT csv)`.
    fn from_str(name: &str) -> Result<Self> {
        let lower = name.to_lowercase();
        EXTENSIONS.iter().find(|(extension, _)| *extension == lower).map(|(_, format)| *format).ok_or_else(
            || {
                Error::new(ErrorKind::Invalid, format!("there is no file format '{name}'"))
                    .with_hint("formats are parquet, csv, tsv, json and arrow")
            },
        )
    }
}

impl Compression {
    /// `name` without the extension of its compression, and that compression.
    pub(crate) fn split(name: &str) -> (&str, Self) {
        for (extension, compression) in
            [(".gz", Self::Gzip), (".gzip", Self::Gzip), (".zst", Self::Zstd), (".zstd", Self::Zstd)]
        {
            if name.len() > extension.len()
                && name.is_char_boundary(name.len() - extension.len())
                && name[name.len() - extension.len()..].eq_ignore_ascii_case(extension)
            {
                return (&name[..name.len() - extension.len()], compression);
            }
        }
        (name, Self::None)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.to_lowercase().as_str() {
            "none" | "uncompressed" => Some(Self::None),
            "gzip" | "gz" => Some(Self::Gzip),
            "zstd" | "zst" => Some(Self::Zstd),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_formats() {
        let check = |name: &str, expected: Option<FileFormat>| {
            assert_eq!(FileFormat::of_name(name), expected, "{name}");
        };
        check("a.parquet", Some(FileFormat::Parquet));
        check("dir.d/A.PARQUET", Some(FileFormat::Parquet));
        check("a.csv.gz", Some(FileFormat::Csv));
        check("a.tsv.ZST", Some(FileFormat::Tsv));
        check("2015-01-01-0.json.gz", Some(FileFormat::Json));
        check("a.arrow", Some(FileFormat::Arrow));
        check("a.parquet.gz", None);
        check("a.gz", None);
        check(".csv", None);
        check("dir/.csv", None);
        check("parquet", None);
        check("ä.gz", None);
        check("", None);
    }
}
