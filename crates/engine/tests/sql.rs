//! Runs the SQL text tests in this process: `tests/sql/` in memory and in a database directory, `tests/stored/`
//! in a directory that stays open and in one that is closed after each statement.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use common::{InProcess, failure};
use keirin::Database;
use keirin_testkit::slt::{Answer, Connection, Failure, Style, run_dir};
use tempfile::TempDir;

const STYLE: Style = Style { label: "keirin", sqlite: false, query_stride: 1 };

fn tests(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

fn directory() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().expect("a directory can be made"))
}

/// Opens a database directory, and closes it, for every statement.
struct Reopened(Arc<TempDir>);

#[async_trait]
impl Connection for Reopened {
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let started = Instant::now();
        let database = loop {
            match Database::builder().threads(2).open(self.0.path()).map_err(failure) {
                // The one of the statement before is closed when its upkeep is done, for which a runtime cannot wait.
                Err(failure) if is_still_open(&failure) && started.elapsed() < Duration::from_secs(60) => {}
                opened => break opened?,
            }
        };
        InProcess(database.session()).run(sql).await
    }
}

fn is_still_open(failure: &Failure) -> bool {
    failure.message.starts_with("another process has database")
}

fn run_in_directory(name: &str) {
    run_dir(&tests(name), STYLE, || {
        let directory = directory();
        let database = Database::builder().threads(2).open(directory.path()).expect("a database opens");
        move || {
            let _is_kept = &directory;
            Ok(Repeated(InProcess(database.session())))
        }
    });
}

/// A session that answers each query from the plan that is kept of it, if one is.
struct Repeated(InProcess);

#[async_trait]
impl Connection for Repeated {
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let answer = self.0.run(sql).await?;
        let is_query = ["select", "with", "from"].iter().any(|word| {
            sql.trim_start().get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word))
        });
        if is_query { self.0.run(sql).await } else { Ok(answer) }
    }
}

#[test]
fn sql_behaves_as_written() {
    run_dir(&tests("sql"), STYLE, || {
        let database = Database::builder().threads(2).in_memory().expect("a database opens");
        move || Ok(InProcess(database.session()))
    });
}

/// A session that runs all on DataFusion's operators.
struct WithoutFastPath(InProcess, bool);

#[async_trait]
impl Connection for WithoutFastPath {
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        if !std::mem::replace(&mut self.1, true) {
            self.0.run("SET keirin.fast_path = off").await?;
        }
        self.0.run(sql).await
    }
}

#[test]
fn sql_behaves_the_same_without_the_fast_path() {
    run_dir(&tests("sql"), STYLE, || {
        let directory = directory();
        let database = Database::builder().threads(2).open(directory.path()).expect("a database opens");
        move || {
            let _is_kept = &directory;
            Ok(WithoutFastPath(InProcess(database.session()), false))
        }
    });
}

#[test]
fn sql_behaves_as_written_in_a_directory() {
    run_in_directory("sql");
}

#[test]
fn stored_tables_behave_as_written() {
    run_in_directory("stored");
}

#[test]
fn stored_tables_are_the_same_when_opened_again() {
    run_dir(&tests("stored"), STYLE, || {
        let directory = directory();
        move || Ok(Reopened(directory.clone()))
    });
}
