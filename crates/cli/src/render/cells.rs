//! Values as text, the same for all formats that people read.

use std::borrow::Cow;
use std::fmt::Write;

use keirin::arrow::array::{Array, RecordBatch};
use keirin::arrow::buffer::NullBuffer;
use keirin::arrow::datatypes::DataType;
use keirin::arrow::error::ArrowError;
use keirin::arrow::util::display::{ArrayFormatter, FormatOptions};
use keirin::display::{FORMAT, formatter};

const OPTIONS: FormatOptions<'static> = FORMAT.with_display_error(true);

/// The values of one batch.
pub(crate) struct Cells<'a> {
    columns: Vec<(ArrayFormatter<'a>, Option<NullBuffer>)>,
}

impl<'a> Cells<'a> {
    pub(crate) fn new(batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        let columns = batch
            .columns()
            .iter()
            .map(|array| Ok((formatter(array.as_ref(), &OPTIONS)?, array.logical_nulls())))
            .collect::<Result<_, ArrowError>>()?;
        Ok(Self { columns })
    }

    /// The value as text, without escapes; `None` for NULL.
    pub(crate) fn text(&self, row: usize, column: usize) -> Option<String> {
        let (formatter, nulls) = &self.columns[column];
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let mut text = String::new();
        // Writing to a string does not fail; a value that cannot be formatted shows its error as text.
        let _ = write!(text, "{}", formatter.value(row));
        Some(text)
    }
}

/// Whether a type is a number: numbers are aligned right, so that their digits line up.
pub(crate) fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_number(values),
        other => other.is_numeric(),
    }
}

/// Whether values of a type may be cut: a number or a date that is cut would be another one.
pub(crate) fn can_be_cut(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => can_be_cut(values),
        DataType::FixedSizeBinary(_) | DataType::Union(..) => true,
        other => other.is_string() || other.is_binary() || other.is_nested(),
    }
}

/// Escapes all characters that control a terminal or hide text.
pub(crate) fn escape_controls(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            other if needs_escape(other) => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(other));
            }
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Control characters (C0, C1), and those that change the direction of text.
fn needs_escape(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keirin::arrow::array::*;

    use super::*;

    #[test]
    fn values_are_spelled_as_in_sql() {
        let check = |array: ArrayRef, expected: &[Option<&str>]| {
            let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
            let cells = Cells::new(&batch).unwrap();
            let texts: Vec<_> = (0..batch.num_rows()).map(|row| cells.text(row, 0)).collect();
            assert_eq!(texts.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        };
        check(
            Arc::new(Float64Array::from(vec![Some(15.0), None, Some(0.1 + 0.2)])),
            &[Some("15.0"), None, Some("0.30000000000000004")],
        );
        check(
            Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000])),
            &[Some("1970-01-01 00:00:00"), Some("1970-01-01 00:00:01.500")],
        );
        check(
            Arc::new(TimestampSecondArray::from(vec![0]).with_timezone("+02:00")),
            &[Some("1970-01-01 02:00:00+02:00")],
        );
        check(Arc::new(NullArray::new(1)), &[None]);
        let list = ListArray::from_iter_primitive::<keirin::arrow::datatypes::Int32Type, _, _>([Some([
            Some(1),
            None,
        ])]);
        check(Arc::new(list), &[Some("[1, NULL]")]);
        check(Arc::new(StringArray::from(vec!["a\nb"])), &[Some("a\nb")]);
    }

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        let check = |text, expected: &str| assert_eq!(escape_controls(text), expected);
        check("plain ü 漢字", "plain ü 漢字");
        check("a\tb\r\n", "a\\tb\\r\\n");
        check("\x1b[31mred", "\\u{1b}[31mred");
        check("\u{9b}2J", "\\u{9b}2J");
        check("abc\u{202e}fed", "abc\\u{202e}fed");
    }
}
