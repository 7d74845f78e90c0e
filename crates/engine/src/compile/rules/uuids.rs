//! Converts text to UUIDs: in casts, in INSERT, and in constants that are compared with a UUID, in any case
//! and with or without hyphens.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Between, Cast, InList, TryCast};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, WriteOp, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use crate::expressions::functions::nested_uuids::{has_uuids, nested_uuids};
use crate::expressions::functions::uuids;
use crate::expressions::uuids::{format, is_binary_uuid, is_uuid, not_one, parse};

/// See the [module](self). The rule runs before type coercion, which would remove casts between texts.
#[derive(Debug)]
pub(crate) struct Uuids;

impl AnalyzerRule for Uuids {
    fn name(&self) -> &'static str {
        "uuids"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, with_uuids)?.transform_up(insert).data()
    }
}

fn has_uuid(expr: &Expr, schema: &DFSchema) -> bool {
    expr.to_field(schema).is_ok_and(|(_, field)| is_uuid(&field))
}

fn call(name: &'static str, argument: Expr) -> Expr {
    Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(
        Arc::new(uuids::function(name)),
        vec![argument],
    ))
}

fn with_uuids(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_one = |expr: &Expr| has_uuid(expr, schema);
    Ok(match expr {
        Expr::Cast(Cast { expr, field }) if is_uuid(&field) => {
            Transformed::yes(if is_one(&expr) { *expr } else { call(uuids::CAST, *expr) })
        }
        Expr::TryCast(TryCast { expr, field }) if is_uuid(&field) => {
            Transformed::yes(if is_one(&expr) { *expr } else { call(uuids::TRY_CAST, *expr) })
        }
        Expr::Cast(Cast { expr, field }) if has_uuids(field.data_type()) => {
            let to = field.clone();
            Transformed::yes(nested_uuids(Expr::Cast(Cast { expr, field }), &to, false))
        }
        Expr::TryCast(TryCast { expr, field }) if has_uuids(field.data_type()) => {
            let to = field.clone();
            Transformed::yes(nested_uuids(Expr::TryCast(TryCast { expr, field }), &to, true))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            let (of_left, of_right) = (is_one(&left), is_one(&right));
            let left = if of_right { constant(*left)? } else { Transformed::no(*left) };
            let right = if of_left { constant(*right)? } else { Transformed::no(*right) };
            let is_changed = left.transformed || right.transformed;
            let (left, right) = (Box::new(left.data), Box::new(right.data));
            let compared = Expr::BinaryExpr(BinaryExpr { left, op, right });
            if is_changed { Transformed::yes(compared) } else { Transformed::no(compared) }
        }
        Expr::InList(InList { expr, list, negated }) if is_one(&expr) => {
            let list = list.into_iter().map(|item| constant(item).data()).collect::<Result<_>>()?;
            Transformed::yes(Expr::InList(InList { expr, list, negated }))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_one(&expr) => {
            let (low, high) = (Box::new(constant(*low)?.data), Box::new(constant(*high)?.data));
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        other => Transformed::no(other),
    })
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// A constant text, normalised as the text of a UUID.
fn constant(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::Literal(value, _) = &expr else { return Ok(Transformed::no(expr)) };
    let Some(Some(text)) = value.try_as_str() else { return Ok(Transformed::no(expr)) };
    let bytes = parse(text).ok_or_else(|| DataFusionError::External(Box::new(not_one(text))))?;
    Ok(Transformed::yes(lit(format(bytes))))
}

/// Converts the inserted values of UUID columns.
fn insert(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Dml(mut dml) = plan else { return Ok(Transformed::no(plan)) };
    let (wanted, given) = (dml.target.schema(), dml.input.schema().clone());
    let is_insert = matches!(dml.op, WriteOp::Insert(_)) && wanted.fields().len() == given.fields().len();
    let is_text = |index: usize| is_uuid(wanted.field(index)) && !is_uuid(given.field(index));
    let is_nested = |index: usize| {
        let wanted = wanted.field(index).data_type();
        has_uuids(wanted) && wanted != given.field(index).data_type()
    };
    if !is_insert || !(0..wanted.fields().len()).any(|index| is_text(index) || is_nested(index)) {
        return Ok(Transformed::no(LogicalPlan::Dml(dml)));
    }
    let columns = given.iter().enumerate().map(|(index, (qualifier, field))| {
        let column = Expr::Column(Column::from((qualifier, field)));
        if is_text(index) {
            call(uuids::CAST, column).alias(field.name())
        } else if is_nested(index) {
            let to = wanted.fields()[index].clone();
            let cast = Expr::Cast(Cast { expr: Box::new(column), field: to.clone() });
            nested_uuids(cast, &to, false).alias(field.name())
        } else {
            column
        }
    });
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(dml.input)).project(columns)?.build()?;
    dml.input = Arc::new(input);
    Ok(Transformed::yes(LogicalPlan::Dml(dml)))
}

/// The rows of files, with their UUIDs converted to text, and with texts that are said to be UUIDs as such.
pub(crate) fn as_text(
    table: Arc<dyn datafusion::catalog::TableProvider>,
) -> Result<Arc<dyn datafusion::catalog::TableProvider>> {
    let schema = table.schema();
    let is_one = |field: &Field| is_binary_uuid(field) || is_uuid(field);
    if !schema.fields().iter().any(|field| is_one(field) || has_uuids(field.data_type())) {
        return Ok(table);
    }
    let source = datafusion::datasource::provider_as_source(table);
    let columns = schema.fields().iter().map(|field| {
        let column = Expr::Column(Column::from_name(field.name()));
        if is_one(field) {
            call(uuids::CAST, column).alias(field.name())
        } else if has_uuids(field.data_type()) {
            nested_uuids(column, field, false).alias(field.name())
        } else {
            column
        }
    });
    let plan = LogicalPlanBuilder::scan("file", source, None)?.project(columns)?.build()?;
    Ok(Arc::new(datafusion::datasource::ViewTable::new(plan, None)))
}
