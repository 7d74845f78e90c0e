//! Checked operators of a filter see only the rows that its other conditions let through.
//!
//! `WHERE ok AND w * w > 3` must not fail for a row that is not `ok`, while AND computes both sides for whole
//! batches. A filter of such conditions becomes two, the checked conditions above the others. File scans compute
//! no conditions of their own: they only skip what statistics rule out, which a checked operator never does.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};

use super::checked::Checked;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CheckedLast;

fn is_checked(condition: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    condition.exists(|part| {
        let function = part.downcast_ref::<ScalarFunctionExpr>();
        Ok(function.is_some_and(|function| function.fun().inner().is::<Checked>()))
    })
}

impl PhysicalOptimizerRule for CheckedLast {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let split = plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            let (mut first, mut last) = (Vec::new(), Vec::new());
            for condition in split_conjunction(filter.predicate()) {
                let side = if is_checked(condition)? { &mut last } else { &mut first };
                side.push(condition.clone());
            }
            if first.is_empty() || last.is_empty() {
                return Ok(Transformed::no(node));
            }
            let below = FilterExecBuilder::new(conjunction(first), filter.input().clone())
                .with_batch_size(filter.batch_size())
                .with_default_selectivity(filter.default_selectivity())
                .build()?;
            let above = FilterExecBuilder::from(filter)
                .with_predicate(conjunction(last))
                .with_input(Arc::new(below))
                .build()?;
            Ok(Transformed::yes(Arc::new(above)))
        })?;
        Ok(split.data)
    }

    fn name(&self) -> &'static str {
        "checked_last"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
