//! Rows cut by the hashes of keys into parts, on disk, for operators without memory for all rows at a time: whatever has equal
//! keys is in one part. G. Graefe, "Query Evaluation Techniques for Large Databases" (ACM Computing Surveys 25, 1993),
//! section 3.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream;
use keirin_kernels::group_table::partition_rows;
use keirin_kernels::hash::Seed;
use parking_lot::Mutex;

use super::grouping::hash_keys;
use super::join::{all, evaluate, feed, partition_count};
use super::subplans::SharedExec;
use crate::sources::leaf::leaf_methods;

/// A thread gathers so many bytes at most before it cuts them.
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// All threads together gather this part of the memory limit at most.
const GATHERED_SHARE: usize = 16;

/// Whether a plan may be read from its beginning again: what is run once must not be, and the rows that a step of a recursive
/// query begins with are not there again.
pub(super) fn can_run_again(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_once = |node: &Arc<dyn ExecutionPlan>| {
        let is_once = node.downcast_ref::<SharedExec>().is_some_and(SharedExec::is_once);
        Ok(is_once || node.is::<WorkTableExec>())
    };
    !plan.exists(is_once).unwrap_or(true)
}

/// What reads and writes rows on disk.
pub(super) fn spilled(
    metrics: &ExecutionPlanMetricsSet,
    schema: &SchemaRef,
    context: &TaskContext,
) -> Arc<SpillManager> {
    Arc::new(SpillManager::new(context.runtime_env(), SpillMetrics::new(metrics, 0), schema.clone()))
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
                let mut file = self.spilled.create_in_progress_file("parts")?;
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
pub(super) struct CutBy {
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) seed: Seed,
    /// There is this power of two of parts.
    pub(super) part_bits: u32,
    /// Whether each row has its number in its partition behind its columns: then a part has the partitions of the side.
    pub(super) is_numbered: bool,
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

/// Cuts all rows of a plan into parts.
pub(super) async fn cut(
    side: Arc<dyn ExecutionPlan>,
    cut_by: CutBy,
    context: Arc<TaskContext>,
    metrics: &ExecutionPlanMetricsSet,
) -> Result<Vec<PartExec>> {
    let (is_numbered, part_count) = (cut_by.is_numbered, 1 << cut_by.part_bits);
    let partitions = partition_count(&side);
    let schema = if is_numbered { with_number(&side.schema()) } else { side.schema() };
    let spilled = spilled(metrics, &schema, &context);
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
        let reservation = MemoryConsumer::new("parts").with_can_spill(true).register(context.memory_pool());
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

/// A schema with the number of a row behind its columns.
pub(super) fn with_number(schema: &SchemaRef) -> SchemaRef {
    let number = Arc::new(Field::new("row number", DataType::UInt64, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([number]).collect::<Vec<_>>()))
}

/// Rows with their numbers from `first` on.
fn numbered(batch: &RecordBatch, schema: &SchemaRef, first: u64) -> Result<RecordBatch> {
    let numbers = UInt64Array::from_iter_values(first..first + batch.num_rows() as u64);
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(numbers));
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
