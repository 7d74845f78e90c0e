//! The groups that come first, for `GROUP BY ... ORDER BY count(*) DESC LIMIT 10`.
//!
//! Where a sort that keeps few rows begins with aggregates, these alone say which groups it may keep. Only their keys
//! are made: most groups of a large table end as a number that was compared once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Scalar, UInt32Array};
use arrow::compute::kernels::cmp;
use arrow::compute::{SortColumn, SortOptions, lexsort_to_indices, take};
use arrow::datatypes::DataType;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// Groups that are compared at a time.
const PIECE_ROWS: u32 = 1 << 14;

/// What a sort keeps of groups.
#[derive(Clone, Debug)]
pub(super) struct First {
    count: usize,
    /// The aggregates that the order begins with, by their place among all of them.
    order: Vec<(usize, SortOptions)>,
    /// Whether the order has nothing else.
    is_whole: bool,
}

/// Values of which comparing says what sorting does.
fn is_compared(data_type: &DataType) -> bool {
    use DataType::{BinaryView, Boolean, Date32, Date64, Duration, Timestamp, Utf8, Utf8View};
    data_type.is_numeric()
        || matches!(
            data_type,
            Boolean | Date32 | Date64 | Timestamp(..) | Duration(_) | Utf8 | Utf8View | BinaryView
        )
}

impl First {
    /// What `sort` keeps of its input.
    pub(super) fn of(sort: &SortExec) -> Option<Self> {
        let order = sort
            .expr()
            .iter()
            .map_while(|sorted| Some((sorted.expr.downcast_ref::<Column>()?.index(), sorted.options)));
        let order: Vec<_> = order.collect();
        let is_whole = order.len() == sort.expr().len();
        (!order.is_empty()).then_some(Self { count: sort.fetch()?, order, is_whole })
    }

    /// The same of the input of a projection.
    pub(super) fn below(&self, projection: &ProjectionExec) -> Option<Self> {
        self.with_order(|column| Some(projection.expr()[column].expr.downcast_ref::<Column>()?.index()))
    }

    /// The same of groups, the first `key_count` of whose columns are their keys.
    pub(super) fn of_groups(&self, key_count: usize, plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let schema = plan.schema();
        let is_compared = |column: usize| is_compared(schema.field(column).data_type());
        self.with_order(|column| column.checked_sub(key_count).filter(|_| is_compared(column)))
    }

    /// The order as far as `place` knows where its columns are.
    fn with_order(&self, place: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let order = self.order.iter().map_while(|(column, options)| Some((place(*column)?, *options)));
        let order: Vec<_> = order.collect();
        let is_whole = self.is_whole && order.len() == self.order.len();
        (!order.is_empty()).then_some(Self { count: self.count, order, is_whole })
    }

    /// How many groups are kept.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The groups that may be kept, in the order of their numbers; all if it does not say.
    pub(super) fn choose(&self, aggregates: &[ArrayRef]) -> Result<Option<UInt32Array>> {
        let leading = &aggregates[self.order[0].0];
        let group_count = leading.len();
        // The place of NULL is left to the sort.
        if group_count <= self.count || leading.null_count() > 0 {
            return Ok(None);
        }
        let group_count =
            u32::try_from(group_count).map_err(|_| internal_datafusion_err!("groups have 32 bits"))?;
        let mut chosen: Vec<u32> = (0..PIECE_ROWS.min(group_count)).collect();
        let mut last = self.cut(aggregates, &mut chosen)?;
        let mut enough = 2 * chosen.len();
        for start in (PIECE_ROWS..group_count).step_by(PIECE_ROWS as usize) {
            let piece = leading.slice(start as usize, PIECE_ROWS.min(group_count - start) as usize);
            let ahead = self.ahead(&piece, &last, self.is_whole && self.order.len() == 1)?;
            chosen.extend(ahead.values().set_indices_u32().map(|row| start + row));
            if chosen.len() >= enough.max(PIECE_ROWS as usize) {
                last = self.cut(aggregates, &mut chosen)?;
                // Each cut pays for itself, however many are equal.
                enough = 2 * chosen.len();
            }
        }
        self.cut(aggregates, &mut chosen)?;
        chosen.sort_unstable();
        Ok(Some(chosen.into()))
    }

    /// Which values of the leading aggregate are ahead of `last`, or equal unless `strictly`.
    fn ahead(&self, values: &ArrayRef, last: &ArrayRef, strictly: bool) -> Result<BooleanArray> {
        let last = Scalar::new(last);
        Ok(match (self.order[0].1.descending, strictly) {
            (true, true) => cmp::gt(values, &last),
            (true, false) => cmp::gt_eq(values, &last),
            (false, true) => cmp::lt(values, &last),
            (false, false) => cmp::lt_eq(values, &last),
        }?)
    }

    /// Leaves of `chosen` those that may be kept; gives the leading aggregate of the last that is.
    fn cut(&self, aggregates: &[ArrayRef], chosen: &mut Vec<u32>) -> Result<ArrayRef> {
        let rows = UInt32Array::from(std::mem::take(chosen));
        let order = if self.is_whole { &self.order[..] } else { &self.order[..1] };
        let columns = order.iter().map(|(aggregate, options)| {
            Ok(SortColumn { values: take(&aggregates[*aggregate], &rows, None)?, options: Some(*options) })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let kept = lexsort_to_indices(&columns, Some(self.count))?;
        let values = &columns[0].values;
        let last = values.slice(kept.value(kept.len() - 1) as usize, 1);
        if self.is_whole {
            chosen.extend(kept.values().iter().map(|place| rows.value(*place as usize)));
        } else {
            let ahead = self.ahead(values, &last, false)?;
            chosen.extend(ahead.values().set_indices().map(|place| rows.value(place)));
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    /// Numbers of which many are equal, in no order.
    fn numbers(modulus: u64) -> Vec<u64> {
        (0..50_000_u64)
            .map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40)
            .map(|row| row % modulus)
            .collect()
    }

    fn rows(first: &First, aggregates: &[ArrayRef]) -> Vec<u32> {
        first.choose(aggregates).unwrap().expect("some are chosen").values().to_vec()
    }

    #[test]
    fn groups_that_come_first_are_chosen() {
        for modulus in [1, 3, 1_000, u64::MAX] {
            for (count, descending) in [(1, true), (10, false), (3_000, true)] {
                let values = numbers(modulus);
                let options = SortOptions { descending, nulls_first: descending };
                let mut sorted = values.clone();
                sorted.sort_unstable();
                if descending {
                    sorted.reverse();
                }
                let integers: ArrayRef =
                    Arc::new(Int64Array::from_iter_values(values.iter().map(|value| *value as i64)));
                let at = |row: &u32| values[*row as usize];
                let first = First { count, order: vec![(0, options)], is_whole: true };
                let mut found: Vec<u64> =
                    rows(&first, std::slice::from_ref(&integers)).iter().map(at).collect();
                found.sort_unstable();
                let mut wanted = sorted[..count].to_vec();
                wanted.sort_unstable();
                assert_eq!(found, wanted, "{count} of {modulus}");

                // All that are equal to the last, which something else puts in order.
                let first = First { is_whole: false, ..first };
                let last = sorted[count - 1];
                let is_kept = |value: u64| if descending { value >= last } else { value <= last };
                let wanted: Vec<u32> =
                    (0..).zip(&values).filter(|(_, value)| is_kept(**value)).map(|(row, _)| row).collect();
                assert_eq!(rows(&first, std::slice::from_ref(&integers)), wanted);

                // By a second aggregate that differs everywhere.
                let ascending = SortOptions { descending: false, nulls_first: false };
                let places: ArrayRef =
                    Arc::new(Float64Array::from_iter_values((0..50_000).rev().map(f64::from)));
                let first = First { count, order: vec![(1, options), (0, ascending)], is_whole: true };
                let mut wanted: Vec<u32> = (0..50_000).collect();
                wanted
                    .sort_by_key(|row| (if descending { u64::MAX - at(row) } else { at(row) }, 50_000 - row));
                wanted.truncate(count);
                wanted.sort_unstable();
                assert_eq!(rows(&first, &[places, integers]), wanted);
            }
        }
    }

    #[test]
    fn few_groups_and_nulls_are_left_to_the_sort() {
        let first = First { count: 2, order: vec![(0, SortOptions::default())], is_whole: true };
        let few: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2));
        assert!(first.choose(&[few]).unwrap().is_none());
        let nulls: ArrayRef =
            Arc::new((0..50_000).map(|row| (row > 0).then_some(row)).collect::<Int64Array>());
        assert!(first.choose(&[nulls]).unwrap().is_none());
    }
}
