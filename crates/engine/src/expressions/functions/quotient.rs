//! `a // b`: the quotient truncated towards zero; exact for DECIMALs.

use std::sync::Arc;

use arrow::array::{AsArray, Decimal128Array, Decimal256Array};
use arrow::compute::{CastOptions, cast_with_options, try_binary};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, i256,
};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};

/// The name of the function that `//` stands for.
pub(crate) const QUOTIENT: &str = "keirin_quotient";

/// The function for DECIMALs. For integers and floats [`CommonTypes`](crate::compile::rules::CommonTypes) replaces it
/// by the planner's division.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quotient {
    signature: Signature,
}

pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![function()]
}

fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(Quotient { signature: Signature::any(2, Volatility::Immutable) })
}

/// The exact quotient of integers that no integer type holds both of.
pub(crate) fn wide_quotient(left: Expr, right: Expr) -> Expr {
    let wide = |operand| cast(operand, DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
    function().call(vec![wide(left), wide(right)])
}

/// Whether both types are exact numbers, and one of them is a DECIMAL.
pub(crate) fn has_decimal(left: &DataType, right: &DataType) -> bool {
    let is_exact = |data_type: &DataType| data_type.is_decimal() || data_type.is_integer();
    is_exact(left) && is_exact(right) && (left.is_decimal() || right.is_decimal())
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &'static str {
        QUOTIENT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if has_decimal(&types[0], &types[1]) {
            return Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
        }
        BinaryTypeCoercer::new(&types[0], &Operator::Divide, &types[1]).get_result_type()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        quotients(arguments)
    }
}

fn quotients(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    };
    let scale = scale(arrays[0].data_type()).max(scale(arrays[1].data_type()));
    // At equal scales, the quotient of the unscaled values is that of the values.
    let wide = DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let [a, b] = [0, 1].map(|index| cast_with_options(&arrays[index], &wide, &options));
    let (a, b) = (a?, b?);
    let (a, b): (&Decimal256Array, &Decimal256Array) =
        (a.as_primitive::<Decimal256Type>(), b.as_primitive::<Decimal256Type>());
    let quotients: Decimal128Array = try_binary::<_, _, _, Decimal128Type>(a, b, |a: i256, b: i256| {
        let quotient = a.checked_div(b).ok_or(ArrowError::DivideByZero)?;
        let too_wide = || ArrowError::ArithmeticOverflow(format!("{quotient} has more than 38 digits"));
        quotient.to_i128().ok_or_else(too_wide)
    })?;
    let quotients = quotients.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?;
    quotients.validate_decimal_precision(DECIMAL128_MAX_PRECISION)?;
    if is_scalar {
        return ScalarValue::try_from_array(&quotients, 0).map(ColumnarValue::Scalar);
    }
    Ok(ColumnarValue::Array(Arc::new(quotients)))
}
