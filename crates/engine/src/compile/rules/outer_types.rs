//! Types of outer columns in subqueries.
//!
//! An outer column carries the type that it had when the planner saw it. Where [`super::CommonTypes`] gives an expression
//! another one, as `x / 2` of a BIGINT UNSIGNED, or DataFusion's type coercion, as CASE and UNION of numbers of two types,
//! subqueries that name the expression are to know.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use super::{rewrite_expressions, schema_of_expressions};

/// See the [module](self). It goes behind type coercion, and has it done again where there is something.
#[derive(Debug)]
pub(crate) struct OuterTypes;

impl AnalyzerRule for OuterTypes {
    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let settled = with_outer_types(plan)?;
        if !settled.transformed {
            return Ok(settled.data);
        }
        let plan = TypeCoercion::new().analyze(settled.data, options)?;
        rewrite_expressions(plan, cast_once)
    }

    fn name(&self) -> &str {
        "outer_types"
    }
}

/// A cast of a cast that loses nothing as one, as coercion that is done again leaves it: DataFusion knows a column below one
/// cast alone for the key of a correlated subquery.
fn cast_once(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Cast(last) = &expr else { return Ok(Transformed::no(expr)) };
    let Expr::Cast(first) = last.expr.as_ref() else { return Ok(Transformed::no(expr)) };
    let is_lossless =
        first.expr.get_type(schema).is_ok_and(|from| loses_nothing(&from, first.field.data_type()));
    if !is_lossless {
        return Ok(Transformed::no(expr));
    }
    let mut once = last.clone();
    once.expr = first.expr.clone();
    Ok(Transformed::yes(Expr::Cast(once)))
}

/// Whether all values of a type have their like in another type.
fn loses_nothing(from: &DataType, to: &DataType) -> bool {
    // Integers with and without a sign, of so many bits.
    let bits = |data_type: &DataType| {
        let bits = data_type.primitive_width()? * 8;
        data_type.is_integer().then_some((data_type.is_signed_integer(), bits))
    };
    // Digits before and behind the point.
    let digits = |data_type: &DataType| match (data_type, bits(data_type)) {
        (DataType::Decimal128(precision, scale), _) => {
            Some((i32::from(*precision) - i32::from(*scale), *scale))
        }
        (_, Some((_, 8))) => Some((3, 0)),
        (_, Some((_, 16))) => Some((5, 0)),
        (_, Some((_, 32))) => Some((10, 0)),
        (_, Some((is_signed, 64))) => Some((if is_signed { 19 } else { 20 }, 0)),
        _ => None,
    };
    match (bits(from), bits(to), to) {
        (Some((true, _)), Some((false, _)), _) => false,
        (Some((is_signed, from)), Some((to_signed, to)), _) => {
            to > from || (to == from && is_signed == to_signed)
        }
        (Some((_, from)), None, DataType::Float64) => from <= 32,
        (_, None, DataType::Decimal128(..)) => match (digits(from), digits(to)) {
            (Some((from, from_scale)), Some((to, to_scale))) => from <= to && from_scale <= to_scale,
            _ => false,
        },
        _ => (from, to) == (&DataType::Float32, &DataType::Float64),
    }
}

/// The plan with the types of outer columns as they are now.
pub(super) fn with_outer_types(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut has_outer = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            has_outer |= expression.contains_outer();
            Ok(if has_outer { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    if has_outer { settle(plan, &mut Vec::new()) } else { Ok(Transformed::no(plan)) }
}

/// `outer` has the columns of the queries around the plan, those of the innermost last.
fn settle(plan: LogicalPlan, outer: &mut Vec<DFSchemaRef>) -> Result<Transformed<LogicalPlan>> {
    let around = outer.len();
    // What is LATERAL stands to the right of what it names.
    if let LogicalPlan::Join(join) = &plan {
        outer.push(join.left.schema().clone());
    }
    let plan = plan.map_children(|child| settle(child, outer));
    outer.truncate(around);
    let plan = plan?.transform_data(|plan| {
        outer.push(schema_of_expressions(&plan)?);
        let plan = plan.map_subqueries(|subquery| settle(subquery, outer));
        outer.truncate(around);
        plan
    })?;
    if outer.is_empty() {
        return Ok(plan);
    }
    let outer = &*outer;
    plan.transform_data(|plan| {
        let settled = plan.map_expressions(|expr| expr.transform_up(|expr| Ok(settled(expr, outer))))?;
        if settled.transformed { settled.map_data(LogicalPlan::recompute_schema) } else { Ok(settled) }
    })
}

fn settled(expr: Expr, outer: &[DFSchemaRef]) -> Transformed<Expr> {
    let Expr::OuterReferenceColumn(field, column) = expr else { return Transformed::no(expr) };
    let now = outer.iter().rev().find_map(|schema| schema.field_from_column(&column).ok());
    match now {
        Some(now) if now.data_type() != field.data_type() => {
            let field = field.as_ref().clone().with_data_type(now.data_type().clone());
            Transformed::yes(Expr::OuterReferenceColumn(Arc::new(field), column))
        }
        _ => Transformed::no(Expr::OuterReferenceColumn(field, column)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_nothing_holds_all_values() {
        use DataType::{Decimal128, Float32, Float64, Int32, Int64, UInt32, UInt64};
        for (from, to) in [
            (Int32, Int64),
            (UInt32, Int64),
            (UInt32, UInt32),
            (Int64, Decimal128(19, 0)),
            (UInt64, Decimal128(22, 2)),
            (Decimal128(5, 2), Decimal128(6, 3)),
            (UInt32, Float64),
            (Float32, Float64),
        ] {
            assert!(loses_nothing(&from, &to), "{from} {to}");
        }
        for (from, to) in [
            (Int64, Int32),
            (Int64, UInt64),
            (UInt64, Int64),
            (UInt64, Decimal128(19, 0)),
            (Int64, Decimal128(20, 2)),
            (Decimal128(5, 2), Decimal128(5, 3)),
            (Decimal128(5, 2), Decimal128(6, 1)),
            (Decimal128(5, 2), Int64),
            (Int64, Float64),
            (Float64, Float32),
            (DataType::Utf8, Int64),
        ] {
            assert!(!loses_nothing(&from, &to), "{from} {to}");
        }
    }
}
