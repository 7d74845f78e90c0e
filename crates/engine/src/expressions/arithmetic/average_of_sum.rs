//! Averages of groups that were grouped further: of the sums and counts of their values.

use std::sync::Arc;

use arrow::array::{AsArray, Float64Array};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, i256};
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use keirin_kernels::aggregate::divided;

use super::DecimalQuotient;

/// A function of the sum and the count of values of type `of`: their average, which has type `to`; of none, NULL. The
/// sum is a BIGINT of whole numbers, else a DECIMAL. `name` is for errors.
pub(crate) fn average_of_sum(of: &DataType, to: &DataType, name: &str) -> ScalarUDF {
    ScalarUDF::new_from_impl(AverageOfSum {
        of: of.clone(),
        to: to.clone(),
        name: name.to_owned(),
        signature: Signature::any(2, Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AverageOfSum {
    of: DataType,
    to: DataType,
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for AverageOfSum {
    fn name(&self) -> &'static str {
        "average_of_sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let counts =
            arrays[1].as_primitive::<Int64Type>().iter().map(|count| count.unwrap_or(0).unsigned_abs());
        if self.of.is_integer() {
            let sums = arrays[0].as_primitive::<Int64Type>().iter().map(|sum| i128::from(sum.unwrap_or(0)));
            let averages = sums.zip(counts).map(|(sum, count)| divided(sum, count));
            return Ok(ColumnarValue::Array(Arc::new(averages.collect::<Float64Array>())));
        }
        let quotient = DecimalQuotient::new(&self.to, &self.of, &self.name)
            .ok_or_else(|| internal_datafusion_err!("an average of type {} of {}", self.to, self.of))?;
        let sums = arrays[0].as_primitive::<Decimal128Type>().iter();
        let sums = sums.map(|sum| i256::from_i128(sum.unwrap_or(0)));
        Ok(ColumnarValue::Array(quotient.averages(sums.zip(counts))?))
    }
}
