//! Brings the rows of all threads to where their groups are merged.
//!
//! Threads sort the partial groups that they make, or rows that they pass on, into parts by a hash of the keys. When all
//! are there, each thread takes part after part and merges its groups: those of one part stay in the caches, where a
//! table of all groups would miss them with each row. Few rows are one part, and not sorted.
//!
//! Without memory, the rows of each part go to a file.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use keirin_kernels::group_table::partition_rows;
use keirin_kernels::hash::Seed;
use parking_lot::Mutex;

use super::keys::hash_keys;
use crate::compact::buffer_bytes;
use crate::compact::compact;
use crate::compile::parts::{PartFile, spilled};

/// Rows are sorted into 2 to the power of this many parts: of ten million groups, those of a part and their states are
/// still in the caches.
const PART_BITS: u32 = 7;
/// So many rows, of all threads together, are one part.
const WHOLE_ROWS: usize = 1 << 16;
/// Rows that a thread sorts at a time, or fewer of so many bytes.
const SORTED_ROWS: usize = 1 << 16;
const SORTED_BYTES: usize = 8 << 20;
/// Rows of a part that are merged at a time, at least.
const MERGED_ROWS: usize = 1 << 14;

/// See the [module](self). The first columns are the keys.
#[derive(Debug)]
pub(super) struct ExchangeExec {
    input: Arc<dyn ExecutionPlan>,
    key_count: usize,
    properties: Arc<PlanProperties>,
    run: Mutex<Option<Run>>,
    metrics: ExecutionPlanMetricsSet,
}

/// A run of the plan: which partitions were begun, and what they exchange.
#[derive(Debug)]
struct Run {
    begun: Vec<bool>,
    exchange: Arc<Exchange>,
}

impl ExchangeExec {
    /// Gives the rows of `input` to so many partitions by their first `key_count` columns.
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, key_count: usize, partition_count: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partition_count),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            input,
            key_count,
            properties: Arc::new(properties),
            run: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The parts of a run, of which a partition takes some; a partition that was begun before begins another run.
    pub(super) fn parts(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Parts> {
        let mut current = self.run.lock();
        let mut run = match current.take().filter(|run| !run.begun[partition]) {
            Some(run) => run,
            None => Run {
                begun: vec![false; self.partition_count()],
                exchange: Arc::new(Exchange::new(self, context)?),
            },
        };
        run.begun[partition] = true;
        let parts = Parts { exchange: run.exchange.clone(), has_part: false };
        // When all were begun nobody else asks, and the plan must not keep rows alive that the run is done with.
        *current = (!run.begun.iter().all(|begun| *begun)).then_some(run);
        Ok(parts)
    }

    fn partition_count(&self) -> usize {
        self.properties.partitioning.partition_count()
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExchangeExec: keys={}, partitions={}", self.key_count, self.partition_count())
    }
}

impl ExecutionPlan for ExchangeExec {
    fn name(&self) -> &'static str {
        "ExchangeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), self.key_count, self.partition_count())))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.input.clone(), self.key_count, self.partition_count())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    /// All parts that this partition takes, one after the other.
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let parts = self.parts(partition, &context)?.map(Ok);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), parts.try_flatten().boxed())))
    }
}

/// The parts that a partition takes, each a stream of all its rows.
pub(super) struct Parts {
    exchange: Arc<Exchange>,
    /// Whether a part was taken, with which it is done when it takes the next.
    has_part: bool,
}

impl Parts {
    /// What `read` makes of each part, one after the other.
    pub(super) fn map<T>(
        self,
        read: impl Fn(SendableRecordBatchStream) -> Result<T>,
    ) -> impl Stream<Item = Result<T>> {
        stream::try_unfold((self, read), |(mut parts, read)| async move {
            if parts.has_part {
                parts.exchange.free_part();
            }
            parts.has_part = true;
            let part = parts.exchange.next_part().await?.map(&read).transpose()?;
            Ok(part.map(|part| (part, (parts, read))))
        })
    }
}

/// What the partitions of a run exchange.
struct Exchange {
    key_count: usize,
    schema: SchemaRef,
    seed: Seed,
    spilled: Arc<SpillManager>,
    may_spill: bool,
    filling: tokio::sync::Mutex<Filling>,
    held: Mutex<Held>,
    /// The next part to be taken.
    next_part: AtomicUsize,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("next_part", &self.next_part).finish_non_exhaustive()
    }
}

/// How far the rows are there.
enum Filling {
    NotBegun(Vec<SendableRecordBatchStream>),
    /// They come as long as these run; dropping them ends that.
    Begun(JoinSet<Result<()>>),
    Done,
    Failed(Arc<DataFusionError>),
}

/// The rows that are there.
struct Held {
    /// Rows that were not sorted.
    whole: Vec<RecordBatch>,
    /// Sorted rows; no parts if there are none.
    parts: Vec<Part>,
    /// The addresses of the buffers that are booked, which some batches share.
    booked: HashSet<usize>,
    reservation: MemoryReservation,
    /// What each of sorted parts has of that, when all are there.
    part_bytes: usize,
}

#[derive(Default)]
struct Part {
    batches: Vec<RecordBatch>,
    /// Rows that there was no memory for: one file, however often there was none, for a process has few files open.
    writing: Option<PartFile>,
    file: Option<Arc<dyn SpillFile>>,
}

/// The bytes of the buffers that `is_new` takes for new ones.
fn batch_bytes(batch: &RecordBatch, is_new: &mut impl FnMut(usize) -> bool) -> usize {
    batch.columns().iter().map(|column| buffer_bytes(&column.to_data(), is_new)).sum()
}

fn bytes_of(batches: &[RecordBatch], mut is_new: impl FnMut(usize) -> bool) -> usize {
    batches.iter().map(|batch| batch_bytes(batch, &mut is_new)).sum()
}

fn row_count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

impl Exchange {
    fn new(plan: &ExchangeExec, context: &Arc<TaskContext>) -> Result<Self> {
        let inputs = 0..plan.input.properties().partitioning.partition_count();
        let inputs = inputs.map(|partition| plan.input.execute(partition, context.clone()));
        let schema = plan.input.schema();
        let reservation =
            MemoryConsumer::new("GroupExchange").with_can_spill(true).register(context.memory_pool());
        Ok(Self {
            key_count: plan.key_count,
            seed: Seed::random(),
            may_spill: context.runtime_env().disk_manager.tmp_files_enabled(),
            spilled: spilled(&plan.metrics, &schema, context),
            schema,
            filling: tokio::sync::Mutex::new(Filling::NotBegun(inputs.collect::<Result<_>>()?)),
            held: Mutex::new(Held {
                whole: Vec::new(),
                parts: Vec::new(),
                booked: HashSet::new(),
                reservation,
                part_bytes: 0,
            }),
            next_part: AtomicUsize::new(0),
        })
    }

    /// The rows of the next part that nobody took, all of them.
    async fn next_part(self: &Arc<Self>) -> Result<Option<SendableRecordBatchStream>> {
        self.fill().await?;
        loop {
            let place = self.next_part.fetch_add(1, Ordering::Relaxed);
            let Part { mut batches, file, .. } = {
                let mut held = self.held.lock();
                if held.parts.is_empty() && place == 0 {
                    Part { batches: std::mem::take(&mut held.whole), ..Part::default() }
                } else {
                    let Some(part) = held.parts.get_mut(place) else { return Ok(None) };
                    std::mem::take(part)
                }
            };
            if batches.is_empty() && file.is_none() {
                continue;
            }
            // The first is taken first.
            batches.reverse();
            let schema = self.schema.clone();
            let merged = std::iter::from_fn(move || {
                let mut some = vec![batches.pop()?];
                while row_count(&some) < MERGED_ROWS
                    && let Some(next) = batches.pop()
                {
                    some.push(next);
                }
                Some(match &some[..] {
                    [one] => Ok(one.clone()),
                    several => concat_batches(&schema, several).map_err(DataFusionError::from),
                })
            });
            let exchange = self.clone();
            let read = move |file| exchange.spilled.read_spill_as_stream(file, None);
            let there = stream::iter(file).map(read).try_flatten();
            let all = stream::iter(merged).chain(there);
            return Ok(Some(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), all.boxed()))));
        }
    }

    /// Somebody is done with a part.
    fn free_part(&self) {
        let held = &mut *self.held.lock();
        // Parts share the text of views.
        let shares =
            |field: &FieldRef| matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
        if !self.schema.fields().iter().any(shares) {
            held.reservation.shrink(held.part_bytes);
        }
    }

    /// Waits until all rows are there. Whoever comes first sees to that; if it goes away, the next does.
    async fn fill(self: &Arc<Self>) -> Result<()> {
        let mut filling = self.filling.lock().await;
        if let Filling::NotBegun(inputs) = &mut *filling {
            let mut tasks = JoinSet::new();
            for input in std::mem::take(inputs) {
                let exchange = Arc::downgrade(self);
                tasks.spawn(async move { Self::take_in(exchange, input).await });
            }
            *filling = Filling::Begun(tasks);
        }
        if let Filling::Begun(tasks) = &mut *filling {
            let mut outcome = Ok(());
            while let Some(ended) = tasks.join_next().await {
                outcome = ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error))).flatten();
                if outcome.is_err() {
                    break;
                }
            }
            *filling = match outcome.and_then(|()| self.finish()) {
                Ok(()) => Filling::Done,
                Err(error) => Filling::Failed(Arc::new(error)),
            };
        }
        match &*filling {
            Filling::Failed(error) => Err(DataFusionError::Shared(error.clone())),
            _ => Ok(()),
        }
    }

    /// Takes the rows of one input. Holds the exchange only while it sorts, so that who goes away ends this.
    async fn take_in(exchange: std::sync::Weak<Self>, mut input: SendableRecordBatchStream) -> Result<()> {
        let (mut batches, mut rows, mut bytes, mut seen) = (Vec::new(), 0, 0, HashSet::new());
        loop {
            let batch = input.next().await.transpose()?;
            let Some(exchange) = exchange.upgrade() else { return Ok(()) };
            let Some(batch) = batch else {
                return exchange.keep(batches);
            };
            // A few rows must not keep the text of many.
            let batch = compact(&batch)?;
            rows += batch.num_rows();
            bytes += batch_bytes(&batch, &mut |address| seen.insert(address));
            batches.push(batch);
            if rows >= SORTED_ROWS || bytes >= SORTED_BYTES {
                exchange.sort(std::mem::take(&mut batches))?;
                seen.clear();
                (rows, bytes) = (0, 0);
            }
        }
    }

    /// All rows came.
    fn finish(&self) -> Result<()> {
        let whole = {
            let mut held = self.held.lock();
            let is_small = held.parts.is_empty() && row_count(&held.whole) <= WHOLE_ROWS;
            if is_small { Vec::new() } else { std::mem::take(&mut held.whole) }
        };
        let mut batches = Vec::new();
        for batch in whole {
            batches.push(batch);
            if row_count(&batches) >= SORTED_ROWS {
                self.sort(std::mem::take(&mut batches))?;
            }
        }
        self.sort(batches)?;
        let held = &mut *self.held.lock();
        for part in &mut held.parts {
            part.file = part.writing.take().map(|mut file| file.end()).transpose()?.flatten();
        }
        held.part_bytes = held.reservation.size() >> PART_BITS;
        Ok(())
    }

    /// Keeps rows as they are, if there is memory.
    fn keep(&self, batches: Vec<RecordBatch>) -> Result<()> {
        let held = &mut *self.held.lock();
        let mut added = Vec::new();
        let new = |address| {
            let is_new = held.booked.insert(address);
            added.extend(is_new.then_some(address));
            is_new
        };
        let bytes = bytes_of(&batches, new);
        if held.reservation.try_grow(bytes).is_ok() {
            held.whole.extend(batches);
            return Ok(());
        }
        added.iter().for_each(|address| _ = held.booked.remove(address));
        self.add(held, self.sorted(&self.joined(batches)?)?)
    }

    /// The rows of all batches.
    fn joined(&self, batches: Vec<RecordBatch>) -> Result<RecordBatch> {
        Ok(match &batches[..] {
            [one] => one.clone(),
            several => concat_batches(&self.schema, several)?,
        })
    }

    /// Sorts rows into parts.
    fn sort(&self, batches: Vec<RecordBatch>) -> Result<()> {
        if batches.is_empty() {
            return Ok(());
        }
        let sorted = self.sorted(&self.joined(batches)?)?;
        self.add(&mut self.held.lock(), sorted)
    }

    /// Adds sorted rows. Where there is no memory for them, they go to files, and those with them that are there.
    fn add(&self, held: &mut Held, sorted: Vec<(usize, RecordBatch)>) -> Result<()> {
        held.parts.resize_with(1 << PART_BITS, Part::default);
        let (parts, batches): (Vec<usize>, Vec<RecordBatch>) = sorted.into_iter().unzip();
        let bytes = bytes_of(&batches, |address| held.booked.insert(address));
        let is_booked = match held.reservation.try_grow(bytes) {
            Err(DataFusionError::ResourcesExhausted(_)) if self.may_spill => false,
            booked => booked.map(|()| true)?,
        };
        for (part, batch) in parts.into_iter().zip(batches) {
            held.parts[part].batches.push(batch);
        }
        if is_booked { Ok(()) } else { self.spill(held) }
    }

    /// The rows of each part that has some.
    fn sorted(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let hashes = hash_keys(&self.seed, &batch.columns()[..self.key_count], batch.num_rows());
        let sorted = partition_rows(&hashes, PART_BITS);
        let rows = UInt32Array::from(sorted.rows);
        let ranges = sorted.starts.windows(2).enumerate().filter(|(_, range)| range[0] < range[1]);
        let parts = ranges.map(|(part, range)| {
            let rows = rows.slice(range[0] as usize, (range[1] - range[0]) as usize);
            Ok((part, take_record_batch(batch, &rows)?))
        });
        parts.collect()
    }

    /// Writes all sorted rows to files, for want of memory.
    fn spill(&self, held: &mut Held) -> Result<()> {
        for part in &mut held.parts {
            let batches = std::mem::take(&mut part.batches);
            if batches.is_empty() {
                continue;
            }
            let writing = part.writing.get_or_insert_with(|| PartFile::new(self.spilled.clone()));
            writing.append(&self.joined(batches)?)?;
        }
        held.booked.clear();
        held.reservation.free();
        Ok(())
    }
}
