//! DataFusion's aggregates with corrected corner cases: `bool_and`, `bool_or`, `bit_and`, `bit_or` and `bit_xor` over
//! sliding frames, and `regr_r2` of a constant.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, UInt64Type};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::{bit_and_or_xor, bool_and_or, regr};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};

pub(super) fn functions() -> Vec<AggregateUDF> {
    let function = |inner, change| AggregateUDF::new_from_impl(Changed { inner, change });
    vec![
        function(bit_and_or_xor::bit_and_udaf(), Change::Bits(Bits::And)),
        function(bit_and_or_xor::bit_or_udaf(), Change::Bits(Bits::Or)),
        function(bit_and_or_xor::bit_xor_udaf(), Change::Bits(Bits::Xor)),
        function(bool_and_or::bool_and_udaf(), Change::Flags { is_and: true }),
        function(bool_and_or::bool_or_udaf(), Change::Flags { is_and: false }),
        function(regr::regr_r2_udaf(), Change::SquaredCorrelation),
    ]
}

/// A function of DataFusion's and the change to it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Changed {
    inner: Arc<AggregateUDF>,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    Bits(Bits),
    Flags { is_and: bool },
    SquaredCorrelation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bits {
    And,
    Or,
    Xor,
}

impl AggregateUDFImpl for Changed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.inner().default_value(data_type)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let inner = self.inner.inner().accumulator(args)?;
        Ok(match self.change {
            Change::Bits(_) | Change::Flags { .. } => inner,
            Change::SquaredCorrelation => Box::new(SquaredCorrelation(inner)),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.change {
            Change::Bits(operation) if !args.is_distinct && args.return_type().is_integer() => {
                let data_type = args.return_type().clone();
                Ok(Box::new(BitCounts { operation, data_type, values: 0, ones: [0; 64] }))
            }
            Change::Flags { is_and } if !args.is_distinct => {
                Ok(Box::new(FlagCounts { is_and, values: 0, trues: 0 }))
            }
            Change::Bits(_) | Change::Flags { .. } => self.inner.inner().create_sliding_accumulator(args),
            Change::SquaredCorrelation => self.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let fields = self.inner.inner().state_fields(args)?;
        // `bit_xor(DISTINCT x)` says that its state has no NULLs, and has some where there are no values.
        Ok(fields.into_iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect())
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        // DataFusion's accumulator by groups would count equal values of DISTINCT each time.
        !(args.is_distinct && matches!(self.change, Change::Bits(Bits::Xor)))
            && self.inner.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.inner().create_groups_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Counts, for each bit, the values of a frame that have it set.
#[derive(Debug)]
struct BitCounts {
    operation: Bits,
    data_type: DataType,
    values: u64,
    ones: [u64; 64],
}

impl BitCounts {
    fn count(&mut self, values: &[ArrayRef], change: fn(u64, u64) -> u64) -> Result<()> {
        let numbers = bits(&values[0])?;
        for number in numbers.iter().flatten() {
            self.values = change(self.values, 1);
            for (place, ones) in self.ones.iter_mut().enumerate() {
                *ones = change(*ones, number >> place & 1);
            }
        }
        Ok(())
    }
}

/// Integers as 64-bit patterns, sign-extended.
fn bits(values: &ArrayRef) -> Result<UInt64Array> {
    Ok(match values.data_type() {
        signed if signed.is_signed_integer() => {
            let numbers = cast(values, &DataType::Int64)?;
            numbers.as_primitive::<Int64Type>().unary::<_, UInt64Type>(i64::cast_unsigned)
        }
        _ => cast(values, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone(),
    })
}

impl Accumulator for BitCounts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count(values, u64::wrapping_add)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count(values, u64::wrapping_sub)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.values == 0 {
            return ScalarValue::try_from(&self.data_type);
        }
        let is_set = |ones: u64| match self.operation {
            Bits::And => ones == self.values,
            Bits::Or => ones > 0,
            Bits::Xor => ones % 2 == 1,
        };
        let number = self.ones.iter().rev().fold(0_u64, |bits, ones| bits << 1 | u64::from(is_set(*ones)));
        let value = if self.data_type.is_signed_integer() {
            ScalarValue::Int64(Some(number.cast_signed()))
        } else {
            ScalarValue::UInt64(Some(number))
        };
        value.cast_to(&self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame has no state to merge")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame has no state to merge")
    }
}

/// Counts the values of a frame, and those that are true.
#[derive(Debug)]
struct FlagCounts {
    is_and: bool,
    values: usize,
    trues: usize,
}

impl Accumulator for FlagCounts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values += values[0].len() - values[0].null_count();
        self.trues += values[0].as_boolean().true_count();
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values -= values[0].len() - values[0].null_count();
        self.trues -= values[0].as_boolean().true_count();
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let is_true = if self.is_and { self.trues == self.values } else { self.trues > 0 };
        Ok(ScalarValue::Boolean((self.values > 0).then_some(is_true)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame has no state to merge")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame has no state to merge")
    }
}

/// `regr_r2`, which is 1 where `y` is constant and `x` is not (SQL:2016, 10.9, rule 7 g).
#[derive(Debug)]
struct SquaredCorrelation(Box<dyn Accumulator>);

impl Accumulator for SquaredCorrelation {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // The count, both means, and the sums of squared deviations of x and y.
        let state = self.0.state()?;
        match state.as_slice() {
            [_, _, _, ScalarValue::Float64(Some(x)), ScalarValue::Float64(Some(y)), ..]
                if *x > 0.0 && *y == 0.0 =>
            {
                Ok(ScalarValue::Float64(Some(1.0)))
            }
            _ => self.0.evaluate(),
        }
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}
