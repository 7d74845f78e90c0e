//! `+`, `-`, `*` and unary minus of whole numbers of one type, and of DECIMALs whose result can need more
//! digits than its type has: they fail where the result does not fit.
//!
//! The loop computes wrapped results and whether any overflowed, without a branch, so that it costs about as
//! much as a loop that does not look. Only when something overflowed does a second look tell whether that
//! was a row or the value behind a NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, Field, FieldRef, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;

use super::overflow;
use crate::compile::rules::{operator_display, operator_name};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    /// Unary minus, computed as `0 - x`.
    Negate,
}

impl Operation {
    fn symbol(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract | Self::Negate => '-',
            Self::Multiply => '*',
        }
    }

    fn operator(self) -> Option<Operator> {
        match self {
            Self::Add => Some(Operator::Plus),
            Self::Subtract => Some(Operator::Minus),
            Self::Multiply => Some(Operator::Multiply),
            Self::Negate => None,
        }
    }

    /// The operation of operands that are written like this.
    fn write(self, operands: &[String]) -> String {
        match operands {
            [operand] => format!("(- {operand})"),
            operands => operands.join(&format!(" {} ", self.symbol())),
        }
    }
}

/// See the [module](self).
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Checked {
    operation: Operation,
    signature: Signature,
}

impl Checked {
    pub(super) fn new(operation: Operation) -> Self {
        let operand_count = if operation == Operation::Negate { 1 } else { 2 };
        Self { operation, signature: Signature::any(operand_count, Volatility::Immutable) }
    }

    pub(super) fn operation(&self) -> Operation {
        self.operation
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &'static str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Negate => "checked_negate",
        }
    }

    fn display_name(&self, operands: &[Expr]) -> Result<String> {
        Ok(match operands {
            [left, right] => operator_display(self.name(), left, right),
            operands => self.operation.write(&[operands[0].to_string()]),
        })
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        Ok(match operands {
            [left, right] => operator_name(self.name(), left, right),
            operands => self.operation.write(&[operands[0].schema_name().to_string()]),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, operands: &[DataType]) -> Result<DataType> {
        let decimal = match operands {
            [left, right] => self.operation.operator().and_then(|op| decimal_type(op, left, right)),
            _ => None,
        };
        Ok(decimal.unwrap_or_else(|| operands[0].clone()))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        let types: Vec<_> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let data_type = self.return_type(&types)?;
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let data_type = arguments.return_field.data_type();
        let (left, right) = match arguments.args.as_slice() {
            [operand] => (&ColumnarValue::Scalar(ScalarValue::new_zero(data_type)?), operand),
            [left, right] => (left, right),
            other => return internal_err!("an operator with {} operands", other.len()),
        };
        match data_type {
            DataType::Int8 => evaluate::<Int8Type>(self.operation, left, right),
            DataType::Int16 => evaluate::<Int16Type>(self.operation, left, right),
            DataType::Int32 => evaluate::<Int32Type>(self.operation, left, right),
            DataType::Int64 => evaluate::<Int64Type>(self.operation, left, right),
            DataType::UInt8 => evaluate::<UInt8Type>(self.operation, left, right),
            DataType::UInt16 => evaluate::<UInt16Type>(self.operation, left, right),
            DataType::UInt32 => evaluate::<UInt32Type>(self.operation, left, right),
            DataType::UInt64 => evaluate::<UInt64Type>(self.operation, left, right),
            DataType::Decimal128(..) => decimals(self.operation, data_type, left, right),
            other => internal_err!("{other} is not a type of whole numbers"),
        }
    }
}

/// The result type of `left op right` if both are DECIMALs and the result can need more digits than that type
/// has.
pub(super) fn decimal_type(op: Operator, left: &DataType, right: &DataType) -> Option<DataType> {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (left, right) else { return None };
    let (p1, s1, p2, s2) = (i32::from(*p1), i32::from(*s1), i32::from(*p2), i32::from(*s2));
    let digits = match op {
        Operator::Plus | Operator::Minus => s1.max(s2) + (p1 - s1).max(p2 - s2) + 1,
        Operator::Multiply => p1 + p2,
        _ => return None,
    };
    if digits <= DECIMAL128_MAX_PRECISION.into() {
        return None;
    }
    BinaryTypeCoercer::new(left, &op, right).get_result_type().ok()
}

/// Computes DECIMALs with Arrow's operator, which fails beyond 128 bits, and then checks the number of
/// digits.
fn decimals(
    operation: Operation,
    data_type: &DataType,
    left: &ColumnarValue,
    right: &ColumnarValue,
) -> Result<ColumnarValue> {
    let compute = |left: &dyn Datum, right: &dyn Datum| -> Result<ArrayRef, ArrowError> {
        let result = match operation {
            Operation::Add => numeric::add(left, right)?,
            Operation::Subtract | Operation::Negate => numeric::sub(left, right)?,
            Operation::Multiply => numeric::mul(left, right)?,
        };
        if let DataType::Decimal128(precision, _) = result.data_type() {
            // Arrow's own check of columns takes a negative scale for a large one.
            let has_digits = |value| Decimal128Type::is_valid_decimal_precision(value, *precision);
            if !result.as_primitive::<Decimal128Type>().iter().flatten().all(has_digits) {
                return Err(ArrowError::ArithmeticOverflow(format!("more than {precision} digits")));
            }
        }
        Ok(result)
    };
    let computed = apply_decimals(left, right, compute);
    let result = match computed {
        Ok(result) => result,
        Err(error) => {
            let row_count = [left, right].into_iter().find_map(|operand| match operand {
                ColumnarValue::Array(column) => Some(column.len()),
                ColumnarValue::Scalar(_) => None,
            });
            let row_count = row_count.unwrap_or(1);
            let (left, right) = (left.to_array(row_count)?, right.to_array(row_count)?);
            for row in 0..row_count {
                let (left, right) = (left.slice(row, 1), right.slice(row, 1));
                if compute(&left, &right).is_err() {
                    let operands = [array_value_to_string(&left, 0)?, array_value_to_string(&right, 0)?];
                    return Err(overflow(data_type, &operation.write(&operands)));
                }
            }
            return Err(error.into());
        }
    };
    match (left, right) {
        (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)) => {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
        }
        _ => Ok(ColumnarValue::Array(result)),
    }
}

fn apply_decimals(
    left: &ColumnarValue,
    right: &ColumnarValue,
    compute: impl Fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>,
) -> Result<ArrayRef, ArrowError> {
    let scalar = |value: &ScalarValue| {
        value.to_scalar().map_err(|error| ArrowError::from_external_error(error.into()))
    };
    match (left, right) {
        (ColumnarValue::Array(left), ColumnarValue::Array(right)) => compute(left, right),
        (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => compute(left, &scalar(right)?),
        (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => compute(&scalar(left)?, right),
        (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
            compute(&scalar(left)?, &scalar(right)?)
        }
    }
}

/// An integer type whose operations report overflow.
trait Whole: Copy + ToString {
    fn add(self, other: Self) -> (Self, bool);
    fn subtract(self, other: Self) -> (Self, bool);
    fn multiply(self, other: Self) -> (Self, bool);
}

macro_rules! whole {
    ($($native:ty)*) => { $(
        impl Whole for $native {
            #[inline]
            fn add(self, other: Self) -> (Self, bool) {
                self.overflowing_add(other)
            }
            #[inline]
            fn subtract(self, other: Self) -> (Self, bool) {
                self.overflowing_sub(other)
            }
            #[inline]
            fn multiply(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
        }
    )* };
}
whole!(i8 i16 i32 i64 u8 u16 u32 u64);

fn evaluate<T: ArrowPrimitiveType>(
    operation: Operation,
    left: &ColumnarValue,
    right: &ColumnarValue,
) -> Result<ColumnarValue>
where
    T::Native: Whole,
{
    match operation {
        Operation::Add => apply::<T>(operation, left, right, T::Native::add),
        Operation::Subtract | Operation::Negate => apply::<T>(operation, left, right, T::Native::subtract),
        Operation::Multiply => apply::<T>(operation, left, right, T::Native::multiply),
    }
}

fn apply<T: ArrowPrimitiveType>(
    operation: Operation,
    left: &ColumnarValue,
    right: &ColumnarValue,
    compute: impl Fn(T::Native, T::Native) -> (T::Native, bool) + Copy,
) -> Result<ColumnarValue>
where
    T::Native: Whole,
{
    let array = match (left, right) {
        (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
            let (left, right) = (left.to_array()?, right.to_array()?);
            let result = columns(operation, left.as_primitive::<T>(), right.as_primitive(), compute)?;
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        (ColumnarValue::Array(left), ColumnarValue::Array(right)) => {
            columns(operation, left.as_primitive::<T>(), right.as_primitive(), compute)?
        }
        (ColumnarValue::Array(column), ColumnarValue::Scalar(value)) => {
            let value = value.to_array()?;
            let value = value.as_primitive::<T>();
            let show = |row, value| write(operation, row, value);
            constant(column.as_primitive(), value, compute, show)?
        }
        (ColumnarValue::Scalar(value), ColumnarValue::Array(column)) => {
            let value = value.to_array()?;
            let value = value.as_primitive::<T>();
            let show = |row, value| write(operation, value, row);
            constant(column.as_primitive(), value, |row, value| compute(value, row), show)?
        }
    };
    Ok(ColumnarValue::Array(Arc::new(array)))
}

/// Computes two columns row by row.
fn columns<T: ArrowPrimitiveType>(
    operation: Operation,
    left: &PrimitiveArray<T>,
    right: &PrimitiveArray<T>,
    compute: impl Fn(T::Native, T::Native) -> (T::Native, bool),
) -> Result<PrimitiveArray<T>>
where
    T::Native: Whole,
{
    if left.len() != right.len() {
        return internal_err!("columns of {} and {} rows", left.len(), right.len());
    }
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    let pairs = || left.values().iter().zip(right.values().iter());
    let mut any_overflow = false;
    let values: Vec<T::Native> = pairs()
        .map(|(left, right)| {
            let (value, is_overflow) = compute(*left, *right);
            any_overflow |= is_overflow;
            value
        })
        .collect();
    let result = PrimitiveArray::new(values.into(), nulls);
    if any_overflow
        && let Some((_, (left, right))) = pairs()
            .enumerate()
            .find(|(row, (left, right))| result.is_valid(*row) && compute(**left, **right).1)
    {
        return Err(overflow(&T::DATA_TYPE, &write(operation, *left, *right)));
    }
    Ok(result)
}

/// Computes a column with the one row of `value`.
fn constant<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    value: &PrimitiveArray<T>,
    compute: impl Fn(T::Native, T::Native) -> (T::Native, bool),
    show: impl Fn(T::Native, T::Native) -> String,
) -> Result<PrimitiveArray<T>>
where
    T::Native: Whole,
{
    if value.is_null(0) {
        return Ok(PrimitiveArray::new_null(column.len()));
    }
    let value = value.value(0);
    let mut any_overflow = false;
    let values: Vec<T::Native> = column
        .values()
        .iter()
        .map(|row| {
            let (value, is_overflow) = compute(*row, value);
            any_overflow |= is_overflow;
            value
        })
        .collect();
    if any_overflow && let Some(row) = column.iter().flatten().find(|row| compute(*row, value).1) {
        return Err(overflow(&T::DATA_TYPE, &show(row, value)));
    }
    Ok(PrimitiveArray::new(values.into(), column.nulls().cloned()))
}

fn write<N: Whole>(operation: Operation, left: N, right: N) -> String {
    let (left, right) = (left.to_string(), right.to_string());
    match operation {
        Operation::Negate => format!("-({right})"),
        _ => operation.write(&[left, right]),
    }
}
