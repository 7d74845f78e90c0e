//! Functions of text that take longer than to see whether it repeats: rows that have one view, as those of a dictionary
//! do, are computed once. The case of ASCII text is changed faster than that is seen.

use std::sync::Arc;

use arrow::array::{Array, AsArray, UInt32Array};
use arrow::compute::take;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use keirin_kernels::arrow::change_case_of_views;
use keirin_kernels::group_table::Repeated;
use keirin_kernels::text::Case;
use keirin_kernels::{Bits, Level};

use super::wrapped::Wrapped;

const COSTLY: [&str; 12] = [
    "lower",
    "md5",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "replace",
    "reverse",
    "sha256",
    "split_part",
    "upper",
];

/// Wraps these functions of the planner.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for name in COSTLY {
        let function = Wrapped::new(state.udf(name)?, once_per_view);
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    }
    Ok(())
}

fn once_per_view(inner: &ScalarUDF, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let case = match inner.name() {
        "lower" => Some(Case::Lower),
        "upper" => Some(Case::Upper),
        _ => None,
    };
    if let (Some(case), [ColumnarValue::Array(column)]) = (case, &arguments.args[..])
        && let Some(texts) = column.as_string_view_opt()
        && let Some(changed) = change_case_of_views(Level::best(), texts, case)
    {
        return Ok(ColumnarValue::Array(Arc::new(changed)));
    }
    let mut columns = arguments.args.iter_mut().filter_map(|argument| match argument {
        ColumnarValue::Array(array) => Some(array),
        ColumnarValue::Scalar(_) => None,
    });
    let (Some(column), None) = (columns.next(), columns.next()) else {
        return inner.invoke_with_args(arguments);
    };
    let Some(repeated) = column.as_string_view_opt().and_then(|texts| {
        let nulls = texts.nulls().map(|nulls| Bits::new(nulls.validity(), nulls.offset(), nulls.len()));
        Repeated::new(Level::best(), texts.views(), nulls)
    }) else {
        return inner.invoke_with_args(arguments);
    };
    *column = take(column, &UInt32Array::from(repeated.rows), None)?;
    arguments.number_rows = column.len();
    Ok(match inner.invoke_with_args(arguments)? {
        ColumnarValue::Array(found) => {
            ColumnarValue::Array(take(&found, &UInt32Array::from(repeated.places), None)?)
        }
        same => same,
    })
}
