//! What several places of a plan share, made once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err, resources_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use crate::compact::compact;
use crate::runtime::running::Running;

/// What is shared may take this part of the memory limit, unless it is made once: it is kept while others need memory, too,
/// and cannot be spilled.
const SHARES: usize = 16;

/// One place of what is shared.
#[derive(Debug)]
pub(crate) struct SharedExec {
    number: usize,
    /// Whether no place may make rows of its own.
    is_once: bool,
    place: usize,
    places: Arc<Places>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// All places of what is shared.
#[derive(Debug, Default)]
pub(super) struct Places {
    count: AtomicUsize,
    /// The statement for which there was no memory for the rows, by its address: in groups that are not shared then, what is
    /// shared inside must not be tried by each place again. It is the same for what is renewed.
    failed: Arc<AtomicUsize>,
    run: Mutex<Option<Run>>,
    /// The places of a plan that is to run anew, and which of them it has.
    renewed: Mutex<Option<(Arc<Self>, Vec<bool>)>>,
}

impl Places {
    /// The same places without what they have begun. Each place is given the same, until one asks again.
    fn renewed(&self, place: usize) -> Arc<Self> {
        let count = self.count.load(Ordering::Relaxed);
        let mut renewed = self.renewed.lock();
        let (places, mut given) = renewed.take().filter(|(_, given)| !given[place]).unwrap_or_else(|| {
            let failed = self.failed.clone();
            let places = Self { count: AtomicUsize::new(count), failed, ..Self::default() };
            (Arc::new(places), vec![false; count])
        });
        given[place] = true;
        *renewed = (!given.iter().all(|given| *given)).then(|| (places.clone(), given));
        places
    }
}

/// A run of the plan: which partitions of which places were begun, and what all of them get.
#[derive(Debug)]
struct Run {
    begun: Vec<bool>,
    rows: SharedRows,
    /// By place.
    alone: Vec<Alone>,
}

/// The plan of a place that computes its rows alone, the same for all of its partitions.
type Alone = Arc<Mutex<Option<Arc<dyn ExecutionPlan>>>>;

/// The rows when they are there; `None` if there was no memory for them. Tasks of their own make them, so that nobody waits
/// for a place that nobody asks.
type SharedRows = Shared<BoxFuture<'static, Result<Option<Arc<Rows>>, Arc<DataFusionError>>>>;

/// The batches of each partition, and their memory.
#[derive(Debug)]
struct Rows {
    partitions: Vec<Vec<RecordBatch>>,
    _reservations: Vec<MemoryReservation>,
}

impl SharedExec {
    /// The next place of what `places` share.
    pub(super) fn new(
        number: usize,
        is_once: bool,
        places: Arc<Places>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let place = places.count.fetch_add(1, Ordering::Relaxed);
        Self::at(number, is_once, place, places, input)
    }

    /// Whether it must not be run again.
    pub(crate) fn is_once(&self) -> bool {
        self.is_once
    }

    fn at(
        number: usize,
        is_once: bool,
        place: usize,
        places: Arc<Places>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Self {
        // Which rows a partition has is up to the place that has them made: no place may rely on that.
        let partitions = Partitioning::UnknownPartitioning(input.properties().partitioning.partition_count());
        let equivalences = EquivalenceProperties::new(input.schema());
        let properties =
            PlanProperties::new(equivalences, partitions, EmissionType::Final, Boundedness::Bounded);
        let metrics = ExecutionPlanMetricsSet::new();
        Self { number, is_once, place, places, input, properties: Arc::new(properties), metrics }
    }

    /// The rows of a run, to which a partition belongs that was not begun in it, and what computes those of this place
    /// alone.
    fn begin(&self, partition: usize, context: &Arc<TaskContext>) -> Result<(SharedRows, Alone)> {
        let partitions = self.properties.partitioning.partition_count();
        let place = self.place * partitions + partition;
        let mut current = self.places.run.lock();
        let mut run = current.take().filter(|run| !run.begun[place]).unwrap_or_else(|| {
            let places = self.places.count.load(Ordering::Relaxed);
            Run {
                begun: vec![false; places * partitions],
                alone: (0..places).map(|_| Alone::default()).collect(),
                rows: collected(
                    self.input.clone(),
                    self.is_once,
                    context.clone(),
                    self.places.failed.clone(),
                )
                .boxed()
                .shared(),
            }
        });
        if run.begun.len() != run.alone.len() * partitions {
            return internal_err!("places of one plan have other partitions");
        }
        run.begun[place] = true;
        let begun = (run.rows.clone(), run.alone[self.place].clone());
        // When all were begun nobody else asks. Places inside of other shared groups are begun at one of theirs only: their rows are kept until the plan ends.
        *current = (!run.begun.iter().all(|begun| *begun)).then_some(run);
        Ok(begun)
    }
}

/// All rows of a plan, if there is memory for them; an error for want of memory if they are made once.
async fn collected(
    plan: Arc<dyn ExecutionPlan>,
    is_once: bool,
    context: Arc<TaskContext>,
    failed: Arc<AtomicUsize>,
) -> Result<Option<Arc<Rows>>, Arc<DataFusionError>> {
    let statement = Running::of(&context).map_or(0, |running| Arc::as_ptr(&running).addr());
    if statement != 0 && !is_once && failed.load(Ordering::Relaxed) == statement {
        return Ok(None);
    }
    let most = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) if !is_once => bytes / SHARES,
        _ => usize::MAX,
    };
    let bytes = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let reservation = MemoryConsumer::new("SharedExec").register(context.memory_pool());
    let count = plan.properties().partitioning.partition_count();
    for partition in 0..count {
        let (plan, context, reservation) = (plan.clone(), context.clone(), reservation.new_empty());
        let bytes = bytes.clone();
        tasks.spawn(async move {
            let mut batches = plan.execute(partition, context)?;
            let mut kept = Vec::new();
            while let Some(batch) = batches.next().await.transpose()? {
                // In buffers of its own, which are counted once.
                let batch = compact(&batch)?;
                let batch_bytes = batch.get_array_memory_size();
                if bytes.fetch_add(batch_bytes, Ordering::Relaxed) + batch_bytes > most {
                    return resources_err!("shared rows are more than a share of the memory");
                }
                reservation.try_grow(batch_bytes)?;
                kept.push(batch);
            }
            Ok::<_, DataFusionError>((partition, kept, reservation))
        });
    }
    let mut rows = Rows { partitions: vec![Vec::new(); count], _reservations: Vec::new() };
    while let Some(ended) = tasks.join_next().await {
        match ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error))).flatten() {
            Ok((partition, kept, reservation)) => {
                rows.partitions[partition] = kept;
                rows._reservations.push(reservation);
            }
            Err(error) if !is_once && matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) => {
                // Their memory is free before others need it.
                tasks.shutdown().await;
                failed.store(statement, Ordering::Relaxed);
                return Ok(None);
            }
            Err(error) => return Err(Arc::new(error)),
        }
    }
    Ok(Some(Arc::new(rows)))
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.places.count.load(Ordering::Relaxed);
        write!(f, "SharedExec: number={}, place={} of {count}", self.number, self.place + 1)
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &'static str {
        "SharedExec"
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
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                Ok(Arc::new(Self::at(self.number, self.is_once, self.place, self.places.clone(), input)))
            }
            _ => internal_err!("what is shared has one input"),
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let places = self.places.renewed(self.place);
        Ok(Arc::new(Self::at(self.number, self.is_once, self.place, places, self.input.clone())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(inputs[0].clone())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (rows, alone) = self.begin(partition, &context)?;
        let (input, schema) = (self.input.clone(), self.schema());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let own_schema = schema.clone();
        let batches = stream::once(async move {
            let Some(rows) = rows.await.map_err(DataFusionError::Shared)? else {
                let mut alone = alone.lock();
                if alone.is_none() {
                    *alone = Some(reset_plan_states(input)?);
                }
                return alone.as_ref().expect("it was made").execute(partition, context);
            };
            let batches = (0..rows.partitions[partition].len()).map(move |batch| {
                let batch = rows.partitions[partition][batch].clone();
                baseline.record_output(batch.num_rows());
                Ok(batch)
            });
            Ok::<_, DataFusionError>(Box::pin(RecordBatchStreamAdapter::new(
                own_schema,
                stream::iter(batches),
            )) as SendableRecordBatchStream)
        });
        let batches = batches.try_flatten().boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, batches))))
    }
}
