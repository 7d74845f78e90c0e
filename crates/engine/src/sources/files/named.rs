//! A file source whose errors name the file.
//!
//! DataFusion reads ahead and moves files between partitions, so that an error in a stream does not tell
//! which file it is about. This wrapper follows each file through its morsels. It also turns panics of the
//! decoder, which damaged files cause, into errors, and replaces the source's decoders by ours where ours can
//! do the scan.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, future};
use object_store::ObjectStore;

use super::failure::{catch_panic, into_datafusion, name_file, unexpected};
use super::parquet::{Decoding, can_prune};
use super::paths::DataFile;
use super::values::checked;

/// The file as the user named it; attached to `PartitionedFile` as an extension.
#[derive(Clone, Debug)]
pub(crate) struct NamedFile(pub(crate) DataFile);

/// `inner`, with file names in its errors.
#[derive(Clone)]
pub(crate) struct NamedSource {
    inner: Arc<dyn FileSource>,
    format: &'static str,
    /// Our decoders, for Parquet.
    decoding: Option<Decoding>,
    /// The most partitions for whose columns there is memory.
    partitions_max: usize,
    /// Among how many partitions the files are divided, if they are.
    partitions: usize,
}

impl NamedSource {
    pub(crate) fn new(
        inner: Arc<dyn FileSource>,
        format: &'static str,
        decoding: Option<Decoding>,
        partitions_max: usize,
    ) -> Self {
        Self { inner, format, decoding, partitions_max, partitions: 1 }
    }

    /// The same source with these columns coded; `None` if it has none of our decoders.
    pub(crate) fn with_coded(&self, columns: &[usize]) -> Option<Self> {
        let decoding = self.decoding.clone()?.with_coded(columns);
        Some(Self { decoding: Some(decoding), ..self.clone() })
    }

    /// The same source with the numbers of rows in this column; `None` if it has none of our decoders.
    pub(crate) fn with_numbered(&self, column: usize) -> Option<Self> {
        let decoding = self.decoding.clone()?.with_numbered(column);
        Some(Self { decoding: Some(decoding), ..self.clone() })
    }

    pub(crate) fn decoding(&self) -> Option<&Decoding> {
        self.decoding.as_ref()
    }

    /// What it names the files of, if it is this.
    pub(crate) fn inner<S: FileSource>(&self) -> Option<&S> {
        self.inner.downcast_ref()
    }

    fn wrap(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self { inner, ..self.clone() })
    }
}

impl FileSource for NamedSource {
    fn create_file_opener(
        &self,
        object_store: Arc<dyn ObjectStore>,
        base_config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.inner.create_file_opener(object_store, base_config, partition)
    }

    fn create_morselizer(
        &self,
        object_store: Arc<dyn ObjectStore>,
        base_config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let mut inner = self.inner.create_morselizer(object_store, base_config, partition)?;
        if let Some(decoding) = &self.decoding {
            inner = decoding.morselizer(self.inner.as_ref(), base_config, partition, inner)?;
        }
        Ok(Box::new(NamedMorselizer { inner, format: self.format }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        let inner = self.inner.with_batch_size(batch_size);
        let decoding = self.decoding.clone().map(|decoding| decoding.with_batch_rows(batch_size));
        Arc::new(Self { inner, decoding, ..self.clone() })
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, t: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(t, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        let partitions = target_partitions.min(self.partitions_max);
        let divided =
            self.inner.repartitioned(partitions, repartition_file_min_size, output_ordering, config)?;
        Ok(divided.map(|mut divided| {
            divided.file_source = Arc::new(Self { partitions: divided.file_groups.len(), ..self.clone() });
            divided
        }))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        // A source prunes by the filters that it is given, so filters that must not prune are kept back.
        let schema = self.table_schema().table_schema();
        let may_be_pushed: Vec<bool> = filters.iter().map(|filter| can_prune(filter, schema)).collect();
        let given =
            filters.into_iter().zip(&may_be_pushed).filter(|(_, may)| **may).map(|(filter, _)| filter);
        let pushed = self.inner.try_pushdown_filters(given.collect(), config)?;
        let mut answers = pushed.filters.into_iter();
        let mut answer = |may: bool| if may { answers.next() } else { None }.unwrap_or(PushedDown::No);
        Ok(FilterPushdownPropagation {
            filters: may_be_pushed.into_iter().map(&mut answer).collect(),
            updated_node: pushed.updated_node.map(|inner| self.wrap(inner)),
        })
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(match self.inner.try_pushdown_sort(order, properties)? {
            SortOrderPushdownResult::Inexact { inner } => {
                let decoding = self.decoding.clone().and_then(|decoding| decoding.with_order(order));
                SortOrderPushdownResult::Inexact { inner: Arc::new(Self { inner, decoding, ..self.clone() }) }
            }
            as_it_is => as_it_is.map(|inner| self.wrap(inner)),
        })
    }

    /// The list from which all partitions take what they read next.
    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        let files = self.inner.reorder_files(files);
        match &self.decoding {
            Some(decoding) if self.partitions > 1 => {
                decoding.cut(files, self.partitions, self.inner.as_ref())
            }
            _ => files,
        }
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        Ok(self.inner.try_pushdown_projection(projection)?.map(|inner| self.wrap(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

/// The file and format that errors name.
#[derive(Clone, Debug)]
struct Label {
    name: Arc<str>,
    format: &'static str,
}

impl Label {
    fn name<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| name_file(error, &self.name, self.format))
    }

    /// Runs a decoder, which may panic on damaged bytes.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.name(catch_panic(work).unwrap_or_else(|| Err(self.unexpected())))
    }

    fn unexpected(&self) -> DataFusionError {
        into_datafusion(unexpected(&self.name, self.format))
    }
}

#[derive(Debug)]
struct NamedMorselizer {
    inner: Box<dyn Morselizer>,
    format: &'static str,
}

impl Morselizer for NamedMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let name = match file.extension::<NamedFile>() {
            Some(NamedFile(named)) => named.name.clone(),
            None => file.object_meta.location.as_ref().into(),
        };
        let label = Label { name, format: self.format };
        let inner = label.guard(|| self.inner.plan_file(file))?;
        Ok(Box::new(NamedPlanner { inner, label }))
    }
}

#[derive(Debug)]
struct NamedPlanner {
    inner: Box<dyn MorselPlanner>,
    label: Label,
}

impl MorselPlanner for NamedPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { inner, label } = *self;
        let Some(mut plan) = label.guard(|| inner.plan())? else { return Ok(None) };
        let wrap = |inner: Box<dyn MorselPlanner>, label: &Label| -> Box<dyn MorselPlanner> {
            Box::new(NamedPlanner { inner, label: label.clone() })
        };
        let morsels = plan
            .take_morsels()
            .into_iter()
            .map(|inner| Box::new(NamedMorsel { inner, label: label.clone() }) as _)
            .collect();
        let planners = plan.take_ready_planners().into_iter().map(|inner| wrap(inner, &label)).collect();
        let mut named = MorselPlan::new().with_morsels(morsels).with_planners(planners);
        if let Some(pending) = plan.take_pending_planner() {
            let mut pending = pending.into_future();
            named.set_pending_planner(future::poll_fn(move |context| {
                let polled = catch_panic(|| pending.poll_unpin(context));
                let planned = polled.unwrap_or_else(|| Poll::Ready(Err(label.unexpected())));
                planned.map(|planned| label.name(planned).map(|inner| wrap(inner, &label)))
            }));
        }
        Ok(Some(named))
    }
}

#[derive(Debug)]
struct NamedMorsel {
    inner: Box<dyn Morsel>,
    label: Label,
}

impl Morsel for NamedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { inner, label } = *self;
        let mut batches = match label.guard(|| Ok(inner.into_stream())) {
            Ok(batches) => batches,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        stream::poll_fn(move |context| {
            let polled = catch_panic(|| batches.poll_next_unpin(context));
            let batch = polled.unwrap_or_else(|| Poll::Ready(Some(Err(label.unexpected()))));
            let check = |batch| checked(batch).map_err(Into::into);
            batch.map(|batch| batch.map(|batch| label.name(batch.and_then(check))))
        })
        .boxed()
    }
}

impl Debug for NamedSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSource").field("format", &self.format).finish_non_exhaustive()
    }
}
