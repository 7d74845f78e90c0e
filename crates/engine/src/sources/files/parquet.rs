//! Parquet files as a table.
//!
//! Footers are read when the table is opened: they give the schema and the statistics that prune files, row
//! groups and pages, and that answer `count(*)`. DataFusion plans the scan. It also runs it, with file names
//! in its errors, unless our scan ([`scan`]) has pages to decompress.

mod batches;
mod booked;
mod bounds;
mod buffers;
mod decoders;
mod deltas;
mod flat;
mod floats;
mod header;
mod kept;
mod known;
mod leaves;
mod levels;
mod numbered;
mod numbers;
mod pages;
mod parts;
mod prefilter;
mod prune;
mod remote;
mod row_group;
mod rows;
mod runs;
mod scan;
mod suffixes;
mod texts;

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{
    ColumnStatistics, Result as DataFusionResult, ScalarValue, Statistics, project_schema,
};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, transform_binary_to_string, transform_schema_to_view,
};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion_datasource::compute_all_files_statistics;
use datafusion_datasource::morsel::Morselizer;
use futures::{FutureExt, StreamExt, TryStreamExt, future};
use keirin_race::Races;
use object_store::{ObjectMeta, ObjectStore};
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescriptor;

use self::booked::BookedReaders;
use self::decoders::{Decoders, codec};
pub(super) use self::floats::can_prune;
use self::known::{Columns, KnownColumns};
pub(crate) use self::numbered::{NumberedFiles, has_changed};
pub(crate) use self::pages::WRONG_CHECKSUM;
use self::remote::{Readers, RemoteStore};
use self::row_group::chunk_range;
use self::scan::{Opener, Scan};
use super::arrow_schema;
use super::failure::{catch_panic, damaged, from_datafusion, into_datafusion, io_failed, unexpected};
use super::hive::{FileColumnOptions, FileColumns};
use super::known::KnownFiles;
use super::named::{NamedFile, NamedSource};
use super::options::Options;
use super::paths::DataFile;
use super::remote::OpenedFile;
use super::{LIMIT_IN_ORDER, schema, sql_type};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{EXTENSION, UUID, UUID_BYTES};

/// The unit of timestamps that are stored in 96 bits: in nanoseconds they would overflow after 2262.
const INT96_UNIT: TimeUnit = TimeUnit::Microsecond;
/// What the statistics of a column of a file take in memory, about.
const COLUMN_BYTES: usize = 256;
/// The share of the memory limit for the row groups that the partitions of a scan hold, as they are stored: 1/8, for decoded
/// they take more.
const MEMORY_SHARE: usize = 8;
/// The pieces into which what a partition reads is cut, and the fewest bytes of one: each is opened.
const PIECES: usize = 8;
const PIECE_BYTES_MIN: u64 = 4 << 20;
/// Footers that are read concurrently.
const FOOTERS_AT_ONCE: usize = 32;
/// Magic number, footer length, magic number.
const FILE_BYTES_MIN: u64 = 12;

/// A table over Parquet files.
#[derive(Debug)]
pub(crate) struct ParquetTable {
    files: Vec<PartitionedFile>,
    columns: FileColumns,
    schema: TableSchema,
    binary_as_string: bool,
    /// Whether some timestamps are stored in the old form of 96 bits.
    has_int96: bool,
    /// Of each column of the files, the most stored bytes that a row group has.
    row_group_bytes: Arc<[u64]>,
    /// Whether our scan can read all columns.
    is_ours: bool,
}

impl ParquetTable {
    pub(crate) async fn open(
        state: &SessionState,
        files: &[DataFile],
        mut options: Options<'_>,
    ) -> Result<Arc<Self>> {
        let has_options = !options.is_empty();
        let binary_as_string = options.boolean(&["binary_as_string"])?;
        let same_columns = options.boolean(&["union_by_name"])? == Some(false);
        let column_options = FileColumnOptions::take(&mut options)?;
        options.finish()?;
        // What options say may depend on the session.
        let known = state.config().get_extension::<KnownFiles>().filter(|_| !has_options);
        if let Some(table) = known.as_ref().and_then(|known| known.parquet.get(files)) {
            return Ok(table);
        }
        let columns = FileColumns::detect(files, &column_options, |name| sql_type(state, name))?;

        let store = local_store(state)?;
        let reads: Vec<_> = files.iter().map(|file| read_footer(state, &store, file)).collect();
        let footers: Vec<(ObjectMeta, Arc<ParquetMetaData>, SchemaRef)> =
            futures::stream::iter(reads).buffered(FOOTERS_AT_ONCE).try_collect().await?;

        let footer_bytes: usize = footers.iter().map(|(_, footer, _)| footer.memory_size()).sum();
        let is_int96 = |footer: &ParquetMetaData| {
            let mut columns = footer.file_metadata().schema_descr().columns().iter();
            columns.any(|column| column.physical_type() == Type::INT96)
        };
        let has_int96 = footers.iter().any(|(_, footer, _)| is_int96(footer));
        let schemas: Vec<_> = footers.iter().map(|(_, _, schema)| schema.clone()).collect();
        let mut file_schema = schema::merge(files, &schemas, same_columns)?;
        let settings = &state.config_options().execution.parquet;
        let binary_as_string = binary_as_string.unwrap_or(settings.binary_as_string);
        if binary_as_string {
            file_schema = transform_binary_to_string(&file_schema);
        }
        if settings.schema_force_view_types {
            file_schema = transform_schema_to_view(&file_schema);
        }
        let file_schema = Arc::new(columns.without(&file_schema));
        let row_groups = || footers.iter().flat_map(|(_, footer, _)| footer.row_groups());
        let row_group_bytes = row_group_bytes(row_groups(), &file_schema).into();
        let mut columns_stored = row_groups().flat_map(RowGroupMetaData::columns);
        let is_ours = !has_int96 && columns_stored.all(|column| codec(column.compression()).is_some());
        let partitioned = files
            .iter()
            .zip(footers)
            .zip(&columns.values)
            .map(|((file, (meta, footer, _)), values)| {
                let read = || DFParquetMetadata::statistics_from_parquet_metadata(&footer, &file_schema);
                let statistics = catch_panic(read).ok_or_else(|| unexpected(&file.name, "Parquet"))?;
                let statistics = statistics.map_err(|error| from_datafusion(error, &file.name, "Parquet"))?;
                let statistics = floats::without_floats(statistics, &file_schema);
                let known_columns = KnownColumns::default();
                // Which row groups of a single file are left tells how to share them out.
                if files.len() == 1
                    && let Some(Ok(columns)) = catch_panic(|| Columns::new(footer.clone(), &file_schema))
                {
                    known_columns.keep(columns);
                }
                let mut partitioned = PartitionedFile::new_from_meta(meta)
                    .with_partition_values(values.clone())
                    .with_extension(NamedFile(file.clone()))
                    .with_extension(known_columns);
                partitioned.statistics = Some(Arc::new(with_file_columns(statistics, values)));
                Ok(partitioned)
            })
            .collect::<Result<_>>()?;
        let table = Arc::new(Self {
            files: partitioned,
            schema: TableSchema::builder(file_schema)
                .with_table_partition_cols(columns.fields.clone())
                .build(),
            columns,
            binary_as_string,
            has_int96,
            row_group_bytes,
            is_ours,
        });
        if let Some(known) = known {
            // Statistics of each column of each file are as large as small footers.
            let statistics_bytes = files.len() * table.schema.file_schema().fields().len() * COLUMN_BYTES;
            known.parquet.keep(files, footer_bytes + statistics_bytes, &table);
        }
        Ok(table)
    }
}

impl ParquetTable {
    /// How many partitions may hold a row group of these columns each.
    fn partitions_max(&self, projection: Option<&Vec<usize>>, limit: MemoryLimit) -> usize {
        let MemoryLimit::Finite(limit) = limit else { return usize::MAX };
        let bytes: u64 = match projection {
            Some(columns) => columns.iter().filter_map(|column| self.row_group_bytes.get(*column)).sum(),
            None => self.row_group_bytes.iter().sum(),
        };
        let partitions = (limit / MEMORY_SHARE) as u64 / bytes.max(1);
        usize::try_from(partitions).unwrap_or(usize::MAX).max(1)
    }
}

/// Of each column of the schema, the most stored bytes that a row group has.
fn row_group_bytes<'a>(row_groups: impl Iterator<Item = &'a RowGroupMetaData>, schema: &Schema) -> Vec<u64> {
    let places: HashMap<&str, usize> =
        schema.fields().iter().enumerate().map(|(place, field)| (field.name().as_str(), place)).collect();
    let mut most = vec![0; schema.fields().len()];
    for row_group in row_groups {
        let mut bytes = vec![0_u64; most.len()];
        for column in row_group.columns() {
            let root = column.column_path().parts().first();
            if let Some(place) = root.and_then(|root| places.get(root.as_str())) {
                let stored = u64::try_from(column.compressed_size()).unwrap_or(0);
                bytes[*place] = bytes[*place].saturating_add(stored);
            }
        }
        most.iter_mut().zip(bytes).for_each(|(most, bytes)| *most = bytes.max(*most));
    }
    most
}

fn local_store(state: &SessionState) -> Result<Arc<dyn ObjectStore>> {
    state
        .runtime_env()
        .object_store(ObjectStoreUrl::local_filesystem())
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

async fn read_footer(
    state: &SessionState,
    store: &Arc<dyn ObjectStore>,
    file: &DataFile,
) -> Result<(ObjectMeta, Arc<ParquetMetaData>, SchemaRef)> {
    if file.size_bytes < FILE_BYTES_MIN {
        let reason = if file.size_bytes == 0 {
            "it is empty".to_owned()
        } else {
            format!("it has only {} bytes", file.size_bytes)
        };
        return Err(damaged(&file.name, "Parquet", reason));
    }
    // Object stores report a denied file without its reason; reading the file directly gives a clearer error.
    let ends = match file.remote.is_some().then(|| file.clone()) {
        Some(remote) => {
            let read = crate::runtime::work::waiting(move || remote.open().and_then(Ends::read));
            read.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
        }
        None => file.open().and_then(Ends::read),
    };
    ends.map_err(|error| io_failed("read", &file.name, &error))?.check(file)?;
    let store = match RemoteStore::of(file) {
        Some(remote) => &(Arc::new(remote) as Arc<dyn ObjectStore>),
        None => store,
    };
    let absolute = match &file.remote {
        Some(_) => Some(file.path.to_string_lossy().as_ref().into()),
        // Object stores take no path with `..`.
        None => [std::path::absolute(&file.path), std::fs::canonicalize(&file.path)]
            .into_iter()
            .find_map(|path| object_store::path::Path::from_absolute_path(path.ok()?).ok()),
    };
    let absolute = absolute
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("cannot use '{}' as a file name", file.name)))?;
    let meta = ObjectMeta {
        location: absolute,
        // By this and the size DataFusion tells whether a footer that it keeps is that of the file.
        last_modified: file.changed.into(),
        size: file.size_bytes,
        e_tag: None,
        version: None,
    };
    let failed = |error| {
        let error = from_datafusion(error, &file.name, "Parquet");
        Error::new(error.kind(), error.message()).with_detail("its footer is damaged")
    };
    let reader = DFParquetMetadata::new(store.as_ref(), &meta)
        .with_file_metadata_cache(Some(state.runtime_env().cache_manager.get_file_metadata_cache()))
        .with_page_index_policy(Some(PageIndexPolicy::Skip))
        .with_coerce_int96(Some(INT96_UNIT));
    let mut read = Box::pin(async {
        let footer = reader.fetch_metadata().await?;
        arrow_schema::check_footer(&footer)
            .and_then(|()| check_places(&footer, file.size_bytes))
            .map_err(|reason| into_datafusion(damaged(&file.name, "Parquet", reason)))?;
        let schema = reader.fetch_schema().await?;
        bounds::check(&footer, &schema)
            .map_err(|reason| into_datafusion(damaged(&file.name, "Parquet", reason)))?;
        DataFusionResult::Ok((footer, schema))
    });
    let outcome = future::poll_fn(|context| match catch_panic(|| read.poll_unpin(context)) {
        Some(polled) => polled.map(|result| result.map_err(failed)),
        None => Poll::Ready(Err(unexpected(&file.name, "Parquet"))),
    });
    let (footer, schema) = outcome.await?;
    drop(read);
    let schema = with_meanings(&schema, &footer);
    Ok((meta, footer, Arc::new(schema)))
}

/// Whether row groups begin within the file: by that partitions know which are theirs.
fn check_places(footer: &ParquetMetaData, size_bytes: u64) -> std::result::Result<(), &'static str> {
    let is_within = |row_group: &RowGroupMetaData| {
        let first = row_group.columns().first().filter(|_| row_group.num_rows() > 0);
        first.is_none_or(|first| chunk_range(first, size_bytes).is_ok())
    };
    match footer.row_groups().iter().all(is_within) {
        true => Ok(()),
        false => Err("its footer puts a row group outside of the file"),
    }
}

/// The schema with columns of UUIDs marked as such, and columns of enumerations as text.
fn with_meanings(schema: &Schema, footer: &ParquetMetaData) -> Schema {
    let is_uuid = |name: &str| {
        let columns = footer.file_metadata().schema_descr().columns().iter();
        let mut named = columns.filter(|column| column.path().parts() == [name]);
        named.any(|column| column.logical_type_ref() == Some(&LogicalType::Uuid))
    };
    let fields = schema.fields().iter().map(|field| {
        let field = field.as_ref().clone();
        let name = field.name();
        match field.data_type() {
            DataType::FixedSizeBinary(UUID_BYTES) if is_uuid(name) => {
                let mut metadata = field.metadata().clone();
                metadata.insert(EXTENSION.to_owned(), UUID.to_owned());
                field.with_metadata(metadata)
            }
            _ => field,
        }
    });
    let fields = enums_as_text(&fields.collect::<Fields>(), footer.file_metadata().schema_descr());
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// The fields with those of enumerations as text, in lists, structs and maps too.
fn enums_as_text(fields: &Fields, columns: &SchemaDescriptor) -> Fields {
    fn within(field: &FieldRef, columns: &mut impl Iterator<Item = bool>) -> FieldRef {
        let one = |item: &FieldRef, columns: &mut _| within(item, columns);
        let data_type = match field.data_type() {
            DataType::Struct(fields) => {
                DataType::Struct(fields.iter().map(|field| within(field, &mut *columns)).collect())
            }
            DataType::List(item) => DataType::List(one(item, columns)),
            DataType::LargeList(item) => DataType::LargeList(one(item, columns)),
            DataType::FixedSizeList(item, count) => DataType::FixedSizeList(one(item, columns), *count),
            DataType::Map(entries, is_sorted) => DataType::Map(one(entries, columns), *is_sorted),
            value => match (columns.next(), value) {
                (Some(true), DataType::Binary) => DataType::Utf8,
                _ => value.clone(),
            },
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    }
    let is_enum = columns.columns().iter().map(|column| {
        column.logical_type_ref() == Some(&LogicalType::Enum)
            || column.converted_type() == ConvertedType::ENUM
    });
    let mut is_enum = is_enum.collect::<Vec<_>>().into_iter();
    if !is_enum.as_slice().contains(&true) {
        return fields.clone();
    }
    let changed = fields.iter().map(|field| within(field, &mut is_enum)).collect();
    // Each value of the schema is a column of the file, in the same order.
    if is_enum.next().is_none() { changed } else { fields.clone() }
}

/// The bytes at both ends of a Parquet file: the magic number, and before the last one the length of the
/// footer (parquet-format, README, "File format").
struct Ends {
    first: [u8; 4],
    footer_bytes: [u8; 4],
    last: [u8; 4],
}

impl Ends {
    fn read(mut file: OpenedFile) -> io::Result<Self> {
        let mut ends = Self { first: [0; 4], footer_bytes: [0; 4], last: [0; 4] };
        file.read_exact(&mut ends.first)?;
        file.seek(SeekFrom::End(-8))?;
        file.read_exact(&mut ends.footer_bytes)?;
        file.read_exact(&mut ends.last)?;
        Ok(ends)
    }

    /// Fails if the file is no sound Parquet file, with a clearer reason than the reader's.
    fn check(&self, file: &DataFile) -> Result<()> {
        let size_bytes = file.size_bytes;
        let footer_bytes = u64::from(u32::from_le_bytes(self.footer_bytes));
        let reason = match (&self.first, &self.last) {
            (_, b"PAR1") if footer_bytes <= size_bytes - FILE_BYTES_MIN => return Ok(()),
            (_, b"PAR1") => format!(
                "its footer is damaged: it claims {footer_bytes} bytes of a file that has {size_bytes}"
            ),
            (_, b"PARE") => {
                let message = format!("cannot read file '{}': its footer is encrypted", file.name);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            (b"PAR1", _) => {
                format!("it is cut off: its {size_bytes} bytes begin as a Parquet file but do not end as one")
            }
            _ => format!("it is not a Parquet file: its {size_bytes} bytes neither begin nor end as one"),
        };
        Err(damaged(&file.name, "Parquet", reason))
    }
}

/// Adds the statistics of the columns that have one value per file.
fn with_file_columns(mut statistics: Statistics, values: &[ScalarValue]) -> Statistics {
    statistics.column_statistics.extend(values.iter().map(|value| {
        let mut column = ColumnStatistics::new_unknown();
        if value.is_null() {
            column.null_count = statistics.num_rows;
        } else {
            column.null_count = Precision::Exact(0);
            column.min_value = Precision::Exact(value.clone());
            column.max_value = Precision::Exact(value.clone());
            column.distinct_count = Precision::Exact(1);
        }
        column
    }));
    statistics
}

#[async_trait]
impl TableProvider for ParquetTable {
    fn schema(&self) -> SchemaRef {
        self.schema.table_schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(self.columns.pushdown(filters, TableProviderFilterPushDown::Inexact))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let passing = self.columns.passing(state, filters)?;
        let unfiltered = filters.iter().all(|filter| self.columns.decide(filter));
        let limit = limit.filter(|_| unfiltered);
        let (files, cut) = enough_files(passing.iter().map(|file| &self.files[*file]), limit);
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema(), projection)?)));
        }
        let environment = state.runtime_env();
        let partitions_max = self.partitions_max(projection, environment.memory_pool.memory_limit());
        // One partition, so that a small LIMIT returns the first rows of the first file, as people expect.
        let threads = state.config().target_partitions();
        let in_order = threads == 1 || limit.is_some_and(|limit| limit <= LIMIT_IN_ORDER);
        let partitions = if in_order { 1 } else { threads.min(partitions_max) };
        let groups = FileGroup::new(files).split_files(partitions);
        let (groups, statistics) = compute_all_files_statistics(groups, self.schema(), true, cut)?;

        let url = ObjectStoreUrl::local_filesystem();
        let mut options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        options.global.binary_as_string = self.binary_as_string;
        // DataFusion's own scan trusts damaged Bloom filters, so it gets none.
        let reads_bloom_filters = std::mem::replace(&mut options.global.bloom_filter_on_read, false);
        if self.has_int96 {
            options.global.coerce_int96 = Some("us".to_owned());
        }
        let footers = environment.cache_manager.get_file_metadata_cache();
        let local = CachedParquetFileReaderFactory::new(environment.object_store(&url)?, footers.clone());
        let reader = Readers { local, footers };
        let reader = BookedReaders { inner: reader, pool: environment.memory_pool.clone() };
        let source = ParquetSource::new(self.schema.clone())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(reader));
        let decoder = state.config().get_extension::<ParquetDecoder>().unwrap_or_default();
        let decoding = (*decoder == ParquetDecoder::Keirin).then(|| {
            let races = state.config().get_extension::<Races>().unwrap_or_default();
            let decoders = Arc::new(Decoders::new(races));
            Decoding {
                decoders,
                batch_rows: 0,
                order: None,
                reads_bloom_filters,
                coded: Arc::default(),
                row_group_bytes: self.row_group_bytes.clone(),
                can_number: self.is_ours,
                numbered: None,
                pool: environment.memory_pool.clone(),
            }
        });
        let source = NamedSource::new(Arc::new(source), "Parquet", decoding, partitions_max);
        let config = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_preserve_order(in_order)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Which decoders decompress the pages of Parquet files; an extension of a session's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ParquetDecoder {
    /// Ours, for the codecs that we have.
    #[default]
    Keirin,
    /// Those of the parquet crate, in DataFusion's scan.
    Parquet,
}

impl ParquetDecoder {
    pub(crate) const ALL: [(&str, Self); 2] = [("keirin", Self::Keirin), ("parquet", Self::Parquet)];
}

/// The settings with which a source of Parquet files decompresses pages by our decoders.
#[derive(Clone)]
pub(crate) struct Decoding {
    decoders: Arc<Decoders>,
    batch_rows: usize,
    /// The key by whose minimum row groups are sorted, which helps a top-N.
    order: Option<PhysicalSortExpr>,
    reads_bloom_filters: bool,
    /// The columns of the scan that are wanted as codes or integers of 64 bits where they can be.
    coded: Arc<[usize]>,
    /// Of each column of the files, the most stored bytes that a row group has.
    row_group_bytes: Arc<[u64]>,
    /// Whether the rows of all files can be numbered.
    can_number: bool,
    /// The column of the scan that is to have the numbers of rows.
    numbered: Option<usize>,
    /// Where memory is booked.
    pool: Arc<dyn MemoryPool>,
}

impl Decoding {
    pub(crate) fn with_batch_rows(self, batch_rows: usize) -> Self {
        Self { batch_rows, ..self }
    }

    /// Has these columns as codes of texts or integers of 64 bits, where their pages have such.
    pub(crate) fn with_coded(self, columns: &[usize]) -> Self {
        Self { coded: columns.into(), ..self }
    }

    /// Has the numbers of rows in this column, in whatever order they are read.
    pub(crate) fn with_numbered(self, column: usize) -> Self {
        Self { numbered: Some(column), ..self }
    }

    /// Reads row groups with the first values of `order` first; `None` if the first key is not a column.
    pub(crate) fn with_order(self, order: &[PhysicalSortExpr]) -> Option<Self> {
        let first = order.first().filter(|first| first.expr.is::<Column>());
        first.map(|first| Self { order: Some(first.clone()), ..self })
    }

    /// Cuts files, or the ranges of them that partitions were to read, so small that no partition waits long for the last.
    pub(crate) fn cut(
        &self,
        files: Vec<PartitionedFile>,
        partitions: usize,
        source: &dyn FileSource,
    ) -> Vec<PartitionedFile> {
        // Of what is read together the row groups with the first values are found.
        if self.order.is_some() {
            return files;
        }
        if let (Some(source), Some(file)) = (source.downcast_ref::<ParquetSource>(), whole(&files))
            && let Some(parts) = parts::parts(&file, source, partitions)
        {
            return parts;
        }
        let bytes: u64 = files.iter().map(PartitionedFile::effective_size).sum();
        let piece = bytes.div_ceil((PIECES * partitions) as u64).max(PIECE_BYTES_MIN);
        let cut = |file: PartitionedFile| {
            let (start, end) = file.range();
            let pieces = (end - start).div_ceil(piece).max(1);
            let place = move |number| start + (end - start) * number / pieces;
            (0..pieces).map(move |number| match pieces {
                1 => file.clone(),
                _ => file.clone().with_range(place(number) as i64, place(number + 1) as i64),
            })
        };
        files.into_iter().flat_map(cut).collect()
    }

    /// Opens files with our scan if that can replace `stock`, DataFusion's own.
    pub(crate) fn morselizer(
        &self,
        source: &dyn FileSource,
        config: &FileScanConfig,
        partition: usize,
        stock: Box<dyn Morselizer>,
    ) -> DataFusionResult<Box<dyn Morselizer>> {
        let Some(source) = source.downcast_ref::<ParquetSource>() else { return Ok(stock) };
        Ok(match Scan::new(self, source, config, partition)? {
            Some(scan) => Box::new(Opener::new(scan, stock)),
            None => stock,
        })
    }
}

/// The only file of which these are the ranges.
fn whole(files: &[PartitionedFile]) -> Option<PartitionedFile> {
    let (first, others) = files.split_first()?;
    let is_same = |file: &PartitionedFile| file.object_meta.location == first.object_meta.location;
    let is_whole = files.iter().map(PartitionedFile::effective_size).sum::<u64>() == first.object_meta.size;
    let mut whole = first.clone();
    whole.range = None;
    (is_whole && others.iter().all(is_same)).then_some(whole)
}

/// The scan of Parquet files that `plan` is, with these columns of its rows as dictionaries if they are texts whose pages
/// have codes, and as integers of 64 bits if they are decimals, whatever the schema says. `None` if `plan` is something
/// else.
pub(crate) fn with_coded(plan: &Arc<dyn ExecutionPlan>, columns: &[usize]) -> Option<Arc<dyn ExecutionPlan>> {
    let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
    let config = (source.as_ref() as &dyn Any).downcast_ref::<FileScanConfig>()?;
    let mut config = config.clone();
    config.file_source = Arc::new(config.file_source.downcast_ref::<NamedSource>()?.with_coded(columns)?);
    Some(DataSourceExec::from_data_source(config))
}

/// As many files from the beginning as have `limit` rows together, and whether some were left out.
fn enough_files<'a>(
    files: impl Iterator<Item = &'a PartitionedFile>,
    limit: Option<usize>,
) -> (Vec<PartitionedFile>, bool) {
    let Some(limit) = limit else { return (files.cloned().collect(), false) };
    let (mut enough, mut rows, mut cut) = (Vec::new(), 0, false);
    for file in files {
        if rows >= limit && !enough.is_empty() {
            cut = true;
            break;
        }
        rows += match file.statistics.as_ref().map(|statistics| statistics.num_rows) {
            Some(Precision::Exact(rows)) => rows,
            _ => 0,
        };
        enough.push(file.clone());
    }
    (enough, cut)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    #[test]
    fn files_are_cut_into_pieces_without_a_gap() {
        let decoders = Arc::new(Decoders::new(Arc::default()));
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let decoding = Decoding {
            decoders,
            batch_rows: 0,
            order: None,
            reads_bloom_filters: false,
            coded: Arc::default(),
            row_group_bytes: Arc::default(),
            can_number: false,
            numbered: None,
            pool,
        };
        let source = ParquetSource::new(TableSchema::from(Arc::new(Schema::empty())));
        let cut = |sizes: &[u64]| {
            let files = sizes.iter().map(|bytes| PartitionedFile::new(bytes.to_string(), *bytes)).collect();
            let ranges = decoding.cut(files, 2, &source).into_iter().map(|file| file.range());
            ranges.collect::<Vec<_>>()
        };
        assert_eq!(cut(&[PIECE_BYTES_MIN, 0, 1]), [(0, PIECE_BYTES_MIN), (0, 0), (0, 1)]);
        let large = 1000 * PIECE_BYTES_MIN + 17;
        let pieces = cut(&[large, 1]);
        assert_eq!(pieces.len(), 2 * PIECES + 1);
        assert!(pieces[..2 * PIECES].windows(2).all(|two| two[0].1 == two[1].0));
        assert_eq!((pieces[0].0, pieces[2 * PIECES - 1].1, pieces[2 * PIECES]), (0, large, (0, 1)));
    }
}
