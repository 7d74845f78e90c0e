//! Functions whose results can be much larger than their arguments, such as `repeat('x', 1000000000)`: they
//! reserve memory before they run.
//!
//! Memory that an operator holds is reserved, but a batch on its way between two operators is not. So the
//! result of one call must be small compared with the memory limit divided among the threads. If it is not, a
//! projection computes fewer rows at a time (see [`crate::runtime::guard`]); elsewhere that is an error, which names
//! the function. Results that exceed the size of a column are refused, too.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ByteView, StringArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use regex::Regex;

use super::wrapped::Wrapped;
use crate::compile::rules::concatenation;
use crate::error::{Error, ErrorKind};
use crate::runtime::pool::FairPool;

/// The results of one call in each thread may together take this share of the memory limit: 1/4.
const MEMORY_SHARE: usize = 4;
/// The share where the caller can compute fewer rows per call, and passes the result on at once: 1/64.
const GENTLE_SHARE: usize = 64;
/// The most bytes that Arrow's 32-bit offsets can address.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;

/// Estimates an upper bound of the size of a function's result for these arguments.
type Estimate = fn(&Arguments<'_>) -> Option<Made>;

/// The size of a call's result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Made {
    bytes: usize,
    /// The bytes of the largest row.
    row_bytes_max: usize,
}

const BOUNDED: [(&str, Estimate); 11] = [
    ("repeat", repeated),
    ("lpad", padded),
    ("rpad", padded),
    ("replace", replaced),
    ("regexp_replace", substituted),
    ("concat", joined),
    ("concat_ws", separated),
    ("range", numbered),
    ("generate_series", numbered),
    ("array_repeat", repeated),
    ("array_resize", resized),
];

/// Wraps the functions of the planner that need bounds.
pub(super) fn register(state: &mut SessionState, pool: &Arc<FairPool>, threads: usize) -> Result<()> {
    for (name, estimate) in BOUNDED {
        state.register_udf(Arc::new(bounded(state.udf(name)?, estimate, pool, threads)))?;
    }
    Ok(())
}

/// The function that `||` of texts becomes, within bounds.
pub(crate) fn bounded_concatenation(pool: &Arc<FairPool>, threads: usize) -> ScalarUDF {
    bounded(Arc::new(concatenation()), joined, pool, threads)
}

fn bounded(inner: Arc<ScalarUDF>, estimate: Estimate, pool: &Arc<FairPool>, threads: usize) -> ScalarUDF {
    let bound = |memory_share| Bound { estimate, pool: pool.clone(), threads, memory_share };
    let gentle = Arc::new(ScalarUDF::new_from_impl(bound(GENTLE_SHARE).wrapped(inner.clone())));
    let mut bounded = bound(MEMORY_SHARE).wrapped(inner);
    bounded.gentle = Some(gentle);
    ScalarUDF::new_from_impl(bounded)
}

/// The variant of the function that fails early rather than return a large result, if it has one.
pub(crate) fn gentle(function: &ScalarUDF) -> Option<&Arc<ScalarUDF>> {
    function.inner().downcast_ref::<Wrapped>()?.gentle.as_ref()
}

/// The arguments of a call.
struct Arguments<'a> {
    values: &'a [ColumnarValue],
    rows: usize,
    /// The bytes that the call may return; estimates below need not be exact.
    share: usize,
}

impl Arguments<'_> {
    /// An argument, with a row for each row of the call, or one for all.
    fn array(&self, place: usize) -> Option<ArrayRef> {
        match self.values.get(place)? {
            ColumnarValue::Array(array) => Some(array.clone()),
            ColumnarValue::Scalar(value) => value.to_array().ok(),
        }
    }

    /// An integer argument by row; NULL is 0.
    fn numbers(&self, place: usize) -> Option<impl Fn(usize) -> i64 + use<>> {
        let array = cast(&self.array(place)?, &DataType::Int64).ok()?;
        let array = array.as_primitive::<Int64Type>().clone();
        Some(move |row: usize| {
            let row = if array.len() == 1 { 0 } else { row };
            if array.is_valid(row) { array.value(row) } else { 0 }
        })
    }

    /// The bytes of an argument by row: exact for text, the average for other types.
    fn bytes(&self, place: usize) -> Option<impl Fn(usize) -> usize + use<>> {
        enum Lengths {
            Text(StringArray),
            Views(StringViewArray),
            Average(usize),
        }
        let array = self.array(place)?;
        let len = array.len();
        let lengths = match array.data_type() {
            DataType::Utf8 => Lengths::Text(array.as_string().clone()),
            DataType::Utf8View => Lengths::Views(array.as_string_view().clone()),
            _ => {
                let bytes = array.to_data().get_slice_memory_size().ok()?;
                Lengths::Average(bytes.div_ceil(len.max(1)).max(1))
            }
        };
        Some(move |row: usize| {
            let row = if len == 1 { 0 } else { row };
            match &lengths {
                _ if len == 0 => 0,
                Lengths::Text(texts) => texts.value_length(row) as usize,
                Lengths::Views(texts) => ByteView::from(texts.views()[row]).length as usize,
                Lengths::Average(bytes) => *bytes,
            }
        })
    }

    fn made(&self, bytes: impl Fn(usize) -> usize) -> Made {
        (0..self.rows).map(bytes).fold(Made::default(), |made, bytes| Made {
            bytes: made.bytes.saturating_add(bytes),
            row_bytes_max: made.row_bytes_max.max(bytes),
        })
    }

    /// A text argument that is the same for all rows.
    fn constant(&self, place: usize) -> Option<&str> {
        match self.values.get(place)? {
            ColumnarValue::Scalar(text) => text.try_as_str().flatten(),
            ColumnarValue::Array(_) => None,
        }
    }
}

fn at_least_0(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn repeated(arguments: &Arguments<'_>) -> Option<Made> {
    let (bytes, times) = (arguments.bytes(0)?, arguments.numbers(1)?);
    Some(arguments.made(|row| bytes(row).saturating_mul(at_least_0(times(row)))))
}

fn padded(arguments: &Arguments<'_>) -> Option<Made> {
    let (bytes, length) = (arguments.bytes(0)?, arguments.numbers(1)?);
    // No character of the filler takes more bytes than the whole filler.
    let filler = match arguments.values.len() {
        3 => Some(arguments.bytes(2)?),
        _ => None,
    };
    let character = |row| filler.as_ref().map_or(1, |filler| filler(row).min(4));
    Some(arguments.made(|row| bytes(row) + at_least_0(length(row)).saturating_mul(character(row))))
}

fn replaced(arguments: &Arguments<'_>) -> Option<Made> {
    let (bytes, from, to) = (arguments.bytes(0)?, arguments.bytes(1)?, arguments.bytes(2)?);
    Some(arguments.made(|row| {
        let places = bytes(row) / from(row).max(1) + 1;
        bytes(row) + places.saturating_mul(to(row).saturating_sub(from(row)))
    }))
}

/// `regexp_replace`: texts in which the matches of a pattern are replaced.
fn substituted(arguments: &Arguments<'_>) -> Option<Made> {
    let (bytes, to) = (arguments.bytes(0)?, arguments.bytes(2)?);
    let flags = arguments.constant(3).unwrap_or(if arguments.values.len() > 3 { "g" } else { "" });
    // Each reference inserts a part of a match, and all matches together are no longer than the text.
    let references = arguments.constant(2).map(|to| to.matches(['\\', '$']).count());
    let made = |row, matches: usize| {
        let references = references.unwrap_or_else(|| to(row));
        (bytes(row).saturating_mul(1 + references)).saturating_add(matches.saturating_mul(to(row)))
    };
    if !flags.contains('g') {
        return Some(arguments.made(|row| made(row, 1)));
    }
    let most = arguments.made(|row| made(row, bytes(row) + 1));
    if most.bytes <= arguments.share {
        return Some(most);
    }
    let flags = flags.replace('g', "");
    let flags = if flags.is_empty() { flags } else { format!("(?{flags})") };
    // The function itself refuses an invalid pattern.
    let Some(pattern) = Regex::new(&format!("{flags}{}", arguments.constant(1)?)).ok() else {
        return Some(most);
    };
    let texts = cast(&arguments.array(0)?, &DataType::Utf8View).ok()?;
    let texts = texts.as_string_view();
    Some(arguments.made(|row| {
        let row_of_text = if texts.len() == 1 { 0 } else { row };
        let is_text = texts.is_valid(row_of_text);
        made(row, if is_text { pattern.find_iter(texts.value(row_of_text)).count() } else { 0 })
    }))
}

fn joined(arguments: &Arguments<'_>) -> Option<Made> {
    let parts = (0..arguments.values.len()).map(|place| arguments.bytes(place));
    let parts = parts.collect::<Option<Vec<_>>>()?;
    Some(arguments.made(|row| parts.iter().map(|bytes| bytes(row)).sum()))
}

/// `concat_ws`: the arguments after the first, which is the separator.
fn separated(arguments: &Arguments<'_>) -> Option<Made> {
    let parts = (0..arguments.values.len()).map(|place| arguments.bytes(place));
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let (between, parts) = parts.split_first()?;
    Some(arguments.made(|row| {
        parts.iter().map(|bytes| bytes(row)).sum::<usize>() + parts.len().saturating_sub(1) * between(row)
    }))
}

/// `range` of integers; ranges of dates and timestamps are small.
fn numbered(arguments: &Arguments<'_>) -> Option<Made> {
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
    Some(arguments.made(|row| {
        let step = step.as_ref().map_or(1, |step| step(row)).unsigned_abs().max(1);
        let length = u128::from(start(row).abs_diff(stop(row)) / step) + 1;
        usize::try_from(length * 8).unwrap_or(usize::MAX)
    }))
}

fn resized(arguments: &Arguments<'_>) -> Option<Made> {
    let length = arguments.numbers(1)?;
    let element = match arguments.values.len() {
        3 => Some(arguments.bytes(2)?),
        _ => None,
    };
    Some(arguments.made(|row| {
        at_least_0(length(row)).saturating_mul(element.as_ref().map_or(8, |element| element(row)))
    }))
}

/// The bounds that are checked before a function runs.
#[derive(Clone, Debug)]
struct Bound {
    estimate: Estimate,
    pool: Arc<FairPool>,
    threads: usize,
    /// The results of one call in each thread may take this share of the memory limit: one in `memory_share`.
    memory_share: usize,
}

impl Bound {
    fn wrapped(self, inner: Arc<ScalarUDF>) -> Wrapped {
        Wrapped::new(inner, move |inner, arguments| self.call(inner, arguments))
    }

    fn call(&self, inner: &ScalarUDF, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let share = self.pool.limit_bytes() / self.memory_share / self.threads;
        let made = (self.estimate)(&Arguments { values: &arguments.args, rows, share }).unwrap_or_default();
        let pool: Arc<dyn MemoryPool> = self.pool.clone();
        let booked = MemoryConsumer::new(format!("function {}", inner.name())).register(&pool);
        if made.bytes > share {
            return Err(self.pool.refusal(&booked, made.bytes, share));
        }
        let column = match arguments.return_field.data_type() {
            DataType::Utf8View => made.row_bytes_max,
            _ => made.bytes,
        };
        if column > COLUMN_BYTES_MAX {
            let message = format!("{} gives more than 2 GB at a time", inner.name());
            let error = Error::new(ErrorKind::Resources, message).with_hint("ask for less");
            return Err(DataFusionError::External(Box::new(error)));
        }
        booked.try_grow(made.bytes)?;
        match inner.name() {
            "lpad" | "rpad" => arguments.args[1] = not_negative(&arguments.args[1])?,
            "array_resize" if arguments.args.get(1).is_some_and(has_negative) => {
                let error = Error::new(ErrorKind::Data, "array_resize takes a size of at least 0");
                return Err(DataFusionError::External(Box::new(error)));
            }
            _ => {}
        }
        inner.invoke_with_args(arguments)
    }
}

/// Whether these are integers, one of which is negative.
fn has_negative(numbers: &ColumnarValue) -> bool {
    let numbers = numbers.to_array(1).ok().filter(|numbers| numbers.data_type().is_integer());
    let numbers = numbers.and_then(|numbers| cast(&numbers, &DataType::Int64).ok());
    numbers
        .is_some_and(|numbers| numbers.as_primitive::<Int64Type>().iter().flatten().any(|number| number < 0))
}

/// Lengths of texts with negative ones replaced by 0; DataFusion would take those for large ones.
fn not_negative(lengths: &ColumnarValue) -> Result<ColumnarValue> {
    if !has_negative(lengths) {
        return Ok(lengths.clone());
    }
    let array = lengths.to_array(1)?;
    let counts = cast(&array, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let counts: ArrayRef = Arc::new(counts.unary::<_, Int64Type>(|length| length.max(0)));
    let counts = cast(&counts, array.data_type())?;
    Ok(match lengths {
        ColumnarValue::Array(_) => ColumnarValue::Array(counts),
        ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&counts, 0)?),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray, StringViewArray};
    use arrow::datatypes::Field;
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
            let made = estimate(&Arguments { values, rows, share: 1 << 20 }).unwrap();
            assert_eq!(made.bytes, expected, "{values:?}");
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
        check(joined, &[text("ab"), text("cde"), text("f")], 1, 6);
        check(separated, &[text(", "), text("cde"), text("f")], 1, 6);
        check(substituted, &[text("aXbXc"), text("X"), text("yyy")], 1, 5 + 3);
        check(substituted, &[text("aXbXc"), text("X"), text("yyy"), text("g")], 1, 5 + 6 * 3);
        let x = ColumnarValue::Scalar(ScalarValue::Utf8View(Some("aX".repeat(1_000_000))));
        check(substituted, &[x.clone(), text("x"), text("yyy"), text("ig")], 1, 2_000_000 + 1_000_000 * 3);
        check(substituted, &[x, text("(X)"), text("\\1\\1"), text("g")], 1, 3 * 2_000_000 + 1_000_000 * 4);
    }

    #[test]
    fn what_is_too_much_is_refused_by_name() {
        let inner = SessionStateDefaults::default_scalar_functions();
        let inner = inner.into_iter().find(|function| function.name() == "repeat").unwrap();
        let pool = Arc::new(FairPool::new(8000));
        let bound = Bound { estimate: repeated, pool: pool.clone(), threads: 2, memory_share: MEMORY_SHARE };
        let function = ScalarUDF::new_from_impl(bound.wrapped(inner));
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
