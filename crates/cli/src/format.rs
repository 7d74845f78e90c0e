//! The output formats and their names.

use std::path::Path;
use std::str::FromStr;

use keirin::OutputFormat;

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Csv,
    Tsv,
    Json,
    JsonLines,
    Markdown,
    Vertical,
    Parquet,
    Arrow,
}

/// The names of the formats: the first is ours, the others are sqlite3's, duckdb's and file extensions.
const NAMES: &[(Format, &[&str], &str)] = &[
    (
        Format::Table,
        &["table", "box", "duckbox", "column"],
        "a table to look at; on a terminal it fits the screen",
    ),
    (Format::Csv, &["csv"], "comma-separated values (RFC 4180) with a header"),
    (Format::Tsv, &["tsv", "tabs"], "tab-separated values with a header"),
    (Format::Json, &["json"], "one array of objects"),
    (Format::JsonLines, &["jsonl", "jsonlines", "ndjson"], "one object a line"),
    (Format::Markdown, &["markdown", "md"], "a table for a document"),
    (Format::Vertical, &["vertical", "line"], "one value a line, for wide rows"),
    (Format::Parquet, &["parquet"], "an Apache Parquet file"),
    (Format::Arrow, &["arrow", "ipc"], "an Apache Arrow IPC file"),
];

impl Format {
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(format, ..)| *format == self).map_or("table", |(_, names, _)| names[0])
    }

    /// The name of each format and what it is for.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        NAMES.iter().map(|(_, names, description)| (names[0], *description))
    }

    /// The engine's format, if the engine writes it; the other formats are rendered here.
    pub(crate) fn of_engine(self) -> Option<OutputFormat> {
        match self {
            Self::Table | Self::Markdown | Self::Vertical => None,
            Self::Csv => Some(OutputFormat::Csv),
            Self::Tsv => Some(OutputFormat::Tsv),
            Self::Json => Some(OutputFormat::Json),
            Self::JsonLines => Some(OutputFormat::JsonLines),
            Self::Parquet => Some(OutputFormat::Parquet),
            Self::Arrow => Some(OutputFormat::Arrow),
        }
    }

    /// Whether the format is binary and would garble a terminal.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }

    /// The format by a file's extension: `out.parquet`, `out.csv.gz`, `out.md`.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        let name = path.to_str()?;
        let of_engine = OutputFormat::from_path(name).and_then(|format| format.name().parse().ok());
        of_engine.or_else(|| path.extension()?.to_str()?.parse().ok())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.to_ascii_lowercase();
        NAMES
            .iter()
            .find(|(_, names, _)| names.contains(&wanted.as_str()))
            .map(|(format, ..)| *format)
            .ok_or_else(|| {
                let names: Vec<&str> = Self::all().map(|(name, _)| name).collect();
                format!("there is no format '{text}'; there are {}", names.join(", "))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_names_that_people_know() {
        let check = |name: &str, expected| assert_eq!(name.parse().ok(), expected, "{name}");
        check("CSV", Some(Format::Csv));
        check("ndjson", Some(Format::JsonLines));
        check("line", Some(Format::Vertical));
        check("xml", None);
        assert!("xml".parse::<Format>().unwrap_err().contains("there are table, csv, tsv"));
        for (name, _) in Format::all() {
            let format: Format = name.parse().unwrap();
            assert_eq!(format.name(), name);
            assert!(format.of_engine().is_none_or(|of_engine| of_engine.name() == name), "{name}");
        }
    }

    #[test]
    fn a_file_name_tells_the_format() {
        let check = |name: &str, expected| assert_eq!(Format::of_file(Path::new(name)), expected, "{name}");
        check("a/b.parquet", Some(Format::Parquet));
        check("b.csv.gz", Some(Format::Csv));
        check("b.md", Some(Format::Markdown));
        check("b.txt", None);
        check("csv", None);
    }
}
