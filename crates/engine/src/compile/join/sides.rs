//! Which side of a join is the build side, where one is groups of all rows of a table.
//!
//! The optimizer takes the side with fewer rows, and groups are few. But a scan below groups on the probe side reads
//! only the rows whose keys the build side has, which is worth more than a small table.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::compile::fast_path;
use crate::sources::stored::StoredScan;

/// The rows that are grouped have to be so many times those of the other side.
const ROWS_RATIO: usize = 4;

/// See the [module](self). It runs when the optimizer has chosen, before filters are pushed down.
#[derive(Debug)]
pub(crate) struct Sides;

impl PhysicalOptimizerRule for Sides {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_path::is_on(options) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            Ok(match swapped(&node)? {
                Some(swapped) => Transformed::yes(swapped),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "join_sides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn swapped(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    // Of the side that is not filtered then, no row is given for itself.
    let is_free = matches!(
        join.join_type(),
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi | JoinType::Right | JoinType::RightAnti
    );
    let keys: Option<Vec<usize>> =
        join.on().iter().map(|(key, _)| Some(key.downcast_ref::<Column>()?.index())).collect();
    let (Some(keys), false) = (keys.filter(|_| is_free), join.null_aware) else { return Ok(None) };
    let Some(grouped) = grouped_by(join.left(), keys) else { return Ok(None) };
    if has_filter(grouped)? || !has_filter(join.right())? {
        return Ok(None);
    }
    match (row_count(grouped).get_value(), row_count(join.right()).get_value()) {
        (Some(grouped), Some(other)) if *grouped / ROWS_RATIO > *other => {
            join.swap_inputs(*join.partition_mode()).map(Some)
        }
        _ => Ok(None),
    }
}

/// What is known of the count of a plan's rows.
pub(super) fn row_count(plan: &Arc<dyn ExecutionPlan>) -> Precision<usize> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    statistics.map_or(Precision::Absent, |statistics| statistics.num_rows)
}

/// How many rows have the same keys, at least, on the average.
pub(super) fn rows_of_key(plan: &Arc<dyn ExecutionPlan>, keys: &[Arc<dyn PhysicalExpr>]) -> Option<usize> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    let distinct = keys.iter().try_fold(1_usize, |all, key| {
        let column = statistics.column_statistics.get(key.downcast_ref::<Column>()?.index())?;
        Some(all.saturating_mul(*column.distinct_count.get_value()?))
    })?;
    Some(statistics.num_rows.get_value()? / distinct.max(1))
}

/// The input of the groups that `plan` is, if their keys are among these of its columns.
fn grouped_by(plan: &Arc<dyn ExecutionPlan>, mut columns: Vec<usize>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        for column in &mut columns {
            *column = projection.expr()[*column].expr.downcast_ref::<Column>()?.index();
        }
        return grouped_by(projection.input(), columns);
    }
    let aggregate = plan.downcast_ref::<AggregateExec>()?;
    let keys = aggregate.group_expr().expr().len();
    let is_plain = aggregate.group_expr().is_single() && keys > 0;
    if !is_plain || columns.iter().any(|column| *column >= keys) {
        return None;
    }
    // Partial groups are below final ones.
    Some(match aggregate.input().downcast_ref::<AggregateExec>() {
        Some(partial) => partial.input(),
        None => aggregate.input(),
    })
}

/// Whether some rows of tables are left out.
fn has_filter(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut has_filter = false;
    plan.apply(|node| {
        has_filter |=
            node.is::<FilterExec>() || node.downcast_ref::<StoredScan>().is_some_and(StoredScan::is_filtered);
        Ok(if has_filter { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_filter)
}
