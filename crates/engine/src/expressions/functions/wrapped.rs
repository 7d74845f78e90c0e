//! Functions of DataFusion's whose calls are intercepted; everything else about them is unchanged.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

type Call = dyn Fn(&ScalarUDF, ScalarFunctionArgs) -> Result<ColumnarValue> + Send + Sync;

/// See the [module](self).
pub(super) struct Wrapped {
    inner: Arc<ScalarUDF>,
    call: Box<Call>,
    /// The variant that fails early rather than return a large result.
    pub(super) gentle: Option<Arc<ScalarUDF>>,
}

impl Wrapped {
    /// `inner`, with `call` run in place of its own code.
    pub(super) fn new(
        inner: Arc<ScalarUDF>,
        call: impl Fn(&ScalarUDF, ScalarFunctionArgs) -> Result<ColumnarValue> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, call: Box::new(call), gentle: None }
    }
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for Wrapped {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Wrapped {}

impl Hash for Wrapped {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Wrapped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.inner.schema_name(arguments)
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

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // These join their constants without asking for memory, and put the function that is not wrapped in
        // place of this one.
        if matches!(self.name(), "concat" | "concat_ws") {
            return Ok(ExprSimplifyResult::Original(arguments));
        }
        self.inner.simplify(arguments, context)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        (self.call)(&self.inner, arguments)
    }
}
