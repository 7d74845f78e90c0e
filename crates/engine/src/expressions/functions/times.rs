//! `now`, `to_timestamp` and `strptime`: timestamps in microseconds; `now` and `to_timestamp` have the
//! session's zone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, is_not_null};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use keirin_csv::{Written, parse_with_pattern};

use super::Function;
use crate::expressions::casts::convert;
use crate::sql::types::SessionZone;

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
        let is_text = |data_type: &DataType| data_type.is_string() || data_type.is_null();
        let takes = arguments.len() == 1 || (arguments.len() > 1 && arguments.iter().all(is_text));
        if self.which == Which::ToTimestamp && !takes {
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

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = arguments.return_field.data_type().clone();
        let given = match (self.which, arguments.args.as_slice()) {
            (Which::Now, _) | (_, []) => return internal_err!("{} is a constant", self.name()),
            (_, [given]) => given.clone(),
            _ => return by_patterns(&arguments, &to),
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

/// `strptime(text, pattern)`; of a text with a zone the moment in UTC.
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
            (Some(text), Some(pattern)) => match parse_with_pattern(text, pattern).and_then(in_utc) {
                Some(moment) => Some(moment),
                None => return exec_err!("'{text}' is not written as '{pattern}'"),
            },
            _ => None,
        });
    }
    result(Arc::new(TimestampMicrosecondArray::from(micros)), &arguments.args)
}

/// The microseconds since 1970; a moment without a zone is taken for one in UTC.
fn in_utc(written: Written) -> Option<i64> {
    let offset = i64::from(written.offset_seconds.unwrap_or(0));
    written.local.and_utc().timestamp_micros().checked_sub(offset * 1_000_000)
}

/// `to_timestamp(text, pattern, ...)`: the moment in the first pattern that fits; without a zone it is local time
/// in the zone of `to`.
fn by_patterns(arguments: &ScalarFunctionArgs, to: &DataType) -> Result<ColumnarValue> {
    let rows = arguments.number_rows;
    let columns = arguments.args.iter().map(|values| Ok(cast(&values.to_array(rows)?, &DataType::Utf8View)?));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let [texts, patterns @ ..] = columns.as_slice() else {
        return internal_err!("to_timestamp takes a text and patterns");
    };
    let (mut local, mut zoned) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for row in 0..rows {
        let mut written = None;
        if texts.is_valid(row) {
            let text = texts.as_string_view().value(row);
            let given: Vec<&str> = patterns
                .iter()
                .filter(|pattern| pattern.is_valid(row))
                .map(|pattern| pattern.as_string_view().value(row))
                .collect();
            written = given.iter().find_map(|pattern| parse_with_pattern(text, pattern));
            if written.is_none() && !given.is_empty() {
                return exec_err!("'{text}' is not written as '{}'", given.join("' or '"));
            }
        }
        let has_zone = written.is_some_and(|written| written.offset_seconds.is_some());
        let moment = written.and_then(in_utc);
        zoned.push(moment.filter(|_| has_zone));
        local.push(moment.filter(|_| !has_zone));
    }
    let zoned = TimestampMicrosecondArray::from(zoned);
    let has_zone = is_not_null(&zoned)?;
    let zoned = cast(&zoned.with_timezone("UTC"), to)?;
    let local: ArrayRef = Arc::new(TimestampMicrosecondArray::from(local));
    result(zip(&has_zone, &zoned, &convert(&local, to, false)?)?, &arguments.args)
}

/// The values, as a constant if all arguments are constants.
fn result(values: ArrayRef, arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    if values.len() == 1 && arguments.iter().all(|value| matches!(value, ColumnarValue::Scalar(_))) {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
    }
    Ok(ColumnarValue::Array(values))
}
