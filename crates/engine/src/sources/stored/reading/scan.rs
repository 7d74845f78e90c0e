//! The scan of a table on disk.
//!
//! Stripes are the units of work: all partitions take them from one list, so that none waits for another, or
//! each has a run of it where the order of rows is seen (`in_order`), or a part where parts are merged that are
//! sorted. Stripes that cannot have what filters want
//! are left out by their statistics, once for all before the first is read and, for filters that other operators
//! narrow meanwhile, again before each. For a top-N those that may have the first rows are read first. Reading and decoding blocks, so it is done on threads for that.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, Statistics, assert_or_internal_err, project_schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
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
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
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

use super::super::open::{OpenPart, OpenTable, Place};
use super::ahead::Ahead;
use super::clusters::Clusters;
use super::filter::{Filter, is_dynamic};
use super::prune::{self, First};
use super::read::ReadCounts;
use super::worker::{Shared, Step, Worker, blocking_step};
use crate::compact::compact;
use crate::compile::conditions::Conditions;
use crate::runtime::guard::unguarded;
use crate::runtime::steps;
use crate::sources::narrowing::Narrowing;
use crate::sources::runs::Runs;

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
    runs: Runs<Shared>,
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
            runs: Runs::default(),
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

    /// Which values of a column are in one stripe alone, if most are.
    pub(crate) fn clusters(&self, column: usize) -> Option<Clusters> {
        Clusters::of(prune::spans(&self.table, *self.projection.get(column)?)?)
    }

    /// Whether rows are left out.
    pub(crate) fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Whether conditions leave out rows, beside what operators learn while they run.
    pub(crate) fn has_conditions(&self) -> bool {
        self.filters.iter().any(|filter| !is_dynamic(filter))
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

    /// The same scan, which does not tell in which order rows are; `None` if it does not anyway.
    pub(crate) fn without_order(&self) -> Option<Self> {
        self.properties.output_ordering()?;
        let properties = properties(self.schema(), Vec::new(), self.partition_count());
        Some(self.with(|scan| scan.properties = Arc::new(properties)))
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
            runs: Runs::default(),
        };
        change(&mut changed);
        changed
    }

    /// What the partitions of a run share.
    fn shared(&self) -> Result<Shared> {
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
        Ok(Shared {
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
        })
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
    pub(super) fn worker(&self, partition: usize, context: &TaskContext) -> Result<Worker> {
        let shared = self.runs.begin(partition, self.partition_count(), || self.shared())?;
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
            measured: None,
            shared,
        })
    }

    /// Who does the work of a partition of `plan`, on threads of another operator, if it is such a scan.
    pub(crate) fn worker_of(
        plan: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: &TaskContext,
    ) -> Option<Result<Worker>> {
        let scan = plan.downcast_ref::<Self>()?;
        let measured = unguarded(plan).1.cloned();
        let _entered = measured.as_ref().map(steps::Step::enter);
        Some(scan.worker(partition, context).map(|worker| Worker { measured: measured.clone(), ..worker }))
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
        let scan = match self.properties.output_ordering() {
            Some(_) => scan,
            None => scan.without_order().unwrap_or(scan),
        };
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
