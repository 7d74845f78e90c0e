//! Resolves the user's paths to a list of files: one file, a glob, a directory, or several of those.
//!
//! The list is sorted, so that answers do not depend on the order in which the system lists directories.
//! Globs do not match marks, checksums and notes of other programs (`_SUCCESS`, `x.crc`, `README.md`). Below
//! a directory, names that begin with `.` or `_` are skipped (`_delta_log`, `_SUCCESS`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use tempfile::TempPath;

use super::failure::io_failed;
use super::format::{EXTENSIONS, FileFormat};
use super::pipes;
use super::remote::{RemoteFile, RemoteFiles, is_remote, path_of};
use crate::error::{Error, ErrorKind, Result};
use crate::sources::remote::without_secrets;
use crate::sql::text::nearest;

/// A file to read.
#[derive(Clone, Debug)]
pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    /// The path as messages and the column `filename` show it.
    pub(crate) name: Arc<str>,
    pub(crate) size_bytes: u64,
    /// When its contents or its name last changed, as far as the system tells.
    pub(crate) changed: SystemTime,
    /// The temporary copy of a pipe's bytes, or of a file that a server gives only whole; removed with its last reader.
    pub(crate) temporary: Option<Arc<TempPath>>,
    /// Where its bytes are if they are not here: then `path` is its URL, and `changed` stands for its contents.
    pub(crate) remote: Option<RemoteFile>,
}

/// The directory for copies of pipes, and a flag that stops copying.
pub(crate) struct Spool<'s> {
    pub(crate) directory: &'s Path,
    pub(crate) stop: &'s Arc<AtomicBool>,
}

/// The files that `paths` resolve to, and their common format, which is `format` if the user gave it.
///
/// # Errors
/// [`ErrorKind::NotFound`] when a path, glob or directory has no file, with the names that exist instead;
/// [`ErrorKind::Invalid`] when the format is unknown, or files have several.
pub(crate) fn resolve(
    paths: &[String],
    format: Option<FileFormat>,
    spool: &Spool<'_>,
    remote: &Arc<RemoteFiles>,
) -> Result<(FileFormat, Vec<DataFile>)> {
    let urls: Vec<String> = paths.iter().filter(|path| is_remote(path)).cloned().collect();
    let mut found = if urls.is_empty() { Vec::new() } else { remote.find(urls, format, spool)? }.into_iter();
    let mut files = Vec::new();
    for path in paths {
        match is_remote(path) {
            true => files.extend(found.next().into_iter().flatten()),
            false => find(path, format, spool, &mut files)?,
        }
    }
    if files.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "no file is given"));
    }
    let format = match format {
        Some(format) => format,
        None => common_format(&files)?,
    };
    Ok((format, files))
}

/// Whether a table name in SQL means a file rather than a table.
pub(crate) fn looks_like_file(name: &str) -> bool {
    FileFormat::of_name(name).is_some()
        || name.contains(['/', '*', '?', '['])
        || (!name.is_empty() && Path::new(name).exists())
}

/// Adds the files of one path.
fn find(
    written: &str,
    format: Option<FileFormat>,
    spool: &Spool<'_>,
    files: &mut Vec<DataFile>,
) -> Result<()> {
    let local = local_path(written)?;
    let path = Path::new(&local);
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => find_below(path, written, format, files),
        Ok(metadata) if pipes::is_pipe(path, metadata.file_type()) => {
            files.push(pipes::spool(path, spool.directory, spool.stop)?);
            Ok(())
        }
        Ok(metadata) if !metadata.is_file() => {
            Err(Error::new(ErrorKind::Unsupported, format!("cannot read '{written}': it is a device"))
                .with_hint("write it to a file first"))
        }
        Ok(metadata) => {
            files.push(data_file(path.to_owned(), &metadata));
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if local.contains(['*', '?', '[']) {
                find_matches(&local, written, format, files)
            } else {
                Err(not_found(path, written))
            }
        }
        Err(error) => Err(io_failed("read", written, &error)),
    }
}

fn data_file(path: PathBuf, metadata: &fs::Metadata) -> DataFile {
    DataFile {
        name: path.to_string_lossy().into(),
        size_bytes: metadata.len(),
        changed: changed(metadata),
        temporary: None,
        remote: None,
        path,
    }
}

/// The time of modification may be set at will, and copies keep it; that of a change may not.
#[cfg(unix)]
fn changed(metadata: &fs::Metadata) -> SystemTime {
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(not(unix))]
fn changed(metadata: &fs::Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// `written` as a path of this machine: without `file://`, with the home directory for `~`.
pub(crate) fn local_path(written: &str) -> Result<String> {
    if written.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file://")) {
        let rest = &written[7..];
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        return percent_decoded(path)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("malformed URL '{written}'")));
    }
    if let Some(rest) = written.strip_prefix("~/")
        && let Some(home) = std::env::home_dir()
    {
        return Ok(home.join(rest).to_string_lossy().into_owned());
    }
    if let Some((scheme, _)) = written.split_once("://") {
        let shown = without_secrets(written);
        let message = format!("'{shown}': '{scheme}' is not supported here, only local files are");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if written.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "the file name is empty"));
    }
    Ok(written.to_owned())
}

/// Decodes `%41` (RFC 3986, section 2.1).
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Adds the data files below a directory: of all formats, or of the requested one.
fn find_below(
    directory: &Path,
    written: &str,
    format: Option<FileFormat>,
    files: &mut Vec<DataFile>,
) -> Result<()> {
    let before = files.len();
    let mut others = Vec::new();
    walk(directory, format, files, &mut others)?;
    files[before..].sort_by(|a, b| a.path.cmp(&b.path));
    if files.len() > before {
        return Ok(());
    }
    let wanted = format.map_or("data", FileFormat::name);
    let error = Error::new(ErrorKind::NotFound, format!("directory '{written}' has no {wanted} files"));
    Err(if others.is_empty() {
        error.with_detail("it is empty, or all names in it begin with '.' or '_'")
    } else {
        others.sort();
        error.with_detail(format!("it has {}", listed(&others))).with_hint(
            "files are found by their extension; name files of other names one by one or by a glob",
        )
    })
}

/// Symbolic links are followed; a chain of directories longer than this is a loop.
const DEPTH_MAX: usize = 64;

fn walk(
    directory: &Path,
    format: Option<FileFormat>,
    files: &mut Vec<DataFile>,
    others: &mut Vec<String>,
) -> Result<()> {
    let mut pending = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        let failed = |error: std::io::Error| io_failed("list", &directory.to_string_lossy(), &error);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(['.', '_']) {
                continue;
            }
            // A broken link is no data file.
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            if metadata.is_dir() {
                if depth == DEPTH_MAX {
                    let message = format!("directory '{}' is too deep or a loop", directory.display());
                    return Err(Error::new(ErrorKind::Io, message));
                }
                pending.push((entry.path(), depth + 1));
                continue;
            }
            match FileFormat::of_name(&name) {
                Some(found) if format.is_none_or(|format| format == found) => {
                    files.push(data_file(entry.path(), &metadata));
                }
                _ => others.push(name),
            }
        }
    }
    Ok(())
}

/// Whether a name shows that the file holds no rows: marks and checksums of other programs, notes for people.
pub(super) fn is_no_data(name: &str) -> bool {
    let lower = name.to_lowercase();
    name.starts_with('_')
        || ["readme", "license"].iter().any(|stem| lower.split('.').next() == Some(stem))
        || [".crc", ".md"].iter().any(|extension| lower.ends_with(extension))
}

/// Adds the files that match a glob, or the directories if no file matches.
fn find_matches(
    pattern: &str,
    written: &str,
    format: Option<FileFormat>,
    files: &mut Vec<DataFile>,
) -> Result<()> {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let matches = glob::glob_with(pattern, options).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("malformed glob '{written}': {}", error.msg))
    })?;
    let (mut directories, before) = (Vec::new(), files.len());
    for path in matches {
        let path = path.map_err(|error| io_failed("list", &error.path().to_string_lossy(), error.error()))?;
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let is_data = path.file_name().is_none_or(|name| !is_no_data(&name.to_string_lossy()));
        if metadata.is_dir() {
            directories.push(path);
        } else if is_data {
            files.push(data_file(path, &metadata));
        }
    }
    if files.len() == before && !pattern.contains("**") {
        for directory in &directories {
            let mut others = Vec::new();
            walk(directory, format, files, &mut others)?;
        }
    }
    files[before..].sort_by(|a, b| a.path.cmp(&b.path));
    if files.len() == before {
        let error = Error::new(ErrorKind::NotFound, format!("no file matches '{written}'"));
        let fixed = pattern.split(['*', '?', '[']).next().unwrap_or_default();
        let directory = fixed.rsplit_once('/').map_or(".", |(directory, _)| directory);
        let directory = if directory.is_empty() { "/" } else { directory };
        return Err(match names_in(Path::new(directory)) {
            None => error.with_detail(format!("directory '{directory}' does not exist")),
            Some(names) if names.is_empty() => error.with_detail(format!("directory '{directory}' is empty")),
            Some(names) => error.with_detail(format!("directory '{directory}' has {}", listed(&names))),
        });
    }
    Ok(())
}

fn not_found(path: &Path, written: &str) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("no such file: '{written}'"));
    // The topmost component that does not exist is probably the mistyped one.
    let mut missing = path;
    while let Some(parent) = missing.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        if parent.exists() {
            break;
        }
        missing = parent;
    }
    let directory = missing.parent().filter(|parent| !parent.as_os_str().is_empty());
    let names = names_in(directory.unwrap_or(Path::new("."))).unwrap_or_default();
    let name = missing.file_name().unwrap_or_default().to_string_lossy();
    let error = if missing == path {
        error
    } else {
        error.with_detail(format!("directory '{}' does not exist", missing.display()))
    };
    match nearest(&name, names.iter().map(String::as_str)) {
        Some(similar) => {
            let mut meant = directory.map_or_else(PathBuf::new, Path::to_owned).join(similar);
            if let Ok(rest) = path.strip_prefix(missing)
                && !rest.as_os_str().is_empty()
            {
                meant.push(rest);
            }
            error.with_hint(format!("did you mean '{}'?", meant.display()))
        }
        None => error,
    }
}

/// The visible names in a directory, sorted; `None` if it cannot be listed.
fn names_in(directory: &Path) -> Option<Vec<String>> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    Some(names)
}

/// The most names that a message lists before it gives the number of the others.
const NAMES_LISTED: usize = 5;

pub(super) fn listed(names: &[String]) -> String {
    let mut text =
        names.iter().take(NAMES_LISTED).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_LISTED {
        text.push_str(&format!(" and {} more", names.len() - NAMES_LISTED));
    }
    text
}

fn common_format(files: &[DataFile]) -> Result<FileFormat> {
    // For each format the number of files, and the first file.
    let mut formats: BTreeMap<Option<FileFormat>, (usize, &DataFile)> = BTreeMap::new();
    for file in files {
        let is_foreign = file.temporary.is_some() || file.remote.is_some();
        let named = FileFormat::of_name(&path_of(&file.name).to_string_lossy());
        let format = match named {
            Some(format) => Some(format),
            None => FileFormat::of_content(file)?.or_else(|| is_foreign.then(|| FileFormat::of_text(file))),
        };
        formats.entry(format).or_insert((0, file)).0 += 1;
    }
    let mut found = formats.iter();
    match (found.next(), found.next()) {
        (Some((Some(format), _)), None) => Ok(*format),
        (Some((None, (_, file))), None) => Err(unknown_format(file)),
        _ => {
            let counts: Vec<_> = formats
                .iter()
                .map(|(format, (count, file))| {
                    format!(
                        "{count} {} ('{}')",
                        format.map_or("of unknown format", FileFormat::name),
                        file.name
                    )
                })
                .collect();
            let globs: Vec<_> = formats
                .values()
                .filter_map(|(_, file)| Some(format!("'*.{}'", file.name.rsplit_once('.')?.1)))
                .filter(|glob| !glob.contains('/'))
                .collect();
            Err(Error::new(ErrorKind::Invalid, "the files have different formats")
                .with_detail(counts.join(", "))
                .with_hint(format!("pick those of one format with a glob, such as {}", globs.join(" or "))))
        }
    }
}

fn unknown_format(file: &DataFile) -> Error {
    let error = Error::new(ErrorKind::Invalid, format!("cannot tell the format of file '{}'", file.name));
    if file.size_bytes == 0 {
        return error.with_detail("it is empty");
    }
    let extensions: Vec<_> = EXTENSIONS.iter().map(|(extension, _)| format!(".{extension}")).collect();
    error
        .with_detail(format!("known extensions are {} (text also with .gz or .zst)", extensions.join(" ")))
        .with_hint(format!(
            "name the format: read_csv('{0}'), read_json('{0}'), read_parquet('{0}') or read_arrow('{0}')",
            file.name
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::remote::CacheOptions;

    fn directory(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        directory
    }

    fn resolve_here(path: &str) -> Result<(FileFormat, Vec<DataFile>)> {
        let spool = Spool { directory: &std::env::temp_dir(), stop: &Arc::default() };
        resolve(&[path.to_owned()], None, &spool, &Arc::new(RemoteFiles::new(CacheOptions::default())))
    }

    fn found(directory: &Path, path: &str) -> Result<Vec<String>> {
        let (_, files) = resolve_here(&directory.join(path).to_string_lossy())?;
        Ok(files
            .iter()
            .map(|file| file.path.strip_prefix(directory).unwrap().to_string_lossy().into_owned())
            .collect())
    }

    #[test]
    fn paths_globs_and_directories_are_found_in_order() {
        let names = [
            "b.csv",
            "a.csv",
            "d/2.csv",
            "d/1.csv",
            "d/_x/3.csv",
            "d/.y.csv",
            "d/notes.txt",
            "d/e/4.csv",
            "f/a.csv",
            "f/a.csv.crc",
            "f/README",
            "f/_SUCCESS",
            "f/notes.md",
            "f/.x",
        ];
        let directory = directory(&names);
        let check = |path: &str, expected: &[&str]| {
            assert_eq!(found(directory.path(), path).unwrap(), expected, "{path}");
        };
        check("a.csv", &["a.csv"]);
        check("*.csv", &["a.csv", "b.csv"]);
        check("[b-c].csv", &["b.csv"]);
        check("?.csv", &["a.csv", "b.csv"]);
        check("d", &["d/1.csv", "d/2.csv", "d/e/4.csv"]);
        check("d*", &["d/1.csv", "d/2.csv", "d/e/4.csv"]);
        check("f/*", &["f/a.csv"]);
        check("**/*.csv", &["a.csv", "b.csv", "d/1.csv", "d/2.csv", "d/_x/3.csv", "d/e/4.csv", "f/a.csv"]);
    }

    #[test]
    fn what_is_not_there_is_explained() {
        let directory =
            directory(&["trips.csv", "e/readme.md", "m/a.csv", "m/b.json", "data", "n/a.csv", "n/x.txt"]);
        fs::create_dir(directory.path().join("empty")).unwrap();
        let check = |path: &str, message: &str, more: &str| {
            let error = found(directory.path(), path).unwrap_err();
            assert!(error.message().contains(message), "{path}: {error}");
            let rest = format!("{:?} {:?}", error.detail(), error.hint());
            assert!(rest.contains(more), "{path}: {rest}");
        };
        check("trip.csv", "no such file", "trips.csv'?");
        check("mm/a.csv", "no such file", "does not exist");
        check("x*.csv", "no file matches", "has 'data', 'e'");
        check("empty", "has no data files", "it is empty");
        check("e", "has no data files", "'readme.md'");
        check("m", "different formats", "1 CSV");
        check("m/*", "different formats", "'*.csv' or '*.json'");
        check("n/*", "different formats", "1 of unknown format ('");
        check("data", "cannot tell the format", "read_csv('");
        let error = resolve_here("ftp://host/x.csv").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn urls_are_decoded() {
        let check = |written: &str, expected: &str| assert_eq!(local_path(written).unwrap(), expected);
        check("file:///tmp/a%20b.csv", "/tmp/a b.csv");
        check("file://localhost/tmp/x", "/tmp/x");
        check("a b.csv", "a b.csv");
        assert!(local_path("file:///tmp/%zz").is_err());
        assert!(local_path("").is_err());
    }
}
