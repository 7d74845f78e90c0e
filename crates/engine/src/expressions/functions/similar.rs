//! `SIMILAR TO`: its pattern as a regular expression that must match the whole text.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, Signature, Volatility};

use super::Function;

/// A function that takes a pattern and the escape character.
pub(super) const PATTERN: &str = "keirin_similar_pattern";

pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![ScalarUDF::new_from_impl(Function {
        name: PATTERN,
        signature: Signature::uniform(2, vec![DataType::Utf8], Volatility::Immutable),
        returns: DataType::Utf8,
        run: patterns,
    })]
}

fn patterns(arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
    let (patterns, escapes) = (cast(&arrays[0], &DataType::Utf8)?, cast(&arrays[1], &DataType::Utf8)?);
    let pairs = patterns.as_string::<i32>().iter().zip(escapes.as_string::<i32>());
    let expressions = pairs.map(|pair| match pair {
        (Some(pattern), Some(escape)) => {
            let mut characters = escape.chars();
            match (characters.next(), characters.next()) {
                (escape, None) => regular(pattern, escape).map(Some),
                _ => exec_err!("ESCAPE takes one character, found '{escape}'"),
            }
        }
        _ => Ok(None),
    });
    let expressions: StringArray = expressions.collect::<Result<_>>()?;
    if is_scalar {
        return ScalarValue::try_from_array(&expressions, 0).map(ColumnarValue::Scalar);
    }
    Ok(ColumnarValue::Array(Arc::new(expressions)))
}

/// Converts a pattern of SQL:2016, 8.6: `%` is any text, `_` any character; `|`, `*`, `+`, `?`, `{}`, `()`
/// and `[]` mean the same as in regular expressions, and all other characters stand for themselves.
fn regular(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut expression = String::from("^(?s:");
    let mut characters = pattern.chars();
    let mut is_in_brackets = false;
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == escape => match characters.next() {
                Some(literal) => push_literal(&mut expression, literal),
                None => return exec_err!("the pattern '{pattern}' ends with its escape character"),
            },
            '[' if is_in_brackets => expression.push_str("\\["),
            '[' | ']' => {
                is_in_brackets = character == '[';
                expression.push(character);
            }
            _ if is_in_brackets => match character {
                '\\' | '&' | '~' => push_literal(&mut expression, character),
                _ => expression.push(character),
            },
            '%' => expression.push_str(".*"),
            '_' => expression.push('.'),
            '|' | '*' | '+' | '?' | '{' | '}' | '(' | ')' => expression.push(character),
            _ => push_literal(&mut expression, character),
        }
    }
    expression.push_str(")$");
    Ok(expression)
}

fn push_literal(expression: &mut String, character: char) {
    if character.is_ascii_punctuation() {
        expression.push('\\');
    }
    expression.push(character);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_regular_expressions() {
        let check = |pattern: &str, expected: &str| {
            assert_eq!(regular(pattern, Some('\\')).unwrap(), format!("^(?s:{expected})$"));
        };
        check("a%", "a.*");
        check("a_(b|c)*", "a.(b|c)*");
        check("a.b^$", "a\\.b\\^\\$");
        check("\\%\\_", "\\%\\_");
        check("[a-c^.]+", "[a-c^.]+");
        assert!(regular("a\\", Some('\\')).is_err());
        assert_eq!(regular("a\\%", None).unwrap(), "^(?s:a\\\\.*)$");
    }
}
