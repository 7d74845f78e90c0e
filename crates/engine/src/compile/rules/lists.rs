//! Lists of IN that DataFusion would join wrongly.
//!
//! Its simplifier takes two lists about one operand for sets: `a IN (1, 2) AND a IN (3, 4)` becomes false, also where `a` is
//! NULL, `a IN (b, 2) AND a IN (3, c)` too, whatever `b` and `c` are, and `a = 1 OR a = 2` is such a list as well. So here,
//! behind type coercion, what is no constant leaves its list, and two lists of constants are joined as SQL has it.

use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::meanings::true_of_values;
use super::rewrite_expressions;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Lists;

impl AnalyzerRule for Lists {
    fn name(&self) -> &'static str {
        "lists"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, |expr, _| {
            Ok(match expr {
                Expr::InList(list) => of_constants(list),
                Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
                    match of_two_lists(&binary) {
                        Some(one) => Transformed::yes(one),
                        None => Transformed::no(Expr::BinaryExpr(binary)),
                    }
                }
                expr => Transformed::no(expr),
            })
        })
    }
}

/// The list of its constants, and comparisons with what else it has.
fn of_constants(mut list: InList) -> Transformed<Expr> {
    let is_left = |item: &Expr| matches!(item, Expr::ScalarSubquery(_));
    if list.list.iter().all(|item| item.as_literal().is_some_and(|value| !is_minus_zero(value)))
        || list.list.iter().any(is_left)
        || list.expr.is_volatile()
    {
        return Transformed::no(Expr::InList(list));
    }
    let folded = list.list.into_iter().map(|item| folded(&item).unwrap_or(item));
    let (constants, others): (Vec<Expr>, Vec<Expr>) = folded.partition(|item| item.as_literal().is_some());
    let (op, joined) = match list.negated {
        false => (Operator::Eq, Operator::Or),
        true => (Operator::NotEq, Operator::And),
    };
    let binary =
        |left, op, right| Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) });
    let compared = others.into_iter().map(|item| binary(list.expr.as_ref().clone(), op, item));
    let compared: Vec<Expr> = compared.collect();
    list.list = constants;
    let first = (!list.list.is_empty()).then(|| Expr::InList(list));
    let all = first.into_iter().chain(compared).reduce(|all, one| binary(all, joined, one));
    Transformed::yes(all.unwrap_or_else(|| lit(false)))
}

/// What a constant expression is; zero without a sign, for -0.0 equals it.
fn folded(item: &Expr) -> Option<Expr> {
    if item.any_column_refs() || item.is_volatile() {
        return None;
    }
    let value = match item {
        Expr::Literal(value, _) => value.clone(),
        _ => match ExprSimplifier::new(SimplifyContext::default()).simplify(item.clone()) {
            Ok(Expr::Literal(value, _)) => value,
            // What fails does so when it is computed.
            _ => return None,
        },
    };
    let value = if is_minus_zero(&value) { ScalarValue::new_zero(&value.data_type()).ok()? } else { value };
    Some(Expr::Literal(value, None))
}

fn is_minus_zero(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float32(Some(value)) => *value == 0.0 && value.is_sign_negative(),
        ScalarValue::Float64(Some(value)) => *value == 0.0 && value.is_sign_negative(),
        _ => false,
    }
}

/// Conditions on one value that two lists of constants make: one list, or, where no value is left in it, true or false but
/// for NULL.
fn of_two_lists(binary: &BinaryExpr) -> Option<Expr> {
    let (left, right) = (as_list(&binary.left)?, as_list(&binary.right)?);
    let is_list = |operand: &Expr, list: &InList| is_written(operand) || list.list.len() > 1;
    if left.expr != right.expr
        || left.expr.is_volatile()
        || !is_list(&binary.left, &left)
        || !is_list(&binary.right, &right)
    {
        return None;
    }
    let (list, keeps_common) = match (binary.op, left.negated, right.negated) {
        (Operator::And, false, false) | (Operator::Or, true, true) => (&left, true),
        (Operator::And, false, true) => (&left, false),
        (Operator::And, true, false) => (&right, false),
        _ => return None,
    };
    let other = if std::ptr::eq(list, &left) { &right } else { &left };
    let mut all = left.list.iter().chain(&right.list);
    if all.any(|item| item.as_literal().is_some_and(ScalarValue::is_null)) {
        let [left, right] = [left, right].map(|list| Box::new(beside_null(list)));
        return Some(Expr::BinaryExpr(BinaryExpr { left, op: binary.op, right }));
    }
    let data_type = list.list.first().and_then(constant)?.data_type();
    let is_simple = |item: &Expr| constant(item).is_some_and(|value| value.data_type() == data_type);
    if !left.list.iter().chain(&right.list).all(is_simple) {
        return None;
    }
    let mut rest = list.clone();
    rest.list.retain(|item| other.list.contains(item) == keeps_common);
    if !rest.list.is_empty() {
        return Some(Expr::InList(rest));
    }
    Some(true_of_values(list.expr.as_ref().clone(), list.negated))
}

/// Whether a condition is a list of IN, or NOT of one.
fn is_written(condition: &Expr) -> bool {
    match condition {
        Expr::Not(inner) => is_written(inner),
        condition => matches!(condition, Expr::InList(_)),
    }
}

/// A constant that is not NULL.
fn constant(item: &Expr) -> Option<&ScalarValue> {
    item.as_literal().filter(|value| !value.is_null())
}

/// A condition that the planner makes a list of, if it is no list yet: `a = 1 OR a = 2`, `a <> 1 AND a <> 2`, and NOT of
/// these.
fn as_list(condition: &Expr) -> Option<InList> {
    let one = |expr: &Expr, item: &Expr, negated| {
        constant(item)?;
        Some(InList { expr: Box::new(expr.clone()), list: vec![item.clone()], negated })
    };
    match condition {
        Expr::InList(list) => Some(list.clone()),
        Expr::Not(inner) => {
            let list = as_list(inner)?;
            Some(InList { negated: !list.negated, ..list })
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
            let negated = *op == Operator::NotEq;
            one(left, right, negated).or_else(|| one(right, left, negated))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Or | Operator::And), right }) => {
            let (mut left, right) = (as_list(left)?, as_list(right)?);
            let are_joined = left.negated == right.negated && left.negated == (*op == Operator::And);
            left.list.extend(right.list);
            (are_joined && left.expr == right.expr).then_some(left)
        }
        _ => None,
    }
}

/// The list without NULLs, and what they make of it: no value is surely not in it.
fn beside_null(mut list: InList) -> Expr {
    let count = list.list.len();
    list.list.retain(|item| constant(item).is_some());
    let (is_whole, is_empty, negated) = (list.list.len() == count, list.list.is_empty(), list.negated);
    let (list, null) = (Expr::InList(list), lit(ScalarValue::Boolean(None)));
    match negated {
        _ if is_whole => list,
        _ if is_empty => null,
        true => list.and(null),
        false => list.or(null),
    }
}
