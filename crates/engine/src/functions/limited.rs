//! Functions that make much out of little, such as `repeat`: what would not fit into a column is refused before memory
//! is asked for, which ends the process where there is none.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{cast, kernels::length::length};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::error::{Error, ErrorKind};

/// What Arrow's offsets of 32 bits reach.
const BYTES_MAX: i128 = i32::MAX as i128;
/// An element of a list, at least.
const ELEMENT_BYTES: i128 = 8;
/// The longest character in UTF-8.
const CHARACTER_BYTES: i128 = 4;

pub(super) fn functions(registry: &dyn FunctionRegistry) -> Result<Vec<ScalarUDF>> {
    let names = ["repeat", "lpad", "rpad", "array_repeat", "array_resize", "range", "generate_series"];
    let limited = |name| Ok(ScalarUDF::new_from_impl(Limited { inner: registry.udf(name)? }));
    names.into_iter().map(limited).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Limited {
    inner: Arc<ScalarUDF>,
}

impl Limited {
    /// The bytes of all rows together, or of the longest where each may be so long; nothing if the arguments do not tell.
    fn bytes(&self, arguments: &[ColumnarValue], rows: usize) -> Result<Option<i128>> {
        let numbers = arguments.iter().map(|argument| numbers(argument, rows)).collect::<Result<Vec<_>>>()?;
        let column = |place: usize| numbers.get(place).and_then(Option::as_ref);
        let value = |column: &Int64Array, row| {
            if column.is_null(row) { None } else { Some(i128::from(column.value(row))) }
        };
        let has_views = arguments.first().is_some_and(|text| text.data_type() == DataType::Utf8View);
        let sum = |bytes: &dyn Fn(usize) -> Option<i128>| {
            let bytes = (0..rows).filter_map(bytes).map(|bytes| bytes.max(0));
            if has_views { bytes.max() } else { Some(bytes.sum()) }
        };
        Ok(match self.inner.name() {
            "repeat" => {
                let Some(count) = column(1) else { return Ok(None) };
                let texts = arguments[0].to_array(rows)?;
                let lengths = match texts.data_type() {
                    DataType::Utf8View => length(cast(&texts, &DataType::LargeUtf8)?.as_ref())?,
                    DataType::Utf8 | DataType::LargeUtf8 => length(texts.as_ref())?,
                    _ => return Ok(None),
                };
                let lengths = cast(&lengths, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
                sum(&|row| Some(value(count, row)? * value(&lengths, row)?))
            }
            "lpad" | "rpad" => match column(1) {
                Some(count) => sum(&|row| Some(value(count, row)? * CHARACTER_BYTES)),
                None => None,
            },
            "array_resize" if column(1).is_some_and(|sizes| sizes.iter().flatten().any(|size| size < 0)) => {
                let message = "array_resize takes a size of at least 0";
                return Err(DataFusionError::External(Box::new(Error::new(ErrorKind::Data, message))));
            }
            "array_repeat" | "array_resize" => match column(1) {
                Some(count) => sum(&|row| Some(value(count, row)? * ELEMENT_BYTES)),
                None => None,
            },
            _ => {
                let (first, last) = match (column(0), column(1)) {
                    (Some(last), None) if arguments.len() == 1 => (None, last),
                    (Some(first), Some(last)) => (Some(first), last),
                    _ => return Ok(None),
                };
                sum(&|row| {
                    let first = first.map_or(Some(0), |first| value(first, row))?;
                    let step = column(2).map_or(Some(1), |step| value(step, row))?;
                    let count = (value(last, row)? - first).checked_div(step)?;
                    Some(count * ELEMENT_BYTES)
                })
            }
        })
    }
}

/// The values of an argument that is whole numbers.
fn numbers(argument: &ColumnarValue, rows: usize) -> Result<Option<Int64Array>> {
    if !argument.data_type().is_integer() {
        return Ok(None);
    }
    let values: ArrayRef = argument.to_array(rows)?;
    Ok(Some(cast(&values, &DataType::Int64)?.as_primitive::<Int64Type>().clone()))
}

impl ScalarUDFImpl for Limited {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        if self.bytes(&arguments.args, rows)?.is_some_and(|bytes| bytes > BYTES_MAX) {
            let message = format!("{} gives more than 2 GB at a time", self.name());
            let error = Error::new(ErrorKind::Resources, message).with_hint("ask for less");
            return Err(DataFusionError::External(Box::new(error)));
        }
        // A length below 0 is that of no text; DataFusion makes it a large one.
        if matches!(self.name(), "lpad" | "rpad")
            && let Some(lengths) = numbers(&arguments.args[1], rows)?
            && lengths.iter().flatten().any(|length| length < 0)
        {
            let lengths: ArrayRef = Arc::new(lengths.unary::<_, Int64Type>(|length| length.max(0)));
            let lengths = cast(&lengths, &arguments.args[1].data_type())?;
            arguments.args[1] = match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?),
                false => ColumnarValue::Array(lengths),
            };
        }
        self.inner.invoke_with_args(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(arguments, context)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
