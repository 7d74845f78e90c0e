//! Joins that ask only whether there is a row, as IN and EXISTS do, with few rows of equal keys.
//!
//! A hash join pairs each row of one side with all rows of the other that have its key, although one of the side that
//! is asked would do: with a few keys in many rows it takes time by the square of the rows. So that side is grouped
//! before, partition by partition; where few rows are equal, the grouping notices and lets the rest through.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::compile::fast_path;
use crate::compile::grouping::GroupExec;

/// See the [module](self). The rule runs when it is settled which side of a join is asked.
#[derive(Debug)]
pub(crate) struct SemiJoins;

impl PhysicalOptimizerRule for SemiJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_fast = fast_path::is_on(options);
        plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>().filter(|join| join.filter().is_none())
            else {
                return Ok(Transformed::no(node));
            };
            let children = match join.join_type() {
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                    vec![join.left().clone(), distinct(join.right(), is_fast)?]
                }
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    vec![distinct(join.left(), is_fast)?, join.right().clone()]
                }
                _ => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(replace_children_if_necessary(node, children)?))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "semi_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rows of a plan with fewer that are equal, before they are sent between partitions.
fn distinct(plan: &Arc<dyn ExecutionPlan>, is_fast: bool) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>() {
        let input = distinct(plan.children()[0], is_fast)?;
        return replace_children_if_necessary(plan.clone(), vec![input]);
    }
    let schema = plan.schema();
    if plan.is::<AggregateExec>() || schema.fields().is_empty() {
        return Ok(plan.clone());
    }
    let key = |(place, name): (usize, &String)| {
        (Arc::new(Column::new(name, place)) as Arc<dyn PhysicalExpr>, name.clone())
    };
    let keys = schema.fields().iter().map(|field| field.name()).enumerate().map(key).collect();
    let keys = PhysicalGroupBy::new_single(keys);
    let grouped =
        AggregateExec::try_new(AggregateMode::Partial, keys, Vec::new(), Vec::new(), plan.clone(), schema)?;
    let grouped = Arc::new(grouped) as Arc<dyn ExecutionPlan>;
    let ours = if is_fast { GroupExec::of_many_rows(&grouped) } else { None };
    Ok(ours.map_or(grouped, |ours| Arc::new(ours)))
}
