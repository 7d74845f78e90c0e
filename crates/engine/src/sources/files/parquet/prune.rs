//! Chooses the rows of a file to read: row groups and pages that cannot hold what a query looks for are
//! pruned, by DataFusion's own filters, in the order of its own scan.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::compute::sort_to_indices;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetSource;
use datafusion::datasource::physical_plan::parquet::{
    BloomFilterStatistics, PagePruningAccessPlanFilter, ParquetAccessPlan, ParquetFileMetrics,
    RowGroupAccess, RowGroupAccessPlanFilter,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet};
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::parquet_column;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, RowGroupMetaData};

use super::bounds;
use super::parts::Part;
use crate::compile::join::with_bounds;
use crate::sources::narrowing::{Narrowing, over_statistics};

/// The row groups to read, with all of their rows or a selection, in order.
pub(super) type RowGroupQueue = VecDeque<(usize, RowGroupAccess)>;

/// A file whose row groups are to be chosen, and everything that decides the choice.
pub(super) struct Pruning<'a> {
    pub(super) source: &'a ParquetSource,
    pub(super) file: &'a PartitionedFile,
    /// The predicate that rows must pass, over columns of the file.
    pub(super) predicate: Option<&'a Arc<dyn PhysicalExpr>>,
    /// The same as one over statistics, if it can be.
    pub(super) over_statistics: Option<&'a PruningPredicate>,
    /// The rows of the file that are wanted, if not all.
    pub(super) selected: Option<&'a RowSelection>,
    /// The part of the file that is wanted, if not all.
    pub(super) part: Option<&'a Part>,
    pub(super) filters: &'a RowGroupFilters,
    pub(super) metrics: &'a ParquetFileMetrics,
    /// The number of rows after which the scan may end, whichever they are.
    pub(super) limit: Option<usize>,
    /// The column of the table whose first values in this order should be read first.
    pub(super) order: Option<&'a PhysicalSortExpr>,
    /// Whether Bloom filters are used.
    pub(super) reads_bloom_filters: bool,
}

impl Pruning<'_> {
    /// The row groups to read. Loads the page index into `metadata` if it can be useful; `another_reader`
    /// makes a reader for the Bloom filters.
    pub(super) async fn row_groups(
        &self,
        metadata: &mut ArrowReaderMetadata,
        reader: &mut Box<dyn AsyncFileReader>,
        options: ArrowReaderOptions,
        another_reader: impl FnOnce() -> Result<Box<dyn AsyncFileReader>>,
    ) -> Result<RowGroupQueue> {
        let settings = &self.source.table_parquet_options().global;
        let (footer, schema) = (metadata.metadata().clone(), &self.filters.schema);
        let all = footer.row_groups();
        let wanted = match (self.selected, self.part) {
            (Some(selected), _) => {
                ParquetAccessPlan::try_new_from_overall_row_selection(selected.clone(), all)?
            }
            (None, Some(part)) => part.row_groups(all.len()),
            (None, None) => ParquetAccessPlan::new_all(all.len()),
        };
        let mut kept = RowGroupAccessPlanFilter::new(wanted);
        if let Some(range) = &self.file.range {
            kept.prune_by_range(all, range);
        }
        match self.over_statistics {
            Some(predicate) if settings.pruning => {
                let columns = metadata.parquet_schema();
                kept.prune_by_statistics(schema, columns, all, predicate, self.metrics);
            }
            _ => self.metrics.row_groups_pruned_statistics.add_matched(kept.remaining_row_group_count()),
        }
        match self.over_statistics {
            Some(predicate) if self.reads_bloom_filters => {
                let filters = self.bloom_filters(predicate, &kept, metadata, another_reader).await?;
                kept.prune_by_bloom_filters(predicate, self.metrics, &filters);
            }
            _ => self.metrics.row_groups_pruned_bloom_filter.add_matched(kept.remaining_row_group_count()),
        }
        let is_left = kept.remaining_row_group_count() > 0;
        let of_pages = self
            .predicate
            .filter(|_| settings.enable_page_index && is_left && has_page_index(all))
            .map(with_bounds)
            .transpose()?
            .map(|predicate| PagePruningAccessPlanFilter::new(&predicate, schema.clone()))
            .filter(|filter| filter.filter_number() > 0);
        let are_fully_matched = kept.row_group_indexes().all(|index| kept.is_fully_matched()[index]);
        if let Some(limit) = self.limit {
            kept.prune_by_limit(limit, all, self.metrics);
        }
        let mut plan = kept.build();
        let of_pages = of_pages.filter(|_| !are_fully_matched);
        let looks_for_pages = of_pages.is_some() || self.selected.is_some() && has_page_index(all);
        let has_none =
            metadata.metadata().column_index().is_none() && metadata.metadata().offset_index().is_none();
        if looks_for_pages && has_none {
            let options = options.with_page_index_policy(PageIndexPolicy::Optional);
            *metadata = ArrowReaderMetadata::load_async(reader, options).await?;
            bounds::check(metadata.metadata(), metadata.schema())
                .map_err(|reason| ParquetError::General(reason.to_owned()))?;
        }
        if let Some(filter) = of_pages {
            plan = filter.prune_plan_with_page_index(
                plan,
                schema,
                metadata.parquet_schema(),
                metadata.metadata(),
                self.metrics,
            );
        }
        let access = plan.into_inner().into_iter().enumerate();
        let kept: RowGroupQueue = access.filter(|(_, access)| access.should_scan()).collect();
        for (index, access) in &kept {
            let RowGroupAccess::Selection(selection) = access else { continue };
            let found: usize = selection.iter().map(|run| run.row_count).sum();
            let rows = metadata.metadata().row_group(*index).num_rows();
            if usize::try_from(rows) != Ok(found) {
                let reason = format!(
                    "row group {index}: its offset index is damaged: its pages have {found} of {rows} rows"
                );
                return Err(ParquetError::General(reason).into());
            }
        }
        Ok(match (self.order, self.part) {
            (Some(order), _) => self.sorted(kept, order, metadata),
            (None, Some(part)) => part.within(kept),
            (None, None) => kept,
        })
    }

    /// Sorts row groups by their minimum, ascending or descending; their order is unchanged if statistics are
    /// missing.
    fn sorted(
        &self,
        kept: RowGroupQueue,
        order: &PhysicalSortExpr,
        metadata: &ArrowReaderMetadata,
    ) -> RowGroupQueue {
        let column = order.expr.downcast_ref::<Column>().map(Column::name);
        let least = column.and_then(|name| {
            let converter =
                StatisticsConverter::try_new(name, &self.filters.schema, metadata.parquet_schema()).ok()?;
            let row_groups = kept.iter().map(|(index, _)| metadata.metadata().row_group(*index));
            let least = converter.row_group_mins(row_groups).ok()?;
            sort_to_indices(&least, Some(order.options), None).ok()
        });
        match least {
            Some(places) => places.values().iter().map(|place| kept[*place as usize].clone()).collect(),
            None => kept,
        }
    }

    /// Loads the Bloom filters of the row groups in `kept`, for the columns that `predicate` compares with
    /// values.
    async fn bloom_filters(
        &self,
        predicate: &PruningPredicate,
        kept: &RowGroupAccessPlanFilter,
        metadata: &ArrowReaderMetadata,
        reader: impl FnOnce() -> Result<Box<dyn AsyncFileReader>>,
    ) -> Result<Vec<BloomFilterStatistics>> {
        let footer = metadata.metadata();
        let mut filters = vec![BloomFilterStatistics::new(); footer.num_row_groups()];
        let columns: Vec<_> = predicate
            .literal_columns()
            .into_iter()
            .filter_map(|name| {
                let (leaf, _) = parquet_column(metadata.parquet_schema(), &self.filters.schema, &name)?;
                Some((name, leaf))
            })
            .collect();
        let has_filter = |leaf| {
            kept.row_group_indexes()
                .any(|index| footer.row_group(index).column(leaf).bloom_filter_offset().is_some())
        };
        if !columns.iter().any(|(_, leaf)| has_filter(*leaf)) {
            return Ok(filters);
        }
        let mut reader = reader()?;
        let mut sound = HashSet::new();
        for index in kept.row_group_indexes() {
            for (_, leaf) in &columns {
                if is_sound(footer.row_group(index).column(*leaf), self.file.object_meta.size, &mut reader)
                    .await
                {
                    sound.insert((index, *leaf));
                } else {
                    self.metrics.predicate_evaluation_errors.add(1);
                }
            }
        }
        let mut builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, metadata.clone());
        for index in kept.row_group_indexes() {
            for (name, leaf) in &columns {
                if !sound.contains(&(index, *leaf)) {
                    continue;
                }
                let column = metadata.parquet_schema().column(*leaf);
                match builder.get_row_group_column_bloom_filter(index, *leaf).await {
                    Ok(Some(filter)) => {
                        filters[index].insert(name, filter, column.physical_type(), column.type_length());
                    }
                    Ok(None) => {}
                    // A Bloom filter that cannot be read prunes nothing.
                    Err(_) => self.metrics.predicate_evaluation_errors.add(1),
                }
            }
        }
        Ok(filters)
    }
}

/// Whether there are least and greatest values of pages, or their places. If not, asking for them again would copy the
/// footer.
fn has_page_index(row_groups: &[RowGroupMetaData]) -> bool {
    let mut columns = row_groups.iter().flat_map(RowGroupMetaData::columns);
    columns.any(|column| column.column_index_offset().or(column.offset_index_offset()).is_some())
}

/// Whether a column's Bloom filter lies within the file and has the length that the footer gives. The library
/// uses whatever bytes are there, and a filter of the wrong length would exclude rows that exist.
async fn is_sound(
    column: &ColumnChunkMetaData,
    file_bytes: u64,
    reader: &mut Box<dyn AsyncFileReader>,
) -> bool {
    /// The possible sizes of its header: the number of bytes, and three unions with one variant each.
    const HEADER_BYTES: Range<u64> = 2..64;
    let Some(offset) = column.bloom_filter_offset() else { return true };
    let (Ok(offset), length) = (u64::try_from(offset), column.bloom_filter_length().map(u64::try_from))
    else {
        return false;
    };
    let end = offset.saturating_add(HEADER_BYTES.end).min(file_bytes);
    if offset >= end {
        return false;
    }
    let Ok(header) = reader.get_bytes(offset..end).await else { return false };
    let Some(bits_bytes) = bits_bytes(&header) else { return false };
    let is_within = |bytes: u64| offset.checked_add(bytes).is_some_and(|end| end <= file_bytes);
    match length {
        Some(Ok(length)) => {
            is_within(length)
                && length.checked_sub(bits_bytes).is_some_and(|header| HEADER_BYTES.contains(&header))
        }
        Some(Err(_)) => false,
        None => is_within(bits_bytes),
    }
}

/// The bytes of the bitset behind a Bloom filter's header, which the header's first field gives. In Thrift's
/// compact protocol that is a byte for "field 1, 32 bits", then a zigzag number, seven bits a byte.
fn bits_bytes(header: &[u8]) -> Option<u64> {
    const FIRST_IS_I32: u8 = 0x15;
    const BLOCK_BYTES: u64 = 32;
    let [FIRST_IS_I32, digits @ ..] = header else { return None };
    let mut number = 0_u64;
    for (place, byte) in digits.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let bytes = number / 2;
            let is_whole = number.is_multiple_of(2) && bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES);
            return is_whole.then_some(bytes);
        }
    }
    None
}

/// How filters over statistics of row groups are made.
#[derive(Clone)]
pub(super) struct RowGroupFilters {
    /// The columns of the file with the types in which they are read.
    pub(super) schema: SchemaRef,
    /// Counts filters that could not be made.
    pub(super) failures: Count,
    /// The most values of a list that is made comparisons.
    pub(super) values_max: usize,
}

impl RowGroupFilters {
    /// A filter as one over statistics, if it can be one.
    pub(super) fn of(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<Arc<PruningPredicate>> {
        over_statistics(filter, self.builder())
    }

    fn builder(&self) -> PruningPredicateBuilder<'_> {
        PruningPredicateBuilder::new()
            .with_file_schema(self.schema.clone())
            .with_error_counter(&self.failures)
            .with_max_in_list_size(self.values_max)
    }

    /// Whether a filter that others narrow excludes all rows of a row group by now.
    pub(super) fn excludes(
        &self,
        narrowing: &mut Narrowing,
        row_group: usize,
        metadata: &ArrowReaderMetadata,
    ) -> bool {
        let Some(predicate) = narrowing.current(self.builder()) else { return false };
        let mut plan = ParquetAccessPlan::new_none(metadata.metadata().num_row_groups());
        plan.scan(row_group);
        self.kept(predicate, plan, metadata).is_empty()
    }

    /// The row groups of `plan` of which statistics do not show that no row passes. Others count them.
    pub(super) fn kept(
        &self,
        predicate: &PruningPredicate,
        plan: ParquetAccessPlan,
        metadata: &ArrowReaderMetadata,
    ) -> Vec<usize> {
        let mut kept = RowGroupAccessPlanFilter::new(plan);
        let (all, columns) = (metadata.metadata().row_groups(), metadata.parquet_schema());
        let uncounted = ParquetFileMetrics::new(0, "", &ExecutionPlanMetricsSet::new());
        kept.prune_by_statistics(&self.schema, columns, all, predicate, &uncounted);
        kept.row_group_indexes().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::bits_bytes;

    #[test]
    fn the_length_of_a_bloom_filter_is_read_from_its_header() {
        assert_eq!(bits_bytes(&[0x15, 0x40, 0x1c]), Some(32));
        assert_eq!(bits_bytes(&[0x15, 0x80, 0x04, 0x1c]), Some(256));
        // Not a multiple of the block size, zero, negative, unterminated, another field.
        assert_eq!(bits_bytes(&[0x15, 0xa0, 0x9c, 0x01]), None);
        assert_eq!(bits_bytes(&[0x15, 0x00]), None);
        assert_eq!(bits_bytes(&[0x15, 0x3f]), None);
        assert_eq!(bits_bytes(&[0x15, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), None);
        assert_eq!(bits_bytes(&[0x16, 0x40]), None);
        assert_eq!(bits_bytes(&[]), None);
    }
}
