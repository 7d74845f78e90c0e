//! Aggregates of the rows of a partition up to each row, in one pass.
//!
//! They give what the accumulators of GROUP BY would: sums that must fit their type only as a whole, averages that are
//! divided once, and NaN as the greatest float.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, Float64Array, Int64Array,
    PrimitiveArray, RecordBatch, UInt64Array, downcast_primitive_array,
};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type, Int64Type, Schema, UInt64Type, i256,
};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use keirin_kernels::aggregate::{CompactSum, divided};

use super::functions::Starts;
use crate::arithmetic::{DecimalQuotient, overflow};

/// An aggregate, and its state after the rows so far.
pub(super) struct Running {
    pub(super) argument: Arc<dyn PhysicalExpr>,
    /// The type of sums.
    pub(super) data_type: DataType,
    /// For errors.
    pub(super) name: String,
    pub(super) state: State,
}

pub(super) enum State {
    Count(i64),
    Whole {
        /// With room for what of it goes away again before a sum is asked for.
        sum: i256,
        count: u64,
        divided: Divided,
    },
    Floats {
        sum: CompactSum,
        count: u64,
        is_average: bool,
    },
    Extreme {
        /// How a value compares with the extreme so far that it replaces.
        closer: Ordering,
        /// The extreme, if there is one.
        kept: Option<ArrayRef>,
    },
}

/// What becomes of a sum of whole numbers or DECIMALs.
pub(super) enum Divided {
    Not,
    IntoFloats,
    IntoDecimals(DecimalQuotient),
}

impl Running {
    /// `None` if the aggregate, over rows of this schema, is none of ours.
    pub(super) fn of(aggregate: &AggregateFunctionExpr, schema: &Schema) -> Result<Option<Self>> {
        let arguments = aggregate.expressions();
        let [argument] = &arguments[..] else { return Ok(None) };
        if aggregate.is_distinct() || aggregate.ignore_nulls() || !aggregate.order_bys().is_empty() {
            return Ok(None);
        }
        let (from, field) = (argument.data_type(schema)?, aggregate.field());
        let to = field.data_type();
        let whole = |divided| State::Whole { sum: i256::ZERO, count: 0, divided };
        let floats = |is_average| State::Floats { sum: CompactSum::default(), count: 0, is_average };
        let extreme = |closer| State::Extreme { closer, kept: None };
        let state = match (aggregate.fun().name(), &from, to) {
            ("count", ..) => State::Count(0),
            ("sum", DataType::Int64, DataType::Int64)
            | ("sum", DataType::UInt64, DataType::UInt64)
            | ("sum", DataType::Decimal128(..), DataType::Decimal128(..)) => whole(Divided::Not),
            ("avg", from, DataType::Float64) if from.is_integer() => whole(Divided::IntoFloats),
            ("avg", DataType::Decimal128(..), _) => {
                let Some(quotient) = DecimalQuotient::new(to, &from, aggregate.name()) else {
                    return Ok(None);
                };
                whole(Divided::IntoDecimals(quotient))
            }
            ("sum" | "avg", DataType::Float64, DataType::Float64) => floats(aggregate.fun().name() == "avg"),
            ("min", from, _) if has_order(from) => extreme(Ordering::Less),
            ("max", from, _) if has_order(from) => extreme(Ordering::Greater),
            _ => return Ok(None),
        };
        let (data_type, name) = (to.clone(), aggregate.name().to_owned());
        Ok(Some(Self { argument: argument.clone(), data_type, name, state }))
    }

    /// The aggregates after the next rows, or for each the one after another row, which `rows` has.
    pub(super) fn column(
        &mut self,
        batch: &RecordBatch,
        partitions: &Starts,
        rows: Option<&UInt64Array>,
    ) -> Result<ArrayRef> {
        let values = self.argument.evaluate(batch)?.into_array(batch.num_rows())?;
        let column: ArrayRef = match &mut self.state {
            State::Count(count) => {
                let nulls = values.logical_nulls();
                let counts = (0..values.len()).map(|row| {
                    *count = if partitions.is_start(row) { 0 } else { *count };
                    *count += i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
                    *count
                });
                Arc::new(Int64Array::from_iter_values(counts))
            }
            State::Whole { sum, count, divided } => {
                let values = whole_numbers(&values)?;
                let mut sums = Vec::with_capacity(values.len());
                for (row, value) in values.iter().enumerate() {
                    if partitions.is_start(row) {
                        (*sum, *count) = (i256::ZERO, 0);
                    }
                    if let Some(value) = value {
                        *sum = sum.wrapping_add(i256::from_i128(value));
                        *count += 1;
                    }
                    sums.push((*sum, *count));
                }
                // Only these have to fit.
                if let Some(rows) = rows {
                    let place = |row: &u64| usize::try_from(*row).expect("rows of a batch");
                    sums = rows.values().iter().map(|row| sums[place(row)]).collect();
                }
                return divided.column(sums, &self.data_type, &self.name);
            }
            State::Floats { sum, count, is_average } => {
                let values = values.as_primitive::<Float64Type>();
                let sums = values.iter().enumerate().map(|(row, value)| {
                    if partitions.is_start(row) {
                        (*sum, *count) = (CompactSum::default(), 0);
                    }
                    if let Some(value) = value {
                        sum.push(value);
                        *count += 1;
                    }
                    if *is_average { sum.mean(*count) } else { (*count > 0).then(|| sum.value()) }
                });
                Arc::new(sums.collect::<Float64Array>())
            }
            State::Extreme { closer, kept } => {
                let values = values.as_ref();
                let extremes = downcast_primitive_array! {
                    values => Arc::new(extremes(values, partitions, *closer, kept.as_ref())) as ArrayRef,
                    other => return internal_err!("extremes of {other} up to each row")
                };
                // In a buffer of its own: a slice would keep all.
                let last = extremes.slice(extremes.len() - 1, 1);
                *kept = Some(concat(&[&last])?);
                extremes
            }
        };
        Ok(match rows {
            Some(rows) => take(&column, rows, None)?,
            None => column,
        })
    }
}

/// Whether values compare as the numbers that they are stored as.
fn has_order(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(..)
                | DataType::Date32
                | DataType::Time64(_)
                | DataType::Timestamp(..)
        )
}

/// Whole numbers, or those that DECIMALs are made of, with 128 bits.
pub(super) fn whole_numbers(values: &ArrayRef) -> Result<PrimitiveArray<Decimal128Type>> {
    Ok(match values.data_type() {
        DataType::Decimal128(..) => values.as_primitive::<Decimal128Type>().clone(),
        DataType::UInt64 => values.as_primitive::<UInt64Type>().unary(i128::from),
        DataType::Int64 => values.as_primitive::<Int64Type>().unary(i128::from),
        _ => cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().unary(i128::from),
    })
}

impl Divided {
    /// The column for sums of so many values.
    pub(super) fn column(
        &self,
        sums: Vec<(i256, u64)>,
        data_type: &DataType,
        name: &str,
    ) -> Result<ArrayRef> {
        fn narrow<T: ArrowPrimitiveType>(
            sums: Vec<(i256, u64)>,
            fits: impl Fn(i128) -> Option<T::Native>,
            fails: impl Fn() -> datafusion::error::DataFusionError,
        ) -> Result<PrimitiveArray<T>> {
            let narrow = |(sum, count): (i256, u64)| match count {
                0 => Ok(None),
                _ => sum.to_i128().and_then(&fits).map(Some).ok_or_else(&fails),
            };
            sums.into_iter().map(narrow).collect()
        }
        let fails = || overflow(data_type, name);
        Ok(match (self, data_type) {
            (Self::IntoFloats, _) => {
                let divided = |(sum, count): (i256, u64)| {
                    divided(sum.to_i128().expect("fewer than 2^64 numbers of 64 bits"), count)
                };
                Arc::new(sums.into_iter().map(divided).collect::<Float64Array>())
            }
            (Self::IntoDecimals(quotient), _) => quotient.averages(sums.into_iter())?,
            (Self::Not, DataType::UInt64) => {
                Arc::new(narrow::<UInt64Type>(sums, |sum| u64::try_from(sum).ok(), fails)?)
            }
            (Self::Not, DataType::Decimal128(..)) => {
                let most = 10_u128.pow(DECIMAL128_MAX_PRECISION.into());
                let fits = |sum: i128| Some(sum).filter(|sum| sum.unsigned_abs() < most);
                Arc::new(narrow::<Decimal128Type>(sums, fits, fails)?.with_data_type(data_type.clone()))
            }
            (Self::Not, _) => Arc::new(narrow::<Int64Type>(sums, |sum| i64::try_from(sum).ok(), fails)?),
        })
    }
}

/// The extremes after each row; `kept` is that before the first one.
fn extremes<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    partitions: &Starts,
    closer: Ordering,
    kept: Option<&ArrayRef>,
) -> PrimitiveArray<T> {
    let kept = kept.map(AsArray::as_primitive::<T>).filter(|kept| kept.is_valid(0));
    let mut extreme = kept.map(|kept| kept.value(0));
    let extremes = values.iter().enumerate().map(|(row, value)| {
        if partitions.is_start(row) {
            extreme = None;
        }
        if let Some(value) = value
            && extreme.is_none_or(|extreme| value.compare(extreme) == closer)
        {
            extreme = Some(value);
        }
        extreme
    });
    extremes.collect::<PrimitiveArray<T>>().with_data_type(values.data_type().clone())
}
