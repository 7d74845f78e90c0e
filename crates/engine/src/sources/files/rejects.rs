//! The lines that `ignore_errors` left out of an answer: `system.rejects`.
//!
//! A statement that reads a file replaces the file's rejects of earlier statements; a file that one statement
//! reads twice is listed once. Memory is bounded: of each file the first lines are kept until a limit for all
//! files together is reached; of the others only the number is known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;

use crate::runtime::pool::FairPool;

/// The most lines kept, of all files together.
const KEPT_MAX: usize = 100_000;
/// The most bytes of their texts, and their largest share of the memory limit: 1/16.
const KEPT_BYTES_MAX: usize = 64 << 20;
const MEMORY_SHARE: usize = 16;
/// The most bytes kept of one text.
const TEXT_BYTES_MAX: usize = 1024;

/// A line that could not be read as a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reject {
    /// The offset of the line in the file.
    pub(crate) byte_offset: u64,
    /// The line number, from 1; the first one if a quoted value spans lines.
    pub(crate) line: u64,
    /// The column with the bad value, if it is the fault of one column.
    pub(crate) column: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) message: String,
    /// The line as it is in the file, cut if long.
    pub(crate) text: String,
}

/// The rejects of a session.
#[derive(Debug, Default)]
pub(crate) struct Rejects {
    kept: Mutex<Kept>,
    statement_count: AtomicU64,
    /// The memory pool, if memory is limited.
    pool: Option<Arc<FairPool>>,
}

#[derive(Debug, Default)]
struct Kept {
    files: BTreeMap<Arc<str>, FileRejects>,
    lines: usize,
    bytes: usize,
}

/// The rejects of one statement from one file.
#[derive(Debug)]
struct FileRejects {
    statement: u64,
    /// The kept lines by their offset.
    lines: BTreeMap<u64, Reject>,
    line_count: u64,
}

/// Collects the rejects of one statement.
#[derive(Debug)]
pub(crate) struct StatementRejects {
    session: Arc<Rejects>,
    statement: u64,
}

/// Collects the rejects of one reading of a file.
#[derive(Debug)]
pub(crate) struct RejectsOfFile {
    of: Arc<StatementRejects>,
    file: Arc<str>,
    line_count: AtomicU64,
}

impl Rejects {
    pub(crate) fn new(pool: Arc<FairPool>) -> Self {
        Self { pool: Some(pool), ..Self::default() }
    }

    fn bytes_max(&self) -> usize {
        self.pool
            .as_ref()
            .map_or(KEPT_BYTES_MAX, |pool| KEPT_BYTES_MAX.min(pool.limit_bytes() / MEMORY_SHARE))
    }

    /// Begins the rejects of a new statement.
    pub(crate) fn statement(self: &Arc<Self>) -> Arc<StatementRejects> {
        let statement = self.statement_count.fetch_add(1, Ordering::Relaxed);
        Arc::new(StatementRejects { session: self.clone(), statement })
    }

    pub(crate) fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("file", DataType::Utf8, false),
            Field::new("line", DataType::Int64, true),
            Field::new("column_name", DataType::Utf8, true),
            Field::new("value", DataType::Utf8, true),
            Field::new("error", DataType::Utf8, false),
            Field::new("text", DataType::Utf8, true),
        ]))
    }

    /// All rejects as a table, ordered by file and line; a file with more lines than are kept ends with a row
    /// without a line number that says how many more there are.
    pub(crate) fn batch(&self) -> RecordBatch {
        let kept = self.kept.lock();
        let rests: Vec<String> = kept.files.values().map(FileRejects::rest).collect();
        let rows = || {
            kept.files.iter().zip(&rests).flat_map(|((file, rejects), rest)| {
                let lines = rejects.lines.values().map(move |reject| (file, Some(reject), &reject.message));
                lines.chain((!rest.is_empty()).then_some((file, None, rest)))
            })
        };
        let text = |of: fn(&Reject) -> Option<&str>| -> ArrayRef {
            Arc::new(rows().map(|(_, reject, _)| reject.and_then(of)).collect::<StringArray>())
        };
        let line = |reject: &Reject| i64::try_from(reject.line).unwrap_or(i64::MAX);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows().map(|(file, ..)| Some(file)).collect::<StringArray>()),
            Arc::new(rows().map(|(_, reject, _)| reject.map(line)).collect::<Int64Array>()),
            text(|reject| reject.column.as_deref()),
            text(|reject| reject.value.as_deref()),
            Arc::new(rows().map(|(.., message)| Some(message)).collect::<StringArray>()),
            text(|reject| Some(&reject.text)),
        ];
        RecordBatch::try_new(Self::schema(), columns).expect("columns match the schema above")
    }
}

impl StatementRejects {
    /// Begins a reading of `file`, and forgets the file's rejects of earlier statements.
    pub(crate) fn of_file(self: &Arc<Self>, file: &Arc<str>) -> RejectsOfFile {
        let mut kept = self.session.kept.lock();
        if kept.files.get(file).is_some_and(|rejects| rejects.statement < self.statement) {
            kept.forget(file);
        }
        RejectsOfFile { of: self.clone(), file: file.clone(), line_count: AtomicU64::new(0) }
    }
}

impl RejectsOfFile {
    /// Keeps `rejects`, the first of `count` bad lines.
    pub(crate) fn add(&self, rejects: impl IntoIterator<Item = Reject>, count: u64) {
        let count = self.line_count.fetch_add(count, Ordering::Relaxed) + count;
        if count == 0 {
            return;
        }
        let bytes_max = self.of.session.bytes_max();
        let mut kept = self.of.session.kept.lock();
        let statement = self.of.statement;
        match kept.files.get(&self.file).map(|rejects| rejects.statement) {
            Some(newer) if newer > statement => return,
            Some(same) if same == statement => {}
            _ => {
                kept.forget(&self.file);
                let none = FileRejects { statement, lines: BTreeMap::new(), line_count: 0 };
                kept.files.insert(self.file.clone(), none);
            }
        }
        for reject in rejects {
            kept.add(&self.file, reject, bytes_max);
        }
        let file = kept.files.get_mut(&self.file).expect("inserted above");
        file.line_count = file.line_count.max(count);
    }
}

impl Kept {
    fn forget(&mut self, file: &str) {
        let Some(rejects) = self.files.remove(file) else { return };
        self.lines -= rejects.lines.len();
        self.bytes -= rejects.lines.values().map(Reject::bytes).sum::<usize>();
    }

    /// Keeps one more line; if that exceeds the limits, drops the last lines of this file.
    fn add(&mut self, file: &str, mut reject: Reject, bytes_max: usize) {
        for text in [&mut reject.text, &mut reject.message] {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        let rejects = self.files.get_mut(file).expect("the caller inserted the file");
        if rejects.lines.contains_key(&reject.byte_offset) {
            return;
        }
        self.lines += 1;
        self.bytes += reject.bytes();
        rejects.lines.insert(reject.byte_offset, reject);
        while (self.lines > KEPT_MAX || self.bytes > bytes_max)
            && let Some((_, last)) = rejects.lines.pop_last()
        {
            self.lines -= 1;
            self.bytes -= last.bytes();
        }
    }
}

impl FileRejects {
    /// Says how many lines are not kept; empty if all are.
    fn rest(&self) -> String {
        match self.line_count - (self.lines.len() as u64).min(self.line_count) {
            0 => String::new(),
            1 => "1 more line was left out".to_owned(),
            more => format!("{more} more lines were left out"),
        }
    }
}

impl Reject {
    fn bytes(&self) -> usize {
        let shorter =
            self.column.as_ref().map_or(0, String::len) + self.value.as_ref().map_or(0, String::len);
        self.text.len() + self.message.len() + shorter
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn reject(line: u64) -> Reject {
        let text = "ä".repeat(TEXT_BYTES_MAX);
        let column = Some("a".into());
        Reject { byte_offset: 10 * line, line, column, value: None, message: "bad".into(), text }
    }

    /// The kept lines as `file:line`, and the messages of rows without a line number.
    fn listed(rejects: &Rejects) -> (Vec<String>, Vec<String>) {
        let batch = rejects.batch();
        let (files, lines) =
            (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
        let errors = batch.column(4).as_string::<i32>();
        let (kept, rest): (Vec<_>, Vec<_>) = (0..batch.num_rows()).partition(|row| lines.is_valid(*row));
        (
            kept.into_iter().map(|row| format!("{}:{}", files.value(row), lines.value(row))).collect(),
            rest.into_iter().map(|row| format!("{}: {}", files.value(row), errors.value(row))).collect(),
        )
    }

    #[test]
    fn the_first_lines_are_kept_and_the_rest_is_counted() {
        let rejects = Arc::<Rejects>::default();
        let file = rejects.statement().of_file(&"x.csv".into());
        let count = 2 * KEPT_BYTES_MAX as u64 / TEXT_BYTES_MAX as u64;
        file.add((count / 2..count).map(reject), count / 2);
        file.add((0..count / 2).map(reject), count / 2);
        let (lines, rest) = listed(&rejects);
        assert!(lines.len() <= KEPT_BYTES_MAX / TEXT_BYTES_MAX);
        assert_eq!(lines.first().unwrap(), "x.csv:0");
        assert_eq!(*lines.last().unwrap(), format!("x.csv:{}", lines.len() - 1));
        assert_eq!(rest, [format!("x.csv: {} more lines were left out", count - lines.len() as u64)]);

        let short = |line| Reject { text: String::new(), ..reject(line) };
        rejects
            .statement()
            .of_file(&"x.csv".into())
            .add((0..=KEPT_MAX as u64).map(short), KEPT_MAX as u64 + 1);
        let (lines, rest) = listed(&rejects);
        assert_eq!(lines.len(), KEPT_MAX);
        assert_eq!(rest, ["x.csv: 1 more line was left out"]);
    }

    #[test]
    fn a_statement_replaces_the_lines_of_the_files_it_reads() {
        let rejects = Arc::<Rejects>::default();
        let check = |expected: &[&str]| assert_eq!(listed(&rejects), (to_owned(expected), Vec::new()));
        let (first, second) = (rejects.statement(), rejects.statement());
        let (x, y) = ("x.csv".into(), "y.csv".into());
        let early = first.of_file(&x);
        early.add([reject(1), reject(2)], 2);
        first.of_file(&y).add([reject(3)], 1);
        // One statement reads the file a second time.
        first.of_file(&x).add([reject(2), reject(1)], 2);
        check(&["x.csv:1", "x.csv:2", "y.csv:3"]);
        let later = second.of_file(&x);
        check(&["y.csv:3"]);
        later.add([reject(7)], 1);
        early.add([reject(4)], 1);
        check(&["x.csv:7", "y.csv:3"]);
    }

    fn to_owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }
}
