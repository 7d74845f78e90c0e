//! Normalises the values of files: decimals must have no more digits than their type, and negative NaNs
//! become positive.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type,
};
use datafusion::arrow::error::ArrowError;

/// The rows with normalised values.
///
/// # Errors
/// For decimals of more digits than the type has: Arrow would print them without the last digits, and its
/// casts panic.
pub(crate) fn checked(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let mut changed: Option<Vec<ArrayRef>> = None;
    for (index, column) in batch.columns().iter().enumerate() {
        check_digits(column).map_err(|error| {
            let name = batch.schema_ref().field(index).name();
            ArrowError::InvalidArgumentError(format!("column '{name}': {error}"))
        })?;
        if let Some(column) = with_one_nan(column) {
            changed.get_or_insert_with(|| batch.columns().to_vec())[index] = column;
        }
    }
    match changed {
        None => Ok(batch),
        Some(columns) => RecordBatch::try_new(batch.schema(), columns),
    }
}

fn check_digits(column: &ArrayRef) -> Result<(), ArrowError> {
    match column.data_type() {
        // Quickly, as most files are right: a value beyond the bound makes one of the differences negative.
        DataType::Decimal128(precision, _) => {
            let bound = 10_i128.pow(u32::from(*precision).min(38)) - 1;
            let column = column.as_primitive::<Decimal128Type>();
            let signs = column
                .values()
                .iter()
                .fold(0, |signs, value| signs | bound.wrapping_sub(*value) | bound.wrapping_add(*value));
            if signs < 0 { column.validate_decimal_precision(*precision) } else { Ok(()) }
        }
        DataType::Decimal256(precision, _) => {
            column.as_primitive::<Decimal256Type>().validate_decimal_precision(*precision)
        }
        _ => Ok(()),
    }
}

/// The floats with each negative NaN, the result of 0 / 0 on x86, replaced by a positive one: in the total
/// order of floats it would be the least. `None` if there is no negative NaN.
fn with_one_nan(column: &ArrayRef) -> Option<ArrayRef> {
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    match column.data_type() {
        DataType::Float16 => positive::<Float16Type>(column, Half::NEG_INFINITY, Half::NAN),
        DataType::Float32 => positive::<Float32Type>(column, f32::NEG_INFINITY, f32::NAN),
        DataType::Float64 => positive::<Float64Type>(column, f64::NEG_INFINITY, f64::NAN),
        _ => None,
    }
}

/// Replaces negative NaNs; `least` is negative infinity, and in the total order only they are less than it.
fn positive<T: ArrowPrimitiveType>(column: &ArrayRef, least: T::Native, nan: T::Native) -> Option<ArrayRef> {
    let column: &PrimitiveArray<T> = column.as_primitive();
    let is_any = column.values().iter().fold(false, |is_any, value| is_any | value.is_lt(least));
    let change = |value: T::Native| if value.is_lt(least) { nan } else { value };
    is_any.then(|| Arc::new(column.unary::<_, T>(change)) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Decimal128Array, Float32Array, Float64Array};

    use super::*;

    fn one(column: impl Array + 'static) -> RecordBatch {
        RecordBatch::try_from_iter([("c", Arc::new(column) as ArrayRef)]).unwrap()
    }

    #[test]
    fn negative_nans_become_positive_and_nothing_else_changes() {
        let negative = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
        let given =
            Float64Array::from(vec![Some(-1.0), None, Some(negative), Some(f64::NEG_INFINITY), Some(-0.0)]);
        let batch = checked(one(given)).unwrap();
        let bits: Vec<_> =
            batch.column(0).as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits)).collect();
        let expected = [Some(-1.0), None, Some(f64::NAN), Some(f64::NEG_INFINITY), Some(-0.0)];
        assert_eq!(bits, expected.map(|value: Option<f64>| value.map(f64::to_bits)));
        let negative = f32::from_bits(f32::NAN.to_bits() | 1 << 31);
        let batch = checked(one(Float32Array::from(vec![negative, 1.0]))).unwrap();
        assert_eq!(batch.column(0).as_primitive::<Float32Type>().value(0).to_bits(), f32::NAN.to_bits());
    }

    #[test]
    fn decimals_of_too_many_digits_are_an_error() {
        let decimals = |values: Vec<Option<i128>>| {
            one(Decimal128Array::from(values).with_precision_and_scale(4, 2).unwrap())
        };
        assert!(checked(decimals(vec![Some(9999), None, Some(-9999), Some(0)])).is_ok());
        for wrong in [10_000, -10_000, i128::MAX, i128::MIN] {
            let error = checked(decimals(vec![Some(1), Some(wrong)])).unwrap_err().to_string();
            assert!(error.contains("column 'c'"), "{error}");
        }
    }
}
