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
use super::pieces::Pieces;
use super::run::{Shared, Work, all, begin, feed, partition_count};
use crate::compile::grouping::hash_keys;
use crate::compile::subplans::SharedExec;
use crate::sources::leaf::leaf_methods;

/// A side is cut into this power of two of parts.
const PART_BITS: u32 = 5;
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
    metrics: ExecutionPlanMetricsSet,
}

impl Spilling {
    /// `None` for a join that may not: one whose rows must stay in the order of the probe side, or in its partitions.
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
        let may_spill = !is_in_order
            && work.equal_count() > 0
            && context.runtime_env().disk_manager.tmp_files_enabled()
            && !left.exists(is_once).unwrap_or(true);
        may_spill.then(|| Self { depth: 0, metrics: metrics.clone() })
    }

    /// For what it makes beside the rows of the join.
    pub(super) fn unseen(&self) -> BaselineMetrics {
        BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0)
    }

    /// A file for rows of a side.
    pub(super) fn new_file(&self, side: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> PartFile {
        let metrics = SpillMetrics::new(&self.metrics, 0);
        PartFile::new(Arc::new(SpillManager::new(context.runtime_env(), metrics, side.schema())))
    }
}

/// What a join does instead that has no memory for its build side.
pub(super) enum Parts {
    /// Parts by hashes that nobody has taken: the sides of each, and how it may spill.
    Hashed { left: Mutex<VecDeque<([PartExec; 2], Spilling)>>, work: Arc<Work>, context: Arc<TaskContext> },
    /// Pieces of the build side, which one partition takes.
    Pieces(Mutex<Option<Pieces>>),
}

impl Parts {
    /// The rows of all that no other partition has taken.
    pub(super) fn rows(
        self: Arc<Self>,
        schema: SchemaRef,
        baseline: BaselineMetrics,
    ) -> SendableRecordBatchStream {
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
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
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
        let pieces = Pieces::new(work, &left, right, context, spilling).await?;
        return Ok(Arc::new(Parts::Pieces(Mutex::new(Some(pieces)))));
    }
    // Scans of the probe side read all of it: which keys there are is known only of a part.
    for filter in work.key_filters.iter().map(|key| &key.filter).chain(&work.dynamic_filter) {
        filter.update(lit(true))?;
        filter.mark_complete();
    }
    let seed = Seed::random();
    let count = work.equal_count();
    let cut = |side: Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>]| {
        cut(side, keys[..count].into(), seed, context.clone(), spilling.clone())
    };
    let left = cut(reset_plan_states(left)?, &work.left_keys).await?;
    let row_count: usize = left.iter().map(PartExec::row_count).sum();
    let right = cut(right, &work.right_keys).await?;
    let is_of_closest = is_of_closest(&work);
    let sides = left.into_iter().zip(right).map(|(left, right)| {
        let is_heavy = left.row_count > row_count / HEAVY_SHARE;
        let depth = if is_heavy && !is_of_closest { DEPTH_MAX } else { spilling.depth + 1 };
        ([left, right], Spilling { depth, ..spilling.clone() })
    });
    let left = Mutex::new(sides.collect());
    let work = Arc::new(Work { dynamic_filter: None, key_filters: Vec::new(), ..work.as_ref().clone() });
    Ok(Arc::new(Parts::Hashed { left, work, context }))
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
    fn new(spilled: Arc<SpillManager>) -> Self {
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

    pub(super) fn finish(&mut self) -> Result<PartExec> {
        let file = self.writing.take().map_or(Ok(None), |mut writing| writing(None))?;
        Ok(PartExec::new(file, self.row_count, self.spilled.clone()))
    }
}

/// Appends a batch to a file, or gives the file when none is left; DataFusion does not export the type of such a file.
type Writing = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Option<Arc<dyn SpillFile>>> + Send>;

/// A side that is being cut.
struct Cutting {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    seed: Seed,
    schema: SchemaRef,
    /// By part.
    files: Vec<Mutex<PartFile>>,
}

/// What a thread has gathered.
struct Gathered {
    cutting: Arc<Cutting>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    bytes_max: usize,
    reservation: MemoryReservation,
}

async fn cut(
    side: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    seed: Seed,
    context: Arc<TaskContext>,
    spilling: Spilling,
) -> Result<Vec<PartExec>> {
    let files = (0..1 << PART_BITS).map(|_| Mutex::new(spilling.new_file(&side, &context))).collect();
    let cutting = Arc::new(Cutting { keys, seed, schema: side.schema(), files });
    let partitions = partition_count(&side);
    let bytes_max = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => GATHERED_BYTES_MAX.min(bytes / GATHERED_SHARE / partitions),
        _ => GATHERED_BYTES_MAX,
    };
    let alive = Arc::new(());
    let mut tasks = JoinSet::new();
    for partition in 0..partitions {
        let reservation = MemoryConsumer::new("join").with_can_spill(true).register(context.memory_pool());
        let cutting = cutting.clone();
        let state = Gathered { cutting, batches: Vec::new(), bytes: 0, bytes_max, reservation };
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
    cutting.files.iter().map(|file| file.lock().finish()).collect()
}

impl Gathered {
    fn add(&mut self, batch: RecordBatch) -> Result<()> {
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
        let hashes = hash_keys(&cutting.seed, &evaluate(&cutting.keys, &batch)?, batch.num_rows());
        let sorted = partition_rows(&hashes, PART_BITS);
        let rows = UInt32Array::from(sorted.rows);
        for (file, range) in cutting.files.iter().zip(sorted.starts.windows(2)) {
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
    file: Option<Arc<dyn SpillFile>>,
    row_count: usize,
    spilled: Arc<SpillManager>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PartExec {
    fn new(file: Option<Arc<dyn SpillFile>>, row_count: usize, spilled: Arc<SpillManager>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(spilled.schema().clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Self { file, row_count, spilled, properties, metrics }
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema: SchemaRef = self.spilled.schema().clone();
        match &self.file {
            Some(file) => self.spilled.read_spill_as_stream(file.clone(), None),
            None => Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty()))),
        }
    }
}
