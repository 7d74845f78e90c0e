//! Joins without memory for their build side: both sides are cut by the hashes of their keys into parts, on disk, and
//! parts are joined one after the other. A part that is too large itself is cut again, by other hashes. G. Graefe, "Query
//! Evaluation Techniques for Large Databases" (ACM Computing Surveys 25, 1993), section 3.3: a Grace hash join.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::resources_err;
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream;
use keirin_kernels::group_table::partition_rows;
use keirin_kernels::hash::Seed;
use parking_lot::Mutex;

use super::build::evaluate;
use super::run::{Shared, Work, all, begin, feed, partition_count};
use crate::compile::grouping::hash_keys;
use crate::compile::subplans::SharedExec;
use crate::sources::leaf::leaf_methods;

/// A side is cut into this power of two of parts.
const PART_BITS: u32 = 5;
/// Parts of parts of parts: more rows than that have equal keys.
const DEPTH_MAX: usize = 3;
/// A part with more than this share of all rows has a key of many rows, with which no smaller parts can be made: 1/4.
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

    fn deeper(&self) -> Option<Self> {
        (self.depth < DEPTH_MAX).then(|| Self { depth: self.depth + 1, metrics: self.metrics.clone() })
    }
}

/// The parts of a join that nobody has taken.
pub(super) struct Parts {
    /// The sides of each.
    left: Mutex<VecDeque<[PartExec; 2]>>,
    work: Arc<Work>,
    spilling: Option<Spilling>,
    context: Arc<TaskContext>,
}

impl Parts {
    /// The next part to join.
    pub(super) fn next(&self) -> Option<Arc<dyn Shared>> {
        let [left, right] = self.left.lock().pop_front()?;
        let (left, right): (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) =
            (Arc::new(left), Arc::new(right));
        Some(begin(&self.work, &left, &right, &self.context, self.spilling.clone()))
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
    // Scans of the probe side read all of it: which keys there are is known only of a part.
    for filter in work.key_filters.iter().map(|key| &key.filter).chain(&work.dynamic_filter) {
        filter.update(lit(true))?;
        filter.mark_complete();
    }
    let seed = Seed::random();
    let count = work.equal_count();
    let cut = |side: Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>]| {
        cut(side, keys[..count].into(), seed, context.clone(), spilling.metrics.clone())
    };
    let left = cut(reset_plan_states(left)?, &work.left_keys).await?;
    let row_count: usize = left.iter().map(|part| part.row_count).sum();
    if spilling.depth == 0 && left.iter().any(|part| part.row_count > row_count / HEAVY_SHARE) {
        return resources_err!(
            "many rows of a join have equal keys, so that cutting them into parts is of no use"
        );
    }
    let right = cut(right, &work.right_keys).await?;
    let work = Work { dynamic_filter: None, key_filters: Vec::new(), ..work.as_ref().clone() };
    Ok(Arc::new(Parts {
        left: Mutex::new(left.into_iter().zip(right).map(|(left, right)| [left, right]).collect()),
        work: Arc::new(work),
        spilling: spilling.deeper(),
        context,
    }))
}

/// Appends a batch to a file, or gives the file when none is left; DataFusion does not export the type of such a file.
type Writing = Box<dyn FnMut(Option<RecordBatch>) -> Result<Option<Arc<dyn SpillFile>>> + Send>;

/// A side that is being cut.
struct Cutting {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    seed: Seed,
    spilled: Arc<SpillManager>,
    /// By part, with the count of rows.
    files: Vec<Mutex<(Option<Writing>, usize)>>,
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
    metrics: ExecutionPlanMetricsSet,
) -> Result<Vec<PartExec>> {
    let metrics = SpillMetrics::new(&metrics, 0);
    let spilled = Arc::new(SpillManager::new(context.runtime_env(), metrics, side.schema()));
    let files = (0..1 << PART_BITS).map(|_| Mutex::default()).collect();
    let cutting = Arc::new(Cutting { keys, seed, spilled: spilled.clone(), files });
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
    let part = |file: &Mutex<(Option<Writing>, usize)>| {
        let (writing, row_count) = std::mem::take(&mut *file.lock());
        let file = writing.map_or(Ok(None), |mut writing| writing(None))?;
        Ok(PartExec::new(file, row_count, spilled.clone()))
    };
    cutting.files.iter().map(part).collect()
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
            several => concat_batches(cutting.spilled.schema(), several)?,
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
            let (writing, row_count) = &mut *file.lock();
            *row_count += batch.num_rows();
            let writing = match writing {
                Some(writing) => writing,
                none => none.insert(cutting.new_file()?),
            };
            writing(Some(batch))?;
        }
        self.bytes = 0;
        self.reservation.free();
        Ok(())
    }
}

impl Cutting {
    fn new_file(&self) -> Result<Writing> {
        let mut file = self.spilled.create_in_progress_file("join")?;
        Ok(Box::new(move |batch| match batch {
            Some(batch) => file.append_batch(&batch).map(|_| None),
            None => file.finish(),
        }))
    }
}

/// The rows of a part of a side.
struct PartExec {
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
