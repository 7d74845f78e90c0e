//! The rows of a file, read row group by row group, with filters tried first where that spares work.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_empty_array, new_null_array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::prep_null_mask_filter;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt32Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::physical_plan::parquet::{ParquetFileMetrics, RowGroupAccess};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::projection::Projector;
use datafusion::physical_plan::metrics::BaselineMetrics;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicate, ArrowReaderMetadata, RowSelection, RowSelector};
use parquet::arrow::async_reader::AsyncFileReader;

use super::batches::{Batches, CodedColumns, Columns, FlatColumns};
use super::flat::{Column, codes_of, column};
use super::kept::{self, Kept, consecutive};
use super::numbered::RowNumbers;
use super::prefilter::Prefilters;
use super::prune::{RowGroupFilters, RowGroupQueue};
use super::row_group::{Fetched, RowGroup, Shared, chunk_range};
use crate::sources::files::failure::into_datafusion;
use crate::sources::files::remote::RemoteFile;
use crate::sources::files::values::checked;
use crate::sources::narrowing::Narrowing;

/// A filter is tried before others are read if these have at least so many times its bytes: once where what it reads is
/// kept, or else twice.
const BYTES_SPARED_KEPT: i64 = 1;
const BYTES_SPARED: i64 = 2;
/// With more rows than one in so many, all are decoded: where rows are passed over bit by bit, or as runs.
const SPARSE_KEPT: usize = 4;
const SPARSE: usize = 8;
/// With fewer rows than one in so many, pages and parts of pages between them are passed over.
const SPARSE_RUNS: usize = 128;

/// A filter over values after [`checked`] has normalised them.
pub(super) struct OverChecked(pub(super) Box<dyn ArrowPredicate>);

impl ArrowPredicate for OverChecked {
    fn projection(&self) -> &ProjectionMask {
        self.0.projection()
    }

    fn evaluate(&mut self, batch: RecordBatch) -> std::result::Result<BooleanArray, ArrowError> {
        self.0.evaluate(checked(batch)?)
    }
}

/// The values of a column of a row group that pass a filter, as its dictionary shows.
enum InDictionary {
    None,
    All,
    /// Of the rows of this column.
    Some(Box<dyn Column>),
}

/// The rows of a file, read row group by row group.
pub(super) struct Rows {
    pub(super) reader: Box<dyn AsyncFileReader>,
    pub(super) metadata: ArrowReaderMetadata,
    /// Where the file is, if not here.
    pub(super) remote: Option<RemoteFile>,
    /// The columns of the file with the types in which they are read.
    pub(super) schema: SchemaRef,
    pub(super) mask: ProjectionMask,
    pub(super) filters: Vec<Box<dyn ArrowPredicate>>,
    pub(super) prefilters: Prefilters,
    pub(super) queue: RowGroupQueue,
    pub(super) row_group_filters: RowGroupFilters,
    pub(super) narrowing: Option<Narrowing>,
    pub(super) current: Option<Batches>,
    pub(super) projector: Projector,
    pub(super) output: SchemaRef,
    /// What filters of the row group have fetched.
    pub(super) fetched: Fetched,
    /// The columns that are kept of the row group.
    pub(super) booked: MemoryReservation,
    pub(super) flat: FlatColumns,
    pub(super) coded: CodedColumns,
    /// The columns of a batch in the order in which they are wanted, if some are coded.
    pub(super) given: Option<Vec<usize>>,
    /// The numbers of the rows, if these are wanted.
    pub(super) row_numbers: Option<RowNumbers>,
    pub(super) shared: Shared,
    pub(super) batch_rows: usize,
    /// Rows that the scan may still return.
    pub(super) remaining: Option<usize>,
    pub(super) metrics: ParquetFileMetrics,
    pub(super) baseline: BaselineMetrics,
}

impl Rows {
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let time = self.baseline.elapsed_compute().clone();
            let timer = time.timer();
            let batch = self.current.as_mut().and_then(Iterator::next).transpose()?;
            if let Some(batch) = batch {
                return self.project(&checked(batch)?).map(Some);
            }
            drop(timer);
            self.current = None;
            let Some((index, access)) = self.queue.pop_front() else { return Ok(None) };
            let (filters, narrowing) = (&self.row_group_filters, self.narrowing.as_mut());
            if narrowing.is_some_and(|narrowing| filters.excludes(narrowing, index, &self.metadata)) {
                self.metrics.row_groups_pruned_dynamic_filter.add(1);
                continue;
            }
            self.current = self.row_group(index, access).await?;
            self.expect_next();
        }
    }

    /// Has the columns of the next row group fetched meanwhile, if all of it will be read.
    fn expect_next(&self) {
        let Some(remote) = &self.remote else { return };
        let Some((index, RowGroupAccess::Scan)) = self.queue.front() else { return };
        if !self.filters.is_empty() || self.prefilters.len() > 0 || self.remaining.is_some() {
            return;
        }
        let columns = self.metadata.metadata().row_group(*index).columns().iter().enumerate();
        let read = columns.filter(|(leaf, _)| self.mask.leaf_included(*leaf));
        remote.expect(read.filter_map(|(_, chunk)| chunk_range(chunk, self.shared.file_bytes).ok()));
    }

    fn project(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        if let Some(given) = &self.given {
            let columns: Vec<ArrayRef> = given.iter().map(|column| batch.column(*column).clone()).collect();
            let fields = self.output.fields().iter().zip(&columns);
            let fields: Vec<Field> = fields
                .map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone()))
                .collect();
            let schema = Arc::new(Schema::new(fields));
            return Ok(RecordBatch::try_new_with_options(schema, columns, &options)?);
        }
        let projected = self.projector.project_batch(batch).map_err(of_query)?;
        let (_, mut columns, _) = projected.into_parts();
        if let Some(numbers) = &mut self.row_numbers {
            numbers.put(&mut columns, rows);
        }
        // A file may declare a column nullable that is NOT NULL in the table.
        Ok(RecordBatch::try_new_with_options(self.output.clone(), columns, &options)?)
    }

    /// The rows of a row group that pass the filters. Late materialisation: the other columns are fetched
    /// only for these rows.
    async fn row_group(&mut self, index: usize, access: RowGroupAccess) -> Result<Option<Batches>> {
        self.fetched = Fetched::default();
        self.booked.free();
        let metadata = self.metadata.metadata().clone();
        let row_count = metadata.row_group(index).num_rows();
        let is_whole = |selection: &RowSelection| i64::try_from(selection.row_count()) == Ok(row_count);
        let mut selection = match access {
            RowGroupAccess::Selection(selection) => Some(selection).filter(|selection| !is_whole(selection)),
            RowGroupAccess::Scan | RowGroupAccess::Skip => None,
        };
        let mut filters = std::mem::take(&mut self.filters);
        for filter in &mut filters {
            let mask = filter.projection().clone();
            let mut passed = Vec::new();
            for batch in self.read(index, &mask, selection.clone(), self.batch_rows).await? {
                passed.push(passing(filter.evaluate(batch?).map_err(|error| of_query(error.into()))?));
            }
            let passing = RowSelection::from_filters(&passed);
            selection = Some(selection.map_or_else(|| passing.clone(), |before| before.and_then(&passing)));
        }
        self.filters = filters;
        let (mut selection, kept) = self.prefiltered(index, selection).await?;
        if let Some(remaining) = &mut self.remaining {
            let all =
                || RowSelection::from(vec![RowSelector::select(usize::try_from(row_count).unwrap_or(0))]);
            let (first, count) = limited(&selection.unwrap_or_else(all), *remaining);
            *remaining -= count;
            selection = Some(first);
        }
        if selection.as_ref().is_some_and(|selection| !selection.selects_any()) {
            return Ok(None);
        }
        if let Some(numbers) = &mut self.row_numbers {
            let narrowed = kept.as_ref().and_then(Kept::selection);
            numbers.begin(&metadata, index, selection.as_ref().or(narrowed.as_ref()));
        }
        let rows = self.answer(index, selection, kept.as_ref()).await;
        self.fetched = Fetched::default();
        rows.map(Some)
    }

    /// What is left of a selection after filters that are worth trying first.
    async fn prefiltered(
        &mut self,
        index: usize,
        before: Option<RowSelection>,
    ) -> Result<(Option<RowSelection>, Option<Kept>)> {
        let metadata = self.metadata.clone();
        let row_group = metadata.metadata().row_group(index);
        let rows = usize::try_from(row_group.num_rows()).unwrap_or(0);
        if self.prefilters.len() == 0 {
            return Ok((before, None));
        }
        self.prefilters.begin();
        let (flat, wanted, mut tried) = (self.flat.clone(), self.mask.clone(), 0);
        let leaves = |mask: &ProjectionMask| -> Vec<usize> {
            (0..row_group.num_columns()).filter(|leaf| mask.leaf_included(*leaf)).collect()
        };
        let is_ours =
            |mask: &ProjectionMask| leaves(mask).into_iter().all(|leaf| flat.has_numbers(row_group, leaf));
        let (columns, fields) = (metadata.parquet_schema(), self.schema.fields().clone());
        let field = |leaf: usize| fields[columns.get_column_root_idx(leaf)].clone();
        let coded = |mask: &ProjectionMask| {
            let [leaf] = leaves(mask)[..] else { return None };
            let is_coded = flat.has_codes_of_texts(row_group, leaf, field(leaf).data_type());
            is_coded.then(|| (leaf, field(leaf)))
        };
        let is_cheap = |mask: &ProjectionMask| is_ours(mask) || coded(mask).is_some();
        let bytes_spared = |mask: &ProjectionMask| if coded(mask).is_some() { 0 } else { BYTES_SPARED_KEPT };
        let window = before.as_ref().map_or_else(|| Some(0..rows), consecutive);
        let window = window.filter(|window| window.len() <= kept::ROWS_MAX);
        let mut kept = window.map(|window| Kept::new(window, rows));
        let rows = before.as_ref().map_or(rows, RowSelection::row_count);
        if let Some(kept) = &mut kept {
            while kept.left() > 0
                && let Some(mask) = self.prefilters.next(tried, row_group, &wanted, is_cheap, bytes_spared)
            {
                let (started, columns) = (Instant::now(), leaves(&mask));
                if let Some((leaf, field)) = coded(&mask) {
                    let Some(passes) = self.passing_codes(index, (leaf, field), tried, kept).await? else {
                        break;
                    };
                    self.prefilters.learn(tried, started, rows, passes.count_set_bits());
                    kept.narrow(&passes);
                    tried += 1;
                    continue;
                }
                if let [leaf] = columns[..]
                    && kept.column(leaf).is_none()
                    && flat.has_codes_of_numbers(row_group, leaf)
                    && self.prefilters.of_entries(tried).is_some()
                {
                    let passing =
                        self.in_dictionary(index, (leaf, field(leaf)), tried, before.as_ref()).await?;
                    if matches!(passing, InDictionary::None) {
                        self.prefilters.learn(tried, started, rows, 0);
                        kept.narrow(&BooleanBuffer::new_unset(rows));
                    }
                    let InDictionary::Some(mut coded) = passing else {
                        tried += 1;
                        continue;
                    };
                    if !self.book(rows, &[leaf]) {
                        break;
                    }
                    coded.skip(kept.first())?;
                    coded.read(rows)?;
                    kept.keep(leaf, coded.take()?);
                }
                if !self.keep(index, &columns, kept).await? {
                    break;
                }
                let roots = columns.iter().map(|leaf| metadata.parquet_schema().get_column_root_idx(*leaf));
                let fields = roots.map(|root| self.schema.fields()[root].clone()).collect();
                let batch = kept.batch(&columns, fields)?;
                let passes = self.prefilters.evaluate(tried, started, std::iter::once(Ok(batch)))?;
                passes.iter().for_each(|passes| kept.narrow(passes.values()));
                tried += 1;
            }
            if !self.prefilters.is_sparse(0..tried, kept.left(), rows, SPARSE_KEPT) {
                kept.widen();
            }
        }
        // What is not worth decoding for a filter may yet be known to have no value that passes it.
        let has_rows = kept.as_ref().is_none_or(|kept| kept.left() > 0);
        for place in (tried..self.prefilters.len()).filter(|_| has_rows) {
            let leaves = self.prefilters.of_entries(place).map(leaves).unwrap_or_default();
            let [leaf] = leaves[..] else { continue };
            if flat.has_codes_of_numbers(row_group, leaf)
                && let InDictionary::None =
                    self.in_dictionary(index, (leaf, field(leaf)), place, before.as_ref()).await?
            {
                return Ok((Some(RowSelection::default()), None));
            }
        }
        let narrowed = kept.as_ref().and_then(Kept::selection);
        let (first, mut selection) = (tried, narrowed.or_else(|| before.clone()));
        let is_left = |mask: &ProjectionMask| kept.is_none() || !is_cheap(mask);
        let rows = selection.as_ref().map_or(rows, RowSelection::row_count);
        while selection.as_ref().is_none_or(RowSelection::selects_any)
            && let Some(mask) = self.prefilters.next(tried, row_group, &wanted, is_left, |_| BYTES_SPARED)
        {
            let started = Instant::now();
            let batches = self.read(index, &mask, selection.clone(), self.batch_rows).await?;
            let passes = self.prefilters.evaluate(tried, started, batches.map(|batch| Ok(batch?)))?;
            let passing = RowSelection::from_filters(&passes);
            selection = Some(selection.map_or_else(|| passing.clone(), |before| before.and_then(&passing)));
            tried += 1;
        }
        let left = selection.as_ref().map_or(rows, RowSelection::row_count);
        if tried > first && self.prefilters.is_sparse(first..tried, left, rows, SPARSE) {
            return Ok((selection, None));
        }
        Ok(match kept {
            Some(kept) if kept.left() * SPARSE_RUNS <= kept.row_count() => (kept.selection(), None),
            Some(kept) if !kept.is_empty() => (None, Some(kept)),
            _ => (before, None),
        })
    }

    /// Decodes columns of a row group whole; `false` if there is no memory for that.
    async fn keep(&mut self, index: usize, columns: &[usize], kept: &mut Kept) -> Result<bool> {
        let missing: Vec<usize> =
            columns.iter().copied().filter(|leaf| kept.column(*leaf).is_none()).collect();
        if missing.is_empty() {
            return Ok(true);
        }
        if !self.book(kept.row_count(), &missing) {
            return Ok(false);
        }
        let mask = ProjectionMask::leaves(self.metadata.parquet_schema(), missing.iter().copied());
        let mut batches = self.read(index, &mask, kept.window(), kept.row_count()).await?;
        let Some(batch) = batches.next().transpose()?.filter(|batch| batch.num_rows() == kept.row_count())
        else {
            return internal_err!("a row group with other rows than its footer says");
        };
        missing.iter().zip(batch.columns()).for_each(|(leaf, column)| kept.keep(*leaf, column.clone()));
        Ok(true)
    }

    /// Books so many rows of columns; `false` if there is no memory for them.
    fn book(&mut self, rows: usize, columns: &[usize]) -> bool {
        let width = |leaf: &usize| {
            let root = self.metadata.parquet_schema().get_column_root_idx(*leaf);
            self.schema.field(root).data_type().primitive_width().unwrap_or(size_of::<u128>())
        };
        let row_bytes: usize = columns.iter().map(width).sum();
        self.booked.try_grow(row_bytes * rows).is_ok()
    }

    /// A column of a row group, read as this type, whose pages all have codes, and whether it may have NULLs.
    async fn coded(
        &mut self,
        index: usize,
        (leaf, field): (usize, &Field),
        data_type: &DataType,
        selection: Option<&RowSelection>,
    ) -> Result<(Box<dyn Column>, bool)> {
        let columns = self.metadata.parquet_schema();
        let (described, mask) = (columns.column(leaf), ProjectionMask::leaves(columns, [leaf]));
        let row_group = self.fetch(index, &mask, selection).await?;
        let coded = column(row_group.pages(leaf)?, row_group.place(leaf), &described, data_type);
        let Some(coded) = coded else { return internal_err!("a column without codes") };
        let nulls = row_group.chunk(leaf).statistics().and_then(|known| known.null_count_opt());
        Ok((coded, field.is_nullable() && nulls != Some(0)))
    }

    /// Which entries of a dictionary pass the filter at `place`, and whether NULL does, if there may be such.
    fn passing_entries(
        &mut self,
        place: usize,
        field: FieldRef,
        entries: ArrayRef,
        may_be_null: bool,
    ) -> Result<(BooleanArray, bool)> {
        let null = may_be_null.then(|| new_null_array(field.data_type(), 1));
        let schema = Arc::new(Schema::new(vec![field]));
        let mut passes = |values: ArrayRef| {
            let values = RecordBatch::try_new(schema.clone(), vec![values])?;
            self.prefilters.try_values(place, values)
        };
        let null_passes = null.map(&mut passes).transpose()?.is_some_and(|passes| passes.value(0));
        Ok((passes(entries)?, null_passes))
    }

    /// Tries the filter at `place` on the dictionary of its column, whose pages all have codes. If all values pass, the filter
    /// is not due any more.
    async fn in_dictionary(
        &mut self,
        index: usize,
        (leaf, field): (usize, FieldRef),
        place: usize,
        selection: Option<&RowSelection>,
    ) -> Result<InDictionary> {
        let coded = self.coded(index, (leaf, &field), field.data_type(), selection).await?;
        let (mut coded, may_be_null) = coded;
        let Some(entries) = coded.entries()? else { return Ok(InDictionary::Some(coded)) };
        let (passes, null_passes) = self.passing_entries(place, field, entries, may_be_null)?;
        let count = passes.true_count();
        if count == 0 && !null_passes {
            return Ok(InDictionary::None);
        }
        let did_all = count == passes.len() && null_passes == may_be_null;
        self.prefilters.some_entries_passed(place, did_all);
        Ok(if did_all { InDictionary::All } else { InDictionary::Some(coded) })
    }

    /// Tries the filter at `place` on the texts that the codes of a column stand for: which rows pass. `None` if there is no
    /// memory for that.
    async fn passing_codes(
        &mut self,
        index: usize,
        (leaf, field): (usize, FieldRef),
        place: usize,
        kept: &mut Kept,
    ) -> Result<Option<BooleanBuffer>> {
        let rows = kept.row_count();
        let mut stored = None;
        let (entries, may_be_null) = match kept.codes(leaf) {
            Some(coded) => (coded.as_any_dictionary().values().clone(), coded.null_count() > 0),
            None => {
                if self.booked.try_grow(rows * size_of::<u32>()).is_err() {
                    return Ok(None);
                }
                let data_type = codes_of(field.data_type());
                let (coded, may_be_null) =
                    self.coded(index, (leaf, &field), &data_type, kept.window().as_ref()).await?;
                let entries = stored.insert(coded).entries()?;
                (entries.unwrap_or_else(|| new_empty_array(field.data_type())), may_be_null)
            }
        };
        let (passes, null_passes) = self.passing_entries(place, field, entries, may_be_null)?;
        if passes.true_count() == 0 && !null_passes {
            return Ok(Some(BooleanBuffer::new_unset(rows)));
        }
        if let Some(mut stored) = stored {
            stored.skip(kept.first())?;
            stored.read(rows)?;
            kept.keep_codes(leaf, stored.take()?);
        }
        let Some(coded) = kept.codes(leaf) else { return internal_err!("codes that are not kept") };
        let codes = coded.as_dictionary::<UInt32Type>().keys();
        let (values, passes): (_, Vec<bool>) = (codes.values(), passes.values().iter().collect());
        let is_passing = |row| passes.get(values[row] as usize).is_some_and(|passes| *passes);
        let passes = BooleanBuffer::collect_bool(rows, is_passing);
        Ok(Some(match codes.nulls() {
            Some(known) if null_passes => &(&passes & known.inner()) | &!known.inner(),
            Some(known) => &passes & known.inner(),
            None => passes,
        }))
    }

    /// Reads the wanted columns of a row group; those that are wanted so are coded.
    async fn answer(
        &mut self,
        index: usize,
        selection: Option<RowSelection>,
        kept: Option<&Kept>,
    ) -> Result<Batches> {
        let window = kept.and_then(Kept::window);
        let row_group = self.fetch(index, &self.mask.clone(), selection.as_ref().or(window.as_ref())).await?;
        Ok(Batches::new(self.columns(&self.coded), &self.mask, &row_group, self.batch_rows, selection, kept)?)
    }

    /// Reads columns of a row group for a filter.
    async fn read(
        &mut self,
        index: usize,
        mask: &ProjectionMask,
        selection: Option<RowSelection>,
        batch_rows: usize,
    ) -> Result<Batches> {
        let row_group = self.fetch(index, mask, selection.as_ref()).await?;
        Ok(Batches::new(
            self.columns(&CodedColumns::default()),
            mask,
            &row_group,
            batch_rows,
            selection,
            None,
        )?)
    }

    fn columns<'a>(&'a self, coded: &'a CodedColumns) -> Columns<'a> {
        let (schema, fields) = (self.metadata.parquet_schema(), self.schema.fields());
        Columns { schema, fields, flat: &self.flat, coded }
    }

    async fn fetch(
        &mut self,
        index: usize,
        mask: &ProjectionMask,
        selection: Option<&RowSelection>,
    ) -> Result<RowGroup> {
        let (footer, shared) = (self.metadata.metadata(), self.shared.clone());
        let reader = self.reader.as_mut();
        Ok(RowGroup::fetch(reader, footer, index, mask, selection, &mut self.fetched, shared).await?)
    }
}

/// Which rows pass, where NULL is none.
pub(super) fn passing(passes: BooleanArray) -> BooleanArray {
    if passes.null_count() > 0 { prep_null_mask_filter(&passes) } else { passes }
}

/// Marks an error as one of the query's own expressions, not of the file.
pub(super) fn of_query(error: DataFusionError) -> DataFusionError {
    into_datafusion(error.into())
}

/// The first `limit` selected rows of a selection, and how many there are.
fn limited(selection: &RowSelection, limit: usize) -> (RowSelection, usize) {
    let mut count = 0;
    let cut = |run: &RowSelector| {
        let rows = if run.skip { run.row_count } else { run.row_count.min(limit - count) };
        if !run.skip {
            count += rows;
        }
        let rest = RowSelector::skip(run.row_count - rows);
        [RowSelector { row_count: rows, ..*run }, rest]
    };
    let runs: Vec<RowSelector> = selection.iter().flat_map(cut).collect();
    (RowSelection::from(runs), count)
}
