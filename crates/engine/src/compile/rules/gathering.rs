//! GROUP BY with aggregates that keep all of their input, such as `array_agg`, done in one step.
//!
//! DataFusion aggregates in each thread first, and then merges the results. For these aggregates the first
//! step reduces nothing, but passes its groups on as few rows, each as large as a group: larger than anything
//! in between reserves memory for or splits.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::expressions::functions::gathers;

/// See the [module](self). The rule runs before rows are repartitioned by their groups.
#[derive(Debug)]
pub(crate) struct Gathering;

impl PhysicalOptimizerRule for Gathering {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let in_one_step = plan.transform_up(|node| {
            let last = node.downcast_ref::<AggregateExec>();
            let last = last.filter(|last| *last.mode() == AggregateMode::FinalPartitioned);
            let first = last.and_then(|last| last.input().downcast_ref::<AggregateExec>());
            let first = first.filter(|first| *first.mode() == AggregateMode::Partial);
            let (Some(last), Some(first)) = (last, first) else { return Ok(Transformed::no(node)) };
            if !first.aggr_expr().iter().any(|aggregate| gathers(aggregate.fun())) {
                return Ok(Transformed::no(node));
            }
            let one = AggregateExec::try_new(
                AggregateMode::SinglePartitioned,
                first.group_expr().clone(),
                first.aggr_expr().to_vec(),
                first.filter_expr().to_vec(),
                first.input().clone(),
                first.input_schema(),
            )?;
            Ok(Transformed::yes(Arc::new(one.with_limit_options(last.limit_options()))))
        })?;
        Ok(in_one_step.data)
    }

    fn name(&self) -> &'static str {
        "gathering"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
