//! `uuid()`, and the casts to UUID as functions with internal names.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::expressions::uuids::{as_uuid, to_text};

/// Converts its argument to UUIDs, or generates new ones.
#[derive(Debug)]
struct Uuids {
    name: &'static str,
    signature: Signature,
}

impl PartialEq for Uuids {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Uuids {}

impl Hash for Uuids {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// `CAST(x AS UUID)`.
pub(crate) const CAST: &str = "keirin_uuid";
/// `TRY_CAST(x AS UUID)`.
pub(crate) const TRY_CAST: &str = "keirin_try_uuid";
const NEW: &str = "uuid";

pub(crate) fn function(name: &'static str) -> ScalarUDF {
    let signature = match name {
        NEW => Signature::nullary(Volatility::Volatile),
        _ => Signature::any(1, Volatility::Immutable),
    };
    ScalarUDF::new_from_impl(Uuids { name, signature })
}

pub(super) fn functions() -> Vec<ScalarUDF> {
    [NEW, CAST, TRY_CAST].map(function).into()
}

impl ScalarUDFImpl for Uuids {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable =
            self.name == TRY_CAST || arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(as_uuid(Field::new(self.name, DataType::Utf8View, is_nullable))))
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = match arguments.args.pop() {
            Some(given) => given,
            None => {
                arguments.return_field = Arc::new(Field::new(NEW, DataType::Utf8, false));
                datafusion::functions::string::uuid().invoke_with_args(arguments)?
            }
        };
        let text = |values| {
            let texts = to_text(values, self.name == TRY_CAST);
            texts.map_err(|error| DataFusionError::External(Box::new(error)))
        };
        match given {
            ColumnarValue::Array(values) => Ok(ColumnarValue::Array(Arc::new(text(&values)?))),
            ColumnarValue::Scalar(value) => {
                let one = text(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&one, 0)?))
            }
        }
    }
}
