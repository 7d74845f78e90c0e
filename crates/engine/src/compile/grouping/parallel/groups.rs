//! The groups of a run, which its partitions share.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::common::runtime::JoinSet;
use datafusion::common::{internal_err, resources_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use keirin_kernels::Level;
use keirin_kernels::hash::WideKey;
use keirin_operators::arguments::Argument;
use keirin_operators::grouping::{Grouping, Merge, MergeTables, Part, Worker};
use keirin_operators::packed::{KeyLayout, PackedKey};
use keirin_operators::texts::Texts;
use keirin_operators::{KeyColumn, KeyValues, OwnedKeys, OwnedValues};
use parking_lot::Mutex;

use super::coded::CodedRows;
use super::texts::{Entries, KnownTexts, number_texts};
use crate::compact::compact;
use crate::compile::grouping::aggregates::{Aggregates, Lent};
use crate::compile::grouping::first::First;
use crate::compile::grouping::keys::{Held, KeyRows, Keys, nulls};
use crate::compile::grouping::table::one_float;
use crate::sources::stored::{Clusters, ScanStep, ScanWorker, StoredScan, blocking_step};

/// Rows that are grouped at a time: what is computed of them stays in the second cache.
const CHUNK_ROWS: usize = 1 << 14;

/// What is grouped by what.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) key_expressions: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) keys: Keys,
    pub(super) layout: KeyLayout,
    pub(super) aggregates: Aggregates,
    pub(super) first: Option<First>,
    pub(super) schema: SchemaRef,
    /// Whether nobody wants to know more of texts than whether they are there.
    pub(super) is_counted: bool,
}

impl Work {
    pub(super) fn keeping(self, first: Option<First>) -> Self {
        Self { first, ..self }
    }

    pub(super) fn counted(self) -> Self {
        Self { is_counted: true, ..self }
    }

    pub(super) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// The columns of rows that are keys of text and nothing else, or decimals that are only computed with.
    fn coded(&self) -> Vec<usize> {
        let column = |(key, expression): (usize, &Arc<dyn PhysicalExpr>)| {
            Some(expression.downcast_ref::<Column>()?.index()).filter(|_| self.is_text(key))
        };
        let arguments = self.aggregates.arguments.iter().map(|(argument, _)| argument);
        let others = |index: &usize| {
            let expressions = self.key_expressions.iter().chain(arguments.clone());
            expressions.flat_map(collect_columns).filter(|column| column.index() == *index).count()
        };
        let texts = self.key_expressions.iter().enumerate().filter_map(column);
        let texts = texts.filter(|index| others(index) == 1);
        let of_keys: Vec<Column> = self.key_expressions.iter().flat_map(collect_columns).collect();
        let decimals = self.aggregates.decimals.iter().map(|(index, _)| *index);
        let is_key = |index: &usize| of_keys.iter().any(|column| column.index() == *index);
        texts.chain(decimals.filter(|index| !is_key(index))).collect()
    }

    /// A key whose values are in one stripe each of a scan, but for a few: its place, and which of them.
    fn clusters(&self, scan: &StoredScan) -> Option<(usize, Clusters)> {
        self.key_expressions.iter().enumerate().find_map(|(key, expression)| {
            // A key that was narrowed has the same values.
            let narrowed = expression.downcast_ref::<CastExpr>();
            let narrowed = narrowed.filter(|_| self.keys.data_types[key].is_integer()).map(CastExpr::expr);
            let column = narrowed.unwrap_or(expression).downcast_ref::<Column>()?;
            Some((key, scan.clusters(column.index())?))
        })
    }

    /// Whether a column of the groups is a key that is a text.
    pub(super) fn is_text(&self, column: usize) -> bool {
        self.keys.types.get(column).is_some_and(|key| key.width.is_none())
    }
}

/// Where rows come from.
pub(super) enum Input<'a> {
    Rows(&'a Arc<dyn ExecutionPlan>),
    /// The groups of others as rows, taken by so many threads.
    Groups {
        groups: Arc<dyn Shared>,
        threads: usize,
    },
    /// The groups of others by one key more, whose different values are counted, taken by so many threads.
    Distinct {
        groups: Arc<dyn Shared>,
        threads: usize,
    },
}

/// How it ended that rows were grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    Done,
    /// There was no memory.
    NoMemory,
    /// The rows are none for this operator.
    Unfit,
}

/// Why rows are none for this operator.
#[derive(Debug)]
pub(super) struct Unfit(&'static str);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unfit {}

pub(super) fn unfit<T>(reason: &'static str) -> Result<T> {
    Err(DataFusionError::External(Box::new(Unfit(reason))))
}

/// What the partitions of a run share.
#[async_trait::async_trait]
pub(super) trait Shared: fmt::Debug + Send + Sync {
    /// Waits until all rows are grouped.
    async fn fill(self: Arc<Self>) -> Result<Filled>;

    /// The groups that a partition takes, when they are there.
    fn stream(self: Arc<Self>, baseline: BaselineMetrics) -> SendableRecordBatchStream;

    /// The same, for who groups them again.
    fn parts(self: Arc<Self>) -> Result<Box<dyn Parts>>;

    /// The texts of a key, when they are there.
    fn texts(&self, key: usize) -> Option<Arc<KnownTexts>>;

    /// The unit of the sums of an argument's floats, when they are there.
    fn unit(&self, argument: usize) -> i32;
}

/// Groups that are taken a part at a time. Of texts, the keys are their numbers.
pub(super) trait Parts: Send {
    /// The next part that nobody took, as rows; there is no text where a number is null.
    fn next_rows(&mut self) -> Result<Option<RecordBatch>>;

    /// The next part that nobody took, with states.
    fn next_groups(&mut self) -> Result<Option<Taken>>;
}

/// The groups of a part.
pub(super) struct Taken {
    keys: Vec<OwnedKeys>,
    /// The words of their states, row by row.
    words: Vec<u64>,
    count: usize,
}

/// Begins a run.
pub(super) fn begin(
    work: &Arc<Work>,
    input: Input<'_>,
    context: &Arc<TaskContext>,
) -> Result<Arc<dyn Shared>> {
    let bytes = work.layout.bytes();
    Ok(if work.layout.is_four_bytes() {
        Arc::new(Groups::<u32>::new(work, input, context)?)
    } else if bytes <= size_of::<u64>() {
        Arc::new(Groups::<u64>::new(work, input, context)?)
    } else if bytes <= size_of::<u128>() {
        Arc::new(Groups::<u128>::new(work, input, context)?)
    } else {
        Arc::new(Groups::<WideKey>::new(work, input, context)?)
    })
}

/// The groups of a run by keys of one type.
struct Groups<K: PackedKey> {
    work: Arc<Work>,
    grouping: Arc<Grouping>,
    /// The groups of whose states these are made, if they are.
    distinct_of: Option<Arc<dyn Shared>>,
    texts: Vec<KeyTexts>,
    text_bytes: Mutex<MemoryReservation>,
    filling: tokio::sync::Mutex<Filling<K>>,
    /// Which groups are whole when their stripe was read: those with such a value of this key.
    clusters: Option<(usize, Clusters)>,
    /// The groups of all threads, when they are there.
    merging: Mutex<Option<Arc<Merging<K>>>>,
    next_part: AtomicUsize,
    batch_rows: usize,
    /// Rows that came, of all threads.
    row_count: AtomicU64,
}

/// Who numbers the texts of a key.
enum KeyTexts {
    /// It has none.
    None,
    Own(Texts),
    /// Others, of one of their keys.
    Of(Arc<dyn Shared>, usize),
}

impl KeyTexts {
    fn bytes(&self) -> usize {
        if let Self::Own(texts) = self { texts.bytes() } else { 0 }
    }

    /// The texts, when no more come.
    fn known(&self) -> Result<Option<Arc<KnownTexts>>> {
        Ok(match self {
            Self::None => None,
            Self::Own(texts) => Some(Arc::new(KnownTexts::new(texts))),
            Self::Of(groups, key) => match groups.texts(*key) {
                None => return internal_err!("texts that are not there"),
                texts => texts,
            },
        })
    }
}

/// What threads merge.
struct Merging<K: PackedKey> {
    merge: Merge<K>,
    texts: Vec<Option<Arc<KnownTexts>>>,
    /// The memory of both.
    _reservations: Vec<MemoryReservation>,
}

impl<K: PackedKey> fmt::Debug for Groups<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups").field("grouping", &self.grouping).finish_non_exhaustive()
    }
}

/// A thread's groups, and the memory that they have.
type Grouped<K> = (Worker<K>, MemoryReservation);

/// Who groups the rows of a thread.
struct Member<K: PackedKey> {
    worker: Worker<K>,
    reservation: MemoryReservation,
    /// Of each key, what is known of the dictionary that it had last.
    entries: Vec<Option<Entries>>,
}

/// How far the groups are there.
enum Filling<K: PackedKey> {
    NotBegun(Vec<Source<K>>),
    /// They come as long as these run; dropping them ends that. Some threads may be done.
    Begun(JoinSet<Result<Grouped<K>>>, Vec<Grouped<K>>),
    Done,
    /// There was no memory, or it does not work with these rows.
    GivenUp(Filled),
    Failed(Arc<DataFusionError>),
}

/// Where the rows of a thread come from, and who groups them.
struct Source<K: PackedKey> {
    rows: Rows,
    member: Member<K>,
}

enum Rows {
    /// Of stripes, which the thread reads itself.
    Stored(Box<ScanWorker>),
    Batches(SendableRecordBatchStream),
    Groups(Arc<dyn Shared>),
    Distinct(Arc<dyn Shared>),
}

impl<K: PackedKey> Groups<K> {
    fn new(work: &Arc<Work>, input: Input<'_>, context: &Arc<TaskContext>) -> Result<Self> {
        let aggregates = &work.aggregates;
        let arguments = aggregates.arguments.iter().map(|(_, number_type)| *number_type);
        let grouping = Grouping::new(work.layout.clone(), aggregates.layout.clone(), arguments.collect());
        let consumer = MemoryConsumer::new("GroupRows").with_can_spill(true);
        let reservation = consumer.register(context.memory_pool());
        let rows: Vec<Rows> = match &input {
            Input::Rows(plan) => {
                let partitions = 0..plan.properties().partitioning.partition_count();
                let coded = work.coded();
                let of_files = CodedRows::of(plan, &coded, context)?;
                let rows = partitions.map(|partition| {
                    Ok(match (StoredScan::worker_of(plan, partition, context).transpose()?, &of_files) {
                        (Some(worker), _) => Rows::Stored(Box::new(worker.with_coded(coded.clone()))),
                        (_, Some(of_files)) => Rows::Batches(of_files.execute(partition, context)?),
                        _ => Rows::Batches(plan.execute(partition, context.clone())?),
                    })
                });
                rows.collect::<Result<_>>()?
            }
            Input::Groups { groups, threads } => {
                (0..*threads).map(|_| Rows::Groups(groups.clone())).collect()
            }
            Input::Distinct { groups, threads } => {
                (0..*threads).map(|_| Rows::Distinct(groups.clone())).collect()
            }
        };
        let texts = (0..work.keys.types.len()).map(|key| match &input {
            _ if !work.is_text(key) => KeyTexts::None,
            Input::Rows(_) => KeyTexts::Own(Texts::default()),
            Input::Distinct { groups, .. } => KeyTexts::Of(groups.clone(), key),
            Input::Groups { groups, .. } => match work.key_expressions[key].downcast_ref::<Column>() {
                Some(column) => KeyTexts::Of(groups.clone(), column.index()),
                None => KeyTexts::Own(Texts::default()),
            },
        });
        let grouping = Arc::new(grouping);
        let clusters = match &input {
            Input::Rows(plan) => plan.downcast_ref().and_then(|scan| work.clusters(scan)),
            _ => None,
        };
        let sources = rows.into_iter().map(|rows| {
            let worker = Worker::new(&grouping);
            let worker = if clusters.is_some() { worker.clustered() } else { worker };
            let entries = work.keys.types.iter().map(|_| None).collect();
            Source { rows, member: Member { worker, reservation: reservation.new_empty(), entries } }
        });
        let distinct_of = match &input {
            Input::Distinct { groups, .. } => Some(groups.clone()),
            _ => None,
        };
        Ok(Self {
            texts: texts.collect(),
            distinct_of,
            filling: tokio::sync::Mutex::new(Filling::NotBegun(sources.collect())),
            text_bytes: Mutex::new(reservation),
            clusters,
            merging: Mutex::default(),
            next_part: AtomicUsize::new(0),
            batch_rows: context.session_config().batch_size(),
            row_count: AtomicU64::new(0),
            work: work.clone(),
            grouping,
        })
    }

    /// Groups the rows of a batch.
    fn add(&self, member: &mut Member<K>, batch: &RecordBatch) -> Result<()> {
        let Member { worker, reservation, entries } = member;
        let (level, row_count) = (Level::best(), batch.num_rows());
        let rows_before = self.row_count.fetch_add(row_count as u64, Ordering::Relaxed);
        let rows_max = self.work.aggregates.layout.rows_max();
        if rows_max.is_some_and(|rows_max| rows_before + row_count as u64 > rows_max) {
            return unfit("more rows than sums in one word have room for");
        }
        let evaluate = |expression: &Arc<dyn PhysicalExpr>| expression.evaluate(batch)?.into_array(row_count);
        let expressions = self.work.key_expressions.iter();
        let mut keys = Vec::with_capacity(self.texts.len());
        let texts = self.texts.iter().zip(entries);
        for ((expression, key_type), (texts, entries)) in expressions.zip(&self.work.keys.types).zip(texts) {
            let key = one_float(evaluate(expression)?);
            if !key_type.is_nullable && key.null_count() > 0 {
                return internal_err!("nulls in a key that has none");
            }
            keys.push(Held::new(&match (key.as_dictionary_opt::<UInt32Type>(), texts) {
                (Some(key), KeyTexts::Own(texts)) => {
                    let entries = Entries::of(entries, key.values());
                    Arc::new(entries.numbers(level, texts, key)?)
                }
                _ => key,
            }));
        }
        let buffers: Vec<Vec<&[u8]>> = keys.iter().map(Held::texts).collect();
        let columns: Vec<KeyColumn<'_>> =
            keys.iter().zip(&buffers).map(|(key, buffers)| key.key(buffers)).collect();
        let numbers: Vec<Vec<u32>> = columns
            .iter()
            .zip(&self.texts)
            .map(|(column, texts)| {
                let mut numbers = Vec::new();
                if let (KeyValues::Text(strings), KeyTexts::Own(texts)) = (column.values, texts) {
                    numbers.reserve(row_count);
                    number_texts(level, texts, strings, column.validity, &mut numbers)?;
                }
                Ok(numbers)
            })
            .collect::<Result<_>>()?;
        let columns =
            columns.iter().zip(&numbers).enumerate().map(|(key, (column, numbers))| match column.values {
                KeyValues::Text(_) => KeyColumn { values: KeyValues::Bytes4(numbers), validity: None },
                // Of a text that was numbered, none has a number of its own.
                values if self.work.is_text(key) => KeyColumn { values, validity: None },
                _ => *column,
            });
        let columns: Vec<KeyColumn<'_>> = columns.collect();
        for start in (0..row_count).step_by(CHUNK_ROWS) {
            let rows = start..row_count.min(start + CHUNK_ROWS);
            let arguments = self.work.aggregates.arguments_of(&batch.slice(start, rows.len()))?;
            let buffers: Vec<Vec<&[u8]>> = arguments.iter().map(Lent::buffers).collect();
            let arguments = arguments.iter().zip(&buffers);
            let arguments: Vec<Argument<'_>> =
                arguments.map(|(argument, buffers)| argument.argument(buffers)).collect::<Result<_>>()?;
            let columns: Vec<KeyColumn<'_>> =
                columns.iter().map(|column| column.slice(rows.clone())).collect();
            if worker.add(level, &columns, &arguments, rows.len()).is_err() {
                return unfit("floats of too different sizes for sums of few words");
            }
        }
        self.book(worker, reservation)
    }

    /// Sets groups aside that have no rows in other stripes than those that were read.
    fn set_aside(&self, worker: &mut Worker<K>) {
        let Some((key, clusters)) = &self.clusters else { return };
        let data_type = &self.work.keys.data_types[*key];
        let unused = 8 * (size_of::<u64>() - data_type.primitive_width().unwrap_or(size_of::<u64>()));
        let is_unsigned = data_type.is_unsigned_integer();
        let mut is_whole = clusters.look_up();
        worker.set_aside(Level::best(), *key, |value| match (value << unused).cast_signed() >> unused {
            // What is greater than any number of 64 bits with a sign has no cluster.
            _ if is_unsigned => i64::try_from(value).is_ok_and(&mut is_whole),
            value => is_whole(value),
        });
    }

    /// Groups the groups of others by one key less, and counts them.
    fn add_distinct(&self, Member { worker, reservation, .. }: &mut Member<K>, groups: &Taken) -> Result<()> {
        let Some((distinct, keys)) = groups.keys.split_last() else {
            return internal_err!("no key is counted");
        };
        let keys = keys.iter().enumerate().map(|(key, column)| KeyColumn {
            values: match &column.values {
                OwnedValues::Bytes1(values) => KeyValues::Bytes1(values),
                OwnedValues::Bytes2(values) => KeyValues::Bytes2(values),
                OwnedValues::Bytes4(values) => KeyValues::Bytes4(values),
                OwnedValues::Bytes8(values) => KeyValues::Bytes8(values),
                OwnedValues::Bytes16(values) => KeyValues::Bytes16(values),
                OwnedValues::Text(..) => unreachable!("texts have numbers"),
            },
            validity: column.validity.as_ref().filter(|_| !self.work.is_text(key)).map(|bits| bits.as_bits()),
        });
        let keys: Vec<KeyColumn<'_>> = keys.collect();
        let stride = self.work.aggregates.layout.stride();
        let mut words = Vec::with_capacity(groups.count * stride);
        for group in 0..groups.count {
            words.extend_from_slice(&groups.words[group * (stride - 1)..(group + 1) * (stride - 1)]);
            let has_value = distinct.validity.as_ref().is_none_or(|bits| bits.as_bits().get(group));
            words.push(u64::from(has_value));
        }
        worker.add_groups(Level::best(), &keys, &words, groups.count);
        self.book(worker, reservation)
    }

    fn book(&self, worker: &Worker<K>, reservation: &MemoryReservation) -> Result<()> {
        reservation.try_resize(worker.bytes())?;
        let bytes: usize = self.texts.iter().map(KeyTexts::bytes).sum();
        let text_bytes = self.text_bytes.lock();
        // Another thread may have booked more.
        if bytes > text_bytes.size() { text_bytes.try_resize(bytes) } else { Ok(()) }
    }

    /// Groups all rows of a source, as long as somebody wants that.
    async fn take_in(groups: Weak<Self>, source: Source<K>) -> Result<Grouped<K>> {
        let Source { rows, mut member } = source;
        match rows {
            Rows::Stored(scan) => {
                let (_, (_, of_stripes)) = blocking_step((scan, member), move |(scan, member)| {
                    while let Some(groups) = groups.upgrade() {
                        match scan.next_batches()? {
                            ScanStep::Found(batches) => {
                                batches.iter().try_for_each(|batch| groups.add(member, batch))?;
                                if scan.is_between_stripes() {
                                    groups.set_aside(&mut member.worker);
                                }
                            }
                            ScanStep::Nothing => {}
                            ScanStep::End => break,
                        }
                    }
                    Ok(ScanStep::<()>::End)
                })
                .await?;
                member = of_stripes;
            }
            Rows::Batches(mut batches) => {
                while let Some(batch) = batches.next().await.transpose()? {
                    let Some(groups) = groups.upgrade() else { break };
                    groups.add(&mut member, &batch)?;
                }
            }
            Rows::Groups(inner) => {
                let mut parts = Self::parts_of(inner).await?;
                while let Some(batch) = parts.next_rows()? {
                    let Some(groups) = groups.upgrade() else { break };
                    groups.add(&mut member, &batch)?;
                    tokio::task::yield_now().await;
                }
            }
            Rows::Distinct(inner) => {
                let mut parts = Self::parts_of(inner).await?;
                while let Some(part) = parts.next_groups()? {
                    let Some(groups) = groups.upgrade() else { break };
                    groups.add_distinct(&mut member, &part)?;
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok((member.worker, member.reservation))
    }

    /// The groups of others, when they are there.
    async fn parts_of(groups: Arc<dyn Shared>) -> Result<Box<dyn Parts>> {
        match groups.clone().fill().await? {
            Filled::Done => groups.parts(),
            Filled::NoMemory => resources_err!("groups that are grouped again"),
            Filled::Unfit => unfit("groups that are grouped again"),
        }
    }

    /// All rows are grouped.
    fn finish(&self, grouped: Vec<Grouped<K>>) -> Result<()> {
        let level = Level::best();
        let (workers, mut reservations): (Vec<_>, Vec<_>) = grouped.into_iter().unzip();
        reservations.push(self.text_bytes.lock().take());
        let finished = workers.into_iter().map(|worker| worker.finish(level)).collect();
        let texts: Vec<_> = self.texts.iter().map(KeyTexts::known).collect::<Result<_>>()?;
        let first = texts.first().and_then(Option::as_ref);
        let text_count = |shard| first.map_or(0, |texts| texts.count(shard));
        let merge = Merge::new(level, &self.grouping, finished, text_count);
        *self.merging.lock() = Some(Arc::new(Merging { merge, texts, _reservations: reservations }));
        Ok(())
    }

    /// The number of the next part that nobody took.
    fn next_part(&self, merging: &Merging<K>) -> Option<usize> {
        let part = self.next_part.fetch_add(1, Ordering::Relaxed);
        (part < merging.merge.part_count()).then_some(part)
    }

    /// The groups of a part.
    fn batches(
        &self,
        merging: &Merging<K>,
        part: usize,
        tables: &mut MergeTables<K>,
    ) -> Result<VecDeque<RecordBatch>> {
        let work = &self.work;
        let Part { mut keys, states } = merging.merge.part(Level::best(), part, tables);
        let mut aggregates = work.aggregates.evaluate(states, &|argument| self.unit(argument))?;
        let chosen = work.first.as_ref().map(|first| first.choose(&aggregates)).transpose()?.flatten();
        if let Some(chosen) = chosen {
            let taken = aggregates.iter().map(|aggregate| take(aggregate, &chosen, None));
            aggregates = taken.collect::<std::result::Result<_, _>>()?;
            keys = chosen.values().iter().map(|row| keys[*row as usize]).collect();
        }
        let row_count = keys.len();
        let unpacked = work.layout.unpack(&keys).into_iter().zip(&work.keys.data_types);
        let columns =
            unpacked.zip(&merging.texts).map(|((keys, data_type), texts)| match (texts, keys.values) {
                (Some(_), OwnedValues::Bytes4(numbers)) if work.is_counted => {
                    KeyRows::of_texts(vec![0; numbers.len()], Vec::new(), keys.validity, data_type)
                }
                (Some(texts), OwnedValues::Bytes4(numbers)) => {
                    KeyRows::of_texts(texts.views(&numbers), texts.parts().to_vec(), keys.validity, data_type)
                }
                (_, values) => KeyRows::new(OwnedKeys { values, ..keys }, data_type),
            });
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        let starts = (0..row_count).step_by(self.batch_rows);
        let batches = starts.map(|start| {
            let rows = self.batch_rows.min(row_count - start);
            let keys = columns.iter_mut().zip(work.schema.fields());
            let keys = keys.map(|(column, field)| typed(column.take(start, rows)?, field.data_type()));
            let aggregates = aggregates.iter().map(|aggregate| Ok(aggregate.slice(start, rows)));
            let columns: Vec<ArrayRef> = keys.chain(aggregates).collect::<Result<_>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(work.schema.clone(), columns, &options)?;
            // In buffers of their own: whoever keeps them, a sort say, books what a batch keeps alive.
            compact(&batch)
        });
        batches.collect()
    }

    fn merging(&self) -> Result<Arc<Merging<K>>> {
        let merging = self.merging.lock().clone();
        merging.map_or_else(|| internal_err!("groups that are not there"), Ok)
    }
}

#[async_trait::async_trait]
impl<K: PackedKey> Shared for Groups<K> {
    /// Whoever comes first sees to that; if it goes away, the next does.
    async fn fill(self: Arc<Self>) -> Result<Filled> {
        let mut filling = self.filling.lock().await;
        if let Filling::NotBegun(sources) = &mut *filling {
            let mut tasks = JoinSet::new();
            for source in std::mem::take(sources) {
                tasks.spawn(Self::take_in(Arc::downgrade(&self), source));
            }
            *filling = Filling::Begun(tasks, Vec::new());
        }
        if let Filling::Begun(tasks, grouped) = &mut *filling {
            let mut outcome = Ok(());
            while let Some(ended) = tasks.join_next().await {
                match ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error))).flatten() {
                    Ok(worker) => grouped.push(worker),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            *filling = match outcome.and_then(|()| self.finish(std::mem::take(grouped))) {
                Ok(()) => Filling::Done,
                Err(error) => match given_up(&error) {
                    Some(given_up) => {
                        // The memory of texts is free before others need it.
                        for texts in &self.texts {
                            if let KeyTexts::Own(texts) = texts {
                                drop(texts.take());
                            }
                        }
                        self.text_bytes.lock().free();
                        Filling::GivenUp(given_up)
                    }
                    None => Filling::Failed(Arc::new(error)),
                },
            };
        }
        match &*filling {
            Filling::Failed(error) => Err(DataFusionError::Shared(error.clone())),
            Filling::GivenUp(given_up) => Ok(*given_up),
            _ => Ok(Filled::Done),
        }
    }

    fn stream(self: Arc<Self>, baseline: BaselineMetrics) -> SendableRecordBatchStream {
        let schema = self.work.schema.clone();
        let taking = self.merging().map(|merging| {
            let tables = MergeTables::new(&merging.merge);
            (Taking { groups: self, merging, tables }, VecDeque::new(), baseline)
        });
        let batches = stream::try_unfold(Some(taking), |taking| async move {
            let Some((mut taking, mut batches, baseline)) = taking.transpose()? else { return Ok(None) };
            while batches.is_empty() {
                let Some(part) = taking.groups.next_part(&taking.merging) else { return Ok(None) };
                let _timer = baseline.elapsed_compute().timer();
                batches = taking.groups.batches(&taking.merging, part, &mut taking.tables)?;
            }
            let batch = batches.pop_front();
            batch.iter().for_each(|batch| baseline.record_output(batch.num_rows()));
            Ok(batch.map(|batch| (batch, Some(Ok((taking, batches, baseline))))))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    fn parts(self: Arc<Self>) -> Result<Box<dyn Parts>> {
        let merging = self.merging()?;
        let tables = MergeTables::new(&merging.merge);
        Ok(Box::new(Taking { groups: self, merging, tables }))
    }

    /// Of groups of others it is theirs.
    fn unit(&self, argument: usize) -> i32 {
        match &self.distinct_of {
            Some(groups) => groups.unit(argument),
            None => self.grouping.unit(argument),
        }
    }

    fn texts(&self, key: usize) -> Option<Arc<KnownTexts>> {
        self.merging.lock().as_ref()?.texts.get(key)?.clone()
    }
}

/// How it ended, if an error says no more than that this operator cannot group the rows.
fn given_up(error: &DataFusionError) -> Option<Filled> {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Some(Filled::NoMemory),
        DataFusionError::External(error) if error.is::<Unfit>() => Some(Filled::Unfit),
        _ => None,
    }
}

/// Keys as a column of this type, of which they may have been narrowed.
fn typed(keys: ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if keys.data_type() == data_type { Ok(keys) } else { Ok(cast(&keys, data_type)?) }
}

/// Who takes groups, part after part.
struct Taking<K: PackedKey> {
    groups: Arc<Groups<K>>,
    merging: Arc<Merging<K>>,
    tables: MergeTables<K>,
}

impl<K: PackedKey> Parts for Taking<K> {
    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        let Some(part) = self.groups.next_part(&self.merging) else { return Ok(None) };
        let Part { keys, states } = self.merging.merge.part(Level::best(), part, &mut self.tables);
        let work = &self.groups.work;
        let unpacked = work.layout.unpack(&keys).into_iter().zip(&work.keys.data_types);
        let columns = unpacked.enumerate().map(|(key, (column, data_type))| match column.values {
            OwnedValues::Bytes4(numbers) if work.is_text(key) => {
                Ok(Arc::new(UInt32Array::new(numbers.into(), nulls(column.validity))) as ArrayRef)
            }
            values => {
                let values = KeyRows::new(OwnedKeys { values, ..column }, data_type)?.take(0, keys.len())?;
                typed(values, work.schema.field(key).data_type())
            }
        });
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        let unit = |argument| self.groups.unit(argument);
        columns.extend(work.aggregates.evaluate(states, &unit)?);
        let fields = columns.iter().map(|column| Field::new("", column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }

    fn next_groups(&mut self) -> Result<Option<Taken>> {
        let Some(part) = self.groups.next_part(&self.merging) else { return Ok(None) };
        let Part { keys, states } = self.merging.merge.part(Level::best(), part, &mut self.tables);
        let (count, words) = (keys.len(), states.words().to_vec());
        Ok(Some(Taken { keys: self.groups.work.layout.unpack(&keys), words, count }))
    }
}
