//! Comparison of query results.
//!
//! Rows are compared as text, numbers as numbers: floating-point sums depend on the order of rows, and
//! the same figure comes as an integer, a decimal or a float.

use arrow::array::RecordBatch;

use crate::slt::{Answer, Failure};

/// How alike results must be.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Share of a value by which numbers with a fraction may differ.
    pub relative: f64,
    /// Whether rows must come in the same order.
    pub ordered: bool,
}

impl Tolerance {
    /// Rounding in the last digits, order of rows free.
    pub const UNORDERED: Self = Self { relative: 1e-9, ordered: false };
    /// Rounding in the last digits, same order of rows.
    pub const ORDERED: Self = Self { relative: 1e-9, ordered: true };
}

/// The rows of `batches`, spelt as [`Answer::from_batches`] does.
///
/// # Errors
/// When Arrow cannot print a value.
pub fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, Failure> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    match Answer::from_batches(&first.schema(), batches)? {
        Answer::Rows { rows, .. } => Ok(rows),
        Answer::Count(_) => Ok(Vec::new()),
    }
}

/// Compares two results row by row.
///
/// # Errors
/// The first difference, in words.
pub fn compare(left: &[Vec<String>], right: &[Vec<String>], tolerance: Tolerance) -> Result<(), String> {
    if left.len() != right.len() {
        return Err(format!("{} rows against {}", left.len(), right.len()));
    }
    let (mut left, mut right): (Vec<_>, Vec<_>) = (left.iter().collect(), right.iter().collect());
    if !tolerance.ordered {
        // Rounded numbers may sort differently, so they come last in the sort key.
        let key = |row: &&Vec<String>| -> Vec<(bool, String)> {
            let mut key: Vec<_> = row.iter().map(|cell| (fraction(cell).is_some(), cell.clone())).collect();
            key.sort_by_key(|(rounded, _)| *rounded);
            key
        };
        left.sort_by_cached_key(key);
        right.sort_by_cached_key(key);
    }
    for (index, (left, right)) in left.iter().zip(&right).enumerate() {
        let same = left.len() == right.len()
            && left.iter().zip(right.iter()).all(|(left, right)| same_cell(left, right, tolerance.relative));
        if !same {
            return Err(format!("row {}: {left:?} against {right:?}", index + 1));
        }
    }
    Ok(())
}

/// The number in a cell, if it is spelt as floats are printed: `1e5` is text, because that number prints as
/// `100000.0`.
fn fraction(cell: &str) -> Option<f64> {
    let number: f64 = cell.contains(['.', 'e', 'N', 'i']).then(|| cell.parse().ok())??;
    let is_printed_so = |cell: &str| format!("{number:?}") == cell;
    (!cell.contains('e') || is_printed_so(cell) || is_printed_so(&cell.replace("e+", "e"))).then_some(number)
}

fn number(cell: &str) -> Option<f64> {
    let is_integer = cell.strip_prefix('-').unwrap_or(cell).bytes().all(|byte| byte.is_ascii_digit());
    if is_integer { cell.parse().ok() } else { fraction(cell) }
}

fn same_cell(left: &str, right: &str, relative: f64) -> bool {
    if left == right {
        return true;
    }
    if fraction(left).is_none() && fraction(right).is_none() {
        return false;
    }
    let (Some(left), Some(right)) = (number(left), number(right)) else { return false };
    (left - right).abs() <= relative * left.abs().max(right.abs()) || left.is_nan() && right.is_nan()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left: &[&[&str]], right: &[&[&str]], tolerance: Tolerance, same: bool) {
        let own = |rows: &[&[&str]]| -> Vec<Vec<String>> {
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
        };
        assert_eq!(compare(&own(left), &own(right), tolerance).is_ok(), same, "{left:?} and {right:?}");
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_text_as_text() {
        check(&[&["1", "a"]], &[&["1", "a"]], Tolerance::ORDERED, true);
        check(&[&["1"]], &[&["1.0"]], Tolerance::ORDERED, true);
        check(&[&["1"]], &[&["2"]], Tolerance::ORDERED, false);
        check(&[&["10000000000"]], &[&["10000000001"]], Tolerance::ORDERED, false);
        check(&[&["0.30000000000000004"]], &[&["0.3"]], Tolerance::ORDERED, true);
        check(&[&["0.3001"]], &[&["0.3"]], Tolerance::ORDERED, false);
        check(&[&["NaN"]], &[&["NULL"]], Tolerance::ORDERED, false);
        check(&[&["1e5"]], &[&["100000"]], Tolerance::ORDERED, false);
        check(&[&["1e5"]], &[&["100000.0"]], Tolerance::ORDERED, false);
        check(&[&["1e+300"]], &[&["1e300"]], Tolerance::ORDERED, true);
        check(&[&["1.5e300"]], &[&["1.5000000000001e300"]], Tolerance::ORDERED, true);
        check(&[&["a b"]], &[&["a  b"]], Tolerance::ORDERED, false);
        check(&[&["1"]], &[&["1", "1"]], Tolerance::ORDERED, false);
        check(&[&["1"], &["1"]], &[&["1"]], Tolerance::ORDERED, false);
    }

    #[test]
    fn order_counts_when_asked_for() {
        let (left, right): ([&[&str]; 2], [&[&str]; 2]) =
            ([&["0.3", "x"], &["2", "y"]], [&["2", "y"], &["0.30000000000000004", "x"]]);
        check(&left, &right, Tolerance::ORDERED, false);
        check(&left, &right, Tolerance::UNORDERED, true);
    }
}
