//! Runs SQL text tests: `.slt` files in the sqllogictest format, against any [`Connection`].
//!
//! The format is that of <https://sqlite.org/sqllogictest> with the extensions of crate `sqllogictest`:
//!
//! ```text
//! statement ok                      statement count 3                 statement error no table
//! CREATE TABLE t (a INT)            INSERT INTO t VALUES (1), (2), (3)    SELECT * FROM u
//!
//! query IT rowsort
//! SELECT a, 'x' FROM t
//! ----
//! 1 x
//! ```
//!
//! Every file starts with a fresh database; `connection NAME` before a record opens another session of
//! it. `error` takes a regular expression. After `control substitution on`, `$__TEST_DIR__` is a
//! directory that is removed at the end. The letters after `query` and the text of values are explained
//! at [`ColumnType`] and [`Answer::from_batches`]. All failures of a file are reported, not only the first.
//!
//! `KEIRIN_SLT_FILTER=joins` runs the files whose path contains `joins`; `KEIRIN_SLT_COMPLETE=1` writes the actual
//! answers into the files, for review.

mod answer;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use sqllogictest::{
    AsyncDB, Control, DBOutput, MakeConnection, Normalizer, ParseError, Record, ResultMode, Runner,
    parse_file, parse_with_name, strict_column_validator,
};

pub use answer::{Answer, ColumnType};

/// Unoptimised builds take much stack for deep expressions.
const THREAD_STACK_BYTES: usize = 16 << 20;

/// Why a statement failed, as a test sees it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The whole message for the user, in one line.
    pub message: String,
    /// Five characters, if there is one: `statement error (42P01)` matches it.
    pub sqlstate: Option<String>,
}

/// A session of the database under test.
#[async_trait]
pub trait Connection: Send {
    /// Runs one statement.
    ///
    /// # Errors
    /// The failure that the database reports.
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure>;
}

/// SQLite's suites have a checksum instead of results with more values than this.
const SQLITE_VALUES_MAX: usize = 8;

/// How the records of a file are read.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The name of this database in `onlyif` and `skipif`.
    pub label: &'static str,
    /// Whether records are written as in SQLite's own suites: one value a line, column types only a hint.
    pub sqlite: bool,
    /// Runs only one query in this many; statements always run.
    pub query_stride: usize,
}

/// A record that did not behave as written.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The line at which the record starts.
    pub line: u32,
    /// What was expected, what happened, and the SQL.
    pub text: String,
}

/// The outcome of a file.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The file.
    pub path: PathBuf,
    /// The lines of the statements and queries that ran.
    pub lines: Vec<u32>,
    /// The records that did not behave as written.
    pub mismatches: Vec<Mismatch>,
}

/// Runs every `.slt` file under `directory`, several at a time, and panics with all mismatches.
///
/// `open` makes a fresh database and returns a function that connects to it.
///
/// # Panics
/// When a record does not behave as written, a file cannot be read, or there is no file.
pub fn run_dir<O, M, C>(directory: &Path, style: Style, open: O)
where
    O: Fn() -> M + Sync,
    M: FnMut() -> Result<C, Failure>,
    C: Connection,
{
    let filter = std::env::var("KEIRIN_SLT_FILTER").unwrap_or_default();
    let complete = std::env::var_os("KEIRIN_SLT_COMPLETE").is_some_and(|value| value != "0");
    let mut files = find_files(&directory.canonicalize().unwrap_or_else(|_| directory.to_owned()));
    assert!(!files.is_empty(), "no .slt file under {}", directory.display());
    files.retain(|file| file.to_string_lossy().contains(&filter));
    if complete {
        for_each_parallel(&files, |file| complete_file(file, style, open()));
    }
    let outcomes = for_each_parallel(&files, |file| run_file(file, style, open()));
    let mut report = String::new();
    for outcome in &outcomes {
        for mismatch in &outcome.mismatches {
            let _ = write!(report, "\n{}:{}: {}\n", outcome.path.display(), mismatch.line, mismatch.text);
        }
    }
    let records: usize = outcomes.iter().map(|outcome| outcome.lines.len()).sum();
    let mismatches: usize = outcomes.iter().map(|outcome| outcome.mismatches.len()).sum();
    println!("{} files, {records} records, {mismatches} mismatches", outcomes.len());
    assert!(mismatches == 0, "{mismatches} of {records} records did not behave as written:\n{report}");
}

/// Runs the records of one file against the database that `connect` leads to.
pub fn run_file<M, C>(path: &Path, style: Style, connect: M) -> Outcome
where
    M: FnMut() -> Result<C, Failure>,
    C: Connection,
{
    let mut outcome = Outcome { path: path.to_owned(), lines: Vec::new(), mismatches: Vec::new() };
    let parsed = if style.sqlite { parse_sqlite(path, style.label) } else { parse_file(path) };
    let records = match parsed {
        Ok(records) => records,
        Err(error) => {
            let line = error.location().line();
            outcome.mismatches.push(Mismatch { line, text: error.to_string() });
            return outcome;
        }
    };
    let mut runner = runner(style, connect);
    block_on(async {
        if style.sqlite {
            runner.apply_record(Record::Control(Control::ResultMode(ResultMode::ValueWise))).await;
        }
        let mut queries: usize = 0;
        for record in records {
            match &record {
                Record::Halt { .. } => break,
                Record::Query { loc, .. } => {
                    queries += 1;
                    if !queries.is_multiple_of(style.query_stride.max(1)) {
                        continue;
                    }
                    outcome.lines.push(loc.line());
                }
                Record::Statement { loc, .. } | Record::Let { loc, .. } => outcome.lines.push(loc.line()),
                _ => {}
            }
            if let Err(error) = runner.run_async(record).await {
                let line = error.location().line();
                outcome.mismatches.push(Mismatch { line, text: error.kind().to_string() });
            }
        }
    });
    outcome
}

/// Applies `run` to each file, as many at a time as there are cores; the results are in order.
///
/// # Panics
/// When `run` does.
pub fn for_each_parallel<T: Send>(files: &[PathBuf], run: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some((index, file)) = files.get(next.load(Ordering::Relaxed)).and_then(|_| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            files.get(index).map(|file| (index, file))
        }) {
            let result = run(file);
            results.lock().expect("nobody panics with the lock").push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(files.len()) {
            let thread = std::thread::Builder::new().stack_size(THREAD_STACK_BYTES);
            thread.spawn_scoped(scope, work).expect("a thread can be started");
        }
    });
    let mut results = results.into_inner().expect("nobody panics with the lock");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// SQLite's files have comments after conditions, and conditions on `halt`, which the parser would apply to the
/// next record.
fn parse_sqlite(path: &Path, label: &str) -> Result<Vec<Record<ColumnType>>, ParseError> {
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        let is_condition = line.starts_with("skipif ") || line.starts_with("onlyif ");
        let line = line.split('#').next().filter(|_| is_condition).unwrap_or(line).trim_end();
        if line != "halt" {
            lines.push(line);
            continue;
        }
        let mut applies = true;
        // Replaced by blank lines, to keep the line numbers.
        for condition in lines.iter_mut().rev().take_while(|line| line.contains("if ")) {
            let (word, name) = condition.split_once("if ").unwrap_or_default();
            applies &= (word == "only") == (name == label);
            *condition = "";
        }
        lines.push(if applies { line } else { "" });
    }
    parse_with_name(&lines.join("\n"), path.display().to_string())
}

/// Writes the database's answers into the file.
fn complete_file<M, C>(path: &Path, style: Style, connect: M)
where
    M: FnMut() -> Result<C, Failure>,
    C: Connection,
{
    let mut runner = runner(style, connect);
    let update = runner.update_test_file(path, " ", validator, normalizer(style), strict_column_validator);
    if let Err(error) = block_on(update) {
        panic!("cannot complete {}: {error}", path.display());
    }
}

fn find_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot read directory {}: {error}", directory.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path =
            entry.unwrap_or_else(|error| panic!("cannot read {}: {error}", directory.display())).path();
        if path.is_dir() {
            files.extend(find_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Runs `future` inside a runtime, because connections may need timers and sockets.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

struct Adapter<C> {
    connection: C,
    label: &'static str,
}

#[async_trait]
impl<C: Connection> AsyncDB for Adapter<C> {
    type Error = Failure;
    type ColumnType = ColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<ColumnType>, Failure> {
        Ok(match self.connection.run(sql).await? {
            Answer::Rows { types, rows } => DBOutput::Rows { types, rows },
            Answer::Count(count) => DBOutput::StatementComplete(count),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        self.label
    }

    fn error_sql_state(error: &Failure) -> Option<String> {
        error.sqlstate.clone()
    }
}

fn runner<M, C>(style: Style, mut connect: M) -> Runner<Adapter<C>, impl MakeConnection<Conn = Adapter<C>>>
where
    M: FnMut() -> Result<C, Failure>,
    C: Connection,
{
    let mut runner = Runner::new(move || {
        let connection = connect().map(|connection| Adapter { connection, label: style.label });
        std::future::ready(connection)
    });
    runner.with_normalizer(normalizer(style));
    runner.with_validator(validator);
    if style.sqlite {
        runner.with_hash_threshold(SQLITE_VALUES_MAX);
    } else {
        runner.with_column_validator(columns_agree);
    }
    runner
}

fn normalizer(style: Style) -> Normalizer {
    // Spaces inside values count in our files; SQLite's are laid out more freely.
    if style.sqlite { sqllogictest::default_normalizer } else { |text| text.trim().to_owned() }
}

fn validator(normalizer: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    let actual = actual.iter().map(|row| normalizer(&row.join(" ")));
    actual.eq(expected.iter().map(normalizer))
}

#[expect(clippy::ptr_arg, reason = "the signature of sqllogictest")]
fn columns_agree(actual: &Vec<ColumnType>, expected: &Vec<ColumnType>) -> bool {
    actual.len() == expected.len()
        && actual
            .iter()
            .zip(expected)
            .all(|(actual, expected)| *expected == ColumnType::ANY || actual == expected)
}
