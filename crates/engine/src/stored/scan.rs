//! The scan of a table on disk.
//!
//! Stripes are the units of work: all partitions take them from one list, so that none waits for another, or
//! each has a run of it where the order of rows is seen (`in_order`), or a part where parts are merged that are
//! sorted. Stripes that cannot have what filters want
//! are left out by their statistics, once for all before the first is read and, for filters that other operators
//! narrow meanwhile, again before each. For a top-N those that may have the first rows are read first. Reading and decoding blocks, so it is done on threads for that.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, Statistics, assert_or_internal_err, project_schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, conjunction_opt, reassign_expr_columns};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, split_conjunction,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::projection::{
    ProjectionExec, all_alias_free_columns, new_projections_for_columns,
};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SortOrderPushdownResult,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::ahead::Ahead;
use super::details;
use super::open::{OpenPart, OpenTable, Place};
use super::prune::{self, Narrowing, kept, over_statistics};
use super::read::{Filter, ReadCounts, Rest, Stripe, external, is_dynamic};
use crate::compact::compact;
use crate::conditions::Conditions;
use crate::work;

/// Stripes that take more of a partition's part of the memory, one in so many, are read in slices of this size. What is
/// compressed is decompressed again for each.
const READ_SHARE: usize = 4;
/// What takes more, one in so many, is handed out in smaller slices.
const STRIPE_SHARE: usize = 8;
/// These slices take one part in so many.
const SLICE_SHARE: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct StoredScan {
    table: Arc<OpenTable>,
    /// The columns of the answer, by their places in the table's schema.
    projection: Vec<usize>,
    /// Conditions that are joined by AND, in terms of the table's schema.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Rows after which a partition may end.
    limit: Option<usize>,
    keeps_order: bool,
    /// Whether each partition is a part.
    is_by_part: bool,
    /// Of which rows a top-N above would have the first, if that is known.
    first: Option<First>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Planning asks more than once.
    statistics: OnceLock<Arc<Statistics>>,
    run: Mutex<Option<Run>>,
}

/// The rows that are wanted first.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// The place of a column in the table's schema.
    pub(super) column: usize,
    /// Whether these are the rows with its greatest values, not with its least.
    pub(super) is_descending: bool,
}

/// A run of the plan: which partitions were begun, and what they share.
#[derive(Debug)]
struct Run {
    begun: Vec<bool>,
    shared: Arc<Shared>,
}

impl StoredScan {
    /// Reads columns of these places in the schema of `table`, in `partitions` streams; no more than `limit`
    /// rows are wanted, whichever they are. All rows fulfil `filters`, which are in terms of the table's schema.
    ///
    /// # Errors
    /// When there is no such column.
    pub(crate) fn new(
        table: Arc<OpenTable>,
        projection: Option<&Vec<usize>>,
        filters: &[Arc<dyn PhysicalExpr>],
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let projection = projection.cloned().unwrap_or_else(|| (0..table.schema.fields().len()).collect());
        let filters = filters.iter().flat_map(split_conjunction).cloned().collect();
        let stripes =
            table.parts.iter().map(|part| part.as_ref().map_or(1, |part| part.reader.stripe_count()));
        let partitions = partitions.min(stripes.sum()).max(1);
        let schema = project_schema(&table.schema, Some(&projection))?;
        // Partitions take stripes in order, so that of a single part stays.
        let ordering =
            if table.parts.len() == 1 { ordering(&table, &projection, &schema) } else { Vec::new() };
        let properties = properties(schema, ordering, partitions);
        Ok(Self {
            table,
            projection,
            filters,
            limit,
            keeps_order: false,
            is_by_part: false,
            first: None,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            statistics: OnceLock::new(),
            run: Mutex::default(),
        })
    }

    /// Whether all parts could be opened.
    pub(crate) fn is_whole(&self) -> bool {
        self.table.parts.iter().all(|part| part.is_ok())
    }

    /// Between which values those of a column are, by the footers, if these tell.
    pub(crate) fn bounds(&self, column: usize) -> Option<[ScalarValue; 2]> {
        let statistics = prune::statistics(&self.table, &[*self.projection.get(column)?]);
        let column = &statistics.column_statistics[0];
        let bounds = [column.min_value.get_value()?.clone(), column.max_value.get_value()?.clone()];
        bounds.iter().all(|bound| !bound.is_null()).then_some(bounds)
    }

    /// Whether rows are left out.
    pub(crate) fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    /// The same scan with changed filters.
    pub(crate) fn with_filters(
        &self,
        change: impl Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        let filters = self.filters.iter().map(change).collect::<Result<_>>()?;
        Ok(self.with(|scan| scan.filters = filters))
    }

    /// The same scan with a filter of a column of the answer, made of the table's column; `None` where rows are counted.
    pub(crate) fn filtered(
        &self,
        column: usize,
        filter: impl FnOnce(Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Option<Self>> {
        if self.limit.is_some() {
            return Ok(None);
        }
        let index = self.projection[column];
        let filter = filter(Arc::new(Column::new(self.table.schema.field(index).name(), index)))?;
        Ok(Some(self.with(|scan| scan.filters.push(filter))))
    }

    /// Whether there is memory for a stripe of each part, which a merge holds at the same time.
    fn can_merge(&self) -> bool {
        /// So many streams are merged as fast as their rows are sorted.
        const PARTS_MAX: usize = 64;
        const BYTES_MAX: u64 = 32 << 20;
        let parts = self.table.parts.iter().flatten().filter(|part| part.reader.stripe_count() > 0);
        let bytes = parts.map(|part| {
            let columns = self.projection.iter().map(|index| match part.column(*index) {
                Place::Here(column) | Place::Cast(column, _) => part.reader.value_bytes(*column, 0),
                _ => 0,
            });
            columns.sum::<u64>()
        });
        self.table.parts.len() <= PARTS_MAX && bytes.sum::<u64>() <= BYTES_MAX
    }

    /// The same scan, which begins with the stripes that may have the first rows in this order.
    fn with_first(&self, order: &[PhysicalSortExpr]) -> Option<Self> {
        let first = order.first()?;
        let column = *self.projection.get(first.expr.downcast_ref::<Column>()?.index())?;
        let first = First { column, is_descending: first.options.descending };
        (!self.keeps_order).then(|| {
            self.with(|scan| {
                scan.first = Some(first);
                scan.properties = Arc::new(properties(self.schema(), Vec::new(), self.partition_count()));
            })
        })
    }

    fn partition_count(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    /// A partition's part of the memory.
    fn part_bytes(&self, context: &TaskContext) -> usize {
        match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / self.partition_count(),
            _ => usize::MAX,
        }
    }

    /// The same scan, changed; it has not run yet.
    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = Self {
            table: self.table.clone(),
            projection: self.projection.clone(),
            filters: self.filters.clone(),
            limit: self.limit,
            keeps_order: self.keeps_order,
            is_by_part: self.is_by_part,
            first: self.first,
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
            statistics: OnceLock::new(),
            run: Mutex::default(),
        };
        change(&mut changed);
        changed
    }

    /// What the partitions of a run share; a partition that was begun before begins another run.
    fn shared(&self, partition: usize) -> Result<Arc<Shared>> {
        let mut run = self.run.lock();
        if let Some(run) = run.as_mut().filter(|run| !run.begun[partition]) {
            run.begun[partition] = true;
            return Ok(run.shared.clone());
        }
        let schema = &self.table.schema;
        // What others narrow by is a filter by itself: it may be left out, and what it is joined with must not be.
        let (narrowing, fixed): (Vec<_>, Vec<_>) = self.filters.iter().partition(|filter| is_dynamic(filter));
        let mut filters = Vec::new();
        for conditions in [fixed].into_iter().chain(narrowing.into_iter().map(|filter| vec![filter])) {
            let conditions = Conditions::new(conditions, schema)?;
            for filter in conditions.first.iter().chain(&conditions.last) {
                filters.push(Filter::new(filter, schema, &self.projection)?);
            }
            if conditions.last.is_some()
                && let Some(last) = filters.last_mut()
            {
                last.can_fail();
            }
        }
        let shared = Arc::new(Shared {
            table: self.table.clone(),
            projection: self.projection.clone(),
            schema: self.schema(),
            filters,
            condition: conjunction_opt(self.filters.iter().cloned()),
            first: self.first.filter(|_| !self.keeps_order && !self.is_by_part),
            stripes: OnceLock::new(),
            zones: OnceLock::new(),
            next: AtomicUsize::new(0),
            worths: OnceLock::new(),
            ahead: Ahead::default(),
            handed_in: Mutex::default(),
        });
        let mut begun = vec![false; self.partition_count()];
        begun[partition] = true;
        *run = Some(Run { begun, shared: shared.clone() });
        Ok(shared)
    }

    /// Whether a column of the answer may have nulls, by its place there: not if the footers of all parts say so.
    pub(crate) fn may_have_nulls(&self, column: usize) -> bool {
        let index = self.projection[column];
        let is_free = |part: &OpenPart| {
            let place = match part.column(index) {
                Place::Length(length) => part.column(length.of),
                place => place,
            };
            let Place::Here(column) = place else { return false };
            let reader = &part.reader;
            reader.value_count(*column, 0..reader.stripe_count()) == reader.row_count()
        };
        self.table.schema.field(index).is_nullable()
            && !self.table.parts.iter().all(|part| part.as_ref().is_ok_and(is_free))
    }

    pub(super) fn projection(&self) -> &[usize] {
        &self.projection
    }

    pub(super) fn table_schema(&self) -> &SchemaRef {
        &self.table.schema
    }

    /// Who does the work of a partition.
    pub(crate) fn worker(&self, partition: usize, context: &TaskContext) -> Result<Worker> {
        let shared = self.shared(partition)?;
        let count = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let consumer = MemoryConsumer::new(format!("scan of table {}", self.table.table.definition.name));
        Ok(Worker {
            narrowing: shared.condition.as_ref().and_then(Narrowing::new),
            run: (self.keeps_order || self.is_by_part).then_some(partition),
            takes_runs: false,
            own: None,
            ahead: Ahead::default(),
            remaining: self.limit,
            coded: Vec::new(),
            rest: None,
            read_bytes_max: self.part_bytes(context) / READ_SHARE,
            reservation: consumer.register(context.memory_pool()),
            counts: ReadCounts {
                bytes: count("bytes_scanned"),
                rows_dropped: count("pushdown_rows_pruned"),
                cached: count("blocks_cached"),
            },
            stripes_read: count("stripes_read"),
            stripes_pruned: count("stripes_pruned"),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            is_by_part: self.is_by_part,
            partitions: self.partition_count(),
            shared,
        })
    }
}

fn properties(schema: SchemaRef, ordering: Vec<PhysicalSortExpr>, partitions: usize) -> PlanProperties {
    let mut equivalences = EquivalenceProperties::new(schema);
    equivalences.add_ordering(ordering);
    PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
    .with_scheduling_type(SchedulingType::Cooperative)
}

/// How the rows of each part are sorted.
fn ordering(table: &OpenTable, projection: &[usize], schema: &SchemaRef) -> Vec<PhysicalSortExpr> {
    let keys = table.keys().iter().map_while(|key| {
        let index = table.index_of(key.field)?;
        let place = projection.iter().position(|projected| *projected == index)?;
        let options = SortOptions { descending: key.is_descending, nulls_first: key.nulls_first };
        let column = Arc::new(Column::new(schema.field(place).name(), place));
        Some(PhysicalSortExpr { expr: column, options })
    });
    keys.collect()
}

impl DisplayAs for StoredScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let (name, parts) = (&self.table.table.definition.name, self.table.table.parts().len());
        let condition = conjunction_opt(self.filters.iter().cloned());
        write!(f, "StoredScan: table={name}, parts=")?;
        if let Some(condition) = &condition {
            write!(f, "{} of ", prune::part_count(&self.table, condition))?;
        }
        write!(f, "{parts}, columns=[{}]", columns.join(", "))?;
        if let Some(condition) = condition {
            write!(f, ", filter={condition}")?;
        }
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for StoredScan {
    fn name(&self) -> &'static str {
        "StoredScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in &self.filters {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        assert_or_internal_err!(children.is_empty(), "a leaf has no children");
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with(|_| {})))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        assert_or_internal_err!(
            partition < self.partition_count(),
            "StoredScan has no partition {partition}"
        );
        let worker = self.worker(partition, &context)?;
        let batches: BoxStream<'static, Result<RecordBatch>> =
            stream::try_unfold(Some(worker), |worker| async move {
                let Some(mut worker) = worker else { return Ok::<_, DataFusionError>(None) };
                loop {
                    let (step, back) = blocking_step(worker, Worker::next_batches).await?;
                    worker = back;
                    match step {
                        Step::Found(batches) => {
                            let worker = (!worker.is_at_end()).then_some(worker);
                            return Ok(Some((
                                stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>)),
                                worker,
                            )));
                        }
                        Step::Nothing => {}
                        Step::End => return Ok(None),
                    }
                }
            })
            .try_flatten()
            .boxed();
        // Where order is seen, whoever merges the partitions reads many batches of each ahead: they are to be
        // small. Elsewhere they are whole, for slices of one buffer are booked as if each had all of it; where
        // they are large for the memory that there is, they are slices that have buffers of their own.
        let part_bytes = self.part_bytes(&context);
        let (keeps_order, batch_rows) = (self.keeps_order, context.session_config().batch_size());
        let batches = batches.map_ok(move |batch| {
            let bytes = batch.get_array_memory_size();
            let (is_large, row_bytes) = (bytes > part_bytes / STRIPE_SHARE, bytes / batch.num_rows().max(1));
            let rows_max = match (is_large, keeps_order) {
                (true, _) => (part_bytes / SLICE_SHARE / row_bytes.max(1)).clamp(1, batch_rows),
                (false, true) => batch_rows,
                (false, false) => usize::MAX,
            };
            let starts = (0..batch.num_rows()).step_by(rows_max);
            stream::iter(starts.map(move |start| {
                let slice = batch.slice(start, rows_max.min(batch.num_rows() - start));
                if is_large { compact(&slice) } else { Ok(slice) }
            }))
        });
        let batches = batches.try_flatten().boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), batches))))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        if let Some(known) = self.statistics.get() {
            return Ok(known.clone());
        }
        let fixed: Vec<_> = self.filters.iter().filter(|filter| !is_dynamic(filter)).cloned().collect();
        let statistics = match conjunction_opt(fixed) {
            None => prune::statistics(&self.table, &self.projection),
            Some(condition) => {
                // As DataFusion estimates what a filter leaves, of the columns that either needs.
                let filtered = collect_columns(&condition);
                let needed: BTreeSet<usize> =
                    filtered.iter().map(Column::index).chain(self.projection.iter().copied()).collect();
                let needed: Vec<usize> = needed.into_iter().collect();
                let projection: Vec<usize> =
                    self.projection.iter().filter_map(|index| needed.binary_search(index).ok()).collect();
                let schema = project_schema(&self.table.schema, Some(&needed))?;
                let condition = reassign_expr_columns(condition, &schema)?;
                let input = prune::statistics(&self.table, &needed);
                let filter = FilterExec::try_new(condition, Arc::new(EmptyExec::new(schema)))?;
                // It fails where ranges are so wide that shares of them are above one.
                let left = filter.statistics_from_inputs(&[Arc::new(input)], args);
                let left =
                    left.map_or_else(|_| Statistics::new_unknown(&filter.schema()), Arc::unwrap_or_clone);
                left.project(Some(&projection)).to_inexact()
            }
        };
        let fetch = self.limit.filter(|_| self.partition_count() == 1);
        let statistics = Arc::new(statistics.with_fetch(fetch, 0, 1)?);
        Ok(self.statistics.get_or_init(|| statistics).clone())
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if self.is_by_part || !all_alias_free_columns(projection.expr()) {
            return Ok(None);
        }
        let columns = new_projections_for_columns(projection.expr(), &self.projection);
        let partitions = self.partition_count();
        let scan = Self::new(self.table.clone(), Some(&columns), &self.filters, self.limit, partitions)?;
        Ok(Some(Arc::new(scan.with(|scan| scan.keeps_order = self.keeps_order))))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters = pushed.parent_filters.into_iter().map(|pushed| pushed.filter);
        // A limit counts the rows that there are now: filters above it are not ours.
        if self.limit.is_some() {
            return Ok(FilterPushdownPropagation::with_parent_pushdown_result(
                filters.map(|_| PushedDown::No).collect(),
            ));
        }
        let (mut ours, mut answers) = (self.filters.clone(), Vec::new());
        for filter in filters {
            // Rows may come through what others narrow, so that it need not be tried where it is of no use.
            let is_optional = is_dynamic(&filter);
            answers.push(if is_optional { PushedDown::No } else { PushedDown::Yes });
            let schema = &self.table.schema;
            let filter = reassign_expr_columns(filter, schema)?;
            // A join finds the bounds of its lists and structs by another order than the one of comparisons.
            if is_optional && filter.exists(|expr| Ok(expr.data_type(schema)?.is_nested()))? {
                continue;
            }
            ours.extend(split_conjunction(&filter).into_iter().cloned());
        }
        let scan: Arc<dyn ExecutionPlan> = Arc::new(self.with(|scan| scan.filters = ours));
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers).with_updated_node(scan))
    }

    /// Parts that are sorted so are merged instead of sorted. Where that cannot be, stripes that may have the first
    /// rows are read first, so that a top-N soon knows which others it can do without.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let (schema, parts) = (self.schema(), self.table.parts.len());
        let sorted = ordering(&self.table, &self.projection, &schema);
        // Filters take time, for which all threads are better than a sort that is saved.
        let is_slower = parts < self.partition_count() && !self.filters.is_empty();
        if parts < 2 || is_slower || !self.can_merge() || !sorted.starts_with(order) {
            return Ok(match self.with_first(order) {
                Some(scan) => SortOrderPushdownResult::Inexact { inner: Arc::new(scan) },
                None => SortOrderPushdownResult::Unsupported,
            });
        }
        let by_part: Arc<dyn ExecutionPlan> = Arc::new(self.with(|scan| {
            scan.is_by_part = true;
            scan.properties = Arc::new(properties(schema, sorted, parts));
        }));
        // A merge gives one stream, as the plan above expects: a limit, for one, counts the rows of one.
        Ok(match LexOrdering::new(order.iter().cloned()) {
            Some(order) => SortOrderPushdownResult::Exact {
                inner: Arc::new(SortPreservingMergeExec::new(order, by_part)),
            },
            None => SortOrderPushdownResult::Unsupported,
        })
    }

    fn with_preserve_order(&self, preserve_order: bool) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(self.with(|scan| scan.keeps_order = preserve_order)))
    }
}

/// What the partitions of a run share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) table: Arc<OpenTable>,
    pub(super) projection: Vec<usize>,
    schema: SchemaRef,
    pub(super) filters: Vec<Filter>,
    condition: Option<Arc<dyn PhysicalExpr>>,
    first: Option<First>,
    /// Stripes that may have rows: the places of their parts, and theirs in the parts.
    pub(super) stripes: OnceLock<Vec<(usize, usize)>>,
    /// For some of the stripes which of their zones may have rows.
    zones: OnceLock<HashMap<(usize, usize), Vec<bool>>>,
    next: AtomicUsize,
    /// By part: see [`Self::worths`].
    worths: OnceLock<Vec<usize>>,
    ahead: Ahead,
    /// What the partitions that are done have handed in, merged.
    handed_in: Mutex<HandedIn>,
}

#[derive(Debug, Default)]
struct HandedIn {
    partitions: usize,
    merged: Option<Box<dyn Any + Send>>,
}

impl Shared {
    /// The stripes, chosen by the first that asks; `pruned` counts those that are left out.
    fn stripes(&self, pruned: &Count, rows_pruned: &Count) -> &[(usize, usize)] {
        self.stripes.get_or_init(|| {
            let predicate =
                self.condition.as_ref().and_then(|condition| over_statistics(condition, &self.table.schema));
            let columns: Vec<usize> =
                self.condition.iter().flat_map(collect_columns).map(|column| column.index()).collect();
            let (mut stripes, mut in_zones) = (Vec::new(), HashMap::new());
            for (place, part) in self.table.parts.iter().enumerate() {
                // A part that cannot be opened is an error when its turn comes.
                let Ok(part) = part else {
                    stripes.push((place, 0));
                    continue;
                };
                let mut kept = kept(&self.table, part, 0..part.reader.stripe_count(), predicate.as_deref());
                if let Some(predicate) = predicate.as_deref().filter(|_| kept.contains(&true)) {
                    for (stripe, zones) in details::zones(&self.table, part, &kept, predicate, &columns) {
                        kept[stripe] = zones.contains(&true);
                        in_zones.insert((place, stripe), zones);
                    }
                }
                for (stripe, is_kept) in kept.into_iter().enumerate() {
                    if is_kept {
                        stripes.push((place, stripe));
                    } else {
                        let rows = part.reader.stripe(stripe);
                        pruned.add(1);
                        rows_pruned.add(usize::try_from(rows.end - rows.start).unwrap_or(0));
                    }
                }
            }
            if let Some(first) = self.first {
                prune::order(&self.table, first, &mut stripes);
            }
            _ = self.zones.set(in_zones);
            stripes
        })
    }

    /// Takes the next stripes of a part that lie one behind the other: an even number, for sums read them by turns, and
    /// as many as are worth it, but few when the end is near, that all partitions come to it at about the same time.
    fn take_run(&self, stripes: &[(usize, usize)], partitions: usize) -> Range<usize> {
        let mut start = self.next.load(Ordering::Relaxed);
        while let Some((place, first)) = stripes.get(start).copied() {
            let most = self.worths()[place].min((stripes.len() - start) / (4 * partitions) / 2 * 2).max(1);
            let is_next = |(index, stripe): &(usize, &(usize, usize))| **stripe == (place, first + index);
            let end = start + stripes[start..].iter().enumerate().take(most).take_while(is_next).count();
            match self.next.compare_exchange_weak(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return start..end,
                Err(next) => start = next,
            }
        }
        0..0
    }

    /// How many stripes of each part are worth taking at a time, if they are like its first.
    fn worths(&self) -> &[usize] {
        let worth = |part: &Result<_, _>| part.as_ref().map_or(1, |part| self.worth(part));
        self.worths.get_or_init(|| self.table.parts.iter().map(worth).collect())
    }

    /// One where nothing is read as it lies in a file of this machine.
    fn worth(&self, part: &OpenPart) -> usize {
        /// Sums of so many bytes are about as fast as of more.
        const BYTES: u64 = 2 << 20;
        const STRIPES_MAX: u64 = 16;
        if part.reader.stripe_count() == 0 || part.reader.is_fetched() {
            return 1;
        }
        let raw = self.projection.iter().map(|index| match part.column(*index) {
            Place::Here(column) => {
                let stored = part.reader.stored_bytes(*column, 0);
                if stored >= part.reader.value_bytes(*column, 0) { stored } else { 0 }
            }
            _ => 0,
        });
        match raw.sum() {
            0 => 1,
            bytes => (BYTES / bytes).clamp(1, STRIPES_MAX).next_multiple_of(2) as usize,
        }
    }
}

/// What so many columns of the stripe of a part take when they are decoded, about.
fn decoded_bytes<'a>(part: &OpenPart, columns: impl IntoIterator<Item = &'a usize>, stripe: usize) -> usize {
    let bytes = columns.into_iter().map(|index| match part.column(*index) {
        Place::Here(column) | Place::Cast(column, _) => part.reader.value_bytes(*column, stripe),
        _ => 0,
    });
    usize::try_from(bytes.sum::<u64>()).unwrap_or(usize::MAX)
}

fn one(stripe: usize) -> Range<usize> {
    stripe..stripe + 1
}

/// One partition of a run.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    narrowing: Option<Narrowing>,
    /// Which run of the list it reads, unless it takes what comes.
    run: Option<usize>,
    /// Whether it takes several stripes at a time.
    takes_runs: bool,
    /// How many partitions there are, which is how many runs.
    partitions: usize,
    /// Whether a run is a part.
    is_by_part: bool,
    /// What is left of its run.
    own: Option<Range<usize>>,
    /// How far ahead of it files were told what will be read.
    ahead: Ahead,
    remaining: Option<usize>,
    /// Columns of batches that are dictionaries or narrow where they are stored as such.
    coded: Vec<usize>,
    /// Rows of a large stripe that were not read yet.
    rest: Option<Rest>,
    /// Rows of about this size are read at a time.
    read_bytes_max: usize,
    reservation: MemoryReservation,
    counts: ReadCounts,
    stripes_read: Count,
    stripes_pruned: Count,
    baseline: BaselineMetrics,
}

pub(crate) enum Step<T> {
    /// What was made of a stripe.
    Found(T),
    /// A stripe without rows that are wanted.
    Nothing,
    End,
}

/// A step of `worker`, who comes back, on a thread for such work.
pub(crate) async fn blocking_step<W: Send + 'static, T: Send + 'static>(
    mut worker: W,
    step: impl FnOnce(&mut W) -> Result<Step<T>> + Send + 'static,
) -> Result<(Step<T>, W)> {
    let task = work::spawn(move || (step(&mut worker), worker));
    let (step, worker) =
        task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
    Ok((step?, worker))
}

impl Worker {
    /// Has these columns of batches, whatever the schema says, as dictionaries if they are text that is stored as such, and
    /// as integers of 64 bits if they are decimals that have room there.
    pub(crate) fn with_coded(mut self, columns: Vec<usize>) -> Self {
        self.coded = columns;
        self
    }

    /// Takes several stripes at a time, which are worth more together, where no rows are left out.
    pub(super) fn take_runs(&mut self) {
        self.takes_runs = self.run.is_none() && self.remaining.is_none() && self.shared.condition.is_none();
    }

    /// What `read` makes of the next stripe of which rows pass all filters, or of the next stripes of a part.
    pub(super) fn step<T>(&mut self, read: impl FnOnce(&mut [Stripe<'_>]) -> Result<T>) -> Result<Step<T>> {
        self.step_within(usize::MAX, read)
    }

    /// As [`step`](Self::step); `read` decodes no more than about so many bytes of a stripe.
    fn step_within<T>(
        &mut self,
        bytes_max: usize,
        read: impl FnOnce(&mut [Stripe<'_>]) -> Result<T>,
    ) -> Result<Step<T>> {
        let _timer = self.baseline.elapsed_compute().timer();
        if self.remaining == Some(0) {
            return Ok(Step::End);
        }
        let shared = &*self.shared;
        let stripes = shared.stripes(&self.stripes_pruned, &self.counts.rows_dropped);
        let taken = match self.run {
            None if self.takes_runs => shared.take_run(stripes, self.partitions),
            None => one(shared.next.fetch_add(1, Ordering::Relaxed)),
            Some(run) => {
                let place = |run| match self.is_by_part {
                    true => stripes.partition_point(|(part, _)| *part < run),
                    false => stripes.len() * run / self.partitions,
                };
                let own = self.own.get_or_insert_with(|| place(run)..place(run + 1));
                own.next().map_or(0..0, one)
            }
        };
        let Some([(part_index, _), ..]) = stripes.get(taken.clone()) else { return Ok(Step::End) };
        let table = &shared.table;
        let part = table.parts[*part_index].as_ref().map_err(|error| external(error.clone()))?;
        let end = self.own.as_ref().map_or(stripes.len(), |own| own.end);
        let ahead = if self.own.is_some() { &self.ahead } else { &shared.ahead };
        if self.remaining.is_none() {
            ahead.expect(shared, taken.start..end);
        }
        let mut wanted = Vec::with_capacity(taken.len());
        for (_, number) in &stripes[taken] {
            let mut stripe = Stripe::new(table, (*part_index, part), *number, &self.counts);
            let narrowing = self.narrowing.as_mut();
            if narrowing.is_some_and(|narrowing| narrowing.excludes(table, part, stripe.number)) {
                self.stripes_pruned.add(1);
                self.counts.rows_dropped.add(stripe.row_count());
                continue;
            }
            self.stripes_read.add(1);
            let rows_before = stripe.row_count();
            // Runs of stripes are added up as they are stored.
            if !self.takes_runs {
                let filtered = shared.filters.iter().flat_map(|filter| filter.columns());
                self.reservation.try_grow(decoded_bytes(part, filtered, stripe.number))?;
            }
            if let Some(zones) = shared.zones.get().and_then(|zones| zones.get(&(*part_index, *number))) {
                stripe.keep_zones(zones)?;
            }
            stripe.filter(&shared.filters, self.remaining)?;
            let rows = stripe.row_count();
            if part.reader.is_fetched() {
                ahead.passed(rows > 0);
            }
            if rows == 0 {
                continue;
            }
            if !self.takes_runs {
                let bytes = decoded_bytes(part, &shared.projection, stripe.number);
                self.reservation.try_grow((bytes / rows_before.max(1) * rows).min(bytes_max))?;
            }
            part.expect(&shared.projection, stripe.number..stripe.number + 1);
            if let Some(remaining) = &mut self.remaining {
                *remaining -= rows;
            }
            self.baseline.record_output(rows);
            wanted.push(stripe);
        }
        if wanted.is_empty() { Ok(Step::Nothing) } else { Ok(Step::Found(read(&mut wanted)?)) }
    }

    /// The next rows: of a stripe, or of a slice of one that is large for the memory that there is.
    fn next_batch(&mut self) -> Result<Step<RecordBatch>> {
        let (shared, bytes_max, coded) = (self.shared.clone(), self.read_bytes_max, self.coded.clone());
        let read = |stripe: &mut Stripe<'_>| {
            let bytes = decoded_bytes(stripe.part, &shared.projection, stripe.number);
            let rows = stripe.part.reader.stripe(stripe.number);
            let row_bytes = bytes / usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX).max(1);
            let rest = stripe.split_off((bytes_max / row_bytes.max(1)).max(1));
            Ok((stripe.coded_batch(&shared.projection, &coded, &shared.schema)?, rest))
        };
        let (batch, rest) = match self.rest.take() {
            Some(rest) => {
                let _timer = self.baseline.elapsed_compute().timer();
                self.reservation.try_grow(bytes_max)?;
                read(&mut rest.stripe(&shared.table, &self.counts)?)?
            }
            None => match self.step_within(bytes_max, |stripes| read(&mut stripes[0]))? {
                Step::Found(found) => found,
                Step::Nothing => return Ok(Step::Nothing),
                Step::End => return Ok(Step::End),
            },
        };
        self.rest = rest;
        Ok(Step::Found(batch))
    }

    /// The next rows. Where stripes have few or none, several are read at a time, for each change of threads takes
    /// about as long as a condition over a stripe that is easy to answer.
    pub(crate) fn next_batches(&mut self) -> Result<Step<Vec<RecordBatch>>> {
        /// Work after which a change of threads hardly counts.
        const WORK: Duration = Duration::from_millis(1);
        /// Rows that give whoever gets them enough to do.
        const ROWS_ENOUGH: usize = 8192;
        self.reservation.free();
        debug_assert!(!self.takes_runs, "a batch is one stripe's");
        // Whoever narrows a filter is to see rows before more are read, which it may exclude.
        let rows_enough = if self.narrowing.is_some() { 1 } else { ROWS_ENOUGH };
        let started = Instant::now();
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
        loop {
            match self.next_batch()? {
                Step::Found(batch) => {
                    rows += batch.num_rows();
                    bytes += batch.get_array_memory_size();
                    self.book(bytes)?;
                    batches.push(batch);
                }
                Step::Nothing => {}
                Step::End if batches.is_empty() => return Ok(Step::End),
                Step::End => break,
            }
            if rows >= rows_enough || self.rest.is_some() || started.elapsed() >= WORK {
                break;
            }
        }
        Ok(if batches.is_empty() { Step::Nothing } else { Step::Found(batches) })
    }

    /// Whether there are no more stripes for it.
    fn is_at_end(&self) -> bool {
        let is_taken = |stripes: &Vec<_>| self.shared.next.load(Ordering::Relaxed) >= stripes.len();
        let has_none = match (self.run, &self.own) {
            (None, _) => self.shared.stripes.get().is_some_and(is_taken),
            (Some(_), own) => own.as_ref().is_some_and(|own| own.is_empty()),
        };
        self.rest.is_none() && (has_none || self.remaining == Some(0))
    }

    /// Hands in what this partition made, once, to be merged with what those have that were done before; the last gets it
    /// all. As with the stripes, all partitions are to be executed here.
    pub(super) fn hand_in<T: Send + 'static>(&self, own: T, merge: impl FnOnce(&mut T, T)) -> Option<T> {
        let mut handed_in = self.shared.handed_in.lock();
        let before = handed_in.merged.take().and_then(|merged| merged.downcast::<T>().ok());
        let all = match before {
            Some(mut all) => {
                merge(&mut all, own);
                all
            }
            None => Box::new(own),
        };
        handed_in.partitions += 1;
        if handed_in.partitions == self.partitions {
            return Some(*all);
        }
        handed_in.merged = Some(all);
        None
    }

    /// Books so many bytes of memory.
    pub(super) fn book(&self, bytes: usize) -> Result<()> {
        self.reservation.try_resize(bytes)
    }
}
