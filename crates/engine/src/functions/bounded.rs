//! Functions that make much of little, such as `repeat('x', 1000000000)`: they ask for memory first.
//!
//! What an operator holds is booked, but a batch on its way between two operators is not. So what one call of such a
//! function makes has to be small beside the memory that there is, for each thread. A projection computes fewer rows
//! at a time when it is not (see [`crate::guard`]); elsewhere that is an error, which names the function.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ByteView};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::pool::FairPool;

/// What all threads together may make in one call each, of the memory that there is: one in so many.
const MEMORY_SHARE: usize = 4;

/// How many bytes a function makes of these arguments, at most.
type Estimate = fn(&Arguments<'_>) -> Option<usize>;

const BOUNDED: [(&str, Estimate); 8] = [
    ("repeat", repeated),
    ("lpad", padded),
    ("rpad", padded),
    ("replace", replaced),
    ("range", numbered),
    ("generate_series", numbered),
    ("array_repeat", repeated),
    ("array_resize", resized),
];

/// Puts bounds on the planner's functions that need them.
pub(super) fn register(state: &mut SessionState, pool: &Arc<FairPool>, threads: usize) -> Result<()> {
    for (name, estimate) in BOUNDED {
        let inner = state.udf(name)?;
        let bounded = Bounded { inner, estimate, pool: pool.clone(), threads };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(bounded)))?;
    }
    Ok(())
}

/// Whether this is a function that may be refused rows, and may be given fewer.
pub(crate) fn is_bounded(function: &ScalarUDF) -> bool {
    BOUNDED.iter().any(|(name, _)| *name == function.name())
}

/// The arguments of a call.
struct Arguments<'a> {
    values: &'a [ColumnarValue],
    rows: usize,
}

impl Arguments<'_> {
    /// An argument for each row, or for all.
    fn array(&self, place: usize) -> Option<ArrayRef> {
        match self.values.get(place)? {
            ColumnarValue::Array(array) => Some(array.clone()),
            ColumnarValue::Scalar(value) => value.to_array().ok(),
        }
    }

    /// A whole number; none is 0.
    fn numbers(&self, place: usize) -> Option<impl Fn(usize) -> i64 + use<>> {
        let array = cast(&self.array(place)?, &DataType::Int64).ok()?;
        let array = array.as_primitive::<Int64Type>().clone();
        Some(move |row: usize| {
            let row = if array.len() == 1 { 0 } else { row };
            if array.is_valid(row) { array.value(row) } else { 0 }
        })
    }

    /// The bytes of an argument in each row: those of text, of others on average.
    fn bytes(&self, place: usize) -> Option<impl Fn(usize) -> usize + use<>> {
        let array = self.array(place)?;
        let average = array.to_data().get_slice_memory_size().ok()?.div_ceil(array.len().max(1));
        Some(move |row: usize| {
            let row = if array.len() == 1 { 0 } else { row };
            match array.data_type() {
                _ if array.is_empty() => 0,
                DataType::Utf8 => array.as_string::<i32>().value_length(row) as usize,
                DataType::Utf8View => ByteView::from(array.as_string_view().views()[row]).length as usize,
                _ => average.max(1),
            }
        })
    }

    fn sum(&self, bytes: impl Fn(usize) -> usize) -> usize {
        (0..self.rows).fold(0, |sum, row| sum.saturating_add(bytes(row)))
    }
}

fn at_least_0(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn repeated(arguments: &Arguments<'_>) -> Option<usize> {
    let (bytes, times) = (arguments.bytes(0)?, arguments.numbers(1)?);
    Some(arguments.sum(|row| bytes(row).saturating_mul(at_least_0(times(row)))))
}

fn padded(arguments: &Arguments<'_>) -> Option<usize> {
    let (bytes, length) = (arguments.bytes(0)?, arguments.numbers(1)?);
    // No character of what fills is longer than all of it.
    let filler = match arguments.values.len() {
        3 => Some(arguments.bytes(2)?),
        _ => None,
    };
    let character = |row| filler.as_ref().map_or(1, |filler| filler(row).min(4));
    Some(arguments.sum(|row| bytes(row) + at_least_0(length(row)).saturating_mul(character(row))))
}

fn replaced(arguments: &Arguments<'_>) -> Option<usize> {
    let (bytes, from, to) = (arguments.bytes(0)?, arguments.bytes(1)?, arguments.bytes(2)?);
    Some(arguments.sum(|row| {
        let places = bytes(row) / from(row).max(1) + 1;
        bytes(row) + places.saturating_mul(to(row).saturating_sub(from(row)))
    }))
}

/// Lists of whole numbers; of moments there are few.
fn numbered(arguments: &Arguments<'_>) -> Option<usize> {
    let first = arguments.array(0)?;
    if !first.data_type().is_integer() {
        return None;
    }
    let zero = |_: usize| 0;
    let (start, stop): (Box<dyn Fn(usize) -> i64>, _) = match arguments.values.len() {
        1 => (Box::new(zero), arguments.numbers(0)?),
        _ => (Box::new(arguments.numbers(0)?), arguments.numbers(1)?),
    };
    let step = arguments.numbers(2);
    Some(arguments.sum(|row| {
        let step = step.as_ref().map_or(1, |step| step(row)).unsigned_abs().max(1);
        let length = u128::from(start(row).abs_diff(stop(row)) / step) + 1;
        usize::try_from(length * 8).unwrap_or(usize::MAX)
    }))
}

fn resized(arguments: &Arguments<'_>) -> Option<usize> {
    let length = arguments.numbers(1)?;
    let element = match arguments.values.len() {
        3 => Some(arguments.bytes(2)?),
        _ => None,
    };
    Some(arguments.sum(|row| {
        at_least_0(length(row)).saturating_mul(element.as_ref().map_or(8, |element| element(row)))
    }))
}

/// A function that asks for memory before it runs.
#[derive(Debug)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    estimate: Estimate,
    pool: Arc<FairPool>,
    threads: usize,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Bounded {
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

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
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
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let made = (self.estimate)(&Arguments { values: &arguments.args, rows }).unwrap_or(0);
        let pool: Arc<dyn MemoryPool> = self.pool.clone();
        let booked = MemoryConsumer::new(format!("function {}", self.name())).register(&pool);
        let share = self.pool.limit_bytes() / MEMORY_SHARE / self.threads;
        if made > share {
            return Err(self.pool.refusal(&booked, made, share));
        }
        booked.try_grow(made)?;
        self.inner.invoke_with_args(arguments)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray, StringViewArray};
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::execution::SessionStateDefaults;

    use super::*;

    fn text(value: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(value))
    }

    fn number(value: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(value))
    }

    #[test]
    fn estimates_are_enough() {
        let check = |estimate: Estimate, values: &[ColumnarValue], rows, expected| {
            assert_eq!(estimate(&Arguments { values, rows }), Some(expected), "{values:?}");
        };
        check(repeated, &[text("abc"), number(1_000_000_000)], 1, 3_000_000_000);
        check(repeated, &[text("abc"), number(-1)], 1, 0);
        check(repeated, &[text("abc"), number(i64::MAX)], 2, usize::MAX);
        let long = "a text that is longer than a view";
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("ab"), None, Some(long)]));
        let times: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(9), None]));
        check(repeated, &[ColumnarValue::Array(views.clone()), ColumnarValue::Array(times)], 3, 4);
        check(repeated, &[ColumnarValue::Array(views), number(10)], 3, 20 + 10 * long.len());
        let strings: ArrayRef = Arc::new(StringArray::from(vec!["aa", "aaaa"]));
        check(
            replaced,
            &[ColumnarValue::Array(strings.clone()), text("a"), text("xyz")],
            2,
            2 + 3 * 2 + 4 + 5 * 2,
        );
        check(padded, &[ColumnarValue::Array(strings), number(100), text("é")], 2, 6 + 400);
        check(numbered, &[number(1_000_000)], 1, 8_000_008);
        check(numbered, &[number(i64::MIN), number(i64::MAX)], 1, usize::MAX);
        check(numbered, &[number(10), number(0), number(-5)], 1, 24);
        check(resized, &[text(""), number(1000)], 1, 8000);
    }

    #[test]
    fn what_is_too_much_is_refused_by_name() {
        let inner = SessionStateDefaults::default_scalar_functions();
        let inner = inner.into_iter().find(|function| function.name() == "repeat").unwrap();
        let pool = Arc::new(FairPool::new(8000));
        let function =
            ScalarUDF::new_from_impl(Bounded { inner, estimate: repeated, pool: pool.clone(), threads: 2 });
        let call = |times| {
            function.invoke_with_args(ScalarFunctionArgs {
                args: vec![text("x"), number(times)],
                arg_fields: Vec::new(),
                number_rows: 1,
                return_field: Arc::new(Field::new("repeat", DataType::Utf8, true)),
                config_options: Arc::default(),
            })
        };
        call(1000).unwrap();
        let error = call(1001).unwrap_err().to_string();
        assert!(error.contains("function repeat needs 1001 B"), "{error}");
        assert_eq!(pool.reserved(), 0);
    }
}
