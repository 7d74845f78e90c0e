//! A table in memory: batches behind a lock, reserved in the database's memory pool.
//!
//! A scan takes a snapshot of the list of batches. A write makes its batches first and publishes them at the
//! end, all or none. Writers of one table queue, so that an UPDATE does not overwrite rows that it did not
//! see.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
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
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use parking_lot::RwLock;

use super::memory_scan::MemoryScan;
use crate::compact::{buffer_bytes, compact, joined};

/// Small batches are joined up to this many rows and bytes.
const JOINED_ROWS_MAX: usize = 8192;
const JOINED_BYTES_MAX: usize = 1 << 20;

/// Rows of a table and their memory reservation. A buffer that several batches share is reserved once.
#[derive(Debug)]
pub(crate) struct Rows {
    batches: Vec<RecordBatch>,
    /// The addresses of the buffers that are reserved.
    paid: HashSet<usize>,
    reservation: MemoryReservation,
}

impl Rows {
    /// No rows yet, with a reservation in `pool` under the table's name.
    pub(crate) fn new(table: &str, pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(format!("table {table}")).register(pool);
        Self { batches: Vec::new(), paid: HashSet::new(), reservation }
    }

    /// Rows that will replace `old` and may share buffers with it; until then the old rows' reservation
    /// covers these buffers.
    pub(crate) fn in_place_of(old: &[RecordBatch], table: &str, pool: &Arc<dyn MemoryPool>) -> Self {
        let mut rows = Self::new(table, pool);
        for batch in old {
            pay(batch, &mut rows.paid);
        }
        rows
    }

    /// Reads `stream` to its end.
    ///
    /// # Errors
    /// Those of the stream, and the pool's when the rows do not fit into memory.
    pub(crate) async fn fill(mut self, mut stream: SendableRecordBatchStream) -> Result<Self> {
        while let Some(batch) = stream.next().await {
            self.push(&batch?)?;
        }
        Ok(self)
    }

    /// Adds `batch` and reserves its memory.
    ///
    /// # Errors
    /// The pool's when it does not fit into memory.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 {
            let batch = compact(batch)?;
            self.reservation.try_grow(pay(&batch, &mut self.paid))?;
            self.batches.push(batch);
        }
        Ok(())
    }

    /// Appends the rows of `other` and takes over their reservation.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.batches.append(&mut other.batches);
        self.paid.extend(other.paid.drain());
        let booked = other.reservation.free();
        self.reservation.grow(booked);
    }

    /// Joins small batches at the end, so that many inserts of a few rows make few batches. Batches get
    /// shorter towards the end, so each row is copied a few times at most.
    fn join_small(&mut self, schema: &SchemaRef) -> Result<()> {
        let is_small = |batches: &[RecordBatch]| {
            let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            rows <= JOINED_ROWS_MAX
                && batches.iter().map(RecordBatch::get_array_memory_size).sum::<usize>() <= JOINED_BYTES_MAX
        };
        while let Some(last) = self.batches.last_chunk::<2>()
            && last[0].num_rows() <= 2 * last[1].num_rows()
            && is_small(last)
        {
            let batch = joined(last, schema)?;
            let freed: usize = last.iter().map(|batch| unpay(batch, &mut self.paid)).sum();
            self.batches.truncate(self.batches.len() - 2);
            self.reservation.grow(pay(&batch, &mut self.paid));
            self.reservation.shrink(freed);
            self.batches.push(batch);
        }
        Ok(())
    }

    pub(crate) fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Reserves all buffers, also those that an older version's reservation covered so far.
    fn reserve_all(&mut self) {
        self.paid.clear();
        let bytes = self.batches.iter().map(|batch| pay(batch, &mut self.paid)).sum();
        self.reservation.resize(bytes);
    }
}

/// Adds the buffers of `batch` to `paid`; the size of those that were not in it.
fn pay(batch: &RecordBatch, paid: &mut HashSet<usize>) -> usize {
    let is_new = &mut |place| paid.insert(place);
    batch.columns().iter().map(|column| buffer_bytes(&column.to_data(), is_new)).sum()
}

/// Removes the buffers of `batch` from `paid`; the size of those that were in it.
fn unpay(batch: &RecordBatch, paid: &mut HashSet<usize>) -> usize {
    let is_paid = &mut |place| paid.remove(&place);
    batch.columns().iter().map(|column| buffer_bytes(&column.to_data(), is_paid)).sum()
}

/// The DEFAULTs of columns, by their names.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) planned: HashMap<String, Expr>,
    pub(crate) written: HashMap<String, ast::Expr>,
}

/// See the [module](self). Clones share the table.
#[derive(Clone, Debug)]
pub(crate) struct MemoryTable {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    schema: SchemaRef,
    defaults: HashMap<String, Expr>,
    /// The DEFAULTs of the columns as they were written.
    written_defaults: HashMap<String, ast::Expr>,
    rows: RwLock<Rows>,
    writer: tokio::sync::Mutex<()>,
}

impl MemoryTable {
    pub(crate) fn new(name: &str, schema: SchemaRef, defaults: Defaults, rows: Rows) -> Self {
        let Defaults { planned, written } = defaults;
        let (rows, writer) = (RwLock::new(rows), tokio::sync::Mutex::default());
        let name = name.to_owned();
        let shared = Shared { name, schema, defaults: planned, written_defaults: written, rows, writer };
        Self { shared: Arc::new(shared) }
    }

    /// The DEFAULTs of the columns.
    pub(crate) fn defaults(&self) -> Defaults {
        let (planned, written) = (self.shared.defaults.clone(), self.shared.written_defaults.clone());
        Defaults { planned, written }
    }

    /// The DEFAULT of a column, as it was written.
    pub(crate) fn written_default(&self, column: &str) -> Option<&ast::Expr> {
        self.shared.written_defaults.get(column)
    }

    /// Holds off other writers until the guard is dropped.
    pub(crate) async fn lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.writer.lock().await
    }

    /// No rows yet, with a reservation that, as the table's own, outlives the statement that adds the rows.
    fn no_rows(&self) -> Rows {
        let reservation = self.shared.rows.read().reservation.new_empty();
        Rows { batches: Vec::new(), paid: HashSet::new(), reservation }
    }

    /// Replaces the table's rows by `rows`; the caller holds [`Self::lock`].
    pub(crate) fn replace(&self, rows: Rows) {
        let mut current = self.shared.rows.write();
        *current = rows;
        current.reserve_all();
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

/// Cuts a list of batches into at most `count` runs of about equally many rows, in order.
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

/// Appends the rows of an INSERT.
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

    async fn write_all(&self, data: SendableRecordBatchStream, _: &Arc<TaskContext>) -> Result<u64> {
        let added = self.table.no_rows().fill(data).await?;
        let count = added.row_count();
        let _writer = self.table.lock().await;
        let mut rows = self.table.shared.rows.write();
        rows.append(added);
        // The rows are inserted; a failure to join small batches does not fail the statement.
        let _ = rows.join_small(&self.table.shared.schema);
        Ok(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

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

    #[test]
    fn many_small_inserts_make_few_batches() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut rows = Rows::new("t", &pool);
        for row in 0..20_000 {
            let number: ArrayRef = Arc::new(Int64Array::from(vec![row]));
            let text = format!("a text that is too long for a view: {row}");
            let text: ArrayRef = Arc::new(StringViewArray::from_iter_values([text]));
            let mut added = Rows::new("t", &pool);
            let batch = RecordBatch::try_from_iter([("a", number), ("b", text)]).unwrap();
            let schema = batch.schema();
            added.push(&batch).unwrap();
            rows.append(added);
            rows.join_small(&schema).unwrap();
        }
        assert!(rows.batches.len() < 30, "{}", rows.batches.len());
        let numbers = rows
            .batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
        assert!(numbers.eq(0..20_000));
        let booked = pool.reserved();
        assert!((20_000 * 60..20_000 * 200).contains(&booked), "{booked}");
        rows.reserve_all();
        assert_eq!(pool.reserved(), booked);
    }

    #[test]
    fn rows_pay_for_what_they_keep_and_once() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        let text = (0..100_000).map(|row| format!("a text that is too long for a view: {row}"));
        let text: ArrayRef = Arc::new(StringViewArray::from_iter_values(text));
        let all = RecordBatch::try_from_iter([("a", numbers), ("b", text)]).unwrap();
        let check = |batches: &[RecordBatch], expected_min: usize, expected_max: usize| {
            let mut rows = Rows::new("t", &pool);
            batches.iter().for_each(|batch| rows.push(batch).unwrap());
            let booked = pool.reserved();
            assert!((expected_min..=expected_max).contains(&booked), "{booked}");
            rows.reserve_all();
            assert_eq!(pool.reserved(), booked);
        };
        let bytes = all.get_array_memory_size();
        check(std::slice::from_ref(&all), bytes - 10_000, bytes);
        check(&[all.slice(0, 90_000), all.slice(90_000, 10_000)], bytes - 10_000, bytes * 5 / 4);
        check(&[all.slice(500, 100)], 5_000, 20_000);
        assert_eq!(pool.reserved(), 0);
    }
}
