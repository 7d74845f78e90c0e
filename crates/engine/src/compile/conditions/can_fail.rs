//! Whether computing an expression can fail for some row: a division by zero, a text that is no number, an
//! overflow.
//!
//! An error that every row would cause, such as a pattern that is no regular expression, is an error of the
//! query and does not count. An expression that is not known to have a value for every row counts as one that
//! can fail.

use arrow::datatypes::{DataType, Schema, TimeUnit};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr as BinaryNode, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr,
    IsNotNullExpr, IsNullExpr, LambdaExpr, LambdaVariable, LikeExpr, Literal, NegativeExpr, NoOp, NotExpr,
    TryCastExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Whether `expr`, over columns of `schema`, can fail for some row.
pub(crate) fn can_fail(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    expr.exists(|node| Ok(node_can_fail(node, schema)))
}

/// Whether this node can fail even if its operands have values.
fn node_can_fail(node: &Expr, schema: &DFSchema) -> bool {
    let data_type = |expr: &Expr| expr.get_type(schema).ok();
    match node {
        Expr::Cast(cast) => {
            data_type(&cast.expr).is_none_or(|from| cast_can_fail(&from, cast.field.data_type()))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            operator_can_fail(*op, || data_type(left).zip(data_type(right)), || constant(right))
        }
        Expr::Negative(operand) => data_type(operand).is_none_or(|operand| !is_number(&operand)),
        Expr::ScalarFunction(call) => {
            let types = || call.args.iter().map(data_type).collect();
            function_can_fail(call.func.name(), types, &|place| call.args.get(place).and_then(constant))
        }
        Expr::Alias(_)
        | Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::Literal(..)
        | Expr::Like(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::TryCast(_)
        | Expr::InList(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::GroupingSet(_)
        | Expr::Placeholder(_)
        | Expr::Lambda(_)
        | Expr::LambdaVariable(_) => false,
        _ => true,
    }
}

fn constant(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// As [`can_fail`], for one node of a physical expression.
pub(super) fn physical_node_can_fail(node: &dyn PhysicalExpr, schema: &Schema) -> bool {
    let data_type = |expr: &dyn PhysicalExpr| expr.data_type(schema).ok();
    let constant = |expr: &dyn PhysicalExpr| expr.downcast_ref::<Literal>().map(|one| one.value().clone());
    if let Some(cast) = node.downcast_ref::<CastExpr>() {
        return data_type(cast.expr().as_ref()).is_none_or(|from| cast_can_fail(&from, cast.cast_type()));
    }
    if let Some(binary) = node.downcast_ref::<BinaryNode>() {
        let (left, right) = (binary.left().as_ref(), binary.right().as_ref());
        let right_value = constant(right);
        return operator_can_fail(
            *binary.op(),
            || data_type(left).zip(data_type(right)),
            || right_value.as_ref(),
        );
    }
    if let Some(call) = node.downcast_ref::<ScalarFunctionExpr>() {
        let types = || call.args().iter().map(|argument| data_type(argument.as_ref())).collect();
        let constants: Vec<_> = call.args().iter().map(|argument| constant(argument.as_ref())).collect();
        return function_can_fail(call.fun().name(), types, &|place| constants.get(place)?.as_ref());
    }
    if let Some(negative) = node.downcast_ref::<NegativeExpr>() {
        return data_type(negative.arg().as_ref()).is_none_or(|operand| !is_number(&operand));
    }
    let never_fails = node.is::<Column>()
        || node.is::<Literal>()
        || node.is::<NotExpr>()
        || node.is::<IsNullExpr>()
        || node.is::<IsNotNullExpr>()
        || node.is::<InListExpr>()
        || node.is::<LikeExpr>()
        || node.is::<CaseExpr>()
        || node.is::<TryCastExpr>()
        || node.is::<NoOp>()
        || node.is::<LambdaExpr>()
        || node.is::<LambdaVariable>()
        || node.is::<DynamicFilterPhysicalExpr>()
        || node.is::<ScalarSubqueryExpr>();
    !never_fails
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Null
}

/// Operators of whole numbers and DECIMALs that can overflow were replaced by checked functions, so the `+`,
/// `-` and `*` of numbers that remain cannot fail.
fn operator_can_fail<'a>(
    operator: Operator,
    types: impl FnOnce() -> Option<(DataType, DataType)>,
    right: impl FnOnce() -> Option<&'a ScalarValue>,
) -> bool {
    use Operator::{
        And, BitwiseAnd, BitwiseOr, BitwiseShiftLeft, BitwiseShiftRight, BitwiseXor, Divide, Eq, Gt, GtEq,
        ILikeMatch, IsDistinctFrom, IsNotDistinctFrom, LikeMatch, Lt, LtEq, Minus, Modulo, Multiply, NotEq,
        NotILikeMatch, NotLikeMatch, Or, Plus, RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch,
        StringConcat,
    };
    match operator {
        And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom | LikeMatch
        | ILikeMatch | NotLikeMatch | NotILikeMatch | BitwiseAnd | BitwiseOr | BitwiseXor
        | BitwiseShiftLeft | BitwiseShiftRight | StringConcat => false,
        RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch => right().is_none(),
        Plus | Minus | Multiply => types().is_none_or(|(left, right)| {
            let are_days = matches!((&left, &right), (DataType::Date32, DataType::Date32));
            !(is_number(&left) && is_number(&right) || are_days)
        }),
        Divide | Modulo => types().is_none_or(|(left, _)| {
            let divides_wholly = left.is_integer() && right().is_some_and(is_harmless_divisor);
            !(left.is_floating() || left == DataType::Null || divides_wholly)
        }),
        _ => true,
    }
}

/// Whether dividing a whole number by `value` cannot fail. -1 can: the smallest number of a type has no
/// opposite.
fn is_harmless_divisor(value: &ScalarValue) -> bool {
    match value.cast_to(&DataType::Decimal128(38, 0)) {
        Ok(ScalarValue::Decimal128(number, ..)) => !matches!(number, Some(0 | -1)),
        _ => false,
    }
}

fn cast_can_fail(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Decimal128, Dictionary, Float16, Float32, Float64, LargeBinary,
        LargeList, LargeUtf8, List, Null, Timestamp, Utf8, Utf8View,
    };
    if from == to {
        return false;
    }
    match (from, to) {
        (Null, _) => false,
        (Dictionary(_, value), _) => cast_can_fail(value, to),
        (List(from) | LargeList(from), List(to) | LargeList(to)) => {
            cast_can_fail(from.data_type(), to.data_type())
        }
        (Boolean, to) => !(to.is_numeric() || is_text(to)),
        (Utf8 | LargeUtf8 | Utf8View, to) => {
            !(is_text(to) || matches!(to, Binary | LargeBinary | BinaryView))
        }
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => false,
        (from, Boolean) => !from.is_numeric(),
        (from, to) if is_text(to) => !from.is_numeric(),
        (from, to) if from.is_integer() && to.is_integer() => {
            let (from_bits, to_bits) = (bits(from), bits(to));
            match (from.is_signed_integer(), to.is_signed_integer()) {
                (true, false) => true,
                (false, true) => to_bits <= from_bits,
                _ => to_bits < from_bits,
            }
        }
        (from, Float16 | Float32 | Float64) => !from.is_numeric(),
        (from, Decimal128(precision, scale)) if from.is_integer() => {
            let digits: i16 = match bits(from) {
                8 => 3,
                16 => 5,
                32 => 10,
                _ => 20,
            };
            i16::from(*precision) - i16::from(*scale) < digits
        }
        (Decimal128(p1, s1), Decimal128(p2, s2)) => {
            s2 < s1 || i16::from(*p2) - i16::from(*s2) < i16::from(*p1) - i16::from(*s1)
        }
        (Date32, Timestamp(TimeUnit::Second | TimeUnit::Millisecond, None)) => false,
        (Timestamp(from, _), Timestamp(to, _)) => to > from,
        (Timestamp(..), Date32) => false,
        _ => true,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn bits(integer: &DataType) -> usize {
    integer.primitive_width().unwrap_or(0) * 8
}

/// Functions that have a value, or NULL, for all arguments of their types.
const TOTAL: &[&str] = &[
    "acos",
    "acosh",
    "array_any_value",
    "array_append",
    "array_concat",
    "array_dims",
    "array_distinct",
    "array_element",
    "array_except",
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_length",
    "array_max",
    "array_min",
    "array_ndims",
    "array_pop_back",
    "array_pop_front",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_replace",
    "array_replace_all",
    "array_reverse",
    "array_to_string",
    "array_union",
    "arrow_typeof",
    "ascii",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bit_count",
    "bit_length",
    "btrim",
    "cardinality",
    "cbrt",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "cos",
    "cosh",
    "cot",
    "current_date",
    "current_time",
    "degrees",
    "empty",
    "ends_with",
    "exp",
    "find_in_set",
    "flatten",
    "get_field",
    "greatest",
    "initcap",
    "isnan",
    "iszero",
    "keirin_bytes",
    "keirin_float",
    "keirin_map_value",
    "keirin_nested_order",
    "keirin_try_uuid",
    "least",
    "left",
    "len",
    "levenshtein",
    "ln",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "make_array",
    "map_keys",
    "map_values",
    "md5",
    "named_struct",
    "nanvl",
    "now",
    "nullif",
    "nvl",
    "nvl2",
    "octet_length",
    "pi",
    "radians",
    "random",
    "replace",
    "reverse",
    "right",
    "rtrim",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "sin",
    "sinh",
    "starts_with",
    "string_to_array",
    "strpos",
    "struct",
    "substr_index",
    "tan",
    "tanh",
    "to_hex",
    "translate",
    "typeof",
    "upper",
    "uuid",
    "version",
    "||",
];

/// Functions that have a value, or NULL, for all floats.
const TOTAL_OF_FLOATS: &[&str] = &["abs", "ceil", "floor", "log", "round", "signum", "trunc"];

fn function_can_fail<'a>(
    name: &str,
    types: impl FnOnce() -> Option<Vec<DataType>>,
    constant: &dyn Fn(usize) -> Option<&'a ScalarValue>,
) -> bool {
    let is_at_least = |place, least: i64| match constant(place) {
        Some(ScalarValue::Int64(Some(value))) => *value >= least,
        _ => false,
    };
    let is_total = match name {
        "array_position" => types().is_some_and(|types| types.len() == 2),
        "date_part" | "date_trunc" => constant(0).is_some(),
        // Zero has no power below zero.
        "power" => matches!(constant(1), Some(ScalarValue::Float64(Some(exponent))) if *exponent >= 0.0),
        "regexp_like" | "regexp_match" => constant(1).is_some(),
        "regexp_replace" => constant(1).is_some() && constant(2).is_some(),
        "split_part" => is_at_least(2, 1),
        "substr" => types().is_some_and(|types| types.len() == 2) || is_at_least(2, 0),
        name if TOTAL_OF_FLOATS.contains(&name) => {
            types().is_some_and(|types| types.first().is_some_and(DataType::is_floating))
        }
        name => TOTAL.binary_search(&name).is_ok(),
    };
    !is_total
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::functions::expr_fn;
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;
    use crate::expressions::casts::positive_nan;

    #[test]
    fn functions_that_never_fail_are_sorted() {
        assert!(TOTAL.is_sorted());
    }

    #[test]
    fn what_can_fail_for_some_row() {
        let fields = [
            Field::new("i", DataType::Int32, true),
            Field::new("f", DataType::Float64, true),
            Field::new("s", DataType::Utf8View, true),
            Field::new("d", DataType::Date32, true),
            Field::new("m", DataType::Decimal128(10, 2), true),
        ];
        let schema = DFSchema::try_from(Schema::new(fields.to_vec())).unwrap();
        let check = |expr: Expr, expected: bool| {
            assert_eq!(can_fail(&expr, &schema).unwrap(), expected, "{expr}");
        };
        check(col("i").gt(lit(3)), false);
        check(lit(10) / col("i"), true);
        check(col("i") / lit(10), false);
        check(col("i") % lit(0), true);
        check(col("i") % lit(-1), true);
        check(lit(10.0) / col("f"), false);
        check(positive_nan(col("f") * col("f")).gt(lit(3.0)), false);
        check(col("m") / lit(2), true);
        check(cast(col("i"), DataType::Int64), false);
        check(cast(col("i"), DataType::UInt64), true);
        check(cast(col("i"), DataType::Int16), true);
        check(cast(col("i"), DataType::Utf8), false);
        check(cast(col("i"), DataType::Decimal128(12, 2)), false);
        check(cast(col("i"), DataType::Decimal128(11, 2)), true);
        check(cast(col("s"), DataType::Int32), true);
        check(cast(col("d"), DataType::Timestamp(TimeUnit::Nanosecond, None)), true);
        check(col("d") - col("d"), false);
        check(expr_fn::lower(col("s")).eq(lit("x")), false);
        check(expr_fn::chr(col("i")).eq(lit("x")), true);
        check(expr_fn::substring(col("s"), lit(1_i64), lit(2_i64)), false);
        check(expr_fn::substring(col("s"), lit(1), col("i")), true);
        check(expr_fn::regexp_like(col("s"), col("s"), None), true);
        check(expr_fn::regexp_like(col("s"), lit("a+"), None), false);
        check(col("i").in_list(vec![lit(1), lit(2) / col("i")], false), true);
    }
}
