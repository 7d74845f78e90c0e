//! `now`, `to_timestamp` and `strptime`: timestamps in microseconds; `now` and `to_timestamp` have the
//! session's zone.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use chrono::NaiveTime;
use chrono::format::{Parsed, StrftimeItems, parse};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::datetime::to_timestamp::ToTimestampMicrosFunc;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::Function;
use crate::casts::convert;
use crate::sql_types::SessionZone;

pub(super) fn functions(zone: &SessionZone) -> Vec<ScalarUDF> {
    let moment =
        |which| ScalarUDF::new_from_impl(Moments { which, zone: zone.clone(), signature: which.signature() });
    let strptime = Function {
        name: "strptime",
        signature: Signature::any(2, Volatility::Immutable),
        returns: DataType::Timestamp(TimeUnit::Microsecond, None),
        run: strptime,
    };
    vec![
        moment(Which::Now).with_aliases(["current_timestamp"]),
        moment(Which::ToTimestamp),
        ScalarUDF::new_from_impl(strptime),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Now,
    ToTimestamp,
}

impl Which {
    fn signature(self) -> Signature {
        match self {
            Self::Now => Signature::nullary(Volatility::Stable),
            Self::ToTimestamp => Signature::variadic_any(Volatility::Stable),
        }
    }
}

/// A function that returns timestamps with the session's zone.
#[derive(Debug)]
struct Moments {
    which: Which,
    zone: SessionZone,
    signature: Signature,
}

impl PartialEq for Moments {
    fn eq(&self, other: &Self) -> bool {
        self.which == other.which
    }
}

impl Eq for Moments {}

impl std::hash::Hash for Moments {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.which.hash(state);
    }
}

impl ScalarUDFImpl for Moments {
    fn name(&self) -> &'static str {
        match self.which {
            Which::Now => "now",
            Which::ToTimestamp => "to_timestamp",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        if self.which == Which::ToTimestamp && arguments.is_empty() {
            return plan_err!("to_timestamp takes seconds since 1970, or a text and patterns");
        }
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(self.zone.get())))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<_> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let data_type = self.return_type(&types)?;
        Ok(Arc::new(Field::new(self.name(), data_type, self.which == Which::ToTimestamp)))
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match (self.which, info.query_execution_start_time()) {
            (Which::Now, Some(now)) => {
                let now =
                    ScalarValue::TimestampMicrosecond(Some(now.timestamp_micros()), Some(self.zone.get()));
                Ok(ExprSimplifyResult::Simplified(Expr::Literal(now, None)))
            }
            _ => Ok(ExprSimplifyResult::Original(arguments)),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = arguments.return_field.data_type().clone();
        let given = match (self.which, arguments.args.as_slice()) {
            (Which::Now, _) | (_, []) => return internal_err!("{} is a constant", self.name()),
            (_, [given]) => given.clone(),
            // Patterns are handled by DataFusion's function.
            _ => {
                let inner = ToTimestampMicrosFunc::new_with_config(&arguments.config_options);
                let types: Vec<_> =
                    arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
                let returns = inner.return_type(&types)?;
                arguments.return_field = Arc::new(Field::new(self.name(), returns, true));
                let moments = inner.invoke_with_args(arguments)?;
                return each(&moments, |moments| Ok(cast(moments, &to)?));
            }
        };
        each(&given, |values| convert(values, &to, false))
    }
}

fn each(values: &ColumnarValue, run: impl Fn(&ArrayRef) -> Result<ArrayRef>) -> Result<ColumnarValue> {
    Ok(match values {
        ColumnarValue::Array(values) => ColumnarValue::Array(run(values)?),
        ColumnarValue::Scalar(value) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&run(&value.to_array()?)?, 0)?)
        }
    })
}

/// `strptime(text, pattern)`, with Python's pattern letters, of which `%f` is a fraction of a second.
fn strptime(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let rows = arguments.number_rows;
    let text = |values: &ColumnarValue| {
        Ok::<_, datafusion::error::DataFusionError>(cast(&values.to_array(rows)?, &DataType::Utf8View)?)
    };
    let [texts, patterns] = arguments.args.as_slice() else {
        return internal_err!("strptime takes two texts");
    };
    let (texts, patterns) = (text(texts)?, text(patterns)?);
    let mut micros = Vec::with_capacity(rows);
    for (text, pattern) in texts.as_string_view().iter().zip(patterns.as_string_view()) {
        micros.push(match (text, pattern) {
            (Some(text), Some(pattern)) => match moment(text, pattern) {
                Some(moment) => Some(moment),
                None => return exec_err!("'{text}' is not written as '{pattern}'"),
            },
            _ => None,
        });
    }
    let moments = TimestampMicrosecondArray::from(micros);
    if rows == 1 && arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_))) {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&moments, 0)?));
    }
    Ok(ColumnarValue::Array(Arc::new(moments)))
}

/// The microseconds since 1970 of `text`, parsed by `pattern`; without a time of day it is midnight.
fn moment(text: &str, pattern: &str) -> Option<i64> {
    // In chrono `%f` is a number of nanoseconds, and `%.f` a fraction with its point.
    let pattern = pattern.replace(".%f", "%.f").replace(".%g", "%.f").replace(".%n", "%.f");
    let mut parsed = Parsed::new();
    parse(&mut parsed, text, StrftimeItems::new(&pattern)).ok()?;
    let date = parsed.to_naive_date().ok()?;
    let time = parsed.to_naive_time().unwrap_or(NaiveTime::MIN);
    let offset = i64::from(parsed.offset().unwrap_or(0));
    date.and_time(time).and_utc().timestamp_micros().checked_sub(offset * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_read_from_the_left() {
        let check = |text: &str, pattern: &str, expected: Option<i64>| {
            assert_eq!(moment(text, pattern), expected, "{text} {pattern}");
        };
        check("1970-01-01 00:00:58.745232", "%Y-%m-%d %H:%M:%S.%f", Some(58_745_232));
        check("1970-01-01 00:00:00.5", "%Y-%m-%d %H:%M:%S.%f", Some(500_000));
        check("02/01/1970", "%d/%m/%Y", Some(86_400_000_000));
        check("1970-01-01 01:00 +0100", "%Y-%m-%d %H:%M %z", Some(0));
        check("1970-01-32", "%Y-%m-%d", None);
    }
}
