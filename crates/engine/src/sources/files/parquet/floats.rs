//! Statistics of floats. Those of Parquet leave out NaN (parquet.thrift, `ColumnOrder`), which for us is a
//! value like others, and greater than all numbers. So the true maximum is unknown; the minimum holds for all
//! other values.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNotNullExpr, IsNullExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;

/// Whether values of this type may contain floats.
fn has_floats(data_type: &DataType) -> bool {
    data_type.is_floating() || data_type.is_nested()
}

/// The statistics of a file without the bounds of columns with floats.
pub(super) fn without_floats(mut statistics: Statistics, schema: &Schema) -> Statistics {
    for (field, column) in schema.fields().iter().zip(&mut statistics.column_statistics) {
        if has_floats(field.data_type()) {
            (column.min_value, column.max_value) = (Precision::Absent, Precision::Absent);
        }
    }
    statistics
}

/// Whether statistics may exclude rows by `filter`: it uses no floats, or only comparisons that NaN does not
/// pass.
pub(in super::super) fn can_prune(filter: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_float = |column: &Column| {
        schema.field_with_name(column.name()).is_ok_and(|field| has_floats(field.data_type()))
    };
    if !collect_columns(filter).iter().any(is_float) {
        return true;
    }
    if let Some(null) = filter.downcast_ref::<IsNullExpr>() {
        return null.arg().is::<Column>();
    }
    if let Some(null) = filter.downcast_ref::<IsNotNullExpr>() {
        return null.arg().is::<Column>();
    }
    let Some(binary) = filter.downcast_ref::<BinaryExpr>() else { return false };
    let (left, right) = (binary.left(), binary.right());
    match binary.op() {
        Operator::And | Operator::Or => can_prune(left, schema) && can_prune(right, schema),
        Operator::Eq => is_compared(left, right) || is_compared(right, left),
        Operator::Lt | Operator::LtEq => is_compared(left, right),
        Operator::Gt | Operator::GtEq => is_compared(right, left),
        _ => false,
    }
}

/// Whether this compares a column with a value that is not NaN.
fn is_compared(column: &Arc<dyn PhysicalExpr>, value: &Arc<dyn PhysicalExpr>) -> bool {
    let is_number = |literal: &Literal| match literal.value() {
        ScalarValue::Float16(Some(value)) => !value.is_nan(),
        ScalarValue::Float32(Some(value)) => !value.is_nan(),
        ScalarValue::Float64(Some(value)) => !value.is_nan(),
        _ => false,
    };
    column.is::<Column>() && value.downcast_ref::<Literal>().is_some_and(is_number)
}
