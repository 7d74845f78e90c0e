//! `avg` of whole numbers and floats: an exact sum, divided and rounded once, so that the result does not depend on
//! the order of the rows.
//!
//! DataFusion sums them as floats, so that an average depends on their order and on the number of threads. Those of
//! floats are in [`floats`](super::floats). Averages of all other types, DECIMALs included, are DataFusion's own.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, UInt64Array};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use keirin_kernels::aggregate::divided;

use super::floats::What;
use crate::types::sql_type_name;

/// The type of the exact sum, which may need more than 64 bits.
const SUM: DataType = DataType::Decimal128(38, 0);

/// See the [module](self).
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExactAverage {
    inner: Avg,
    signature: Signature,
    aliases: Vec<String>,
}

impl Default for ExactAverage {
    fn default() -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { inner: Avg::new(), signature, aliases: vec!["mean".to_owned()] }
    }
}

fn is_whole(args: &AccumulatorArgs) -> bool {
    args.expr_fields[0].data_type().is_integer()
}

fn is_float(args: &AccumulatorArgs) -> bool {
    *args.expr_fields[0].data_type() == DataType::Float64
}

impl AggregateUDFImpl for ExactAverage {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else {
            return plan_err!("avg takes one argument, not {}", arguments.len());
        };
        let argument = match argument {
            DataType::Dictionary(_, values) => values.as_ref(),
            other => other,
        };
        Ok(vec![match argument {
            // Narrow integers are not widened: storage aggregates them as they are stored, and `sum`, which
            // does widen its argument, could not share a subexpression with `avg` anyway.
            other if other.is_integer() || other.is_decimal() || matches!(other, DataType::Duration(_)) => {
                other.clone()
            }
            other if other.is_floating() || other.is_null() => DataType::Float64,
            other => return plan_err!("avg takes numbers, not {}", sql_type_name(other)),
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(match (is_whole(&args), args.is_distinct) {
            (false, is_distinct) if is_float(&args) => What::Average.accumulator(is_distinct),
            (false, _) => return self.inner.accumulator(args),
            (true, false) => Box::new(Average::default()),
            (true, true) => Box::new(Distinct::default()),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if *args.input_fields[0].data_type() == DataType::Float64 {
            return Ok(What::Average.state_fields(&args));
        }
        if !args.input_fields[0].data_type().is_integer() {
            return self.inner.state_fields(args);
        }
        if args.is_distinct {
            let name = format_state_name(args.name, "avg distinct");
            let field = Field::new_list(name, Field::new_list_field(SUM, true), false);
            return Ok(vec![Arc::new(field)]);
        }
        let count = Field::new(format_state_name(args.name, "count"), DataType::UInt64, true);
        let sum = Field::new(format_state_name(args.name, "sum"), SUM, true);
        Ok(vec![Arc::new(count), Arc::new(sum)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let is_own = is_whole(&args) || is_float(&args);
        if is_own { !args.is_distinct } else { self.inner.groups_accumulator_supported(args) }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if is_whole(&args) {
            return Ok(Box::new(Averages::default()));
        }
        if is_float(&args) {
            return Ok(What::Average.groups());
        }
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (is_whole(&args), args.is_distinct) {
            (true, false) => Ok(Box::new(Average::default())),
            (true, true) => Ok(Box::new(Distinct::default())),
            (false, false) if is_float(&args) => Ok(What::Average.sliding()),
            _ => self.inner.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Calls `add` with the row and the value of each whole number that is not NULL.
fn for_each(values: &ArrayRef, mut add: impl FnMut(usize, i128)) -> Result<()> {
    macro_rules! each {
        ($type:ty) => {{
            let values = values.as_primitive::<$type>();
            if values.null_count() == 0 {
                values.values().iter().enumerate().for_each(|(row, value)| add(row, i128::from(*value)));
            } else {
                let rows = values.iter().enumerate();
                rows.for_each(|(row, value)| value.into_iter().for_each(|value| add(row, i128::from(value))));
            }
        }};
    }
    match values.data_type() {
        DataType::Int8 => each!(Int8Type),
        DataType::Int16 => each!(Int16Type),
        DataType::Int32 => each!(Int32Type),
        DataType::Int64 => each!(Int64Type),
        DataType::UInt8 => each!(UInt8Type),
        DataType::UInt16 => each!(UInt16Type),
        DataType::UInt32 => each!(UInt32Type),
        DataType::UInt64 => each!(UInt64Type),
        DataType::Decimal128(..) => each!(Decimal128Type),
        other => return internal_err!("an exact average of {other}"),
    }
    Ok(())
}

/// The accumulator for all rows, or for those in a window.
#[derive(Debug, Default)]
struct Average {
    sum: i128,
    count: u64,
}

impl Accumulator for Average {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut sum = 0;
        for_each(&values[0], |_, value| sum += value)?;
        self.sum += sum;
        self.count += (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut sum = 0;
        for_each(&values[0], |_, value| sum += value)?;
        self.sum -= sum;
        self.count -= (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.count += states[0].as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
        for_each(&states[1], |_, sum| self.sum += sum)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = ScalarValue::Decimal128((self.count > 0).then_some(self.sum), 38, 0);
        Ok(vec![ScalarValue::UInt64(Some(self.count)), sum])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(divided(self.sum, self.count)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The accumulator of `avg(DISTINCT x)`.
#[derive(Debug, Default)]
struct Distinct {
    values: HashSet<i128>,
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each(&values[0], |_, value| _ = self.values.insert(value))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Decimal128Array::from_iter_values(self.values.iter().copied()).with_data_type(SUM);
        let list = SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar();
        Ok(vec![list])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(divided(self.values.iter().sum(), self.values.len() as u64)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i128>()
    }
}

/// The accumulator for groups.
#[derive(Debug, Default)]
struct Averages {
    sums: Vec<i128>,
    counts: Vec<u64>,
}

impl Averages {
    fn resize(&mut self, group_count: usize) {
        self.sums.resize(group_count, 0);
        self.counts.resize(group_count, 0);
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<i128>, Vec<u64>) {
        (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts))
    }
}

fn sums_of(sums: Vec<i128>, counts: &[u64]) -> ArrayRef {
    let nulls = counts.contains(&0).then(|| counts.iter().map(|count| *count > 0).collect());
    Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(SUM))
}

impl GroupsAccumulator for Averages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        let Self { sums, counts } = self;
        for_each(&values[0], |row, value| {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                let group = group_indices[row];
                sums[group] += value;
                counts[group] += 1;
            }
        })
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        let Self { sums, counts } = self;
        for (group, count) in group_indices.iter().zip(states[0].as_primitive::<UInt64Type>()) {
            counts[*group] += count.unwrap_or(0);
        }
        for_each(&states[1], |row, sum| sums[group_indices[row]] += sum)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = self.take(emit_to);
        let averages = sums.into_iter().zip(counts).map(|(sum, count)| divided(sum, count));
        Ok(Arc::new(Float64Array::from_iter(averages)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = self.take(emit_to);
        let sums = sums_of(sums, &counts);
        Ok(vec![Arc::new(UInt64Array::from(counts)), sums])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut alone = Self::default();
        let rows = values[0].len();
        alone.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<u64>()
    }
}
