//! Functions that return the state of the session.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, Signature, Volatility};

use super::Function;

/// The current schema, which USE sets. In MySQL, where schemas are called databases, that is `database()`.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |name| {
        let signature = Signature::nullary(Volatility::Stable);
        ScalarUDF::new_from_impl(Function { name, signature, returns: DataType::Utf8, run: current_schema })
    };
    ["current_schema", "database", "schema"].map(function).into()
}

fn current_schema(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let schema = arguments.config_options.catalog.default_schema.clone();
    Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(schema))))
}
