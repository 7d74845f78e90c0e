//! The order of lists, structs and maps as in PostgreSQL and DuckDB: item by item, with NULL items as the
//! greatest, whatever NULLS FIRST or LAST says about values that are NULL as a whole. Arrow's kernels treat
//! NULL items as the least in comparisons, and in sorts place them by the sort key's option.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, Sort};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;

/// See the [module](self). The rule runs after type coercion, which gives both sides of a comparison one
/// type.
#[derive(Debug)]
pub(crate) struct NestedOrder;

impl AnalyzerRule for NestedOrder {
    fn name(&self) -> &'static str {
        "nested_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, compared)?.transform_up_with_subqueries(sorted).data()
    }
}

/// Whether this is a nested type with an order.
pub(crate) fn is_nested_in_order(data_type: &DataType) -> bool {
    data_type.is_nested() && RowConverter::supports_fields(&[field(data_type)])
}

/// Encodes values of this type as bytes that compare as the values do, with values that are NULL as a whole
/// last.
pub(crate) fn nested_order(data_type: &DataType) -> Result<RowConverter> {
    Ok(RowConverter::new(vec![field(data_type)])?)
}

fn field(data_type: &DataType) -> SortField {
    SortField::new_with_options(data_type.clone(), SortOptions { descending: false, nulls_first: false })
}

fn key(value: Expr) -> Expr {
    ScalarUDF::new_from_impl(Key { signature: Signature::any(1, Volatility::Immutable) }).call(vec![value])
}

fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_one = |expr: &Expr| has_order(expr, schema);
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq),
            right,
        }) if is_one(&left) && is_one(&right) => {
            let (left, right) = (Box::new(key(*left)), Box::new(key(*right)));
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
        Expr::Between(Between { expr, negated, low, high })
            if is_one(&expr) && is_one(&low) && is_one(&high) =>
        {
            let [expr, low, high] = [expr, low, high].map(|operand| Box::new(key(*operand)));
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::WindowFunction(mut window) => {
            let is_changed = keys(&mut window.params.order_by, is_one);
            changed(is_changed, Expr::WindowFunction(window))
        }
        // With DISTINCT the planner wants the argument itself in ORDER BY, and sorts it by this order.
        Expr::AggregateFunction(mut call) if !call.params.distinct => {
            let is_changed = keys(&mut call.params.order_by, is_one);
            changed(is_changed, Expr::AggregateFunction(call))
        }
        other => Transformed::no(other),
    })
}

fn sorted(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Sort(mut sort) => {
            let schema = sort.input.schema().clone();
            let is_changed = keys(&mut sort.expr, |expr| has_order(expr, &schema));
            changed(is_changed, LogicalPlan::Sort(sort))
        }
        LogicalPlan::Distinct(Distinct::On(mut distinct)) => {
            let schema = distinct.input.schema().clone();
            let sorts = distinct.sort_expr.as_deref_mut().unwrap_or_default();
            let is_changed = keys(sorts, |expr| has_order(expr, &schema));
            changed(is_changed, LogicalPlan::Distinct(Distinct::On(distinct)))
        }
        other => Transformed::no(other),
    })
}

fn has_order(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| is_nested_in_order(&data_type))
}

/// Replaces the sort expressions for which `is_one` holds by their keys; returns whether there were any.
fn keys(sorts: &mut [Sort], is_one: impl Fn(&Expr) -> bool) -> bool {
    let mut is_changed = false;
    for sort in sorts.iter_mut().filter(|sort| is_one(&sort.expr)) {
        sort.expr = key(std::mem::take(&mut sort.expr));
        is_changed = true;
    }
    is_changed
}

fn changed<T>(is_changed: bool, data: T) -> Transformed<T> {
    if is_changed { Transformed::yes(data) } else { Transformed::no(data) }
}

/// A function from values to bytes that compare as the values do; NULL stays NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    signature: Signature,
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &'static str {
        "keirin_nested_order"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &arguments.args[0] {
            ColumnarValue::Array(values) => ColumnarValue::Array(Arc::new(bytes(values)?)),
            ColumnarValue::Scalar(value) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&bytes(&value.to_array()?)?, 0)?)
            }
        })
    }
}

fn bytes(values: &ArrayRef) -> Result<BinaryArray> {
    let converter = nested_order(values.data_type())?;
    let rows = converter.convert_columns(std::slice::from_ref(values))?.try_into_binary()?;
    let (offsets, bytes, _) = rows.into_parts();
    Ok(BinaryArray::try_new(offsets, bytes, values.logical_nulls())?)
}
