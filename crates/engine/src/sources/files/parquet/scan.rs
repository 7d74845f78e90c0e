//! The scan of Parquet files whose pages our loops decompress.
//!
//! It replaces DataFusion's scan below `ParquetSource`, which stays in the plan: filters, projections and
//! limits are pushed into it. DataFusion's filters choose row groups and pages ([`super::prune`]), our
//! decoders decompress the pages ([`super::pages`]), and the parquet crate turns them into arrays. Files
//! without a page for our decoders, and scans that need something only DataFusion's own has, fall back to
//! that: see [`Scan::new`] and [`Scan::open`].

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    ParquetFileMetrics, ParquetRowSelection, build_row_filter,
};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr_adapter::rewrite::rewrite_input_file_name_in_projection;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapterFactory, replace_columns_with_literals,
};
use datafusion::physical_optimizer::pruning::{FilePruner, PruningPredicate};
use datafusion::physical_plan::metrics::{BaselineMetrics, MetricBuilder};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicate, ArrowReaderMetadata};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;

use super::Decoding;
use super::batches::{CodedColumns, FlatColumns};
use super::buffers::Buffers;
use super::decoders::codec;
use super::known::{Columns, KnownColumns};
use super::leaves::leaves;
use super::numbered::{FileNumber, RowNumbers};
use super::parts::Part;
use super::prefilter::{Learnt, Prefilters};
use super::prune::{Pruning, RowGroupFilters};
use super::row_group::{Fetched, Shared};
use super::rows::{OverChecked, Rows};
use crate::compile::join::with_bounds;
use crate::sources::files::named::NamedFile;
use crate::sources::narrowing::Narrowing;

/// One partition of a scan.
pub(super) struct Scan {
    source: ParquetSource,
    decoding: Decoding,
    adapters: Arc<dyn PhysicalExprAdapterFactory>,
    projection: ProjectionExprs,
    output: SchemaRef,
    partition: usize,
    limit: Option<usize>,
    keeps_order: bool,
    learnt: Learnt,
    judged: Mutex<Option<Judged>>,
}

/// What is sought in a file, found out by the first piece of it. Filters that others narrow are not kept so.
#[derive(Clone)]
struct Judged {
    file: Path,
    footer: Arc<ParquetMetaData>,
    /// The predicate over columns of the file, and over the statistics of its row groups.
    predicate: Arc<dyn PhysicalExpr>,
    over_statistics: Option<Arc<PruningPredicate>>,
}

impl Scan {
    /// `None` if only DataFusion's own scan can do it: it alone numbers rows for virtual columns, and converts the unit of
    /// old timestamps.
    pub(super) fn new(
        decoding: &Decoding,
        source: &ParquetSource,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Option<Self>> {
        let table = source.table_schema();
        let columns = table.table_schema();
        let Some(projection) = source.projection() else { return Ok(None) };
        if !is_ours(source) {
            return Ok(None);
        }
        let adapters = config.expr_adapter_factory.clone();
        Ok(Some(Self {
            decoding: decoding.clone(),
            adapters: adapters.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory)),
            output: Arc::new(projection.project_schema(columns)?),
            projection: projection.clone(),
            source: source.clone(),
            partition,
            limit: config.limit,
            keeps_order: config.preserve_order,
            learnt: Learnt::default(),
            judged: Mutex::default(),
        }))
    }

    fn reader(&self, file: &PartitionedFile) -> Result<Box<dyn AsyncFileReader>> {
        let factory = self
            .source
            .parquet_file_reader_factory()
            .ok_or_else(|| DataFusionError::Internal("a Parquet source is made with a reader".to_owned()))?;
        let reader: Box<dyn AsyncFileReader> = factory.create_reader(
            self.partition,
            file.clone(),
            file.metadata_size_hint,
            self.source.metrics(),
        )?;
        Ok(reader)
    }

    /// Opens a file and chooses its row groups.
    async fn open(&self, file: &PartitionedFile) -> Result<Opened> {
        let table = self.source.table_schema();
        let settings = &self.source.table_parquet_options().global;
        let name = file.object_meta.location.to_string();
        let metrics = ParquetFileMetrics::new(self.partition, &name, self.source.metrics());
        let failures =
            MetricBuilder::new(self.source.metrics()).global_counter("num_predicate_creation_errors");

        // Constant columns are not read.
        let logical = table.file_schema();
        let values = file_values(file, table);
        let literal = |expression| replace_columns_with_literals(expression, &values);
        let mut projection = self.projection.clone().try_map_exprs(literal)?;
        projection = rewrite_input_file_name_in_projection(projection, &name)?;
        let selected = file.extension::<ParquetRowSelection>();
        // Rows that were chosen have passed it.
        let filter = self.source.filter().filter(|_| selected.is_none());
        let judged = self.judged.lock().clone();
        let mut judged = judged.filter(|judged| filter.is_some() && judged.file == file.object_meta.location);
        let mut predicate = filter.map(literal).transpose()?;

        if judged.is_none()
            && let Some(predicate) = &predicate
        {
            let pruner = FilePruner::try_new(with_bounds(predicate)?, logical, file, failures.clone());
            if let Some(mut pruner) = pruner
                && pruner.should_prune()?
            {
                metrics.files_ranges_pruned_statistics.add_pruned(1);
                return Ok(Opened::Nothing);
            }
        }

        let mut reader = self.reader(file)?;
        let timer = metrics.metadata_load_time.timer();
        let footer = reader.get_metadata(Some(&Columns::options())).await?;
        drop(timer);
        judged = judged.filter(|judged| Arc::ptr_eq(&judged.footer, &footer));
        let known = file.extensions.get::<KnownColumns>();
        let Columns { options, mut metadata, flat, .. } =
            match known.and_then(|known| known.get(&footer, logical)) {
                Some(known) => known,
                None => {
                    let columns = Columns::new(footer.clone(), logical)?;
                    if let Some(known) = known {
                        known.keep(columns.clone());
                    }
                    columns
                }
            };
        let schema = metadata.schema().clone();
        let row_group_filters =
            RowGroupFilters { schema: schema.clone(), failures, values_max: self.source.max_in_list_size() };
        if predicate.is_some() || *logical != schema {
            let adapter = self.adapters.create(logical.clone(), schema.clone())?;
            let simplifier = PhysicalExprSimplifier::new(&schema);
            let adapt = |expression| simplifier.simplify(adapter.rewrite(expression)?);
            predicate = match &judged {
                Some(judged) => Some(judged.predicate.clone()),
                None => predicate.map(adapt).transpose()?,
            };
            projection = projection.try_map_exprs(adapt)?;
        }
        let narrowing = predicate.as_ref().and_then(Narrowing::new);
        let over_statistics = match judged {
            Some(judged) => judged.over_statistics,
            None => {
                let found = predicate.as_ref().and_then(|predicate| row_group_filters.of(predicate));
                if narrowing.is_none()
                    && let Some(predicate) = &predicate
                {
                    *self.judged.lock() = Some(Judged {
                        file: file.object_meta.location.clone(),
                        footer,
                        predicate: predicate.clone(),
                        over_statistics: found.clone(),
                    });
                }
                found
            }
        };

        let mask = leaves(projection.expr_iter(), &schema, metadata.parquet_schema())?;
        let filters: Vec<Box<dyn ArrowPredicate>> = match &predicate {
            Some(predicate) if settings.pushdown_filters => {
                let footer = metadata.metadata();
                build_row_filter(predicate, &schema, footer, settings.reorder_filters, &metrics)?
                    .map_or_else(Vec::new, |filter| filter.into_predicates())
                    .into_iter()
                    .map(|filter| Box::new(OverChecked(filter)) as Box<dyn ArrowPredicate>)
                    .collect()
            }
            _ => Vec::new(),
        };
        let given = plain_columns(&projection);
        let coded = match &given {
            Some(given) => {
                let coded: Vec<usize> = self.decoding.coded.iter().map(|place| given[*place]).collect();
                let is_once = |column: &&usize| given.iter().filter(|given| given == column).count() == 1;
                let coded: Vec<usize> = coded.iter().filter(is_once).copied().collect();
                CodedColumns::new(metadata.parquet_schema(), schema.fields(), &coded)
            }
            None => CodedColumns::default(),
        };
        let masks = filters.iter().map(|filter| filter.projection()).chain([&mask]);
        let numbered = self.decoding.numbered.zip(file.extension::<FileNumber>());
        if !has_pages_for_us(&metadata, (&flat, &coded), masks) && numbered.is_none() {
            return Ok(Opened::NotOurs);
        }
        metrics.files_ranges_pruned_statistics.add_matched(1);

        let pruning = Pruning {
            source: &self.source,
            file,
            predicate: predicate.as_ref(),
            over_statistics: over_statistics.as_deref(),
            selected: selected.map(ParquetRowSelection::selection),
            part: file.extension::<Part>(),
            filters: &row_group_filters,
            metrics: &metrics,
            limit: self.limit.filter(|_| !self.keeps_order),
            order: self.decoding.order.as_ref(),
            reads_bloom_filters: self.decoding.reads_bloom_filters,
        };
        let another = || self.reader(file);
        let before = metadata.metadata().clone();
        let queue = pruning.row_groups(&mut metadata, &mut reader, options.clone(), another).await?;
        // With its page index.
        if let Some(known) = known.filter(|_| !Arc::ptr_eq(&before, metadata.metadata())) {
            let (logical, metadata) = (logical.clone(), metadata.clone());
            known.keep(Columns { logical, options, metadata, flat: flat.clone() });
        }
        if queue.is_empty() {
            return Ok(Opened::Nothing);
        }
        // What is counted for a LIMIT are rows that no filter of others has touched.
        let tried = predicate.as_ref().filter(|_| !settings.pushdown_filters && self.limit.is_none());
        let prefilters = Prefilters::new(tried, &schema, metadata.metadata(), &mask, &metrics, &self.learnt)?;

        let read = projection.column_indices();
        // What is coded has another type than the projection would give it.
        let given = given.filter(|_| !coded.is_empty());
        let given = given
            .map(|given| given.iter().filter_map(|of| read.iter().position(|read| read == of)).collect());
        let read = Arc::new(schema.project(&read)?);
        let projection = projection.try_map_exprs(|expression| reassign_expr_columns(expression, &read))?;
        let decoders = self.decoding.decoders.of_file(name.clone());
        let booked = MemoryConsumer::new(format!("filters of '{name}'")).register(&self.decoding.pool);
        Ok(Opened::Rows(Box::new(Rows {
            projector: projection.make_projector(&read)?,
            output: self.output.clone(),
            fetched: Fetched::default(),
            booked,
            flat,
            coded,
            given,
            row_numbers: numbered.map(|(place, file)| RowNumbers::new(place, *file)),
            shared: Shared {
                decoders: Arc::new(decoders),
                buffers: Buffers::default(),
                file_bytes: file.object_meta.size,
            },
            batch_rows: self.decoding.batch_rows,
            remaining: self.limit,
            baseline: BaselineMetrics::new(self.source.metrics(), self.partition),
            current: None,
            remote: file.extension::<NamedFile>().and_then(|named| named.0.remote.clone()),
            metadata,
            schema,
            mask,
            filters,
            prefilters,
            row_group_filters,
            narrowing,
            metrics,
            reader,
            queue,
        })))
    }
}

/// Whether our scan can do what is asked of the source; see [`Scan::new`].
pub(super) fn is_ours(source: &ParquetSource) -> bool {
    source.projection().is_some()
        && source.table_schema().virtual_columns().is_empty()
        && source.table_parquet_options().global.coerce_int96.is_none()
}

/// An opened file.
enum Opened {
    /// No row of the file can pass.
    Nothing,
    /// DataFusion's own scan has to read the file.
    NotOurs,
    Rows(Box<Rows>),
}

/// The columns that a projection gives as they are, if it does nothing else.
fn plain_columns(projection: &ProjectionExprs) -> Option<Vec<usize>> {
    let column = |expr: &Arc<dyn PhysicalExpr>| Some(expr.downcast_ref::<Column>()?.index());
    projection.expr_iter().map(|expr| column(&expr)).collect()
}

/// Whether the columns in `masks` have pages that our loops decompress or decode, and none with a codec that we lack.
fn has_pages_for_us<'a>(
    metadata: &ArrowReaderMetadata,
    (flat, coded): (&FlatColumns, &CodedColumns),
    masks: impl Iterator<Item = &'a ProjectionMask> + Clone,
) -> bool {
    let leaves = 0..metadata.parquet_schema().num_columns();
    let leaves: Vec<usize> =
        leaves.filter(|leaf| masks.clone().any(|mask| mask.leaf_included(*leaf))).collect();
    let mut found = leaves.iter().any(|leaf| flat.has(*leaf) || coded.has(*leaf));
    for row_group in metadata.metadata().row_groups() {
        for leaf in &leaves {
            let compression = row_group.column(*leaf).compression();
            if codec(compression).is_none() {
                return false;
            }
            found |= compression != Compression::UNCOMPRESSED;
        }
    }
    found
}

/// The columns that have one value in a file: those from the path, and those whose statistics show a single value.
pub(super) fn file_values(file: &PartitionedFile, table: &TableSchema) -> HashMap<String, ScalarValue> {
    let mut values = constant_columns(file.statistics.as_deref(), table.file_schema());
    let of_path = table.table_partition_cols().iter().zip(&file.partition_values);
    values.extend(of_path.map(|(field, value)| (field.name().clone(), value.clone())));
    values
}

/// The columns whose statistics show a single value.
fn constant_columns(statistics: Option<&Statistics>, schema: &SchemaRef) -> HashMap<String, ScalarValue> {
    let Some(statistics) = statistics else { return HashMap::new() };
    let rows = statistics.num_rows.get_value().filter(|_| statistics.num_rows.is_exact() == Some(true));
    let columns = schema.fields().iter().zip(&statistics.column_statistics);
    columns
        .filter_map(|(field, column)| {
            let value = constant(column, rows.copied())?;
            let value = if value.is_null() {
                ScalarValue::try_new_null(field.data_type()).ok()?
            } else {
                value.cast_to(field.data_type()).ok()?
            };
            Some((field.name().clone(), value))
        })
        .collect()
}

/// The single value of a column, which may be NULL.
fn constant(column: &ColumnStatistics, rows: Option<usize>) -> Option<ScalarValue> {
    let Precision::Exact(nulls) = column.null_count else { return None };
    if Some(nulls) == rows {
        return Some(ScalarValue::Null);
    }
    match (&column.min_value, &column.max_value) {
        (Precision::Exact(min), Precision::Exact(max)) if nulls == 0 && min == max && !min.is_null() => {
            Some(min.clone())
        }
        _ => None,
    }
}

/// Opens files with [`Scan`], or with DataFusion's own.
pub(super) struct Opener {
    scan: Arc<Scan>,
    stock: Arc<dyn Morselizer>,
}

impl Opener {
    pub(super) fn new(scan: Scan, stock: Box<dyn Morselizer>) -> Self {
        Self { scan: Arc::new(scan), stock: stock.into() }
    }
}

impl Morselizer for Opener {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let (scan, stock) = (self.scan.clone(), self.stock.clone());
        Ok(Box::new(Closed { scan, stock, file }))
    }
}

struct Closed {
    scan: Arc<Scan>,
    stock: Arc<dyn Morselizer>,
    file: PartitionedFile,
}

impl MorselPlanner for Closed {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { scan, stock, file } = *self;
        let opening = async move {
            let planner: Box<dyn MorselPlanner> = match scan.open(&file).await? {
                Opened::NotOurs => stock.plan_file(file)?,
                Opened::Nothing => Box::new(Ready(None)),
                Opened::Rows(rows) => Box::new(Ready(Some(rows))),
            };
            Ok(planner)
        };
        Ok(Some(MorselPlan::new().with_pending_planner(opening)))
    }
}

/// An opened file; `None` if no row of it is needed.
struct Ready(Option<Box<Rows>>);

impl MorselPlanner for Ready {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        Ok(self.0.map(|rows| MorselPlan::new().with_morsels(vec![Box::new(RowsMorsel(rows))])))
    }
}

struct RowsMorsel(Box<Rows>);

impl Morsel for RowsMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let batches = stream::try_unfold(self.0, |mut rows| async move {
            let batch = rows.next().await?;
            Ok(batch.map(|batch| (batch, rows)))
        });
        batches.boxed()
    }
}

macro_rules! debug_by_name {
    ($($name:ident),*) => {
        $(impl Debug for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}
debug_by_name!(Opener, Closed, Ready, RowsMorsel);
