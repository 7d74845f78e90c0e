//! SQLite's own suites: `select1` to `select5` and `evidence`, some 11,000 queries and statements.
//!
//! Of the long files only a sample of the queries runs, because planning is slow in unoptimised builds;
//! `KEIRIN_SQLITE_ALL=1` runs them all. `sqlite_differences.txt` counts the records that differ,
//! with a reason; the test fails as much when fewer differ as when more do.

use std::path::PathBuf;
use std::time::Instant;

use crate::common::{InProcess, failure};
use async_trait::async_trait;
use keirin::arrow::array::{Array, ArrayRef, AsArray};
use keirin::arrow::compute::cast;
use keirin::arrow::datatypes::{DataType, Float64Type, Int64Type};
use keirin::arrow::error::ArrowError;
use keirin::{Database, StatementKind};
use keirin_testkit::data;
use keirin_testkit::slt::{Answer, ColumnType, Connection, Failure, Style, for_each_parallel, run_file};

/// The files that are long, the longest first so that the threads end together: one query in so many.
const SAMPLES: [(&str, usize); 5] = [
    ("select5.test", 16),
    ("select4.test", 8),
    ("select3.test", 4),
    ("select2.test", 2),
    ("select1.test", 1),
];

const KNOWN_DIFFERENCES: &str = include_str!("sqlite_differences.txt");

/// Spells values as SQLite's test program does: `%d`, `%.3f`, booleans as numbers.
struct AsSqlite(InProcess);

#[async_trait]
impl Connection for AsSqlite {
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let stream = self.0.0.sql(sql).await.map_err(failure)?;
        let (schema, kind) = (stream.schema(), stream.kind());
        let batches = stream.collect().await.map_err(failure)?;
        if kind != StatementKind::Rows {
            return Ok(Answer::Count(0));
        }
        let mut rows = Vec::new();
        for batch in &batches {
            let columns = batch.columns().iter().map(spell).collect::<Result<Vec<_>, _>>();
            let columns = columns.map_err(|error| Failure { message: error.to_string(), sqlstate: None })?;
            rows.extend(
                (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()),
            );
        }
        Ok(Answer::Rows { types: vec![ColumnType::ANY; schema.fields().len()], rows })
    }
}

fn spell(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    let wanted = match column.data_type() {
        DataType::Boolean => DataType::Int64,
        other if other.is_integer() => DataType::Int64,
        other if other.is_numeric() => DataType::Float64,
        _ => DataType::Utf8,
    };
    let column = cast(column, &wanted)?;
    let text = |row: usize| {
        if column.is_null(row) {
            return "NULL".to_owned();
        }
        match wanted {
            DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
            DataType::Float64 => format!("{:.3}", column.as_primitive::<Float64Type>().value(row)),
            _ => match column.as_string::<i32>().value(row) {
                "" => "(empty)".to_owned(),
                other => other.replace(|character: char| !(' '..='~').contains(&character), "@"),
            },
        }
    };
    Ok((0..column.len()).map(text).collect())
}

/// A line of the list: `FILE SAMPLED/ALL ERROR: REASON`.
struct Difference {
    file: &'static str,
    /// Records of the file that fail so, in the sample and in the whole file.
    counts: [usize; 2],
    /// A part of the error.
    error: &'static str,
    reason: &'static str,
}

fn known_differences() -> Vec<Difference> {
    let lines = KNOWN_DIFFERENCES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &'static str| -> Option<Difference> {
        let (file, rest) = line.split_once(' ')?;
        let (counts, rest) = rest.split_once(' ')?;
        let (sampled, all) = counts.split_once('/')?;
        let (error, reason) = rest.split_once(": ")?;
        Some(Difference { file, counts: [sampled.parse().ok()?, all.parse().ok()?], error, reason })
    };
    lines
        .map(|line| parse(line).unwrap_or_else(|| panic!("not FILE SAMPLED/ALL ERROR: REASON: {line}")))
        .collect()
}

#[test]
fn sqlites_suites_differ_where_we_say() {
    let Some(pack) = data::pack("sqllogictest_sqlite") else { return };
    let all = std::env::var_os("KEIRIN_SQLITE_ALL").is_some();
    let root = pack.join("sqllogictest/sqlite");
    let mut files: Vec<PathBuf> = SAMPLES.iter().map(|(name, _)| root.join(name)).collect();
    let evidence = std::fs::read_dir(root.join("evidence")).expect("the pack has evidence");
    files.extend(evidence.map(|entry| entry.expect("the directory can be read").path()));

    let outcomes = for_each_parallel(&files, |file| {
        let sample = SAMPLES.iter().find(|(name, _)| file.ends_with(name)).map_or(1, |(_, stride)| *stride);
        let style = Style { label: "keirin", sqlite: true, query_stride: if all { 1 } else { sample } };
        let started = Instant::now();
        let database = Database::builder().threads(1).in_memory().expect("a database opens");
        let outcome = run_file(file, style, || Ok(AsSqlite(InProcess(database.session()))));
        println!("{}: {} records, {:.1?}", file.display(), outcome.lines.len(), started.elapsed());
        outcome
    });

    let known = known_differences();
    let mut found = vec![0; known.len()];
    let mut wrong = Vec::new();
    for outcome in &outcomes {
        let file = outcome.path.strip_prefix(&root).expect("files lie in the pack").display().to_string();
        for mismatch in &outcome.mismatches {
            let listed = |known: &Difference| known.file == file && mismatch.text.contains(known.error);
            match known.iter().position(listed) {
                Some(index) => found[index] += 1,
                None => wrong.push(format!("{file}:{} {}", mismatch.line, mismatch.text)),
            }
        }
    }
    for (known, found) in known.iter().zip(found) {
        let expected = known.counts[usize::from(all)];
        if found != expected {
            let Difference { file, error, reason, .. } = known;
            wrong.push(format!(
                "{file}: {found} records fail with '{error}' ({reason}), {expected} are listed"
            ));
        }
    }
    let records: usize = outcomes.iter().map(|outcome| outcome.lines.len()).sum();
    assert!(wrong.is_empty(), "{} of {records} records:\n{}", wrong.len(), wrong.join("\n\n"));
}
