//! `min` and `max` of floats by groups, which are what they are without groups.
//!
//! DataFusion compares the floats of groups in the order of the CPU, in which a NaN is neither less nor greater than
//! anything: whether it is left depends on the row that comes last. Without groups a NaN is greater than all numbers
//! (IEEE 754's total order), and so it is here. Everything else is DataFusion's own.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use crate::types::sql_type_name;

/// See the [module](self).
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extreme<F> {
    inner: F,
}

/// One of the two functions.
pub(crate) trait Which:
    AggregateUDFImpl + Debug + Default + Eq + Hash + Send + Sync + 'static
{
    /// What a value must be to the one before it to replace it.
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
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_type() {
            DataType::Float32 => Ok(groups::<Float32Type>(args.return_type(), F::CLOSER)),
            DataType::Float64 => Ok(groups::<Float64Type>(args.return_type(), F::CLOSER)),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
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

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }
}
