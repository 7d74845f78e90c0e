//! Scans that are filtered by one of several keys of a join.
//!
//! The filter by all keys together goes no further down than all of them do: not through groups of which one is an
//! aggregate. A filter by one key does.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::sources::stored::StoredScan;

/// `plan` with a scan filtered by `filter`, which is about this column of the plan; `None` if it comes from no scan as it is,
/// or rows of other values matter for those that are left.
pub(super) fn narrowed(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    filter: &Arc<DynamicFilterPhysicalExpr>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<StoredScan>() {
        let scan = scan.filtered(column, |column| filter.clone().with_new_children(vec![column]))?;
        return Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    let Some((child, column)) = origin(plan, column) else { return Ok(None) };
    let mut children: Vec<_> = plan.children().into_iter().cloned().collect();
    let Some(narrowed) = narrowed(&children[child], column, filter)? else { return Ok(None) };
    children[child] = narrowed;
    replace_children_if_necessary(plan.clone(), children).map(Some)
}

/// Which column of which input a column is, if rows of other values make no difference.
fn origin(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<(usize, usize)> {
    let place = |expression: &Arc<dyn PhysicalExpr>| expression.downcast_ref::<Column>().map(Column::index);
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Some((0, place(&projection.expr()[column].expr)?));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let keys = aggregate.group_expr();
        let is_plain = keys.is_single() && aggregate.limit_options().is_none();
        return Some((0, place(&keys.expr().get(column).filter(|_| is_plain)?.0)?));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        if *join.join_type() != JoinType::Inner || join.fetch().is_some() {
            return None;
        }
        let (_, columns) = build_join_schema(&join.left().schema(), &join.right().schema(), join.join_type());
        let column = join.projection.as_ref().map_or(column, |projection| projection[column]);
        return Some((usize::from(columns[column].side == JoinSide::Right), columns[column].index));
    }
    let passes_on = plan.is::<RepartitionExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>() && plan.fetch().is_none();
    passes_on.then_some((0, column))
}
