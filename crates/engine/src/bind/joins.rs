//! USING and NATURAL: which pairs of columns are merged into one, and where that column takes its value from.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, Join, JoinConstraint, JoinOperator};

use super::scope::{Output, Tables};
use crate::error::{Error, ErrorKind, Result};
use crate::expressions::functions::call;

/// The side of a join that has a row for each row of the result, and so the value of a merged column.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Left,
    Right,
    /// Whichever side has a row, as in a full join.
    Both,
    /// Only the left side has columns in the result, as in a semi or anti join.
    LeftAlone,
    RightAlone,
}

pub(super) fn side(operator: &JoinOperator) -> Side {
    match operator {
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Side::Right,
        JoinOperator::FullOuter(_) => Side::Both,
        JoinOperator::Semi(_)
        | JoinOperator::LeftSemi(_)
        | JoinOperator::Anti(_)
        | JoinOperator::LeftAnti(_) => Side::LeftAlone,
        JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_) => Side::RightAlone,
        _ => Side::Left,
    }
}

pub(super) fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => Some(constraint),
        _ => None,
    }
}

/// Whether a join has USING or NATURAL, and so merges pairs of columns.
pub(super) fn merges(join: &mut Join) -> bool {
    let constraint = constraint(&mut join.join_operator);
    matches!(constraint, Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
}

/// The join condition that the columns `names` are equal on both sides, and the tables that result from the
/// join.
pub(super) fn merged(left: Tables, right: Tables, names: &[String], side: Side) -> Result<(Expr, Tables)> {
    let (left_outputs, right_outputs) =
        (left.outputs.clone().unwrap_or_default(), right.outputs.clone().unwrap_or_default());
    let mut condition: Option<Expr> = None;
    let mut outputs = Vec::with_capacity(left_outputs.len() + right_outputs.len());
    for name in names {
        let (of_left, of_right) = (only(&left_outputs, name)?, only(&right_outputs, name)?);
        let equal = Expr::BinaryOp {
            left: Box::new(of_left.clone()),
            op: BinaryOperator::Eq,
            right: Box::new(of_right.clone()),
        };
        condition = Some(match condition {
            None => equal,
            Some(condition) => {
                let (left, right) = (Box::new(condition), Box::new(equal));
                Expr::BinaryOp { left, op: BinaryOperator::And, right }
            }
        });
        let expr = match side {
            Side::Left | Side::LeftAlone => of_left,
            Side::Right | Side::RightAlone => of_right,
            Side::Both => call("coalesce", vec![of_left, of_right]),
        };
        outputs.push(Output { name: name.clone(), expr, is_merged: true });
    }
    let others = |of_side: Vec<Output>| of_side.into_iter().filter(|output| !names.contains(&output.name));
    let tables = match side {
        Side::LeftAlone => {
            outputs.extend(others(left_outputs));
            left
        }
        Side::RightAlone => {
            outputs.extend(others(right_outputs));
            right
        }
        _ => {
            outputs.extend(others(left_outputs));
            outputs.extend(others(right_outputs));
            left.and(right)
        }
    };
    let condition = condition.unwrap_or_else(|| Expr::value(ast::Value::Boolean(true)));
    Ok((condition, Tables { outputs: Some(outputs), ..tables }))
}

/// The only column called `name` on one side of a join.
fn only(outputs: &[Output], name: &str) -> Result<Expr> {
    let mut named = outputs.iter().filter(|output| output.name == name);
    match (named.next(), named.next()) {
        (Some(only), None) => Ok(only.expr.clone()),
        (None, _) => {
            let message = format!("column '{name}' of USING is not on both sides of the join");
            Err(Error::new(ErrorKind::NotFound, message)
                .with_hint("JOIN ... ON joins columns of other names"))
        }
        _ => {
            let message = format!("column '{name}' of USING is more than one column on one side of the join");
            Err(Error::new(ErrorKind::Invalid, message).with_hint("JOIN ... ON says which"))
        }
    }
}
