//! Files as tables and tables as files, through SQL.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

#[path = "../common/mod.rs"]
mod common;
mod copy;
mod csv;
mod damage;
mod json;
mod listing;
mod old_types;
mod pages;

use std::fs;

use keirin::arrow::array::{Array, RecordBatch};
use keirin::arrow::util::display::array_value_to_string;
use keirin::{Database, ErrorKind, Session};

struct Fixture {
    database: Database,
    session: Session,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let database = Database::builder().threads(3).in_memory().unwrap();
        let session = database.session();
        Self { database, session, directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self.path(name)
    }

    fn try_run(&self, sql: &str) -> keirin::Result<Vec<RecordBatch>> {
        self.database.block_on(async { self.session.sql(sql).await?.collect().await })
    }

    /// The rows of an answer as text, values separated by `|`.
    fn run(&self, sql: &str) -> Vec<String> {
        let batches = self.try_run(sql).unwrap_or_else(|error| panic!("{}", error.report(sql)));
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| line(batch, row))).collect()
    }

    #[track_caller]
    fn check(&self, sql: &str, expected: &[&str]) {
        assert_eq!(self.run(sql), expected, "{sql}");
    }

    /// `sql` fails; the message holds all of `parts`, and so may detail and hint.
    #[track_caller]
    fn check_error(&self, sql: &str, kind: ErrorKind, parts: &[&str]) {
        let error = self.try_run(sql).expect_err(sql);
        let text = error.report("");
        assert_eq!(error.kind(), kind, "{sql}: {text}");
        for part in parts {
            assert!(text.contains(part), "{sql}: {part:?} is not in:\n{text}");
        }
    }

    /// What is in the directory, hidden files included.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn line(batch: &RecordBatch, row: usize) -> String {
    let value = |column: &dyn Array| match column.is_null(row) {
        true => "NULL".to_owned(),
        false => array_value_to_string(column, row).unwrap(),
    };
    batch.columns().iter().map(|column| value(column.as_ref())).collect::<Vec<_>>().join("|")
}
