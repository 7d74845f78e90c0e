//! ClickBench: the table `hits` and the queries, both from the packs in `KEIRIN_DATA`.
//!
//! Neither may be shipped with the product, so a machine without the packs skips the suite.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::data::Source;
use crate::definition::Case;

/// The primary key of ClickBench's own create.sql.
pub(super) const SORT: &[&str] = &["CounterID", "EventDate", "UserID", "EventTime", "WatchID"];

/// Whose text of the queries an engine reads: its own dialect, or the nearest.
const DIALECTS: [(&str, &str); 5] = [
    ("keirin", "datafusion"),
    ("duckdb", "duckdb"),
    ("clickhouse", "clickhouse"),
    ("polars", "duckdb"),
    ("datafusion", "datafusion"),
];

/// The Parquet file of `hits`: the real rows, or as many as asked for by the maker in the packs.
pub(super) fn file(source: &Source) -> Result<PathBuf, String> {
    if source.hits_rows == 0 {
        return Ok(pack(source)?.join("hits_9580_typed.parquet"));
    }
    let maker = source.packs.join("gen_hits.py");
    if !maker.is_file() {
        return Err(format!("no {}; set KEIRIN_DATA, or --data DIR with hits.parquet", maker.display()));
    }
    source.cached(&format!("hits-{}.parquet", source.hits_rows), |path| {
        let mut command = Command::new(&source.python);
        command
            .arg(&maker)
            .args(["--types", "logical", "--rows", &source.hits_rows.to_string(), "--out"])
            .arg(path);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(format!("gen_hits.py: {status}; it needs numpy and pyarrow (benchmarks/setup)"))
            }
            Err(error) => Err(format!("{}: {error} (benchmarks/setup makes it)", source.python.display())),
        }
    })
}

/// Gives each case the text of its query in each dialect.
///
/// # Errors
/// When the pack is missing or is not what it was.
pub(crate) fn provide_queries(source: &Source, cases: &mut [Case]) -> Result<(), String> {
    let official = pack(source)?.join("official");
    for (engine, dialect) in DIALECTS {
        let path = official.join(dialect).join("queries.sql");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let queries = text.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>();
        if queries.len() != cases.len() {
            return Err(format!("{}: {} queries, expected {}", path.display(), queries.len(), cases.len()));
        }
        for (case, sql) in cases.iter_mut().zip(queries) {
            case.provide(Some(engine), sql);
        }
    }
    Ok(())
}

/// The folder `clickbench`, unpacked into the cache.
fn pack(source: &Source) -> Result<PathBuf, String> {
    let archive = source.packs.join("clickbench.tar.zst");
    if !archive.is_file() {
        return Err(format!("no {}; KEIRIN_DATA says where the packs are", archive.display()));
    }
    source.cached("clickbench", |path| unpack(&archive, path))
}

/// Unpacks a `.tar.zst` whose one folder is named as `path` is.
fn unpack(archive: &Path, path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", archive.display());
    let mut decoder = zstd::Decoder::new(File::open(archive).map_err(failed)?).map_err(failed)?;
    decoder.window_log_max(27).map_err(failed)?;
    let folder = path.parent().expect("a file of the cache");
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "-C"]).arg(folder).stdin(Stdio::piped());
    let mut tar = tar.spawn().map_err(|error| format!("tar: {error}"))?;
    let mut input = tar.stdin.take().expect("it is piped");
    let copied = std::io::copy(&mut decoder, &mut input);
    drop(input);
    let status = tar.wait().map_err(failed)?;
    copied.map_err(failed)?;
    if status.success() && path.is_dir() {
        Ok(())
    } else {
        Err(format!("{}: tar: {status}", archive.display()))
    }
}
