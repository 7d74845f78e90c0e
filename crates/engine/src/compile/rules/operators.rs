//! How calls of functions that stand for operators are written.
//!
//! A chain of them is written into one text, from its left end. Made of the texts of its parts, it would take the
//! square of its length, and DataFusion asks each call of a chain for its text.

use std::fmt::{self, Write};

use datafusion::logical_expr::Expr;

/// The functions of two operands, with their operators.
const OPERATORS: [(&str, &str); 4] =
    [("checked_add", "+"), ("checked_subtract", "-"), ("checked_multiply", "*"), ("||", "||")];

/// How DataFusion writes the operator that `function` stands for; column names are derived from this text.
pub(crate) fn operator_name(function: &str, left: &Expr, right: &Expr) -> String {
    chain(function, left, right, |text, operand| write!(text, "{}", operand.schema_name()))
}

/// As [`operator_name`], with operands as EXPLAIN shows them.
pub(crate) fn operator_display(function: &str, left: &Expr, right: &Expr) -> String {
    chain(function, left, right, |text, operand| write!(text, "{operand}"))
}

fn chain(
    function: &str,
    left: &Expr,
    right: &Expr,
    write_operand: impl Fn(&mut String, &Expr) -> fmt::Result,
) -> String {
    let mut first = left;
    let mut others = vec![(symbol(function).unwrap_or(function), right)];
    while let Expr::ScalarFunction(call) = first
        && let Some(symbol) = symbol(call.func.name())
        && let [left, right] = call.args.as_slice()
    {
        others.push((symbol, right));
        first = left;
    }
    let mut text = String::new();
    write_operand(&mut text, first).expect("a String takes any text");
    for (symbol, operand) in others.into_iter().rev() {
        text.extend([" ", symbol, " "]);
        write_operand(&mut text, operand).expect("a String takes any text");
    }
    text
}

fn symbol(function: &str) -> Option<&'static str> {
    OPERATORS.iter().find(|(name, _)| *name == function).map(|(_, symbol)| *symbol)
}
