//! Corrects operators that DataFusion computes wrongly: the lookup in a map, which takes only keys of the very type
//! that the map has, and `~ '.*'`, which forgets that NULL gives NULL. Also refuses arguments at which DataFusion fails only during execution, and lists, structs and maps where it would take
//! their text.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::functions::{UDFCoercionExt, fields_with_udf};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use crate::error::{Error, ErrorKind};
use crate::expressions::functions::nested::lookup;
use crate::types::sql_type_name;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Meanings;

impl AnalyzerRule for Meanings {
    fn name(&self) -> &'static str {
        "meanings"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, meant)
    }
}

/// Functions of lists of numbers, which do not take lists of lists.
const OF_NUMBERS: [&str; 10] = [
    "array_add",
    "array_avg",
    "array_normalize",
    "array_product",
    "array_scale",
    "array_subtract",
    "array_sum",
    "cosine_distance",
    "array_distance",
    "inner_product",
];

fn meant(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(call) if OF_NUMBERS.contains(&call.func.name()) => {
            for argument in &call.args {
                let data_type = argument.get_type(schema)?;
                if let DataType::List(element)
                | DataType::LargeList(element)
                | DataType::FixedSizeList(element, _) = &data_type
                    && element.data_type().is_nested()
                {
                    let type_name = sql_type_name(&data_type);
                    return plan_err!("{} takes lists of numbers, not {type_name}", call.func.name());
                }
            }
            Ok(Transformed::no(Expr::ScalarFunction(call)))
        }
        Expr::AggregateFunction(call) if call.func.name() == "nth_value" => {
            let is_zero = |value: &ScalarValue| {
                ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero == *value)
            };
            if matches!(call.params.args.get(1), Some(Expr::Literal(place, _)) if is_zero(place)) {
                return plan_err!("nth_value counts from 1, and from -1 backwards");
            }
            Ok(Transformed::no(Expr::AggregateFunction(call)))
        }
        Expr::ScalarFunction(call) if call.func.name() == "get_field" => subscript(call, schema),
        Expr::ScalarFunction(call) if call.func.name() == "regexp_like" && is_any(call.args.get(1)) => {
            Ok(Transformed::yes(true_of_values(call.args[0].clone(), true)))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_any(Some(&right)) => match op {
            Operator::RegexMatch | Operator::RegexIMatch => Ok(Transformed::yes(true_of_values(*left, true))),
            Operator::RegexNotMatch | Operator::RegexNotIMatch => {
                Ok(Transformed::yes(true_of_values(*left, false)))
            }
            _ => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
        },
        Expr::ScalarFunction(call) => {
            check_texts(call.func.as_ref(), &call.args, schema)?;
            Ok(Transformed::no(Expr::ScalarFunction(call)))
        }
        Expr::AggregateFunction(call) => {
            check_texts(call.func.as_ref(), &call.params.args, schema)?;
            Ok(Transformed::no(Expr::AggregateFunction(call)))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// Whether a pattern matches every text.
fn is_any(pattern: Option<&Expr>) -> bool {
    matches!(pattern, Some(Expr::Literal(value, _)) if value.try_as_str() == Some(Some(".*")))
}

/// `value` where the operand is not NULL.
pub(super) fn true_of_values(operand: Expr, value: bool) -> Expr {
    let when = (Box::new(operand.is_not_null()), Box::new(lit(value)));
    Expr::Case(Case::new(None, vec![when], None))
}

/// `get_field` of a map as the lookup of a key; what stands behind the key are fields of the value.
fn subscript(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if call.args.len() < 2 || !matches!(call.args[0].get_type(schema), Ok(DataType::Map(..))) {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    let key = call.args.remove(1);
    let value = lookup(call.args.remove(0), key, schema)?;
    if call.args.is_empty() {
        return Ok(Transformed::yes(value));
    }
    call.args.insert(0, value);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// Refuses a list, struct or map that the planner would convert to text for a function of texts.
fn check_texts(function: &impl UDFCoercionExt, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let fields = arguments.iter().map(|argument| Ok(argument.to_field(schema)?.1));
    let fields = fields.collect::<Result<Vec<FieldRef>>>()?;
    if !fields.iter().any(|field| field.data_type().is_nested()) {
        return Ok(());
    }
    let taken = fields_with_udf(&fields, function)?;
    let is_text = |field: &FieldRef| {
        matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    match fields.iter().zip(&taken).find(|(field, taken)| field.data_type().is_nested() && is_text(taken)) {
        Some((field, _)) => {
            let type_name = sql_type_name(field.data_type());
            let message = format!("function '{}' takes a text, not {type_name}", function.name());
            let error = Error::new(ErrorKind::Invalid, message);
            let error = error.with_hint("CAST it to VARCHAR, or join a list: array_to_string(list, ',')");
            Err(DataFusionError::External(Box::new(error)))
        }
        None => Ok(()),
    }
}
