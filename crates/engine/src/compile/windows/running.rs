//! Aggregates of the rows of a partition up to each row, in one pass.
//!
//! They give what the accumulators of GROUP BY would: sums that must fit their type only as a whole, averages that are
//! divided once, and NaN as the greatest float.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, Float64Array, Int64Array,
    PrimitiveArray, RecordBatch, UInt64Array, downcast_primitive_array, make_comparator, new_null_array,
};
use arrow::compute::{SortOptions, cast, concat, interleave, take};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type, Int64Type, Schema, UInt64Type, i256,
};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use keirin_kernels::aggregate::{CompactSum, divided};

use super::edges::Starts;
use crate::expressions::arithmetic::{DecimalQuotient, overflow};

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
    /// The value of the n-th row, or of the n-th that is not NULL.
    Nth {
        nth: u64,
        ignores_nulls: bool,
        count: u64,
        kept: Option<ArrayRef>,
    },
    /// The last value that is not NULL, if there is one.
    Latest {
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

    /// A value of the rows so far.
    pub(super) fn of_value(argument: Arc<dyn PhysicalExpr>, data_type: DataType, state: State) -> Self {
        Self { argument, data_type, name: String::new(), state }
    }

    /// What it is of no rows.
    pub(super) fn default(&self) -> Result<ScalarValue> {
        match self.state {
            State::Count(_) => Ok(ScalarValue::Int64(Some(0))),
            _ => ScalarValue::try_from(&self.data_type),
        }
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
                let sums = values.iter().enumerate().map(|(row, value)| {
                    if partitions.is_start(row) {
                        (*sum, *count) = (i256::ZERO, 0);
                    }
                    if let Some(value) = value {
                        *sum = sum.wrapping_add(i256::from_i128(value));
                        *count += 1;
                    }
                    (*sum, *count)
                });
                let Some(rows) = rows else { return divided.column(sums, &self.data_type, &self.name) };
                // Only these have to fit.
                let sums: Vec<_> = sums.collect();
                let place = |row: &u64| usize::try_from(*row).expect("rows of a batch");
                let sums = rows.values().iter().map(|row| sums[place(row)]);
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
            State::Extreme { closer, kept } if values.data_type().is_primitive() => {
                let values = values.as_ref();
                let extremes = downcast_primitive_array! {
                    values => Arc::new(extremes(values, partitions, *closer, kept.as_ref())) as ArrayRef,
                    other => return internal_err!("extremes of {other} up to each row")
                };
                *kept = Some(alone(&extremes, extremes.len() - 1)?);
                extremes
            }
            State::Extreme { closer, kept } => {
                let before = kept.take().unwrap_or_else(|| new_null_array(values.data_type(), 1));
                let all = concat(&[&before, &values])?;
                let compare = make_comparator(&all, &all, SortOptions::default())?;
                let mut extreme = Some(0).filter(|first| all.is_valid(*first));
                let places = (0..values.len()).map(|row| {
                    if partitions.is_start(row) {
                        extreme = None;
                    }
                    let is_closer = |extreme| compare(row + 1, extreme) == *closer;
                    if values.is_valid(row) && extreme.is_none_or(is_closer) {
                        extreme = Some(row + 1);
                    }
                    extreme.map(|place| place as u64)
                });
                let extremes = take(&all, &places.collect::<UInt64Array>(), None)?;
                *kept = Some(alone(&extremes, extremes.len() - 1)?);
                extremes
            }
            State::Nth { nth, ignores_nulls, count, kept } => {
                let nulls = values.logical_nulls().filter(|_| *ignores_nulls);
                chosen(&values, kept, |row, chosen| {
                    if partitions.is_start(row) {
                        (*count, *chosen) = (0, Chosen::Nothing);
                    }
                    let is_counted = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                    *count += u64::from(is_counted);
                    if is_counted && *count == *nth {
                        *chosen = Chosen::Row(row);
                    }
                })?
            }
            State::Latest { kept } => {
                let nulls = values.logical_nulls();
                chosen(&values, kept, |row, chosen| {
                    if partitions.is_start(row) {
                        *chosen = Chosen::Nothing;
                    }
                    if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                        *chosen = Chosen::Row(row);
                    }
                })?
            }
        };
        Ok(match rows {
            Some(rows) => take(&column, rows, None)?,
            None => column,
        })
    }
}

/// A value in a buffer of its own: a slice would keep all.
fn alone(values: &ArrayRef, row: usize) -> Result<ArrayRef> {
    Ok(take(values, &UInt64Array::from(vec![row as u64]), None)?)
}

/// Which value is that of the rows so far.
#[derive(Clone, Copy)]
enum Chosen {
    Nothing,
    /// One of rows before.
    Kept,
    Row(usize),
}

/// The values that `choose` chooses for each row, and the last of them.
fn chosen(
    values: &ArrayRef,
    kept: &mut Option<ArrayRef>,
    mut choose: impl FnMut(usize, &mut Chosen),
) -> Result<ArrayRef> {
    let nothing = new_null_array(values.data_type(), 1);
    let mut chosen = if kept.is_some() { Chosen::Kept } else { Chosen::Nothing };
    let before = kept.take().unwrap_or_else(|| nothing.clone());
    let places = (0..values.len()).map(|row| {
        choose(row, &mut chosen);
        match chosen {
            Chosen::Nothing => (0, 0),
            Chosen::Kept => (1, 0),
            Chosen::Row(row) => (2, row),
        }
    });
    let column = interleave(&[&nothing, &before, values], &places.collect::<Vec<_>>())?;
    let last = column.len() - 1;
    *kept = if let Chosen::Nothing = chosen { None } else { Some(alone(&column, last)?) };
    Ok(column)
}

/// Whether values compare as what they are stored as.
fn has_order(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_string()
        || data_type.is_binary()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Float32
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
        sums: impl Iterator<Item = (i256, u64)>,
        data_type: &DataType,
        name: &str,
    ) -> Result<ArrayRef> {
        fn narrow<T: ArrowPrimitiveType>(
            sums: impl Iterator<Item = (i256, u64)>,
            fits: impl Fn(i128) -> Option<T::Native>,
            fails: impl Fn() -> datafusion::error::DataFusionError,
        ) -> Result<PrimitiveArray<T>> {
            let narrow = |(sum, count): (i256, u64)| match count {
                0 => Ok(None),
                _ => sum.to_i128().and_then(&fits).map(Some).ok_or_else(&fails),
            };
            sums.map(narrow).collect()
        }
        let fails = || overflow(data_type, name);
        Ok(match (self, data_type) {
            (Self::IntoFloats, _) => {
                let divided = |(sum, count): (i256, u64)| {
                    divided(sum.to_i128().expect("fewer than 2^64 numbers of 64 bits"), count)
                };
                Arc::new(sums.map(divided).collect::<Float64Array>())
            }
            (Self::IntoDecimals(quotient), _) => quotient.averages(sums)?,
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
