//! Rows for a top-N as soon as a filter over files has some.
//!
//! A filter gathers rows until they are a batch. The scan below a sort with a LIMIT skips what the first rows that were
//! sorted exclude, so it is to hear of them early.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

/// The rows of a batch: few, but enough to be worth the handling of one.
const BATCH_ROWS: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EarlyRows;

impl PhysicalOptimizerRule for EarlyRows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let early = plan.transform_up(|node| {
            let sort = node.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some());
            let filter = sort.and_then(|sort| sort.input().downcast_ref::<FilterExec>());
            let Some(filter) = filter.filter(|filter| filter.input().is::<DataSourceExec>()) else {
                return Ok(Transformed::no(node));
            };
            let batch_rows = filter.batch_size().min(BATCH_ROWS);
            let filter = FilterExecBuilder::from(filter).with_batch_size(batch_rows).build()?;
            Ok(Transformed::yes(replace_children_if_necessary(node, vec![Arc::new(filter)])?))
        });
        early.data()
    }

    fn name(&self) -> &'static str {
        "early_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
