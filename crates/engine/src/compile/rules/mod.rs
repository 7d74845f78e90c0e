//! Our rules on plans: logical ones run before DataFusion's own, physical ones after.

mod all_sets;
mod collations;
mod common_types;
mod concatenation;
mod date_intervals;
mod early_rows;
mod fence;
mod filtered_statistics;
mod former_keys;
mod gathering;
mod grouping_keys;
mod groups_in_order;
mod large_top;
mod late_rows;
mod lists;
mod meanings;
mod nested_order;
mod null_equality;
mod operators;
mod outer_types;
mod passage;
mod same_names;
mod same_windows;
mod semi_joins;
mod sort_keys;
mod subqueries;
mod uuids;
mod volatile;
mod whole_sums;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

pub(crate) use all_sets::AllSets;
pub(crate) use collations::{Collations, bare as bare_collation, named as collation_named};
pub(crate) use common_types::{CommonTypes, with_common_types};
pub(crate) use concatenation::{Concatenation, concatenation};
pub(crate) use date_intervals::keep_hours;
pub(crate) use early_rows::EarlyRows;
pub(crate) use fence::{Fence, Fences, LastFences, WithoutFences};
pub(crate) use filtered_statistics::FilteredStatistics;
pub(crate) use former_keys::FormerKeys;
pub(crate) use gathering::Gathering;
pub(crate) use grouping_keys::grouping_keys;
pub(crate) use groups_in_order::GroupsInOrder;
pub(crate) use large_top::LargeTop;
pub(crate) use late_rows::LateRows;
pub(crate) use lists::Lists;
pub(crate) use meanings::Meanings;
pub(crate) use nested_order::{NestedOrder, is_nested_in_order, nested_order};
pub(crate) use null_equality::{CrossJoins, EqualKeys};
pub(crate) use operators::{operator_display, operator_name};
pub(crate) use outer_types::OuterTypes;
pub(crate) use passage::PassagePlanner;
pub(crate) use same_names::SameNames;
pub(crate) use same_windows::SameWindows;
pub(crate) use semi_joins::SemiJoins;
pub(crate) use sort_keys::SortKeys;
use subqueries::PREFIX as SUBQUERY_PREFIX;
pub(crate) use subqueries::{LATERAL_MARK, Subqueries, mentions_outer};
pub(crate) use uuids::{Uuids, as_text};
pub(crate) use volatile::Volatile;
pub(crate) use whole_sums::{WholeSums, may_be_cut};

/// The plan with all expressions rewritten from the leaves up, each with the schema of its inputs; columns
/// keep their names.
pub(crate) fn rewrite_expressions(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    rewrite_whole_expressions(plan, |whole, schema| whole.transform_up(|expr| rewrite(expr, schema)))
}

/// As [`rewrite_expressions`], but from the root down. For rules that ask operators for their types and replace
/// them by functions: the type of a function takes much longer to find out, as DataFusion writes out the names
/// of all its operands for it.
pub(crate) fn rewrite_expressions_down(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    rewrite_whole_expressions(plan, |whole, schema| whole.transform_down(|expr| rewrite(expr, schema)))
}

fn rewrite_whole_expressions(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let mut is_changed = false;
    let rewrite_node = |plan: LogicalPlan| {
        let schema = schema_of_expressions(&plan)?;
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = rewrite(expr, &schema)?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?;
        // A changed type affects the plans above; if nothing changed below, the schema stays as it was.
        is_changed |= rewritten.transformed;
        if is_changed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    };
    plan.transform_up_with_subqueries(rewrite_node).data()
}

/// The schema of what the expressions of a node are computed of.
fn schema_of_expressions(plan: &LogicalPlan) -> Result<DFSchemaRef> {
    Ok(match (plan, &plan.inputs()[..]) {
        (_, [input]) => input.schema().clone(),
        (LogicalPlan::TableScan(scan), _) if !scan.filters.is_empty() => {
            Arc::new(DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?)
        }
        (_, inputs) => Arc::new(merge_schema(inputs)),
    })
}

/// The expression over columns that are in other places, given those in which they are.
pub(crate) fn moved(
    expression: &Arc<dyn PhysicalExpr>,
    place: impl Fn(usize) -> usize,
) -> Result<Arc<dyn PhysicalExpr>> {
    let of_node = |node: Arc<dyn PhysicalExpr>| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        let column = Column::new(column.name(), place(column.index()));
        Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
    };
    expression.clone().transform_up(of_node).data()
}
