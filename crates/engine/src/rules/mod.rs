//! Our changes to plans: logical ones before DataFusion's own, physical ones after.

mod common_types;
mod date_intervals;
mod dependent;
mod fence;
mod large_top;
mod meanings;
mod subqueries;
mod uuids;
mod volatile;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

pub(crate) use common_types::{CommonTypes, with_common_types};
pub(crate) use date_intervals::keep_hours;
pub(crate) use fence::{Fence, Fences};
pub(crate) use large_top::LargeTop;
pub(crate) use meanings::Meanings;
pub(crate) use subqueries::Subqueries;
pub(crate) use uuids::{Uuids, as_text};
pub(crate) use volatile::Volatile;

/// The plan with the expressions of all its nodes changed from the leaves up, each beside the columns that it is over;
/// columns keep their names.
pub(crate) fn rewrite_expressions(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let mut is_changed = false;
    let rewrite_node = |plan: LogicalPlan| {
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema
                .merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
        }
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?;
        // A changed type reaches the plans above; where nothing changed below, schemas are what they were.
        is_changed |= rewritten.transformed;
        if is_changed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    };
    plan.transform_up_with_subqueries(rewrite_node).data()
}
