//! The row groups of a file that a scan reads, shared out among its partitions where they are few.
//!
//! Partitions take ranges of files one after the other, and read the row groups that begin there. Of a file with a single
//! row group, or of which a filter leaves one, only one partition would have work. Which row groups are left is known
//! from the footer before the scan begins: then partitions get parts of their rows.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    ParquetAccessPlan, ParquetFileMetrics, ParquetRowSelection, RowGroupAccess,
};
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapterFactory, replace_columns_with_literals,
};
use datafusion::physical_plan::metrics::Count;

use super::kept::selected;
use super::known::{Columns, KnownColumns};
use super::prune::{RowGroupFilters, RowGroupQueue};
use super::scan::file_values;
use crate::sources::files::named::NamedFile;

/// A partition gets no fewer rows, but for the last part of a row group: each part reads its chunks, and their dictionaries.
const ROWS_MIN: usize = 1 << 15;
/// With so many row groups for each partition they are not cut.
const ROW_GROUPS_MANY: usize = 4;

/// Some rows of one row group, which alone are to be read of a file; an extension of [`PartitionedFile`].
#[derive(Clone, Debug)]
pub(super) struct Part {
    row_group: usize,
    rows: Range<usize>,
    /// How many the row group has.
    total: usize,
}

impl Part {
    /// The row groups of which a part is read, of so many.
    pub(super) fn row_groups(&self, count: usize) -> ParquetAccessPlan {
        let mut plan = ParquetAccessPlan::new_none(count);
        if self.row_group < count {
            plan.scan(self.row_group);
        }
        plan
    }

    /// What is to be read of row groups, of which other parts may be read, too.
    pub(super) fn within(&self, queue: RowGroupQueue) -> RowGroupQueue {
        if self.rows.len() == self.total {
            return queue;
        }
        let part = selected(self.rows.clone(), self.total);
        let within = |access| match access {
            RowGroupAccess::Selection(selection) => RowGroupAccess::Selection(selection.intersection(&part)),
            RowGroupAccess::Scan | RowGroupAccess::Skip => RowGroupAccess::Selection(part.clone()),
        };
        queue.into_iter().map(|(row_group, access)| (row_group, within(access))).collect()
    }
}

/// The row groups of a file, cut so that each of the partitions has some; `None` if there are many, or if that takes reading
/// the file.
pub(super) fn parts(
    file: &PartitionedFile,
    source: &ParquetSource,
    partitions: usize,
) -> Option<Vec<PartitionedFile>> {
    let is_elsewhere = file.extension::<NamedFile>().is_some_and(|named| named.0.remote.is_some());
    if is_elsewhere || file.extension::<ParquetRowSelection>().is_some() {
        return None;
    }
    let columns = file.extension::<KnownColumns>()?.any(source.table_schema().file_schema())?;
    let row_groups = row_groups(file, source, &columns).ok()?;
    if row_groups.len() >= ROW_GROUPS_MANY * partitions {
        return None;
    }
    let is_even = row_groups.len().is_multiple_of(partitions);
    let footer = columns.metadata.metadata();
    // Those that are left are counted where they are opened.
    let metrics = ParquetFileMetrics::new(0, file.object_meta.location.as_ref(), source.metrics());
    metrics.row_groups_pruned_statistics.add_pruned(footer.num_row_groups() - row_groups.len());
    let mut parts = Vec::new();
    for row_group in row_groups {
        let total = usize::try_from(footer.row_group(row_group).num_rows()).ok()?;
        let count = if is_even { 1 } else { partitions.min(total / ROWS_MIN).max(1) };
        parts.extend((0..count).map(|part| {
            let rows = total * part / count..total * (part + 1) / count;
            file.clone().with_extension(Part { row_group, rows, total })
        }));
    }
    Some(parts)
}

/// The row groups that statistics do not exclude.
fn row_groups(file: &PartitionedFile, source: &ParquetSource, columns: &Columns) -> Result<Vec<usize>> {
    let footer = columns.metadata.metadata();
    let count = footer.num_row_groups();
    let prunes = source.table_parquet_options().global.pruning;
    let Some(filter) = source.filter().filter(|_| prunes) else { return Ok((0..count).collect()) };
    let schema = columns.metadata.schema();
    let filter = over_file(filter, &file_values(file, source.table_schema()), columns)?;
    let filters = RowGroupFilters {
        schema: schema.clone(),
        failures: Count::new(),
        values_max: source.max_in_list_size(),
    };
    Ok(match filters.of(&filter) {
        Some(filter) => filters.kept(&filter, ParquetAccessPlan::new_all(count), &columns.metadata),
        None => (0..count).collect(),
    })
}

/// A filter over columns of a table as one over columns of a file of it, with the values of those that are constant in it.
fn over_file(
    filter: Arc<dyn PhysicalExpr>,
    values: &HashMap<String, ScalarValue>,
    columns: &Columns,
) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = columns.metadata.schema();
    let adapter = DefaultPhysicalExprAdapterFactory.create(columns.logical.clone(), schema.clone())?;
    let filter = adapter.rewrite(replace_columns_with_literals(filter, values)?)?;
    PhysicalExprSimplifier::new(schema).simplify(filter)
}
