//! The build side of a join: threads collect its rows, and put their keys into one table together, or the rows in order.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use datafusion::common::runtime::JoinSet;
use datafusion::common::{internal_err, resources_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_plan::ExecutionPlan;
use keirin_kernels::arrow::concat_views;
use keirin_kernels::{BitBuffer, Level};
use keirin_operators::join::{Build, Collected, Unbuilt};
use keirin_operators::ordered::OrderedRows;
use keirin_operators::packed::PackedKey;

use super::JoinExec;
use super::filter::{Bounds, condition, is_used, key_condition};
use super::keys::{comparable, validity};
use super::narrowed::made_before;
use super::ranges::Ranges;
use super::run::{Checks, Work, all, feed, partition_count};
use crate::compact::buffer_bytes;

/// Build rows that one thread inserts faster than several.
const FEW_ROWS: usize = 1 << 16;

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

pub(in crate::compile) fn evaluate(
    keys: &[Arc<dyn PhysicalExpr>],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    keys.iter().map(|key| Ok(comparable(key.evaluate(batch)?.into_array(batch.num_rows())?))).collect()
}

/// The build side.
pub(super) struct Built<K: PackedKey> {
    pub(super) build: Build<K>,
    /// Those that are wanted, by their places.
    pub(super) columns: Vec<Option<ArrayRef>>,
    /// Those that are compared.
    pub(super) keys: Vec<ArrayRef>,
    reservation: MemoryReservation,
}

/// Collects the build side, and says to the probe side what its keys are; and whether it was refused memory itself, and not
/// what its rows come from. A join that `may_spill` then leaves memory to those that may not.
pub(super) async fn build<K: PackedKey>(
    work: Arc<Work>,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    may_spill: bool,
    was_refused: Arc<AtomicBool>,
) -> Result<Arc<Built<K>>> {
    let dynamic_filter = match &work.dynamic_filter {
        Some(filter) if is_used(&right, filter)? => Some(filter.clone()),
        _ => None,
    };
    for join in made_before(&left, &right)? {
        let run = join.downcast_ref::<JoinExec>().and_then(|join| join.ahead(&context));
        if let Some(run) = run {
            run.built().await;
        }
    }
    drop(right);
    let alive = Arc::new(());
    let consumer = MemoryConsumer::new("join");
    // A table that was built cannot spill.
    let held = consumer.clone_with_new_id().register(context.memory_pool());
    let reservation = consumer.with_can_spill(may_spill).register(context.memory_pool());
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
        let was_refused = was_refused.clone();
        tasks.spawn(async move {
            let add = move |state: &mut Collecting<K>, batch: Option<RecordBatch>| {
                noted(batch.iter().try_for_each(|batch| state.add(batch)), &was_refused)?;
                Ok(false)
            };
            feed(&left, partition, &context, alive, state, add).await
        });
    }
    let threads = tasks.len();
    let collecting = all(tasks).await?;
    let checks = Checks::of(&context);
    let reservations = (&reservation, held);
    let built = finish(work, left, collecting, dynamic_filter, reservations, (threads, checks)).await;
    let built = noted(built, &was_refused)?;
    built.reservation.grow(reservation.free());
    Ok(Arc::new(built))
}

/// `outcome`, after noting whether memory was refused.
fn noted<T>(outcome: Result<T>, was_refused: &AtomicBool) -> Result<T> {
    outcome.inspect_err(|error| {
        if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) {
            was_refused.store(true, Ordering::Relaxed);
        }
    })
}

/// Makes a table of what was collected.
async fn finish<K: PackedKey>(
    work: Arc<Work>,
    left: Arc<dyn ExecutionPlan>,
    collecting: Vec<Collecting<K>>,
    dynamic_filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    (reservation, held): (&MemoryReservation, MemoryReservation),
    (threads, checks): (usize, Checks),
) -> Result<Built<K>> {
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
        return ordered(&work, ranges, &left, (&batches, row_count), (reservation, held), &checks);
    }
    let Some(unbuilt) = Unbuilt::new(parts) else { return too_many_rows() };
    reservation.try_grow(unbuilt.bytes())?;
    let build = unbuilt.build(work.kind);
    let wanted = work.left_columns();
    let kept = if work.keeps_keys() { work.left_keys.len() } else { 0 };
    let columns = 0..wanted.len() + kept;
    let (build, joined) = if build.len() <= FEW_ROWS {
        let columns = columns.map(|place| joined(&batches, place)).collect::<Result<_>>()?;
        (filled(build), columns)
    } else {
        let (build, joined) = filled_together(build, batches, columns, threads).await?;
        let bytes = build.keyed().runs_bytes() + column_bytes;
        let wants_runs = (work.kind.gives_pairs() || work.asks()) && build.keyed().is_scattered();
        if wants_runs && reservation.try_grow(bytes).is_ok() {
            let in_runs = in_runs(build, joined, threads).await?;
            reservation.shrink(bytes);
            in_runs
        } else {
            (build, joined)
        }
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
    Ok(Built { build, columns, keys, reservation: held })
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
    (batches, row_count): (&[Vec<ArrayRef>], usize),
    (reservation, held): (&MemoryReservation, MemoryReservation),
    checks: &Checks,
) -> Result<Built<K>> {
    if row_count >= u32::MAX as usize {
        return too_many_rows();
    }
    let equal_count = work.equal_count();
    reservation.try_grow(OrderedRows::bytes(row_count, equal_count > 0, ranges.has_second()))?;
    let wanted = work.left_columns();
    let joined = (0..wanted.len() + work.left_keys.len()).map(|place| joined(batches, place));
    let (columns, mut keys) = placed(&wanted, joined.collect::<Result<_>>()?, left);
    let is_wanted = || checks.check().is_ok();
    let rows = if row_count == 0 {
        OrderedRows::new(Level::best(), &[], [&[], &[]], None, &is_wanted)
    } else {
        let (groups, validity) = (work.groups(&keys, row_count), validity(&keys));
        let validity = validity.as_ref().map(BitBuffer::as_bits);
        ranges.order(&groups, &keys[equal_count..], validity, &is_wanted)?
    };
    let Some(rows) = rows else {
        checks.check()?;
        return internal_err!("nobody stopped the sort");
    };
    keys.truncate(equal_count);
    Ok(Built { build: Build::ordered(rows, work.kind), columns, keys, reservation: held })
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
    let batches = Arc::new(batches);
    let columns = columns.map(|place| {
        let batches = batches.clone();
        move || joined(&batches, place)
    });
    let columns = each(columns);
    let mut pieces: Vec<_> = build.pieces().collect();
    let mut build = in_pieces(build, pieces.clone(), threads, |build, piece| build.note(piece)).await?;
    build.make_slots();
    // Of a thread that is alone chains are in the order of rows.
    pieces.reverse();
    let is_alone = threads == 1;
    let insert = move |build: &Build<K>, piece| build.insert(Level::best(), piece, is_alone);
    let build = in_pieces(build, pieces, threads, insert).await?;
    Ok((build, columns.await?))
}

/// The table with rows of equal keys side by side, and the columns in the same order.
async fn in_runs<K: PackedKey>(
    mut build: Build<K>,
    columns: Vec<ArrayRef>,
    threads: usize,
) -> Result<(Build<K>, Vec<ArrayRef>)> {
    build.keyed_mut().begin_runs();
    let pieces: Vec<_> = build.pieces().collect();
    let count = |build: &Build<K>, piece| build.keyed().count(Level::best(), piece);
    let mut build = in_pieces(build, pieces.clone(), threads, count).await?;
    build.keyed_mut().make_places();
    let place = |build: &Build<K>, piece| build.keyed().place(Level::best(), piece);
    let mut build = in_pieces(build, pieces, threads, place).await?;
    let order = Arc::new(UInt32Array::from(build.keyed_mut().end_runs()));
    let columns = columns.into_iter().map(|column| {
        let order = order.clone();
        move || Ok(take(&column, order.as_ref(), None)?)
    });
    Ok((build, each(columns).await?))
}

/// Does something with these pieces of the rows, by several threads.
async fn in_pieces<K: PackedKey>(
    build: Build<K>,
    pieces: Vec<Range<usize>>,
    threads: usize,
    step: impl Fn(&Build<K>, Range<usize>) + Copy + Send + 'static,
) -> Result<Build<K>> {
    let (build, pieces) = (Arc::new(build), Arc::new(pieces));
    let (next, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..threads {
        let (build, pieces, next) = (build.clone(), pieces.clone(), next.clone());
        tasks.spawn(async move {
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                step(&build, piece.clone());
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    all(tasks).await?;
    Ok(Arc::into_inner(build).expect("the tasks have ended"))
}

/// What these make, in their order, each by a task of its own.
fn each(
    makers: impl Iterator<Item = impl FnOnce() -> Result<ArrayRef> + Send + 'static>,
) -> impl Future<Output = Result<Vec<ArrayRef>>> {
    let mut tasks = JoinSet::new();
    for (place, make) in makers.enumerate() {
        tasks.spawn(async move { Ok((place, make()?)) });
    }
    async {
        let mut made = all(tasks).await?;
        made.sort_unstable_by_key(|(place, _)| *place);
        Ok(made.into_iter().map(|(_, column)| column).collect())
    }
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
