//! The rows of a stripe that pass all filters.
//!
//! Filters come first, each with its columns alone and for the rows that are left; then the other columns are
//! read for the rows that passed (late materialisation: Abadi et al., "Materialization Strategies in a
//! Column-Oriented DBMS", ICDE 2007). Which filter is next is learnt from stripe to stripe: the one that costs
//! least for each row that it drops (Hellerstein and Stonebraker, "Predicate Migration", SIGMOD 1993). What can fail
//! for a row is asked last, of the rows that pass all else.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
    UInt32Array, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::{CastOptions, cast_with_options, filter, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::metrics::Count;
use keirin_codecs::frame::Kind;
use keirin_kernels::bitmaps::{and, not, positions};
use keirin_kernels::gather::gather_bits;
use keirin_kernels::{BitBuffer, Bits, Level, Selection, count_ones};
use keirin_storage::Error as StorageError;
use keirin_storage::part::{PartReader, Total, Verify, ZONE_ROWS};

use super::super::arrow::{array, text_array};
use super::super::open::{OpenPart, OpenTable, Place};
use super::blocks::BlockKey;
use super::encoded::Condition;
use super::filter::Filter;
use super::lengths::{Length, lengths_of};

/// What reading counts.
#[derive(Clone, Debug)]
pub(super) struct ReadCounts {
    pub(super) bytes: Count,
    pub(super) rows_dropped: Count,
    /// Blocks that were found decoded.
    pub(super) cached: Count,
}

/// A stripe of which rows are wanted.
pub(super) struct Stripe<'a> {
    pub(super) table: &'a OpenTable,
    /// Which of the parts that are open.
    part_index: usize,
    pub(super) part: &'a OpenPart,
    pub(super) number: usize,
    pub(super) counts: &'a ReadCounts,
    left: Left,
    row_count: usize,
    /// Columns by their place in the table's schema, of the rows that are left.
    read: Vec<Option<ArrayRef>>,
}

/// Rows of a stripe that are read later.
pub(super) struct Rest {
    part_index: usize,
    number: usize,
    rows: Vec<u32>,
    read: Vec<Option<ArrayRef>>,
}

impl Rest {
    /// The stripe with these rows.
    pub(super) fn stripe<'a>(self, table: &'a OpenTable, counts: &'a ReadCounts) -> Result<Stripe<'a>> {
        let Self { part_index, number, rows, read } = self;
        let part = table.parts[part_index].as_ref().map_err(|error| external(error.clone()))?;
        Ok(Stripe {
            table,
            part_index,
            part,
            number,
            counts,
            row_count: rows.len(),
            left: Left::Rows(rows),
            read,
        })
    }
}

/// The rows of a stripe that are left.
enum Left {
    All,
    /// A bit for each row of the stripe; which rows these are is found out when somebody reads them.
    Marked(BitBuffer, OnceCell<Vec<u32>>),
    Rows(Vec<u32>),
}

impl Left {
    /// The rows; all if it does not say.
    fn rows(&self) -> Option<&[u32]> {
        match self {
            Self::All => None,
            Self::Marked(marks, rows) => Some(rows.get_or_init(|| positions(Level::best(), marks.as_bits()))),
            Self::Rows(rows) => Some(rows),
        }
    }
}

impl<'a> Stripe<'a> {
    pub(super) fn new(
        table: &'a OpenTable,
        (part_index, part): (usize, &'a OpenPart),
        number: usize,
        counts: &'a ReadCounts,
    ) -> Self {
        let rows = part.reader.stripe(number);
        let row_count = usize::try_from(rows.end - rows.start).expect("a stripe has few rows");
        let level = Level::best();
        let deleted = part.deletions.stripe(u32::try_from(number).expect("a part has few stripes"));
        let left = deleted.map(|deleted| not(level, deleted));
        let row_count = left.as_ref().map_or(row_count, |left| count_ones(level, left.as_bits()));
        let left = left.map_or(Left::All, |left| Left::Marked(left, OnceCell::new()));
        let read = vec![None; table.schema.fields().len()];
        Self { table, part_index, part, number, counts, left, row_count, read }
    }

    /// Rows that are left.
    pub(super) fn row_count(&self) -> usize {
        self.row_count
    }

    /// Drops the rows that do not pass `filters`, and those behind the first `limit`.
    pub(super) fn filter(&mut self, filters: &[Filter], limit: Option<usize>) -> Result<()> {
        let before = self.row_count;
        // Other threads change the ranks meanwhile.
        let ranked = |filter| Some((Filter::rank(filter, &self.table.schema)?, filter));
        let mut waiting: Vec<(f64, &Filter)> = filters.iter().filter_map(ranked).collect();
        waiting
            .sort_by(|(a_rank, a), (b_rank, b)| a.can_fail.cmp(&b.can_fail).then(a_rank.total_cmp(b_rank)));
        for (_, filter) in waiting {
            if self.row_count == 0 {
                break;
            }
            match self.apply(filter) {
                // What others narrow by may fail for rows that a filter behind it drops.
                Err(_) if filter.is_optional => {}
                applied => applied?,
            }
        }
        self.counts.rows_dropped.add(before - self.row_count);
        if let Some(limit) = limit.filter(|limit| *limit < self.row_count) {
            self.keep_first(limit);
        }
        Ok(())
    }

    /// The rows that are left, with columns of these places in the table's schema.
    pub(super) fn batch(&mut self, columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
        let columns = columns.iter().map(|index| self.column(*index)).collect::<Result<_>>()?;
        self.batch_of(columns, schema)
    }

    /// As [`batch`](Self::batch); whatever `schema` says, columns at the places `coded` are dictionaries if they are text
    /// that is stored as such, and integers of 64 bits if they are decimals that have room there.
    pub(super) fn coded_batch(
        &mut self,
        columns: &[usize],
        coded: &[usize],
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let columns = columns.iter().enumerate().map(|(place, index)| {
            if coded.contains(&place) { self.coded(*index) } else { self.column(*index) }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut fields = schema.fields().to_vec();
        for place in coded {
            let data_type = columns[*place].data_type();
            if fields[*place].data_type() != data_type {
                fields[*place] = Arc::new(fields[*place].as_ref().clone().with_data_type(data_type.clone()));
            }
        }
        self.batch_of(columns, &Arc::new(Schema::new(fields)))
    }

    fn batch_of(&self, columns: Vec<ArrayRef>, schema: &SchemaRef) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
        batch.map_err(|error| self.mistyped(error.into()))
    }

    /// Keeps the first `count` rows that are left; returns the others, if there are any.
    pub(super) fn split_off(&mut self, count: usize) -> Option<Rest> {
        let rest = self.row_count.checked_sub(count).filter(|rest| *rest > 0)?;
        let row = |row| u32::try_from(row).expect("a stripe has few rows");
        let rows = match self.left.rows() {
            Some(rows) => rows[count..].to_vec(),
            None => (row(count)..row(self.row_count)).collect(),
        };
        let read = self.read.iter().map(|column| Some(column.as_ref()?.slice(count, rest))).collect();
        self.keep_first(count);
        Some(Rest { part_index: self.part_index, number: self.number, rows, read })
    }

    /// Gives back the memory of a column that nobody wants again.
    pub(super) fn forget(&mut self, index: usize) {
        self.read[index] = None;
    }

    /// Adds the values of a column in stripes of one part, ascending, to `total`, and returns how many they are, if
    /// all rows are left, storage can add them, they were not decoded, and no stripe between is missing.
    pub(super) fn sum(stripes: &[Self], index: usize, total: &mut Total) -> Result<Option<u64>> {
        let Some((first, column, mut numbers)) = Self::whole(stripes, index) else { return Ok(None) };
        if stripes.iter().any(|stripe| stripe.read[index].is_some()) {
            return Ok(None);
        }
        let added = first.part.reader.sum(column, numbers.clone(), total);
        let added = added.map_err(|error| first.unreadable(error))?;
        let is_read = numbers.any(|stripe| first.part.reader.statistics(column, stripe).sum.is_none());
        if added.is_some() && is_read {
            stripes.iter().for_each(|stripe| stripe.count_bytes(column));
        }
        Ok(added)
    }

    /// How many values a column has in stripes of one part, ascending, if all rows are left and no stripe between is
    /// missing.
    pub(super) fn value_count(stripes: &[Self], index: usize) -> Option<u64> {
        let (first, column, numbers) = Self::whole(stripes, index)?;
        Some(first.part.reader.value_count(column, numbers))
    }

    /// The first of some stripes of one part, the place there of a column, and their numbers, if all rows are left
    /// and no stripe between is missing.
    fn whole(stripes: &[Self], index: usize) -> Option<(&Self, usize, Range<usize>)> {
        let (first, last) = (stripes.first()?, stripes.last()?);
        let Place::Here(column) = first.part.column(index) else { return None };
        let numbers = first.number..last.number + 1;
        let is_whole = stripes.iter().all(|stripe| matches!(stripe.left, Left::All));
        (is_whole && numbers.len() == stripes.len()).then_some((first, *column, numbers))
    }

    fn apply(&mut self, filter: &Filter) -> Result<()> {
        let started = Instant::now();
        let before = self.row_count;
        let narrowed =
            filter.narrowed.as_ref().map(|narrowed| narrowed.look(&self.table.schema)).transpose()?;
        let (condition, is_weaker) = match &narrowed {
            Some((current, _)) => (current.condition.as_deref(), current.is_weaker),
            None => (filter.condition.as_ref(), false),
        };
        let found = match condition {
            Some(condition) => self.on_encoded(filter, condition)?,
            None => None,
        };
        let is_left = found.is_none() || is_weaker;
        match found {
            Some(marks) if !matches!(self.left, Left::Rows(_)) => self.keep_marked(&marks)?,
            Some(marks) => self.keep(&self.of_marked(&marks))?,
            None => {}
        }
        if is_left && self.row_count > 0 {
            let passes = self.on_decoded(filter, usize::MAX)?;
            self.keep(&passes)?;
        }
        filter.learn(started.elapsed().as_nanos(), before, self.row_count);
        Ok(())
    }

    /// Which of the rows that are left pass, without nulls; decoded ones are looked at so many at a time.
    pub(super) fn passes(&mut self, filter: &Filter, rows_max: usize) -> Result<BooleanArray> {
        if let Some(condition) = &filter.condition
            && let Some(marks) = self.on_encoded(filter, condition)?
        {
            return Ok(self.of_marked(&marks));
        }
        self.on_decoded(filter, rows_max)
    }

    fn on_decoded(&mut self, filter: &Filter, rows_max: usize) -> Result<BooleanArray> {
        let batch = self.batch(&filter.columns, &filter.schema)?;
        let mut all = BooleanBufferBuilder::new(self.row_count);
        for start in (0..self.row_count).step_by(rows_max) {
            let rows = batch.slice(start, rows_max.min(self.row_count - start));
            let passes = filter.expression.evaluate(&rows)?.into_array(rows.num_rows())?;
            let passes = passes.as_boolean();
            match passes.null_count() {
                0 => all.append_buffer(passes.values()),
                _ => all.append_buffer(prep_null_mask_filter(passes).values()),
            }
        }
        Ok(BooleanArray::new(all.finish(), None))
    }

    /// Of which rows of the whole stripe the condition of a filter is true, if storage can say so faster than it decodes them.
    fn on_encoded(&self, filter: &Filter, condition: &Condition) -> Result<Option<BitBuffer>> {
        /// Fewer rows are better decoded by themselves, but for text in dictionaries.
        const SHARE_MIN: usize = 4;
        /// Where more pass, a column that is wanted anyway is better decoded as a whole.
        const PASSING_MAX: f64 = 0.5;
        let Place::Here(column) = self.part.column(condition.column) else { return Ok(None) };
        let stripe = self.part.reader.stripe(self.number);
        let is_dense = (self.row_count * SHARE_MIN) as u64 >= stripe.end - stripe.start;
        let passing = filter.passing();
        let is_decoded = self.read[condition.column].is_some();
        if is_decoded || filter.is_read_anyway && passing > PASSING_MAX {
            return Ok(None);
        }
        let found = condition.rows(&self.part.reader, *column, self.number, !is_dense);
        let found = found.map_err(|error| self.unreadable(error))?;
        if found.is_some() {
            self.count_bytes(*column);
        }
        Ok(found)
    }

    /// Drops the rows of zones that have none that pass.
    pub(super) fn keep_zones(&mut self, zones: &[bool]) -> Result<()> {
        const WORDS: usize = ZONE_ROWS.div_ceil(u64::BITS as usize);
        let rows = self.part.reader.stripe(self.number);
        let row_count = usize::try_from(rows.end - rows.start).expect("a stripe has few rows");
        let words = zones.iter().flat_map(|is_kept| [if *is_kept { u64::MAX } else { 0 }; WORDS]);
        let words = words.take(row_count.div_ceil(u64::BITS as usize)).collect();
        let before = self.row_count;
        self.keep_marked(&BitBuffer::from_words(words, row_count))?;
        self.counts.rows_dropped.add(before - self.row_count);
        Ok(())
    }

    /// Which of the rows that are left have a mark, of one for each row of the stripe.
    fn of_marked(&self, marks: &BitBuffer) -> BooleanArray {
        let marks = match self.left.rows() {
            None => marks.clone(),
            Some(rows) => gather_bits(Level::best(), marks.as_bits(), rows),
        };
        let len = marks.len();
        BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(marks.into_words()), 0, len), None)
    }

    /// Drops rows without a mark, of which there is one for each row of the stripe.
    fn keep_marked(&mut self, marks: &BitBuffer) -> Result<()> {
        let level = Level::best();
        let both = match &self.left {
            Left::Marked(left, _) => and(level, left.as_bits(), marks.as_bits()),
            Left::All | Left::Rows(_) => marks.clone(),
        };
        let passed = count_ones(level, both.as_bits());
        if passed == self.row_count {
            return Ok(());
        }
        if self.read.iter().any(Option::is_some) {
            let passes = self.of_marked(marks);
            self.filter_read(&passes)?;
        }
        self.left = Left::Marked(both, OnceCell::new());
        self.row_count = passed;
        Ok(())
    }

    /// Drops rows that do not pass, of columns that were read, too.
    fn keep(&mut self, passes: &BooleanArray) -> Result<()> {
        let mask = passes.values();
        let bits = Bits::new(mask.values(), mask.offset(), mask.len());
        let passed = mask.count_set_bits();
        if passed == self.row_count {
            return Ok(());
        }
        self.filter_read(passes)?;
        self.left = match self.left.rows() {
            None => Left::Marked(BitBuffer::from_words(bits.words().collect(), bits.len()), OnceCell::new()),
            Some(rows) => {
                let places = positions(Level::best(), bits);
                Left::Rows(places.into_iter().map(|place| rows[place as usize]).collect())
            }
        };
        self.row_count = passed;
        Ok(())
    }

    fn filter_read(&mut self, passes: &BooleanArray) -> Result<()> {
        for column in self.read.iter_mut().flatten() {
            *column = without_unused_text(filter(column, passes)?);
        }
        Ok(())
    }

    fn keep_first(&mut self, count: usize) {
        self.left = Left::Rows(match self.left.rows() {
            Some(rows) => rows[..count].to_vec(),
            None => (0..u32::try_from(count).expect("a stripe has few rows")).collect(),
        });
        self.row_count = count;
        for column in self.read.iter_mut().flatten() {
            *column = column.slice(0, count);
        }
    }

    /// The rows that are left of a column, by its place in the table's schema.
    pub(super) fn column(&mut self, index: usize) -> Result<ArrayRef> {
        if let Some(column) = &self.read[index] {
            return Ok(column.clone());
        }
        let column = match self.part.column(index) {
            Place::Numbers => Arc::new(self.row_numbers()) as ArrayRef,
            Place::Here(column) => self.stored(*column, self.table.schema.field(index).data_type(), false)?,
            Place::Cast(column, stored_type) => {
                let options = CastOptions { safe: false, ..CastOptions::default() };
                let stored = self.stored(*column, stored_type, false)?;
                cast_with_options(&stored, self.table.schema.field(index).data_type(), &options)?
            }
            Place::Nowhere(value) => value.to_array_of_size(self.row_count)?,
            Place::Length(length) => self.lengths(*length)?,
        };
        self.read[index] = Some(column.clone());
        Ok(column)
    }

    /// As [`column`](Self::column), but of what nobody has read, text is a dictionary if it is stored as one, and
    /// decimals are integers of 64 bits if all have room.
    fn coded(&mut self, index: usize) -> Result<ArrayRef> {
        let data_type = self.table.schema.field(index).data_type();
        match self.part.column(index) {
            Place::Here(column) if self.read[index].is_none() && is_text(&self.part.reader, *column) => {
                self.stored(*column, data_type, true)
            }
            Place::Here(column)
                if self.read[index].is_none() && matches!(data_type, DataType::Decimal128(..)) =>
            {
                let (reader, selection) = self.reader(*column);
                let narrow = reader.read_narrow(*column, self.number, selection);
                match narrow.map_err(|error| self.unreadable(error))? {
                    Some(narrow) => {
                        array(narrow, &DataType::Int64).map_err(|error| self.mistyped(error.into()))
                    }
                    None => self.column(index),
                }
            }
            _ => self.column(index),
        }
    }

    fn stored(&self, column: usize, data_type: &DataType, is_coded: bool) -> Result<ArrayRef> {
        // What is kept was verified, and is not verified again.
        let is_once = self.part.reader.verify() == Verify::Once;
        let Some(blocks) = self.table.blocks.as_ref().filter(|_| is_once) else {
            return self.decoded(column, data_type, is_coded);
        };
        let key = BlockKey { part: self.part.reader.key(), column, stripe: self.number };
        let is_wanted = |kept: &DataType| match kept {
            DataType::Dictionary(_, entries) => **entries == *data_type,
            kept => kept == data_type,
        };
        if let Some(mut block) = blocks.get(&key, is_wanted) {
            self.counts.cached.add(1);
            if let Some(dictionary) = block.as_any_dictionary_opt()
                && !is_coded
            {
                block = take(dictionary.values(), dictionary.keys(), None)?;
            }
            return Ok(match self.left.rows() {
                None => block,
                Some(rows) => without_unused_text(take(&block, &UInt32Array::from(rows.to_vec()), None)?),
            });
        }
        let started = Instant::now();
        let decoded = self.decoded(column, data_type, is_coded)?;
        if matches!(self.left, Left::All) {
            blocks.offer(key, &decoded, started.elapsed());
        }
        Ok(decoded)
    }

    fn decoded(&self, column: usize, data_type: &DataType, is_coded: bool) -> Result<ArrayRef> {
        let (reader, selection) = self.reader(column);
        let array = match data_type {
            DataType::Utf8View | DataType::BinaryView if is_text(reader, column) => {
                let text = reader.read_text(column, self.number, selection);
                text_array(text.map_err(|error| self.unreadable(error))?, data_type, is_coded)
            }
            _ => {
                let values = reader.read(column, self.number, selection);
                array(values.map_err(|error| self.unreadable(error))?, data_type)
            }
        };
        array.map_err(|error| self.mistyped(error.into()))
    }

    fn lengths(&mut self, length: Length) -> Result<ArrayRef> {
        match self.part.column(length.of) {
            Place::Here(column) if self.read[length.of].is_none() && is_text(&self.part.reader, *column) => {
                let (reader, selection) = self.reader(*column);
                let lengths = reader.read_lengths(*column, self.number, selection, length.unit);
                let lengths = lengths.map_err(|error| self.unreadable(error))?;
                array(lengths, &DataType::Int32).map_err(|error| self.mistyped(error.into()))
            }
            _ => lengths_of(&self.column(length.of)?, length.unit),
        }
    }

    /// What reads a column, and the rows that are left; its bytes are counted.
    fn reader(&self, column: usize) -> (&'a PartReader, Selection<'_>) {
        /// Where fewer rows than one in so many are left, each is found by its number.
        const DENSE: usize = 4;
        self.count_bytes(column);
        let selection = match &self.left {
            Left::Marked(marks, _) if self.row_count * DENSE >= marks.len() => {
                Selection::Bits(marks.as_bits())
            }
            left => left.rows().map_or(Selection::All, Selection::Rows),
        };
        (&self.part.reader, selection)
    }

    fn count_bytes(&self, column: usize) {
        let bytes = self.part.reader.stored_bytes(column, self.number);
        self.counts.bytes.add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    fn unreadable(&self, error: StorageError) -> DataFusionError {
        external(self.table.explain(error))
    }

    fn row_numbers(&self) -> UInt64Array {
        let first = self.part.first_number(self.number);
        match self.left.rows() {
            None => (first..first + self.row_count as u64).collect(),
            Some(rows) => rows.iter().map(|row| first + u64::from(*row)).collect(),
        }
    }

    /// Values that are not what the column promises.
    fn mistyped(&self, error: DataFusionError) -> DataFusionError {
        let name = &self.table.table.definition.name;
        error.context(format!("table '{name}', block {}", self.number))
    }
}

/// Whether a column is text or bytes on disk, too: UUIDs are text in queries alone.
fn is_text(reader: &PartReader, column: usize) -> bool {
    reader.fields()[column].data_type.values() == Some(Kind::Text)
}

pub(super) fn external(error: crate::error::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A few rows of text must not keep that of all rows in memory.
fn without_unused_text(column: ArrayRef) -> ArrayRef {
    /// Text may take so many times what is used of it.
    const WASTE_MAX: usize = 4;
    match column.data_type() {
        DataType::Utf8View => {
            let views = column.as_string_view();
            let held: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
            if held > WASTE_MAX * views.total_buffer_bytes_used() { Arc::new(views.gc()) } else { column }
        }
        DataType::BinaryView => {
            let views = column.as_binary_view();
            let held: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
            if held > WASTE_MAX * views.total_buffer_bytes_used() { Arc::new(views.gc()) } else { column }
        }
        _ => column,
    }
}
