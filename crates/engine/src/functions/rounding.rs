//! `round` and `trunc` of floats with more digits before or after the point than floats have.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::Wrapped;

pub(super) fn functions() -> Vec<ScalarUDF> {
    [math::round(), math::trunc()].map(|inner| ScalarUDF::new_from_impl(Wrapped::new(inner, rounded))).into()
}

/// Corrects DataFusion's function, which scales by a power of ten that becomes infinite or zero for so many
/// digits.
fn rounded(inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let given = arguments.args.clone();
    let rows = arguments.number_rows;
    let rounded = inner.invoke_with_args(arguments)?;
    let [values, digits] = given.as_slice() else { return Ok(rounded) };
    if !rounded.data_type().is_floating() {
        return Ok(rounded);
    }
    let is_scalar = matches!(rounded, ColumnarValue::Scalar(_));
    let rounded = rounded.to_array(rows)?;
    let digits = cast(&digits.to_array(rows)?, &DataType::Int64)?;
    let digits = digits.as_primitive::<Int64Type>();
    macro_rules! corrected {
        ($type:ty, $array:ty) => {{
            let values = cast(&values.to_array(rows)?, rounded.data_type())?;
            let pairs =
                values.as_primitive::<$type>().iter().zip(rounded.as_primitive::<$type>()).zip(digits);
            let corrected = pairs.map(|((value, rounded), digits)| match (value, rounded, digits) {
                (Some(value), Some(rounded), Some(digits)) if value.is_finite() && !rounded.is_finite() => {
                    Some(if digits > 0 { value } else { 0.0 })
                }
                _ => rounded,
            });
            Arc::new(corrected.collect::<$array>()) as ArrayRef
        }};
    }
    let corrected = match rounded.data_type() {
        DataType::Float32 => corrected!(Float32Type, Float32Array),
        DataType::Float64 => corrected!(Float64Type, Float64Array),
        _ => rounded,
    };
    if is_scalar {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&corrected, 0)?));
    }
    Ok(ColumnarValue::Array(corrected))
}
