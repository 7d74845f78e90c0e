//! `min` and `max` of floats, lists and structs by groups, with the results that they have without groups.
//!
//! DataFusion compares the floats of groups with the CPU's `<`, by which a NaN is neither less nor greater
//! than anything: whether it becomes the result depends on the row that comes last. Without groups, and here,
//! a NaN is greater than all numbers (IEEE 754's total order). In lists and structs a NULL is greater than
//! any value, as in ORDER BY. All other types are DataFusion's own.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, BooleanArray, new_null_array};
use arrow::compute::{cast, not, nullif, prep_null_mask_filter};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use arrow::row::{OwnedRow, Row, RowConverter};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator,
    ReversedUDAF, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use crate::compile::rules::{is_nested_in_order, nested_order};
use crate::types::sql_type_name;

/// See the [module](self).
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extreme<F> {
    inner: F,
}

/// `min` of an expression.
pub(crate) fn smallest(expr: Expr) -> Expr {
    static MIN: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::new_from_impl(Extreme::<Min>::default())));
    let function = AggregateFunction::new_udf(MIN.clone(), vec![expr], false, None, Vec::new(), None);
    Expr::AggregateFunction(function)
}

/// `min` or `max`.
pub(crate) trait Which:
    AggregateUDFImpl + Debug + Default + Eq + Hash + Send + Sync + 'static
{
    /// How a value must compare with the extreme so far to replace it.
    const CLOSER: Ordering;
}

impl Which for Min {
    const CLOSER: Ordering = Ordering::Less;
}

impl Which for Max {
    const CLOSER: Ordering = Ordering::Greater;
}

fn groups<T: ArrowPrimitiveType + Send>(
    data_type: &DataType,
    closer: Ordering,
) -> Box<dyn GroupsAccumulator> {
    let keep = move |kept: &mut T::Native, value: T::Native| {
        if value.compare(*kept) == closer {
            *kept = value;
        }
    };
    let farthest = match closer {
        Ordering::Less => T::Native::MAX_TOTAL_ORDER,
        _ => T::Native::MIN_TOTAL_ORDER,
    };
    Box::new(PrimitiveGroupsAccumulator::<T, _>::new(data_type, keep).with_starting_value(farthest))
}

/// The accumulator for lists or structs.
#[derive(Debug)]
struct Nested {
    converter: RowConverter,
    closer: Ordering,
    kept: ScalarValue,
    /// The sort key of `kept`; `None` before the first value.
    key: Option<OwnedRow>,
}

impl Accumulator for Nested {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = &values[0];
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        let mut best = None;
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let key = rows.row(row);
            let than = best.map_or_else(|| self.key.as_ref().map(OwnedRow::row), |best| Some(rows.row(best)));
            if than.is_none_or(|than| key.cmp(&than) == self.closer) {
                best = Some(row);
            }
        }
        if let Some(best) = best {
            self.key = Some(rows.row(best).owned());
            // A copy, because the value as read would keep its whole batch in memory.
            self.kept = ScalarValue::try_from_array(values, best)?.compacted();
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.kept.clone()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.kept.clone())
    }

    fn size(&self) -> usize {
        let key = self.key.as_ref().map_or(0, |key| key.as_ref().len());
        size_of_val(self) + self.converter.size() + key + self.kept.size()
    }
}

/// The accumulator for lists or structs over a frame that slides.
#[derive(Debug)]
struct NestedFrame {
    converter: RowConverter,
    closer: Ordering,
    data_type: DataType,
    /// How many values came into the frame so far, and how many left it. NULLs do not count.
    come: u64,
    gone: u64,
    /// The sort keys of the values in the frame that no later one beats, by their number: the first is the
    /// extreme, and each other one becomes it when those before have left.
    candidates: VecDeque<(u64, OwnedRow)>,
}

impl Accumulator for NestedFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = self.converter.convert_columns(&values[..1])?;
        for row in (0..values[0].len()).filter(|row| values[0].is_valid(*row)) {
            let key = rows.row(row);
            while self.candidates.pop_back_if(|(_, last)| last.row().cmp(&key) != self.closer).is_some() {}
            self.candidates.push_back((self.come, key.owned()));
            self.come += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.gone += (values[0].len() - values[0].logical_null_count()) as u64;
        while self.candidates.pop_front_if(|(number, _)| *number < self.gone).is_some() {}
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some((_, key)) = self.candidates.front() else { return ScalarValue::try_from(&self.data_type) };
        ScalarValue::try_from_array(&values_of(&self.converter, [key.row()], &self.data_type)?, 0)
    }

    fn size(&self) -> usize {
        let keys: usize = self.candidates.iter().map(|(_, key)| size_of_val(key) + key.as_ref().len()).sum();
        size_of_val(self) + self.converter.size() + keys
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame has no state to merge")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame has no state to merge")
    }
}

/// The values with these sort keys.
fn values_of<'a>(
    converter: &RowConverter,
    keys: impl IntoIterator<Item = Row<'a>>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let values = converter.convert_rows(keys)?.swap_remove(0);
    Ok(if values.data_type() == data_type { values } else { cast(&values, data_type)? })
}

/// The accumulator for lists or structs by groups, which keeps each extreme as its sort key.
struct NestedGroups {
    converter: RowConverter,
    closer: Ordering,
    data_type: DataType,
    kept: Vec<Option<Box<[u8]>>>,
    key_bytes: usize,
}

impl GroupsAccumulator for NestedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.kept.resize(group_count, None);
        let rows = self.converter.convert_columns(&values[..1])?;
        for (row, group) in groups.iter().enumerate() {
            let is_wanted = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if !is_wanted || values[0].is_null(row) {
                continue;
            }
            let (key, kept) = (rows.row(row), &mut self.kept[*group]);
            if kept.as_deref().is_none_or(|kept| key.as_ref().cmp(kept) == self.closer) {
                self.key_bytes += key.as_ref().len();
                self.key_bytes -= kept.as_ref().map_or(0, |kept| kept.len());
                *kept = Some(key.as_ref().into());
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let kept = emit_to.take_needed(&mut self.kept);
        self.key_bytes -= kept.iter().flatten().map(|key| key.len()).sum::<usize>();
        let null = self.converter.convert_columns(&[new_null_array(&self.data_type, 1)])?;
        let parser = self.converter.parser();
        let rows = kept.iter().map(|key| key.as_deref().map_or_else(|| null.row(0), |key| parser.parse(key)));
        values_of(&self.converter, rows, &self.data_type)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.update_batch(states, groups, None, group_count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let Some(filter) = filter else { return Ok(vec![values[0].clone()]) };
        Ok(vec![nullif(&values[0], &not(&prep_null_mask_filter(filter))?)?])
    }

    fn size(&self) -> usize {
        self.converter.size() + self.kept.capacity() * size_of::<Option<Box<[u8]>>>() + self.key_bytes
    }
}

impl<F: Which> AggregateUDFImpl for Extreme<F> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        if let Some(map @ DataType::Map(..)) = arguments.first() {
            return plan_err!("{} takes values that have an order, not {}", self.name(), sql_type_name(map));
        }
        self.inner.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_nested_in_order(args.return_type()) {
            return Ok(Box::new(Nested {
                converter: nested_order(args.return_type())?,
                closer: F::CLOSER,
                kept: ScalarValue::try_from(args.return_type())?,
                key: None,
            }));
        }
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        is_nested_in_order(args.return_type()) || self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_type() {
            DataType::Float32 => Ok(groups::<Float32Type>(args.return_type(), F::CLOSER)),
            DataType::Float64 => Ok(groups::<Float64Type>(args.return_type(), F::CLOSER)),
            nested if is_nested_in_order(nested) => Ok(Box::new(NestedGroups {
                converter: nested_order(nested)?,
                closer: F::CLOSER,
                data_type: nested.clone(),
                kept: Vec::new(),
                key_bytes: 0,
            })),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_type();
        if is_nested_in_order(data_type) {
            return Ok(Box::new(NestedFrame {
                converter: nested_order(data_type)?,
                closer: F::CLOSER,
                data_type: data_type.clone(),
                come: 0,
                gone: 0,
                candidates: VecDeque::new(),
            }));
        }
        self.inner.create_sliding_accumulator(args)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
