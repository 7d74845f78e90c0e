//! Filters that are not moved past columns of one name.
//!
//! DataFusion's rule that moves filters down, those of plans and those that joins and sorts make while they run, finds
//! the columns of an input by their names. Where two have one name, as above a join of tables that both have an `id`,
//! it takes the first: `l RIGHT JOIN r ON l.k = r.id WHERE l.id IS NULL` lost the rows of `r` that this asks for. So
//! while the rule runs, a [`Fence`] stands above each operator whose columns have no names of their own. Most filters
//! are below by then: in the logical plan, columns are known by their tables.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::Fence;

/// A rule that moves filters down. See the [module](self).
#[derive(Debug)]
pub(crate) struct SameNames(pub(crate) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for SameNames {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fenced = plan.transform_up(|node| {
            Ok(match has_same_names(&node) {
                true => Transformed::yes(Arc::new(Fence::against_filters(node)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(node),
            })
        })?;
        let moved = self.0.optimize(fenced.data, options)?;
        if !fenced.transformed {
            return Ok(moved);
        }
        let without_fences = moved.transform_up(|node| {
            let fence = node.downcast_ref::<Fence>().filter(|fence| fence.is_against_filters());
            Ok(match fence {
                Some(fence) => Transformed::yes(fence.input().clone()),
                None => Transformed::no(node),
            })
        });
        without_fences.data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn has_same_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::with_capacity(schema.fields().len());
    !schema.fields().iter().all(|field| names.insert(field.name()))
}
