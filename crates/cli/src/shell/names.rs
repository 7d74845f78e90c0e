//! The names that completion offers: tables and their columns, functions, columns of files.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keirin::Session;
use keirin::arrow::array::RecordBatch;
use tokio::runtime::Runtime;

use crate::render::Cells;

/// How long a completion may take.
const PATIENCE: Duration = Duration::from_millis(1000);
/// The most files whose columns are cached.
const FILES_MAX: usize = 100;

pub(crate) struct Names {
    runtime: Arc<Runtime>,
    session: Session,
    /// Tables and views with their columns, in order.
    pub(crate) tables: Vec<(String, Vec<String>)>,
    pub(crate) functions: Vec<String>,
    files: HashMap<String, Vec<String>>,
}

impl Names {
    pub(crate) fn new(runtime: Arc<Runtime>, session: Session) -> Self {
        let mut names =
            Self { runtime, session, tables: Vec::new(), functions: Vec::new(), files: HashMap::new() };
        names.refresh();
        names
    }

    /// Asks the database for its names. Those that do not come in time are not offered.
    pub(crate) fn refresh(&mut self) {
        self.files.clear();
        let rows = self.rows(
            "SELECT table_name, column_name FROM information_schema.columns \
             WHERE table_schema <> 'information_schema' ORDER BY table_name, ordinal_position",
        );
        self.tables.clear();
        for row in rows {
            let [table, column] = row.as_slice() else { continue };
            match self.tables.last_mut() {
                Some((last, columns)) if last == table => columns.push(column.clone()),
                _ => self.tables.push((table.clone(), vec![column.clone()])),
            }
        }
        if self.functions.is_empty() {
            let rows = self.rows("SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY 1");
            self.functions = rows.into_iter().flatten().collect();
        }
    }

    /// The columns of the file that a query names in quotes.
    pub(crate) fn file_columns(&mut self, path: &str) -> Vec<String> {
        if let Some(columns) = self.files.get(path) {
            return columns.clone();
        }
        let sql = format!("SELECT * FROM '{}' LIMIT 0", path.replace('\'', "''"));
        let stream =
            self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.session.sql(&sql)).await });
        let columns: Vec<String> = match stream {
            Ok(Ok(stream)) => stream.schema().fields().iter().map(|field| field.name().clone()).collect(),
            _ => Vec::new(),
        };
        if self.files.len() == FILES_MAX {
            self.files.clear();
        }
        self.files.insert(path.to_owned(), columns.clone());
        columns
    }

    fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let answer = async { self.session.sql(sql).await?.collect().await };
        let answer = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await });
        answer.ok().and_then(Result::ok).unwrap_or_default().iter().flat_map(texts).collect()
    }
}

/// The rows of a batch as text; NULL is empty.
pub(crate) fn texts(batch: &RecordBatch) -> Vec<Vec<String>> {
    let Ok(cells) = Cells::new(batch) else { return Vec::new() };
    let row =
        |row| (0..batch.num_columns()).map(|column| cells.text(row, column).unwrap_or_default()).collect();
    (0..batch.num_rows()).map(row).collect()
}
