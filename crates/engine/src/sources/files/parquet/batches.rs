//! The batches of a row group: flat columns by our loops, the others by the parquet crate's.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, RecordBatchReader,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{FilterBuilder, FilterPredicate, take};
use datafusion::arrow::datatypes::{DataType, Fields, Int64Type, Schema, SchemaRef, UInt32Type};
use datafusion::arrow::error::ArrowError;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection, RowSelector};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::SchemaDescriptor;

use super::flat::{
    Column, can_be_coded, coded_type, codes_of, column, has_codes, has_numbers, has_our_encodings, has_texts,
};
use super::kept::Kept;
use super::row_group::RowGroup;

/// Where runs of selected and of other rows are shorter on average, rows between them are decoded too, and then left out.
const RUN_ROWS_MIN: usize = 16;
/// Rows that are looked at at a time, however few pass.
const STEP_ROWS_MAX: usize = 1 << 16;
/// Runs that are passed over in any case.
const SKIPPED_ROWS_MIN: usize = 4 * RUN_ROWS_MIN;

/// The columns of a file that our loops decode, by their place in the file.
#[derive(Clone, Debug)]
pub(super) struct FlatColumns(Arc<Vec<Option<Flat>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flat {
    Numbers,
    Texts,
}

impl FlatColumns {
    /// Of columns that are read as `fields`.
    pub(super) fn new(schema: &SchemaDescriptor, fields: &Fields) -> Result<Self> {
        // What the parquet crate reads by itself: anything else it has to convert.
        let plain = parquet_to_arrow_schema(schema, None)?;
        let is_ours = |leaf: usize| {
            let root = schema.get_column_root_idx(leaf);
            let (field, plain) = (fields.get(root)?.data_type(), plain.fields.get(root)?.data_type());
            let column = schema.column(leaf);
            if field == plain && has_numbers(&column, field) {
                return Some(Flat::Numbers);
            }
            has_texts(&column, plain, field).then_some(Flat::Texts)
        };
        Ok(Self(Arc::new((0..schema.num_columns()).map(is_ours).collect())))
    }

    pub(super) fn has(&self, leaf: usize) -> bool {
        self.0[leaf].is_some()
    }

    /// Whether a column of a row group is numbers for our loops.
    pub(super) fn has_numbers(&self, row_group: &RowGroupMetaData, leaf: usize) -> bool {
        self.0[leaf] == Some(Flat::Numbers) && has_our_encodings(row_group.column(leaf))
    }

    /// Whether a column of a row group is numbers of which all pages have codes.
    pub(super) fn has_codes_of_numbers(&self, row_group: &RowGroupMetaData, leaf: usize) -> bool {
        self.0[leaf] == Some(Flat::Numbers) && has_codes(row_group.column(leaf))
    }

    /// Whether a column of a row group, read as this type, is texts of which all pages have codes.
    pub(super) fn has_codes_of_texts(
        &self,
        row_group: &RowGroupMetaData,
        leaf: usize,
        data_type: &DataType,
    ) -> bool {
        self.0[leaf] == Some(Flat::Texts)
            && *data_type == DataType::Utf8View
            && has_codes(row_group.column(leaf))
    }
}

/// The columns of a file that are wanted as codes of texts where their pages have such, or as decimals that are integers of
/// 64 bits, by their place in the file.
#[derive(Clone, Default)]
pub(super) struct CodedColumns(Vec<usize>);

impl CodedColumns {
    /// Those of these columns of the file's schema, read as `fields`, that can be.
    pub(super) fn new(schema: &SchemaDescriptor, fields: &Fields, columns: &[usize]) -> Self {
        let can_be = |leaf: &usize| {
            let root = schema.get_column_root_idx(*leaf);
            columns.contains(&root) && can_be_coded(&schema.column(*leaf), fields[root].data_type())
        };
        Self((0..schema.num_columns()).filter(can_be).collect())
    }

    pub(super) fn has(&self, leaf: usize) -> bool {
        self.0.contains(&leaf)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A column that our loops decode.
struct Ours {
    /// Its place in the batch.
    place: usize,
    values: Values,
    /// The greatest decimal that it may have, if it has such as integers.
    most: Option<i64>,
    /// Whether it was kept as codes, which are not wanted.
    is_coded: bool,
}

enum Values {
    Stored(Box<dyn Column>),
    /// Those of all rows, which were decoded for a filter.
    Kept(ArrayRef),
}

impl Ours {
    fn skip(&mut self, rows: usize) -> Result<()> {
        match &mut self.values {
            Values::Stored(column) => column.skip(rows),
            Values::Kept(values) => {
                *values = values.slice(rows, values.len() - rows);
                Ok(())
            }
        }
    }

    /// The values of the next runs, but for those that are passed over.
    fn read(&mut self, runs: &[RowSelector]) -> Result<ArrayRef> {
        let column = match &mut self.values {
            Values::Stored(column) => column,
            Values::Kept(values) => {
                // Where columns are kept runs are one.
                let rows = runs.iter().map(|run| run.row_count).sum();
                let read = values.slice(0, rows);
                *values = values.slice(rows, values.len() - rows);
                return Ok(read);
            }
        };
        for run in runs {
            match run.skip {
                true => column.skip(run.row_count)?,
                false => column.read(run.row_count)?,
            }
        }
        column.take()
    }

    /// Those of these values that pass, as they are wanted.
    fn passing(
        &self,
        values: ArrayRef,
        passing: Option<&FilterPredicate>,
    ) -> std::result::Result<ArrayRef, ArrowError> {
        let values = match passing {
            Some(passing) => passing.filter(&values)?,
            None => values,
        };
        match values.as_dictionary_opt::<UInt32Type>().filter(|_| self.is_coded) {
            Some(coded) => take(coded.values(), coded.keys(), None),
            None => Ok(values),
        }
    }

    /// Whether values that are decimals have no more digits than their type.
    fn check(&self, values: &ArrayRef) -> std::result::Result<(), &'static str> {
        let Some(most) = self.most else { return Ok(()) };
        let values = values.as_primitive::<Int64Type>().values();
        let is_within = values.iter().all(|value| value.unsigned_abs() <= most.unsigned_abs());
        if is_within { Ok(()) } else { Err("a decimal has more digits than its type") }
    }
}

/// The greatest number of so many digits.
fn most(digits: u8) -> Option<i64> {
    Some(10_i64.checked_pow(digits.into())? - 1)
}

/// How the columns of a file are read.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    pub(super) schema: &'a SchemaDescriptor,
    pub(super) fields: &'a Fields,
    pub(super) flat: &'a FlatColumns,
    pub(super) coded: &'a CodedColumns,
}

/// See the [module](self).
pub(super) struct Batches {
    schema: SchemaRef,
    /// The columns that our loops do not decode, if there are any.
    others: Option<ParquetRecordBatchReader>,
    ours: Vec<Ours>,
    /// The rows that are not done.
    rows: VecDeque<RowSelector>,
    /// Which of these pass, if columns were kept for that and not all do.
    passing: Option<BooleanBuffer>,
    /// Rows that are looked at for a batch of those that pass.
    step: usize,
    /// Whether rows that are not selected can be decoded, too.
    is_whole: bool,
    batch_rows: usize,
    is_done: bool,
}

impl Batches {
    /// The selected rows of the columns in `mask`. What is kept says itself which these are.
    pub(super) fn new(
        Columns { schema, fields, flat, coded }: Columns<'_>,
        mask: &ProjectionMask,
        row_group: &RowGroup,
        batch_rows: usize,
        selection: Option<RowSelection>,
        kept: Option<&Kept>,
    ) -> Result<Self> {
        let (mut columns, mut others, mut our_fields) = (Vec::new(), Vec::new(), Vec::new());
        let mut roots: Vec<usize> = Vec::new();
        for leaf in (0..schema.num_columns()).filter(|leaf| mask.leaf_included(*leaf)) {
            let root = schema.get_column_root_idx(leaf);
            if roots.last() != Some(&root) {
                roots.push(root);
            }
            let (described, chunk) = (schema.column(leaf), row_group.chunk(leaf));
            let Some(field) = fields.get(root).filter(|_| has_our_encodings(chunk)) else {
                others.push(leaf);
                continue;
            };
            let coded = coded.has(leaf).then(|| coded_type(chunk, field.data_type())).flatten();
            let most = match (&coded, field.data_type()) {
                (Some(DataType::Int64), DataType::Decimal128(digits, _)) => most(*digits),
                _ => None,
            };
            let data_type = coded.or_else(|| flat.has(leaf).then(|| field.data_type().clone()));
            let of_kept = kept.and_then(|kept| kept.column(leaf));
            let coded_of_kept = kept.and_then(|kept| kept.codes(leaf));
            let mut is_coded = false;
            let read = match data_type {
                Some(data_type) if of_kept.is_some_and(|column| *column.data_type() == data_type) => {
                    of_kept.map(|column| (Values::Kept(column.clone()), data_type))
                }
                Some(data_type)
                    if coded_of_kept.is_some_and(|column| {
                        is_coded = *column.data_type() == codes_of(&data_type);
                        is_coded || *column.data_type() == data_type
                    }) =>
                {
                    coded_of_kept.map(|column| (Values::Kept(column.clone()), data_type))
                }
                Some(data_type) => {
                    let pages = row_group.pages(leaf)?;
                    let mut stored = column(pages, row_group.place(leaf), &described, &data_type);
                    // What is kept begins with these.
                    if let (Some(stored), Some(kept)) = (&mut stored, kept) {
                        stored.skip(kept.first())?;
                    }
                    stored.map(|stored| (Values::Stored(stored), data_type))
                }
                None => None,
            };
            match read {
                Some((values, data_type)) => {
                    let place = roots.len() - 1;
                    columns.push(Ours { place, values, most, is_coded });
                    our_fields.push((place, Arc::new(field.as_ref().clone().with_data_type(data_type))));
                }
                None => others.push(leaf),
            }
        }
        let mut rows: VecDeque<RowSelector> = match (&selection, kept) {
            (Some(selection), _) => selection.iter().copied().filter(|run| run.row_count > 0).collect(),
            (None, Some(kept)) => VecDeque::from([RowSelector::select(kept.row_count())]),
            (None, None) => VecDeque::from([RowSelector::select(row_group.rows())]),
        };
        while rows.pop_back_if(|run| run.skip).is_some() {}
        let others = if others.is_empty() && !columns.is_empty() {
            None
        } else {
            let mask = ProjectionMask::leaves(schema, others);
            let selection = selection.or_else(|| kept.and_then(Kept::selection));
            let levels = parquet_to_arrow_field_levels(schema, mask, Some(fields))?;
            let reader =
                ParquetRecordBatchReader::try_new_with_row_groups(&levels, row_group, batch_rows, selection)?;
            Some(reader)
        };
        let of_others = others.as_ref().map_or_else(|| Arc::new(Schema::empty()), RecordBatchReader::schema);
        let schema = in_order(roots.len(), our_fields, of_others.fields().iter().cloned())?;
        let schema = Arc::new(Schema::new(schema));
        let passing = kept.and_then(Kept::passing).cloned();
        let step = match &passing {
            // As many bits as make words.
            Some(passing) => {
                let rows = batch_rows * passing.len() / passing.count_set_bits().max(1);
                rows.next_multiple_of(64).min(STEP_ROWS_MAX)
            }
            None => batch_rows,
        };
        let is_whole = row_group.is_whole();
        Ok(Self { schema, others, ours: columns, rows, passing, step, is_whole, batch_rows, is_done: false })
    }

    /// The next so many selected rows, with those that are passed over; fewer if there are no more.
    fn next_rows(&mut self, count: usize) -> (Vec<RowSelector>, usize) {
        let (mut runs, mut taken) = (Vec::new(), 0);
        while taken < count
            && let Some(run) = self.rows.pop_front()
        {
            if run.skip {
                runs.push(run);
                continue;
            }
            let rows = run.row_count.min(count - taken);
            runs.push(RowSelector::select(rows));
            taken += rows;
            if rows < run.row_count {
                self.rows.push_front(RowSelector::select(run.row_count - rows));
            }
        }
        (runs, taken)
    }

    /// The next rows that are looked at, and which of them pass: as many as the other columns have, if there are others.
    fn next_passing(&mut self, wanted: Option<usize>) -> Result<Option<(RowSelector, BooleanBuffer)>> {
        while let Some(passing) = &self.passing
            && !passing.is_empty()
        {
            let rows = match wanted {
                Some(wanted) => passing.set_indices().nth(wanted.max(1) - 1).map_or(0, |last| last + 1),
                None => self.step.min(passing.len()),
            };
            let (now, rest) = (passing.slice(0, rows), passing.slice(rows, passing.len() - rows));
            self.passing = Some(rest);
            if now.count_set_bits() > 0 {
                return Ok(Some((RowSelector::select(rows), now)));
            }
            if wanted.is_some() {
                break;
            }
            self.ours.iter_mut().try_for_each(|column| column.skip(rows))?;
        }
        Ok(None)
    }

    fn batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        if self.is_done {
            return Ok(None);
        }
        let others = match &mut self.others {
            None => None,
            Some(others) => match others.next().transpose()? {
                Some(batch) => Some(batch),
                None => return Ok(None),
            },
        };
        if self.ours.is_empty() {
            return Ok(others);
        }
        let (runs, kept, count) = if self.passing.is_some() {
            let next = self.next_passing(others.as_ref().map(RecordBatch::num_rows))?;
            let Some((run, passing)) = next else { return Ok(None) };
            let count = passing.count_set_bits();
            (vec![run], Some(BooleanArray::new(passing, None)), count)
        } else {
            let rows = others.as_ref().map_or(self.batch_rows, RecordBatch::num_rows);
            let (runs, count) = self.next_rows(rows);
            if count == 0 {
                return Ok(None);
            }
            let (runs, kept) = if self.is_whole { joined(runs) } else { (runs, None) };
            (runs, kept, count)
        };
        // Made once for all columns.
        let kept = kept.map(|kept| FilterBuilder::new(&kept).optimize().build());
        let mut ours = Vec::with_capacity(self.ours.len());
        self.is_done = self.passing.as_ref().map_or(self.rows.is_empty(), BooleanBuffer::is_empty);
        for mut column in std::mem::take(&mut self.ours) {
            let values = column.read(&runs)?;
            let values = column.passing(values, kept.as_ref())?;
            column.check(&values).map_err(|reason| {
                let name = self.schema.field(column.place).name();
                ParquetError::General(format!("column '{name}': {reason}"))
            })?;
            ours.push((column.place, values));
            // The pages of a column that is done make room for those of the next.
            if !self.is_done {
                self.ours.push(column);
            }
        }
        let others = others.iter().flat_map(RecordBatch::columns).cloned();
        let columns = in_order(self.schema.fields().len(), ours, others)?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map(Some)
    }
}

/// Short runs as one, if there are many, and which of its rows are selected.
fn joined(runs: Vec<RowSelector>) -> (Vec<RowSelector>, Option<BooleanArray>) {
    let is_passed_over = |run: &RowSelector| run.skip && run.row_count >= SKIPPED_ROWS_MIN;
    let near = runs.iter().filter(|run| !is_passed_over(run));
    let (count, rows) = near.fold((0, 0), |(count, rows), run| (count + 1, rows + run.row_count));
    if count < 2 || rows >= RUN_ROWS_MIN * count {
        return (runs, None);
    }
    let (mut steps, mut kept) = (Vec::<RowSelector>::new(), BooleanBufferBuilder::new(rows));
    for run in runs {
        if is_passed_over(&run) {
            steps.push(run);
            continue;
        }
        kept.append_n(run.row_count, !run.skip);
        match steps.last_mut().filter(|last| !last.skip) {
            Some(last) => last.row_count += run.row_count,
            None => steps.push(RowSelector::select(run.row_count)),
        }
    }
    (steps, Some(BooleanArray::new(kept.finish(), None)))
}

/// Puts our columns, or their fields, in their places between the others.
fn in_order<T>(
    count: usize,
    ours: Vec<(usize, T)>,
    mut others: impl Iterator<Item = T>,
) -> std::result::Result<Vec<T>, ParquetError> {
    let mut ours = ours.into_iter().peekable();
    let column = |place| match ours.next_if(|(of_ours, _)| *of_ours == place) {
        Some((_, ours)) => Some(ours),
        None => others.next(),
    };
    let columns: Option<Vec<T>> = (0..count).map(column).collect();
    columns.ok_or_else(|| ParquetError::General("a batch lacks a column".to_owned()))
}

impl Iterator for Batches {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}
