//! The accumulators of [`CheckedSum`](super::CheckedSum): for all rows, for groups and for windows.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Int64Type,
    UInt64Type, i256,
};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::overflow;

/// Stands for a total that does not fit; no DECIMAL has this value.
const TOO_LARGE: i128 = i128::MAX;

/// The type of partial totals of values of `data_type`: sums of any number of rows fit into it.
pub(super) fn wide_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal128(_, scale) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale),
        _ => DataType::Decimal128(38, 0),
    }
}

/// The type that a total has to fit into, and the name of the call for the error when it does not.
pub(super) struct Narrow {
    pub(super) data_type: DataType,
    pub(super) name: String,
}

impl Narrow {
    pub(super) fn new(args: &AccumulatorArgs) -> Self {
        Self { data_type: args.return_type().clone(), name: args.name.to_owned() }
    }

    /// Widens 64-bit integers to 128 bits, and DECIMALs to [`wide_type`].
    fn widen(&self, values: &ArrayRef) -> Result<ArrayRef> {
        fn wide<T: ArrowPrimitiveType>(values: &ArrayRef) -> Result<ArrayRef>
        where
            T::Native: Into<i128>,
        {
            let values = values.as_primitive::<T>().unary::<_, Decimal128Type>(Into::into);
            Ok(Arc::new(values.with_precision_and_scale(38, 0)?))
        }
        match values.data_type() {
            DataType::Int64 => wide::<Int64Type>(values),
            DataType::UInt64 => wide::<UInt64Type>(values),
            DataType::Decimal128(..) => Ok(cast(values, &wide_type(&self.data_type))?),
            other => internal_err!("sum of {other} is not checked"),
        }
    }

    fn scalar(&self, total: Option<i128>) -> Result<ScalarValue> {
        let fails = || overflow(&self.data_type, &self.name);
        match self.data_type {
            DataType::UInt64 => {
                let total = total.map(|total| u64::try_from(total).map_err(|_| fails())).transpose()?;
                Ok(ScalarValue::UInt64(total))
            }
            DataType::Decimal128(precision, scale) => {
                let total = total.map(|total| self.decimal(total)).transpose()?;
                Ok(ScalarValue::Decimal128(total, precision, scale))
            }
            _ => {
                let total = total.map(|total| i64::try_from(total).map_err(|_| fails())).transpose()?;
                Ok(ScalarValue::Int64(total))
            }
        }
    }

    fn decimal(&self, total: i128) -> Result<i128> {
        if total.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into()) {
            return Ok(total);
        }
        Err(overflow(&self.data_type, &self.name))
    }

    /// Narrows totals of 128 or 256 bits to the result's DECIMAL type.
    fn decimals(&self, totals: &ArrayRef) -> Result<ArrayRef> {
        let fits = |total: i128| self.decimal(total);
        let totals: PrimitiveArray<Decimal128Type> = match totals.data_type() {
            DataType::Decimal256(..) => totals
                .as_primitive::<Decimal256Type>()
                .try_unary(|total| fits(total.to_i128().unwrap_or(TOO_LARGE)))?,
            _ => totals.as_primitive::<Decimal128Type>().try_unary(fits)?,
        };
        Ok(Arc::new(totals.with_data_type(self.data_type.clone())))
    }

    fn array(&self, totals: &ArrayRef) -> Result<ArrayRef> {
        let totals = totals.as_primitive::<Decimal128Type>();
        let fails = || overflow(&self.data_type, &self.name);
        Ok(match self.data_type {
            DataType::UInt64 => {
                let narrow: PrimitiveArray<UInt64Type> =
                    totals.try_unary(|total| u64::try_from(total).map_err(|_| fails()))?;
                Arc::new(narrow)
            }
            _ => {
                let narrow: PrimitiveArray<Int64Type> =
                    totals.try_unary(|total| i64::try_from(total).map_err(|_| fails()))?;
                Arc::new(narrow)
            }
        })
    }
}

/// The `(sum, count)` of a column without its NULLs. The sum has 256 bits because a partial sum of DECIMALs
/// may exceed 128 bits even if the final one does not.
///
/// The lower and upper halves of 64-bit values are summed apart, in 64-bit lanes that cannot overflow before
/// 2^31 values: such loops vectorise, unlike one over 128-bit numbers.
fn total(values: &ArrayRef) -> Result<(i256, u64)> {
    let count = (values.len() - values.null_count()) as u64;
    let sum = match values.data_type() {
        DataType::Int64 => {
            let values = values.as_primitive::<Int64Type>();
            i256::from_i128(sum_halves(values, |value| (value & 0xffff_ffff, value >> 32)))
        }
        DataType::UInt64 => {
            let values = values.as_primitive::<UInt64Type>();
            // Both halves are below 2^32.
            let halves = |value: u64| ((value & 0xffff_ffff).cast_signed(), (value >> 32).cast_signed());
            i256::from_i128(sum_halves(values, halves))
        }
        DataType::Decimal128(..) => {
            let (mut total, mut near) = (i256::ZERO, 0_i128);
            for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
                near = near.checked_add(value).unwrap_or_else(|| {
                    total = total.wrapping_add(i256::from_i128(near));
                    value
                });
            }
            total.wrapping_add(i256::from_i128(near))
        }
        DataType::Decimal256(..) => {
            values.as_primitive::<Decimal256Type>().iter().flatten().fold(i256::ZERO, i256::wrapping_add)
        }
        other => return internal_err!("sum of {other} is not checked"),
    };
    Ok((sum, count))
}

fn sum_halves<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    halves: impl Fn(T::Native) -> (i64, i64) + Copy,
) -> i128 {
    const CHUNK_ROWS: usize = 1 << 20;
    let add = |(low, high): (i64, i64), value: T::Native| {
        let (value_low, value_high) = halves(value);
        (low + value_low, high + value_high)
    };
    let join = |(low, high): (i64, i64)| (i128::from(high) << 32) + i128::from(low);
    if values.null_count() == 0 {
        let chunks = values.values().chunks(CHUNK_ROWS);
        return chunks.map(|chunk| join(chunk.iter().copied().fold((0, 0), add))).sum();
    }
    (0..values.len())
        .step_by(CHUNK_ROWS)
        .map(|start| {
            let chunk = values.slice(start, CHUNK_ROWS.min(values.len() - start));
            join(chunk.iter().flatten().fold((0, 0), add))
        })
        .sum()
}

/// The accumulator for all rows, or for those in a window.
pub(super) struct Total {
    sum: i256,
    count: u64,
    narrow: Narrow,
}

impl Total {
    pub(super) fn new(narrow: Narrow) -> Self {
        Self { sum: i256::ZERO, count: 0, narrow }
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total(&values[0])?;
        self.sum = self.sum.wrapping_add(sum);
        self.count += count;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![match self.narrow.data_type {
            DataType::Decimal128(_, scale) => ScalarValue::Decimal256(sum, DECIMAL256_MAX_PRECISION, scale),
            // Totals of 64-bit integers fit into 128 bits.
            _ => ScalarValue::Decimal128(sum.and_then(i256::to_i128), DECIMAL128_MAX_PRECISION, 0),
        }])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then(|| self.sum.to_i128().unwrap_or(TOO_LARGE));
        self.narrow.scalar(sum)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total(&values[0])?;
        self.sum = self.sum.wrapping_sub(sum);
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.narrow.name.len()
    }
}

/// Widens 64-bit values to 128 bits before it passes them to `inner`.
pub(super) struct Widened {
    pub(super) inner: Box<dyn Accumulator>,
    pub(super) narrow: Narrow,
}

impl Accumulator for Widened {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&[self.narrow.widen(&values[0])?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.inner.evaluate()? {
            ScalarValue::Decimal128(total, ..) => self.narrow.scalar(total),
            ScalarValue::Decimal256(total, ..) => {
                self.narrow.scalar(total.map(|total| total.to_i128().unwrap_or(TOO_LARGE)))
            }
            other => internal_err!("a total of type {}", other.data_type()),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

/// As [`Widened`], for groups.
pub(super) struct WidenedGroups {
    pub(super) inner: Box<dyn GroupsAccumulator>,
    pub(super) narrow: Narrow,
}

impl GroupsAccumulator for WidenedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.inner.update_batch(&[self.narrow.widen(&values[0])?], group_indices, filter, group_count)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.inner.merge_batch(states, group_indices, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.narrow.array(&self.inner.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&[self.narrow.widen(&values[0])?], filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The accumulator for groups of DECIMAL(38, s).
pub(super) struct DecimalGroups {
    /// Sums with 128 bits; replaced by `wide` once `bound` no longer fits into them.
    pub(super) inner: Box<dyn GroupsAccumulator>,
    /// The accumulator with 256 bits, until it replaces `inner`.
    pub(super) wide: Option<Box<dyn GroupsAccumulator>>,
    /// No total so far has a greater magnitude.
    pub(super) bound: u128,
    pub(super) narrow: Narrow,
}

impl DecimalGroups {
    /// Updates `bound`, switches to 256 bits if needed, and converts `values` to the type that `inner` takes.
    fn prepare(&mut self, values: &ArrayRef) -> Result<ArrayRef> {
        let largest = values.as_primitive::<Decimal128Type>().values().iter().fold(0, |largest, value| {
            // At most the magnitude and at least that minus one, without the overflow of `abs`.
            largest | (value ^ (value >> 127)).cast_unsigned()
        });
        let rows = values.len() as u128;
        self.bound = self.bound.saturating_add(largest.saturating_add(1).saturating_mul(rows));
        if self.bound > i128::MAX.unsigned_abs() {
            self.go_wide()?;
        }
        match self.wide {
            Some(_) => Ok(values.clone()),
            None => self.narrow.widen(values),
        }
    }

    /// Moves the totals so far to the accumulator with 256 bits.
    fn go_wide(&mut self) -> Result<()> {
        let Some(mut wide) = self.wide.take() else { return Ok(()) };
        let totals = self.inner.state(EmitTo::All)?;
        let groups: Vec<usize> = (0..totals[0].len()).collect();
        wide.merge_batch(&[self.widen(&totals[0])?], &groups, groups.len())?;
        self.inner = wide;
        Ok(())
    }

    /// Widens totals to 256 bits.
    fn widen(&self, totals: &ArrayRef) -> Result<ArrayRef> {
        match totals.data_type() {
            DataType::Decimal256(..) => Ok(totals.clone()),
            _ => {
                let totals = totals.as_primitive::<Decimal128Type>();
                let totals = totals.unary::<_, Decimal256Type>(i256::from_i128);
                Ok(Arc::new(totals.with_data_type(wide_type(&self.narrow.data_type))))
            }
        }
    }
}

impl GroupsAccumulator for DecimalGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let values = self.prepare(&values[0])?;
        self.inner.update_batch(&[values], group_indices, filter, group_count)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.go_wide()?;
        self.inner.merge_batch(states, group_indices, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.narrow.decimals(&self.inner.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let totals = self.inner.state(emit_to)?;
        Ok(vec![self.widen(&totals[0])?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let states = match self.wide {
            Some(_) => self.inner.convert_to_state(values, filter)?,
            None => self.inner.convert_to_state(&[self.narrow.widen(&values[0])?], filter)?,
        };
        Ok(vec![self.widen(&states[0])?])
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The accumulator of `sum(DISTINCT x)` in a window.
pub(super) struct DistinctWindow {
    pub(super) sum: i128,
    /// How often each value occurs in the window.
    pub(super) counts: HashMap<i128, usize>,
    pub(super) narrow: Narrow,
}

impl DistinctWindow {
    fn each(&self, values: &ArrayRef) -> Result<Vec<i128>> {
        Ok(self.narrow.widen(values)?.as_primitive::<Decimal128Type>().iter().flatten().collect())
    }
}

impl Accumulator for DistinctWindow {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in self.each(&values[0])? {
            let count = self.counts.entry(value).or_default();
            *count += 1;
            if *count == 1 {
                self.sum += value;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in self.each(&values[0])? {
            if let Some(count) = self.counts.get_mut(&value) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&value);
                    self.sum -= value;
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.narrow.scalar((!self.counts.is_empty()).then_some(self.sum))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window has no partial totals")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a window has no partial totals")
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(i128, usize)>()
    }
}

macro_rules! debug {
    ($($name:ident)*) => { $(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.narrow.name)
            }
        }
    )* };
}
debug!(Total Widened DistinctWindow);
