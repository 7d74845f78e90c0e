//! What statistics say of stripes: which of them a filter cannot match, and what to tell the optimizer.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt64Array, new_null_array};
use arrow::compute::{SortOptions, cast, concat, sort_to_indices};
use arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{Column as ColumnName, ColumnStatistics, ScalarValue, Statistics};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion_functions_aggregate_common::min_max::{max_batch, min_batch};
use keirin_codecs::frame::Kind;
use keirin_kernels::BitBuffer;
use keirin_storage::DeletionVector;
use keirin_storage::column::{Column, Flags, Values};
use keirin_storage::part::Statistics as BlockStatistics;
use keirin_storage::schema::DataType;

use super::super::administration::details;
use super::super::arrow::array;
use super::super::open::{OpenPart, OpenTable, Place};
use super::super::types::arrow_type;
use crate::sources::narrowing::{self, Narrowing};

/// The rows that are wanted first.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// The place of a column in the table's schema.
    pub(super) column: usize,
    /// Whether these are the rows with its greatest values, not with its least.
    pub(super) is_descending: bool,
}

/// Which of the stripes may have rows that pass a filter, by their statistics and by what else is known of the part, which
/// may have to be read.
pub(super) fn kept(
    table: &OpenTable,
    part: &OpenPart,
    stripes: Range<usize>,
    predicate: Option<&PruningPredicate>,
) -> Vec<bool> {
    let first = stripes.start;
    let mut kept = kept_by_statistics(table, part, stripes, predicate);
    if let Some(predicate) = predicate {
        details::leave_out(table, part, first, &mut kept, predicate);
    }
    kept
}

/// Which of the stripes may have rows that pass a filter, by their statistics.
fn kept_by_statistics(
    table: &OpenTable,
    part: &OpenPart,
    stripes: Range<usize>,
    predicate: Option<&PruningPredicate>,
) -> Vec<bool> {
    let all = vec![true; stripes.len()];
    let Some(predicate) = predicate else { return all };
    predicate.prune(&Stripes { table, part, stripes }).unwrap_or(all)
}

/// How many parts may have rows that pass a filter, as it is now.
pub(super) fn part_count(table: &OpenTable, filter: &Arc<dyn PhysicalExpr>) -> usize {
    let predicate = over_statistics(filter, table);
    let is_read = |part: &&OpenPart| {
        let stripes = 0..part.reader.stripe_count();
        kept_by_statistics(table, part, stripes, predicate.as_deref()).contains(&true)
    };
    let unreadable = table.parts.iter().filter(|part| part.is_err()).count();
    table.parts.iter().flatten().filter(is_read).count() + unreadable
}

/// The filter as one over statistics of stripes, if it can be one.
pub(super) fn over_statistics(
    filter: &Arc<dyn PhysicalExpr>,
    table: &OpenTable,
) -> Option<Arc<PruningPredicate>> {
    narrowing::over_statistics(filter, builder(table))
}

fn builder(table: &OpenTable) -> PruningPredicateBuilder<'static> {
    PruningPredicateBuilder::new().with_file_schema(table.schema.clone())
}

/// Whether a filter that others narrow excludes all rows of a stripe by now.
pub(super) fn excludes(narrowing: &mut Narrowing, table: &OpenTable, part: &OpenPart, stripe: usize) -> bool {
    let predicate = narrowing.current(builder(table));
    predicate.is_some() && !kept(table, part, stripe..stripe + 1, predicate)[0]
}

/// Puts stripes, given by their parts and their places in them, into the order of their least values of a column, or of
/// their greatest, descending. Stripes of which that is not known come first.
pub(super) fn order(table: &OpenTable, first: First, stripes: &mut [(usize, usize)]) {
    let name = ColumnName::from_name(table.schema.field(first.column).name());
    let end = if first.is_descending { End::Max } else { End::Min };
    let (mut starts, mut bounds) = (Vec::new(), Vec::new());
    let mut count = 0;
    for part in &table.parts {
        starts.push(count);
        let Ok(part) = part else { return };
        let all = 0..part.reader.stripe_count();
        count += all.len();
        let found = Stripes { table, part, stripes: all }.bounds(&name, end);
        // Bounds of another type, or none, say nothing of what comes first.
        let Some(found) =
            found.filter(|found| found.data_type() == table.schema.field(first.column).data_type())
        else {
            return;
        };
        bounds.push(found);
    }
    let bounds: Vec<&dyn Array> = bounds.iter().map(AsRef::as_ref).collect();
    let options = SortOptions { descending: first.is_descending, nulls_first: true };
    let sorted = concat(&bounds).and_then(|bounds| sort_to_indices(&bounds, Some(options), None));
    let Ok(sorted) = sorted else { return };
    let mut places = vec![0; count];
    for (place, index) in sorted.values().iter().enumerate() {
        places[*index as usize] = place;
    }
    stripes.sort_by_key(|(part, stripe)| places[starts[*part] + stripe]);
}

/// The least and the greatest value of an integer, a date or a time in each stripe, as numbers; none for stripes without
/// values. `None` if that is not known.
pub(super) fn spans(table: &OpenTable, column: usize) -> Option<Vec<(i64, i64)>> {
    let field = table.schema.field(column);
    if !(field.data_type().is_integer() || field.data_type().is_temporal()) {
        return None;
    }
    let name = ColumnName::from_name(field.name());
    let mut spans = Vec::new();
    for part in &table.parts {
        let part = part.as_ref().ok()?;
        let stripes = Stripes { table, part, stripes: 0..part.reader.stripe_count() };
        let bounds = |end| cast(&stripes.bounds(&name, end)?, &ArrowType::Int64).ok();
        let (least, greatest) = (bounds(End::Min)?, bounds(End::Max)?);
        let bounds = least.as_primitive::<Int64Type>().iter().zip(greatest.as_primitive::<Int64Type>());
        for (stripe, bounds) in bounds.enumerate() {
            match bounds {
                (Some(least), Some(greatest)) => spans.push((least, greatest)),
                _ if part.statistics(column, stripe).is_some_and(|block| block.nulls == block.rows) => {}
                _ => return None,
            }
        }
    }
    Some(spans)
}

/// Stripes of a part, in the words of DataFusion's pruning.
struct Stripes<'a> {
    table: &'a OpenTable,
    part: &'a OpenPart,
    stripes: Range<usize>,
}

#[derive(Clone, Copy)]
pub(crate) enum End {
    Min,
    Max,
}

impl End {
    /// The bound of a block.
    pub(crate) fn of(self, block: &BlockStatistics) -> Option<&[u8]> {
        match self {
            Self::Min => block.min.as_deref(),
            Self::Max => block.max.as_deref(),
        }
    }
}

impl Stripes<'_> {
    fn bounds(&self, column: &ColumnName, end: End) -> Option<ArrayRef> {
        let index = self.table.schema.index_of(&column.name).ok()?;
        let wanted = self.table.schema.field(index).data_type();
        match self.part.column(index) {
            Place::Here(place) => {
                let data_type = &self.part.reader.fields()[*place].data_type;
                let blocks = self.stripes.clone().map(|stripe| self.part.reader.statistics(*place, stripe));
                bounds(blocks.map(|block| end.of(block)), data_type, end)
            }
            Place::Nowhere(value) if !value.is_null() => value.to_array_of_size(self.stripes.len()).ok(),
            Place::Nowhere(_) => Some(new_null_array(wanted, self.stripes.len())),
            Place::Numbers | Place::Cast(..) | Place::Length(_) => None,
        }
    }

    fn row_count(&self, stripe: usize) -> u64 {
        let rows = self.part.reader.stripe(stripe);
        rows.end - rows.start
    }
}

impl PruningStatistics for Stripes<'_> {
    fn min_values(&self, column: &ColumnName) -> Option<ArrayRef> {
        self.bounds(column, End::Min)
    }

    fn max_values(&self, column: &ColumnName) -> Option<ArrayRef> {
        self.bounds(column, End::Max)
    }

    fn num_containers(&self) -> usize {
        self.stripes.len()
    }

    fn null_counts(&self, column: &ColumnName) -> Option<ArrayRef> {
        let index = self.table.schema.index_of(&column.name).ok()?;
        let counts = self.stripes.clone().map(|stripe| match self.part.column(index) {
            Place::Nowhere(value) if value.is_null() => Some(self.row_count(stripe)),
            Place::Numbers | Place::Nowhere(_) => Some(0),
            _ => self.part.statistics(index, stripe).map(|statistics| u64::from(statistics.nulls)),
        });
        Some(Arc::new(UInt64Array::from(counts.collect::<Option<Vec<_>>>()?)))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let counts = self.stripes.clone().map(|stripe| self.row_count(stripe));
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &ColumnName, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Least or greatest values of blocks or zones, given by their bytes; NULL where none is known.
pub(crate) fn bounds<'a>(
    bytes: impl Iterator<Item = Option<&'a [u8]>>,
    data_type: &DataType,
    end: End,
) -> Option<ArrayRef> {
    let bytes: Vec<Option<&[u8]>> = bytes.collect();
    macro_rules! numbers {
        ($variant:ident, $number:ty) => {{
            let number = |bytes: &Option<&[u8]>| match bytes {
                Some(bytes) => (*bytes).try_into().ok().map(<$number>::from_le_bytes),
                None => Some(<$number>::default()),
            };
            Values::$variant(bytes.iter().map(number).collect::<Option<Vec<$number>>>()?.into())
        }};
    }
    let mut is_known: Vec<bool> = bytes.iter().map(Option::is_some).collect();
    let values = match data_type.values()? {
        // Of lists, statistics are those of their lengths.
        _ if !data_type.children().is_empty() => return None,
        Kind::Flags => {
            let flags: BitBuffer = bytes.iter().map(|bytes| *bytes == Some(&[1][..])).collect();
            Values::Flags(Flags::Owned(flags))
        }
        Kind::I8 => numbers!(I8, i8),
        Kind::I16 => numbers!(I16, i16),
        Kind::I32 => numbers!(I32, i32),
        Kind::I64 => numbers!(I64, i64),
        Kind::I128 => numbers!(I128, i128),
        Kind::U8 => numbers!(U8, u8),
        Kind::U16 => numbers!(U16, u16),
        Kind::U32 => numbers!(U32, u32),
        Kind::U64 => numbers!(U64, u64),
        Kind::F32 => numbers!(F32, f32),
        Kind::F64 => numbers!(F64, f64),
        Kind::Text => {
            let (mut offsets, mut joined) = (vec![0], Vec::new());
            for (bound, is_known) in bytes.iter().zip(&mut is_known) {
                let bound = match bound {
                    Some(bytes) if data_type.is_utf8() => text_bound(bytes, end),
                    other => other.map(<[u8]>::to_vec),
                };
                *is_known = bound.is_some();
                joined.extend(bound.unwrap_or_default());
                offsets.push(i32::try_from(joined.len()).ok()?);
            }
            Values::Text { offsets: offsets.into(), bytes: joined.into() }
        }
    };
    let validity = Some(Flags::Owned(is_known.into_iter().collect()));
    array(Column { validity, values }, &arrow_type(data_type)).ok()
}

/// A bound that is text: bounds of long text are cut, and upper ones increased, at any byte.
fn text_bound(bytes: &[u8], end: End) -> Option<Vec<u8>> {
    let valid = match std::str::from_utf8(bytes) {
        Ok(_) => return Some(bytes.to_vec()),
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    match end {
        End::Min => Some(valid.as_bytes().to_vec()),
        End::Max => {
            let mut chars: Vec<char> = valid.chars().collect();
            while let Some(last) = chars.pop() {
                if let Some(next) = char::from_u32(u32::from(last) + 1) {
                    chars.push(next);
                    return Some(chars.into_iter().collect::<String>().into_bytes());
                }
            }
            None
        }
    }
}

/// What is known of the table's rows, for columns of these places in its schema.
pub(super) fn statistics(table: &OpenTable, columns: &[usize]) -> Statistics {
    let row_count = usize::try_from(table.table.row_count()).map_or(Precision::Absent, Precision::Exact);
    let is_whole = table.parts.iter().all(Result::is_ok);
    let column_statistics = columns.iter().map(|index| {
        let statistics = || if is_whole { column_statistics(table, *index) } else { None };
        let statistics = || statistics().unwrap_or_else(ColumnStatistics::new_unknown);
        table.statistics[*index].get_or_init(statistics).clone()
    });
    let column_statistics = column_statistics.collect();
    Statistics { num_rows: row_count, total_byte_size: Precision::Absent, column_statistics }
}

fn column_statistics(table: &OpenTable, index: usize) -> Option<ColumnStatistics> {
    let data_type = table.schema.field(index).data_type();
    let (mut nulls, mut distinct, mut least, mut greatest) = (0, 0, None, None);
    let mut is_undeleted = true;
    // What is the greatest of floats is a matter of taste where there are NaNs.
    let mut is_exact = !data_type.is_floating();
    for part in table.parts.iter().flatten() {
        is_undeleted &= part.deletions == DeletionVector::default();
        for stripe in 0..part.reader.stripe_count() {
            let block = part.statistics(index, stripe)?;
            nulls += block.nulls as usize;
            is_exact &= block.nulls == block.rows || block.flags.min_is_exact() && block.flags.max_is_exact();
        }
        if let Place::Here(place) = part.column(index) {
            distinct = distinct.max(usize::try_from(part.reader.distinct(*place)).unwrap_or(0));
        }
        let stripes = Stripes { table, part, stripes: 0..part.reader.stripe_count() };
        let name = ColumnName::from_name(table.schema.field(index).name());
        for (end, extreme) in [(End::Min, &mut least), (End::Max, &mut greatest)] {
            let bounds = stripes.bounds(&name, end)?;
            let bound = match end {
                End::Min => min_batch(&bounds),
                End::Max => max_batch(&bounds),
            };
            let bound = bound.ok()?;
            let is_closer = match (&*extreme, end) {
                (None, _) => true,
                (Some(current), End::Min) => bound < *current,
                (Some(current), End::Max) => bound > *current,
            };
            if !bound.is_null() && is_closer {
                *extreme = Some(bound);
            }
        }
    }
    // Of one part the footer knows it better.
    if table.parts.len() > 1
        && let Some(merged) = details::distinct(table, index)
    {
        let rows = usize::try_from(table.table.row_count()).unwrap_or(usize::MAX);
        distinct = distinct.max(usize::try_from(merged).unwrap_or(usize::MAX).min(rows));
    }
    let known = |value: Option<ScalarValue>| match value {
        Some(value) if is_exact && is_undeleted => Precision::Exact(value),
        Some(value) => Precision::Inexact(value),
        None => Precision::Absent,
    };
    Some(ColumnStatistics {
        null_count: if is_undeleted { Precision::Exact(nulls) } else { Precision::Inexact(nulls) },
        min_value: known(least),
        max_value: known(greatest),
        distinct_count: if distinct > 0 { Precision::Inexact(distinct) } else { Precision::Absent },
        ..ColumnStatistics::new_unknown()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_text_that_was_cut_are_bounds_and_text() {
        let check = |bytes: &[u8], least: &str, greatest: Option<&str>| {
            assert_eq!(text_bound(bytes, End::Min).as_deref(), Some(least.as_bytes()));
            assert_eq!(text_bound(bytes, End::Max).as_deref(), greatest.map(str::as_bytes));
        };
        check("aß".as_bytes(), "aß", Some("aß"));
        check(b"az\xc3", "az", Some("a{"));
        check(b"az\xff", "az", Some("a{"));
        check("a\u{10ffff}\u{7ff}".as_bytes().split_last().unwrap().1, "a\u{10ffff}", Some("b"));
        check("\u{d7ff}".as_bytes().split_last().unwrap().1, "", None);
        check(b"\xff", "", None);
    }
}
