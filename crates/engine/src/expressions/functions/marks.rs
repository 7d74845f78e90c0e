//! Functions that are never called: they mark what neither the parser nor the planner knows, until a rule takes them out.

use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    name: &'static str,
    stands_for: &'static str,
    signature: Signature,
}

/// A function of one argument with this name, which stands for something in a statement.
pub(crate) fn mark(name: &'static str, stands_for: &'static str, volatility: Volatility) -> ScalarUDF {
    ScalarUDF::new_from_impl(Mark { name, stands_for, signature: Signature::any(1, volatility) })
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("{} stands for {} and can't be called", self.name, self.stands_for)
    }
}
