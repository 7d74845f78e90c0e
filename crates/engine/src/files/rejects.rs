//! The lines that `ignore_errors` kept out of an answer, to be looked at afterwards: `system.rejects`.
//!
//! A statement that reads a file replaces what earlier statements left out of it; a file that one statement
//! reads twice is listed once. Memory is bounded: of each file the first lines are kept, until all files
//! together have as many as there may be, and of the rest the number is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;

use crate::pool::FairPool;

/// Lines kept, of all files together.
const KEPT_MAX: usize = 100_000;
/// Bytes of their texts, at most, and of the memory that there is: one in so many.
const KEPT_BYTES_MAX: usize = 64 << 20;
const MEMORY_SHARE: usize = 16;
/// Bytes of one text that are kept.
const TEXT_BYTES_MAX: usize = 1024;

/// A line that could not be read as a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reject {
    /// Where it begins in the file.
    pub(crate) byte_offset: u64,
    /// From 1; a quoted value may span lines, this is its first.
    pub(crate) line: u64,
    /// The column whose value is bad, if it is one column's fault.
    pub(crate) column: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) message: String,
    /// The line as it stands in the file, cut when long.
    pub(crate) text: String,
}

/// The rejects of a session.
#[derive(Debug, Default)]
pub(crate) struct Rejects {
    kept: Mutex<Kept>,
    statement_count: AtomicU64,
    /// The memory that there is, if it is limited.
    pool: Option<Arc<FairPool>>,
}

#[derive(Debug, Default)]
struct Kept {
    files: BTreeMap<Arc<str>, FileRejects>,
    lines: usize,
    bytes: usize,
}

/// What one statement left out of one file.
#[derive(Debug)]
struct FileRejects {
    statement: u64,
    /// By their offset.
    lines: BTreeMap<u64, Reject>,
    line_count: u64,
}

/// Where the readers of one statement put what they leave out.
#[derive(Debug)]
pub(crate) struct StatementRejects {
    session: Arc<Rejects>,
    statement: u64,
}

/// Where one reading of a file puts what it leaves out.
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

    /// For a statement that begins.
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

    /// All of them as a table, in the order of files and lines; a file with more lines than are kept ends with
    /// a row without line that says how many more.
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
    /// For a reading of `file` that begins. What earlier statements left out of it is forgotten.
    pub(crate) fn of_file(self: &Arc<Self>, file: &Arc<str>) -> RejectsOfFile {
        let mut kept = self.session.kept.lock();
        if kept.files.get(file).is_some_and(|rejects| rejects.statement < self.statement) {
            kept.forget(file);
        }
        RejectsOfFile { of: self.clone(), file: file.clone(), line_count: AtomicU64::new(0) }
    }
}

impl RejectsOfFile {
    /// Keeps `rejects`, the first of `count` that were found.
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

    /// Keeps one more line, or of all lines of its file the first ones.
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
    /// Says how many lines are not kept; nothing if all are.
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

    /// The lines as `file:line`, and what the rows without line say.
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
        // Read twice by one statement.
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
