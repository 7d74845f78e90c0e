//! Statistics that answer no aggregate with FILTER.
//!
//! DataFusion's rule that answers `count(*)`, `min` and `max` from exact statistics looks for the partial step below a
//! final one. Where that has a FILTER it goes on downwards, takes that of the next aggregate below, if there is one, and
//! puts the answers of this in place of the upper one's. So it sees no plan that has such a step.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The rule that answers from statistics. See the [module](self).
#[derive(Debug)]
pub(crate) struct FilteredStatistics(pub(crate) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for FilteredStatistics {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let has_filter = plan.exists(|node| {
            let aggregate = node.downcast_ref::<AggregateExec>();
            Ok(aggregate.is_some_and(|aggregate| aggregate.filter_expr().iter().any(Option::is_some)))
        })?;
        if has_filter { Ok(plan) } else { self.0.optimize(plan, options) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
