//! A table in memory: batches behind a lock, paid for from the database's memory pool.
//!
//! A scan takes a snapshot of the list of batches; a write makes its batches first and puts them in
//! at the end, all or none. Writers of one table queue, so that nothing that an UPDATE did not see is
//! lost when it puts the new rows in place of the old.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::StreamExt;
use parking_lot::RwLock;

use super::memory_scan::MemoryScan;

/// Rows of a table and the memory they are booked to.
#[derive(Debug)]
pub(crate) struct Rows {
    batches: Vec<RecordBatch>,
    reservation: MemoryReservation,
}

impl Rows {
    /// No rows yet, to be booked to `pool` under the table's name.
    pub(crate) fn new(table: &str, pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(format!("table {table}")).register(pool);
        Self { batches: Vec::new(), reservation }
    }

    /// Reads `stream` to its end.
    ///
    /// # Errors
    /// Those of the stream, and the pool's when the rows do not fit into memory.
    pub(crate) async fn fill(mut self, mut stream: SendableRecordBatchStream) -> Result<Self> {
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                self.reservation.try_grow(batch.get_array_memory_size())?;
                self.batches.push(batch);
            }
        }
        Ok(self)
    }

    /// Books and keeps `batches` that are there already.
    ///
    /// # Errors
    /// The pool's when they do not fit into memory.
    pub(crate) fn with_batches(mut self, batches: Vec<RecordBatch>) -> Result<Self> {
        self.reservation.try_grow(batches.iter().map(RecordBatch::get_array_memory_size).sum())?;
        self.batches = batches;
        Ok(self)
    }

    /// Puts the rows of `other`, with what they are booked to, behind these.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.batches.append(&mut other.batches);
        let booked = other.reservation.free();
        self.reservation.grow(booked);
    }

    pub(crate) fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// See the [module](self). Clones are the same table.
#[derive(Clone, Debug)]
pub(crate) struct MemoryTable {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    schema: SchemaRef,
    defaults: HashMap<String, Expr>,
    rows: RwLock<Rows>,
    writer: tokio::sync::Mutex<()>,
}

impl MemoryTable {
    pub(crate) fn new(name: &str, schema: SchemaRef, defaults: Vec<(String, Expr)>, rows: Rows) -> Self {
        let defaults = defaults.into_iter().collect();
        let (rows, writer) = (RwLock::new(rows), tokio::sync::Mutex::default());
        Self { shared: Arc::new(Shared { name: name.to_owned(), schema, defaults, rows, writer }) }
    }

    /// Holds off other writers until the guard is dropped.
    pub(crate) async fn lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.writer.lock().await
    }

    /// Puts `rows` in place of what is there; the caller holds [`Self::lock`].
    pub(crate) fn replace(&self, rows: Rows) {
        *self.shared.rows.write() = rows;
    }

    /// The rows as they are now.
    pub(crate) fn batches(&self) -> Vec<RecordBatch> {
        self.shared.rows.read().batches.clone()
    }

    pub(crate) fn row_count(&self) -> usize {
        self.shared.rows.read().row_count()
    }
}

#[async_trait]
impl TableProvider for MemoryTable {
    fn schema(&self) -> SchemaRef {
        self.shared.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.shared.defaults.get(column)
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.shared.schema);
        statistics.num_rows = Precision::Exact(self.row_count());
        Some(statistics)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parts = cut(&self.batches(), state.config().target_partitions());
        Ok(Arc::new(MemoryScan::new(&self.shared.name, parts, &self.shared.schema, projection)?))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if operation != InsertOp::Append {
            let text = format!("{operation} is not supported for table '{}'", self.shared.name);
            return Err(DataFusionError::NotImplemented(text));
        }
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(MemorySink { table: self.clone() }), None)))
    }
}

/// Cuts a list of batches into at most `count` runs of about equal rows, in order.
fn cut(batches: &[RecordBatch], count: usize) -> Vec<Vec<RecordBatch>> {
    let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let rows_per_run = row_count.div_ceil(count.max(1)).max(1);
    let mut runs = vec![Vec::new()];
    let mut rows_before = 0;
    for batch in batches {
        if rows_before >= rows_per_run * runs.len() {
            runs.push(Vec::new());
        }
        rows_before += batch.num_rows();
        runs.last_mut().expect("there is a run").push(batch.clone());
    }
    runs
}

/// Appends what an INSERT computed.
#[derive(Debug)]
struct MemorySink {
    table: MemoryTable,
}

impl DisplayAs for MemorySink {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.table.shared.name)
    }
}

#[async_trait]
impl DataSink for MemorySink {
    fn schema(&self) -> &SchemaRef {
        &self.table.shared.schema
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let added = Rows::new(&self.table.shared.name, context.memory_pool()).fill(data).await?;
        let count = added.row_count();
        let _writer = self.table.lock().await;
        self.table.shared.rows.write().append(added);
        Ok(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn batches_are_cut_into_runs_in_order() {
        let check = |rows: &[i64], count, expected: &[usize]| {
            let batches: Vec<_> = rows
                .iter()
                .map(|&rows| {
                    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
                    RecordBatch::try_from_iter([("a", column)]).unwrap()
                })
                .collect();
            let runs = cut(&batches, count);
            assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), expected, "{rows:?} in {count}");
        };
        check(&[], 4, &[0]);
        check(&[10], 4, &[1]);
        check(&[10, 10, 10, 10], 2, &[2, 2]);
        check(&[10, 10, 10], 2, &[2, 1]);
        check(&[100, 1, 1], 3, &[1, 1, 1]);
    }
}
