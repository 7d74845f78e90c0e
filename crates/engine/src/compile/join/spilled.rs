//! Joins without memory for their build side: both sides are cut by the hashes of their keys into parts, on disk, and
//! parts are joined one after the other. A part that is too large itself is cut again, by other hashes, or, if most of its
//! rows have equal keys, into [pieces](super::pieces). G. Graefe, "Query Evaluation Techniques for Large Databases" (ACM
//! Computing Surveys 25, 1993), section 3.3: a Grace hash join.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::resources_err;
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream::{self, try_unfold};
use futures::{StreamExt, TryStreamExt};
use keirin_kernels::group_table::partition_rows;
use keirin_kernels::hash::Seed;
use keirin_operators::ordered::Wanted;
use parking_lot::Mutex;

use super::build::evaluate;
use super::ordered_runs::{OrderedRuns, numbered, with_number};
use super::pieces::{self, Pieces};
use super::run::{Shared, Work, all, begin, feed, partition_count};
use crate::compile::grouping::hash_keys;
use crate::compile::subplans::SharedExec;
use crate::sources::leaf::leaf_methods;

/// A side is cut into this power of two of parts.
const PART_BITS: u32 = 5;
/// So many files of a side are open at a time, each with a buffer: with many partitions that keep their rows there are fewer
/// parts.
const FILES_MAX: usize = 256;
/// Parts of parts of parts: more rows than that have equal keys.
const DEPTH_MAX: usize = 3;
/// A part with more than this share of the rows has a key of many rows, and is not cut by hashes again: 1/4.
const HEAVY_SHARE: usize = 4;
/// A thread gathers so many bytes at most before it cuts them.
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// All threads together gather this part of the memory limit at most.
const GATHERED_SHARE: usize = 16;

/// How a join spills.
#[derive(Clone, Debug)]
pub(super) struct Spilling {
    /// How often its sides were cut before.
    depth: usize,
    /// Whether rows must stay in the order of the probe side, and in its partitions.
    is_in_order: bool,
    metrics: ExecutionPlanMetricsSet,
}

impl Spilling {
    /// `None` for a join that may not: one whose build side must not be run twice.
    pub(super) fn of(
        work: &Work,
        left: &Arc<dyn ExecutionPlan>,
        is_in_order: bool,
        metrics: &ExecutionPlanMetricsSet,
        context: &TaskContext,
    ) -> Option<Self> {
        // What is run once must not be run again, and the rows that a step of a recursive query begins with are not there again.
        let is_once = |node: &Arc<dyn ExecutionPlan>| {
            let is_once = node.downcast_ref::<SharedExec>().is_some_and(SharedExec::is_once);
            Ok(is_once || node.is::<WorkTableExec>())
        };
        let may_spill = work.equal_count() > 0
            && context.runtime_env().disk_manager.tmp_files_enabled()
            && !left.exists(is_once).unwrap_or(true);
        may_spill.then(|| Self { depth: 0, is_in_order, metrics: metrics.clone() })
    }

    /// For what it makes beside the rows of the join.
    pub(super) fn unseen(&self) -> BaselineMetrics {
        BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0)
    }

    /// What reads and writes rows on disk.
    pub(super) fn spilled(&self, schema: &SchemaRef, context: &TaskContext) -> Arc<SpillManager> {
        let metrics = SpillMetrics::new(&self.metrics, 0);
        Arc::new(SpillManager::new(context.runtime_env(), metrics, schema.clone()))
    }

    /// A file for rows of a side.
    pub(super) fn new_file(&self, schema: &SchemaRef, context: &TaskContext) -> PartFile {
        PartFile::new(self.spilled(schema, context))
    }
}

/// What a join does instead that has no memory for its build side.
pub(super) enum Parts {
    /// Parts by hashes that nobody has taken: the sides of each, and how it may spill.
    Hashed { left: Mutex<VecDeque<([PartExec; 2], Spilling)>>, work: Arc<Work>, context: Arc<TaskContext> },
    /// Pieces of the build side, which one partition takes.
    Pieces(Mutex<Option<Pieces>>),
    /// All rows, in the order of the probe side.
    InOrder(OrderedRuns),
}

impl Parts {
    /// The rows of all that no other partition has taken; where they are in order, those of the partition.
    pub(super) fn rows(
        self: Arc<Self>,
        partition: usize,
        schema: SchemaRef,
        baseline: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let rows = match self.as_ref() {
            Self::Hashed { .. } => try_unfold(self, move |parts| {
                let (next, baseline) = (parts.next(), baseline.clone());
                async move {
                    let Some(part) = next else { return Ok::<_, DataFusionError>(None) };
                    Ok(Some((part.stream(0, baseline).await?, parts)))
                }
            })
            .try_flatten()
            .boxed(),
            Self::Pieces(pieces) => try_unfold(pieces.lock().take(), move |pieces| {
                let baseline = baseline.clone();
                async move {
                    let Some(mut pieces) = pieces else { return Ok::<_, DataFusionError>(None) };
                    Ok(pieces.next(baseline).await?.map(|rows| (rows, Some(pieces))))
                }
            })
            .try_flatten()
            .boxed(),
            Self::InOrder(runs) => return runs.rows(partition, schema, baseline),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// The next part to join.
    fn next(&self) -> Option<Arc<dyn Shared>> {
        let Self::Hashed { left, work, context } = self else { return None };
        let ([left, right], spilling) = left.lock().pop_front()?;
        let (left, right): (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) =
            (Arc::new(left), Arc::new(right));
        Some(begin(work, &left, &right, context, Some(spilling)))
    }
}

/// Cuts both sides of a join into parts; the left one is read from its beginning.
pub(super) async fn parts(
    work: Arc<Work>,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    spilling: Spilling,
) -> Result<Arc<Parts>> {
    if spilling.depth == DEPTH_MAX {
        if is_of_closest(&work) {
            return resources_err!("an as-of join has more rows of one key than there is memory for");
        }
        if spilling.is_in_order {
            let runs = OrderedRuns::of_pieces(&work, &left, &right, &spilling, &context).await?;
            return Ok(Arc::new(Parts::InOrder(runs)));
        }
        let left = pieces::cut(&left, &spilling, &context).await?;
        let pieces = Pieces::new(work, left, right, context, spilling);
        return Ok(Arc::new(Parts::Pieces(Mutex::new(Some(pieces)))));
    }
    // Scans of the probe side read all of it: which keys there are is known only of a part.
    for filter in work.key_filters.iter().map(|key| &key.filter).chain(&work.dynamic_filter) {
        filter.update(lit(true))?;
        filter.mark_complete();
    }
    let seed = Seed::random();
    let count = work.equal_count();
    let partitions = if spilling.is_in_order { partition_count(&right) } else { 1 };
    let part_bits = (FILES_MAX / partitions).max(2).ilog2().min(PART_BITS);
    let cut = |side: Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>], is_numbered| {
        let cut_by = CutBy { keys: keys[..count].into(), seed, part_bits, is_numbered };
        cut(side, cut_by, context.clone(), spilling.clone())
    };
    let left = cut(reset_plan_states(left)?, &work.left_keys, false).await?;
    let row_count: usize = left.iter().map(PartExec::row_count).sum();
    let probe_columns = right.schema().fields().len();
    let right = cut(right, &work.right_keys, spilling.is_in_order).await?;
    let is_of_closest = is_of_closest(&work);
    let sides = left.into_iter().zip(right).map(|(left, right)| {
        let is_heavy = left.row_count > row_count / HEAVY_SHARE;
        let depth = if is_heavy && !is_of_closest { DEPTH_MAX } else { spilling.depth + 1 };
        ([left, right], Spilling { depth, ..spilling.clone() })
    });
    let work = Work { dynamic_filter: None, key_filters: Vec::new(), ..work.as_ref().clone() };
    if spilling.is_in_order {
        let work = Arc::new(work.numbered(probe_columns));
        let runs = OrderedRuns::of_parts(&work, sides.collect(), partitions, &spilling, &context).await?;
        return Ok(Arc::new(Parts::InOrder(runs)));
    }
    let left = Mutex::new(sides.collect());
    Ok(Arc::new(Parts::Hashed { left, work: Arc::new(work), context }))
}

/// Whether a join wants the closest row alone, which pieces do not know.
fn is_of_closest(work: &Work) -> bool {
    work.ranges.as_ref().is_some_and(|ranges| ranges.wanted != Wanted::All)
}

/// The file of a part that is being written, which begins with its first rows.
pub(super) struct PartFile {
    spilled: Arc<SpillManager>,
    writing: Option<Writing>,
    row_count: usize,
}

impl PartFile {
    pub(super) fn new(spilled: Arc<SpillManager>) -> Self {
        Self { spilled, writing: None, row_count: 0 }
    }

    pub(super) fn row_count(&self) -> usize {
        self.row_count
    }

    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        self.row_count += batch.num_rows();
        let writing = match &mut self.writing {
            Some(writing) => writing,
            none => {
                let mut file = self.spilled.create_in_progress_file("join")?;
                none.insert(Box::new(move |batch| match batch {
                    Some(batch) => file.append_batch(batch).map(|_| None),
                    None => file.finish(),
                }))
            }
        };
        writing(Some(batch)).map(|_| ())
    }

    /// The file, if there are rows.
    pub(super) fn end(&mut self) -> Result<Option<Arc<dyn SpillFile>>> {
        self.writing.take().map_or(Ok(None), |mut writing| writing(None))
    }

    pub(super) fn finish(&mut self) -> Result<PartExec> {
        Ok(PartExec::new(vec![self.end()?], self.row_count, self.spilled.clone()))
    }
}

/// Appends a batch to a file, or gives the file when none is left; DataFusion does not export the type of such a file.
type Writing = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Option<Arc<dyn SpillFile>>> + Send>;

/// How a side is cut.
struct CutBy {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    seed: Seed,
    part_bits: u32,
    /// Whether each row has its number in its partition behind its columns: then a part has the partitions of the side.
    is_numbered: bool,
}

/// A side that is being cut.
struct Cutting {
    cut_by: CutBy,
    schema: SchemaRef,
    /// By part, of each partition, or of all together.
    files: Vec<Vec<Mutex<PartFile>>>,
}

/// What a thread has gathered.
struct Gathered {
    cutting: Arc<Cutting>,
    /// The place of its files.
    group: usize,
    /// The number of its next row, if rows are numbered.
    next_number: Option<u64>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    bytes_max: usize,
    reservation: MemoryReservation,
}

/// Cuts a side into parts.
async fn cut(
    side: Arc<dyn ExecutionPlan>,
    cut_by: CutBy,
    context: Arc<TaskContext>,
    spilling: Spilling,
) -> Result<Vec<PartExec>> {
    let (is_numbered, part_count) = (cut_by.is_numbered, 1 << cut_by.part_bits);
    let partitions = partition_count(&side);
    let schema = if is_numbered { with_number(&side.schema()) } else { side.schema() };
    let spilled = spilling.spilled(&schema, &context);
    let files = || (0..part_count).map(|_| Mutex::new(PartFile::new(spilled.clone()))).collect();
    let files = (0..if is_numbered { partitions } else { 1 }).map(|_| files()).collect();
    let cutting = Arc::new(Cutting { cut_by, schema, files });
    let bytes_max = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => GATHERED_BYTES_MAX.min(bytes / GATHERED_SHARE / partitions),
        _ => GATHERED_BYTES_MAX,
    };
    let alive = Arc::new(());
    let mut tasks = JoinSet::new();
    for partition in 0..partitions {
        let reservation = MemoryConsumer::new("join").with_can_spill(true).register(context.memory_pool());
        let cutting = cutting.clone();
        let (group, next_number) = if is_numbered { (partition, Some(0)) } else { (0, None) };
        let batches = Vec::new();
        let state = Gathered { cutting, group, next_number, batches, bytes: 0, bytes_max, reservation };
        let (side, context, alive) = (side.clone(), context.clone(), Arc::downgrade(&alive));
        tasks.spawn(async move {
            let add = |state: &mut Gathered, batch: Option<RecordBatch>| {
                batch.into_iter().try_for_each(|batch| state.add(batch))?;
                Ok(false)
            };
            let mut state = feed(&side, partition, &context, alive, state, add).await?;
            state.write()
        });
    }
    all(tasks).await?;
    let part = |part: usize| {
        let files = cutting.files.iter().map(|files| files[part].lock());
        let (mut row_count, mut ended) = (0, Vec::new());
        for mut file in files {
            row_count += file.row_count();
            ended.push(file.end()?);
        }
        Ok(PartExec::new(ended, row_count, spilled.clone()))
    };
    (0..part_count).map(part).collect()
}

impl Gathered {
    fn add(&mut self, mut batch: RecordBatch) -> Result<()> {
        if let Some(next) = &mut self.next_number {
            batch = numbered(&batch, &self.cutting.schema, *next)?;
            *next += batch.num_rows() as u64;
        }
        self.bytes += batch.get_array_memory_size();
        self.batches.push(batch);
        // Cut rows are beside those that are gathered.
        let has_room = self.reservation.try_resize(2 * self.bytes).is_ok();
        if has_room && self.bytes < self.bytes_max { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.batches);
        if batches.is_empty() {
            return Ok(());
        }
        let cutting = &self.cutting;
        let batch = match &batches[..] {
            [batch] => batch.clone(),
            several => concat_batches(&cutting.schema, several)?,
        };
        drop(batches);
        let CutBy { keys, seed, part_bits, .. } = &cutting.cut_by;
        let hashes = hash_keys(seed, &evaluate(keys, &batch)?, batch.num_rows());
        let sorted = partition_rows(&hashes, *part_bits);
        let rows = UInt32Array::from(sorted.rows);
        for (file, range) in cutting.files[self.group].iter().zip(sorted.starts.windows(2)) {
            if range[0] == range[1] {
                continue;
            }
            let rows = rows.slice(range[0] as usize, (range[1] - range[0]) as usize);
            let batch = take_record_batch(&batch, &rows)?;
            file.lock().append(&batch)?;
        }
        self.bytes = 0;
        self.reservation.free();
        Ok(())
    }
}

/// The rows of a part of a side.
pub(super) struct PartExec {
    /// By partition.
    files: Vec<Option<Arc<dyn SpillFile>>>,
    row_count: usize,
    spilled: Arc<SpillManager>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PartExec {
    fn new(files: Vec<Option<Arc<dyn SpillFile>>>, row_count: usize, spilled: Arc<SpillManager>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(spilled.schema().clone()),
            Partitioning::UnknownPartitioning(files.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Self { files, row_count, spilled, properties, metrics }
    }

    /// Its partitions, each as a part of one.
    pub(super) fn partitions(&self) -> impl Iterator<Item = Self> {
        self.files.iter().map(|file| Self::new(vec![file.clone()], self.row_count, self.spilled.clone()))
    }

    pub(super) fn row_count(&self) -> usize {
        self.row_count
    }
}

impl fmt::Debug for PartExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartExec")
    }
}

impl DisplayAs for PartExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartExec")
    }
}

impl ExecutionPlan for PartExec {
    fn name(&self) -> &'static str {
        "PartExec"
    }

    leaf_methods!();

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema: SchemaRef = self.spilled.schema().clone();
        match &self.files[partition] {
            Some(file) => self.spilled.read_spill_as_stream(file.clone(), None),
            None => Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty()))),
        }
    }
}
