//! A run of a join, which its partitions share: the build side is collected and put into a table by all threads
//! together, then each partition looks up its probe rows. Joins that give build rows see all probe rows before.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::kernels::cmp::{eq, not_distinct};
use arrow::compute::{and, concat, filter, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::runtime::JoinSet;
use datafusion::common::{JoinSide, resources_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use futures::future::{BoxFuture, Shared as SharedFuture};
use futures::{FutureExt, StreamExt, stream};
use keirin_kernels::arrow::concat_views;
use keirin_kernels::hash::WideKey;
use keirin_kernels::{BitBuffer, Bits, Level};
use keirin_operators::join::{Build, Collected, Kind, NO_ROW, Pairs, Probe, Unbuilt};
use keirin_operators::ordered::{OrderedRows, Reach};
use keirin_operators::packed::PackedKey;

use super::filter::{Bounds, condition, is_used, key_condition};
use super::keys::{JoinKeys, comparable, validity};
use super::ranges::Ranges;
use crate::compact::buffer_bytes;
use crate::running::Running;
use crate::stored::{ScanStep, StoredScan, blocking_step};

/// Build rows that one thread inserts faster than several.
const FEW_ROWS: usize = 1 << 16;
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
    fn keeps_keys(&self) -> bool {
        self.keys.is_hashed() || !self.key_filters.is_empty() || self.ranges.is_some()
    }

    /// Count of keys that are equal.
    fn equal_count(&self) -> usize {
        self.left_keys.len() - self.ranges.as_ref().map_or(0, Ranges::key_count)
    }

    /// Which group each row is in, by those of its keys that are equal; nothing if there are none.
    fn groups(&self, keys: &[ArrayRef], row_count: usize) -> Vec<u64> {
        let keys = &keys[..self.equal_count()];
        self.keys.with_numbers(keys, row_count, |numbers, _| numbers.into_owned())
    }

    /// Whether rows with equal numbers may be no pair.
    fn asks(&self) -> bool {
        self.filter.is_some() || self.keys.is_hashed()
    }

    /// Which columns of the build side are wanted.
    fn left_columns(&self) -> Vec<usize> {
        let filtered = self.filter.iter().flat_map(|filter| filter.column_indices());
        let wanted = self.output.iter().chain(filtered).filter(|column| column.side == JoinSide::Left);
        let mut wanted: Vec<usize> = wanted.map(|column| column.index).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn batch(&self, columns: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// What the partitions of a run share.
pub(super) trait Shared: fmt::Debug + Send + Sync {
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
) -> Arc<dyn Shared> {
    match work.keys.bytes() {
        _ if work.ranges.is_some() => Arc::new(Run::<u64>::new(work, left, right, context)),
        4 => Arc::new(Run::<u32>::new(work, left, right, context)),
        8 => Arc::new(Run::<u64>::new(work, left, right, context)),
        16 => Arc::new(Run::<u128>::new(work, left, right, context)),
        _ => Arc::new(Run::<WideKey>::new(work, left, right, context)),
    }
}

type Ended<T> = SharedFuture<BoxFuture<'static, Result<T, Arc<DataFusionError>>>>;

/// A run of a join by keys of one type.
struct Run<K: PackedKey> {
    work: Arc<Work>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    built: Ended<Arc<Built<K>>>,
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

fn partition_count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.properties().partitioning.partition_count()
}

impl<K: PackedKey> Run<K> {
    fn new(
        work: &Arc<Work>,
        left: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Self {
        let built = build::<K>(work.clone(), left.clone(), right.clone(), context.clone());
        let built = built.map(|built| built.map_err(Arc::new)).boxed().shared();
        let probed = probe_all(work.clone(), built.clone(), right.clone(), context.clone());
        Self {
            work: work.clone(),
            right: right.clone(),
            context: context.clone(),
            built,
            probed: probed.map(|probed| probed.map_err(Arc::new)).boxed().shared(),
            next_row: AtomicUsize::new(0),
            probing: AtomicUsize::new(partition_count(right)),
            pair_count_max: context.session_config().batch_size(),
        }
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
    fn stream(
        self: Arc<Self>,
        partition: usize,
        baseline: BaselineMetrics,
    ) -> BoxFuture<'static, Result<SendableRecordBatchStream>> {
        async move {
            let built = self.built.clone().await.map_err(DataFusionError::Shared)?;
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
struct Checks(Option<Arc<Running>>);

impl Checks {
    fn of(context: &TaskContext) -> Self {
        Self(Running::of(context))
    }

    fn check(&self) -> Result<()> {
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
async fn feed<S: Send + 'static>(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: &Arc<TaskContext>,
    alive: Weak<()>,
    mut state: S,
    take: impl Fn(&mut S, Option<RecordBatch>) -> Result<bool> + Send + 'static,
) -> Result<S> {
    if let Some(scan) = plan.downcast_ref::<StoredScan>() {
        let checks = Checks::of(context);
        let worker = scan.worker(partition, context)?;
        let step = move |(worker, state): &mut (_, S)| {
            let worker: &mut crate::stored::ScanWorker = worker;
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
async fn all<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut ended = Vec::new();
    while let Some(task) = tasks.join_next().await {
        ended.push(task.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error))).flatten()?);
    }
    Ok(ended)
}

/// What a thread has collected of the build side.
struct Collecting<K> {
    work: Arc<Work>,
    columns: Vec<usize>,
    collected: Collected<K>,
    row_count: usize,
    /// The wanted columns, then the keys that are compared, a batch each.
    batches: Vec<Vec<ArrayRef>>,
    /// Unless nobody wants to know.
    bounds: Option<Bounds>,
    /// Of the buffers of the batches, whose addresses are there.
    bytes: usize,
    paid: HashSet<usize>,
    reservation: MemoryReservation,
}

impl<K: PackedKey> Collecting<K> {
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let row_count = batch.num_rows();
        if row_count == 0 {
            return Ok(());
        }
        let evaluated = evaluate(&self.work.left_keys, batch)?;
        let mut columns: Vec<ArrayRef> =
            self.columns.iter().map(|column| batch.column(*column).clone()).collect();
        if self.work.keeps_keys() {
            columns.extend(evaluated.iter().cloned());
        }
        // Texts of many batches may be in the same buffers.
        let is_new = &mut |place| self.paid.insert(place);
        self.bytes += columns.iter().map(|column| buffer_bytes(&column.to_data(), is_new)).sum::<usize>();
        // With numbers of rows without a value, which may be all.
        let key_bytes = row_count * (size_of::<K>() + size_of::<u32>());
        self.reservation.try_resize(self.bytes + self.collected.bytes() + key_bytes)?;
        self.row_count += row_count;
        if self.row_count >= u32::MAX as usize {
            return too_many_rows();
        }
        if self.work.ranges.is_none() {
            self.work.keys.with_numbers(&evaluated, row_count, |numbers, validity| {
                self.collected.add(&numbers, validity.as_ref().map(|validity| validity.as_bits()));
            });
        }
        if let Some(bounds) = self.bounds.as_mut().filter(|_| !self.work.keys.is_ordered) {
            bounds.add(&evaluated)?;
        }
        self.batches.push(columns);
        Ok(())
    }
}

fn too_many_rows<T>() -> Result<T> {
    resources_err!("more rows in a join than numbers of 32 bits count")
}

fn evaluate(keys: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    keys.iter().map(|key| Ok(comparable(key.evaluate(batch)?.into_array(batch.num_rows())?))).collect()
}

/// The build side.
struct Built<K: PackedKey> {
    build: Build<K>,
    /// Those that are wanted, by their places.
    columns: Vec<Option<ArrayRef>>,
    /// Those that are compared.
    keys: Vec<ArrayRef>,
    _reservation: MemoryReservation,
}

/// Collects the build side, and says to the probe side what its keys are.
async fn build<K: PackedKey>(
    work: Arc<Work>,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<Arc<Built<K>>> {
    let dynamic_filter = match &work.dynamic_filter {
        Some(filter) if is_used(&right, filter)? => Some(filter.clone()),
        _ => None,
    };
    drop(right);
    let alive = Arc::new(());
    let reservation = MemoryConsumer::new("join").register(context.memory_pool());
    let mut tasks = JoinSet::new();
    for partition in 0..partition_count(&left) {
        let state = Collecting {
            work: work.clone(),
            columns: work.left_columns(),
            collected: Collected::<K>::new(work.keys.order),
            row_count: 0,
            batches: Vec::new(),
            bounds: (dynamic_filter.is_some() || !work.key_filters.is_empty()).then(Bounds::default),
            bytes: 0,
            paid: HashSet::new(),
            reservation: reservation.new_empty(),
        };
        let (left, context, alive) = (left.clone(), context.clone(), Arc::downgrade(&alive));
        tasks.spawn(async move {
            let add = |state: &mut Collecting<K>, batch: Option<RecordBatch>| {
                batch.iter().try_for_each(|batch| state.add(batch))?;
                Ok(false)
            };
            feed(&left, partition, &context, alive, state, add).await
        });
    }
    let threads = tasks.len();
    let collecting = all(tasks).await?;
    finish(work, left, collecting, dynamic_filter, reservation, threads).await
}

/// Makes a table of what was collected.
async fn finish<K: PackedKey>(
    work: Arc<Work>,
    left: Arc<dyn ExecutionPlan>,
    collecting: Vec<Collecting<K>>,
    dynamic_filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    reservation: MemoryReservation,
    threads: usize,
) -> Result<Arc<Built<K>>> {
    let level = Level::best();
    let (mut batches, mut parts, mut bounds, mut reservations) =
        (Vec::new(), Vec::new(), Bounds::default(), Vec::new());
    let (mut column_bytes, mut row_count) = (0, 0);
    for mut collecting in collecting {
        let known = collecting.collected.bounds().filter(|_| work.keys.is_ordered);
        if let (Some(bounds), Some(known)) = (&mut collecting.bounds, known) {
            bounds.add(&[work.keys.column(known, &work.left_keys[0].data_type(&left.schema())?)?])?;
        }
        column_bytes += collecting.bytes;
        row_count += collecting.row_count;
        batches.extend(collecting.batches);
        parts.push(collecting.collected);
        collecting.bounds.into_iter().for_each(|other| bounds.merge(other));
        reservations.push(collecting.reservation);
    }
    if batches.len() > 1 {
        reservation.try_grow(column_bytes)?;
    }
    if let Some(ranges) = &work.ranges {
        return ordered(&work, ranges, &left, &batches, row_count, reservation).map(Arc::new);
    }
    let Some(unbuilt) = Unbuilt::new(parts) else { return too_many_rows() };
    reservation.try_grow(unbuilt.bytes())?;
    let build = unbuilt.build(work.kind);
    let wanted = work.left_columns();
    let kept = if work.keeps_keys() { work.left_keys.len() } else { 0 };
    let columns = 0..wanted.len() + kept;
    let is_small = build.len() <= FEW_ROWS || threads == 1;
    let (build, joined) = if is_small {
        let columns = columns.map(|place| joined(&batches, place)).collect::<Result<_>>()?;
        (filled(build), columns)
    } else {
        filled_together(build, batches, columns, threads).await?
    };
    drop(reservations);
    for key in &work.key_filters {
        let known = if build.is_empty() {
            lit(false)
        } else {
            reservation.try_grow(build.len() * 2)?;
            let keys = &joined[wanted.len() + key.place];
            key_condition(&work.right_keys[key.place], &key.form, bounds.of(key.place), keys)
        };
        key.filter.update(known)?;
        key.filter.mark_complete();
    }
    if let Some(filter) = dynamic_filter {
        let known = if build.is_empty() {
            lit(false)
        } else if work.nulls_are_equal {
            lit(true)
        } else {
            reservation.try_grow(build.set_bytes())?;
            condition(&work.right_keys, &work.keys, bounds, build.keys(level))
        };
        filter.update(known)?;
        filter.mark_complete();
    }
    let (columns, keys) = placed(&wanted, joined, &left);
    Ok(Arc::new(Built { build, columns, keys, _reservation: reservation }))
}

/// Columns by their places, and the keys behind them.
fn placed(
    wanted: &[usize],
    joined: Vec<ArrayRef>,
    left: &Arc<dyn ExecutionPlan>,
) -> (Vec<Option<ArrayRef>>, Vec<ArrayRef>) {
    let mut columns = vec![None; left.schema().fields().len()];
    // Without rows there are no batches, and nobody looks at a column.
    let mut joined = VecDeque::from(joined);
    for place in wanted {
        columns[*place] = joined.pop_front();
    }
    (columns, joined.into())
}

/// Puts what was collected in order.
fn ordered<K: PackedKey>(
    work: &Work,
    ranges: &Ranges,
    left: &Arc<dyn ExecutionPlan>,
    batches: &[Vec<ArrayRef>],
    row_count: usize,
    reservation: MemoryReservation,
) -> Result<Built<K>> {
    if row_count >= u32::MAX as usize {
        return too_many_rows();
    }
    let equal_count = work.equal_count();
    reservation.try_grow(OrderedRows::bytes(row_count, equal_count > 0, ranges.has_second()))?;
    let wanted = work.left_columns();
    let joined = (0..wanted.len() + work.left_keys.len()).map(|place| joined(batches, place));
    let (columns, mut keys) = placed(&wanted, joined.collect::<Result<_>>()?, left);
    let rows = if row_count == 0 {
        OrderedRows::new(Level::best(), &[], &[], &[], None)
    } else {
        let (groups, validity) = (work.groups(&keys, row_count), validity(&keys));
        let validity = validity.as_ref().map(BitBuffer::as_bits);
        ranges.order(&groups, &keys[equal_count..], validity)?
    };
    keys.truncate(equal_count);
    Ok(Built { build: Build::ordered(rows, work.kind), columns, keys, _reservation: reservation })
}

/// The table with all its rows.
fn filled<K: PackedKey>(mut build: Build<K>) -> Build<K> {
    let pieces: Vec<_> = build.pieces().collect();
    pieces.iter().for_each(|piece| build.note(piece.clone()));
    build.make_slots();
    pieces.into_iter().rev().for_each(|piece| build.insert(Level::best(), piece, true));
    build
}

/// The same by several threads, and the columns of all batches.
async fn filled_together<K: PackedKey>(
    build: Build<K>,
    batches: Vec<Vec<ArrayRef>>,
    columns: Range<usize>,
    threads: usize,
) -> Result<(Build<K>, Vec<ArrayRef>)> {
    let (mut build, batches) = (Arc::new(build), Arc::new(batches));
    let mut tasks = JoinSet::new();
    for place in columns {
        let batches = batches.clone();
        tasks.spawn(async move { Ok(Some((place, joined(&batches, place)?))) });
    }
    let mut columns = Vec::new();
    for is_noted in [false, true] {
        let pieces: Arc<Vec<_>> = Arc::new(build.pieces().collect());
        let next = Arc::new(AtomicUsize::new(0));
        for _ in 0..threads {
            let (build, pieces, next) = (build.clone(), pieces.clone(), next.clone());
            tasks.spawn(async move {
                while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match is_noted {
                        false => build.note(piece.clone()),
                        true => build.insert(Level::best(), piece.clone(), false),
                    }
                    tokio::task::yield_now().await;
                }
                Ok(None)
            });
        }
        columns.extend(all(std::mem::take(&mut tasks)).await?.into_iter().flatten());
        if !is_noted {
            Arc::get_mut(&mut build).expect("the tasks have ended").make_slots();
        }
    }
    columns.sort_by_key(|(place, _)| *place);
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    Ok((Arc::into_inner(build).expect("the tasks have ended"), columns))
}

/// A column of all batches.
fn joined(batches: &[Vec<ArrayRef>], place: usize) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = batches.iter().map(|columns| columns[place].as_ref()).collect();
    let Some(first) = arrays.first() else { return Ok(new_null_array(&DataType::Null, 0)) };
    // Rows of joins of joins are taken of one column, and have all of its buffers each time.
    Ok(match first.data_type() {
        DataType::Utf8View => {
            Arc::new(concat_views(&arrays.iter().map(|array| array.as_string_view()).collect::<Vec<_>>()))
        }
        DataType::BinaryView => {
            Arc::new(concat_views(&arrays.iter().map(|array| array.as_binary_view()).collect::<Vec<_>>()))
        }
        _ => concat(&arrays)?,
    })
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
