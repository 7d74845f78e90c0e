//! Aggregates whose states are words beside the key of their group ([`keirin_operators::states`]).

use std::any::Any;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
    PrimitiveArray, RecordBatch, RecordBatchOptions, UInt64Array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Date32Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type, i256,
};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, IsNotNullExpr, Literal, case};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use keirin_kernels::aggregate::divided;
use keirin_kernels::{Bits, Level, bitmaps};
use keirin_operators::KeyValues;
use keirin_operators::arguments::{Argument, NumberType, Numbers};
use keirin_operators::states::{Aggregate, StateLayout, States, float_at, narrow_float_at};

use super::keys::Held;
use super::table::may_be_null;
use crate::expressions::arithmetic::{
    CheckedSum, DecimalQuotient, ExactAverage, Narrow, NarrowDecimals, Values, overflow,
};

/// The aggregates of a plan, with what they are computed of.
#[derive(Clone, Debug, Default)]
pub(super) struct Aggregates {
    pub(super) layout: StateLayout,
    /// What is added, with its type.
    pub(super) arguments: Vec<(Arc<dyn PhysicalExpr>, NumberType)>,
    /// What computes those of them that are arithmetic of decimals.
    narrow: NarrowDecimals,
    /// The columns of rows, with their types, that are decimals for it alone and may come as integers of 64 bits.
    pub(super) decimals: Vec<(usize, DataType)>,
    /// That of which different values are counted, in the last word.
    pub(super) distinct: Option<Arc<dyn PhysicalExpr>>,
    /// The words without that.
    layout_without: StateLayout,
    outputs: Vec<Output>,
}

/// What an aggregate is of the words of its group.
#[derive(Clone, Debug)]
struct Output {
    kind: Kind,
    data_type: DataType,
    /// For errors.
    name: String,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A word as it is.
    Count {
        word: usize,
    },
    /// The last word.
    Distinct,
    /// Without a count of values, each group has some.
    Sum {
        sum: Sum,
        count: Option<usize>,
    },
    Average {
        sum: Sum,
        count: usize,
    },
    Floats {
        word: usize,
        argument: usize,
        count: usize,
        is_average: bool,
    },
    DecimalSum {
        word: usize,
        count: Option<usize>,
    },
    DecimalAverage {
        word: usize,
        count: usize,
        quotient: DecimalQuotient,
    },
    Extreme {
        word: usize,
        number_type: NumberType,
        count: Option<usize>,
    },
    ExtremeText {
        word: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Sum {
    Narrow { word: usize, is_signed: bool },
    Wide { word: usize },
}

/// The integers that values of a type are.
fn number_type(data_type: &DataType) -> Option<NumberType> {
    Some(match data_type {
        DataType::Int8 => NumberType::I8,
        DataType::Int16 => NumberType::I16,
        DataType::Int32 | DataType::Date32 => NumberType::I32,
        DataType::Int64 | DataType::Timestamp(..) => NumberType::I64,
        DataType::UInt8 => NumberType::U8,
        DataType::UInt16 => NumberType::U16,
        DataType::UInt32 => NumberType::U32,
        DataType::UInt64 => NumberType::U64,
        DataType::Float32 => NumberType::F32,
        DataType::Float64 => NumberType::F64,
        DataType::Decimal128(..) => NumberType::Decimal,
        _ => return None,
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8View
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::BinaryView
            | DataType::Binary
            | DataType::LargeBinary
    )
}

impl Aggregates {
    /// The aggregates of these expressions over the rows of `input` that pass the filters beside them; `None` if some
    /// need other states.
    pub(super) fn new(
        expressions: &[Arc<AggregateFunctionExpr>],
        filters: &[Option<Arc<dyn PhysicalExpr>>],
        input: &Arc<dyn ExecutionPlan>,
    ) -> Option<Self> {
        let mut aggregates = Self::default();
        for (expression, filter) in expressions.iter().zip(filters) {
            let output = aggregates.output(expression, filter.as_ref(), input)?;
            aggregates.outputs.push(output);
        }
        let arguments = aggregates.arguments.iter().map(|(argument, _)| argument);
        let schema = input.schema();
        aggregates.narrow = NarrowDecimals::new(arguments.clone(), &schema);
        let distinct = aggregates.distinct.iter().flat_map(collect_columns);
        let distinct: Vec<usize> = distinct.map(|column| column.index()).collect();
        let decimals = aggregates.narrow.columns(arguments, &schema).into_iter();
        let decimals = decimals.filter(|column| !distinct.contains(column));
        aggregates.decimals =
            decimals.map(|column| (column, schema.field(column).data_type().clone())).collect();
        aggregates.layout_without = aggregates.layout.clone();
        if aggregates.distinct.is_some() {
            // The texts of groups are not handed on when they are grouped again.
            if aggregates.arguments.iter().any(|(_, number_type)| *number_type == NumberType::Text) {
                return None;
            }
            aggregates.layout = aggregates.layout.with_count();
        }
        Some(aggregates)
    }

    /// The same without the count of different values, for groups that are grouped again.
    pub(super) fn without_distinct(&self) -> Self {
        Self { layout: self.layout_without.clone(), distinct: None, ..self.clone() }
    }

    fn output(
        &mut self,
        expression: &AggregateFunctionExpr,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        input: &Arc<dyn ExecutionPlan>,
    ) -> Option<Output> {
        if !expression.order_bys().is_empty() {
            return None;
        }
        let arguments = expression.expressions();
        let [argument] = &arguments[..] else { return None };
        // What a filter leaves out has no value.
        let filtered = filter.map(|filter| {
            let argument = widened(argument, input).clone();
            case(None, vec![(filter.clone(), argument)], None).ok()
        });
        let argument = match &filtered {
            None => argument,
            Some(_) if expression.is_distinct() => return None,
            Some(filtered) => filtered.as_ref()?,
        };
        let function: &dyn Any = expression.fun().inner().as_ref();
        let name = expression.fun().name();
        let data_type = expression.field().data_type().clone();
        let kind = if expression.is_distinct() {
            let is_count = name == "count" && data_type == DataType::Int64;
            let is_other = self.distinct.as_ref().is_some_and(|known| known != argument);
            if !is_count || is_other || argument.is::<Literal>() {
                return None;
            }
            self.distinct = Some(argument.clone());
            Kind::Distinct
        } else if name == "count" && data_type == DataType::Int64 {
            let aggregate = if !may_be_null(argument, input) {
                Aggregate::Rows
            } else if let Some((place, _)) = self.argument(argument, input) {
                Aggregate::Values(place)
            } else {
                Aggregate::Sum(self.flag(argument))
            };
            Kind::Count { word: self.layout.word_of(aggregate) }
        } else if function.is::<CheckedSum>() && matches!(data_type, DataType::Int64 | DataType::UInt64) {
            let argument = widened(argument, input);
            let (place, number_type) = self.argument(argument, input)?;
            let count = self.value_count(argument, place, input);
            Kind::Sum { sum: self.sum(place, number_type, input)?, count }
        } else if function.is::<ExactAverage>() || function.is::<CheckedSum>() {
            let is_average = function.is::<ExactAverage>();
            let (place, number_type) = self.argument(argument, input)?;
            let values = self.value_count(argument, place, input);
            let count = |layout: &mut StateLayout| values.unwrap_or_else(|| layout.word_of(Aggregate::Rows));
            match (number_type, &data_type) {
                (NumberType::F64, DataType::Float64) => Kind::Floats {
                    word: self.layout.word_of(Aggregate::FloatSum(place)),
                    argument: place,
                    count: count(&mut self.layout),
                    is_average,
                },
                (NumberType::Decimal, DataType::Decimal128(..)) => {
                    let from = argument.data_type(&input.schema()).ok()?;
                    let quotient = DecimalQuotient::new(&data_type, &from, expression.name())?;
                    let word = self.layout.word_of(Aggregate::DecimalSum(place));
                    match is_average {
                        false if quotient.is_sum() => Kind::DecimalSum { word, count: values },
                        false => return None,
                        true => Kind::DecimalAverage { word, count: count(&mut self.layout), quotient },
                    }
                }
                (_, DataType::Float64) if is_average => Kind::Average {
                    sum: self.sum(place, number_type, input)?,
                    count: count(&mut self.layout),
                },
                _ => return None,
            }
        } else if matches!(name, "min" | "max") && is_text(&data_type) {
            let place = self.place(argument, NumberType::Text);
            let aggregate = if name == "min" { Aggregate::MinText(place) } else { Aggregate::MaxText(place) };
            Kind::ExtremeText { word: self.layout.word_of(aggregate) }
        } else if matches!(name, "min" | "max") {
            let (place, number_type) = self.argument(argument, input)?;
            let aggregate = match (name, number_type) {
                ("min", NumberType::Decimal) => Aggregate::MinDecimal(place),
                ("min", _) => Aggregate::Min(place),
                (_, NumberType::Decimal) => Aggregate::MaxDecimal(place),
                _ => Aggregate::Max(place),
            };
            let count = self.value_count(argument, place, input);
            Kind::Extreme { word: self.layout.word_of(aggregate), number_type, count }
        } else {
            return None;
        };
        Some(Output { kind, data_type, name: expression.name().to_owned() })
    }

    /// The place of an argument among all, and its type.
    fn argument(
        &mut self,
        argument: &Arc<dyn PhysicalExpr>,
        input: &Arc<dyn ExecutionPlan>,
    ) -> Option<(usize, NumberType)> {
        let number_type = number_type(&argument.data_type(&input.schema()).ok()?)?;
        Some((self.place(argument, number_type), number_type))
    }

    fn place(&mut self, argument: &Arc<dyn PhysicalExpr>, number_type: NumberType) -> usize {
        let known = self.arguments.iter().position(|(known, _)| known == argument);
        known.unwrap_or_else(|| {
            self.arguments.push((argument.clone(), number_type));
            self.arguments.len() - 1
        })
    }

    /// The place of an argument that is one where another has a value of any type.
    fn flag(&mut self, argument: &Arc<dyn PhysicalExpr>) -> usize {
        let flag: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(argument.clone()));
        self.place(&flag, NumberType::U8)
    }

    /// The word that counts the values of an argument, if some rows may have none.
    fn value_count(
        &mut self,
        argument: &Arc<dyn PhysicalExpr>,
        place: usize,
        input: &Arc<dyn ExecutionPlan>,
    ) -> Option<usize> {
        may_be_null(argument, input).then(|| self.layout.word_of(Aggregate::Values(place)))
    }

    fn sum(&mut self, place: usize, number_type: NumberType, input: &Arc<dyn ExecutionPlan>) -> Option<Sum> {
        let is_number = self.arguments[place].0.data_type(&input.schema()).ok()?.is_integer();
        is_number.then(|| match number_type.is_wide() {
            true => Sum::Wide { word: self.layout.word_of(Aggregate::WideSum(place)) },
            false => Sum::Narrow {
                word: self.layout.word_of(Aggregate::Sum(place)),
                is_signed: number_type.is_signed(),
            },
        })
    }

    /// The aggregates of groups, where `unit` is that of the floats of an argument.
    pub(super) fn evaluate(&self, states: &States, unit: &dyn Fn(usize) -> i32) -> Result<Vec<ArrayRef>> {
        self.outputs.iter().map(|output| output.evaluate(states, unit)).collect()
    }

    /// The arguments of rows.
    pub(super) fn arguments_of(&self, batch: &RecordBatch) -> Result<Vec<Lent>> {
        let narrow = self.narrow.evaluate(batch)?;
        let is_wide = |((_, number_type), narrow): (&(_, NumberType), &Option<Narrow>)| {
            *number_type == NumberType::Decimal
                && !matches!(narrow, Some(Narrow { values: Values::Each(_), .. }))
        };
        let batch = match self.arguments.iter().zip(&narrow).any(is_wide) {
            true => &self.widened(batch)?,
            false => batch,
        };
        let arguments = self.arguments.iter().zip(narrow).map(|((argument, _), narrow)| match narrow {
            Some(Narrow { values: Values::Each(values), nulls, .. }) => {
                Ok(Lent { validity: nulls.as_ref().map(bools), source: Source::Narrow(values) })
            }
            _ => Ok(Lent::new(argument.evaluate(batch)?.into_array(batch.num_rows())?)),
        });
        arguments.collect()
    }
}

impl Aggregates {
    /// The rows with decimals that are decimals.
    fn widened(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let (mut fields, mut columns) = (batch.schema().fields().to_vec(), batch.columns().to_vec());
        for (index, data_type) in &self.decimals {
            if let Some(narrow) = columns[*index].as_primitive_opt::<Int64Type>() {
                let wide = narrow.unary::<_, Decimal128Type>(i128::from).with_data_type(data_type.clone());
                columns[*index] = Arc::new(wide);
                fields[*index] = Arc::new(fields[*index].as_ref().clone().with_data_type(data_type.clone()));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }
}

/// What of `argument` is added: the integers that were widened to 64 bits, whose sum is the same.
fn widened<'a>(
    argument: &'a Arc<dyn PhysicalExpr>,
    input: &Arc<dyn ExecutionPlan>,
) -> &'a Arc<dyn PhysicalExpr> {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let Some(cast) = argument.downcast_ref::<CastExpr>() else { return argument };
    let Ok(from) = cast.expr().data_type(&input.schema()) else { return argument };
    let is_widened = match cast.cast_type() {
        Int64 => matches!(from, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32),
        UInt64 => matches!(from, UInt8 | UInt16 | UInt32),
        _ => false,
    };
    if is_widened { cast.expr() } else { argument }
}

impl Output {
    fn evaluate(&self, states: &States, unit: &dyn Fn(usize) -> i32) -> Result<ArrayRef> {
        let nulls = |count: Option<usize>| {
            let nulls = count.map(|word| states.word(word).map(|count| count > 0).collect::<NullBuffer>());
            nulls.filter(|nulls| nulls.null_count() > 0)
        };
        let too_large = || overflow(&self.data_type, &self.name);
        Ok(match self.kind {
            Kind::Count { .. } | Kind::Distinct => {
                let word = if let Kind::Count { word } = self.kind { word } else { states.stride() - 1 };
                Arc::new(Int64Array::from_iter_values(states.word(word).map(u64::cast_signed)))
            }
            Kind::Sum { sum: Sum::Narrow { word, is_signed }, count } => {
                let sums = states.word(word);
                match (&self.data_type, is_signed) {
                    (DataType::Int64, true) => {
                        Arc::new(Int64Array::new(sums.map(u64::cast_signed).collect(), nulls(count)))
                    }
                    (DataType::UInt64, false) => Arc::new(UInt64Array::new(sums.collect(), nulls(count))),
                    (DataType::Int64, false) => {
                        let sums = sums.map(|sum| i64::try_from(sum).map_err(|_| too_large()));
                        Arc::new(Int64Array::new(sums.collect::<Result<_>>()?, nulls(count)))
                    }
                    (other, _) => return internal_err!("a sum of integers of type {other}"),
                }
            }
            Kind::Sum { sum: Sum::Wide { word }, count } => {
                let sums = states.wide(word);
                match &self.data_type {
                    DataType::UInt64 => {
                        let sums = sums.map(|sum| u64::try_from(sum).map_err(|_| too_large()));
                        Arc::new(UInt64Array::new(sums.collect::<Result<_>>()?, nulls(count)))
                    }
                    _ => {
                        let sums = sums.map(|sum| i64::try_from(sum).map_err(|_| too_large()));
                        Arc::new(Int64Array::new(sums.collect::<Result<_>>()?, nulls(count)))
                    }
                }
            }
            Kind::Average { sum, count } => {
                let averages: Float64Array = match sum {
                    Sum::Narrow { word, is_signed } => {
                        let sums = states.word(word).map(|sum| match is_signed {
                            true => i128::from(sum.cast_signed()),
                            false => i128::from(sum),
                        });
                        sums.zip(states.word(count)).map(|(sum, count)| divided(sum, count)).collect()
                    }
                    Sum::Wide { word } => {
                        let sums = states.wide(word);
                        sums.zip(states.word(count)).map(|(sum, count)| divided(sum, count)).collect()
                    }
                };
                Arc::new(averages)
            }
            Kind::Floats { word, argument, count, is_average } => {
                let sums = states.float_sums(word, unit(argument)).zip(states.word(count));
                let values = sums.map(|(sum, count)| match is_average {
                    true => sum.mean(count),
                    false if count == 0 => None,
                    false => sum.mean(1),
                });
                Arc::new(values.collect::<Float64Array>())
            }
            Kind::DecimalSum { word, count } => {
                let sums = states.decimals(word).map(|sum| sum.filter(has_digits).ok_or_else(too_large));
                let sums = Decimal128Array::new(sums.collect::<Result<_>>()?, nulls(count));
                Arc::new(sums.with_data_type(self.data_type.clone()))
            }
            Kind::DecimalAverage { word, count, ref quotient } => {
                let sum = |[low, middle, high]: [u64; 3]| {
                    let low = u128::from(low) | u128::from(middle) << u64::BITS;
                    i256::from_parts(low, high.cast_signed().into())
                };
                quotient.averages(states.wide_decimals(word).map(sum).zip(states.word(count)))?
            }
            Kind::Extreme { word, number_type: NumberType::Decimal, count } => {
                let values = states.extreme_decimals(word).collect();
                let values = Decimal128Array::new(values, nulls(count));
                Arc::new(values.with_data_type(self.data_type.clone()))
            }
            Kind::ExtremeText { word } => {
                let texts: BinaryViewArray = states.extreme_texts(word).collect();
                cast(&texts, &self.data_type)?
            }
            Kind::Extreme { word, number_type, count } => {
                extremes(&self.data_type, states.extreme(word, number_type), nulls(count))?
            }
        })
    }
}

/// Whether a DECIMAL of the widest type has the value.
fn has_digits(value: &i128) -> bool {
    value.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into())
}

/// Values of a type by their two's complement, floats by their places in the total order.
fn extremes(
    data_type: &DataType,
    words: impl Iterator<Item = u64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    fn array<T: ArrowPrimitiveType>(
        data_type: &DataType,
        words: impl Iterator<Item = u64>,
        nulls: Option<NullBuffer>,
        value: impl Fn(u64) -> T::Native,
    ) -> ArrayRef {
        let values = words.map(value).collect();
        Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone()))
    }
    macro_rules! of {
        ($type:ty) => {{
            #[expect(clippy::allow_attributes, reason = "one line serves all types")]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "words are of values of this type"
            )]
            let value = |word: u64| word as <$type as ArrowPrimitiveType>::Native;
            array::<$type>(data_type, words, nulls, value)
        }};
    }
    Ok(match data_type {
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt8 => of!(UInt8Type),
        DataType::UInt16 => of!(UInt16Type),
        DataType::UInt32 => of!(UInt32Type),
        DataType::UInt64 => of!(UInt64Type),
        DataType::Date32 => of!(Date32Type),
        DataType::Timestamp(TimeUnit::Second, _) => of!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of!(TimestampNanosecondType),
        DataType::Float32 => Arc::new(Float32Array::new(words.map(narrow_float_at).collect(), nulls)),
        DataType::Float64 => Arc::new(Float64Array::new(words.map(float_at).collect(), nulls)),
        other => return internal_err!("a smallest or largest integer of type {other}"),
    })
}

/// Numbers of a chunk that are lent to operators, and which rows have some.
pub(super) struct Lent {
    source: Source,
    validity: Option<Vec<bool>>,
}

enum Source {
    Array(ArrayRef),
    /// Flags as numbers.
    Flags(Vec<u8>),
    /// Decimals of 64 bits.
    Narrow(ScalarBuffer<i64>),
    Texts(Held),
}

fn bools(nulls: &NullBuffer) -> Vec<bool> {
    bitmaps::to_bools(Level::best(), Bits::new(nulls.validity(), nulls.offset(), nulls.len()))
}

impl Lent {
    fn new(array: ArrayRef) -> Self {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let validity = nulls.map(bools);
        if is_text(array.data_type()) {
            return Self { source: Source::Texts(Held::new(&array)), validity };
        }
        let flags = array.as_boolean_opt().map(|flags| {
            let bits = Bits::new(flags.values().values(), flags.values().offset(), flags.len());
            bitmaps::to_bools(Level::best(), bits).into_iter().map(u8::from).collect()
        });
        Self { source: flags.map_or(Source::Array(array), Source::Flags), validity }
    }

    /// The buffers that views point into.
    pub(super) fn buffers(&self) -> Vec<&[u8]> {
        if let Source::Texts(texts) = &self.source { texts.texts() } else { Vec::new() }
    }

    pub(super) fn argument<'a>(&'a self, buffers: &'a [&'a [u8]]) -> Result<Argument<'a>> {
        let values = match &self.source {
            Source::Texts(texts) => match texts.key(buffers).values {
                KeyValues::Text(texts) => Numbers::Texts(texts),
                _ => return internal_err!("texts that are none"),
            },
            Source::Flags(flags) => Numbers::U8(flags),
            Source::Narrow(values) => Numbers::I64(values),
            Source::Array(array) => numbers(array)?,
        };
        Ok(Argument { values, validity: self.validity.as_deref(), unit: 0 })
    }
}

fn numbers(array: &ArrayRef) -> Result<Numbers<'_>> {
    macro_rules! values {
        ($variant:ident, $type:ty) => {
            Numbers::$variant(&array.as_primitive::<$type>().values()[..])
        };
    }
    Ok(match array.data_type() {
        DataType::Int8 => values!(I8, Int8Type),
        DataType::Int16 => values!(I16, Int16Type),
        DataType::Int32 => values!(I32, Int32Type),
        DataType::Date32 => values!(I32, Date32Type),
        DataType::Int64 => values!(I64, Int64Type),
        DataType::Timestamp(TimeUnit::Second, _) => values!(I64, TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => values!(I64, TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => values!(I64, TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => values!(I64, TimestampNanosecondType),
        DataType::UInt8 => values!(U8, UInt8Type),
        DataType::UInt16 => values!(U16, UInt16Type),
        DataType::UInt32 => values!(U32, UInt32Type),
        DataType::UInt64 => values!(U64, UInt64Type),
        DataType::Float32 => values!(F32, Float32Type),
        DataType::Float64 => values!(F64, Float64Type),
        DataType::Decimal128(..) => values!(I128, Decimal128Type),
        other => return internal_err!("an argument of type {other}"),
    })
}
