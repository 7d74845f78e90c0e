//! `||` of texts as a function, which asks for memory before it makes a large text.

use std::sync::Arc;

use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use super::operators::{operator_display, operator_name};
use super::rewrite_expressions_down;

/// See the [module](self). The rule runs after type coercion, which gives both operands one type.
#[derive(Debug)]
pub(crate) struct Concatenation {
    /// [`concatenation`] with a bound on its memory.
    pub(crate) function: Arc<ScalarUDF>,
}

impl Concatenation {
    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) = expr else {
            return Ok(Transformed::no(expr));
        };
        let data_type = left.get_type(schema)?;
        if !data_type.is_string() || right.get_type(schema)? != data_type {
            let expr = BinaryExpr { left, op: Operator::StringConcat, right };
            return Ok(Transformed::no(Expr::BinaryExpr(expr)));
        }
        Ok(Transformed::yes(self.function.call(vec![*left, *right])))
    }
}

impl AnalyzerRule for Concatenation {
    fn name(&self) -> &'static str {
        "concatenation"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions_down(plan, |expr, schema| self.rewrite(expr, schema))
    }
}

/// The function of two texts that `||` becomes.
pub(crate) fn concatenation() -> ScalarUDF {
    ScalarUDF::new_from_impl(Concatenate { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenate {
    signature: Signature,
}

impl ScalarUDFImpl for Concatenate {
    fn name(&self) -> &'static str {
        "||"
    }

    fn display_name(&self, operands: &[Expr]) -> Result<String> {
        Ok(operator_display(self.name(), &operands[0], &operands[1]))
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        Ok(operator_name(self.name(), &operands[0], &operands[1]))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, operands: &[DataType]) -> Result<DataType> {
        Ok(operands[0].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), arguments.arg_fields[0].data_type().clone(), is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|operand| matches!(operand, ColumnarValue::Scalar(_)));
        let operands = ColumnarValue::values_to_arrays(&arguments.args)?;
        let texts = concat_elements_dyn(&operands[0], &operands[1])?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
        } else {
            ColumnarValue::Array(texts)
        })
    }
}
