//! What the details of parts say of a filter: stripes that surely lack the values that it wants, and zones of stripes of
//! which no row can pass.
//!
//! Details only help: those that cannot be read are reported as damage, and leave out nothing.

use std::collections::HashSet;

use arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column as ColumnName, ScalarValue};
use datafusion::physical_expr::utils::{Guarantee, LiteralGuarantee};
use datafusion::physical_optimizer::pruning::PruningPredicate;
use keirin_kernels::compare::Comparison;
use keirin_storage::Error as StorageError;
use keirin_storage::part::{Constant, PartReader, Sketch, Zones};
use keirin_storage::schema::DataType;

use super::super::open::{OpenPart, OpenTable, Place};
use super::super::reading::encoded::value;
use super::super::reading::prune::{End, bounds};
use crate::expressions::uuids;

type Result<T> = std::result::Result<T, StorageError>;

/// Takes out of the stripes from `first` on those that have none of the values that a filter wants, by their filters.
pub(crate) fn leave_out(
    table: &OpenTable,
    part: &OpenPart,
    first: usize,
    kept: &mut [bool],
    predicate: &PruningPredicate,
) {
    for guarantee in predicate.literal_guarantees() {
        if guarantee.guarantee == Guarantee::In
            && let Err(error) = leave_out_by(table, part, first, kept, guarantee)
        {
            // It also makes the damage known.
            drop(table.explain(error));
        }
    }
}

fn leave_out_by(
    table: &OpenTable,
    part: &OpenPart,
    first: usize,
    kept: &mut [bool],
    guarantee: &LiteralGuarantee,
) -> Result<()> {
    /// One in about a hundred values passes a filter that does not have it, so of more nothing is left out.
    const VALUES_MAX: usize = 128;
    let Ok(index) = table.schema.index_of(&guarantee.column.name) else { return Ok(()) };
    let Place::Here(column) = part.column(index) else { return Ok(()) };
    let (reader, column) = (&part.reader, *column);
    let is_wanted = kept.contains(&true) && guarantee.literals.len() <= VALUES_MAX;
    if !is_wanted || !reader.has_filters(column)? {
        return Ok(());
    }
    // NULL is equal to nothing.
    let literals = guarantee.literals.iter().filter(|literal| !literal.is_null());
    let wanted = table.schema.field(index).data_type();
    let hash = |literal: &ScalarValue| {
        if literal.data_type() == *wanted { hash(reader, column, literal) } else { None }
    };
    let Some(hashes) = literals.map(hash).collect::<Option<Vec<u64>>>() else { return Ok(()) };
    if reader.is_fetched() && kept.len() > 1 {
        reader.expect_filters(column)?;
    }
    for (stripe, is_kept) in (first..).zip(kept).filter(|(_, is_kept)| **is_kept) {
        *is_kept = reader.may_have(column, stripe, &hashes)?;
    }
    Ok(())
}

/// The hash of a value as the part has it.
fn hash(reader: &PartReader, column: usize, literal: &ScalarValue) -> Option<u64> {
    if reader.fields()[column].data_type == DataType::Uuid {
        // UUIDs are text in queries, and equal to other text in no case.
        let bytes = uuids::parse(literal.try_as_str()??)?;
        return reader.hash(column, &Constant::Integer(i128::from_le_bytes(bytes)));
    }
    if let ScalarValue::BinaryView(Some(bytes)) = literal {
        return reader.hash(column, &Constant::Text(bytes));
    }
    reader.hash(column, &value(literal, Comparison::Equal)?.constant())
}

/// For stripes of which some zones have no rows that pass a filter: the stripe, and which of its zones may have some.
pub(crate) fn zones(
    table: &OpenTable,
    part: &OpenPart,
    kept: &[bool],
    predicate: &PruningPredicate,
    columns: &[usize],
) -> Vec<(usize, Vec<bool>)> {
    let found = zones_of_columns(part, columns).map_err(|error| drop(table.explain(error)));
    let Some((_, first)) = found.as_ref().ok().and_then(|found| found.first()) else { return Vec::new() };
    let of_stripe = |stripe: usize| first.of_stripe(stripe);
    let Some(last) = kept.len().checked_sub(1) else { return Vec::new() };
    let containers =
        PartZones { table, part, zones: found.as_deref().unwrap_or_default(), count: of_stripe(last).end };
    let Ok(passing) = predicate.prune(&containers) else { return Vec::new() };
    let stripes = kept.iter().enumerate().filter(|(_, is_kept)| **is_kept);
    let zones = stripes.map(|(stripe, _)| (stripe, passing[of_stripe(stripe)].to_vec()));
    zones.filter(|(_, zones)| zones.contains(&false)).collect()
}

/// The zones of those of the columns that have some.
fn zones_of_columns<'a>(part: &'a OpenPart, columns: &[usize]) -> Result<Vec<(usize, &'a Zones)>> {
    let mut found = Vec::new();
    for index in columns {
        if let Place::Here(column) = part.column(*index)
            && let Some(zones) = part.reader.zones(*column)?
        {
            found.push((*index, zones));
        }
    }
    Ok(found)
}

/// The zones of a part, in the words of DataFusion's pruning.
struct PartZones<'a> {
    table: &'a OpenTable,
    part: &'a OpenPart,
    zones: &'a [(usize, &'a Zones)],
    count: usize,
}

impl PartZones<'_> {
    fn bounds(&self, column: &ColumnName, end: End) -> Option<ArrayRef> {
        let index = self.table.schema.index_of(&column.name).ok()?;
        let (_, zones) = self.zones.iter().find(|(other, _)| *other == index)?;
        let Place::Here(place) = self.part.column(index) else { return None };
        let bound = |zone: usize| {
            let (least, greatest) = zones.bounds(zone)?;
            Some(if matches!(end, End::Min) { least } else { greatest })
        };
        bounds((0..self.count).map(bound), &self.part.reader.fields()[*place].data_type, end)
    }
}

impl PruningStatistics for PartZones<'_> {
    fn min_values(&self, column: &ColumnName) -> Option<ArrayRef> {
        self.bounds(column, End::Min)
    }

    fn max_values(&self, column: &ColumnName) -> Option<ArrayRef> {
        self.bounds(column, End::Max)
    }

    fn num_containers(&self) -> usize {
        self.count
    }

    fn null_counts(&self, _: &ColumnName) -> Option<ArrayRef> {
        None
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        None
    }

    fn contained(&self, _: &ColumnName, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// The approximate count of distinct values of a column in all parts that have a sketch of it; `None` if there is none,
/// or it lies where reading it takes long.
pub(crate) fn distinct(table: &OpenTable, index: usize) -> Option<u64> {
    let mut merged: Option<Sketch> = None;
    for part in table.parts.iter().flatten() {
        let Place::Here(column) = part.column(index) else { return None };
        if part.reader.is_fetched() {
            return None;
        }
        let sketch = part.reader.sketch(*column).map_err(|error| drop(table.explain(error)));
        match (&mut merged, sketch) {
            (Some(merged), Ok(Some(sketch))) => merged.merge(sketch),
            (None, Ok(Some(sketch))) => merged = Some(sketch.clone()),
            (_, Ok(None) | Err(())) => {}
        }
    }
    merged.map(|sketch| sketch.estimate())
}
