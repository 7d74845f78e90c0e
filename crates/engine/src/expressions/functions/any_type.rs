//! Functions of values of any type: `len`, `typeof`; and `bit_count`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::length::{bit_length, length};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, Signature, Volatility};

use super::Function;
use crate::types::{sql_field_type, sql_type_name};

pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |name, returns, run| {
        ScalarUDF::new_from_impl(Function {
            name,
            signature: Signature::any(1, Volatility::Immutable),
            returns,
            run,
        })
    };
    vec![
        function("len", DataType::Int64, len),
        function("typeof", DataType::Utf8, type_of),
        function("bit_count", DataType::Int64, bit_count),
    ]
}

/// `len`, which `length` of a list or of bytes becomes.
pub(crate) fn length_of_values() -> ScalarUDF {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(Function { name: "len", signature, returns: DataType::Int64, run: len })
}

/// The bits of a binary.
pub(super) fn bits_of_bytes() -> ScalarUDF {
    ScalarUDF::new_from_impl(Function {
        name: "bit_length",
        signature: Signature::any(1, Volatility::Immutable),
        returns: DataType::Int64,
        run: |arguments| {
            each_row(arguments, |bytes| Ok(cast(&bit_length(bytes.as_ref())?, &DataType::Int64)?))
        },
    })
}

/// Characters of a text, bytes of a binary, elements of a list.
fn len(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    each_row(arguments, |values| match values.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let texts = cast(values, &DataType::Utf8View)?;
            let count = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            Ok(Arc::new(Int64Array::from_iter(texts.as_string_view().iter().map(|text| text.map(count)))))
        }
        DataType::Null => Ok(Arc::new(Int64Array::new_null(values.len()))),
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => Ok(cast(&length(values.as_ref())?, &DataType::Int64)?),
        other => exec_err!("len takes a text or a list, not {}", sql_type_name(other)),
    })
}

/// The bytes of a text as they are, whereas a cast to bytes reads escapes.
pub(crate) fn bytes_of_text(text: Expr) -> Expr {
    ScalarUDF::new_from_impl(Function {
        name: "keirin_bytes",
        signature: Signature::any(1, Volatility::Immutable),
        returns: DataType::Binary,
        run: |arguments| {
            each_row(arguments, |texts| Ok(cast(&cast(texts, &DataType::Utf8)?, &DataType::Binary)?))
        },
    })
    .call(vec![text])
}

/// A function from Arrow's name of a type to SQL's.
pub(crate) fn sql_type() -> ScalarUDF {
    ScalarUDF::new_from_impl(Function {
        name: "keirin_sql_type",
        signature: Signature::uniform(1, vec![DataType::Utf8], Volatility::Immutable),
        returns: DataType::Utf8,
        run: |arguments| {
            each_row(arguments, |names| {
                let name =
                    |name: &str| name.parse().map_or_else(|_| name.to_owned(), |of| sql_type_name(&of));
                let names = names.as_string::<i32>().iter().map(|one| one.map(name));
                Ok(Arc::new(names.collect::<StringArray>()))
            })
        },
    })
}

/// The SQL name of the argument's type.
fn type_of(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let name = sql_field_type(&arguments.arg_fields[0]);
    Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
}

/// The number of set bits in an integer's two's complement.
fn bit_count(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    each_row(arguments, |values| {
        let (data_type, width) = match values.data_type() {
            integer if integer.is_integer() => (integer.clone(), integer.primitive_width().unwrap_or(8)),
            DataType::Null => (DataType::Int64, 8),
            other => return exec_err!("bit_count takes an integer, not {}", sql_type_name(other)),
        };
        // The sign extension beyond the width of a negative number does not count.
        let numbers = match data_type {
            DataType::UInt64 => values.as_primitive::<UInt64Type>().unary::<_, Int64Type>(u64::cast_signed),
            _ => cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
        };
        let mask = u64::MAX >> (64 - 8 * width);
        let ones = |number: i64| i64::from((number.cast_unsigned() & mask).count_ones());
        Ok(Arc::new(numbers.unary::<_, Int64Type>(ones)))
    })
}

/// Applies `run` to the one argument, which stays a scalar if it is one.
fn each_row(
    arguments: ScalarFunctionArgs,
    run: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    match &arguments.args[0] {
        ColumnarValue::Array(values) => run(values).map(ColumnarValue::Array),
        ColumnarValue::Scalar(value) => {
            let result = run(&value.to_array()?)?;
            ScalarValue::try_from_array(&result, 0).map(ColumnarValue::Scalar)
        }
    }
}
