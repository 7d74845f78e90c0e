//! The lines that `ignore_errors` kept out of an answer, to be looked at afterwards.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;

/// Rejects kept; the oldest go first.
const KEPT_MAX: usize = 100_000;
/// Bytes of a line that are kept.
const LINE_BYTES_MAX: usize = 1024;

/// A line that could not be read as a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reject {
    pub(crate) file: Arc<str>,
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
    kept: Mutex<VecDeque<Reject>>,
}

impl Rejects {
    /// Keeps one more.
    pub(crate) fn add(&self, mut reject: Reject) {
        if reject.text.len() > LINE_BYTES_MAX {
            reject.text.truncate(reject.text.floor_char_boundary(LINE_BYTES_MAX));
        }
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(reject);
    }

    /// Forgets them all.
    #[allow(dead_code, reason = "there is no statement for it yet")]
    pub(crate) fn clear(&self) {
        self.kept.lock().clear();
    }

    pub(crate) fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("file", DataType::Utf8, false),
            Field::new("line", DataType::Int64, false),
            Field::new("column_name", DataType::Utf8, true),
            Field::new("value", DataType::Utf8, true),
            Field::new("error", DataType::Utf8, false),
            Field::new("text", DataType::Utf8, false),
        ]))
    }

    /// All of them as a table.
    pub(crate) fn batch(&self) -> RecordBatch {
        let kept = self.kept.lock();
        let text = |of: fn(&Reject) -> Option<&str>| -> ArrayRef {
            Arc::new(kept.iter().map(of).collect::<StringArray>())
        };
        let lines = kept.iter().map(|reject| i64::try_from(reject.line).unwrap_or(i64::MAX));
        let columns = vec![
            text(|reject| Some(&reject.file)),
            Arc::new(Int64Array::from_iter_values(lines)),
            text(|reject| reject.column.as_deref()),
            text(|reject| reject.value.as_deref()),
            text(|reject| Some(&reject.message)),
            text(|reject| Some(&reject.text)),
        ];
        RecordBatch::try_new(Self::schema(), columns).expect("columns match the schema above")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_are_bounded_and_cleared() {
        let rejects = Rejects::default();
        let reject = Reject {
            file: "x.csv".into(),
            line: 2,
            column: Some("a".into()),
            value: None,
            message: "bad".into(),
            text: "ä".repeat(LINE_BYTES_MAX),
        };
        for line in 0..=KEPT_MAX as u64 {
            rejects.add(Reject { line, ..reject.clone() });
        }
        let batch = rejects.batch();
        assert_eq!(batch.num_rows(), KEPT_MAX);
        assert_eq!(batch.schema(), Rejects::schema());
        rejects.clear();
        assert_eq!(rejects.batch().num_rows(), 0);
    }
}
