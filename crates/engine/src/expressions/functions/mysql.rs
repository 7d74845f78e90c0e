//! Functions with MySQL's names and meaning: `hex` of numbers, `ord` of characters of several bytes.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, Signature, Volatility};

use super::Function;
use crate::expressions::casts::convert;

pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |name, returns, run| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::new_from_impl(Function { name, signature, returns, run })
    };
    vec![function("hex", DataType::Utf8View, hex), function("ord", DataType::Int64, ord)]
}

fn each(arguments: &ScalarFunctionArgs, run: fn(&ArrayRef) -> Result<ArrayRef>) -> Result<ColumnarValue> {
    Ok(match &arguments.args[0] {
        ColumnarValue::Array(values) => ColumnarValue::Array(run(values)?),
        ColumnarValue::Scalar(value) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&run(&value.to_array()?)?, 0)?)
        }
    })
}

/// An integer in base 16, in two's complement if negative; for other types their bytes.
fn hex(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    each(&arguments, |values| {
        let data_type = values.data_type();
        let texts: StringViewArray = if data_type.is_numeric() {
            let numbers = if *data_type == DataType::UInt64 {
                values.as_primitive::<UInt64Type>().clone()
            } else {
                let numbers = convert(values, &DataType::Int64, false)?;
                numbers.as_primitive::<Int64Type>().unary::<_, UInt64Type>(i64::cast_unsigned)
            };
            numbers.iter().map(|number| number.map(|number| format!("{number:X}"))).collect()
        } else {
            let bytes = match data_type {
                DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_) => cast(values, &DataType::BinaryView)?,
                _ => cast(&cast(values, &DataType::Utf8View)?, &DataType::BinaryView)?,
            };
            let digits = |bytes: &[u8]| {
                bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                    // Writing to a String does not fail.
                    _ = write!(text, "{byte:02X}");
                    text
                })
            };
            bytes.as_binary_view().iter().map(|bytes| bytes.map(digits)).collect()
        };
        Ok(Arc::new(texts))
    })
}

/// The bytes of the first character as one number.
fn ord(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    each(&arguments, |values| {
        let texts = cast(values, &DataType::Utf8View)?;
        let code = |text: &str| {
            let length = text.chars().next().map_or(0, char::len_utf8);
            text.as_bytes()[..length].iter().fold(0, |code, byte| code << 8 | i64::from(*byte))
        };
        let codes = texts.as_string_view().iter().map(|text| text.map(code));
        Ok(Arc::new(Int64Array::from_iter(codes)))
    })
}
