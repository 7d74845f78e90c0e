//! `count`, whose `count(DISTINCT x)` by groups keeps all values of all groups in one table.
//!
//! DataFusion has a hash table for each group; one for text takes 25 KB before it holds anything. Here a pair
//! of group and value is a row of one table, as in GROUP BY: it takes only the memory it needs, and reports
//! it. All other forms of `count` are DataFusion's own.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{and, filter, is_not_null, prep_null_mask_filter, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

pub(super) fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(CountValues { inner: Count::new() })
}

/// See the [module](self).
#[derive(Debug, PartialEq, Eq, Hash)]
struct CountValues {
    inner: Count,
}

/// Whether values of this type are counted here; DataFusion does well with integers.
fn is_ours(args: &AccumulatorArgs) -> bool {
    args.is_distinct
        && args.exprs.len() == 1
        && match args.expr_fields[0].data_type() {
            DataType::Null | DataType::Dictionary(..) => false,
            data_type => !data_type.is_integer(),
        }
}

impl AggregateUDFImpl for CountValues {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        is_ours(&args) || self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if is_ours(&args) {
            return Ok(Box::new(DistinctValues::new(args.expr_fields[0].data_type())?));
        }
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }
}

/// The accumulator of the distinct values of groups.
struct DistinctValues {
    schema: SchemaRef,
    /// The distinct pairs of a group and a value.
    rows: Box<dyn GroupValues>,
    /// How many pairs each group has.
    counts: Vec<i64>,
    /// Scratch: the row numbers of the pairs that were added last.
    interned: Vec<usize>,
}

impl DistinctValues {
    fn new(data_type: &DataType) -> Result<Self> {
        let fields =
            vec![Field::new("group", DataType::UInt64, false), Field::new("value", data_type.clone(), true)];
        let schema = Arc::new(Schema::new(fields));
        let rows = new_group_values(schema.clone(), &GroupOrdering::None)?;
        Ok(Self { schema, rows, counts: Vec::new(), interned: Vec::new() })
    }

    /// Adds values without NULLs, each to the group at the same position.
    fn add(&mut self, groups: UInt64Array, values: ArrayRef) -> Result<()> {
        let mut next = self.rows.len();
        self.interned.clear();
        let groups: ArrayRef = Arc::new(groups);
        self.rows.intern(&[groups.clone(), values], &mut self.interned)?;
        let groups = groups.as_primitive::<UInt64Type>().values();
        for (row, group) in self.interned.iter().zip(groups) {
            // New pairs get consecutive row numbers.
            if *row == next {
                next += 1;
                self.counts[usize::try_from(*group).expect("it was an index")] += 1;
            }
        }
        Ok(())
    }

    /// Takes the values of the first `groups` groups, sorted by group; later groups are renumbered from 0.
    fn take(&mut self, groups: usize) -> Result<ArrayRef> {
        let columns = self.rows.emit(EmitTo::All)?;
        self.rows.clear_shrink(0);
        let (numbers, values) = (columns[0].as_primitive::<UInt64Type>(), &columns[1]);
        let is_taken: BooleanArray =
            numbers.values().iter().map(|number| Some(*number < groups as u64)).collect();
        let taken = filter(numbers, &is_taken)?;
        let order = sort_to_indices(&taken, None, None)?;
        let sorted = take(&filter(values, &is_taken)?, &order, None)?;
        self.counts.drain(..groups);
        if !self.counts.is_empty() {
            let is_left = arrow::compute::not(&is_taken)?;
            let left = filter(numbers, &is_left)?;
            let left: UInt64Array = left.as_primitive::<UInt64Type>().unary(|number| number - groups as u64);
            self.rows = new_group_values(self.schema.clone(), &GroupOrdering::None)?;
            self.interned.clear();
            self.rows.intern(&[Arc::new(left), filter(values, &is_left)?], &mut self.interned)?;
        }
        Ok(sorted)
    }

    fn emitted(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.counts.len(),
            EmitTo::First(groups) => groups,
        }
    }
}

/// Which values count: those that are not NULL and pass the condition.
fn counted(values: &ArrayRef, condition: Option<&BooleanArray>) -> Result<BooleanArray> {
    let is_there = is_not_null(values)?;
    Ok(match condition {
        Some(condition) if condition.null_count() > 0 => and(&is_there, &prep_null_mask_filter(condition))?,
        Some(condition) => and(&is_there, condition)?,
        None => is_there,
    })
}

/// Cuts `values` into lists of these lengths.
fn lists(values: ArrayRef, lengths: impl Iterator<Item = usize>) -> ListArray {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    ListArray::new(field, OffsetBuffer::from_lengths(lengths), values, None)
}

impl GroupsAccumulator for DistinctValues {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        condition: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.counts.resize(total_num_groups, 0);
        let groups: UInt64Array = group_indices.iter().map(|group| *group as u64).collect();
        let values = &values[0];
        if condition.is_none() && values.logical_null_count() == 0 {
            return self.add(groups, values.clone());
        }
        let counted = counted(values, condition)?;
        let groups = filter(&groups, &counted)?.as_primitive::<UInt64Type>().clone();
        self.add(groups, filter(values, &counted)?)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.counts.resize(total_num_groups, 0);
        let lists = values[0].as_list::<i32>();
        let lengths = lists.offsets().lengths();
        let groups = group_indices.iter().zip(lengths);
        let groups: UInt64Array =
            groups.flat_map(|(group, length)| std::iter::repeat_n(*group as u64, length)).collect();
        let first = lists.offsets().first().map_or(0, |first| usize::try_from(*first).expect("an offset"));
        let values = lists.values().slice(first, groups.len());
        self.add(groups, values)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.emitted(emit_to);
        let counts = Int64Array::from(self.counts[..groups].to_vec());
        self.take(groups)?;
        Ok(Arc::new(counts))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.emitted(emit_to);
        let lengths: Vec<usize> =
            self.counts[..groups].iter().map(|count| usize::try_from(*count).expect("a count")).collect();
        let values = self.take(groups)?;
        Ok(vec![Arc::new(lists(values, lengths.into_iter()))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        condition: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let counted = counted(&values[0], condition)?;
        let lengths = counted.values().iter().map(usize::from);
        Ok(vec![Arc::new(lists(filter(&values[0], &counted)?, lengths))])
    }

    fn size(&self) -> usize {
        self.rows.size()
            + self.counts.capacity() * size_of::<i64>()
            + self.interned.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringViewArray};

    use super::*;

    fn text(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringViewArray::from(values.to_vec()))
    }

    fn counts(array: &ArrayRef) -> Vec<i64> {
        array.as_primitive::<arrow::datatypes::Int64Type>().values().to_vec()
    }

    #[test]
    fn each_value_of_a_group_counts_once() {
        let mut distinct = DistinctValues::new(&DataType::Utf8View).unwrap();
        let long = "a text that is longer than a view";
        let values = text(&[Some("a"), Some("a"), Some("b"), None, Some(long), Some(long), Some("a")]);
        distinct.update_batch(std::slice::from_ref(&values), &[0, 0, 0, 0, 2, 2, 2], None, 4).unwrap();
        let condition = BooleanArray::from(vec![Some(true), Some(false), None]);
        let more = text(&[Some("c"), Some("d"), Some("e")]);
        distinct.update_batch(&[more], &[3, 3, 3], Some(&condition), 4).unwrap();
        assert!(distinct.size() > 0);
        assert_eq!(counts(&distinct.evaluate(EmitTo::First(2)).unwrap()), [2, 0]);
        // The remaining groups were renumbered and kept their values.
        let again = text(&[Some("a"), Some("c"), Some("x")]);
        distinct.update_batch(&[again], &[0, 1, 1], None, 2).unwrap();
        assert_eq!(counts(&distinct.evaluate(EmitTo::All).unwrap()), [2, 2]);
        assert!(distinct.evaluate(EmitTo::All).unwrap().is_empty());
    }

    #[test]
    fn states_are_merged() {
        let values = text(&[Some("a"), Some("b"), None, Some("a")]);
        let mut one = DistinctValues::new(&DataType::Utf8View).unwrap();
        let converted = one.convert_to_state(std::slice::from_ref(&values), None).unwrap();
        one.update_batch(&[values], &[1, 0, 0, 1], None, 3).unwrap();
        let state = one.state(EmitTo::All).unwrap();
        let mut all = DistinctValues::new(&DataType::Utf8View).unwrap();
        all.merge_batch(&state, &[0, 1, 2], 3).unwrap();
        all.merge_batch(&converted, &[0, 0, 0, 2], 3).unwrap();
        // The values of a sliced state do not begin at the start of its buffer.
        all.merge_batch(&[state[0].slice(1, 1)], &[2], 3).unwrap();
        assert_eq!(counts(&all.evaluate(EmitTo::All).unwrap()), [2, 1, 1]);
    }

    #[test]
    fn floats_count_as_groups_do() {
        let mut distinct = DistinctValues::new(&DataType::Float64).unwrap();
        let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN, f64::NAN, 1.0]));
        distinct.update_batch(&[values], &[0; 4], None, 1).unwrap();
        assert_eq!(counts(&distinct.evaluate(EmitTo::All).unwrap()), [2]);
    }
}
