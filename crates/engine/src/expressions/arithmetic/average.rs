//! `avg` of whole numbers, DECIMALs and floats: an exact sum, divided once, so that the result does not depend on the
//! order of the rows. Of DECIMALs the quotient has four more digits, as DataFusion says, and the rest is cut off.
//!
//! DataFusion sums whole numbers as floats, so that an average depends on their order and on the number of threads.
//! Averages of floats are in [`floats`](super::floats), those of all other types are DataFusion's own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal256Array, Float64Array, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type,
    DecimalType, Field, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type, i256,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{ScalarValue, internal_datafusion_err, internal_err, plan_err};
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
use super::overflow;
use crate::types::sql_type_name;

/// The type of different values.
const VALUE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

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

/// Who computes the average of values of a type.
enum Kind {
    Whole,
    Decimal,
    Float,
    /// DataFusion.
    Other,
}

impl Kind {
    fn of(fields: &[FieldRef]) -> Self {
        match fields[0].data_type() {
            DataType::Float64 => Self::Float,
            DataType::Decimal128(..) => Self::Decimal,
            other if other.is_integer() => Self::Whole,
            _ => Self::Other,
        }
    }
}

/// The sum of values, exact for as many as a `u64` counts, and what it is divided into.
trait Sum: Copy + Debug + Default + Send + Sync + 'static {
    /// The type of a partial sum.
    const STATE: DataType;
    /// What is known of the quotient.
    type Quotient: Clone + Debug + Send + Sync;

    /// A sum by those of the values' lower and upper 64 bits.
    fn new(low: u128, high: i128) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn of_states(states: &ArrayRef) -> Result<Vec<Self>>;
    fn states(sums: Vec<Self>, nulls: Option<NullBuffer>) -> ArrayRef;
    fn averages(sums: impl Iterator<Item = (Self, u64)>, quotient: &Self::Quotient) -> Result<ArrayRef>;
}

/// Of whole numbers, divided into floats.
impl Sum for i128 {
    const STATE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
    type Quotient = ();

    fn new(low: u128, high: i128) -> Self {
        (high << 64).wrapping_add(low.cast_signed())
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn of_states(states: &ArrayRef) -> Result<Vec<Self>> {
        Ok(states.as_primitive::<Decimal128Type>().values().to_vec())
    }

    fn states(sums: Vec<Self>, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(Self::STATE))
    }

    fn averages(sums: impl Iterator<Item = (Self, u64)>, (): &()) -> Result<ArrayRef> {
        Ok(Arc::new(sums.map(|(sum, count)| divided(sum, count)).collect::<Float64Array>()))
    }
}

/// Of DECIMALs, divided into such.
impl Sum for i256 {
    const STATE: DataType = DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0);
    type Quotient = DecimalQuotient;

    fn new(low: u128, high: i128) -> Self {
        (Self::from_i128(high) << 64_u8).wrapping_add(Self::from_parts(low, 0))
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn of_states(states: &ArrayRef) -> Result<Vec<Self>> {
        Ok(states.as_primitive::<Decimal256Type>().values().to_vec())
    }

    fn states(sums: Vec<Self>, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(Decimal256Array::new(sums.into(), nulls).with_data_type(Self::STATE))
    }

    fn averages(sums: impl Iterator<Item = (Self, u64)>, quotient: &DecimalQuotient) -> Result<ArrayRef> {
        quotient.averages(sums)
    }
}

/// The average of DECIMALs.
#[derive(Clone, Debug)]
pub(crate) struct DecimalQuotient {
    data_type: DataType,
    /// What a sum is multiplied by, to have the digits of the average.
    factor: i256,
    /// For errors.
    name: String,
}

impl DecimalQuotient {
    /// The average of type `data_type` of values of type `from`, both DECIMALs of 128 bits; `None` if it has fewer digits
    /// after the point.
    pub(crate) fn new(data_type: &DataType, from: &DataType, name: &str) -> Option<Self> {
        let (DataType::Decimal128(_, scale), DataType::Decimal128(_, from_scale)) = (data_type, from) else {
            return None;
        };
        let digits = u32::try_from(scale - from_scale).ok()?;
        let factor = i256::from_i128(10_i128.checked_pow(digits)?);
        Some(Self { data_type: data_type.clone(), factor, name: name.to_owned() })
    }

    /// Whether a quotient has the digits of the values, as a sum has.
    pub(crate) fn is_sum(&self) -> bool {
        self.factor == i256::ONE
    }

    /// The averages of sums of so many values; none of no values.
    pub(crate) fn averages(&self, sums: impl Iterator<Item = (i256, u64)>) -> Result<ArrayRef> {
        let average = |(sum, count): (i256, u64)| {
            if count == 0 {
                return Ok(None);
            }
            // The sum has 192 bits at most.
            let average = sum.wrapping_mul(self.factor).checked_div(i256::from_i128(count.into()));
            let average = average.and_then(i256::to_i128).filter(|average| {
                Decimal128Type::is_valid_decimal_precision(*average, Decimal128Type::MAX_PRECISION)
            });
            average.map(Some).ok_or_else(|| overflow(&self.data_type, &self.name))
        };
        let averages = sums.map(average).collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(averages.with_data_type(self.data_type.clone())))
    }

    fn of_call(args: &AccumulatorArgs) -> Result<Self> {
        let (data_type, from) = (args.return_field.data_type(), args.expr_fields[0].data_type());
        let quotient = Self::new(data_type, from, args.name);
        quotient.ok_or_else(|| internal_datafusion_err!("an average of type {data_type} of {from}"))
    }
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
        Ok(match (Kind::of(args.expr_fields), args.is_distinct) {
            (Kind::Float, is_distinct) => What::Average.accumulator(is_distinct),
            (Kind::Other, _) => return self.inner.accumulator(args),
            (Kind::Whole, false) => Box::new(Average::<i128>::new(())),
            (Kind::Whole, true) => Box::new(Distinct::<i128>::new(())),
            (Kind::Decimal, false) => Box::new(Average::<i256>::new(DecimalQuotient::of_call(&args)?)),
            (Kind::Decimal, true) => Box::new(Distinct::<i256>::new(DecimalQuotient::of_call(&args)?)),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let state = match Kind::of(args.input_fields) {
            Kind::Float => return Ok(What::Average.state_fields(&args)),
            Kind::Other => return self.inner.state_fields(args),
            Kind::Whole => <i128 as Sum>::STATE,
            Kind::Decimal => <i256 as Sum>::STATE,
        };
        if args.is_distinct {
            let name = format_state_name(args.name, "avg distinct");
            let field = Field::new_list(name, Field::new_list_field(VALUE, true), false);
            return Ok(vec![Arc::new(field)]);
        }
        let count = Field::new(format_state_name(args.name, "count"), DataType::UInt64, true);
        let sum = Field::new(format_state_name(args.name, "sum"), state, true);
        Ok(vec![Arc::new(count), Arc::new(sum)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match Kind::of(args.expr_fields) {
            Kind::Other => self.inner.groups_accumulator_supported(args),
            _ => !args.is_distinct,
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match Kind::of(args.expr_fields) {
            Kind::Whole => Box::new(Averages::<i128>::new(())),
            Kind::Decimal => Box::new(Averages::<i256>::new(DecimalQuotient::of_call(&args)?)),
            Kind::Float => What::Average.groups(),
            Kind::Other => return self.inner.create_groups_accumulator(args),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (Kind::of(args.expr_fields), args.is_distinct) {
            (Kind::Whole | Kind::Decimal, _) => self.accumulator(args),
            (Kind::Float, false) => Ok(What::Average.sliding()),
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

/// The sum of whole numbers or DECIMALs.
fn sum_of<S: Sum>(values: &ArrayRef) -> Result<S> {
    let (mut low, mut high) = (0_u128, 0_i128);
    for_each(values, |_, value| {
        low += value.cast_unsigned() & u128::from(u64::MAX);
        high += value >> u64::BITS;
    })?;
    Ok(S::new(low, high))
}

/// The accumulator for all rows, or for those in a window.
#[derive(Debug)]
struct Average<S: Sum> {
    sum: S,
    count: u64,
    quotient: S::Quotient,
}

impl<S: Sum> Average<S> {
    fn new(quotient: S::Quotient) -> Self {
        Self { sum: S::default(), count: 0, quotient }
    }
}

/// The average of one group.
fn average<S: Sum>(sum: S, count: u64, quotient: &S::Quotient) -> Result<ScalarValue> {
    ScalarValue::try_from_array(&S::averages(std::iter::once((sum, count)), quotient)?, 0)
}

impl<S: Sum> Accumulator for Average<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum = self.sum.plus(sum_of(&values[0])?);
        self.count += (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum = self.sum.minus(sum_of(&values[0])?);
        self.count -= (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (counts, sums) = (states[0].as_primitive::<UInt64Type>(), S::of_states(&states[1])?);
        for (count, sum) in counts.iter().zip(sums) {
            // Without values there is no sum.
            if let Some(count) = count.filter(|count| *count > 0) {
                self.count += count;
                self.sum = self.sum.plus(sum);
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sums = S::states(vec![self.sum], Some([self.count > 0][..].into()));
        Ok(vec![ScalarValue::UInt64(Some(self.count)), ScalarValue::try_from_array(&sums, 0)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        average(self.sum, self.count, &self.quotient)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The accumulator of `avg(DISTINCT x)`, for all rows or those in a window.
#[derive(Debug)]
struct Distinct<S: Sum> {
    /// How often each value is there.
    values: HashMap<i128, u64>,
    quotient: S::Quotient,
}

impl<S: Sum> Distinct<S> {
    fn new(quotient: S::Quotient) -> Self {
        Self { values: HashMap::new(), quotient }
    }
}

impl<S: Sum> Accumulator for Distinct<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each(&values[0], |_, value| *self.values.entry(value).or_default() += 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each(&values[0], |_, value| {
            if let Entry::Occupied(mut times) = self.values.entry(value) {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                }
            }
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Decimal128Array::from_iter_values(self.values.keys().copied()).with_data_type(VALUE);
        let list = SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar();
        Ok(vec![list])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let values: ArrayRef = Arc::new(Decimal128Array::from_iter_values(self.values.keys().copied()));
        average(sum_of::<S>(&values)?, self.values.len() as u64, &self.quotient)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<(i128, u64)>()
    }
}

/// The accumulator for groups.
#[derive(Debug)]
struct Averages<S: Sum> {
    sums: Vec<S>,
    counts: Vec<u64>,
    quotient: S::Quotient,
}

impl<S: Sum> Averages<S> {
    fn new(quotient: S::Quotient) -> Self {
        Self { sums: Vec::new(), counts: Vec::new(), quotient }
    }

    fn resize(&mut self, group_count: usize) {
        self.sums.resize(group_count, S::default());
        self.counts.resize(group_count, 0);
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<S>, Vec<u64>) {
        (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts))
    }
}

impl<S: Sum> GroupsAccumulator for Averages<S> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        let Self { sums, counts, .. } = self;
        for_each(&values[0], |row, value| {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                let group = group_indices[row];
                let low = value.cast_unsigned() & u128::from(u64::MAX);
                sums[group] = sums[group].plus(S::new(low, value >> u64::BITS));
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
        let added = states[0].as_primitive::<UInt64Type>().iter().zip(S::of_states(&states[1])?);
        for (group, (count, sum)) in group_indices.iter().zip(added) {
            // Without values there is no sum.
            if let Some(count) = count.filter(|count| *count > 0) {
                self.counts[*group] += count;
                self.sums[*group] = self.sums[*group].plus(sum);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = self.take(emit_to);
        S::averages(sums.into_iter().zip(counts), &self.quotient)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = self.take(emit_to);
        let nulls = counts.contains(&0).then(|| counts.iter().map(|count| *count > 0).collect());
        Ok(vec![Arc::new(UInt64Array::from(counts)), S::states(sums, nulls)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut alone = Self::new(self.quotient.clone());
        let rows = values[0].len();
        alone.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<S>() + self.counts.capacity() * size_of::<u64>()
    }
}
