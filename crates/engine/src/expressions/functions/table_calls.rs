//! Names for what table functions give.
//!
//! DataFusion names the tables of all calls of a function alike, and takes plans that read tables of one name for equal:
//! of two subqueries over `range(10)` and `range(20)` it would run one.

use datafusion::common::{DFSchema, TableReference, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, TableFactor};

/// Scans of table functions by the names of the calls as written, such as `range(10)`; the function's name is their alias
/// if they have none.
#[derive(Debug)]
pub(super) struct TableCalls;

impl RelationPlanner for TableCalls {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Table { name, alias, args: Some(args), .. } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let exprs = args.args.iter().map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                context.sql_expr_to_logical_expr(expr.clone(), &DFSchema::empty())
            }
            arg => plan_err!("{name} takes no argument such as {arg}"),
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let function = name.to_string();
        let source = context.context_provider().get_table_function_source(&function, exprs)?;
        let written: Vec<String> = args.args.iter().map(ToString::to_string).collect();
        let call = format!("{function}({})", written.join(", "));
        let scan = LogicalPlanBuilder::scan(TableReference::bare(call), source, None)?;
        let plan = if alias.is_none() { scan.alias(TableReference::bare(function))? } else { scan };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan.build()?, alias))))
    }
}
