//! Answers of different engines, compared.
//!
//! Two answers agree when they hold the same rows. Integers and text must be equal; where one side is a
//! number with a point, the two may differ by [`TOLERANCE`] of the larger, or of 1 where both are
//! smaller: that forgives the order of a floating sum and the six decimals of a decimal average, and
//! nothing more. A date equals midnight of that day. The order of rows counts only in the columns that
//! the query orders by, and where a LIMIT cuts through ties, only those columns can be compared at all:
//! both are facts about the query and stand in its definition, as a [`Rule`].

use std::cmp::Ordering;

use serde_json::Value;

/// Relative error of numbers that are not integers; absolute below 1.
pub(crate) const TOLERANCE: f64 = 1e-6;

/// How answers to one query are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Columns, from 0, whose sequence must agree row by row.
    pub(crate) order: Vec<usize>,
    /// Beyond these columns the rows may differ: a LIMIT cuts through ties.
    pub(crate) ties_free: bool,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Integer(i128),
    Number(f64),
    Text(String),
}

impl Answer {
    pub(crate) fn new(columns: Vec<String>, rows: Vec<Vec<Value>>) -> Self {
        let rows = rows.into_iter().map(|row| row.into_iter().map(Cell::new).collect()).collect();
        Self { columns, rows }
    }

    /// Says where `self` and `other` first differ, if they do.
    pub(crate) fn difference(&self, other: &Self, rule: &Rule) -> Option<String> {
        if self.rows.len() != other.rows.len() {
            return Some(format!("{} rows, expected {}", other.rows.len(), self.rows.len()));
        }
        let widths = (self.width(), other.width());
        if !self.rows.is_empty() && widths.0 != widths.1 {
            return Some(format!("{} columns, expected {}", widths.1, widths.0));
        }
        if let Some(column) = rule.order.iter().find(|&&column| !self.rows.is_empty() && column >= widths.0) {
            return Some(format!("column {} of the order is not in the answer", column + 1));
        }
        let in_sequence = self.rows.iter().zip(&other.rows);
        self.first_difference(in_sequence, rule.order.iter().copied()).or_else(|| {
            if rule.ties_free {
                return None;
            }
            let key = self.exact_columns(other);
            let (expected, found) = (self.sorted(&key), other.sorted(&key));
            self.first_difference(expected.into_iter().zip(found), 0..widths.0)
        })
    }

    fn width(&self) -> usize {
        self.rows.first().map_or(self.columns.len(), Vec::len)
    }

    fn first_difference<'a>(
        &self,
        pairs: impl Iterator<Item = (&'a Vec<Cell>, &'a Vec<Cell>)>,
        columns: impl Iterator<Item = usize> + Clone,
    ) -> Option<String> {
        for (index, (expected, found)) in pairs.enumerate() {
            for column in columns.clone() {
                let (expected, found) = (expected.get(column)?, found.get(column)?);
                if !expected.agrees(found) {
                    let name = self.columns.get(column).map_or("", String::as_str);
                    let place = format!("row {}, column {} ({name})", index + 1, column + 1);
                    return Some(format!("{place}: {found}, expected {expected}"));
                }
            }
        }
        None
    }

    /// Columns without floating point in either answer: safe to sort by, as equal values are identical.
    fn exact_columns(&self, other: &Self) -> Vec<usize> {
        let exact = |column: usize| {
            let mut rows = self.rows.iter().chain(&other.rows);
            rows.all(|row| !matches!(row.get(column), Some(Cell::Number(_))))
        };
        (0..self.width()).filter(|&column| exact(column)).collect()
    }

    /// The rows in one order for all engines: by the exact columns, then by the others.
    fn sorted(&self, key: &[usize]) -> Vec<&Vec<Cell>> {
        let rank = |a: &&Vec<Cell>, b: &&Vec<Cell>| {
            let by_key = key.iter().map(|&column| a[column].rank(&b[column])).find(|order| order.is_ne());
            by_key.unwrap_or_else(|| {
                let all = a.iter().zip(b.iter()).map(|(a, b)| a.rank(b));
                all.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            })
        };
        let mut rows = self.rows.iter().collect::<Vec<_>>();
        rows.sort_by(rank);
        rows
    }
}

impl Cell {
    fn new(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Integer(value.into()),
            Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(integer), _) => Self::Integer(integer),
                (None, Some(number)) => Self::Number(number),
                (None, None) => Self::Text(number.to_string()),
            },
            Value::String(text) => Self::text(text),
            nested => Self::Text(nested.to_string()),
        }
    }

    /// Dates and times lose what carries no information: the T, a zero fraction, midnight, UTC.
    fn text(mut text: String) -> Self {
        match text.as_str() {
            "NaN" | "nan" => return Self::Number(f64::NAN),
            "inf" => return Self::Number(f64::INFINITY),
            "-inf" => return Self::Number(f64::NEG_INFINITY),
            _ => {}
        }
        let shape = |(index, byte): (usize, u8)| match index {
            4 | 7 => byte == b'-',
            10 => byte == b' ' || byte == b'T',
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit(),
        };
        if text.len() >= 19 && text.bytes().take(19).enumerate().all(shape) {
            text.replace_range(10..11, " ");
            for suffix in ["Z", "+00:00"] {
                text.truncate(text.strip_suffix(suffix).map_or(text.len(), str::len));
            }
            if text.len() > 19 && text.as_bytes()[19] == b'.' {
                text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
            }
            text.truncate(text.strip_suffix(" 00:00:00").map_or(text.len(), str::len));
        }
        Self::Text(text)
    }

    #[expect(clippy::cast_precision_loss, reason = "compared within a tolerance")]
    fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Number(value) => Some(*value),
            Self::Null | Self::Text(_) => None,
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(_), _) | (_, Self::Number(_)) => match (self.as_f64(), other.as_f64()) {
                (Some(a), Some(b)) if a.is_finite() && b.is_finite() => {
                    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0)
                }
                (Some(a), Some(b)) => a.total_cmp(&b).is_eq() || a.is_nan() && b.is_nan(),
                _ => false,
            },
            _ => self == other,
        }
    }

    fn rank(&self, other: &Self) -> Ordering {
        let kind = |cell: &Self| match cell {
            Self::Null => 0,
            Self::Integer(_) | Self::Number(_) => 1,
            Self::Text(_) => 2,
        };
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => match (self.as_f64(), other.as_f64()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => kind(self).cmp(&kind(other)),
            },
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "'{text}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(rows: &Value) -> Answer {
        let rows: Vec<Vec<Value>> = serde_json::from_value(rows.clone()).unwrap();
        Answer::new(vec!["a".into(), "b".into()], rows)
    }

    /// `expected` is what the difference says, or "" where there is none.
    fn check(rule: &Rule, a: &Value, b: &Value, expected: &str) {
        assert_eq!(answer(a).difference(&answer(b), rule).unwrap_or_default(), expected, "{a} against {b}");
    }

    #[test]
    fn rows_are_a_multiset() {
        let rule = Rule::default();
        check(&rule, &json!([[1, "x"], [2, "y"]]), &json!([[2, "y"], [1, "x"]]), "");
        check(&rule, &json!([]), &json!([]), "");
        check(&rule, &json!([[1], [1], [2]]), &json!([[1], [2], [2]]), "row 2, column 1 (a): 2, expected 1");
        check(&rule, &json!([[1]]), &json!([[1], [1]]), "2 rows, expected 1");
        check(&rule, &json!([[1]]), &json!([[1, 2]]), "2 columns, expected 1");
    }

    #[test]
    fn numbers_agree_within_the_tolerance() {
        let rule = Rule::default();
        check(&rule, &json!([[1.0000001]]), &json!([[1.0]]), "");
        check(&rule, &json!([[3e12]]), &json!([[3.000_001e12]]), "");
        check(&rule, &json!([[0.049_985]]), &json!([[0.049_985_3]]), "");
        check(&rule, &json!([[5]]), &json!([[5.0]]), "");
        check(
            &rule,
            &json!([[0.0388]]),
            &json!([[0.038_820_14]]),
            "row 1, column 1 (a): 0.03882014, expected 0.0388",
        );
        check(&rule, &json!([[1.5]]), &json!([["1.5"]]), "row 1, column 1 (a): '1.5', expected 1.5");
    }

    #[test]
    fn integers_are_exact() {
        let rule = Rule::default();
        let large = 4_611_686_018_427_387_904_i64;
        check(&rule, &json!([[large]]), &json!([[large]]), "");
        check(
            &rule,
            &json!([[large]]),
            &json!([[large + 1]]),
            "row 1, column 1 (a): 4611686018427387905, expected 4611686018427387904",
        );
    }

    #[test]
    fn fractions_do_not_upset_the_order_of_rows() {
        // The averages would sort the rows differently on both sides.
        let a = json!([[0.300_000_01, "x"], [0.3, "y"]]);
        let b = json!([[0.3, "x"], [0.300_000_01, "y"]]);
        check(&Rule::default(), &a, &b, "");
    }

    #[test]
    fn null_equals_null_only() {
        let rule = Rule::default();
        check(&rule, &json!([[null, 1]]), &json!([[null, 1]]), "");
        check(&rule, &json!([[null]]), &json!([[0]]), "row 1, column 1 (a): 0, expected NULL");
        check(&rule, &json!([[""]]), &json!([[null]]), "row 1, column 1 (a): NULL, expected ''");
        check(&rule, &json!([["NaN"]]), &json!([["nan"]]), "");
        check(&rule, &json!([["NaN"]]), &json!([[null]]), "row 1, column 1 (a): NULL, expected NaN");
        check(&rule, &json!([["inf"]]), &json!([["-inf"]]), "row 1, column 1 (a): -inf, expected inf");
    }

    #[test]
    fn times_have_many_spellings() {
        let rule = Rule::default();
        for same in
            ["2013-07-15 00:00:00", "2013-07-15T00:00:00", "2013-07-15 00:00:00.000", "2013-07-15T00:00:00Z"]
        {
            check(&rule, &json!([["2013-07-15"]]), &json!([[same]]), "");
        }
        check(&rule, &json!([["2013-07-15 10:20:30.5"]]), &json!([["2013-07-15T10:20:30.500000+00:00"]]), "");
        check(
            &rule,
            &json!([["2013-07-15 10:20:30"]]),
            &json!([["2013-07-15 10:20:31"]]),
            "row 1, column 1 (a): '2013-07-15 10:20:31', expected '2013-07-15 10:20:30'",
        );
        check(&rule, &json!([["not 2013-07-15 a time."]]), &json!([["not 2013-07-15 a time."]]), "");
    }

    #[test]
    fn the_order_counts_where_the_query_orders() {
        let rule = Rule { order: vec![1], ties_free: false };
        check(&rule, &json!([["x", 2], ["y", 1]]), &json!([["x", 2], ["y", 1]]), "");
        check(
            &rule,
            &json!([["x", 2], ["y", 1]]),
            &json!([["y", 1], ["x", 2]]),
            "row 1, column 2 (b): 1, expected 2",
        );
        // Ties may come in any order.
        check(&rule, &json!([["x", 2], ["y", 2]]), &json!([["y", 2], ["x", 2]]), "");
        check(
            &rule,
            &json!([["x", 2], ["y", 2]]),
            &json!([["z", 2], ["x", 2]]),
            "row 2, column 1 (a): 'z', expected 'y'",
        );
        check(&rule, &json!([["x"]]), &json!([["x"]]), "column 2 of the order is not in the answer");
    }

    #[test]
    fn rows_may_differ_where_a_limit_cuts_ties() {
        let rule = Rule { order: vec![1], ties_free: true };
        check(&rule, &json!([["x", 2], ["y", 1]]), &json!([["x", 2], ["z", 1]]), "");
        check(
            &rule,
            &json!([["x", 2], ["y", 1]]),
            &json!([["x", 2], ["z", 2]]),
            "row 2, column 2 (b): 2, expected 1",
        );
        let counted = Rule { order: vec![], ties_free: true };
        check(&counted, &json!([["x"]]), &json!([["y"]]), "");
        check(&counted, &json!([["x"]]), &json!([]), "0 rows, expected 1");
    }
}
