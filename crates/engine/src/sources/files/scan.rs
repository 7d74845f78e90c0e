//! The scan of formats that are read sequentially: text and Arrow.
//!
//! A reader cuts a file into chunks, one after the other; parsing a chunk is the expensive part and runs on
//! all threads at once, so that even a single compressed file is parsed in parallel. A partition first takes
//! a file of its own, and when none is left helps with the files of others. Each step (read a chunk, parse
//! it) runs on a thread that may block; no thread is held between steps, so any number of scans make
//! progress.
//!
//! A scan in file order has one partition: it reads chunks one after the other and parses several ahead.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as DataFusionResult, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::failure::{damaged, guarded};
use super::hive::FileColumns;
use super::narrowed::narrowed;
use super::paths::DataFile;
use crate::error::{Error, ErrorKind, Result};
use crate::sources::leaf::{answer, leaf_methods};
use crate::sources::runs::Runs;

/// Bytes of input that justify another partition.
const PARTITION_BYTES: u64 = 512 << 10;

/// A rough bound of the memory of rows per byte of text: a number of two characters and a comma takes eight
/// bytes.
pub(super) const ROW_BYTES_PER_BYTE: usize = 3;

/// A format that is read chunk by chunk. The value holds all that is known of the files.
pub(crate) trait Chunked: Debug + Send + Sync + 'static {
    /// An open file.
    type Reader: Send;
    /// Part of a file: whole records.
    type Chunk: Send;
    /// Decodes chunks of one file into batches.
    type Parser: Send + Sync;

    /// The format's name in plans and errors.
    const NAME: &'static str;

    /// Whether structs can be read without fields that nobody asks for.
    fn narrows_structs(&self) -> bool {
        false
    }

    /// Opens the file at `index`, with a parser that returns the columns `projection` of the files' schema in
    /// that order, as the `fields` say.
    fn open(
        &self,
        index: usize,
        projection: &[usize],
        fields: &[FieldRef],
    ) -> Result<(Self::Reader, Self::Parser)>;

    /// The next chunk, and the number of bytes of the file read so far.
    fn read(&self, reader: &mut Self::Reader) -> Result<Option<(Self::Chunk, u64)>>;

    /// An estimate, before parsing, of the memory that the rows of a chunk take.
    fn row_bytes(chunk: &Self::Chunk) -> usize;

    /// Parses the rows of a chunk.
    fn parse(&self, parser: &Self::Parser, chunk: Self::Chunk) -> Result<Vec<RecordBatch>>;
}

/// The input that all scans of a table share.
#[derive(Debug)]
pub(crate) struct Input<F> {
    pub(crate) format: F,
    pub(crate) files: Vec<DataFile>,
    /// The columns that are read from the files.
    pub(crate) file_schema: SchemaRef,
    /// The columns with one value per file, which follow them.
    pub(crate) columns: FileColumns,
}

/// The plan of a scan. See the [module](self).
pub(crate) struct FileScan<F: Chunked> {
    input: Arc<Input<F>>,
    selected: Arc<Vec<usize>>,
    projection: Vec<usize>,
    limit: Option<usize>,
    thread_count: usize,
    in_order: bool,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    runs: Runs<Queue<F>>,
}

impl<F: Chunked> FileScan<F> {
    /// Scans the files `selected` for the columns `projection` of the table, on up to `thread_count` threads;
    /// with `in_order`, in the order of the files. Stops when every partition has `limit` rows.
    pub(crate) fn new(
        input: Arc<Input<F>>,
        selected: Arc<Vec<usize>>,
        projection: Vec<usize>,
        limit: Option<usize>,
        thread_count: usize,
        in_order: bool,
    ) -> DataFusionResult<Self> {
        let fields: Vec<_> =
            input.file_schema.fields().iter().chain(&input.columns.fields).cloned().collect();
        let schema = Arc::new(Schema::new(fields).project(&projection)?);
        Ok(Self::of(input, selected, projection, schema, limit, thread_count, in_order))
    }

    /// As [`Self::new`], for columns of the fields of `schema`.
    fn of(
        input: Arc<Input<F>>,
        selected: Arc<Vec<usize>>,
        projection: Vec<usize>,
        schema: SchemaRef,
        limit: Option<usize>,
        thread_count: usize,
        in_order: bool,
    ) -> Self {
        let bytes: u64 = selected.iter().map(|file| input.files[*file].size_bytes).sum();
        let useful = usize::try_from(bytes / PARTITION_BYTES + 1).unwrap_or(usize::MAX);
        let partition_count = if in_order { 1 } else { thread_count.min(useful).max(1) };
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(partition_count),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self {
            input,
            selected,
            projection,
            limit,
            thread_count,
            in_order,
            schema,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            runs: Runs::default(),
        }
    }

    fn with(&self, schema: SchemaRef, in_order: bool) -> Self {
        let (input, selected, projection) =
            (self.input.clone(), self.selected.clone(), self.projection.clone());
        Self::of(input, selected, projection, schema, self.limit, self.thread_count, in_order)
    }

    /// The queue of the run to which a starting partition belongs.
    fn queue(&self, partition: usize) -> DataFusionResult<Arc<Queue<F>>> {
        self.runs.begin(partition, self.properties.partitioning.partition_count(), || {
            let (input, selected) = (self.input.clone(), self.selected.clone());
            Ok(Queue::new(input, selected, &self.projection, self.schema.fields()))
        })
    }

    /// The stored bytes of the selected files.
    pub(crate) fn bytes(&self) -> u64 {
        self.selected.iter().map(|file| self.input.files[*file].size_bytes).sum()
    }
}

impl<F: Chunked> Debug for FileScan<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileScan").field("format", &F::NAME).field("files", &self.selected.len()).finish()
    }
}

impl<F: Chunked> DisplayAs for FileScan<F> {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let first = self.selected.first().map_or("", |file| self.input.files[*file].name.as_ref());
        let more = match self.selected.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        if kind == DisplayFormatType::TreeRender {
            return write!(f, "files={first}{more}");
        }
        write!(f, "{}: files=[{first}{more}], projection=[{}]", self.name(), names.join(", "))?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl<F: Chunked> ExecutionPlan for FileScan<F> {
    fn name(&self) -> &str {
        F::NAME
    }

    leaf_methods!();

    fn with_preserve_order(&self, preserve_order: bool) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(self.with(self.schema.clone(), preserve_order)))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> DataFusionResult<Option<Arc<dyn ExecutionPlan>>> {
        if !self.input.format.narrows_structs() {
            return Ok(None);
        }
        let Some(fields) = narrowed(projection, &self.schema) else { return Ok(None) };
        let scan = self.with(Arc::new(Schema::new(fields)), self.in_order);
        Ok(Some(Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), Arc::new(scan))?)))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if args.partition().is_none() {
            let bytes = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
            statistics.total_byte_size = Precision::Inexact(bytes);
        }
        Ok(Arc::new(statistics))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let queue = self.queue(partition)?;
        let first = self.selected.first().map_or("nothing", |file| self.input.files[*file].name.as_ref());
        let booked = MemoryConsumer::new(format!("scan of '{first}'")).register(context.memory_pool());
        let bytes = MetricBuilder::new(&self.metrics).counter("bytes_scanned", partition);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let batches = if self.in_order {
            parse_ahead(queue, bytes, booked, self.thread_count).boxed()
        } else {
            parse_in_turn(queue, bytes, booked).boxed()
        };
        Ok(answer(self.schema.clone(), batches, self.limit, baseline))
    }
}

/// One partition: repeatedly reads a chunk, parses it and returns its batches.
fn parse_in_turn<F: Chunked>(
    queue: Arc<Queue<F>>,
    bytes: Count,
    booked: MemoryReservation,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
    let worker = Worker { queue, own: None, bytes, booked };
    let start = (Some(worker), None::<Parsed>);
    stream::unfold(start, |(worker, mut ready)| async move {
        let mut worker = worker;
        loop {
            if let Some(batch) = ready.as_mut().and_then(|parsed| parsed.batches.pop_front()) {
                return Some((Ok(batch), (worker, ready)));
            }
            // Frees the reservation of the finished chunk first.
            drop(ready.take());
            let mut busy = worker.take()?;
            let step = on_blocking_thread(move || {
                let parsed = match busy.read()? {
                    Some((file, chunk)) => Some(file.parse(chunk, busy.booked.new_empty())?),
                    None => None,
                };
                Ok((busy, parsed))
            });
            match step.await {
                Ok((busy, Some(parsed))) => {
                    ready = Some(parsed);
                    worker = Some(busy);
                }
                Ok((_, None)) => return None,
                Err(error) => return Some((Err(error), (None, None))),
            }
        }
    })
}

/// The only partition of a scan in order: reads chunks one by one, and parses up to `ahead` of them at once.
fn parse_ahead<F: Chunked>(
    queue: Arc<Queue<F>>,
    bytes: Count,
    booked: MemoryReservation,
    ahead: usize,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
    let worker = Worker { queue, own: None, bytes, booked };
    stream::unfold(Some(worker), |worker| async move {
        let mut worker = worker?;
        let step = on_blocking_thread(move || worker.read().map(|chunk| (worker, chunk)));
        match step.await {
            Ok((worker, Some((file, chunk)))) => {
                let booked = worker.booked.new_empty();
                Some((Ok((file, chunk, booked)), Some(worker)))
            }
            Ok((_, None)) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .map(|chunk| async move {
        let (file, chunk, booked) = chunk?;
        on_blocking_thread(move || file.parse(chunk, booked)).await
    })
    .buffered(ahead.max(1))
    .flat_map(|parsed| match parsed {
        Ok(Parsed { batches, booked }) => {
            let batches = batches.into_iter().map(move |batch| {
                let _until_all_are_gone = &booked;
                Ok(batch)
            });
            stream::iter(batches).boxed()
        }
        Err(error) => stream::iter([Err(error)]).boxed(),
    })
}

async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    crate::runtime::work::waiting(work)
        .await
        .unwrap_or_else(|error| Err(Error::new(ErrorKind::Internal, format!("a reader broke off: {error}"))))
}

/// The files of one run of a scan.
struct Queue<F: Chunked> {
    input: Arc<Input<F>>,
    selected: Arc<Vec<usize>>,
    slots: Vec<Slot<F>>,
    /// The first file that no partition has taken as its own.
    next: AtomicUsize,
    projection: Arc<Projection>,
}

/// The columns to read from the files, and the source of each output column.
struct Projection {
    file_columns: Vec<usize>,
    file_fields: Vec<FieldRef>,
    outputs: Vec<Output>,
    schema: SchemaRef,
}

#[derive(Clone, Copy)]
enum Output {
    /// The position in a parsed batch.
    Parsed(usize),
    /// The position in the columns with one value per file.
    PerFile(usize),
}

struct Slot<F: Chunked> {
    is_done: AtomicBool,
    state: Mutex<State<F>>,
}

enum State<F: Chunked> {
    Closed,
    Open { reader: F::Reader, file: Arc<OpenFile<F>>, bytes_counted: u64 },
    Done,
}

/// A file whose chunks can be parsed.
struct OpenFile<F: Chunked> {
    input: Arc<Input<F>>,
    projection: Arc<Projection>,
    index: usize,
    parser: F::Parser,
}

/// A chunk to parse, and its file.
type Task<F> = (Arc<OpenFile<F>>, <F as Chunked>::Chunk);

impl<F: Chunked> Queue<F> {
    fn new(input: Arc<Input<F>>, selected: Arc<Vec<usize>>, projection: &[usize], fields: &Fields) -> Self {
        let in_file = input.file_schema.fields().len();
        let (mut file_columns, mut file_fields, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for (&column, field) in projection.iter().zip(fields) {
            if column < in_file {
                outputs.push(Output::Parsed(file_columns.len()));
                file_columns.push(column);
                file_fields.push(field.clone());
            } else {
                outputs.push(Output::PerFile(column - in_file));
            }
        }
        let slot = |_: &usize| Slot { is_done: AtomicBool::new(false), state: Mutex::new(State::Closed) };
        let slots = selected.iter().map(slot).collect();
        let schema = Arc::new(Schema::new(fields.clone()));
        let projection = Arc::new(Projection { file_columns, file_fields, outputs, schema });
        Self { input, selected, slots, next: AtomicUsize::new(0), projection }
    }

    fn name(&self, index: usize) -> &str {
        &self.input.files[index].name
    }
}

/// The rows of a chunk, and their memory reservation.
struct Parsed {
    batches: VecDeque<RecordBatch>,
    booked: MemoryReservation,
}

/// The reading side of a partition.
struct Worker<F: Chunked> {
    queue: Arc<Queue<F>>,
    /// The slot of the file that it reads from.
    own: Option<usize>,
    bytes: Count,
    /// An empty reservation, from which each parsed chunk makes its own under the same name.
    booked: MemoryReservation,
}

impl<F: Chunked> Worker<F> {
    /// The next chunk from any file; `None` when all are read.
    fn read(&mut self) -> Result<Option<Task<F>>> {
        loop {
            let Some(slot) = self.own.or_else(|| self.fresh()).or_else(|| self.shared()) else {
                return Ok(None);
            };
            self.own = Some(slot);
            match self.read_from(slot)? {
                Some(found) => return Ok(Some(found)),
                None => self.own = None,
            }
        }
    }

    fn fresh(&self) -> Option<usize> {
        let slot = self.queue.next.fetch_add(1, Ordering::Relaxed);
        (slot < self.queue.slots.len()).then_some(slot)
    }

    /// A file that other partitions read, preferably one whose reader is not locked.
    fn shared(&self) -> Option<usize> {
        let unfinished =
            || self.queue.slots.iter().enumerate().filter(|(_, slot)| !slot.is_done.load(Ordering::Acquire));
        unfinished()
            .find(|(_, slot)| !slot.state.is_locked())
            .or_else(|| unfinished().next())
            .map(|(slot, _)| slot)
    }

    fn read_from(&self, slot_index: usize) -> Result<Option<Task<F>>> {
        let slot = &self.queue.slots[slot_index];
        let index = self.queue.selected[slot_index];
        let mut state = slot.state.lock();
        if matches!(*state, State::Closed) {
            let (input, projection) = (self.queue.input.clone(), self.queue.projection.clone());
            let opened = guarded(self.queue.name(index), F::NAME, || {
                input.format.open(index, &projection.file_columns, &projection.file_fields)
            });
            *state = match opened {
                Ok((reader, parser)) => {
                    let file = Arc::new(OpenFile { input, projection, index, parser });
                    State::Open { reader, file, bytes_counted: 0 }
                }
                Err(error) => {
                    *state = State::Done;
                    slot.is_done.store(true, Ordering::Release);
                    return Err(error);
                }
            };
        }
        let State::Open { reader, file, bytes_counted } = &mut *state else { return Ok(None) };
        let format = &self.queue.input.format;
        match guarded(self.queue.name(index), F::NAME, || format.read(reader)) {
            Ok(Some((chunk, bytes))) => {
                let new = bytes.saturating_sub(*bytes_counted);
                self.bytes.add(usize::try_from(new).unwrap_or(usize::MAX));
                *bytes_counted = bytes.max(*bytes_counted);
                Ok(Some((file.clone(), chunk)))
            }
            finished_or_failed => {
                *state = State::Done;
                slot.is_done.store(true, Ordering::Release);
                finished_or_failed.map(|_| None)
            }
        }
    }
}

impl<F: Chunked> OpenFile<F> {
    fn parse(&self, chunk: F::Chunk, booked: MemoryReservation) -> Result<Parsed> {
        booked.try_grow(F::row_bytes(&chunk))?;
        let batches = guarded(self.name(), F::NAME, || self.input.format.parse(&self.parser, chunk))?;
        let batches = batches.iter().filter(|batch| batch.num_rows() > 0);
        let batches = batches.map(|batch| self.complete(batch)).collect::<Result<VecDeque<_>>>()?;
        // The rows are in memory already, so this must not fail.
        booked.resize(batches.iter().map(RecordBatch::get_array_memory_size).sum());
        Ok(Parsed { batches, booked })
    }

    fn name(&self) -> &str {
        &self.input.files[self.index].name
    }

    /// Adds the columns that have one value per file.
    fn complete(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let failed = |error: &dyn fmt::Display| damaged(self.name(), F::NAME, error);
        let values = &self.input.columns.values[self.index];
        let columns = self
            .projection
            .outputs
            .iter()
            .map(|output| match output {
                Output::Parsed(position) => Ok(batch.column(*position).clone()),
                Output::PerFile(position) => values[*position].to_array_of_size(batch.num_rows()),
            })
            .collect::<DataFusionResult<Vec<ArrayRef>>>()
            .map_err(|error| failed(&error))?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.projection.schema.clone(), columns, &options)
            .map_err(|error| failed(&error))
    }
}
