//! Writes rows into a table: each stream of them as parts of its own, on its own threads, then one commit. Rows of
//! several partitions come one partition after the other, and begin a part with each.
//!
//! Rows are gathered until they are worth being sorted and encoded, by as many threads as other streams leave. What
//! is larger than that is not sorted as a whole: storage merges the parts afterwards
//! (`docs/decisions/0015-rows-are-sorted-in-runs.md`).
//!
//! Whatever ends early, by an error or because nobody waits any more, drops the transaction, and with it the
//! files. Few rows go through the storage's inserts instead, which commits those of several sessions together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::CastOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{assert_or_internal_err, exec_datafusion_err};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{CastExpr, Column as ColumnExpr};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, LexRequirement, OrderingRequirements, PhysicalExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, stream};
use keirin_storage::column::Column;
use keirin_storage::part::{PartWriter, STRIPE_ROWS, WriteOptions};
use keirin_storage::schema::Definition;
use keirin_storage::{Cancel, Part, Run, Transaction};

use super::super::store::{Store, write_options};
use super::super::{arrow_schema, column, storable};
use super::definition::codecs;
use super::partitions::{Partitions, check_count};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::work::{CancelOnDrop, blocking, feed};

/// Rows and bytes up to which an insert is a small one.
const SMALL_ROWS: usize = 1 << 16;
const SMALL_BYTES: usize = 8 << 20;
/// Parts are not made larger: those of storage's compaction are not either.
const PART_ROWS_MAX: u64 = 1 << 24;
const PART_BYTES_MAX: u64 = 1 << 30;
/// Rows that are sorted together take so many bytes.
const RUN_BYTES: usize = 256 << 20;
/// The values of a stripe take so many bytes.
const STRIPE_BYTES: usize = 128 << 20;
/// Rows are taken over up to about this size at a time, and at least so many of them.
const PIECE_BYTES: usize = 8 << 20;
const PIECE_ROWS_MIN: usize = 64;
/// The shares of a writer's memory that a run and a stripe take. The rest is for batches on their way, buffers that grow by
/// doubling, and encoded stripes.
const RUN_SHARE: usize = 4;
const STRIPE_SHARE: usize = 16;
/// Runs and stripes are not made smaller.
const BYTES_MIN: usize = 4 << 20;

/// What a writer may hold.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    run_bytes: usize,
    stripe_bytes: usize,
}

impl Bounds {
    /// Of one of so many writers that share the memory of `pool`, of which it has some. Half of what is left is for what
    /// it writes, if that stays in memory, and for others.
    fn new(pool: &Arc<dyn MemoryPool>, writer_count: usize, own_bytes: usize) -> Self {
        let share = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => {
                let left = bytes.saturating_sub(pool.reserved()) + own_bytes;
                (bytes / writer_count.max(1)).min(left / 2)
            }
            _ => usize::MAX,
        };
        let of = |divisor: usize, bytes_max: usize| (share / divisor).clamp(BYTES_MIN, bytes_max);
        Self { run_bytes: of(RUN_SHARE, RUN_BYTES), stripe_bytes: of(STRIPE_SHARE, STRIPE_BYTES) }
    }

    /// A run, whose buffers grow by doubling, the rows of it that were taken in order but not encoded, and encoded
    /// stripes.
    fn writer_bytes(self) -> usize {
        2 * self.run_bytes + 2 * self.stripe_bytes
    }
}

/// Where rows go.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) store: Arc<Store>,
    pub(crate) definition: Arc<Definition>,
    pub(crate) partitions: Partitions,
    pub(crate) place: Place,
}

/// Which table the rows become part of.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// One that is there, as it was when the statement was planned; its rows may be replaced.
    Existing { table: Arc<keirin_storage::Table>, is_overwritten: bool },
    /// One that comes to be with its rows, perhaps in the place of another.
    New { or_replace: bool },
}

impl Target {
    pub(crate) fn schema(&self) -> SchemaRef {
        arrow_schema(&self.definition)
    }

    /// What the rows of each stream must be sorted by.
    fn ordering(&self) -> Option<LexOrdering> {
        LexOrdering::new(self.partitions.sort_exprs())
    }

    /// Writes all rows of the streams and gives their count, once they are durable.
    pub(crate) async fn write(
        self,
        mut streams: Vec<SendableRecordBatchStream>,
        pool: &Arc<dyn MemoryPool>,
        thread_count: usize,
    ) -> Result<u64> {
        let mut first = Vec::new();
        let held = MemoryConsumer::new(format!("table {}", self.definition.name)).register(pool);
        if let ([only], Place::Existing { table, is_overwritten: false }) =
            (streams.as_mut_slice(), &self.place)
            && take_few(only, &mut first, &held).await?
        {
            let (store, table, partitions) = (self.store.clone(), table.clone(), self.partitions.clone());
            let inserted = blocking(move || insert(&store, &table, &partitions, &first)).await?;
            self.store.wake_upkeep();
            return Ok(inserted);
        }
        if let ([only], false) = (streams.as_mut_slice(), first.is_empty()) {
            let rest = std::mem::replace(
                only,
                Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::empty())),
            );
            let all = stream::iter(first.into_iter().map(Ok)).chain(rest);
            *only = Box::pin(RecordBatchStreamAdapter::new(self.schema(), all));
        }
        drop(held);
        let _alone = match &self.place {
            Place::Existing { table, is_overwritten: true } => {
                Some(self.store.change_alone(table.number).await)
            }
            Place::Existing { .. } | Place::New { .. } => None,
        };
        let target = self.clone();
        let (transaction, table) = blocking(move || target.begin()).await?;
        let transaction = Arc::new(transaction);
        let threads = Arc::new(Threads::new(thread_count));
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|stream| {
                let (definition, partitions) = (&self.definition, &self.partitions);
                let writer = PartsWriter::new(&transaction, table, definition, partitions, pool, &threads);
                SpawnedTask::spawn(write_stream(stream, writer))
            })
            .collect();
        let (mut row_count, mut parts) = (0, Vec::new());
        for task in tasks {
            let made = task
                .join_unwind()
                .await
                .map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
            row_count += made.iter().map(|part| part.row_count).sum::<u64>();
            parts.extend(made);
        }
        let commit = move || {
            let mut transaction = sole(transaction)?;
            add_in_order(&mut transaction, table, parts)?;
            transaction.commit()?;
            Ok(row_count)
        };
        blocking(commit).await.map_err(|error| self.explain(error))?;
        self.store.wake_upkeep();
        Ok(row_count)
    }

    /// The error of a commit, which another statement may have been ahead of that made a table of the name.
    fn explain(&self, error: Error) -> Error {
        let (Place::New { or_replace: false }, Definition { schema, name, .. }) =
            (&self.place, &*self.definition)
        else {
            return error;
        };
        let may_be_late = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid);
        match self.store.database.snapshot().table_named(schema, name).filter(|_| may_be_late) {
            Some(_) => Error::new(ErrorKind::AlreadyExists, format!("table '{name}' already exists"))
                .with_hint("CREATE OR REPLACE TABLE, or CREATE TABLE IF NOT EXISTS"),
            None => error,
        }
    }

    fn begin(&self) -> Result<(Transaction, u64)> {
        let mut transaction = match &self.place {
            Place::Existing { table, is_overwritten: true } => self.store.begin_rewriting(table.number)?,
            Place::Existing { .. } | Place::New { .. } => self.store.begin()?,
        };
        let table = self.prepare(&mut transaction)?;
        Ok((transaction, table))
    }

    /// Makes the table, without rows.
    pub(crate) fn create(&self) -> Result<()> {
        let created = self.store.alter(|transaction| self.prepare(transaction).map(drop));
        created.map_err(|error| self.explain(error))
    }

    /// Readies the table for its rows, and gives its number.
    fn prepare(&self, transaction: &mut Transaction) -> Result<u64> {
        Ok(match &self.place {
            Place::Existing { table, is_overwritten } => {
                check_unchanged(transaction, table)?;
                if *is_overwritten {
                    remove_all(transaction, table.number)?;
                }
                table.number
            }
            Place::New { or_replace } => {
                let Definition { schema, name, .. } = &*self.definition;
                let existing = transaction.state().table_named(schema, name).map(|table| table.number);
                if let Some(existing) = existing.filter(|_| *or_replace) {
                    transaction.drop_table(existing)?;
                }
                transaction.create_table((*self.definition).clone())?
            }
        })
    }
}

/// The transaction, when all others that had it are done.
pub(crate) fn sole(transaction: Arc<Transaction>) -> Result<Transaction> {
    Arc::into_inner(transaction)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a part is still being written"))
}

/// Fails when the table has become another since the statement was planned.
pub(crate) fn check_unchanged(transaction: &Transaction, table: &keirin_storage::Table) -> Result<()> {
    let now = transaction.state().table(table.number);
    if now.is_some_and(|now| now.definition == table.definition) {
        return Ok(());
    }
    let message = format!("table '{}' was altered or dropped while it was written to", table.definition.name);
    Err(Error::new(ErrorKind::Conflict, message).with_hint("run the statement again"))
}

/// Takes all rows out of a table.
pub(crate) fn remove_all(transaction: &mut Transaction, table: u64) -> Result<()> {
    let parts = transaction.state().table(table).map(|table| table.parts()).unwrap_or_default();
    let parts: Vec<u64> = parts.iter().map(|part| part.number).collect();
    Ok(transaction.replace_parts(table, &parts, Vec::new())?)
}

/// Adds parts so that their rows stand in this order; they were numbered as they came.
pub(crate) fn add_in_order(transaction: &mut Transaction, table: u64, parts: Vec<Part>) -> Result<()> {
    let mut orders: Vec<u64> = parts.iter().map(|part| part.order).collect();
    orders.sort_unstable();
    for (mut part, order) in parts.into_iter().zip(orders) {
        part.order = order;
        transaction.add_part(table, part)?;
    }
    Ok(())
}

/// Takes batches from a stream into `batches` until it ends or they are no few rows; tells whether it ended.
async fn take_few(
    stream: &mut SendableRecordBatchStream,
    batches: &mut Vec<RecordBatch>,
    held: &MemoryReservation,
) -> Result<bool> {
    let (mut rows, mut bytes) = (0, 0);
    while rows <= SMALL_ROWS && bytes <= SMALL_BYTES {
        let Some(batch) = stream.next().await else { return Ok(true) };
        let batch = batch?;
        rows += batch.num_rows();
        let batch_bytes = batch.get_array_memory_size();
        bytes += batch_bytes;
        batches.push(batch);
        if held.try_grow(batch_bytes).is_err() {
            break;
        }
    }
    Ok(false)
}

/// Inserts few rows, together with those of others.
fn insert(
    store: &Store,
    table: &keirin_storage::Table,
    partitions: &Partitions,
    batches: &[RecordBatch],
) -> Result<u64> {
    let definition = &table.definition;
    let mut rows: BTreeMap<Arc<str>, Vec<Column<'static>>> = BTreeMap::new();
    let mut count = 0;
    for batch in batches {
        count += batch.num_rows();
        let arrays = checked(batch, definition)?;
        for (partition, run) in partitions.runs(&arrays)? {
            let empty = || definition.fields.iter().map(|field| Column::empty(&field.data_type)).collect();
            let rows = rows.entry(partition).or_insert_with(empty);
            for (rows, array) in rows.iter_mut().zip(&arrays) {
                rows.append(&column(array.slice(run.start, run.len()).as_ref())?)?;
            }
        }
    }
    check_count(rows.len(), &definition.name)?;
    if count > 0 {
        // Says what it should where the database cannot be written to.
        drop(store.begin()?);
        store.database.insert(table, rows.into_iter().collect(), write_options(table))?;
    }
    Ok(count as u64)
}

/// The batch's columns as storage takes them, without nulls where the table has none.
fn checked(batch: &RecordBatch, definition: &Definition) -> Result<Vec<ArrayRef>> {
    for (array, field) in batch.columns().iter().zip(&definition.fields) {
        if !field.is_nullable && array.null_count() > 0 {
            let message = format!("column '{}' is NOT NULL and would become NULL", field.name);
            return Err(
                Error::new(ErrorKind::Data, message).with_detail(format!("in table '{}'", definition.name))
            );
        }
    }
    storable(batch, &definition.fields)
}

/// The threads for encoding, which the streams of a statement share.
#[derive(Debug)]
pub(crate) struct Threads {
    count: usize,
    writer_count: AtomicUsize,
}

impl Threads {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, writer_count: AtomicUsize::new(0) }
    }

    /// Those of one stream, now.
    fn share(&self) -> usize {
        self.count.div_ceil(self.writer_count.load(Ordering::Relaxed).max(1))
    }
}

/// Rows on their way into parts of a transaction.
pub(crate) struct PartsWriter {
    transaction: Arc<Transaction>,
    table: u64,
    definition: Arc<Definition>,
    partitions: Partitions,
    /// The partition of the rows that came last, and how many there were.
    partition: Arc<str>,
    partition_count: usize,
    run: Run,
    run_bytes: usize,
    /// For when nobody waits for the rows any more.
    cancel: Cancel,
    writer: Option<PartWriter>,
    parts: Vec<Part>,
    booked: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    threads: Arc<Threads>,
}

impl PartsWriter {
    pub(crate) fn new(
        transaction: &Arc<Transaction>,
        table: u64,
        definition: &Arc<Definition>,
        partitions: &Partitions,
        pool: &Arc<dyn MemoryPool>,
        threads: &Arc<Threads>,
    ) -> Self {
        let booked = MemoryConsumer::new(format!("writing table {}", definition.name)).register(pool);
        threads.writer_count.fetch_add(1, Ordering::Relaxed);
        let cancel = Cancel::default();
        Self {
            transaction: transaction.clone(),
            table,
            definition: definition.clone(),
            partitions: partitions.clone(),
            partition: Arc::default(),
            partition_count: 0,
            run: Run::new(definition.clone()).stopped_by(&cancel),
            run_bytes: 0,
            cancel,
            writer: None,
            parts: Vec::new(),
            booked,
            pool: pool.clone(),
            threads: threads.clone(),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds::new(&self.pool, self.threads.writer_count.load(Ordering::Relaxed), self.booked.size())
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
        let rows_max = (PIECE_BYTES / row_bytes.max(1)).max(PIECE_ROWS_MIN);
        let starts = (0..batch.num_rows()).step_by(rows_max);
        for start in starts {
            self.push_piece(&batch.slice(start, rows_max.min(batch.num_rows() - start)))?;
        }
        Ok(())
    }

    fn push_piece(&mut self, batch: &RecordBatch) -> Result<()> {
        let arrays = checked(batch, &self.definition)?;
        if self.partitions.is_empty() {
            return self.push_rows(&arrays);
        }
        for (partition, run) in self.partitions.runs(&arrays)? {
            if partition != self.partition || self.partition_count == 0 {
                self.end_part()?;
                self.partition_count += 1;
                check_count(self.partition_count, &self.definition.name)?;
                self.partition = partition;
            }
            let rows: Vec<_> = arrays.iter().map(|array| array.slice(run.start, run.len())).collect();
            self.push_rows(&rows)?;
        }
        Ok(())
    }

    /// Writes rows of one partition.
    fn push_rows(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        let columns = arrays.iter().map(|array| column(array.as_ref()));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let bytes: usize = columns.iter().map(Column::byte_count).sum();
        if self.booked.size() > self.bounds().writer_bytes() {
            self.end_part()?;
        }
        // As they are collected, and as they are encoded.
        let (held, bounds) = (2 * bytes, self.bounds());
        let more = held.min(bounds.writer_bytes().saturating_sub(self.booked.size()));
        if self.booked.try_grow(more).is_err() {
            // With a run and a part less there may be room.
            self.end_part()?;
            self.booked.try_grow(held.min(bounds.writer_bytes()))?;
        }
        if self.run_bytes + bytes > bounds.run_bytes {
            self.end_run()?;
        }
        self.run_bytes += bytes;
        self.run.append(&columns)?;
        // Of rows that need not be sorted, all threads are busy with a few.
        let share = self.threads.share();
        let is_enough =
            self.run.row_count() >= STRIPE_ROWS * share || self.run_bytes >= bounds.stripe_bytes * share;
        if is_enough && self.run.is_in_order()? { self.end_run() } else { Ok(()) }
    }

    /// Sorts and encodes the rows that are there.
    fn end_run(&mut self) -> Result<()> {
        if self.run.row_count() == 0 {
            return Ok(());
        }
        if !self.run.sort()? {
            self.finish_writer()?;
        }
        if self.writer.is_none() {
            let is_sorted = !self.definition.keys.is_empty();
            let codecs = codecs(&self.definition);
            let stripe_bytes_max = Some(self.bounds().stripe_bytes);
            let options = WriteOptions { codecs, is_sorted, stripe_bytes_max, ..WriteOptions::default() };
            self.writer = Some(self.transaction.write_part(self.table, options)?);
        }
        let writer = self.writer.as_mut().expect("it was made above");
        writer.push_run(&self.run, self.threads.share())?;
        self.run.clear();
        self.run_bytes = 0;
        let is_large = writer.row_count() >= PART_ROWS_MAX || writer.byte_count() >= PART_BYTES_MAX;
        if is_large || writer.is_full() { self.finish_writer() } else { Ok(()) }
    }

    fn finish_writer(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let mut part = writer.finish()?;
            part.partition = self.partition.clone();
            self.parts.push(part);
        }
        Ok(())
    }

    /// Writes all that is there, and gives memory back.
    fn end_part(&mut self) -> Result<()> {
        self.end_run()?;
        self.finish_writer()?;
        self.run = Run::new(self.definition.clone()).stopped_by(&self.cancel);
        self.booked.free();
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Part>> {
        self.end_part()?;
        Ok(std::mem::take(&mut self.parts))
    }
}

impl Drop for PartsWriter {
    fn drop(&mut self) {
        self.threads.writer_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Writes the rows of a stream, as long as somebody waits for that.
pub(crate) async fn write_stream(
    stream: SendableRecordBatchStream,
    writer: PartsWriter,
) -> DataFusionResult<Vec<Part>> {
    let _cancelling = CancelOnDrop(writer.cancel.clone());
    let writer = feed(stream, writer, PartsWriter::push).await?;
    let written = blocking(move || writer.finish()).await;
    written.map_err(|error| DataFusionError::External(Box::new(error)))
}

/// INSERT and CREATE TABLE AS: writes what its input gives, and gives the count of rows.
#[derive(Debug)]
pub(crate) struct WriteExec {
    input: Arc<dyn ExecutionPlan>,
    target: Target,
    ordering: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

impl WriteExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, target: Target) -> DataFusionResult<Self> {
        let count = Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let ordering = target.ordering();
        let input = if target.partitions.is_empty() { input } else { with_types(input, &target.schema())? };
        Ok(Self { input, target, ordering, properties: Arc::new(properties) })
    }

    /// Whether rows stand in the table as they come.
    pub(crate) fn keeps_order(&self) -> bool {
        self.target.definition.keys.is_empty() && self.ordering.is_none()
    }
}

/// The rows in the types of a table, over which its PARTITION BY was planned.
fn with_types(input: Arc<dyn ExecutionPlan>, schema: &Schema) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let given = input.schema();
    let pairs = || given.fields().iter().zip(schema.fields()).enumerate();
    if pairs().all(|(_, (given, wanted))| given.data_type() == wanted.data_type()) {
        return Ok(input);
    }
    let columns = pairs().map(|(index, (column, wanted))| {
        let column = Arc::new(ColumnExpr::new(column.name(), index));
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast = CastExpr::new(column, wanted.data_type().clone(), Some(options));
        ProjectionExpr::new(Arc::new(cast), wanted.name().clone())
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), input)?))
}

impl DisplayAs for WriteExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteExec: table={}", self.target.definition.name)
    }
}

impl ExecutionPlan for WriteExec {
    fn name(&self) -> &'static str {
        "WriteExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    /// The order of the rows in the table, for which the optimizer leaves ORDER BY of the query in the plan.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.keeps_order()]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let required = self.ordering.clone().map(LexRequirement::from);
        vec![required.map(OrderingRequirements::new)]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        assert_or_internal_err!(children.len() == 1, "WriteExec has one child");
        Ok(Arc::new(Self::new(children.swap_remove(0), self.target.clone())?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        assert_or_internal_err!(partition == 0, "WriteExec has no partition {partition}");
        let count = self.input.properties().partitioning.partition_count();
        let streams = (0..count).map(|part| self.input.execute(part, context.clone()));
        let streams = streams.collect::<DataFusionResult<Vec<_>>>()?;
        let (target, schema) = (self.target.clone(), self.schema());
        let batch_schema = schema.clone();
        let written = stream::once(async move {
            let thread_count = context.session_config().target_partitions();
            let written = target.write(streams, context.memory_pool(), thread_count).await;
            let count = written.map_err(|error| DataFusionError::External(Box::new(error)))?;
            let column = Arc::new(UInt64Array::from(vec![count])) as ArrayRef;
            RecordBatch::try_new(batch_schema, vec![column]).map_err(|error| exec_datafusion_err!("{error}"))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, written)))
    }
}
