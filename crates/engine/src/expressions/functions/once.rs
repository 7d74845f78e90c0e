//! Internal functions that rules put into plans: in place of expressions whose operands must be computed once
//! per row, and to tell equal calls of volatile functions, and a value and its casts, apart.

use std::sync::Arc;

use arrow::array::{BooleanArray, Int64Array};
use arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{and_kleene, is_not_null};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::{comparison_coercion, type_union_coercion};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// `x BETWEEN low AND high`.
pub(crate) const BETWEEN: &str = "keirin_between";
/// The first argument that is not NULL.
pub(crate) const COALESCE: &str = "keirin_coalesce";
/// Its first argument, which is volatile; the second argument makes it differ from other calls.
pub(crate) const APART: &str = "keirin_apart";
/// Its first argument, under a name with the second one, by which a cast of it to another type is not named alike.
pub(crate) const NAMED: &str = "keirin_named";
/// The value of a scalar subquery, from the first argument; the second is the subquery's number of rows.
pub(crate) const ONLY: &str = "keirin_only";

/// The function of this name.
pub(crate) fn function(name: &'static str) -> ScalarUDF {
    let volatility = if name == APART { Volatility::Volatile } else { Volatility::Immutable };
    ScalarUDF::new_from_impl(Once { name, signature: Signature::user_defined(volatility) })
}

pub(super) fn functions() -> Vec<ScalarUDF> {
    [BETWEEN, COALESCE, APART, NAMED, ONLY].map(function).into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Once {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Once {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, ..] if self.name == BETWEEN => Ok(DataType::Boolean),
            [first, ..] => Ok(first.clone()),
            [] => internal_err!("{} of nothing", self.name),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let field = arguments.arg_fields[0].as_ref().clone();
        let is_nullable = match self.name {
            COALESCE => arguments.arg_fields.iter().all(|field| field.is_nullable()),
            ONLY => true,
            _ => arguments.arg_fields.iter().any(|field| field.is_nullable()),
        };
        Ok(field
            .with_name(self.name)
            .with_data_type(self.return_type(&types)?)
            .with_nullable(is_nullable)
            .into())
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let common = match self.name {
            BETWEEN => {
                types.iter().cloned().map(Some).reduce(|left, right| comparison_coercion(&left?, &right?))
            }
            COALESCE => {
                types.iter().cloned().map(Some).reduce(|left, right| type_union_coercion(&left?, &right?))
            }
            _ => return Ok(types.to_vec()),
        };
        match common.flatten() {
            Some(common) => Ok(vec![common; types.len()]),
            None => plan_err!("values of types {types:?} cannot be compared"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if matches!(self.name, APART | NAMED) {
            return Ok(arguments.args.into_iter().next().expect("it was planned with two arguments"));
        }
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        match (self.name, columns.as_slice()) {
            (BETWEEN, [value, low, high]) => {
                let is_between = and_kleene(&gt_eq(value, low)?, &lt_eq(value, high)?)?;
                Ok(ColumnarValue::Array(Arc::new(is_between)))
            }
            (COALESCE, [first, others @ ..]) => {
                let mut found = first.clone();
                for other in others {
                    found = zip(&is_not_null(found.as_ref())?, &found, other)?;
                }
                Ok(ColumnarValue::Array(found))
            }
            (ONLY, [value, count]) => {
                let two = Int64Array::new_scalar(2);
                let is_many: BooleanArray = gt_eq(count, &two)?;
                if is_many.true_count() > 0 {
                    return exec_err!("a subquery that stands for one value gave more than one row");
                }
                Ok(ColumnarValue::Array(value.clone()))
            }
            (name, arguments) => internal_err!("{name} of {} arguments", arguments.len()),
        }
    }
}
