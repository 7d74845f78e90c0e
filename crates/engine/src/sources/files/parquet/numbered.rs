//! Rows of Parquet files by their numbers: to read few columns of all rows, and then all columns of few rows.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;

use super::scan::is_ours;
use crate::error::{Error, ErrorKind};
use crate::sources::files::failure::into_datafusion;
use crate::sources::files::named::NamedSource;

/// The bits of a number for the row in its file; those above are for the file.
const ROW_BITS: u32 = 40;
const FILES_MAX: usize = 1 << (u64::BITS - ROW_BITS);
/// Columns are few if all have so many times their bytes, and so many bytes more in a row group: a second scan takes time,
/// too.
const FEW: u64 = 2;
const SPARED_BYTES_MIN: u64 = 64 << 10;
/// What stands for the number of a row until it is known.
const UNKNOWN: u64 = u64::MAX;

/// The number of a file among those of a scan; an extension of `PartitionedFile`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileNumber(u64);

/// The numbers of the rows that a scan gives.
#[derive(Debug)]
pub(super) struct RowNumbers {
    /// Their column.
    place: usize,
    file: FileNumber,
    /// Those of the row group that are still to come.
    rows: VecDeque<Range<u64>>,
}

impl RowNumbers {
    pub(super) fn new(place: usize, file: FileNumber) -> Self {
        Self { place, file, rows: VecDeque::new() }
    }

    /// Begins a row group of which all rows will come, or these.
    pub(super) fn begin(&mut self, footer: &ParquetMetaData, index: usize, rows: Option<&RowSelection>) {
        let count = |row_group: usize| u64::try_from(footer.row_group(row_group).num_rows()).unwrap_or(0);
        let mut next = (self.file.0 << ROW_BITS) + (0..index).map(count).sum::<u64>();
        self.rows.clear();
        match rows {
            None => self.rows.push_back(next..next + count(index)),
            Some(rows) => {
                for run in rows.iter() {
                    let end = next + run.row_count as u64;
                    if !run.skip {
                        self.rows.push_back(next..end);
                    }
                    next = end;
                }
            }
        }
    }

    /// Puts the numbers of the next `count` rows among their columns.
    pub(super) fn put(&mut self, columns: &mut [ArrayRef], count: usize) {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count
            && let Some(run) = self.rows.front_mut()
        {
            let wanted = (count - numbers.len()) as u64;
            let taken = run.start..run.end.min(run.start + wanted);
            run.start = taken.end;
            numbers.extend(taken);
            if run.is_empty() {
                self.rows.pop_front();
            }
        }
        // No number is better than that of another row.
        numbers.resize(count, UNKNOWN);
        columns[self.place] = Arc::new(UInt64Array::from(numbers));
    }
}

/// A scan of Parquet files whose rows can be numbered.
#[derive(Clone, Debug)]
pub(crate) struct NumberedFiles {
    /// Of all columns.
    scan: FileScanConfig,
    columns: SchemaRef,
}

impl NumberedFiles {
    /// `None` if `plan` is something else than a scan of Parquet files, or one whose rows cannot be numbered.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
        let scan = (source.as_ref() as &dyn Any).downcast_ref::<FileScanConfig>()?;
        let named = scan.file_source.downcast_ref::<NamedSource>()?;
        if scan.limit.is_some() || !named.decoding()?.can_number || !is_ours(named.inner()?) {
            return None;
        }
        let (mut scan, mut numbers) = (scan.clone(), HashMap::new());
        for group in &mut scan.file_groups {
            for file in 0..group.len() {
                let file = &mut group[file];
                if u64::try_from(row_count(file)?).ok()? >> ROW_BITS > 0 {
                    return None;
                }
                let next = numbers.len() as u64;
                let number = *numbers.entry(file.object_meta.location.clone()).or_insert(next);
                file.extensions.insert(FileNumber(number));
            }
        }
        (numbers.len() <= FILES_MAX).then(|| Self { scan, columns: plan.schema() })
    }

    /// Whether these columns are a small part of the bytes of all.
    pub(crate) fn are_few(&self, columns: &[usize]) -> bool {
        let source = &self.scan.file_source;
        let Some(decoding) = source.downcast_ref::<NamedSource>().and_then(NamedSource::decoding) else {
            return false;
        };
        let all = source.projection().into_iter().flat_map(|all| all.expr_iter());
        let of_file: Vec<Vec<usize>> =
            all.map(|expr| collect_columns(&expr).iter().map(Column::index).collect()).collect();
        let bytes = |columns: &mut dyn Iterator<Item = usize>| -> u64 {
            let columns: HashSet<usize> =
                columns.flat_map(|column| of_file[column].iter().copied()).collect();
            let stored = columns.iter().filter_map(|column| decoding.row_group_bytes.get(*column));
            stored.fold(0, |sum, bytes| sum.saturating_add(*bytes))
        };
        let few = bytes(&mut columns.iter().copied());
        let all = bytes(&mut (0..of_file.len()));
        few.saturating_mul(FEW) <= all && all - few >= SPARED_BYTES_MIN
    }

    /// A scan of these columns, with the numbers of the rows behind them.
    pub(crate) fn of_columns(&self, columns: &[usize]) -> Result<Arc<dyn ExecutionPlan>> {
        numbered(self.scan.clone(), &self.columns, columns)
    }

    /// A scan of all columns of the rows with these numbers, which are behind them. Rows may come in another order.
    pub(crate) fn of_rows(&self, numbers: &[u64]) -> Result<Arc<dyn ExecutionPlan>> {
        let mut rows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for number in numbers {
            if *number == UNKNOWN {
                return internal_err!("a row of a Parquet file has no number");
            }
            rows.entry(number >> ROW_BITS).or_default().push(number & ((1 << ROW_BITS) - 1));
        }
        for rows in rows.values_mut() {
            rows.sort_unstable();
            // A file may be twice in a list.
            rows.dedup();
        }
        let mut scan = self.scan.clone();
        for group in &mut scan.file_groups {
            let files = group.iter().filter_map(|file| {
                let rows = rows.get(&file.extension::<FileNumber>()?.0)?;
                let selected = selection(rows, row_count(file)?);
                Some(selected.map(|rows| file.clone().with_extension(ParquetRowSelection::new(rows))))
            });
            *group = files.collect::<Result<_>>()?;
        }
        let columns: Vec<usize> = (0..self.columns.fields().len()).collect();
        numbered(scan, &self.columns, &columns)
    }
}

/// The scan, of these of its columns and the numbers of rows.
fn numbered(mut scan: FileScanConfig, schema: &Schema, columns: &[usize]) -> Result<Arc<dyn ExecutionPlan>> {
    let column = |column: &usize| {
        let name = schema.field(*column).name();
        ProjectionExpr::new(Arc::new(Column::new(name, *column)), name.clone())
    };
    let unknown = ProjectionExpr::new(lit(UNKNOWN), "row number");
    let projection = ProjectionExprs::new(columns.iter().map(column).chain([unknown]));
    let source = scan.file_source.try_pushdown_projection(&projection)?;
    let source = source.as_ref().and_then(|source| source.downcast_ref::<NamedSource>());
    let Some(source) = source.and_then(|source| source.with_numbered(columns.len())) else {
        return internal_err!("a scan of Parquet files that gives no columns");
    };
    scan.file_source = Arc::new(source);
    Ok(DataSourceExec::from_data_source(scan))
}

/// How many rows a file has, if its footer told.
fn row_count(file: &PartitionedFile) -> Option<usize> {
    match file.statistics.as_ref()?.num_rows {
        Precision::Exact(rows) => Some(rows),
        _ => None,
    }
}

/// Rows of a file, by their ascending numbers.
fn selection(rows: &[u64], row_count: usize) -> Result<RowSelection> {
    let rows = rows.iter().map(|row| usize::try_from(*row).ok().filter(|row| *row < row_count));
    let Some(rows) = rows.collect::<Option<Vec<_>>>() else { return Err(has_changed()) };
    Ok(RowSelection::from_consecutive_ranges(rows.into_iter().map(|row| row..row + 1), row_count))
}

/// The error for rows that were found and are not there any more.
pub(crate) fn has_changed() -> DataFusionError {
    let message = "a Parquet file has changed while it was read: run the query again";
    into_datafusion(Error::new(ErrorKind::Io, message))
}
