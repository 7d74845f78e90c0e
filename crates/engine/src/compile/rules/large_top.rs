//! ORDER BY with a LIMIT where DataFusion's way to keep the first rows or groups fails.
//!
//! It keeps the first rows in memory and cannot spill them: a large LIMIT fails where the whole sort would spill. From
//! [`ROWS_MIN`] on, rows are sorted, which spills, and then cut. And it looks for groups that are to go by `=`, with which
//! it does not find NaN: of groups by floats all are kept. So they are where a LIMIT without an order is for groups of rows
//! that have one, which it takes for the first groups by an order that nobody gave.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// LIMITs from this one on are large: 100 MB in rows of a kilobyte.
const ROWS_MIN: usize = 100_000;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LargeTop;

impl PhysicalOptimizerRule for LargeTop {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let sorted = plan.transform_up(|node| {
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>()
                && let Some(limit) = aggregate.limit_options()
                && match limit.descending() {
                    Some(_) => is_by_float(aggregate),
                    None => !aggregate.is_unordered_unfiltered_group_by_distinct(),
                }
            {
                return Ok(Transformed::yes(Arc::new(aggregate.with_new_limit_options(None))));
            }
            let large = node.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?)));
            Ok(match large {
                // One limit for each partition, as the sort may leave several partitions unmerged.
                Some((sort, fetch)) if fetch >= ROWS_MIN => {
                    Transformed::yes(Arc::new(LocalLimitExec::new(Arc::new(sort.with_fetch(None)), fetch)))
                }
                _ => Transformed::no(node),
            })
        })?;
        Ok(sorted.data)
    }

    fn name(&self) -> &'static str {
        "large_top"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_by_float(aggregate: &AggregateExec) -> bool {
    let schema = aggregate.input().schema();
    let keys = aggregate.group_expr().expr().iter();
    let mut types = keys.filter_map(|(key, _)| key.data_type(&schema).ok());
    types.any(|data_type| data_type.is_floating())
}
