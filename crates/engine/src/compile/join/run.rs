//! A run of a join, which its partitions share: when there is a [build side](super::build), each partition looks up its
//! probe rows. Joins that give build rows see all probe rows before.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::kernels::cmp::{eq, not_distinct};
use arrow::compute::{and, concat, filter, prep_null_mask_filter, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::JoinSide;
use datafusion::common::runtime::JoinSet;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use futures::future::{BoxFuture, Shared as SharedFuture};
use futures::{FutureExt, StreamExt, stream};
use keirin_kernels::hash::WideKey;
use keirin_kernels::{BitBuffer, Bits, Level};
use keirin_operators::join::{Kind, NO_ROW, Pairs, Probe};
use keirin_operators::ordered::Reach;
use keirin_operators::packed::PackedKey;

use super::build::{Built, build, evaluate};
use super::keys::{JoinKeys, validity};
use super::ranges::Ranges;
use super::spilled::{Parts, Spilling, parts};
use crate::runtime::running::Running;
use crate::sources::stored::{ScanStep, StoredScan, blocking_step};

/// Build rows that a partition gives at a time.
const GIVEN_ROWS: usize = 1 << 14;

/// What is joined with what. Left is the build side.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) keys: JoinKeys,
    pub(super) nulls_are_equal: bool,
    pub(super) left_keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) right_keys: Vec<Arc<dyn PhysicalExpr>>,
    /// In joins by ranges, what the keys are that need not be equal: they are the last ones.
    pub(super) ranges: Option<Ranges>,
    /// What else is true of pairs.
    pub(super) filter: Option<JoinFilter>,
    /// What the probe side is filtered by, if it is.
    pub(super) dynamic_filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    /// What scans of the probe side are filtered by where that reaches none.
    pub(super) key_filters: Vec<KeyFilter>,
    /// The columns of the answer; of no side is the mark.
    pub(super) output: Vec<ColumnIndex>,
    pub(super) schema: SchemaRef,
}

/// A filter by one of the keys.
#[derive(Clone, Debug)]
pub(super) struct KeyFilter {
    /// Which of them.
    pub(super) place: usize,
    pub(super) form: JoinKeys,
    pub(super) filter: Arc<DynamicFilterPhysicalExpr>,
}

impl Work {
    /// Whether keys of the build side are kept beside their numbers.
    pub(super) fn keeps_keys(&self) -> bool {
        self.keys.is_hashed() || !self.key_filters.is_empty() || self.ranges.is_some()
    }

    /// Count of keys that are equal.
    pub(super) fn equal_count(&self) -> usize {
        self.left_keys.len() - self.ranges.as_ref().map_or(0, Ranges::key_count)
    }

    /// Which group each row is in, by those of its keys that are equal; nothing if there are none.
    pub(super) fn groups(&self, keys: &[ArrayRef], row_count: usize) -> Vec<u64> {
        let keys = &keys[..self.equal_count()];
        self.keys.with_numbers(keys, row_count, |numbers, _| numbers.into_owned())
    }

    /// Whether rows with equal numbers may be no pair.
    pub(super) fn asks(&self) -> bool {
        self.filter.is_some() || self.keys.is_hashed()
    }

    /// Which columns of the build side are wanted.
    pub(super) fn left_columns(&self) -> Vec<usize> {
        let filtered = self.filter.iter().flat_map(|filter| filter.column_indices());
        let wanted = self.output.iter().chain(filtered).filter(|column| column.side == JoinSide::Left);
        let mut wanted: Vec<usize> = wanted.map(|column| column.index).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    pub(super) fn batch(&self, columns: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// What the partitions of a run share.
pub(super) trait Shared: fmt::Debug + Send + Sync {
    /// Waits for the build side; what is wrong with it is said to who reads its rows.
    fn built(&self) -> BoxFuture<'static, ()>;

    /// The rows that a partition gives, when the build side is there.
    fn stream(
        self: Arc<Self>,
        partition: usize,
        baseline: BaselineMetrics,
    ) -> BoxFuture<'static, Result<SendableRecordBatchStream>>;
}

/// Begins a run.
pub(super) fn begin(
    work: &Arc<Work>,
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    spilling: Option<Spilling>,
) -> Arc<dyn Shared> {
    match work.keys.bytes() {
        _ if work.ranges.is_some() => Arc::new(Run::<u64>::new(work, left, right, context, spilling)),
        4 => Arc::new(Run::<u32>::new(work, left, right, context, spilling)),
        8 => Arc::new(Run::<u64>::new(work, left, right, context, spilling)),
        16 => Arc::new(Run::<u128>::new(work, left, right, context, spilling)),
        _ => Arc::new(Run::<WideKey>::new(work, left, right, context, spilling)),
    }
}

type Ended<T> = SharedFuture<BoxFuture<'static, Result<T, Arc<DataFusionError>>>>;

/// A run of a join by keys of one type.
struct Run<K: PackedKey> {
    work: Arc<Work>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    built: Ended<Arc<Built<K>>>,
    /// Whether it was the build side that there was no memory for.
    was_refused: Arc<AtomicBool>,
    /// What is joined instead then, if the join may spill.
    parts: Option<Ended<Arc<Parts>>>,
    /// All probe rows were seen, where nothing is given before.
    probed: Ended<()>,
    /// The next build row that a partition gives.
    next_row: AtomicUsize,
    /// The partitions that have probe rows.
    probing: AtomicUsize,
    pair_count_max: usize,
}

impl<K: PackedKey> fmt::Debug for Run<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("work", &self.work).finish_non_exhaustive()
    }
}

pub(in crate::compile) fn partition_count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.properties().partitioning.partition_count()
}

impl<K: PackedKey> Run<K> {
    fn new(
        work: &Arc<Work>,
        left: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        spilling: Option<Spilling>,
    ) -> Self {
        let was_refused = Arc::new(AtomicBool::new(false));
        let (left, context) = (left.clone(), context.clone());
        let may_spill = spilling.is_some();
        let parts = spilling.map(|spilling| {
            let parts = parts(work.clone(), left.clone(), right.clone(), context.clone(), spilling);
            parts.map(|parts| parts.map_err(Arc::new)).boxed().shared()
        });
        let built =
            build::<K>(work.clone(), left, right.clone(), context.clone(), may_spill, was_refused.clone());
        let built = built.map(|built| built.map_err(Arc::new)).boxed().shared();
        let probed = probe_all(work.clone(), built.clone(), right.clone(), context.clone());
        Self {
            work: work.clone(),
            right: right.clone(),
            built,
            was_refused,
            parts,
            probed: probed.map(|probed| probed.map_err(Arc::new)).boxed().shared(),
            next_row: AtomicUsize::new(0),
            probing: AtomicUsize::new(partition_count(right)),
            pair_count_max: context.session_config().batch_size(),
            context,
        }
    }

    /// The parts that are joined instead, if there was no memory for the build side.
    fn parts_after(&self, error: &DataFusionError) -> Option<Ended<Arc<Parts>>> {
        let is_refused = matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
            && self.was_refused.load(Ordering::Relaxed);
        self.parts.clone().filter(|_| is_refused)
    }

    /// The next build rows that the join gives for themselves and nobody took.
    fn next_rows(&self, built: &Built<K>) -> Option<Range<usize>> {
        let start = self.next_row.fetch_add(GIVEN_ROWS, Ordering::Relaxed);
        (start < built.build.len()).then(|| start..built.build.len().min(start + GIVEN_ROWS))
    }

    /// The next batch of build rows.
    fn next_batch(&self, built: &Built<K>, checks: &Checks) -> Result<Option<RecordBatch>> {
        while let Some(rows) = self.next_rows(built) {
            checks.check()?;
            let batch = built.build_rows(&self.work, rows)?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

impl<K: PackedKey> Shared for Run<K> {
    fn built(&self) -> BoxFuture<'static, ()> {
        self.built.clone().map(|_| ()).boxed()
    }

    fn stream(
        self: Arc<Self>,
        partition: usize,
        baseline: BaselineMetrics,
    ) -> BoxFuture<'static, Result<SendableRecordBatchStream>> {
        async move {
            let built = match self.built.clone().await {
                Ok(built) => built,
                Err(error) => {
                    let Some(parts) = self.parts_after(&error) else {
                        return Err(DataFusionError::Shared(error));
                    };
                    let parts = parts.await.map_err(DataFusionError::Shared)?;
                    return parts.rows(partition, self.work.schema.clone(), baseline);
                }
            };
            let (kind, schema) = (self.work.kind, self.work.schema.clone());
            if kind.needs_build_rows() && built.build.is_empty() {
                return Ok(Box::pin(EmptyRecordBatchStream::new(schema)) as SendableRecordBatchStream);
            }
            let checks = Checks::of(&self.context);
            let probing = if kind.is_of_build_rows() {
                self.probed.clone().await.map_err(DataFusionError::Shared)?;
                None
            } else {
                Some(self.right.execute(partition, self.context.clone())?)
            };
            let giving = Giving { run: self, built, checks, probing, current: None, baseline };
            let batches = stream::try_unfold(giving, |mut giving| async move {
                Ok(giving.next().await?.map(|batch| (batch, giving)))
            });
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)) as SendableRecordBatchStream)
        }
        .boxed()
    }
}

/// Whether the statement was stopped.
#[derive(Clone, Debug)]
pub(super) struct Checks(Option<Arc<Running>>);

impl Checks {
    pub(super) fn of(context: &TaskContext) -> Self {
        Self(Running::of(context))
    }

    pub(super) fn check(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |running| running.stop.check_operator())
    }
}

/// What a partition gives.
struct Giving<K: PackedKey> {
    run: Arc<Run<K>>,
    built: Arc<Built<K>>,
    checks: Checks,
    /// Probe rows, as long as there are some.
    probing: Option<SendableRecordBatchStream>,
    current: Option<Probing<K>>,
    baseline: BaselineMetrics,
}

impl<K: PackedKey> Giving<K> {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let work = &self.run.work;
        while let Some(batches) = &mut self.probing {
            while let Some(current) = &mut self.current {
                self.checks.check()?;
                let timer = self.baseline.elapsed_compute().timer();
                let made = self.built.next(work, current, self.run.pair_count_max)?;
                drop(timer);
                match made {
                    Made::Rows(batch) => {
                        self.baseline.record_output(batch.num_rows());
                        return Ok(Some(batch));
                    }
                    Made::Nothing => tokio::task::yield_now().await,
                    Made::End => self.current = None,
                }
            }
            match batches.next().await.transpose()? {
                Some(batch) => {
                    let _timer = self.baseline.elapsed_compute().timer();
                    self.current = Some(self.built.probe(work, batch)?);
                }
                None => {
                    self.probing = None;
                    let is_last = self.run.probing.fetch_sub(1, Ordering::AcqRel) == 1;
                    if !is_last || !work.kind.marks_build_rows() {
                        return Ok(None);
                    }
                }
            }
        }
        if !work.kind.marks_build_rows() {
            return Ok(None);
        }
        let _timer = self.baseline.elapsed_compute().timer();
        let batch = self.run.next_batch(&self.built, &self.checks)?;
        batch.iter().for_each(|batch| self.baseline.record_output(batch.num_rows()));
        Ok(batch)
    }
}

/// Passes all batches of a partition to `take`, with what that works on; it is called again without a batch as long as it
/// says that there is more to do. Stripes of a table on disk are read by the thread that takes them, as long as somebody is
/// `alive` who wants that.
pub(in crate::compile) async fn feed<S: Send + 'static>(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: &Arc<TaskContext>,
    alive: Weak<()>,
    mut state: S,
    take: impl Fn(&mut S, Option<RecordBatch>) -> Result<bool> + Send + 'static,
) -> Result<S> {
    if let Some(worker) = StoredScan::worker_of(plan, partition, context).transpose()? {
        let checks = Checks::of(context);
        let step = move |(worker, state): &mut (_, S)| {
            let worker: &mut crate::sources::stored::ScanWorker = worker;
            while alive.strong_count() > 0 {
                checks.check()?;
                match worker.next_batches()? {
                    ScanStep::Found(batches) => {
                        for batch in batches {
                            let mut has_more = take(state, Some(batch))?;
                            while has_more {
                                has_more = take(state, None)?;
                            }
                        }
                    }
                    ScanStep::Nothing => {}
                    ScanStep::End => break,
                }
            }
            Ok(ScanStep::<()>::End)
        };
        let (_, (_, state)) = blocking_step((worker, state), step).await?;
        return Ok(state);
    }
    let mut batches = plan.execute(partition, context.clone())?;
    while let Some(batch) = batches.next().await.transpose()? {
        let mut has_more = take(&mut state, Some(batch))?;
        while has_more {
            tokio::task::yield_now().await;
            has_more = take(&mut state, None)?;
        }
    }
    Ok(state)
}

/// What all tasks give, in any order.
pub(in crate::compile) async fn all<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut ended = Vec::new();
    while let Some(task) = tasks.join_next().await {
        ended.push(task.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error))).flatten()?);
    }
    Ok(ended)
}

/// Looks up all probe rows, for joins that give build rows.
async fn probe_all<K: PackedKey>(
    work: Arc<Work>,
    built: Ended<Arc<Built<K>>>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<()> {
    let built = built.await.map_err(DataFusionError::Shared)?;
    let alive = Arc::new(());
    let pair_count_max = context.session_config().batch_size();
    let mut tasks = JoinSet::new();
    for partition in 0..partition_count(&right) {
        let (right, context, alive) = (right.clone(), context.clone(), Arc::downgrade(&alive));
        let (built, work, checks) = (built.clone(), work.clone(), Checks::of(&context));
        tasks.spawn(async move {
            let take = move |state: &mut Option<Probing<K>>, batch: Option<RecordBatch>| {
                if let Some(batch) = batch {
                    *state = Some(built.probe(&work, batch)?);
                }
                let Some(probing) = state else { return Ok(false) };
                checks.check()?;
                Ok(!matches!(built.next(&work, probing, pair_count_max)?, Made::End))
            };
            feed(&right, partition, &context, alive, None, take).await.map(|_| ())
        });
    }
    all(tasks).await.map(|_| ())
}

/// What was made of a batch of probe rows.
enum Made {
    Rows(RecordBatch),
    /// No rows so far.
    Nothing,
    End,
}

/// A batch of probe rows.
struct Probing<K> {
    batch: RecordBatch,
    keys: Vec<ArrayRef>,
    probe: Probe<K>,
    has_pairs: bool,
    has_rows: bool,
}

impl<K: PackedKey> Built<K> {
    fn probe(&self, work: &Work, batch: RecordBatch) -> Result<Probing<K>> {
        let has_rows = work.kind.gives_probe_rows();
        if let Some(ranges) = &work.ranges {
            let (keys, reaches) = reaches(work, ranges, &batch)?;
            let probe = Probe::ordered(&self.build, &reaches, ranges.wanted);
            return Ok(Probing { batch, keys, probe, has_pairs: true, has_rows });
        }
        let keys = evaluate(&work.right_keys, &batch)?;
        let probe = work.keys.with_numbers(&keys, batch.num_rows(), |numbers, validity| {
            let validity = validity.as_ref().map(|validity| validity.as_bits());
            Probe::new(Level::best(), &self.build, numbers.into_owned(), validity)
        });
        Ok(Probing { batch, keys, probe, has_pairs: true, has_rows })
    }

    /// The next rows that are made of a batch, after no more pairs than are worth a turn.
    fn next(&self, work: &Work, probing: &mut Probing<K>, pair_count_max: usize) -> Result<Made> {
        if probing.has_pairs && !work.kind.gives_pairs() && !work.asks() {
            probing.has_pairs = false;
            probing.probe.mark_found(&self.build);
        }
        if probing.has_pairs {
            let mut pairs = Pairs::default();
            let pair_count_max = pair_count_max.max(probing.batch.num_rows());
            probing.has_pairs = probing.probe.next_pairs(&self.build, pair_count_max, &mut pairs);
            if work.asks() && !pairs.probe_rows.is_empty() {
                let passes = self.passes(work, probing, &pairs)?;
                let values = passes.values();
                pairs.keep(Bits::new(values.values(), values.offset(), values.len()));
            }
            probing.probe.settle(&self.build, &mut pairs);
            if work.kind.gives_pairs() && !pairs.probe_rows.is_empty() {
                return self.pair_rows(work, &probing.batch, pairs).map(Made::Rows);
            }
            if probing.has_pairs {
                return Ok(Made::Nothing);
            }
        }
        if std::mem::take(&mut probing.has_rows) {
            let batch = probe_rows(work, &probing.batch, &probing.probe)?;
            if batch.num_rows() > 0 {
                return Ok(Made::Rows(batch));
            }
        }
        Ok(Made::End)
    }

    fn column(&self, place: usize) -> Result<&ArrayRef> {
        match self.columns.get(place) {
            Some(Some(column)) => Ok(column),
            _ => datafusion::common::internal_err!("a column that nobody wanted"),
        }
    }

    /// Of which pairs the keys are equal, if that is not known, and the condition is true; without nulls.
    fn passes(&self, work: &Work, probing: &Probing<K>, pairs: &Pairs) -> Result<BooleanArray> {
        let build_rows = UInt32Array::from(pairs.build_rows.clone());
        let probe_rows = UInt32Array::from(pairs.probe_rows.clone());
        let mut passes: Option<BooleanArray> = None;
        if work.keys.is_hashed() {
            for (left, right) in self.keys.iter().zip(&probing.keys).take(work.equal_count()) {
                let (left, right) = (take(left, &build_rows, None)?, take(right, &probe_rows, None)?);
                let equal =
                    if work.nulls_are_equal { not_distinct(&left, &right) } else { eq(&left, &right) }?;
                passes = Some(match passes {
                    Some(passes) => and(&passes, &equal)?,
                    None => equal,
                });
            }
        }
        let passes = passes.map(without_nulls);
        let Some(filter) = &work.filter else {
            return Ok(passes.unwrap_or_else(|| all_true(build_rows.len())));
        };
        // What can fail is asked of pairs with equal keys alone.
        let (build_rows, probe_rows) = match &passes {
            Some(passes) if passes.true_count() < passes.len() => {
                let of = |rows: &UInt32Array| -> Result<UInt32Array> {
                    Ok(arrow::compute::filter(rows, passes)?.as_primitive().clone())
                };
                (of(&build_rows)?, of(&probe_rows)?)
            }
            _ => (build_rows, probe_rows),
        };
        let columns = filter.column_indices().iter().map(|column| match column.side {
            JoinSide::Left => Ok(take(self.column(column.index)?, &build_rows, None)?),
            _ => Ok(take(probing.batch.column(column.index), &probe_rows, None)?),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(build_rows.len()));
        let rows = RecordBatch::try_new_with_options(filter.schema().clone(), columns, &options)?;
        let found = filter.expression().evaluate(&rows)?.into_array(rows.num_rows())?;
        let found = without_nulls(found.as_boolean().clone());
        Ok(match passes {
            Some(passes) if passes.true_count() < passes.len() => {
                let mut found = found.values().iter();
                let both = passes.values().iter().map(|passes| passes && found.next() == Some(true));
                BooleanArray::new(both.collect::<BooleanBuffer>(), None)
            }
            _ => found,
        })
    }

    /// Pairs as rows.
    fn pair_rows(&self, work: &Work, batch: &RecordBatch, pairs: Pairs) -> Result<RecordBatch> {
        let Pairs { mut probe_rows, mut build_rows } = pairs;
        let row_count = probe_rows.len();
        let has_all =
            row_count == batch.num_rows() && (0..).zip(&probe_rows).all(|(place, row)| place == *row);
        let probe_rows = UInt32Array::from(std::mem::take(&mut probe_rows));
        let has_none = build_rows.contains(&NO_ROW);
        let build_rows = if has_none {
            let is_some: BooleanBuffer = build_rows.iter().map(|row| *row != NO_ROW).collect();
            build_rows.iter_mut().filter(|row| **row == NO_ROW).for_each(|row| *row = 0);
            UInt32Array::new(build_rows.into(), Some(NullBuffer::new(is_some)))
        } else {
            UInt32Array::from(build_rows)
        };
        let columns = work.output.iter().zip(work.schema.fields()).map(|(column, field)| match column.side {
            JoinSide::Left if self.build.is_empty() => Ok(new_null_array(field.data_type(), row_count)),
            JoinSide::Left => Ok(take(self.column(column.index)?, &build_rows, None)?),
            _ if has_all => Ok(batch.column(column.index).clone()),
            _ => Ok(take(batch.column(column.index), &probe_rows, None)?),
        });
        work.batch(columns.collect::<Result<_>>()?, row_count)
    }

    /// What the join gives of these build rows, when all probe rows were seen.
    fn build_rows(&self, work: &Work, rows: Range<usize>) -> Result<RecordBatch> {
        if work.kind == Kind::LeftMark {
            let columns = work.output.iter().map(|column| match column.side {
                JoinSide::Left => Ok(self.column(column.index)?.slice(rows.start, rows.len())),
                _ => {
                    let marks: BooleanBuffer = rows.clone().map(|row| self.build.is_met(row)).collect();
                    Ok(Arc::new(BooleanArray::new(marks, None)) as ArrayRef)
                }
            });
            return work.batch(columns.collect::<Result<_>>()?, rows.len());
        }
        let rows = UInt32Array::from(self.build.rows_of(rows));
        let columns = work.output.iter().zip(work.schema.fields()).map(|(column, field)| match column.side {
            JoinSide::Left => Ok(take(self.column(column.index)?, &rows, None)?),
            _ => Ok(new_null_array(field.data_type(), rows.len())),
        });
        work.batch(columns.collect::<Result<_>>()?, rows.len())
    }
}

/// The keys of probe rows that are equal to those of build rows, and what the rows reach.
fn reaches(work: &Work, ranges: &Ranges, batch: &RecordBatch) -> Result<(Vec<ArrayRef>, Vec<Reach>)> {
    let row_count = batch.num_rows();
    let evaluated = match evaluate(&work.right_keys, batch) {
        Err(_) if ranges.is_fallible && row_count > 1 => {
            let half = row_count / 2;
            let (keys, mut all) = reaches(work, ranges, &batch.slice(0, half))?;
            let (other_keys, others) = reaches(work, ranges, &batch.slice(half, row_count - half))?;
            all.extend(others);
            let both = keys.iter().zip(&other_keys).map(|(keys, others)| Ok(concat(&[keys, others])?));
            return Ok((both.collect::<Result<_>>()?, all));
        }
        // Whether it fails is said by the conditions, which are asked of all pairs then.
        Err(_) if ranges.is_fallible && work.equal_count() == 0 => {
            return Ok((Vec::new(), vec![Reach::EVERYTHING; row_count]));
        }
        evaluated => evaluated?,
    };
    let (groups, validity) = (work.groups(&evaluated, row_count), validity(&evaluated));
    let validity = validity.as_ref().map(BitBuffer::as_bits);
    let (equal, bounds) = evaluated.split_at(work.equal_count());
    Ok((equal.to_vec(), ranges.reaches(&groups, bounds, validity, row_count)?))
}

/// What joins that give probe rows give of a batch.
fn probe_rows<K: PackedKey>(work: &Work, batch: &RecordBatch, probe: &Probe<K>) -> Result<RecordBatch> {
    let met = probe.met_rows();
    let len = met.len();
    let met = BooleanBuffer::new(arrow::buffer::Buffer::from_vec(met.into_words()), 0, len);
    if work.kind == Kind::RightMark {
        let columns = work.output.iter().map(|column| match column.side {
            JoinSide::Right => batch.column(column.index).clone(),
            _ => Arc::new(BooleanArray::new(met.clone(), None)) as ArrayRef,
        });
        return work.batch(columns.collect(), len);
    }
    let kept = BooleanArray::new(if work.kind == Kind::RightSemi { met } else { !&met }, None);
    let row_count = kept.true_count();
    let columns = work.output.iter().map(|column| {
        let column = batch.column(column.index);
        if row_count == len { Ok(column.clone()) } else { Ok(filter(column, &kept)?) }
    });
    work.batch(columns.collect::<Result<_>>()?, row_count)
}

fn without_nulls(passes: BooleanArray) -> BooleanArray {
    if passes.null_count() == 0 {
        BooleanArray::new(passes.values().clone(), None)
    } else {
        prep_null_mask_filter(&passes)
    }
}

fn all_true(len: usize) -> BooleanArray {
    BooleanArray::new(BooleanBuffer::new_set(len), None)
}
