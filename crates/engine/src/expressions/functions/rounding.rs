//! `round` and `trunc` of floats to digits before the point, and to more digits behind it than floats have.

use arrow::array::{AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::Wrapped;

pub(super) fn functions() -> Vec<ScalarUDF> {
    [math::round(), math::trunc()].map(|inner| ScalarUDF::new_from_impl(Wrapped::new(inner, rounded))).into()
}

/// Corrects DataFusion's function, which scales by a power of ten: that is inexact before the point, and
/// infinite or zero for so many digits.
fn rounded(inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let given = arguments.args.clone();
    let rows = arguments.number_rows;
    let rounded = inner.invoke_with_args(arguments)?;
    let [values, digits] = given.as_slice() else { return Ok(rounded) };
    if !rounded.data_type().is_floating() {
        return Ok(rounded);
    }
    let round = if inner.name() == "round" { f64::round } else { f64::trunc };
    let is_scalar = matches!(rounded, ColumnarValue::Scalar(_));
    let rounded = rounded.to_array(rows)?;
    let data_type = rounded.data_type().clone();
    let greatest = if data_type == DataType::Float32 { f32::MAX.into() } else { f64::MAX };
    let digits = cast(&digits.to_array(rows)?, &DataType::Int64)?;
    let values = cast(&cast(&values.to_array(rows)?, &data_type)?, &DataType::Float64)?;
    let rounded = cast(&rounded, &DataType::Float64)?;
    let rows = values.as_primitive::<Float64Type>().iter().zip(rounded.as_primitive::<Float64Type>());
    let mut known = (0, 1.0);
    let corrected: Float64Array = rows
        .zip(digits.as_primitive::<Int64Type>())
        .map(|((value, rounded), digits)| {
            let (value, mut rounded, digits) = (value?, rounded?, digits?);
            if digits < 0 {
                if known.0 != digits {
                    known = (digits, power(digits));
                }
                let count = round(value / known.1);
                // Zero of an infinite power is zero.
                rounded = if count == 0.0 { count } else { count * known.1 };
            }
            Some(if rounded.abs() <= greatest { rounded } else { value })
        })
        .collect();
    let corrected = cast(&corrected, &data_type)?;
    if is_scalar {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&corrected, 0)?));
    }
    Ok(ColumnarValue::Array(corrected))
}

/// The float nearest to `10^-digits`, or infinity.
fn power(digits: i64) -> f64 {
    format!("1e{}", digits.unsigned_abs()).parse().unwrap_or(f64::INFINITY)
}
