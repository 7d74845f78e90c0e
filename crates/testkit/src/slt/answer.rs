//! Answers as text: one spelling for every value, whatever its source.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};

use super::Failure;

/// The letter of a column after `query`:
///
/// | letter | type | | letter | type |
/// |---|---|---|---|---|
/// | `B` | boolean | | `D` | date |
/// | `I` | integer | | `H` | time of day |
/// | `N` | decimal | | `P` | timestamp |
/// | `R` | floating point | | `V` | interval, duration |
/// | `T` | text | | `L` | list |
/// | `X` | binary | | `S` | struct |
/// | `?` | anything (a column without type, too) | | `M` | map |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnType(char);

impl ColumnType {
    /// `?`: agrees with every type.
    pub const ANY: Self = Self('?');

    /// The letter of an Arrow type.
    pub fn of(data_type: &DataType) -> Self {
        Self(match data_type {
            DataType::Boolean => 'B',
            DataType::Date32 | DataType::Date64 => 'D',
            DataType::Time32(_) | DataType::Time64(_) => 'H',
            DataType::Timestamp(..) => 'P',
            DataType::Interval(_) | DataType::Duration(_) => 'V',
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => 'N',
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 'T',
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => 'X',
            DataType::List(_)
            | DataType::LargeList(_)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
            | DataType::FixedSizeList(..) => 'L',
            DataType::Struct(_) => 'S',
            DataType::Map(..) => 'M',
            DataType::Dictionary(_, values) => return Self::of(values),
            DataType::RunEndEncoded(_, values) => return Self::of(values.data_type()),
            other if other.is_integer() => 'I',
            other if other.is_floating() => 'R',
            _ => '?',
        })
    }
}

impl sqllogictest::ColumnType for ColumnType {
    fn from_char(letter: char) -> Option<Self> {
        "BDHIPLMNRSTVX?".contains(letter).then_some(Self(letter))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

/// The answer of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Rows, their values as text.
    Rows {
        /// One for each column.
        types: Vec<ColumnType>,
        /// One for each row, with one text for each column.
        rows: Vec<Vec<String>>,
    },
    /// The number of rows written, or 0: `statement count 3` compares it.
    Count(u64),
}

impl Answer {
    /// Spells out `batches`, so:
    ///
    /// - NULL is `NULL` and the empty text is `(empty)`; backslash, line feed, carriage return, tab and
    ///   NUL in text are `\\`, `\n`, `\r`, `\t` and `\0`
    /// - booleans are `true` and `false`
    /// - floating point is the shortest text that reads back the same, whole numbers with `.0`, from
    ///   10^16 and below 10^-5 with an exponent (`1e16`); further `NaN`, `inf`, `-inf`
    /// - decimals have all the digits of their scale (`1.50`), binary is in lower-case hexadecimal
    /// - dates and times are `2024-02-29`, `2024-02-29 23:59:59.5`, with a zone `2024-02-29 23:59:59+01:00`
    /// - lists, structs and maps are `[1, NULL]`, `{a: 1, b: x}` and `{k: v}`, values inside as Arrow
    ///   prints them
    ///
    /// # Errors
    /// When Arrow cannot print a value.
    pub fn from_batches(schema: &Schema, batches: &[RecordBatch]) -> Result<Self, Failure> {
        let types = schema.fields().iter().map(|field| ColumnType::of(field.data_type())).collect();
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter().map(spell);
            let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|error| Failure {
                message: format!("cannot print a value: {error}"),
                sqlstate: None,
            })?;
            let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
            for _ in 0..batch.num_rows() {
                rows.push(columns.iter_mut().map(|column| column.next().unwrap_or_default()).collect());
            }
        }
        Ok(Self::Rows { types, rows })
    }
}

fn spell(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    let options = FormatOptions::new()
        .with_null("NULL")
        .with_duration_format(DurationFormat::Pretty)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
    let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
    let text = |row: usize| -> Result<String, ArrowError> {
        if column.is_null(row) {
            return Ok("NULL".to_owned());
        }
        Ok(match column.data_type() {
            DataType::Float16 => spell_float(&column.as_primitive::<Float16Type>().value(row).to_f32()),
            DataType::Float32 => spell_float(&column.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => spell_float(&column.as_primitive::<Float64Type>().value(row)),
            _ => escape(&formatter.value(row).try_to_string()?),
        })
    };
    (0..column.len()).map(text).collect()
}

/// Rust's `Debug` of floats gives the shortest digits, and `.0` and exponents where we want them.
fn spell_float(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn escape(text: &str) -> String {
    if text.is_empty() {
        return "(empty)".to_owned();
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\0' => escaped.push_str("\\0"),
            other => {
                let _ = escaped.write_char(other);
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::*;

    use super::*;

    #[track_caller]
    fn check(column: impl Array + 'static, letter: char, expected: &[&str]) {
        let column: ArrayRef = Arc::new(column);
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let Answer::Rows { types, rows } = Answer::from_batches(&batch.schema(), &[batch]).unwrap() else {
            panic!("rows are rows");
        };
        assert_eq!(types, [ColumnType(letter)]);
        assert_eq!(rows, expected.iter().map(|text| vec![(*text).to_owned()]).collect::<Vec<_>>());
    }

    #[test]
    fn every_value_has_one_spelling() {
        check(BooleanArray::from(vec![Some(true), None]), 'B', &["true", "NULL"]);
        check(UInt8Array::from(vec![0, 255]), 'I', &["0", "255"]);
        let floats = vec![1.0, 0.1, -0.0, 1e15, 1e16, 1e-5, 1e-6, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let spelt =
            ["1.0", "0.1", "-0.0", "1000000000000000.0", "1e16", "1e-5", "1e-6", "NaN", "inf", "-inf"];
        check(Float64Array::from(floats), 'R', &spelt);
        check(Float32Array::from(vec![0.1]), 'R', &["0.1"]);
        let decimals = Decimal128Array::from(vec![150, -5]).with_precision_and_scale(9, 2).unwrap();
        check(decimals, 'N', &["1.50", "-0.05"]);
        check(
            StringArray::from(vec![Some(""), Some("a\tb\\\n"), None]),
            'T',
            &["(empty)", "a\\tb\\\\\\n", "NULL"],
        );
        check(StringViewArray::from(vec!["  x  y "]), 'T', &["  x  y "]);
        check(BinaryArray::from(vec![&b"\x00\xff"[..]]), 'X', &["00ff"]);
        check(Date32Array::from(vec![19_782]), 'D', &["2024-02-29"]);
        check(TimestampMillisecondArray::from(vec![1_500]), 'P', &["1970-01-01 00:00:01.500"]);
        let zoned = TimestampSecondArray::from(vec![0]).with_timezone("+01:00");
        check(zoned, 'P', &["1970-01-01 01:00:00+01:00"]);
        let lists = vec![Some(vec![Some(1), None]), Some(vec![]), None];
        let lists = ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>(lists);
        check(lists, 'L', &["[1, NULL]", "[]", "NULL"]);
        let words: DictionaryArray<arrow::datatypes::Int8Type> = vec!["a", "b", "a"].into_iter().collect();
        check(words, 'T', &["a", "b", "a"]);
    }
}
